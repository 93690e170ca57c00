"""HTTP clients for sources. A handler has one WebClient, which raises the errors of bbfs (S23).

    client = WebClient(source, headers={"Authorization": "Bearer …"})
    response = await client.get("https://example.com/items", params={"page": "2"})
    async with client.stream("https://example.com/large") as stream: ...

It keeps connections and the pauses that servers ask for: no cookies, no cache, no `.netrc`. It ignores the proxies of
the environment, because behind a proxy it cannot check addresses. A configured `proxy` is trusted to check them.
"""

import os
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Container, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from functools import cache
from math import inf
from typing import Any, TypedDict, Unpack, cast

import httpcore2
import httpx2
import trio

from bbfs.model.errors import BbfsError, DeadlineExceeded, Denied, InvalidUri, ProtocolViolation, Unreachable
from bbfs.model.redaction import Redactor, header_secrets, url_secrets
from bbfs.model.values import DataSource, SourceState
from bbfs.sources.bounded.turns import Turn
from bbfs.sources.http.addresses import REFUSED, PublicAddresses, literal, refuse_private
from bbfs.sources.http.heads import BoundedHeads, answered
from bbfs.sources.http.pacing import Pace, Pause, retry_after
from bbfs.sources.http.proxies import has_proxies
from bbfs.sources.http.redirects import FOLLOWED, HARMLESS, is_web, origin, redirected
from bbfs.sources.http.responses import CODINGS, Shown, WebResponse, WebStream, network_errors, shown_url
from bbfs.sources.http.statuses import STATUS_ERRORS, status_error, status_line

__all__ = ["WebClient", "WebResponse", "WebStream"]

USER_AGENT = "bbfs"
MAX_BODY = 64 << 20
"""Bytes of a decoded body, unless the source sets another limit."""
_SAFE = ("GET", "HEAD", "PROPFIND")
_MAX_REDIRECTS, _MAX_PAUSES = 20, 10
_CONNECT_TIMEOUT, _WRITE_TIMEOUT = 10.0, 30.0
_SENT = 256 << 10
"""Bytes of a body that are sent at a time."""
_KEEP_ALIVE = 15.0
"""Seconds that an idle connection is kept."""
_REFUSAL_TIMEOUT, _REFUSAL_LIMIT, _EXCERPT = 2.0, 1 << 16, 200
"""Seconds and bytes for reading the body of a refusal or a redirect; characters of it in a message."""
_KEPT_UNUSED = 5.0
"""Seconds that an idle connection to a server of the configuration is kept."""
_CORE_ERRORS = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.TimeoutException,
    httpcore2.UnsupportedProtocol,
)
_KEPT_TOO_LONG = (httpcore2.ReadError, httpcore2.WriteError, httpcore2.RemoteProtocolError)
"""Errors of a kept connection that the server has closed since the last request."""


_REPEATS = "repeats"
"""The extension of a request for the option of this name."""
_CONDITIONS = ("if-match", "if-none-match")
_UNHELD = (409, 412)
"""Statuses of a condition that does not hold; some stores answer 409 to `if-none-match`."""


class RequestOptions(TypedDict, total=False):
    """The options of a request.

    params: added to the parameters of the URL. json, content: the body; one in pieces needs the header
    `content-length`. A PUT with a condition may take the pieces twice; for other requests, `accept` has all statuses
    that send it again. repeats: a PUT without a condition changes nothing when it comes a second time. accept: statuses
    besides 2xx that do not raise. max_body: limit for the decoded body (bytes), instead of the client's. errors: by
    status, instead of `STATUS_ERRORS`.
    """

    headers: Mapping[str, str]
    params: Mapping[str, str]
    json: Any
    content: bytes | AsyncIterable[bytes]
    repeats: bool
    accept: Container[int]
    max_body: int
    errors: Mapping[int, type[BbfsError]]


