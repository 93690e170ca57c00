"""Everything that is measured, in one go: `python benchmarks/run.py [--only GROUP…] [--minutes N] [--quick] [--guard]`

Groups: warm, cold, large, scale, live. Each gets its part of the time and begins no round that would exceed it, but has
one whole round at least. What was measured goes to benchmarks/results.json, the tables and plots to docs/benchmarks;
nothing else is written outside temporary directories, and all that is started is ended, also on a signal.

--quick tries the machinery with few files; its results go nowhere but to `--output DIRECTORY`. A rival that is not
installed or fails is a line in the tables. The exit status is 1 when a group could not be measured at all, or with
--guard when a limit of goals.toml is broken.
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
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import cold_cases
import guard
import large_cases
import places
import report
import scale_cases
import warm_cases
from figures import Sheet
from rounds import HERE, Budget, Unmeasurable

from bbfs.fuse import mountpoint

PAGE = HERE.parent / "docs" / "benchmarks" / "results.md"
PARTS = {"warm": 0.34, "cold": 0.35, "large": 0.1, "scale": 0.17, "live": 0.04}
"""What part of the time each group gets."""
SLOW = cold_cases.Slow()
TMPFS = Path("/dev/shm")


@dataclass(frozen=True)
class Sizes:
    """How much of everything there is. warm: directories and files in each; large: bytes."""

    warm: tuple[int, int] = (100, 100)
    cold: cold_cases.Slow = SLOW
    concurrencies: tuple[int, ...] = (16, 32, 64)
    large: int = 1 << 30
    listed: int = 100_000
    many: int = 1_000_000
    changes: int = 10
    idle: float = 4.0
    rounds: int = 5


QUICK = Sizes((10, 10), cold_cases.Slow(60), (16,), 16 << 20, 2000, 5000, 2, 0.5, 2)


def groups(sheet: Sheet, sizes: Sizes) -> dict[str, Callable[[Path, Path, Budget, float], None]]:
    """What measures a group, given a directory on tmpfs, one on a disk, the rounds, and the seconds there are."""
    directories, files = sizes.warm
    return {
        "warm": lambda memory, _disk, budget, _seconds: warm_cases.measure(
            sheet, memory, budget, directories=directories, files=files
        ),
        "cold": lambda memory, _disk, budget, _seconds: cold_cases.measure(
            sheet, memory, budget, sizes.cold, sizes.concurrencies
        ),
        "large": lambda memory, disk, budget, _seconds: large_cases.measure(
            sheet, memory, disk, budget, size=sizes.large
        ),
        "scale": lambda memory, _disk, budget, seconds: scale_cases.measure(
            sheet, memory, budget, listed=sizes.listed, many=sizes.many, seconds=seconds
        ),
        "live": lambda memory, _disk, _budget, _seconds: scale_cases.measure_live(
            sheet, memory, changes=sizes.changes, idle=sizes.idle
        ),
    }


def measure(sheet: Sheet, sizes: Sizes, wanted: list[str], minutes: float) -> list[str]:
    """Run the groups; those that could not be measured at all."""
    failed: list[str] = []
    until, left = time.monotonic() + minutes * 60, sum(PARTS[name] for name in wanted)
    for name, act in groups(sheet, sizes).items():
        if name not in wanted:
            continue
        # What one takes too long, the later ones have less.
        started = time.monotonic()
        seconds = max(0.0, until - started) * PARTS[name] / left
        left -= PARTS[name]
        on_tmpfs = TMPFS if TMPFS.is_dir() else None
        with (
            tempfile.TemporaryDirectory(prefix="bbfs-bench-", dir=on_tmpfs) as memory,
            tempfile.TemporaryDirectory(prefix="bbfs-bench-") as disk,
        ):
            try:
                act(Path(memory), Path(disk), Budget(sizes.rounds, started + seconds), seconds)
            except (OSError, RuntimeError, Unmeasurable, subprocess.SubprocessError, mountpoint.MountError):
                traceback.print_exc()
                failed.append(name)
            finally:
                sweep(Path(memory))
        print(f"{name}: {time.monotonic() - started:.0f} s of {seconds:.0f} s", flush=True)
    return failed


def sweep(directory: Path) -> None:
    """Unmount what a program that had to be ended has left below a directory."""
    for mount in mountpoint.mounts():
        if Path(mount.path).is_relative_to(directory):
            mountpoint.unmount(mount.path)


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
        done = subprocess.run(command, capture_output=True, timeout=120, check=True, text=True)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        print(f"no plots: {said.strip().splitlines()[-1]}", file=sys.stderr)
        return []
    return [Path(line) for line in done.stdout.splitlines()]


def publish(sheet: Sheet, facts: dict[str, Any], results: Path, page: Path) -> None:
    """Write the results, and the page of results with its plots beside it."""
    results.write_text(json.dumps({"about": facts, "cells": sheet.as_json()}, indent=1, ensure_ascii=False) + "\n")
    plots = [path.name for path in draw(results, page.parent)]
    page.write_text(report.document(facts, sheet, guard.load(), plots))


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop(number: int, _frame: FrameType | None) -> None:
    """Leave everything in order; another signal meanwhile changes nothing."""
    for ending in ENDING:
        signal.signal(ending, signal.SIG_IGN)
    raise SystemExit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=8.5)
    parser.add_argument("--rounds", type=int, help="at most; as many as there is time for are made")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--guard", action="store_true")
    parser.add_argument("--output", type=Path, help="a directory for results.json and results.md, instead of here")
    options = parser.parse_args()
    for ending in ENDING:
        signal.signal(ending, stop)
    sizes = QUICK if options.quick else Sizes()
    if options.rounds:
        sizes = Sizes(**(vars(sizes) | {"rounds": options.rounds}))
    sheet, started = Sheet(), time.monotonic()
    failed = measure(sheet, sizes, options.only, options.minutes)
    facts = about(time.monotonic() - started)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        publish(sheet, facts, options.output / "results.json", options.output / PAGE.name)
    elif not options.quick:
        publish(sheet, facts, HERE / "results.json", PAGE)
    print(report.goals_table(sheet, guard.load()))
    broken = guard.check(sheet, guard.load()) if options.guard else []
    for line in [*(f"{name} could not be measured" for name in failed), *broken]:
        print(f"run: {line}", file=sys.stderr)
    return 1 if failed or broken else 0


if __name__ == "__main__":
    sys.exit(main())
