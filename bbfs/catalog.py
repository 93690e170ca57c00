"""What a source holds, as a tree of names: the listings, their freshness, and what changed between two of them.

Two kinds, after the two ways in which sources list. A flat source lists everything at once and its URIs make the tree;
a hierarchical one lists a directory at a time. Both answer the same questions, once without waiting (`known`,
`known_children`: None means "ask") and once with.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import trio
from cachetools import LRUCache

from bbfs import tree
from bbfs.errors import BbfsError, DeadlineExceeded, NotADirectory, NotFound, Unreachable
from bbfs.flight import SingleFlight
from bbfs.model import DataSource, Listing, ResourceMetadata
from bbfs.records import DIRECTORY, Node, Path, Record, record_node
from bbfs.sources import CanList, CanListDirectory, CanStat

log = logging.getLogger(__name__)

Children = dict[str, Node]
FOLD_IN_THREAD = 2000
"""Listings longer than this are folded off the event loop (about 10 µs an entry)."""
DIRECTORIES_KEPT = 10_000
SERVED_STALE = 1.0
"""Seconds for which the kernel may keep what is served while it is being refreshed."""


@dataclass(slots=True)
class Surroundings:
    """What a catalog shares with the rest: the clock (seconds since the epoch), the flights, who hears of changes."""

    clock: Callable[[], float]
    flights: SingleFlight
    changed: Callable[[Iterable[Path]], None]
    listed: Callable[[float, Listing], None] = field(default=lambda _at, _listing: None)


class Catalog(Protocol):
    """The tree of one source; paths are names below the source, the scheme's directory included where there is one."""

    records: dict[str, Record]
    problem: str | None

    def known(self, path: Path) -> Node | None: ...

    def known_children(self, path: Path) -> Children | None: ...

    async def find(self, path: Path) -> Node: ...

    async def children(self, path: Path) -> Children: ...

    def validity(self, path: Path) -> float: ...

    def expire(self) -> None: ...


def part_node(record: Record, rest: Path) -> Node:
    """The node below a resource that answered several contents. Raises NotFound."""
    node = record_node(record)
    for name in rest:
        parts = node.record.parts if node.record is not None else None
        if parts is None:
            raise NotADirectory(f"{record.metadata.name} is not a directory") if node.kind == "file" else NotFound(name)
        if name not in parts:
            raise NotFound(f"no such content: {name}")
        node = record_node(parts[name])
    return node


