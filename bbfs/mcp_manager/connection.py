"""One server's connection: who owns it, when it is made, what becomes of requests when it breaks.

A connection is owned by one task, `Connection.run`, which alone enters and leaves the SDK's session (the SDK demands
that). Requests come from any task. Between two awaits a task is alone, so there are no locks.
"""

import logging
import traceback
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any

import trio
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from bbfs.errors import BbfsError, ProtocolViolation, Unreachable
from bbfs.mcp_manager.faults import again, consequence, is_closed, request_error
from bbfs.mcp_manager.redaction import Redactor
from bbfs.mcp_manager.session import HandshakeOnly, Session
from bbfs.mcp_manager.sse import Sse
from bbfs.mcp_manager.stdio import Stdio
from bbfs.mcp_manager.streamable_http import StreamableHttp
from bbfs.mcp_manager.watch import Interests, watch
from bbfs.model import McpServer, Policy, SourceEvent, SourceState

log = logging.getLogger("bbfs.mcp")

_FIRST_PAUSE, _LAST_PAUSE = 0.5, 60.0
"""Seconds between two tries to connect, doubling; a random part of up to half comes on top."""
_SETTLED = 10.0
"""Seconds after which a connection counts as a good one, and its loss starts the pauses anew."""


@dataclass(slots=True)
class RequestCounts:
    """How many requests were sent to a server: pages of listings, and reads."""

    list: int = 0
    read: int = 0


@dataclass(slots=True, eq=False)
class _Attempt:
    """One try to connect, which any number of requests may wait for."""

    done: trio.Event = field(default_factory=trio.Event)
    session: Session | None = None
    error: BbfsError | None = None


