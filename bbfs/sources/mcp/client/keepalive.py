"""When a connection that is up is not worth keeping: the server is silent, or nobody uses it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio
from mcp.shared.exceptions import MCPError

from bbfs.sources.mcp.client.session import Session

_BUSY_CHECK = 1.0
"""Seconds between two looks at whether the requests are over that may keep a server from answering a ping."""


class Usage:
    """The requests under way on a connection, and when it was last used, in trio's clock. Pings do not count."""

    def __init__(self) -> None:
        self._begun: dict[object, float] = {}
        self.last = trio.current_time()

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request is under way."""
        token = object()
        self._begun[token] = self.last = trio.current_time()
        try:
            yield
        finally:
            del self._begun[token]
            self.last = trio.current_time()

    @property
    def in_flight(self) -> int:
        return len(self._begun)

    def since(self, moment: float) -> bool:
        """Whether a request is under way that is as old as that."""
        return any(begun <= moment for begun in self._begun.values())


async def until_idle(usage: Usage, patience: float, subscribed: Callable[[], bool]) -> None:
    """Return when there was no request for `patience` seconds and nothing is subscribed."""
    while True:
        left = usage.last + patience - trio.current_time()
        if left <= 0 and not usage.in_flight and not subscribed():
            return
        await trio.sleep(left if left > 0 else patience)


async def until_given_up(
    session: Session, usage: Usage, *, after: float, bound: float, on_error: Callable[[MCPError], object]
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
        while session.heard_at <= asked and usage.since(asked):  # noqa: ASYNC110 - an end of either, in any order
            await trio.sleep(_BUSY_CHECK)
        if session.heard_at > asked:
            continue
        if waiting.cancelled_caught:
            return trio.current_time() - session.heard_at
        await trio.sleep(after)