class WebClient:
    """The client of one source. Any number of tasks may use it at once; the first request opens it.

    headers: sent with every request; after a redirect to another origin only the harmless ones. allow_private: allow
    connections to addresses that are not public. max_body: limit for a decoded body (bytes). per_second: limit for the
    requests to one origin in a second. secrets: redacted in messages, as are the source's `auth` and the values of
    headers. proxy: URL of an HTTP proxy for all requests.

    The caller's cancel scopes bound a request. The client also gives up a server that sends nothing for the source's
    `timeout`.
    """

    def __init__(
        self,
        source: DataSource,
        *,
        headers: Mapping[str, str] | None = None,
        allow_private: bool = False,
        max_body: int = MAX_BODY,
        per_second: float | None = None,
        secrets: AbstractSet[str] = frozenset(),
        proxy: str | None = None,
    ) -> None:
        self._headers = httpx2.Headers({"user-agent": USER_AGENT, "accept": "*/*", "accept-encoding": CODINGS})
        self._headers.update(headers)
        self._timeout = source.policy.timeout
        self._allow_private = allow_private
        self._max_body = max_body
        self._interval = 1 / per_second if per_second else 0.0
        self._proxy = proxy
        configured = {key: value for key, value in (headers or {}).items() if key.lower() not in HARMLESS}
        found = {*secrets, *source.auth.values(), *header_secrets(configured), *(url_secrets(proxy) if proxy else ())}
        self._redact = Redactor(found)
        self._paces: dict[str, Pace] = {}
        self._pool: httpcore2.AsyncConnectionPool | None = None
        self._closed = False
        self._state = SourceState("idle")

    @property
    def state(self) -> SourceState:
        """`down` after a request that no server has answered, `up` after one that was answered, whatever it said."""
        return self._state

    async def get(self, url: str, **options: Unpack[RequestOptions]) -> WebResponse:
        """Return the whole answer to a GET. Raises BbfsError."""
        return await self.request("GET", url, **options)

    async def request(self, method: str, url: str, **options: Unpack[RequestOptions]) -> WebResponse:
        """Return the whole answer to a request, redirects followed. Raises BbfsError."""
        async with self.stream(url, method, **options) as stream:
            return WebResponse(stream.status, stream.url, stream.headers, await stream.read())

    @asynccontextmanager
    async def stream(
        self, url: str, method: str = "GET", **options: Unpack[RequestOptions]
    ) -> AsyncGenerator[WebStream]:
        """Yield the answer to a request, redirects followed, with the body still to be read. Raises BbfsError."""
        stream: WebStream | None = None
        try:
            request = self._request(method, url, options)
            limit, errors = options.get("max_body", self._max_body), options.get("errors", STATUS_ERRORS)
            stream = await self._answer(request, options.get("accept", ()), limit, errors)
            yield stream
        except BbfsError as exc:
            raise type(exc)(self._redact(str(exc))) from exc
        finally:
            if stream is not None:
                await stream.aclose()

    def slow_down(self, url: str, seconds: float) -> None:
        """Send requests to the origin of a URL at least so many seconds apart (`Crawl-delay` of a robots.txt)."""
        pace = self._pace(httpx2.URL(url))
        pace.interval = max(pace.interval, seconds)

    async def aclose(self) -> None:
        """Close all connections. Requests under way, and later ones, raise Unreachable."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    # -- one request -------------------------------------------------------------------------------------------------

    def _request(self, method: str, url: str, options: RequestOptions) -> httpx2.Request:
        headers = self._headers.copy()
        headers.update(options.get("headers"))
        try:
            parsed = httpx2.URL(url)
            if not is_web(parsed):
                raise InvalidUri(f"{shown_url(url)}: neither http nor https")
            if parsed.userinfo:
                raise InvalidUri(f"{shown_url(url)}: user and password belong in the source's auth, not in a URL")
            if params := options.get("params"):
                parsed = parsed.copy_merge_params(dict(params))
            return httpx2.Request(
                method,
                parsed,
                headers=headers,
                json=options.get("json"),
                content=options.get("content"),
                extensions={_REPEATS: options.get("repeats", False)},
            )
        except (httpx2.InvalidURL, UnicodeEncodeError) as exc:
            raise InvalidUri(f"{shown_url(url)}: cannot be asked for") from exc

    async def _answer(
        self, request: httpx2.Request, accept: Container[int], limit: int, errors: Mapping[int, type[BbfsError]]
    ) -> WebStream:
        """Return the first answer with a 2xx or accepted status, after redirects and pauses."""
        await trio.lowlevel.checkpoint()  # raises if cancelled: then the deadline is in the past
        deadline = min(trio.current_effective_deadline(), trio.current_time() + self._timeout)
        redirects = pauses = 0
        while True:
            stream = await self._paced(request, deadline, limit)
            if stream.status in accept or 200 <= stream.status < 300:
                return stream
            try:
                said = await _said(stream)
                if stream.status in FOLLOWED and "location" in stream.headers:
                    redirects += 1
                    if redirects > _MAX_REDIRECTS:
                        raise ProtocolViolation(f"{shown_url(request.url)}: more than {_MAX_REDIRECTS} redirects")
                    request = redirected(request, stream.status, stream.headers["location"])
                    continue
                pause = retry_after(stream.headers, time.time()) if stream.status in (429, 503) else None
                if pause is not None:
                    pauses += 1
                    self._pace(request.url).pause(Pause(trio.current_time() + pause, stream.status))
                    if pauses <= _MAX_PAUSES:
                        continue
                raise self._refusal(request, stream, said, errors)
            finally:
                await stream.aclose()

    async def _paced(self, request: httpx2.Request, deadline: float, limit: int) -> WebStream:
        """Wait for this request's turn, then send it."""
        pace = self._pace(request.url)
        due: float | None = pace.turn(trio.current_time(), deadline)
        while due is not None:
            await trio.sleep_until(due)
            due = pace.paused(trio.current_time(), deadline)  # another request may have got a pause meanwhile
        return await self._sent(request, limit)

    async def _sent(self, request: httpx2.Request, limit: int) -> WebStream:
        """Send a request; repeat it once if it may be and a kept connection was closed (RFC 9110, section 9.2.2).

        A condition that does not hold the second time says nothing: the server may have obeyed the first request. Then
        the error of the first one is raised.
        """
        what = Shown(request.url, request.method)
        first: BbfsError | None = None
        while True:
            try:
                with network_errors(what):
                    response = await answered(self._opened(request.url), self._to_send(request))
            except (Unreachable, DeadlineExceeded) as exc:
                is_left = isinstance(exc, Unreachable) and isinstance(exc.__cause__, _KEPT_TOO_LONG)
                if is_left and first is None and _may_repeat(request):
                    first = exc
                    continue
                self._state = SourceState("down", reason=self._redact(str(exc)))
                raise
            self._state = SourceState("up")
            stream = WebStream(response, str(request.url), limit)
            if first is not None and request.method not in _SAFE and response.status in _UNHELD:
                await stream.aclose()
                raise first
            return stream

    def _to_send(self, request: httpx2.Request) -> httpcore2.Request:
        wait = self._timeout
        bounds = {"connect": min(_CONNECT_TIMEOUT, wait), "read": wait, "write": wait, "pool": wait}
        return _core_request(request, {"timeout": bounds}, _body_of(request))

    def _opened(self, url: httpx2.URL) -> httpcore2.AsyncConnectionPool:
        if self._closed:
            raise Unreachable("the source is closed")
        if self._proxy is not None and not self._allow_private:
            # Only the proxy resolves names.
            address = literal(url.host)
            refuse_private(url.host, () if address is None else (address,))
            if url.host.rstrip(".").lower().rpartition(".")[2] == "localhost":
                raise Denied(f"{url.host}: this machine, {REFUSED}")
        if self._pool is None:
            self._pool = self._made()
        return self._pool

    def _made(self) -> httpcore2.AsyncConnectionPool:
        # As many connections as requests in flight, which `concurrency` of the source bounds.
        context = _certificates()
        if self._proxy is None:
            guard = BoundedHeads() if self._allow_private else PublicAddresses(BoundedHeads())
            return httpcore2.AsyncConnectionPool(
                context, max_connections=None, keepalive_expiry=_KEEP_ALIVE, network_backend=guard
            )
        proxy = httpx2.Proxy(self._proxy)
        return httpcore2.AsyncHTTPProxy(
            str(proxy.url), proxy.raw_auth, ssl_context=context, max_connections=None, keepalive_expiry=_KEEP_ALIVE
        )

    def _pace(self, url: httpx2.URL) -> Pace:
        return self._paces.setdefault(origin(url), Pace(self._interval))

    def _refusal(
        self, request: httpx2.Request, stream: WebStream, said: bytes, errors: Mapping[int, type[BbfsError]]
    ) -> BbfsError:
        """Return the error for an unaccepted status, with the beginning of the body."""
        status = stream.status
        text = f"{request.method} {shown_url(request.url)}: {status_line(status)}"
        kind = stream.headers.get("content-type", "")
        if said and "html" not in kind and ("text" in kind or "json" in kind or "xml" in kind):
            excerpt = self._redact.cut(said.decode("utf-8", "replace"), _EXCERPT)
            text += ": " + " ".join("".join(c if c.isprintable() else " " for c in excerpt).split())
        return status_error(status, errors)(text)


