"""`make tests`: what failed beside the other tests runs once more, alone."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

_PYTEST = """#!/bin/sh
echo "$@" >>runs
mkdir -p .pytest_cache/v/cache
case $* in
    *--last-failed*) exit {second} ;;
esac
echo '{failed}' >.pytest_cache/v/cache/lastfailed
exit {first}
"""


@pytest.mark.parametrize(
    ("first", "failing", "second", "status", "runs"),
    [
        pytest.param(0, 0, 0, 0, 1, id="all pass"),
        pytest.param(1, 3, 0, 0, 2, id="three pass alone"),
        pytest.param(1, 3, 1, 1, 2, id="alone they fail too"),
        pytest.param(1, 3, 5, 5, 2, id="alone none is collected"),
        pytest.param(1, 4, 0, 1, 1, id="four at once"),
        pytest.param(1, 0, 0, 1, 1, id="failed, and no test is known"),
        pytest.param(2, 1, 0, 2, 1, id="interrupted"),
    ],
)
def test_a_few_tests_that_fail_run_once_more_alone(
    first: int, failing: int, second: int, status: int, runs: int, tmp_path: Path
) -> None:
    names = [f"tests/test_a.py::test_{number}[a b]" for number in range(failing)]
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/tests", tmp_path / "scripts")
    failed = json.dumps(dict.fromkeys(names, True))
    (programs / "pytest").write_text(_PYTEST.format(first=first, second=second, failed=failed))
    (programs / "pytest").chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    done = subprocess.run([tmp_path / "scripts/tests"], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    assert len((tmp_path / "runs").read_text().splitlines()) == runs
    named = [line for line in done.stdout.splitlines() if line.startswith("FLAKY")]
    assert named == ([f"FLAKY, passed alone: {name}" for name in names] if (runs, status) == (2, 0) else [])
