"""Plans of a model of writing with faults: from a seed to programs, a stranger at the source, faults and kills. Pure.

Files have one of three uses, by the first letter of their names. `a`: programs append records, without locks. `l`:
programs read the file and write it again with one more record, under a lock of their own. `r`: programs rewrite,
replace, move and remove files, under such a lock. In files of the first two, no record is ever lost.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

WRITERS = READERS = 8
_STEPS = 5
"""Steps of a writer; a reader has twice as many."""
_PAUSE = 0.04
"""Seconds between two steps, on average."""
_SIZES = (0, 0, 300, 5_000, 60_000)
_RATES = (0.0, 0.05, 0.15, 0.3)
"""Shares of requests that meet a fault, by plan."""
_CHANGE_FAULTS = {
    "delay": 6, "drop before": 3, "drop after": 3, "accept": 2, "accept late": 2, "refuse 412": 2, "refuse 500": 2,
    "refuse 503": 2, "fail after": 2, "stall": 1, "stall after": 1,
}  # fmt: skip
_LOOK_FAULTS = {"delay": 6, "drop before": 3, "refuse 500": 2, "refuse 503": 2, "stall": 1}
TIMES_TO_LIVE = ("50ms", "400ms", "10s")


@dataclass(frozen=True)
class Step:
    """A step of a program. pause: seconds before it. locks: names that it locks against the other programs."""

    action: str
    name: str = ""
    to: str = ""
    size: int = 0
    syncs: bool = False
    pause: float = 0.0
    locks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    """What programs may do in a kind of source. suffix: of names. tells: whether a relay can fail its requests."""

    appends: bool = True
    moves: bool = True
    backups: bool = True
    suffix: str = ".txt"
    fails: bool = True
    ends: bool = True
    """Whether the source can be killed alone."""


@dataclass(frozen=True)
class Plan:
    """One round. uses: of files, by name. faults: by number of the request that changes something, and of each other.

    ttl: of contents. kills: after how many changes the daemon or the source is killed.
    """

    seed: int
    uses: Mapping[str, str]
    programs: Mapping[str, Sequence[Step]]
    stranger: Sequence[Step]
    change_faults: Mapping[int, str] = field(default_factory=dict[int, str])
    look_faults: Mapping[int, str] = field(default_factory=dict[int, str])
    kills: tuple[tuple[int, str], ...] = ()
    ttl: str = "10s"

    @property
    def ledgers(self) -> frozenset[str]:
        """Return the names of files of which no record is ever lost."""
        return frozenset(name for name, use in self.uses.items() if use[0] in "al")

    def as_json(self) -> dict[str, list[dict[str, Any]]]:
        return {name: [asdict(step) for step in steps] for name, steps in self.programs.items()}


def plan_of(seed: int, kind: Kind) -> Plan:
    """Return the plan of a seed."""
    chance = random.Random(seed)
    letters = ["a0", "a1", "l0", "l1", "r0", "r1", "r2"] if kind.appends else ["l0", "l1", "l2", "r0", "r1", "r2"]
    names = tuple(f"{each}{kind.suffix}" for each in letters)
    if not kind.appends:  # keys
        names = tuple(f"{number}{kind.suffix}" for number, _ in enumerate(letters, 1))
    uses = dict(zip(names, letters, strict=True))
    programs: dict[str, list[Step]] = {}
    for number in range(WRITERS):
        programs[f"w{number}"] = [_change(chance, uses, kind) for _ in range(_STEPS)]
    for number in range(READERS):
        programs[f"p{number}"] = [_look(chance, names) for _ in range(2 * _STEPS)]
    stranger = [_change(chance, uses, kind, is_strange=True) for _ in range(chance.choice((0, 4, 12)))]
    rate = chance.choice(_RATES) if kind.fails else 0.0
    kills: list[tuple[int, str]] = []
    if chance.random() < 0.4:
        kills.append((chance.randrange(3, 25), "daemon"))
    if kind.ends and chance.random() < 0.3:
        kills.append((chance.randrange(3, 25), "source"))
    return Plan(
        seed,
        uses,
        programs,
        stranger,
        _faults(chance, rate, _CHANGE_FAULTS),
        _faults(chance, rate / 2, _LOOK_FAULTS),
        tuple(sorted(kills)),
        chance.choice(TIMES_TO_LIVE),
    )


def _faults(chance: random.Random, rate: float, kinds: Mapping[str, int]) -> dict[int, str]:
    """Return faults by the number of a request, of which there are a few hundred."""
    faults = chance.choices(list(kinds), list(kinds.values()), k=1000)
    return {number: fault for number, fault in enumerate(faults) if chance.random() < rate}


def _look(chance: random.Random, names: Sequence[str]) -> Step:
    action = chance.choices(("read", "stat", "list"), (8, 1, 1))[0]
    return Step(action, chance.choice(names), pause=chance.expovariate(2 / _PAUSE))


def _change(chance: random.Random, uses: Mapping[str, str], kind: Kind, *, is_strange: bool = False) -> Step:
    """Return a step that changes a file. is_strange: at the source, in one step, without locks."""
    name = chance.choice(list(uses))
    size, pause = chance.choice(_SIZES), chance.expovariate(1 / _PAUSE)
    match uses[name][0]:
        case "a":
            return Step("append", name, "", min(size, 5_000), chance.random() < 0.2, pause)
        case "l":
            return Step("rewrite", name, "", size, chance.random() < 0.2, pause, (name,))
    actions = {"redirect": 4, "replace": 4, "remove": 2}
    if kind.moves:
        actions["move"] = 2
    if kind.backups and not is_strange:
        actions["backup"] = 2
    action = chance.choices(list(actions), list(actions.values()))[0]
    others = [each for each, use in uses.items() if use[0] == "r" and each != name]
    to = chance.choice(others) if action == "move" else ""
    return Step(action, name, to, size, chance.random() < 0.2, pause, (name, to) if to else (name,))
