"""Scale and liveness: what scale.py and live.py measure, as cells beside the others.

Each is a program of its own, run round by round, so that a ratio is of one round.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from figures import Sheet
from rounds import HERE, Budget, Unmeasurable, run

SCALE, LIVE = "scale", "live"
LISTING, FIND, MEMORY = "list of 100 000", "find in a million", "memory with a million"
STALL, LOOP = "stall by a 64 MB text, 99th percentile", "longest stall of the loop, a million"
LEAST = 30.0
"""Seconds that each program has in any case."""
Rows = list[tuple[str, str, float, str]]
"""Case, place, value, unit."""


def of_listing(found: dict[str, float]) -> Rows:
    return [(LISTING, "SDK client", found["sdk_s"], "s"), (LISTING, "bbfs", found["mount_s"], "s")]


def of_million(found: dict[str, float]) -> Rows:
    loop = max(found[key] for key in found if key.endswith("delay_ms"))
    return [
        (FIND, "tmpfs", found["tmpfs_find_s"], "s"),
        (FIND, "bbfs", found["find_s"], "s"),
        (MEMORY, "bbfs", found["rss_mb"], "MB"),
        (LOOP, "bbfs", loop, "ms"),
    ]


def of_large(found: dict[str, float]) -> Rows:
    return [(STALL, "bbfs", max(0.0, found["p99_beside_ms"] - found["p99_alone_ms"]), "ms")]


def of_live(found: dict[str, Any]) -> Rows:
    rows: Rows = []
    for era, rounds in found["eras"].items():
        delays = sorted(delay * 1000 for one in rounds for delay in one["delays"])
        rows.append(("a change seen, median", f"protocol {era}", delays[len(delays) // 2], "ms"))
        rows.append(("a change seen, longest", f"protocol {era}", delays[-1], "ms"))
        idle = sum(sum(one["idle"].values()) for one in rounds)
        rows.append(("requests while idle", f"protocol {era}", idle, ""))
    return rows


def ask(program: str, *arguments: str, scratch: Path, bound: float) -> dict[str, Any]:
    """What one of the programs writes with --json. Raises Unmeasurable."""
    written = scratch / f"{program}-{time.monotonic_ns()}.json"
    # What they put into temporary directories is found in ours, if they have to be ended.
    environ = os.environ | {"TMPDIR": str(scratch)}
    run([sys.executable, HERE / program, *arguments, "--json", written], bound=bound, environ=environ)
    return json.loads(written.read_text())


def put(sheet: Sheet, number: int, group: str, rows: Rows) -> None:
    for case, place, value, unit in rows:
        sheet.add(number, group, case, place, value, unit=unit)


def measure(sheet: Sheet, scratch: Path, budget: Budget, *, listed: int, many: int, seconds: float) -> None:
    """The listing as often as there is time for, the others once. seconds: for all; half as many more are lent."""
    parts = {
        "listing": (of_listing, listed, LISTING, "s"),
        "large": (of_large, 0, STALL, "ms"),
        "million": (of_million, many, FIND, "s"),
    }
    until = time.monotonic() + 1.5 * seconds
    failed: set[str] = set()
    for number in budget.numbers():
        for part, (rows, count, case, unit) in parts.items():
            if part in failed or (number and part != "listing"):
                continue
            bound = max(LEAST, until - time.monotonic())
            options = ["--rounds", "1", *(["--count", str(count)] if count else [])]
            try:
                put(sheet, number, SCALE, rows(ask("scale.py", part, *options, scratch=scratch, bound=bound)[part]))
            except (Unmeasurable, KeyError) as why:
                failed.add(part)
                said = f"scale.py says nothing of {why}" if isinstance(why, KeyError) else str(why)
                sheet.fail(SCALE, case, "bbfs", said, unit=unit)


def measure_live(sheet: Sheet, scratch: Path, *, changes: int, idle: float) -> None:
    options = ["--changes", str(changes), "--idle", str(idle), "--rounds", "1"]
    try:
        put(sheet, 0, LIVE, of_live(ask("live.py", *options, scratch=scratch, bound=120)))
    except Unmeasurable as why:
        sheet.fail(LIVE, "a change seen, median", "bbfs", str(why), unit="ms")
