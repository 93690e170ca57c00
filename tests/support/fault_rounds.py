"""One round of a model of writing with faults: programs on a mount, a stranger, kills, and what they leave."""

import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from fault_contents import CODECS, Torn, names_in
from fault_oracle import Event, History, Pending, folder_problems, problems
from fault_plans import Plan
from fault_retries import Attempt, Done, Kept, attempts, retry_problems
from fault_sources import KINDS
from forked_daemon import start
from harness import Mounts, State

from bbfs.cli.operands.control_client import ask_now
from bbfs.resources.commands.table import Refresh
from bbfs.resources.writing.pending import PendingStore

_SCRIPT = Path(__file__).with_name("fault_programs.py")
BOUND = 90
"""Seconds for all programs of a round."""
_SETTLES = 4.0
"""Seconds in which a mount notices that its source is there again."""
_DOWN = 0.2
"""Seconds that a source or a daemon is away."""
_UNEXPECTED = r"^(?!.*(Traceback|unforeseen|Error\())"


def wait_for(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds. Raise AssertionError if it does not for as long as a round may last."""
    deadline = time.monotonic() + BOUND
    while not holds():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.005)


class Round:
    """One plan under way. directory: for everything that it needs, beside the mount."""

    def __init__(self, kind: str, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.source = KINDS[kind](plan, directory)
        self._directory = directory
        self._state = directory / "state"
        self._state.write_bytes(b"\0")
        (directory / "locks").mkdir()
        self._home = State(Path(tempfile.mkdtemp(prefix="bbfs-faults-")))
        self.path = self._home.home / "mnt"
        self._mounts = Mounts()
        self.told: list[dict[str, Any]] = []
        self.attempts: list[Attempt] = []
        self.notes: list[str] = []
        self._killed: list[float] = []

    def close(self) -> None:
        """End the mount and the source. Raise ExceptionGroup for what the mount leaves behind."""
        try:
            self._mounts.close()
        finally:
            self.source.close()
            shutil.rmtree(self._home.home, ignore_errors=True)

    # -- the mount ---------------------------------------------------------------------------------------------------

    @property
    def sources_at(self) -> str:
        """Return where the daemon has its mount."""
        return str(self.path)

    def log(self) -> str:
        """Return the log of the daemon."""
        return self._mounted.log()

    def _mount(self) -> None:
        self._mounted = self._mounts(
            self.source.table(), state=self._home, mount_point=self.path, expected=[_UNEXPECTED]
        )

    def _kill(self, what: str) -> None:
        """Kill the daemon or the source, and start it again."""
        self.notes.append(f"{time.monotonic():.3f} {what} killed")
        if what == "source":
            self.source.kill()
            time.sleep(_DOWN)
            self.source.start()
            return
        self._generation(1)
        self._killed.append(time.monotonic())
        self._mounted.kill()
        self._mount()
        self._generation(1)
        self.notes.append(f"{time.monotonic():.3f} {what} is back")

    def _generation(self, more: int) -> None:
        with self._state.open("r+b", buffering=0) as file:
            number = file.read(1)[0]
            file.seek(0)
            file.write(bytes([number + more]))

    # -- the programs ------------------------------------------------------------------------------------------------

    def _programs(self, name: str, programs: dict[str, Any]) -> "subprocess.Popen[str]":
        log = self._directory / f"log-{name}"
        log.mkdir()
        given = {
            "programs": programs,
            "directory": str(self.path / self.source.directory),
            "codec": self.source.codec,
            "locks": str(self._directory / "locks"),
            "log": str(log),
            "state": str(self._state),
            "bound": BOUND,
        }
        file = self._directory / f"{name}.json"
        file.write_text(json.dumps(given))
        line = [sys.executable, "-S", "-E", str(_SCRIPT), str(file)]
        return subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def _events(self, name: str) -> list[Event]:
        told = [
            json.loads(line)
            for file in (self._directory / f"log-{name}").iterdir()
            for line in file.read_text().splitlines()
        ]
        self.told += told
        return [Event.of(each) for each in told]

    def _strange(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            time.sleep(self.plan.stranger[number].pause)
            self.source.strange(number, self.plan.stranger[number])

    def play(self) -> History:
        """Run all programs to their end, and return what came of it."""
        self._mount()
        programs = self._programs("main", self.plan.as_json())
        stranger = threading.Thread(target=self._strange, args=(range(len(self.plan.stranger)),))
        stranger.start()
        kills = list(self.plan.kills)
        deadline = time.monotonic() + BOUND
        while programs.poll() is None:
            assert time.monotonic() < deadline, "the programs did not end"
            if kills and self.source.changes() >= kills[0][0]:
                self._kill(kills.pop(0)[1])
            time.sleep(0.005)
        stranger.join()
        said = programs.communicate()[1]
        assert programs.returncode == 0, said
        self.source.quiet()
        time.sleep(0.2)  # for what a server has accepted
        events = [*self._events("main"), *self.source.events]
        last = self._last()
        return History(
            self.source.states(),
            events,
            [Pending(item.name, item.records, item.error) for item in self._kept()],
            self.plan.ledgers,
            list(self.source.seen()),
            list(self.source.asked()),
            last,
            self.source.sees,
            self.source.late,
            self._killed,
        )

    def _last(self) -> dict[str, Any]:
        """Return what the mount shows of each file when all is quiet: at once, or in some seconds."""
        deadline = time.monotonic() + _SETTLES
        for number in itertools.count():
            if number:
                time.sleep(0.2)
            list(ask_now(self.sources_at, Refresh(("",))))
            found = self._shown(f"last-{number}")
            has = {state.name: state.records for state in self.source.states()}
            if time.monotonic() > deadline or all(has.get(name) == found[name] for name in found):
                return found
        raise AssertionError

    def _shown(self, name: str) -> dict[str, Any]:
        steps = [{"action": "read", "name": each, "pause": 0, "locks": []} for each in self.plan.uses]
        programs = self._programs(name, {"z": steps})
        said = programs.communicate(timeout=BOUND)[1]
        assert programs.returncode == 0, said
        return {
            event.name: event.read if event.error is None else None if event.error == "ENOENT" else (event.error,)
            for event in self._events(name)
        }

    # -- what is pending ---------------------------------------------------------------------------------------------

    def bbfs(self, *words: str) -> Done:
        """Run a command of bbfs to its end."""
        with tempfile.TemporaryFile() as said:
            environ = self._home.environ() | {"BBFS_MOUNT": str(self.path)}
            status = start(words, environ, said.fileno()).wait(BOUND)
            said.seek(0)
            return Done(status, said.read())

    def _kept(self) -> list[Kept]:
        """Return what is pending, the oldest first."""
        codec = CODECS[self.source.codec]
        store = PendingStore(self._home.home / ".local/state/bbfs/pending")
        found: list[Kept] = []
        for item in store.items():
            name = item.path[-1] if item.path else item.native_uri.rpartition("/")[2]
            try:
                records = names_in(codec, store.content_path(item).read_bytes(), name)
            except Torn:
                records = None
            found.append(Kept(item.id, name, records, item.error))
        return found

    def more(self) -> list[str]:
        """Return more of what happened, as lines that begin with a time."""
        return []

    def problems(self, history: History) -> list[str]:
        """Return what must not be, one sentence each."""
        if not self.source.is_journal:
            return folder_problems(history, self.source.appended)
        return [*problems(history), *self._retried(history)]

    def _retried(self, history: History) -> list[str]:
        """Hand over what is pending again, and return what must not be."""
        self.attempts = [*attempts(self.bbfs, self._kept, CODECS[self.source.codec])]
        if not self.attempts:
            return []
        deadline, last = time.monotonic() + _SETTLES, self._shown("retried")
        while ("ETIMEDOUT",) in last.values() and time.monotonic() < deadline:  # a busy machine took more than a second
            last = self._shown(f"retried-{time.monotonic()}")
        return [*retry_problems(self.attempts, self.source.states(), history.events, last)]


def play(made: Callable[[Path], Round]) -> tuple[list[str], str]:
    """Play a round. Return its problems, and a report with all that happened. made: makes it in a directory."""
    with tempfile.TemporaryDirectory(prefix="bbfs-round-") as directory:
        with closing(made(Path(directory))) as played:
            history = played.play()
            found = played.problems(history)
            return found, report(played, history)


def report(played: Round, history: History) -> str:
    """Return all that happened in a round, in the order of time."""
    lines = [(state.at, f"STATE   {state.name} by {state.by}: {_short(state.records)}") for state in history.states]
    lines += [(asked.at, f"asked   {asked.name}: {_short(asked.records)}") for asked in history.asked]
    for event in history.events:
        lines.append((event.began, f"begin   {event}"))
        got = event.torn or (f"{event.error} at {event.stage}" if event.error else "ok")
        more = f"{_short(event.read)} {_short(event.wrote)}{' interrupted' if event.interrupted else ''}"
        lines.append((event.ended, f"end     {event}: {got} {more}"))
    for line in (*played.source.met(), *played.notes, *played.more()):
        at, _, text = line.partition(" ")
        lines.append((float(at), f"source  {text}"))
    told = [f"{at:.3f} {text}" for at, text in sorted(lines)]
    told += [f"pending {item.name}: {_short(item.records)} {item.error}" for item in history.pending]
    told += [f"last    {name}: {_short(records)}" for name, records in history.last.items()]
    told += [f"retry   {each}: {each.after and each.after.error} {each.said}" for each in played.attempts]
    return "\n".join([*told, "--- the log of the daemon:", played.log()])


def _short(records: Any) -> str:
    return "-" if records is None else f"{len(records)}:{','.join(records[-3:])}"
