"""System calls by class and errno (calls.toml), on a plain directory and on a mount."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from judging import Found
from kinds import Ground

HERE = Path(__file__).parent
BOUND = 600
"""Seconds for all cases on one kind of mount."""


def cases(classes: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the steps of each case, of all classes or of some; without those for which one must be root."""
    given: Mapping[str, Mapping[str, str]] = tomllib.loads((HERE / "calls.toml").read_text())
    named = {
        f"{name}: {case}": steps
        for name, table in given.items()
        if not classes or name in classes
        for case, steps in table.items()
    }
    return {name: steps for name, steps in named.items() if os.geteuid() == 0 or " as " not in steps}


def made_in(directory: Path, steps: Mapping[str, str]) -> dict[str, list[str]]:
    """Return what the steps of each case returned in a directory. Raises AssertionError if that does not end."""
    caller = subprocess.Popen(
        [sys.executable, "-I", str(HERE / "caller.py"), str(directory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = caller.communicate(json.dumps(steps), BOUND)
    except subprocess.TimeoutExpired:
        caller.kill()
        raise AssertionError(f"the calls did not end within {BOUND} s") from None
    assert caller.returncode == 0, err
    return json.loads(out)


def run(ground: Ground, plain: Ground, classes: frozenset[str] = frozenset()) -> Found:
    steps, found = cases(classes), Found()
    wanted, got = made_in(plain.fresh(), steps), made_in(ground.fresh(), steps)
    for case in steps:
        differences = [
            f"{there} instead of {here.partition(' ')[2]}"
            for here, there in zip(wanted[case], got[case], strict=False)
            if here != there
        ]
        found.add(case, *differences)
    return found
