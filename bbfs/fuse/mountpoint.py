"""Mount points: the bbfs mounts of this machine, and whether they answer.

Every command that asks a mount imports this module, so it imports little. `bbfs.fuse.mounting` mounts and unmounts.
"""

import errno
import os
import re
import select
import signal
import threading
import time
from dataclasses import dataclass

from bbfs.model.errors import BbfsError

TYPE = "fuse.bbfs"
MOUNT_VARIABLE = "BBFS_MOUNT"
"""The variable by which a user tells commands which mount is meant."""
STATUS_DIRECTORY, STATUS, METRICS = ".bbfs", "status.json", "metrics"
"""The directory at the root of a mount that describes the mount, and the file in it with its state."""
ATTRIBUTE = "user.bbfs.control"
"""The extended attribute of the root of a mount that is the path of its control socket."""
_AT_ONCE = 1 << 16
"""Bytes."""
GONE = (errno.ENOTCONN, errno.ECONNABORTED, errno.ECONNREFUSED)
"""The kernel's answers for a mount whose daemon is gone; ECONNREFUSED if it ended before it agreed on the protocol."""


class MountError(BbfsError):
    """The mount point or the machine is not fit for mounting; the text gives the remedy.

    status: the exit status that says so, as with mount(8).
    """

    status = 32


class CommandNotRun(MountError):
    """The command that was to see a mount could not be executed. status: as env(1) ends."""

    status = 126


class CommandNotFound(CommandNotRun):
    """There is no such command."""

    status = 127


class DeadMount(MountError):
    """The daemon behind the mount is gone."""


class SilentMount(MountError):
    """The mount does not answer: its daemon hangs, is stopped, or was killed and cannot end."""


class ForeignMount(MountError):
    """The mount belongs to another user, who does not share it."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo (proc_pid_mountinfo(5)). user: the id of the user who mounted a file system of FUSE.

    source: what was given as the file system's device, any text. number: the id of the mount. is_shared: other users
    may see it.
    """

    path: str
    type: str
    device: int
    user: int | None = None
    source: str = ""
    number: int = 0
    is_shared: bool = False

    @property
    def is_bbfs(self) -> bool:
        return self.type == TYPE

    @property
    def is_ours(self) -> bool:
        """Return whether it is a mount of bbfs by this user, or one that root shares. Only the kernel's word counts."""
        return self.is_bbfs and (self.user == os.geteuid() or (self.user == 0 and self.is_shared))


def own_mounts() -> list[Mount]:
    """Return the mounts of bbfs that are this user's. Commands use others only if a path names them."""
    return [mount for mount in {mount.path: mount for mount in mounts()}.values() if mount.is_ours]


def mounts(mountinfo: str | os.PathLike[str] = "/proc/self/mountinfo") -> list[Mount]:
    """Return all mounts that this process sees, the topmost of a stack last."""
    found: list[Mount] = []
    with open(mountinfo, "rb") as file:
        table = file.read().decode("utf-8", "surrogateescape")
    # Only spaces and line feeds separate: a path may hold any other white space.
    for line in filter(None, table.split("\n")):
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        major, _, minor = fields[2].partition(":")
        kind, _, rest = after.partition(" ")
        source, _, options = rest.partition(" ")
        device = os.makedev(int(major), int(minor))
        user = _user(options) if kind.startswith("fuse") else None
        is_shared = "allow_other" in options.split(",")
        found.append(Mount(_plain(fields[4]), kind, device, user, _plain(source), int(fields[0]), is_shared))
    return found


def _user(options: str) -> int | None:
    """Return the user who mounted a file system of FUSE, from the options that the kernel states."""
    users = (option.removeprefix("user_id=") for option in options.split(",") if option.startswith("user_id="))
    return next(map(int, users), None)


def _plain(field: str) -> str:
    """Return a field of mountinfo without its escapes."""
    return re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), field) if "\\" in field else field


def mount_at(path: str) -> Mount | None:
    """Return the mount whose root is `path`, or None. It reads the table of mounts and never touches the mount."""
    wanted = canonical(path)
    return next((mount for mount in reversed(mounts()) if mount.path == wanted), None)


