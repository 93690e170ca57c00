"""A large body that is read in ranges (RFC 9110, section 14) while it is open, pinned to one version.

A read that the blocks at hand cannot answer asks the server, for the block it wants and, where a program reads on in
order, for the next one as well.

The kernel has twelve requests in flight for pages that it reads ahead, for all files of the mount together. So a server
that sends nothing for some seconds is given up, and after that reads fail at once for a while; the sooner, the more of
them wait (`Crowd`). Else reads of one source would keep those of all others waiting.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from math import inf

import trio

from bbfs.cache.tiers import digest_of
from bbfs.errors import BbfsError, Busy, DeadlineExceeded, Outdated, ProtocolViolation
from bbfs.sources.http_headers import range_validator
from bbfs.sources.web import WebClient
from bbfs.sources.web_responses import WebStream, shown_url

BLOCK = 1 << 20
"""Bytes that are asked for at least."""
KEPT = 4
"""Blocks that an open file holds."""
STALLED = 10.0
"""Seconds without a byte after which a server is given up; half the source's `timeout` if that is less."""
ROOM, CROWDED = 6, 1.0
"""Reads of a source that may wait at once for long; and seconds without a byte while there are more."""
FAILS_FOR = 5.0
"""Seconds after a range that did not come for which reads fail at once."""
_CHANGED = frozenset({412, 416})
"""Statuses that say, as 200 does, that there is no such range any more."""


@dataclass(frozen=True, slots=True)
class LargeBody:
    """What is known of a large body: enough to ask whether the server still has it, and to read it then.

    validator: what `If-Range` pins the version by.
    """

    size: int
    validator: str
    mime_type: str | None

    @property
    def conditions(self) -> dict[str, str]:
        """The headers of a request for its beginning that is answered 304 if nothing has changed."""
        condition = "if-none-match" if self.validator.startswith('"') else "if-modified-since"
        return {condition: self.validator, "range": f"bytes=0-{BLOCK - 1}"}

    def version(self, url: str) -> str:
        return digest_of(f"{url} {self.validator} {self.size}".encode())


def whole_size(stream: WebStream) -> int | None:
    """Bytes of the whole body of an answer that is all of it or a part from its beginning, as its server says."""
    if stream.status != HTTPStatus.PARTIAL_CONTENT:
        return stream.length
    place, _, whole = stream.headers.get("content-range", "").strip().lower().removeprefix("bytes ").partition("/")
    return int(whole) if place.strip().startswith("0-") and whole.isascii() and whole.isdigit() else None


def is_pinned(stream: WebStream) -> bool:
    """Whether the rest of an answer can be had in ranges of exactly this version."""
    is_part = stream.status == HTTPStatus.PARTIAL_CONTENT
    can_range = is_part or "bytes" in stream.headers.get("accept-ranges", "").lower()
    return can_range and range_validator(stream.headers) is not None and (whole_size(stream) or 0) > 0


class Crowd:
    """The reads of a source that wait for ranges, of all its files. Between two awaits a task is alone."""

    def __init__(self) -> None:
        self._waiting = 0
        self._closed_until = -inf

    def __enter__(self) -> None:
        self._waiting += 1

    def __exit__(self, *_: object) -> None:
        self._waiting -= 1

    @property
    def patience(self) -> float:
        """Seconds for which a server may send nothing."""
        return CROWDED if self._waiting > ROOM else STALLED

    def gave_up(self) -> None:
        """A server has sent nothing for so long."""
        if self._waiting > ROOM:
            self._closed_until = trio.current_time() + FAILS_FOR

    def refuse(self) -> None:
        """Raises Busy while too many have waited in vain."""
        if trio.current_time() < self._closed_until:
            raise Busy(f"more than {ROOM} reads are waiting for a server that sends nothing")


