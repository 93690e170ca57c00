"""Where the files of one passed folder are: descriptors of its directories, and the names by which files were seen.

The directory of a name is a descriptor that was opened name by name beneath the root, no name is followed if it is a
link, and a file that was opened by its name is compared with its inode. So no race with a program that moves
directories or swaps links leads out (S29).

Functions block, raise OSError with the kernel's own errno, and may run in worker threads beside the event loop. In the
event loop they enter no file system that is mounted in the folder, which may hang: they raise `MayCrossMount`.
"""

import ctypes
import errno
import os
from collections.abc import Iterator, Set
from threading import Lock

from trio.lowlevel import in_trio_task

from bbfs.model.errors import BbfsError
from bbfs.sources.content.fd import Descriptor
from bbfs.sources.filesystem.beneath import AtMountPoint, Root
from bbfs.sources.filesystem.inotify import file_system_of
from bbfs.vfs.passthrough.inodes import PassedInode, PassedInodes, key_of
from bbfs.vfs.passthrough.mounted_names import MOUNTS, MountedNames

OPEN_DIRECTORIES = 512
"""Descriptors of directories that a folder keeps open."""
DEEPEST = 4096
"""Directories between the root and a file; a way of names longer than that has a circle."""
LOOK = os.O_PATH | os.O_NOFOLLOW
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
_LOCAL_MAGIC = {
    0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0x2FC12FC1, 0xF2F52010, 0x858458F6, 0x52654973, 0xCA451A4E,
}  # fmt: skip
"""Local file systems by their number in statfs(2), in the order of `_LOCAL_NAMES`."""
_LOCAL_NAMES = frozenset(b"ext4 ext3 ext2 xfs btrfs tmpfs overlay zfs f2fs ramfs reiserfs bcachefs".split())

_libc = ctypes.CDLL(None, use_errno=True)


def stale() -> OSError:
    """Return the error for a file that is gone: the kernel looks its name up again."""
    return OSError(errno.ESTALE, os.strerror(errno.ESTALE))


class MayCrossMount(Exception):
    """A call in the event loop would use a name that may be a mount point. It has changed nothing."""


