"""A content in a file of the disk cache, read in ranges: what is too large for memory."""

from typing import Final

import trio

from bbfs.model.errors import BbfsError
from bbfs.sources.content.fd import Descriptor, read_at, read_cached


class StoredContent:
    """The bytes of one version of a resource, in an open file that is never written. Its version is their digest.

    This process or another may evict the file from the cache: while it is open it can be read. The last reference
    closes it.
    """

    __slots__ = ("_descriptor", "_limiter", "size", "version")

    def __init__(self, descriptor: Descriptor, size: int, version: str, limiter: trio.CapacityLimiter) -> None:
        """Take over the descriptor. size: bytes. limiter: for the threads that wait for the disk."""
        self._descriptor = descriptor
        self.size: Final = size
        self.version: Final = version
        self._limiter = limiter

    def __repr__(self) -> str:
        return f"<StoredContent {self.version} of {self.size} bytes>"

    def fileno(self) -> int:
        """Return the descriptor of the file, which stays the content's own."""
        return self._descriptor.number

    def read(self, offset: int, length: int) -> bytes | None:
        length = max(0, min(length, self.size - offset))
        if length == 0:
            return b""
        try:
            return read_cached(self._descriptor.number, offset, length)
        except OSError as error:
            raise BbfsError(f"the disk cache: {error.strerror}") from error

    async def read_waiting(self, offset: int, length: int) -> bytes:
        """Return the bytes at `offset`, waiting for the disk in a thread that outlives a cancel. Raises BbfsError."""
        length = max(0, min(length, self.size - offset))
        # The thread has a reference of its own, so the file stays open until the thread ends.
        return await trio.to_thread.run_sync(
            self._read_in_thread, offset, length, abandon_on_cancel=True, limiter=self._limiter
        )

    def _read_in_thread(self, offset: int, length: int) -> bytes:
        try:
            data = read_at(self._descriptor.number, offset, length)
        except OSError as error:
            raise BbfsError(f"the disk cache: {error.strerror}") from error
        if len(data) < length:
            raise BbfsError(f"the disk cache: a file of {self.size} bytes ends at byte {offset + len(data)}")
        return data

    def close(self) -> None:
        """Do nothing: several open files may share the content, and the last reference closes the file."""
