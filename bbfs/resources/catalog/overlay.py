"""The changes of the mount to the catalog of one source: files that programs write, names, and the descriptions of
written resources.

A file is a draft while a program writes it, and as long as its name lives in the mount alone. A change of a name lies
over the catalog until a listing that began after it shows what the source has. So a change shows at once and costs no
listing. Between two awaits a task is alone. The lock of a draft keeps its bytes unchanged while a source takes them.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

import trio

from bbfs.model.errors import BbfsError, NotADirectory, NotFound, Outdated
from bbfs.model.listing import Rows
from bbfs.model.values import Content, ResourceMetadata
from bbfs.model.versions import Expected
from bbfs.resources.catalog.record import DIRECTORY, NANOSECONDS, Node, Path, Record
from bbfs.sources.content.buffer import Buffer, BufferSpace
from bbfs.sources.content.memory import MemoryContent

if TYPE_CHECKING:
    from bbfs.resources.catalog.base import Catalog, View

_MOST_RANGES = 100
"""Ranges of a file without bytes that are told apart."""
WRITTEN_KEPT = 1000
"""Written resources that are remembered until the listings that began before have ended."""
COUNTED = 10_000
"""Names of a listed directory that may be gone through at once."""
PRUNED_EVERY = 1000
"""Names of a directory after which those are dropped that its listing shows by now."""


@dataclass(slots=True, eq=False)
class Staged:
    """The bytes of a draft that its source has, or is being given, under no name of a resource.

    edits: of the draft when it had these bytes. place: as `CanStage` states it; None until then, and if it failed.
    """

    edits: int
    place: str | None = None
    ended: trio.Event = field(default_factory=trio.Event)
    is_wanted: bool = True


class Lacking:
    """The ranges of a file whose bytes could not be kept, and why. False if there are none."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self.why = ""

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, begin: int, end: int, why: str) -> None:
        """Add a range. Beyond a bound, one range covers all: a program may try at a million places."""
        self._ranges.append((begin, end))
        if len(self._ranges) > _MOST_RANGES:
            self._ranges = [(min(each for each, _ in self._ranges), max(each for _, each in self._ranges))]
        self.why = why

    def remove(self, begin: int, end: int, size: int) -> None:
        """Remove a range that a program has written since. size: of the file after that.

        A shorter write at the end of the file stands for the whole write that found no room.
        """
        pieces = [piece for low, high in self._ranges for piece in ((low, min(high, begin)), (max(low, end), high))]
        self._ranges = [(low, high) for low, high in pieces if low < high and not low == end == size]

    def cut(self, size: int) -> None:
        """Remove what is behind the end of the file."""
        self._ranges = [(low, min(high, size)) for low, high in self._ranges if low < size]


