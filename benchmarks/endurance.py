"""Hours of use: two mounts under load, changes and kills, and what their daemons hold meanwhile.

Method: both mounts have a folder, a database, an MCP server over HTTP that announces changes, a knowledge base over
stdio, and a server whose contents expire at once. The daemon of the mount `lasting`, in which programs write, lives as
long as a piece; it is reloaded, gets and loses sources, is flooded with announcements, and its servers are killed. The
daemon of the mount `restarted` also starts again under its mount (SIGUSR2) while a program has a file open, and is
killed and mounted again. Names come and go all the time. Each half second a probe of each mount reads a file that the
kernel caches, one whose source is asked, and lists a directory; each few seconds a sample notes the times of the
probes, and the memory, descriptors, threads and processes of the daemon.

    python benchmarks/endurance.py STATE [--minutes 60] [--pause FILE]
    python benchmarks/endurance.py STATE... --report FILE [--after REPORT]

Pieces add up: each appends its samples to STATE/samples, and goes on with the caches of the one before. `--pause`:
while the file exists, nothing happens and no time counts. The report is what `plots.py` draws; it adds up
several directories, and an earlier report (`--after`), whose directory may be gone. Exit status 1 when a
program got a wrong content, or an error that no kill explains.
"""

import argparse
import errno
import itertools
import json
import os
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import places
from endured import LASTING, PROBES, RESTARTED, report
from rounds import HERE, end

from bbfs.fuse import mounting

STREAMS = HERE.parent / "tests" / "support" / "servers" / "streams.py"
EVERY = 5.0
"""Seconds between two samples."""
HUNG = 120.0
"""Seconds that a call on a mount may take; then the daemon is killed, and the piece ends as wrong."""
FILES = 300
"""Files in the folder that stay."""
MOVING = 40
"""Names in the folder and rows of the database that come and go at once."""
READ_WRITE = ["read", "list", "write"]
AWAY = {errno.EHOSTDOWN, errno.ETIMEDOUT}
"""Errors of a source whose server was killed."""
GONE = {errno.ENOTCONN, errno.ECONNABORTED, errno.ENOENT, errno.ESTALE, errno.EIO}
"""Errors of a mount whose daemon was killed."""


@dataclass
class Said:
    """What programs saw: the times of probes since the last sample in ms, and what was wrong in the whole piece."""

    times: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in PROBES})
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def note(self, where: str, error: OSError, allowed: set[int]) -> None:
        self.errors[errno.errorcode.get(error.errno or 0, str(error))] += 1
        if error.errno not in allowed:
            self.wrong.append(f"{where}: {error}")


