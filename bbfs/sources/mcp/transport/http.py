"""The base of both HTTP transports: exchanges with one server, whose faults are values.

In the SDK's own transports a fault of one exchange ends the connection for all, the status of a refusal is lost, SSE
sends requests one by one and limits an answer to 1 MiB, and a notification stream that broke twice stays silent. Here
the fault of an exchange becomes the answer to its request (`errors.HttpFault`).
"""

from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, cast

import httpx2
import mcp_types as types
import trio

from bbfs.model.errors import BbfsError, Denied, LoginRequired, ProtocolViolation, TooLarge, Unreachable
from bbfs.model.redaction import Redactor, printable
from bbfs.model.values import McpServer
from bbfs.sources.content.spool import Spool
from bbfs.sources.http.client import unguarded_client
from bbfs.sources.http.redirects import origin
from bbfs.sources.http.responses import BodyDecoder
from bbfs.sources.http.statuses import status_line
from bbfs.sources.mcp.client.errors import HttpFault
from bbfs.sources.mcp.login.refresh import Login
from bbfs.sources.mcp.transport.events import Event, EventParser
from bbfs.sources.mcp.transport.messages import Inbox, Intake, Share, Transport, encoded

SESSION_ID = "mcp-session-id"
INITIALIZED_TIMEOUT = 5.0
"""Seconds that later messages wait for `notifications/initialized`."""
_DRAIN_TIMEOUT = 1.0
"""Seconds for a stream to end by itself after the answer, so that its TCP connection can be kept."""
_REFUSAL_TIMEOUT, _REFUSAL_LIMIT = 2.0, 1 << 16
"""Seconds and bytes for reading the body of a refusal."""
_MAX_REDIRECTS = 3
_MAX_CONNECTIONS = 100
"""Connections to one server: requests, subscriptions and messages that no request waits for."""
_ASIDE_TIMEOUT, _ASIDE_AT_ONCE, _MAX_ASIDE = 10.0, 4, 64
"""Seconds for a message that no request waits for, how many are sent at once, and how many may wait."""


