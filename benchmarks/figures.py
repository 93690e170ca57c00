"""What a run has measured, and the figures made of it: medians, spreads, ratios round by round. Pure."""

import math
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


class Unmeasurable(Exception):
    """Why something has no number, in words for the table."""


class Missing(Unmeasurable):
    """A program is not on this machine."""


@dataclass
class Cell:
    """What one place took for one case.

    values: one a round, in `unit`; None where the round has none. share: the part of the case's files that the place
    was given, because all of them would have taken too long. reason: why there are no (more) values; without values
    and reason, no run has tried. rival: True if the place is a program of others. missing: True if that program is not
    installed.
    """

    group: str
    case: str
    place: str
    unit: str = "s"
    share: float = 1.0
    values: list[float | None] = field(default_factory=list)
    reason: str = ""
    rival: bool = False
    missing: bool = False

    @property
    def measured(self) -> bool:
        return any(value is not None for value in self.values)

    def whole(self, round: int) -> float | None:
        """The value of a round, as if for all files."""
        value = self.values[round] if round < len(self.values) else None
        return None if value is None else value / self.share


@dataclass(frozen=True)
class Summary:
    """The median of some rounds, and the least and the greatest."""

    median: float
    low: float
    high: float
    rounds: int


def summary(values: list[float]) -> Summary | None:
    return Summary(statistics.median(values), min(values), max(values), len(values)) if values else None


class Sheet:
    """The cells of a run, in the order of the plan. Only a planned cell takes a figure: KeyError else."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str, str], Cell] = {}

    def plan(
        self,
        group: str,
        cases: Sequence[str],
        places: Sequence[str],
        *,
        unit: str = "s",
        share: float = 1.0,
        rival: bool = False,
    ) -> None:
        """Expect a figure of each case at each place."""
        for case in cases:
            for place in places:
                self.cells[(group, case, place)] = Cell(group, case, place, unit, share, rival=rival)

    def add(self, round: int, group: str, case: str, place: str, value: float) -> None:
        """Raises ValueError: the value is no number."""
        if not math.isfinite(value):
            raise ValueError(f"{group}, {case}, {place}: {value}")
        cell = self.cells[(group, case, place)]
        cell.values += [None] * (round + 1 - len(cell.values))
        cell.values[round] = value

    def fail(self, group: str, case: str, place: str, why: Unmeasurable) -> None:
        cell = self.cells[(group, case, place)]
        cell.reason, cell.missing = str(why), isinstance(why, Missing)

    def attempt(self, group: str, cases: Sequence[str], place: str, measure: Callable[[], None]) -> None:
        """Measure, unless it has failed before. A failure is noted in all the cases."""
        if self.failed(group, cases[0], place):
            return
        try:
            measure()
        except Unmeasurable as why:
            for case in cases:
                self.fail(group, case, place, why)

    def end(self, why: str) -> None:
        """Give all cells that have neither a figure nor a reason this one."""
        for cell in self.cells.values():
            if not cell.measured and not cell.reason:
                cell.reason = why

    def unmeasured(self, excused: Collection[tuple[str, str]] = ()) -> list[str]:
        """Return a line for planned figures that are not there, or not of all rounds, with the reason.

        A rival that is missing has none, nor has a rival in a case (place and case) that is excused.
        """
        found: dict[tuple[str, str, str], list[str]] = {}
        for cell in self.cells.values():
            may = cell.rival and (cell.missing or (cell.place, cell.case) in excused)
            if (cell.reason or not cell.measured) and not may:
                found.setdefault((cell.group, cell.place, cell.reason or "not measured"), []).append(cell.case)
        return [f"{group}: {place}: {'; '.join(cases)}: {why}" for (group, place, why), cases in found.items()]

    def missing(self) -> list[str]:
        """Return a line for each rival that is missing, with the reason."""
        return sorted({f"{cell.place}: {cell.reason}" for cell in self.cells.values() if cell.rival and cell.missing})

    def failed(self, group: str, case: str, place: str) -> bool:
        return bool(self.cells[(group, case, place)].reason)

    def groups(self) -> list[str]:
        return list(dict.fromkeys(cell.group for cell in self.cells.values()))

    def cases(self, group: str) -> list[str]:
        return list(dict.fromkeys(cell.case for cell in self.cells.values() if cell.group == group))

    def places(self, group: str) -> list[str]:
        return list(dict.fromkeys(cell.place for cell in self.cells.values() if cell.group == group))

    def summary(self, group: str, case: str, place: str) -> Summary | None:
        """Of the values as if for all files; None where there are none."""
        cell = self.cells.get((group, case, place))
        if cell is None:
            return None
        return summary([value for at in range(len(cell.values)) if (value := cell.whole(at)) is not None])

    def ratio(self, group: str, case: str, place: str, against: str) -> Summary | None:
        """How many times what `against` took `place` took, in the rounds that have both."""
        ours, theirs = self.cells.get((group, case, place)), self.cells.get((group, case, against))
        if ours is None or theirs is None:
            return None
        pairs = [(ours.whole(at), theirs.whole(at)) for at in range(len(ours.values))]
        return summary([mine / other for mine, other in pairs if mine is not None and other])

    def as_json(self) -> list[dict[str, Any]]:
        return [{key: of for key, of in asdict(cell).items() if of is not False} for cell in self.cells.values()]

    @classmethod
    def from_json(cls, cells: list[dict[str, Any]]) -> "Sheet":
        sheet = cls()
        for fields in cells:
            cell = Cell(**fields)
            sheet.cells[(cell.group, cell.case, cell.place)] = cell
        return sheet
