"""Compare this bbfs with another one in one run: `python benchmarks/beside.py PYTHON [--rounds N] [--at-most R]`

PYTHON is the interpreter of the other one's environment (`../before/.venv/bin/python`), usually of the parent commit.
Each round runs each program on both, one after the other, and the one that begins changes from case to case and from
round to round. A row is the median of the ratios of the rounds, this one to the other. The exit status is 1 when one
of them is above the limit; run it on a machine that does nothing else.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import cold_cases
import places
import warm_cases
from figures import Sheet
from files import Shape, write_list
from rounds import Place, turn
from run import TMPFS, sweep

THIS, OTHER = "this", "other"


def warm(sheet: Sheet, scratch: Path, pythons: dict[str, str], rounds: int, shape: Shape) -> None:
    """Measure programs on files that were listed and read before, from an MCP server and from a folder."""
    tree = scratch / "files"
    shape.write(tree)
    names = write_list(scratch / "all.list", shape.names())
    measures = warm_cases.programs(scratch, lambda _: names)
    folder = {"name": "warm", "type": "filesystem", "config": {"root": tree}, "ttl": "1h"}
    sources = {
        "MCP": (places.served("warm", places.server(shape.directories, shape.files)), "mcp-server+warm/bench/tree"),
        "folder": (folder, "bb-filesystem+warm+file"),
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
            found = stage.places(list(measures), commands)
            for place in found:
                for measure in measures.values():
                    measure(place)
            for number in range(rounds):
                turn(sheet, group, number, measures, found)


def cold(sheet: Sheet, scratch: Path, pythons: dict[str, str], rounds: int, slow: cold_cases.Slow) -> None:
    """Measure programs on resources that nothing is known of, behind a server that takes its time for each."""
    write_list(scratch / "all.list", [Path(name).name for name in Shape(1, slow.count).names()])
    programs = cold_cases.Programs(scratch, slow)
    measures, group = programs.measures(), "cold, 16 in flight"
    for number in range(rounds):
        with ExitStack() as ending:
            one = cold_cases.Round(sheet, number, slow, scratch)
            stage = one.stage(group, ending)
            upstream = {
                name: cold_cases.Upstream(stage, slow, list(measures), 16, python=python)
                for name, python in pythons.items()
            }

            def at(case: str, upstream: dict[str, cold_cases.Upstream] = upstream) -> Callable[[Place], float]:
                return lambda place: measures[case](Place(place.name, upstream[place.name].tree(case)))

            turn(
                sheet, group, number, {case: at(case) for case in measures}, [Place(name, scratch) for name in pythons]
            )


def table(sheet: Sheet, at_most: float) -> tuple[str, bool]:
    """Return the ratios as a table, and whether all of them are within the limit."""
    lines, kept = [], True
    for group in sheet.groups():
        for case in sheet.cases(group):
            ratio, own = sheet.ratio(group, case, THIS, OTHER), sheet.summary(group, case, THIS)
            if ratio is None or own is None:
                lines.append(f"{group:22} {case:16} not measured")
                kept = False
                continue
            above = ratio.median > at_most
            kept = kept and not above
            spread = f"{ratio.low:.2f}–{ratio.high:.2f}"
            lines.append(
                f"{group:22} {case:16} {ratio.median:5.2f} × ({spread}) {own.median:8.3f} s{'  above' * above}"
            )
    return "\n".join(lines), kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--at-most", type=float, default=1.05)
    parser.add_argument("--quick", action="store_true", help="try the machinery with few files")
    options = parser.parse_args()
    pythons = {THIS: sys.executable, OTHER: options.python}
    shape, slow = (Shape(5, 10), cold_cases.Slow(40)) if options.quick else (Shape(50, 100), cold_cases.Slow())
    sheet, started = Sheet(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bbfs-bench-", dir=TMPFS if TMPFS.is_dir() else None) as directory:
        scratch = Path(directory)
        try:
            warm(sheet, scratch, pythons, options.rounds, shape)
            cold(sheet, scratch, pythons, max(1, options.rounds // 2), slow)
        finally:
            sweep(scratch)
    text, kept = table(sheet, options.at_most)
    print(text)
    print(f"in {time.monotonic() - started:.0f} s")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
