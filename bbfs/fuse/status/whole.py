"""The state of a mount: of its sources, and what the kernel says of the daemon and of programs that wait (proc(5))."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bbfs import __version__
from bbfs.fuse.status.document import document
from bbfs.fuse.waiting_programs import Interrupts, name_of
from bbfs.model.errors import BbfsError
from bbfs.resources.manager import ResourceManager

NOTABLE = 0.5
"""Seconds after which a program counts as waiting. Who reads the status itself waits for less."""


def state_of(
    manager: ResourceManager,
    left_out: Mapping[str, str],
    interrupts: Interrupts,
    path_of: Callable[[int], tuple[str, ...]] = lambda _inode: (),
    watchers: Callable[[], dict[str, object]] = dict,
) -> Callable[[int], dict[str, Any]]:
    """Return a function that returns the state of a mount, which begins now.

    Its argument is the number of loads that do not count, since they were of the state itself. left_out: why configured
    servers are no sources, by name. path_of: returns the path of an inode, or raises BbfsError. watchers: returns the
    state of the events for programs that watch the mount.
    """
    started = manager.clock()

    def state(uncounted: int) -> dict[str, Any]:
        said = document(manager, started)
        said["loads"] -= uncounted
        said["loads_from"]["source"] -= uncounted
        said["memory"]["misses"] -= uncounted
        said |= {"left_out": dict(left_out), "process": _process(), "inotify": watchers()}
        return {**said, "waiting": _waiting(interrupts, path_of)}

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


def _waiting(interrupts: Interrupts, path_of: Callable[[int], tuple[str, ...]]) -> list[dict[str, Any]]:
    """Return the programs that wait, the longest wait first. A program of another PID namespace has the number 0."""
    return [
        {"pid": pid, "program": name_of(pid), "seconds": round(seconds, 3), "path": path_of_request(what, path_of)}
        for pid, seconds, what in interrupts.waiting()
        if seconds >= NOTABLE
    ]


def path_of_request(what: tuple[Any, ...], path_of: Callable[[int], tuple[str, ...]]) -> str | None:
    """Return the path that a request is about (an inode, and perhaps a name in it), or None."""
    if not what or not isinstance(what[0], int):
        return None  # of a passed folder, or of a name beside it
    try:
        names = path_of(what[0])
    except BbfsError:
        return None
    name = what[1] if len(what) > 1 and isinstance(what[1], bytes) else None
    return "/".join((*names, os.fsdecode(name)) if name is not None else names).encode("utf-8", "replace").decode()
