"""Requests to the sources: single flight, and the request slots that bound them.

A request runs in a detached task of the daemon's nursery. Its callers wait for it until its deadline. Cancelling a
caller (a killed `cat`) cancels only that wait (S16, S22).

The slots of a source are given in the order of asking. Readahead takes free slots only, so it comes after everything
that a program waits for. Between two awaits a task is alone: there is no lock.
"""

import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from math import inf
from typing import Any

import trio

from bbfs.model.errors import BbfsError, Busy, DeadlineExceeded, NotFound, NotSupported, Unreachable

log = logging.getLogger(__name__)

WAITERS_PER_SOURCE = 400
"""Programs that may wait for one source at once, far fewer than the daemon serves, so a hung one starves no other."""
LATENCIES_KEPT = 256
"""Ended requests of a source whose durations are kept."""


class Flight:
    """A request under way. `done` is set when `error` or `value` is. timeout: seconds from its beginning. deadline: in
    trio's clock. waiting: callers. cut: the error of all flights of its source, once that has ended.
    """

    __slots__ = ("cut", "deadline", "done", "error", "scope", "timeout", "value", "waiting")

    def __init__(self, timeout: float) -> None:
        self.done = trio.Event()
        self.timeout = timeout
        self.deadline = trio.current_time() + timeout
        self.scope = trio.CancelScope(deadline=self.deadline)
        self.error: BbfsError | None = None
        self.cut: BbfsError | None = None
        self.value: Any = None
        self.waiting = 0


