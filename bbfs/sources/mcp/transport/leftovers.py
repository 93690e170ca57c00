"""The processes that a stdio server starts, wherever they go: found by a mark in their environment, and killed.

A process that a server starts in a session of its own, and whose parent has ended, is in no group and no lineage that
bbfs knows of. But it has inherited the environment of its server, and so the mark.

As a program this module outlives bbfs: `python -I -S leftovers.py MARK` waits for the end of stdin, which comes with
the end of bbfs, a `kill -9` included. Then it kills what has the mark. It needs nothing but the standard library.
"""

import os
import signal
import sys
import time
from functools import cache

VARIABLE = "BBFS_SERVER"
"""The variable with the mark."""
GRACE = 0.3
"""Seconds for a process to end after SIGTERM."""
_DIES_WITHIN = 2.0
"""Seconds for a process to end after SIGKILL. One that waits in the kernel may take longer."""
_LOOK_EVERY = 0.02


@cache
def mark_of_this_process() -> str:
    """Return what the marks of this process begin with. From now on, a process kills what processes with these marks
    leave."""
    mark = f"{os.getpid()}-{os.urandom(8).hex()}."
    reading, _writing = os.pipe()  # the other end stays open as long as this process lives
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", __file__, mark],
            {},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, reading, 0),
                (os.POSIX_SPAWN_DUP2, null, 1),
                (os.POSIX_SPAWN_DUP2, null, 2),
            ],
            setsid=True,  # signals for the group of bbfs do not reach it
        )
    finally:
        os.close(reading)
        os.close(null)
    return mark


def end(mark: str) -> None:
    """Kill every process whose mark begins so: SIGTERM, and SIGKILL after `GRACE`. Return when all have ended."""
    wanted = f"{VARIABLE}={mark}".encode()
    if not _signal_marked(wanted, signal.SIGTERM):
        return
    deadline = time.monotonic() + GRACE
    while time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY)
        if not _signal_marked(wanted, 0):
            return
    deadline = time.monotonic() + _DIES_WITHIN
    while _signal_marked(wanted, signal.SIGKILL) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY)


def _signal_marked(wanted: bytes, number: int) -> bool:
    """Send a signal to every process with a mark. Return whether there is one."""
    found = False
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            process = os.pidfd_open(int(name))
        except OSError:
            continue  # it has ended
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                is_marked = any(variable.startswith(wanted) for variable in file.read().split(b"\0"))
            if is_marked:
                signal.pidfd_send_signal(process, number)
                found = True
        except OSError:
            pass  # another user's, or it has ended
        finally:
            os.close(process)
    return found


if __name__ == "__main__":
    os.chdir("/")
    sys.stdin.buffer.read()
    end(sys.argv[1])
