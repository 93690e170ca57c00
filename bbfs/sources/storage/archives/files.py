"""Deadlines and bounds for reading archives."""

import io
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bbfs.model.errors import BbfsError, DeadlineExceeded, Outdated, ProtocolViolation
from bbfs.sources.content.fd import Descriptor, read_at
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.content.spool import Spool
from bbfs.sources.filesystem.content import FileContent, Stamp, stamp_of

COPY = 1 << 18
"""Bytes that are copied between two looks at the deadline."""


class Patience:
    """The deadline of work in a thread: it ends after the seconds of a request, or when the request is given up."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def check(self) -> None:
        """Raise DeadlineExceeded if the thread must end."""
        if self._stopped.is_set() or time.monotonic() > self._until:
            raise DeadlineExceeded("reading the archive took too long")


class Positioned(io.RawIOBase):
    """An open file with a position of its own. Each read looks at the deadline."""

    def __init__(self, descriptor: Descriptor, patience: Patience, at: int = 0) -> None:
        self._descriptor = descriptor
        self._patience = patience
        self._at = at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._patience.check()
        got = os.preadv(self._descriptor.number, [buffer], self._at)
        self._at += got
        return got

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET:
            raise io.UnsupportedOperation("only from the beginning")
        self._at = offset
        return offset

    def tell(self) -> int:
        return self._at


class Bytes:
    """Reads the decompressed bytes of an archive, in a thread."""

    def __init__(self, held: Descriptor | StoredContent | MemoryContent, what: str) -> None:
        self._held = held
        self._what = what

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly these bytes. Raises ProtocolViolation if the archive ends before."""
        if isinstance(self._held, MemoryContent):
            data = self._held.read(offset, length)
        else:
            data = read_at(self._held.fileno(), offset, length)
        if len(data) < length:
            raise ProtocolViolation(f"{self._what}: ends before a member that it has")
        return data


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """One version of the file that an archive is. what: names it in errors. max_memory: bytes."""

    descriptor: Descriptor
    content: FileContent
    stamp: Stamp
    what: str
    spool: Callable[[], Spool]
    max_memory: int

    def require_unchanged(self) -> None:
        """Raise Outdated if somebody wrote to the file."""
        if stamp_of(os.fstat(self.descriptor.number)) != self.stamp:
            raise Outdated(f"{self.what}: was changed in place while it was read")


def of_disk(error: OSError, what: str) -> BbfsError:
    """Return the error for an OSError of a library; one without a number means that the file is damaged."""
    if error.errno is None:
        return ProtocolViolation(f"{what}: damaged: {error}")
    return BbfsError(f"{what}: {os.strerror(error.errno)}")
