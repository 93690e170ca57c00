"""Streamable HTTP for any number of clients, each of which shows a bearer token.

The server listens where it is told and answers no host name and no web page but those it is known under: a page that a
browser has loaded from elsewhere can reach it neither by its address nor by a name that was rebound to it.
"""

import hmac
import ipaddress
import logging
import os
import secrets
import socket
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import trio
from hypercorn.config import Config as HttpConfig
from hypercorn.trio import serve
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Receive, Scope, Send

from bbfs.model.errors import ConfigError
from bbfs.server.service import Service

PATH = "/mcp"
SHUTDOWN = 3.0
"""Seconds that open streams have to end."""
SHORTEST_TOKEN = 16
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_CHALLENGE = b'Bearer realm="bbfs"'


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to listen, and who may ask.

    token: what clients show; None for nothing. names: host names under which clients reach the server, besides those of
    this machine and the address it listens on.
    """

    host: str
    port: int
    token: str | None
    names: tuple[str, ...] = ()


class Listener:
    """A bound socket, and the URL of the server behind it. To be closed. Raises ConfigError, OSError."""

    def __init__(self, listen: Listen) -> None:
        if listen.token is None and not is_loopback(listen.host):
            raise ConfigError(f"without a token only programs of this machine may be served, not {listen.host}")
        self._listen = listen
        self._socket = _bind(listen.host, listen.port)
        shown = f"[{listen.host}]" if ":" in listen.host else listen.host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}{PATH}"

    def close(self) -> None:
        """Give the address back, if nothing has been served at it."""
        self._socket.close()

    async def run(self, service: Service, stop: trio.Event) -> None:
        """Serve until `stop` is set; open streams end before that."""
        app: ASGIApp = service.streamable_http_app(
            streamable_http_path=PATH, host=self._listen.host, transport_security=self._known_as()
        )
        if self._listen.token is not None:
            app = _TokenRequired(app, self._listen.token)
        config = HttpConfig()
        config.bind = [f"fd://{self._socket.detach()}"]
        config.graceful_timeout = SHUTDOWN
        config.errorlog = logging.getLogger("bbfs.server.transport.http")
        config.include_server_header = False

        async def stopping() -> None:
            await stop.wait()
            service.close_streams()

        await serve(cast(Any, app), config, shutdown_trigger=stopping, mode="asgi")

    def _known_as(self) -> TransportSecuritySettings:
        hosts = [*_LOOPBACK, *self._listen.names]
        if not _is_wildcard(self._listen.host):
            hosts.append(f"[{self._listen.host}]" if ":" in self._listen.host else self._listen.host)
        elif not self._listen.names:
            hosts.append(socket.gethostname())
        return TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=[*hosts, *(f"{host}:*" for host in hosts)],
            allowed_origins=[
                f"{scheme}://{host}{port}" for scheme in ("http", "https") for host in hosts for port in ("", ":*")
            ],
        )


class _TokenRequired:
    """Lets nobody to the application who does not show the token (RFC 6750)."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._shown_in(scope["headers"]):
            await self._app(scope, receive, send)
            return
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"0"), (b"www-authenticate", _CHALLENGE)]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _shown_in(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        shown = [value for name, value in headers if name.lower() == b"authorization"]
        if len(shown) != 1:
            return False
        scheme, _, token = shown[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._expected)


def token_of_file(path: str) -> str:
    """The token in a file that its owner alone can read; a file with a new one is made where there is none.

    Raises ConfigError, OSError.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    else:
        with os.fdopen(descriptor, "w") as file:
            file.write(new_token() + "\n")
    with open(path, encoding="utf-8") as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise ConfigError(f"{path}: others can read or change it: chmod 600 {path}")
        token = file.read(1 << 16).strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{path}: a token has {SHORTEST_TOKEN} printable ASCII characters at least, and no space")
    return token


def new_token() -> str:
    return secrets.token_hex(32)


def is_loopback(host: str) -> bool:
    """Whether nobody but programs of this machine reaches a host name or address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


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
