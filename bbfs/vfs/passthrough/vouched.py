"""What the kernel may keep of a passed folder for longer than a second, because inotify(7) tells when it changes.

A directory is watched once programs ask for the same again. While it is watched, its names are vouched for, those
that it does not have as well; so are its own attributes, and those of its files and links. Exempt are the attributes of
what may be changed without an event here: a file with several names, and one that was changed a moment ago, which
somebody may have mapped. What inotify does not tell all the same shows after `LASTS` and `READY_LASTS` together.

An event is no order to the kernel: the name is compared with what the kernel was told, so the changes of the mount's
own programs, which cause events as well, invalidate nothing. A status that was read before the watch began, or in a
thread beside the events, is never vouched for.

Between two awaits a task is alone, and all of this happens in the event loop.
"""

import errno
import fcntl
import logging
import os
import stat
import struct
import time
from collections.abc import Callable, Set
from dataclasses import dataclass

import trio

from bbfs.sources.content.fd import Descriptor
from bbfs.sources.filesystem.beneath import AtMountPoint
from bbfs.sources.filesystem.inotify import (
    ATTRIBUTES,
    CREATED,
    ENDED,
    NAMES,
    OF_THIS_MACHINE,
    OVERFLOWN,
    WRITTEN,
    Inotify,
    file_system_of,
    most_watches,
)
from bbfs.vfs.names import SHORT
from bbfs.vfs.passthrough.folder import PassedFolder
from bbfs.vfs.passthrough.inodes import Key, PassedInode, Watched, key_of
from bbfs.vfs.passthrough.mounted_names import MountedNames
from bbfs.vfs.passthrough.places import MayCrossMount

log = logging.getLogger(__name__)

LASTS = 45.0
"""Seconds for which the kernel keeps what is vouched for."""
READY_LASTS = 15.0
"""Seconds for which the entries of a directory are given again."""
TURN = 60.0
"""Seconds after which what the kernel was told counts as forgotten. An answer may take a while to the kernel."""
ASKED = 8
"""Requests for what the kernel had been told before until a directory is watched."""
ASKED_BY_LISTING = 3
"""As many of them as a listing counts for."""
MOST_READY = 2000
"""Names of a directory whose entries are given again: more would take too long to go through at once."""
GATHERED_FOR = 0.05
"""Seconds after events in which the next ones are gathered. Programs cause many of the same, and each turn of the event
loop takes as long as ten of them."""
REFUSED_FOR = 60.0
"""Seconds until bbfs asks the kernel again, after it has refused a watch because this user has too many."""
_GET_FLAGS, _IGNORES_CASE = 0x80086601, 0x40000000
"""FS_IOC_GETFLAGS, FS_CASEFOLD_FL: an event names one spelling of a name, and the kernel may hold another one."""

