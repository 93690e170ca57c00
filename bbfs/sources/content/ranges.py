"""A content that stays at its source, and is read in ranges while it is open."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

import trio

from bbfs.model.errors import DeadlineExceeded, Outdated, ProtocolViolation

BLOCK = 1 << 20
"""Bytes of one request, unless a program reads in order."""
AHEAD = 4
"""Limit on the blocks of one request, when a program reads in order."""
LARGEST = 1 << 63
"""Bytes; the kernel has the size of a file as a signed 64-bit number."""
KEPT = 64
"""Blocks in memory of all open contents of a source."""

Fetch = Callable[[int, int], Awaitable[bytes]]
"""Returns the bytes at an offset, of a length, of the opened version. Raises Outdated for another version."""


class Blocks:
    """The latest blocks of all open contents of a source, within a bound."""

    def __init__(self, limit: int = KEPT) -> None:
        self._limit = limit
        self._blocks: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._numbers = count()

    def number(self) -> int:
        """Return the number of a new content."""
        return next(self._numbers)

    def get(self, content: int, index: int) -> bytes | None:
        block = self._blocks.get((content, index))
        if block is not None:
            self._blocks.move_to_end((content, index))
        return block

    def put(self, content: int, index: int, block: bytes) -> None:
        self._blocks[content, index] = block
        if len(self._blocks) > self._limit:
            self._blocks.popitem(last=False)

    def drop(self, content: int) -> None:
        """Drop all blocks of one content."""
        for key in [key for key in self._blocks if key[0] == content]:
            del self._blocks[key]

    def __len__(self) -> int:
        return len(self._blocks)


class RangedContent:
    """One version of a large object, with the latest blocks in memory.

    A read requests a block and, in a walk, more and more of the following ones. Several reads of a block share one
    request. After the object was replaced, reads raise Outdated, except of blocks in memory.
    """

    def __init__(
        self,
        fetch: Fetch,
        size: int,
        version: str,
        what: str,
        timeout: float,
        blocks: Blocks,
        first: bytes = b"",
        block: int = BLOCK,
        *,
        is_direct: bool = True,
    ) -> None:
        """size: bytes. timeout: seconds that one read may take. first: the bytes at its beginning, if known.
        is_direct: the kernel must not cache it, since reads may wait for as long as `timeout`. `fetch` may be replaced.

        Raises ProtocolViolation for a size that no file can have.
        """
        self.waits_for_source = is_direct
        self.fetch = fetch
        self.size: Final = size
        self.version: Final = version
        self._what = what
        self._timeout = timeout
        self._block = block
        self._blocks = blocks
        self._number = blocks.number()
        if size >= LARGEST:
            raise ProtocolViolation(f"{what}: {size:.3g} bytes are more than any file can have")
        self._coming: dict[int, trio.Event] = {}
        self._last = -1
        self._ahead = 1
        self._failure: Outdated | None = None
        for index in range(-(-len(first) // block)):
            piece = first[index * block : (index + 1) * block]
            if len(piece) == self._length(index):
                self._blocks.put(self._number, index, piece)
                self._last = index

    def __repr__(self) -> str:
        return f"<RangedContent {self._what} of {self.size} bytes>"

    def read(self, offset: int, length: int) -> bytes | None:
        length = max(0, min(length, self.size - offset))
        if length == 0:
            return b""
        pieces: list[bytes] = []
        for index in self._indexes(offset, length):
            block = self._blocks.get(self._number, index)
            if block is None:
                return None
            begin = index * self._block
            pieces.append(block[max(0, offset - begin) : offset + length - begin])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read_waiting(self, offset: int, length: int) -> bytes:
        """Return the bytes at `offset`, requesting the blocks that are not in memory. Raises BbfsError."""
        with trio.move_on_after(self._timeout):
            return await self._read(offset, length)
        raise DeadlineExceeded(f"{self._what}: no answer within {self._timeout:g} s")

    async def _read(self, offset: int, length: int) -> bytes:
        length = max(0, min(length, self.size - offset))
        pieces: list[bytes] = []
        for index in self._indexes(offset, length) if length else ():
            block = await self._block_at(index)
            begin = index * self._block
            pieces.append(block[max(0, offset - begin) : offset + length - begin])
        return b"".join(pieces)

    def _indexes(self, offset: int, length: int) -> range:
        return range(offset // self._block, (offset + length - 1) // self._block + 1)

    def _length(self, index: int) -> int:
        return min(self._block, self.size - index * self._block)

    async def _block_at(self, index: int) -> bytes:
        while (block := self._blocks.get(self._number, index)) is None:
            coming = self._coming.get(index)
            if coming is not None:
                await coming.wait()
                continue  # the read that requested it may have been cancelled, or have failed
            await self._ask(index)
        return block

    async def _ask(self, index: int) -> None:
        """Request a block and, in a walk, the following ones that are not in memory."""
        if self._failure is not None:
            raise Outdated(*self._failure.args)
        wanted = self._ahead = min(AHEAD, 2 * self._ahead) if index == self._last + 1 else 1
        end = index + 1
        while end < index + wanted and end * self._block < self.size and not self._is_known(end):
            end += 1
        arrived = trio.Event()
        self._coming.update(dict.fromkeys(range(index, end), arrived))
        try:
            length = min(end * self._block, self.size) - index * self._block
            data = await self.fetch(index * self._block, length)
            if len(data) != length:
                raise ProtocolViolation(f"{self._what}: {len(data)} bytes came of {length} that were asked for")
            for each in reversed(range(index, end)):  # the awaited one last, so that it is not evicted
                begin = (each - index) * self._block
                self._blocks.put(self._number, each, data[begin : begin + self._length(each)])
            self._last = end - 1
        except Outdated as error:
            self._failure = Outdated(*error.args)
            raise
        finally:
            for each in range(index, end):
                del self._coming[each]
            arrived.set()

    def _is_known(self, index: int) -> bool:
        return index in self._coming or self._blocks.get(self._number, index) is not None

    def close(self) -> None:
        """Drop the blocks; a later read requests them again."""
        self._blocks.drop(self._number)

    def __del__(self) -> None:
        self.close()
