"""Calls on passed folders: in the event loop or in threads, each with a deadline.

A folder on a local file system is called in the event loop: a thread would cost more than the call. Calls that wait for
the disk or may cross a mount point, and all calls on other file systems, run in threads; a folder that hangs costs its
own programs a time-out.
"""

import errno
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from itertools import pairwise
from math import inf
from typing import Any, TypeVar

import trio
from pyfuse3 import FUSEError

from bbfs.fuse.waiting_programs import Interrupts
from bbfs.model.errors import DeadlineExceeded, ReadOnly
from bbfs.sources.content.fd import most_for_programs
from bbfs.vfs.inode_table import DirectoryLocks
from bbfs.vfs.passthrough.folder import PassedDirectory
from bbfs.vfs.passthrough.folders import Passed
from bbfs.vfs.passthrough.inodes import PassedInode
from bbfs.vfs.passthrough.places import MayCrossMount
from bbfs.vfs.writing.name_changes import HELD

T = TypeVar("T")


class Handles:
    """How many files and directories of passed folders each program has open, by the thread that opened them.

    A program may have as many as are left for all others. So one that opens as many as it can takes half of them, and
    the next one still finds half of the rest.
    """

    def __init__(self) -> None:
        self._by_thread: Counter[int] = Counter()
        self._openers: dict[int, int] = {}  # by handle

    def require(self, thread: int) -> None:
        """Raise FUSEError (EMFILE) if a thread may open no more. Half of all descriptors are for passed folders."""
        if self._by_thread[thread] >= most_for_programs() * 2 // 3 - len(self._openers):
            raise FUSEError(errno.EMFILE)

    def add(self, handle: int, thread: int) -> None:
        self._openers[handle] = thread
        self._by_thread[thread] += 1

    def remove(self, handle: int) -> None:
        thread = self._openers.pop(handle)
        self._by_thread[thread] -= 1
        if not self._by_thread[thread]:
            del self._by_thread[thread]


class FolderCalls:
    """The calls of one mount.

    note_changes: called with a folder after a program has changed something in it. locks: of the directories that the
    kernel has locked for a call, so that no notification of their names waits, with all others behind it.
    """

    def __init__(self, note_changes: Callable[[Passed], None], interrupts: Interrupts, locks: DirectoryLocks) -> None:
        self._note_changes = note_changes
        self._interrupts = interrupts
        self._locks = locks

    def change_names(
        self, passed: Passed, pid: int, call: Callable[..., T], *arguments: object
    ) -> Coroutine[Any, Any, T]:
        """As `change`, of names: the kernel holds their directory until the answer."""
        return self.change(passed, pid, call, *arguments, most=HELD)

    async def call(self, passed: Passed, pid: int, call: Callable[..., T], *arguments: object, most: float = inf) -> T:
        """Call a function of a folder, in a thread unless it ends soon. pid: of the thread that waits.

        most: seconds, where the source's `timeout` is longer.
        """
        try:
            if passed.folder.direct:
                try:
                    return call(*arguments)
                except MayCrossMount:
                    pass  # it has changed nothing: again, in a thread
            return await self.in_thread(passed, pid, call, *arguments, most=most)
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None
        finally:
            if passed.folder.changes:
                self._note_changes(passed)

    def change(
        self, passed: Passed, pid: int, call: Callable[..., T], *arguments: object, most: float = inf
    ) -> Coroutine[Any, Any, T]:
        """As `call`, for what changes the folder. Raise ReadOnly at once."""
        if passed.source.writes is None:
            raise ReadOnly(passed.source.why_read_only)
        return self.call(passed, pid, call, *arguments, most=most)

    async def in_thread(
        self, passed: Passed, pid: int, call: Callable[..., T], *arguments: object, most: float = inf
    ) -> T:
        within = min(passed.timeout, most)
        with self._locks.held(*_locked(arguments)), self._interrupts.watching(pid, until_gone=pid != 0):
            with trio.move_on_after(within):
                return await trio.to_thread.run_sync(
                    partial(call, *arguments), abandon_on_cancel=True, limiter=passed.limiter
                )
            raise DeadlineExceeded(f"{passed.prefix}: no answer of the folder in {within:g} s")
        raise FUSEError(errno.EINTR)


def _locked(arguments: tuple[object, ...]) -> Iterator[int]:
    """Yield the directories that the kernel has locked for a call: that of each name, and one that is listed."""
    for argument, following in pairwise((*arguments, None)):
        if isinstance(argument, PassedDirectory):
            yield argument.inode.number
        elif isinstance(argument, PassedInode) and isinstance(following, bytes):
            yield argument.number
