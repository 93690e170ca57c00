"""The page of results, docs/benchmarks/results.md, made of the figures of a run. Pure."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from figures import Cell, Sheet, Summary
from guard import Goal

HEAD = """# Results of the benchmarks

[How they are measured](../benchmarks.md). `make bench` writes this page; a change by hand is lost.
"""
AGAINST = {
    "warm": ("tmpfs", "floor"),
    "announcing server": ("ideal", "SDK client, 16 at a time"),
    "large": ("tmpfs", "the file itself"),
    "scale": ("tmpfs", "SDK client"),
    "growth, warm readers": ("tmpfs",),
    "growth, names": ("tmpfs",),
    "growth, bytes from memory": ("the file itself",),
    "growth, bytes from a disk": ("the file itself",),
    "growth, sources": (),
    "start": ("python -c pass",),
    "writing to a folder": ("folder", "passthroughfs.py"),
    "search, the index": ("FTS5 by hand",),
    "search, the daemon": (),
    "search, one literal": ("bbfs grep",),
    **{f"copies with attributes, {count} in flight": ("bbfs, without attributes",) for count in (16, 32, 64)},
    **{f"writing to {store}": ("rclone",) for store in ("SFTP", "WebDAV", "S3")},
}
"""What the places of a group are set against; a cold group's against the ideal."""


def number(value: float) -> str:
    """Three digits that matter, without an exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def spread(found: Summary, unit: str = "") -> str:
    """The median, and what it lies between; seconds below one as milliseconds."""
    factor, unit = (1000, "ms") if unit == "s" and found.median < 1 else (1, unit)
    median, low, high = (number(value * factor) for value in (found.median, found.low, found.high))
    between = "" if low == high else f" ({low}–{high})"
    return f"{median}{between} {unit}".rstrip()


def row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join([row(heads), row(["---"] * len(heads)), *map(row, rows)])


class Notes:
    """Reasons, numbered as they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, reason: str) -> str:
        return f"[{self._numbers.setdefault(reason, len(self._numbers) + 1)}]"

    def lines(self) -> str:
        return "\n".join(f"{number}. {reason.replace('|', '/')}" for reason, number in self._numbers.items())


NOT_YET = "not measured yet: the next whole run measures it"


def measured(cell: Cell | None, found: Summary | None, notes: Notes) -> str:
    """A cell of a table: the figure, or why there is none."""
    if cell is None:
        return ""
    reason = cell.reason or ("" if found else NOT_YET)
    mark = f" {notes.mark(reason)}" if reason else ""
    if found is None:
        return f"–{mark}"
    if cell.share < 1:
        mark = f" {notes.mark(f'scaled up from {cell.share:.0%} of the files')}{mark}"
    return f"{spread(found, cell.unit)}{mark}"


def values(sheet: Sheet, group: str, notes: Notes) -> str:
    """Places down, cases across."""
    cases = sheet.cases(group)
    rows = [
        [
            place,
            *(
                measured(sheet.cells.get((group, case, place)), sheet.summary(group, case, place), notes)
                for case in cases
            ),
        ]
        for place in sheet.places(group)
    ]
    return table(["", *cases], rows)


def ratios(sheet: Sheet, group: str, against: str) -> str | None:
    """How many times what `against` took; None where nothing can be compared."""
    cases = [case for case in sheet.cases(group) if sheet.summary(group, case, against)]
    rows: list[list[str]] = []
    for place in sheet.places(group):
        found = [sheet.ratio(group, case, place, against) for case in cases]
        if place != against and any(found):
            rows.append([place, *("" if one is None else spread(one) for one in found)])
    return table([f"× {against}", *cases], rows) if rows else None


def goals_table(sheet: Sheet, goals: list[Goal]) -> str:
    """A row for the cases of a group that have one goal; what is not reached is set in bold."""
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for goal in goals:
        cell = sheet.cells.get((goal.group, goal.case, goal.place))
        if cell is None:
            continue
        if goal.at_least is not None:
            wanted = f"≥ {number(goal.at_least)} × as fast"
        else:
            wanted = f"≤ {number(goal.at_most or 0)} {'×' if goal.against else cell.unit}".rstrip()
        found = goal.found(sheet)
        value = "not measured" if found is None else spread(found)
        value = f"**{value}**" if goal.reached(sheet) is False else value
        rows.setdefault((goal.group, goal.place, goal.against or "", wanted), []).append(f"{goal.case} {value}")
    heads = ["", "place", "against", "goal", "measured; in bold: not reached"]
    return table(heads, [[*key, "; ".join(found)] for key, found in rows.items()])


def against(group: str) -> tuple[str, ...]:
    return AGAINST.get(group, ("ideal",))


def lacking(sheet: Sheet, excused: Collection[tuple[str, str]]) -> list[str]:
    """Say which figures the last run should have and has not, and which rivals were not there."""
    tried = Sheet()
    tried.cells = {key: cell for key, cell in sheet.cells.items() if cell.measured or cell.reason}
    parts = {"Not measured": tried.unmeasured(excused), "Without these rivals": tried.missing()}
    return [f"## {head}\n\n" + "\n".join(f"- {line}" for line in lines) for head, lines in parts.items() if lines]


def document(
    about: dict[str, Any],
    sheet: Sheet,
    goals: list[Goal],
    excused: Collection[tuple[str, str]] = (),
    plots: Sequence[str] = (),
) -> str:
    """Return the page. about: facts of the run. plots: paths of the plots from the page."""
    parts = [
        HEAD,
        "\n".join(f"- {key}: {value}" for key, value in about.items()),
        *lacking(sheet, excused),
        "## Goals\n\n" + goals_table(sheet, goals),
        *(f"![{Path(plot).stem}]({plot})" for plot in plots),
    ]
    for group in sheet.groups():
        notes = Notes()
        tables = [values(sheet, group, notes), *(ratios(sheet, group, other) for other in against(group))]
        parts.append(f"## {group[0].upper()}{group[1:]}\n\n" + "\n\n".join(found for found in tables if found))
        if notes.lines():
            parts.append(notes.lines())
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"
