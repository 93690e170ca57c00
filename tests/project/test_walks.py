"""How many rooms one has to know to follow a request: what a `cat`, an `ls` and a save walk through in the daemon.

The bounds are those of docs/architecture.md. A change that exceeds one has put a stop on the way; look whether it can
stand in a module that is on the way already.
"""

import signal
import sys
import time
from collections import Counter
from math import inf
from pathlib import Path
from typing import Self

import pyfuse3
import pytest
from harness import Mount, SourceTable, folder, mcp
from programs import run
from repository import SERVERS, TESTS

from bbfs.fuse.backings.passed import PassedRequests
from bbfs.vfs.names import SHORT
from bbfs.vfs.passthrough import vouched

BOUND = 30.0
BOUNDS = {"cold": 38, "warm": 8, "ls": 42, "overwrite": 57, "save by rename": 63, "remove": 43}
"""Modules that a walk may touch. `overwrite` is the first one that asks its source, so a listing is on its way."""
CALLS = {"cold": 450, "warm": 45, "ls": 1400, "overwrite": 950, "save by rename": 1400, "remove": 360}
"""Calls of functions that a walk may make. Each time that a coroutine goes on counts as one, which a busy machine makes
happen more often."""
ASKED = ("vfs/", "resources/tree.py", "resources/contents.py", "resources/catalog/")
"""The modules that requests ask about a file. No request is to ask one thing again and again (`REPEATS`)."""
REPEATS = {"cold": 5, "warm": 2}
"""Calls of one function of these modules in a walk, but for the clock. A cold `cat` is a GETATTR that asks before and
after its load, and an OPEN, a READ, a FLUSH and a RELEASE."""
CLOCK = "steady_time"
BEHIND = {"fuse/mountpoint.py"}
"""What follows a save to tell the user's other mounts: it takes as long as the machine's table of mounts is."""
WRITE = ["read", "list", "write"]
REQUESTS = {name for name in vars(pyfuse3.Operations) if not name.startswith("_")}
ROUNDS, MOST_ROUNDS = 3, 8
"""Mounts in which each walk is recorded. What is not on the way in all of them is other work of the daemon. There are
more while a walk has too many calls: a busy machine has a coroutine go on more often."""


Walk = Counter[tuple[str, str]]
"""What a daemon went through: the number of calls, by module and function."""


class Walks:
    """A mount whose daemon records the modules that a program makes it walk through."""

    def __init__(self, directory: Path, *sources: SourceTable) -> None:
        self._file = directory / "walk"
        python = directory / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} {TESTS / "support/walked_mount.py"} {self._file} "$@"\n')
        python.chmod(0o755)
        self.mount = Mount(sources, python=python)

    @classmethod
    def of_two_sources(cls, directory: Path) -> Self:
        """Mount a server, and a source that is written."""
        server = [sys.executable, SERVERS / "slow.py", "--count", "20", "--delay", "0"]
        pad = {"name": "pad", "type": "memory", "capabilities": WRITE, "config": {"resources": {"a": "1"}}}
        return cls(directory, mcp("slow", server), pad)

    def walk(self, *command: str | Path) -> Walk:
        """Run a command on the mount, and return what the daemon went through meanwhile."""
        self.mount.process.send_signal(signal.SIGUSR1)
        run(*command)
        self.mount.process.send_signal(signal.SIGUSR2)
        deadline = time.monotonic() + BOUND
        while not self._file.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        lines = self._file.read_text().splitlines()
        self._file.unlink()
        walk = Walk()
        for module, function, count in (line.split() for line in lines if line):
            walk[module, function] += int(count)
        return walk

    def modules(self, *command: str | Path) -> set[str]:
        """As `walk`, the modules alone."""
        return _modules(self.walk(*command))

    def requests(self, *command: str | Path) -> Counter[str]:
        """Run a command, and return how many requests for files of passed folders that took, by their names."""
        asked = Counter[str]()
        for (_, function), count in self.walk(*command).items():
            backing, _, name = function.partition(".")
            if backing == PassedRequests.__name__ and name in REQUESTS:
                asked[name] += count
        return asked

    def all(self) -> dict[str, Walk]:
        """Return the walks of a first `ls`, a first `cat` of a file, the same `cat` again, and changes of another."""
        directory, pad = self.mount.path / "mcp-server+slow/test/items", self.mount.path / "bb-memory+pad+memory"
        try:
            run("ls", self.mount.path / ".bbfs")  # the daemon has begun, and no source was asked for anything
            deadline = time.monotonic() + BOUND
            while any(module.startswith("resources/") for module in self.modules("sleep", "0.3")):
                assert time.monotonic() < deadline, "the daemon still opens its caches"
            ls, cold = self.walk("ls", directory), self.walk("cat", directory / "0007.txt")
            for _ in range(2):  # after a READ, the kernel asks for the times again, twice (fuse_invalidate_atime)
                run("cat", directory / "0007.txt")
            return {
                "ls": ls,
                "cold": cold,
                "warm": self.walk("cat", directory / "0007.txt"),
                "overwrite": self.walk("sh", "-c", f"echo 2 > {pad}/a"),
                "save by rename": self.walk("sh", "-c", f"echo 3 > {pad}/.a.tmp; mv {pad}/.a.tmp {pad}/a"),
                "remove": self.walk("rm", pad / "a"),
            }
        finally:
            self.mount.stop()


