"""The entries of passed folders, as the kernel gets them: with their validity, and listed ones again while it lasts."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass

import pyfuse3
from pyfuse3 import EntryAttributes, InodeT

from bbfs.fuse.backings.attributes import Ownership
from bbfs.fuse.scratch.bases import Base
from bbfs.fuse.scratch.shown import Shown, base_of
from bbfs.vfs.names import SHORT
from bbfs.vfs.passthrough.folder import PassedDirectory
from bbfs.vfs.passthrough.folders import Passed
from bbfs.vfs.passthrough.inodes import PassedInode, key_of
from bbfs.vfs.passthrough.vouched import LASTS, MOST_READY, READY_LASTS

LISTINGS = 2
"""Listings of a directory since its last change until its entries are held ready."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The entries of a directory in the order of its names; None for one that has to be looked at.

    told: what the kernel is told with them.
    """

    names: list[bytes]
    entries: list[tuple[EntryAttributes, PassedInode] | None]
    told: dict[bytes, PassedInode | None]


class PassedEntries:
    """Makes the entries of one mount. shown: notes the versions that the lower layer of a scratch shows."""

    def __init__(self, owner: Ownership, shown: Shown) -> None:
        self._owner = owner
        self._shown = shown

    def of(self, passed: Passed, inode: PassedInode, status: os.stat_result) -> EntryAttributes:
        """Return an entry that the kernel may keep for `SHORT`, since other programs may change the folder."""
        entry = EntryAttributes()
        entry.st_ino = InodeT(inode.number)
        entry.st_mode = pyfuse3.ModeT(status.st_mode)
        entry.st_nlink = status.st_nlink
        entry.st_uid = status.st_uid
        entry.st_gid = status.st_gid
        entry.st_rdev = status.st_rdev
        entry.st_size = status.st_size
        entry.st_blksize = status.st_blksize
        entry.st_blocks = status.st_blocks
        entry.st_atime_ns = status.st_atime_ns
        entry.st_mtime_ns = status.st_mtime_ns
        entry.st_ctime_ns = status.st_ctime_ns
        entry.entry_timeout = entry.attr_timeout = SHORT
        if passed.source.judged_by_files:
            entry.attr_timeout = 0  # the kernel asks for the rights, and for lists of them, at each use
        if self._owner.is_lower:
            inode.tell(status)
        return entry

    async def made(self, passed: Passed, parent: PassedInode, name: bytes, status: os.stat_result) -> EntryAttributes:
        """Count a lookup of what a program has made. Return its entry."""
        inode = passed.folder.counted(parent, name, status)
        if passed.vouched is not None:
            passed.vouched.made(parent, name, inode)
        if self._shown.below:
            await self._shown.note_all(self.noted(passed, parent, name, status))
        return self.of(passed, inode, status)

    @staticmethod
    def at(passed: Passed) -> int:
        """Return how much has happened in a folder until now, for the looks that follow."""
        return 0 if passed.vouched is None else passed.vouched.happened

    async def found(
        self, passed: Passed, parent: PassedInode, name: bytes, status: os.stat_result, at: int
    ) -> EntryAttributes:
        """Count a lookup of a name. Return its entry. at: how much had happened when bbfs looked."""
        entry = self.counted(passed, parent, name, status, at)
        if passed.vouched is not None and parent.watched is None:
            passed.vouched.looked_up(parent, passed.folder.inodes.known(key_of(status)))
        if self._shown.below:
            await self._shown.note_all(self.noted(passed, parent, name, status))
        return entry

    def counted(
        self, passed: Passed, parent: PassedInode, name: bytes, status: os.stat_result, at: int
    ) -> EntryAttributes:
        """As `found`, without a note for a scratch."""
        inode = passed.folder.counted(parent, name, status)
        entry = self.of(passed, inode, status)
        if (vouched := passed.vouched) is not None and not self._shown.below:
            entry.entry_timeout = vouched.name(parent, name, inode, at)
            # A notification for an inode that the kernel does not have yet would be lost.
            if entry.entry_timeout > SHORT and inode.lookups > 1:
                entry.attr_timeout = vouched.attributes(inode, status, at)
        return entry

    def absent(self, passed: Passed, parent: PassedInode, name: bytes, at: int) -> EntryAttributes:
        """Return the answer for a name that does not exist."""
        absent = EntryAttributes()
        absent.st_ino, absent.entry_timeout = InodeT(0), SHORT
        if passed.vouched is not None and not self._shown.below:
            absent.entry_timeout = passed.vouched.name(parent, name, None, at)
            passed.vouched.looked_up(parent, None)
        return absent

    def attributes(self, passed: Passed, inode: PassedInode, status: os.stat_result, at: int) -> EntryAttributes:
        """Return the attributes of an inode that the kernel asks for."""
        entry = self.of(passed, inode, status)
        if (vouched := passed.vouched) is not None and not self._shown.below:
            if inode is passed.folder.inodes.root:
                vouched.root_found()
            entry.attr_timeout = vouched.attributes(inode, status, at)
            vouched.asked_again(inode)
        return entry

    def noted(
        self, passed: Passed, parent: PassedInode, name: bytes, status: os.stat_result
    ) -> list[tuple[str, Base | None]]:
        """Return what is noted of an entry that is shown to a program below a scratch."""
        with suppress(OSError):  # the directory is gone
            return [(passed.raw_path(parent, name), base_of(status))]
        return []

    # -- listings ----------------------------------------------------------------------------------------------------

    def begin(self, passed: Passed, opened: PassedDirectory) -> bool:
        """Begin to list a directory. Return whether its names are held ready."""
        opened.ready = None
        if passed.vouched is None or self._shown.below:
            return False
        watched = passed.vouched.listed(opened.inode)
        if watched is None or not isinstance(watched.ready, Ready):
            return False
        opened.ready = watched.ready
        opened.restart(watched.ready.names)
        return True

    def hold_ready(self, passed: Passed, opened: PassedDirectory) -> None:
        """Hold the entries of a directory ready whose names were just taken, if programs list it repeatedly."""
        vouched, directory = passed.vouched, opened.inode
        watched = directory.watched
        if vouched is None or watched is None or not passed.folder.direct:
            return
        if watched.listings < LISTINGS or len(opened.names) > MOST_READY:
            return
        ready = Ready(opened.names, [], {})
        for name, status in zip(opened.names, passed.folder.look_at_all(opened), strict=True):
            inode = None if status is None else passed.folder.inodes.known(key_of(status))
            if (
                status is None
                or inode is None
                or not inode.was_last_at((directory, name))
                or not vouched.is_calm(status)
            ):
                ready.entries.append(None)
                continue
            entry = self.of(passed, inode, status)
            entry.entry_timeout = entry.attr_timeout = LASTS
            ready.entries.append((entry, inode))
            ready.told[name] = inode
        watched.ready = opened.ready = ready
        watched.ready_until = time.monotonic() + READY_LASTS

    def ready(self, passed: Passed, opened: PassedDirectory) -> Ready | None:
        """Return the entries of an open directory that are held ready, if nothing has happened to them until now."""
        vouched, ready = passed.vouched, opened.ready
        if vouched is None or not isinstance(ready, Ready):
            return None
        vouched.take()
        watched = opened.inode.watched
        if watched is None or watched.ready is not ready or not vouched.again(watched, ready.told):
            opened.ready = None
            return None
        return ready
