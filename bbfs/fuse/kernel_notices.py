"""The notifications to the kernel that names have changed: a bounded queue, and the process that sends them.

The kernel takes a notification only when no request has locked the directory, so sending one may block.
`notifier_process` says why a process of its own sends. A name waits here as long as a request for its directory does,
so that it delays no name of another directory; and for a moment while programs change names there, so that many names
are sent at once. (What a program has changed itself needs no notification in time: the kernel has invalidated its
attributes, asks for them, and is sent on by ESTALE.)
"""

import fcntl
import logging
import os
import struct
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import islice

import pyfuse3
import trio

from bbfs.fuse import notifier_process
from bbfs.fuse.helper_process import started
from bbfs.model.values import Change
from bbfs.resources.catalog.record import PASSED
from bbfs.vfs.inode_table import DirectoryLocks

log = logging.getLogger(__name__)

MOST = 10_000
"""Names or directories that wait. If there are more, the kernel is notified of every name that it holds."""
LOOK_EVERY = 0.01
"""Seconds between two looks at directories that are in use, at least."""
LATEST = 2.0
"""Seconds after which a name is sent although programs change names in its directory all the time."""
EMPTIED_WITHIN = 2.0
"""Seconds that a command waits for the kernel to be notified of what it has changed."""
AT_ONCE = 200
"""Names that are sent before the queue is looked at."""

Names = list[tuple[int, bytes]]
"""Names, with the inode numbers of their directories."""

DEVICE = "/dev/fuse"
_CLONE = 0x8004E500
"""FUSE_DEV_IOC_CLONE of <linux/fuse.h>: connects a new descriptor of the device to an existing connection."""
ENDS_WITHIN = 1.0
"""Seconds for the notifier to end. A request that it waits for ends with the unmount at the latest."""


def devices() -> set[int]:
    """Return the descriptors of `/dev/fuse` that this process has."""
    found: set[int] = set()
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that lists
            if os.readlink(f"/proc/self/fd/{entry}") == DEVICE:
                found.add(int(entry))
    return found


def expire(inode: int) -> None:
    """Have the kernel ask again for the attributes of an inode. It locks nothing for that."""
    with suppress(OSError):  # forgotten meanwhile
        pyfuse3.invalidate_inode(pyfuse3.InodeT(inode), attr_only=True)


class Notifier:
    """The notifier process of one mount. It is started again if it was killed."""

    def __init__(self, device: int) -> None:
        """device: the daemon's descriptor of `/dev/fuse`."""
        self._device = device
        self._started: tuple[trio.socket.SocketType, subprocess.Popen[bytes]] | None = None

    def start(self) -> None:
        """Start the process ahead of the first notification, which then waits for no start. Errors come with that."""
        with suppress(OSError):
            self._started = self._start()

    def _start(self) -> tuple[trio.socket.SocketType, subprocess.Popen[bytes]]:
        """Start the process. Raise OSError."""
        device = self._connected()
        try:
            return started(notifier_process.__file__, device)
        finally:
            os.close(device)

    def _connected(self) -> int:
        """Return a new descriptor of the connection.

        Where the device is missing, or of another user namespace, as in a container that got the descriptor of a mount,
        it is a copy of the daemon's. If the daemon is then killed while the kernel keeps a notification waiting,
        requests that the daemon has read end only with an unmount by force.
        """
        device = -1
        try:
            device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
            fcntl.ioctl(device, _CLONE, struct.pack("I", self._device))
        except OSError as error:
            log.debug("the process that notifies the kernel shares the daemon's descriptor: %s", error)
            if device >= 0:
                os.close(device)
            device = os.dup(self._device)
        return device

    async def send(self, names: Names) -> None:
        """Send notifications of names, and return when the kernel has taken them. Raise OSError."""
        batch = b"".join(notifier_process.notification(parent, name) for parent, name in names)
        try:
            await self._send(batch)
        except ConnectionError:
            log.warning("the process that notifies the kernel was killed; it is started again")
            self.end()
            self.reap()
            await self._send(batch)

    async def _send(self, batch: bytes) -> None:
        if self._started is None:
            self._started = self._start()
        link, _ = self._started
        await link.send(batch)
        if await link.recv(len(notifier_process.DONE)) != notifier_process.DONE:
            raise ConnectionResetError

    def end(self) -> None:
        """Let the process end: now, or when the kernel has taken what it is sending."""
        if self._started is not None:
            self._started[0].close()

    def kill(self) -> None:
        """Kill the process: at the end of a daemon it would answer what the next one is to be asked."""
        if self._started is not None:
            self._started[1].kill()

    def reap(self) -> None:
        """Wait a moment for the end of the process."""
        if self._started is not None:
            with suppress(subprocess.TimeoutExpired):
                self._started[1].wait(ENDS_WITHIN)
            self._started = None


class Notifications:
    """The names of which the kernel has yet to be notified. What still waits at the end is dropped.

    Its bound and its length do not count names in passed folders: `Vouched` bounds these, and no other place has them.
    """

    def __init__(self, send: Callable[[Names], Awaitable[None]]) -> None:
        """send: sends notifications of names to the kernel. It may raise OSError."""
        self._send = send
        self._names: dict[int, dict[bytes, None]] = {}  # by directory: a busy one may have thousands that wait
        self._count = 0
        self._below: dict[tuple[str, ...], None] = {}
        self._filled = trio.Event()
        self._emptied = trio.Event()
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
        if parent < PASSED:
            self._count += name not in names
        names[name] = None

    def _bound(self) -> None:
        if len(self) > MOST:
            self._names = {each: names for each, names in self._names.items() if each >= PASSED}
            self._count, self._below = 0, {(): None}
        self._filled.set()
        if self._emptied.is_set():
            self._emptied = trio.Event()

    async def emptied(self) -> None:
        """Wait until the kernel was notified of all that waits, for `EMPTIED_WITHIN` seconds at most."""
        with trio.move_on_after(EMPTIED_WITHIN):
            await self._emptied.wait()

    async def run(self, held_below: Callable[[Change], Iterator[Names]], locks: DirectoryLocks) -> None:
        """Send until cancelled, one by one changes first. held_below: see `KernelCache`."""
        self._locks = locks
        while True:
            self._emptied.set()
            await self._filled.wait()
            self._filled = trio.Event()
            while self._names or self._below:
                await self._send_few()
                below, self._below = self._below, {}
                if below:
                    for names in held_below(Change("", "changed", None, frozenset(below), below=True)):
                        await trio.lowlevel.checkpoint()
                        for parent, name in names:
                            self._add(parent, name)
                        await self._send_few()

    async def _send_few(self) -> None:
        while self._names:
            free = [directory for directory in self._names if not self._waits(directory)]
            if not free:
                soonest = min(map(self._locks.free_at, self._names)) - trio.current_time()
                await trio.sleep(max(LOOK_EVERY, soonest))
            for directory in free:
                if not self._locks.locked(directory):  # the last ones took a while to send
                    await self._send_all(self._taken(directory))

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
        if directory < PASSED:
            self._count -= len(names)
        return [(directory, name) for name in names]

    async def _send_all(self, names: Names) -> None:
        if names:
            try:
                await self._send(names)
            except OSError as error:
                log.warning("the kernel was not notified of %d names: %s", len(names), error)
