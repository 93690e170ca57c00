"""What a run has measured, and the figures made of it: medians, spreads, ratios round by round. Pure."""

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Cell:
    """What one place took for one case.

    values: one a round, in `unit`; None where the round has none. share: the part of the case's files that the place
    was given, because all of them would have taken too long. reason: why there are no (more) values.
    """

    group: str
    case: str
    place: str
    unit: str = "s"
    share: float = 1.0
    values: list[float | None] = field(default_factory=list)
    reason: str = ""

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
    """The cells of a run, in the order in which they were first measured."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str, str], Cell] = {}

    def cell(self, group: str, case: str, place: str, *, unit: str = "s", share: float = 1.0) -> Cell:
        return self.cells.setdefault((group, case, place), Cell(group, case, place, unit, share))

    def add(
        self, round: int, group: str, case: str, place: str, value: float, *, unit: str = "s", share: float = 1.0
    ) -> None:
        cell = self.cell(group, case, place, unit=unit, share=share)
        cell.values += [None] * (round + 1 - len(cell.values))
        cell.values[round] = value

    def fail(self, group: str, case: str, place: str, reason: str, *, unit: str = "s", share: float = 1.0) -> None:
        self.cell(group, case, place, unit=unit, share=share).reason = reason

    def failed(self, group: str, case: str, place: str) -> bool:
        cell = self.cells.get((group, case, place))
        return cell is not None and bool(cell.reason)

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
        return [asdict(cell) for cell in self.cells.values()]

    @classmethod
    def from_json(cls, cells: list[dict[str, Any]]) -> "Sheet":
        sheet = cls()
        for fields in cells:
            cell = Cell(**fields)
            sheet.cells[(cell.group, cell.case, cell.place)] = cell
        return sheet
