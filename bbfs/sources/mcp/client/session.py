"""The client side of one MCP session: on a JSON-RPC peer, the negotiation of the version, and notifications."""

import itertools
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import mcp_types as types
import trio
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
)
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from pydantic import ValidationError

from bbfs import __version__
from bbfs.model.errors import BbfsError, NotSupported, ProtocolViolation
from bbfs.model.redaction import Cut
from bbfs.sources.mcp.client.client_features import MAX_ROUNDS, ClientFeatures
from bbfs.sources.mcp.client.decode import MAX_URI, Greeting, discovered, initialized
from bbfs.sources.mcp.client.errors import ConnectionClosed, http_fault
from bbfs.sources.mcp.client.peer import Params, Peer
from bbfs.sources.mcp.client.tool_entries import ParameterHeaders
from bbfs.sources.mcp.transport.messages import Transport

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Protocol versions whose sessions begin with `initialize`, oldest first."""
MODERN_VERSION = "2026-07-28"
"""The protocol version without a handshake: every request names the version and the client."""

_PROBE_TIMEOUT = 10.0
"""Seconds for `server/discover`: a server of the handshake era may not answer an unknown method."""
_CLIENT = {"name": "bbfs", "version": __version__}
_EXTENSIONS: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}}
"""Extensions of the protocol that bbfs has; see `tasks`."""
_NEGOTIATION = ("initialize", "server/discover")
"""Methods whose requests the protocol forbids to cancel."""
_NO_ENTRY = (401, 403)
"""HTTP statuses of a server that wants a login or another one, whatever it is asked."""
_FIRST_ROUND_PAUSE, _LAST_ROUND_PAUSE = 0.05, 0.25
"""Seconds before a server that needs time, not input, is asked again; doubling."""
_BUSY_CHECK = 1.0
"""Seconds between two checks of the requests that may delay the answer to a ping."""
_LEVEL_WITHIN = 2.0
"""Seconds for a server to take the level of its log messages."""


class HandshakeOnly(Exception):
    """The server closed the connection on `server/discover`: it must be greeted with `initialize`."""


class McpSession:
    """A session on a connection that `connected` holds. Requests may come from any task.

    features: answers requests of the server. cut: shortens texts of the server (`Redactor.cut`).
    on_closed: called when the transport has ended. on_event: called when the listing (None) or a resource (its native
    URI) changed. Neither may raise.
    """

    def __init__(self, transport: Transport, nursery: trio.Nursery, features: ClientFeatures, cut: Cut) -> None:
        self._features = features
        self.cut = cut
        self._peer = Peer(
            transport, nursery, answer=features.answer, notified=self._notified, closed=lambda: self.on_closed()
        )
        nursery.start_soon(self._peer.run)
        self._streams: dict[str, Callable[[types.SubscriptionFilter], None]] = {}
        self._stream_numbers = itertools.count(1)
        self._progress: dict[str, Callable[[Params], None]] = {}
        self.server = Greeting()
        self._level: str | None = None
        self._begun: dict[object, float] = {}
        self.last_used = trio.current_time()
        """The time at which a request last began or ended, in trio's clock. Pings and subscriptions do not count."""
        self.parameter_headers: Mapping[str, ParameterHeaders] = {}
        """By tool."""
        self.lists: Collection[str] = frozenset(("resources",))
        """Whose `list_changed` notifications are events: `resources`, `tools`, `prompts`."""
        self._transport = transport
        self.on_closed: Callable[[], None] = lambda: None
        self.on_event: Callable[[str | None], None] = lambda _: None

    @property
    def ending(self) -> BbfsError | None:
        """Why the transport ended, if it knows."""
        return self._transport.ending

    @property
    def modern(self) -> bool:
        """Return whether the protocol is 2026-07-28: no handshake, results with a time to live, `listen`."""
        return self.server.version == MODERN_VERSION

    @property
    def heard_at(self) -> float:
        """The time at which the server last sent anything, in trio's clock."""
        return self._peer.heard_at

    @property
    def requests_under_way(self) -> int:
        """The number of requests that wait for their answers; pings and subscriptions do not count."""
        return len(self._begun)

    def is_busy_since(self, moment: float) -> bool:
        """Return whether a request is under way that began at this moment or before."""
        return any(begun <= moment for begun in self._begun.values())

    async def request(
        self, method: str, params: dict[str, Any] | None = None, progress: Callable[[Params], None] | None = None
    ) -> dict[str, Any]:
        """Send a request and return its raw result. Raises MCPError, and NotSupported for input that bbfs lacks.

        progress: called with the parameters of each progress notification for it. It must not raise.
        """
        token = object()
        self._begun[token] = self.last_used = trio.current_time()
        name = f"progress-{next(self._stream_numbers)}"
        if progress is not None:
            self._progress[name] = progress
            params = {**(params or {}), "_meta": {"progressToken": name}}
        try:
            return await self._answer_with_input(method, params)
        finally:
            del self._begun[token]
            self._progress.pop(name, None)
            self.last_used = trio.current_time()

    async def _answer_with_input(self, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        result = await self.exchange(method, params)
        rounds, pause = 0, _FIRST_ROUND_PAUSE
        while self.modern and result.get("resultType") == "input_required":
            if (rounds := rounds + 1) > MAX_ROUNDS:
                raise NotSupported(f"the server still asks for input after {MAX_ROUNDS} answers")
            more: dict[str, Any] = {}
            if responses := await self._features.input_responses(result.get("inputRequests")):
                more["inputResponses"] = responses
            else:
                await trio.sleep(pause)
                pause = min(_LAST_ROUND_PAUSE, 2 * pause)
            if isinstance(state := result.get("requestState"), str):
                more["requestState"] = state
            result = await self.exchange(method, {**(params or {}), **more})
        return result

    async def input_responses(self, requests: Mapping[str, Any]) -> dict[str, Any]:
        """Return answers to questions of the server, under the same keys. Raises NotSupported, MCPError."""
        return await self._features.input_responses(requests)

    async def ping(self) -> None:
        """Wait for any answer of the server. Raises MCPError, which may be that answer.

        Protocol 2026-07-28 has no `ping`, but every server of it must answer `server/discover`.
        """
        await self.exchange("server/discover" if self.modern else "ping")

    async def listen(
        self, wanted: types.SubscriptionFilter, acknowledged: Callable[[types.SubscriptionFilter], None]
    ) -> None:
        """Hold a stream of changes open until the server ends it. Raises MCPError if the server refuses or drops it.

        acknowledged: called with the notifications that the server agrees to send.
        """
        number = f"listen-{next(self._stream_numbers)}"
        self._streams[number] = acknowledged
        try:
            filtered = wanted.model_dump(by_alias=True, exclude_none=True)
            await self.exchange("subscriptions/listen", {"notifications": filtered}, number=number)
            if acknowledge := self._streams.get(number):
                acknowledge(types.SubscriptionFilter())
        finally:
            self._streams.pop(number, None)

    async def exchange(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        version: str | None = None,
        number: str | None = None,
    ) -> dict[str, Any]:
        """Send a request that does not count as use, and return its raw result. Raises MCPError.

        version: of the protocol, by default the negotiated one. number: the id to send it under.
        """
        version = version or self.server.version
        headers = {MCP_PROTOCOL_VERSION_HEADER: version} if version else {}
        if version == MODERN_VERSION:
            params = dict(params or {})
            headers |= self._modern_headers(method, params)
            params["_meta"] = {
                **params.get("_meta", {}),
                types.PROTOCOL_VERSION_META_KEY: version,
                types.CLIENT_INFO_META_KEY: _CLIENT,
                types.CLIENT_CAPABILITIES_META_KEY: {**self._features.capabilities, "extensions": _EXTENSIONS},
            }
            if (level := self._features.level) is not None:
                params["_meta"][types.LOG_LEVEL_META_KEY] = level
        cancellable = method not in _NEGOTIATION
        return await self._peer.request(method, params, headers, number=number, cancellable=cancellable)

    def _modern_headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """Return the HTTP headers that repeat fields of the message (specification, "Request metadata")."""
        headers = {MCP_METHOD_HEADER: method}
        key = "taskId" if method.startswith("tasks/") else NAME_BEARING_METHODS.get(method, "")
        if isinstance(name := params.get(key), str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            if method == "tools/call":
                headers |= mcp_param_headers(self.parameter_headers.get(name, {}), params["arguments"])
        return headers

    async def negotiate(self, timeout: float, *, probe: bool) -> bool:
        """Negotiate the protocol version. Return whether the server answered the probe of the modern era in time.

        probe: send `server/discover` first, otherwise only `initialize`. timeout: seconds for the whole negotiation;
        the probe gets half of it at most. Raises HandshakeOnly, MCPError, ProtocolViolation.
        """
        if not probe:
            await self._initialize()
            return False
        with trio.move_on_after(min(_PROBE_TIMEOUT, timeout / 2)) as bound:
            if await self._probe():
                return True
        try:
            await self._initialize()
        except MCPError as exc:
            # A slow server may have answered the probe too late: then it takes `initialize` for a malformed request.
            fault = http_fault(exc.error)
            is_late = bound.cancelled_caught and (
                fault is None or (fault.kind == "status" and fault.status not in _NO_ENTRY)
            )
            if exc.code != types.UNSUPPORTED_PROTOCOL_VERSION and not is_late:
                raise
            try:
                await self._discover()
            except (MCPError, ProtocolViolation):
                raise exc from None
            return True
        return not bound.cancelled_caught

    async def _probe(self) -> bool:
        """Return whether the server is of the modern era. Raises if `initialize` would fail as well."""
        try:
            try:
                await self._discover()
            except MCPError as exc:
                if not _offers_modern(exc):
                    raise
                await self._discover()
        except ConnectionClosed as exc:
            raise HandshakeOnly from exc
        except MCPError as exc:
            fault = http_fault(exc.error)
            if fault is not None and (fault.kind in ("connect", "network") or fault.status in _NO_ENTRY):
                raise
            if exc.code == types.UNSUPPORTED_PROTOCOL_VERSION and not _offers_handshake(exc.error.data):
                raise
            return False
        except ProtocolViolation:
            return False
        return True

    async def _discover(self) -> None:
        result = await self.exchange("server/discover", version=MODERN_VERSION)
        self._agree(discovered(result, MODERN_VERSION, self.cut))

    async def _initialize(self) -> None:
        params = {"protocolVersion": HANDSHAKE_VERSIONS[-1], "capabilities": self._features.capabilities}
        result = await self.exchange("initialize", {**params, "clientInfo": _CLIENT})
        server = initialized(result, HANDSHAKE_VERSIONS, self.cut)
        self._agree(server)
        await self._peer.notify("notifications/initialized", headers={MCP_PROTOCOL_VERSION_HEADER: server.version})
        await self._follow_level()

    def _agree(self, server: Greeting) -> None:
        self.server, self.last_used = server, trio.current_time()
        self._features.follow_level = self._follow_level

    async def _follow_level(self) -> None:
        """Have a server of the handshake era send the log messages that clients want."""
        level = self._features.level
        wanted = level is not None and level != self._level and not self.modern
        if wanted and "logging" in self.server.capabilities:
            self._level = level
            with trio.move_on_after(_LEVEL_WITHIN), suppress(MCPError):
                await self.exchange("logging/setLevel", {"level": level})

    def _notified(self, method: str, params: Params) -> None:
        match method:
            case (
                "notifications/resources/list_changed"
                | "notifications/tools/list_changed"
                | "notifications/prompts/list_changed"
            ):
                if (kind := method.split("/")[1]) in self.lists:
                    self._features.list_changed(kind)
                    self.on_event(None)
            case "notifications/message":
                self._features.logged(params, self.cut)
            case "notifications/resources/updated":
                if isinstance(uri := params.get("uri"), str) and len(uri) <= MAX_URI:
                    self.on_event(uri)
            case "notifications/cancelled":
                number = params.get("requestId")
                if isinstance(number, str) and number.startswith("listen-"):
                    error = types.ErrorData(code=types.CONNECTION_CLOSED, message="the server ended the stream")
                    self._peer.resolve(number, error)
                elif isinstance(number, str | int):
                    self._peer.cancel_answer(number)
            case "notifications/progress":
                token = params.get("progressToken")
                if isinstance(token, str) and (progress := self._progress.get(token)) is not None:
                    progress(params)
            case "notifications/subscriptions/acknowledged":
                self._acknowledge(params)

    def _acknowledge(self, params: Params) -> None:
        """Pass on the acknowledgement of a stream. An invalid or repeated one is ignored."""
        meta = params.get("_meta")
        number = meta.get(SUBSCRIPTION_ID_META_KEY) if isinstance(meta, dict) else None
        try:
            agreed = types.SubscriptionFilter.model_validate(params.get("notifications"))
        except ValidationError:
            return
        if isinstance(number, str) and (acknowledge := self._streams.pop(number, None)):
            acknowledge(agreed)


@asynccontextmanager
async def connected(transport: Transport, features: ClientFeatures, cut: Cut) -> AsyncGenerator[McpSession]:
    """Open a session on a transport; it ends with the context."""
    async with trio.open_nursery() as nursery:
        yield McpSession(transport, nursery, features, cut)
        nursery.cancel_scope.cancel()


def _offers_modern(exc: MCPError) -> bool:
    """Return whether a server that refuses the modern version names it among those that it speaks."""
    if exc.code != types.UNSUPPORTED_PROTOCOL_VERSION or not isinstance(exc.error.data, dict):
        return False
    supported = exc.error.data.get("supported")
    return isinstance(supported, list) and MODERN_VERSION in supported


def _offers_handshake(data: Any) -> bool:
    supported = data.get("supported") if isinstance(data, dict) else None
    return not isinstance(supported, list) or any(version in HANDSHAKE_VERSIONS for version in supported)


async def until_idle(session: McpSession, patience: float, subscribed: Callable[[], bool]) -> None:
    """Wait until there was no request for `patience` seconds and there is no subscription."""
    while True:
        left = session.last_used + patience - trio.current_time()
        if left <= 0 and not session.requests_under_way and not subscribed():
            return
        await trio.sleep(left if left > 0 else patience)


async def until_given_up(
    session: McpSession, *, after: float, bound: float, on_error: Callable[[MCPError], object]
) -> float:
    """Ping a silent server until it answers nothing more; return the seconds of silence.

    A server that handles one request at a time may answer a ping late: it is not given up while a request is under way
    that it got before the ping. Later requests do not count, or there might always be one.
    after: seconds of silence before a ping. bound: seconds for any message to come then. on_error: gets errors that
    answer a ping or that prevent it.
    """
    while True:
        asked = trio.current_time()
        if (left := session.heard_at + after - asked) > 0:
            await trio.sleep(left)
            continue
        with trio.move_on_after(bound) as waiting:
            try:
                await session.ping()
            except MCPError as exc:
                on_error(exc)
        while session.heard_at <= asked and session.is_busy_since(asked):  # noqa: ASYNC110 - either may end first
            await trio.sleep(_BUSY_CHECK)
        if session.heard_at > asked:
            continue
        if waiting.cancelled_caught:
            return trio.current_time() - session.heard_at
        await trio.sleep(after)
