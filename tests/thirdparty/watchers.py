"""Programs of others watch a mount whose sources change (S43): `python watchers.py [--seconds N]` (`make watchers`).

Four sources change: a folder, a SQLite database, an MCP server over stdio and one over HTTP. First inotifywait watches
alone, which asks for nothing: what is loaded then is loaded for an event. Then chokidar, the watcher of VS Code and
that of uvicorn watch too, an editor holds files and loads each of their versions, and ripgrep lists and searches all
the time. At last the sources change 10 000 times a minute. It prints what came, and exits with 1 if an event is missing
or is of nothing that has changed.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from changing import Database, Folder, Http, Source, Stdio
from harness import TOUCHER, Mount, Mounts
from programs import Program, children_of, run

ROOT = Path(__file__).parents[2]
NAMES = [f"note-{number}" for number in range(10)]
WORD = "needle"
PER_MINUTE = 10_000
NAMED = 4
"""Steps of which a server announces that its list has changed: each may be one listing."""
BOUND = 30.0
"""Seconds until an event has to be there, or a program has to end."""
SETTLED = 1.5
"""Seconds after which no event comes that nothing has caused, and none twice."""
WORDS = {
    "add": "CREATE", "change": "MODIFY", "unlink": "DELETE",
    "create": "CREATE", "update": "MODIFY", "delete": "DELETE",
    "added": "CREATE", "modified": "MODIFY", "deleted": "DELETE",
}  # fmt: skip
"""What programs say: chokidar, @parcel/watcher (which VS Code has), watchfiles (which uvicorn has)."""
CHOKIDAR = """
import { pathToFileURL } from 'node:url';
const [, module, ...places] = process.argv;
const { watch } = await import(pathToFileURL(module));
watch(places, { ignoreInitial: true, atomic: false })
    .on('all', (event, path) => console.log(event, path)).on('ready', () => console.log('watching'));
"""
PARCEL = """
import { pathToFileURL } from 'node:url';
const [, module, ...places] = process.argv;
const { default: watcher } = await import(pathToFileURL(module));
for (const place of places)
    await watcher.subscribe(place, (error, events) => events.forEach(({ type, path }) => console.log(type, path)));
console.log('watching');
"""
WATCHFILES = """
import sys, watchfiles
first = True
for changes in watchfiles.watch(*sys.argv[1:], debounce=50, rust_timeout=100, yield_on_timeout=True):
    if first:
        print("watching", flush=True)
        first = False
    for change, path in sorted(changes):
        print(change.raw_str(), path, flush=True)
