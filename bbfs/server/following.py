"""Finding out what changes: of the resources that clients follow, and of what the sources list.

What a source announces is passed on as it comes: the next read asks the source. A resource of which its source tells
nothing is looked at when its time to live is over (`bbfs.resources.watch`), and told of only if it really differs.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import trio
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated

from bbfs.model import file_names
from bbfs.model.errors import BbfsError, NotADirectory, NotFound
from bbfs.model.uri import parse_data_source_uri, source_uri
from bbfs.model.values import SourceEvent
from bbfs.resources.catalog import DirectoryCatalog
from bbfs.resources.catalog.record import Path, Record
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.resources.watch import Change, Watch
from bbfs.serving.subscribers import Subscribers
from bbfs.sources import CanAnnounce, CanWatch

log = logging.getLogger(__name__)

SETTLED_WITHIN = 5.0
"""Seconds for which a source may take to say whether it is going to tell of a resource."""


@dataclass(slots=True)
class _Followed:
    """A resource that clients are told of.

    looked_at: whether its changes are looked for, as its source tells none. told_of: when the content was loaded that
    was last told to be out of date.
    """

    source: Source
    native_uri: str
    scope: trio.CancelScope
    followers: int = 1
    looked_at: bool = False
    told_of: float | None = -1.0  # of no load

    @property
    def announced(self) -> bool:
        """Whether the source tells of its changes, as things are now. One that cannot say so is believed to."""
        handler = self.source.handler
        if isinstance(handler, CanAnnounce):
            return handler.announces(self.native_uri)
        return isinstance(handler, CanWatch)

    def is_news(self, record: Record, relisted: Mapping[str, bool]) -> bool:
        """Whether a change at its path is one that nobody was told of. relisted: the sources just listed anew."""
        if not self.announced:
            return True
        if self.source.data.base_prefix in relisted and self.told_of == record.fetched_at:
            return False  # the source has announced it, and now its listing says so as well
        return record.suspected  # or else it is what a load has found after it was announced


class Following(Subscribers):
    """The subscribers of `bbfs serve`, and the resources that they follow."""

    def __init__(self, manager: ResourceManager, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self._manager = manager
        self._followed: dict[str, _Followed] = {}
        self._listings: dict[str, tuple[Mapping[str, Record], int]] = {}
        self._relisted()
        manager.on_change(self._changed)
        for source in manager.sources.values():
            if isinstance(source.handler, CanWatch):
                source.handler.watch(partial(self._announced, source))

    async def follow(self, *uris: str) -> None:
        """Tell of changes of resources from now on, and of all that happen after this has returned.

        It waits for the sources to agree, but never long. Raises InvalidUri, and NotFound for an unknown source, and
        follows nothing then.
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
        """Until a source has been asked to tell of what is followed, and has agreed or refused."""
        if not isinstance(source.handler, CanAnnounce):
            return
        try:
            await self._manager.below(source, ())  # which connects it
            await source.handler.settled()
        except BbfsError as error:
            log.info("%s: does not tell of changes: %s", source.data.id, error)

    def leave(self, uri: str) -> None:
        """One follower less."""
        known = self._followed[uri]
        known.followers -= 1
        if not known.followers:
            del self._followed[uri]
            known.scope.cancel()

    def _look_at(self, uri: str, followed: _Followed) -> trio.Event:
        """Look at a resource again and again, until nobody follows it. The event is set when that has begun."""
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
        """Where a resource stands, from the mount's root; of one that nothing lists, where the rule puts it."""
        source, record = await self._manager.record_of(uri)
        data = source.data
        if isinstance(source.catalog, DirectoryCatalog):
            return (data.uri_prefix, *file_names.plain_path(record.metadata.native_uri, data.scheme).path)
        await self._manager.below(source, ())
        source, record = await self._manager.record_of(uri)
        if record.path:
            return self._manager.mounted(record)
        parsed = parse_data_source_uri(uri)
        return (parsed.base_prefix, *file_names.plain_path(parsed.original_uri).path)

    def _found(self, uri: str, _change: Change) -> None:
        """A look has found another content. The record of the URI is not always that of the path that was looked at."""
        followed = self._followed.get(uri)
        record = followed.source.catalog.record(followed.native_uri) if followed is not None else None
        if record is not None:
            record.suspect()
        self.notify(ResourceUpdated(uri))

    def _announced(self, source: Source, event: SourceEvent) -> None:
        """A source tells of a resource. One with a path is told of by the manager, too, to `_changed`."""
        if event.uri is None:
            return
        uri = source_uri(source.data.base_prefix, event.uri)
        record = source.catalog.record(event.uri)
        if uri in self._followed and (record is None or not record.path):
            self.notify(ResourceUpdated(uri))

    def _changed(self, paths: Iterable[Path]) -> None:
        """Something is not what it was at these paths, from the mount's root."""
        changed = set(paths)
        relisted = self._relisted()
        for uri, followed in self._followed.items():
            record = followed.source.catalog.record(followed.native_uri)
            if record is None or not record.path or followed.looked_at:
                continue
            if self._manager.mounted(record) in changed and followed.is_news(record, relisted):
                followed.told_of = record.fetched_at
                self.notify(ResourceUpdated(uri))
        if any(self._has_come_or_gone(path, relisted) for path in changed):
            self.notify(ResourcesListChanged())

    def _relisted(self) -> dict[str, bool]:
        """The sources whose listing is another one than when this was last called, and whether it is longer."""
        found: dict[str, bool] = {}
        for base, source in self._manager.sources.items():
            records, count = self._listings.get(base, (None, 0))
            if source.catalog.records is not records:
                found[base] = 0 < count < source.catalog.count()
                self._listings[base] = (source.catalog.records, source.catalog.count())
        return found

    def _has_come_or_gone(self, path: Path, relisted: Mapping[str, bool]) -> bool:
        """Whether what is listed at a path was not, or is no longer."""
        try:
            source, below = self._manager.place(path)
            is_flat = not isinstance(source.catalog, DirectoryCatalog)
            if is_flat and source.data.base_prefix not in relisted:
                return False  # what the source has merely announced says nothing of its listing
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
