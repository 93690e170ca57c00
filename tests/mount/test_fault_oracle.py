"""The oracle of `test_write_faults.py` finds what is wrong in histories that are made up."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from fault_contents import CODECS, LEAST, Torn, names_in, names_of, record
from fault_oracle import Asked, Event, History, Pending, Seen, State, problems
from fault_plans import Kind, plan_of
from fault_retries import Attempt, Kept, retry_problems

FIRST = State(0.0, "l0", ("s.l0",), "stranger")
SAVED = State(1.5, "l0", ("s.l0", "w0.0"), "mount")
SAVE = Event("w0", 0, "rewrite", "l0", 1.0, 2.0, wrote=("s.l0", "w0.0"))
REFUSED = replace(SAVE, error="EIO", stage="close")
READ = Event("p0", 0, "read", "l0", 3.0, 3.1, read=("s.l0", "w0.0"))
THEIRS = record("s.a0", LEAST) + record("w1.1", LEAST)
LOOK = Seen(0.5, "l0", 0)
GOOD = History((FIRST, SAVED), (SAVE, READ), ledgers=frozenset({"l0"}), seen=(LOOK,), last={"l0": ("s.l0", "w0.0")})
STRANGE = State(1.2, "l0", ("s.l0", "s.1"), "stranger")
RENAMED = replace(SAVED, how="rename")
LATE = replace(
    GOOD, states=(FIRST, STRANGE, RENAMED), seen=(Seen(1.1, "l0", 0), Seen(1.3, "l0", 1)), late=frozenset({"rename"})
)
"""The stranger's change came between a comparison by the mount and its rename. Meanwhile another program looked."""
AFTER_A_KILL = History(
    (FIRST, STRANGE),
    (
        Event("p0", 0, "read", "l0", 2.0, 2.1, read=("s.l0", "s.1")),
        Event("p1", 0, "read", "l0", 4.0, 4.1, read=("s.l0",)),
    ),
    kills=(3.0,),
)
"""The mount that was killed had read what the stranger wrote, and the next one serves what is on disk."""
APPEND = Event("w0", 0, "append", "a0", 1.0, 2.0, wrote=("w0.0",))
MOVE = Event("w0", 0, "move", "l0", 1.0, 2.0, "l1", "EIO", "rename")
HALVES = (State(0.0, "a0", ("s.a0", "half of w0.0", "w1.2"), "mount"),)


@pytest.mark.parametrize(
    "history",
    [
        GOOD,
        replace(GOOD, events=(replace(SAVE, wrote=("w0.0",), action="append"),)),
        History((FIRST,), (REFUSED,), (Pending("l0", ("s.l0", "w0.0"), "Conflict: x"),)),
        History((FIRST, SAVED), (REFUSED,), seen=(LOOK,)),
        History((FIRST,), (replace(REFUSED, interrupted=True),)),
        History((FIRST,), (replace(REFUSED, stage="open", wrote=None),)),
        History(
            (FIRST, STRANGE, replace(SAVED, records=("s.l0", "s.1", "w0.0"))),
            seen=(Seen(1.3, "l0", 1),),
            events=(),
            ledgers=frozenset({"l0"}),
        ),
        replace(GOOD, events=(SAVE, replace(READ, began=1.1, ended=1.2))),
        LATE,
        AFTER_A_KILL,
        History((FIRST,), (MOVE,), asked=(Asked(1.5, "l1", ("s.l0",)),)),
        History(HALVES, (replace(APPEND, error="EIO", stage="close"),), (Pending("a0", ("w0.0",), "EIO"),)),
    ],
)
def test_good_histories_have_no_problem(history: History) -> None:
    assert problems(history) == []


