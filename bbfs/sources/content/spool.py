"""Contents that come as a stream: small ones stay in memory, larger ones go to a file without a name.

The file is in the directory of the disk cache, which can give it a name without copying it. Without a name it vanishes
with its last reference, also if the process is killed. When the disk is full, a content that fits in memory stays
there: a full cache costs requests, not contents.
"""

import errno
import logging
import os
import tempfile
from collections.abc import AsyncIterable, Callable
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import trio

from bbfs.model.errors import BbfsError, TooLarge
from bbfs.model.values import Content
from bbfs.sources.content.fd import Descriptor, of_program, read_at
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import DIGEST_BYTES, MemoryContent

log = logging.getLogger(__name__)

IN_MEMORY = 1 << 20
"""Bytes up to which a content stays in memory."""
_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)


class Spool:
    """Spools one content. `write` and `content` block and belong in a thread.

    directory: of the file, beyond `IN_MEMORY` bytes; None for memory alone. limit: of the content, in bytes. setting:
    the option that sets the limit, for the error. limiter: for the threads that read. spare: memory budget (bytes) for
    a content when the disk is full.
    """

    def __init__(
        self,
        directory: Path | None = None,
        limit: int = 64 << 20,
        setting: str = "[cache] memory",
        limiter: trio.CapacityLimiter | None = None,
        spare: int = 0,
    ) -> None:
        self._directory = directory
        self._limit = limit
        self._setting = setting
        self._limiter = limiter
        self._spare = spare
        self._refusal: str | None = None
        self._pieces: list[bytes] = []
        self._held = self._size = 0
        self._hash = blake2b(digest_size=DIGEST_BYTES)
        self._file: Descriptor | None = None

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._size

    def write(self, data: bytes) -> None:
        """Add the next bytes. Raises TooLarge, and BbfsError for a full disk."""
        self._size += len(data)
        if self._size > self._limit:
            self.close()
            if self._refusal is not None:
                raise BbfsError(self._refusal)
            raise TooLarge(f"more than {self._limit} bytes ({self._setting})")
        self._hash.update(data)
        self._pieces.append(bytes(data))
        self._held += len(data)
        if self._directory is not None and self._held > IN_MEMORY:
            self._to_disk(self._directory)

    def _to_disk(self, directory: Path) -> None:
        view = memoryview(b"".join(self._pieces))
        self._pieces.clear()
        self._held = 0
        try:
            if self._file is None:
                self._file = of_program(unnamed(directory))
            while view:
                view = view[os.write(self._file.number, view) :]
        except OSError as error:
            self._to_memory(view, f"a content could not be written to {directory}: {error.strerror}")

    def _to_memory(self, rest: memoryview, refusal: str) -> None:
        """Go on in memory. rest: the bytes that are not on the disk yet. Raises BbfsError."""
        file, self._file, self._directory = self._file, None, None
        written = b""
        if file is not None:
            with file:
                if self._size <= self._spare:
                    written = _beginning(file.number, self._size - len(rest), refusal)
        if self._size > self._spare:
            raise BbfsError(refusal)
        log.info("%s; it stays in memory", refusal)
        self._refusal, self._limit = refusal, self._spare
        self._pieces = [written, bytes(rest)]
        self._held = self._size

    def content(self) -> MemoryContent | StoredContent:
        """Return all bytes as a content, and end the spool."""
        version = self._hash.hexdigest()
        if self._file is not None and self._directory is not None:
            self._to_disk(self._directory)
        if self._file is None:
            data = b"".join(self._pieces)
            self.close()
            return MemoryContent(data, version)
        file, self._file = self._file, None
        return StoredContent(file, self._size, version, self._limiter or trio.CapacityLimiter(4))

    def close(self) -> None:
        """Drop all bytes. After `content`: does nothing."""
        self._pieces.clear()
        self._held = 0
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def spooled(
    make: Callable[[], Spool], beginning: bytes, pieces: AsyncIterable[bytes], limiter: trio.CapacityLimiter
) -> Content:
    """Return a body of any length as a content. beginning: what was read already. limiter: for the threads that write.

    No thread is abandoned when cancelled: it would write to a closed spool. A short body needs none.
    """
    with make() as spool:
        held, size = [beginning], len(beginning)
        async for piece in pieces:
            held.append(piece)
            size += len(piece)
            if size > IN_MEMORY:
                await trio.to_thread.run_sync(spool.write, b"".join(held), limiter=limiter)
                held, size = [], 0
        if not spool.size and size <= IN_MEMORY:
            spool.write(b"".join(held))
            return spool.content()
        await trio.to_thread.run_sync(spool.write, b"".join(held), limiter=limiter)
        return await trio.to_thread.run_sync(spool.content, limiter=limiter)


class Spools:
    """Makes spools: within the memory budget, until there is a directory for larger contents."""

    def __init__(self, memory: int) -> None:
        """memory: bytes, the budget of contents in memory."""
        self._memory = memory
        self._directory: Path | None = None
        self._limit = 0
        self._limiter: trio.CapacityLimiter | None = None

    def use(self, directory: Path, limit: int, limiter: trio.CapacityLimiter) -> None:
        """Let later contents be in files there, of at most `limit` bytes."""
        self._directory, self._limit, self._limiter = directory, limit, limiter

    def __call__(self) -> Spool:
        if self._directory is None:
            return Spool(None, self._memory)
        return Spool(self._directory, self._limit, "[cache] disk", self._limiter, self._memory)


def _beginning(number: int, size: int, refusal: str) -> bytes:
    """Return the first bytes of a file. Raises BbfsError if they cannot be read either."""
    try:
        data = read_at(number, 0, size)
    except OSError as error:
        raise BbfsError(f"{refusal}; and what was, cannot be read: {error.strerror}") from error
    if len(data) < size:
        raise BbfsError(refusal)
    return data


class HasFile(Protocol):
    def fileno(self) -> int: ...


def name_file(content: HasFile, path: Path) -> None:
    """Give the file of a content a name on the same file system, or a copy of the file. Raises OSError."""
    # With a directory's descriptor Python calls linkat(2), and only that can follow the link in /proc.
    with Descriptor(os.open("/proc/self/fd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptors:
        try:
            os.link(str(content.fileno()), path, src_dir_fd=descriptors.number, follow_symlinks=True)
            return
        except FileNotFoundError:
            pass  # linkat(2): a file whose last name was removed gets none again, unless it never had one (O_TMPFILE)
    with Descriptor(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)) as copy:
        copy_bytes(content.fileno(), copy.number, os.fstat(content.fileno()).st_size)


def copy_bytes(number: int, to: int, size: int) -> None:
    """Copy the first bytes of a file to a new one. Raises OSError."""
    done = 0
    while done < size:
        copied = os.sendfile(to, number, done, size - done)
        if not copied:
            raise OSError(errno.EIO, "a file became shorter while it was copied")
        done += copied


def unnamed(directory: Path) -> int:
    """Open a new file without a name, for reading and writing. Raises OSError."""
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _NO_UNNAMED:
            raise
    # A file system without unnamed files (overlay of old kernels, some network ones): make one, and unlink it.
    number, path = tempfile.mkstemp(dir=directory)
    os.unlink(path)
    return number
