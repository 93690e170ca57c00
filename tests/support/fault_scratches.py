"""A round of faults in a scratch: programs write over a store, and what they wrote is applied and discarded.

Meanwhile a stranger changes the store, requests fail, and the command, the daemon, the store or the process that keeps
the scratch are killed. The oracle: each change is in the store, or still in the scratch with a reason, and nothing of
the stranger is replaced without a conflict.
"""

import itertools
import os
import random
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fault_contents import CODECS, Records, Torn, names_in
from fault_oracle import Event, History, State, scratch_problems
from fault_plans import Plan
from fault_rounds import BOUND, Round, wait_for
from forked_daemon import ForkedDaemon, start
from harness import config_text

from bbfs.fuse import mountpoint

SCRATCH = "scratch"
"""The kind of such a round."""
_KILLED = ("apply", "apply", "daemon", "keeper", "source")
_CHANGES = {"append", "rewrite", "redirect", "replace", "backup", "remove", "move"}
_SHOWN = 2.0
"""Seconds for which a listing of the source may be shown on a busy machine."""
_UNKNOWN = "the version that the scratch has changed is not known"
"""Why a file is a conflict that a source had removed and has made again."""
_MOST = 20
"""Commands of a round at most."""
_MOMENT = 0.02
Upper = Mapping[str, Records | None]
"""What a scratch has of files, by name. None: it hides the one of the source."""


@dataclass(frozen=True)
class Applied:
    """One run of `bbfs apply`, or of `bbfs discard`. before, after: what the scratch had. said: both outputs."""

    what: str
    began: float
    ended: float
    before: Upper
    after: Upper
    said: str
    status: int

    @property
    def has_failed_whole(self) -> bool:
        """Return whether the command has ended with one reason for all."""
        return self.status != 0 and len(self.said.splitlines()) == 1

    def __str__(self) -> str:
        return f"{self.what} [{self.began:.3f} … {self.ended:.3f}]"


