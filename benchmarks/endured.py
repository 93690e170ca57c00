"""What the pieces of endurance.py have found together."""

import itertools
import json
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROBES = {
    "warm": "mcp-server+live/odd/a",
    "cold": "mcp-server+asked/odd/a",
    "ls": "bb-filesystem+notes+file/kept",
}
"""What is timed, and where: a file in the kernel's cache, one whose source is asked at each open, a directory."""
LASTING, RESTARTED = "lasting", "restarted"
COLUMNS = ["minute", "MiB", "descriptors", "threads", "processes"]
COLUMNS += [f"{name} {part}" for name in PROBES for part in ("median", "p99")]


def quantile(values: list[float], part: float) -> float | None:
    """Return the value below which a part of the values is; None of none."""
    return sorted(values)[math.ceil(len(values) * part) - 1] if values else None


def minutes_of(samples: list[dict[str, Any]]) -> list[list[float | None]]:
    """Return a row a minute: the greatest of each count, then median and 99th percentile of each probe, as COLUMNS."""
    rows: list[list[float | None]] = []
    for minute, found in itertools.groupby(samples, key=lambda sample: int(sample["at"] // 60)):
        group = list(found)
        row: list[float | None] = [minute, round(max(one["kib"] for one in group) / 1024, 1)]
        row += [max(one[name] for one in group) for name in ("descriptors", "threads", "processes")]
        for name in PROBES:
            times = [value for one in group for value in one["ms"][name]]
            row += [quantile(times, 0.5), quantile(times, 0.99)]
        rows.append(row)
    return rows


def report(states: Sequence[Path], target: Path, after: Path | None = None) -> None:
    """Write what all pieces of these directories have found, a row a minute, and print what each hour had.

    `after` names an earlier report, whose hours come first: samples of another machine need not be kept.
    """
    samples: dict[str, list[dict[str, Any]]] = {LASTING: [], RESTARTED: []}
    before = json.loads(after.read_text()) if after else {"pieces": [], "events": {}, "errors": {}, "wrong": []}
    pieces, events, wrong = before["pieces"], Counter[str](before["events"]), before["wrong"]
    errors = {name: Counter[str](before["errors"].get(name)) for name in samples}
    begun = total = 60 * pieces.pop() if pieces else 0.0  # a report ends with the minute at which its last piece did
    latest = 0.0
    counts: dict[str, int] = {}
    lines = [line for state in states for line in (state / "samples").read_text().splitlines()]
    for line in [*lines, '{"piece": 0}']:
        one = json.loads(line)
        if "piece" in one:  # the one before may have been killed
            total, latest = total + latest, 0.0
            events.update(counts)
            counts = {}
            pieces.append(round(total / 60, 1))
        elif "mount" in one:
            latest, counts = one["seconds"], one["events"]
            samples[one["mount"]].append({"at": total - begun + latest, **one})
        else:
            wrong += one["wrong"]
            for name, found in one["errors"].items():
                errors[name].update(found)
    rows = {name: minutes_of(found) for name, found in samples.items()}
    if after:
        first = math.ceil(begun / 60)
        moved = {name: [[first + (row[0] or 0), *row[1:]] for row in found] for name, found in rows.items()}
        rows = {name: before["rows"][name] + found for name, found in moved.items()}
    facts = {"hours": round(total / 3600, 2), "pieces": pieces, "events": events, "errors": errors, "wrong": wrong}
    lines = [
        f"  {json.dumps(name)}: [\n   " + ",\n   ".join(map(json.dumps, found)) + "]" for name, found in rows.items()
    ]
    head = ",\n ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in facts.items())
    target.write_text(f'{{{head},\n "columns": {json.dumps(COLUMNS)},\n "rows": {{\n' + ",\n".join(lines) + "}}\n")
    print(json.dumps(facts, indent=1))
    for name, found in rows.items():
        for hour, group in itertools.groupby(found, key=lambda row: int(row[0] or 0) // 60):
            columns = ([value for value in column if value is not None] for column in zip(*group, strict=True))
            medians = [statistics.median(values) if values else None for values in columns]
            print(f"{name}, hour {hour + 1}: {dict(zip(COLUMNS[1:], medians[1:], strict=True))}")
