"""The end of a server on a signal."""

import logging
import os
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import trio

log = logging.getLogger(__name__)

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a server: Ctrl-C, a service manager, and the terminal that goes away."""


@asynccontextmanager
async def ending(what: str = "ending", signals: Sequence[signal.Signals] = ENDING) -> AsyncGenerator[trio.Event]:
    """Yield an event that some ending signals set. Later ones change nothing, also while the interpreter ends.

    what: the end in one word, for the log.
    """
    numbers = [n for n in signals if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]  # see nohup(1)
    early: list[int] = []
    for number in numbers:
        signal.signal(number, lambda number, _: early.append(number))  # trio restores this handler after the block
    with trio.open_signal_receiver(*numbers) as received:
        async with trio.open_nursery() as nursery:
            stop = trio.Event()
            if early:
                stop.set()

            async def listen() -> None:
                async for number in received:
                    log.info("%s: %s", signal.Signals(number).name, what)
                    stop.set()

            nursery.start_soon(listen)
            yield stop
            nursery.cancel_scope.cancel()
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)  # the interpreter resets handlers, but not this, at its end


class Terminal:
    """The terminal from which a program was started, if any. The kernel sends SIGHUP when it goes away."""

    def __init__(self) -> None:
        self._was_there = _has_terminal()

    def is_gone(self) -> bool:
        """Return whether the program had a terminal and has none any more."""
        return self._was_there and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
