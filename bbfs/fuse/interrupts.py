"""Lets a program that waits for a source be interrupted or killed (S22).

The kernel can take a waiting program out of a FUSE request only with the daemon's help, and pyfuse3 does not pass its
INTERRUPT requests on. But a request names the thread that waits, and a signal for it shows in `/proc/PID/status`
(proc(5)): pending, and neither blocked nor ignored. Then the wait is cancelled here and the request answered `EINTR`.
"""

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

LOOK_EVERY = 0.25
"""Seconds between two looks at the waiting programs."""

_HARMLESS = (
    signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGPROF, signal.SIGVTALRM, signal.SIGIO,
    signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
)  # fmt: skip
"""Signals of a program's ordinary work, or that stop it for a while: they end no wait. (A program that is stopped while
it waits stops when the wait is over.)"""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end a wait although the program handles them. Any other that it handles, such as the timer of a progress
meter, would make calls fail that never fail on a local disk."""


def _mask(signals: Iterable[int]) -> int:
    return sum(1 << (number - 1) for number in signals)


def wants_out(pid: int, proc: Path = Path("/proc")) -> bool:
    """Return whether the thread `pid` has a signal that should end its wait, or is gone."""
    if pid <= 0:  # a process of another PID namespace, which has no number here
        return False
    try:
        # Bytes: the first line is the name of the program, which need not be text.
        status = (proc / str(pid) / "status").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:  # another user's process under hidepid (proc(5)), or no descriptor is free
        return False
    masks = {
        key: int(value, 16)
        for key, _, value in (line.partition(b":") for line in status.split(b"\n"))
        if key in (b"SigPnd", b"ShdPnd", b"SigBlk", b"SigIgn", b"SigCgt")
    }
    pending = (masks[b"SigPnd"] | masks[b"ShdPnd"]) & ~masks[b"SigBlk"] & ~masks[b"SigIgn"] & ~_mask(_HARMLESS)
    return bool(pending & (~masks.get(b"SigCgt", 0) | _mask(_ENDING)))


def _is_there(pid: int) -> bool:
    return Path("/proc", str(pid)).exists()


class Interrupts:
    """The requests that wait, with the threads that sent them. `run` looks at them all, in one task."""

    def __init__(self) -> None:
        self._waiting: dict[trio.CancelScope, tuple[int, bool]] = {}
        self._some = trio.Event()

    @contextmanager
    def watching(self, pid: int, *, until_gone: bool = True) -> Iterator[trio.CancelScope]:
        """Yield a scope that is cancelled when the thread `pid` should not wait any longer.

        until_gone: whether the end of the thread also cancels it; not so if another thread may be waiting.
        """
        with trio.CancelScope() as scope:
            self._waiting[scope] = (pid, until_gone)
            self._some.set()
            try:
                yield scope
            finally:
                del self._waiting[scope]

    async def run(self) -> None:
        while True:
            await self._some.wait()
            await trio.sleep(LOOK_EVERY)
            if not self._waiting:
                self._some = trio.Event()
            for scope, (pid, until_gone) in list(self._waiting.items()):
                if wants_out(pid) and (until_gone or _is_there(pid)):
                    scope.cancel()
