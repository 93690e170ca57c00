"""Opening files beneath a root directory and nowhere else, by `openat2(2)` of Linux 5.6.

The kernel keeps every lookup beneath the root and follows no symbolic link (`RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS`,
`RESOLVE_NO_MAGICLINKS`). So no race with a program that moves directories or swaps links can lead out. There is no
fallback for older kernels.

All paths here are bytes, as in Linux. Functions block: call them in worker threads.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from bbfs.model.errors import (
    BbfsError,
    Busy,
    ConfigError,
    Denied,
    Exists,
    IsADirectory,
    NoSpace,
    NotEmpty,
    NotFound,
    NotSupported,
    ReadOnly,
    TooLarge,
    Unreachable,
)
from bbfs.sources.content.fd import Descriptor

Components = tuple[bytes, ...]

_SYS_OPENAT2 = 437  # the same on every architecture of Linux but alpha
_AT_FDCWD = -100
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_NO_LINKS = _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
_BENEATH = _RESOLVE_BENEATH | _NO_LINKS
_PATH_MAX = 4096  # bytes of one path in a system call, its NUL included
_SYMLINKS_MAX = 40  # as the kernel, path_resolution(7)
_LOOK = os.O_PATH | os.O_NOFOLLOW
_DIRECTORY = os.O_PATH | os.O_DIRECTORY

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    """`struct open_how` of <linux/openat2.h>."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def openat2(directory: int, path: bytes, flags: int, resolve: int = 0) -> Descriptor:
    """Open an existing `path` relative to `directory`, close-on-exec. Raise OSError or NotSupported."""
    number, code = _openat2(directory, path, flags, resolve)
    if number >= 0:
        return Descriptor(number)
    # Some container sandboxes answer EPERM to every system call they do not know.
    if code == errno.ENOSYS or (code == errno.EPERM and not _openat2_is_allowed()):
        raise NotSupported(
            "local folders need the system call openat2: Linux 5.6 or later, and not forbidden by a container's "
            "seccomp profile"
        )
    raise OSError(code, os.strerror(code))


def _openat2(directory: int, path: bytes, flags: int, resolve: int) -> tuple[int, int]:
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    while True:
        number = _libc.syscall(
            ctypes.c_long(_SYS_OPENAT2),
            ctypes.c_int(directory),
            ctypes.c_char_p(path),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        code = ctypes.get_errno()
        if number >= 0 or code != errno.EINTR:
            return number, code


def _openat2_is_allowed() -> bool:
    number, _ = _openat2(_AT_FDCWD, b"/", _DIRECTORY, 0)
    Descriptor(number).close()
    return number >= 0


_ERRORS: dict[int, type[BbfsError]] = {
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ENXIO, errno.ENODEV), NotFound),
    # ELOOP: a symbolic link on the way, EXDEV: a way out of the root.
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.ELOOP, errno.EXDEV), Denied),
    **dict.fromkeys((errno.ESTALE, errno.ENOTCONN, errno.ESHUTDOWN, errno.ETIMEDOUT), Unreachable),
    **dict.fromkeys((errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH), Unreachable),
    **dict.fromkeys((errno.ECONNABORTED, errno.ECONNREFUSED), Unreachable),
    errno.EISDIR: IsADirectory,
    errno.EEXIST: Exists,
    errno.ENOTEMPTY: NotEmpty,
    errno.EROFS: ReadOnly,
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), NoSpace),
    errno.EFBIG: TooLarge,
    errno.EBUSY: Denied,  # something is mounted there
    errno.EAGAIN: Busy,  # another program holds a lease on the file
}


def error_of(error: OSError, what: str) -> BbfsError:
    """Return bbfs's error for an error of the operating system. what: its object, for the message."""
    code = error.errno or errno.EIO
    if code == errno.ELOOP:
        return Denied(f"{what}: a symbolic link, and links are not followed")
    return _ERRORS.get(code, BbfsError)(f"{what}: {os.strerror(code)}")


class AtMountPoint(Exception):
    """A path reached the directory that bbfs mounts on. below: the path goes on from there."""

    def __init__(self, below: bool) -> None:
        super().__init__("the mount point of bbfs")
        self.below = below


