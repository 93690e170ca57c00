"""The answers to HTTP requests: decoded bodies, piece by piece and within bounds.

A body that ends early, by its length, its chunks or its coding, is an error and never a shorter body.
"""

import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

import httpcore2
import httpx2
import trio

from bbfs.model.errors import DeadlineExceeded, ProtocolViolation, TooLarge, Unreachable
from bbfs.sources.bounded.json import DEFAULT, SHORT, JsonBounds, parse_json
from bbfs.sources.bounded.turns import Turn

CODINGS = "gzip"
"""The value of `Accept-Encoding` for bodies that may be coded (RFC 9110, section 8.4.1)."""
_PIECE = 1 << 20
"""Bytes of a decoded piece. One coded byte may stand for a thousand."""
_GATHERED = 1 << 14
"""Bytes of chunks that are passed on together."""
_MAX_MEMBERS = 1000
"""Members of a gzipped body. Each costs a new decompressor and a copy of what follows it."""
_MAX_DIGITS = 18
_MAX_RATIO, _SMALL = 250, 64 << 20
"""Times that a coded body may grow, once it has so many bytes decoded."""
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Shown:
    """The beginning of the texts of errors: a URL without its secret parts, behind the method of a request, if any.

    Most requests need no such text, and parsing a URL takes as long as sending a short request.
    """

    url: httpx2.URL | str
    method: str = ""

    def __str__(self) -> str:
        return f"{self.method} {shown_url(self.url)}".lstrip()


@dataclass(frozen=True, slots=True)
class WebResponse:
    """A whole answer. url: after redirects. headers: case-insensitive. body: decoded."""

    status: int
    url: str
    headers: Mapping[str, str]
    body: bytes

    async def json(self, bounds: JsonBounds = DEFAULT) -> Any:
        """Return the body as JSON. Raises ProtocolViolation, and TooLarge for a body over a bound."""
        try:
            if len(self.body) <= SHORT:
                return parse_json(self.body, bounds)
            return await trio.to_thread.run_sync(parse_json, self.body, bounds, abandon_on_cancel=True)
        except (ProtocolViolation, TooLarge) as exc:
            raise type(exc)(f"{shown_url(self.url)}: the answer is {exc}") from exc


class WebStream:
    """An answer whose body is read piece by piece: `async for piece in stream`, or `receive` until it returns b"".

    limit: bytes of the body; more raise TooLarge. is_decoded: set to False to get the body in its content coding. Both
    take effect at the first read. Other errors are ProtocolViolation, DeadlineExceeded and Unreachable. The opener
    closes it.
    """

    def __init__(self, response: httpcore2.Response, url: str, limit: int) -> None:
        self.status = response.status
        self.url = url
        self.headers: Mapping[str, str] = httpx2.Headers(response.headers)
        self._what = Shown(url)
        self.limit = limit
        self._option = "max_body"
        self.is_decoded = True
        self._received = 0
        self._response = response
        self._pieces: AsyncGenerator[bytes] | None = None

    def bound(self, limit: int, option: str) -> None:
        """Lower the limit of the body to the limit of an option."""
        if limit < self.limit:
            self.limit, self._option = limit, option

    @property
    def length(self) -> int | None:
        """The size of the body (bytes) as the server states it, None if it is coded."""
        stated = self.headers.get("content-length", "")
        is_plain = coding_name(self._coding) == "identity"
        return number_in(stated) if is_plain else None

    @property
    def _coding(self) -> str | None:
        return self.headers.get("content-encoding") if self.is_decoded else None

    def __aiter__(self) -> "WebStream":
        return self

    async def __anext__(self) -> bytes:
        piece = await self.receive()
        if not piece:
            raise StopAsyncIteration
        return piece

    async def receive(self) -> bytes:
        """Return the next bytes of the body, 1 MiB at most, or none at its end."""
        if self._pieces is None:
            if self.length is not None and self.length > self.limit:
                raise self._too_large()
            self._pieces = self._decoded()
        piece = await anext(self._pieces, b"")
        self._received += len(piece)
        if self._received > self.limit:
            raise self._too_large()
        return piece

    async def read(self) -> bytes:
        """Return the rest of the body."""
        return b"".join([piece async for piece in self])

    async def aclose(self) -> None:
        """Return the connection to the pool, or close it if the body was not read to its end. Does not wait."""
        if self._pieces is not None:
            await self._pieces.aclose()
        await self._response.aclose()

    def _too_large(self) -> TooLarge:
        return TooLarge(f"{self._what}: more than {self.limit} bytes (option {self._option})")

    async def _decoded(self) -> AsyncGenerator[bytes]:
        decoder, turn = BodyDecoder(self._coding, self._what), Turn()
        chunks = self._response.stream.__aiter__()  # type: ignore[union-attr]
        try:
            with network_errors(self._what):
                async with aclosing(gathered(chunks)) as pieces:
                    async for gathering in pieces:
                        for piece in decoder.feed(gathering):
                            yield piece
                            await turn.give_way()  # one read may be a thousand times as long once it is decoded
            decoder.end()
        finally:
            await chunks.aclose()  # type: ignore[attr-defined]


