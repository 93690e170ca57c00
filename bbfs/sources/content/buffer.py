"""The bytes of a file that is being written: small ones in memory, others in a file without a name."""

import errno
import os
import resource
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import trio

from bbfs.model.errors import BbfsError, NoSpace
from bbfs.model.values import Content
from bbfs.runtime.private_files import own_directory
from bbfs.sources.content.fd import Descriptor
from bbfs.sources.content.memory import DIGEST_BYTES, MemoryContent
from bbfs.sources.content.spool import IN_MEMORY, copy_bytes, unnamed

MEMORY = 64 << 20
"""Bytes that all buffers of a mount may have in memory."""
FILES_SHARE = 4
"""The part of the process's descriptors that buffers may have: one in so many."""
PIECE = 1 << 20
"""Bytes that are copied or hashed at once."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNIT = 512
"""The unit of st_blocks, in bytes (stat(2))."""


class BufferSpace:
    """The room of all buffers: so many bytes in memory, so many files for more, and the directory of these.

    The directory is on a disk of this machine: reads and writes go to the page cache and are not worth a thread.
    """

    def __init__(self, directory: Path, memory: int = MEMORY) -> None:
        self.directory = directory
        self.memory = memory
        self.held = 0
        """Bytes in memory."""
        self.most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // FILES_SHARE
        self.files = 0
        self._by_program: Counter[int] = Counter()

    def take_file(self, program: int) -> None:
        """Count a file of a program. Raise NoSpace if it may have no more.

        A program may have as many as are left for all others: one that takes all that it can leaves half of them.
        """
        if self._by_program[program] >= self.most_files - self.files:
            raise NoSpace(f"{self.files} files that are too large for memory are being written already")
        self.files += 1
        self._by_program[program] += 1

    def give_file(self, program: int) -> None:
        self.files -= 1
        self._by_program[program] -= 1
        if not self._by_program[program]:
            del self._by_program[program]


class Buffer:
    """Bytes with random access. It takes them by `write` and `truncate`, and reads as a `Content` does.

    They are in memory up to `IN_MEMORY` bytes, as long as the space has room there. program: the thread that writes.
    """

    def __init__(self, space: BufferSpace, program: int = 0) -> None:
        self._space = space
        self._program = program
        self._data = bytearray()
        self._file: Descriptor | None = None
        self._size = 0
        self._has_rest = False
        """True if a write that found no room has left bytes behind the end of the file."""
        self._is_given = False
        """True if a snapshot has the file, which may be a pending write by now."""

    @property
    def size(self) -> int:
        return self._size

    def written_by(self, program: int) -> None:
        """Count the file of these bytes, if they will need one, as that of another program."""
        if self._file is None:
            self._program = program

    async def part(self) -> None:
        """Go on in a copy of the file if a snapshot has it: a snapshot never changes. Raise NoSpace, BbfsError."""
        if self._file is not None and self._is_given:
            copied = await trio.to_thread.run_sync(self._copy, self._file)
            if isinstance(copied, OSError):
                raise self._error(copied)
            self._file, self._is_given = copied, False

    def _copy(self, file: Descriptor) -> Descriptor | OSError:
        """Return a copy of the file, or why there is none.

        An error that a thread raises holds its frames, and so the room of the bytes, until the next collection.
        """
        try:
            copy = self._new_file()
        except OSError as error:
            return error.with_traceback(None)
        try:
            copy_bytes(file.number, copy.number, self._size)
        except OSError as error:
            copy.close()
            return error.with_traceback(None)
        return copy

    def _new_file(self) -> Descriptor:
        """Make a file in the directory, which a program may have removed. Raise OSError."""
        own_directory(self._space.directory)
        return Descriptor(unnamed(self._space.directory))

    def write(self, offset: int, data: bytes) -> None:
        """Write at `offset`; a gap before it reads as zeros. Raise NoSpace, BbfsError."""
        end = offset + len(data)
        self._cut()
        self._take_room(end)
        if offset > self._size:
            self._require_room(end)
        try:
            if self._file is None:
                if offset > self._size:
                    self._data.extend(bytes(offset - self._size))
                self._data[offset:end] = data
            else:
                _write_all(self._file.number, offset, data)
        except OSError as error:
            self._has_rest = self._file is not None
            with suppress(BbfsError):
                self._cut()
            raise self._error(error) from error
        self._size = max(self._size, end)

    def truncate(self, size: int) -> None:
        """Cut, or lengthen by zeros. Raise NoSpace, BbfsError."""
        self._cut()
        self._take_room(size)
        if size > self._size:
            self._require_room(size)
        if self._file is None:
            self._space.held -= max(0, len(self._data) - size)
            del self._data[size:]
            self._data.extend(bytes(size - len(self._data)))
        else:
            try:
                os.ftruncate(self._file.number, size)
            except OSError as error:
                raise self._error(error) from error
        self._size = size

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes at `offset`, fewer than `length` only at the end."""
        if self._file is None:
            return bytes(self._data[offset : offset + length])
        try:
            return os.pread(self._file.number, length, offset)
        except OSError as error:
            raise self._error(error) from error

    async def fill(self, content: Content) -> None:
        for offset in range(0, content.size, PIECE):
            self.write(offset, await content.read_waiting(offset, PIECE))

    def snapshot(self) -> "MemoryContent | Written":
        """Return the bytes as a content. It holds if `part` comes before the next change. Raise NoSpace, BbfsError."""
        self._cut()
        if self._file is None:
            return MemoryContent(bytes(self._data))
        self._is_given = True
        return Written(self._file, self._size, self._error)

    def _cut(self) -> None:
        if self._has_rest and self._file is not None:
            try:
                os.ftruncate(self._file.number, self._size)
            except OSError as error:  # where a quota counts metadata
                raise self._error(error) from error
            self._has_rest = False

    def _take_room(self, size: int) -> None:
        """Go on in a file if this many bytes are too many for memory."""
        more = size - len(self._data)
        if self._file is None and (size > IN_MEMORY or (more > 0 and self._space.held + more > self._space.memory)):
            self._to_file()
        elif self._file is None and more > 0:
            self._space.held += more

    def _require_room(self, size: int) -> None:
        """Raise NoSpace if the disk has no room for this many bytes, with holes as zeros: so a source gets them."""
        if self._file is None:
            return
        found, disk = os.fstat(self._file.number), os.fstatvfs(self._file.number)
        if size - found.st_blocks * _UNIT > disk.f_bavail * disk.f_frsize:
            raise NoSpace(
                f"{size} bytes, more than {self._space.directory} has room for; no source takes them as holes"
            )

    def __del__(self) -> None:
        self._space.held -= len(self._data)
        if self._file is not None:
            self._space.give_file(self._program)

    def _to_file(self) -> None:
        self._space.take_file(self._program)
        try:
            file = self._new_file()
            _write_all(file.number, 0, self._data)
        except OSError as error:
            self._space.give_file(self._program)
            raise self._error(error) from error
        self._file = file
        self._space.held -= len(self._data)
        self._data = bytearray()

    def _error(self, error: OSError) -> BbfsError:
        kind = NoSpace if error.errno in _FULL else BbfsError
        return kind(f"what is written could not be kept in {self._space.directory}: {error.strerror}")


