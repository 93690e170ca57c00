"""The listing of a flat source of any size: rows, the tree folded from them, and records of used resources.

A row becomes a `Record` when its name is looked up, and stays one; listing a directory makes none that last. A new
listing is compared with the one before, and equal resources are kept. All long work here gives other tasks their turn
every few milliseconds; meanwhile they see the previous listing.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

import trio
from cachetools import LRUCache

from bbfs.model import uri_paths
from bbfs.model.errors import TooLarge
from bbfs.model.listing import MIME_TYPE, MODIFIED_NS, SIZE, Buckets, Description, Rows, is_plain_file, value, version
from bbfs.model.values import ResourceMetadata
from bbfs.resources.cache.metadata import Remembered
from bbfs.resources.catalog.base import Changes, Children, Portion, Shown, View, portions
from bbfs.resources.catalog.folding import ChangedPaths, Directory, Folding, Leaf, Tree, below, differences
from bbfs.resources.catalog.record import (
    DIRECTORY,
    NANOSECONDS,
    Node,
    Path,
    Record,
    record_node,
    usable_size,
    usable_time,
)
from bbfs.sources.bounded.turns import InTurns, Turn, freeze

_T = TypeVar("_T")
GONE_KEPT = 100_000
"""Resources that left the listing whose version is kept, lest they come back changed under the same inode."""
AT_ONCE = 500
"""Resources that are processed before other tasks get their turn; about 2 ms at most."""
IN_PLACE = 1000
"""Changes that are made in a tree, without another task in between; more make a new tree."""
IN_PLACE_STEPS = 10_000
"""Slashes in the URIs of these changes: each may make a directory."""
MAX_DIRECTORIES = 500_000
"""Directories that a listing may make; each takes 250 bytes of memory."""
NAMED_APART = 10_000
"""Resources below a path that are invalidated one by one; of more, their directories are."""

Directories = Callable[[list[Path]], list[Path]]
"""Return the directories besides those of URIs, given the plain paths of some resources."""
Renew = Callable[[Rows], None]
"""Let rows have the later descriptions of the resources that programs have stored since these were asked for."""


class Records(Mapping[str, Record]):
    """The records of all listed resources by native URI, made on demand."""

    def __init__(self, inventory: "Inventory") -> None:
        self._inventory = inventory

    def __getitem__(self, uri: str) -> Record:
        record = self._inventory.record(uri)
        if record is None:
            raise KeyError(uri)
        return record

    def __contains__(self, uri: object) -> bool:
        return uri in self._inventory.rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._inventory.rows.descriptions)

    def __len__(self) -> int:
        return len(self._inventory.rows)


@dataclass(slots=True)
class _Difference:
    """Native URIs of resources that are new, gone, or described otherwise, the last with their old description."""

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    described: list[tuple[str, Description]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.described)


class Inventory:
    """The resources of one flat source as last listed.

    tree: None until there is a listing. fetched_at: seconds since the epoch. unlisted: pops the state of a resource
    that was looked up before it was listed.
    """

    def __init__(self, source_key: str, base_prefix: str, unlisted: Callable[[str], Remembered | None]) -> None:
        self.tree: Tree | None = None
        self.rows = Rows(base_prefix)
        self.fetched_at = 0.0
        self.records = Records(self)
        self.gone: LRUCache[str, Remembered] = LRUCache(GONE_KEPT)
        self._source_id = source_key
        self._unlisted = unlisted
        self._touched: dict[str, Record] = {}
        self._remembered: dict[str, Remembered] = {}
        self._first_seen = 0
        self._seen: dict[str, int] = {}  # ns, of those that came later
        self._declared = 0

    # -- records and nodes -------------------------------------------------------------------------------------------

    def record(self, uri: str, path: Path | None = None) -> Record | None:
        """Return the record of a listed resource, None for any other. path: in the tree, if the caller knows it."""
        record = self._touched.get(uri)
        if record is None and uri in self.rows:
            record = self._touch(uri, path)
            self._mark_directory(record.path)
        return record

    def holds(self, record: Record) -> bool:
        """Return whether this is the record of a listed resource."""
        return self._touched.get(record.metadata.native_uri) is record

    def _touch(self, uri: str, path: Path | None) -> Record:
        """Make the record of a listed resource. The caller marks its directory."""
        if path is None:
            path = (self.tree.path_of(uri) if self.tree is not None else None) or ()
        record = Record(self._source_id, self.rows.metadata(uri), path, self.fetched_at)
        if record.metadata.modified_ns is None:
            record.modified_ns = self._seen.get(uri, self._first_seen)
        known = self._remembered.pop(uri, None)
        if known is not None:
            record.recall(known)
        else:
            known = self._unlisted(uri) or self.gone.pop(uri, None)
            if known is not None:
                record.recall(known)
                record.invalidated = True  # it may have changed meanwhile
        self._touched[uri] = record
        return record

    def _mark_directory(self, path: Path) -> None:
        """Mark the directory of a path: an entry has other attributes to show."""
        directory = self.tree.lookup(path[:-1]) if self.tree is not None else None
        if isinstance(directory, Directory):
            directory.changes += 1

    def node(self, uri: Leaf, path: Path, directory: Directory | None = None) -> Node:
        """Return the node of a leaf of the tree at `path`. directory: the one that holds it, if the caller has it."""
        record = self._touched.get(uri)
        if record is None:
            record = self._touch(uri, path)
            if directory is None:
                self._mark_directory(path)
            else:
                directory.changes += 1
        return record_node(record)

    def view(self, directory: Directory | Children, path: Path, beyond: Children) -> View:
        """Return the names of a directory at `path`, sorted. beyond: names that are not listed.

        directory: of the tree, or the names of one that the tree does not hold. A listed name takes precedence.
        """
        if not isinstance(directory, Directory):
            return View.of(directory, beyond)
        others = sorted(name for name in beyond if name not in directory.children)
        portions = self._portions(directory, path, beyond, others)
        return View(portions, len(directory.children) + len(others), self, directory, self._first_seen)

    def _portions(self, directory: Directory, path: Path, beyond: Children, others: list[str]) -> Iterator[Portion]:
        """others: the names of `beyond` to be shown, sorted."""
        begin = 0
        for items in directory.sorted_children():
            names, shown, alike = self._shown(items, path)
            end = bisect_left(others, names[-1], begin) if names else begin
            if begin < end:
                listed = dict(zip(names, shown, strict=True))
                both = sorted((*names, *others[begin:end]))
                yield from portions(
                    both, lambda name, listed=listed: listed[name] if name in listed else beyond[name], alike=alike
                )
            elif names:
                yield Portion(names, shown, alike=alike)
            begin = end
        yield from portions(others[begin:], beyond.__getitem__)

    def _shown(self, items: "list[tuple[str, Directory | Leaf]]", path: Path) -> tuple[list[str], list[Shown], bool]:
        """Return what a portion consists of. Leaves out what another listing has removed meanwhile."""
        touched, remembered, gone, seen = self._touched, self._remembered, self.gone, self._seen
        descriptions = self.rows.descriptions
        names: list[str] = []
        shown: list[Shown] = []
        alike = True
        for name, uri in items:
            if isinstance(uri, Directory):
                names.append(name)
                shown.append(DIRECTORY)
                continue
            description = descriptions.get(uri)
            if description is None:
                continue
            names.append(name)
            if (
                (touched and uri in touched)
                or (remembered and uri in remembered)
                or (gone and uri in gone)
                or not is_plain_file(description)
            ):
                shown.append(self.node(uri, (*path, name)))
            else:
                shown.append(uri)
                alike = alike and len(description) <= SIZE and not (seen and uri in seen)
        return names, shown, alike

    def stated(self, uri: str) -> tuple[int | None, int]:
        """Return the stated size of a resource in bytes, if any, and its time in nanoseconds."""
        size = modified_ns = None
        description = self.rows.descriptions.get(uri)
        if description is not None and len(description) > SIZE:
            size, modified_ns = usable_size(value(description, SIZE)), usable_time(value(description, MODIFIED_NS))
        return size, self._seen.get(uri, self._first_seen) if modified_ns is None else modified_ns

    def metadata(self, uri: str) -> ResourceMetadata:
        """Return the metadata of a listed resource."""
        return self.rows.metadata(uri)

    def held(self) -> Collection[Record]:
        """Return the records that may hold more than the listing says."""
        return [*self._touched.values()]

    async def usage(self) -> tuple[int, int]:
        """Return the sum of the known sizes (bytes), and the number of listed resources."""
        learnt = 0
        async for record in InTurns(self.held()):
            learnt += record.best_size() - (record.metadata.size or 0)
        return self._declared + learnt, len(self.rows)

    def at_and_below(self, path: Path) -> list[Path]:
        """Return the listed paths at and below a path, at most `NAMED_APART` resources, else their directories."""
        found = self.tree.lookup(path) if self.tree is not None else None
        if not isinstance(found, Directory):
            return [path] if found is not None else []
        leaves = list(islice((place for place, leaf in below(found, path) if leaf is not None), NAMED_APART + 1))
        if len(leaves) <= NAMED_APART:
            return leaves
        return [place for place, leaf in below(found, path) if leaf is None]

    # -- listings ----------------------------------------------------------------------------------------------------

    def remember(self, rows: Iterable[Remembered]) -> None:
        """Take over the state that an earlier mount had learnt of listed resources."""
        self._remembered.update((row.uri, row) for row in rows if row.uri in self.rows)

    async def update(
        self,
        listed: Iterable[ResourceMetadata],
        at: float,
        renew: Renew,
        directories: Directories | None,
        *,
        refold: bool,
    ) -> tuple[ChangedPaths, Changes | None]:
        """Take over a listing fetched at `at`.

        renew: called again before each step of it, since programs go on to write meanwhile. refold: fold the whole tree
        again, because `directories` may give other paths than before. Return the changed paths (none for the first
        listing), and the changes to be remembered (None: all).
        """
        rows = listed if isinstance(listed, Rows) else await _rows(self.rows.base_prefix, listed)
        if self.tree is None:
            folded = await _folded(rows, directories)
            renew(rows)
            self._first_seen = int(at * NANOSECONDS)
            self.tree, self.rows, self.fetched_at, self.records = folded, rows, at, Records(self)
            await self._add_up()
            freeze(len(rows))
            return ChangedPaths(), None
        difference = await self._compare(rows)
        told = ChangedPaths()
        if difference or refold:
            told = await self._take_over(rows, difference, at, renew, directories, refold=refold)
            self.records = Records(self)
        self.fetched_at = at
        for records in _portions(self._touched.values()):
            for record in records:
                record.listed_at = at
            await trio.lowlevel.checkpoint()
        changes = Changes((*difference.added, *(uri for uri, _ in difference.described)), tuple(difference.removed))
        return told, changes

    async def _compare(self, rows: Rows) -> _Difference:
        found = _Difference()
        was, now = self.rows.descriptions, rows.descriptions
        for items in _portions_of(was):
            for uri, before in items:
                new = now.get(uri)
                if new is None:
                    found.removed.append(uri)
                elif new != before:
                    found.described.append((uri, before))
            await trio.lowlevel.checkpoint()
        if len(now) + len(found.removed) != len(was):
            for items in _portions_of(now):
                found.added += [uri for uri, _ in items if uri not in was]
                await trio.lowlevel.checkpoint()
        return found

    async def _take_over(
        self,
        rows: Rows,
        difference: _Difference,
        at: float,
        renew: Renew,
        directories: Directories | None,
        *,
        refold: bool,
    ) -> ChangedPaths:
        """Take over a listing that differs. Return the changed paths."""
        told = None
        if not refold and await self._keeps_directories(difference, directories):
            renew(rows)
            told = self._change_in_place(rows, difference)
        if told is None:
            told = await self._replace(rows, renew, directories)
        self._seen.update(dict.fromkeys(difference.added, int(at * NANOSECONDS)))
        for uris in _portions(difference.removed):
            for uri in uris:
                self._forget(uri)
            await trio.lowlevel.checkpoint()
        for described in _portions(difference.described):
            renew(rows)
            paths = (self._describe(uri, before, rows, at) for uri, before in described)
            told.update(path for path in paths if path is not None)
            await trio.lowlevel.checkpoint()
        await self._add_up()
        return told

    async def _keeps_directories(self, difference: _Difference, directories: Directories | None) -> bool:
        """Return whether the changes are few and small, and `directories` makes none of the new resources one."""
        assert self.tree is not None
        if len(difference.added) + len(difference.removed) > IN_PLACE:
            return False
        steps = sum(uri.count("/") for uri in difference.added)
        if steps > IN_PLACE_STEPS:
            return False
        if self.tree.directories + steps > MAX_DIRECTORIES:
            return False
        if directories is not None:
            always = len(directories([]))
            async for uri in InTurns(difference.added):
                if len(directories([uri_paths.plain_path(uri).path])) > always:
                    return False
        return True

    def _change_in_place(self, rows: Rows, difference: _Difference) -> ChangedPaths | None:
        """Add and remove a few resources; None, and nothing is done, where names would depend on it."""
        assert self.tree is not None
        told = self.tree.change(difference.added, difference.removed)
        for path in told or ():
            for depth in range(1, len(path) + 1):
                self._mark_directory(path[:depth])
        if told is not None:
            for uri in difference.removed:
                self.rows.discard(uri)
            for uri in difference.added:
                self.rows.add(uri, rows.descriptions[uri])
        return told

    async def _replace(self, rows: Rows, renew: Renew, directories: Directories | None) -> ChangedPaths:
        """Fold the listing into a new tree. Return the changed paths."""
        folded = await _folded(rows, directories)
        told = ChangedPaths()
        for number, path in enumerate(differences(self.tree, folded, told)):
            if number % AT_ONCE == AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
            told.update([path] if path is not None else ())
        relocated: dict[str, Path] = {}
        begun = list(self._touched.items())
        for records in _portions(begun):
            relocated.update(_moved(records, folded))
            await trio.lowlevel.checkpoint()
        # From here on no other task runs until all is consistent.
        renew(rows)
        relocated.update(_moved(list(self._touched.items())[len(begun) :], folded))
        self.tree, self.rows = folded, rows
        freeze(len(rows))
        for uri, path in relocated.items():
            known = self._touched.pop(uri).to_remember()
            # A record belongs to a path: this is another, which knows what that one did.
            record = self._touch(uri, path)
            self._mark_directory(path)
            record.recall(known)
            record.invalidated = True
        return told

    def _describe(self, uri: str, before: Description, rows: Rows, at: float) -> Path | None:
        """Take over a newer description. Return the path if it hints at another content."""
        description = rows.descriptions[uri]
        self.rows.replace(uri, description)
        record = self._touched.get(uri)
        if record is not None:
            return record.path if record.describe(self.rows.metadata(uri), record.path, at) else None
        changed = version(before) != version(description)
        path = self.tree.path_of(uri) if self.tree is not None else None
        self._mark_directory(path or ())
        return path if changed else None

    def _forget(self, uri: str) -> None:
        record = self._touched.pop(uri, None)
        known = record.to_remember() if record is not None else self._remembered.pop(uri, None)
        self._seen.pop(uri, None)
        if known is not None and known.digest is not None:
            self.gone[uri] = known

    async def _add_up(self) -> None:
        declared = 0
        for items in _portions_of(self.rows.descriptions):
            sizes = [value(description, SIZE) for _, description in items if len(description) > SIZE]
            declared += sum([usable_size(size) or 0 for size in sizes])
            await trio.lowlevel.checkpoint()
        self._declared = declared


def _moved(records: list[tuple[str, Record]], folded: Tree) -> Iterator[tuple[str, Path]]:
    """Yield the records whose resource has another path now."""
    for uri, record in records:
        path = folded.path_of(uri)
        if path is not None and path != record.path:
            yield uri, path


def _portions(items: Collection[_T]) -> Iterator[list[_T]]:
    """Yield the current items of a collection in portions."""
    everything = list(items)
    for start in range(0, len(everything), AT_ONCE):
        yield everything[start : start + AT_ONCE]


def _portions_of(items: Buckets[_T]) -> Iterator[list[tuple[str, _T]]]:
    """As `_portions`, of many; an item that exists all the time comes once."""
    for portion in items.portions():
        yield from _portions(portion)


async def _rows(base_prefix: str, listed: Iterable[ResourceMetadata]) -> Rows:
    rows = Rows(base_prefix)
    for number, metadata in enumerate(listed):
        rows.add_metadata(metadata)
        if number % AT_ONCE == AT_ONCE - 1:
            await trio.lowlevel.checkpoint()
    return rows


async def _folded(rows: Rows, directories: Directories | None) -> Tree:
    """Fold a listing. Raises TooLarge for too many directories."""
    folding = Folding()
    always = [] if directories is None else directories([])
    fixed, turn = len(always), Turn()
    descriptions = rows.descriptions

    async def give_way() -> None:
        if folding.directories > MAX_DIRECTORIES:
            raise TooLarge(f"the listed URIs make more than {MAX_DIRECTORIES} directories")
        await turn.give_way()

    for items in _portions_of(descriptions):
        for uri, _ in items:
            folding.add(uri)
            if directories is not None:
                always += directories([uri_paths.plain_path(uri).path])[fixed:]
            if turn.is_over:
                await give_way()
        await give_way()
    for path in always:
        folding.add_directory(path)
        if turn.is_over:
            await give_way()
    await give_way()

    def mime_type(uri: str) -> str | None:
        return value(descriptions[uri], MIME_TYPE)

    if folding.contested < AT_ONCE:
        return folding.tree(mime_type)
    # Names depend on each other. In a thread, the interpreter is shared every few milliseconds.
    return await trio.to_thread.run_sync(folding.tree, mime_type, abandon_on_cancel=True)