@dataclass(frozen=True, slots=True)
class MountPoint:
    """The directory that bbfs mounts on, as an entry of its parent.

    A process must not touch the mount that it serves, so nothing looks at the mount point itself. Device and inode of
    the parent identify it on every path.
    """

    path: bytes
    device: int
    inode: int
    name: bytes

    @classmethod
    def named(cls, path: str) -> "MountPoint":
        """Return the mount point at `path`, whose last name is no link. Raise ConfigError.

        Something may be mounted there already, by this process, as at a reload: only its parent is looked at.
        """
        parent, name = os.path.split(os.path.abspath(os.fsencode(path)))
        parent = os.path.realpath(parent)
        real = os.path.join(parent, name)
        if not name:
            raise ConfigError(f"{path} is the root of the file system: local folders would all lie below the mount")
        try:
            found = os.stat(parent)
        except OSError as error:
            raise ConfigError(f"the mount point {path}: {os.strerror(error.errno or errno.EIO)}") from error
        return cls(real, found.st_dev, found.st_ino, name)

    def is_in(self, directory: os.stat_result) -> bool:
        """Return whether the mount point is an entry of a directory."""
        return directory.st_ino == self.inode and directory.st_dev == self.device

    def holds(self, path: bytes) -> bool:
        """Return whether an absolute path without links is the mount point or below it, without a system call."""
        return os.path.commonpath((os.path.normpath(path), self.path)) == self.path

    def refusal(self, root: bytes) -> ConfigError:
        return ConfigError(
            f"the folder {os.fsdecode(root)!r} is the mount point {os.fsdecode(self.path)!r} or lies below it"
        )


class Root:
    """A directory and the lookups beneath it. It is looked up at each use, so it may vanish, return and be replaced.

    path: absolute; may lead through symbolic links. mount_point: no lookup may touch it.
    """

    def __init__(self, path: bytes, mount_point: MountPoint | None) -> None:
        self.path = path
        self.mount_point = mount_point

    def open(self, path: Components, flags: int) -> Descriptor:
        """Open `path` beneath the root. A link at its end is opened itself (with O_PATH) or refused (without).

        path: names, none of them empty, `.`, `..` or with a slash; a slash at the end of the last name requires a
        directory. Raise OSError for an error of the path; Unreachable, Denied or ConfigError for one of the root;
        AtMountPoint.
        """
        flags |= os.O_NOFOLLOW
        whole = b"/".join(path) or b"."
        current = self._open_root()
        try:
            if len(whole) < _PATH_MAX and not self._may_touch_mount_point(path):
                return openat2(current.number, whole, flags, _BENEATH)
            for name in path[:-1]:
                if self._is_mount_point(current, name):
                    raise AtMountPoint(below=True)
                current = openat2(current.number, name, _DIRECTORY, _BENEATH)
            if self._is_mount_point(current, path[-1]):
                raise AtMountPoint(below=False)
            return openat2(current.number, path[-1], flags, _BENEATH)
        finally:
            # Closed here, because the traceback of an error may hold a reference for long.
            current.close()

    def mount_point_in(self, directory: os.stat_result) -> bytes | None:
        """Return the name of the mount point if it is an entry of a directory, else None."""
        if self.mount_point is not None and self.mount_point.is_in(directory):
            return self.mount_point.name
        return None

    def _may_touch_mount_point(self, names: Iterable[bytes]) -> bool:
        return self.mount_point is not None and any(name.rstrip(b"/") == self.mount_point.name for name in names)

    def _is_mount_point(self, directory: Descriptor, name: bytes) -> bool:
        return self._may_touch_mount_point((name,)) and self.mount_point_in(os.fstat(directory.number)) is not None

    def _open_root(self) -> Descriptor:
        try:
            return self._find_root()
        except OSError as error:
            mapped = error_of(error, f"the folder {os.fsdecode(self.path)!r}")
            # The whole source is gone, so this is an outage and not a missing resource.
            raise (Unreachable(str(mapped)) if isinstance(mapped, NotFound) else mapped) from error

    def _find_root(self) -> Descriptor:
        names = [name for name in self.path.split(b"/") if name]
        if not self._may_touch_mount_point(names):
            try:
                return openat2(_AT_FDCWD, self.path, _DIRECTORY, _NO_LINKS)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
        return self._find_root_by_links(names)

    def _find_root_by_links(self, names: list[bytes]) -> Descriptor:
        """Walk name by name and resolve symbolic links, to see the mount point before the kernel touches it."""
        current = openat2(_AT_FDCWD, b"/", _DIRECTORY)
        ahead = names[::-1]
        links = 0
        try:
            while ahead:
                name = ahead.pop()
                if self.mount_point is not None and self._is_mount_point(current, name):
                    raise self.mount_point.refusal(self.path)
                following = openat2(current.number, name, _LOOK)
                if not stat.S_ISLNK(os.fstat(following.number).st_mode):
                    current = following
                    continue
                with following:
                    target = os.readlink(b"", dir_fd=following.number)
                links += 1
                if links > _SYMLINKS_MAX:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                if target.startswith(b"/"):
                    current = openat2(_AT_FDCWD, b"/", _DIRECTORY)
                ahead.extend(part for part in reversed(target.split(b"/")) if part)
            return openat2(current.number, b".", _DIRECTORY)
        finally:
            current.close()
