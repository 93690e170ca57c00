"""The toucher: a process that makes system calls on the mount for its daemon, so that the kernel makes events of them.

No notification of FUSE makes an event of inotify(7). A system call of a program does, once it succeeds: mknod(2) and
its like make CREATE, unlink(2) makes DELETE, and utimensat(2) of the modification time alone makes MODIFY. The daemon
expects exactly the call that it has asked for, answers it, and changes nothing. It cannot make the calls itself: a
process that waits for its own mount waits for itself. This one may wait, for a lock of a directory that another program
holds, and is killed if it waits for too long.

It makes calls in the mount alone: each begins at a descriptor of the mount's root, whose device is compared, and
crosses no other mount and no link. The file runs with nothing but the standard library.
"""

import ctypes
import errno
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

GREET, MODIFY, TOUCH, FILE, FOLDER, LINK, UNLINK, RMDIR = b"greet modify touch file folder link unlink rmdir".split()
WATCHED = b"watched"
"""The requests of the daemon. GREET looks up a name that does not exist. MODIFY makes that event of a file, TOUCH makes
ATTRIB of a directory; FILE, FOLDER and LINK make CREATE, UNLINK and RMDIR make DELETE. WATCHED asks for the inodes of
the mount that programs watch."""
DONE, STATUS, WATCHES = b"=", b"?", b"w"
"""How an answer begins: an errno, or 0, at the end of a call; a `Status` before it; the numbers of watched inodes."""
ALL, SOME = b"a", b"s"
"""Before these numbers: every program was looked at, or not every one."""
MOST_WATCHES = 16_000
"""Inodes that are told apart; they fit one message."""
STATUS_FORM = struct.Struct("=QQQqIqIqIIIII")
"""Inode, size, blocks, seconds and nanoseconds of atime, mtime and ctime, mode, owner, group, links."""
NUMBERS = "=%dQ"
_LARGEST = 1 << 16
_HOW = struct.Struct("=QQQ")
_SYS_OPENAT2 = 437
_IN_ONE_MOUNT = 0x01 | 0x02 | 0x04 | 0x08
"""RESOLVE_NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH."""
_STATX = struct.Struct("=IIQIIIHHQQQQqIiqIiqIiqIiIIII")
_BASIC, _AS_CACHED = 0x7FF, 0x1000 | 0x4000
"""STATX_BASIC_STATS; AT_EMPTY_PATH, AT_STATX_DONT_SYNC."""
_OMIT = (1 << 30) - 2
"""UTIME_OMIT: leave a time as it is."""
_BILLION = 10**9
_FIRST_NAMESPACES = {"user": 0xEFFFFFFD, "pid": 0xEFFFFFFC}
"""The numbers of the namespaces that have all processes (PROC_USER_INIT_INO, PROC_PID_INIT_INO)."""
_SET_DUMPABLE = 4
"""PR_SET_DUMPABLE of prctl(2)."""
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer


@contextmanager
def _opened(directory: int, path: bytes, flags: int) -> Iterator[int]:
    """Open a path below a directory, in the same mount, to name it and no more. Raise OSError."""
    how = _HOW.pack(os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0, _IN_ONE_MOUNT)
    syscall = _libc.syscall
    number = _checked(
        syscall(ctypes.c_long(_SYS_OPENAT2), ctypes.c_int(directory), path or b".", how, ctypes.c_size_t(len(how)))
    )
    try:
        yield number
    finally:
        os.close(number)


def _statx(descriptor: int) -> tuple[int, ...]:
    """Return what the kernel has cached of a file (struct statx). The file system gets no request."""
    found = ctypes.create_string_buffer(256)
    _checked(_libc.statx(descriptor, b"", _AS_CACHED, _BASIC, found))
    return _STATX.unpack_from(found.raw)


@contextmanager
def _root(path: bytes, device: int) -> Iterator[int]:
    """Open the root of the mount at a path. Raise OSError (ESTALE) if another mount is there."""
    root = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        *_, major, minor = _statx(root)
        if os.makedev(major, minor) != device:
            raise OSError(errno.ESTALE, "another mount")
        yield root
    finally:
        os.close(root)


