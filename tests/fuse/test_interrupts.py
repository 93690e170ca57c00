"""Which signals end a wait: on a made-up /proc, and on real processes."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from bbfs.fuse import waiting_programs
from bbfs.fuse.waiting_programs import Interrupts, has_open, wants_out

PID = 4242
BOUND = 60.0
ORDINARY = (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGPROF, signal.SIGVTALRM)


def mask(*signals: int) -> str:
    return f"{sum(1 << (number - 1) for number in signals):016x}"


def status(
    directory: Path,
    *,
    pending: tuple[int, ...] = (),
    shared: tuple[int, ...] = (),
    blocked: tuple[int, ...] = (),
    ignored: tuple[int, ...] = (),
    name: bytes = b"cat",
) -> Path:
    """A /proc with one thread in it, in the form of proc_pid_status(5)."""
    lines = [
        b"Name:\t" + name,
        b"State:\tD (disk sleep)",
        f"Pid:\t{PID}".encode(),
        b"SigQ:\t1/31000",
        f"SigPnd:\t{mask(*pending)}".encode(),
        f"ShdPnd:\t{mask(*shared)}".encode(),
        f"SigBlk:\t{mask(*blocked)}".encode(),
        f"SigIgn:\t{mask(*ignored)}".encode(),
        f"SigCgt:\t{mask(signal.SIGINT)}".encode(),
        b"",
    ]
    (directory / str(PID)).mkdir()
    (directory / str(PID) / "status").write_bytes(b"\n".join(lines))
    return directory


@pytest.mark.semantics("S22")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGALRM, signal.SIGRTMIN])
def test_a_pending_signal_ends_the_wait(tmp_path: Path, number: int) -> None:
    assert not wants_out(PID, status(tmp_path))
    for directory, which in (("thread", "pending"), ("process", "shared")):
        (tmp_path / directory).mkdir()
        assert wants_out(PID, status(tmp_path / directory, **{which: (number,)}))  # type: ignore[arg-type]


@pytest.mark.parametrize("which", ["blocked", "ignored"])
def test_a_signal_that_the_program_does_not_want_does_not(tmp_path: Path, which: str) -> None:
    kept_out = {which: (signal.SIGINT,)}
    proc = status(tmp_path, shared=(signal.SIGINT,), **kept_out)  # type: ignore[arg-type]
    assert not wants_out(PID, proc)


@pytest.mark.parametrize("number", ORDINARY)
def test_a_signal_of_ordinary_work_does_not(tmp_path: Path, number: int) -> None:
    assert not wants_out(PID, status(tmp_path, pending=(number,), shared=(number,)))


def test_a_thread_that_is_gone_waits_no_longer(tmp_path: Path) -> None:
    assert wants_out(PID, tmp_path)
    assert wants_out(2**22 + 1)


@pytest.mark.parametrize("pid", [0, -1])
def test_a_thread_without_a_number_here_is_left_alone(tmp_path: Path, pid: int) -> None:
    assert not wants_out(pid, tmp_path)


@pytest.mark.semantics("S27")
@pytest.mark.parametrize(
    "name",
    [b"caf\xe9", "größenmaß-äü".encode()[:-1], "\u2028SigPnd:zz".encode(), "\x85SigBlk:ffff".encode(), b""],
)
def test_a_program_may_be_called_anything(tmp_path: Path, name: bytes) -> None:
    """A name is 15 bytes that the program chooses; the kernel cuts longer ones in the middle of a character."""
    assert wants_out(PID, status(tmp_path, shared=(signal.SIGINT,), name=name))


@pytest.mark.semantics("S27")
@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.ENFILE])
def test_what_cannot_be_read_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """`hidepid=1` shows the directories of other users' processes and nothing in them; descriptors may run out."""

    def refuse(path: Path, *_: object) -> bytes:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert not wants_out(PID, status(tmp_path))