class RangeContent:
    """One version of a large body. first: the bytes at its beginning that are there already.

    headers: of each request. When the server has another version, a
    read raises Outdated, and so does each later one. Safe to use from several tasks: one asks, the others wait for it.
    crowd: the one of the source.
    """

    def __init__(
        self,
        client: WebClient,
        url: str,
        headers: Mapping[str, str],
        body: LargeBody,
        *,
        first: bytes,
        timeout: float,
        crowd: Crowd,
    ) -> None:
        self._client = client
        self._url = url
        self._headers = {**headers, "if-range": body.validator}
        self._size = body.size
        self._version = body.version(url)
        self._validator = body.validator
        self._timeout = timeout
        self._crowd = crowd
        self._what = shown_url(url)
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        if len(first) == min(BLOCK, body.size):
            self._blocks[0] = first
        self._last = len(self._blocks) - 1
        self._asking = trio.Lock()
        self._failed: BbfsError | None = None
        self._failed_until = 0.0

    def __repr__(self) -> str:
        return f"<RangeContent {self._what} of {self._size} bytes>"

    @property
    def size(self) -> int:
        return self._size

    @property
    def version(self) -> str:
        return self._version

    def read(self, offset: int, length: int) -> bytes | None:
        """The bytes at `offset`, or None if the server must be asked for some of them."""
        end = min(offset + length, self._size)
        pieces: list[bytes] = []
        while offset < end:
            number, start = divmod(offset, BLOCK)
            block = self._blocks.get(number)
            if block is None:
                return None
            self._blocks.move_to_end(number)
            piece = block[start : start + end - offset]
            pieces.append(piece)
            offset += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read_waiting(self, offset: int, length: int) -> bytes:
        """As `read`, and asks the server for what is missing. Raises BbfsError."""
        end = min(offset + length, self._size)
        pieces: list[bytes] = []
        with trio.move_on_after(self._timeout), self._crowd:
            while offset < end:
                # A block at a time: a request may be for more bytes than are held.
                step = min(end, (offset // BLOCK + 1) * BLOCK) - offset
                piece = self.read(offset, step)
                if piece is None:
                    await self._ask(offset // BLOCK)
                else:
                    pieces.append(piece)
                    offset += len(piece)
            return b"".join(pieces)
        raise DeadlineExceeded(f"{self._what}: no range within {self._timeout:g} s")

    def close(self) -> None:
        """Gives nothing back: several open files may share the content, and connections are the client's."""

    def _fail(self, error: BbfsError) -> None:
        self._failed, self._failed_until = error, trio.current_time() + FAILS_FOR

    async def _ask(self, number: int) -> None:
        """Have a block, and the next one if the one before was the last that was asked for."""
        async with self._asking:
            if number in self._blocks:
                return
            if self._failed is not None and (
                isinstance(self._failed, Outdated) or trio.current_time() < self._failed_until
            ):
                raise type(self._failed)(*self._failed.args)
            self._crowd.refuse()
            follows = number == self._last + 1
            start = number * BLOCK
            end = min(start + (2 * BLOCK if follows else BLOCK), self._size)
            try:
                data = await self._range(start, end)
            except BbfsError as error:
                self._fail(type(error)(*error.args))
                raise
            for at in range(0, len(data), BLOCK):
                self._blocks[number + at // BLOCK] = data[at : at + BLOCK]
                self._last = number + at // BLOCK
            while len(self._blocks) > KEPT:
                self._blocks.popitem(last=False)

    async def _range(self, start: int, end: int) -> bytes:
        headers = {**self._headers, "range": f"bytes={start}-{end - 1}", "accept-encoding": "identity"}
        data = bytearray()
        with trio.move_on_after(self._patience) as patience:
            async with self._client.stream(self._url, headers=headers, accept=_CHANGED, limit=end - start) as stream:
                if stream.status != HTTPStatus.PARTIAL_CONTENT:
                    raise Outdated(f"{self._what}: changed while it was open")
                self._require(stream, start, end)
                async for piece in stream:
                    data += piece
                    patience.deadline = trio.current_time() + self._patience
        if patience.cancelled_caught:
            self._crowd.gave_up()
            raise DeadlineExceeded(f"{self._what}: nothing more of a range came for {self._patience:g} s")
        if len(data) != end - start:
            raise ProtocolViolation(f"{self._what}: {len(data)} bytes for a range of {end - start}")
        return bytes(data)

    @property
    def _patience(self) -> float:
        return min(self._crowd.patience, self._timeout / 2)

    def _require(self, stream: WebStream, start: int, end: int) -> None:
        """Raises ProtocolViolation for another range than was asked for, and Outdated for one of another body."""
        said = stream.headers.get("content-range", "").strip().lower()
        place, _, whole = said.removeprefix("bytes ").partition("/")
        if place.strip() != f"{start}-{end - 1}":
            raise ProtocolViolation(f"{self._what}: answers the range {said[:60]!a}, not bytes {start}-{end - 1}")
        # A server that knows no `If-Range` says so by what the range is of.
        validator = range_validator(stream.headers)
        if whole.strip() not in ("*", str(self._size)) or validator not in (None, self._validator):
            raise Outdated(f"{self._what}: changed while it was open")
