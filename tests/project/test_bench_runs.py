"""Each group of the benchmarks once, with few files: what cannot be measured is a red test on the day it breaks.

The programs of others take no part, since only `make bench` installs all of them; nor do two of the three stores, which
differ in their servers alone.
"""

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import beside
import pytest
import run as benchmarks
from forked_daemon import forked

pytestmark = [pytest.mark.usefixtures("fuse"), pytest.mark.timeout(300)]


PYTHON = """#!/bin/sh
[ "$1" = -P ] && shift
case $1 in
    -[!m]*) exec {python} "$@" ;;
esac
exec {forked} "$@"
"""


@pytest.fixture
def python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Fork what the benchmarks start with Python: how long it takes does not count here."""
    program = tmp_path / "python"
    program.write_text(PYTHON.format(python=sys.executable, forked=shlex.join(forked())))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


@pytest.mark.usefixtures("python")
@pytest.mark.parametrize("group", benchmarks.GROUPS)
def test_every_planned_figure_can_be_measured(group: str) -> None:
    sizes = replace(benchmarks.QUICK, stores=("sftp",))
    sheet = benchmarks.measure(sizes, [group], rivals=False)
    assert sheet.cells
    assert sheet.unmeasured() == []


def test_two_environments_can_be_compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["beside.py", sys.executable, "--quick", "--rounds", "1", "--at-most", "100"])
    assert beside.main() == 0
    assert "not measured" not in capsys.readouterr().out