def _status_at(at: Descriptor, name: bytes, inode: PassedInode) -> os.stat_result | None:
    """Return the status of a name if it leads to an inode, else None."""
    try:
        status = os.stat(name, dir_fd=at.number, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status if key_of(status) == inode.key else None


class Places:
    """The places in one folder. number: of the folder in its mount. hidden: show names that begin with a dot.

    direct: all calls end soon, because the folder is on a local file system; None until it was opened.
    """

    def __init__(self, root: Root, number: int, *, hidden: bool) -> None:
        self._root = root
        self._hidden = hidden
        self.inodes = PassedInodes(number)
        self.direct: bool | None = None
        self._open: dict[PassedInode, None] = {}
        self._lock = Lock()
        self._devices: set[int] = set()
        self._mounts: MountedNames | None = None

    def open_root(self) -> os.stat_result:
        """Look the folder up again, which may have been replaced, and return its status. Raise OSError, BbfsError.

        Raise MayCrossMount in the event loop: each name on the way to the folder may be a mount point.
        """
        if in_trio_task():
            raise MayCrossMount
        root = self.inodes.root
        try:
            found = self._root.open((), _DIRECTORY)
        except BbfsError:
            root.descriptor = None  # it has been removed: nothing new is to be made in what is left of it
            raise
        status = os.fstat(found.number)
        if root.descriptor is None or root.key != key_of(status):
            root.key, root.descriptor = key_of(status), found
            self._mounts = self._mounts or MountedNames()
            self.direct = _is_local(found)
            self._devices = {status.st_dev}
        return status

    def directory(self, inode: PassedInode) -> Descriptor:
        """Return a descriptor of a directory. Keep it as long as it is used. Raise ESTALE if it is gone."""
        return inode.descriptor or self._walk_to(inode)

    def _walk_to(self, inode: PassedInode) -> Descriptor:
        """Open a directory, from the next one above that is open."""
        ahead: list[tuple[PassedInode, bytes]] = []
        held = inode.descriptor
        while held is None:
            if inode is self.inodes.root:
                self.open_root()
                held = inode.descriptor
                continue
            if not inode.places or len(ahead) == DEEPEST:
                raise stale()
            parent, name = inode.places[-1]
            ahead.append((inode, name))
            inode, held = parent, parent.descriptor
        for below, name in reversed(ahead):
            if self.is_mount_point(inode, name):
                raise stale()
            if name in self._mounted_names():
                raise MayCrossMount
            try:
                held = Descriptor(os.open(name, _DIRECTORY, dir_fd=held.number))
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # ELOOP: now a link
                    raise stale() from None
                raise
            if key_of(os.fstat(held.number)) != below.key:
                raise stale()
            self._keep_open(below, held)
            inode = below
        return held

    def _keep_open(self, inode: PassedInode, descriptor: Descriptor) -> None:
        with self._lock:
            inode.descriptor = descriptor
            self._open[inode] = None
            while len(self._open) > OPEN_DIRECTORIES:
                oldest = next(iter(self._open))
                del self._open[oldest]
                oldest.descriptor = None

    def is_mount_point(self, parent: PassedInode, name: bytes) -> bool:
        """Return whether a name is the directory that bbfs mounts on."""
        mount_point = self._root.mount_point
        return mount_point is not None and name == mount_point.name and self.mount_point_in(parent) is not None

    def mount_point_in(self, parent: PassedInode) -> bytes | None:
        """Return the name of the directory that bbfs mounts on, if a directory has it."""
        mount_point = self._root.mount_point
        if mount_point is None or parent.key[:2] != (mount_point.device, mount_point.inode):
            return None
        return mount_point.name

    def _mounted_names(self) -> Set[bytes]:
        """Return the last names of all mount points; none in a thread, which may enter them."""
        return self._mounts.now() if self._mounts is not None and in_trio_task() else frozenset()

    def _in(self, parent: PassedInode, name: bytes) -> Descriptor:
        """Return the descriptor of a directory for a call on one of its names. Raise AtMountPoint, MayCrossMount."""
        if b"/" in name or name in (b".", b"..", b""):
            raise OSError(errno.EINVAL, "not a name")
        if self.is_mount_point(parent, name):
            raise AtMountPoint(below=False)
        if not self._hidden and name.startswith(b"."):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        if name in self._mounted_names():
            raise MayCrossMount
        return parent.descriptor or self._walk_to(parent)

    def _to_change(self, parent: PassedInode, name: bytes) -> Descriptor:
        """As `_in`, for a call that changes a name. Raise EBUSY for the mount point, EACCES for a hidden name."""
        if not self._hidden and name.startswith(b"."):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        try:
            return self._in(parent, name)
        except AtMountPoint:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY)) from None

    def _places(self, inode: PassedInode) -> Iterator[tuple[Descriptor, bytes]]:
        """Yield the directories and names that a file had when it was last seen, the last one first."""
        for parent, name in reversed(inode.places):
            if name in self._mounted_names():
                raise MayCrossMount
            try:
                yield self.directory(parent), name
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise

    def _look(self, inode: PassedInode) -> Descriptor:
        """Return a descriptor of a file, directory or link, for calls on itself. Raise ESTALE if it is gone."""
        opened = inode.opened
        if opened is not None:
            return opened
        if inode.descriptor is not None or inode is self.inodes.root:
            return self.directory(inode)
        return self._opened(inode, LOOK)[0]

    def _status(self, inode: PassedInode) -> os.stat_result:
        """Return the status of a file that no descriptor is kept of. Raise ESTALE if it is gone."""
        for at, name in self._places(inode):
            status = _status_at(at, name, inode)
            if status is not None:
                return status
        raise stale()

    def _opened(self, inode: PassedInode, flags: int) -> tuple[Descriptor, os.stat_result]:
        """Open a file by one of its names. Return also its status. Raise ESTALE if it is gone."""
        for at, name in self._places(inode):
            try:
                found = Descriptor(os.open(name, flags, dir_fd=at.number))
            except OSError:
                if _status_at(at, name, inode) is not None:
                    raise
                continue  # the error of what has the name now
            status = os.fstat(found.number)
            if key_of(status) == inode.key:
                return found, status
        raise stale()

    def _arrived_on(self, device: int) -> None:
        """Take note of another file system below the root. On one that may hang, all calls go to threads."""
        self._devices.add(device)
        if self.direct and not _is_local_device(device):
            self.direct = False

    def forget(self, number: int, lookups: int) -> PassedInode | None:
        """Take back lookups. Return the inode if no lookup holds it any more."""
        gone = self.inodes.forget(number, lookups)
        if gone is not None and gone.descriptor is not None:
            with self._lock:
                self._open.pop(gone, None)
                gone.descriptor = None
        return gone

    def way(self, inode: PassedInode) -> tuple[bytes, ...]:
        """Return the names from the root to a file, as it was last seen. Raise ESTALE."""
        names: list[bytes] = []
        while inode is not self.inodes.root:
            if not inode.places or len(names) == DEEPEST:
                raise stale()
            inode, name = inode.places[-1]
            names.append(name)
        return tuple(reversed(names))


def _is_local(found: Descriptor) -> bool:
    """Return whether a file is on a local file system."""
    return file_system_of(found) in _LOCAL_MAGIC


def _is_local_device(device: int) -> bool:
    """Return whether a device is that of a local file system, or of a part of one, which is not mounted by itself."""
    wanted = b"%d:%d" % (os.major(device), os.minor(device))
    for line in MOUNTS.read_bytes().splitlines():
        before, _, after = line.partition(b" - ")
        if before.split()[2] == wanted:
            return after.split()[0] in _LOCAL_NAMES
    return True
