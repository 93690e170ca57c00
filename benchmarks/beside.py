"""Compare this bbfs with another one in one run: `python benchmarks/beside.py PYTHON [--rounds N] [--at-most R]`

PYTHON is the interpreter of the other one's environment (`../before/.venv/bin/python`), usually of the parent commit.
Each round runs each program on both, one after the other, and the one that begins changes from case to case and from
round to round. A row has the medians of the ratios of the rounds, this one to the other: of the seconds that programs
took, and of the processor time of the daemons until they rest, since what a daemon writes behind a program belongs to
it. The exit status is 1 when one of the latter is above the limit: other programs on the machine disturb the seconds
much more. It is also 1 when a figure is not there; stderr says which, and why.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import cold_cases
import places
import warm_cases
from figures import Sheet
from files import Shape, write_list
from rounds import Measure, Place, at_rest, turn
from run import TMPFS, sweep

THIS, OTHER = "this", "other"
DAEMON = ", daemon"
"""Ends the group of the processor times of daemons."""


def metered(sheet: Sheet, group: str, number: int, measures: dict[str, Measure]) -> dict[str, Measure]:
    """Return the measures of a round such that the processor time of the place's daemon goes to the sheet as well."""

    def meter(case: str, measure: Measure, place: Place) -> float:
        if place.pid is None:
            return measure(place)
        before = at_rest(place.pid)
        taken = measure(place)
        sheet.add(number, group + DAEMON, case, place.name, at_rest(place.pid) - before)
        return taken

    return {case: partial(meter, case, measure) for case, measure in measures.items()}


def plan(sheet: Sheet, group: str, cases: Sequence[str], pythons: dict[str, str]) -> None:
    sheet.plan(group, cases, list(pythons))
    sheet.plan(group + DAEMON, cases, list(pythons))


def warm(sheet: Sheet, scratch: Path, pythons: dict[str, str], rounds: int, shape: Shape) -> None:
    """Measure programs on files that were listed and read before, from an MCP server and from a folder."""
    tree = scratch / "files"
    shape.write(tree / "files")
    names = write_list(scratch / "all.list", shape.names())
    measures = warm_cases.programs(scratch, lambda _: names)
    folder = {"name": "warm", "type": "filesystem", "config": {"root": tree}, "ttl": "1h"}
    sources = {
        "MCP": (places.served("warm", places.server(shape.directories, shape.files)), "mcp-server+warm/bench/tree"),
        "folder": (folder, "bb-filesystem+warm+file/files"),
    }
    for kind, (source, below) in sources.items():
        group = f"warm, {kind}"
        with ExitStack() as ending:
            mounts = scratch / f"mounts-{kind}"
            mounts.mkdir()
            stage = places.Stage(sheet, group, mounts, ending)
            commands = {
                name: (places.bbfs(scratch / f"{kind}-{name}", [source], python), below)
                for name, python in pythons.items()
            }
            plan(sheet, group, warm_cases.CASES, pythons)
            found = stage.places(warm_cases.CASES, commands)
            for place in found:
                warm_cases.warm_up(sheet, group, place, measures, shape)
            for number in range(rounds):
                turn(sheet, group, number, metered(sheet, group, number, measures), found)


def cold(
    sheet: Sheet,
    scratch: Path,
    pythons: dict[str, str],
    rounds: int,
    slow: cold_cases.Slow,
    cases: Sequence[str] = cold_cases.CASES,
) -> None:
    """Measure programs on resources that nothing is known of, behind a server that takes its time for each."""
    write_list(scratch / "all.list", [Path(name).name for name in Shape(1, slow.count).names()])
    programs = cold_cases.Programs(scratch, slow)
    measures, group = {case: programs.measures()[case] for case in cases}, cold_cases.GROUP
    plan(sheet, group, cases, pythons)
    for number in range(rounds):
        with ExitStack() as ending:
            one = cold_cases.Round(sheet, number, slow, scratch)
            stage = one.stage(group, ending)
            upstream = {
                name: cold_cases.Upstream(stage, slow, list(measures), 16, python=python)
                for name, python in pythons.items()
            }

            def at(
                case: str, measure: Measure, upstream: dict[str, cold_cases.Upstream] = upstream
            ) -> Callable[[Place], float]:
                return lambda place: measure(
                    Place(place.name, upstream[place.name].tree(case), pid=upstream[place.name].pid)
                )

            read = {case: at(case, one) for case, one in metered(sheet, group, number, measures).items()}
            turn(sheet, group, number, read, [Place(name, scratch) for name in pythons])


def table(sheet: Sheet, at_most: float) -> tuple[str, bool]:
    """Return the ratios as a table, and whether all of the daemons' processor times are within the limit."""
    lines, kept = [f"{'':40} {'seconds of the program':33} processor time of the daemon"], True
    for group in sheet.groups():
        if group.endswith(DAEMON):
            continue
        for case in sheet.cases(group):
            daemon = sheet.ratio(group + DAEMON, case, THIS, OTHER)
            above = daemon is not None and daemon.median > at_most
            kept = kept and not above
            row = f"{_cell(sheet, group, case):33} {_cell(sheet, group + DAEMON, case)}{'  above' * above}"
            lines.append(f"{group:22} {case:16}  {row}")
    return "\n".join(lines), kept


def _cell(sheet: Sheet, group: str, case: str) -> str:
    ratio, own = sheet.ratio(group, case, THIS, OTHER), sheet.summary(group, case, THIS)
    if ratio is None or own is None:
        return "not measured"
    return f"{ratio.median:5.2f} × ({ratio.low:.2f}–{ratio.high:.2f}) {own.median:8.3f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--at-most", type=float, default=1.05)
    parser.add_argument("--quick", action="store_true", help="try the machinery with few files")
    options = parser.parse_args()
    pythons = {THIS: sys.executable, OTHER: options.python}
    shape, slow, cases = Shape(50, 100), cold_cases.Slow(), cold_cases.CASES
    if options.quick:
        shape, slow, cases = Shape(2, 10), cold_cases.Slow(20), cases[:1]
    sheet, started = Sheet(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bbfs-bench-", dir=TMPFS if TMPFS.is_dir() else None) as directory:
        scratch = Path(directory)
        try:
            warm(sheet, scratch, pythons, options.rounds, shape)
            cold(sheet, scratch, pythons, max(1, options.rounds // 2), slow, cases)
        finally:
            sweep(scratch)
    text, kept = table(sheet, options.at_most)
    print(text)
    print(f"in {time.monotonic() - started:.0f} s")
    unmeasured = sheet.unmeasured()
    for line in unmeasured:
        print(f"beside: no figure: {line}", file=sys.stderr)
    return 0 if kept and not unmeasured else 1


if __name__ == "__main__":
    sys.exit(main())
