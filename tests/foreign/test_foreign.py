"""The quick part of the foreign suites, and how their differences are judged. `make foreign` runs all."""

import re
from functools import partial

import calls
import copies
import exercise
import pytest
from judging import Allowed, Found, allowed, judge
from kinds import KINDS
from repository import DOCS
from suites import Suite, verdict

QUICK: dict[tuple[str, str], Suite] = {
    ("calls", "folder"): calls.run,
    ("calls", "memory"): calls.run,
    ("calls", "scratch over memory"): calls.run,
    ("exercise", "folder"): partial(exercise.exercise, operations=2000),
    ("exercise", "memory"): partial(exercise.exercise, operations=1000),
    ("exercise", "SFTP"): partial(exercise.exercise, operations=400),
    ("copies", "scratch over memory"): partial(copies.run_scripts, quick=True),
}


@pytest.mark.timeout(240)
@pytest.mark.semantics("S33.1", "S33.2", "S33.4", "S33.5", "S40.4")
@pytest.mark.parametrize(("suite", "kind"), QUICK)
def test_a_mount_does_what_a_plain_directory_does(fuse: None, suite: str, kind: str) -> None:
    judged = verdict(suite, QUICK[suite, kind], kind, whole=suite == "calls")
    assert not judged.lacking
    assert judged.held, (str(judged), judged.defects, judged.unused)


def test_each_exception_names_a_promise_and_a_kind() -> None:
    promises = set(re.findall(r"^ *- \*\*(S[\d.]+)\*\*", (DOCS / "semantics.md").read_text(), re.MULTILINE))
    for each in allowed():
        assert each.promise in promises
        assert each.why
        assert any(each.is_for(each.suite, kind) for kind in KINDS)


LINK = Allowed("calls", ("stores",), "S33", "no links", differences=("link EOPNOTSUPP*",), ends=True)
MODE = Allowed("calls", ("stores",), "S8", "no modes", differences=("stat 0o*",))


def judged(*differences: str, kind: str = "memory", whole: bool = True) -> tuple[list[str], list[Allowed]]:
    found = Found()
    found.add("case", *differences)
    verdict = judge("calls", kind, found, [LINK, MODE], whole=whole)
    return [*verdict.defects], [*verdict.unused]


def test_a_difference_that_nothing_allows_is_a_defect() -> None:
    assert judged("link EOPNOTSUPP instead of 0", "cat x instead of y") == ([], [MODE])
    assert judged("stat 0o644 instead of 0o600", "cat x instead of y")[0] == ["case: cat x instead of y"]
    assert judged("link EOPNOTSUPP instead of 0", kind="folder")[0] == ["case: link EOPNOTSUPP instead of 0"]


def test_an_exception_that_does_not_occur_is_told() -> None:
    assert judged() == ([], [LINK, MODE])
    assert judged(whole=False) == ([], [])
    assert judged(kind="folder") == ([], [])
