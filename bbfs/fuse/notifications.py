"""The notifications to the kernel that names have changed: a bounded queue, and the thread that sends them.

The kernel takes a notification only when no request has locked the directory, so sending one may block. A thread that
is blocked there cannot be killed. If the daemon were, its connection would stay open with that thread, and the program
whose request has the lock would wait for ever. So a name waits here as long as a request for its directory does, and
for a moment while programs change names there. (What a program has changed itself needs no notification in time: the
kernel has invalidated its attributes, asks for them, and is sent on by ESTALE.)
"""

import logging
import threading
from collections.abc import Callable, Iterator
from itertools import islice

import pyfuse3
import trio

from bbfs.model.values import Change
from bbfs.vfs.names import DirectoryLocks

log = logging.getLogger(__name__)

MOST = 10_000
"""Names or directories that wait. If there are more, the kernel is notified of every name that it holds."""
LOOK_EVERY = 0.01
"""Seconds between two looks at directories that are in use, at least."""
LATEST = 2.0
"""Seconds after which a name is sent although programs change names in its directory all the time."""
AT_ONCE = 200
"""Names that are sent before the queue is looked at."""

Names = list[tuple[int, bytes]]


def _send(parent: int, name: bytes) -> None:
    pyfuse3.invalidate_entry(pyfuse3.InodeT(parent), pyfuse3.FileNameT(name))


class Notifications:
    """The names of which the kernel has yet to be notified. What still waits at the end is dropped."""

    def __init__(self, send: Callable[[int, bytes], None] = _send) -> None:
        self._send = send
        self._names: dict[int, dict[bytes, None]] = {}  # by directory: a busy one may have thousands that wait
        self._count = 0
        self._below: dict[tuple[str, ...], None] = {}
        self._filled = trio.Event()
        self._limiter = trio.CapacityLimiter(1)
        self._locks = DirectoryLocks()
        self._kept_back: dict[int, float] = {}  # directories in use, with the time (trio's) until which names wait

    def __len__(self) -> int:
        return self._count + len(self._below)

    def invalidate(self, parent: int, name: bytes) -> None:
        """Notify the kernel soon that a name has changed."""
        self._add(parent, name)
        self._bound()

    def invalidate_below(self, change: Change) -> None:
        """Notify the kernel soon of the names that it holds at and below the paths of a change."""
        self._below.update(dict.fromkeys(change.paths))
        self._bound()

    def _add(self, parent: int, name: bytes) -> None:
        names = self._names.setdefault(parent, {})
        self._count += name not in names
        names[name] = None

    def _bound(self) -> None:
        if len(self) > MOST:
            self._names, self._count, self._below = {}, 0, {(): None}
        self._filled.set()

    async def run(self, held_below: Callable[[Change], Iterator[Names]], locks: DirectoryLocks) -> None:
        """Send until cancelled, one by one changes first. held_below: see `KernelCache`."""
        self._locks = locks
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
                            for parent, name in names:
                                self._add(parent, name)
                            await self._send_few(ended)
        finally:
            ended.set()

    async def _send_few(self, ended: threading.Event) -> None:
        while self._names:
            free = [directory for directory in self._names if not self._waits(directory)]
            if not free:
                soonest = min(map(self._locks.free_at, self._names)) - trio.current_time()
                await trio.sleep(max(LOOK_EVERY, soonest))
            for directory in free:
                if not self._locks.locked(directory):  # the last ones took a while to send
                    await self._send_all(self._taken(directory), ended)

    def _waits(self, directory: int) -> bool:
        """Return whether the names of a directory have to wait."""
        if not self._locks.in_use(directory):
            self._kept_back.pop(directory, None)
            return False
        now = trio.current_time()
        late = now >= self._kept_back.setdefault(directory, now + LATEST)
        if late and not self._locks.locked(directory):
            del self._kept_back[directory]
            return False
        return True

    def _taken(self, directory: int) -> Names:
        """Take the next names of a directory."""
        waiting = self._names.get(directory, {})
        names = list(islice(waiting, AT_ONCE))
        for name in names:
            del waiting[name]
        if not waiting:
            self._names.pop(directory, None)
        self._count -= len(names)
        return [(directory, name) for name in names]

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
