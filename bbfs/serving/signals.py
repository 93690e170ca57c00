"""The end of a server on a signal."""

import logging
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

log = logging.getLogger(__name__)

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a server: Ctrl-C, a service manager, and the terminal that goes away."""


@asynccontextmanager
async def ending(what: str = "ending") -> AsyncGenerator[trio.Event]:
    """Yield an event that the ending signals set. Later signals change nothing, also while the interpreter ends.

    what: the end in one word, for the log.
    """
    numbers = [n for n in ENDING if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]  # see nohup(1)
    early: list[int] = []
    for number in numbers:
        signal.signal(number, lambda number, _: early.append(number))  # trio restores this handler after the block
    with trio.open_signal_receiver(*numbers) as signals:
        async with trio.open_nursery() as nursery:
            stop = trio.Event()
            if early:
                stop.set()

            async def listen() -> None:
                async for number in signals:
                    log.info("%s: %s", signal.Signals(number).name, what)
                    stop.set()

            nursery.start_soon(listen)
            yield stop
            nursery.cancel_scope.cancel()
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)  # the interpreter resets handlers, but not this, at its end
