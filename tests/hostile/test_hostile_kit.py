"""The kit itself: a harmless source passes, and a limit that does not hold is named."""

from collections.abc import Callable
from pathlib import Path

import pytest
from harness import SourceTable, folder
from hostile import Case, Verdict


def harmless(directory: Path) -> SourceTable:
    (directory / "file").write_text("x\n")
    return folder("hostile", directory)


@pytest.mark.parametrize(
    "case", [Case("a harmless folder", harmless, "bb-filesystem+hostile+file", quick=True)], ids=str
)
def test_a_harmless_source_passes(case: Case, holds: Callable[[Case], None]) -> None:
    holds(case)


def test_each_limit_that_does_not_hold_is_named() -> None:
    held = Verdict("held", longest=0.9, most=0.04, server=0.9, memory=500 << 20, descriptors=100, end=4.9)
    assert held.broken(alone=True) == []
    broken = Verdict("broken", 3.1, 0.06, 3.2, 513 << 20, 129, 5.1, ("ls: not within 20 s",))
    assert len(broken.broken(alone=True)) == 7
    assert len(broken.broken(alone=False)) == 6
