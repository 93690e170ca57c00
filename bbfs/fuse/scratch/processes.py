"""The processes of a scratch: the daemon below it, and the namespaces of a command.

All are forked before they have threads. Each gets a signal when the process that started it ends, however that ends.
"""

import ctypes
import errno
import os
import select
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from bbfs.fuse.mountpoint import CommandNotFound, CommandNotRun, MountError
from bbfs.fuse.scratch import overlay
from bbfs.model.errors import BbfsError, ConfigError

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PASSED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that are passed on to a command."""
ENDS_WITHIN = 20.0
"""Seconds for a daemon to end before it is killed."""
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
_READY, _FAILED, _MISCONFIGURED = b"r", b"f", b"c"
_OF_COMMAND = "\0"
"""Between the errno and the text of a command that cannot be executed."""
_LONGEST = 4096
"""Bytes of a message, which a pipe passes as a whole (PIPE_BUF)."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Child:
    """A process that was started and is ready."""

    pid: int
    ended: int
    """A descriptor that is readable when the process has ended (pidfd_open(2))."""

    def end(self) -> None:
        """Let it end, kill it if it does not, and reap it."""
        with suppress(ProcessLookupError, ChildProcessError):
            signal.pidfd_send_signal(self.ended, signal.SIGTERM)
            waiting = select.poll()
            waiting.register(self.ended, select.POLLIN)
            if not waiting.poll(ENDS_WITHIN * 1000):
                signal.pidfd_send_signal(self.ended, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.ended)


def start(serve: Callable[[Callable[[], None]], int], *, detached: bool = False, lasts: bool = False) -> Child:
    """Fork a process that calls `serve`, and return when that has called its argument. Raise what it raised before.

    The process is in a session of its own, so a terminal's signals do not reach it. detached: it gives up the standard
    streams when it is ready. lasts: it outlives this process; otherwise it ends with it.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _serve(serve, writing, None if lasts else parent, detached=detached)
    os.close(writing)
    said = os.read(reading, _LONGEST)  # what the process starts has the other end, too: no end of file comes
    os.close(reading)
    if said.startswith(_READY):
        return Child(child, os.pidfd_open(child))
    os.waitpid(child, 0)
    text = said[1:].decode(errors="replace") or "the process ended; the messages above say why"
    raise (ConfigError if said.startswith(_MISCONFIGURED) else MountError)(text)


def _serve(serve: Callable[[Callable[[], None]], int], writing: int, parent: int | None, *, detached: bool) -> NoReturn:
    """Serve in a forked process, and end it."""
    status = 1
    is_ready = False

    def ready() -> None:
        nonlocal is_ready
        is_ready = True
        if detached:
            null = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(null, standard)
            os.close(null)
        os.write(writing, _READY)
        os.close(writing)

    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if parent is not None:
            end_with(parent, signal.SIGTERM)
        status = serve(ready)
    except (BbfsError, OSError) as error:
        if not is_ready:
            kind = _MISCONFIGURED if isinstance(error, ConfigError) else _FAILED
            os.write(writing, (kind + str(error).encode(errors="replace"))[:_LONGEST])
    except BaseException as error:  # noqa: BLE001 - the process ends with it
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)


def end_with(parent: int, number: signal.Signals) -> None:
    """Let this process get a signal when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() not in (parent, 0):  # it has ended before; 0: it is in another namespace
        os._exit(1)


def enter_namespaces() -> bool:
    """Move this process to a mount namespace of its own. Return whether a user namespace was needed for it.

    There this user is root, as mounting needs it. Raise MountError.
    """
    uid, gid = os.geteuid(), os.getegid()
    in_user_namespace = False
    if _libc.unshare(_CLONE_NEWNS) != 0:
        if _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) != 0:
            raise MountError(
                f"no namespace of its own for the command ({os.strerror(ctypes.get_errno())}): run it as root, or "
                "allow user namespaces ('sysctl user.max_user_namespaces'; on Ubuntu an AppArmor profile with 'userns')"
            )
        in_user_namespace = True
        _map(0, uid, 0, gid)
    try:
        overlay.make_private()
    except OSError as error:
        raise MountError(f"no mounts of its own for the command: {error.strerror}") from None
    return in_user_namespace