def unguarded_client(
    headers: Mapping[str, str] | None = None, *, timeout: float | None = None, connections: int = 10
) -> httpx2.AsyncClient:
    """Return a client for a server of the configuration. It connects to any address and uses the system's proxies.

    It does not limit bodies and does not follow redirects. headers: sent with every request. timeout: seconds that the
    server may send nothing; None leaves it to the caller to bound the requests. connections: at once, all of them kept.
    """
    wait = httpx2.Timeout(timeout, connect=min(_CONNECT_TIMEOUT, timeout or inf), write=timeout or _WRITE_TIMEOUT)
    merged = httpx2.Headers({"user-agent": USER_AGENT})
    merged.update(headers)
    merged["accept-encoding"] = CODINGS
    if has_proxies():
        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=None)
        return httpx2.AsyncClient(headers=merged, timeout=wait, limits=limits)
    return httpx2.AsyncClient(headers=merged, timeout=wait, transport=_Transport(BoundedHeads(), connections))


def guarded_client(*, timeout: float) -> httpx2.AsyncClient:
    """Return a client like `unguarded_client` for URLs that a stranger names: it connects to public addresses only.

    Its requests raise Denied for other addresses. If the environment has proxies it uses them, since only they can
    resolve names there. They are trusted to check addresses.
    """
    if has_proxies():
        return unguarded_client(timeout=timeout)
    wait = httpx2.Timeout(timeout, connect=min(_CONNECT_TIMEOUT, timeout))
    headers = {"user-agent": USER_AGENT, "accept-encoding": CODINGS}
    return httpx2.AsyncClient(headers=headers, timeout=wait, transport=_Transport(PublicAddresses(BoundedHeads()), 10))


