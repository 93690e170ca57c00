"""Single flight: concurrent askers for one thing cause one request, and no asker can harm another.

A request runs in a detached task of the daemon's nursery. Whoever asks waits for its end with the request's deadline as
the bound; being cancelled there (a killed `cat`) cancels only that wait (S16, S22).
"""

import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

import trio

from bbfs.model.errors import BbfsError, DeadlineExceeded, Unreachable

log = logging.getLogger(__name__)


class Flight:
    """One request under way: `done` is set when `error` or `value` is. `deadline` is in trio's clock.

    waiting: how many ask for it.
    """

    __slots__ = ("deadline", "done", "error", "scope", "value", "waiting")

    def __init__(self, deadline: float) -> None:
        self.done = trio.Event()
        self.deadline = deadline
        self.scope = trio.CancelScope(deadline=deadline)
        self.error: BbfsError | None = None
        self.value: Any = None
        self.waiting = 0


class SingleFlight:
    """The requests under way, by key. Between two awaits a task is alone, so the table needs no lock."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._flights: dict[Hashable, Flight] = {}

    def under_way(self, key: Hashable) -> bool:
        return key in self._flights

    def begin(self, key: Hashable, request: Callable[[], Awaitable[Any]], timeout: float) -> Flight:
        """The flight under `key`, started now if there is none. `timeout` is in seconds.

        `request` is called at once, and only then: what it asks for when it is called, it has in the order of calls.
        """
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = Flight(trio.current_time() + timeout)
            self._nursery.start_soon(self._run, key, request(), flight, name="flight")
        return flight

    async def do(
        self, key: Hashable, request: Callable[[], Awaitable[Any]], timeout: float, *, while_wanted: bool = False
    ) -> Any:
        """The value of `request`, shared with all who ask for `key` meanwhile.

        while_wanted: when the last who asks gives up, so does the request; who asks then begins another.

        Raises the request's BbfsError, or DeadlineExceeded. A request that ends late (an SDK that shields its clean-up)
        keeps nobody waiting: the deadline bounds the wait as well as the work.
        """
        flight = self.begin(key, request, timeout)
        flight.waiting += 1
        try:
            with trio.CancelScope(deadline=flight.deadline):
                await flight.done.wait()
        except trio.Cancelled:
            if while_wanted and flight.waiting == 1:
                flight.scope.cancel()
                self._land(key, flight)
            raise
        finally:
            flight.waiting -= 1
        if not flight.done.is_set():
            raise DeadlineExceeded(f"no answer within {timeout:g} s")
        if flight.error is not None:
            raise type(flight.error)(*flight.error.args)
        return flight.value

    async def do_alone(self, key: Hashable, request: Callable[[], Awaitable[Any]], timeout: float) -> Any:
        """As `do`, under a key that nobody else asks for: when the asker gives up, so does the request."""
        flight = self.begin(key, request, timeout)
        try:
            return await self.do(key, request, timeout)
        finally:
            flight.scope.cancel()

    async def _run(self, key: Hashable, request: Awaitable[Any], flight: Flight) -> None:
        started = trio.current_time()
        flight.error = Unreachable("the daemon is shutting down")  # what remains when the nursery is cancelled
        try:
            with flight.scope as scope:
                flight.value = await request
                flight.error = None
            if scope.cancelled_caught:
                flight.error = DeadlineExceeded(f"no answer within {round(flight.deadline - started, 1):g} s")
        except BbfsError as error:
            flight.error = type(error)(*error.args)  # without the frames of the request, and all that they hold
        except Exception as error:
            log.exception("unforeseen error in a request for %r", key)
            flight.error = BbfsError(f"unforeseen {type(error).__name__}: {error}")
        finally:
            self._land(key, flight)
            flight.done.set()

    def _land(self, key: Hashable, flight: Flight) -> None:
        """Nobody is to join a flight any more."""
        if self._flights.get(key) is flight:
            del self._flights[key]
