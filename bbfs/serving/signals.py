"""The end of a server on a signal."""

import logging
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

log = logging.getLogger(__name__)

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@asynccontextmanager
async def ending() -> AsyncGenerator[trio.Event]:
    """Yield an event that the ending signals set. Later signals change nothing, also while the interpreter ends."""
    numbers = [n for n in ENDING if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]  # see nohup(1)
    for number in numbers:
        signal.signal(number, lambda *_: None)  # trio restores this handler at the end of the block
    with trio.open_signal_receiver(*numbers) as signals:
        async with trio.open_nursery() as nursery:
            stop = trio.Event()

            async def listen() -> None:
                async for number in signals:
                    log.info("%s: ending", signal.Signals(number).name)
                    stop.set()

            nursery.start_soon(listen)
            yield stop
            nursery.cancel_scope.cancel()
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)  # the interpreter resets handlers, but not this, at its end
