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
from pathlib import Path

import places
from figures import Sheet
from files import Shape, write_list
from rounds import HERE, Budget, Measure, Place, Unmeasurable, answer, run, seconds, turn

CELL_BOUND = 30.0
READ_GROUP = "upstream reads"
AT_ONCE = "all, 16 readers"
TEMPLATE_GROUP = "cold, completable template"
BY_NAME, NEVER_LISTED, LISTED = "cat of all by name", "bbfs, never listed", "bbfs, after ls"
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

    def ideal(self, concurrency: int) -> float:
        return self.count * self.delay / concurrency


@dataclass(frozen=True)
class Programs:
    """What is run at a place; it knows where the lists of names are and where copies may go."""

    scratch: Path
    slow: Slow

    def measures(self) -> dict[str, Measure]:
        return {
            "grep -r": lambda place: run(["grep", "-r", "no such text", place.tree], bound=CELL_BOUND, accepted=(1,)),
            "cat of all": lambda place: run(self.listed(place), bound=CELL_BOUND),
            "tar": lambda place: run(
                ["tar", "-cf", "-", "-C", place.tree, "."], bound=CELL_BOUND, accepted=(0, 1), piped=True
            ),
            "cp -a": self.copy,
            "ls -l": lambda place: run(["ls", "-l", place.tree], bound=CELL_BOUND),
            "rg": lambda place: run(["rg", "no such text", place.tree], bound=CELL_BOUND, accepted=(1,)),
            "xargs -P4 cat": lambda place: run(self.listed(place, "-n", self.some(place), "-P", "4"), bound=CELL_BOUND),
        }

    def listed(self, place: Place, *options: str) -> list[str | Path]:
        names = self.scratch / ("few.list" if place.share < 1 else "all.list")
        return ["env", "-C", place.tree, "xargs", "-0", "-a", names, *options, "cat"]

    def some(self, place: Place) -> str:
        """How many files each of the parallel processes is given at a time: there are 16 portions."""
        return str(max(1, (self.slow.few if place.share < 1 else self.slow.count) // 16))

    def copy(self, place: Place) -> float:
        target = self.scratch / f"copy-{time.monotonic_ns()}"
        try:
            return run(["cp", "-a", place.tree, target], bound=CELL_BOUND)
        finally:
            run(["rm", "-rf", target], bound=CELL_BOUND)


def settled(counters: Path, delay: float) -> int:
    """The reads upstream, once there have been no more for a while."""
    count, since = -1, time.monotonic()
    while time.monotonic() - since < 0.2 + 3 * delay:
        if (now := counters.read_bytes().count(b"read\n")) != count:
            count, since = now, time.monotonic()
        time.sleep(0.02)
    return count


class Upstream:
    """One server a case as sources of one daemon, and what each has been asked."""

    def __init__(
        self,
        stage: places.Stage,
        slow: Slow,
        cases: Sequence[str],
        concurrency: int,
        *,
        template: bool = False,
        python: str | Path = sys.executable,
    ) -> None:
        self._home = stage.directory / f"home-{time.monotonic_ns()}"
        self._slow = slow
        self._names = {case: f"s{number}" for number, case in enumerate(cases)}
        sources: list[dict[str, object]] = []
        for case, name in self._names.items():
            counters = self.counters(case)
            counters.parent.mkdir(parents=True, exist_ok=True)
            counters.touch()
            seed = f"{name} {time.monotonic_ns()}"
            command = places.server(1, slow.count, seed=seed, delay=slow.delay, counters=counters, template=template)
            sources.append(places.served(name, command, concurrency))
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
        return source / "bench" / "tree" / "d000"

    def reads(self, case: str) -> int:
        return settled(self.counters(case), self._slow.delay)


@dataclass(frozen=True)
class Round:
    """One round: what it measures goes to the sheet."""

    sheet: Sheet
    number: int
    slow: Slow
    scratch: Path

    @property
    def names(self) -> list[str]:
        return Shape(1, self.slow.count).names()

    def stage(self, group: str, ending: ExitStack) -> places.Stage:
        directory = self.scratch / f"mounts-{time.monotonic_ns()}"
        directory.mkdir()
        return places.Stage(self.sheet, group, directory, ending)

    def guarded(self, group: str, case: str, place: str, measure: Callable[[], None], unit: str = "s") -> None:
        """A failure is noted where the number would be."""
        if self.sheet.failed(group, case, place):
            return
        try:
            measure()
        except Unmeasurable as why:
            self.sheet.fail(group, case, place, str(why), unit=unit)

    def walks(self, concurrency: int) -> None:
        """All programs, each on a cold source of its own, and how often each made the server read."""
        group, measures = f"cold, {concurrency} in flight", Programs(self.scratch, self.slow).measures()
        order = list(measures)
        order = order[self.number % len(order) :] + order[: self.number % len(order)]
        for case in measures:
            self.sheet.add(self.number, group, case, "ideal", self.slow.ideal(concurrency))
        with ExitStack() as ending:
            upstream = Upstream(self.stage(group, ending), self.slow, order, concurrency)

            def walk(case: str) -> None:
                place = Place("bbfs", upstream.tree(case))
                self.sheet.add(self.number, group, case, "bbfs", measures[case](place))
                self.count(case, f"bbfs, {concurrency} in flight", upstream.reads(case) / self.slow.count)

            for case in order:
                self.guarded(group, case, "bbfs", lambda case=case: walk(case))

    def count(self, case: str, place: str, value: float) -> None:
        self.sheet.add(self.number, READ_GROUP, case, place, value, unit="a file")

    def strays(self) -> None:
        """A random tenth, and the first 20 in order: what was read that nobody asked for."""
        some = random.Random(self.number).sample(self.names, max(1, self.slow.count // 10))
        first = self.names[: min(20, self.slow.count)]
        cases = {TENTH: (some, "extra, of those asked for"), FIRST: (first, "extra")}
        with ExitStack() as ending:
            upstream = Upstream(self.stage(READ_GROUP, ending), self.slow, list(cases), 16)
            for case, (names, unit) in cases.items():
                chosen = write_list(self.scratch / "some.list", [Path(name).name for name in names])

                def stray(case: str = case, asked: int = len(names), chosen: Path = chosen, unit: str = unit) -> None:
                    run(["env", "-C", upstream.tree(case), "xargs", "-0", "-a", chosen, "cat"], bound=CELL_BOUND)
                    extra = upstream.reads(case) - asked
                    value = extra if unit == "extra" else extra / asked
                    self.sheet.add(self.number, READ_GROUP, case, "bbfs", value, unit=unit)

                self.guarded(READ_GROUP, case, "bbfs", stray, unit)

    def templates(self) -> None:
        """All files by name, in a directory of a completable template that no program has listed, and after an ls."""
        group, programs = TEMPLATE_GROUP, Programs(self.scratch, self.slow)
        self.sheet.add(self.number, group, BY_NAME, "ideal", self.slow.ideal(16))
        with ExitStack() as ending:
            upstream = Upstream(self.stage(group, ending), self.slow, [NEVER_LISTED, LISTED], 16, template=True)

            def walk(name: str, find: Callable[[str], Path]) -> None:
                place = Place(name, find(name))
                self.sheet.add(self.number, group, BY_NAME, name, run(programs.listed(place), bound=CELL_BOUND))

            measures: dict[str, Callable[[], None]] = {
                NEVER_LISTED: lambda: walk(NEVER_LISTED, upstream.unlisted_tree),
                LISTED: lambda: walk(LISTED, upstream.tree),
            }
            order = list(measures)
            for name in order[self.number % 2 :] + order[: self.number % 2]:
                self.guarded(group, BY_NAME, name, measures[name])

    def remount(self) -> None:
        """What a second daemon asks for, after the first has listed and read everything."""
        case, unit = REMOUNT, "requests"

        def again() -> None:
            with ExitStack() as ending:
                stage = self.stage(READ_GROUP, ending)
                upstream = Upstream(stage, self.slow, [case], 16)
                programs = Programs(self.scratch, self.slow)
                run(programs.listed(Place("bbfs", upstream.tree(case))), bound=CELL_BOUND)
                ending.pop_all().close()
                before = len(upstream.counters(case).read_bytes().splitlines())
                upstream.remounted()
                tree = upstream.tree(case)
                run(["ls", "-lR", tree], bound=CELL_BOUND)
                run(programs.listed(Place("bbfs", tree)), bound=CELL_BOUND)
                upstream.reads(case)
                after = len(upstream.counters(case).read_bytes().splitlines())
                self.sheet.add(self.number, READ_GROUP, case, "bbfs", after - before, unit=unit)

        self.guarded(READ_GROUP, case, "bbfs", again, unit)

    def beside_client(self) -> None:
        """16 readers of the mount beside the SDK's client, in sequence and with 16 at a time."""
        group = "cold, 16 in flight"
        command = places.server(1, self.slow.count, delay=self.slow.delay)

        def client(name: str, concurrency: int, limit: int) -> None:
            options = ["--concurrency", str(concurrency), "--limit", str(limit), "--", *command]
            said = answer([sys.executable, HERE / "client.py", "read", *options], bound=CELL_BOUND)
            share = limit / self.slow.count
            self.sheet.add(self.number, group, AT_ONCE, name, said["seconds"], share=share)

        def readers() -> None:
            with ExitStack() as ending:
                upstream = Upstream(self.stage(group, ending), self.slow, [AT_ONCE], 16)
                tree = upstream.tree(AT_ONCE)
                chosen = write_list(self.scratch / "whole.list", [str(tree / Path(name).name) for name in self.names])
                taken = seconds("reader.py", "parallel", chosen, "16", bound=CELL_BOUND)
                self.sheet.add(self.number, group, AT_ONCE, "bbfs", taken)

        self.sheet.add(self.number, group, AT_ONCE, "ideal", self.slow.ideal(16))
        measures: dict[str, Callable[[], None]] = {
            "bbfs": readers,
            "SDK client, 16 at a time": lambda: client("SDK client, 16 at a time", 16, self.slow.count),
            "SDK client, in sequence": lambda: client("SDK client, in sequence", 1, max(1, self.slow.count // 10)),
        }
        order = list(measures)
        for name in order[self.number % 3 :] + order[: self.number % 3]:
            self.guarded(group, AT_ONCE, name, measures[name])

    def rivals(self) -> None:
        """Each with a directory a program, of the same delay a file."""
        group, measures = "cold, 16 in flight", Programs(self.scratch, self.slow).measures()
        folder, delay = self.scratch / "few", str(self.slow.delay)
        with ExitStack() as ending:
            stage = self.stage(group, ending)
            log = stage.directory / "http.log"
            web = [sys.executable, HERE / "slow_http.py", folder, "--delay", delay]
            process = ending.enter_context(places.running(web, stage.directory / "web", log))
            url = first_line(log, process)
            commands = {
                "rclone, HTTP": (places.rclone(":http:", *places.KEPT, "--http-url", url, "--checkers", "16"), ""),
                "fsspec": (places.by_rival("fsspec_mount.py", folder, "--delay", delay), ""),
                "mirage": (places.by_rival("mirage_mount.py", folder, "--delay", delay), ""),
            }
            commands = {
                name: of
                for name, of in commands.items()
                if not all(self.sheet.failed(group, case, name) for case in measures)
            }
            share = self.slow.few / self.slow.count
            found = stage.places(list(measures), commands, dict.fromkeys(commands, share))
            if found:
                own = {
                    case: lambda place, number=number, measure=measure: measure(
                        Place(place.name, place.tree / f"d{number:03}", place.share)
                    )
                    for number, (case, measure) in enumerate(measures.items())
                }
                turn(self.sheet, group, self.number, own, found)


def first_line(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 20
    while b"\n" not in (said := log.read_bytes()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the HTTP server did not start: {said.decode(errors='replace')}")
        time.sleep(0.02)
    return said.split(b"\n")[0].decode()


def measure(
    sheet: Sheet, scratch: Path, budget: Budget, slow: Slow, concurrencies: Sequence[int] = (16, 32, 64)
) -> None:
    """scratch: a directory on tmpfs."""
    cases = len(Programs(scratch, slow).measures())
    Shape(cases, slow.few).write(scratch / "few")
    for name, count in (("all.list", slow.count), ("few.list", slow.few)):
        write_list(scratch / name, [Path(file).name for file in Shape(1, count).names()])
    for number in budget.numbers():
        one = Round(sheet, number, slow, scratch)
        for concurrency in concurrencies:
            one.walks(concurrency)
        one.beside_client()
        one.strays()
        one.templates()
        one.remount()
        one.rivals()
