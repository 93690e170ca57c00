"""Mount points: the bbfs mounts of this machine, dead ones, unmounting, and what a machine lacks for mounting."""

import ctypes
import errno
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from bbfs.model.errors import BbfsError

TYPE = "fuse.bbfs"
MOUNT_VARIABLE = "BBFS_MOUNT"
"""The variable by which a user tells commands which mount is meant."""
STATUS_DIRECTORY, STATUS = ".bbfs", "status.json"
"""The directory at the root of a mount that describes the mount, and the file in it with its state."""
_ESCAPE = re.compile(r"\\([0-7]{3})")
_NO_NAME = re.compile(r"[^\w.-]")
_USER = re.compile(r"[ ,]user_id=(\d+)(?:,|\Z)")
MOUNT_TABLE = "/etc/mtab"
UMOUNT_TIMEOUT = 10.0
PATIENCE = 10.0
"""Seconds without an answer after which a mount that is to be unmounted counts as one that hangs."""
CONNECTIONS = Path("/sys/fs/fuse/connections")
"""The connections of FUSE, by the minor numbers of their mounts (fuse.rst in the kernel's documentation)."""
_MNT_FORCE, _UMOUNT_NOFOLLOW = 1, 8
READ_AHEAD = 1024
"""KiB that the kernel may read ahead at once in a sequential read; as much as one FUSE request can hold."""


class MountError(BbfsError):
    """The mount point or the machine is not fit for mounting; the text gives the remedy."""


class DeadMount(MountError):
    """The daemon behind the mount is gone."""


class SilentMount(MountError):
    """The mount does not answer: its daemon hangs, is stopped, or was killed and cannot end."""


class ForeignMount(MountError):
    """The mount belongs to another user, who does not share it."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo (proc_pid_mountinfo(5)). user: the id of the user who mounted a file system of FUSE.

    source: what was given as the file system's device, any text.
    """

    path: str
    type: str
    device: int
    user: int | None = None
    source: str = ""

    @property
    def is_bbfs(self) -> bool:
        return self.type == TYPE

    @property
    def is_ours(self) -> bool:
        """Return whether it is a mount of bbfs by this user or root. Only the kernel's word for it counts."""
        return self.is_bbfs and self.user in (0, os.geteuid())


def own_mounts() -> list[Mount]:
    """Return the mounts of bbfs by this user or root. Commands use others only if a path names them."""
    return [mount for mount in {mount.path: mount for mount in mounts()}.values() if mount.is_ours]


def mounts(mountinfo: Path = Path("/proc/self/mountinfo")) -> list[Mount]:
    """Return all mounts that this process sees, the topmost of a stack last."""
    found: list[Mount] = []
    # Only spaces and line feeds separate: a path may hold any other white space.
    for line in mountinfo.read_bytes().decode("utf-8", "surrogateescape").rstrip("\n").split("\n"):
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        major, _, minor = fields[2].partition(":")
        kind, _, rest = after.partition(" ")
        user = _USER.search(rest) if kind.startswith("fuse") else None
        device = os.makedev(int(major), int(minor))
        source = _plain(rest.partition(" ")[0])
        found.append(Mount(_plain(fields[4]), kind, device, None if user is None else int(user[1]), source))
    return found


def _plain(field: str) -> str:
    """Return a field of mountinfo without its escapes."""
    return _ESCAPE.sub(lambda escape: chr(int(escape[1], 8)), field)


def mount_at(path: str) -> Mount | None:
    """Return the mount whose root is `path`, or None. It reads the table of mounts and never touches the mount."""
    wanted = canonical(path)
    return next((mount for mount in reversed(mounts()) if mount.path == wanted), None)


def canonical(path: str) -> str:
    """Return the absolute path without symbolic links in its parents. Do not touch the last one: it may hang."""
    parent, name = os.path.split(os.path.abspath(os.path.expanduser(path)))
    return os.path.join(os.path.realpath(parent), name)


