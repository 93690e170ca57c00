"""Running programs with a bound on each, and all cases on all places in turn, round after round."""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from figures import Missing, Sheet, Unmeasurable

HERE = Path(__file__).parent
TEMPORARY = re.compile(r"/[^ ‘’'\"]*bbfs-bench-[^/ ]+/")
END_BOUND = 5.0
"""Seconds that a program that was told to end may take."""
REST, AT_REST, REST_BOUND = 0.2, 0.01, 10.0
"""A daemon rests that works less than this share of this many seconds; it is given these many to come to rest."""


def end(process: subprocess.Popen[Any], *, at_once: bool = False) -> None:
    """End a program and all of its process group, by force if it takes too long. It must lead its group."""
    for number in (signal.SIGKILL,) if at_once else (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(END_BOUND)
        except subprocess.TimeoutExpired:
            continue
        break
    with contextlib.suppress(ProcessLookupError):  # what is left of the group
        os.killpg(process.pid, signal.SIGKILL)


def finished(process: subprocess.Popen[Any], bound: float) -> bool:
    """Wait for the end of a program, and see it at once (subprocess looks again after up to 50 ms)."""
    ended = os.pidfd_open(process.pid)
    try:
        return bool(select.select([ended], [], [], bound)[0])
    finally:
        os.close(ended)


def last_line(log: IO[bytes]) -> str:
    """The last line that was written, without directories of this machine and at most 160 characters of it."""
    log.seek(0)
    lines = log.read().decode(errors="replace").split("\n")
    said = next((line.strip() for line in reversed(lines) if line.strip()), "nothing was said")
    return TEMPORARY.sub("…/", said).replace(f"{HERE.parent}/", "")[:160]


def run(
    command: Sequence[str | Path],
    *,
    bound: float,
    accepted: tuple[int, ...] = (0,),
    piped: bool = False,
    output: IO[bytes] | None = None,
    environ: dict[str, str] | None = None,
) -> float:
    """Seconds that a program takes to its end. Raises Unmeasurable: it failed, or took more than `bound` seconds.

    piped: its output goes through a pipe, for programs (tar) that read nothing when they see /dev/null.
    """
    with tempfile.TemporaryFile() as errors:
        sink = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) if piped else None
        target = sink.stdin if sink is not None else output or subprocess.DEVNULL
        started = time.perf_counter()
        try:
            process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=target,
                stderr=errors,
                env=environ,
                start_new_session=True,
            )
            try:
                if not finished(process, bound):
                    raise Unmeasurable(f"more than {bound:g} s")
                taken = time.perf_counter() - started
                status = process.wait()
            except BaseException:
                end(process, at_once=True)
                raise
        except FileNotFoundError:
            raise Missing(f"there is no program {command[0]}") from None
        finally:
            if sink is not None and sink.stdin is not None:
                sink.stdin.close()
                sink.wait(END_BOUND)
        if status not in accepted:
            raise Unmeasurable(f"{Path(command[0]).name}: exit status {status}, {last_line(errors)}")
        return taken


def answer(command: Sequence[str | Path], *, bound: float) -> dict[str, Any]:
    """What a program of this directory prints as JSON. Raises Unmeasurable."""
    with tempfile.TemporaryFile() as output:
        run(command, bound=bound, output=output)
        output.seek(0)
        return json.loads(output.read())


def ask(program: str, *arguments: str, scratch: Path, bound: float) -> dict[str, Any]:
    """Run a program of this directory, and return the JSON that it writes. Raise Unmeasurable."""
    written = scratch / f"{program}-{time.monotonic_ns()}.json"
    # What they put into temporary directories is found in ours, if they have to be ended.
    environ = os.environ | {"TMPDIR": str(scratch)}
    run([sys.executable, HERE / program, *arguments, "--json", written], bound=bound, environ=environ)
    return json.loads(written.read_text())


def seconds(program: str, *arguments: str | Path, bound: float) -> float:
    """What a program of this directory says that it took. Raises Unmeasurable."""
    return answer([sys.executable, HERE / program, *arguments], bound=bound)["seconds"]


