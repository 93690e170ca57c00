"""When the next request to a server is due: so many in a second, and not before a time that the server has named.

Pure: times are seconds of one monotonic clock and come in. RFC 9110, section 10.2.3, and RFC 6585, section 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from math import inf

from bbfs.model.errors import BbfsError, Busy, Unreachable

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 300.0
"""Seconds. A server that names a longer time is asked again after this all the same."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A time before which a server does not want to be asked. status: the one that it said so with, 429 or 503."""

    until: float
    status: int

    def error(self, now: float) -> BbfsError:
        """The error of a request that cannot wait for so long."""
        text = f"HTTP {self.status}: the server wants to be asked again in {max(self.until - now, 0):.0f} s"
        return Busy(text) if self.status == 429 else Unreachable(text)


class Pace:
    """The requests to one server. interval: seconds from one to the next."""

    def __init__(self, interval: float = 0.0) -> None:
        self.interval = interval
        self._next = -inf
        self._pause: Pause | None = None

    def turn(self, now: float, deadline: float) -> float:
        """When a request may be sent that must be by `deadline`; its turn is taken.

        Raises Busy or Unreachable, and takes no turn, if that is too late. After a wait `paused` is to be asked.
        """
        due = max(now, self._next, self.paused(now, deadline) or now)
        if due >= deadline:
            raise Busy(f"more requests than one in {self.interval:g} s are waiting")
        self._next = due + self.interval
        return due

    def paused(self, now: float, deadline: float) -> float | None:
        """The end of the server's pause, or None if there is none. Raises Busy or Unreachable if that is too late."""
        if self._pause is None or self._pause.until <= now:
            return None
        if self._pause.until >= deadline:
            raise self._pause.error(now)
        return self._pause.until

    def pause(self, pause: Pause) -> None:
        """The server has named a time. The latest of those it has named counts."""
        if self._pause is None or pause.until > self._pause.until:
            self._pause = pause


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that a server wants to be left alone for (`Retry-After`), within bounds; None if it says nothing.

    now: seconds since the epoch, since it may name a date.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        seconds = float(value[:10])
    else:
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            return None
        # A date without a zone is taken as UTC: HTTP has no other (RFC 9110, section 5.6.7).
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
    return min(max(seconds, SHORTEST_PAUSE), LONGEST_PAUSE)