def _write_all(number: int, offset: int, data: bytes | bytearray) -> None:
    """Write all bytes: a disk that is almost full takes the first of them without an error (pwrite(2))."""
    view = memoryview(data)
    while view:
        written = os.pwrite(number, view, offset)
        view, offset = view[written:], offset + written


class Written:
    """The bytes of a buffer in its file. error: makes the error for an OSError."""

    def __init__(self, file: Descriptor, size: int, error: Callable[[OSError], BbfsError]) -> None:
        self._file = file
        self._error = error
        self.size = size
        self._version: str | None = None

    @property
    def version(self) -> str:
        """A hash of the bytes. It reads them all when it is first asked for: call it in a thread."""
        if self._version is None:
            digest = blake2b(digest_size=DIGEST_BYTES)
            for offset in range(0, self.size, PIECE):
                digest.update(self.read(offset, PIECE))
            self._version = digest.hexdigest()
        return self._version

    def fileno(self) -> int:
        """Return the descriptor of the file, which stays the buffer's own."""
        return self._file.number

    def read(self, offset: int, length: int) -> bytes:
        try:
            return os.pread(self._file.number, max(0, min(length, self.size - offset)), offset)
        except OSError as error:
            raise self._error(error) from error

    async def read_waiting(self, offset: int, length: int) -> bytes:
        return await trio.to_thread.run_sync(self.read, offset, length)

    def close(self) -> None:
        """Do nothing: the buffer has the file."""


async def content_digest(content: Content) -> str:
    """Return the digest of all bytes of a content, as `MemoryContent.version`. Raise BbfsError."""
    if isinstance(content, MemoryContent) and content.size <= PIECE:
        return content.version
    hashed = blake2b(digest_size=DIGEST_BYTES)
    for offset in range(0, content.size, PIECE):
        hashed.update(await content.read_waiting(offset, PIECE))
        await trio.lowlevel.checkpoint()
    return hashed.hexdigest()
