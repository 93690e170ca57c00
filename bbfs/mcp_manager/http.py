"""The HTTP transports, Streamable HTTP and SSE, over a client whose faults fail one request and not the connection.

The SDK's Streamable HTTP transport ends as a whole when one exchange raises, and forgets the status of an error. So the
client here never raises for the network: what went wrong comes back as an HTTP response that holds a JSON-RPC error
(`faults.HttpFault`), which the SDK hands to the one request it belongs to.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urljoin

import anyio
import httpx2
import mcp_types as types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from bbfs.errors import BbfsError, ProtocolViolation, Unreachable
from bbfs.mcp_manager.faults import HttpFault
from bbfs.mcp_manager.redaction import Redactor
from bbfs.mcp_manager.stdio import ServerStreams, decode
from bbfs.model import McpServer

log = logging.getLogger("bbfs.mcp")

_CONNECT_TIMEOUT = 10.0
_WRITE_TIMEOUT = 30.0
_FAREWELL_TIMEOUT = 1.0
"""Seconds for telling a server that its session is over."""
_MAX_REDIRECTS = 3
_SESSION_ID = "mcp-session-id"


class FaultClient(httpx2.AsyncClient):
    """An HTTP client for one server. The network never makes it raise; bodies of answers to POST are read to their end.

    max_message: bytes of one answer. Reading has no timeout here: whoever asks bounds the request.
    """

    def __init__(self, server: McpServer, redact: Redactor, max_message: int) -> None:
        timeout = httpx2.Timeout(None, connect=_CONNECT_TIMEOUT, write=_WRITE_TIMEOUT)
        super().__init__(headers=dict(server.headers), timeout=timeout)
        self._redact = redact
        self._max_message = max_message
        self.session_id: str | None = None

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            response = await super().send(request, **options)
            self.session_id = response.headers.get(_SESSION_ID, self.session_id)
            if request.method != "POST" or _is_event_stream(response):
                return response
            return await self._complete(request, response)
        except httpx2.LocalProtocolError:
            return _faulty(request, HttpFault("connect", "a configured header cannot be sent"))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol) as exc:
            return _faulty(request, HttpFault("connect", self._reason("cannot connect", exc)))
        except httpx2.DecodingError as exc:
            return _faulty(request, HttpFault("format", self._reason("an answer that cannot be decoded", exc)))
        except (httpx2.RequestError, OSError) as exc:
            return _faulty(request, HttpFault("network", self._reason("connection lost", exc)))

    async def _complete(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """The same response with its body in memory and its error, if it is one, as a JSON-RPC error."""
        kept = ("content-type", "location", _SESSION_ID)
        headers = {name: response.headers[name] for name in kept if name in response.headers}
        try:
            body = b"" if response.has_redirect_location else await self._body(response)
        finally:
            await response.aclose()
        if body is None:
            reason = f"the server sent an answer of more than {self._max_message} bytes"
            return _faulty(request, HttpFault("format", reason))
        status = response.status_code
        fault = self._status_fault(request, status, body) if status >= 400 else None
        if fault is not None:
            return _faulty(request, fault)
        complete = httpx2.Response(status, headers=headers, content=body, request=request)
        complete.next_request = response.next_request
        return complete

    async def _body(self, response: httpx2.Response) -> bytes | None:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > self._max_message:
                return None
        return bytes(body)

    def _status_fault(self, request: httpx2.Request, status: int, body: bytes) -> HttpFault | None:
        """The fault that an HTTP status stands for, or None when the body is a JSON-RPC error that says more."""
        had_session = _SESSION_ID in request.headers
        answers = decode(body) or ()
        error = next((answer.error for answer in answers if isinstance(answer, types.JSONRPCError)), None)
        reason = f"HTTP {status}"
        if error is not None:
            reason += self._redact(f": {error.message[:200]}")
        if had_session and (
            status == 404 or (status == 400 and error is not None and "session" in error.message.lower())
        ):
            return HttpFault("session", f"{reason} (session lost)", status)
        if error is None or status in (401, 403, 429) or status >= 500:
            return HttpFault("status", reason, status)
        return None

    def _reason(self, what: str, exc: Exception) -> str:
        text = self._redact(str(exc))
        return f"{what}: {text}" if text else f"{what}: {type(exc).__name__}"


@asynccontextmanager
async def streamable_http(url: str, client: FaultClient, max_message: int) -> AsyncGenerator[Any]:
    """The streams of a Streamable HTTP server. The session, where there is one, is ended at the end."""
    async with client:
        try:
            async with streamable_http_client(
                url, http_client=client, terminate_on_close=False, max_sse_event_size=max_message
            ) as streams:
                yield streams
        finally:
            if client.session_id is not None:
                with trio.move_on_after(_FAREWELL_TIMEOUT, shield=True):
                    response = await client.delete(url, headers={_SESSION_ID: client.session_id})
                    log.debug("ended the session: HTTP %d", response.status_code)


class SseTransport:
    """The older HTTP+SSE transport. The SDK's own one limits a message to 1 MiB and sends requests one by one."""

    def __init__(self, url: str, client: FaultClient, max_message: int) -> None:
        self._url = url
        self._client = client
        self._max_message = max_message
        self.ending: BbfsError | None = None

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[ServerStreams]:
        """The streams of a server. Raises BbfsError."""
        incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        async with self._client:
            response = await self._open()
            try:
                with incoming, read_stream, write_stream, outgoing:
                    async with trio.open_nursery() as nursery:
                        endpoint = await nursery.start(self._read, response, incoming)
                        nursery.start_soon(self._write, endpoint, outgoing, incoming.clone())
                        yield read_stream, write_stream
                        nursery.cancel_scope.cancel()
            finally:
                with trio.move_on_after(_FAREWELL_TIMEOUT, shield=True):
                    await response.aclose()

    async def _open(self) -> httpx2.Response:
        """The event stream; redirects are followed within the origin only, since the headers are meant for it."""
        request = self._client.build_request("GET", self._url, headers={"Accept": "text/event-stream"})
        redirects = 0
        while True:
            response = await self._client.send(request, stream=True, follow_redirects=False)
            if response.status_code < 300 and _is_event_stream(response):
                return response
            await response.aclose()
            following = response.next_request
            if following is None or _origin(following.url) != _origin(request.url) or redirects == _MAX_REDIRECTS:
                raise _fault_of(response).error()
            request = following
            redirects += 1

    async def _read(
        self,
        response: httpx2.Response,
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
        task_status: trio.TaskStatus[str],
    ) -> None:
        started = False
        self.ending = Unreachable("the server closed the event stream")
        with incoming:
            try:
                async for event in httpx2.EventSource(response, max_event_size=self._max_message):
                    if event.event == "endpoint":
                        endpoint = urljoin(self._url, event.data)
                        if _origin(httpx2.URL(endpoint)) != _origin(httpx2.URL(self._url)):
                            raise ProtocolViolation("the server names an endpoint of another origin")
                        if not started:
                            task_status.started(endpoint)
                        started = True
                    elif event.event == "message" and event.data:
                        for message in decode(event.data.encode()) or ():
                            await incoming.send(SessionMessage(message))
            except httpx2.SSEError as exc:
                self.ending = ProtocolViolation(str(exc))
            except (httpx2.RequestError, OSError) as exc:
                self.ending = Unreachable(f"the event stream broke: {type(exc).__name__}")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # nobody listens any more
        if not started:
            raise self.ending

    async def _write(
        self,
        endpoint: str,
        outgoing: MemoryObjectReceiveStream[SessionMessage],
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        with incoming:
            async with trio.open_nursery() as nursery:
                async for message in outgoing:
                    if isinstance(message.message, types.JSONRPCRequest):
                        nursery.start_soon(self._post, endpoint, message.message, incoming)
                    else:
                        # In order: a server may refuse what comes before `notifications/initialized`.
                        await self._post(endpoint, message.message, incoming)

    async def _post(
        self,
        endpoint: str,
        message: types.JSONRPCMessage,
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        body = message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        request = self._client.build_request("POST", endpoint, json=body)
        response = await self._client.send(request, stream=True, follow_redirects=False)
        await response.aclose()
        if response.status_code < 300 or not isinstance(message, types.JSONRPCRequest):
            return
        error = types.JSONRPCError(jsonrpc="2.0", id=message.id, error=_fault_of(response).error_data())
        try:
            await incoming.send(SessionMessage(error))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the connection is ending, which answers the request


def _is_event_stream(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _faulty(request: httpx2.Request, fault: HttpFault) -> httpx2.Response:
    """A response that says what went wrong, in the form that the SDK hands on."""
    error = types.JSONRPCError(jsonrpc="2.0", id=None, error=fault.error_data())
    body = error.model_dump(mode="json")
    return httpx2.Response(502, json=body, request=request, extensions={"fault": fault})


def _fault_of(response: httpx2.Response) -> HttpFault:
    fault = response.extensions.get("fault")
    if isinstance(fault, HttpFault):
        return fault
    if response.has_redirect_location:
        return HttpFault("status", f"HTTP {response.status_code}: a redirect that leads elsewhere")
    if response.status_code < 300:
        return HttpFault("format", "the server did not open an event stream")
    return HttpFault("status", f"HTTP {response.status_code}", response.status_code)
