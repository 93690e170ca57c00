"""The version of an inode that each thread was told, where one inode has several versions in turn (S7.3, S7.4).

overlayfs asks for the size of a file, then opens the file, and copies as many bytes as it had been told. If the file
has another version by then, the copy would be a part of that one, and would pass for the whole.
"""

import time
from collections.abc import Callable, Hashable

from cachetools import TTLCache

from bbfs.vfs.inode_table import InodeTable

KEPT = 4096
"""Inodes of resources with another version than before."""
THREADS_KEPT = 1024
"""Threads of one of them. One that is forgotten looks the file up once more."""
IN_FLIGHT = 120.0
"""Seconds within which a system call opens what it has been told the size of. It may wait for another one's copy."""
RETRIED = 10.0
"""Seconds within which the kernel repeats an open after ESTALE, on a busy machine. It repeats it once."""
_EARLIER = object()
"""Stands for any version that an inode had before."""


class Told:
    """The last version of an inode that was told, and the threads to which it was. clock: seconds, monotonic."""

    __slots__ = ("_clock", "_sent_back", "_threads", "_until", "_version")

    def __init__(self, version: Hashable, clock: Callable[[], float] = time.monotonic) -> None:
        self._version = version
        self._clock = clock
        self._threads: set[int] | None = None  # all: the inode has had no other version
        self._until = 0.0
        self._sent_back: dict[int, float] = {}

    def tell(self, version: Hashable, thread: int | None = None) -> None:
        """Note a version that the kernel is told, and the thread for which it has asked, if it was for one alone."""
        if version != self._version:
            self._version, self._threads, self._until = version, set(), self._clock() + IN_FLIGHT
        elif self._threads is not None and self._clock() >= self._until:
            self._threads = None
        if self._threads is not None and thread is not None:
            if len(self._threads) >= THREADS_KEPT:
                self._threads.clear()
            self._threads.add(thread)

    def lacks(self, version: Hashable, thread: int) -> bool:
        """Return whether a thread may have been told of an earlier version only. After ESTALE it looks again."""
        if version != self._version:
            return True
        return self._threads is not None and thread not in self._threads and self._clock() < self._until

    def sends_back(self, version: Hashable, thread: int) -> bool:
        """Return whether an open is to be answered with ESTALE: if its thread lacks the version, not twice in a row.

        A file that changes faster than the kernel looks could not be opened otherwise.
        """
        was_sent_until = self._sent_back.pop(thread, 0.0)
        if not self.lacks(version, thread) or self._clock() < was_sent_until:
            return False
        if len(self._sent_back) >= THREADS_KEPT:
            self._sent_back.clear()
        self._sent_back[thread] = self._clock() + RETRIED
        return True


class ToldResources:
    """The `Told` of each resource that has got another version within `IN_FLIGHT`. clock: seconds, monotonic."""

    def __init__(self, inodes: InodeTable, clock: Callable[[], float] = time.monotonic) -> None:
        self._inodes = inodes
        self._clock = clock
        self._told: TTLCache[int, Told] = TTLCache(KEPT, IN_FLIGHT, clock)

    def tell(self, ino: int, thread: int) -> None:
        """Note that a thread is told the attributes of an inode."""
        if (told := self._of(ino)) is not None:
            told.tell(self._inodes.get(ino).version, thread)
            self._told[ino] = told  # for as long from now on

    def lacks(self, ino: int, thread: int) -> bool:
        """Return whether a thread may have been told of an earlier version only."""
        told = self._of(ino)
        return told is not None and told.lacks(self._inodes.get(ino).version, thread)

    def _of(self, ino: int) -> Told | None:
        """Return the `Told` of an inode, None if the inode has had one version within `IN_FLIGHT`."""
        told = self._told.get(ino)
        if told is None and ino in self._inodes.retold:
            told = self._told[ino] = Told(_EARLIER, self._clock)
        return told
