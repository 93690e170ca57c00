"""Changes of the resources that clients follow, and of the listings of the sources.

The server passes a source's own notification on at once: the next read asks the source. A resource without
notifications is read again when its time to live ends (`bbfs.resources.watch`), and clients are notified only if its
content differs.
"""

import logging
from dataclasses import dataclass
from functools import partial

import trio
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated

from bbfs.model import uri_paths
from bbfs.model.errors import BbfsError
from bbfs.model.uri import parse_data_source_uri
from bbfs.model.values import Change
from bbfs.resources.catalog.record import Path
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.resources.watch import Watch
from bbfs.server_parts.subscribers import Subscribers
from bbfs.sources import CanAnnounce, CanWatch

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Followed:
    """A resource that clients follow.

    looked_at: whether the server reads it again, as its source does not notify. notified_of: the time of the load
    whose content clients were last notified to be stale.
    """

    source: Source
    native_uri: str
    scope: trio.CancelScope
    followers: int = 1
    looked_at: bool = False
    notified_of: float | None = -1.0  # of no load

    @property
    def announced(self) -> bool:
        """Return whether the source notifies of its changes. A watchable source that cannot say so is assumed to."""
        handler = self.source.handler
        if isinstance(handler, CanAnnounce):
            return handler.announces(self.native_uri)
        return isinstance(handler, CanWatch)


class Following(Subscribers):
    """The subscribers of `bbfs serve`, and the resources that they follow.

    wait: seconds for which a source may take to say whether it is going to tell of a resource.
    """

    def __init__(self, manager: ResourceManager, nursery: trio.Nursery, wait: float) -> None:
        super().__init__(nursery)
        self._wait = wait
        self._manager = manager
        self._followed: dict[str, _Followed] = {}
        manager.changes.subscribe(self._changed)

    async def follow(self, *uris: str) -> None:
        """Notify of all changes of these resources that happen after this has returned.

        Waits up to `wait` for the sources to agree. Raises InvalidUri, and NotFound for an unknown source; then none of
        the resources is followed.
        """
        found = [(uri, *self._manager.by_uri.record_of(uri)) for uri in uris]
        new: dict[str, _Followed] = {}
        for uri, source, record in found:
            known = self._followed.get(uri)
            if known is None:
                native = record.metadata.native_uri
                new[uri] = self._followed[uri] = _Followed(source, native, trio.CancelScope())
                if isinstance(source.handler, CanWatch):
                    source.handler.interested(native)
            else:
                known.followers += 1
        try:
            with trio.move_on_after(self._wait):
                async with trio.open_nursery() as nursery:
                    for source in {each.source.data.id: each.source for each in new.values()}.values():
                        nursery.start_soon(self._confirmed, source)
            begun = [self._look_at(uri, each) for uri, each in new.items() if each.followers and not each.announced]
            with trio.move_on_after(self._wait):
                for each in begun:
                    await each.wait()
        except trio.Cancelled:
            for uri in uris:
                self.leave(uri)
            raise

    async def _confirmed(self, source: Source) -> None:
        """Wait until a source has accepted or refused the subscriptions."""
        if not isinstance(source.handler, CanAnnounce):
            return
        try:
            await self._manager.tree.below(source, ())  # this connects it
            await source.handler.confirmed()
        except BbfsError as error:
            log.info("%s: does not tell of changes: %s", source.data.id, error)

    def leave(self, uri: str) -> None:
        """Count one follower less; stop following after the last."""
        known = self._followed[uri]
        known.followers -= 1
        if not known.followers:
            del self._followed[uri]
            known.scope.cancel()

    def _look_at(self, uri: str, followed: _Followed) -> trio.Event:
        """Read a resource repeatedly while it is followed. The event is set after the first read."""
        followed.looked_at = True
        begun = trio.Event()
        self._nursery.start_soon(self._look, uri, followed, begun)
        return begun

    async def _look(self, uri: str, followed: _Followed, begun: trio.Event) -> None:
        with followed.scope:
            try:
                path = await self._path(uri)
                watch = Watch(self._manager, [path], partial(self._found, uri), partial(log.info, "%s"))
                async with trio.open_nursery() as nursery:
                    await nursery.start(watch.run)
                    begun.set()
            except* BbfsError as group:
                log.info("%s: changes of it are not looked for: %s", uri, group.exceptions[0])
            finally:
                begun.set()

    async def _path(self, uri: str) -> Path:
        """Return the path of a resource from the mount's root; for an unlisted one the path that its URI gives."""
        source, record = self._manager.by_uri.record_of(uri)
        data = source.data
        if not source.catalog.lists_all:
            return (data.uri_prefix, *source.catalog.plain_path(record.metadata.native_uri))
        await self._manager.tree.below(source, ())
        source, record = self._manager.by_uri.record_of(uri)
        if record.path:
            return self._manager.roots.path_of(record)
        parsed = parse_data_source_uri(uri)
        return (parsed.base_prefix, *uri_paths.plain_path(parsed.original_uri).path)

    def _found(self, uri: str, _change: Change) -> None:
        """Note another content. The record of the URI need not be the record of the path that was read."""
        followed = self._followed.get(uri)
        record = followed.source.catalog.record(followed.native_uri) if followed is not None else None
        if record is not None:
            record.invalidate()
        self.notify(ResourceUpdated(uri))

    def _changed(self, change: Change) -> None:
        for uri, followed in self._followed.items():
            if followed.source.data.id == change.source_id and self._is_outdated(followed, change):
                self.notify(ResourceUpdated(uri))
        if change.event == "listed":
            self.notify(ResourcesListChanged())

    def _is_outdated(self, followed: _Followed, change: Change) -> bool:
        """Return whether clients must be notified that a change concerns a resource, and note that they are."""
        record = followed.source.catalog.record(followed.native_uri)
        if record is None or not record.path:
            return followed.native_uri == change.uri
        if followed.looked_at or not change.concerns(self._manager.roots.path_of(record)):
            return False
        if followed.announced:
            if not record.invalidated:
                return False  # a load has found the change that the source announced
            announced = change.uri is not None or change.event == "missed"
            if not announced and followed.notified_of == record.fetched_at:
                return False  # the source has announced it, and its new listing shows it
        followed.notified_of = record.fetched_at
        return True
