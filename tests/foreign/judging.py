"""What a suite found on a kind of mount, and which of it is an exception that a promise of docs/semantics.md allows."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

EXPECTED = Path(__file__).with_name("expected.toml")
GROUPS = {"stores": ("memory", "S3", "SFTP", "WebDAV"), "passed": ("folder",)}
"""Kinds of mount that expected.toml names together: sources that keep contents alone, and folders as they are."""


@dataclass
class Found:
    """Differences from a plain directory. cases: how many were compared. by_case: the differences of each, in order.

    lacking: why the suite could not be run.
    """

    cases: int = 0
    by_case: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    lacking: str = ""

    def add(self, case: str, *differences: str) -> None:
        self.cases += 1
        if differences:
            self.by_case[case] = [*differences]


@dataclass(frozen=True)
class Allowed:
    """An exception. cases, differences: patterns, any of which fits. ends: what follows in the case depends on it.

    seldom: its absence is no defect, as it depends on time.
    """

    suite: str
    kinds: Sequence[str]
    promise: str
    why: str
    cases: Sequence[str] = ("*",)
    differences: Sequence[str] = ("*",)
    ends: bool = False
    seldom: bool = False

    def is_for(self, suite: str, kind: str) -> bool:
        return suite == self.suite and any(kind in GROUPS.get(each, (each,)) for each in self.kinds)

    def fits(self, case: str, difference: str) -> bool:
        return any(fnmatchcase(case, each) for each in self.cases) and any(
            fnmatchcase(difference, each) for each in self.differences
        )


@dataclass(frozen=True)
class Verdict:
    """Of one suite on one kind. excepted: how many cases, by promise. unused: exceptions that did not occur."""

    cases: int
    excepted: Mapping[str, int]
    defects: Sequence[str]
    unused: Sequence[Allowed]
    lacking: str = ""

    @property
    def held(self) -> bool:
        return not self.defects and not self.unused

    def __str__(self) -> str:
        if self.lacking:
            return f"not run: {self.lacking}"
        same = self.cases - sum(self.excepted.values()) - len(self.defects)
        excepted = [f"{count} excepted ({promise})" for promise, count in sorted(self.excepted.items())]
        defects = [f"{len(self.defects)} DEFECTS"] if self.defects else []
        unused = [f"{len(self.unused)} EXCEPTIONS GONE"] if self.unused else []
        return ", ".join([f"{same} same", *excepted, *defects, *unused])


def allowed(path: Path = EXPECTED) -> list[Allowed]:
    """Return the exceptions. Raises TypeError if an entry has another key than an exception."""
    return [Allowed(**entry) for entry in tomllib.loads(path.read_text())["exception"]]


def judge(suite: str, kind: str, found: Found, exceptions: Sequence[Allowed], *, whole: bool = True) -> Verdict:
    """Return what becomes of the differences. whole: all cases were run, so that each exception must have occurred."""
    here = [each for each in exceptions if each.is_for(suite, kind)]
    used: list[Allowed] = []
    excepted: dict[str, int] = {}
    defects: list[str] = []
    for case, differences in found.by_case.items():
        promise = ""
        for difference in differences:
            fitting = next((each for each in here if each.fits(case, difference)), None)
            if fitting is None:
                defects.append(f"{case}: {difference}")
                promise = ""
                break
            used.append(fitting)
            promise = promise or fitting.promise
            if fitting.ends:
                break
        if promise:
            excepted[promise] = excepted.get(promise, 0) + 1
    unused = [each for each in here if each not in used and not each.seldom] if whole and not found.lacking else []
    return Verdict(found.cases, excepted, defects, unused, found.lacking)