async def gathered(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """Yield the bytes of a body, small chunks together, and let other tasks run in between.

    After one read the parser may have thousands of chunks of one byte, and lets no other task run between them. The
    first chunk comes alone: more may not follow for long.
    """
    turn, waiting, is_first = Turn(), bytearray(), True
    async for chunk in chunks:
        await turn.give_way()
        if not waiting and (is_first or len(chunk) >= _GATHERED):
            is_first = False
            yield chunk
            continue
        waiting += chunk
        if len(waiting) >= _GATHERED:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


class BodyDecoder:
    """A decoder for a content coding. gzip may have several members (RFC 1952, section 2.2).

    coding: the value of `Content-Encoding`, if any. what: begins the texts of errors. Raises ProtocolViolation, also
    for a coding that was not asked for.
    """

    def __init__(self, coding: str | None, what: Shown | str = "") -> None:
        name = coding_name(coding)
        self._what = what
        if name not in ("identity", CODINGS, "x-gzip", "deflate"):
            said = ascii(name[:40])[1:-1]
            raise ProtocolViolation(f"{self._prefix}an answer in a content coding that was not asked for: {said}")
        self._is_coded = name != "identity"
        self._members = self._received = self._decoded = 0
        self._begin()

    @property
    def _prefix(self) -> str:
        return f"{self._what}: " if self._what else ""

    def _begin(self) -> None:
        self._decompressor = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._begun = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the next bytes decoded, in pieces of at most 1 MiB."""
        if not self._is_coded and chunk:
            yield chunk
        self._received += len(chunk)
        while self._is_coded and chunk:
            if self._decompressor.eof:
                self._members += 1
                if self._members >= _MAX_MEMBERS:
                    raise ProtocolViolation(f"{self._prefix}a coded body of more than {_MAX_MEMBERS} parts")
                self._begin()
            self._begun = True
            try:
                piece = self._decompressor.decompress(chunk, _PIECE)
            except zlib.error as exc:
                raise ProtocolViolation(f"{self._prefix}an answer that cannot be decoded: {exc}") from exc
            self._decoded += len(piece)
            if self._decoded > max(_SMALL, _MAX_RATIO * self._received):
                raise ProtocolViolation(f"{self._prefix}a coded body that grows more than {_MAX_RATIO} times")
            if piece:
                yield piece
            chunk = self._decompressor.unconsumed_tail or self._decompressor.unused_data

    def end(self) -> None:
        """Raise ProtocolViolation for a coded body that is cut off."""
        if self._begun and not self._decompressor.eof:
            raise ProtocolViolation(f"{self._prefix}the coded body ends too early")


def number_in(text: str) -> int | None:
    """Return the number in a header, or None if the header is no number, or has more digits than any size."""
    return int(text) if len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit() else None


def coding_name(coding: str | None) -> str:
    """Return a content coding in lower case, `identity` for none."""
    return (coding or "").strip().lower() or "identity"


@contextmanager
def network_errors(what: Shown) -> Iterator[None]:
    """Raise the errors of a connection as bbfs's errors. what: begins the texts."""
    try:
        yield
    except httpcore2.LocalProtocolError as exc:
        # Its text would quote a header, and that may be a secret.
        raise ProtocolViolation(f"{what}: a header or URL that cannot be sent") from exc
    except httpcore2.RemoteProtocolError as exc:
        # h11 has one class for an answer that is not HTTP and for one that is cut off.
        text = str(exc)
        is_cut = "closed connection" in text or "disconnected" in text
        raise (Unreachable if is_cut else ProtocolViolation)(f"{what}: {text[:200]}") from exc
    except httpcore2.TimeoutException as exc:
        raise DeadlineExceeded(f"{what}: no answer in time") from exc
    except httpcore2.UnsupportedProtocol as exc:
        raise ProtocolViolation(f"{what}: neither http nor https") from exc
    except (httpcore2.NetworkError, httpcore2.ProxyError, OSError) as exc:
        raise Unreachable(f"{what}: {_reason(exc)}") from exc


def _reason(error: BaseException) -> str:
    """Return the text of an error, or of its first cause that has a text: two errors without text wrap the error of
    TLS."""
    cause: BaseException | None = error
    while cause is not None and not str(cause):
        cause = cause.__cause__ or cause.__context__
    return str(cause)[:200] if cause is not None else type(error).__name__


def shown_url(url: httpx2.URL | str) -> str:
    """Return a URL for a message, without the parts that may be secret."""
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError):
        text = str(url)
        return "an unusable URL" if "@" in text or "?" in text else ascii(text[:80])
    return ascii(str(parsed.copy_with(userinfo=b"", query=None, fragment=None))[:300])[1:-1]
