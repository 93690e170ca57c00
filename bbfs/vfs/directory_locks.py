"""The directories that the kernel has locked: for a request that waits, or likely for the next one of a program."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import trio
from cachetools import LRUCache

IN_USE = 0.1
"""Seconds after a request in which the program that sent it likely sends another one for the same directory."""
KEPT = 1000


class DirectoryLocks:
    """The directories, by inode number, in which programs create, rename and remove names now."""

    def __init__(self) -> None:
        self._waiting: Counter[int] = Counter()
        self._used_until: LRUCache[int, float] = LRUCache(KEPT)

    @contextmanager
    def held(self, *directories: int) -> Iterator[None]:
        """Note that the kernel has locked directories for a request, as long as that waits."""
        self._waiting.update(directories)
        try:
            yield
        finally:
            self._waiting.subtract(directories)
            for directory in directories:
                self.used(directory)
                if not self._waiting[directory]:
                    del self._waiting[directory]

    def used(self, directory: int) -> None:
        """Note that a program changes something in a directory."""
        self._used_until[directory] = trio.current_time() + IN_USE

    def locked(self, directory: int) -> bool:
        """Return whether a request for a directory waits."""
        return directory in self._waiting

    def in_use(self, directory: int) -> bool:
        """Return whether a request for a directory waits, or has ended just now."""
        return directory in self._waiting or trio.current_time() < self._used_until.get(directory, 0.0)