BAD: Mapping[str, History] = {
    "not at the source": History((FIRST,), (SAVE,)),
    "not at the source by then": History((FIRST, replace(SAVED, at=2.5)), (SAVE,)),
    "its bytes are not pending": History((FIRST,), (REFUSED,)),
    "neither beside it nor pending": History((FIRST,), (replace(REFUSED, action="replace", stage="rename"),)),
    "has it still": History((FIRST,), (Event("w0", 0, "remove", "l0", 1.0, 2.0),)),
    "the old name still": History((FIRST, replace(FIRST, name="l1")), (Event("w0", 0, "move", "l0", 1.0, 2.0, "l1"),)),
    "lacks ['s.1']": History((FIRST, STRANGE, SAVED), (SAVE,), seen=(Seen(1.3, "l0", 1),), ledgers=GOOD.ledgers),
    "lacks ['s.1'] of the one before": replace(LATE, late=frozenset({"remove"})),
    "lacks ['s.1'] of the one before, by the stranger": replace(LATE, seen=(Seen(0.9, "l0", 0), Seen(1.3, "l0", 1))),
    "half of w0.0 is at the source": History(HALVES, (APPEND,)),
    "which it has never seen": History((FIRST, STRANGE, SAVED), (SAVE,), seen=(Seen(1.1, "l0", 0),)),
    "the state 0; the state 1 was had": replace(GOOD, events=(SAVE, replace(READ, read=("s.l0",)))),
    "the state 0; the state 1 was had by p0": replace(AFTER_A_KILL, kills=(1.9,)),
    "the state 1 was had by w0": replace(GOOD, events=(SAVE, replace(READ, began=4.0, read=("s.l0",))), kills=(3.0,)),
    "which the source never had": replace(GOOD, events=(SAVE, replace(READ, read=("w9.9",)))),
    "torn: half": replace(GOOD, events=(SAVE, replace(READ, read=None, torn="half"))),
    "pending write of l0: torn": History((FIRST,), (), (Pending("l0", None, None),)),
    "is empty at the source": History((FIRST, replace(SAVED, records=())), ()),
    "neither stored nor pending": History((FIRST,), (), asked=(Asked(1.0, "l0", ("w0.0",)),)),
    "l1: asked to store ('w0.0',)": History((FIRST,), (MOVE,), asked=(Asked(1.5, "l1", ("w0.0",)),)),
    "which makes the file": History((FIRST,), (Event("w0", 0, "redirect", "l0", 1.0, 2.0, "", "ENOENT", "create"),)),
    "at the end the source has": replace(GOOD, last={"l0": None}),
}


@pytest.mark.parametrize("says", BAD)
def test_bad_histories_have_one(says: str) -> None:
    assert any(says in problem for problem in problems(BAD[says])), problems(BAD[says])


def test_a_record_proves_itself() -> None:
    text = record("w0.1", 300) + record("w1.2", 0)
    assert names_of(text) == ("w0.1", "w1.2")
    assert names_in(CODECS["rows"], CODECS["rows"].encode("7.json", text)) == ("w0.1", "w1.2")
    for torn in (text[:-1], text[1:], text[:100] + "x" + text[101:], text[:50] + text[60:], text + "\0" * LEAST):
        with pytest.raises(Torn):
            names_of(torn)
    assert names_of(text[:-20], is_growing=True) == ("w0.1",)


@pytest.mark.parametrize("length", [1, 3, 6, 12, 200, 299])
def test_half_a_record_has_a_name(length: int) -> None:
    first, half, last = record("s.3", 0), record("w0.1", 300)[:length], record("w1.2", 0)
    name = "half of " + "w0.1"[:length]
    assert names_of(first + half + last, is_growing=True) == ("s.3", name, "w1.2")
    for torn in (first + last[3:], first + half + "\0" + last, first + half[1:] + last if length > 1 else last[1:]):
        with pytest.raises(Torn):
            names_of(torn, is_growing=True)
    with pytest.raises(Torn):
        names_of(first + half + last)


@pytest.mark.parametrize("kind", [Kind(), Kind(appends=False, moves=False, suffix=".json", fails=False, ends=False)])
def test_a_plan_is_that_of_its_seed(kind: Kind) -> None:
    plans: list[Any] = [plan_of(seed, kind) for seed in range(30)]
    assert plans == [plan_of(seed, kind) for seed in range(30)]
    assert any(each.kills for each in plans)
    assert any(each.stranger for each in plans)
    assert kind.appends == any(step.action == "append" for each in plans for step in each.programs["w0"])


@pytest.mark.parametrize(
    ("theirs", "mine", "is_right"),
    [
        (THEIRS, "w0.0 90 00w1.2 48 22", True),
        (THEIRS, "w1.2 48 22", False),
        (THEIRS + record("s.1", LEAST), "w0.0 90 00w1.2 48 22", False),
        (THEIRS + record("s.1", 90)[:50], "w0.0 90 00w1.2 48 22", True),
        (json.dumps({"id": 1, "what": THEIRS}), "w0.0 90 00w1.2 48 22", True),
        (json.dumps({"id": 1, "what": THEIRS + record("s.1", LEAST)}), "w0.0 90 00w1.2 48 22", False),
    ],
)
def test_a_diff_has_each_record_of_a_refused_write_what_is_there_of_a_half_and_no_other(
    theirs: str, mine: str, is_right: bool
) -> None:
    kept = Kept("0b90", "a0", ("s.a0", "half of w0.0", "w1.2"), "Conflict: x")
    attempt = Attempt(kept, 1.0, 2.0, False, "0b90: x", kept.records, kept, theirs, mine)
    append = Event("w1", 2, "append", "a0", 0.5, 0.6, wrote=("w1.2",))
    found = [*retry_problems([attempt], [State(0.0, "a0", ("s.a0", "w1.1"), "mount")], [append], {})]
    assert (found == []) is is_right, found
