"""Everything that is measured, in one go: `python benchmarks/run.py [--only GROUP…] [--minutes N] [--quick] [--guard]`

Each group gets its part of the time and begins no round that would exceed it, but has one whole round at least. What a
whole run has measured goes to benchmarks/results.json, the tables and plots to docs/benchmarks. Nothing else is written
outside temporary directories, and all that is started is ended, also on a signal.

--quick tries each case once with few files. A part of a run and a quick one go nowhere but to `--output DIRECTORY`.
--page measures nothing and writes the page again: a case that is newer than the last whole run is "not measured yet".

The exit status is 1 when any planned figure is not there, for whatever reason; stderr and the page say which and why.
What a rival lacks is no fault of a run if it is not installed, or if goals.toml excuses it. With --guard the exit
status is also 1 when a limit of goals.toml is broken.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import announcing
import cold_cases
import growth
import guard
import large_cases
import live
import places
import report
import scale
import search
import starting
import stores
import warm_cases
import writing
from figures import Sheet, Unmeasurable
from rounds import HERE, Bench, Budget, Sizes

from bbfs.fuse import mounting, mountpoint

RESULTS = HERE / "results.json"
PAGE = HERE.parent / "docs" / "benchmarks" / "results.md"
TMPFS = Path("/dev/shm")
QUICK = Sizes(
    rounds=1, directories=5, files=10, slow=40, concurrencies=(16,), large=4 << 20, looks=1000, listed=2000, many=3000,
    text=1 << 20, spell=0.25, changes=1, idle=0.2, tree="json", written=200, megabytes=4, stored=20, stored_megabytes=1,
    documents=200, vocabulary=1200, topics=100, queries=2, growths=1, readers=(2,), sources=(1,), names=(100,),
    file_sizes=(1 << 16,),
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """minutes: its time in a whole run. plan: names the figures that `measure` has to give."""

    minutes: float
    plan: Callable[[Sheet, Sizes], None]
    measure: Callable[[Bench], None]


GROUPS = {
    "warm": Group(2.9, warm_cases.plan, warm_cases.measure),
    "cold": Group(4, cold_cases.plan, cold_cases.measure),
    "announcing": Group(0.4, announcing.plan, announcing.measure),
    "large": Group(0.9, large_cases.plan, large_cases.measure),
    "scale": Group(1.5, scale.plan, scale.measure),
    "live": Group(0.4, live.plan, live.measure),
    "start": Group(0.5, starting.plan, starting.measure),
    "writing": Group(1, writing.plan, writing.measure),
    "stores": Group(1.5, stores.plan, stores.measure),
    "search": Group(1.5, search.plan, search.measure),
    "growth": Group(5, growth.plan, growth.measure),
}


def planned(sizes: Sizes, wanted: Sequence[str] = tuple(GROUPS)) -> Sheet:
    sheet = Sheet()
    for name in wanted:
        GROUPS[name].plan(sheet, sizes)
    return sheet


def minutes_of(wanted: Sequence[str]) -> float:
    return sum(GROUPS[name].minutes for name in wanted)


def measure(sizes: Sizes, wanted: Sequence[str], minutes: float | None = None, *, rivals: bool = True) -> Sheet:
    """Run the groups. The sheet has a figure or a reason in every cell."""
    sheet, minutes = Sheet(), minutes_of(wanted) if minutes is None else minutes
    until, left = time.monotonic() + minutes * 60, minutes_of(wanted)
    for name in wanted:
        group = GROUPS[name]
        group.plan(sheet, sizes)
        # What one takes too long, the later ones have less.
        started = time.monotonic()
        seconds = max(0.0, until - started) * group.minutes / left
        left -= group.minutes
        on_tmpfs = TMPFS if TMPFS.is_dir() else None
        with (
            tempfile.TemporaryDirectory(prefix="bbfs-bench-", dir=on_tmpfs) as memory,
            tempfile.TemporaryDirectory(prefix="bbfs-bench-") as disk,
        ):
            budget = Budget(sizes.rounds, started + seconds)
            why = "not measured"
            try:
                group.measure(Bench(sheet, sizes, Path(memory), Path(disk), budget, seconds, rivals))
            except Exception as error:  # noqa: BLE001 - without this group's figures the run fails; the others go on
                traceback.print_exc()
                why = str(error) if isinstance(error, Unmeasurable) else f"{type(error).__name__}: {error}"
            finally:
                sweep(Path(memory))
            sheet.end(why)
        print(f"{name}: {time.monotonic() - started:.0f} s of {seconds:.0f} s", flush=True)
    return sheet


def sweep(directory: Path) -> None:
    """Unmount what a program that had to be ended has left below a directory."""
    for mount in mountpoint.mounts():
        if Path(mount.path).is_relative_to(directory):
            mounting.unmount(mount.path)


def version(command: list[str]) -> str:
    """The first line of what a program says of its version, or that it is not there."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "not installed"
    lines = done.stdout.decode(errors="replace").splitlines()
    return lines[0].strip() if lines and not done.returncode else "not installed"


