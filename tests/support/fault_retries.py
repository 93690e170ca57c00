"""Pending writes at the end of a round of faults: shown, handed over again, compared and forced, by bbfs's commands."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fault_contents import HALF, Plain, Records, Torn, is_whole, names_in
from fault_oracle import Event, State

CONFLICT = "Conflict: "
_LINE = re.compile(r'\n|\\n|"')
"""Between two records, in a text or in a row as JSON."""
_MOMENT = 0.02
"""Seconds by which a source may note a change later than the command ends."""


@dataclass(frozen=True)
class Done:
    """A command that has ended. out: both of its outputs."""

    status: int
    out: bytes


@dataclass(frozen=True)
class Kept:
    """A pending write. name: in the directory of the source."""

    id: str
    name: str
    records: Records | None
    error: str | None


@dataclass(frozen=True)
class Attempt:
    """A pending write that was handed over again. after: the same one afterwards, None if it is pending no more.

    shown: what `pending show` prints before. theirs, mine: what `pending diff` prints afterwards of the source's lines
    and of the pending ones.
    """

    before: Kept
    began: float
    ended: float
    is_forced: bool
    said: str
    shown: Records | None
    after: Kept | None = None
    theirs: str = ""
    mine: str = ""

    def __str__(self) -> str:
        kept = self.before
        return f"pending {kept.id} of {kept.name}, {(kept.records or ())[-2:]}, {'forced' if self.is_forced else ''}"


Command = Callable[..., Done]
"""Runs `bbfs` with words on the mount."""


def attempts(bbfs: Command, kept: Callable[[], Sequence[Kept]], codec: Plain) -> Iterator[Attempt]:
    """Hand over all that is pending, as it was meant at first, and then by force."""
    for is_forced in (False, True):
        items = {item.id: item for item in kept()}
        if not items:
            return
        shown = {each: _records(codec, bbfs("pending", "show", each).out, items[each].name) for each in items}
        began = time.monotonic()
        done = bbfs("pending", "retry", *(["--force"] if is_forced else []), *items)
        ended = time.monotonic()
        left = {item.id: item for item in kept()}
        for each, item in items.items():
            said = "".join(line for line in done.out.decode().splitlines() if each in line)
            attempt = (item, began, ended, is_forced, said, shown[each])
            yield Attempt(*attempt, left[each], *_sides(bbfs, each)) if each in left else Attempt(*attempt)


def _records(codec: Plain, data: bytes, name: str) -> Records | None:
    try:
        return names_in(codec, data, name)
    except Torn:
        return None


def _sides(bbfs: Command, item: str) -> tuple[str, str]:
    """Return the lines that only the source has, and those that only a pending write has."""
    lines = bbfs("pending", "diff", item).out.decode().splitlines()[2:]
    theirs, mine = ("\n".join(line[1:] for line in lines if line.startswith(sign)) for sign in "-+")
    return theirs, mine


def retry_problems(
    tried: Sequence[Attempt],
    states: Sequence[State],
    events: Sequence[Event],
    last: Mapping[str, Records | None],
) -> Iterator[str]:
    """Yield what must not be. states: with those of the attempts. last: what the mount shows afterwards."""
    wrote = {each.wrote[-1]: each for each in events if each.wrote}
    for attempt in tried:
        before, after = attempt.before, attempt.after
        if attempt.shown is None or attempt.shown != before.records:
            yield f"{attempt}: `pending show` has {attempt.shown}"
        elif not (_is_written(attempt.shown, wrote) or _is_given_back(attempt, states, events)):
            yield f"{attempt}: no program wrote {attempt.shown}"
        if after is None:
            if not any(state.records == before.records for state in _during(attempt, states)):
                yield f"{attempt}: pending no more, and the source has not had it"
        else:
            yield from _refused(attempt, after, states)
    for name in {attempt.before.name for attempt in tried}:
        has = next((state.records for state in reversed(states) if state.name == name), None)
        if has != last.get(name, has):
            yield f"{name}: after the attempts the source has {has}, and the mount shows {last[name]}"


def _is_written(shown: Records, wrote: Mapping[str, Event]) -> bool:
    """Return whether a program handed over these records, or appended the last of them."""
    event = wrote.get(shown[-1])
    return event is not None and (event.wrote == shown or event.action == "append")


def _is_given_back(attempt: Attempt, states: Sequence[State], events: Sequence[Event]) -> bool:
    """Return whether a program that could not save has renamed its backup, which has these records, to the name."""
    name = attempt.before.name
    gave = any(event.action == "backup" and event.name == name and event.error is not None for event in events)
    return gave and any(state.name == name and state.records == attempt.shown for state in states)


def _during(attempt: Attempt, states: Sequence[State]) -> list[State]:
    """Return the states that the file of an attempt had while it lasted."""
    of_name = [state for state in states if state.name == attempt.before.name]
    earlier = [state for state in of_name if state.at < attempt.began]
    return earlier[-1:] + [state for state in of_name if attempt.began <= state.at <= attempt.ended + _MOMENT]


def _refused(attempt: Attempt, after: Kept, states: Sequence[State]) -> Iterator[str]:
    """What is refused is a conflict, of which both sides can be read; and nothing is refused by force."""
    if attempt.is_forced:
        yield f"{attempt}: still pending: {after.error}"
    elif not (after.error or "").startswith(CONFLICT) or not attempt.said:
        yield f"{attempt}: refused without a conflict or without a word: {after.error}; {attempt.said!r}"
    if after.records != attempt.before.records:
        yield f"{attempt}: changed to {after.records}"
    theirs, mine = set(_during(attempt, states)[-1].records or ()), set(attempt.before.records or ())
    missing = [each for each in theirs - mine if _printed(each) not in attempt.theirs]
    missing += [each for each in mine - theirs if _printed(each) not in attempt.mine]
    if missing:
        yield f"{attempt}: `pending diff` has neither side of {sorted(missing)}"
    whole = {line.partition(" ")[0] for line in _LINE.split(attempt.theirs) if is_whole(line)}
    if invented := whole - theirs:
        yield f"{attempt}: `pending diff` shows {sorted(invented)}, and the source has {sorted(theirs)}"


def _printed(name: str) -> str:
    """Return what a record begins with. A half may end within that."""
    return name.removeprefix(HALF) if name.startswith(HALF) else f"{name} "
