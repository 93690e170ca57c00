"""How long to leave a server alone after it failed, and when to end a connection that is up.

Back-off (`docs/semantics.md` S24) is pure: the time comes in.
"""

from collections.abc import Callable
from math import inf
from random import Random

import trio
from mcp.shared.exceptions import MCPError

from bbfs.sources.mcp.client.session import Session

FIRST, LAST = 0.5, 60.0
"""Seconds between two tries to connect, doubling; a random part of up to half comes on top."""
SETTLED = 10.0
"""Seconds after which a connection counts as a good one, and its loss starts the pauses anew."""

_BUSY_CHECK = 1.0
"""Seconds between two looks at whether the requests are over that may keep a server from answering a ping."""


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


async def until_idle(session: Session, patience: float, subscribed: Callable[[], bool]) -> None:
    """Return when there was no request for `patience` seconds and nothing is subscribed."""
    while True:
        left = session.last_used + patience - trio.current_time()
        if left <= 0 and not session.requests_under_way and not subscribed():
            return
        await trio.sleep(left if left > 0 else patience)


async def until_given_up(
    session: Session, *, after: float, bound: float, on_error: Callable[[MCPError], object]
) -> float:
    """Ping a silent server; return, with the seconds of silence, when it is connected but answers nothing at all.

    A server that does one thing after the other may come to a ping late: it is not given up while a request is under
    way that it got before the ping. Those that it got later do not count, or there might always be one.
    after: seconds of silence before a ping. bound: seconds that anything may take to come then. on_error: gets errors
    that answer a ping, or that say that it cannot be sent.
    """
    while True:
        asked = trio.current_time()
        if (left := session.heard_at + after - asked) > 0:
            await trio.sleep(left)
            continue
        with trio.move_on_after(bound) as waiting:
            try:
                await session.ping()
            except MCPError as exc:
                on_error(exc)
        while session.heard_at <= asked and session.is_busy_since(asked):  # noqa: ASYNC110 - an end of either, in any order
            await trio.sleep(_BUSY_CHECK)
        if session.heard_at > asked:
            continue
        if waiting.cancelled_caught:
            return trio.current_time() - session.heard_at
        await trio.sleep(after)
