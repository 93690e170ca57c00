"""Files that a program is writing, or has written under a name that lives in the mount alone.

Between two awaits a task is alone. A draft's lock keeps its bytes unchanged while a source takes them.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

from bbfs.model.errors import BbfsError, NotFound, Outdated
from bbfs.model.values import Content
from bbfs.model.versions import Expected
from bbfs.resources.catalog.record import NANOSECONDS, Path, Record
from bbfs.sources.content.buffer import Buffer, BufferSpace
from bbfs.sources.content.memory import MemoryContent

_MOST_RANGES = 100
"""Ranges of a file without bytes that are told apart."""


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

    path: from the mount's root. below: in the catalog of its source. native_uri: of the resource. record: the resource
    as the source has it, or as it is shown until then. version: of the inode, which stays. expected: the state that the
    next hand-over replaces. load: returns the content that a program changes. temporary: it lives in the mount alone.
    hides: a resource that the source still has, and that was renamed to this draft, with the state that it had then.
    space: of the bytes. clock: seconds since the epoch.
    """

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
