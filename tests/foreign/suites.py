"""Run foreign suites on kinds of mount: suites.py [--kind KIND]… [--operations N] [--scripts PATTERNS] [SUITE…]

Prints a line for each suite and kind. Exit status 1 if anything differs from a plain directory that expected.toml does
not have, or if something that it has did not happen.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parents[1] / "support"))

import calls
import copies
import exercise
import strangers
from judging import Found, Verdict, allowed, judge
from kinds import KINDS, Ground, ground

Suite = Callable[[Ground, Ground], Found]
ON_DISKS = ("folder", "scratch over a folder", "scratch over memory")
KINDS_OF: Mapping[str, tuple[str, ...]] = {"git": ON_DISKS[:2], "sqlite": ON_DISKS}
"""Kinds that a suite is for, where not for all: those with links, locks and modes."""


def suites(arguments: argparse.Namespace) -> dict[str, Suite]:
    return {
        "calls": calls.run,
        "exercise": partial(exercise.exercise, operations=arguments.operations),
        "copies": copies.run_scripts,
        "fio": strangers.fio,
        "stress": strangers.stress,
        "sqlite": strangers.sqlite,
        "git": partial(strangers.git, scripts=arguments.scripts),
    }


def verdict(suite: str, run: Suite, kind: str, *, whole: bool) -> Verdict:
    try:
        with ground("plain") as plain, ground(kind) as mounted:
            found = run(mounted, plain)
            for line in mounted.complaints():
                found.add(f"log {found.cases}", line)
    except AssertionError as error:
        found = Found(1, {"the suite": [str(error)[-300:]]})
    return judge(suite, kind, found, allowed(), whole=whole)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run foreign suites on kinds of mount.")
    parser.add_argument("suites", nargs="*", metavar="SUITE")
    parser.add_argument("--kind", action="append", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--operations", type=int, default=0, help="of the suite exercise")
    parser.add_argument("--scripts", default=strangers.GIT_SCRIPTS, help="of the suite git")
    arguments = parser.parse_args()
    known = suites(arguments)
    if unknown := set(arguments.suites) - known.keys():
        parser.error(f"no suite {', '.join(unknown)}: {', '.join(known)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leave no mount behind
    held = True
    for suite in arguments.suites or known:
        for kind in arguments.kind or KINDS:
            if kind not in KINDS_OF.get(suite, KINDS):
                continue
            began = time.monotonic()
            whole = arguments.scripts == strangers.GIT_SCRIPTS
            judged = verdict(suite, known[suite], kind, whole=whole)
            held = held and judged.held and not judged.lacking
            print(f"{suite:9} {kind:22} {judged} [{time.monotonic() - began:.0f} s]", flush=True)
            for defect in judged.defects:
                print(f"    DEFECT {defect}", flush=True)
            for each in judged.unused:
                print(f"    GONE {each.promise}: {'; '.join(each.cases)}: {'; '.join(each.differences)}", flush=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
