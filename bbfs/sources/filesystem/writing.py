"""Changes in a local folder, beneath its root: whole files, names, directories and times.

A file is written beside the old one and takes its name once it is on disk, so a reader has the old or the new one. What
a killed process has left of that, the next write in its directory removes.
Functions block and raise OSError and BbfsError.
"""

import errno
import os
import stat
from contextlib import suppress

from bbfs.model.errors import Conflict, Denied, Exists, IsADirectory, NotFound
from bbfs.model.versions import Expected
from bbfs.runtime.renaming import NOREPLACE, rename_with
from bbfs.sources.content.fd import Descriptor
from bbfs.sources.filesystem.beneath import AtMountPoint, Components, Root
from bbfs.sources.filesystem.content import etag_of, require_regular
from bbfs.sources.unfinished import new_name, remove_left

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_ACL = "system.posix_acl_access"
"""The extended attribute of a file's access control list (acl(5))."""


class Replacement:
    """A file that is being written to take a name. `drop` it if it did not.

    Its descriptors are closed with the last reference: a thread that was given up may still use them.
    """

    def __init__(self, root: Root, path: Components) -> None:
        self._directory = _open_parent(root, path)
        self._name = path[-1]
        self._temporary = new_name().encode()
        # What replaces a file is its writer's alone until it has the rights of that file.
        mode = 0o600 if _is_there(self._directory.number, self._name) else 0o666
        self._file = Descriptor(os.open(self._temporary, _NEW, mode, dir_fd=self._directory.number))
        remove_left(self._directory.number, os.fstat(self._file.number).st_mtime)
        self._is_there = True

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file.number, data) :]

    def take_place(self, expected: Expected) -> os.stat_result:
        """Give the file its name, if the name leads to the expected version. Raise Conflict, Exists, IsADirectory."""
        at, number = self._directory.number, self._file.number
        old = _compared(at, self._name, expected)
        if old is not None:
            _copy_attributes(at, self._name, number)
            _copy_rights(at, self._name, number)
        os.fsync(number)
        _compared(at, self._name, expected)
        if expected.exists is False:
            rename_with(at, self._temporary, at, self._name, NOREPLACE)
        else:
            os.rename(self._temporary, self._name, src_dir_fd=at, dst_dir_fd=at)
        self._is_there = False
        os.fsync(at)
        return os.fstat(number)

    def drop(self) -> None:
        """Remove the file unless it has taken its name."""
        if self._is_there:
            with suppress(FileNotFoundError):  # it takes its name just now, in a thread that was given up
                os.unlink(self._temporary, dir_fd=self._directory.number)


def _is_there(at: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=at, follow_symlinks=False)
    except OSError:
        return False
    return True


def _copy_attributes(at: int, name: bytes, to: int) -> None:
    """Copy the owner's extended attributes of the old file to a new file."""
    with Descriptor(os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=at)) as old:
        way = f"/proc/self/fd/{old.number}"
        try:
            for attribute in os.listxattr(way):
                if attribute.startswith("user."):
                    os.setxattr(to, attribute, os.getxattr(way, attribute))
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise


def _copy_rights(at: int, name: bytes, to: int) -> None:
    """Copy the owner, group, mode and access control list of the old file to a new file, and give no right beyond
    these.

    Other bytes must not run with the owner's rights, so a set-user-ID or set-group-ID bit goes, as with write(2). If
    this process may not give the file to its group, no member of another group gains by it.
    """
    with Descriptor(os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=at)) as old:
        way, status = f"/proc/self/fd/{old.number}", os.fstat(old.number)
        mode, acl = stat.S_IMODE(status.st_mode) & ~(stat.S_ISUID | stat.S_ISGID), _acl(way)
        if not _given(to, status):
            others = mode & 0o007 if acl is None else 0
            mode, acl = mode & (0o1700 | others * 0o11), None
        if acl is None and _acl(to) is not None:  # that of its directory for new files; a mode would widen its mask
            os.removexattr(to, _ACL)
        os.fchmod(to, mode)
        if acl is not None:
            os.setxattr(to, _ACL, acl)


