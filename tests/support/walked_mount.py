"""`python walked_mount.py FILE -m bbfs mount …`: the daemon, which writes to FILE what it walks through when asked.

SIGUSR1 begins a walk: from then on each call of a function of bbfs counts that a request of the kernel makes, a
command's connection to the control socket (the request `command`), or the requests to sources that these begin
(`flights`), in their tasks and threads. What else the daemon does meanwhile does
not: tasks that write caches behind the requests, or look at the clock; what tells others of a change on the bus; and
FORGET, which the kernel sends when it likes. SIGUSR2 ends the walk once the kernel has released what was opened and all
of that has ended, and writes a line for each request and function, `request module function calls`. So a walk is the
same however busy the machine is.
"""

import dis
import gc
import os
import signal
import sys
import threading
from collections import Counter
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import trio

import bbfs
from bbfs.cli import main
from bbfs.fuse import adapter
from bbfs.fuse.control import server
from bbfs.runtime.changes import Bus
from bbfs.vfs.kernel_cache import KernelCache

HOME = str(Path(bbfs.__file__).parent)
ANSWERS = {adapter.Operations.getattr.__code__, adapter.Operations.flush.__code__}
"""The functions that answer the requests of the kernel but FORGET. A cell of them has the request's name."""
SERVE = vars(server)["_Client"].serve.__code__
"""The function that serves one connection of a command."""
NOTIFY, KERNEL = Bus.notify.__code__, KernelCache.changed.__code__
OPENS, RELEASES = {"open", "create", "opendir"}, {"release", "releasedir"}
FLIGHT = "flight"
"""The name of the tasks of requests to sources, which outlive a killed program."""

_of: ContextVar[tuple[object, str] | None] = ContextVar("of", default=None)
"""The walk that a task or thread belongs to, and the request in it."""


@cache
def _beginning(code: CodeType) -> int:
    """Return the offset of the first instruction of a function: a coroutine that goes on is called no second time."""
    return next(each.offset for each in dis.get_instructions(code) if each.opname == "RESUME")


class Walk(trio.abc.Instrument):
    """The functions that were called between two signals."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._called: Counter[tuple[str, CodeType]] = Counter()
        self._walk: object = None
        self._requests = 0
        self._open: set[object] = set()
        self._tasks: set[trio.lowlevel.Task] = set()
        self._telling: tuple[object, str] | None = None
        self._is_ending = self._is_seen = False

    def record(self, frame: FrameType, event: str, value: Any) -> None:
        """A profile function (sys.setprofile)."""
        code = frame.f_code
        if code in ANSWERS:
            self._answer(frame.f_locals["method"].__name__, frame.f_locals["args"][0], event, value)
        elif code is SERVE and event == "call" and self._begin_request("command"):
            self._tasks.add(trio.lowlevel.current_task())
        elif frame.f_back is not None and frame.f_back.f_code is NOTIFY and code is not KERNEL:
            self._tell(event)
        if event == "call" and code.co_filename.startswith(HOME) and frame.f_lasti <= _beginning(code):
            of = _of.get()
            if of is not None and of[0] is self._walk:
                self._called[of[1], code] += 1

    def _begin_request(self, request: str) -> bool:
        if _of.get() is not None or self._walk is None:
            return False
        self._requests += 1
        _of.set((self._walk, f"{self._requests}.{request}"))
        return True

    def _answer(self, request: str, handle: int, event: str, value: Any) -> None:
        """handle: the first argument of the request; of a release, an open file."""
        if not self._is_seen:
            self._is_seen = True
            trio.lowlevel.add_instrument(self)
        released = request in RELEASES and (request == "releasedir", handle)
        if event == "call":
            if not released or released in self._open:
                self._begin_request(request)
        elif event == "return" and not getattr(value, "__module__", "").startswith("trio."):  # it does not wait
            _of.set(None)
            self._open.discard(released)
            if request in OPENS and value is not None and self._walk is not None:
                info = value[0] if isinstance(value, tuple) else value
                self._open.add((request == "opendir", getattr(info, "fh", info)))

    def _tell(self, event: str) -> None:
        """Count nothing of what a listener of the bus does."""
        if event == "call":
            self._telling = _of.get()
            _of.set(None)
        elif event == "return":
            _of.set(self._telling)

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        of, nursery = task.context.get(_of), task.parent_nursery
        if of is None or nursery is None:
            return
        if task.name == FLIGHT or nursery.parent_task.context.get(_of) is of:
            self._tasks.add(task)
        else:
            task.context.run(_of.set, None)  # it works behind the request

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self._tasks.discard(task)

    def before_io_wait(self, timeout: float) -> None:
        if self._is_ending and timeout:
            self._end()

    def begin(self, *_: Any) -> None:
        self._called.clear()
        self._requests = 0
        self._open.clear()
        self._walk = object()
        gc.disable()  # what a collection finds is of no request
        sys.setprofile(self.record)

    def end(self, *_: Any) -> None:
        self._is_ending = True
        self._end()

    def _end(self) -> None:
        if self._open or self._tasks:
            return
        sys.setprofile(None)
        gc.enable()
        self._is_ending, self._walk = False, None
        lines = sorted(
            f"{request} {os.path.relpath(code.co_filename, HOME)} {code.co_qualname} {count}"
            for (request, code), count in self._called.items()
        )
        partial = self._file.with_suffix(".partial")
        partial.write_text("\n".join(lines) + "\n")
        partial.rename(self._file)


if __name__ == "__main__":
    walk = Walk(Path(sys.argv[1]))
    signal.signal(signal.SIGUSR1, walk.begin)
    signal.signal(signal.SIGUSR2, walk.end)
    threading.setprofile(walk.record)
    main(sys.argv[4:])