def _modules(walk: Walk) -> set[str]:
    return {module for module, _ in walk}


def _calls(walk: Walk, way: set[str]) -> int:
    return sum(count for (module, _), count in walk.items() if module in way - BEHIND)


def _too_many(calls: dict[str, int]) -> dict[str, int]:
    return {walk: count for walk, count in calls.items() if count > CALLS.get(walk, inf)}


@pytest.mark.usefixtures("fuse")
def test_a_cat_an_ls_and_a_save_walk_through_few_modules_and_ask_once(tmp_path: Path) -> None:
    rounds: list[dict[str, Walk]] = []
    on_the_way: dict[str, set[str]] = {}
    calls: dict[str, int] = {}
    while len(rounds) < ROUNDS or (_too_many(calls) and len(rounds) < MOST_ROUNDS):
        rounds.append(Walks.of_two_sources(tmp_path).all())
        on_the_way = {walk: set.intersection(*(_modules(each[walk]) for each in rounds)) for walk in BOUNDS}
        calls = {walk: min(_calls(each[walk], way) for each in rounds) for walk, way in on_the_way.items()}
    assert {walk: sorted(way) for walk, way in on_the_way.items() if len(way) > BOUNDS[walk]} == {}
    assert _too_many(calls) == {}
    assert "fuse/adapter.py" in on_the_way["warm"]
    repeats = {
        (walk, *asked): count
        for walk, most in REPEATS.items()
        for asked in rounds[0][walk]
        if asked[0].startswith(ASKED) and asked[1] != CLOCK
        if (count := min(each[walk][asked] for each in rounds)) > most
    }
    assert repeats == {}


@pytest.mark.usefixtures("fuse")
def test_the_kernel_asks_a_passed_folder_for_nothing_that_it_has_been_told(tmp_path: Path) -> None:
    """The kernel itself asks for `security.capability` before each write. It checks the rights in a directory, whose
    attributes it drops at each change there, before the next change: so the listing stands before each step."""
    (tmp_path / "work").mkdir()
    walks = Walks(tmp_path, folder("work", tmp_path / "work", capabilities=WRITE))
    there = walks.mount.path / "bb-filesystem+work+file"
    made, removed = [], []
    try:
        for number in range(10):  # on a busy machine, the second of an answer passes between two commands
            run("ls", "-l", there)
            made.append(walks.requests("sh", "-c", f"echo 1 > {there}/{number}"))
            run("ls", "-l", there)
            removed.append(walks.requests("rm", there / str(number)))
    finally:
        walks.mount.stop()
    made = [requests for requests in made if requests["release"]]  # the kernel sends it after the program has ended
    assert min(made, key=Counter.total) == Counter(lookup=1, create=1, getxattr=1, write=1, release=1)
    assert min(removed, key=Counter.total) == Counter(unlink=1)


@pytest.mark.semantics("S40.8")
@pytest.mark.timeout(90)
@pytest.mark.usefixtures("fuse")
def test_the_kernel_asks_a_passed_folder_for_nothing_that_is_vouched_for(tmp_path: Path) -> None:
    """But for the folder itself, which may be replaced, names above, and listings, which it never keeps."""
    below = tmp_path / "work" / "d"
    below.mkdir(parents=True)
    for number in range(20):
        (below / str(number)).write_text("text")
    walks = Walks(tmp_path, folder("work", tmp_path / "work", capabilities=WRITE))
    there = walks.mount.path / "bb-filesystem+work+file" / "d"
    stats = f"stat {there}/absent {there}/*"
    try:
        run("sleep", str(vouched.Bounds().quiet))  # what was changed a moment ago is not vouched for
        for _ in range(vouched.ASKED):
            run("sh", "-c", stats, status=1)
        asked = walks.requests("sh", "-c", f"sleep {1.2 * SHORT}; {stats} || true")
    finally:
        walks.mount.stop()
    assert asked.keys() <= {"lookup", "getattr", "opendir", "readdir", "releasedir"}
    assert asked["lookup"] + asked["getattr"] < 10
