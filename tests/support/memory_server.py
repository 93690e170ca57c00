"""An MCP server inside the test's own event loop, so that tests can use a clock that jumps."""

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import trio

from bbfs.model.errors import BbfsError, Unreachable
from bbfs.sources.mcp.client.manager import MCPManager
from bbfs.sources.mcp.transport.messages import Inbox

_VERSIONS = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "memory", "version": "1"}}


class MemoryServer:
    """Stands in for the stdio transport. It does one thing after the other, as many servers do.

    capabilities: of its `resources`. obstacle: why it cannot be connected to. frozen: it reads and answers nothing.
    results: by method, what it answers (ErrorData too) or, where several are due in turn, a list of them.
    delays: seconds that a method takes. sent: the methods that came in, and the parameters of each.
    """

    def __init__(self, *, modern: bool = False, **capabilities: bool) -> None:
        self.modern = modern
        self.capabilities = {"resources": capabilities}
        self.obstacle: BbfsError | None = None
        self.ending: BbfsError | None = None
        self.thawed = trio.Event()
        self.thawed.set()
        self.results: dict[str, Any] = {}
        self.delays: dict[str, float] = {}
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.answers: list[types.JSONRPCResponse | types.JSONRPCError] = []
        self.tries = 0
        self.connected = 0
        self.inbox = Inbox()
        self._asked, self._incoming = trio.open_memory_channel[types.JSONRPCMessage](math.inf)
        self._listening: list[types.RequestId] = []

    def __call__(self, *_: Any) -> "MemoryServer":
        """Made by a connection in place of the transport."""
        return self

    def methods(self, *wanted: str) -> list[str]:
        """The methods that came in, of those."""
        return [method for method, _ in self.sent if method in wanted or not wanted]

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Any]:
        self.tries += 1
        if self.obstacle is not None:
            raise Unreachable(str(self.obstacle))
        self.inbox = inbox = Inbox()
        self._asked, self._incoming = trio.open_memory_channel[types.JSONRPCMessage](math.inf)
        self.connected += 1
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._serve, self._incoming)
                yield self
                nursery.cancel_scope.cancel()
        finally:
            inbox.ended.set()
            self.connected -= 1
            self._listening.clear()

    def crash(self) -> None:
        """Close the connection."""
        self.inbox.ended.set()

    def say(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self._send(types.JSONRPCNotification(jsonrpc="2.0", method=method, params=params))

    def ask(self, method: str, **params: Any) -> None:
        """Send a request; its answer will be in `answers`."""
        self._send(types.JSONRPCRequest(jsonrpc="2.0", id=f"asked-{method}", method=method, params=params))

    def drop_streams(self) -> None:
        """Break off the event streams, without a word."""
        for request_id in self._listening:
            error = types.ErrorData(code=types.INTERNAL_ERROR, message="dropped")
            self._send(types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error))
        self._listening.clear()

    async def send(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        """Take a message of the client, as the sending end of a transport does."""
        await self._asked.send(types.jsonrpc_message_adapter.validate_python(message))

    def _send(self, message: types.JSONRPCMessage) -> None:
        if self.inbox.ended.is_set():
            raise trio.BrokenResourceError
        self.inbox.take(message)

    async def _serve(self, incoming: trio.MemoryReceiveChannel[types.JSONRPCMessage]) -> None:
        async for message in incoming:
            await self.thawed.wait()
            match message:
                case types.JSONRPCRequest() as request:
                    self.sent.append((request.method, request.params or {}))
                    await trio.sleep(self.delays.get(request.method, 0))
                    try:
                        self._answer(request)
                    except trio.BrokenResourceError:
                        return
                case types.JSONRPCNotification() as notification:
                    self.sent.append((notification.method, notification.params or {}))
                case answer:
                    self.answers.append(answer)

    def _answer(self, request: types.JSONRPCRequest) -> None:
        params = request.params or {}
        if request.method == "subscriptions/listen" and self.modern and request.method not in self.results:
            self._listening.append(request.id)
            meta = {"io.modelcontextprotocol/subscriptionId": request.id}
            honored = params["notifications"]
            self.say("notifications/subscriptions/acknowledged", _meta=meta, notifications=honored)
            return
        result = self.results.get(request.method)
        if isinstance(result, list):
            result = result.pop(0)
        if result is None:
            result = self._plain(request.method, params)
        if isinstance(result, types.ErrorData):
            self._send(types.JSONRPCError(jsonrpc="2.0", id=request.id, error=result))
        else:
            self._send(types.JSONRPCResponse(jsonrpc="2.0", id=request.id, result=result))

    def _plain(self, method: str, params: dict[str, Any]) -> Any:
        complete = {"resultType": "complete"} if self.modern else {}
        match method:
            case "server/discover" if self.modern:
                cached = {"ttlMs": 0, "cacheScope": "private"}
                return {"supportedVersions": ["2026-07-28"], "capabilities": self.capabilities, **complete, **cached}
            case "initialize" if not self.modern:
                return {"capabilities": self.capabilities, **_VERSIONS}
            case "ping" | "resources/subscribe" | "resources/unsubscribe" if not self.modern:
                return {}
            case "resources/list":
                return {"resources": [{"uri": "memory://a", "name": "a"}], **complete}
            case "resources/read":
                return {"contents": [{"uri": params["uri"], "text": "text"}], **complete}
        return types.ErrorData(code=types.METHOD_NOT_FOUND, message=method)


Linked = Callable[..., Awaitable[tuple[MemoryServer, MCPManager]]]
"""The fixture of that name: a server, and a manager that leads to it."""