def read_further_ahead(path: str, bdi: Path = Path("/sys/class/bdi")) -> None:
    """Enlarge the kernel's readahead window of 128 KiB on the mount at `path`. Raise OSError; only root may.

    Requests are fewer and larger then (sysfs-class-bdi in the kernel's documentation). The kernel resets the window
    when it greets the daemon (FUSE_INIT), so this has to come later.
    """
    mount = mount_at(path)
    if mount is not None:
        directory = bdi / f"{os.major(mount.device)}:{os.minor(mount.device)}"
        (directory / "read_ahead_kb").write_text(str(READ_AHEAD))


def log_path(path: str) -> Path:
    """Return the file to which the daemon of a mount in the background logs by default."""
    import platformdirs  # noqa: PLC0415 - a mount in the foreground needs none

    path = canonical(path)
    name = _NO_NAME.sub("_", os.path.basename(path))[:100]
    told_apart = blake2b(os.fsencode(path), digest_size=4).hexdigest()
    return Path(platformdirs.user_state_dir("bbfs")) / "logs" / f"{name}-{told_apart}.log"


def dead(path: str) -> DeadMount:
    """Return the error of a mount whose daemon is gone. It names the log, if there is one."""
    log = log_path(path)
    return DeadMount(f"{path} is dead: its daemon is gone" + (f"; its log: {log}" if log.exists() else ""))


def is_dead(path: str) -> bool:
    """Return whether the daemon of a FUSE mount is gone, or was killed and cannot end. One that hangs is not dead."""
    try:
        names(path)
    except DeadMount:
        return True
    except SilentMount:
        return _was_killed(path)
    except MountError:
        return False
    return False


def _was_killed(path: str) -> bool:
    from bbfs.fuse.control.address import was_killed  # noqa: PLC0415 - platformdirs

    try:
        return was_killed(path)
    except OSError:
        return False  # no directory of control sockets


def _hangs(path: str) -> bool:
    """Return whether programs wait in a mount in vain."""
    try:
        names(path)
    except SilentMount:
        if _was_killed(path):
            return True
    except MountError:
        return False
    else:
        return False
    try:
        names(path, PATIENCE)
    except SilentMount:
        return True
    except MountError:
        pass
    return False


