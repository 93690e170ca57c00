"""Scale and liveness: what scale.py and live.py measure, as cells beside the others.

Each is a program of its own, run round by round, so that a ratio is of one round.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import Sheet, Unmeasurable
from rounds import HERE, Bench, Sizes, run

SCALE, LIVE = "scale", "live"
LISTING, FIND, MEMORY = "list of 100 000", "find in a million", "memory with a million"
STALL, LOOP = "stall by a 64 MB text, 99th percentile", "longest stall of the loop, a million"
SEEN, LONGEST, IDLE = "a change seen, median", "a change seen, longest", "requests while idle"
ERAS = ("protocol 2026-07-28", "protocol 2025-11-25")
LEAST = 30.0
"""Seconds that each program has in any case."""
Rows = list[tuple[str, str, float]]
"""Case, place, value."""


def of_listing(found: dict[str, float]) -> Rows:
    return [(LISTING, "SDK client", found["sdk_s"]), (LISTING, "bbfs", found["mount_s"])]


def of_million(found: dict[str, float]) -> Rows:
    loop = max(found[key] for key in found if key.endswith("delay_ms"))
    return [
        (FIND, "tmpfs", found["tmpfs_find_s"]),
        (FIND, "bbfs", found["find_s"]),
        (MEMORY, "bbfs", found["rss_mb"]),
        (LOOP, "bbfs", loop),
    ]


def of_large(found: dict[str, float]) -> Rows:
    return [(STALL, "bbfs", max(0.0, found["p99_beside_ms"] - found["p99_alone_ms"]))]


def of_live(found: dict[str, Any]) -> Rows:
    rows: Rows = []
    for era, rounds in found["eras"].items():
        delays = sorted(delay * 1000 for one in rounds for delay in one["delays"])
        rows.append((SEEN, f"protocol {era}", delays[len(delays) // 2]))
        rows.append((LONGEST, f"protocol {era}", delays[-1]))
        rows.append((IDLE, f"protocol {era}", sum(sum(one["idle"].values()) for one in rounds)))
    return rows


def ask(program: str, *arguments: str, scratch: Path, bound: float) -> dict[str, Any]:
    """What one of the programs writes with --json. Raises Unmeasurable."""
    written = scratch / f"{program}-{time.monotonic_ns()}.json"
    # What they put into temporary directories is found in ours, if they have to be ended.
    environ = os.environ | {"TMPDIR": str(scratch)}
    run([sys.executable, HERE / program, *arguments, "--json", written], bound=bound, environ=environ)
    return json.loads(written.read_text())


def plan(sheet: Sheet, _sizes: Sizes) -> None:
    sheet.plan(SCALE, [LISTING], ["SDK client", "bbfs"])
    sheet.plan(SCALE, [STALL], ["bbfs"], unit="ms")
    sheet.plan(SCALE, [FIND], ["tmpfs", "bbfs"])
    sheet.plan(SCALE, [MEMORY], ["bbfs"], unit="MB")
    sheet.plan(SCALE, [LOOP], ["bbfs"], unit="ms")


def plan_live(sheet: Sheet, _sizes: Sizes) -> None:
    sheet.plan(LIVE, [SEEN, LONGEST], ERAS, unit="ms")
    sheet.plan(LIVE, [IDLE], ERAS, unit="")


def put(sheet: Sheet, number: int, group: str, rows: Rows) -> None:
    for case, place, value in rows:
        sheet.add(number, group, case, place, value)


def measure(bench: Bench) -> None:
    """The listing as often as there is time for, the others once. Half as much time again is lent."""
    sizes = bench.sizes
    spell = ["--spell", str(sizes.spell)]
    parts: dict[str, tuple[Callable[[dict[str, float]], Rows], list[str], list[str]]] = {
        "listing": (of_listing, ["--count", str(sizes.listed)], [LISTING]),
        "large": (of_large, ["--text", str(sizes.text), *spell], [STALL]),
        "million": (of_million, ["--count", str(sizes.many), *spell], [FIND, MEMORY, LOOP]),
    }
    until = time.monotonic() + 1.5 * bench.seconds
    for number in bench.budget.numbers():
        for part, (rows, options, cases) in parts.items():
            if bench.sheet.failed(SCALE, cases[0], "bbfs") or (number and part != "listing"):
                continue
            bound = max(LEAST, until - time.monotonic())
            try:
                found = ask("scale.py", part, *options, "--rounds", "1", scratch=bench.memory, bound=bound)[part]
                put(bench.sheet, number, SCALE, rows(found))
            except Unmeasurable as why:
                for case in cases:
                    bench.sheet.fail(SCALE, case, "bbfs", why)


def measure_live(bench: Bench) -> None:
    options = ["--changes", str(bench.sizes.changes), "--idle", str(bench.sizes.idle), "--rounds", "1"]
    put(bench.sheet, 0, LIVE, of_live(ask("live.py", *options, scratch=bench.memory, bound=120)))