_UNKNOWN: Key = (-1, -1, -1)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is vouched for in a folder at most. Without names, nothing is, and bbfs watches what programs watch.

    directories: that are watched; each takes about a kilobyte of the kernel's memory. share: of the watches that this
    user may have, one of so many; editors need some as well. names: each takes about a hundred bytes. quiet: seconds
    since the last change of a file whose attributes are vouched for. file_systems: those that only this machine
    changes.
    """

    directories: int = 8192
    share: int = 8
    names: int = 100_000
    quiet: float = 2.0
    file_systems: Set[int] = OF_THIS_MACHINE


class Vouched:
    """What is vouched for in one folder.

    invalidate: notifies the kernel of a name, by the number of its directory. expire: has the kernel ask again for the
    attributes of an inode. changed: called with a directory and a name that another program may have changed, and the
    bits of inotify that say how.
    """

    def __init__(
        self,
        folder: PassedFolder,
        invalidate: Callable[[int, bytes], None],
        expire: Callable[[int], None],
        changed: Callable[[PassedInode, bytes, int], None],
        bounds: Bounds = Bounds(),
    ) -> None:
        self._folder = folder
        self._invalidate = invalidate
        self._expire = expire
        self._changed = changed
        self._inotify: Inotify | None = None
        self._begun = trio.Event()
        self._open = trio.CancelScope()
        self._mounts: MountedNames | None = None
        self._mounted: Set[bytes] = frozenset()
        self._by_number: dict[int, Watched] = {}
        self._doubted: dict[Watched, None] = {}
        self._own: set[tuple[PassedInode, bytes]] = set()
        self._count = 0
        self._bounds = bounds
        self._most = bounds.directories
        self._refused_until = 0.0
        self.answers = 0
        """Counts the names that the kernel was told of, while programs use the folder."""
        self.happened = 0
        """Counts what has happened: a status that was read before is not vouched for."""

    # -- answers -----------------------------------------------------------------------------------------------------

    def name(self, directory: PassedInode, name: bytes, inode: PassedInode | None, at: int) -> float:
        """Return for how many seconds the kernel may keep what a name leads to; None: to no file.

        at: how much had happened when bbfs looked.
        """
        watched = directory.watched
        self.answers += 1
        if watched is None or name in self._mounted or at != self.happened or not self._folder.direct:
            return SHORT
        return LASTS if self._note(watched, name, inode) else SHORT

    def attributes(self, inode: PassedInode, status: os.stat_result, at: int) -> float:
        """Return for how many seconds the kernel may keep the attributes of an inode that it has. at: as above."""
        if not self._bounds.names:  # the kernel asks for the rights, and for lists of them, at each use
            return 0.0
        if at != self.happened or not self._folder.direct:
            return SHORT
        if stat.S_ISDIR(status.st_mode):
            watched = inode.watched
            if watched is None or inode is self._folder.inodes.root:
                return SHORT  # the folder itself may be replaced, by a change of a directory above
            watched.used = inode.is_vouched = True
            return LASTS
        if not inode.places or not self.is_calm(status):
            return SHORT
        directory, name = inode.places[-1]
        watched = directory.watched
        if watched is None or watched.told(name) is not inode or not self._note(watched, name, inode):
            return SHORT
        inode.is_vouched = True
        return LASTS

    def looked_up(self, directory: PassedInode, inode: PassedInode | None) -> None:
        """Note that the kernel asks what a name leads to; None: to no file. It counts from the second time on."""
        if directory.watched is None and (inode is None or inode.lookups > 1):
            self._asked(directory, 1)

    def asked_again(self, inode: PassedInode) -> None:
        """Note that the kernel asks for the attributes of an inode.

        Those of a directory do not count: it asks for them after each change by a program of the mount.
        """
        if inode.places and not stat.S_ISDIR(inode.key[2]):
            self._asked(inode.places[-1][0], 1)

    def listed(self, directory: PassedInode) -> Watched | None:
        """Note that a program lists a directory. Return what is known of it as it is now, if it is watched."""
        if directory.watched is None or not self._bounds.names:
            self._asked(directory, ASKED_BY_LISTING)
            return None
        self.take()
        watched = directory.watched
        if watched is not None:
            watched.listings += 1
            if time.monotonic() > watched.ready_until:
                watched.ready = None
        return watched

    def again(self, watched: Watched, names: dict[bytes, PassedInode | None]) -> bool:
        """Note that the kernel is told of names once more. Return False if too many names are vouched for."""
        if self._count + len(names) > self._bounds.names or not self._folder.direct:
            watched.ready = None
            return False
        self._count -= len(watched.names)
        watched.names |= names
        self._count += len(watched.names)
        watched.used = True
        return True

    def is_calm(self, status: os.stat_result) -> bool:
        """Return whether the attributes of a file or link may be vouched for."""
        kind = stat.S_IFMT(status.st_mode)
        if status.st_nlink != 1 or (kind != stat.S_IFREG and kind != stat.S_IFLNK):
            return False
        return status.st_ctime_ns < time.time_ns() - self._bounds.quiet * 1e9

    def _note(self, watched: Watched, name: bytes, inode: PassedInode | None) -> bool:
        """Note what the kernel is told of a name. Return False if too many names are vouched for."""
        names = watched.names
        if name not in names:
            if self._count >= self._bounds.names:
                return False
            self._count += 1
        names[name] = inode
        watched.used = True
        return True

    # -- changes of the mount's own programs -------------------------------------------------------------------------

    def note_own(self, directory: PassedInode, name: bytes) -> None:
        """Note that a program has changed a name, or what it leads to."""
        directory.asked = 0  # a directory that they fill or clear is not worth a watch
        if directory.watched is not None:
            self._own.add((directory, name))

    def made(self, directory: PassedInode, name: bytes, inode: PassedInode | None) -> None:
        """Note that a program has made a file or another name of it, or removed it (None). The kernel knows."""
        watched = directory.watched
        if inode is not None:
            _list_again(inode)
        if watched is not None and watched.knows(name):
            self._taken(watched, name)
            if inode is not None:
                self._note(watched, name, inode)

    def renamed(self, directory: PassedInode, name: bytes, to: PassedInode, to_name: bytes, *, exchanged: bool) -> None:
        """Note that a program has renamed a file. The kernel keeps the name as long as it would have kept the other."""
        moved = self._taken(directory.watched, name)
        replaced = self._taken(to.watched, to_name)
        self._moved(to, to_name, moved)
        if exchanged:
            self._moved(directory, name, replaced)

    def _moved(self, directory: PassedInode, name: bytes, inode: PassedInode | None) -> None:
        if inode is None:
            return
        watched = directory.watched
        if watched is not None and self._note(watched, name, inode):
            return
        watched = watched or self._watch(directory)
        if watched is not None and self._note(watched, name, inode):
            self._look(watched, name, NAMES)  # others may have changed it before the watch began
        else:
            self._invalidate(directory.number, name)

    def forgotten(self, inode: PassedInode) -> None:
        """Note that the kernel has forgotten an inode, and so all names below it."""
        if inode.watched is not None:
            self._end(inode.watched)
        if inode.places:
            directory, name = inode.places[-1]
            watched = directory.watched
            if watched is not None and watched.told(name) is inode:
                self._taken(watched, name)

    def root_found(self) -> None:
        """Compare what is vouched for with a folder that has been looked up again, and may be another one."""
        root = self._folder.inodes.root
        watched = root.watched
        if watched is not None and watched.key != root.key:
            self._end_and_invalidate(watched)

    def end_all(self) -> None:
        """Vouch for nothing any more that the kernel was told until now."""
        for watched in [*self._by_number.values()]:
            self._end_and_invalidate(watched)

    def close(self) -> None:
        """As `end_all`, for ever."""
        self.end_all()
        self._most = 0
        self._open.cancel()

    # -- watches -----------------------------------------------------------------------------------------------------

    def follow(self, directory: PassedInode) -> None:
        """Watch a directory that a program watches on the mount."""
        if directory.watched is None:
            self._watch(directory)
        if directory.watched is not None:
            directory.watched.used = True

    def _asked(self, directory: PassedInode, times: int) -> None:
        directory.asked += times
        if directory.asked >= ASKED and directory.watched is None and self._bounds.names:
            self._watch(directory)

    def _watch(self, directory: PassedInode) -> Watched | None:
        """Begin to watch a directory, if that is possible."""
        directory.asked = -ASKED  # not at once again
        now = time.monotonic()
        if not self._folder.direct or len(self._by_number) >= self._most or now < self._refused_until:
            return None
        try:
            held = self._folder.directory(directory)
            if not self._tells_all(held):
                return None
            if self._inotify is None:
                self._inotify, self._mounts = Inotify(), MountedNames()
                self._mounted = self._mounts.now()
                self._most = min(self._most, most_watches() // self._bounds.share)
                self._begun.set()
            number = self._inotify.watch(held)
        except MayCrossMount:
            return None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EMFILE, errno.ENOMEM):
                log.info("no more directories are watched for now: %s", error)
                self._refused_until = now + REFUSED_FOR
            return None
        watched = self._by_number[number] = Watched(directory, directory.key, number)
        directory.watched = watched
        return watched

    def _tells_all(self, directory: Descriptor) -> bool:
        """Return whether each change of a directory's names is an event of this machine, with that name."""
        if file_system_of(directory) not in self._bounds.file_systems:
            return False
        with Descriptor(os.open(b".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory.number)) as opened:
            try:
                flags = fcntl.ioctl(opened.number, _GET_FLAGS, bytes(struct.calcsize("l")))
            except OSError as error:
                if error.errno in (errno.ENOTTY, errno.EOPNOTSUPP):
                    return True  # a file system without such flags
                raise
        return not struct.unpack("l", flags)[0] & _IGNORES_CASE

    def _end(self, watched: Watched) -> None:
        """End a watch. Nothing is vouched for in its directory any more."""
        if self._by_number.pop(watched.number, None) is not None and self._inotify is not None:
            self._inotify.unwatch(watched.number)
        self._doubted.pop(watched, None)
        self._count -= len(watched.names) + len(watched.before)
        watched.directory.watched = None
        watched.ready = None

    def _end_and_invalidate(self, watched: Watched) -> None:
        self.happened += 1
        self._end(watched)
        self._expire_attributes(watched.directory)
        for name, inode in (watched.before | watched.names).items():
            self._invalidate(watched.directory.number, name)
            if inode is not None:
                self._expire_attributes(inode)

    def _taken(self, watched: Watched | None, name: bytes) -> PassedInode | None:
        """Forget what the kernel was told of a name, and return it."""
        if watched is None:
            return None
        self._count -= (name in watched.names) + (name in watched.before)
        return watched.take(name)

    def _turn(self) -> None:
        """Forget what the kernel has forgotten by now, since its time is over."""
        for watched in [*self._by_number.values()]:
            if not watched.used:
                self._end(watched)
                watched.directory.asked = ASKED - 1
                continue
            self._count -= len(watched.before)
            watched.names, watched.before, watched.used = {}, watched.names, False
            if time.monotonic() > watched.ready_until:
                watched.ready = None

    # -- events ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Handle events until cancelled or closed."""
        with self._open:
            await self._begun.wait()
            await self._follow()

    async def _follow(self) -> None:
        assert self._inotify is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_looking)
            while True:
                await trio.lowlevel.wait_readable(self._inotify.fileno())
                self.take()
                while self._doubted:
                    watched = next(iter(self._doubted))
                    del self._doubted[watched]
                    self._compare(watched)
                    await trio.lowlevel.checkpoint()
                await trio.sleep(GATHERED_FOR)

    async def _keep_looking(self) -> None:
        """Look at what causes no event."""
        turned = trio.current_time()
        while True:
            await trio.sleep(SHORT)
            self._follow_mounts()
            if trio.current_time() >= turned + TURN:
                turned = trio.current_time()
                self._turn()

    def _follow_mounts(self) -> None:
        """Invalidate the names on which another file system is mounted now. While it is, they are not vouched for."""
        assert self._mounts is not None
        now = self._mounts.now()
        if now is self._mounted:
            return
        new, self._mounted = now - self._mounted, now
        for watched in [*self._by_number.values()]:
            for name in filter(watched.knows, new):
                self._drop(watched, name)

    def _drop(self, watched: Watched, name: bytes) -> None:
        """Invalidate a name, and vouch for it no more."""
        self.happened += 1
        self._taken(watched, name)
        watched.ready = None
        self._invalidate(watched.directory.number, name)

    def take(self) -> None:
        """Handle the events of all that has happened until now."""
        if self._inotify is None:
            return
        happened: dict[tuple[int, bytes], int] = {}
        for number, bits, name in self._inotify.events():
            if bits & OVERFLOWN:
                log.debug("events were dropped; all names that are vouched for are compared")
                self._doubted = dict.fromkeys(self._by_number.values())
                for watched in self._doubted:
                    watched.ready = None
            elif bits & ENDED:
                if (ended := self._by_number.get(number)) is not None:
                    self._end_and_invalidate(ended)
            else:
                happened[number, name] = happened.get((number, name), 0) | bits
        for (number, name), bits in happened.items():
            if (found := self._by_number.get(number)) is not None:
                self._look(found, name, bits)
        self._own.clear()

    def _look(self, watched: Watched, name: bytes, bits: int) -> None:
        """Invalidate what the kernel was told, where something has happened to a name or to the directory itself."""
        self.happened += 1
        directory = watched.directory
        watched.ready, watched.listings = None, 0
        if not name or bits & NAMES:
            self._expire_attributes(directory)
        if not name:
            return
        others = (directory, name) not in self._own
        if others and bits & (NAMES | WRITTEN):
            self._changed(directory, name, bits)
        inode = watched.told(name)
        if watched.knows(name):
            if bits & NAMES and self._key(directory, name) != (None if inode is None else inode.key):
                self._drop(watched, name)
        elif others and bits & CREATED:
            self._key(directory, name)
        if inode is not None:
            self._expire_attributes(inode)

    def _key(self, directory: PassedInode, name: bytes) -> Key | None:
        """Return the identity of what a name leads to, `_UNKNOWN`, or None for nothing.

        Expire the attributes of a file that has several names: it may have had one until now.
        """
        try:
            status = self._folder.lookup(directory, name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, MayCrossMount, AtMountPoint):
            return _UNKNOWN
        key = key_of(status)
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            linked = self._folder.inodes.known(key)
            if linked is not None:
                self._expire_attributes(linked)
                _list_again(linked)
        return key

    def _compare(self, watched: Watched) -> None:
        """Compare all that is vouched for in a directory, since events of it may have been dropped."""
        for name in watched.names | watched.before:
            self._look(watched, name, NAMES)
        self._look(watched, b"", ATTRIBUTES)

    def _expire_attributes(self, inode: PassedInode) -> None:
        if inode.is_vouched:
            inode.is_vouched = False
            self._expire(inode.number)


def _list_again(inode: PassedInode) -> None:
    """Have the directories of a file listed again: from now on, it may be changed by another name."""
    for directory, _ in inode.places:
        if directory.watched is not None:
            directory.watched.ready = None
