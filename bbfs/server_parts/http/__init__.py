"""Streamable HTTP for any number of clients of one MCP server.

The server answers under its own host names only, so a web page from elsewhere reaches it neither by its address nor by
a name that was rebound to it. A client that is slow to send its request keeps no other out.
"""

import hmac
import ipaddress
import logging
import resource
import secrets
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bbfs.runtime.private_files import open_own
from bbfs.server_parts.bounds import has_too_many_values
from bbfs.server_parts.http.clients import MOST_SESSIONS, Sessions, Turns, wrong_host_or_origin

log = logging.getLogger(__name__)

PATH = "/mcp"
SHUTDOWN = 3.0
"""Seconds that open streams have to end."""
HEADERS_WITHIN = 5.0
"""Seconds for the headers of a request, from the connection or the end of the request before."""
BODY_WITHIN = 30.0
"""Seconds for the body of a request."""
LARGEST_BODY = 4 << 20
"""Bytes."""
MOST_CONNECTIONS = 1000
SHORTEST_TOKEN = 16
"""Characters."""
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_CONNECTION = "bbfs.connection"


class ListenError(Exception):
    """The server cannot listen as asked. The message is a sentence for the user."""


class LowLevelServer(Protocol):
    """The low-level server of the SDK, with a way to end its `subscriptions/listen` streams."""

    def streamable_http_app(
        self, *, streamable_http_path: str, host: str, transport_security: TransportSecuritySettings, max_sessions: int
    ) -> Starlette: ...

    def close_streams(self) -> None: ...


class Listener:
    """A bound socket, to be closed, and who may use it. Raises ListenError.

    token: the bearer token that clients show; None for none. names: host names under which clients reach the server,
    besides those of this machine and the address. ready: gets the URL once connections are taken.
    """

    def __init__(
        self, host: str, port: int, token: str | None, names: Sequence[str], ready: Callable[[str], None]
    ) -> None:
        if token is None and not is_loopback(host):
            raise ListenError(f"without a token only programs of this machine may be served, not {host}")
        self._host, self._token = host, token
        self._names = _host_names(host, names)
        try:
            self._socket = _bind(host, port)
        except OSError as error:
            raise ListenError(f"--http {host}:{port}: {error.strerror or error}") from None
        self._ready = ready
        self._url = f"http://{_in_url(host)}:{self._socket.getsockname()[1]}{PATH}"

    def close(self) -> None:
        """Close the socket, if `run` has not."""
        self._socket.close()

    async def run(self, server: LowLevelServer, stop: trio.Event) -> None:
        """Serve until `stop` is set; open streams end before that."""
        app = server.streamable_http_app(
            streamable_http_path=PATH,
            host=self._host,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # `_Guard` does it
            max_sessions=2 * MOST_SESSIONS,  # `Sessions` keeps to the half
        )
        connections = _Connections(_Guard(app, self._token, self._names))
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._socket))
        async with app.router.lifespan_context(app), trio.open_nursery() as serving:
            accepting = trio.CancelScope()

            async def accept() -> None:
                with accepting:
                    await trio.serve_listeners(connections.serve, [listener], handler_nursery=serving)

            serving.start_soon(accept)
            self._ready(self._url)
            await stop.wait()
            accepting.cancel()
            server.close_streams()
            with trio.move_on_after(SHUTDOWN):
                await connections.ended()
            connections.drop_all()
            serving.cancel_scope.cancel()


@dataclass(eq=False, slots=True)
class _Connection:
    """An open connection. answering: how many of its requests have come in whole and are not answered yet."""

    stream: trio.SocketStream
    answering: int = 0

    def drop(self) -> None:
        """Close it at any time: this ends a blocked `send_all` of hypercorn too, which no cancelling does."""
        self.stream.socket.close()


class _Connections:
    """The open connections: as many as leave the process half of its file descriptors.

    Beyond these a new connection takes the place of the oldest that waits for a request or is still sending one, else
    of the oldest of all: a client that holds streams or reads no answer locks no other out.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = ASGIWrapper(cast(Any, app))
        self._most = min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._open: dict[_Connection, None] = {}
        self._config = Config()
        self._config.keep_alive_timeout = HEADERS_WITHIN
        self._config.errorlog = log
        self._config.include_server_header = False
        self._context = WorkerContext(None)
        self._none_left = trio.Event()

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection to its end."""
        if len(self._open) >= self._most:
            self._make_room()
        connection = _Connection(stream)
        self._open[connection] = None
        try:
            state = ConnectionState(cast(Any, {_CONNECTION: connection}))
            await _Http1(self._app, self._config, self._context, state, cast(Any, stream))
        except Exception:
            log.exception("a connection has failed")  # the others go on
        finally:
            self._open.pop(connection, None)
            if not self._open:
                self._none_left.set()

    async def ended(self) -> None:
        """Wait until no connection is left; one that has no request ends at once."""
        await self._context.terminated.set()
        while self._open:
            self._none_left = trio.Event()
            await self._none_left.wait()

    def drop_all(self) -> None:
        for connection in self._open:
            connection.drop()

    def _make_room(self) -> None:
        leaving = next((each for each in self._open if not each.answering), None) or next(iter(self._open))
        del self._open[leaving]
        leaving.drop()


