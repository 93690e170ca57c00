"""A bound on reads that wait for servers while files are open.

The kernel has twelve requests in flight for pages that it reads ahead, for all files of the mount together. So a server
that sends nothing for some seconds is given up, and after that reads fail at once for a while; the sooner, the more of
them wait. Else reads of one source would keep those of all others waiting.
"""

from math import inf

import trio

from bbfs.model.errors import Busy

STALLED = 10.0
"""Seconds without a byte after which a read gives up; half the source's `timeout` if that is less."""
ROOM, CROWDED = 6, 1.0
"""Reads that may wait for `STALLED` at once, and seconds without a byte while more are waiting."""
FAILS_FOR = 5.0
"""Seconds for which reads fail at once after a range that did not come."""


class Crowd:
    """The reads that wait for ranges, of all files of all sources. Between two awaits a task is alone."""

    def __init__(self) -> None:
        self._waiting = 0
        self._closed_until = -inf

    def __enter__(self) -> None:
        self._waiting += 1

    def __exit__(self, *_: object) -> None:
        self._waiting -= 1

    @property
    def patience(self) -> float:
        """Seconds for which a server may send nothing."""
        return CROWDED if self._waiting > ROOM else STALLED

    def gave_up(self) -> None:
        """Note that a server has sent nothing for `patience`."""
        if self._waiting > ROOM:
            self._closed_until = trio.current_time() + FAILS_FOR

    def refuse(self) -> None:
        """Raise Busy for a while after too many reads have given up."""
        if trio.current_time() < self._closed_until:
            raise Busy(f"more than {ROOM} reads are waiting for a server that sends nothing")
