"""What both HTTP transports are made of: exchanges with one server, whose faults are values.

In the SDK's own transports a fault of one exchange ends the connection for all, the status of a refusal is lost,
requests over SSE are sent one by one and limited to 1 MiB an answer, and a notification stream that broke twice stays
silent. Here what goes wrong in an exchange becomes the answer of its one request (`faults.HttpFault`).
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus

import anyio
import httpx2
import mcp_types as types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from bbfs.errors import ProtocolViolation
from bbfs.mcp_manager.faults import HttpFault
from bbfs.mcp_manager.lines import Event, EventParser
from bbfs.mcp_manager.redaction import Redactor
from bbfs.mcp_manager.stdio import decode
from bbfs.model import McpServer

SESSION_ID = "mcp-session-id"
INITIALIZED_TIMEOUT = 5.0
"""Seconds for which `notifications/initialized` holds up what is to come after it."""
_CONNECT_TIMEOUT = 10.0
_WRITE_TIMEOUT = 30.0
_DRAIN_TIMEOUT = 1.0
"""Seconds for a stream to end by itself after the answer: then its TCP connection can serve again."""
_MAX_REDIRECTS = 3

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Outgoing = MemoryObjectReceiveStream[SessionMessage]


class Faulty(Exception):
    """An exchange that gave no answer."""

    def __init__(self, fault: HttpFault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


class Http:
    """One server's HTTP client: requests within its origin, bounded bodies, event streams.

    The methods raise Faulty. Reading has no timeout: whoever asks bounds the request. Iterators of httpx2 are never
    left half-way, since their nested generators would stay for the garbage collector: they are read out or cancelled.
    """

    def __init__(self, server: McpServer, redact: Redactor, max_message: int) -> None:
        timeout = httpx2.Timeout(None, connect=_CONNECT_TIMEOUT, write=_WRITE_TIMEOUT)
        self.client = httpx2.AsyncClient(headers=dict(server.headers), timeout=timeout)
        self.url = server.url or ""
        self._redact = redact
        self._max_message = max_message

    @asynccontextmanager
    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], message: types.JSONRPCMessage | None = None
    ) -> AsyncGenerator[httpx2.Response]:
        """A response whose body is still to be read; redirects are followed within the origin of the server only."""
        body = None if message is None else message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        response = await self._open(self.client.build_request(method, url, headers=dict(headers), json=body))
        try:
            yield response
        finally:
            with trio.move_on_after(_DRAIN_TIMEOUT, shield=True):
                await response.aclose()

    async def _open(self, request: httpx2.Request) -> httpx2.Response:
        for _ in range(_MAX_REDIRECTS + 1):
            try:
                response = await self.client.send(request, stream=True, follow_redirects=False)
            except httpx2.LocalProtocolError as exc:
                # Its text would quote the header.
                raise Faulty(HttpFault("connect", "a configured header cannot be sent")) from exc
            except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol) as exc:
                raise self._faulty("connect", "cannot connect", exc) from exc
            except (httpx2.RequestError, OSError) as exc:
                raise self._faulty("network", "connection lost", exc) from exc
            following = response.next_request
            if following is None:
                return response
            await response.aclose()
            if following.method != request.method or origin(following.url) != origin(request.url):
                where = following.url.copy_with(userinfo=b"", query=None, fragment=None)
                raise Faulty(HttpFault("status", f"HTTP {response.status_code}: a redirect to {where}, not followed"))
            request = following
        raise Faulty(HttpFault("status", "too many redirects"))

    async def body(self, response: httpx2.Response) -> bytes:
        """The whole body."""
        body = bytearray()
        with trio.CancelScope() as reading:
            try:
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > self._max_message:
                        reading.cancel()
            except httpx2.DecodingError as exc:
                raise self._faulty("format", "an answer that cannot be decoded", exc) from exc
            except (httpx2.RequestError, OSError) as exc:
                raise self._faulty("network", "connection lost", exc) from exc
        if len(body) > self._max_message:
            raise Faulty(HttpFault("format", f"the server sent a message of more than {self._max_message} bytes"))
        return bytes(body)

    async def events(self, response: httpx2.Response, handle: Callable[[Event], Awaitable[bool]]) -> bool:
        """Hand events to `handle` until it says that it has what it wants, or the stream ends (False)."""
        parser = EventParser(self._max_message)
        problem: ProtocolViolation | None = None
        done = False
        with trio.CancelScope() as reading:
            try:
                async for chunk in response.aiter_bytes():
                    if done or problem is not None:
                        continue
                    try:
                        for event in parser.feed(chunk):
                            if await handle(event):
                                done = True
                                reading.deadline = trio.current_time() + _DRAIN_TIMEOUT
                                break
                    except ProtocolViolation as exc:
                        problem = exc
                        reading.cancel()
            except (httpx2.RequestError, OSError) as exc:
                if not done:
                    raise self._faulty("network", "connection lost", exc) from exc
        if problem is not None:
            raise Faulty(HttpFault("format", str(problem)))
        return done

    async def refusal(self, response: httpx2.Response, *, had_session: bool) -> types.ErrorData:
        """What a status of 400 or more means: the JSON-RPC error in the body where it says more, else the status."""
        status = response.status_code
        messages = decode(await self.body(response)) or ()
        error = next((message.error for message in messages if isinstance(message, types.JSONRPCError)), None)
        try:
            reason = f"HTTP {status} {HTTPStatus(status).phrase}"
        except ValueError:
            reason = f"HTTP {status}"
        if error is not None:
            reason += f": {error.message[:200]}"
        forgotten = status == 404 or (status == 400 and error is not None and "session" in error.message.lower())
        if had_session and forgotten:
            return HttpFault("session", reason, status).error_data()
        if error is None or status in (401, 403, 429) or status >= 500:
            return HttpFault("status", reason, status).error_data()
        return error

    def _faulty(self, kind: str, what: str, exc: Exception) -> Faulty:
        text = self._redact(str(exc)) or type(exc).__name__
        assert kind in ("connect", "network", "format")
        return Faulty(HttpFault(kind, f"{what}: {text}"))


async def deliver(incoming: Incoming, message: types.JSONRPCMessage) -> bool:
    """Whether somebody still listens."""
    try:
        await incoming.send(SessionMessage(message))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return False
    return True


def is_event_stream(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"


def origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
