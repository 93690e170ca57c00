"""The bytes of one operation's answers, so that few operations of a source hold many at once."""

import trio

from bbfs.model.errors import TooLarge

_SMALL = 512 << 10
"""Bytes that any number of operations may hold at once. Only one at a time may hold more."""


class Received:
    """The count of the bytes that one operation receives while the block runs.

    what: begins the text of an error. limit: bytes. lock: one for a source; it admits one large operation at a time.
    """

    def __init__(self, what: str, limit: int, lock: trio.Lock) -> None:
        self.size = 0
        self._what = what
        self._limit = limit
        self._lock = lock
        self._is_large = False

    async def __aenter__(self) -> "Received":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._is_large:
            self._lock.release()

    async def take(self, size: int) -> None:
        """Count bytes before they are parsed, and wait for a turn if the operation becomes large. Raise TooLarge."""
        self.size += size
        if self.size > self._limit:
            raise TooLarge(f"{self._what}: more than {self._limit} bytes")
        if self.size > _SMALL and not self._is_large:
            await self._lock.acquire()
            self._is_large = True
