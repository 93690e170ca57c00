"""A large body that is read in ranges (RFC 9110, section 14) while it is open, pinned to one version."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

import trio

from bbfs.model.errors import BbfsError, DeadlineExceeded, Outdated, ProtocolViolation
from bbfs.sources.content.memory import digest_of
from bbfs.sources.content.ranges import BLOCK, Blocks, RangedContent
from bbfs.sources.content.stall_guard import FAILS_FOR, Crowd
from bbfs.sources.http.client import WebClient
from bbfs.sources.http.headers import range_validator
from bbfs.sources.http.responses import WebStream, number_in, shown_url

_CHANGED = frozenset({412, 416})
"""Statuses that, like 200, mean that the server no longer has this range."""


@dataclass(frozen=True, slots=True)
class LargeBody:
    """A large body: enough to revalidate it and to read it in ranges.

    validator: for `If-Range`, which pins the version.
    """

    size: int
    validator: str
    mime_type: str | None

    @property
    def conditions(self) -> dict[str, str]:
        """The headers of a request for the first block, answered 304 if nothing has changed."""
        condition = "if-none-match" if self.validator.startswith('"') else "if-modified-since"
        return {condition: self.validator, "range": f"bytes=0-{BLOCK - 1}"}

    def version(self, url: str) -> str:
        return digest_of(f"{url} {self.validator} {self.size}".encode())


def whole_size(stream: WebStream) -> int | None:
    """Return the stated size (bytes) of the whole body of an answer that has all of it or its beginning, else None."""
    if stream.status != HTTPStatus.PARTIAL_CONTENT:
        return stream.length
    place, _, whole = stream.headers.get("content-range", "").strip().lower().removeprefix("bytes ").partition("/")
    return number_in(whole) if place.strip().startswith("0-") else None


def is_pinned(stream: WebStream) -> bool:
    """Return whether the server can send the rest of an answer in ranges of exactly this version."""
    is_part = stream.status == HTTPStatus.PARTIAL_CONTENT
    can_range = is_part or "bytes" in stream.headers.get("accept-ranges", "").lower()
    return can_range and range_validator(stream.headers) is not None and (whole_size(stream) or 0) > 0


class Ranges:
    """The ranges of one version of a large body.

    headers: of each request. timeout: seconds for one read. crowd: counts all waiting reads.
    """

    def __init__(
        self, client: WebClient, url: str, headers: Mapping[str, str], body: LargeBody, *, timeout: float, crowd: Crowd
    ) -> None:
        self._client = client
        self._url = url
        self._headers = {**headers, "if-range": body.validator, "accept-encoding": "identity"}
        self._body = body
        self._timeout = timeout
        self._crowd = crowd
        self._what = shown_url(url)
        self._failed: BbfsError | None = None
        self._failed_until = 0.0

    def content(self, first: bytes, blocks: Blocks) -> RangedContent:
        """Return the body as a content that the kernel may cache. first: its first bytes. blocks: of the source."""
        body = self._body
        version = body.version(self._url)
        return RangedContent(self.fetch, body.size, version, self._what, self._timeout, blocks, first, is_direct=False)

    async def fetch(self, start: int, length: int) -> bytes:
        """Return bytes from `start`. Raises Outdated if the server has another version, and other BbfsErrors."""
        if self._failed is not None and trio.current_time() < self._failed_until:
            raise type(self._failed)(*self._failed.args)
        self._crowd.refuse()
        try:
            with self._crowd:
                return await self._range(start, length)
        except BbfsError as error:
            self._failed = type(error)(*error.args)
            self._failed_until = trio.current_time() + FAILS_FOR
            raise

    async def _range(self, start: int, length: int) -> bytes:
        headers = {**self._headers, "range": f"bytes={start}-{start + length - 1}"}
        data = bytearray()
        with trio.move_on_after(self._patience) as patience:
            async with self._client.stream(self._url, headers=headers, accept=_CHANGED, max_body=length) as stream:
                if stream.status != HTTPStatus.PARTIAL_CONTENT:
                    raise Outdated(f"{self._what}: changed while it was open")
                self._require(stream, start, start + length)
                async for piece in stream:
                    data += piece
                    patience.deadline = trio.current_time() + self._patience
        if patience.cancelled_caught:
            self._crowd.gave_up()
            raise DeadlineExceeded(f"{self._what}: nothing more of a range came for {self._patience:g} s")
        return bytes(data)

    @property
    def _patience(self) -> float:
        """Seconds that the server may send nothing."""
        return min(self._crowd.patience, self._timeout / 2)

    def _require(self, stream: WebStream, start: int, end: int) -> None:
        """Raise ProtocolViolation for a range that was not requested, and Outdated for a range of another version."""
        said = stream.headers.get("content-range", "").strip().lower()
        place, _, whole = said.removeprefix("bytes ").partition("/")
        if place.strip() != f"{start}-{end - 1}":
            raise ProtocolViolation(f"{self._what}: answers the range {said[:60]!a}, not bytes {start}-{end - 1}")
        # A server without `If-Range` sends the range of another version.
        validator = range_validator(stream.headers)
        if whole.strip() not in ("*", str(self._body.size)) or validator not in (None, self._body.validator):
            raise Outdated(f"{self._what}: changed while it was open")
