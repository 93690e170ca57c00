"""The HTTP+SSE transport of protocol 2024-11-05: one event stream for all answers, one POST a message.

`docs/sources/mcp.md` promises it: the reference server still has it (`tests/thirdparty`), and so do the servers that
many MCP hosts are configured with.
"""

from urllib.parse import urljoin

import httpx2
import mcp_types as types
import trio

from bbfs.model.errors import ProtocolViolation, Unreachable
from bbfs.sources.http.redirects import origin
from bbfs.sources.mcp.client.errors import HttpFault
from bbfs.sources.mcp.transport.events import Event
from bbfs.sources.mcp.transport.http import (
    INITIALIZED_TIMEOUT,
    Faulty,
    HttpTransport,
    Outgoing,
    is_event_stream,
)
from bbfs.sources.mcp.transport.messages import Intake

_POST_TIMEOUT = 60.0
"""Seconds for a server to take a request. The answer comes by the event stream."""


class Sse(HttpTransport):
    """The streams of one server. The connection ends with the event stream, and `ending` says why."""

    async def _begin(self, nursery: trio.Nursery, outgoing: Outgoing) -> None:
        endpoint = await nursery.start(self._hear)
        nursery.start_soon(self._write, endpoint, outgoing)

    async def _hear(self, task_status: trio.TaskStatus[str]) -> None:
        endpoint: str | None = None

        async def handle(event: Event, data: Intake) -> bool:
            nonlocal endpoint
            if event.type == "endpoint" and endpoint is None:
                endpoint = self._endpoint(data.text())
                task_status.started(endpoint)
            elif event.type == "message":
                for message in await data.end() or ():
                    if not await self.deliver(message):
                        return True
            else:
                await data.skip(len(data.text()))
            return False

        with self.incoming:
            try:
                async with self.exchange("GET", self.url, {"accept": "text/event-stream"}) as response:
                    if response.status_code >= 400:
                        error = await self.refusal(response, had_session=False)
                        raise Faulty(HttpFault("status", error.message, response.status_code))
                    if not is_event_stream(response):
                        raise Faulty(HttpFault("format", "the server did not open an event stream"))
                    await self.events(response, handle)
                self.ending = Unreachable("the server closed the event stream")
            except Faulty as exc:
                self.ending = exc.fault.error()
        if endpoint is None:
            raise self.ending

    def _endpoint(self, path: str) -> str:
        """Return the URL for messages. Raises ProtocolViolation for a URL of another origin, or for a text that is no
        URL."""
        try:
            endpoint = urljoin(self.url, path)
            is_same = origin(httpx2.URL(endpoint)) == origin(httpx2.URL(self.url))
        except (httpx2.InvalidURL, ValueError) as exc:
            raise ProtocolViolation("the server names an endpoint that is no URL") from exc
        if not is_same:
            raise ProtocolViolation("the server names an endpoint of another origin")
        return endpoint

    async def _write(self, endpoint: str, outgoing: Outgoing) -> None:
        # When nothing takes messages any more, sending one must fail: a request that is cancelled sends one.
        async with outgoing, trio.open_nursery() as nursery:
            async for item in outgoing:
                message = item.message
                if isinstance(message, types.JSONRPCRequest):
                    nursery.start_soon(self._post, endpoint, message)
                elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/initialized":
                    with trio.move_on_after(INITIALIZED_TIMEOUT):
                        await self.send_aside(endpoint, {}, message)
                else:
                    nursery.start_soon(self.send_aside, endpoint, {}, message)

    async def _post(self, endpoint: str, message: types.JSONRPCRequest) -> None:
        error: types.ErrorData | None = None
        with trio.move_on_after(_POST_TIMEOUT):
            try:
                async with self.exchange("POST", endpoint, {}, message) as response:
                    if response.status_code >= 400:
                        error = await self.refusal(response, had_session=True)
            except Faulty as exc:
                error = exc.fault.error_data()
        if error is not None:
            await self.deliver(types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
