"""Takes requests out of the kernel's queue with fewer turns of the event loop than pyfuse3 does by itself.

pyfuse3 waits for its descriptor through the loop for every request, and hands a fair lock from worker to worker: about
12 µs, more than most answers take. But requests come in bursts: a program that closes one file and opens the next has
two in the queue. What is there already is taken at once here, and the loop has its turn after `BURST` of them at the
latest. Where the next request comes at once, one looks for it a few times before going to sleep. pyfuse3 asks a module
named `trio` for both, which may be another one (as `pyfuse3.asyncio` does).
"""

import os
import select
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import ModuleType, SimpleNamespace, TracebackType
from typing import Any

import trio

BURST = 32
"""Requests in a row that are taken without a turn of the event loop."""
BRISK = 100e-6
"""Seconds within which the next request has to come for one to look for it again and again, instead of sleeping."""
LOOKS = 64 if (os.cpu_count() or 1) > 1 else 1
"""How often one looks then, at about half a microsecond each: to sleep and to be woken takes longer than that."""


class Turnstile:
    """A lock that whoever comes first takes, without a turn of the event loop while it is free.

    Unlike that of a fair lock, its holder may take it again at once, so one worker answers a whole burst; the next one
    is woken nevertheless, and takes it when an answer has to wait for something.
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
    """The nursery of pyfuse3's workers. One that had nothing to read after all goes on.

    The kernel takes a request back when the program behind it is killed, also after it has said that there is one. A
    read that blocks would hold up everything then until the next request; one that does not raises BlockingIOError,
    which pyfuse3 does not know.
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
    """Waits for a descriptor to have something to read, and has reads of it never block. One for each event loop."""

    def __init__(self) -> None:
        self._polls: dict[int, select.poll] = {}
        self._burst = 0
        self._looks = 1

    async def wait(self, descriptor: int) -> None:
        """Return at once if there is something to read, except after every `BURST` times: then the loop has a turn.

        Raises trio.ClosedResourceError when the descriptor is about to be closed.
        """
        poll = self._polls.get(descriptor)
        if poll is None:
            os.set_blocking(descriptor, False)
            poll = self._polls[descriptor] = select.poll()
            poll.register(descriptor, select.POLLIN)
        if self._burst < BURST:
            for _ in range(self._looks):
                if poll.poll(0):
                    self._burst += 1
                    return
        self._burst = 0
        began = trio.current_time()
        await trio.lowlevel.wait_readable(descriptor)
        # Whoever has just waited that short a time is asked by a program that does one thing after the other.
        self._looks = LOOKS if trio.current_time() - began < BRISK else 1


def trio_for_pyfuse3() -> ModuleType:
    """trio as pyfuse3 is to know it: with another lock, nursery and wait for a descriptor; otherwise the same."""
    lowlevel = SimpleNamespace(**vars(trio.lowlevel) | {"wait_readable": Readable().wait})
    module = ModuleType(trio.__name__, __doc__)
    vars(module).update(vars(trio) | {"Lock": Turnstile, "open_nursery": _open_nursery, "lowlevel": lowlevel})
    return module
