"""Turns on the event loop: work on a stranger's data gives way to other tasks after a few milliseconds.

A bound on the number of items would not do: one item of a hostile source takes a hundred times as long as a usual one.
"""

import gc
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any, TypeVar

import trio

T = TypeVar("T")
TURN = 0.002
"""Seconds of work before other tasks get their turn. An answer of another source waits for several turns."""
FROZEN_FROM = 50_000
"""Size of a listing from which the garbage collector skips it: to walk through a million rows takes it 50 ms and more,
and through a hundred thousand records 130 ms."""


class Turn:
    """The turn of one task: so many seconds from its making, and from each `give_way` that let others run."""

    def __init__(self, seconds: float = TURN) -> None:
        self._seconds = seconds
        self._since = time.perf_counter()

    @property
    def is_over(self) -> bool:
        """Return whether the task has worked as long as it may."""
        return time.perf_counter() - self._since > self._seconds

    async def give_way(self) -> None:
        """Let other tasks run if the turn is over. A checkpoint only then."""
        if self.is_over:
            await trio.lowlevel.checkpoint()
            self._since = time.perf_counter()


class InTurns(AsyncIterator[T]):
    """The items of an iterable, with turns of other tasks in between. Unlike a generator it may be left at any item."""

    def __init__(self, items: Iterable[T], seconds: float = TURN) -> None:
        self._items = iter(items)
        self._turn = Turn(seconds)

    async def __anext__(self) -> T:
        await self._turn.give_way()
        for item in self._items:
            return item
        raise StopAsyncIteration


def freeze(size: int) -> None:
    """Make the garbage collector skip a listing that was just taken over, if it has many entries.

    Nothing in it is part of a cycle, so it is freed without the collector when it is replaced.
    """
    if size >= FROZEN_FROM:
        gc.freeze()


def let_go(pieces: list[Any]) -> None:
    """Free the pieces of a large structure with turns of other tasks in between; take them out of the list for that.

    To free a hundred thousand objects at once takes 30 ms and more. At the end of the event loop, or outside of it,
    nothing waits for that.
    """
    if trio.lowlevel.in_trio_run():
        with suppress(RuntimeError):  # the event loop ends
            trio.lowlevel.spawn_system_task(_free, pieces, name="freeing a large structure")


async def _free(pieces: list[Any]) -> None:
    turn = Turn()
    while pieces:
        pieces.pop()
        await turn.give_way()
