"""The state of a mount: of its sources, and what the kernel says of the daemon and of programs that wait (proc(5))."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bbfs import __version__
from bbfs.fuse.status.document import document
from bbfs.fuse.waiting_programs import Interrupts, name_of
from bbfs.resources.manager import ResourceManager

NOTABLE = 0.5
"""Seconds after which a program counts as waiting. Who reads the status itself waits for less."""


def state_of(
    manager: ResourceManager, left_out: Mapping[str, str], interrupts: Interrupts
) -> Callable[[int], dict[str, Any]]:
    """Return a function that returns the state of a mount, which begins now.

    Its argument is the number of loads that do not count, since they were of the state itself. left_out: why configured
    servers are no sources, by name.
    """
    started = manager.clock()

    def state(uncounted: int) -> dict[str, Any]:
        said = document(manager, started)
        said["loads"] -= uncounted
        said["loads_from"]["source"] -= uncounted
        said["memory"]["misses"] -= uncounted
        return {**said, "left_out": dict(left_out), "process": _process(), "waiting": _waiting(interrupts)}

    return state


def _process() -> dict[str, Any]:
    """Return the state of this process (proc_pid_status(5)). bytes: of memory, the resident set."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    return {
        "version": __version__,
        "pid": os.getpid(),
        "bytes": int(status["VmRSS"].split()[0]) << 10,
        "threads": int(status["Threads"]),
        "descriptors": len(os.listdir("/proc/self/fd")) - 1,  # one is that of the listing
    }


def _waiting(interrupts: Interrupts) -> list[dict[str, Any]]:
    """Return the programs that wait, the longest wait first. A program of another PID namespace has the number 0."""
    return [
        {"pid": pid, "program": name_of(pid), "seconds": round(seconds, 3)}
        for pid, seconds in interrupts.waiting()
        if seconds >= NOTABLE
    ]