class FlatCatalog:
    """The tree of a source that lists all its resources at once."""

    def __init__(self, source: DataSource, handler: CanList, around: Surroundings) -> None:
        self.source = source
        self.records: dict[str, Record] = {}
        self.problem: str | None = None
        self._handler = handler
        self._around = around
        self._tree: tree.Tree | None = None
        self._fetched_at = 0.0
        self._ttl = 0.0
        self._confirmed = False  # whether this process has listed the source itself

    # -- without waiting ---------------------------------------------------------------------------------------------

    def _servable(self) -> tree.Tree | None:
        """The tree, if it may be served now; refreshed behind when it has expired (S19)."""
        if self._tree is None:
            return None
        now = self._around.clock()
        if now < self._fetched_at + self._ttl:
            return self._tree
        if self._confirmed and now < self._fetched_at + self._ttl + self.source.policy.max_stale:
            self._begin()
            return self._tree
        return None

    def known(self, path: Path) -> Node | None:
        """The node at `path`, None if the source must be asked. Raises NotFound only when the listing is fresh."""
        root = self._servable()
        if root is None:
            return DIRECTORY if not path else None
        try:
            return self._node(root, path)
        except NotFound:
            if self.validity(path) > 0:
                raise
            return None

    def known_children(self, path: Path) -> Children | None:
        root = self._servable()
        if root is None:
            return None
        try:
            return self._children(root, path)
        except NotFound:
            if self.validity(path) > 0:
                raise
            return None

    def validity(self, path: Path) -> float:
        """Seconds for which names and their absence hold."""
        return max(0.0, self._fetched_at + self._ttl - self._around.clock()) if self._tree is not None else 0.0

    def _node(self, root: tree.Directory, path: Path) -> Node:
        place: tree.Directory | tree.Entry = root
        for depth, name in enumerate(path):
            if isinstance(place, tree.Entry):
                return part_node(self.records[place.native_uri], path[depth:])
            below = place.children.get(name)
            if below is None:
                alias = place.alias(name) if depth == len(path) - 1 else None
                if alias is None:
                    raise NotFound(f"no such resource: {'/'.join(path)}")
                return Node("symlink", target=alias)
            place = below
        return DIRECTORY if isinstance(place, tree.Directory) else record_node(self.records[place.native_uri])

    def _children(self, root: tree.Directory, path: Path) -> Children:
        place: tree.Directory | tree.Entry = root
        for depth, name in enumerate(path):
            if isinstance(place, tree.Entry):
                node = part_node(self.records[place.native_uri], path[depth:])
                return self._parts(node)
            below = place.children.get(name)
            if below is None:
                raise NotFound(f"no such directory: {'/'.join(path)}")
            place = below
        if isinstance(place, tree.Entry):
            return self._parts(record_node(self.records[place.native_uri]))
        return {
            name: DIRECTORY if isinstance(child, tree.Directory) else record_node(self.records[child.native_uri])
            for name, child in sorted(place.children.items())
        }

    @staticmethod
    def _parts(node: Node) -> Children:
        if node.record is None or node.record.parts is None:
            raise NotADirectory("not a directory")
        return {name: record_node(part) for name, part in sorted(node.record.parts.items())}

    # -- waiting for a listing ---------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._around.flights.begin(("list", self.source.id), self._refresh, self.source.policy.timeout)

    async def refresh(self) -> None:
        """List the source now, or join the listing under way. Raises BbfsError."""
        await self._around.flights.do(("list", self.source.id), self._refresh, self.source.policy.timeout)

    async def _current(self) -> tree.Tree:
        try:
            await self.refresh()
        except (Unreachable, DeadlineExceeded):
            if self._tree is None:
                raise
            # S6, S20: a source that is down shows what was last known of it.
        assert self._tree is not None
        return self._tree

    async def find(self, path: Path) -> Node:
        node = self.known(path)
        return self._node(await self._current(), path) if node is None else node

    async def children(self, path: Path) -> Children:
        children = self.known_children(path)
        return self._children(await self._current(), path) if children is None else children

    def expire(self) -> None:
        """The source says that its listing changed: ask again at the next use, and now if it was ever used."""
        self._ttl = 0.0
        if self._confirmed:
            self._begin()

    async def _refresh(self) -> None:
        try:
            listing = await self._handler.list()
        except BbfsError as error:
            self.problem = str(error)
            raise
        await self._install(listing, self._around.clock(), confirmed=True)
        self._around.listed(self._fetched_at, listing)

    async def recall(self, fetched_at: float, listing: Listing) -> None:
        """Take over the listing that an earlier mount had seen; it stands in while the source does not answer."""
        if self._tree is None:
            await self._install(listing, fetched_at, confirmed=False)

    async def _install(self, listing: Listing, at: float, *, confirmed: bool) -> None:
        entries = [tree.Entry(r.native_uri, r.mime_type) for r in listing.resources]
        if len(entries) > FOLD_IN_THREAD:
            folded = await trio.to_thread.run_sync(tree.fold, entries)
        else:
            folded = tree.fold(entries)
        if not confirmed and self._confirmed:
            return
        old_tree, old_records = self._tree, self.records
        suspects = self._describe(listing.resources, folded, at)
        self._tree, self._fetched_at, self._confirmed = folded, at, confirmed
        self._ttl = self.source.policy.listing_ttl if listing.ttl is None else listing.ttl
        if listing.problem and listing.problem != self.problem:
            log.warning("%s: %s", self.source.id, listing.problem)
        self.problem = listing.problem
        if old_tree is not None:
            self._around.changed([*suspects, *_moved(old_records, self.records)])

    def _describe(self, resources: Iterable[ResourceMetadata], folded: tree.Tree, at: float) -> list[Path]:
        records: dict[str, Record] = {}
        suspects: list[Path] = []
        for metadata in resources:
            uri = metadata.native_uri
            path = folded.path_of(uri)
            assert path is not None, "the folded tree holds every URI"
            record = self.records.get(uri)
            if record is None or record.path != path:
                fresh = Record(self.source.id, metadata, path, at)
                if record is not None:
                    fresh.recall(record.to_remember())
                record = fresh
            elif record.describe(metadata, path, at):
                suspects.append(path)
            records[uri] = record
        self.records = records
        return suspects


def _moved(old: dict[str, Record], new: dict[str, Record]) -> list[Path]:
    """The paths that were there and are not, or the other way round."""
    before = {record.path for record in old.values()}
    after = {record.path for record in new.values()}
    return list(before ^ after)


@dataclass(slots=True)
class _Listed:
    """One directory as last listed: name → record, and the raw segments behind the names."""

    fetched_at: float
    entries: dict[str, Record]
    segments: dict[str, str]