class ScratchRound(Round):
    """A plan under way in a scratch over WebDAV or S3."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        super().__init__(("webdav", "s3")[plan.seed % 2], plan, directory)
        self._chance = random.Random(plan.seed)
        self.path, self._scratch = self._home.home / "mnt", self._home.home / "scratch"
        self._config = self._home.home / "config.toml"
        self._config.write_text(config_text([self.source.table()], {}))
        self._log = (self._home.home / "log").open("w+b")
        self.applied: list[Applied] = []
        self.forced_since = float("inf")

    # -- the mount ---------------------------------------------------------------------------------------------------

    def _mount(self) -> None:
        """Mount the scratch, and wait until the overlay is there."""
        words = ["mount", str(self.path), "--config", str(self._config), "--scratch", str(self._scratch)]
        self._keeper = start(words, self._home.environ(), self._log.fileno())
        wait_for(lambda: self._is_mounted() or self._keeper.poll() is not None, "the overlay")
        assert self._keeper.poll() is None, self.log()

    def _is_mounted(self) -> bool:
        mount = mountpoint.mount_at(str(self.path))
        return mount is not None and mount.type == "overlay"

    def _umount(self) -> None:
        done = self.bbfs("umount", str(self.path))
        assert done.status == 0, done.out
        wait_for(lambda: self._home.processes() == [], "the end of the processes of the scratch")

    @property
    def sources_at(self) -> str:
        return str(self._scratch / "lower")

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def close(self) -> None:
        """End the mount and the source."""
        try:
            if mountpoint.mount_at(str(self.path)) is not None:
                self._umount()
        finally:
            self._log.close()
            super().close()

    # -- what the scratch has ----------------------------------------------------------------------------------------

    def upper(self) -> Upper:
        """Return what the scratch has, from its directory. A removal of what the source lacks is no change."""
        found: dict[str, Records | None] = {}
        there = {state.name: state.records is not None for state in self.source.states()}
        with suppress(FileNotFoundError), os.scandir(self._scratch / "upper" / self.source.directory) as entries:
            for entry in entries:
                if not stat.S_ISCHR(entry.stat(follow_symlinks=False).st_mode):
                    found[entry.name] = self._records(Path(entry.path))
                elif there.get(entry.name):
                    found[entry.name] = None
        return found

    def _records(self, path: Path) -> Records:
        try:
            return names_in(CODECS[self.source.codec], path.read_bytes(), path.name)
        except Torn as torn:
            return (f"torn: {torn}",)

    # -- what becomes of it ------------------------------------------------------------------------------------------

    def _settle(self, *words: str, kill: tuple[int, str] | None = None) -> Applied:
        """Run a command that changes the scratch. kill: after how many changes of the source what is killed."""
        before, began = self.upper(), time.monotonic()
        with (self._home.home / "said").open("w+b") as said:
            command = start([*words, str(self.path), "--yes"], self._home.environ(), said.fileno())
            if kill is not None:
                at = self.source.changes() + kill[0]
                wait_for(lambda: command.poll() is not None or self.source.changes() >= at, "the end of the command")
                self._kill_one(kill[1], command)
            status = command.wait(BOUND)
            said.seek(0)
            told = said.read().decode()
        ended = time.monotonic()
        if kill is not None and kill[1] in ("daemon", "keeper"):
            self._umount()
            self._mount()
        name = " ".join(words) + (f" with a kill of {kill[1]}" if kill else "")
        self.applied.append(Applied(name, began, ended, before, self.upper(), told, status))
        return self.applied[-1]

    def _kill_one(self, what: str, command: ForkedDaemon) -> None:
        self.notes.append(f"{time.monotonic():.3f} {what} killed")
        match what:
            case "source":
                self._kill("source")
            case "apply":
                command.kill()
            case "keeper":
                self._keeper.kill()
            case _:
                (daemon,) = Path(f"/proc/{self._keeper.pid}/task/{self._keeper.pid}/children").read_text().split()
                os.kill(int(daemon), 9)

    def play(self) -> History:
        """Run all programs to their end, apply what they wrote, and drop or force what is left."""
        self._mount()
        half = len(self.plan.stranger) // 2
        programs = self._programs("main", self.plan.as_json())
        self._strange(range(half))
        said = programs.communicate(timeout=BOUND)[1]
        assert programs.returncode == 0, said
        stranger = threading.Thread(target=self._strange, args=(range(half, len(self.plan.stranger)),))
        stranger.start()
        kills = [(self._chance.randrange(0, 7), self._chance.choice(_KILLED)) for _ in range(2)]
        for kill in kills[: self._chance.randrange(3)]:
            self._settle("apply", kill=kill)
        self._settle("apply")
        stranger.join()
        self.source.quiet()
        time.sleep(0.2)  # for what a server has accepted
        while self._settle("apply").has_failed_whole and len(self.applied) < _MOST:
            time.sleep(0.2)  # the daemon asks a source that was down again after a while
        self.forced_since = time.monotonic()
        self._settle(*(("apply", "--overwrite") if self._chance.random() < 0.5 else ("discard",)))
        last = self._last()
        events = self._events("main")
        return History(
            self.source.states(), events, ledgers=self.plan.ledgers, seen=list(self.source.seen()), last=last,
            late=self.source.late,
        )  # fmt: skip

    def more(self) -> list[str]:
        lines: list[str] = []
        for each in self.applied:
            lines.append(f"{each.began:.3f} {each} {_shown(each.before)}")
            lines.append(f"{each.ended:.3f} {each} ended {each.status}: {_shown(each.after)} {each.said!r}")
        return lines

    def problems(self, history: History) -> list[str]:
        """Return what must not be, one sentence each."""
        return [
            *scratch_problems(history, self.forced_since),
            *_programs_lost(self.applied[0], history),
            *(each for applied in self.applied for each in _settled(applied, history.states)),
            *_left(self.applied[-2], self.applied[-1], history),
            *_overwritten(history, self.applied[0].began, self.forced_since),
        ]


def _programs_lost(first: Applied, history: History) -> Iterator[str]:
    """The scratch has each record that a program has added to a ledger."""
    for event in history.events:
        if event.error is not None or not event.wrote or event.name not in history.ledgers:
            continue
        if event.wrote[-1] not in (first.before.get(event.name) or ()):
            yield f"{event}: acknowledged, and the scratch has {first.before.get(event.name)}"


def _is_named(name: str, said: str) -> bool:
    """Return whether a message is about a file, or about one that was renamed from or to its name."""
    return f"/{name}: " in said or f"/{name} -> " in said


def _had(name: str, applied: Applied, states: Sequence[State]) -> list[State]:
    """Return the states that a file had while a command ran, and those that an earlier one had stored.

    A command that was killed may have stored a change that is still in the scratch. The next one tells so by the
    journal of the scratch, and drops the change, whatever a stranger has made of the file meanwhile.
    """
    of_name = [state for state in states if state.name == name]
    earlier = [state for state in of_name if state.at < applied.began]
    stored = [state for state in earlier if state.by == "mount"]
    return stored + earlier[-1:] + [state for state in of_name if applied.began <= state.at <= applied.ended + _MOMENT]


def _settled(applied: Applied, states: Sequence[State]) -> Iterator[str]:
    """What leaves the scratch, the source has had; what stays there is unchanged, with a reason."""
    is_discarded = applied.what == "discard"
    for state in states if is_discarded else ():
        if state.by == "mount" and applied.began < state.at <= applied.ended:
            yield f"{applied}: it has changed {state.name} at the source, to {state.records}"
    for name, records in applied.before.items():
        if name not in applied.after:
            had = [state.records for state in _had(name, applied, states)] or [None]
            # A removal counts as long as the source has the name: it may have taken it, and say so later.
            is_late = records is None and any(
                state.name == name and state.records is None and state.at > applied.began for state in states
            )
            if not is_discarded and records not in had and not is_late:
                yield f"{applied}: {name} has left the scratch with {records}, and the source has not had it"
        elif applied.after[name] != records:
            yield f"{applied}: {name} was {records} in the scratch, and is {applied.after[name]}"
        elif records is None and any(
            state.name == name and state.records is None and applied.began - _SHOWN < state.at < applied.ended
            for state in states
        ):
            continue  # by a listing from then, the source lacks the name already
        elif "kill" not in applied.what and not _is_named(name, applied.said) and not applied.has_failed_whole:
            yield f"{applied}: {name} is still in the scratch, without a reason: {applied.said!r}"
    # A removal that a kill has left in the scratch counts again once a stranger has made the name again.
    for name in {name for name, records in applied.after.items() if records is not None} - {*applied.before}:
        yield f"{applied}: the scratch has {name}, which it had not"


def _left(quiet: Applied, last: Applied, history: History) -> Iterator[str]:
    """When all is quiet only conflicts are left, and nothing after them."""
    if quiet.has_failed_whole:
        yield f"{quiet}: {quiet.said!r}"
    for line in quiet.said.splitlines():
        name = line.partition(": the ")[0].rpartition("/")[2]
        strange = [state for state in history.states if state.name == name and state.by == "stranger"]
        is_known = "the source has" in line or (_UNKNOWN in line and len(strange) > 1)
        if line.startswith("bbfs: not applied: ") and not is_known:
            yield f"{quiet}: {line}"
    if last.after or last.status:
        yield f"{last}: left in the scratch: {sorted(last.after)}; {last.said!r}"


def _overwritten(history: History, began: float, until: float) -> Iterator[str]:
    """No command replaces what a stranger has made after a program had hidden it."""
    hidden = _hidden_since(history.events)
    by_name: dict[str, list[State]] = {}
    for state in history.states:
        by_name.setdefault(state.name, []).append(state)
    for name, states in by_name.items():
        for before, after in itertools.pairwise(states):
            if before.by == "mount" or after.by != "mount" or not began <= after.at <= until:
                continue
            since = hidden.get(name, float("inf"))
            makes = before.records is None and _was_absent(states, since)  # what is not there, by what the scratch knew
            if before.at > since and not makes:
                yield (
                    f"{name}: at {after.at:.3f} apply replaced the state of {before.at:.3f} by the stranger, "
                    f"{(before.records or ('nothing',))[-2:]}, by {(after.records or ('nothing',))[-2:]}"
                )


def _was_absent(states: Sequence[State], at: float) -> bool:
    """Return whether a listing that may be shown then lacks a file. states: of this file."""
    earlier = [state for state in states if state.at <= at]
    shown = earlier[-1:] + [state for state, after in itertools.pairwise(earlier) if after.at > at - _SHOWN]
    return not shown or any(state.records is None for state in shown)


def _hidden_since(events: Sequence[Event]) -> dict[str, float]:
    """Return since when the scratch hides the file of the source at least, by name."""
    found: dict[str, float] = {}
    gone: set[str] = set()
    """Names whose files may have been in the scratch alone: nothing is hidden any more."""
    for event in sorted(events, key=lambda each: each.ended):
        if event.error is not None or event.action not in _CHANGES:
            continue
        if event.action in ("remove", "move"):
            found[event.name] = event.ended
            gone.add(event.name)
        if event.action != "remove":
            name = event.to or event.name
            found[name] = event.ended if name in gone else found.get(name, event.ended)
            gone.discard(name)
    return found


def _shown(upper: Upper) -> str:
    return " ".join(f"{name}={'-' if records is None else ','.join(records[-3:])}" for name, records in upper.items())
