"""Cold: 1 000 resources of 4 KB behind a server that takes 20 ms a read, nothing known yet.

One daemon a round and concurrency mounts such a server once for each program, so that every program finds everything
cold. "ideal" is what the reads take when as many as allowed are always in flight. Rivals get a small part of the files,
one directory a program, because they read one after the other; their seconds are scaled up.
"""

import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import places
from figures import Sheet
from files import Shape, write_list
from rounds import HERE, Bench, Measure, Place, Sizes, answer, expect, run, seconds, turn

CELL_BOUND = 30.0
GROUP = "cold, 16 in flight"
READ_GROUP = "upstream reads"
CASES = ("grep -r", "cat of all", "tar", "cp -a", "ls -l", "rg", "xargs -P4 cat")
AT_A_TIME, IN_SEQUENCE = "SDK client, 16 at a time", "SDK client, in sequence"
RIVALS = ("rclone, HTTP", "fsspec", "mirage")
AT_ONCE = "all, 16 readers"
TEMPLATE_GROUP = "cold, completable template"
BY_NAME, NEVER_LISTED, LISTED = "cat of all by name", "bbfs, never listed", "bbfs, after ls"
COPIES = {
    "cp -a": (["cp", "-a"], ["cp", "-a", "--no-preserve=xattr"]),
    "rsync -aX": (["rsync", "-aX"], ["rsync", "-a"]),
    "tar --xattrs": (["tar", "--xattrs", "-cf", "-", "-C"], ["tar", "-cf", "-", "-C"]),
}
"""The programs that copy extended attributes, with their words and those for the same copy without attributes."""
WITHOUT = "bbfs, without attributes"
TENTH, FIRST, REMOUNT = "a random tenth", "the first 20", "ls -lR and cat after a remount"


