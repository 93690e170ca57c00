"""The threads that have been told the present version of an inode, where an inode has many (S7.3).

overlayfs asks for the size of a file, then opens the file, and copies as many bytes as it had been told. If another
program looks a later version up in between, the open has that version. The copy would be a part of it, and would pass
for the whole.
"""

import time
from collections.abc import Callable

from cachetools import TTLCache

from bbfs.vfs.inode_table import InodeTable

KEPT = 4096
"""Inodes with another version than before."""
THREADS_KEPT = 1024
"""Threads of one of them. One that is forgotten looks the file up once more."""
IN_FLIGHT = 120.0
"""Seconds within which a system call opens what it has been told the size of. It may wait for another one's copy."""


class ToldThreads:
    """The threads that were told of an inode's version after the inode got it. clock: seconds, monotonic."""

    def __init__(self, inodes: InodeTable, clock: Callable[[], float] = time.monotonic) -> None:
        self._inodes = inodes
        self._threads: TTLCache[int, tuple[str, set[int]]] = TTLCache(KEPT, IN_FLIGHT, clock)

    def note(self, ino: int, thread: int) -> None:
        """Note that a thread is told the attributes of an inode."""
        threads = self._of_version(ino)
        if threads is not None:
            if len(threads) >= THREADS_KEPT:
                threads.clear()
            threads.add(thread)

    def lacks(self, ino: int, thread: int) -> bool:
        """Return whether a thread may have been told of an earlier version only. After ESTALE it looks again."""
        threads = self._of_version(ino)
        return threads is not None and thread not in threads

    def _of_version(self, ino: int) -> set[int] | None:
        """Return the threads that know the version of an inode, None if that is the only version of late."""
        version, known = self._inodes.get(ino).version, self._threads.get(ino)
        if known is not None and known[0] == version:
            return known[1]
        if known is None and ino not in self._inodes.retold:
            return None
        self._threads[ino] = (version, threads := set())
        return threads
