"""Turns on the event loop: work on a stranger's data gives way to other tasks after a few milliseconds.

A bound on the number of items would not do: one item of a hostile source takes a hundred times as long as a usual one.
"""

import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

import trio

T = TypeVar("T")
TURN = 0.002
"""Seconds of work before other tasks get their turn. An answer of another source waits for several turns."""


class Turn:
    """The turn of one task. It begins with the object and after each `give_way` that let others run."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    @property
    def is_over(self) -> bool:
        """Return whether the task has worked for `TURN` seconds."""
        return time.perf_counter() - self._since > TURN

    async def give_way(self) -> None:
        """Let other tasks run if the turn is over. A checkpoint only then."""
        if self.is_over:
            await trio.lowlevel.checkpoint()
            self._since = time.perf_counter()


class InTurns(AsyncIterator[T]):
    """The items of an iterable, with turns of other tasks in between. Unlike a generator it may be left at any item."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)
        self._turn = Turn()

    async def __anext__(self) -> T:
        await self._turn.give_way()
        for item in self._items:
            return item
        raise StopAsyncIteration
