"""How long to leave a server alone after it failed (`docs/semantics.md` S24). Pure: the time comes in."""

from math import inf
from random import Random

FIRST, LAST = 0.5, 60.0
"""Seconds between two tries to connect, doubling; a random part of up to half comes on top."""
SETTLED = 10.0
"""Seconds after which a connection counts as a good one, and its loss starts the pauses anew."""


class Pauses:
    """When the next try to connect is due. Times are seconds of one monotonic clock."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failures = 0
        self.until = -inf
        """The end of the latest pause."""

    def failed(self, now: float) -> None:
        """A try to connect came to nothing."""
        self._failures += 1
        self._pause(now)

    def lost(self, now: float, *, lived: float, answered: bool) -> None:
        """A connection was lost after so many seconds. answered: whether it had answered a request."""
        if lived >= SETTLED:
            self.forget()
            return
        first = self._failures == 0
        # It works while it lasts, so it is worth starting again, if not in a tight loop.
        self._failures = 1 if answered else self._failures + 1
        if first:
            self.until = now  # this may be an accident: the next request need not wait
        else:
            self._pause(now)

    def forget(self) -> None:
        """Nothing is wrong: the next try is due at once."""
        self._failures, self.until = 0, -inf

    def _pause(self, now: float) -> None:
        doubled = FIRST * 2 ** min(self._failures - 1, 10)
        self.until = now + min(LAST, doubled * self._random.uniform(1.0, 1.5))