class DirectoryCatalog:
    """The tree of a source that lists a directory at a time."""

    def __init__(self, source: DataSource, handler: CanListDirectory, around: Surroundings) -> None:
        self.source = source
        self.records: dict[str, Record] = {}
        self.problem: str | None = None
        self._handler = handler
        self._around = around
        self._directories: LRUCache[Path, _Listed] = LRUCache(DIRECTORIES_KEPT)

    def _fresh(self, path: Path) -> _Listed | None:
        listed = self._directories.get(path)
        if listed is None or self._around.clock() >= listed.fetched_at + self.source.policy.listing_ttl:
            return None
        return listed

    def known(self, path: Path) -> Node | None:
        if not path:
            return DIRECTORY
        listed = self._fresh(path[:-1])
        if listed is None:
            return None
        return self._entry(listed, path)

    @staticmethod
    def _entry(listed: "_Listed", path: Path) -> Node:
        """The entry at `path`; a name written as in a URI leads to the one that it stands for (S2)."""
        name = path[-1]
        record = listed.entries.get(name)
        if record is not None:
            return record_node(record)
        shown = tree.show_component(name)
        if shown not in listed.entries:
            raise NotFound(f"no such file: {'/'.join(path)}")
        return Node("symlink", target=shown)

    def known_children(self, path: Path) -> Children | None:
        listed = self._fresh(path)
        return None if listed is None else _nodes(listed)

    def validity(self, path: Path) -> float:
        listed = self._directories.get(path[:-1] if path else path)
        if listed is None:
            return 0.0
        return max(0.0, listed.fetched_at + self.source.policy.listing_ttl - self._around.clock())

    async def find(self, path: Path) -> Node:
        node = self.known(path)
        if node is not None:
            return node
        return self._entry(await self._list(path[:-1]), path)

    async def children(self, path: Path) -> Children:
        return _nodes(self._fresh(path) or await self._list(path))

    def expire(self) -> None:
        self._directories.clear()

    async def _list(self, path: Path) -> _Listed:
        """List one directory, its ancestors first where their names are not known."""
        timeout = self.source.policy.timeout
        return await self._around.flights.do(("list", self.source.id, path), lambda: self._refresh(path), timeout)

    async def _refresh(self, path: Path) -> _Listed:
        try:
            listing = await self._handler.list_directory(await self._segments(path))
        except BbfsError as error:
            self.problem = None if isinstance(error, NotFound) else str(error)
            if isinstance(error, NotFound):
                self._drop(path)
            raise
        return self._install(path, listing)

    async def _segments(self, path: Path) -> Path:
        segments: list[str] = []
        for depth, name in enumerate(path):
            listed = self._directories.get(path[:depth])
            if listed is None or name not in listed.segments:
                listed = await self._list(path[:depth])
            if name not in listed.segments:
                raise NotFound(f"no such directory: {'/'.join(path)}")
            if listed.entries[name].metadata.kind != "directory":
                raise NotADirectory(f"not a directory: {'/'.join(path[: depth + 1])}")
            segments.append(listed.segments[name])
        return tuple(segments)

    def _install(self, path: Path, listing: Listing) -> _Listed:
        now = self._around.clock()
        by_segment = {_last_segment(m.native_uri): m for m in listing.resources}
        segments = tree.names(list(by_segment))
        old = self._directories.get(path)
        entries: dict[str, Record] = {}
        changed: list[Path] = []
        for name, segment in segments.items():
            metadata = by_segment[segment]
            record = old.entries.get(name) if old is not None else None
            if record is None or record.metadata.kind != metadata.kind:
                record = Record(self.source.id, metadata, (*path, name), now)
            elif record.describe(metadata, (*path, name), now):
                changed.append((*path, name))
            settle(record, metadata, now, self.source.policy.content_ttl)
            entries[name] = record
        if old is not None:
            changed.extend((*path, name) for name in old.entries.keys() ^ entries.keys())
        listed = _Listed(now, dict(sorted(entries.items())), segments)
        self._directories[path] = listed
        if changed:
            self._around.changed(changed)
        self.problem = listing.problem
        return listed

    def _drop(self, path: Path) -> None:
        for known in [p for p in self._directories if p[: len(path)] == path]:
            del self._directories[known]

    async def confirm(self, record: Record) -> None:
        """Ask the source for the metadata of one file. Raises BbfsError."""
        assert isinstance(self._handler, CanStat)
        metadata = await self._handler.stat(record.metadata.native_uri)
        now = self._around.clock()
        record.describe(metadata, record.path, now)
        settle(record, metadata, now, self.source.policy.content_ttl)


def settle(record: Record, metadata: ResourceMetadata, now: float, ttl: float) -> None:
    """A description with an etag is as good as a load: the version, and so the inode, follow from it."""
    if metadata.etag is not None and metadata.size is not None and metadata.kind == "resource":
        record.size, record.digest, record.salt = metadata.size, metadata.etag, metadata.etag
        record.fetched_at, record.ttl = now, ttl


def _last_segment(native_uri: str) -> str:
    return native_uri.rstrip("/").rpartition("/")[2]


def _nodes(listed: _Listed) -> Children:
    return {name: record_node(record) for name, record in listed.entries.items()}
