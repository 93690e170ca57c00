"""The connection to one server: its owner, when it is made, and how requests survive its loss.

One task, `Connection.run`, owns a connection and enters and leaves its session. Requests come from any task. Between
two awaits a task is alone, so there are no locks.
"""

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from math import inf
from random import Random
from typing import Any, Literal

import trio
from mcp.shared.exceptions import MCPError

from bbfs.model.errors import BbfsError, LoginRequired, ProtocolViolation, TooLarge, Unreachable
from bbfs.model.values import Change, McpServer, Policy, SourceState
from bbfs.runtime.changes import Bus
from bbfs.sources.content.spool import Spool
from bbfs.sources.mcp.client.client_features import ClientFeatures
from bbfs.sources.mcp.client.decode import Greeting
from bbfs.sources.mcp.client.errors import (
    ConnectionClosed,
    again,
    consequence,
    request_error,
    server_redactor,
    was_refused,
)
from bbfs.sources.mcp.client.event_pacing import Announcements
from bbfs.sources.mcp.client.session import HandshakeOnly, McpSession, connected, until_given_up, until_idle
from bbfs.sources.mcp.client.subscriptions import Interests, Subscriptions
from bbfs.sources.mcp.client.tool_entries import ParameterHeaders
from bbfs.sources.mcp.login.refresh import ClientSettings, Login
from bbfs.sources.mcp.login.token_store import TokenStore
from bbfs.sources.mcp.transport.messages import Transport
from bbfs.sources.mcp.transport.sse import Sse
from bbfs.sources.mcp.transport.stdio import Stdio
from bbfs.sources.mcp.transport.streamable_http import StreamableHttp

log = logging.getLogger("bbfs.mcp")

PING_AFTER = 30.0
"""Seconds of silence after which a server is pinged."""
_LEAST_PING_BOUND = 10.0
"""Seconds that a server has at least to answer a ping, however short the time for a request is."""
FIRST, LAST = 0.5, 60.0
"""Seconds between two tries to connect, doubling; a random part of up to half comes on top."""
GOOD_AFTER = 10.0
"""Seconds after which a connection counts as good: its loss starts the back-off from the beginning."""
FIRST_START = 6
"""Times the time for a request that a program has to answer at its first start: it may load its packages before."""


RequestKind = Literal["list", "directory", "read", "complete", "call"]
"""A page of a listing or of a directory, a read, a completion, a call of a tool."""


