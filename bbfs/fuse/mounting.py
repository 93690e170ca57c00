"""Mounting and unmounting: a directory that is fit for it, dead and hung mounts, and what a machine lacks."""

import ctypes
import errno
import os
import select
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from bbfs.fuse import mountpoint
from bbfs.fuse.control.address import was_killed
from bbfs.fuse.mountpoint import DeadMount, Mount, MountError, SilentMount
from bbfs.runtime.extras import install_command, needs

MOUNT_TABLE = "/etc/mtab"
UMOUNT_TIMEOUT = 10.0
PATIENCE = 10.0
"""Seconds without an answer after which a mount that is to be unmounted counts as one that hangs."""
CONNECTIONS = Path("/sys/fs/fuse/connections")
"""The connections of FUSE, by the minor numbers of their mounts (fuse.rst in the kernel's documentation)."""
_MNT_FORCE, _MNT_DETACH, _UMOUNT_NOFOLLOW = 1, 2, 8
_MOST_LINKS = 40
"""Symbolic links that lead to each other, as many as the kernel follows."""
_FUSE = os.makedev(10, 229)
"""The number of `/dev/fuse` (devices.txt in the kernel's documentation)."""
READ_AHEAD = 1024
"""KiB that the kernel may read ahead at once in a sequential read; as much as one FUSE request can hold."""


def is_dead(path: str) -> bool:
    """Return whether the daemon of a FUSE mount is gone, or was killed and cannot end. One that hangs is not dead."""
    try:
        mountpoint.names(path)
    except DeadMount:
        return True
    except SilentMount:
        return _was_killed(path)
    except MountError:
        return False
    return False


def _was_killed(path: str) -> bool:
    try:
        return was_killed(path)
    except OSError:
        return False  # no directory of control sockets


def _hangs(path: str) -> bool:
    """Return whether programs wait in a mount in vain."""
    try:
        mountpoint.names(path)
    except SilentMount:
        if _was_killed(path):
            return True
    except MountError:
        return False
    else:
        return False
    try:
        mountpoint.names(path, PATIENCE)
    except SilentMount:
        return True
    except MountError:
        pass
    return False