class Faulty(Exception):
    """An exchange without an answer."""

    def __init__(self, fault: HttpFault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


@dataclass(eq=False)
class HttpTransport:
    """The streams of one server over HTTP: requests within its origin, bounded bodies, event streams.

    spool: makes spools for long texts. on_gap: called when the notification stream resumes after an interruption.
    Requests raise Faulty. Reading has no timeout: the caller bounds the request. Iterators of httpx2 are read to their
    end or cancelled, since their nested generators would otherwise be left to the garbage collector.
    """

    server: McpServer
    redact: Redactor
    max_message: int
    login: Login
    spool: Callable[[], Spool]
    on_gap: Callable[[], None]
    ending: BbfsError | None = field(default=None, init=False)
    client: httpx2.AsyncClient = field(init=False)
    inbox: Inbox = field(default_factory=Inbox, init=False)
    nursery: trio.Nursery = field(init=False)

    def __post_init__(self) -> None:
        self._share = Share(self.spool)
        self._aside = trio.CapacityLimiter(_ASIDE_AT_ONCE)
        self._asides = 0
        self.url = self.server.url or ""

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Transport]:
        """Connect until the end of the context. Raises BbfsError."""
        self.client = unguarded_client(self.server.headers, connections=_MAX_CONNECTIONS)
        async with self.client:
            try:
                async with trio.open_nursery() as self.nursery:
                    await self._begin()
                    yield self
                    self.nursery.cancel_scope.cancel()
            finally:
                await self._end()

    async def _begin(self) -> None:
        """Do what must come before the first message. Raises BbfsError."""

    @abstractmethod
    async def send(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        """Send a message by a task of its own."""

    async def _end(self) -> None:
        """Take leave of the server, after the tasks have ended."""

    async def send_aside(self, url: str, headers: Mapping[str, str], message: Mapping[str, Any]) -> None:
        """Send a message that no request waits for. Drop it if the server does not take such messages in time."""
        if self._asides >= _MAX_ASIDE:
            return
        self._asides += 1
        try:
            with trio.move_on_after(_ASIDE_TIMEOUT), suppress(Faulty):
                async with self._aside, self.exchange("POST", url, headers, message):
                    pass
        finally:
            self._asides -= 1

    @asynccontextmanager
    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], message: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[httpx2.Response]:
        """Yield a response with its body still to be read. Follows redirects within the origin of the server only."""
        body = None if message is None else encoded(message)
        kind = {} if body is None else {"content-type": "application/json"}
        request = self.client.build_request(method, url, headers={**kind, **headers}, content=body)
        response = await self._authorised(request)
        try:
            yield response
        finally:
            with trio.move_on_after(_DRAIN_TIMEOUT, shield=True):
                await response.aclose()

    async def _authorised(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request with the token of the login, if there is one; try another token if it is refused."""
        token = await self._token(self.login.token())
        response = await self._open(_bearing(request, token))
        if response.status_code != HTTPStatus.UNAUTHORIZED or self.login.lacking(response) is not None:
            return response
        try:
            another = await self._token(self.login.another(token))
        except BaseException:
            with trio.CancelScope(shield=True):
                await response.aclose()
            raise
        if another is None:
            return response
        await response.aclose()
        return await self._open(_bearing(request, another))

    @staticmethod
    async def _token(asked: Awaitable[str | None]) -> str | None:
        try:
            return await asked
        except (Denied, Unreachable) as exc:
            status = 401 if isinstance(exc, LoginRequired) else 403 if isinstance(exc, Denied) else None
            raise Faulty(HttpFault("status", str(exc), status)) from exc

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

    async def messages(self, response: httpx2.Response, limit: int | None = None) -> list[types.JSONRPCMessage]:
        """Return the messages of a whole body. limit: in bytes, by default the limit of a message."""
        with Intake(self.max_message if limit is None else limit, self._share) as intake:

            async def take(piece: bytes) -> bool:
                await intake.feed(piece)
                return False

            await self._read(response, take)
            try:
                return await intake.end() or []
            except TooLarge as exc:
                raise Faulty(HttpFault("size", str(exc))) from exc

    async def events(
        self,
        response: httpx2.Response,
        handle: Callable[[Event, Intake], Awaitable[bool]],
        parser: EventParser | None = None,
    ) -> bool:
        """Call `handle` at each event with its data until it returns True, or return False at the end of the stream.

        parser: of this stream, for a caller that wants to know what it has seen.
        """
        parser = EventParser() if parser is None else parser
        with Intake(self.max_message, self._share) as intake:

            async def take(piece: bytes) -> bool:
                for part in parser.feed(piece):
                    if isinstance(part, bytes):
                        await intake.feed(part)
                    elif isinstance(part, int):
                        await intake.skip(part)
                    elif await handle(part, intake):
                        return True
                return False

            return await self._read(response, take)

    async def _read(self, response: httpx2.Response, take: Callable[[bytes], Awaitable[bool]]) -> bool:
        """Pass a body to `take` until it returns True, or return False at the end of the body.

        `take` may raise ProtocolViolation and TooLarge.
        """
        problem: ProtocolViolation | TooLarge | None = None
        done = False
        with trio.CancelScope() as reading:
            try:
                decoder = BodyDecoder(response.headers.get("content-encoding"))
                chunks = cast(AsyncGenerator[bytes], response.aiter_raw())
                async with aclosing(chunks):
                    async for chunk in chunks:
                        await self._share.turn()
                        if done or problem is not None:
                            continue
                        try:
                            for piece in decoder.feed(chunk):
                                if await take(piece):
                                    done = True
                                    reading.deadline = trio.current_time() + _DRAIN_TIMEOUT
                                    break
                        except (ProtocolViolation, TooLarge) as exc:
                            problem = exc
                            reading.cancel()
            except ProtocolViolation as exc:
                problem = exc
            except (httpx2.RequestError, OSError) as exc:
                if not done:
                    raise self._faulty("network", "connection lost", exc) from exc
        if problem is not None:
            raise Faulty(HttpFault("format" if isinstance(problem, ProtocolViolation) else "size", str(problem)))
        return done

    async def refusal(self, response: httpx2.Response, *, had_session: bool) -> types.ErrorData:
        """Return the error for a status of 400 or more: the JSON-RPC error of the body if it is more exact."""
        status = response.status_code
        messages = await self._said(response)
        error = next((message.error for message in messages if isinstance(message, types.JSONRPCError)), None)
        reason = status_line(status)
        if error is not None:
            reason += f": {printable(self.redact.cut(error.message, 200))}"
        forgotten = status == 404 or (status == 400 and error is not None and "session" in error.message.lower())
        lacking = self.login.lacking(response) if status in (401, 403) else None
        if lacking is not None:
            return HttpFault("status", f"{lacking} ({reason})", 403).error_data()
        if status == HTTPStatus.UNAUTHORIZED:
            return HttpFault("status", f"{self.login.needed()} ({reason})", status).error_data()
        if had_session and forgotten:
            return HttpFault("session", reason, status).error_data()
        if error is None or status in (403, 429) or status >= 500:
            return HttpFault("status", reason, status).error_data()
        return error

    async def _said(self, response: httpx2.Response) -> list[types.JSONRPCMessage]:
        """Return the messages of a refusal, or none if it is too long or does not come in time."""
        with trio.move_on_after(_REFUSAL_TIMEOUT), suppress(Faulty):
            return await self.messages(response, _REFUSAL_LIMIT)
        return []

    def _faulty(self, kind: str, what: str, exc: Exception) -> Faulty:
        text = self.redact(str(exc)) or type(exc).__name__
        assert kind in ("connect", "network", "format")
        return Faulty(HttpFault(kind, f"{what}: {text}"))


def _bearing(request: httpx2.Request, token: str | None) -> httpx2.Request:
    if token is not None:
        request.headers["authorization"] = f"Bearer {token}"
    return request


def is_event_stream(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"
