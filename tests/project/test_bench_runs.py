"""Each group of the benchmarks once, with few files: what cannot be measured is a red test on the day it breaks.

The programs of others take no part, since only `make bench` installs all of them; nor do two of the three stores, which
differ in their servers alone.
"""

import sys
from dataclasses import replace

import beside
import pytest
import run as benchmarks

pytestmark = [pytest.mark.usefixtures("fuse"), pytest.mark.timeout(300)]


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