def _touch(daemon: socket.socket, descriptor: int, token: int, *, both: bool) -> None:
    """Set the modification time of a file to a number that the daemon knows, after it is told what the kernel has."""
    _, _, _, links, uid, gid, mode, _, ino, size, blocks, _, *times = _statx(descriptor)[:24]
    atime, ctime, mtime = times[0:2], times[6:8], times[9:11]
    daemon.send(STATUS + STATUS_FORM.pack(ino, size, blocks, *atime, *mtime, *ctime, mode, uid, gid, links))
    modified = token // _BILLION, token % _BILLION
    spec = struct.pack("@4l", *(modified if both else (0, _OMIT)), *modified)
    _checked(_libc.utimensat(-100, b"/proc/self/fd/%d" % descriptor, spec, 0))


def _call(daemon: socket.socket, kind: bytes, token: int, parent: int, name: bytes, target: bytes) -> None:
    """Make one system call. Raise OSError."""
    if kind == GREET:
        with _opened(parent, name, 0):
            pass
    elif kind in (MODIFY, TOUCH):
        with _opened(parent, name, 0) as found:
            _touch(daemon, found, token, both=kind == TOUCH)
    elif kind == FILE:
        os.mknod(name, stat.S_IFREG | 0o444, dir_fd=parent)
    elif kind == FOLDER:
        os.mkdir(name, 0o555, dir_fd=parent)
    elif kind == LINK:
        os.symlink(target, name, dir_fd=parent)
    elif kind == UNLINK:
        os.unlink(name, dir_fd=parent)
    else:
        os.rmdir(name, dir_fd=parent)


def watched(device: int, *, others: bool) -> tuple[set[int], bool]:
    """Return the inodes of a device that programs watch by inotify(7) (proc_pid_fdinfo(5)), and whether these are all.

    others: whether other users may use the mount. A program of this user that hides its descriptors (prctl(2),
    PR_SET_DUMPABLE) is left out.
    """
    are_all = all(os.stat(f"/proc/self/ns/{each}").st_ino == number for each, number in _FIRST_NAMESPACES.items())
    if others and os.geteuid() != 0:
        are_all = False
    found: set[int] = set()
    wanted = b"%x" % (os.major(device) << 20 | os.minor(device))
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            for number in os.listdir(f"/proc/{process}/fd"):
                with suppress(FileNotFoundError):
                    said = os.readlink(f"/proc/{process}/fd/{number}")
                    if said == "anon_inode:[fanotify]":
                        are_all = False
                    if said == "anon_inode:inotify":
                        _take(found, f"/proc/{process}/fdinfo/{number}", wanted)
        except PermissionError:
            if others and _user(process) != os.geteuid():
                are_all = False
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended
    return found, are_all


def _user(process: str) -> int | None:
    """Return the user of a process; None if it has ended."""
    with suppress(OSError), open(f"/proc/{process}/status", "rb") as status:
        return next((int(line.split()[1]) for line in status if line.startswith(b"Uid:")), None)
    return None


def _take(found: set[int], path: str, device: bytes) -> None:
    """Add the inodes of one instance."""
    with open(path, "rb") as about:
        for line in about:
            words = dict(word.split(b":", 1) for word in line.split() if b":" in word)
            if line.startswith(b"inotify") and words.get(b"sdev") == device:
                found.add(int(words[b"ino"], 16))


def _answer(daemon: socket.socket, request: bytes) -> None:
    """Do what the daemon asks for, and answer. A request has eight parts, between NULs."""
    kind, device, token, root, directory, name, target = request.split(b"\0")
    if kind == WATCHED:
        seen, are_all = watched(int(device), others=token == b"1")
        numbers = [*seen][:MOST_WATCHES]
        said = ALL if are_all and len(numbers) == len(seen) else SOME
        daemon.send(WATCHES + said + struct.pack(NUMBERS % len(numbers), *numbers))
        return
    failed = 0
    try:
        with _root(root, int(device)) as top, _opened(top, directory, os.O_DIRECTORY) as parent:
            _call(daemon, kind, int(token), parent, name, target)
    except OSError as error:
        failed = error.errno or errno.EIO
    daemon.send(DONE + b"%d" % failed)


def main(daemon: socket.socket) -> None:
    """Answer until the daemon is gone."""
    os.umask(0)
    _libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)  # another program of this user would make it call by ptrace(2)
    while request := daemon.recv(_LARGEST):
        _answer(daemon, request)


if __name__ == "__main__":
    try:
        main(socket.socket(fileno=int(sys.argv[1])))
    finally:
        os._exit(0)
