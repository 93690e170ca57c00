"""What `bbfs top` shows of a state, as texts. Pure: it knows no terminal."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from bbfs.cli import output
from bbfs.model.quantities import counted, duration_text, latency_text, size_text

State = Mapping[str, Any]


class Row(NamedTuple):
    """A line of a table. style: of its second cell."""

    key: str
    cells: tuple[str, ...]
    style: str = ""


Table = tuple[Sequence[str], Sequence[Row]]
_COLUMNS = (
    ("SOURCE", 0),
    ("STATE", 0),
    ("IN FLIGHT", 0),
    ("WAIT", 0),
    ("MEDIAN", 60),
    ("95 %", 80),
    ("RESOURCES", 90),
    ("REQUESTS", 100),
    ("FAILED", 70),
    ("DISK/SHARED/SOURCE", 120),
    ("PROBLEM", 40),
)
"""The columns, and from how many characters of the terminal on each is shown."""
_PADDING = 2
"""Characters beside each cell."""
_SHORTEST = 12
"""Characters of the last column that are shown in any case."""
_NARROW = 60
"""Characters below which a path has a column to itself and the name of its program none."""


def head(mount: str, state: State) -> list[str]:
    """Return the lines about the process and its cache."""
    up = (datetime.fromisoformat(state["now"]) - datetime.fromisoformat(state["started"])).total_seconds()
    process, memory = state["process"], state["memory"]
    about = [f"up {duration_text(up)}", f"bbfs {process['version']}", f"process {process['pid']}"]
    about += [size_text(process["bytes"]), counted(process["threads"], "thread")]
    held = f"{counted(memory['contents'], 'content')}, {size_text(memory['bytes'])} of {size_text(memory['max_bytes'])}"
    tiers = [f"{memory['hits']} from memory", *(f"{n} from {tier}" for tier, n in state["loads_from"].items() if n)]
    return [f"{mount}: {', '.join(about)}", f"in memory: {held}; read: {', '.join(tiers)}"]


def source_rows(state: State, width: int) -> Table:
    """Return the table of sources. Those that are down come first, then those with requests under way."""
    shown = [number for number, (_, least) in enumerate(_COLUMNS) if width >= least]
    rows: list[Row] = []
    order = {"down": 0, "connecting": 1}
    found = sorted(state["sources"], key=lambda each: (order.get(each["state"], 2), -each["in_flight"]))
    for source in found:
        cells = _cells(source)
        style = output.STATE_COLOURS.get(source["state"], "")
        rows.append(Row(source["id"], tuple(cells[number] for number in shown), style))
    return _fitting([_COLUMNS[number][0] for number in shown], rows, width)


def _fitting(columns: Sequence[str], rows: Sequence[Row], width: int) -> Table:
    """Return a table with escapes. Its last column is cut to the width of the terminal, but keeps a few characters."""
    rows = [row._replace(cells=tuple(map(output.printable, row.cells))) for row in rows]
    cells = [columns, *(row.cells for row in rows)]
    used = sum(max(len(each[number]) for each in cells) + _PADDING for number in range(len(columns) - 1))
    room = max(width - used - _PADDING, _SHORTEST)
    cut = [row.cells[-1] if len(row.cells[-1]) <= room else row.cells[-1][: room - 1] + "…" for row in rows]
    return columns, [row._replace(cells=(*row.cells[:-1], last)) for row, last in zip(rows, cut, strict=True)]


def _cells(source: Mapping[str, Any]) -> tuple[str, ...]:
    requests, tiers = source["requests"], source.get("loads_from", {})
    return (
        source["id"],
        source["state"],
        f"{source['in_flight']} of {source['concurrency']}",
        str(source["waiting"]),
        latency_text(requests["median_seconds"]),
        latency_text(requests["p95_seconds"]),
        str(source["resources"]),
        str(requests["ended"]),
        str(requests["failed"]),
        "/".join(str(tiers.get(tier, "-")) for tier in ("disk", "shared", "source")),
        source["problem"] or "",
    )


def waiting(state: State, width: int) -> Table:
    """Return the table of programs that wait, and for what."""
    rows = [
        (str(each["pid"] or "-"), each["program"] or "-", f"{each['seconds']:.1f} s", each.get("path") or "-")
        for each in state["waiting"]
    ]
    return _cut(("WAITING", "PROGRAM", "FOR", "PATH"), rows, width)


def reading(state: State, width: int) -> Table:
    """Return the table of loads under way, and the tier that each asks."""
    rows = [
        (each["source"], each["tier"], f"{each['seconds']:.1f} s", each["uri"]) for each in state.get("reading", ())
    ]
    return _cut(("READING", "FROM", "FOR", "URI"), rows, width)


def _cut(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], width: int) -> Table:
    shown = [0, 3] if width < _NARROW else range(len(columns))
    cells = (tuple(row[number] for number in shown) for row in rows)
    rows_shown = [Row(str(number), each) for number, each in enumerate(cells)]
    return _fitting([columns[number] for number in shown], rows_shown, width)


def details(state: State, name: str) -> list[str]:
    """Return all that is told of one source, as lines."""
    source = next((each for each in state.get("sources", ()) if each["id"] == name), None)
    if source is None:
        return ["the mount has no such source any more"]
    told = [*zip((column for column, _ in _COLUMNS), _cells(source), strict=True), ("DIRECTORY", source["uri_prefix"])]
    lines = [*(f"{column.lower() + ':':<20} {cell}" for column, cell in told), ""]
    lines += [f"{pid} {program} waits for {path} ({since})" for pid, program, since, path in _of(state, source)]
    lines += [
        f"reads {each['uri']} from {each['tier']} ({each['seconds']:.1f} s)"
        for each in state.get("reading", ())
        if each["source"] == name
    ]
    return lines


def _of(state: State, source: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for each in state["waiting"]:
        path = each.get("path") or ""
        if path.partition("/")[0] == source["uri_prefix"]:
            yield str(each["pid"] or "-"), each["program"] or "-", f"{each['seconds']:.1f} s", path
