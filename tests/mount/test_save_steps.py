"""A daemon or a source that is killed at any step of a save: the source has the old file or the new one, and what it
lacks is pending, whole (S32).

A first save of each kind tells the steps that there are. In each round one more save is broken off at one of them:
`make kills` has 200 rounds for each source.
"""

import json
import os
import random
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest
from breakpoints import environ
from harness import Mount, Mounts
from killable import KILLABLE, NAME, Killable, killable
from programs import Program, run, wait_until

from bbfs.sources.unfinished import is_left

pytestmark = pytest.mark.semantics("S32.3")
ROUNDS = int(os.environ.get("ROUNDS", "0"))
SAVES = {
    "replace": "p = sys.argv[1]; f = os.open(p, os.O_WRONLY | os.O_TRUNC)",
    "create": "p = sys.argv[1]; f = os.open(p, os.O_WRONLY | os.O_CREAT | os.O_EXCL)",
    "rename": "p = sys.argv[1].replace('note', '.tmp-note'); f = os.open(p, os.O_WRONLY | os.O_CREAT)",
}
SAVE = """
import os, sys
{}
data = open(sys.argv[2], 'rb').read()
while data:
    data = data[os.write(f, data):]
os.close(f)
if p != sys.argv[1]:
    os.rename(p, sys.argv[1])
"""
SMALL, LARGE = 3000, 1_500_000
"""Bytes: in memory, in a file."""
WITHIN = re.compile(r"wire \d*[1-79][1-79]")
"""Most of the messages that are like the one before."""
OLD = b"old " * 1000


class Rounds:
    """Saves to one source, each on a mount of its own."""

    def __init__(self, source: Killable, mounted: Mounts, files: Path) -> None:
        self._source, self._mounted, self._files = source, mounted, files
        self._count = 0

    def __call__(self, how: str, size: int, step: str = "", number: int = 0) -> list[str]:
        """Save, and have the daemon get a signal at a step; SIGSTOP means that the source is killed there.

        how: a key of `SAVES`; after that `down` if the source is killed before. Return the steps that came.
        """
        how, _, is_down = how.partition(" ")
        self._count += 1
        source, state, told = self._source, self._mounted.state(), self._files / f"steps-{self._count}"
        old = None if how == "create" else OLD
        new = f"{self._count:07} ".encode() * (size // 8)
        source.put(old)
        data = self._files / "data"
        data.write_bytes(new)
        stops = environ(told, source.kind, source.wires, step, number)
        mount = self._mounted(source.table(), state=state, environ=stops, expected=[""])
        file = mount / source.directory / NAME
        run("ls", file.parent)
        if old is not None:
            assert run("cat", file).out == old
        if is_down:
            source.kill(mount)
        program = Program(sys.executable, "-I", "-c", SAVE.format(SAVES[how]), file, data)
        if number == signal.SIGSTOP:
            wait_until(lambda: not program.running or is_stopped(mount.pid), "the step comes")
            source.kill(mount)
            os.kill(mount.pid, signal.SIGCONT)
        saved = program.wait(40).status == 0
        steps = told.read_text().splitlines()
        came = step in steps
        assert came or not step or step.startswith("wire"), (step, steps)  # a message more or less is a matter of time
        if number == signal.SIGKILL and came:
            mount.process.wait(10)
            mount.destroy()
            mount = self._mounted(source.table(), state=state, expected=[""])
        source.start()
        self._look(mount, steps, old, new, saved)
        mount.stop()
        return steps

    def _look(self, mount: Mount, steps: list[str], old: bytes | None, new: bytes, saved: bool) -> None:
        source, file = self._source, mount / self._source.directory / NAME
        kept = mount.state.home / ".local/state/bbfs/pending"
        wait_until(lambda: run("ls", file.parent, status=None).status == 0, "the source is listed")
        there, items = source.get(), self._pending(mount)
        if saved:
            assert (there, items) == (new, [])
            return
        is_half = there not in (old, new)
        assert not is_half or (not source.is_whole and new.startswith(there or b""))
        assert items or there == new or "kept 1" not in steps, "the daemon had the bytes"
        for item in items:
            assert (kept / item["id"]).read_bytes() == new
            again = ["pending", "retry", item["id"], *(["--force"] if is_half else [])]
            # A source that was down is asked again after a while, and lists what was listed before until then.
            wait_until(lambda words=again: mount.bbfs(*words, status=None).status == 0, "the retry lands")
            assert source.get() == new
        assert list(kept.glob("*")) == [], mount.log()
        left = source.names() - {NAME}
        if left:  # what a killed daemon had staged: the next write in the directory removes it
            assert not items
            assert all(map(is_left, left)), left
            for words in (("touch", file.with_name("next")), ("rm", file.with_name("next"))):
                run(*words)
            assert source.names() <= {NAME}
        now = source.get()
        if now is not None:
            wait_until(lambda: run("cat", file, status=None).out == now, "the mount has what the source has")

    def _pending(self, mount: Mount) -> list[dict[str, str]]:
        return json.loads(mount.bbfs("pending", "list", "--json").text)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.fixture(scope="module")
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killable]:
    with closing(killable(request.param, tmp_path_factory.mktemp("source") / "home")) as source:
        yield source


@pytest.fixture
def rounds(source: Killable, mounted: Mounts, tmp_path: Path) -> Rounds:
    return Rounds(source, mounted, tmp_path)


@pytest.mark.parametrize(
    ("source", "cases"),
    [
        ("sftp", [("replace", LARGE, "wire 20", signal.SIGKILL), ("create", SMALL, "wire 3", signal.SIGSTOP)]),
        ("mcp-http", [("rename", LARGE, "stored 1", signal.SIGKILL), ("replace", SMALL, "wire 1", signal.SIGSTOP)]),
    ],
    indirect=["source"],
)
def test_some_steps(rounds: Rounds, cases: list[tuple[str, int, str, int]]) -> None:
    for case in cases:
        assert case[2] in rounds(*case)


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not ROUNDS, reason="make kills runs it")
@pytest.mark.parametrize("source", [*KILLABLE, "memory"], indirect=True)
def test_every_step(rounds: Rounds, source: Killable) -> None:
    signals = [signal.SIGKILL] if source.kind == "memory" else [signal.SIGKILL, signal.SIGSTOP]
    down = [] if source.wires in ("", "pipes") else ["replace down"]  # a child is started again at once
    kinds = list(product([*SAVES, *down], (SMALL, LARGE)))
    steps = {kind: [step for step in rounds(*kind) if not WITHIN.fullmatch(step)] for kind in kinds}
    cases = [(*kind, step, each) for kind in kinds for step in steps[kind] for each in signals]
    chosen = random.Random(ROUNDS).sample(cases, min(len(cases), ROUNDS))
    came = [step in rounds(how, size, step, number) for how, size, step, number in chosen]
    assert sum(came) >= 0.9 * len(chosen), [case for case, has_come in zip(chosen, came, strict=True) if not has_come]
