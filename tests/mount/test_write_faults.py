"""Programs write on a mount while a stranger writes at its source, requests fail, and daemon and source die (S32).

`make faults` has more rounds: `make faults KIND=webdav,s3 SEEDS=200 FIRST=0`. What a round was is in `REPORTS`, if
given. Without it, each kind of `QUICK` has one round. The other kinds are left to `make faults`:
a round takes up to ten seconds on a busy machine, and what is rare needs many of them.
"""

import os
import time
from functools import partial
from pathlib import Path

import pytest
from fault_plans import plan_of
from fault_rounds import Round, play
from fault_scratches import SCRATCH, ScratchRound
from fault_sources import KINDS, PLANS

WANTED = [each for each in os.environ.get("KIND", "").split(",") if each]
QUICK = ("folder", "sqlite")
FIRST, SEEDS = int(os.environ.get("FIRST", "0")), int(os.environ.get("SEEDS", "1"))
REPORTS = os.environ.get("REPORTS")
ALL = (*KINDS, SCRATCH)
CHOSEN = WANTED or (ALL if "SEEDS" in os.environ else QUICK)


@pytest.mark.semantics("S32")
@pytest.mark.timeout(60 + 60 * SEEDS)
@pytest.mark.parametrize("kind", [each for each in ALL if each in CHOSEN])
def test_what_is_acknowledged_is_there_and_what_is_not_is_pending(fuse: None, kind: str) -> None:
    found: list[str] = []
    for seed in range(FIRST, FIRST + SEEDS):
        began = time.monotonic()
        plan = plan_of(seed, PLANS[kind])
        problems, report = play(partial(ScratchRound, plan) if kind == SCRATCH else partial(Round, kind, plan))
        print(f"{kind} {seed}: {time.monotonic() - began:.1f} s, {len(problems)} problems", flush=True)
        found += [f"{kind} {seed}: {problem}" for problem in problems]
        if problems and REPORTS:
            Path(REPORTS).mkdir(exist_ok=True)
            (Path(REPORTS) / f"{kind}-{seed}").write_text("\n".join([*problems, "", report]))
    assert not found, "\n".join(found)
