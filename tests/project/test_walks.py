"""How many rooms one has to know to follow a request: what one `cat` and one `ls` walk through in the daemon.

The bounds are those of docs/architecture.md. A change that exceeds one has put a stop on the way; look whether it can
stand in a module that is on the way already.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Mount, mcp
from programs import run
from repository import SERVERS, TESTS

BOUND = 30.0
COLD_CAT, WARM_CAT, LS = 45, 8, 41
"""Modules that a walk may touch."""


@pytest.fixture
def walked(tmp_path: Path) -> Iterator[tuple[Mount, Callable[[Callable[[], object]], set[str]]]]:
    """A mount of a server with 20 resources, and what tells the modules that an action walks through."""
    walks = tmp_path / "walk"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {TESTS / "support/walked_mount.py"} {walks} "$@"\n')
    python.chmod(0o755)
    mount = Mount([mcp("slow", [sys.executable, SERVERS / "slow.py", "--count", "20", "--delay", "0"])], python=python)

    def walk(action: Callable[[], object]) -> set[str]:
        mount.process.send_signal(signal.SIGUSR1)
        action()
        mount.process.send_signal(signal.SIGUSR2)
        deadline = time.monotonic() + BOUND
        while not walks.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        lines = walks.read_text().splitlines()
        walks.unlink()
        return {line.split()[0] for line in lines}

    try:
        yield mount, walk
    finally:
        mount.stop()


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("fuse")
def test_a_cat_and_an_ls_walk_through_few_modules(
    walked: tuple[Mount, Callable[[Callable[[], object]], set[str]]],
) -> None:
    mount, walk = walked
    directory = mount.path / "mcp-server+slow/test/items"
    run("ls", mount.path / ".bbfs")  # the daemon has begun, and no source was asked for anything
    ls = walk(lambda: run("ls", directory))
    cold = walk(lambda: run("cat", directory / "0007.txt"))
    warm = walk(lambda: run("cat", directory / "0007.txt"))
    assert len(warm) <= WARM_CAT, sorted(warm)
    assert len(cold) <= COLD_CAT, sorted(cold)
    assert len(ls) <= LS, sorted(ls)
