"""The HTTP+SSE transport of protocol 2024-11-05: one event stream for all answers, one POST a message."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urljoin

import anyio
import httpx2
import mcp_types as types
import trio
from mcp.shared.message import SessionMessage

from bbfs.model.errors import BbfsError, ProtocolViolation, Unreachable
from bbfs.model.redaction import Redactor
from bbfs.model.values import McpServer
from bbfs.sources.mcp.client.errors import HttpFault
from bbfs.sources.mcp.login.refresh import Login
from bbfs.sources.mcp.transport.http import (
    INITIALIZED_TIMEOUT,
    Faulty,
    Http,
    Incoming,
    Outgoing,
    deliver,
    is_event_stream,
    origin,
)
from bbfs.sources.mcp.transport.lines import Event
from bbfs.sources.mcp.transport.stdio import ServerStreams, decode_aside


@dataclass(eq=False)
class Sse:
    """The streams of one server. `ending` says why the event stream ended, once it has."""

    server: McpServer
    redact: Redactor
    max_message: int
    login: Login
    ending: BbfsError | None = field(default=None, init=False)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[ServerStreams]:
        """The streams of the server. Raises BbfsError."""
        http = Http(self.server, self.redact, self.max_message, self.login)
        incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        async with http.client:
            with incoming, read_stream, write_stream, outgoing:
                async with trio.open_nursery() as nursery:
                    endpoint = await nursery.start(self._read, http, incoming)
                    nursery.start_soon(self._write, http, endpoint, outgoing, incoming.clone())
                    yield read_stream, write_stream
                    nursery.cancel_scope.cancel()

    async def _read(self, http: Http, incoming: Incoming, task_status: trio.TaskStatus[str]) -> None:
        endpoint: str | None = None

        async def handle(event: Event) -> bool:
            nonlocal endpoint
            if event.type == "endpoint" and endpoint is None:
                endpoint = urljoin(http.url, event.data.decode("utf-8", "replace"))
                if origin(httpx2.URL(endpoint)) != origin(httpx2.URL(http.url)):
                    raise ProtocolViolation("the server names an endpoint of another origin")
                task_status.started(endpoint)
            elif event.type == "message":
                for message in await decode_aside(event.data) or ():
                    if not await deliver(incoming, message):
                        return True
            return False

        with incoming:
            try:
                async with http.exchange("GET", http.url, {"accept": "text/event-stream"}) as response:
                    if response.status_code >= 400:
                        error = await http.refusal(response, had_session=False)
                        raise Faulty(HttpFault("status", error.message, response.status_code))
                    if not is_event_stream(response):
                        raise Faulty(HttpFault("format", "the server did not open an event stream"))
                    await http.events(response, handle)
                self.ending = Unreachable("the server closed the event stream")
            except Faulty as exc:
                self.ending = exc.fault.error()
        if endpoint is None:
            raise self.ending

    async def _write(self, http: Http, endpoint: str, outgoing: Outgoing, incoming: Incoming) -> None:
        with incoming:
            async with trio.open_nursery() as nursery:
                async for item in outgoing:
                    message = item.message
                    if isinstance(message, types.JSONRPCNotification) and message.method == "notifications/initialized":
                        with trio.move_on_after(INITIALIZED_TIMEOUT):
                            await self._post(http, endpoint, message, incoming)
                    else:
                        nursery.start_soon(self._post, http, endpoint, message, incoming)

    async def _post(self, http: Http, endpoint: str, message: types.JSONRPCMessage, incoming: Incoming) -> None:
        error: types.ErrorData | None = None
        try:
            async with http.exchange("POST", endpoint, {}, message) as response:
                if response.status_code >= 400:
                    error = await http.refusal(response, had_session=True)
        except Faulty as exc:
            error = exc.fault.error_data()
        if error is not None and isinstance(message, types.JSONRPCRequest):
            await deliver(incoming, types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
