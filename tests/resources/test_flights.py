"""Requests: one for many askers, none of whom can harm another, and as many at once as there are slots."""

import contextlib
import logging
from typing import Any

import pytest
import trio
import trio.testing
from fakes import settled
from trio.testing import MockClock

from bbfs.model import errors
from bbfs.model.errors import BbfsError, DeadlineExceeded, LoginRequired, NotFound, NotSupported, Unreachable
from bbfs.resources.flights import LATENCIES_KEPT, RequestSlots, SingleFlight


class Request:
    """A request that counts its runs and waits for `gate`."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.gate = trio.Event()
        self.runs = 0
        self.cancelled = False

    async def __call__(self) -> Any:
        self.runs += 1
        try:
            await self.gate.wait()
        except trio.Cancelled:
            self.cancelled = True
            raise
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Asker:
    """One who asks in a task of its own, with what came of it."""

    def __init__(
        self,
        flights: SingleFlight,
        request: Request,
        timeout: float = 30.0,
        key: str = "key",
        *,
        while_wanted: bool = False,
    ) -> None:
        self.scope = trio.CancelScope()
        self.outcome: Any = None
        self._ask = lambda: flights.do(key, request, timeout, while_wanted=while_wanted)

    async def __call__(self) -> None:
        with self.scope:
            try:
                self.outcome = await self._ask()
            except BbfsError as error:
                self.outcome = error


async def ask(nursery: trio.Nursery, *askers: Asker) -> None:
    for asker in askers:
        nursery.start_soon(asker)
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.semantics("S16")
async def test_other_keys_and_later_askers_get_requests_of_their_own(nursery: trio.Nursery) -> None:
    flights, request = SingleFlight(nursery), Request(1)
    request.gate.set()
    await ask(nursery, Asker(flights, request, key="a"), Asker(flights, request, key="b"))
    await ask(nursery, Asker(flights, request, key="a"))
    assert request.runs == 3


@pytest.mark.semantics("S16", "S22")
async def test_a_request_outlives_all_who_asked_and_serves_the_next(nursery: trio.Nursery) -> None:
    flights, request = SingleFlight(nursery), Request("bytes")
    gone, late = Asker(flights, request), Asker(flights, request)
    await ask(nursery, gone)
    gone.scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    await ask(nursery, late)
    assert not request.cancelled
    assert flights.under_way("key")
    request.gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert (gone.outcome, late.outcome) == (None, "bytes")
    assert request.runs == 1
    assert not flights.under_way("key")


def all_errors(of: type[BbfsError] = BbfsError) -> list[type[BbfsError]]:
    """Every class of bbfs's error tree, whichever module defines it."""
    return [of, *(error for child in of.__subclasses__() for error in all_errors(child))]


@pytest.mark.semantics("S23")
@pytest.mark.parametrize("kind", [kind for kind in all_errors() if kind.__module__ == errors.__name__])
async def test_an_error_is_shared_with_its_class_and_text(nursery: trio.Nursery, kind: type[BbfsError]) -> None:
    flights, request = SingleFlight(nursery), Request(kind("the cause"))
    askers = [Asker(flights, request) for _ in range(3)]
    await ask(nursery, *askers)
    request.gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert [type(asker.outcome) for asker in askers] == [kind] * 3
    assert {str(asker.outcome) for asker in askers} == {"the cause"}
    assert len({id(asker.outcome) for asker in askers}) == 3, "a shared exception would collect tracebacks"
    assert request.runs == 1


