"""Every case of the benchmarks once, with few files: what cannot be measured is a red test on the day it breaks.

The programs of others take no part, since only `make bench` installs all of them.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import run as benchmarks
from repository import ROOT

BOUND = 280
pytestmark = [pytest.mark.usefixtures("fuse"), pytest.mark.timeout(BOUND + 20)]


def ran(program: str, *options: str | Path) -> str:
    command = [sys.executable, ROOT / "benchmarks" / program, *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=BOUND, check=False, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("group", benchmarks.GROUPS)
def test_every_planned_figure_can_be_measured(tmp_path: Path, group: str) -> None:
    ran("run.py", "--quick", "--no-rivals", "--only", group, "--output", tmp_path)
    assert "## Not measured" not in (tmp_path / "results.md").read_text()


def test_two_environments_can_be_compared() -> None:
    said = ran("beside.py", sys.executable, "--quick", "--rounds", "1", "--at-most", "100")
    assert "not measured" not in said
