"""The content of a local file: small files as a snapshot in memory, large ones read in ranges from the open file."""

import os
import stat
from dataclasses import dataclass, replace

import trio

from bbfs.model.errors import BbfsError, Busy, IsADirectory, NotFound, Outdated, TooLarge
from bbfs.model.values import Content
from bbfs.sources.content.fd import Descriptor, read_at, read_cached
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.filesystem.beneath import error_of

_SNAPSHOT_ATTEMPTS = 8
AHEAD = 8 << 20
"""Bytes that the disk is asked for ahead of who reads a file in order, so that it always has something to do."""

Stamp = tuple[int, int, int, int]
"""Inode, size (bytes), modification and change time (ns): what differs when the bytes of a file do."""


def stamp_of(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def etag_of(status: os.stat_result) -> str:
    """The stamp as text."""
    return "-".join(f"{number:x}" for number in stamp_of(status))


def exact_size(status: os.stat_result) -> int | None:
    """The bytes that reading a file gives, or None when the file system does not say.

    The files of procfs, sysfs and their like have sizes (0, or a page) that are no promise. They have no blocks and no
    block device; others of which that is true (empty files on tmpfs) are measured by reading them.
    """
    if status.st_blocks == 0 and os.major(status.st_dev) == 0:
        return None
    return status.st_size


def require_regular(status: os.stat_result, what: str) -> None:
    """Raises IsADirectory or NotFound for what is no regular file. Special files are not there for bbfs."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectory(f"{what}: is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise NotFound(f"{what}: is no regular file")


def open_content(
    descriptor: Descriptor, what: str, max_memory: int, limiter: trio.CapacityLimiter
) -> tuple[Content, os.stat_result]:
    """The content of an open file, and the status that belongs to it. Blocks. Raises OSError and BbfsError.

    Takes the descriptor over: it is closed when this returns, or in the hands of a FileContent.

    what: names the file in errors. max_memory: bytes up to which the content is read here and now. limiter: for the
    threads of a content that reads later.
    """
    try:
        content, status = _content(descriptor, what, max_memory, limiter)
    except BaseException:
        # Not left to the last reference: a traceback may hold one for long.
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
            return FileContent(descriptor, before, what, limiter), before
        size = exact_size(before)
        data = _read_to_end(descriptor.number, max_memory if size is None else size, before.st_size)
        if stamp_of(os.fstat(descriptor.number)) != stamp_of(before):
            continue
        if len(data) > max_memory:
            raise TooLarge(f"{what}: more than {max_memory} bytes (max_memory), which its status does not say")
        if size is not None and len(data) != size:
            raise BbfsError(f"{what}: {len(data)} bytes could be read of a file of {size} bytes")
        content = MemoryContent(data)
        # Hashes here, in the thread.
        _ = content.version
        return content, before
    raise Busy(f"{what}: changed while it was read, {_SNAPSHOT_ATTEMPTS} times in a row")


def _read_to_end(number: int, limit: int, expected: int) -> bytes:
    """The whole file, or more than `limit` of its bytes. expected: its probable size, for memory."""
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

    After each read the file is looked at: when it was changed in place since it was opened, the read raises Outdated
    and so does each later one, so no two versions are ever mixed. (Stores through a shared mapping show only when the
    kernel updates the file's times.) A file that is renamed, removed or replaced goes on being read.
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
        """The file's stamp: it differs when the bytes do, and may differ when they do not."""
        return self._version

    def read(self, offset: int, length: int) -> bytes | None:
        """The bytes at `offset` if the kernel has them all in memory, else None. Raises BbfsError.

        None as well when it is time to ask the disk for more, which may take a moment.
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
            # Network file systems do not know RWF_NOWAIT, so fstat is not reached where it might wait.
            if data is None:
                return None
            self._next = end
            return self._checked(descriptor, data)
        except OSError as error:
            raise error_of(error, self._what) from error

    async def read_waiting(self, offset: int, length: int) -> bytes:
        """As `read`, waiting for the disk in a thread. Cancelling leaves the thread to itself. Raises BbfsError."""
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
        """Whether less than half of `AHEAD` is asked for beyond `end`, and there is more."""
        return min(end + AHEAD // 2, self._opened.st_size) > max(end, self._asked_to)

    def _read_in_thread(self, descriptor: Descriptor, offset: int, length: int, ahead: tuple[int, int]) -> bytes:
        """ahead: from where to where the disk is to read what is wanted next."""
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
        """`data`, if it is of the version that was opened."""
        # One look after the read suffices: a write touches the times before the bytes.
        now = os.fstat(descriptor.number)
        opened = self._opened
        if (now.st_size, now.st_mtime_ns) == (opened.st_size, opened.st_mtime_ns):
            seen = self._seen  # taken once: another thread may renew it meanwhile
            if now.st_ctime_ns == seen.ctime_ns:
                return data
            inode = _Inode.of(descriptor, now)
            # Only the change time differs. A new name, link, mode or owner explains it; if nothing does, somebody may
            # have written and set the old modification time again.
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
        """Closes the file, in a thread: on a dead network file system even that may hang. Again: does nothing."""
        if self._descriptor is not None:
            # The list holds the last reference but those of threads that still read, which keep the file open.
            held = [self._descriptor]
            self._descriptor = None
            trio.lowlevel.start_thread_soon(held.clear, lambda _: None)  # a failure is logged by the descriptor


@dataclass(frozen=True, slots=True)
class _Inode:
    """What may change about an open file without a change of its bytes, and the change time, which then changes too."""

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
            path = None  # no procfs: then a rename is not told from a change
        return cls(status.st_ctime_ns, status.st_mode, (status.st_uid, status.st_gid), status.st_nlink, path)