@dataclass(frozen=True)
class Place:
    """Somewhere the files of a case are. share: the part of them that this place is given. pid: its daemon, if any."""

    name: str
    tree: Path
    share: float = 1.0
    pid: int | None = None

    def memory(self) -> float:
        """MiB that the daemon has in memory."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def held(tree: str | Path, *, bound: float = 60.0) -> tuple[int, int]:
    """Return the number of files below a directory, and their bytes. Raises Unmeasurable."""
    with tempfile.TemporaryFile() as output:
        run(["find", tree, "-type", "f", "-printf", "%s\n"], bound=bound, output=output)
        output.seek(0)
        sizes = [int(line) for line in output]
    return len(sizes), sum(sizes)


def expect(what: str, found: object, wanted: object) -> None:
    """Raises Unmeasurable: a program has seen or done something else than it was measured for."""
    if found != wanted:
        raise Unmeasurable(f"{what}: {found}, not {wanted}")


Measure = Callable[[Place], float]


@dataclass(frozen=True)
class Budget:
    """How many rounds, and until when another may begin that takes as long as the longest yet (time.monotonic())."""

    rounds: int
    until: float

    def numbers(self, least: int = 1, *, first_apart: bool = False) -> Iterator[int]:
        """first_apart: the first round does more than the others, so nothing follows from how long it takes."""
        longest = 0.0
        for number in range(self.rounds):
            started = time.monotonic()
            if number >= least and started + longest > self.until:
                return
            yield number
            if number or not first_apart:
                longest = max(longest, time.monotonic() - started)


@dataclass(frozen=True)
class Sizes:
    """How much of everything there is in a run."""

    rounds: int = 5
    directories: int = 100
    files: int = 100
    """Warm: directories, and files in each."""
    slow: int = 1000
    """Cold: resources."""
    concurrencies: tuple[int, ...] = (16, 32, 64)
    large: int = 1 << 30
    looks: int = 200_000
    """Large: bytes of the file, and pieces that are read through mmap(2)."""
    listed: int = 100_000
    many: int = 1_000_000
    text: int = 64 << 20
    spell: float = 5.0
    """Scale: resources, bytes of the large text, seconds that one thing is watched."""
    changes: int = 10
    idle: float = 4.0
    """Live: changes, and seconds without any."""
    tree: str = "asyncio"
    written: int = 3000
    megabytes: int = 256
    """Writing: a directory of Python's library, small files, and MiB of the large file."""
    stores: tuple[str, ...] = ("sftp", "webdav", "s3")
    stored: int = 300
    stored_megabytes: int = 64
    """Stores: their kinds; small files, and MiB of the large file."""
    documents: int = 10_000
    vocabulary: int = 20_000
    topics: int = 2000
    queries: int = 20
    """Search: documents, the words in them, documents with a meaning, and a third of the queries of a kind."""
    growths: int = 3
    readers: tuple[int, ...] = (1, 4, 16, 64, 256)
    sources: tuple[int, ...] = (1, 10, 100)
    names: tuple[int, ...] = (1000, 10_000, 100_000, 1_000_000)
    file_sizes: tuple[int, ...] = (1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 28, 1 << 30, 8 << 30)
    """Growth: repetitions, and the steps in readers, sources, names, and bytes of a file."""


@dataclass(frozen=True)
class Bench:
    """The sheet, sizes and directories of one group's measurements.

    memory: an empty directory on tmpfs. disk: one on a disk. seconds: the group's share of the time. rivals: True if
    programs of others take part.
    """

    sheet: Sheet
    sizes: Sizes
    memory: Path
    disk: Path
    budget: Budget
    seconds: float
    rivals: bool = True


def processor_time(pid: int) -> float:
    """Return the seconds for which all threads of a process have run so far, to the nanosecond (clock_getres(2))."""
    return time.clock_gettime(~pid << 3 | 2)  # CPUCLOCK_SCHED of the kernel; Python has no clock_getcpuclockid(3)


def at_rest(pid: int) -> float:
    """Return the processor time of a daemon in seconds, once it rests: it writes some things late."""
    bound, now = time.monotonic() + REST_BOUND, processor_time(pid)
    while time.monotonic() < bound:
        before = now
        time.sleep(REST)
        now = processor_time(pid)
        if now - before < REST * AT_REST:
            break
    return now


def turn(sheet: Sheet, group: str, round: int, cases: dict[str, Measure], places: Sequence[Place]) -> None:
    """One round: each case at each place. Who begins changes from case to case and from round to round.

    A place that failed at a case is not asked again.
    """
    for number, (case, measure) in enumerate(cases.items()):
        first = (round + number) % len(places)
        for place in (*places[first:], *places[:first]):
            if sheet.failed(group, case, place.name):
                continue
            try:
                sheet.add(round, group, case, place.name, measure(place))
            except Unmeasurable as why:
                sheet.fail(group, case, place.name, why)
