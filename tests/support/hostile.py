"""Attacks on a real mount: a hostile source beside a healthy folder and a healthy server, and one verdict for all.

A `Case` makes the source and says which programs touch it. `attack` runs them, asks the healthy ones meanwhile by a
`Probe`, measures the daemon by a `Footprint`, and returns a `Verdict`. Its `broken` lists the limits that did not hold.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness import Mounts, SourceTable, folder, mcp
from hostile_sources import unsent
from programs import Program, children_of
from repository import SERVERS

LONGEST = 1.0
"""Seconds that a healthy source may wait at most; three times as many beside other tests."""
MOST = 0.05
"""Seconds below which 99 of 100 answers of the healthy folder stay. Checked where nothing else runs: `make hostile`."""
MEMORY = 512 << 20
"""Bytes that the daemon and its workers may take above their idle state."""
DESCRIPTORS = 128
"""Descriptors that the daemon may open above its idle state."""
LEAST = 2.0
"""Seconds for which the healthy sources are asked at least."""
END = 5.0
"""Seconds from SIGTERM to the end of the daemon."""

Programs = Callable[[Path], Sequence[Sequence[str | Path]]]


def walk(directory: Path) -> Sequence[Sequence[str | Path]]:
    """Return the programs that list a source, stat all of it and read it, one after the other."""
    return [("ls", "-lR", directory), ("grep", "-rc", "x", directory)]


def walk_part(directory: Path, count: int = 200) -> Sequence[Sequence[str | Path]]:
    """Return the programs that list 20 000 names of a source, and stat and read the first `count`.

    For a source that lists as many names as its bounds allow and takes a request for each: a walk of all would show how
    long so many requests take, each of which is answered at once.
    """
    first = f"find '{directory}' | head -n {count} | tr '\\n' '\\0' | xargs -0"
    return [
        ("sh", "-c", each)
        for each in (f"ls -R '{directory}' | head -n 20000", f"{first} ls -ld", f"{first} grep -sc x")
    ]


@dataclass(frozen=True, slots=True)
class Case:
    """One attack.

    source: makes the table of the source for the configuration, given an empty directory; servers that it starts end
    with the test by `finish`. directory: of the source in the mount. programs: run one after the other. within: seconds
    for each of them. quick: it is part of `make test`. prepare: what the home of the daemon has before it starts, for
    that table.
    """

    name: str
    source: Callable[[Path], SourceTable]
    directory: str
    programs: Programs = walk
    within: float = 20.0
    quick: bool = False
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    prepare: Callable[[Path, SourceTable], None] | None = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a case. longest, most, end: seconds, `most` is the 99th percentile. memory: bytes above idle."""

    name: str
    longest: float
    most: float
    server: float
    memory: int
    descriptors: int
    end: float
    overdue: tuple[str, ...] = ()

    def broken(self, *, alone: bool) -> list[str]:
        """Return the limits that did not hold. alone: nothing else runs on this machine, so percentiles count."""
        longest = LONGEST if alone else 3 * LONGEST
        limits = [
            (self.longest, longest, "s: the longest wait of the healthy folder"),
            (self.server, longest, "s: the longest wait of the healthy server"),
            (self.memory / 2**20, MEMORY / 2**20, "MiB above idle"),
            (self.descriptors, DESCRIPTORS, "descriptors above idle"),
            (self.end, END, "s from SIGTERM to the end"),
        ]
        if alone:
            limits.append((self.most, MOST, "s: the 99th percentile of the healthy folder"))
        return [f"{value:.3g} {what}, more than {limit:g}" for value, limit, what in limits if value > limit] + [
            f"not ended in time: {program}" for program in self.overdue
        ]


# Asks a folder for a new name every 20 ms, and a server for a content every 100 ms, until its input ends.
_PROBE = """
import json, os, sys, threading, time
folder, content = sys.argv[1:]
waits, reads, begun = [], [], {}
def read():
    while True:
        start = begun["read"] = time.monotonic()
        with open(content, "rb") as file:
            assert file.read()
        reads.append(time.monotonic() - start)
        del begun["read"]
        time.sleep(0.1)
def ask():
    for number in range(1_000_000):
        start = begun["ask"] = time.monotonic()
        try:
            os.stat(f"{folder}/new-{number}")
        except FileNotFoundError:
            pass
        waits.append(time.monotonic() - start)
        del begun["ask"]
        time.sleep(0.02)
for work in (read, ask):
    threading.Thread(target=work, daemon=True).start()
while not (waits and reads):
    time.sleep(0.01)
print("ready", flush=True)
sys.stdin.read()
for found, start in ((waits, begun.get("ask")), (reads, begun.get("read"))):
    if start is not None:  # under way, perhaps for long
        found.append(time.monotonic() - start)
print(json.dumps([waits, reads]), flush=True)
os._exit(0)
"""