def _given(number: int, to: os.stat_result) -> bool:
    """Give a file to the owner and the group of another one, if this process may. Return whether it has the group."""
    now = os.fstat(number)
    for uid, gid in ((to.st_uid, to.st_gid), (-1, to.st_gid)):
        if (now.st_uid, now.st_gid) == (to.st_uid, to.st_gid):
            return True
        with suppress(PermissionError):
            os.fchown(number, uid, gid)
        now = os.fstat(number)
    return now.st_gid == to.st_gid


def _acl(file: int | str) -> bytes | None:
    """Return the access control list of a file, given by a descriptor or a path, or None if its mode says all."""
    try:
        return os.getxattr(file, _ACL)
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return None
        raise


def _compared(at: int, name: bytes, expected: Expected) -> os.stat_result | None:
    """Return the status of the file that a name leads to, or None. Raise unless it is what is expected."""
    try:
        status = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        if expected.exists or expected.etag is not None:
            raise Conflict(f"{os.fsdecode(name)}: was removed") from None
        return None
    if expected.exists is False:
        raise Exists(os.fsdecode(name))
    if stat.S_ISLNK(status.st_mode):
        raise Denied(f"{os.fsdecode(name)}: a symbolic link, and links are not followed")
    require_regular(status, os.fsdecode(name))
    if expected.etag not in (None, etag_of(status)):
        raise Conflict(f"{os.fsdecode(name)}: has changed")
    return status


def _open_parent(root: Root, path: Components) -> Descriptor:
    """Open the directory that a path is in. Raise Denied for the mount point, IsADirectory for the root."""
    if not path:
        raise IsADirectory("the folder itself")
    try:
        directory = root.open(path[:-1], _DIRECTORY)
    except AtMountPoint:
        raise Denied("the mount point of bbfs") from None
    if root.mount_point_in(os.fstat(directory.number)) == path[-1].rstrip(b"/"):
        raise Denied("the mount point of bbfs")
    return directory


def remove(root: Root, path: Components, expected: Expected) -> None:
    with _open_parent(root, path) as directory:
        _require_there(directory, path)
        _compared_or_link(directory.number, path[-1], expected)
        os.unlink(path[-1], dir_fd=directory.number)


def _require_there(directory: Descriptor, path: Components) -> None:
    try:
        os.stat(path[-1], dir_fd=directory.number, follow_symlinks=False)
    except FileNotFoundError:
        raise NotFound(os.fsdecode(b"/".join(path))) from None


def _compared_or_link(at: int, name: bytes, expected: Expected) -> None:
    """As `_compared`; a symbolic link can be removed as well."""
    status = os.stat(name, dir_fd=at, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        _compared(at, name, expected)
    elif expected.etag not in (None, etag_of(status)):
        raise Conflict(f"{os.fsdecode(name)}: has changed")


def rename(root: Root, path: Components, to: Components, *, replace: bool) -> None:
    with _open_parent(root, path) as directory, _open_parent(root, to) as there:
        if replace:
            os.rename(path[-1], to[-1], src_dir_fd=directory.number, dst_dir_fd=there.number)
        else:
            rename_with(directory.number, path[-1], there.number, to[-1], NOREPLACE)


def make_directory(root: Root, path: Components) -> None:
    with _open_parent(root, path) as directory:
        os.mkdir(path[-1], dir_fd=directory.number)


def remove_directory(root: Root, path: Components) -> None:
    with _open_parent(root, path) as directory:
        os.rmdir(path[-1], dir_fd=directory.number)


def set_time(root: Root, path: Components, modified_ns: int) -> None:
    with _open_parent(root, path) as directory:
        status = os.stat(path[-1], dir_fd=directory.number, follow_symlinks=False)
        times = (status.st_atime_ns, modified_ns)
        os.utime(path[-1], ns=times, dir_fd=directory.number, follow_symlinks=False)
