"""An open file descriptor with an owner, and reads from one. They raise OSError."""

import errno
import logging
import os
import resource

log = logging.getLogger(__name__)


KEPT_SHARE = 4
"""The part of the process's descriptors that no file of a program takes, one in so many: directories, sources and what
is written need them."""
MOST = 1 << 17
"""Descriptors that are enough. Programs of sources inherit the limit, and some walk through all numbers below it."""


def allow_many() -> None:
    """Let this process have as many descriptors as it may, up to `MOST`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_for_programs() -> int:
    """Return how many descriptors this process may have before descriptors of programs' files are refused."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft - soft // KEPT_SHARE


class Descriptor:
    """Owns an open file descriptor. It is closed by `close`, or with the last reference, whichever comes first.

    So a file that a worker thread opened is closed even if the request was given up, and never while another thread
    reads it through a reference of its own.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def fileno(self) -> int:
        return self.number

    def close(self) -> None:
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        try:
            self.close()
        except OSError as error:
            log.warning("closing a file failed: %s", error)

    def __enter__(self) -> "Descriptor":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def of_program(number: int) -> Descriptor:
    """Own a descriptor that a program's open file keeps. Raise OSError (EMFILE) if the rest is kept for bbfs itself.

    The kernel gives out the lowest number that is free, so at least so many are in use.
    """
    found = Descriptor(number)
    require_room(found)
    return found


def require_room(found: Descriptor) -> None:
    """Close a new descriptor, and raise OSError (EMFILE), if the rest is kept for bbfs itself."""
    if found.number >= most_for_programs():
        found.close()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def read_cached(number: int, offset: int, length: int) -> bytes | None:
    """Return the bytes if the kernel has them all in its page cache, else None. Never waits for the disk."""
    buffer = bytearray(length)
    try:
        got = os.preadv(number, [buffer], offset, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            return None
        raise
    return bytes(buffer) if got == length else None


def read_at(number: int, offset: int, length: int) -> bytes:
    """Return the bytes, fewer only at the end of the file. Blocks."""
    chunks: list[bytes] = []
    while length > 0 and (chunk := os.pread(number, length, offset)):
        chunks.append(chunk)
        offset, length = offset + len(chunk), length - len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
