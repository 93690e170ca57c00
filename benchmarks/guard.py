"""Whether bbfs has fallen behind: ratios of one run against the limits of goals.toml.

    python benchmarks/guard.py [RESULTS]

It compares ratios and counts, never seconds: what was measured at a time on the same machine. Exit status 1 when a
limit is broken, or when what is guarded could not be measured. A rival that could not be measured breaks nothing. What
no whole run has tried yet is counted apart.
"""

import argparse
import itertools
import json
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from figures import Sheet, Summary

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Goal:
    """One row of goals.toml for one case, one place and one other (`against`, None: the value itself)."""

    group: str
    case: str
    place: str
    against: str | None
    at_most: float | None
    at_least: float | None
    guard: float | None

    def found(self, sheet: Sheet) -> Summary | None:
        """The ratio in the goal's sense: how many times as long, or how many times faster."""
        if self.against is None:
            return sheet.summary(self.group, self.case, self.place)
        if self.at_least is None:
            return sheet.ratio(self.group, self.case, self.place, self.against)
        return sheet.ratio(self.group, self.case, self.against, self.place)

    def holds(self, value: float, limit: float) -> bool:
        return value <= limit if self.at_least is None else value >= limit

    def reached(self, sheet: Sheet) -> bool | None:
        """None: it cannot be said."""
        found, wanted = self.found(sheet), self.at_most if self.at_least is None else self.at_least
        return None if found is None or wanted is None else self.holds(found.median, wanted)

    def broken(self, sheet: Sheet) -> bool:
        cell = sheet.cells.get((self.group, self.case, self.place))
        if self.guard is None or cell is None:
            return False
        found = self.found(sheet)
        if found is None:
            return bool(cell.reason) and not cell.measured
        return not self.holds(found.median, self.guard)


def load(path: Path = HERE / "goals.toml") -> list[Goal]:
    """Raises KeyError, ValueError: the file is not of the form that it describes itself."""
    goals: list[Goal] = []
    for row in tomllib.loads(path.read_text())["goal"]:
        if ("at_most" in row) == ("at_least" in row):
            raise ValueError(f"one of at_most and at_least, in {row}")
        for case, place, against in itertools.product(row["cases"], row["places"], row.get("against", [None])):
            limits = (row.get("at_most"), row.get("at_least"), row.get("guard"))
            goals.append(Goal(row["group"], case, place, against, *limits))
    return goals


def excused(path: Path = HERE / "goals.toml") -> frozenset[tuple[str, str]]:
    """Return the places and cases of rivals that need not give a figure."""
    rows = tomllib.loads(path.read_text())["excused"]
    return frozenset(itertools.chain.from_iterable(itertools.product(row["places"], row["cases"]) for row in rows))


def check(sheet: Sheet, goals: list[Goal]) -> list[str]:
    """What is broken, a line each."""
    lines: list[str] = []
    for goal in goals:
        if goal.broken(sheet):
            found = goal.found(sheet)
            value = "could not be measured" if found is None else f"is {found.median:.2f}"
            bound = f"{'at most' if goal.at_least is None else 'at least'} {goal.guard:g}"
            other = f" against {goal.against}" if goal.against else ""
            lines.append(f"{goal.group}, {goal.case}, {goal.place}{other}: {value}, must be {bound}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", default=HERE / "results.json")
    options = parser.parse_args()
    sheet, goals = Sheet.from_json(json.loads(options.results.read_text())["cells"]), load()
    broken = check(sheet, goals)
    for line in broken:
        print(f"guard: {line}", file=sys.stderr)
    guarded = [goal for goal in goals if goal.guard is not None]
    found = [goal for goal in guarded if goal.found(sheet) is not None]
    kept = sum(not goal.broken(sheet) for goal in found)
    print(f"guard: {kept} of {len(found)} limits are kept, {len(guarded) - len(found)} not measured")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
