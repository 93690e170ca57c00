"""The tree of a source that lists a directory at a time, such as a folder."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from sys import getsizeof

import trio
from cachetools import LRUCache

from bbfs.model import uri_paths
from bbfs.model.errors import BbfsError, DeadlineExceeded, NotADirectory, NotFound, Unreachable
from bbfs.model.listing import LARGEST, Buckets
from bbfs.model.values import ChangeEvent, DataSource, Listing, ResourceMetadata
from bbfs.resources.catalog.base import PORTION, Catalog, CatalogContext, LargeEntries, Stored, View
from bbfs.resources.catalog.folding import ChangedPaths
from bbfs.resources.catalog.lookups import FoundNames, LateAnswers, Past, last_segment, own_segment
from bbfs.resources.catalog.record import DIRECTORY, Lease, Node, Path, Record, publish_description, record_node
from bbfs.sources import CanFind, CanListDirectory, CanStat
from bbfs.sources.bounded.turns import InTurns, freeze, let_go

DIRECTORIES_KEPT = 10_000
ENTRIES_KEPT = 300_000
"""Entries of all listings of a source that are kept; each takes 1 KB of memory, and more with long texts."""
_USUAL_TEXTS = 512
"""Bytes of the texts of an entry that takes 1 KB."""
UNLISTED_KEPT = 10_000
"""Files that were opened by URI alone."""
CONFIRMED_FOR = 5.0
"""Seconds for which the name of a directory holds after the source has listed it, or a directory below it.

