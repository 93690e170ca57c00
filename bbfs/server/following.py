"""Changes of the resources that clients follow, and of the listings of the sources.

The server passes a source's own notification on at once: the next read asks the source. A resource without
notifications is read again when its time to live ends (`bbfs.resources.watch`), and clients are notified only if its
content differs.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import trio
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated

from bbfs.model import uri_paths
from bbfs.model.errors import BbfsError, NotADirectory, NotFound
from bbfs.model.uri import parse_data_source_uri
from bbfs.resources.catalog import DirectoryCatalog
from bbfs.resources.catalog.record import Path, Record
from bbfs.resources.invalidation import Change
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.resources.watch import Difference, Watch
from bbfs.serving.subscribers import Subscribers
from bbfs.sources import CanAnnounce, CanWatch

log = logging.getLogger(__name__)

SETTLED_WITHIN = 5.0
"""Seconds for which a source may take to say whether it is going to tell of a resource."""


@dataclass(slots=True)
class _Followed:
    """A resource that clients follow.

    looked_at: whether the server reads it again, as its source does not notify. told_of: the time of the load whose
    content clients were last notified to be stale.
    """

    source: Source
    native_uri: str
    scope: trio.CancelScope
    followers: int = 1
    looked_at: bool = False
    told_of: float | None = -1.0  # of no load

    @property
    def announced(self) -> bool:
        """Return whether the source notifies of its changes. A watchable source that cannot say so is assumed to."""
        handler = self.source.handler
        if isinstance(handler, CanAnnounce):
            return handler.announces(self.native_uri)
        return isinstance(handler, CanWatch)

    def is_news(self, record: Record, relisted: Mapping[str, bool]) -> bool:
        """Return whether clients must be notified of a change at its path. relisted: as `_relisted` returns."""
        if not self.announced:
            return True
        if self.source.data.base_prefix in relisted and self.told_of == record.fetched_at:
            return False  # the source has notified of it before its new listing
        return record.suspected  # if fresh, a load has found what the source notified of


class Following(Subscribers):
    """The subscribers of `bbfs serve`, and the resources that they follow."""

    def __init__(self, manager: ResourceManager, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self._manager = manager
        self._followed: dict[str, _Followed] = {}
        self._listings: dict[str, tuple[Mapping[str, Record], int]] = {}
        self._relisted()
        manager.on_change(self._changed)

    async def follow(self, *uris: str) -> None:
        """Notify of all changes of these resources that happen after this has returned.

        Waits up to `SETTLED_WITHIN` for the sources to agree. Raises InvalidUri, and NotFound for an unknown source;
        then none of the resources is followed.
        """
        found = [(uri, *await self._manager.record_of(uri)) for uri in uris]
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
            with trio.move_on_after(SETTLED_WITHIN):
                async with trio.open_nursery() as nursery:
                    for source in {each.source.data.id: each.source for each in new.values()}.values():
                        nursery.start_soon(self._settled, source)
            begun = [self._look_at(uri, each) for uri, each in new.items() if each.followers and not each.announced]
            with trio.move_on_after(SETTLED_WITHIN):
                for each in begun:
                    await each.wait()
        except trio.Cancelled:
            for uri in uris:
                self.leave(uri)
            raise

    async def _settled(self, source: Source) -> None:
        """Wait until a source has accepted or refused the subscriptions."""
        if not isinstance(source.handler, CanAnnounce):
            return
        try:
            await self._manager.below(source, ())  # this connects it
            await source.handler.settled()
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
        source, record = await self._manager.record_of(uri)
        data = source.data
        if isinstance(source.catalog, DirectoryCatalog):
            return (data.uri_prefix, *uri_paths.plain_path(record.metadata.native_uri, data.scheme).path)
        await self._manager.below(source, ())
        source, record = await self._manager.record_of(uri)
        if record.path:
            return self._manager.mounted(record)
        parsed = parse_data_source_uri(uri)
        return (parsed.base_prefix, *uri_paths.plain_path(parsed.original_uri).path)

    def _found(self, uri: str, _change: Difference) -> None:
        """Note another content. The record of the URI need not be the record of the path that was read."""
        followed = self._followed.get(uri)
        record = followed.source.catalog.record(followed.native_uri) if followed is not None else None
        if record is not None:
            record.suspect()
        self.notify(ResourceUpdated(uri))

    def _changed(self, change: Change) -> None:
        """Notify of a change. A resource without a path is known by its URI."""
        changed = set(change.paths)
        relisted = self._relisted()
        for uri, followed in self._followed.items():
            if followed.source is not change.source:
                continue
            record = followed.source.catalog.record(followed.native_uri)
            if record is None or not record.path:
                if followed.native_uri == change.uri:
                    self.notify(ResourceUpdated(uri))
            elif (
                not followed.looked_at
                and self._manager.mounted(record) in changed
                and followed.is_news(record, relisted)
            ):
                followed.told_of = record.fetched_at
                self.notify(ResourceUpdated(uri))
        if any(self._has_come_or_gone(path, relisted) for path in changed):
            self.notify(ResourcesListChanged())

    def _relisted(self) -> dict[str, bool]:
        """Return the sources with a new listing since the last call, each with whether it is longer."""
        found: dict[str, bool] = {}
        for base, source in self._manager.sources.items():
            records, count = self._listings.get(base, (None, 0))
            if source.catalog.records is not records:
                found[base] = 0 < count < source.catalog.count()
                self._listings[base] = (source.catalog.records, source.catalog.count())
        return found

    def _has_come_or_gone(self, path: Path, relisted: Mapping[str, bool]) -> bool:
        """Return whether an entry of a listing has appeared or disappeared at a path."""
        try:
            source, below = self._manager.place(path)
            is_flat = not isinstance(source.catalog, DirectoryCatalog)
            if is_flat and source.data.base_prefix not in relisted:
                return False  # a notification alone does not change the listing
            node = source.catalog.known(below)
        except (NotFound, NotADirectory):
            return True
        record = None if node is None else node.record or node.candidate
        if is_flat:
            longer = relisted[source.data.base_prefix]
            return longer or record is None or record.metadata.native_uri not in source.catalog.records
        if record is None or record.metadata.kind == "directory":
            return False
        return record.fetched_at is None and not record.suspected