def abort(mount: Mount) -> bool:
    """Let all requests of a FUSE mount fail, now and from now on. Return whether this user may.

    A program that waits for the mount cannot be killed before its request ends, and a thread of a killed daemon that
    waits for such a program keeps the connection open. The user who mounted may abort where the file system of
    connections is mounted, and root everywhere.
    """
    try:
        number = os.open(CONNECTIONS / str(os.minor(mount.device)) / "abort", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        if mount_at(mount.path) != mount:
            return False
        libc = ctypes.CDLL(None, use_errno=True)
        done = libc.umount2(os.fsencode(mount.path), _MNT_FORCE | _UMOUNT_NOFOLLOW)
        return done == 0 or ctypes.get_errno() == errno.EBUSY
    try:
        os.write(number, b"1")
    finally:
        os.close(number)
    return True


def release(path: str) -> None:
    """Abort a mount at a path if programs wait in it in vain. Raise MountError if this user may not."""
    mount = mount_at(path)
    if mount is not None and mount.type.startswith("fuse") and _hangs(path) and not abort(mount):
        raise MountError(f"{path} hangs, and only root can end that: 'umount -f {path}' as root")


def unmount(path: str) -> bool:
    """Unmount, lazily if it is in use. Raise MountError. A path without a mount is no error.

    Return whether it was in use: then its daemon goes on until the last file in it is closed. If programs wait in it in
    vain, all their requests fail first: nothing could end them once no path leads to the mount.
    """
    path = canonical(path)
    in_use = False
    while (mount := mount_at(path)) is not None and mount.type.startswith("fuse"):
        commands = [["fusermount3", "-u", "-q", path], ["fusermount3", "-u", "-q", "-z", path]]
        if os.geteuid() == 0:
            commands += [["umount", "-l", path]]
        said: list[str] = []
        for command in commands:
            if mount_at(path) != mount:
                break  # a second unmount would remove the mount below
            if command is not commands[0]:
                release(path)
            if shutil.which(command[0]):
                said.append(_run(command))
                in_use = len(said) > 1
        if mount_at(path) == mount:
            why = filter(None, (*said, missing_table()))
            raise MountError(f"{path} could not be unmounted: {'; '.join(why) or 'no fusermount3'}")
    return in_use


def names(path: str, timeout: float = 2.0) -> list[str]:
    """Return the names of the directories at the root of a mount. Raise DeadMount, ForeignMount, MountError.

    timeout: seconds. A daemon that hangs blocks the process that asks it, so a process of its own asks. It lists,
    because the kernel answers a stat of the root from its cache long after the daemon is gone.
    """
    command = [sys.executable, "-I", "-S", "-c", _LIST, path]
    lister = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        said, _ = lister.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        lister.kill()
        if lister.stdout is not None:
            lister.stdout.close()
        # The hung mount blocks it until its daemon answers or is gone; a background thread waits for its end.
        threading.Thread(target=lister.wait, daemon=True).start()
        raise SilentMount(
            f"{path} does not answer: its daemon hangs, is stopped, or was killed and cannot end"
        ) from None
    if lister.returncode in (errno.ENOTCONN, errno.ECONNABORTED):
        raise dead(path)
    if lister.returncode in (errno.EACCES, errno.EPERM):
        raise ForeignMount(f"{path} belongs to another user")
    if lister.returncode != 0:
        raise MountError(f"{path}: {os.strerror(lister.returncode)}")
    return sorted(os.fsdecode(name) for name in said.split(b"\0") if name)


_LIST = """
import os, sys
try:
    sys.stdout.buffer.write(b"\\0".join((os.fsencode(each.name) for each in os.scandir(sys.argv[1]) if each.is_dir())))
except OSError as error:
    sys.exit(error.errno)
"""


def _run(command: list[str]) -> str:
    """Run a command, and return what it wrote on standard error, or that it did not end."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=UMOUNT_TIMEOUT, check=False
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
    return None


def missing_table(path: str = MOUNT_TABLE) -> str | None:
    """Return that the table of mounts is missing, with the remedy, or None.

    fusermount3 opens it to see who mounted what, so other users than root cannot unmount without it; df(1) needs it.
    """
    if os.path.exists(path):
        return None
    return f"{path} is missing: as root, 'ln -s ../proc/self/mounts {path}'"


def prepare(path: str) -> str:
    """Make `path` fit for mounting: a directory without a mount of bbfs. Return its canonical path.

    A dead bbfs mount is cleared, and programs that wait in it go on. Raise MountError with the remedy.
    """
    path = canonical(path)
    lack = missing()
    if lack is not None:
        raise MountError(lack)
    mount = mount_at(path)
    if mount is not None and mount.type.startswith("fuse") and is_dead(path):
        unmount(path)
        mount = mount_at(path)
    if mount is not None and mount.is_bbfs:
        raise MountError(f"{path} is a bbfs mount already: 'bbfs umount {path}' first")
    if not os.path.lexists(path):
        os.makedirs(path, exist_ok=True)
    if not os.path.isdir(path):
        raise MountError(f"{path} is not a directory")
    return os.path.realpath(path)


@contextmanager
def prepared(path: str) -> Iterator[str]:
    """Prepare `path` and yield its canonical path. If that made the directory, remove it afterwards.

    It stays if it is mounted on or not empty. Raise MountError.
    """
    is_made = not os.path.lexists(canonical(path))
    found = prepare(path)
    try:
        yield found
    finally:
        if is_made and mount_at(found) is None:
            with suppress(OSError):
                os.rmdir(found)