@dataclass(frozen=True)
class Slow:
    """What is read: how many resources, seconds a read, and the part of them that rivals are given."""

    count: int = 1000
    delay: float = 0.02
    share: float = 0.02

    @property
    def few(self) -> int:
        return max(1, round(self.count * self.share))

    @property
    def in_sequence(self) -> int:
        """How many of the resources the SDK's client reads one after the other."""
        return max(1, self.count // 10)

    def ideal(self, concurrency: int) -> float:
        return self.count * self.delay / concurrency


def walk_group(concurrency: int) -> str:
    return f"cold, {concurrency} in flight"


def copy_group(concurrency: int) -> str:
    return f"copies with attributes, {concurrency} in flight"


def reader(concurrency: int) -> str:
    return f"bbfs, {concurrency} in flight"


def plan(sheet: Sheet, sizes: Sizes) -> None:
    slow = Slow(sizes.slow)
    for concurrency in sizes.concurrencies:
        sheet.plan(walk_group(concurrency), CASES, ["ideal", "bbfs"])
        if walk_group(concurrency) == GROUP:
            sheet.plan(GROUP, [AT_ONCE], ["ideal", "bbfs", AT_A_TIME])
            sheet.plan(GROUP, [AT_ONCE], [IN_SEQUENCE], share=slow.in_sequence / slow.count)
            sheet.plan(GROUP, CASES, RIVALS, rival=True, share=slow.few / slow.count)
        sheet.plan(copy_group(concurrency), list(COPIES), ["bbfs", WITHOUT])
    sheet.plan(TEMPLATE_GROUP, [BY_NAME], ["ideal", NEVER_LISTED, LISTED])
    sheet.plan(READ_GROUP, CASES, [reader(concurrency) for concurrency in sizes.concurrencies], unit="a file")
    for case, unit in ((TENTH, "extra, of those asked for"), (FIRST, "extra"), (REMOUNT, "requests")):
        sheet.plan(READ_GROUP, [case], ["bbfs"], unit=unit)


@dataclass(frozen=True)
class Programs:
    """What is run at a place; it knows where the lists of names are and where copies may go."""

    scratch: Path
    slow: Slow

    def measures(self) -> dict[str, Measure]:
        measures: tuple[Measure, ...] = (
            lambda place: run(["grep", "-r", "no such text", place.tree], bound=CELL_BOUND, accepted=(1,)),
            lambda place: run(self.listed(place), bound=CELL_BOUND),
            lambda place: self.copied(["tar", "-cf", "-", "-C"], place.tree),
            lambda place: self.copied(["cp", "-a"], place.tree),
            lambda place: run(["ls", "-l", place.tree], bound=CELL_BOUND),
            lambda place: run(["rg", "no such text", place.tree], bound=CELL_BOUND, accepted=(1,)),
            lambda place: run(self.listed(place, "-n", self.some(place), "-P", "4"), bound=CELL_BOUND),
        )
        return dict(zip(CASES, measures, strict=True))

    def listed(self, place: Place, *options: str) -> list[str | Path]:
        names = self.scratch / ("few.list" if place.share < 1 else "all.list")
        return ["env", "-C", place.tree, "xargs", "-0", "-a", names, *options, "cat"]

    def some(self, place: Place) -> str:
        """How many files each of the parallel processes is given at a time: there are 16 portions."""
        return str(max(1, (self.slow.few if place.share < 1 else self.slow.count) // 16))

    def copied(self, words: Sequence[str], tree: Path) -> float:
        """Seconds that a program takes to copy a directory: to another one, or into a pipe if it is tar."""
        if words[0] == "tar":
            return run([*words, tree, "."], bound=CELL_BOUND, accepted=(0, 1), piped=True)
        target = self.scratch / f"copy-{time.monotonic_ns()}"
        try:
            return run([*words, f"{tree}/." if words[0] == "rsync" else tree, target], bound=CELL_BOUND)
        finally:
            run(["rm", "-rf", target], bound=CELL_BOUND)


def requests(counters: Path, kind: bytes = b"") -> int:
    """The requests of a kind that a server has had."""
    return sum(line.startswith(kind) for line in counters.read_bytes().splitlines())


def settled(counters: Path, delay: float) -> int:
    """The reads upstream, once there have been no more for a while."""
    count, since = -1, time.monotonic()
    while time.monotonic() - since < 0.2 + 3 * delay:
        if (now := requests(counters, b"read")) != count:
            count, since = now, time.monotonic()
        time.sleep(0.02)
    return count


Serve = Callable[[Slow, str, Path], list[str | Path]]
"""Makes the command of a server of these resources, given a seed and the file for its counters."""


def serve(slow: Slow, seed: str, counters: Path, *, template: bool = False) -> list[str | Path]:
    return places.server(1, slow.count, seed=seed, delay=slow.delay, counters=counters, template=template)


class Upstream:
    """One server a case as sources of one daemon, and what each has been asked. below: where its resources are."""

    def __init__(
        self,
        stage: places.Stage,
        slow: Slow,
        cases: Sequence[str],
        concurrency: int,
        *,
        serve: Serve = serve,
        below: str = "bench/tree/d000",
        python: str | Path | None = None,
    ) -> None:
        self._below = below
        self._home = stage.directory / f"home-{time.monotonic_ns()}"
        self._slow = slow
        self._names = {case: f"s{number}" for number, case in enumerate(cases)}
        sources: list[dict[str, object]] = []
        for case, name in self._names.items():
            counters = self.counters(case)
            counters.parent.mkdir(parents=True, exist_ok=True)
            counters.touch()
            seed = f"{name} {time.monotonic_ns()}"
            sources.append(places.served(name, serve(slow, seed, counters), concurrency))
        self._command = places.bbfs(self._home, sources, python)
        self._stage = stage
        self.root, self.pid = self._mount()

    def _mount(self) -> tuple[Path, int]:
        return self._stage.mount("bbfs", self._command, home=self._home)

    def remounted(self) -> None:
        """Another daemon after this one, with what this one has kept. The stage must have ended this one."""
        self.root, self.pid = self._mount()

    def counters(self, case: str) -> Path:
        return self._home / "counters" / self._names[case]

    def tree(self, case: str) -> Path:
        """The directory of a case's resources; its server runs and is listed, nothing of it is read."""
        tree = self.unlisted_tree(case)
        run(["ls", tree], bound=CELL_BOUND)
        return tree

    def unlisted_tree(self, case: str) -> Path:
        """As `tree`: the server runs, and its resources are listed, but no program has listed this directory."""
        source = self.root / f"mcp-server+{self._names[case]}"
        run(["ls", source], bound=CELL_BOUND)
        return source / self._below

    def reads(self, case: str) -> int:
        return settled(self.counters(case), self._slow.delay)

    def read_all(self, case: str) -> int:
        """As `reads`. Raises Unmeasurable: a program that has not read all resources measures nothing."""
        count = self.reads(case)
        expect("resources read at the server", min(count, self._slow.count), self._slow.count)
        return count


@dataclass(frozen=True)
class Round:
    """One round: what it measures goes to the sheet."""

    sheet: Sheet
    number: int
    slow: Slow
    scratch: Path
    rivals_too: bool = True

    @property
    def names(self) -> list[str]:
        return Shape(1, self.slow.count).names()

    def stage(self, group: str, ending: ExitStack) -> places.Stage:
        directory = self.scratch / f"mounts-{time.monotonic_ns()}"
        directory.mkdir()
        return places.Stage(self.sheet, group, directory, ending, self.rivals_too)

    def walks(self, concurrency: int) -> None:
        """All programs, each on a cold source of its own, and how often each made the server read."""
        group, measures = walk_group(concurrency), Programs(self.scratch, self.slow).measures()
        order = list(measures)
        order = order[self.number % len(order) :] + order[: self.number % len(order)]
        for case in measures:
            self.sheet.add(self.number, group, case, "ideal", self.slow.ideal(concurrency))
        with ExitStack() as ending:
            upstream = Upstream(self.stage(group, ending), self.slow, order, concurrency)

            def walk(case: str) -> None:
                place = Place("bbfs", upstream.tree(case))
                taken, reads = measures[case](place), upstream.read_all(case)
                self.sheet.add(self.number, group, case, "bbfs", taken)
                self.sheet.add(self.number, READ_GROUP, case, reader(concurrency), reads / self.slow.count)

            for case in order:
                self.sheet.attempt(group, [case], "bbfs", lambda case=case: walk(case))

    def copies(self, concurrency: int) -> None:
        """The programs that copy extended attributes, with these and without them, each on a cold source of its own."""
        group, programs = copy_group(concurrency), Programs(self.scratch, self.slow)
        order = [(case, place) for case in COPIES for place in ("bbfs", WITHOUT)]
        if self.number % 2:
            order.reverse()
        with ExitStack() as ending:
            names = [f"{case}, {place}" for case, place in order]
            upstream = Upstream(self.stage(group, ending), self.slow, names, concurrency)

            def copy(case: str, place: str) -> None:
                source = f"{case}, {place}"
                taken = programs.copied(COPIES[case][place == WITHOUT], upstream.tree(source))
                upstream.read_all(source)
                self.sheet.add(self.number, group, case, place, taken)

            for case, place in order:
                self.sheet.attempt(group, [case], place, partial(copy, case, place))

    def strays(self) -> None:
        """A random tenth, and the first 20 in order: what was read that nobody asked for."""
        some = random.Random(self.number).sample(self.names, max(1, self.slow.count // 10))
        first = self.names[: min(20, self.slow.count)]
        cases = {TENTH: some, FIRST: first}
        with ExitStack() as ending:
            upstream = Upstream(self.stage(READ_GROUP, ending), self.slow, list(cases), 16)
            for case, names in cases.items():
                chosen = write_list(self.scratch / "some.list", [Path(name).name for name in names])

                def stray(case: str = case, asked: int = len(names), chosen: Path = chosen) -> None:
                    run(["env", "-C", upstream.tree(case), "xargs", "-0", "-a", chosen, "cat"], bound=CELL_BOUND)
                    extra = upstream.reads(case) - asked
                    expect("reads too few", min(extra, 0), 0)
                    self.sheet.add(self.number, READ_GROUP, case, "bbfs", extra if case == FIRST else extra / asked)

                self.sheet.attempt(READ_GROUP, [case], "bbfs", stray)

    def templates(self) -> None:
        """All files by name, in a directory of a completable template that no program has listed, and after an ls."""
        group, programs = TEMPLATE_GROUP, Programs(self.scratch, self.slow)
        self.sheet.add(self.number, group, BY_NAME, "ideal", self.slow.ideal(16))
        with ExitStack() as ending:
            upstream = Upstream(
                self.stage(group, ending), self.slow, [NEVER_LISTED, LISTED], 16, serve=partial(serve, template=True)
            )

            def walk(name: str, find: Callable[[str], Path]) -> None:
                place = Place(name, find(name))
                taken = run(programs.listed(place), bound=CELL_BOUND)
                upstream.read_all(name)
                self.sheet.add(self.number, group, BY_NAME, name, taken)

            measures: dict[str, Callable[[], None]] = {
                NEVER_LISTED: lambda: walk(NEVER_LISTED, upstream.unlisted_tree),
                LISTED: lambda: walk(LISTED, upstream.tree),
            }
            order = list(measures)
            for name in order[self.number % 2 :] + order[: self.number % 2]:
                self.sheet.attempt(group, [BY_NAME], name, measures[name])

    def remount(self) -> None:
        """What a second daemon asks for, after the first has listed and read everything."""
        case = REMOUNT

        def again() -> None:
            with ExitStack() as ending:
                stage = self.stage(READ_GROUP, ending)
                upstream = Upstream(stage, self.slow, [case], 16)
                programs = Programs(self.scratch, self.slow)
                run(programs.listed(Place("bbfs", upstream.tree(case))), bound=CELL_BOUND)
                ending.pop_all().close()
                before = requests(upstream.counters(case))
                upstream.remounted()
                tree = upstream.tree(case)
                run(["ls", "-lR", tree], bound=CELL_BOUND)
                run(programs.listed(Place("bbfs", tree)), bound=CELL_BOUND)
                upstream.reads(case)
                after = requests(upstream.counters(case))
                self.sheet.add(self.number, READ_GROUP, case, "bbfs", after - before)

        self.sheet.attempt(READ_GROUP, [case], "bbfs", again)

    def beside_client(self) -> None:
        """16 readers of the mount beside the SDK's client, in sequence and with 16 at a time."""
        command = places.server(1, self.slow.count, delay=self.slow.delay)

        def client(name: str, concurrency: int, limit: int) -> None:
            self.sheet.add(self.number, GROUP, AT_ONCE, name, by_client(command, concurrency, limit))

        def readers() -> None:
            with ExitStack() as ending:
                upstream = Upstream(self.stage(GROUP, ending), self.slow, [AT_ONCE], 16)
                tree = upstream.tree(AT_ONCE)
                chosen = write_list(self.scratch / "whole.list", [str(tree / Path(name).name) for name in self.names])
                taken = seconds("reader.py", "parallel", chosen, "16", bound=CELL_BOUND)
                upstream.read_all(AT_ONCE)
                self.sheet.add(self.number, GROUP, AT_ONCE, "bbfs", taken)

        self.sheet.add(self.number, GROUP, AT_ONCE, "ideal", self.slow.ideal(16))
        measures: dict[str, Callable[[], None]] = {
            "bbfs": readers,
            AT_A_TIME: lambda: client(AT_A_TIME, 16, self.slow.count),
            IN_SEQUENCE: lambda: client(IN_SEQUENCE, 1, self.slow.in_sequence),
        }
        order = list(measures)
        for name in order[self.number % 3 :] + order[: self.number % 3]:
            self.sheet.attempt(GROUP, [AT_ONCE], name, measures[name])

    def rivals(self) -> None:
        """Each with a directory a program, of the same delay a file."""
        measures = Programs(self.scratch, self.slow).measures()
        folder, delay = self.scratch / "few", str(self.slow.delay)
        with ExitStack() as ending:
            stage = self.stage(GROUP, ending)
            log = stage.directory / "http.log"
            web = [sys.executable, HERE / "slow_http.py", folder, "--delay", delay]
            process = ending.enter_context(places.running(web, stage.directory / "web", log))
            url = first_line(log, process)
            mounts = (
                places.rclone(":http:", *places.KEPT, "--http-url", url, "--checkers", "16"),
                places.by_rival("fsspec_mount.py", folder, "--delay", delay),
                places.by_rival("mirage_mount.py", folder, "--delay", delay),
            )
            commands = {
                name: (mount, "")
                for name, mount in zip(RIVALS, mounts, strict=True)
                if not all(self.sheet.failed(GROUP, case, name) for case in measures)
            }
            if found := stage.places(CASES, commands):
                own = {
                    case: lambda place, number=number, measure=measure: measure(
                        Place(place.name, place.tree / f"d{number:03}", place.share)
                    )
                    for number, (case, measure) in enumerate(measures.items())
                }
                turn(self.sheet, GROUP, self.number, own, found)


def by_client(command: Sequence[str | Path], concurrency: int, limit: int) -> float:
    """Seconds that the SDK's client takes for the first resources of a server. Raises Unmeasurable."""
    options = ["--concurrency", str(concurrency), "--limit", str(limit), "--", *command]
    said = answer([sys.executable, HERE / "client.py", "read", *options], bound=CELL_BOUND)
    expect("resources", said["count"], limit)
    return said["seconds"]


def first_line(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 20
    while b"\n" not in (said := log.read_bytes()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the HTTP server did not start: {said.decode(errors='replace')}")
        time.sleep(0.02)
    return said.split(b"\n")[0].decode()


def measure(bench: Bench) -> None:
    slow, scratch = Slow(bench.sizes.slow), bench.memory
    Shape(len(CASES), slow.few).write(scratch / "few")
    for name, count in (("all.list", slow.count), ("few.list", slow.few)):
        write_list(scratch / name, [Path(file).name for file in Shape(1, count).names()])
    for number in bench.budget.numbers():
        one = Round(bench.sheet, number, slow, scratch, bench.rivals)
        for concurrency in bench.sizes.concurrencies:
            one.walks(concurrency)
            one.copies(concurrency)
        one.beside_client()
        one.strays()
        one.templates()
        one.remount()
        one.rivals()
