"""The Streamable HTTP transport, for both eras: one POST a message, its answer in the body or as an event stream."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
import trio
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from bbfs.model.errors import Unreachable
from bbfs.sources.mcp.client.errors import HttpFault
from bbfs.sources.mcp.transport.events import Event
from bbfs.sources.mcp.transport.http import (
    INITIALIZED_TIMEOUT,
    SESSION_ID,
    Faulty,
    HttpTransport,
    is_event_stream,
)
from bbfs.sources.mcp.transport.messages import Intake

_PROTOCOL_VERSION = "mcp-protocol-version"
_FAREWELL_TIMEOUT = 1.0
"""Seconds for ending the session at the server."""
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 60.0
"""Seconds between two attempts to open the notification stream; they double."""
_TRY_LATER = (408, 425, 429)
"""HTTP statuses that leave it open whether the server has a notification stream."""


@dataclass(eq=False)
class StreamableHttp(HttpTransport):
    """The streams of one Streamable HTTP server. Ends the session, if there is one, with the connection."""

    _session_id: str | None = field(default=None, init=False)
    _version: str | None = field(default=None, init=False)
    _exchanges: dict[types.RequestId, trio.CancelScope] = field(default_factory=dict, init=False)

    async def _end(self) -> None:
        if self._session_id is not None:
            with trio.move_on_after(_FAREWELL_TIMEOUT, shield=True), suppress(Faulty):
                async with self.exchange("DELETE", self.url, {SESSION_ID: self._session_id}):
                    pass

    async def send(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        headers = self._headers(message, headers)
        match message:
            case {"method": str(), "id": number}:
                scope = self._exchanges[number] = trio.CancelScope()
                self.nursery.start_soon(self._answer, message, headers, scope)
            case {"method": "notifications/cancelled", "params": {"requestId": number}} if self._modern:
                # Since 2026-07-28, closing the response stream is how a request is cancelled.
                if number in self._exchanges:
                    self._exchanges[number].cancel()
            case {"method": "notifications/cancelled", "params": {"requestId": number}}:
                self.nursery.start_soon(self._cancel, message, headers, self._exchanges.get(number))
            case {"method": "notifications/initialized"}:
                with trio.move_on_after(INITIALIZED_TIMEOUT):
                    await self.send_aside(self.url, headers, message)
                if self._session_id is not None:
                    self.nursery.start_soon(self._hear)
            case _:
                self.nursery.start_soon(self.send_aside, self.url, headers, message)

    @property
    def _modern(self) -> bool:
        return self._version in MODERN_PROTOCOL_VERSIONS

    def _headers(self, message: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
        given = {name.lower(): value for name, value in given.items()}
        if message.get("method") == "initialize":
            self._version = None
        self._version = given.get(_PROTOCOL_VERSION, self._version)
        headers = {"accept": "application/json, text/event-stream"}
        if self._session_id is not None:
            headers[SESSION_ID] = self._session_id
        if self._version is not None:
            headers[_PROTOCOL_VERSION] = self._version
        return headers | given

    async def _answer(
        self,
        request: Mapping[str, Any],
        headers: Mapping[str, str],
        scope: trio.CancelScope,
    ) -> None:
        """Send a request and deliver its answer or fault."""
        with scope:
            try:
                error = await self._exchange(request, headers)
            except Faulty as exc:
                error = exc.fault.error_data()
            if error is not None:
                self.inbox.take(types.JSONRPCError(jsonrpc="2.0", id=request["id"], error=error))
        if self._exchanges.get(request["id"]) is scope:
            del self._exchanges[request["id"]]

    async def _exchange(self, request: Mapping[str, Any], headers: Mapping[str, str]) -> types.ErrorData | None:
        async def handle(_: Event, data: Intake) -> bool:
            return self._pass_on(await data.end() or (), request["id"])

        async with self.exchange("POST", self.url, headers, request) as response:
            if request["method"] == "initialize":
                self._session_id = response.headers.get(SESSION_ID)
            if response.status_code >= 400:
                return await self.refusal(response, had_session=SESSION_ID in headers)
            if is_event_stream(response):
                if await self.events(response, handle):
                    return None
                return HttpFault("network", "the event stream ended without an answer").error_data()
            if self._pass_on(await self.messages(response), request["id"]):
                return None
            kind = response.headers.get("content-type", "no content type")
            return HttpFault("format", f"HTTP {response.status_code} with no JSON-RPC answer ({kind})").error_data()

    def _pass_on(self, messages: Iterable[types.JSONRPCMessage], request_id: types.RequestId) -> bool:
        """Deliver messages. Returns whether the answer to the request was among them."""
        answered = False
        for message in messages:
            if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                message.id = request_id
                answered = True
            self.inbox.take(message)
        return answered

    async def _cancel(
        self, message: Mapping[str, Any], headers: Mapping[str, str], exchange: trio.CancelScope | None
    ) -> None:
        """Notify the server, as before 2026-07-28, and then close the response even if the server does not."""
        try:
            await self.send_aside(self.url, headers, message)
        finally:
            if exchange is not None:
                exchange.cancel()

    async def _hear(self) -> None:
        """Keep the notification stream of the handshake era open, if the server has one."""
        last_id: str | None = None

        async def handle(event: Event, data: Intake) -> bool:
            nonlocal last_id
            last_id = event.id
            for message in await data.end() or ():
                self.inbox.take(message)
            return False

        pause, opened = _FIRST_PAUSE, False
        while True:
            started = trio.current_time()
            headers = {"accept": "text/event-stream", SESSION_ID: self._session_id or ""}
            headers |= {_PROTOCOL_VERSION: self._version} if self._version else {}
            headers |= {"last-event-id": last_id} if last_id else {}
            try:
                async with self.exchange("GET", self.url, headers) as response:
                    if response.status_code == 404 and opened:
                        self.ending = Unreachable("the server has forgotten the session")
                        self.inbox.ended.set()
                        return
                    if 400 <= response.status_code < 500 and response.status_code not in _TRY_LATER:
                        return
                    if response.status_code < 300 and is_event_stream(response):
                        if opened:
                            self.on_gap()  # a server that can replay events may not have kept all of them
                        opened = True
                        await self.events(response, handle)
            except Faulty:
                pass
            if trio.current_time() - started > _LAST_PAUSE:
                pause = _FIRST_PAUSE
            await trio.sleep(pause)
            pause = min(_LAST_PAUSE, 2 * pause)