class _Http1(TCPServer):
    """One connection of HTTP/1.1 alone. No MCP client needs HTTP/2 over plain TCP, nor its kinds of floods."""

    async def run(self) -> None:
        try:
            socket = cast(trio.SocketStream, self.stream).socket
            client = parse_socket_addr(socket.family, socket.getpeername())
            server = parse_socket_addr(socket.family, socket.getsockname())
            async with TaskGroup() as tasks:
                self._task_group = tasks
                self.protocol = _H11(  # type: ignore[assignment] - what the wrapper of the base class would hold
                    *(self.app, self.config, self.context, tasks, ConnectionState(self.state)),
                    *(False, client, server, self.protocol_send),
                )
                await self.idle_task.restart(tasks, self._idle_timeout)
                await self._read_data()
        except OSError:
            pass  # the client is gone
        finally:
            await self._close()


class _H11(H11Protocol):
    """HTTP/1.1 that is asked for no other protocol: an upgrade is ignored, and the preface of HTTP/2 is no method."""

    async def _check_protocol(self, event: object) -> None:
        pass


class _Guard:
    """Lets requests for this host that show the token (RFC 6750) to the application, once they have come in whole.

    names: of the host, in lower case. Each client has so many requests answered at once, and so many sessions.
    """

    def __init__(self, app: ASGIApp, token: str | None, names: frozenset[bytes]) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._names = names
        self._turns = Turns()
        self._sessions = Sessions(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        wrong = wrong_host_or_origin(scope["headers"], self._names)
        if wrong is not None:
            await _refuse(send, wrong)
            return
        if self._token is not None and not _shows(scope["headers"], self._token):
            await _refuse(send, 401, (b"www-authenticate", b'Bearer realm="bbfs"'))
            return
        left: list[Message] = []
        with trio.move_on_after(BODY_WITHIN) as bound:
            arrived = await _whole(receive)
            if arrived is None:
                await _refuse(send, 413)
                return
            left.append(arrived)
        if bound.cancelled_caught:
            await _refuse(send, 408)
            return

        async def replay() -> Message:
            return left.pop() if left else await receive()

        connection: _Connection = scope["state"][_CONNECTION]
        connection.answering += 1
        try:
            async with self._turns.answering(scope, left[0].get("body", b""), send, connection.drop) as answer:
                await self._sessions.serve(scope, replay, answer)
        finally:
            connection.answering -= 1


def _shows(headers: Iterable[tuple[bytes, bytes]], expected: bytes) -> bool:
    shown = [value for name, value in headers if name.lower() == b"authorization"]
    if len(shown) != 1:
        return False
    scheme, _, token = shown[0].partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), expected)


async def _whole(receive: Receive) -> Message | None:
    """Return one message with the whole body, which may come a byte at a time, or the end of the connection.

    Return None for a body of more than `LARGEST_BODY` bytes, or of too many values.
    """
    body = bytearray()
    while True:
        arrived = await receive()
        if arrived["type"] != "http.request":
            return arrived
        body += arrived.get("body", b"")
        if len(body) > LARGEST_BODY:
            return None
        if not arrived.get("more_body", False):
            return None if has_too_many_values(bytes(body)) else {**arrived, "body": bytes(body)}


async def _refuse(send: Send, status: int, *headers: tuple[bytes, bytes]) -> None:
    plain = [(b"content-type", b"text/plain"), (b"content-length", b"0"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": plain})
    await send({"type": "http.response.body", "body": b""})


def token_of_file(path: str) -> str:
    """Return the token in a file that only its owner can read; write a new one if there is no file.

    Raises ListenError, also for a file of another user and for a symbolic link.
    """
    try:
        with suppress(FileExistsError), open(path, "x", opener=open_own) as file:
            file.write(new_token() + "\n")
        with open(path, encoding="utf-8", errors="replace", opener=open_own) as file:
            token = file.read(1 << 16).strip()
    except OSError as error:
        raise ListenError(f"{path}: {error.strerror}") from None
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ListenError(f"{path}: a token has {SHORTEST_TOKEN} printable ASCII characters at least, and no space")
    return token


def new_token() -> str:
    return secrets.token_hex(32)


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach a host name or address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _host_names(host: str, given: Sequence[str]) -> frozenset[bytes]:
    """Return the host names that clients may reach the server under."""
    names = [*_LOOPBACK, *given]
    if not _is_wildcard(host):
        names.append(_in_url(host))
    elif not given:
        names.append(socket.gethostname())
    return frozenset(name.lower().encode() for name in names)


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bind(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener
