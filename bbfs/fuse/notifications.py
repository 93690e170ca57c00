"""The notifications to the kernel that names have changed: a bounded queue, and the thread that sends them.

The kernel takes a notification only when no request for the directory is under way, so sending one may block.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from itertools import islice

import pyfuse3
import trio

from bbfs.model.values import Change

log = logging.getLogger(__name__)

MOST = 10_000
"""Names or directories that wait. If there are more, the kernel is notified of every name that it holds."""
AT_ONCE = 200
"""Names that are sent before the queue is looked at."""

Names = list[tuple[int, bytes]]


def _send(parent: int, name: bytes) -> None:
    pyfuse3.invalidate_entry(pyfuse3.InodeT(parent), pyfuse3.FileNameT(name))


class Notifications:
    """The names of which the kernel has yet to be notified. What still waits at the end is dropped."""

    def __init__(self, send: Callable[[int, bytes], None] = _send) -> None:
        self._send = send
        self._names: dict[tuple[int, bytes], None] = {}
        self._below: dict[tuple[str, ...], None] = {}
        self._filled = trio.Event()
        self._limiter = trio.CapacityLimiter(1)

    def __len__(self) -> int:
        return len(self._names) + len(self._below)

    def invalidate(self, parent: int, name: bytes) -> None:
        """Notify the kernel soon that a name has changed."""
        self._names[parent, name] = None
        self._bound()

    def invalidate_below(self, change: Change) -> None:
        """Notify the kernel soon of the names that it holds at and below the paths of a change."""
        self._below.update(dict.fromkeys(change.paths))
        self._bound()

    def _bound(self) -> None:
        if len(self) > MOST:
            self._names, self._below = {}, {(): None}
        self._filled.set()

    async def run(self, held_below: Callable[[Change], Iterator[Names]]) -> None:
        """Send until cancelled, one by one changes first. held_below: see `KernelCache`."""
        ended = threading.Event()
        try:
            while True:
                await self._filled.wait()
                self._filled = trio.Event()
                while self:
                    await self._send_few(ended)
                    below, self._below = self._below, {}
                    if below:
                        for names in held_below(Change("", "changed", None, frozenset(below), below=True)):
                            await trio.lowlevel.checkpoint()
                            await self._send_all(names, ended)
                            await self._send_few(ended)
        finally:
            ended.set()

    async def _send_few(self, ended: threading.Event) -> None:
        while self._names:
            names = list(islice(self._names, AT_ONCE))
            for name in names:
                del self._names[name]
            await self._send_all(names, ended)

    async def _send_all(self, names: Names, ended: threading.Event) -> None:
        """Send names in a thread. It ends with the name that it is at when this is cancelled."""

        def send() -> None:
            for parent, name in names:
                if ended.is_set():
                    return
                try:
                    self._send(parent, name)
                except FileNotFoundError:
                    pass  # the kernel does not hold it
                except OSError as error:
                    log.debug("the kernel was not notified of a name in inode %d: %s", parent, error)

        if names:
            await trio.to_thread.run_sync(send, abandon_on_cancel=True, limiter=self._limiter)
