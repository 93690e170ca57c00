"""Requests are taken out of the kernel's queue with fewer turns of the event loop than pyfuse3 needs by itself.

pyfuse3 waits for its descriptor through the loop for every request, and hands a fair lock from worker to worker: about
12 µs, more than most answers take. But requests come in bursts: a program that closes one file and opens the next has
two in the queue. Here a worker takes queued requests at once, and the loop has its turn after `BURST` of them or
`LONGEST_BURST` at the latest. If requests follow each other closely, a worker polls a few times before it sleeps.
pyfuse3 takes its lock and its wait from a module named `trio`, which may be another one (as `pyfuse3.asyncio` does).
"""

import os
import select
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import inf
from types import ModuleType, SimpleNamespace, TracebackType
from typing import Any

import trio

BURST = 32
"""Requests in a row that are taken without a turn of the event loop."""
LONGEST_BURST = 5e-3
"""Seconds of a burst, up to the end of a request: most take 20 µs, but one that opens a large directory 10 ms."""
BRISK = 100e-6
"""Seconds within which the next request must come for a worker to poll instead of sleeping."""
LOOKS = 64 if (os.cpu_count() or 1) > 1 else 1
"""Number of polls, at about half a microsecond each: sleeping and waking takes longer than that."""


class Turnstile:
    """A lock for the first comer, without a turn of the event loop while it is free.

    Unlike the holder of a fair lock, its holder may take it again at once, so one worker answers a whole burst. The
    next worker is woken nevertheless, and takes it when an answer has to wait.
    """

    def __init__(self) -> None:
        self._held = False
        self._woken = False
        self._waiting = trio.lowlevel.ParkingLot()

    async def __aenter__(self) -> None:
        while self._held:
            await self._waiting.park()
            self._woken = False
        self._held = True

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._held = False
        if self._waiting and not self._woken:
            self._woken = True
            self._waiting.unpark()


class Workers:
    """The nursery of pyfuse3's workers. A worker that found nothing to read goes on.

    The kernel withdraws a request when its program is killed, even after it has announced the request. Then a blocking
    read would stop the loop until the next request. A non-blocking one raises BlockingIOError, which pyfuse3 does not
    handle.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    def start_soon(self, worker: Callable[..., Awaitable[None]], *arguments: Any, name: str | None = None) -> None:
        async def work() -> None:
            while True:
                try:
                    return await worker(*arguments)
                except BlockingIOError:
                    continue

        self._nursery.start_soon(work, name=name)


@asynccontextmanager
async def _open_nursery() -> AsyncGenerator[Workers]:
    async with trio.open_nursery() as nursery:
        yield Workers(nursery)


class Readable:
    """Waits until a descriptor is readable, and makes its reads non-blocking. One for each event loop."""

    def __init__(self, *, longest_burst: float = LONGEST_BURST, looks: int = LOOKS) -> None:
        self._longest_burst = longest_burst
        self._brisk_looks = looks
        self._polls: dict[int, select.poll] = {}
        self._burst = 0
        self._until = inf
        self._looks = 1

    async def wait(self, descriptor: int) -> None:
        """Return at once if the descriptor is readable, but give the loop a turn after each burst.

        Raise trio.ClosedResourceError if the descriptor is about to be closed.
        """
        poll = self._polls.get(descriptor)
        if poll is None:
            os.set_blocking(descriptor, False)
            poll = self._polls[descriptor] = select.poll()
            poll.register(descriptor, select.POLLIN)
        if self._burst < BURST and time.monotonic() < self._until:
            for _ in range(self._looks):
                if poll.poll(0):
                    self._burst += 1
                    return
        self._burst = 0
        began = trio.current_time()
        await trio.lowlevel.wait_readable(descriptor)
        self._until = time.monotonic() + self._longest_burst
        # After such a short wait, the requests come from a program that does one step after another.
        self._looks = self._brisk_looks if trio.current_time() - began < BRISK else 1


def trio_for_pyfuse3() -> ModuleType:
    """Return the trio module for pyfuse3: with another lock, nursery and wait for a descriptor; otherwise the same."""
    lowlevel = SimpleNamespace(**vars(trio.lowlevel) | {"wait_readable": Readable().wait})
    module = ModuleType(trio.__name__, __doc__)
    vars(module).update(vars(trio) | {"Lock": Turnstile, "open_nursery": _open_nursery, "lowlevel": lowlevel})
    return module
