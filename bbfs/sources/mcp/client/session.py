"""One MCP session of the client side: era negotiation, and requests whose results come back as they were sent."""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

import mcp_types as types
import trio
from mcp.client.session import ClientRequestContext, ClientSession, IncomingMessage
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import mcp_param_headers
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from bbfs import __version__
from bbfs.model.errors import BbfsError, NotSupported
from bbfs.sources.mcp.client.client_features import MAX_ROUNDS, ClientFeatures
from bbfs.sources.mcp.client.dispatch import Dispatcher, Heard
from bbfs.sources.mcp.client.errors import http_fault, is_closed
from bbfs.sources.mcp.client.tool_entries import ParameterHeaders

log = logging.getLogger("bbfs.mcp")

_PROBE_TIMEOUT = 10.0
"""Seconds for `server/discover`; a server of the handshake era may leave an unknown method unanswered."""
_CLIENT = types.Implementation(name="bbfs", version=__version__)
_FIRST_ROUND_PAUSE, _LAST_ROUND_PAUSE = 0.05, 0.25
"""Seconds before a server that needs no input, but time, is asked again; doubling."""


class HandshakeOnly(Exception):
    """The server closed the connection on `server/discover`: it must be greeted with `initialize`."""


class Session(ClientSession):
    """A connection to one server, entered and left by the task that owns it; requests may come from any task.

    why_closed: says why the transport ended, once it has, if it knows. features: answers what the server asks.
    on_closed: called when the transport has ended. on_event: called when the listing (None) or a resource (its native
    URI) changed. Neither may raise.
    """

    def __init__(
        self, streams: tuple[Any, Any], why_closed: Callable[[], BbfsError | None], features: ClientFeatures
    ) -> None:
        incoming, outgoing = streams
        self._heard = incoming if isinstance(incoming, Heard) else Heard(incoming)
        self._features = features
        super().__init__(
            dispatcher=Dispatcher(self._heard, outgoing, lambda: self.on_closed()),
            list_roots_callback=self._list_roots,
            message_handler=self._on_message,
            client_info=_CLIENT,
        )
        self.parameter_headers: Mapping[str, ParameterHeaders] = {}
        """By tool; the SDK would learn them from its own listing."""
        self.lists: Collection[str] = frozenset(("resources",))
        """Whose `list_changed` notifications are events: `resources`, `tools`, `prompts`."""
        self.why_closed = why_closed
        self.on_closed: Callable[[], None] = lambda: None
        self.on_event: Callable[[str | None], None] = lambda _: None

    def _resolve_param_headers(self, name: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        return mcp_param_headers(self.parameter_headers.get(name, {}), arguments)

    @property
    def modern(self) -> bool:
        """Whether the session is of protocol 2026-07-28 or later: no handshake, caching hints, `listen`."""
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def heard_at(self) -> float:
        """When the server last sent anything, in trio's clock."""
        return self._heard.at

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request, return its raw result. Raises MCPError, and NotSupported for input that bbfs has not.

        The SDK's own calls validate a result as a whole, so one invalid entry would lose a whole page.
        """
        result = await self._exchange(method, params)
        rounds, pause = 0, _FIRST_ROUND_PAUSE
        while self.modern and result.get("resultType") == "input_required":
            if (rounds := rounds + 1) > MAX_ROUNDS:
                raise NotSupported(f"the server still asks for input after {MAX_ROUNDS} answers")
            more: dict[str, Any] = {}
            if responses := self._features.input_responses(result.get("inputRequests")):
                more["inputResponses"] = responses
            else:
                await trio.sleep(pause)
                pause = min(_LAST_ROUND_PAUSE, 2 * pause)
            if isinstance(state := result.get("requestState"), str):
                more["requestState"] = state
            result = await self._exchange(method, {**(params or {}), **more})
        return result

    async def ping(self) -> None:
        """Have the server answer something. Raises MCPError, which may well be an answer.

        Protocol 2026-07-28 has no `ping`; `server/discover` is what every server of it must answer.
        """
        await self._exchange("server/discover" if self.modern else "ping", None)

    async def _exchange(self, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
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

    def _build_capabilities(self, version: str) -> types.ClientCapabilities:
        capabilities = super()._build_capabilities(version)
        return capabilities.model_copy(update={"roots": self._features.roots})

    async def _list_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        return self._features.list_roots()

    async def _on_request(self, dctx: Any, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        self._features.raise_refused(method)
        return await super()._on_request(dctx, method, params)

    def _intercept_notification(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Take what changed off the receiving path: the SDK would start a task for each, 10 000 in a flood."""
        if super()._intercept_notification(method, params):
            return True
        match method:
            case (
                "notifications/resources/list_changed"
                | "notifications/tools/list_changed"
                | "notifications/prompts/list_changed"
            ):
                if method.split("/")[1] in self.lists:
                    self.on_event(None)
                return True
            case "notifications/resources/updated":
                uri = (params or {}).get("uri")
                if isinstance(uri, str):
                    self.on_event(uri)
                return True
        return False

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, Exception):
            log.debug("transport fault: %r", message)


def _offers_handshake(data: Any) -> bool:
    supported = data.get("supported") if isinstance(data, dict) else None
    return not isinstance(supported, list) or any(version in HANDSHAKE_PROTOCOL_VERSIONS for version in supported)