def _map(uid: int, outer_uid: int, gid: int, outer_gid: int) -> None:
    """Let one user and one group be those of the namespace (user_namespaces(7))."""
    for name, text in (("uid_map", f"{uid} {outer_uid} 1"), ("setgroups", "deny"), ("gid_map", f"{gid} {outer_gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


@dataclass(frozen=True, slots=True)
class Identity:
    """The user whom a command runs as."""

    uid: int
    gid: int


def run(
    command: list[str], told: Mapping[str, str], hidden: list[str], identity: Identity, *, in_user_namespace: bool
) -> Child:
    """Start a command in process and mount namespaces of its own. Its end ends all processes that it leaves behind.

    told: variables that it gets besides. hidden: mounts that it does not see. Raise CommandNotRun if it cannot be
    executed, MountError if there are no namespaces for it.
    """
    parent = os.getpid()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.environ.update(told)
        try:
            # Not in the parent: it could start no process any more once the first one of the namespace has ended.
            end_with(parent, signal.SIGKILL)
            if _libc.unshare(_CLONE_NEWPID) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            parent = os.getpid()
            _await_other(lambda: _first_process(command, hidden, identity, in_user_namespace, parent, writing), writing)
        except OSError as error:
            os.write(writing, f"the command cannot run in namespaces of its own: {error.strerror}".encode())
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        said = answer.read(_LONGEST)
    if not said:
        return Child(child, os.pidfd_open(child))
    os.waitpid(child, 0)
    number, is_of_command, text = said.decode(errors="replace").partition(_OF_COMMAND)
    if is_of_command:
        raise (CommandNotFound if int(number) == errno.ENOENT else CommandNotRun)(text)
    raise MountError(number)


def _first_process(
    command: list[str], hidden: list[str], identity: Identity, in_user_namespace: bool, parent: int, writing: int
) -> NoReturn:
    """Be the first process of a process namespace: start the command, reap, and end with the command's status.

    The kernel kills all others of the namespace then, and when this process is killed.
    """
    end_with(parent, signal.SIGKILL)
    try:
        if _libc.unshare(_CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "no mounts of its own")
        overlay.make_private()
        for path in hidden:
            overlay.detach(path)
        overlay.mount("proc", "/proc", "proc", 14)  # MS_NOSUID | MS_NODEV | MS_NOEXEC
        _await_other(lambda: _execute(command, identity, in_user_namespace, writing), writing)
    except OSError as error:
        os.write(writing, f"the command cannot run in namespaces of its own: {error.strerror}".encode())
    finally:
        os._exit(1)


def _await_other(begin: Callable[[], NoReturn], writing: int) -> NoReturn:
    """Fork a process that begins with `begin`, pass signals on to it, reap all others, and end with its status."""
    other = 0

    def pass_on(number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(other, number)

    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED)
    other = os.fork()
    if other == 0:
        begin()
    for number in PASSED:
        signal.signal(number, pass_on)
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # the terminal sends them to the command, too
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.close(writing)
    while True:
        pid, status = os.wait()
        if pid == other:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _execute(command: list[str], identity: Identity, in_user_namespace: bool, writing: int) -> NoReturn:
    try:
        if in_user_namespace:  # back to the user's own id, without privilege
            if _libc.unshare(_CLONE_NEWUSER) != 0:
                raise OSError(ctypes.get_errno(), "no user namespace of its own")
            _map(identity.uid, 0, identity.gid, 0)
        for number in (*PASSED, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(os.getcwd())  # through the mounts of the namespace, also if it is below one of them
        try:
            os.execvp(command[0], command)
        except OSError as error:
            os.write(writing, f"{error.errno}{_OF_COMMAND}{command[0]}: {error.strerror}".encode())
    except OSError as error:
        os.write(writing, f"the command cannot run in namespaces of its own: {error.strerror}".encode())
    finally:
        os._exit(127)
