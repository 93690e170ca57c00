"""The HTTP+SSE transport of protocol 2024-11-05: one event stream for all answers, one POST a message.

`docs/sources/mcp.md` promises it: the reference server still has it (`tests/thirdparty`), and so do the servers that
many MCP hosts are configured with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin

import httpx2
import mcp_types as types
import trio

from bbfs.model.errors import ProtocolViolation, Unreachable
from bbfs.sources.http.redirects import origin
from bbfs.sources.mcp.client.errors import HttpFault
from bbfs.sources.mcp.transport.events import Event
from bbfs.sources.mcp.transport.http import INITIALIZED_TIMEOUT, Faulty, HttpTransport, is_event_stream
from bbfs.sources.mcp.transport.messages import Intake

_POST_TIMEOUT = 60.0
"""Seconds for a server to take a request. The answer comes by the event stream."""


@dataclass(eq=False)
class Sse(HttpTransport):
    """The streams of one server. The connection ends with the event stream, and `ending` says why."""

    _endpoint: str = field(default="", init=False)

    async def _begin(self) -> None:
        self._endpoint = await self.nursery.start(self._hear)

    async def _hear(self, task_status: trio.TaskStatus[str]) -> None:
        endpoint: str | None = None

        async def handle(event: Event, data: Intake) -> bool:
            nonlocal endpoint
            if event.type == "endpoint" and endpoint is None:
                endpoint = self._endpoint_of(data.text())
                task_status.started(endpoint)
            elif event.type == "message":
                for message in await data.end() or ():
                    self.inbox.take(message)
            else:
                await data.skip(len(data.text()))
            return False

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
        finally:
            self.inbox.ended.set()
        if endpoint is None:
            raise self.ending

    def _endpoint_of(self, path: str) -> str:
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

    async def send(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        if "method" in message and "id" in message:
            self.nursery.start_soon(self._post, message)
        elif message.get("method") == "notifications/initialized":
            with trio.move_on_after(INITIALIZED_TIMEOUT):
                await self.send_aside(self._endpoint, {}, message)
        else:
            self.nursery.start_soon(self.send_aside, self._endpoint, {}, message)

    async def _post(self, message: Mapping[str, Any]) -> None:
        error: types.ErrorData | None = None
        with trio.move_on_after(_POST_TIMEOUT):
            try:
                async with self.exchange("POST", self._endpoint, {}, message) as response:
                    if response.status_code >= 400:
                        error = await self.refusal(response, had_session=True)
            except Faulty as exc:
                error = exc.fault.error_data()
        if error is not None:
            self.inbox.take(types.JSONRPCError(jsonrpc="2.0", id=message["id"], error=error))