CHILD = """
import ctypes, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
ctypes.CDLL(None).prctl(15, b"caf\\xe9", 0, 0, 0)  # PR_SET_NAME
print("ready", flush=True)
sys.stdin.read()
"""


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until the kernel shows what was just done; a bound, no fixed pause."""
    give_up = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < give_up
        os.sched_yield()


@pytest.mark.semantics("S22")
def test_a_real_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            assert not wants_out(child.pid)
            for unwanted in (signal.SIGUSR1, signal.SIGUSR2):
                child.send_signal(unwanted)
                assert not wants_out(child.pid)
            child.send_signal(signal.SIGSTOP)
            eventually(lambda: "\nState:\tT" in Path(f"/proc/{child.pid}/status").read_text("latin-1"))
            child.send_signal(signal.SIGTERM)  # stays pending, as the process is stopped
            eventually(lambda: wants_out(child.pid))
        finally:
            child.kill()
            child.wait(BOUND)
    assert wants_out(child.pid)


class Waiter:
    """One request that waits under `watching`."""

    def __init__(self, waiting: Interrupts, pid: int) -> None:
        self.let_go = trio.Event()
        self.ended = trio.Event()
        self.interrupted = False
        self._waiting, self._pid = waiting, pid

    async def __call__(self) -> None:
        with self._waiting.watching(self._pid) as scope:
            await self.let_go.wait()
        self.interrupted = scope.cancelled_caught
        self.ended.set()


@pytest.mark.semantics("S22")
async def test_only_the_wait_of_the_interrupted_thread_ends_and_soon(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanting: set[int] = set()
    monkeypatch.setattr(waiting_programs, "wants_out", lambda pid: pid in wanting)
    waiting = Interrupts()
    nursery.start_soon(waiting.run)
    one, other = Waiter(waiting, 1), Waiter(waiting, 2)
    async with trio.open_nursery() as waiters:
        waiters.start_soon(one)
        waiters.start_soon(other)
        await trio.sleep(5.0)
        started = trio.current_time()
        wanting.add(1)
        await one.ended.wait()
        assert one.interrupted
        assert trio.current_time() - started <= 1.0
        other.let_go.set()
    assert not other.interrupted
    late = Waiter(waiting, 1)
    await trio.sleep(60.0)
    async with trio.open_nursery() as waiters:
        waiters.start_soon(late)
    assert late.interrupted


async def test_who_does_not_wait_is_not_looked_at(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    monkeypatch.setattr(waiting_programs, "wants_out", lambda pid: looked.append(pid) or False)
    waiting = Interrupts()
    nursery.start_soon(waiting.run)
    with waiting.watching(1):
        pass
    await trio.sleep(3600.0)
    assert looked == []


@pytest.mark.semantics("S14", "S22")
@pytest.mark.parametrize(
    ("number", "caught", "ends"),
    [
        (signal.SIGINT, True, True),
        (signal.SIGTERM, True, True),
        (signal.SIGALRM, True, False),
        (signal.SIGALRM, False, True),
        (signal.SIGUSR1, True, False),
        (signal.SIGKILL, False, True),
        (signal.SIGTSTP, False, False),
        (signal.SIGSTOP, False, False),
    ],
)
def test_a_signal_that_a_program_handles_ends_no_wait_unless_it_means_the_end(
    tmp_path: Path, number: signal.Signals, caught: bool, ends: bool
) -> None:
    """A progress meter's timer must not make `stat` fail: it never does on a local disk."""
    mask = 1 << (number - 1)
    fields = {"SigPnd": 0, "ShdPnd": mask, "SigBlk": 0, "SigIgn": 0, "SigCgt": mask if caught else 0}
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text("".join(f"{key}:\t{value:016x}\n" for key, value in fields.items()))
    assert wants_out(7, tmp_path) is ends


def test_only_descriptors_that_can_write_a_file_count(tmp_path: Path) -> None:
    path, own = tmp_path / "file", os.getpid()
    path.touch()
    end = str(path).lstrip("/")
    with path.open("rb"):
        assert not has_open(own, end)
        for mode in ("r+b", "wb", "ab"):
            with path.open(mode):
                assert has_open(own, end)
                assert not has_open(own, end + "r")
    assert not has_open(0, end)
