"""Turns are bounded by time, not by the number of items."""

import gc

import trio
import trio.testing

from bbfs.sources.bounded.turns import InTurns, Turn


async def runs_beside(done: trio.Event, ran: list[int]) -> None:
    """Count the turns of this task."""
    while not done.is_set():
        ran[0] += 1
        await trio.lowlevel.checkpoint()


async def test_items_that_take_their_time_let_others_run_in_between() -> None:
    done, ran, taken = trio.Event(), [0], 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runs_beside, done, ran)
        async for _ in InTurns(range(100), 0.0):
            taken += 1
        done.set()
    assert taken == 100
    assert ran[0] >= 90


async def test_quick_items_share_a_turn() -> None:
    with trio.testing.assert_no_checkpoints():
        assert [item async for item in InTurns(range(100), 60.0)] == list(range(100))
        turn = Turn(60.0)
        assert not turn.is_over
        await turn.give_way()


async def test_the_rest_of_the_items_may_be_left() -> None:
    async for item in InTurns(range(100)):
        if item == 3:
            break
    gc.collect()  # an abandoned generator would warn
