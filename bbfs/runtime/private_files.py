"""Files and directories of this user alone: mode 0600 and 0700, whatever was there before.

A file or directory of another user is refused, and so is a file behind a symbolic link. All functions raise OSError.
"""

import errno
import logging
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""The flags of every opening. A pipe or device in place of the file does not block it."""


def own_directory(path: "str | Path") -> None:
    """Make a directory and its parents if need be, and take it from all other users."""
    _make_directory(path)
    take_directory(path)


def _make_directory(path: "str | Path") -> None:
    # os.makedirs gives its mode to the last one alone, and to those above what the umask leaves of 0777. The XDG Base
    # Directory Specification wants 0700 for each.
    above = os.path.dirname(path)
    if above and not os.path.exists(above):
        _make_directory(above)
    try:
        os.mkdir(path, 0o700)
    except OSError:
        if not os.path.isdir(path):
            raise


def take_directory(path: "str | Path") -> None:
    """Take a directory from all other users. Say so if they could write there."""
    _require_own(path, os.lstat(path))  # a link of this user's may lead to a disk with more room
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        _require_own(path, status)
        mode = stat.S_IMODE(status.st_mode)
        if mode != 0o700:
            os.fchmod(descriptor, 0o700)
        if mode & 0o022:
            log.warning("%s was open to other users (mode %04o); it is closed to them now", path, mode)
    finally:
        os.close(descriptor)


def own_database(path: "str | Path") -> None:
    """Make an empty file for SQLite if there is none, and take it and its companions from all other users."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN, 0o600))
    except FileExistsError:
        _take(path)
    for companion in ("-wal", "-shm", "-journal"):
        try:
            _take(f"{path}{companion}")
        except FileNotFoundError:
            continue


def open_own(path: "str | Path", flags: int) -> int:
    """Open a regular file of this user, which no other user can read or change. Return its descriptor."""
    descriptor = os.open(path, flags | _OPEN, 0o600)
    try:
        status = os.fstat(descriptor)
        _require_own(path, status)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no regular file", os.fspath(path))
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(errno.EPERM, f"others can read or change it: chmod 600 {path}", os.fspath(path))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_taken(path: "str | Path", flags: int) -> int:
    """Open a file as `open_own` does, and take it from all other users before.

    A home that was copied or restored may have other modes, and the bytes are still this user's.
    """
    _take(path)
    return open_own(path, flags)


def _take(path: "str | Path") -> None:
    # A descriptor of O_PATH: closing any other would release the locks of SQLite on the same file (fcntl_locking(2)).
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        _require_own(path, status)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no regular file", os.fspath(path))
        if stat.S_IMODE(status.st_mode) != 0o600:
            os.chmod(f"/proc/self/fd/{descriptor}", 0o600)
    finally:
        os.close(descriptor)


def _require_own(path: "str | Path", status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "belongs to another user", os.fspath(path))
