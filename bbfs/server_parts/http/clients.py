"""The clients of an HTTP server: whom they take it for, and what each of them may have at once.

No client can be told apart from another one of the same machine for certain. So a client is its address, its session
and the name of its program; a client that pretends to be many meets the bounds of all together.
"""

import json
import re
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import trio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

AT_ONCE = 4
"""Requests of one client that are answered at once. Further ones wait."""
IN_ALL = 32
"""Requests of all clients that are answered at once."""
MOST_UNREAD = 64 << 20
"""Bytes of answers that clients have not read yet. Beyond them, the one that has waited for longest is dropped."""
MOST_SESSIONS = 1000
"""Sessions of the handshake era at once; each ends after half an hour without a request."""
_SHORT = 1 << 14
"""Bytes of a notification or an answer."""
_SESSION, _AGENT = b"mcp-session-id", b"user-agent"
_AUTHORITY = re.compile(rb"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")
"""Host, and port if any, in lower case (RFC 3986, section 3.2), without a user."""
Headers = Iterable[tuple[bytes, bytes]]
Client = tuple[str, bytes, bytes]


def wrong_host_or_origin(headers: Headers, names: frozenset[bytes]) -> int | None:
    """Return the status for a request to another host, or of a web page from elsewhere (DNS rebinding), or None.

    names: of this host, in lower case.
    """
    found = {name: [value for other, value in headers if other.lower() == name] for name in (b"host", b"origin")}
    if len(found[b"host"]) != 1 or not _is_one_of(found[b"host"][0], names):
        return 421
    for origin in found[b"origin"]:
        scheme, separator, authority = origin.lower().partition(b"://")
        if scheme not in (b"http", b"https") or not separator or not _is_one_of(authority, names):
            return 403
    return None


def _is_one_of(authority: bytes, names: frozenset[bytes]) -> bool:
    parts = _AUTHORITY.fullmatch(authority.lower())
    return parts is not None and parts[1] in names


def _header(headers: Headers, wanted: bytes) -> bytes:
    return next((value for name, value in headers if name.lower() == wanted), b"")


def _client(scope: Scope) -> Client:
    address = (scope.get("client") or ("",))[0]
    return address, _header(scope["headers"], _SESSION), _header(scope["headers"], _AGENT)


@dataclass(eq=False, slots=True)
class _Piece:
    """A piece of an answer that a client has not read yet. drop: closes its connection."""

    size: int
    drop: Callable[[], None]


class Turns:
    """The requests that are answered: a few of each client at once, and the answers that wait to be read."""

    def __init__(self, most_unread: int = MOST_UNREAD) -> None:
        self._most_unread = most_unread
        self._of_client: dict[Client, trio.CapacityLimiter] = {}
        self._present: Counter[Client] = Counter()
        self._all = trio.CapacityLimiter(IN_ALL)
        self._unread: dict[_Piece, None] = {}
        self._unread_bytes = 0

    @asynccontextmanager
    async def answering(self, scope: Scope, body: bytes, send: Send, drop: Callable[[], None]) -> AsyncIterator[Send]:
        """Wait for a turn, and yield the function to send the answer with.

        The turn ends when the first piece of the answer is made: a stream of events has none after that, and a client
        that reads nothing keeps none. drop: closes the connection of a client that does not read.
        """
        if scope["method"] != "POST" or not _wants_answer(body):
            yield partial(self._send, send, drop)
            return
        client, turn = _client(scope), object()
        limiter = self._of_client.setdefault(client, trio.CapacityLimiter(AT_ONCE))
        taken: list[trio.CapacityLimiter] = []

        def end_turn() -> None:
            while taken:
                taken.pop().release_on_behalf_of(turn)

        async def sending(message: Message) -> None:
            if message.get("body"):
                end_turn()
            await self._send(send, drop, message)

        self._present[client] += 1
        try:
            for each in (limiter, self._all):
                await each.acquire_on_behalf_of(turn)
                taken.append(each)
            yield sending
        finally:
            end_turn()
            self._present[client] -= 1
            if not self._present[client]:
                del self._present[client], self._of_client[client]

    async def _send(self, send: Send, drop: Callable[[], None], message: Message) -> None:
        """Send a piece of an answer. If clients leave too much unread, drop those that have begun to first."""
        piece = _Piece(len(message.get("body", b"")), drop)
        self._unread[piece] = None
        self._unread_bytes += piece.size
        while self._unread_bytes > self._most_unread and len(self._unread) > 1:
            oldest = next(iter(self._unread))
            self._read(oldest)
            oldest.drop()
        try:
            await send(message)
        finally:
            self._read(piece)

    def _read(self, piece: _Piece) -> None:
        if piece in self._unread:
            del self._unread[piece]
            self._unread_bytes -= piece.size


def _wants_answer(body: bytes) -> bool:
    """Return whether a body is not surely a notification or the answer to a request of the server.

    Those wait for no turn: they may end a request that has one.
    """
    if len(body) > _SHORT:
        return True
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return True
    return not isinstance(message, dict) or ("method" in message and "id" in message)


class Sessions:
    """The sessions of the handshake era. A new one takes the place of another one, and is not refused.

    The one that ends is of the address with the most sessions: the one whose last request is longest ago.
    """

    def __init__(self, app: ASGIApp, most: int = MOST_SESSIONS) -> None:
        self._app = app
        self._most = most
        self._open: OrderedDict[bytes, str] = OrderedDict()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, which may begin or end a session."""
        session, address = _header(scope["headers"], _SESSION), (scope.get("client") or ("",))[0]
        if session in self._open:
            if scope["method"] == "DELETE":
                del self._open[session]
            else:
                self._open.move_to_end(session)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                begun = _header(message["headers"], _SESSION)
                if message["status"] == 404:
                    self._open.pop(session, None)
                elif begun and not session:
                    self._open[begun] = address
                    await self._make_room(scope)
            await send(message)

        await self._app(scope, receive, noting)

    async def _make_room(self, scope: Scope) -> None:
        while len(self._open) > self._most:
            ((most, _),) = Counter(self._open.values()).most_common(1)
            leaving = next(each for each, address in self._open.items() if address == most)
            del self._open[leaving]
            kept = [(name, value) for name, value in scope["headers"] if name.lower() in (b"host", b"accept")]
            await self._app({**scope, "method": "DELETE", "headers": [*kept, (_SESSION, leaving)]}, _nothing, _ignored)


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _ignored(_message: Message) -> None:
    pass