"""
Event = tuple[str, Path]


class Watcher:
    """A program that watches, and what it was told. files: those that it holds and loads; without, all are watched."""

    def __init__(self, name: str, *command: str | Path, files: Sequence[Path] = ()) -> None:
        self.name, self._files = name, files
        self.told: list[tuple[float, Event]] = []
        self.loaded: dict[Path, str] = {}
        self.expected = self.came = 0
        self.slowest = 0.0
        self._watches = threading.Event()
        self.program = Program("sh", "-c", 'exec "$@" 2>&1', "sh", *command, *files)
        threading.Thread(target=self._read, daemon=True).start()
        if not self._watches.wait(BOUND):
            raise SystemExit(f"{name} does not watch")

    def _read(self) -> None:
        assert self.program.process.stdout is not None
        for line in map(bytes.decode, self.program.process.stdout):
            word, _, path = line.strip().partition(" ")
            event = WORDS.get(word, word), Path(path)
            if line in ("watching\n", "Watches established.\n"):
                self._watches.set()
            elif self._watches.is_set() and word != "ATTRIB":
                if self._files:
                    self.loaded[event[1]] = run("cat", path, timeout=BOUND).text
                self.told.append((time.monotonic(), event))

    def due(self, events: Sequence[Event]) -> Counter[Event]:
        """Return what this program is to be told of the events."""
        return Counter(event for event in events if not self._files or event[1] in self._files)

    def lacks(self, events: Sequence[Event]) -> Counter[Event]:
        return self.due(events) - Counter(event for _, event in self.told)

    def settle(self, events: Sequence[Event], began: float) -> list[str]:
        """Forget what was told. Return what is missing, and what was told of nothing."""
        due, told = self.due(events), Counter(event for _, event in self.told)
        self.expected += due.total()
        self.came += (due & told).total()
        self.slowest = max([self.slowest, *(at - began for at, event in self.told if event in due)])
        self.told.clear()
        wrong = [("lacks", due - told), ("was told too of", told - due)]
        return [
            f"{self.name} {what} {' '.join(map(str, event))}" for what, found in wrong for event in found.elements()
        ]


class Search(threading.Thread):
    """Lists and searches as an editor does, until it is ended."""

    def __init__(self, places: Sequence[Path]) -> None:
        super().__init__(daemon=True)
        self._places, self._ended = places, threading.Event()
        self.rounds, self.problems = 0, list[str]()
        self.start()

    def run(self) -> None:
        while not self._ended.wait(0.2):
            for options in (["--files"], ["--line-number", WORD]):
                said = run("rg", *options, *self._places, timeout=BOUND, status=None).err.decode().splitlines()
                self.problems += [f"rg: {line}" for line in said if "No such file" not in line]  # gone meanwhile
            self.rounds += 1

    def end(self) -> None:
        self._ended.set()
        self.join(2 * BOUND)


class Trial:
    """One mount of the sources, the programs that watch it, and what was wrong."""

    def __init__(self, mount: Mount, sources: Sequence[Source]) -> None:
        self.mount, self.sources = mount, sources
        self.places = [mount / source.place for source in sources]
        self.watchers: list[Watcher] = []
        self.problems: list[str] = []

    def path(self, source: Source, name: str) -> Path:
        return self.mount / source.place / (name + source.ending)

    def status(self) -> dict[str, Any]:
        return json.loads(self.mount.bbfs("status", "--json", self.mount.path).out)[0]

    def asked(self) -> dict[str, tuple[int, int]]:
        """Return how many contents were loaded, and how often the source was listed, of those that need no look."""
        loads = {each["id"]: sum(each["loads_from"].values()) for each in self.status()["sources"]}
        return {each.name: (loads[each.name], each.lists()) for each in self.sources if not isinstance(each, Database)}

    def step(self, *changes: tuple[str, str | None]) -> None:
        """Make these changes in each source, and compare the events."""
        began, due = time.monotonic(), list[Event]()
        for source in self.sources:
            events = [(source.change(name, text), name) for name, text in changes]
            due += [(word, self.path(source, name)) for word, name in events]
            source.announce(*events[0])
        while any(each.lacks(due) for each in self.watchers) and time.monotonic() < began + BOUND:
            time.sleep(0.3)
            place = next(self.mount / source.place for source in self.sources if isinstance(source, Database))
            run("sh", "-c", 'ls -l "$1"; cat "$1"/*', "sh", place, timeout=BOUND, status=None)
        time.sleep(SETTLED)
        self.problems += [line for each in self.watchers for line in each.settle(due, began)]

    def steps(self) -> None:
        """Change contents thrice, make a file, rename one and remove one."""
        for text in ("changed", "changed again", f"changed {WORD}"):
            self.step((NAMES[0], text))
        self.step(("new", f"new {WORD}"))
        self.step((NAMES[1], None), ("moved", "plain"))
        self.step(("new", None))
        self.step(("moved", None), (NAMES[1], "plain"))

    def alone(self) -> str:
        """Watch by inotifywait, which asks for nothing. Return what was asked of the sources meanwhile."""
        form = ["--format", "%e %w%f", "-e", "modify,create,delete"]
        self.watchers.append(Watcher("inotifywait -m -r", "inotifywait", "-m", "-r", *form, *self.places))
        time.sleep(3)  # bbfs looks at the watches, and at the folder that it is to watch
        before = self.asked()
        for text in ("one", "two"):
            self.step((NAMES[2], text))
        middle = self.asked()
        self.steps()
        after = self.asked()
        for each, (loads, lists) in before.items():
            if after[each][0] != loads or middle[each][1] != lists or after[each][1] > lists + NAMED:
                self.problems.append(f"{each} was asked for events: {before[each]}, {middle[each]}, {after[each]}")
        return f"loads and listings before, after new contents, and after {NAMED} lists: {before}, {middle}, {after}"

    def together(self) -> str:
        """Watch by all programs while others search. Return how often these did."""
        modules, node = ROOT / "tests/thirdparty/node_modules", [ROOT / ".venv/bin/node", "--input-type=module", "-e"]
        self.watchers.append(Watcher("chokidar 6", *node, CHOKIDAR, modules / "chokidar/index.js", *self.places))
        self.watchers.append(
            Watcher("@parcel/watcher", *node, PARCEL, modules / "@parcel/watcher/index.js", *self.places)
        )
        self.watchers.append(Watcher("watchfiles", sys.executable, "-c", WATCHFILES, *self.places))
        held = [self.path(source, NAMES[0]) for source in self.sources]
        program = [sys.executable, ROOT / "tests/support/watching.py"]
        self.watchers.append(editor := Watcher("an editor's watch of files", *program, files=held))
        search = Search(self.places)
        time.sleep(3)
        self.steps()
        search.end()
        self.problems += search.problems
        for source, path in zip(self.sources, held, strict=True):
            if source.texts[NAMES[0]] not in editor.loaded.get(path, ""):
                self.problems.append(f"the editor holds another text of {path}")
        texts = {self.path(source, name): text for source in self.sources for name, text in source.texts.items()}
        for options, right in (["--files"], set(texts)), (["-l", WORD], {p for p, t in texts.items() if WORD in t}):
            found = set(map(Path, run("rg", *options, *self.places, timeout=BOUND).text.splitlines()))
            self.problems += [f"rg {options}: not as in the sources: {path}" for path in found ^ right]
        return f"{search.rounds} rounds of rg --files and rg {WORD}"

    def flood(self, seconds: float) -> str:
        """Change 10 000 contents a minute while inotifywait watches. Return what that cost."""
        for watcher in self.watchers[1:]:
            watcher.program.kill()
        (watcher,) = self.watchers = self.watchers[:1]
        time.sleep(2)
        watcher.told.clear()
        before, made, changed = self.asked(), self.status()["inotify"], dict[Path, float]()
        processors, began = self.processors(), time.monotonic()
        number = round(seconds * PER_MINUTE / 60)
        for each in range(number):
            source, name = self.sources[each % len(self.sources)], NAMES[each // len(self.sources) % len(NAMES)]
            time.sleep(max(0, began + each * 60 / PER_MINUTE - time.monotonic()))
            if not isinstance(source, Database):
                changed[self.path(source, name)] = time.monotonic()
            source.announce(source.change(name, f"text {each}"), name)
        took = time.monotonic() - began
        last: dict[Path, float] = {}
        while any(last.get(path, 0) < at for path, at in changed.items()) and time.monotonic() < began + took + BOUND:
            time.sleep(0.2)
            last = {path: at for at, (_, path) in list(watcher.told)}
        self.problems += [
            f"no event of the last change of {path}" for path, at in changed.items() if last.get(path, 0) < at
        ]
        self.problems += [
            f"an event of nothing: {event}"
            for _, event in watcher.told
            if event[1] not in changed or event[0] != "MODIFY"
        ]
        daemon, toucher = (100 * (now - then) / took for now, then in zip(self.processors(), processors, strict=True))
        after, state = self.asked(), self.status()["inotify"]
        self.problems += [
            f"{each} was asked: {before[each]}, {after[each]}" for each in before if before[each] != after[each]
        ]
        return (
            f"{number} changes in {took:.1f} s, a quarter in each source: {len(watcher.told)} events; "
            f"processor time of the daemon {daemon:.0f} %, of the process that makes the events "
            f"{toucher:.0f} %; calls {state['made'] - made['made']}, failed {state['failed'] - made['failed']}"
        )

    def processors(self) -> tuple[float, float]:
        """Return the seconds of processor time of the daemon, and of its process that makes the events."""
        pids = [
            pid
            for pid in children_of(self.mount.pid)
            if TOUCHER in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        ]
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in (self.mount.pid, *pids)]
        daemon, toucher = ((int(each[11]) + int(each[12])) / os.sysconf("SC_CLK_TCK") for each in stats)
        return daemon, toucher


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="of 10 000 changes a minute")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        directory = Path(made)
        sources = [Folder(directory), Database(directory), Stdio(directory), Http()]
        for source in sources:
            for name in NAMES:
                source.change(name, "plain")
        mounts = Mounts()
        stack.callback(mounts.close)
        mount = mounts(*(each.table for each in sources), tables={"mount": {"inotify": True}}, python=sys.executable)
        trial = Trial(mount, sources)
        stack.callback(lambda: [each.program.kill() for each in trial.watchers])
        run(
            "sh", "-c", 'cat "$@"', "sh", *(trial.path(each, name) for each in sources for name in NAMES), timeout=BOUND
        )
        said = [trial.alone(), trial.together()]
        rows = [f"| {each.name} | {each.expected} | {each.came} | {each.slowest:.1f} s |" for each in trial.watchers]
        said.append(trial.flood(options.seconds))
        print(
            "| watcher | changes | events of them | the latest after |\n| --- | --- | --- | --- |",
            *rows,
            *said,
            sep="\n",
        )
        print(f"load of the machine {os.getloadavg()[0]:.1f}", *trial.problems, sep="\n")
    sys.exit(bool(trial.problems))


if __name__ == "__main__":
    main()