class Connection:
    """The connection to one server: made at the first request, kept, and made again by a request after it broke.

    A request that dies with its connection is tried once more on a new one: reads and listings are idempotent.
    clock: seconds, monotonic; spaces the tries to connect. max_message: bytes of one message of the server.
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
    ) -> None:
        self.counts = RequestCounts()
        self.interests = Interests()
        self.sinks: list[Callable[[SourceEvent], None]] = []
        self.state = SourceState("idle")
        self._id = server_id
        self._server = server
        self._timeout = policy.timeout
        self._clock = clock
        self._random = random
        self._max_message = max_message
        self._redact = Redactor(server)
        self._probe = True
        self._wanted = trio.Event()
        self._attempt = _Attempt()
        self._session: Session | None = None
        self._closed = trio.Event()
        self._error: BbfsError | None = None
        self._failures = 0
        self._retry_at = -inf
        self._connected_at: float | None = None
        self._stopped = False

    async def run(self) -> None:
        """Own the connection until cancelled; nothing of it is left then."""
        try:
            while True:
                await self._wanted.wait()
                self.state = SourceState("connecting", self.state.reason)
                await self._connect(self._attempt)
        finally:
            self._stopped = True
            self._session = None
            self._attempt.error = Unreachable("bbfs is shutting down")
            self._attempt.done.set()

    async def session(self) -> Session:
        """The live session. Connects, or waits for the connecting that is under way. Raises BbfsError.

        During the pause after a failure it raises what went wrong at once.
        """
        if self._session is not None:
            return self._session
        if self._stopped:
            raise Unreachable("bbfs is shutting down")
        if not self._wanted.is_set():
            if self._error is not None and self._clock() < self._retry_at:
                raise again(self._error)
            self._attempt = _Attempt()
            self._wanted.set()
        attempt = self._attempt
        await attempt.done.wait()
        if attempt.session is None:
            raise again(attempt.error or Unreachable("no connection"))
        return attempt.session

    async def request(
        self, method: str, params: dict[str, Any] | None = None, *, reading: bool = False
    ) -> tuple[Session, dict[str, Any]]:
        """A request's raw result, and the session it came from. Raises BbfsError.

        Waits for as long as the server takes: the caller bounds it. reading: whether it asks for one resource.
        """
        for last in (False, True):
            session = await self.session()
            if reading:
                self.counts.read += 1
            else:
                self.counts.list += 1
            try:
                return session, await session.request(method, params)
            except MCPError as exc:
                error = self._after_failure(session, exc, reading=reading, last=last)
                if error is not None:
                    raise error from exc
        raise AssertionError("the second try returns or raises")

    def emit(self, uri: str | None) -> None:
        """Tell the sinks that a resource changed, or the listing (None)."""
        event = SourceEvent(self._id, uri)
        for sink in self.sinks:
            try:
                sink(event)
            except Exception:
                log.exception("%s: a listener to events failed", self._id)

    def _after_failure(self, session: Session, exc: MCPError, *, reading: bool, last: bool) -> BbfsError | None:
        """The error that a failed request comes to, or None when it is worth another try."""
        error = self._clean(request_error(exc, reading=reading))
        match consequence(exc):
            case "retry":
                return error if last else None
            case "reconnect":
                cause = session.why_closed()
                self._lose(session, cause or error)
                if isinstance(cause, ProtocolViolation):
                    return again(cause)
                return again(cause or error) if last else None
            case "disconnect":
                self._lose(session, error)
        return error

    async def _connect(self, attempt: _Attempt) -> None:
        """Connect, stay connected until the connection ends, and note why it ended."""
        error: BbfsError = Unreachable("the connection closed")
        try:
            if not await self._hold(attempt, probe=self._probe):
                await self._hold(attempt, probe=False)
        except Exception as exc:  # noqa: BLE001 - whatever a transport raises is this server's failure and no other's
            error = self._foreseen(exc)
        self._fail(attempt, error)
        if attempt.session is not None:
            self._lose(attempt.session, error)

    async def _hold(self, attempt: _Attempt, *, probe: bool) -> bool:
        """Hold one connection from its making to its end. False when the server must be greeted with `initialize`."""
        with trio.move_on_after(self._timeout) as connecting:
            async with self._transport() as (streams, why_closed), Session(streams, why_closed) as session:
                session.on_closed = lambda: self._lose(session, Unreachable("the connection closed"))
                session.on_event = self.emit
                try:
                    self._probe = await session.negotiate(self._timeout, probe=probe)
                except HandshakeOnly as exc:
                    if self._connected_at is None:
                        return False
                    self._fail(attempt, self._handshake_error(session, exc))
                    return True
                except (MCPError, ValidationError, RuntimeError) as exc:
                    self._fail(attempt, self._handshake_error(session, exc))
                    return True
                except trio.Cancelled:
                    # Those who wait are told before the server is taken down, which may take seconds.
                    if connecting.cancel_called:
                        self._fail(attempt, self._no_answer())
                    raise
                connecting.deadline = inf
                self._succeed(attempt, session)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(watch, session, self.interests, self._timeout, self._missed_events)
                    await self._closed.wait()
                    nursery.cancel_scope.cancel()
        if connecting.cancelled_caught:
            self._fail(attempt, self._no_answer())
        return True

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[tuple[Any, Callable[[], BbfsError | None]]]:
        """The streams of a fresh connection, and a function that says why it ended. Raises BbfsError."""
        match self._server.transport:
            case "stdio":
                transport = Stdio(self._id, self._server, self._redact, self._max_message)
            case "http":
                transport = StreamableHttp(self._server, self._redact, self._max_message)
            case "sse":
                transport = Sse(self._server, self._redact, self._max_message)
        async with transport.connect() as streams:
            yield streams, lambda: transport.ending

    def _succeed(self, attempt: _Attempt, session: Session) -> None:
        reconnected = self._connected_at is not None
        self._connected_at = self._clock()
        self._session, self._closed = session, trio.Event()
        info = session.server_info
        name = self._redact(f"{info.name} {info.version}".strip()) if info else None
        self.state = SourceState("up", None, session.protocol_version, name)
        self._wanted = trio.Event()
        attempt.session = session
        attempt.done.set()
        if reconnected:
            self.emit(None)

    def _fail(self, attempt: _Attempt, error: BbfsError) -> None:
        """Tell all who wait that this attempt came to nothing. No-op on one that has its outcome."""
        if attempt.done.is_set():
            return
        self._failures += 1
        self._down(self._clean(error), self._pause())
        self._wanted = trio.Event()
        attempt.error = self._error
        attempt.done.set()

    def _lose(self, session: Session, error: BbfsError) -> None:
        """Give up a session that can answer no more. No-op on one given up already."""
        if self._session is not session:
            return
        self._session = None
        lived = self._clock() - (self._connected_at or 0)
        self._failures = 0 if lived >= _SETTLED else self._failures + 1
        # A first loss may be an accident: the next request need not wait.
        self._down(self._clean(session.why_closed() or error), self._pause() if self._failures > 1 else 0)
        self._closed.set()

    def _down(self, error: BbfsError, pause: float) -> None:
        self._error = error
        self._retry_at = self._clock() + pause
        self.state = SourceState("down", "\n".join((str(error), *getattr(error, "__notes__", ()))))
        log.info("%s: %s", self._id, error)

    def _pause(self) -> float:
        """Seconds until the next try to connect."""
        doubled = _FIRST_PAUSE * 2 ** min(self._failures - 1, 10)
        return min(_LAST_PAUSE, doubled * self._random.uniform(1.0, 1.5))

    def _missed_events(self) -> None:
        self.emit(None)

    def _no_answer(self) -> BbfsError:
        return Unreachable(f"the server did not answer to a greeting within {self._timeout:g} seconds")

    def _handshake_error(self, session: Session, exc: Exception) -> BbfsError:
        if isinstance(exc, HandshakeOnly) or (isinstance(exc, MCPError) and is_closed(exc)):
            return session.why_closed() or Unreachable("the server closed the connection")
        if isinstance(exc, MCPError):
            return request_error(exc, reading=False)
        if isinstance(exc, ValidationError):
            return ProtocolViolation("the server's answer to a greeting is invalid")
        return ProtocolViolation(str(exc))

    def _foreseen(self, exc: Exception) -> BbfsError:
        """The error that the end of a connection by an exception means; what nobody foresaw is logged in full."""
        error = next((leaf for leaf in _leaves(exc) if isinstance(leaf, BbfsError)), None)
        if error is not None:
            return error
        trace = "".join(traceback.format_exception(exc))
        log.error("%s: the connection failed unexpectedly\n%s", self._id, self._redact(trace))
        return Unreachable(f"the connection failed: {type(next(_leaves(exc))).__name__}")

    def _clean(self, error: BbfsError) -> BbfsError:
        """The same error with no secret of the server in its text."""
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
