"""The time of the next request to a server: limited in rate, and after the pause that the server asked for.

Pure: the caller passes times, in seconds of one monotonic clock. RFC 9110, section 10.2.3, and RFC 6585, section 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from math import inf

from bbfs.model.errors import BbfsError, Busy, Unreachable

_LONGEST_DATE = 100
"""Characters. The parser is quadratic."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 300.0
"""Seconds. bbfs shortens a longer pause to the longest."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A time before which a server wants no request. status: of the answer that named it, 429 or 503."""

    until: float
    status: int

    def error(self, now: float) -> BbfsError:
        """Return the error for a request that cannot wait so long."""
        text = f"HTTP {self.status}: the server wants to be asked again in {max(self.until - now, 0):.0f} s"
        return Busy(text) if self.status == 429 else Unreachable(text)


class Pace:
    """The pace of requests to one server. interval: seconds between two."""

    def __init__(self, interval: float = 0.0) -> None:
        self.interval = interval
        self._next = -inf
        self._pause: Pause | None = None

    def turn(self, now: float, deadline: float) -> float:
        """Take a turn and return its time.

        Raises Busy or Unreachable, and takes no turn, if it is not before `deadline`. After waiting, call `paused`.
        """
        due = max(now, self._next, self.paused(now, deadline) or now)
        if due >= deadline:
            raise Busy(f"more requests than one in {self.interval:g} s are waiting")
        self._next = due + self.interval
        return due

    def paused(self, now: float, deadline: float) -> float | None:
        """Return the end of the server's pause, or None. Raises Busy or Unreachable if it is not before `deadline`."""
        if self._pause is None or self._pause.until <= now:
            return None
        if self._pause.until >= deadline:
            raise self._pause.error(now)
        return self._pause.until

    def pause(self, pause: Pause) -> None:
        """Begin a pause. The pause that ends last counts."""
        if self._pause is None or pause.until > self._pause.until:
            self._pause = pause


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the pause that a server asks for (`Retry-After`) in seconds, within bounds, or None.

    now: seconds since the epoch, because the header may hold a date.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        seconds = float(value[:10])
    else:
        try:
            date = parsedate_to_datetime(value[:_LONGEST_DATE])
        except (ValueError, OverflowError):
            return None
        # A date without a zone is taken as UTC: HTTP has no other (RFC 9110, section 5.6.7).
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
    return min(max(seconds, SHORTEST_PAUSE), LONGEST_PAUSE)
