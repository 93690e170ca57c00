"""The control sockets of this user's mounts: where each is, and whether a daemon still has it."""

import errno
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from bbfs.fuse.control.messages import peer
from bbfs.fuse.places import runtime_directory

LONGEST_ADDRESS = 107
"""Bytes of the path of a Unix socket (unix(7))."""


def bind(mount_point: str, clients: int) -> tuple[socket.socket, str]:
    """Return a listening socket for a mount, and its path. Remove the sockets of killed daemons. Raise OSError.

    clients: how many may wait to be accepted.
    """
    directory = runtime_directory()
    for old in sockets(directory, mount_point):
        if _is_stale(str(old)):
            old.unlink(missing_ok=True)
    address = os.path.join(directory, f"{_name(mount_point)}-{os.getpid()}.sock")
    if len(os.fsencode(address)) > LONGEST_ADDRESS:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), address)
    with suppress(FileNotFoundError):
        os.unlink(address)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(address)
        os.chmod(address, 0o600)
        listener.listen(clients)
        listener.setblocking(False)
        return listener, address
    except OSError:
        listener.close()
        raise


def _name(mount_point: str) -> str:
    return blake2b(os.fsencode(mount_point), digest_size=8).hexdigest()


def sockets(directory: str, mount_point: str) -> Iterable[Path]:
    """Return the control sockets of a mount in a directory; those of killed daemons may be among them."""
    return Path(directory).glob(f"{_name(mount_point)}-*.sock")


def _is_stale(address: str) -> bool:
    """Return whether a socket has no listener."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def daemon_process(mount_point: str) -> int | None:
    """Return a descriptor of the daemon's process (pidfd_open(2)), or None if no control socket of this user tells it.

    It asks the kernel and never the daemon, which may hang.
    """
    for address in sockets(runtime_directory(), mount_point):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            with suppress(OSError):
                probe.connect(str(address))
                pid, uid = peer(probe)
                if uid == os.geteuid():
                    return os.pidfd_open(pid)
    return None


def number_of(process: int) -> int:
    """Return the number of a process by its descriptor (pidfd_open(2)); -1 if it has ended."""
    fields = dict(line.split(":\t", 1) for line in Path(f"/proc/self/fdinfo/{process}").read_text().splitlines())
    return int(fields["Pid"])


def is_stopped(number: int) -> bool:
    """Return whether a signal has stopped a process."""
    try:
        return _state(number) in "Tt"
    except OSError:
        return False


def _state(number: int) -> str:
    """Return the state of a process as a letter (proc_pid_stat(5)). Raise OSError."""
    return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]


def was_killed(mount_point: str) -> bool:
    """Return whether a control socket of this user tells that the daemon of a mount was killed.

    No process listens there, or only a daemon that a signal has ended and of which the kernel blocks a thread.
    """
    found = False
    for address in sockets(runtime_directory(), mount_point):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(str(address))
                pid, _ = peer(probe)
                state = _state(pid)
            except (ConnectionRefusedError, FileNotFoundError, ProcessLookupError):
                found = True
            except OSError:
                return False
            else:
                if state not in "ZX":
                    return False
                found = True
    return found
