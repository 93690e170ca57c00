"""The Streamable HTTP transport, for both eras: one POST a message, its answer in the body or as an event stream."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2
import mcp_types as types
import trio
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from bbfs.model.errors import Unreachable
from bbfs.sources.mcp.client.errors import HttpFault
from bbfs.sources.mcp.transport.events import Event, EventParser
from bbfs.sources.mcp.transport.http import INITIALIZED_TIMEOUT, SESSION_ID, Faulty, HttpTransport, is_event_stream
from bbfs.sources.mcp.transport.messages import Intake

_PROTOCOL_VERSION = "mcp-protocol-version"
_FAREWELL_TIMEOUT = 1.0
"""Seconds for ending the session at the server."""
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 60.0
"""Seconds between two attempts to open the notification stream; they double."""
_LEAST_PAUSE = 0.05
"""Seconds before a stream is resumed at least, whatever the server says."""
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

    async def _answer(self, request: Mapping[str, Any], headers: Mapping[str, str], scope: trio.CancelScope) -> None:
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
        number, stream = request["id"], EventParser()
        async with self.exchange("POST", self.url, headers, request) as response:
            if request["method"] == "initialize":
                self._session_id = response.headers.get(SESSION_ID)
            if response.status_code >= 400:
                return await self.refusal(response, had_session=SESSION_ID in headers)
            if not is_event_stream(response):
                if self._pass_on(await self.messages(response), number):
                    return None
                kind = response.headers.get("content-type", "no content type")
                return HttpFault("format", f"HTTP {response.status_code} with no JSON-RPC answer ({kind})").error_data()
            if await self._answered(response, number, stream):
                return None
        return await self._resume(number, stream)

    async def _answered(self, response: httpx2.Response, number: types.RequestId, stream: EventParser) -> bool:
        """Deliver the messages of an event stream until the answer. Returns False for a stream that ends before."""

        async def handle(_: Event, data: Intake) -> bool:
            return self._pass_on(await data.end() or (), number)

        try:
            return await self.events(response, handle, stream)
        except Faulty as exc:
            if exc.fault.kind != "network" or stream.last_id is None or self._modern:
                raise
            return False

    async def _resume(self, number: types.RequestId, stream: EventParser) -> types.ErrorData | None:
        """Ask for the rest of a stream whose events have ids, until the answer has come. Returns a fault, or None.

        A server may end the stream of a request that takes long, and say in `retry` when it wants to be asked again
        (specification 2025-11-25, "Resumability and Redelivery"). There is no such thing since 2026-07-28.
        """
        while stream.last_id is not None and not self._modern:
            await trio.sleep(max(_FIRST_PAUSE if stream.retry is None else stream.retry, _LEAST_PAUSE))
            stream = EventParser(last_id=stream.last_id, retry=stream.retry)
            async with self.exchange("GET", self.url, self._headers_of_stream(stream.last_id)) as response:
                if response.status_code >= 400:
                    return await self.refusal(response, had_session=self._session_id is not None)
                if not is_event_stream(response):
                    break
                if await self._answered(response, number, stream):
                    return None
        return HttpFault("network", "the event stream ended without an answer").error_data()

    def _headers_of_stream(self, last_id: str | None) -> dict[str, str]:
        """Return the headers that ask for a stream, or for the rest of one after the event with this id."""
        found = {"accept": "text/event-stream", SESSION_ID: self._session_id, _PROTOCOL_VERSION: self._version}
        return {name: value for name, value in {**found, "last-event-id": last_id}.items() if value}

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
            with suppress(Faulty):
                async with self.exchange("GET", self.url, self._headers_of_stream(last_id)) as response:
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
            if trio.current_time() - started > _LAST_PAUSE:
                pause = _FIRST_PAUSE
            await trio.sleep(pause)
            pause = min(_LAST_PAUSE, 2 * pause)
