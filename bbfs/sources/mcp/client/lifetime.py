"""Back-off after a failure (`docs/semantics.md` S24), and when to end a connection that is up."""

from collections.abc import Callable
from math import inf
from random import Random

import trio
from mcp.shared.exceptions import MCPError

from bbfs.sources.mcp.client.session import McpSession

FIRST, LAST = 0.5, 60.0
"""Seconds between two tries to connect, doubling; a random part of up to half comes on top."""
SETTLED = 10.0
"""Seconds after which a connection counts as good: its loss starts the back-off from the beginning."""

_BUSY_CHECK = 1.0
"""Seconds between two checks of the requests that may delay the answer to a ping."""


class Pauses:
    """The back-off of one server. Pure: the caller passes the time, in seconds of one monotonic clock."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failures = 0
        self.until = -inf
        """The end of the latest pause."""

    def failed(self, now: float) -> None:
        """Note a failed try to connect."""
        self._failures += 1
        self._pause(now)

    def lost(self, now: float, *, lived: float, answered: bool) -> None:
        """Note the loss of a connection. lived: its age in seconds. answered: whether it answered a request."""
        if lived >= SETTLED:
            self.forget()
            return
        first = self._failures == 0
        # The server works while it lasts, so it is started again, but not in a tight loop.
        self._failures = 1 if answered else self._failures + 1
        if first:
            self.until = now  # this may be an accident: the next request need not wait
        else:
            self._pause(now)

    def forget(self) -> None:
        """End the back-off: the next try is due at once."""
        self._failures, self.until = 0, -inf

    def _pause(self, now: float) -> None:
        doubled = FIRST * 2 ** min(self._failures - 1, 10)
        self.until = now + min(LAST, doubled * self._random.uniform(1.0, 1.5))


async def until_idle(session: McpSession, patience: float, subscribed: Callable[[], bool]) -> None:
    """Wait until there was no request for `patience` seconds and there is no subscription."""
    while True:
        left = session.last_used + patience - trio.current_time()
        if left <= 0 and not session.requests_under_way and not subscribed():
            return
        await trio.sleep(left if left > 0 else patience)


async def until_given_up(
    session: McpSession, *, after: float, bound: float, on_error: Callable[[MCPError], object]
) -> float:
    """Ping a silent server until it answers nothing more; return the seconds of silence.

    A server that handles one request at a time may answer a ping late: it is not given up while a request is under way
    that it got before the ping. Later requests do not count, or there might always be one.
    after: seconds of silence before a ping. bound: seconds for any message to come then. on_error: gets errors that
    answer a ping or that prevent it.
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
        while session.heard_at <= asked and session.is_busy_since(asked):  # noqa: ASYNC110 - either may end first
            await trio.sleep(_BUSY_CHECK)
        if session.heard_at > asked:
            continue
        if waiting.cancelled_caught:
            return trio.current_time() - session.heard_at
        await trio.sleep(after)