class Pauses:
    """The back-off of one server. Pure: the caller passes the time, in seconds of one monotonic clock."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failures = 0
        self.until = -inf
        """The end of the latest pause."""

    def failed(self, now: float) -> None:
        """Note a failed try to connect."""
        self._failures += 1
        self._pause(now)

    def lost(self, now: float, *, lived: float, answered: bool) -> None:
        """Note the loss of a connection. lived: its age in seconds. answered: whether it answered a request."""
        if lived >= GOOD_AFTER:
            self.forget()
            return
        first = self._failures == 0
        # The server works while it lasts, so it is started again, but not in a tight loop.
        self._failures = 1 if answered else self._failures + 1
        if first:
            self.until = now  # this may be an accident: the next request need not wait
        else:
            self._pause(now)

    def forget(self) -> None:
        """End the back-off: the next try is due at once."""
        self._failures, self.until = 0, -inf

    def end(self) -> None:
        """End the pause. The next one is as long as without that."""
        self.until = -inf

    def _pause(self, now: float) -> None:
        doubled = FIRST * 2 ** min(self._failures - 1, 10)
        self.until = now + min(LAST, doubled * self._random.uniform(1.0, 1.5))


@dataclass(slots=True, eq=False)
class _Attempt:
    """One try to connect. Any number of requests may wait for it."""

    done: trio.Event = field(default_factory=trio.Event)
    session: McpSession | None = None
    error: BbfsError | None = None


class Connection:
    """The connection to one server: made at the first request, kept, and made again by a request after it broke.

    A request that dies with its connection is sent once more on a new connection: reads and listings are idempotent.
    A server whose `start` is eager gets a connection without a request; other connections end when they are idle.
    counts: the requests sent to the server. changes: passes on what the server reports. greeting: the last one.
    clock: seconds, monotonic; spaces the tries to connect. max_message: bytes of one message of the server.
    ping_after: seconds of silence before a ping. spool: makes spools for long texts.
    """

    def __init__(
        self,
        server_id: str,
        server: McpServer,
        policy: Policy,
        *,
        clock: Callable[[], float],
        random: Random,
        max_message: int,
        settings: ClientSettings | None = None,
        tokens: TokenStore | None = None,
        ping_after: float = PING_AFTER,
        spool: Callable[[], Spool] = Spool,
    ) -> None:
        self.counts: Counter[RequestKind] = Counter()
        self.list_limit = server.list_limit
        self.interests = Interests(lambda uri: self.changes.notify(Change(server_id, "missed", uri)))
        self.parameter_headers: dict[str, ParameterHeaders] = {}
        self.changes: Bus[Change] = Bus()
        self.state = SourceState("idle")
        self.greeting = Greeting()
        self._id = server_id
        self._server = server
        self._timeout = policy.timeout
        self._clock = clock
        self._max_message = max_message
        self._ping_after = ping_after
        self._spool = spool
        self._redact = server_redactor(server)
        self.features = ClientFeatures(server_id, server.roots)
        self._announcements = Announcements(self.emit, self._missed_events)
        self._login = Login(server_id, server, settings or ClientSettings(), tokens, self._redact.learn)
        self._login_wanted = False
        self._refusals = 0
        self._up = self.state
        self._probe = True
        self._wanted = trio.Event()
        self._attempt = _Attempt()
        self._session: McpSession | None = None
        self._closed = trio.Event()
        self._error: BbfsError | None = None
        self._pauses = Pauses(random)
        self._connected_at: float | None = None
        self._answered = False
        self._watch: Subscriptions | None = None
        self._deaf = False
        self._stopped = False

    async def run(self) -> None:
        """Own the connection until cancelled, then close it."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._announcements.run)
                while True:
                    await self._until_wanted()
                    self.state = SourceState("connecting", self.state.reason)
                    await self._connect(self._attempt)
        finally:
            self._stopped = True
            self._session = None
            self._attempt.error = Unreachable("bbfs is shutting down")
            self._attempt.done.set()

    async def _until_wanted(self) -> None:
        """Wait for a request; for an eager server, until the end of the back-off at most."""
        with trio.CancelScope() as pause:
            if self._server.start == "eager":
                pause.deadline = trio.current_time() + max(0.0, self._pauses.until - self._clock())
            await self._wanted.wait()
        if not self._wanted.is_set():
            self._attempt = _Attempt()
            self._wanted.set()

    async def session(self) -> McpSession:
        """Return the live session. Connects, or waits for the attempt under way. Raises BbfsError.

        It raises the last error at once during the back-off after a failure, and while a program's first start takes
        long.
        """
        if self._session is not None:
            return self._session
        if self._stopped:
            raise Unreachable("bbfs is shutting down")
        if not self._wanted.is_set():
            if self._error is not None and self._clock() < self._pauses.until and not self._logged_in_since():
                raise again(self._error)
            if self._attempt.done.is_set():
                self._attempt = _Attempt()
            self._wanted.set()
        attempt = self._attempt
        await attempt.done.wait()
        if attempt.session is None:
            raise again(attempt.error or Unreachable("no connection"))
        return attempt.session

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        kind: RequestKind = "list",
        repeatable: bool = True,
        progress: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> tuple[McpSession, dict[str, Any]]:
        """Send a request; return the session it went to and its raw result. Raises BbfsError.

        It waits as long as the server takes: the caller sets a deadline. kind: the counter it adds to. repeatable:
        whether to send it again if the connection breaks before the answer. progress: as for `McpSession.request`.
        """
        for last in (False, True):
            session = await self.session()
            self.counts[kind] += 1
            refusals = self._refusals
            try:
                result = await session.request(method, params, progress)
                self._answered = True
                self._accept_login(session, refusals)
                return session, result
            except MCPError as exc:
                final = last or not (repeatable or was_refused(exc))
                error = self._after_failure(session, exc, reading=kind in ("read", "directory"), last=final)
                if error is not None:
                    raise error from exc
        raise AssertionError("the second try returns or raises")

    @property
    def logged_in(self) -> bool:
        return self._login.kept

    def end_pause(self) -> None:
        """Let the next request try to connect, however short the last failure was ago."""
        self._pauses.end()

    def emit(self, uri: str | None) -> None:
        """Report that a resource or the listing (None) changed."""
        self.changes.notify(Change(self._id, "listed" if uri is None else "changed", uri))

    def _after_failure(self, session: McpSession, exc: MCPError, *, reading: bool, last: bool) -> BbfsError | None:
        """Return the error that a failed request ends with, or None if it should be sent again."""
        error = self._clean(request_error(exc, reading=reading, cut=self._redact.cut))
        if isinstance(error, LoginRequired):
            self._want_login(error)
        match consequence(exc):
            case "retry":
                return error if last else None
            case "reconnect":
                cause = session.ending
                self._lose(session, cause or error)
                if isinstance(cause, ProtocolViolation | TooLarge):
                    return again(cause)
                return again(cause or error) if last else None
            case "disconnect":
                self._lose(session, error)
        return error

    async def _connect(self, attempt: _Attempt) -> None:
        """Connect, hold the connection until it ends, and record why it ended."""
        error: BbfsError = Unreachable("the connection closed")
        try:
            async with trio.open_nursery() as nursery:
                if self._start_bound > self._timeout:
                    nursery.start_soon(self._let_start, attempt)
                if not await self._hold(attempt, probe=self._probe):
                    await self._hold(attempt, probe=False)
                nursery.cancel_scope.cancel()
        except Exception as exc:  # noqa: BLE001 - whatever a transport raises is this server's failure and no other's
            error = self._foreseen(exc)
        self._fail(attempt, error)
        if attempt.session is not None:
            self._lose(attempt.session, error)

    @property
    def _start_bound(self) -> float:
        """The seconds that the server has to answer a greeting."""
        is_first_start = self._server.transport == "stdio" and self._connected_at is None
        return self._timeout * (FIRST_START if is_first_start else 1)

    async def _let_start(self, attempt: _Attempt) -> None:
        """Fail the requests that wait for a program whose first start takes long, but let it go on."""
        await trio.sleep(self._timeout)
        if not attempt.done.is_set():
            self._fail(attempt, self._no_answer(self._timeout, "; it may be starting still"))
            attempt.done = trio.Event()  # for the outcome
            self._pauses.until = inf

    async def _hold(self, attempt: _Attempt, *, probe: bool) -> bool:
        """Hold one connection until it ends. Return False if the server must be greeted with `initialize`."""
        bound = self._start_bound
        with trio.move_on_after(bound) as connecting:
            async with self._transport() as transport, connected(transport, self.features, self._redact.cut) as session:
                session.on_closed = lambda: self._lose(session, Unreachable("the connection closed"))
                session.on_event = self._announcements.add
                session.parameter_headers, session.lists = self.parameter_headers, self.interests.lists
                try:
                    self._probe = await session.negotiate(self._timeout, probe=probe)
                except HandshakeOnly as exc:
                    if self._connected_at is None:
                        return False
                    self._fail(attempt, self._handshake_error(session, exc))
                    return True
                except (MCPError, ProtocolViolation) as exc:
                    self._fail(attempt, self._handshake_error(session, exc))
                    return True
                except trio.Cancelled:
                    # Fail the waiting requests first: ending the server may take seconds.
                    if connecting.cancel_called:
                        self._fail(attempt, self._no_answer(bound))
                    raise
                connecting.deadline = inf
                self._watch = Subscriptions(session, self.interests, self._timeout, self._missed_events)
                self._succeed(attempt, session)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch.run)
                    nursery.start_soon(self._end_when_silent, session)
                    nursery.start_soon(self._end_when_idle, session)
                    await self._closed.wait()
                    nursery.cancel_scope.cancel()
        if connecting.cancelled_caught:
            self._fail(attempt, self._no_answer(bound))
        return True

    def _transport(self) -> AbstractAsyncContextManager[Transport]:
        """Return a new connection to the server. Raises BbfsError when it is entered."""
        of_all = (self._redact, self._max_message)
        if self._server.transport == "stdio":
            return Stdio(self._id, self._server, *of_all, self._spool).connect()
        kind = StreamableHttp if self._server.transport == "http" else Sse
        return kind(self._server, *of_all, self._login, self._spool, self._missed_events).connect()

    def _succeed(self, attempt: _Attempt, session: McpSession) -> None:
        self._connected_at = self._clock()
        self._answered = False
        self._session, self._closed = session, trio.Event()
        self.greeting = server = session.server
        self.state = self._up = SourceState("up", None, server.version, server.server, server.instructions)
        self._login_wanted = False
        self._wanted = trio.Event()
        self._error = None
        attempt.session = session
        attempt.done.set()
        if self._deaf:
            self._deaf = False
            self._missed_events()

    def _fail(self, attempt: _Attempt, error: BbfsError) -> None:
        """Fail an attempt for all requests that wait for it. No-op for an attempt that has its outcome."""
        if attempt.done.is_set():
            return
        self._pauses.failed(self._clock())
        self._down(self._clean(error))
        self._wanted = trio.Event()
        attempt.error = self._error
        attempt.done.set()

    def _lose(self, session: McpSession, error: BbfsError) -> None:
        """Give up a session that can answer no more. No-op for a session that was given up already."""
        if self._session is not session:
            return
        self._let_go(session)
        now = self._clock()
        self._pauses.lost(now, lived=now - (self._connected_at or 0), answered=self._answered)
        self._down(self._clean(session.ending or error))
        self._closed.set()

    def _let_go(self, session: McpSession) -> None:
        """Send no more requests to a session, and remember whether events may be missed without it."""
        session.on_closed = lambda: None
        self._session = None
        self._deaf = self._deaf or (self._watch is not None and self._watch.hears)

    async def _end_when_idle(self, session: McpSession) -> None:
        """End a connection that is not in use. The next request makes a new one without a back-off."""
        watch, patience = self._watch, self._server.idle_timeout
        if not patience or self._server.start == "eager" or watch is None:
            return
        await until_idle(session, patience, lambda: watch.subscribed)
        if self._session is session:
            self._let_go(session)
            self._error = None
            self._pauses.forget()
            if not self._login_wanted:
                self.state = replace(self._up, state="idle")
            log.debug("%s: not used for %g seconds, the connection is ended", self._id, patience)
            self._closed.set()

    async def _end_when_silent(self, session: McpSession) -> None:
        """Give up a connected server that does not answer a ping."""
        bound = max(self._timeout, _LEAST_PING_BOUND)
        silent = await until_given_up(
            session,
            after=self._ping_after,
            bound=bound,
            on_error=lambda exc: self._after_failure(session, exc, reading=False, last=True),
        )
        self._lose(session, Unreachable(f"the server has answered nothing for {silent:.0f} seconds"))

    def _down(self, error: BbfsError) -> None:
        repeated = self._error is not None and str(self._error) == str(error)
        self._error = error
        self.state = SourceState("down", "\n".join((str(error), *getattr(error, "__notes__", ()))))
        if isinstance(error, LoginRequired):
            self._want_login(error)
        else:
            log.log(logging.DEBUG if repeated else logging.INFO, "%s: %s", self._id, error)

    def _want_login(self, error: LoginRequired) -> None:
        """Log once that a login is needed. The session stays: a login makes it usable again."""
        if not self._login_wanted:
            log.warning("%s: %s", self._id, error)
        self._login_wanted = True
        self._refusals += 1
        self.state = SourceState("down", str(error))

    def _accept_login(self, session: McpSession, refusals: int) -> None:
        """Note that a request was answered. refusals: their number when it was sent; a later one prevails."""
        if self._login_wanted and session is self._session and refusals == self._refusals:
            self._login_wanted = False
            self.state = self._up

    def _logged_in_since(self) -> bool:
        """Return whether a login since the last refusal ends the back-off."""
        return isinstance(self._error, LoginRequired) and self._login.changed()

    def _missed_events(self) -> None:
        self.changes.notify(Change(self._id, "missed"))

    def _no_answer(self, seconds: float, state: str = "") -> BbfsError:
        return Unreachable(f"the server did not answer to a greeting within {seconds:g} seconds{state}")

    def _handshake_error(self, session: McpSession, exc: HandshakeOnly | MCPError | ProtocolViolation) -> BbfsError:
        if isinstance(exc, ProtocolViolation):
            return exc
        if isinstance(exc, HandshakeOnly | ConnectionClosed):
            return session.ending or Unreachable("the server closed the connection")
        return request_error(exc, reading=False, cut=self._redact.cut)

    def _foreseen(self, exc: Exception) -> BbfsError:
        """Return the error for an exception that ended a connection. An unexpected one is logged in full."""
        error = next((leaf for leaf in _leaves(exc) if isinstance(leaf, BbfsError)), None)
        if error is not None:
            return error
        trace = "".join(traceback.format_exception(exc))
        log.error("%s: the connection failed unexpectedly\n%s", self._id, self._redact(trace))
        return Unreachable(f"the connection failed: {type(next(_leaves(exc))).__name__}")

    def _clean(self, error: BbfsError) -> BbfsError:
        """Return the same error without the server's secrets in its text."""
        cleaned = type(error)(self._redact(str(error)))
        for note in getattr(error, "__notes__", ()):
            cleaned.add_note(note)
        return cleaned


def _leaves(exc: BaseException) -> Iterator[BaseException]:
    if isinstance(exc, BaseExceptionGroup):
        for inner in exc.exceptions:
            yield from _leaves(inner)
    else:
        yield exc