class Server:
    """The MCP server over HTTP, which keeps its port when it is started again."""

    def __init__(self) -> None:
        self.process, self.url = self._start("0")

    def restart(self) -> None:
        self.end()
        self.process, self.url = self._start(self.url.rsplit(":", 1)[1].split("/")[0])

    def act(self, action: str) -> None:
        where = self.url.removesuffix("/mcp") + f"/control/{action}"
        with urllib.request.urlopen(urllib.request.Request(where, data=b"", method="POST"), timeout=30):
            pass

    def end(self) -> None:
        self.process.kill()
        self.process.wait(10)

    @staticmethod
    def _start(port: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-I", str(STREAMS), "--port", port]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise SystemExit("the HTTP server did not start")
        threading.Thread(target=drain, args=(process.stdout,), daemon=True).start()
        return process, url


def drain(output: IO[str]) -> None:
    """Read what a program says until it ends, so that it never waits."""
    with output:
        for _ in output:
            pass


class Mount:
    """A daemon, the probe of its mount, and what both have noted."""

    def __init__(self, name: str, home: Path, sources: list[dict[str, Any]], *options: str) -> None:
        self.name, self.home, self.path = name, home, home / "mnt"
        self.options = options
        self.said = Said()
        self.is_disturbed = False
        """Whether the daemon is being killed."""
        self.restarts_begun = self.restarts_ended = 0
        self.calls: dict[str, float] = {}
        """What is being called, and since when."""
        self._sources = sources
        self.configure()
        self.process = self._start()

    def configure(self, *more: dict[str, Any]) -> None:
        self.command = places.bbfs(self.home, [*self._sources, *more])(self.path)

    def _start(self) -> subprocess.Popen[bytes]:
        self.path.mkdir(exist_ok=True)
        mounting.unmount(str(self.path))
        address = f"bbfs-endurance-{os.getpid()}-{self.name}"
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind("\0" + address)
        with (self.home / "log").open("ab") as log:
            process = subprocess.Popen(
                [*map(str, self.command), *self.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=places.isolated(self.home) | {"NOTIFY_SOCKET": "@" + address},
                start_new_session=True,
            )
        self.await_ready()
        return process

    def await_ready(self) -> None:
        """Wait until the daemon, or the next one under the mount, serves."""
        deadline = time.monotonic() + HUNG
        while select.select([self.notify], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if b"READY=1" in self.notify.recv(4096):
                return
        raise SystemExit(f"{self.name}: the mount does not serve:\n{(self.home / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        """Kill the daemon, and mount again."""
        self.is_disturbed = True
        end(self.process, at_once=True)
        self.notify.close()
        self.process = self._start()
        self.is_disturbed = False

    def hand_over(self) -> None:
        """Have the daemon start again under its mount, while a file and a directory of it are open."""
        with (self.path / PROBES["ls"] / "1").open("rb", buffering=0) as file:
            before = os.fstat(file.fileno()).st_ino
            self.restarts_begun += 1
            self.process.send_signal(signal.SIGUSR2)
            self.await_ready()
            self.restarts_ended += 1
            text, after = file.read(), os.fstat(file.fileno()).st_ino
        if (text, after) != (kept(1), before):
            self.said.wrong.append(f"over a restart: {text[:100]!r}, inode {before} and {after}")

    def end(self) -> None:
        end(self.process)
        self.notify.close()
        mounting.unmount(str(self.path))

    def probe(self) -> None:
        """Do each of PROBES once, and note how long each took."""
        for name, where in PROBES.items():
            self.calls[name] = begun = time.monotonic()
            restarts = self.restarts_ended
            try:
                if name == "ls":
                    found = len(os.listdir(self.path / where))
                    is_right = found == FILES
                else:
                    found = (self.path / where).read_text()
                    is_right = found.startswith("text")
            except OSError as error:
                over_restart = (
                    name == "ls" and self.restarts_begun > restarts
                )  # the listing that was being read (S26.3)
                allowed = GONE if self.is_disturbed else {errno.ESTALE} if over_restart else set[int]()
                self.said.note(f"{self.name} {name}", error, AWAY | allowed)
            else:
                self.said.times[name].append(round((time.monotonic() - begun) * 1000, 3))
                if not is_right:
                    self.said.wrong.append(f"{self.name} {name}: {found!r:.100}")
            finally:
                del self.calls[name]

    def sample(self) -> dict[str, Any]:
        """Return what the daemon holds, and the times since the last sample."""
        process = Path(f"/proc/{self.process.pid}")
        values = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
        times, self.said.times = self.said.times, {name: [] for name in PROBES}
        children = [(task / "children").read_text().split() for task in (process / "task").iterdir()]
        return {
            "mount": self.name,
            "kib": int(values["VmRSS"].split()[0]),
            "descriptors": len(os.listdir(process / "fd")),
            "threads": int(values["Threads"]),
            "processes": sum(map(len, children)),
            "ms": times,
        }


def kept(number: int) -> bytes:
    """Return the content of a file that stays."""
    return f"file {number}\n".encode() * 40


class World:
    """The sources, both mounts, and the events."""

    def __init__(self, home: Path, ending: ExitStack) -> None:
        self.home = home
        self.notes, self.added = home / "notes", home / "added"
        for directory in (self.notes / "kept", self.notes / "moving", self.added):
            directory.mkdir(parents=True, exist_ok=True)
        for number in range(FILES):
            (self.notes / "kept" / str(number)).write_bytes(kept(number))
        (self.added / "one").write_text("one\n")
        self.database = sqlite3.connect(home / "shop.db", isolation_level=None)
        self.database.execute("CREATE TABLE IF NOT EXISTS item (id INTEGER PRIMARY KEY, name TEXT)")
        self.numbers = itertools.count(int(time.time()))
        self.server = Server()
        ending.callback(lambda: self.server.end())
        self.put("first")
        writable = self.sources(["read", "list", "write"])
        self.lasting = Mount(LASTING, self._below(LASTING), writable)
        ending.callback(lambda: self.lasting.end())
        self.restarted = Mount(RESTARTED, self._below(RESTARTED), self.sources(["read", "list"]), "--restartable")
        ending.callback(lambda: self.restarted.end())
        self.mounts = (self.lasting, self.restarted)
        self.has_more = False

    def _below(self, name: str) -> Path:
        (self.home / name).mkdir(exist_ok=True)
        return self.home / name

    def sources(self, capabilities: list[str]) -> list[dict[str, Any]]:
        knowledge = ["-P", "-m", "bbfs.knowledge", "serve", "--db", str(self.home / "kb.sqlite"), "--interval", "1"]
        always = {"ttl": 0, "max_stale": 0}
        return [
            {"name": "notes", "type": "filesystem", "config": {"root": self.notes}, "capabilities": capabilities},
            {"name": "shop", "type": "database", "config": {"url": f"sqlite:///{self.home}/shop.db"}},
            {"name": "live", "mcpConfig": {"url": self.server.url}},
            {"name": "asked", "mcpConfig": {"url": self.server.url}, **always},
            {"name": "kb", "mcpConfig": {"command": sys.executable, "args": knowledge}},
        ]

    def put(self, name: str) -> None:
        """Put a document into the knowledge base."""
        command = [sys.executable, "-P", "-m", "bbfs.knowledge", "put", "--create", "--db", self.home / "kb.sqlite"]
        text = f"# {name}\n{next(self.numbers)}\n".encode()
        subprocess.run(
            [*map(str, command), "notes", name, "-"], input=text, check=True, timeout=HUNG, capture_output=True
        )

    def do(self, name: str, act: Callable[[], None]) -> None:
        """Let an event happen. An error of a mount that the event does not expect is wrong."""
        for mount in self.mounts:
            mount.calls[name] = time.monotonic()
        try:
            act()
        except OSError as error:
            self.lasting.said.note(name, error, AWAY)
        for mount in self.mounts:
            del mount.calls[name]

    def names(self) -> None:
        """Have names that never were there come at the folder and the database, read them, and remove the oldest."""
        moving = self.notes / "moving"
        for _ in range(10):
            number = next(self.numbers)
            (moving / str(number)).write_bytes(kept(number))
            self.database.execute("INSERT OR REPLACE INTO item VALUES (?, 'a thing')", (number,))
        for old in sorted(moving.iterdir())[:-MOVING]:
            old.unlink()
        self.database.execute(
            "DELETE FROM item WHERE id NOT IN (SELECT id FROM item ORDER BY id DESC LIMIT ?)", (MOVING,)
        )
        for mount in self.mounts:
            for below in ("bb-filesystem+notes+file/moving", "bb-database+shop+sqlite/main/item/row"):
                self.walk(mount, mount.path / below)

    def walk(self, mount: Mount, directory: Path) -> None:
        """Read all files of a directory whose names come and go."""
        try:
            for name in os.listdir(directory):
                with suppress(FileNotFoundError):
                    (directory / name).read_bytes()
        except OSError as error:
            mount.said.note(f"{mount.name} {directory}", error, {errno.ESTALE, *AWAY})

    def write(self) -> None:
        """Save as programs do in the folder, and leave no name behind."""
        here = self.lasting.path / "bb-filesystem+notes+file"
        temporary, target = here / f"{next(self.numbers)}.tmp", here / "saved"
        temporary.write_text("saved\n")
        temporary.replace(target)
        if target.read_text() != "saved\n" or (self.notes / "saved").read_text() != "saved\n":
            self.lasting.said.wrong.append("a save is not there")
        target.unlink()

    def change(self) -> None:
        self.server.act("renew")

    def flood(self) -> None:
        self.server.act("flood")

    def document(self) -> None:
        self.put(f"document-{next(self.numbers) % 50}")
        for mount in self.mounts:
            for path in (mount.path / "mcp-server+kb").rglob("document-*"):
                with suppress(FileNotFoundError):
                    path.read_bytes()

    def search(self) -> None:
        """Search for a word that nobody has searched for."""
        for mount in self.mounts:
            os.listdir(mount.path / ".search" / f"word{next(self.numbers)}")
            (mount.path / ".bbfs" / "status.json").read_bytes()

    def reload(self) -> None:
        """Have the lasting daemon read its configuration again, with a source more or less."""
        more = {"name": "more", "type": "filesystem", "config": {"root": self.added}}
        self.has_more = not self.has_more
        self.lasting.configure(*([more] if self.has_more else []))
        self.lasting.process.send_signal(signal.SIGHUP)

    def add(self) -> None:
        """Add a source to the lasting mount by a command, read it, and remove it."""
        command = [sys.executable, "-P", "-m", "bbfs"]
        environ = places.isolated(self.lasting.home)
        where = ["--mount", str(self.lasting.path)]
        for words in (["add", "extra", str(self.added)], ["remove", "extra"]):
            done = subprocess.run([*command, *words, *where], env=environ, capture_output=True, text=True, timeout=HUNG)
            if done.returncode:
                self.lasting.said.wrong.append(f"bbfs {words[0]}: {done.stderr}")
            if words[0] == "add":
                (self.lasting.path / "bb-filesystem+extra+file/one").read_bytes()

    def kill_servers(self) -> None:
        """Kill the server over HTTP, and what the lasting daemon has started over stdio."""
        self.server.restart()
        for task in Path(f"/proc/{self.lasting.process.pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                with suppress(OSError):
                    if b"bbfs.knowledge" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                        os.kill(int(child), signal.SIGKILL)

    def hand_over(self) -> None:
        self.restarted.hand_over()

    def kill_daemon(self) -> None:
        self.restarted.kill()

    def events(self) -> dict[str, tuple[float, Callable[[], None]]]:
        """Return each event: the seconds between two of them, and what does it."""
        return {
            "names": (4, self.names),
            "saves": (6, self.write),
            "changes": (7, self.change),
            "documents": (20, self.document),
            "searches": (25, self.search),
            "reloads": (45, self.reload),
            "floods": (60, self.flood),
            "sources added": (90, self.add),
            "servers killed": (120, self.kill_servers),
            "restarts": (150, self.hand_over),
            "daemons killed": (900, self.kill_daemon),
        }


@contextmanager
def probing(mount: Mount, pause: Path | None) -> Iterator[None]:
    """Probe a mount each half second, in a thread."""
    stopped = threading.Event()

    def probe() -> None:
        while not stopped.wait(0.5):
            if pause is None or not pause.exists():
                mount.probe()

    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(HUNG)


def watch(mounts: tuple[Mount, ...]) -> None:
    """Kill each daemon on which a call hangs, so that this program ends."""
    while True:
        time.sleep(1)
        for mount in mounts:
            for name, since in list(mount.calls.items()):
                if time.monotonic() - since > HUNG and mount.process.poll() is None:
                    mount.said.wrong.append(f"{mount.name}: {name} takes more than {HUNG:g} s")
                    end(mount.process, at_once=True)


def endure(state: Path, minutes: float, pause: Path | None, pace: float) -> int:
    """Run a piece. Return the exit status."""
    state.mkdir(parents=True, exist_ok=True)
    with ExitStack() as ending, (state / "samples").open("a", buffering=1) as samples:
        world = World(state, ending)
        threading.Thread(target=watch, args=(world.mounts,), daemon=True).start()
        for mount in world.mounts:
            ending.enter_context(probing(mount, pause))
        events, counts = world.events(), Counter[str]()
        due = {name: every / pace for name, (every, _) in events.items()}
        passed, last, sampled = 0.0, time.monotonic(), 0.0
        samples.write(json.dumps({"piece": round(time.time())}) + "\n")
        while passed < minutes * 60:
            time.sleep(0.2)
            now = time.monotonic()
            if pause is not None and pause.exists():
                last = now
                continue
            passed, last = passed + now - last, now
            for name, (every, act) in events.items():
                if passed >= due[name]:
                    due[name] = passed + every / pace
                    counts[name] += 1
                    world.do(name, act)
            if passed - sampled >= EVERY:
                sampled = passed
                for mount in world.mounts:
                    samples.write(json.dumps({"seconds": round(passed, 1), **mount.sample(), "events": counts}) + "\n")
        wrong = [text for mount in world.mounts for text in mount.said.wrong]
        errors = {mount.name: mount.said.errors for mount in world.mounts}
        samples.write(json.dumps({"ended": round(passed, 1), "wrong": wrong[:50], "errors": errors}) + "\n")
    for text in wrong[:50]:
        print(f"WRONG: {text}")
    print(f"{passed / 60:.0f} minutes, {dict(counts)}, errors {errors}, wrong {len(wrong)}")
    return 1 if wrong else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("states", type=Path, nargs="+", metavar="STATE")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--pace", type=float, default=1, help="let everything happen so many times as often")
    parser.add_argument("--pause", type=Path, metavar="FILE", help="do nothing while this file exists")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what the pieces have found, as JSON")
    parser.add_argument("--after", type=Path, metavar="REPORT", help="an earlier report, whose hours come first")
    options = parser.parse_args()
    if options.report:
        report(options.states, options.report, options.after)
    elif len(options.states) > 1:
        parser.error("a piece has one directory")
    else:
        sys.exit(endure(options.states[0], options.minutes, options.pause, options.pace))


if __name__ == "__main__":
    main()