def about(taken: float) -> dict[str, Any]:
    """The machine and the versions."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    ask = "from importlib.metadata import version; print(', '.join(f'{n} {version(n)}' for n in %r))"
    rivals = ["fsspec", "mirage-ai", "ratarmount", "mfusepy"]
    cpu = models[0].partition(":")[2].strip() if models else platform.machine()
    ours = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("pyfuse3", "trio", "mcp"))
    return {
        "measured": f"{datetime.now(UTC):%Y-%m-%d}, in {taken / 60:.1f} minutes",
        "machine": f"{os.cpu_count()} × {cpu}, {memory:.0f} GiB, Linux {platform.release()}",
        "bbfs on": f"Python {platform.python_version()}, {ours}",
        "rivals": f"{version(['rclone', 'version'])}, {version([str(places.RIVALS_PYTHON), '-c', ask % rivals])}",
    }


def draw(results: Path, directory: Path) -> list[Path]:
    """The plots that could be drawn; without matplotlib none, which is said."""
    command = [str(places.RIVALS_PYTHON), str(HERE / "plots.py"), str(results), str(directory)]
    try:
        subprocess.run(command, capture_output=True, timeout=120, check=True, text=True)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        print(f"no plots: {said.strip().splitlines()[-1]}", file=sys.stderr)
        return []
    return drawn_in(directory)


def drawn_in(directory: Path) -> list[Path]:
    """The plots of a directory, in the order of the page."""
    return sorted(directory.glob("*.svg"), reverse=True)


def write(sheet: Sheet, facts: dict[str, Any], results: Path, page: Path, *, drawn: bool = False) -> None:
    """Write the results, and the page of results. Its plots are drawn first, or are those that are drawn already."""
    results.write_text(json.dumps({"about": facts, "cells": sheet.as_json()}, indent=1, ensure_ascii=False) + "\n")
    plots = drawn_in(page.parent) if drawn else draw(results, page.parent)
    names = [path.name for path in plots]
    page.write_text(report.document(facts, sheet, guard.load(), guard.excused(), names))


def write_again() -> None:
    """Write the results and the page of the last whole run as they are planned and described now."""
    kept = json.loads(RESULTS.read_text())
    sheet, before = planned(Sizes()), Sheet.from_json(kept["cells"]).cells
    for key, cell in sheet.cells.items():
        if key in before:
            cell.values, cell.reason, cell.missing = before[key].values, before[key].reason, before[key].missing
    write(sheet, kept["about"], RESULTS, PAGE, drawn=True)


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop(number: int, _frame: FrameType | None) -> None:
    """Leave everything in order; another signal meanwhile changes nothing."""
    for ending in ENDING:
        signal.signal(ending, signal.SIG_IGN)
    raise SystemExit(128 + number)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--minutes", type=float, help=f"in all; {minutes_of(tuple(GROUPS)):g} for all groups")
    parser.add_argument("--rounds", type=int, help="at most; as many as there is time for are made")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-rivals", dest="rivals", action="store_false", help="leave out the programs of others")
    parser.add_argument("--guard", action="store_true")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page again")
    parser.add_argument("--output", type=Path, help="a directory for results.json and results.md, instead of here")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    if options.page:
        write_again()
        return 0
    for ending in ENDING:
        signal.signal(ending, stop)
    sizes = QUICK if options.quick else Sizes()
    if options.rounds:
        sizes = replace(sizes, rounds=options.rounds)
    wanted, started = [name for name in GROUPS if name in options.only], time.monotonic()
    sheet = measure(sizes, wanted, options.minutes, rivals=options.rivals)
    facts = about(time.monotonic() - started)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        write(sheet, facts, options.output / RESULTS.name, options.output / PAGE.name)
    elif wanted == list(GROUPS) and options.rivals and not options.quick:
        write(sheet, facts, RESULTS, PAGE)
    print(report.goals_table(sheet, guard.load()))
    for line in sheet.missing():
        print(f"run: no rival {line}", file=sys.stderr)
    unmeasured = sheet.unmeasured(guard.excused())
    broken = guard.check(sheet, guard.load()) if options.guard else []
    for line in [*(f"no figure: {line}" for line in unmeasured), *broken]:
        print(f"run: {line}", file=sys.stderr)
    return 1 if unmeasured or broken else 0


if __name__ == "__main__":
    sys.exit(main())
