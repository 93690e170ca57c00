"""The bound on the requests in flight to one source: first come, first served.

Whoever asks has a place at once or in the order of asking, so what is loaded ahead of need, which only ever takes a
place that is free, comes after all that somebody waits for. Between two awaits a task is alone: there is no lock.
"""

from collections import deque
from collections.abc import Callable
from types import TracebackType

import trio


class Place:
    """One request's place, or its turn to get one.

    To be entered once (`async with`), which waits for the turn; or to be declined.
    """

    __slots__ = ("_places", "_turn")

    def __init__(self, places: "Places", turn: trio.Event | None) -> None:
        self._places = places
        self._turn = turn

    async def __aenter__(self) -> None:
        if self._turn is None:
            return
        try:
            await self._turn.wait()
        except trio.Cancelled:
            self._places.give_up(self._turn)
            raise

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._places.give_back()

    def decline(self) -> None:
        """Give the place, or the turn, back without having entered: nothing is to be asked after all."""
        if self._turn is None:
            self._places.give_back()
        else:
            self._places.give_up(self._turn)


class Places:
    """As many requests at once as `total` says. freed: called when a place is free and nobody waits for it."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.freed: Callable[[], None] = lambda: None
        self._taken = 0
        self._waiting: deque[trio.Event] = deque()

    @property
    def free(self) -> int:
        return self.total - self._taken

    def ask(self) -> Place:
        """A place: taken now where one is free, else when its turn has come."""
        if self._taken < self.total:
            self._taken += 1
            return Place(self, None)
        turn = trio.Event()
        self._waiting.append(turn)
        return Place(self, turn)

    def give_back(self) -> None:
        if self._waiting:
            self._waiting.popleft().set()
            return
        self._taken -= 1
        self.freed()

    def give_up(self, turn: trio.Event) -> None:
        """Nobody waits for this turn any more; a place that had just come is the next one's."""
        if turn.is_set():
            self.give_back()
        else:
            self._waiting.remove(turn)