def _certificates() -> ssl.SSLContext:
    """Return the context with the certificates of the authorities. Loading them takes 20 ms, so clients share it."""
    return _loaded_from(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _loaded_from(*_places: str | None) -> ssl.SSLContext:
    return httpx2.create_ssl_context()  # it looks at these places


class _Transport(httpx2.AsyncBaseTransport):
    """A transport with a network back end of its own. connections: at once; all of them are kept."""

    def __init__(self, backend: httpcore2.AsyncNetworkBackend, connections: int) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            _certificates(), max_connections=connections, keepalive_expiry=_KEPT_UNUSED, network_backend=backend
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        with _errors_of_httpx():
            response = await answered(self._pool, _core_request(request, request.extensions, request.stream))
        return httpx2.Response(
            response.status, headers=response.headers, stream=_Body(response), extensions=response.extensions
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx2.AsyncByteStream):
    """The body of an answer."""

    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _errors_of_httpx():
            stream = cast(AsyncGenerator[bytes], aiter(cast(AsyncIterable[bytes], self._response.stream)))
            turn = Turn()
            async with aclosing(stream) as chunks:
                async for chunk in chunks:
                    await turn.give_way()  # the parser may have thousands at hand
                    yield chunk

    async def aclose(self) -> None:
        await self._response.aclose()


@contextmanager
def _errors_of_httpx() -> Iterator[None]:
    """Raise the errors of httpcore2 as the errors of httpx2 with the same names."""
    try:
        yield
    except _CORE_ERRORS as exc:
        raise getattr(httpx2, type(exc).__name__)(str(exc)) from exc


def _core_request(request: httpx2.Request, extensions: Mapping[str, Any], content: Any) -> httpcore2.Request:
    url = request.url
    return httpcore2.Request(
        request.method,
        httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=request.headers.raw,
        content=content,
        extensions=dict(extensions),
    )


def _body_of(request: httpx2.Request) -> Any:
    """Return the body in pieces: the time-out is for each of them, so a slow line has time for a large one."""
    if not isinstance(request.stream, httpx2.ByteStream):
        return request.stream
    body = request.content
    if len(body) <= _SENT:
        return body or None
    return _pieces(body)


def _may_repeat(request: httpx2.Request) -> bool:
    """Return whether a request changes nothing, or does not when it comes a second time."""
    is_guarded = request.extensions.get(_REPEATS) or any(name in request.headers for name in _CONDITIONS)
    return request.method in _SAFE or (request.method == "PUT" and bool(is_guarded))


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(body), _SENT):
        yield body[begin : begin + _SENT]


async def _said(stream: WebStream) -> bytes:
    """Return the beginning of the body of a refusal or a redirect, or less if it does not come in time."""
    said = bytearray()
    with trio.move_on_after(_REFUSAL_TIMEOUT), suppress(BbfsError):
        async for piece in stream:
            said += piece
            if len(said) >= _REFUSAL_LIMIT:
                break
    return bytes(said[:_REFUSAL_LIMIT])