def abort(mount: Mount, connections: Path = CONNECTIONS) -> bool:
    """Let all requests of a FUSE mount fail, now and from now on. Return whether this user may.

    A program that waits for the mount cannot be killed before its request ends, and a thread of a killed daemon that
    waits for such a program keeps the connection open. The user who mounted may abort where the file system of
    connections is mounted, and root everywhere.
    """
    try:
        number = os.open(connections / str(os.minor(mount.device)) / "abort", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        if mountpoint.mount_at(mount.path) != mount:
            return False
        libc = ctypes.CDLL(None, use_errno=True)
        with located(mount.path) as path:
            done = libc.umount2(os.fsencode(path), _MNT_FORCE | _UMOUNT_NOFOLLOW)
            return done == 0 or ctypes.get_errno() == errno.EBUSY
    try:
        os.write(number, b"1")
    finally:
        os.close(number)
    return True


def release(path: str) -> None:
    """Abort a mount at a path if programs wait in it in vain. Raise MountError if this user may not."""
    mount = mountpoint.mount_at(path)
    if mount is not None and mount.type.startswith("fuse") and _hangs(path) and not abort(mount):
        raise MountError(f"{path} hangs, and only root can end that: 'umount -f {path}' as root")


def unmount(path: str) -> bool:
    """Unmount, lazily if it is in use. Raise MountError. A path without a mount is no error.

    Return whether it was in use: then its daemon goes on until the last file in it is closed. If programs wait in it in
    vain, all their requests fail first: nothing could end them once no path leads to the mount.
    """
    path = mountpoint.canonical(path)
    in_use = False
    while (mount := mountpoint.mount_at(path)) is not None and mount.type.startswith("fuse"):
        said: list[str] = []
        for lazily in (False, True):
            if mountpoint.mount_at(path) != mount:
                break  # a second unmount would remove the mount below
            if lazily:
                release(path)
            said.append(_unmount(path, lazily=lazily))
            in_use = lazily
        if mountpoint.mount_at(path) == mount:
            why = filter(None, (*said, missing_table()))
            raise MountError(f"{path} could not be unmounted: {'; '.join(why) or 'no fusermount3'}")
    return in_use


def is_there(mount: Mount) -> bool:
    """Return whether a mount is still what its path shows to this process.

    Another one may be there, if this one goes on in the mount namespace of another process.
    """
    now = mountpoint.mount_at(mount.path)
    return now is not None and now.device == mount.device


def copies(mount: Mount) -> set[int]:
    """Return the numbers of the mounts that other mount namespaces, as of containers, have of the same file system.

    Its daemon goes on until the last namespace has unmounted it (mount_namespaces(7)). After an unmount here, only what
    was a copy before is one: the kernel gives the number of a device to the next file system that is mounted.
    """
    found: set[int] = set()
    for process in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            mounts = mountpoint.mounts(f"/proc/{process}/mountinfo")
            found.update(each.number for each in mounts if each.device == mount.device)
    return found - {mount.number}


def detach(path: str) -> None:
    """Unmount lazily, without a look at the mount: this process serves it, or nobody does. Raise MountError."""
    said = _unmount(path, lazily=True)
    if said and mountpoint.mount_at(path) is not None:
        raise MountError(f"{path} could not be unmounted: {said}")


def _unmount(path: str, *, lazily: bool) -> str:
    """Unmount what is at a canonical path, in a process that may hang. Return why that failed, or an empty text.

    As root by a descriptor of the directory above it: no symbolic link is followed. fusermount3 does so itself.
    """
    if os.geteuid() != 0:
        command = ["fusermount3", "-u", "-q", *(["-z"] if lazily else []), path]
        return _run(command) if shutil.which(command[0]) else ""
    flags = _UMOUNT_NOFOLLOW | (_MNT_DETACH if lazily else 0)
    above, name = os.path.split(path)
    try:
        with opened(above) as directory:
            there = f"/proc/self/fd/{directory}/{name}"
            return _run([sys.executable, "-I", "-S", "-c", _UMOUNT, there, str(flags)], directory)
    except MountError as error:
        return str(error)


_UMOUNT = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.umount2(os.fsencode(sys.argv[1]), int(sys.argv[2])):
    sys.exit(os.strerror(ctypes.get_errno()))
"""


def read_further_ahead(path: str, bdi: Path = Path("/sys/class/bdi")) -> None:
    """Enlarge the kernel's readahead window of 128 KiB on the mount at `path`. Raise OSError; only root may.

    Requests are fewer and larger then (sysfs-class-bdi in the kernel's documentation). The kernel resets the window
    when it greets the daemon (FUSE_INIT), so this has to come later.
    """
    mount = mountpoint.mount_at(path)
    if mount is not None:
        directory = bdi / f"{os.major(mount.device)}:{os.minor(mount.device)}"
        (directory / "read_ahead_kb").write_text(str(READ_AHEAD))


def _run(command: list[str], *passed: int) -> str:
    """Run a command, and return what it wrote on standard error, or that it did not end. passed: its descriptors."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=UMOUNT_TIMEOUT,
            check=False,
            pass_fds=passed,
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not end within {UMOUNT_TIMEOUT:g} s"
    return done.stderr.strip()


def missing() -> str | None:
    """Return what this machine lacks for mounting, with the remedy, in one sentence; None if it lacks nothing."""
    if not os.path.exists("/dev/fuse"):
        return (
            "/dev/fuse is missing: load the kernel's module with 'modprobe fuse', "
            "or start the container with '--device /dev/fuse --cap-add SYS_ADMIN'"
        )
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse may not be opened by this user: 'chmod 666 /dev/fuse', as udev has it by default"
    if os.geteuid() != 0 and shutil.which("fusermount3") is None:
        return "fusermount3 is missing: install the package fuse3 ('apt install fuse3'), or mount as root"
    return missing_binding()


def missing_binding() -> str | None:
    """Return why pyfuse3 cannot be imported, with the remedy, in one sentence; None if it can.

    Imports it and trio, which takes a quarter of a second.
    """
    try:
        import_module("pyfuse3")
    except ModuleNotFoundError as error:
        if error.name != "pyfuse3":
            raise
        compiler = "'apt install gcc libfuse3-dev pkg-config python3-dev'"
        return f"mounting {needs('mount')}; if that finds no wheel of pyfuse3, {compiler} brings what compiles it"
    except ImportError as error:
        remedy = f"install libfuse3 ('apt install libfuse3-3'), or the extra 'mount' again ({install_command('mount')})"
        return f"pyfuse3 cannot be loaded ({error}): {remedy}"
    return None


def require(path: str = "") -> None:
    """Raise MountError if this machine lacks what mounting at a path needs: for `/dev/fd/N`, only the binding."""
    lack = missing() if mountpoint.passed_device(path) is None else missing_binding()
    if lack is not None:
        raise MountError(lack)


def missing_table(path: str = MOUNT_TABLE) -> str | None:
    """Return that the table of mounts is missing, with the remedy, or None.

    fusermount3 opens it to see who mounted what, so other users than root cannot unmount without it; df(1) needs it.
    """
    if os.path.exists(path):
        return None
    return f"{path} is missing: as root, 'ln -s ../proc/self/mounts {path}'"


@dataclass(frozen=True, slots=True)
class MountPoint:
    """A directory that is fit for mounting, or a mount that another program has made.

    path: the canonical path of the directory, or `/dev/fd/N`; directory: its descriptor (`O_PATH`). device: the
    descriptor of `/dev/fuse` with the mount of another program. Nothing says where that is.
    """

    path: str
    directory: int
    device: int | None = None

    @property
    def target(self) -> str:
        """Return what to mount on: as root the descriptor, so nothing that has taken the place of the directory.

        For other users a program mounts (fusermount3), which checks that the directory is theirs.
        """
        if self.device is not None:
            return self.path
        return f"/proc/self/fd/{self.directory}" if os.geteuid() == 0 else self.path


@contextmanager
def opened(path: str, beneath: int | None = None) -> Iterator[int]:
    """Open a directory without its content, as something to mount on. Raise MountError.

    path: a canonical one, or a name in the directory `beneath`. A symbolic link that is in the path by now is refused,
    wherever it is. An automount is not set off.
    """
    try:
        directory = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=beneath)
    except OSError as error:
        raise MountError(f"{path}: {error.strerror}") from None
    try:
        if not stat.S_ISDIR(os.fstat(directory).st_mode):
            raise MountError(f"{path} is not a directory")
        if beneath is None and os.readlink(f"/proc/self/fd/{directory}") != path:
            raise MountError(f"{path} leads to another directory now")
        yield directory
    finally:
        os.close(directory)


@contextmanager
def located(path: str) -> Iterator[str]:
    """Yield a path for this process to what a canonical path names. Raise MountError.

    It begins at the descriptor of the directory above. No link leads it elsewhere if the last name is not followed.
    """
    above, name = os.path.split(path)
    with opened(above) as directory:
        yield f"/proc/self/fd/{directory}/{name}"


def is_at(directory: int, mount: Mount) -> bool:
    """Return whether a descriptor is of a file in a mount. Send no request to the file system."""
    with open(f"/proc/self/fdinfo/{directory}", encoding="ascii") as about:
        return f"mnt_id:\t{mount.number}\n" in about.read()


def _resolved(path: str) -> str:
    """Return the canonical path of a mount point that may be a symbolic link of this user or of root.

    Raise MountError for another user's link, which may lead elsewhere at any time.
    """
    path = mountpoint.canonical(path)
    for _ in range(_MOST_LINKS):
        if mountpoint.mount_at(path) is not None:
            return path  # it may hang
        try:
            found = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return path  # it is to be made
        try:
            about = os.fstat(found)
            if not stat.S_ISLNK(about.st_mode):
                return path
            if about.st_uid not in (0, os.geteuid()):
                raise MountError(f"{path} is a symbolic link of another user")
            path = mountpoint.canonical(os.path.join(os.path.dirname(path), os.readlink("", dir_fd=found)))
        finally:
            os.close(found)
    raise MountError(f"{path}: {os.strerror(errno.ELOOP)}")


def _require_unmounted(path: str) -> None:
    """Clear a dead mount of FUSE at a path; programs that wait in it go on. Raise MountError for a mount of bbfs."""
    mount = mountpoint.mount_at(path)
    if mount is not None and mount.type.startswith("fuse") and is_dead(path):
        unmount(path)
        mount = mountpoint.mount_at(path)
    if mount is not None and mount.is_bbfs:
        raise MountError(f"{path} is a bbfs mount already: 'bbfs umount {path}' first")


@contextmanager
def prepared(path: str) -> Iterator[MountPoint]:
    """Make `path` fit for mounting, and yield it: a directory without a mount of bbfs. Raise MountError, OSError.

    If that made the directory, remove it afterwards, unless it is mounted on or not empty. Each directory on the way is
    made in the one that was checked before, whatever takes its place. `/dev/fd/N` is a mount that is there already.
    """
    require(path)
    if (device := mountpoint.passed_device(path)) is not None:
        yield _passed(path, device)
        return
    path = _resolved(path)
    _require_unmounted(path)
    to_make, above = [], path
    while not os.path.lexists(above):
        above, name = os.path.split(above)
        to_make.append(name)
    with ExitStack() as stack:
        directory = parent = stack.enter_context(opened(above))
        is_made = False
        for name in reversed(to_make):
            parent = directory
            try:
                os.mkdir(name, dir_fd=parent)
                is_made = True
            except FileExistsError:
                is_made = False
            directory = stack.enter_context(opened(name, parent))
        if is_made:
            stack.callback(_remove_made, path, parent)
        yield MountPoint(path, directory)


def _passed(path: str, device: int) -> MountPoint:
    """Return the mount whose descriptor was passed to this process. Raise MountError if it is not one."""
    try:
        about = os.fstat(device)
    except OSError as error:
        raise MountError(f"{path}: {error.strerror}; pass it to bbfs, as 'pass_fds' of Python does") from None
    if not stat.S_ISCHR(about.st_mode) or about.st_rdev != _FUSE:
        raise MountError(f"{path} is not a descriptor of /dev/fuse")
    state = select.poll()
    state.register(device, select.POLLIN)
    if any(events & select.POLLERR for _, events in state.poll(0)):
        raise MountError(f"{path} has no mount: mount(2) with 'fd={device}' comes first, and an unmount ends it")
    os.set_inheritable(device, False)  # a source's program that had it would keep a dead mount from ending
    return MountPoint(path, -1, device)


def require_apart(roots: Iterable[str]) -> None:
    """Raise MountError if a folder holds a mount that may be the one that was passed.

    A process that looks at its own mount waits for itself. A mount of another program has the name of that in its type,
    as the root of a container may have.
    """
    places = [mount.path for mount in mountpoint.mounts() if mount.is_bbfs or mount.type == "fuse"]
    for root in map(os.path.realpath, roots):
        for place in places:
            if os.path.commonpath((root, place)) == root:
                raise MountError(f"{root} holds the mount {place}, which may be the one that was passed to bbfs")


def _remove_made(path: str, parent: int) -> None:
    if mountpoint.mount_at(path) is None:
        with suppress(OSError):
            os.rmdir(os.path.basename(path), dir_fd=parent)