@dataclass(slots=True, eq=False)
class Draft:
    """One file that is being written. It is a content for the programs that read it meanwhile.

    overlay: of its source. path: from the mount's root. below: in the catalog of the source. native_uri: of the
    resource. record: the resource as the source has it, or as it is shown until then. version: of the inode, which
    stays. expected: the state that the next hand-over replaces. load: returns the content that a program changes.
    temporary: it lives in the mount alone. hides: a resource that the source still has, and that was renamed to this
    draft, with the state that it had then. space: of the bytes. clock: seconds since the epoch.
    """

    overlay: "Overlay"
    path: Path
    below: Path
    native_uri: str
    record: Record
    version: str
    expected: Expected
    load: Callable[[Record], Awaitable[Content]]
    space: BufferSpace
    clock: Callable[[], float]
    base: str | None = None
    """The inode version of the content that a program changes, None for any: the program may have read that one."""
    base_size: int | None = None
    """Its size, None for any: a program that appends goes by this."""
    temporary: bool = False
    hides: tuple[Path, Record, Expected] | None = None
    owns_inode: bool = False
    """True if the version of the inode is the draft's own: no program has seen another content there."""
    modified_ns: int = 0
    changed_ns: int | None = None
    """When a program last changed the bytes; None before."""
    set_ns: int | None = None
    inos: set[int] = field(default_factory=set)
    """The inodes that lead to it."""
    buffer: Buffer | None = None
    edits: int = 0
    """Changes of the bytes."""
    staged: Staged | None = None
    is_staged_once: bool = False
    """True once the source was asked to stage the bytes: those that a program changes again are not staged."""
    dirty: bool = False
    """True while the source lacks these bytes."""
    lacks: Lacking = field(default_factory=Lacking)
    """Where bytes could not be kept, until a program writes there or cuts the file before that."""
    blank: bool = False
    """True while a program has made or emptied the file, and not written yet."""
    failed: bool = False
    """True if the source has refused exactly these bytes, which are a pending write."""
    refused: list[str] = field(default_factory=list)
    """The ID of the pending write of exactly these bytes, if there is one."""
    is_moved: bool = False
    """True if bytes were written elsewhere than the kernel has them in its pages."""
    removed: bool = False
    """True once no name leads here any more."""
    program: int = 0
    """The thread that has opened it first: files for its bytes are that program's."""
    users: int = 0
    """The number of open handles."""
    lock: trio.Lock = field(default_factory=trio.Lock)
    writing: int = 0
    """The number of writes that have come and wait for the lock, or have it."""

    @property
    def size(self) -> int:
        return self.record.best_size() if self.buffer is None else self.buffer.size

    @property
    def is_written(self) -> bool:
        """Return whether a program has written, or is about to: a write may wait for the content that it changes."""
        return self.buffer is not None or self.writing > 0

    def read(self, offset: int, length: int) -> bytes | None:
        return None if self.buffer is None or self.writing else self.buffer.read(offset, length)

    async def read_waiting(self, offset: int, length: int) -> bytes:
        """Return bytes with those of all writes that came before. Raise BbfsError.

        The kernel may have dropped a page with the bytes of a write under way, and keeps the one that a read answers.
        """
        if self.writing:
            async with self.lock:  # which goes to those who wait in their order
                pass
        return (await self.filled()).read(offset, length)

    def close(self) -> None:
        """Do nothing: a draft ends when no handle and no name leads to it."""

    async def filled(self) -> Buffer:
        """Return the bytes, after a load if a program changes a content that it has not replaced. Raise BbfsError."""
        if self.buffer is None:
            content = await self.load(self.record)
            if self.base not in (None, self.record.inode_version) or self.base_size not in (None, content.size):
                raise Outdated(f"{'/'.join(self.path)}: somebody else has changed it since it was opened")
            etag = self.record.metadata.etag  # of this content: a listing may bring a later one while it is taken
            buffer = Buffer(self.space, self.program)
            await buffer.fill(content)
            if self.buffer is None:  # another request may have filled or emptied it meanwhile
                is_digest = etag is None or isinstance(content, MemoryContent)
                version = content.version if is_digest else None  # not the record's: it may be invalid again by now
                self.buffer, self.expected = buffer, Expected(exists=True, etag=etag, version=version)
        return self.buffer

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Let reads wait for a write that has come."""
        self.writing += 1
        try:
            yield
        finally:
            self.writing -= 1

    def require_name(self, path: Path) -> None:
        """Raise NotFound if the draft has lost its name while a program waited for its lock."""
        if self.path != path or self.removed:
            raise NotFound("/".join(path))

    def opened_by(self, program: int) -> None:
        """Note which program begins to write."""
        self.program = program
        if self.buffer is not None:
            self.buffer.written_by(program)

    def emptied(self) -> None:
        """Begin with no bytes: a program replaces the content, whatever it is."""
        self.buffer, self.blank = Buffer(self.space, self.program), True
        self.lacks.cut(0)

    async def write(self, offset: int, data: bytes) -> None:
        """Take what a program writes. Raise NoSpace, BbfsError: then the next hand-over fails, too."""
        buffer = await self.filled()
        try:
            await buffer.part()
            buffer.write(offset, data)
        except BbfsError as error:
            self.lacks.add(offset, offset + len(data), str(error))
            self.dirty = True
            raise
        if self.lacks:
            self.lacks.remove(offset, offset + len(data), buffer.size)
        self.blank = False

    async def truncate(self, size: int) -> None:
        """Cut, or lengthen by zeros. Raise NoSpace, BbfsError."""
        if size == 0:
            self.emptied()
        else:
            buffer = await self.filled()
            await buffer.part()
            buffer.truncate(size)
        self.lacks.cut(size)

    def changed(self) -> None:
        """Note a change by a program."""
        self.dirty, self.failed, self.refused = True, False, []
        self.edits += 1
        self.set_ns = None
        self.modified_ns = self.changed_ns = int(self.clock() * NANOSECONDS)


class Written:
    """The resources that programs have stored last, as their source described them then.

    An answer whose request began before may describe an earlier version. No program may get its bytes or version then.
    count: how many writes were noted. A request keeps it as `began`; no clock tells the order of two events so surely.
    """

    def __init__(self) -> None:
        self.count = 0
        self._stored: dict[str, tuple[int, ResourceMetadata]] = {}

    def note(self, metadata: ResourceMetadata) -> None:
        """Note what a source has just stored."""
        self.count += 1
        self.forget(metadata.native_uri)
        self._stored[metadata.native_uri] = self.count, metadata
        if len(self._stored) > WRITTEN_KEPT:
            self.forget(next(iter(self._stored)))

    def forget(self, native_uri: str) -> None:
        self._stored.pop(native_uri, None)

    def is_later(self, native_uri: str, began: int) -> bool:
        """Return whether a resource was stored after a request began: the answer tells nothing of it then."""
        stored = self._stored.get(native_uri)
        return stored is not None and stored[0] > began

    def over(self, listed: ResourceMetadata, began: int) -> ResourceMetadata:
        """Return the description of a listed resource, or the later one if it was stored since the request began."""
        return _described(listed, self._stored[uri][1]) if self.is_later(uri := listed.native_uri, began) else listed

    def put_over(self, rows: Rows, began: int) -> None:
        """Change the rows of a listing whose resources were stored since its request began."""
        for uri, (number, metadata) in reversed(self._stored.items()):
            if number <= began:
                return
            if uri in rows:
                rows.replace_metadata(_described(rows.metadata(uri), metadata))


def _described(listed: ResourceMetadata, stored: ResourceMetadata) -> ResourceMetadata:
    """Return the description of a listed resource. stored: as its source described it after a later write.

    An answer to a write that states no version often says nothing else either.
    """
    if stored.etag is not None or stored.kind != listed.kind:
        return stored
    mime_type = stored.mime_type or listed.mime_type
    return replace(listed, mime_type=mime_type, size=stored.size, modified_ns=stored.modified_ns, etag=None)


@dataclass(frozen=True, slots=True)
class Overlaid:
    """One name. node: None if it was removed. since: when the source stored it (seconds since the epoch); infinite for
    what only the mount has.

    made: a directory that the catalog does not have, made at the time `at`. An older listing may still show another one
    of that name. until: when the source is to be asked again (seconds since the epoch).
    """

    node: Node | None
    since: float = inf
    made: bool = False
    at: float = 0.0
    until: float = inf


class Overlay:
    """The overlaid names of one source, by path in its catalog.

    derived: its directories exist by what is in them. One in which a name was changed stays until a program removes it,
    as on a disk. ttl: seconds for which what the source has stored holds without a listing.
    """

    def __init__(
        self, catalog: "Catalog", clock: Callable[[], float], *, derived: bool = False, ttl: float = inf
    ) -> None:
        self._catalog = catalog
        self._ttl = ttl
        self._derived = derived
        self._clock = clock
        self._below: dict[Path, dict[str, Overlaid]] = {}

    def get(self, path: Path) -> Overlaid | None:
        """Return what is overlaid at exactly this path, or None."""
        names = self._below.get(path[:-1]) if path else None
        found = names.get(path[-1]) if names else None
        if found is None or (found.since == inf and not found.made):
            return found  # no listing ends what only the mount has
        listed_at = self._catalog.listed_at(path[:-1])
        shown = found.at < listed_at and self._is_confirmed(path) if found.made else found.since < listed_at
        if shown:
            self.drop(path)
            self._confirm_above(path)
        return None if shown else found

    def _confirm_above(self, path: Path) -> None:
        """Note that the catalog has the directories above a path, if it lists something there."""
        for depth in range(1, len(path)):
            names = self._below.get(path[: depth - 1], {})
            above = names.get(path[depth - 1])
            if above is not None and above.made and self.is_listed(path):
                names[path[depth - 1]] = replace(above, made=False)

    def draft(self, path: Path) -> Draft | None:
        """Return the draft that is overlaid at exactly this path, or None."""
        found = self._below.get(path[:-1], {}).get(path[-1]) if path else None
        return None if found is None or found.node is None else found.node.draft

    def put(self, path: Path, node: Node | None, *, stored: bool = False, made: bool = False) -> None:
        """Overlay a name. stored: the source has it so, and its next listing shows it."""
        names = self._below.setdefault(path[:-1], {})
        now = self._clock()
        names[path[-1]] = Overlaid(node, now if stored else inf, made, now, now + self._ttl if stored else inf)
        if len(names) % PRUNED_EVERY == 0:
            for name in [*names]:
                self.get((*path[:-1], name))  # which drops one that is listed
        if self._derived and len(path) > 2 and self.get(path[:-1]) is None:
            self.put(path[:-1], DIRECTORY)

    def lacks(self, path: Path, asked_at: float) -> bool:
        """Overlay that the source has lost what is at a path, by its answer to a request of that time.

        Return False, and change nothing, if there is something newer.
        """
        found = self.get(path)
        if self._catalog.listed_at(path[:-1]) > asked_at or (found is not None and found.since >= asked_at):
            return False
        self.put(path, None, stored=True)
        names = self._below[path[:-1]]
        names[path[-1]] = replace(names[path[-1]], since=asked_at)
        return True

    def drop(self, path: Path) -> None:
        """Show what the catalog has at a path."""
        names = self._below.get(path[:-1], {})
        names.pop(path[-1], None)
        if not names:
            self._below.pop(path[:-1], None)

    def unshow(self, path: Path) -> None:
        """Drop a name that only the mount had. An older listing may still have a removed resource of that name."""
        self.drop(path)
        if self.is_listed(path):
            self.put(path, None, stored=True)

    def expire(self, path: Path) -> list[Record]:
        """Have the source asked for what it has stored at and below a path. Return the records of it."""
        records: list[Record] = []
        for directory, names in self._below.items():
            for name, found in names.items():
                if (*directory, name)[: len(path)] != path:
                    continue
                if found.since != inf:
                    names[name] = replace(found, until=0.0)
                if found.node is not None and found.node.record is not None and found.node.kind == "file":
                    records.append(found.node.record)
        return records

    def drop_below(self, path: Path) -> None:
        for directory in [each for each in self._below if each[: len(path)] == path]:
            del self._below[directory]

    def drafts_below(self, path: Path) -> list[Draft]:
        """Return what programs write at and below a directory, or have written there for the mount alone."""
        names = [each for directory, each in self._below.items() if directory[: len(path)] == path]
        nodes = [overlaid.node for each in names for overlaid in each.values()]
        return [node.draft for node in nodes if node is not None and node.draft is not None]

    def is_directory(self, path: Path) -> bool:
        """Return whether a directory is overlaid at a path."""
        found = self.get(path)
        return found is not None and found.node is not None and found.node.kind == "directory"

    def find(self, path: Path) -> Node | None:
        """Return the overlaid node at a path, or None if the catalog has to answer. Raise NotFound, NotADirectory."""
        return self._find(path, asks=False) if self._below else None

    def cached(self, path: Path) -> Node | None:
        """As `find`. None as well where the source has to be asked again: the catalog then answers that by None."""
        return self._find(path, asks=True) if self._below else None

    def _find(self, path: Path, *, asks: bool) -> Node | None:
        """As `find`, or with `asks` as `cached`."""
        for depth in range(1, len(path) + 1):
            names = self._below.get(path[: depth - 1])
            found = self.get(path[:depth]) if names and path[depth - 1] in names else None
            if found is None:
                continue
            if asks and found.until < inf and found.until <= self._clock() and self._must_be_asked(path):
                return None
            if found.node is None:
                raise NotFound(f"removed: {'/'.join(path[:depth])}")
            if depth == len(path):
                return found.node
            if found.node.kind != "directory":
                raise NotADirectory("/".join(path[:depth]))
            if found.made and self.get(path[: depth + 1]) is None and self.is_made(path[:depth]):
                raise NotFound("/".join(path))
        return None

    def is_made(self, path: Path) -> bool:
        """Return whether the catalog does not have a directory, so that all of its names are overlaid."""
        if self._has_made(path):
            for name in [*self._below.get(path, ())]:
                self.get((*path, name))  # the catalog has the directory of one that is listed
        return self._has_made(path)

    def _has_made(self, path: Path) -> bool:
        return any((found := self.get(path[:depth])) is not None and found.made for depth in range(1, len(path) + 1))

    def over(self, path: Path, view: "View") -> "View":
        """Return the names of a directory: those of its listing, changed by the overlaid ones."""
        names = {name: found for name in [*self._below.get(path, ())] if (found := self.get((*path, name)))}
        if not names:
            return view
        nodes = {name: each.node for name, each in names.items()}
        if len(view) <= COUNTED:
            listed = sum(name in nodes for name, _ in view)
        else:
            listed = sum(self.is_listed((*path, name)) for name in nodes)
        return view.overlaid(nodes, len(view) - listed + sum(node is not None for node in nodes.values()))

    def is_listed(self, path: Path) -> bool:
        """Return whether the catalog has something at a path."""
        return self._cataloged(path) is not None

    def _is_confirmed(self, path: Path) -> bool:
        """Return whether the catalog has more at a path than what a template makes of any name."""
        node = self._cataloged(path)
        record = None if node is None else node.record or node.candidate
        return node is not None and (record is None or not record.provisional)

    def _must_be_asked(self, path: Path) -> bool:
        """Return whether the catalog knows nothing of a path without a request."""
        try:
            return self._catalog.cached(path) is None
        except (NotFound, NotADirectory):
            return False

    def _cataloged(self, path: Path) -> Node | None:
        try:
            return self._catalog.last_cached(path)
        except (NotFound, NotADirectory):
            return None
