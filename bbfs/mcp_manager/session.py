"""One MCP session of the client side: era negotiation, and requests whose results come back as they were sent."""

import logging
from collections.abc import Callable
from typing import Any

import mcp_types as types
import trio
from mcp.client.session import ClientSession, IncomingMessage
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from bbfs import __version__
from bbfs.errors import BbfsError
from bbfs.mcp_manager.faults import http_fault, is_closed

log = logging.getLogger("bbfs.mcp")

_PROBE_TIMEOUT = 10.0
"""Seconds for `server/discover`; a server of the handshake era may leave an unknown method unanswered."""
_CLIENT = types.Implementation(name="bbfs", version=__version__)


class HandshakeOnly(Exception):
    """The server closed the connection on `server/discover`: it must be greeted with `initialize`."""


class _Dispatcher(JSONRPCDispatcher):
    """Tells when no more messages can come; the SDK tells only those who wait for an answer."""

    def __init__(self, read_stream: Any, write_stream: Any, on_closed: Callable[[], None]) -> None:
        super().__init__(read_stream, write_stream)
        self._on_closed = on_closed

    async def run(self, *args: Any, **kwargs: Any) -> None:
        try:
            await super().run(*args, **kwargs)
        finally:
            self._on_closed()


class Session(ClientSession):
    """A connection to one server, entered and left by the task that owns it; requests may come from any task.

    why_closed: says why the transport ended, once it has, if it knows. on_closed: called when it has. on_event: called
    when the listing (None) or a resource (its native URI) changed. Neither may raise.
    """

    def __init__(self, streams: tuple[Any, Any], why_closed: Callable[[], BbfsError | None]) -> None:
        super().__init__(
            dispatcher=_Dispatcher(*streams, lambda: self.on_closed()),
            message_handler=self._on_message,
            client_info=_CLIENT,
        )
        self.why_closed = why_closed
        self.on_closed: Callable[[], None] = lambda: None
        self.on_event: Callable[[str | None], None] = lambda _: None

    @property
    def modern(self) -> bool:
        """Whether the session is of protocol 2026-07-28 or later: no handshake, caching hints, `listen`."""
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request, return its raw result. Raises MCPError.

        The SDK's own calls validate a result as a whole, so one invalid entry would lose a whole page.
        """
        data: dict[str, Any] = {"method": method}
        if params:
            data["params"] = dict(params)
        options: CallOptions = {}
        self._stamp(data, options)
        return await self._dispatcher.send_raw_request(method, data.get("params"), options)

    async def negotiate(self, timeout: float, *, probe: bool) -> bool:
        """Agree on a protocol version; whether the probe of the modern era was answered in time.

        probe: ask `server/discover` first, else only `initialize`. timeout: seconds for the whole negotiation, of which
        the probe gets at most half. Raises HandshakeOnly, MCPError, ValidationError, RuntimeError.
        """
        if not probe:
            await self.initialize()
            return False
        with trio.move_on_after(min(_PROBE_TIMEOUT, timeout / 2)) as bound:
            if await self._discover():
                return True
        try:
            await self.initialize()
        except MCPError as exc:
            # A slow server may have answered the probe after its time: the connection is a modern one by then.
            if exc.code != types.UNSUPPORTED_PROTOCOL_VERSION:
                raise
            await self.discover()
            return True
        return not bound.cancelled_caught

    async def _discover(self) -> bool:
        """Whether the server is of the modern era. Raises when there is no point in greeting it the old way."""
        try:
            await self.discover()
        except MCPError as exc:
            if is_closed(exc):
                raise HandshakeOnly from exc
            fault = http_fault(exc.error)
            if fault is not None and (fault.kind in ("connect", "network") or fault.status in (401, 403)):
                raise
            if exc.code == types.UNSUPPORTED_PROTOCOL_VERSION and not _offers_handshake(exc.error.data):
                raise
            return False
        except (ValidationError, RuntimeError):
            return False
        return True

    async def _on_message(self, message: IncomingMessage) -> None:
        match message:
            case types.ResourceListChangedNotification():
                self.on_event(None)
            case types.ResourceUpdatedNotification():
                self.on_event(message.params.uri)
            case Exception():
                log.debug("transport fault: %r", message)


def _offers_handshake(data: Any) -> bool:
    supported = data.get("supported") if isinstance(data, dict) else None
    return not isinstance(supported, list) or any(version in HANDSHAKE_PROTOCOL_VERSIONS for version in supported)