class SingleFlight:
    """The requests under way to one source, by key."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._flights: dict[Hashable, Flight] = {}
        self._end: BbfsError | None = None

    def under_way(self, key: Hashable) -> bool:
        return key in self._flights

    def begin(self, key: Hashable, request: Callable[[], Awaitable[Any]], timeout: float) -> Flight:
        """Return the flight under `key`; start it if there is none. timeout: seconds.

        A new flight calls `request` at once, so slots that it asks for there are given in the order of calls. After
        `end`, the flight has ended with its error.
        """
        if self._end is not None:
            flight = Flight(timeout)
            _cut(flight, self._end)
            return flight
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = Flight(timeout)
            self._nursery.start_soon(self._run, key, request(), flight, name="flight")
        return flight

    async def do(
        self,
        key: Hashable,
        request: Callable[[], Awaitable[Any]],
        timeout: float,
        *,
        while_wanted: bool = False,
        deadline: float = inf,
    ) -> Any:
        """Return the value of `request`, shared with all callers that use `key` meanwhile. See `outcome`."""
        flight = self.begin(key, request, timeout)
        return await self.outcome(key, flight, while_wanted=while_wanted, deadline=deadline)

    async def outcome(self, key: Hashable, flight: Flight, *, while_wanted: bool = False, deadline: float = inf) -> Any:
        """Return the value of the flight that was begun under a key, once it has ended.

        while_wanted: cancel the request with its last caller; the next caller begins another one. deadline: in trio's
        clock, of a caller that has waited before.

        Raises the request's BbfsError, or DeadlineExceeded. The deadline bounds the wait as well as the work, since a
        request may end late (an SDK that shields its clean-up).
        """
        flight.waiting += 1
        try:
            with trio.CancelScope(deadline=min(flight.deadline, deadline)):
                await flight.done.wait()
        except trio.Cancelled:
            if while_wanted and flight.waiting == 1:
                flight.scope.cancel()
                self._land(key, flight)
            raise
        finally:
            flight.waiting -= 1
        if not flight.done.is_set():
            raise DeadlineExceeded(f"no answer within {round(flight.timeout, 1):g} s")
        if flight.error is not None:
            raise type(flight.error)(*flight.error.args)
        return flight.value

    def end(self, error: BbfsError) -> None:
        """Cancel all flights, and let no other one begin: callers get the error at once, however long a request takes
        to be cancelled."""
        self._end = error
        for flight in self._flights.values():
            _cut(flight, error)
        self._flights.clear()

    async def _run(self, key: Hashable, request: Awaitable[Any], flight: Flight) -> None:
        started = trio.current_time()
        flight.error = Unreachable("the daemon is shutting down")  # stays if the nursery is cancelled
        try:
            with flight.scope as scope:
                flight.value = await request
                flight.error = None
            if scope.cancelled_caught:
                flight.error = DeadlineExceeded(f"no answer within {round(flight.deadline - started, 1):g} s")
        except BbfsError as error:
            flight.error = type(error)(*error.args)  # the raised one would keep the frames alive
        except Exception as error:
            log.exception("unforeseen error in a request for %r", key)
            flight.error = BbfsError(f"unforeseen {type(error).__name__}: {error}")
        finally:
            self._land(key, flight)
            flight.error = flight.cut or flight.error
            flight.done.set()

    def _land(self, key: Hashable, flight: Flight) -> None:
        """Close a flight to further callers."""
        if self._flights.get(key) is flight:
            del self._flights[key]


def _cut(flight: Flight, error: BbfsError) -> None:
    """End a flight before its request has ended."""
    flight.cut = flight.error = error
    flight.scope.cancel()
    flight.done.set()


class Waiters:
    """Counts the programs that wait for a source, so that a hung one cannot block the daemon. Raises Busy."""

    def __init__(self, source_id: str) -> None:
        self.count = 0
        self._source_id = source_id

    def __enter__(self) -> None:
        if self.count >= WAITERS_PER_SOURCE:
            raise Busy(f"{self._source_id}: {WAITERS_PER_SOURCE} programs are waiting for it already")
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1


class RequestTally:
    """How many requests of one source have ended, how many of them have failed, and how long the last ones took.

    seconds: of all of them together. A request that was given up has failed. The answer that there is no such resource,
    or no such ability (a search of a source that has none), is no failure.
    """

    def __init__(self) -> None:
        self.ended = self.failed = 0
        self.seconds = 0.0
        self._latencies: deque[float] = deque(maxlen=LATENCIES_KEPT)

    def note(self, seconds: float, error: BaseException | None) -> None:
        """Count a request that took so many seconds with its slot."""
        self.ended += 1
        self.seconds += seconds
        self.failed += error is not None and not isinstance(error, NotFound | NotSupported)
        self._latencies.append(seconds)

    def latency(self, part: float) -> float | None:
        """Return the seconds within which that part (0 to 1) of the last requests ended; None before the first one."""
        ordered = sorted(self._latencies)
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else None


class RequestSlot:
    """The slot of one request, or its turn to get one. Enter it once (`async with`), or release it without.

    counts: whether the tally has the request. One that turns out to ask the source nothing is none.
    """

    __slots__ = ("_began", "_slots", "_turn", "counts")

    def __init__(self, slots: "RequestSlots", turn: trio.Event | None) -> None:
        self._slots = slots
        self._turn = turn
        self._began = 0.0
        self.counts = True

    async def __aenter__(self) -> None:
        if self._turn is not None:
            try:
                await self._turn.wait()
            except trio.Cancelled:
                self.release()
                raise
        self._began = time.monotonic()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.counts:
            self._slots.tally.note(time.monotonic() - self._began, error)
        self.release()

    def release(self) -> None:
        """Give back the slot, or the turn."""
        self._slots.release(self._turn)


class RequestSlots:
    """The slots of one source: as many requests at once as `total` says.

    freed: called when a slot is free and no request waits for it. tally: of the requests that had a slot.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.tally = RequestTally()
        self.freed: Callable[[], None] = lambda: None
        self._taken = 0
        self._waiting: deque[trio.Event] = deque()

    @property
    def free(self) -> int:
        return self.total - self._taken

    def ask(self) -> RequestSlot:
        """Return a slot, or a turn where none is free."""
        if self._taken < self.total:
            self._taken += 1
            return RequestSlot(self, None)
        turn = trio.Event()
        self._waiting.append(turn)
        return RequestSlot(self, turn)

    def release(self, turn: trio.Event | None) -> None:
        """Take back a slot, or a turn that has not come. A slot goes to the request that has waited longest."""
        if turn is not None and not turn.is_set():
            self._waiting.remove(turn)
        elif self._waiting:
            self._waiting.popleft().set()
        else:
            self._taken -= 1
            self.freed()
