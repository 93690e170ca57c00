"""How many rooms one has to know to follow a request: what a `cat`, an `ls` and a save walk through in the daemon.

docs/architecture.md describes these walks. A change that exceeds a bound has put a stop on the way; look whether it can
stand in a module that is on the way already.
"""

import signal
import sys
import time
from collections import Counter
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
BOUNDS = {
    "cold": (30, 255, 2),
    "warm": (7, 20, 2),
    "ls": (33, 760, 3),
    "overwrite": (33, 360, 2),
    "save by rename": (38, 750, 2),
    "remove": (27, 210, 2),
    "search": (36, 400, 2),
}
"""Modules that a walk may touch, calls of functions that it may make, and how often one request in it may ask one thing
(`QUESTIONS`). The files of `cold` and `overwrite` are listed before. `search` is the request that `bbfs search` makes
on the control socket, for one word of an indexed file, the second time."""
QUESTIONS = ("FileSystem.getattr", "Tree.cached", "Tree.place", "Roots.of", "Overlay.get", "Contents.size_now")
"""What requests ask about a file."""
WRITE = ["read", "list", "write"]
REQUESTS = {name for name in vars(pyfuse3.Operations) if not name.startswith("_")}
ROUNDS = 2
"""Mounts in which each walk is recorded."""

Walk = Counter[tuple[str, str, str]]
"""What a daemon went through: the number of calls, by request, module and function."""


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
        held = {"resources": {"a": "1", "b": "zebra"}}
        pad = {"name": "pad", "type": "memory", "capabilities": WRITE, "config": held}
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
        for request, module, function, count in (line.split() for line in lines if line):
            walk[request, module, function] += int(count)
        return walk

    def modules(self, *command: str | Path) -> set[str]:
        """As `walk`, the modules alone."""
        return _modules(self.walk(*command))

    def requests(self, *command: str | Path) -> Counter[str]:
        """Run a command, and return how many requests for files of passed folders that took, by their names."""
        asked = Counter[str]()
        for (*_, function), count in self.walk(*command).items():
            backing, _, name = function.partition(".")
            if backing == PassedRequests.__name__ and name in REQUESTS:
                asked[name] += count
        return asked

    def search(self, place: Path, word: str) -> Walk:
        """Index a directory, search there twice, and return what the daemon went through for the second search."""
        run(sys.executable, "-m", "bbfs", "index", place)
        _, walk = (self.walk(sys.executable, "-m", "bbfs", "search", "--in", place, word) for _ in range(2))
        return Walk({key: count for key, count in walk.items() if key[0].endswith(".command")})

    def all(self) -> dict[str, Walk]:
        """Return the walks of a first `ls`, a first `cat` of a file, the same `cat` again, and changes of another."""
        directory, pad = self.mount.path / "mcp-server+slow/test/items", self.mount.path / "bb-memory+pad+memory"
        try:
            run("ls", self.mount.path / ".bbfs")  # the daemon has begun, and no source was asked for anything
            deadline = time.monotonic() + BOUND
            while any(module.startswith("resources/") for module in self.modules("sleep", "0.3")):
                assert time.monotonic() < deadline, "the daemon still opens its caches"
            ls, cold = self.walk("ls", directory), self.walk("cat", directory / "0007.txt")
            run("sleep", str(1.1 * SHORT))  # by then, the name has expired that READDIR had told for so long
            for _ in range(2):  # after a READ, the kernel asks for the times again, twice (fuse_invalidate_atime)
                self.walk("cat", directory / "0007.txt")
            return {
                "ls": ls,
                "cold": cold,
                "warm": self.walk("cat", directory / "0007.txt"),
                "listed": self.walk("ls", pad),
                "search": self.search(pad, "zebra"),
                "overwrite": self.walk("sh", "-c", f"echo 2 > {pad}/a"),
                "save by rename": self.walk("sh", "-c", f"echo 3 > {pad}/.a.tmp; mv {pad}/.a.tmp {pad}/a"),
                "remove": self.walk("rm", pad / "a"),
            }
        finally:
            self.mount.stop()


def _modules(walk: Walk) -> set[str]:
    return {module for _, module, _ in walk}


@pytest.mark.usefixtures("fuse")
def test_a_cat_an_ls_and_a_save_walk_through_few_modules_and_ask_once(tmp_path: Path) -> None:
    for _ in range(ROUNDS):
        walks = Walks.of_two_sources(tmp_path).all()
        assert "fuse/adapter.py" in _modules(walks["warm"])
        found: dict[str, object] = {}
        for name, (modules, calls, repeats) in BOUNDS.items():
            walk, way = walks[name], _modules(walks[name])
            asked = {key: count for key, count in walk.items() if key[2] in QUESTIONS and count > repeats}
            if len(way) > modules or walk.total() > calls or asked:
                found[name] = len(way), walk.total(), asked, sorted(way)
        assert found == {}


@pytest.mark.usefixtures("fuse")
def test_the_kernel_asks_a_passed_folder_for_nothing_that_it_has_been_told(tmp_path: Path) -> None:
    """The adapter answers for `security.capability` before each write.

    The kernel checks the rights in a directory, whose attributes it drops at each change there, before the next change:
    so the listing stands before each step.
    """
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
    assert min(made, key=Counter.total) == Counter(lookup=1, create=1, write=1, release=1)
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