class Probe:
    """A program that asks the healthy sources during an attack."""

    def __init__(self, asked: Path, content: Path) -> None:
        command = [sys.executable, "-I", "-c", _PROBE, str(asked), str(content)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def end(self) -> tuple[list[float], list[float]]:
        """Return the seconds of each answer of the folder, and of the server. Raises AssertionError if it failed."""
        try:
            out, _ = self._process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise AssertionError("the probe of the healthy sources hangs") from None
        assert self._process.returncode == 0, "a healthy source failed"
        waits, reads = json.loads(out)
        return waits, reads


class Footprint:
    """The largest memory and number of descriptors of a daemon and its workers, above their state at the beginning."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._idle = self._resident(pid), self._open()
        self._workers = 0
        self._descriptors = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def end(self) -> tuple[int, int]:
        """Return bytes and descriptors above idle."""
        self._ended.set()
        self._thread.join()
        peak = int(self._status(self._pid, "VmHWM")) * 1024
        return max(0, peak - self._idle[0]) + self._workers, max(0, self._descriptors - self._idle[1])

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            self._workers = max(self._workers, sum(map(self._resident, self._worker_pids())))
            self._descriptors = max(self._descriptors, self._open())

    def _worker_pids(self) -> list[int]:
        found: list[int] = []
        for pid in children_of(self._pid):
            with contextlib.suppress(OSError):
                found += [pid] if b"bounded" in Path(f"/proc/{pid}/cmdline").read_bytes() else []
        return found

    def _open(self) -> int:
        try:
            return len(os.listdir(f"/proc/{self._pid}/fd"))
        except OSError:
            return 0

    def _resident(self, pid: int) -> int:
        try:
            return int(self._status(pid, "VmRSS")) * 1024
        except (OSError, ValueError):
            return 0

    def _status(self, pid: int, key: str) -> str:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return line.split()[1]
        raise ValueError(key)


def attack(case: Case, mounts: Mounts, directory: Path) -> Verdict:
    """Run a case on a mount of its own. Raises AssertionError if a healthy source fails or the daemon dies."""
    (directory / "healthy").mkdir()
    (directory / "hostile").mkdir()
    unharmed = [sys.executable, "-E", "-S", SERVERS / "unruly.py", "answers", "{}"]
    hostile, state = case.source(directory / "hostile"), mounts.state()
    if case.prepare is not None:
        case.prepare(state.home, hostile)
    sources = [folder("healthy", directory / "healthy"), mcp("unharmed", unharmed, ttl=0), hostile]
    mount = mounts(*sources, expected=[""], tables=case.tables, state=state)
    asked = mount / "bb-filesystem+healthy+file"
    probe = Probe(asked, mount / "mcp-server+unharmed" / "odd" / "a")
    footprint = Footprint(mount.pid)
    overdue: list[str] = []
    start = time.monotonic()
    for command in case.programs(mount / case.directory):
        try:
            Program(*command).wait(case.within)
        except AssertionError as error:
            overdue.append(str(error))
    time.sleep(max(0.0, LEAST - (time.monotonic() - start)))  # a thread may go on after the program has its answer
    assert mount.process.poll() is None, f"the daemon is gone:\n{mount.log()[-5000:]}"
    waits, reads = probe.end()
    assert not unsent(directory / "hostile"), "no program has made the daemon ask for the attack"
    memory, descriptors = footprint.end()
    start = time.monotonic()
    mount.process.send_signal(signal.SIGTERM)
    mount.wait(30)
    end = time.monotonic() - start
    mount.check_end()
    most = statistics.quantiles(waits, n=100, method="inclusive")[-1]
    return Verdict(case.name, max(waits), most, max(reads), memory, descriptors, end, tuple(overdue))


def record(verdict: Verdict, family: str) -> None:
    """Append a verdict to the file that HOSTILE_TABLE names, a line of JSON, if it names one."""
    if table := os.environ.get("HOSTILE_TABLE"):
        with open(table, "a") as file:
            file.write(json.dumps({"family": family, **asdict(verdict)}) + "\n")