@pytest.mark.semantics("S22")
async def test_the_deadline_ends_wait_and_request(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    flights, request = SingleFlight(nursery), Request("late")
    started = trio.current_time()
    with pytest.raises(DeadlineExceeded, match="no answer within 5 s"):
        await flights.do("key", request, 5.0)
    assert trio.current_time() - started == 5.0
    await trio.testing.wait_all_tasks_blocked()
    assert request.cancelled
    assert not flights.under_way("key")


@pytest.mark.semantics("S22")
async def test_who_joins_late_waits_no_longer_than_the_request_may_take(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    flights, request = SingleFlight(nursery), Request("late")
    flights.begin("key", request, 5.0)
    await trio.sleep(4.0)
    with pytest.raises(DeadlineExceeded):
        await flights.do("key", request, 5.0)
    assert request.runs == 1


@pytest.mark.semantics("S22")
async def test_a_request_that_shields_its_end_keeps_nobody_waiting(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    flights = SingleFlight(nursery)

    async def stubborn() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(60.0)

    started = trio.current_time()
    for _ in range(2):
        with pytest.raises(DeadlineExceeded):
            await flights.do("key", stubborn, 5.0)
    assert trio.current_time() - started == 5.0
    await trio.sleep(60.0)
    assert not flights.under_way("key")


@pytest.mark.semantics("S27", "S23")
async def test_an_unforeseen_error_is_logged_and_ends_that_request_alone(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    flights, bad, good = SingleFlight(nursery), Request(ZeroDivisionError("oops")), Request("bytes")
    bad.gate.set()
    good.gate.set()
    askers = Asker(flights, bad, key="bad"), Asker(flights, good, key="good")
    await ask(nursery, *askers)
    assert type(askers[0].outcome) is BbfsError
    assert "ZeroDivisionError" in str(askers[0].outcome)
    assert askers[1].outcome == "bytes"
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.exc_info is not None


async def test_a_shutdown_ends_the_wait_with_an_error() -> None:
    outcome: list[BbfsError] = []

    async def wait(flights: SingleFlight, request: Request) -> None:
        try:
            await flights.do("key", request, 30.0)
        except BbfsError as error:
            outcome.append(error)

    async with trio.open_nursery() as askers:
        async with trio.open_nursery() as daemon:
            askers.start_soon(wait, SingleFlight(daemon), Request("never"))
            await trio.testing.wait_all_tasks_blocked()
            daemon.cancel_scope.cancel()
    assert [type(error) for error in outcome] == [Unreachable]


def test_every_error_can_be_told_again() -> None:
    """What is shared is made anew from its arguments, so no class may want others than the text."""
    assert LoginRequired in all_errors()
    for kind in all_errors():
        assert str(kind(*kind("the text").args)) == "the text"


@pytest.mark.semantics("S16")
async def test_a_request_that_is_made_while_it_is_wanted_ends_with_the_last_who_asks(nursery: trio.Nursery) -> None:
    flights, request = SingleFlight(nursery), Request("bytes")
    first, second = (Asker(flights, request, while_wanted=True) for _ in range(2))
    await ask(nursery, first, second)
    first.scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert not request.cancelled
    second.scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert request.cancelled
    again = Request("other bytes")
    other = Asker(flights, again, while_wanted=True)
    await ask(nursery, other)
    again.gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert (other.outcome, request.runs, again.runs) == ("other bytes", 1, 1)


async def test_places_are_given_in_the_order_of_asking() -> None:
    slots = RequestSlots(2)
    order: list[int] = []
    ends = [trio.Event() for _ in range(5)]

    async def request(number: int) -> None:
        async with asked[number]:
            order.append(number)
            await ends[number].wait()

    asked = [slots.ask() for _ in range(5)]
    async with trio.open_nursery() as requests:
        for number in (4, 3, 2, 1, 0):
            requests.start_soon(request, number)
        await settled()
        assert sorted(order) == [0, 1]
        for ended in range(5):  # one by one: trio wakes in any order those who can go on at once
            ends[ended].set()
            await settled()
    assert order[2:] == [2, 3, 4]
    assert slots.free == 2


async def test_a_request_that_gives_up_its_turn_takes_no_place() -> None:
    slots = RequestSlots(1)
    freed: list[int] = []
    slots.freed = lambda: freed.append(slots.free)
    first, second, third = (slots.ask() for _ in range(3))
    async with first:
        with trio.move_on_after(0):
            async with second:
                raise AssertionError("it is not its turn")
        assert not freed
    async with third:
        assert slots.free == 0
    assert (slots.free, freed) == (1, [1])


async def test_the_requests_of_a_source_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    slots, now = RequestSlots(2), 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)

    async def request(seconds: float, error: BaseException | None = None) -> None:
        nonlocal now
        with contextlib.suppress(BbfsError):
            async with slots.ask():
                now += seconds
                if error is not None:
                    raise error

    assert slots.tally.latency(0.5) is None
    for seconds in (1.0, 2.0, 3.0):
        await request(seconds)
    await request(9.0, Unreachable("down"))
    await request(0.5, NotFound("no such resource"))
    await request(0.5, NotSupported("no search"))
    assert (slots.tally.ended, slots.tally.failed) == (6, 1)
    assert (slots.tally.latency(0.5), slots.tally.latency(0.95), slots.tally.latency(1)) == (2.0, 9.0, 9.0)
    for _ in range(LATENCIES_KEPT):
        await request(0.25)
    assert slots.tally.latency(1) == 0.25, "those of long ago do not count"
    slots.ask().release()
    assert slots.tally.ended == 6 + LATENCIES_KEPT, "a slot that was given back had no request"
