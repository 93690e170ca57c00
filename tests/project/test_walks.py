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

import pytest
from harness import Mount, mcp
from programs import run
from repository import SERVERS, TESTS

BOUND = 30.0
BOUNDS = {"cold": 40, "warm": 8, "ls": 43, "overwrite": 52, "save by rename": 60, "remove": 39}
"""Modules that a walk may touch. `overwrite` is the first one that asks its source, so a listing is on its way."""
CALLS = {"overwrite": 800, "save by rename": 1150, "remove": 330}
"""Calls of functions that a walk may make; each time that a coroutine goes on counts as one."""
BEHIND = {"fuse/mountpoint.py"}
"""What follows a save to tell the user's other mounts: it takes as long as the machine's table of mounts is."""
ROUNDS = 3
"""Mounts in which each walk is recorded. What is not on the way in all of them is other work of the daemon."""


Walk = Counter[str]
"""What a daemon went through: the number of calls of functions, by module."""


class Walks:
    """A mount whose daemon records the modules that a program makes it walk through. One of its sources is written."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "walk"
        python = directory / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} {TESTS / "support/walked_mount.py"} {self._file} "$@"\n')
        python.chmod(0o755)
        server = [sys.executable, SERVERS / "slow.py", "--count", "20", "--delay", "0"]
        capabilities = ["read", "list", "write"]
        pad = {"name": "pad", "type": "memory", "capabilities": capabilities, "config": {"resources": {"a": "1"}}}
        self.mount = Mount([mcp("slow", server), pad], python=python)

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
        for module, *_, count in (line.split() for line in lines if line):
            walk[module] += int(count)
        return walk

    def all(self) -> dict[str, Walk]:
        """Return the walks of a first `ls`, a first `cat` of a file, the same `cat` again, and changes of another."""
        directory, pad = self.mount.path / "mcp-server+slow/test/items", self.mount.path / "bb-memory+pad+memory"
        try:
            run("ls", self.mount.path / ".bbfs")  # the daemon has begun, and no source was asked for anything
            deadline = time.monotonic() + BOUND
            while any(module.startswith("resources/") for module in self.walk("sleep", "0.3")):
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


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("fuse")
def test_a_cat_an_ls_and_a_save_walk_through_few_modules(tmp_path: Path) -> None:
    rounds = [Walks(tmp_path).all() for _ in range(ROUNDS)]
    on_the_way = {walk: set.intersection(*(set(each[walk]) for each in rounds)) for walk in BOUNDS}
    calls = {
        walk: min(sum(each[walk][module] for module in way - BEHIND) for each in rounds)
        for walk, way in on_the_way.items()
    }
    assert {walk: sorted(way) for walk, way in on_the_way.items() if len(way) > BOUNDS[walk]} == {}
    assert {walk: count for walk, count in calls.items() if count > CALLS.get(walk, inf)} == {}
    assert "fuse/adapter.py" in on_the_way["warm"]
