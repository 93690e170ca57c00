"""One local folder that a mount passes through: the calls of programs as calls on the folder.

Every call names a file by its inode, or by a directory's inode and a name (`places`). Functions block and raise OSError
with the kernel's own errno. In the event loop they may raise `MayCrossMount`.
"""

import errno
import os
import stat
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bbfs.runtime.renaming import NOREPLACE, rename_with
from bbfs.sources.content.fd import Descriptor, of_program, require_room
from bbfs.sources.filesystem.beneath import Root
from bbfs.vfs.file_handles import NewAttributes
from bbfs.vfs.passthrough.inodes import PassedInode, Place, key_of
from bbfs.vfs.passthrough.places import LOOK, MayCrossMount, Places, stale

AT_ONCE = 24
"""Entries of a directory that are looked at together: as many as fit into the kernel's buffer."""
SETTLED = 0.05
"""Seconds for which a file must be unchanged until its stamp is believed: a second change in the same tick of the
kernel's clock has the same time."""
EXCHANGE = 2
"""Flag of renameat2(2): both names stay, and lead to each other's files."""
_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_KEPT_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_SYNC | os.O_DSYNC


def _way_to(descriptor: Descriptor) -> str:
    """Return a path that the kernel resolves to the file of a descriptor, also one with O_PATH (proc_pid_fd(5)).

    The number of an open descriptor spares the kernel this path. With O_PATH, no number changes attributes (open(2)).
    """
    return f"/proc/self/fd/{descriptor.number}"


def process_umask() -> int:
    """Return the umask of this process without changing it (proc_pid_status(5))."""
    for line in Path("/proc/self/status").read_bytes().splitlines():
        if line.startswith(b"Umask:"):
            return int(line.split()[1], 8)
    return 0o777  # unknown: every mode is set after a file is made


@dataclass(frozen=True, slots=True)
class Creator:
    """The user and the group of a program, and the mode without the bits of its umask."""

    mode: int
    uid: int
    gid: int


@dataclass(slots=True)
class PassedFile:
    """A file that a program has open. written: it has changed the file."""

    inode: PassedInode
    descriptor: Descriptor
    writes: bool
    written: bool = False


@dataclass(slots=True)
class PassedDirectory:
    """A directory that a program has open: its names as they were when it began to read them.

    at: how much had happened when it was looked `ahead`. ready: made of its entries, which hold while the directory
    stays as it is. Both are the caller's.
    """

    inode: PassedInode
    descriptor: Descriptor
    names: list[bytes] = field(default_factory=list)
    ahead: dict[int, os.stat_result | None] = field(default_factory=dict)
    looked_at: range = range(0)
    at: int = 0
    ready: object = None

    def restart(self, names: list[bytes]) -> None:
        """Begin again with the names that the directory has now."""
        self.names, self.looked_at = names, range(0)
        self.ahead.clear()


