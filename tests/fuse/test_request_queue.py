"""Requests taken in bursts: nobody is kept waiting by them, and one worker at a time reads."""

import itertools
import os
from collections.abc import Iterator
from math import inf

import pyfuse3
import pytest
import trio
from fakes import settled

from bbfs.fuse import request_queue
from bbfs.fuse.request_queue import BRISK, BURST, Readable, Turnstile, trio_for_pyfuse3


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(("longest", "burst"), [(inf, BURST), (0.0, 1)])
async def test_what_is_there_is_taken_without_a_turn_of_the_loop_but_others_have_theirs(
    pipe: tuple[int, int], longest: float, burst: int
) -> None:
    reading, writing = pipe
    os.write(writing, b"x")
    readable, taken, seen = Readable(longest_burst=longest), 0, []

    async def other() -> None:
        while True:
            seen.append(taken)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for _ in range(6 * BURST):
            await readable.wait(reading)
            taken += 1
        nursery.cancel_scope.cancel()
    # Those who can go on in the same turn of the loop do so in any order, so two bursts may come in a row.
    turns = [0, *seen, taken]
    # The first burst has no beginning, so its time has no end.
    bursts = [later - earlier for earlier, later in itertools.pairwise(turns)][2:]
    assert burst <= max(bursts) <= 2 * (burst + 1)


async def test_what_is_not_there_is_waited_for(nursery: trio.Nursery, pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    readable, done = Readable(), trio.Event()

    async def wait() -> None:
        await readable.wait(reading)
        done.set()

    nursery.start_soon(wait)
    await settled()
    assert not done.is_set()
    os.write(writing, b"x")
    with trio.fail_after(30):
        await done.wait()


class Poll:
    """Stands in for select.poll: nothing is ever there at once."""

    def __init__(self) -> None:
        self.looks = 0

    def register(self, descriptor: int, events: int) -> None:
        """Any descriptor will do."""

    def poll(self, timeout: int) -> list[tuple[int, int]]:
        self.looks += 1
        return []


async def test_one_looks_again_and_again_only_for_who_has_just_come_back_at_once(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    reading, writing = pipe
    os.write(writing, b"x")
    poll, times = Poll(), iter([0.0, BRISK / 2, 1.0, 1.0 + 2 * BRISK, 2.0, 3.0])
    monkeypatch.setattr(request_queue.select, "poll", lambda: poll)
    monkeypatch.setattr(request_queue.trio, "current_time", lambda: next(times))
    readable, looks = Readable(looks=64), []
    for _ in range(3):
        before = poll.looks
        await readable.wait(reading)
        looks.append(poll.looks - before)
    monkeypatch.undo()
    assert looks == [1, 64, 1], "after a short wait, and after that a longer one"


async def test_a_descriptor_that_is_about_to_be_closed_ends_the_wait(pipe: tuple[int, int]) -> None:
    reading, _ = pipe
    ended = trio.Event()

    async def wait() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await Readable().wait(reading)
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await settled()
        trio.lowlevel.notify_closing(reading)
        with trio.fail_after(30):
            await ended.wait()


async def test_one_at_a_time_and_the_next_goes_on_when_the_holder_waits_for_something_else() -> None:
    turnstile, inside, order = Turnstile(), 0, []
    gate = trio.Event()

    async def worker(name: str) -> None:
        nonlocal inside
        for turn in range(3):
            async with turnstile:
                inside += 1
                assert inside == 1
                await trio.lowlevel.checkpoint()
                inside -= 1
            order.append((name, turn))
            if name == "first":
                await gate.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker, "first")
        await trio.lowlevel.checkpoint()
        nursery.start_soon(worker, "second")
        nursery.start_soon(worker, "third")
        await settled()
        assert {name for name, turn in order if turn == 2} == {"second", "third"}, "no worker is forgotten"
        gate.set()
    assert len(order) == 9


async def test_a_worker_that_is_cancelled_while_it_waits_leaves_the_turnstile_in_order() -> None:
    turnstile = Turnstile()
    async with trio.open_nursery() as nursery:
        async with turnstile:
            cancelled = trio.CancelScope()

            async def given_up() -> None:
                with cancelled:
                    async with turnstile:
                        raise AssertionError("it is held")

            nursery.start_soon(given_up)
            await settled()
            cancelled.cancel()
            await settled()
        with trio.fail_after(30):
            async with turnstile:
                pass
            async with turnstile:
                pass


async def test_a_worker_that_finds_nothing_to_read_goes_on(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    trio_module, found = trio_for_pyfuse3(), []
    readable = Readable()

    async def worker(name: str) -> None:
        """As pyfuse3's: told that there is something, which is gone when it reads."""
        await readable.wait(reading)
        if not found:
            found.append(os.read(reading, 10))
        found.append(os.read(reading, 10))

    os.write(writing, b"1")
    with trio.fail_after(30):
        async with trio_module.open_nursery() as nursery:
            nursery.start_soon(worker, "one", name="pyfuse-01")
            await settled()
            assert found == [b"1"]
            os.write(writing, b"2")
    assert found == [b"1", b"2"]


def test_pyfuse3_asks_for_nothing_else() -> None:
    """What stands in for trio is found where pyfuse3 looks; should a release look elsewhere, this tells."""
    module = trio_for_pyfuse3()
    assert vars(module).keys() >= {name for name in vars(trio) if not name.startswith("__")}
    assert module.Lock is Turnstile
    assert module.lowlevel.wait_readable is not trio.lowlevel.wait_readable
    assert module.lowlevel.current_task is trio.lowlevel.current_task
    assert hasattr(pyfuse3, "trio")
    assert isinstance(module.Lock(), Turnstile)
