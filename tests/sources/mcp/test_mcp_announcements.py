"""Floods of notifications: the first is told at once, the last is never lost, and memory is bounded."""

import itertools

import pytest
import trio
from trio.testing import MockClock

from bbfs.sources.mcp.client.event_pacing import FLOOD_PAUSE, MAX_AT_ONCE, PAUSE, Announcements

FLOODED = "(anything)"


class Told:
    """What was told, and when."""

    def __init__(self) -> None:
        self.events: list[tuple[float, str | None]] = []
        self.announcements = Announcements(self._note, lambda: self._note(FLOODED))

    def _note(self, uri: str | None) -> None:
        self.events.append((trio.current_time(), uri))

    def times(self, uri: str | None) -> list[float]:
        return [time for time, told in self.events if told == uri]


@pytest.fixture
async def told(nursery: trio.Nursery) -> Told:
    told = Told()
    nursery.start_soon(told.announcements.run)
    return told


@pytest.mark.semantics("S18")
async def test_first_change_is_told_at_once(told: Told, autojump_clock: MockClock) -> None:
    for uri in ("a", None, "b"):
        told.announcements.add(uri)
    assert [uri for _, uri in told.events] == ["a", None, "b"]
    await trio.sleep(10)
    assert len(told.events) == 3


@pytest.mark.semantics("S18.3")
async def test_repeated_changes_are_paced_and_the_last_is_told(told: Told, autojump_clock: MockClock) -> None:
    last = 0.0
    for _ in range(10_000):
        told.announcements.add("a")
        last = trio.current_time()
        await trio.sleep(0.0001)
    await trio.sleep(1)
    times = told.times("a")
    assert 20 <= len(times) <= 22
    assert all(later - earlier > PAUSE * 0.99 for earlier, later in itertools.pairwise(times))
    assert last <= times[-1] <= last + PAUSE * 1.01


async def test_calm_resources_do_not_wait_for_a_busy_one(told: Told, autojump_clock: MockClock) -> None:
    for number in range(20):
        told.announcements.add("busy")
        told.announcements.add(f"calm {number}")
        assert told.times(f"calm {number}") == [trio.current_time()]
        await trio.sleep(0.01)


@pytest.mark.semantics("S18")
async def test_flood_of_different_resources_is_one_event_a_second(told: Told, autojump_clock: MockClock) -> None:
    started = trio.current_time()
    for number in range(1_000_000):
        told.announcements.add(f"resource://{number}")
        if number % 1000 == 0:
            await trio.sleep(0.003)
    ended = trio.current_time()
    await trio.sleep(5)
    floods = told.times(FLOODED)
    assert len(told.events) <= MAX_AT_ONCE + len(floods)
    assert len(floods) <= (ended - started) / FLOOD_PAUSE + 2
    assert floods[0] - started < 0.1
    assert ended - 0.01 <= floods[-1] <= ended + FLOOD_PAUSE
    # Afterwards all is as before.
    before = len(told.events)
    told.announcements.add("resource://1")
    assert [uri for _, uri in told.events[before:]] == ["resource://1"]
