"""The content of a local file: a small file as a snapshot in memory, a large one in ranges from the open file."""

import os
import stat
from dataclasses import dataclass, replace

import trio

from bbfs.model.errors import BbfsError, Busy, IsADirectory, NotFound, Outdated, TooLarge
from bbfs.model.values import Content
from bbfs.sources.content.fd import Descriptor, read_at, read_cached, require_room
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.filesystem.beneath import error_of

_SNAPSHOT_ATTEMPTS = 8
AHEAD = 8 << 20
"""Bytes that the disk reads ahead of a sequential reader, so that it is never idle."""

Stamp = tuple[int, int, int, int]
"""Inode, size (bytes), modification and change time (ns). It changes with the bytes of the file."""


def stamp_of(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def etag_of(status: os.stat_result) -> str:
    return "-".join(f"{number:x}" for number in stamp_of(status))


def exact_size(status: os.stat_result) -> int | None:
    """Return the bytes in a file, or None if the file system does not say.

    Files of procfs, sysfs and similar file systems have sizes (0, or a page) without meaning. They have no blocks and
    no block device. Other files without these (empty files on tmpfs) are read to find their size.
    """
    if status.st_blocks == 0 and os.major(status.st_dev) == 0:
        return None
    return status.st_size


def require_regular(status: os.stat_result, what: str) -> None:
    """Raise IsADirectory or NotFound unless a file is regular. bbfs hides special files."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectory(f"{what}: is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise NotFound(f"{what}: is no regular file")


def open_content(
    descriptor: Descriptor, what: str, max_memory: int, limiter: trio.CapacityLimiter
) -> tuple[Content, os.stat_result]:
    """Return the content of an open file and its status. Blocks. Raise OSError and BbfsError.

    Takes over the descriptor: closes it, or hands it to a FileContent.

    what: name of the file in errors. max_memory: largest content in bytes to read at once. limiter: for the threads of
    later reads.
    """
    try:
        content, status = _content(descriptor, what, max_memory, limiter)
    except BaseException:
        # Closed here, because a traceback may hold a reference for long.
        descriptor.close()
        raise
    if not isinstance(content, FileContent):
        descriptor.close()
    return content, status


def _content(
    descriptor: Descriptor, what: str, max_memory: int, limiter: trio.CapacityLimiter
) -> tuple[Content, os.stat_result]:
    for _ in range(_SNAPSHOT_ATTEMPTS):
        before = os.fstat(descriptor.number)
        require_regular(before, what)
        if before.st_size > max_memory:
            require_room(descriptor)
            return FileContent(descriptor, before, what, limiter), before
        size = exact_size(before)
        data = read_to_end(descriptor.number, max_memory if size is None else size, before.st_size)
        if stamp_of(os.fstat(descriptor.number)) != stamp_of(before):
            continue
        if len(data) > max_memory:
            raise TooLarge(f"{what}: more than {max_memory} bytes (max_memory), which its status does not say")
        if size is not None and len(data) != size:
            raise BbfsError(f"{what}: {len(data)} bytes could be read of a file of {size} bytes")
        content = MemoryContent(data)
        # Compute the hash here, in the thread.
        _ = content.version
        return content, before
    raise Busy(f"{what}: changed while it was read, {_SNAPSHOT_ATTEMPTS} times in a row")


def read_to_end(number: int, limit: int, expected: int) -> bytes:
    """Read a whole file, or more than `limit` bytes of it. expected: its probable size, to read it in one call."""
    chunks: list[bytes] = []
    got = 0
    step = max(expected + 1, 4096)
    while got <= limit:
        chunk = os.pread(number, min(step, limit + 1 - got), got)
        if not chunk:
            break
        chunks.append(chunk)
        got += len(chunk)
        step = 1 << 17
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class FileContent:
    """One version of a large file, read in ranges through a descriptor of its own.

    Each read checks the file afterwards. If it was changed in place since it was opened, this read and all later ones
    raise Outdated, so no two versions are ever mixed. (Stores through a shared mapping show only when the kernel
    updates the file's times.) A file that is renamed, removed or replaced stays readable.
    """

    __slots__ = ("_asked_to", "_descriptor", "_limiter", "_next", "_opened", "_seen", "_version", "_what")

    def __init__(
        self, descriptor: Descriptor, status: os.stat_result, what: str, limiter: trio.CapacityLimiter
    ) -> None:
        self._descriptor: Descriptor | None = descriptor
        self._limiter = limiter
        self._opened = status
        self._seen = _Inode.of(descriptor, status)
        self._version = etag_of(status)
        self._what = what
        self._next, self._asked_to = -1, 0

    def __repr__(self) -> str:
        return f"<FileContent {self._what} of {self._opened.st_size} bytes>"

    @property
    def size(self) -> int:
        return self._opened.st_size

    @property
    def version(self) -> str:
        """The file's stamp. It changes with the bytes, and may change without them."""
        return self._version

    def read(self, offset: int, length: int) -> bytes | None:
        """Return the bytes at `offset` if the kernel has them all in its page cache, else None. Raise BbfsError.

        Return None also when it is time to read further ahead, which may take a moment.
        """
        descriptor = self._open_descriptor()
        length = self._clip(offset, length)
        if length == 0:
            return b""
        end = offset + length
        if offset == self._next and self._runs_out(end):
            return None
        try:
            data = read_cached(descriptor.number, offset, length)
            # Network file systems refuse RWF_NOWAIT, so fstat runs only where it cannot wait.
            if data is None:
                return None
            self._next = end
            return self._checked(descriptor, data)
        except OSError as error:
            raise error_of(error, self._what) from error

    async def read_waiting(self, offset: int, length: int) -> bytes:
        """As `read`, but wait for the disk in a thread. Cancelling abandons the thread. Raise BbfsError."""
        descriptor = self._open_descriptor()
        length = self._clip(offset, length)
        end = offset + length
        ahead = (end, end)
        if offset != self._next:
            self._asked_to = end
        elif self._runs_out(end):
            ahead = (max(end, self._asked_to), end + AHEAD)
            self._asked_to = end + AHEAD
        self._next = end
        return await trio.to_thread.run_sync(
            self._read_in_thread, descriptor, offset, length, ahead, abandon_on_cancel=True, limiter=self._limiter
        )

    def _runs_out(self, end: int) -> bool:
        """Return whether less than half of `AHEAD` is requested beyond `end`, and the file goes on."""
        return min(end + AHEAD // 2, self._opened.st_size) > max(end, self._asked_to)

    def _read_in_thread(self, descriptor: Descriptor, offset: int, length: int, ahead: tuple[int, int]) -> bytes:
        """Read a range. ahead: offsets of the range that the disk is to read next."""
        begin, end = ahead
        try:
            if begin < end:
                # By itself the kernel reads 128 KiB ahead: a request of 1 MiB would wait for eight of those in turn.
                os.posix_fadvise(descriptor.number, begin, end - begin, os.POSIX_FADV_WILLNEED)
            data = self._checked(descriptor, read_at(descriptor.number, offset, length))
        except OSError as error:
            raise error_of(error, self._what) from error
        if len(data) < length:
            raise BbfsError(f"{self._what}: ends at byte {offset + len(data)} of {self._opened.st_size}")
        return data

    def _checked(self, descriptor: Descriptor, data: bytes) -> bytes:
        """Return `data` if it is of the opened version. Raise Outdated."""
        # One check after the read is enough: a write updates the times before the bytes.
        now = os.fstat(descriptor.number)
        opened = self._opened
        if (now.st_size, now.st_mtime_ns) == (opened.st_size, opened.st_mtime_ns):
            seen = self._seen  # read once: another thread may replace it
            if now.st_ctime_ns == seen.ctime_ns:
                return data
            inode = _Inode.of(descriptor, now)
            # Only the change time differs. A new name, link, mode or owner explains it. Otherwise a program may
            # have written and then restored the modification time.
            if replace(inode, ctime_ns=seen.ctime_ns) != seen:
                self._seen = inode
                return data
        raise Outdated(f"{self._what}: was changed in place while it was open")

    def _clip(self, offset: int, length: int) -> int:
        return max(0, min(length, self._opened.st_size - offset))

    def _open_descriptor(self) -> Descriptor:
        if self._descriptor is None:
            raise BbfsError(f"{self._what}: read after it was closed")
        return self._descriptor

    def close(self) -> None:
        """Close the file in a thread, because on a dead network file system even that may hang. Idempotent."""
        if self._descriptor is not None:
            # The list holds the last reference, except those of threads that still read and so keep the file open.
            held = [self._descriptor]
            self._descriptor = None
            trio.lowlevel.start_thread_soon(held.clear, lambda _: None)  # the descriptor logs a failure


@dataclass(frozen=True, slots=True)
class _Inode:
    """The properties of an open file that may change without its bytes, and its change time, which changes with
    them."""

    ctime_ns: int
    mode: int
    owner: tuple[int, int]
    links: int
    path: str | None

    @classmethod
    def of(cls, descriptor: Descriptor, status: os.stat_result) -> "_Inode":
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor.number}")
        except OSError:
            path = None  # without procfs a rename looks like a change
        return cls(status.st_ctime_ns, status.st_mode, (status.st_uid, status.st_gid), status.st_nlink, path)