class PassedFolder(Places):
    """One folder, and the calls on it.

    changes: the directories and names that programs have changed, for the caller to take out.
    """

    def __init__(self, root: Root, number: int, *, hidden: bool) -> None:
        super().__init__(root, number, hidden=hidden)
        self.changes: deque[Place] = deque()
        self._own = (os.geteuid(), os.getegid())
        self._umask = process_umask()

    # -- names -------------------------------------------------------------------------------------------------------

    def lookup(self, parent: PassedInode, name: bytes) -> os.stat_result:
        """Return the status of a name. Raise ENOENT, AtMountPoint."""
        at = self._in(parent, name)
        status = os.stat(name, dir_fd=at.number, follow_symlinks=False)
        if status.st_dev not in self._devices:
            self._arrived_on(status.st_dev)
        return status

    def counted(self, parent: PassedInode, name: bytes, status: os.stat_result) -> PassedInode:
        """Count a lookup of a name that has a status. Return its inode."""
        return self.inodes.count(status, (parent, name), directory=stat.S_ISDIR(status.st_mode))

    # -- attributes --------------------------------------------------------------------------------------------------

    def getattr(self, inode: PassedInode) -> os.stat_result:
        if inode is self.inodes.root:
            return self.open_root()
        opened = inode.opened
        if opened is not None:
            return os.fstat(opened.number)
        if inode.descriptor is not None:
            return os.fstat(inode.descriptor.number)
        return self._status(inode)

    def setattr(self, inode: PassedInode, handle: PassedFile | None, changed: NewAttributes) -> os.stat_result:
        """Set attributes as chown(2), truncate(2), chmod(2) and utimensat(2) do. Return the status afterwards."""
        if changed.size is not None:
            self._truncate(inode, handle, changed.size)
        found = inode.opened if handle is None else handle.descriptor
        if found is not None:
            way: str | int = found.number
        else:
            found = self._look(inode)
            way = _way_to(found)
        if changed.uid is not None or changed.gid is not None:
            os.chown(way, -1 if changed.uid is None else changed.uid, -1 if changed.gid is None else changed.gid)
        if changed.mode is not None:
            os.chmod(way, changed.mode)
        modified, accessed = changed.modified_ns, changed.accessed_ns
        if modified is not None or accessed is not None:
            if modified is None or accessed is None:
                now = os.fstat(found.number)
                accessed = now.st_atime_ns if accessed is None else accessed
                modified = now.st_mtime_ns if modified is None else modified
            os.utime(way, ns=(accessed, modified))
        self._note_change(inode)
        return os.fstat(found.number)

    def _truncate(self, inode: PassedInode, handle: PassedFile | None, size: int) -> None:
        inode.stamp = None
        if handle is not None and handle.writes:
            handle.written = True
            os.ftruncate(handle.descriptor.number, size)
            return
        with self._opened(inode, os.O_WRONLY | _OPEN)[0] as found:
            os.ftruncate(found.number, size)

    def _note_change(self, inode: PassedInode) -> None:
        if inode.places:
            self.changes.append(inode.places[-1])

    def readlink(self, inode: PassedInode) -> bytes:
        found = self._look(inode)
        return os.readlink(b"", dir_fd=found.number)

    def statvfs(self) -> os.statvfs_result:
        return os.statvfs(_way_to(self.directory(self.inodes.root)))

    # -- extended attributes -----------------------------------------------------------------------------------------

    def getxattr(self, inode: PassedInode, name: bytes) -> bytes:
        found = self._look(inode)
        return os.getxattr(_way_to(found), name)

    def listxattr(self, inode: PassedInode) -> list[bytes]:
        found = self._look(inode)
        return [os.fsencode(name) for name in os.listxattr(_way_to(found))]

    def setxattr(self, inode: PassedInode, name: bytes, value: bytes) -> None:
        found = self._look(inode)
        os.setxattr(_way_to(found), name, value)

    def removexattr(self, inode: PassedInode, name: bytes) -> None:
        found = self._look(inode)
        os.removexattr(_way_to(found), name)

    # -- open files --------------------------------------------------------------------------------------------------

    def open(self, inode: PassedInode, flags: int) -> tuple[PassedFile, bool]:
        """Open a file; the kernel has checked the permissions. Return also if the kernel's pages of it are right."""
        found, status = self._opened(inode, flags & _KEPT_FLAGS | _OPEN)
        require_room(found)
        if not stat.S_ISREG(status.st_mode):
            raise stale()
        opened = PassedFile(inode, found, flags & os.O_ACCMODE != os.O_RDONLY)
        if flags & os.O_TRUNC:
            os.truncate(_way_to(found), 0)  # by its path: the descriptor may be for reading alone
            opened.written = True
        return opened, self._settled(inode, status)

    def create(
        self, parent: PassedInode, name: bytes, flags: int, creator: Creator
    ) -> tuple[Descriptor, os.stat_result]:
        """Create a file and open it. Raise ESTALE if there is one by now, unless `flags` has O_EXCL.

        The kernel had the name as free, so it has not checked whether the program may open what has it. After ESTALE it
        looks the name up again, and opens that.
        """
        at = self._to_change(parent, name)
        new = flags & _KEPT_FLAGS | _OPEN | os.O_CREAT | os.O_EXCL
        of_program(os.dup(at.number)).close()  # before there is a file that cannot be opened
        try:
            found = Descriptor(os.open(name, new, creator.mode, dir_fd=at.number))
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            raise stale() from None
        status = self._given(found, at, os.fstat(found.number), creator)
        self.changes.append((parent, name))
        return found, status

    def _given(self, found: Descriptor, at: Descriptor, status: os.stat_result, creator: Creator) -> os.stat_result:
        """Give what was made to the program's user, and the mode that it asked for. Return the status."""
        uid, gid = creator.uid, creator.gid
        foreign = (uid, gid) != self._own
        masked = creator.mode & self._umask and not stat.S_ISLNK(status.st_mode)
        if not foreign and not masked:
            return status
        way = _way_to(found)
        if foreign:
            if os.fstat(at.number).st_mode & stat.S_ISGID:
                gid = -1
            with suppress(PermissionError):  # only root gives files away: this one is that of the user who mounted
                os.chown(way, uid, gid)
        if masked and not _has_default_acl(at):
            os.chmod(way, creator.mode | stat.S_IMODE(status.st_mode) & stat.S_ISGID)
        return os.fstat(found.number)

    def read(self, opened: PassedFile, offset: int, length: int) -> bytes:
        return os.pread(opened.descriptor.number, length, offset)

    def read_now(self, opened: PassedFile, offset: int, length: int) -> bytes | memoryview | None:
        """Return bytes that the folder's file system has in memory, else None. Never waits for a disk."""
        number, buffer = opened.descriptor.number, bytearray(length)
        try:
            got = os.preadv(number, [buffer], offset, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return os.pread(number, length, offset)  # a file system in memory has nothing to wait for
            if error.errno == errno.EAGAIN:
                return None
            raise
        if got < length and offset + got < os.fstat(number).st_size:
            return None
        return memoryview(buffer)[:got]

    def write(self, opened: PassedFile, offset: int, data: bytes) -> int:
        opened.written = True
        self._drop_rights(opened.descriptor)
        return os.pwrite(opened.descriptor.number, data, offset)

    def _drop_rights(self, written: Descriptor) -> None:
        """Let a file that a program writes no longer run with its owner's or group's rights, as write(2) does.

        The kernel does so for a user, but not for a privileged process as this one may be; and for direct I/O, which an
        append here is, it asks no file system to.
        """
        if self._own[0] == 0:
            mode = stat.S_IMODE(os.fstat(written.number).st_mode)
            runs_as_group = mode & stat.S_ISGID and mode & stat.S_IXGRP
            if mode & stat.S_ISUID or runs_as_group:
                os.chmod(_way_to(written), mode & ~(stat.S_ISUID | (stat.S_ISGID if runs_as_group else 0)))

    def _settled(self, inode: PassedInode, status: os.stat_result) -> bool:
        """Return whether the kernel's pages of a file are still right, as it is opened."""
        now = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        right = inode.stamp == now
        if not right:
            long_ago = status.st_ctime_ns < (time.time() - SETTLED) * 1e9
            inode.stamp = now if long_ago else None
        return right

    def sync(self, descriptor: Descriptor, *, only_data: bool) -> None:
        (os.fdatasync if only_data else os.fsync)(descriptor.number)

    def closed(self, opened: PassedFile) -> None:
        """End an open.

        A thread that was given up may go on with the descriptor, and its number must not become another file's. So the
        last reference closes it: mostly here, in the thread of this call, since close(2) may wait.
        """
        if opened.written:
            self._note_change(opened.inode)
        del opened.descriptor

    def flush(self, opened: PassedFile) -> None:
        """Raise the error of writing that close(2) would raise."""
        os.close(os.dup(opened.descriptor.number))

    # -- open directories --------------------------------------------------------------------------------------------

    def opendir(self, inode: PassedInode) -> PassedDirectory:
        at = self.directory(inode)
        return PassedDirectory(inode, of_program(os.open(b".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=at.number)))

    def begin(self, opened: PassedDirectory) -> None:
        """Take the names of a directory as they are now."""
        names = map(os.fsencode, os.listdir(opened.descriptor.number))
        opened.restart([*names] if self._hidden else [name for name in names if not name.startswith(b".")])

    def look_ahead(self, opened: PassedDirectory, start: int, most: int = AT_ONCE) -> None:
        """Learn the status of the next entries; None for the mount point. Those that are gone are left out."""
        opened.ahead.clear()
        opened.looked_at = range(start, min(start + most, len(opened.names)))
        at, mounted = opened.descriptor.number, self._mounted_names()
        own = self.mount_point_in(opened.inode)
        for place in opened.looked_at:
            name = opened.names[place]
            if name == own:
                opened.ahead[place] = None
                continue
            if name in mounted:
                raise MayCrossMount
            try:
                status = os.stat(name, dir_fd=at, follow_symlinks=False)
            except OSError:
                continue
            if status.st_dev not in self._devices:
                self._arrived_on(status.st_dev)
            opened.ahead[place] = status

    def look_at_all(self, opened: PassedDirectory) -> Iterator[os.stat_result | None]:
        """Yield the status of each entry; None for one that is gone, or is on another file system, or may be."""
        at, mounted = opened.descriptor.number, self._mounted_names()
        for name in opened.names:
            status = None
            if name not in mounted:
                with suppress(OSError):
                    status = os.stat(name, dir_fd=at, follow_symlinks=False)
            yield status if status is not None and status.st_dev in self._devices else None

    # -- making and removing -----------------------------------------------------------------------------------------

    def _status_of_new(self, parent: PassedInode, name: bytes, at: Descriptor, creator: Creator) -> os.stat_result:
        self.changes.append((parent, name))
        with Descriptor(os.open(name, LOOK, dir_fd=at.number)) as found:
            status = os.fstat(found.number)
            if (creator.uid, creator.gid) != self._own and not _is_as_made(found, status):
                return status  # its user has put another file there, which is not to be given away
            return self._given(found, at, status, creator)

    def mkdir(self, parent: PassedInode, name: bytes, creator: Creator) -> os.stat_result:
        at = self._to_change(parent, name)
        os.mkdir(name, creator.mode, dir_fd=at.number)
        return self._status_of_new(parent, name, at, creator)

    def mknod(self, parent: PassedInode, name: bytes, kind: int, creator: Creator) -> os.stat_result:
        """Make a file, a pipe or a socket. kind: the type bits of its mode."""
        if kind not in (stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK):
            raise OSError(errno.EPERM, "the mount has no devices")
        at = self._to_change(parent, name)
        os.mknod(name, kind | creator.mode, dir_fd=at.number)
        return self._status_of_new(parent, name, at, creator)

    def symlink(self, parent: PassedInode, name: bytes, target: bytes, creator: Creator) -> os.stat_result:
        """Make a symbolic link. Its target is text, which nothing here follows."""
        at = self._to_change(parent, name)
        os.symlink(target, name, dir_fd=at.number)
        return self._status_of_new(parent, name, at, creator)

    def link(self, inode: PassedInode, parent: PassedInode, name: bytes) -> os.stat_result:
        """Give a file another name."""
        found = self._look(inode)
        at = self._to_change(parent, name)
        os.link(_way_to(found), name, dst_dir_fd=at.number, follow_symlinks=True)
        self.changes.append((parent, name))
        return os.fstat(found.number)

    def unlink(self, parent: PassedInode, name: bytes) -> None:
        at = self._to_change(parent, name)
        os.unlink(name, dir_fd=at.number)
        self.changes.append((parent, name))

    def rmdir(self, parent: PassedInode, name: bytes) -> None:
        at = self._to_change(parent, name)
        self._hold(at, name)
        os.rmdir(name, dir_fd=at.number)
        self.changes.append((parent, name))

    def _hold(self, at: Descriptor, name: bytes) -> None:
        """Have a directory open: programs that are in it go on using it when its name is gone."""
        try:
            status = os.stat(name, dir_fd=at.number, follow_symlinks=False)
            inode = self.inodes.known(key_of(status)) if stat.S_ISDIR(status.st_mode) else None
            if inode is not None:
                self.directory(inode)
        except OSError:
            return  # the call itself says why, or the directory is known by another name

    def rename(self, parent: PassedInode, name: bytes, to_parent: PassedInode, to_name: bytes, flags: int) -> None:
        """Rename, as renameat2(2)."""
        if flags & ~(NOREPLACE | EXCHANGE):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        at, to = self._to_change(parent, name), self._to_change(to_parent, to_name)
        self._hold(to, to_name)
        if flags == 0:
            os.rename(name, to_name, src_dir_fd=at.number, dst_dir_fd=to.number)
        else:
            rename_with(at.number, name, to.number, to_name, flags)
        self._moved(to_parent, to_name, to)
        if flags & EXCHANGE:
            self._moved(parent, name, at)
        self.changes += ((parent, name), (to_parent, to_name))

    def _moved(self, parent: PassedInode, name: bytes, at: Descriptor) -> None:
        """Note the new name of what was renamed: the kernel does not look it up again."""
        try:
            status = os.stat(name, dir_fd=at.number, follow_symlinks=False)
        except OSError:
            return
        inode = self.inodes.known(key_of(status))
        if inode is not None and inode is not self.inodes.root:
            inode.is_at((parent, name), directory=stat.S_ISDIR(status.st_mode))


def _has_default_acl(directory: Descriptor) -> bool:
    """Return whether a directory has an access control list for new files. To those, no umask applies (acl(5))."""
    try:
        return bool(os.getxattr(_way_to(directory), "system.posix_acl_default"))
    except OSError:
        return False


def _is_as_made(found: Descriptor, status: os.stat_result) -> bool:
    """Return whether a file may have been made just now: it has nothing in it."""
    if stat.S_ISDIR(status.st_mode):
        return not os.listdir(_way_to(found))
    if stat.S_ISREG(status.st_mode):
        return status.st_size == 0 and status.st_nlink == 1
    return not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode))
