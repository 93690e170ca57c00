"""Pacing of announcements: a flood of notifications becomes a few events, and no change is lost.

The first announcement of a change is reported at once, so that the next read sees it. Those that follow within a pause
are one event at its end. Announcements of too many resources become one event that anything may have changed.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import trio

KeyT = TypeVar("KeyT", bound=Hashable)

PAUSE = 0.05
"""Seconds between two events for the same resource, or for the listing."""
FLOOD_PAUSE = 1.0
"""Seconds between two events that anything may have changed: each costs a check of the whole cache."""
MAX_AT_ONCE = 1000
"""Resources that may change within a pause before it is a flood."""


class Announcements:
    """Passes on what one server announces. Synchronous but for `run`, for one event loop.

    changed: called for a resource (its native URI) or the listing (None). flooded: called when anything may have
    changed. Neither may raise.
    """

    def __init__(self, changed: Callable[[str | None], None], flooded: Callable[[], None]) -> None:
        self._changes: _Pacer[str | None] = _Pacer(PAUSE, changed)
        self._floods: _Pacer[None] = _Pacer(FLOOD_PAUSE, lambda _: flooded())

    def add(self, uri: str | None) -> None:
        """Note that the server announced a change of a resource or of the listing (None)."""
        if self._floods.resting or self._changes.resting >= MAX_AT_ONCE:
            self._floods.add(None)
        else:
            self._changes.add(uri)

    async def run(self) -> None:
        """Report held-back changes at the end of their pause. Runs until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._changes.run)
            nursery.start_soon(self._floods.run)


@dataclass(slots=True)
class _Rest:
    """The pause after an event was reported. until: trio's clock. again: whether the same change came meanwhile."""

    until: float
    again: bool = False


class _Pacer(Generic[KeyT]):
    """Reports the first of each key at once, and all that follow as one at the end of a pause."""

    def __init__(self, pause: float, tell: Callable[[KeyT], None]) -> None:
        self._pause = pause
        self._tell = tell
        self._rests: dict[KeyT, _Rest] = {}  # in the order of their ends, since all are equally long
        self._begun = trio.Event()

    @property
    def resting(self) -> int:
        """The number of keys reported within the last pause."""
        return len(self._rests)

    def add(self, key: KeyT) -> None:
        if (rest := self._rests.get(key)) is not None:
            rest.again = True
            return
        self._rests[key] = _Rest(trio.current_time() + self._pause)
        self._begun.set()
        self._tell(key)

    async def run(self) -> None:
        while True:
            await self._begun.wait()
            while self._rests:
                await trio.sleep_until(next(iter(self._rests.values())).until)
                self._end_rests()
            self._begun = trio.Event()

    def _end_rests(self) -> None:
        now = trio.current_time()
        while self._rests and (first := next(iter(self._rests.items())))[1].until <= now:
            key, rest = first
            del self._rests[key]
            if rest.again:
                self.add(key)
