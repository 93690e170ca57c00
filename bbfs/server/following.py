"""Finding out what changes: of the resources that clients follow, and of what the sources list.

What a source announces is passed on as it comes: the next read asks the source. A resource of which its source tells
nothing is looked at when its time to live is over (`bbfs.changes`), and told of only if it really differs.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import trio
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent

from bbfs import tree
from bbfs.attached import Source
from bbfs.catalog import DirectoryCatalog
from bbfs.changes import Change, Watch
from bbfs.errors import BbfsError, NotADirectory, NotFound
from bbfs.model import SourceEvent
from bbfs.records import Path, Record
from bbfs.resources import ResourceManager
from bbfs.sources import CanAnnounce, CanWatch
from bbfs.uri import parse_data_source_uri, source_uri

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
    told_of: float | None = None

    def is_news(self, record: Record, relisted: Mapping[str, bool]) -> bool:
        """Whether a change at its path is one that nobody was told of. relisted: the sources just listed anew."""
        handler = self.source.handler
        if not isinstance(handler, CanAnnounce) or not handler.announces(self.native_uri):
            return True
        if self.source.data.base_prefix in relisted and self.told_of == record.fetched_at:
            return False  # the source has announced it, and now its listing says so as well
        return record.suspected  # or else it is what a load has found after it was announced


class Following:
    """What the clients of one server follow. tell: gets every event; it must not block."""

    def __init__(self, manager: ResourceManager, nursery: trio.Nursery, tell: Callable[[ServerEvent], None]) -> None:
        self._manager = manager
        self._nursery = nursery
        self._tell = tell
        self._followed: dict[str, _Followed] = {}
        self._listings: dict[str, tuple[Mapping[str, Record], int]] = {}
        self._relisted()
        manager.on_change(self._changed)
        for source in manager.sources.values():
            if isinstance(source.handler, CanWatch):
                source.handler.watch(partial(self._announced, source))

    async def follow(self, uri: str) -> None:
        """Tell of changes of a resource from now on. Raises InvalidUri, and NotFound for an unknown source."""
        known = self._followed.get(uri)
        if known is not None:
            known.followers += 1
            return
        source, record = await self._manager.record_of(uri)
        native = record.metadata.native_uri
        known = self._followed[uri] = _Followed(source, native, trio.CancelScope())
        self._nursery.start_soon(self._run, uri, known)

    def leave(self, uri: str) -> None:
        """One follower less."""
        known = self._followed[uri]
        known.followers -= 1
        if not known.followers:
            del self._followed[uri]
            known.scope.cancel()

    async def _run(self, uri: str, followed: _Followed) -> None:
        """Have the source tell of a resource; where it does not, look at it again and again."""
        with followed.scope:
            handler = followed.source.handler
            if isinstance(handler, CanWatch):
                handler.interested(followed.native_uri)
                if not isinstance(handler, CanAnnounce):
                    return
                with trio.move_on_after(SETTLED_WITHIN):
                    await handler.settled()
                if handler.announces(followed.native_uri):
                    return
            followed.looked_at = True
            await self._look(uri)

    async def _look(self, uri: str) -> None:
        try:
            path = await self._path(uri)
            sink = partial(self._found, uri)
            await Watch(self._manager, [path], sink, partial(log.info, "%s")).run()
        except* BbfsError as group:
            log.info("%s: changes of it are not looked for: %s", uri, group.exceptions[0])

    async def _path(self, uri: str) -> Path:
        """Where a resource stands, from the mount's root; of one that nothing lists, where the rule puts it."""
        source, record = await self._manager.record_of(uri)
        data = source.data
        if isinstance(source.catalog, DirectoryCatalog):
            return (data.uri_prefix, *tree.plain_path(record.metadata.native_uri, data.scheme).path)
        await self._manager.below(source, ())
        source, record = await self._manager.record_of(uri)
        if record.path:
            return self._manager.mounted(record)
        parsed = parse_data_source_uri(uri)
        return (parsed.base_prefix, *tree.plain_path(parsed.original_uri).path)

    def _found(self, uri: str, _change: Change) -> None:
        self._tell(ResourceUpdated(uri))

    def _announced(self, source: Source, event: SourceEvent) -> None:
        """A source tells of a resource. One with a path is told of by the manager, too, to `_changed`."""
        if event.uri is None:
            return
        uri = source_uri(source.data.base_prefix, event.uri)
        record = source.catalog.record(event.uri)
        if uri in self._followed and (record is None or not record.path):
            self._tell(ResourceUpdated(uri))

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
                self._tell(ResourceUpdated(uri))
        if any(self._has_come_or_gone(path, relisted) for path in changed):
            self._tell(ResourcesListChanged())

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
            base = source.data.base_prefix
            if not isinstance(source.catalog, DirectoryCatalog):
                # What the source has merely announced says nothing of its listing.
                return base in relisted and (relisted[base] or source.catalog.known(below) is None)
            node = source.catalog.known(below)
        except (NotFound, NotADirectory):
            return True
        if node is None or node.kind == "directory" or node.record is None:
            return False
        return node.record.fetched_at is None and not node.record.suspected
