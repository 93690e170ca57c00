"""The oracle of a model of writing with faults: what the source's journal and the programs' notes must agree on. Pure.

Times are those of one monotonic clock, in seconds.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fault_contents import HALF, Records, is_within

_CLOSES = ("close", "fsync")
_CREATES = ("create", *_CLOSES)
_MOMENT = 0.02
"""Seconds by which a source may note a change later than the mount hears of it."""


@dataclass(frozen=True)
class State:
    """A state that a file had at the source. records: None if it was absent. by: `mount`, or `stranger`.

    how: the request of the mount.
    """

    at: float
    name: str
    records: Records | None
    by: str
    how: str = ""


@dataclass(frozen=True)
class Seen:
    """An answer of the source to the mount about a file: the state of that position among those of the name."""

    at: float
    name: str
    position: int


@dataclass(frozen=True)
class Asked:
    """A request of the mount to store a content, whatever came of it."""

    at: float
    name: str
    records: Records


@dataclass(frozen=True)
class Event:
    """A step of a program and its end. error: None if each call succeeded. wrote: what a close handed over."""

    who: str
    number: int
    action: str
    name: str
    began: float
    ended: float
    to: str = ""
    error: str | None = None
    stage: str = ""
    wrote: Records | None = None
    read: Records | None = None
    held: bool = False
    torn: str | None = None
    interrupted: bool = False

    @staticmethod
    def of(told: Mapping[str, Any]) -> "Event":
        """Return the event of a note that a program has written."""
        given = {key: value for key, value in told.items() if key in Event.__dataclass_fields__}
        for key in ("wrote", "read"):
            if given.get(key) is not None:
                given[key] = tuple(given[key])
        return Event(**given)

    def __str__(self) -> str:
        to = f" to {self.to}" if self.to else ""
        return f"{self.who}.{self.number} {self.action} {self.name}{to} [{self.began:.3f} … {self.ended:.3f}]"


@dataclass(frozen=True)
class Pending:
    """A pending write. name: in the directory of the source. records: None if they are torn."""

    name: str
    records: Records | None
    error: str | None


@dataclass(frozen=True)
class History:
    """All that was noted in a round. last: the contents on the mount when all is quiet, None for an absent file.

    ledgers: names of files of which no record is ever lost. sees: whether the source notes what it tells the mount.
    late: requests of the mount that state no version: what they replace is compared in a step of its own before.
    kills: when the daemon was killed.
    """

    states: Sequence[State]
    events: Sequence[Event]
    pending: Sequence[Pending] = ()
    ledgers: frozenset[str] = frozenset()
    seen: Sequence[Seen] = ()
    asked: Sequence[Asked] = ()
    last: Mapping[str, Records | None] = field(default_factory=dict[str, Records | None])
    sees: bool = True
    late: frozenset[str] = frozenset()
    kills: Sequence[float] = ()


def problems(history: History) -> list[str]:
    """Return what must not be, one sentence each."""
    return list(_Oracle(history).problems())


def folder_problems(history: History, appended: Iterable[tuple[str, str]]) -> list[str]:
    """Return what must not be in a folder without a journal, from its first and last states.

    appended: names and records that a stranger has appended there. A write in place that a kill has interrupted may
    leave its file empty, as on a disk: of such files, nothing is expected, under whatever name.
    """
    halved: set[str] = set()
    for each in sorted(history.events, key=lambda event: event.ended):
        if each.action in ("rewrite", "redirect") and each.interrupted:
            halved.add(each.name)
        if each.action == "move" and each.name in halved:
            halved.add(each.to)
    states = [each for each in history.states if each.name not in halved]
    events = [each for each in history.events if each.name not in halved]
    shown = {name: records for name, records in history.last.items() if name not in halved}
    history = replace(history, states=states, events=events, last=shown)
    oracle = _Oracle(replace(history, pending=()))
    last = {state.name: set(state.records or ()) for state in history.states}
    done = [(each.name, each.wrote[-1]) for each in history.events if each.error is None and each.wrote]
    kept = [(name, record) for name, record in (*done, *appended) if name in history.ledgers - halved]
    lost = [f"{name}: {record} was acknowledged and is lost" for name, record in kept if record not in last[name]]
    return [*oracle.torn(), *lost, *oracle.last()]


def scratch_problems(history: History, until: float) -> list[str]:
    """Return what must not be with a scratch, whose changes are applied without force until then."""
    early = _Oracle(replace(history, states=[state for state in history.states if state.at <= until]))
    return [*_Oracle(history).torn(), *early.lost(), *_Oracle(history).last()]


class _Oracle:
    def __init__(self, history: History) -> None:
        self._history = history
        self._states: dict[str, list[State]] = defaultdict(list)
        for state in history.states:
            self._states[state.name].append(state)
        self._pending: dict[str, list[Pending]] = defaultdict(list)
        for item in history.pending:
            self._pending[item.name].append(item)
        self._refused_records = {f"{each.who}.{each.number}" for each in history.events if each.error is not None}

    def problems(self) -> Iterator[str]:
        yield from self.torn()
        for event in self._history.events:
            if event.error is None and event.torn is None:
                yield from self._acknowledged(event)
            else:
                yield from self._refused(event)
        yield from self._asked()
        yield from self.lost()
        for states in self._states.values():
            yield from self._unseen(states)
        yield from self._reads()
        yield from self.last()

    # -- contents ----------------------------------------------------------------------------------------------------

    def torn(self) -> Iterator[str]:
        """No program reads, and no source gets, what no program wrote."""
        for event in self._history.events:
            if event.torn is not None and not self._is_rewritten(event):
                yield f"{event}: torn: {event.torn}"
        for item in self._history.pending:
            if not item.records:
                yield f"pending write of {item.name}: torn or empty"
        for state in self._history.states:
            if state.records == ():
                yield f"{state.name} is empty at the source since {state.at:.3f}, and no program wrote that"
        yield from self._halves()

    def _halves(self) -> Iterator[str]:
        """Half a record is in a file only if the program that appends it was told that this has failed.

        The kernel sends an append to a page that it has not read as two writes. Between them, another program's close
        may hand over the first one.
        """
        for name, half in {(each.name, half) for each in self._history.states for half in _halves_in(each.records)}:
            appends = (each for each in self._history.events if each.action == "append" and each.name == name)
            if not any(f"{each.who}.{each.number}".startswith(half) and each.error is not None for each in appends):
                yield f"{name}: half of {half} is at the source, and no program was told that its append has failed"

    def _is_rewritten(self, event: Event) -> bool:
        """Return whether another program writes the file in place meanwhile: it shows what was written so far."""
        return event.action == "read" and any(
            other.name == event.name and other.action in ("rewrite", "redirect", "backup") and _overlap(other, event)
            for other in self._history.events
        )

    def _position(self, name: str, records: Records | None, until: float) -> int | None:
        """Return the position of the last state with these records that began until then."""
        states = self._states[name]
        for position in reversed(range(len(states))):
            if states[position].records == records and states[position].at <= until:
                return position
        return None

    # -- changes -----------------------------------------------------------------------------------------------------

    def _during(self, name: str, event: Event) -> Iterator[State]:
        """Yield the states that a file had while an event lasted."""
        states = self._states[name]
        for position, state in enumerate(states):
            ended = states[position + 1].at if position + 1 < len(states) else float("inf")
            if state.at <= event.ended + _MOMENT and ended >= event.began - _MOMENT:
                yield state

    def _acknowledged(self, event: Event) -> Iterator[str]:
        """What a call has acknowledged, the source has."""
        during = list(self._during(event.name, event))
        match event.action:
            case "append":
                if not any(is_within(event.wrote or (), state.records or ()) for state in during):
                    yield f"{event}: acknowledged, and not at the source by then"
            case "rewrite" | "redirect" | "replace" | "backup":
                if not any(event.wrote == state.records for state in during):
                    yield f"{event}: acknowledged, and not at the source by then"
            case "remove":
                if not any(state.records is None for state in during):
                    yield f"{event}: acknowledged, and the source has it still"
            case "move":
                if not any(state.records is None for state in during):
                    yield f"{event}: acknowledged, and the source has the old name still"
                if not any(state.records is not None for state in self._during(event.to, event)):
                    yield f"{event}: acknowledged, and the source has not the new name"
            case _:
                pass

    def _stored(self, name: str, records: Records) -> bool:
        """Return whether the source has had these records, or they are pending."""
        states = any(is_within(records, state.records or ()) for state in self._states[name])
        return states or any(is_within(records, item.records or ()) for item in self._pending[name])

    def _refused(self, event: Event) -> Iterator[str]:
        """What a close has refused is pending, or at the source all the same."""
        if event.error == "ENOENT" and event.stage in _CREATES and not event.interrupted:
            yield f"{event}: ENOENT at {event.stage}, which makes the file if there is none"
        if event.wrote is None or event.interrupted:
            return
        if event.stage in _CLOSES and not self._stored(event.name, event.wrote):
            if event.action != "replace":  # of which the program has the temporary file
                yield f"{event}: {event.error} at {event.stage}, and its bytes are not pending"
        elif event.stage == "rename" and not event.held and not self._stored(event.name, event.wrote):
            yield f"{event}: {event.error} at {event.stage}, and its bytes are neither beside it nor pending"

    def _asked(self) -> Iterator[str]:
        """What the source was asked to store is on disk before, and stays so until it is stored or the program told."""
        told = {(event.name, event.wrote) for event in self._history.events if event.held and event.wrote}
        for asked in self._history.asked:
            if (asked.name, asked.records) in told or self._stored(asked.name, asked.records):
                continue
            moves = (each for each in self._history.events if each.action == "move" and each.to == asked.name)
            if any(self._has_meanwhile(move, asked) for move in moves):
                continue
            yield f"{asked.name}: asked to store {asked.records[-2:]} at {asked.at:.3f}: neither stored nor pending"

    def _has_meanwhile(self, move: Event, asked: Asked) -> bool:
        """Return whether the old name has what a move asks the source to store under the new one, as a copy."""
        states = self._during(move.name, move)
        return move.began <= asked.at and any(state.records == asked.records for state in states)

    def lost(self) -> Iterator[str]:
        """Nothing is ever lost in a ledger."""
        for states in self._states.values():
            yield from self._lost(states)

    def _lost(self, states: Sequence[State]) -> Iterator[str]:
        """In a ledger, each state has the records of the one before."""
        if not states or states[0].name not in self._history.ledgers:
            return
        for before, after in itertools.pairwise(states):
            lost = _whole(before.records) - _whole(after.records) - self._refused_and_kept(before.name)
            if lost and not self._is_late(states, after):
                yield (
                    f"{after.name}: the state of {after.at:.3f} by the {after.by}, {(after.records or ())[-2:]}, "
                    f"lacks {sorted(lost)} of the one before, by the {before.by} at {before.at:.3f}"
                )

    def _refused_and_kept(self, name: str) -> set[str]:
        """Return the records of saves that programs were told to have failed, and that are pending.

        The source may have stored them all the same. A later save of the mount may replace them then.
        """
        kept = {each for item in self._pending[name] for each in item.records or ()}
        return self._refused_records & kept

    def _unseen(self, states: Sequence[State]) -> Iterator[str]:
        """The mount replaces or removes only states that the source has told it of."""
        if not self._history.sees:
            return
        for position, (before, after) in enumerate(itertools.pairwise(states)):
            if before.by == "mount" or after.by != "mount" or before.records is None:
                continue
            if not self._was_seen(before.name, position, after.at) and not self._is_late(states, after):
                yield (
                    f"{after.name}: the mount replaced at {after.at:.3f} the state of {before.at:.3f} by the stranger, "
                    f"{before.records[-2:]}, which it has never seen, by {(after.records or ('nothing',))[-2:]}"
                )

    def _was_seen(self, name: str, position: int, until: float) -> bool:
        return any(each.name == name and each.position == position and each.at <= until for each in self._history.seen)

    def _is_late(self, states: Sequence[State], after: State) -> bool:
        """Return whether the stranger changed a file between a comparison by the mount and the request that followed.

        The comparison is a look at the file by the source's journal while the step lasts that has led to the request.
        """
        before = states[states.index(after) - 1]
        if before.by == "mount" or after.by != "mount" or after.how not in self._history.late:
            return False
        steps = [
            each
            for each in self._history.events
            if after.name in (each.name, each.to) and each.action != "read" and each.began < before.at
        ]
        looks = [each.at for each in self._history.seen if each.name == after.name and each.at < before.at]
        return any(each.began <= look <= each.ended for each in steps for look in looks)

    # -- reads -------------------------------------------------------------------------------------------------------

    def _reads(self) -> Iterator[str]:
        """A program reads no older state than another program has had or written before.

        The next mount after a kill may not have what another client wrote and a program has read, but has what the
        mount itself has written.
        """
        least: dict[str, list[tuple[float, int, Event]]] = defaultdict(list)
        events = sorted(self._history.events, key=lambda each: each.ended)
        for event in events:
            for name, position in self._had(event):
                least[name].append((event.ended, position, event))
        for event in events:
            if event.action == "read" and (event.read is not None or event.error == "ENOENT") and not event.interrupted:
                yield from self._stale(event, least[event.name])

    def _had(self, event: Event) -> Iterator[tuple[str, int]]:
        """Yield the positions of states that programs know after an event."""
        if event.interrupted or event.torn is not None:
            return
        if event.action == "read" and event.read is not None:
            if event.read and event.read[-1] in self._refused_records:
                return  # a draft that no source has acknowledged: its file shows what the source has after its close
            found = [
                position
                for position, state in enumerate(self._states[event.name])
                if state.records == event.read and state.at <= event.ended
            ]
            if found:
                yield event.name, found[0]
        elif event.error is None and event.wrote is not None:
            for position, state in enumerate(self._states[event.name]):
                if state.at >= event.began - _MOMENT and is_within(event.wrote, state.records or ()):
                    yield event.name, position
                    return

    def _stale(self, event: Event, least: Sequence[tuple[float, int, Event]]) -> Iterator[str]:
        states, killed = (
            self._states[event.name],
            max((at for at in self._history.kills if at < event.began), default=0),
        )
        known = [
            (position, str(who))
            for at, position, who in least
            if at < event.began and (who.action != "read" or at > killed)
        ]
        bound, who = max(known, default=(-1, ""))
        position = self._position(event.name, event.read, event.ended + _MOMENT)
        if position is None or position < bound:
            if self._is_being_written(event):
                return
            shown = "absent" if event.read is None else event.read[-2:]
            if position is None:
                if event.read is not None or (states and states[0].at < event.began):
                    yield f"{event}: read {shown}, which the source never had by then"
            else:
                yield f"{event}: read {shown}, the state {position}; the state {bound} was had by {who}"

    def _is_being_written(self, event: Event) -> bool:
        """Return whether programs were changing the file then, so that it shows what they have written so far."""
        for other in self._history.events:
            if not _overlap(other, event) or event.name not in (other.name, other.to):
                continue
            if other.action in ("move", "remove", "backup") and event.read is None:
                return True
            if other.wrote is not None and (event.read in ((), None) or is_within(other.wrote, event.read or ())):
                return True
            if other.stage == "write" and not event.read:  # it has emptied the file, and not written any more
                return True
            if other.action == "move":
                return True
        return False

    def last(self) -> Iterator[str]:
        """When all is quiet, the mount shows what the source has."""
        for name, records in self._history.last.items():
            states = self._states[name]
            has = states[-1].records if states else None
            if has != records:
                yield f"{name}: at the end the source has {_shown(has)}, the mount {_shown(records)}"


def _halves_in(records: Records | None) -> Iterator[str]:
    """Yield the names of records that have no end, as far as they are there."""
    return (each.removeprefix(HALF) for each in records or () if each.startswith(HALF))


def _whole(records: Records | None) -> set[str]:
    return {each for each in records or () if not each.startswith(HALF)}


def _shown(records: Iterable[str] | None) -> str:
    return "nothing" if records is None else str(tuple(records)[-3:])


def _overlap(one: Event, other: Event) -> bool:
    return one.began <= other.ended and other.began <= one.ended