Otherwise a walk down a deep tree whose names expire on the way would have every directory above it listed again at each
step, since the kernel looks up all names of a path.
"""


class _Entries(Buckets[Record]):
    """The records of a directory by name, which stay the same. Those of a large one are freed in turns."""

    def records(self) -> Iterator[Record]:
        """Yield all records, without an object for the garbage collector."""
        return (record for bucket in self._buckets for record in bucket.values())

    def __del__(self) -> None:
        if len(self._buckets) > 1:
            let_go(self._buckets)


@dataclass(slots=True)
class _Listed:
    """One directory as last listed: the raw segments behind the names, name → record.

    began_at: when the request was sent. confirmed_at: when the source last answered for it or for what is below it.
    open: whether other names may exist. problem: why the listing is incomplete. texts: bytes of the texts of all
    entries. resources: entries that are neither directories nor links.
    """

    fetched_at: float
    segments: dict[str, str]
    open: bool = False
    problem: str | None = None
    began_at: float = 0.0
    confirmed_at: float = -inf
    lease: Lease = field(default_factory=Lease)
    entries: _Entries = field(default_factory=_Entries)
    texts: int = 0
    resources: int = 0

    @property
    def weight(self) -> int:
        """The usual entries that would take as much memory: at least as many as it has."""
        count = len(self.entries)
        return min(
            max(count + (self.texts - count * _USUAL_TEXTS >> 10), count, ENTRIES_KEPT // DIRECTORIES_KEPT),
            ENTRIES_KEPT,
        )

    def expire(self) -> None:
        """Have it listed again at the next use; until then it serves as stale (S20)."""
        self.fetched_at, self.confirmed_at = 0.0, -inf
        self.lease.end()


def _texts(metadata: ResourceMetadata) -> int:
    """Return about the bytes that the texts of a description take."""
    size = getsizeof(metadata.uri) + getsizeof(metadata.native_uri) + getsizeof(metadata.etag)
    if metadata.mime_type is not None:
        size += getsizeof(metadata.mime_type)
    if metadata.description is not None:
        size += getsizeof(metadata.description)
    if metadata.target is not None:
        size += getsizeof(metadata.target)
    return size if metadata.properties is None else size + sum(map(getsizeof, metadata.properties.values()))


def _node_at(path: Path, record: Record | None) -> Node:
    """Return the node of what has exactly this name: links of the source lead to names as shown. Raise NotFound."""
    if record is None:
        raise NotFound(f"no such file: {'/'.join(path)}")
    return record_node(record)


class _Listings(LRUCache[Path, _Listed]):
    """The listings used last. The lease of one that is evicted or replaced ends.

    there: the same listings; to go through them is no use of them.
    """

    def __init__(self, past: Past) -> None:
        super().__init__(ENTRIES_KEPT, lambda listed: listed.weight)
        self._past = past
        self.there: dict[Path, _Listed] = {}

    def __setitem__(self, path: Path, listed: _Listed) -> None:
        old = self.get(path)
        if old is not None:
            old.lease.end()
        super().__setitem__(path, listed)
        self.there[path] = listed

    def __delitem__(self, path: Path) -> None:
        listed = self.there.pop(path)
        listed.lease.end()
        for record in listed.entries.records():
            if record.digest is not None:
                self._past.left(record)
        super().__delitem__(path)


class DirectoryCatalog(Catalog):
    """The tree of a source that lists a directory at a time."""

    lists_all = False

    def __init__(self, source: DataSource, handler: CanListDirectory, context: CatalogContext) -> None:
        self.source = source
        self.is_asked_singly = isinstance(handler, CanStat)
        self._moved_at = 0.0  # when the mount has renamed a directory: answers from before may be of another one
        self._failure: str | None = None  # what the latest listing ended with
        self._handler = handler
        self._literal = source.scheme == "file"  # links and programs lead to file names as they are
        self._context = context
        self.written = context.written
        self._past = Past()
        self._directories = _Listings(self._past)
        self._unlisted: LRUCache[str, Record] = LRUCache(UNLISTED_KEPT)
        self._late = LateAnswers(context.clock)
        self._found = FoundNames(source, handler, context, self._past) if isinstance(handler, CanFind) else None

    @property
    def problem(self) -> str | None:
        """The error of the last listing, or why one of the cached ones is incomplete."""
        listed = self._directories.there.values()
        return self._failure or next((each.problem for each in listed if each.problem is not None), None)

    def _fresh(self, path: Path) -> _Listed | None:
        listed = self._directories.get(path)
        if listed is None or self._context.clock() >= listed.fetched_at + self.source.policy.listing_ttl:
            return None
        return listed

    def cached(self, path: Path) -> Node | None:
        if not path:
            return DIRECTORY
        listed = self._fresh(path[:-1])
        if listed is None:
            return self._confirmed(path)
        record = listed.entries.get(path[-1])
        if record is None and listed.open and self._found is not None:
            record = self._found.cached(path)
            return None if record is None else record_node(record)
        return _node_at(path, record)

    def _confirmed(self, path: Path) -> Node | None:
        """Return the directory at a path if the source has answered for it lately, though its name has expired."""
        if self._literal:
            return None
        above, own = self._directories.get(path[:-1]), self._directories.get(path)
        if above is None or own is None or not above.fetched_at:
            return None
        record = above.entries.get(path[-1])
        if record is None or self._context.clock() >= own.confirmed_at + CONFIRMED_FOR:
            return None
        return record_node(record) if record.metadata.kind == "directory" else None

    def last_cached(self, path: Path) -> Node | None:
        listed = self._directories.get(path[:-1])
        record = None if listed is None else listed.entries.get(path[-1])
        if record is None and self._found is not None:
            record = self._found.last_cached(path)
        return None if record is None else record_node(record)

    async def _unlisted_entry(self, listed: "_Listed", path: Path) -> Record | None:
        """Return the unlisted record at a path, or None. Raise the source's error."""
        if self._found is None or not listed.open:
            return None
        segments = await self._segments(path[:-1])
        try:
            return await self._found.find(path, segments)
        except NotFound:
            return None

    def cached_view(self, path: Path, *, completed: bool = True) -> View | None:
        listed = self._fresh(path)
        return None if listed is None else View.of(listed.entries)

    def validity(self, path: Path) -> float:
        listed = self._directories.get(path[:-1] if path else path)
        if listed is None:
            return 0.0
        return max(0.0, listed.fetched_at + self.source.policy.listing_ttl - self._context.clock())

    def listed_at(self, path: Path) -> float:
        listed = self._directories.get(path)
        return 0.0 if listed is None else listed.began_at

    def lease(self, record: Record) -> Lease | None:
        listed = self._fresh(record.path[:-1]) if record.path else None
        return listed.lease if listed is not None and listed.entries.get(record.path[-1]) is record else None

    def names_lease(self, path: Path) -> Lease | None:
        listed = self._fresh(path)
        return None if listed is None else listed.lease

    async def find(self, path: Path) -> Node:
        node = self.cached(path)
        if node is not None:
            return node
        listed, outage = await self._current(path[:-1])
        record = listed.entries.get(path[-1])
        if record is None and outage is None:
            record = await self._unlisted_entry(listed, path)
        if record is None and outage is not None:
            raise outage
        return _node_at(path, record)

    async def view(self, path: Path, *, completed: bool = True) -> View:
        return View.of((self._fresh(path) or (await self._current(path))[0]).entries)

    async def _current(self, path: Path) -> tuple[_Listed, BbfsError | None]:
        """Return a directory as listed now, or as listed last with the outage (S6, S20)."""
        try:
            return await self._list(path), None
        except (Unreachable, DeadlineExceeded) as outage:
            listed = self._directories.get(path)
            if listed is None:
                raise
            return listed, outage

    def record(self, native_uri: str) -> Record | None:
        return self._past.there(native_uri) or self._unlisted.get(native_uri)

    def large(self, path: Path) -> LargeEntries | None:
        listed = self._fresh(path)
        if listed is None or len(listed.entries) <= LARGEST:
            return None
        return LargeEntries(listed.entries, lambda record: record_node(record).kind == "directory")

    def held(self) -> Iterable[Record]:
        return () if self._literal else self._records()  # of files, all that is to be known is asked for again

    def _records(self) -> Iterator[Record]:
        """Yield all records, also while listings come and go."""
        for listed in [*self._directories.there.values()]:
            yield from listed.entries.records()
        yield from [] if self._found is None else [*self._found.records()]
        yield from [*self._unlisted.values()]

    async def recall(self, stored: Callable[[], Awaitable[Stored]]) -> None:
        if not self._literal:  # as for `held`
            self._past.take_in((await stored())[0])

    async def usage(self) -> tuple[int, int]:
        size = 0
        for listed in [*self._directories.there.values()]:
            async for record in InTurns(listed.entries.records()):
                size += record.best_size() if record.metadata.kind == "resource" else 0
        return size, self.count()

    def count(self) -> int:
        return sum(directory.resources for directory in self._directories.there.values())

    def all_records(self) -> list[Record]:
        return [*self._records()]

    def record_of(self, uri: str, native_uri: str) -> Record:
        record = self.record(native_uri)
        if record is None:
            name = native_uri.rstrip("/").rpartition("/")[2] or native_uri
            record = Record(self._context.key, ResourceMetadata(uri, native_uri, name), (), self._context.clock())
            self._unlisted[native_uri] = record
        return record

    def expire(self) -> None:
        for listed in self._directories.there.values():
            listed.expire()
        self._late.forget()
        if self._found is not None:
            self._found.forget(())

    async def relist(self) -> None:
        self.expire()

    def forget(self, path: Path) -> None:
        """Invalidate the listings and contents at and below a path, and the listing that holds it."""
        found: list[Path] = []
        for directory, listed in self._directories.there.items():
            if directory[: len(path)] == path:
                below = ((name, record) for items in listed.entries.portions() for name, record in items)
            elif directory == path[:-1] and path[-1] in listed.entries:
                below = iter([(path[-1], listed.entries[path[-1]])])
            else:
                continue
            for name, record in below:
                if record.metadata.kind != "directory":  # of it nothing is known but names; a program may be in it
                    record.invalidate()
                    found.append((*directory, name))
        if self._found is not None:
            found.extend(self._found.forget(path))
        self._context.notify(ChangedPaths(found, found="doubt"), "changed")
        self._late.forget()
        for directory, listed in self._directories.there.items():
            if directory[: len(path)] == path or directory == path[:-1]:
                listed.expire()

    @property
    def is_empty(self) -> bool:
        return not self._directories and not self._unlisted

    def outdate(self, path: Path) -> None:
        listed = self._directories.get(path[:-1])
        if listed is not None:
            listed.expire()
        if path in self._directories:
            self.forget(path)

    async def _list(self, path: Path) -> _Listed:
        """List one directory, its ancestors first where their names are not known."""
        timeout = self.source.policy.timeout
        self._late.refuse(path)
        with self._late.noted(path):
            return await self._context.flights.do(("list", self.source.id, path), lambda: self._refresh(path), timeout)

    async def _refresh(self, path: Path) -> _Listed:
        while True:
            began_at, stored = self._context.clock(), self.written.count
            try:
                listing = await self._ask(path)
            except BbfsError as error:
                self._failure = None if isinstance(error, NotFound) else str(error)
                if isinstance(error, NotFound):
                    self.drop(path)
                raise
            if began_at >= self._moved_at:
                break
        self._failure = None
        return await self._install(path, listing, began_at, stored)

    async def _ask(self, path: Path) -> Listing:
        """Return the listing of one directory by the source. Raise BbfsError."""
        return await self._handler.list_directory(await self._segments(path))

    async def _segments(self, path: Path) -> Path:
        segments: list[str] = []
        for depth, name in enumerate(path):
            listed = self._directories.get(path[:depth])
            if listed is None or (name not in listed.segments and not listed.open):
                listed = await self._list(path[:depth])
            record, segment = listed.entries.get(name), listed.segments.get(name)
            if record is None:
                record = await self._unlisted_entry(listed, path[: depth + 1])
                segment = None if record is None else last_segment(record.metadata.native_uri)
            if record is None or segment is None:
                raise NotFound(f"no such directory: {'/'.join(path)}")
            if record.metadata.kind != "directory":
                raise NotADirectory(f"not a directory: {'/'.join(path[: depth + 1])}")
            segments.append(segment)
        return tuple(segments)

    def _segment(self, metadata: ResourceMetadata, own: str | None) -> str:
        """Return the segment that names an entry. own: the native URI of its directory, as `_own_uri` has it."""
        return own_segment(metadata, own) or last_segment(metadata.native_uri)

    def _own_uri(self, path: Path) -> str | None:
        """Return the native URI of a listed directory, without a slash at its end; None for the root."""
        listed = self._directories.get(path[:-1]) if path else None
        record = listed.entries.get(path[-1]) if listed is not None else None
        return None if record is None else record.metadata.native_uri.rstrip("/")

    async def _install(self, path: Path, listing: Listing, began_at: float, stored: int) -> _Listed:
        """Take over a listing. A large one is gone through in portions, with turns for other tasks in between.

        stored: `Written.count` when its request began.
        """
        now = self._context.clock()
        old = self._directories.get(path)
        before = None if old is None else old.fetched_at
        own = self._own_uri(path)
        by_segment = {self._segment(metadata, own): metadata async for metadata in InTurns(listing.resources)}
        if not path and by_segment:
            segment, first = next(iter(by_segment.items()))
            native_uri = first.native_uri.rstrip("/")
            self.beginning = native_uri.removesuffix(segment) if native_uri.endswith(segment) else None
        if len(by_segment) <= PORTION:
            segments = uri_paths.names(list(by_segment), literal=self._literal)
        else:
            # Names depend on each other. In a thread, the interpreter is shared every few milliseconds.
            named = partial(uri_paths.names, list(by_segment), literal=self._literal)
            segments = await trio.to_thread.run_sync(named)
        listed = _Listed(now, segments, listing.open, listing.problem, began_at, now)
        told, event = await self._fill(listed, path, by_segment, old, stored)
        if self._directories.get(path) is not old or (old is not None and old.fetched_at != before):
            listed.fetched_at = 0.0  # forgotten meanwhile: this is older than that
        listed.lease.until = listed.fetched_at + self.source.policy.listing_ttl
        freeze(len(listed.entries))
        self._directories[path] = listed
        for depth in range(len(path)):
            above = self._directories.there.get(path[:depth])
            if above is not None and above.fetched_at:
                above.confirmed_at = now
        if told:
            self._context.notify(told, event)
        return listed

    async def _fill(
        self, listed: _Listed, path: Path, by_segment: Mapping[str, ResourceMetadata], old: _Listed | None, stored: int
    ) -> tuple[ChangedPaths, ChangeEvent]:
        """Give a new listing its records. Return the paths that differ from the old one, and the event to tell."""
        now, entries = listed.fetched_at, listed.entries
        known: Mapping[str, Record] = {} if old is None else old.entries
        told, added, removed = ChangedPaths(), 0, 0
        async for name, segment in InTurns(listed.segments.items()):
            metadata, place = self.written.over(by_segment[segment], stored), (*path, name)
            record = known.get(name)
            if record is None and old is not None:
                added += 1
                told.update([place])
                told.tell(place, is_added=True)
            listed.texts += _texts(metadata)
            listed.resources += metadata.kind == "resource"
            if record is None or record.metadata.kind != metadata.kind:
                unlisted = self._unlisted.pop(metadata.native_uri, None)
                if unlisted is not None:
                    self._past.left(unlisted)
                record = self._past.record(self._context.key, metadata, place, now)
            elif self.written.is_later(uri := record.metadata.native_uri, stored) and self.record(uri) is record:
                entries[name] = record  # a program has stored it since then: it has that, and what was learnt since
                continue
            elif record.describe(metadata, place, now):
                told.update([place])
            publish_description(record, metadata, now, self.source.policy.content_ttl, is_listed=True)
            entries[name] = record
        if len(known) + added > len(entries):
            async for name in InTurns([*known]):
                if name not in entries:
                    removed += 1
                    told.update([(*path, name)])
                    told.tell((*path, name), is_added=False)
        return told, "listed" if added or removed else "changed"

    def drop(self, path: Path) -> None:
        for known in [p for p in self._directories if p[: len(path)] == path]:
            del self._directories[known]

    def moved(self, native_uri: str, path: Path) -> Collection[str]:
        self._moved_at, start = self._context.clock(), f"{native_uri.rstrip('/')}/"
        unlisted = {uri: record for uri, record in self._unlisted.items() if uri.startswith(start)}
        for record in unlisted.values():
            record.overwrite()
        self.drop(path)
        known = self._past.overwrite(start)
        self.forget(path[:-1])
        return known | unlisted.keys()

    async def confirm(self, record: Record) -> None:
        assert isinstance(self._handler, CanStat)
        native_uri = record.metadata.native_uri
        while True:
            version, began, stored = record.inode_version, self._context.clock(), self.written.count
            try:
                metadata = await self._handler.stat(native_uri)
            except NotFound:
                if record.path and not record.invalidated:
                    record.invalidate()
                    self._context.notify([record.path], "changed")
                raise
            if began >= self._moved_at and not self.written.is_later(native_uri, stored):
                break
        now = self._context.clock()
        hinted = record.describe(metadata, record.path, now)
        publish_description(record, metadata, now, self.source.policy.content_ttl)
        if record.path and (hinted or record.inode_version != version):
            self._context.notify([record.path], "changed")