def passed_device(mount_point: str) -> int | None:
    """Return N of a mount point `/dev/fd/N`, which is the descriptor of a mount that another program has made.

    libfuse takes such a mount point (fuse_session_mount in fuse_lowlevel.h).
    """
    named = re.fullmatch(r"/dev/fd/(\d{1,9})", mount_point, re.ASCII)
    return None if named is None else int(named[1])


def canonical(path: str) -> str:
    """Return the absolute path without symbolic links in its parents. Do not touch the last one: it may hang."""
    parent, name = os.path.split(os.path.abspath(os.path.expanduser(path)))
    return os.path.join(os.path.realpath(parent), name)


def named(path: str) -> str:
    """Return the canonical path of the mount that a user names. Raise MountError if nothing is mounted there."""
    if mount_at(path) is None:
        raise MountError(f"{path} is not a mount point")
    return canonical(path)


def dead(path: str) -> DeadMount:
    """Return the error of a mount whose daemon is gone. It names the log, if there is one."""
    from bbfs.fuse.places import log_path  # noqa: PLC0415 - it imports more than a command that asks a live mount

    log = log_path(canonical(path))
    told = f"; its log: {log}" if log.exists() else ""
    return DeadMount(f"{path} is dead: its daemon is gone{told}; 'bbfs umount' removes it, 'bbfs mount' replaces it")


def silent(path: str) -> str:
    """Return the sentence about a mount that does not answer, with the remedy."""
    why = "its daemon hangs, is stopped, or was killed and cannot end"
    return f"{path} does not answer: {why}; 'bbfs umount {path}' removes it"


def names(path: str, timeout: float = 2.0) -> list[str]:
    """Return the names of the directories at the root of a mount. Raise DeadMount, ForeignMount, MountError.

    timeout: seconds. A daemon that hangs blocks the process that asks it, so a process of its own asks: a copy of this
    one, since to start another Python takes longer than the rest of a short command. It lists, because the kernel
    answers a stat of the root from its cache long after the daemon is gone.
    """
    reading, writing = os.pipe()
    child = _forked(path, writing)
    os.close(writing)
    said, until, has_ended = bytearray(), time.monotonic() + timeout, False
    try:
        ready = select.poll()
        ready.register(reading, select.POLLIN)
        while not has_ended and ready.poll(max(until - time.monotonic(), 0) * 1000):
            chunk = os.read(reading, _AT_ONCE)
            said += chunk
            has_ended = not chunk
    finally:
        os.close(reading)
        if not has_ended:
            os.kill(child, signal.SIGKILL)
            # The hung mount blocks it until its daemon answers or is gone; a background thread waits for its end.
            threading.Thread(target=os.waitpid, args=(child, 0), daemon=True).start()
    if not has_ended:
        raise SilentMount(silent(path))
    problem = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if problem in GONE:
        raise dead(path)
    if problem in (errno.EACCES, errno.EPERM):
        raise ForeignMount(f"{path} belongs to another user")
    if problem != 0:
        raise MountError(f"{path}: {os.strerror(problem)}")
    return sorted(os.fsdecode(name) for name in bytes(said).split(b"\0") if name)


def _forked(path: str, writing: int) -> int:
    """Return a new process that lists a directory to a pipe. Ctrl-C ends it. Its exit status is 0 or the errno."""
    interrupt = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the other runs no handler of this process
    try:
        if (child := os.fork()) != 0:
            return child
        status = errno.EIO
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, interrupt)
            _list(path, writing)
            status = 0
        except OSError as error:
            status = error.errno or errno.EIO
        finally:
            os._exit(status)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, interrupt)


def _list(path: str, writing: int) -> None:
    """Write the names of the directories in a directory to a pipe, and hold no other file open meanwhile: a process
    that hangs in the mount would keep the output of the command open."""
    os.dup2(writing, 0)
    for number in os.listdir("/proc/self/fd"):
        if number != "0":
            try:
                os.close(int(number))
            except OSError:
                continue  # the descriptor of this listing itself
    said = b"\0".join(os.fsencode(each.name) for each in os.scandir(path) if each.is_dir())
    while said:
        said = said[os.write(0, said) :]
