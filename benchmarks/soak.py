"""Kills MCP servers under a real mount, again and again, and looks at what is left over.

Method: one daemon mounts a server over stdio (a child of the daemon) and one over HTTP (a child of this program, which
starts it again at once on the same port), both with nothing believed and nothing served stale, so that every open asks
the server. Readers open, read and list without a pause. A server is killed with SIGKILL, the two in turn, and again as
soon as it has answered a read that began after its new start. At the end, with the readers stopped, the daemon must
be as it was after the first `--warm-up` kills, which fill its caches and pools: as many processes, descriptors,
threads and tasks, no zombie, and at most `--memory` more KiB. Every read must be right, or one of the errors below.

    python benchmarks/soak.py [--kills 200] [--readers 6] [--json FILE]

Exit status 0 when all of that holds. `--serve` is how the program runs the daemon, to be able to count its tasks.
"""

import argparse
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import trio
from endurance import Server

from bbfs import cli
from bbfs.fuse import mounting

STDIO = Path(__file__).parent.parent / "tests" / "support" / "servers" / "odd.py"
ALLOWED = {errno.EHOSTDOWN, errno.ETIMEDOUT}
RECOVERY_BOUND = 90.0
"""Seconds that a killed server may take until a read is answered again: the longest pause and some."""
QUIET_BOUND = 60.0
"""Seconds for what is left over to go away by itself, such as pooled connections."""
SOURCES = ("stdio", "http")
EXPECTED = {"stdio": {"a": "content of odd://a\n", "b": "content of odd://b\n"}, "http": {"a": "text"}}


@dataclass(frozen=True)
class Footprint:
    """What a daemon holds. memory: KiB, resident."""

    processes: int
    zombies: int
    descriptors: int
    threads: int
    tasks: int
    memory: int


@dataclass
class Load:
    """Readers of the mount, and what became of their reads."""

    mount: Path
    right: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    latest: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0.0))
    stopped: threading.Event = field(default_factory=threading.Event)

    def read_on(self, number: int) -> None:
        """Read until stopped. The readers begin at different files."""
        files = [(source, name) for source, names in EXPECTED.items() for name in names]
        while not self.stopped.is_set():
            number += 1
            source, name = files[number % len(files)]
            directory = self.mount / f"mcp-server+{source}" / "odd"
            begun = time.monotonic()
            try:
                if number % 10 == 0:
                    os.listdir(directory)
                    continue
                text = (directory / name).read_text()
            except OSError as error:
                self.errors[f"{source} {errno.errorcode.get(error.errno or 0, str(error))}"] += 1
                if error.errno not in ALLOWED:
                    self.wrong.append(f"{source}: {error}")
                self.stopped.wait(0.005)
                continue
            if text != EXPECTED[source][name]:
                self.wrong.append(f"{source}: {name} is {text[:100]!r}")
            self.right[source] += 1
            self.latest[source] = max(self.latest[source], begun)


class Daemon:
    """`bbfs mount` of both servers, in a process of its own."""

    def __init__(self, home: Path, url: str) -> None:
        self.path = home / "mnt"
        self.path.mkdir()
        self._tasks = home / "tasks"
        config = home / "bbfs.toml"
        command = [sys.executable, "-I", "-S", str(STDIO), "none"]
        servers = (
            f"{{ command = {json.dumps(command[0])}, args = {json.dumps(command[1:])} }}",
            f"{{ url = {json.dumps(url)} }}",
        )
        config.write_text(
            "".join(
                f'[[sources]]\nname = "{name}"\ntimeout = 5\nttl = 0\nmax_stale = 0\nmcpConfig = {server}\n'
                for name, server in zip(SOURCES, servers, strict=True)
            )
        )
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, (home / "log").open("wb") as log:
            address = f"bbfs-soak-{os.getpid()}"
            ready.bind("\0" + address)
            homes = {name: str(home) for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")}
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--serve", self._tasks, "mount", "--config", config, self.path],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | homes | {"NOTIFY_SOCKET": "@" + address},
            )
            if not select.select([ready], [], [], 30)[0]:
                self.end()
                raise SystemExit(f"the mount did not begin to serve:\n{(home / 'log').read_text()}")

    def children(self) -> list[int]:
        lists = [(task / "children").read_text() for task in Path(f"/proc/{self.process.pid}/task").iterdir()]
        return [int(child) for children in lists for child in children.split()]

    def footprint(self) -> Footprint:
        pid = self.process.pid
        children = self.children()
        states = [state_of(child) for child in children]
        status = Path(f"/proc/{pid}/status").read_text()
        values = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        return Footprint(
            processes=len(children),
            zombies=states.count("Z"),
            descriptors=len(os.listdir(f"/proc/{pid}/fd")),
            threads=int(values["Threads"]),
            tasks=self._count_tasks(),
            memory=int(values["VmRSS"].split()[0]),
        )

    def _count_tasks(self) -> int:
        self._tasks.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR2)
        until(self._tasks.exists, 10, "the daemon did not say how many tasks it has")
        return int(self._tasks.read_text())

    def end(self) -> int | None:
        self.process.terminate()
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(30)
            return None
        finally:
            mounting.unmount(str(self.path))


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


def is_server(pid: int) -> bool:
    """Return whether a child of the daemon is the server over stdio, and no process of bbfs's own."""
    try:
        return str(STDIO).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")  # empty for a zombie
    except FileNotFoundError:
        return False


def until(condition: Callable[[], object], seconds: float, failure: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(failure)
        time.sleep(0.005)


def kill(daemon: Daemon, http: Server, load: Load, source: str) -> float:
    """Kill a server; return how many seconds it took until a new one had answered."""
    killed = time.monotonic()
    if source == "http":
        http.restart()
        renewed = time.monotonic()
    else:
        (before,) = filter(is_server, daemon.children())
        os.kill(before, signal.SIGKILL)
        until(
            lambda: any(child != before and is_server(child) for child in daemon.children()),
            RECOVERY_BOUND,
            f"the server over stdio was not started again: {load.errors}",
        )
        renewed = time.monotonic()
    until(lambda: load.latest[source] > renewed, RECOVERY_BOUND, f"no read from {source} again: {load.errors}")
    return time.monotonic() - killed


def at_rest(daemon: Daemon, load: Load, readers: list[threading.Thread], limit: Footprint | None) -> Footprint:
    """The daemon's footprint once the readers have stopped, when it is within the limit or time is up."""
    load.stopped.set()
    for reader in readers:
        reader.join(30)
    for source in SOURCES:
        until(lambda source=source: readable(load.mount, source), RECOVERY_BOUND, f"{source} answers no more")
    deadline = time.monotonic() + QUIET_BOUND
    best: Footprint | None = None
    while True:
        now = daemon.footprint()
        best = now if best is None or counts(now) < counts(best) else best
        steady = time.monotonic() > deadline - QUIET_BOUND + 8 if limit is None else counts(now) <= counts(limit)
        if steady or time.monotonic() > deadline:
            return now if limit is not None else best
        time.sleep(0.25)


def counts(footprint: Footprint) -> tuple[int, ...]:
    """What must be as it was, worst first."""
    return footprint.zombies, footprint.processes, footprint.tasks, footprint.descriptors, footprint.threads


def readable(mount: Path, source: str) -> bool:
    try:
        return (mount / f"mcp-server+{source}" / "odd" / "a").read_text() == EXPECTED[source]["a"]
    except OSError:
        return False


def begin(load: Load, count: int) -> list[threading.Thread]:
    load.stopped.clear()
    readers = [threading.Thread(target=load.read_on, args=(number,), daemon=True) for number in range(count)]
    for reader in readers:
        reader.start()
    return readers


def problems(before: Footprint, after: Footprint, load: Load, memory: int, status: int | None) -> list[str]:
    found = [f"wrong: {text}" for text in load.wrong[:20]]
    for name in ("processes", "zombies", "descriptors", "threads", "tasks"):
        then, now = getattr(before, name), getattr(after, name)
        if now > then:
            found.append(f"{name}: {then} before, {now} after")
    if after.memory > before.memory + memory:
        found.append(f"memory: {before.memory} KiB before, {after.memory} KiB after")
    if status != 0:
        found.append(f"the daemon ended with {status}")
    return found


def serve(tasks: Path, arguments: list[str]) -> None:
    """Run `bbfs`, and write the number of its tasks to a file on SIGUSR2."""

    def tell(*_: object) -> None:
        new = tasks.with_suffix(".new")
        new.write_text(str(trio.lowlevel.current_statistics().tasks_living))
        new.replace(tasks)

    signal.signal(signal.SIGUSR2, tell)
    sys.argv = ["bbfs", *arguments]
    cli.main()


def soak(options: argparse.Namespace, home: Path) -> int:
    http = Server()
    daemon = Daemon(home, http.url)
    # Whatever hangs, this program does not: without the daemon every read of the mount ends.
    watchdog = threading.Timer(options.bound, daemon.process.kill)
    watchdog.daemon = True
    watchdog.start()
    load = Load(daemon.path)
    recoveries: dict[str, list[float]] = {source: [] for source in SOURCES}
    try:
        readers = begin(load, options.readers)
        for source in SOURCES:
            until(lambda source=source: load.latest[source], RECOVERY_BOUND, f"{source} does not answer")
        for number in range(options.warm_up):
            kill(daemon, http, load, SOURCES[number % 2])
        before = at_rest(daemon, load, readers, None)
        readers = begin(load, options.readers)
        started = time.monotonic()
        for number in range(options.kills):
            source = SOURCES[number % 2]
            recoveries[source].append(kill(daemon, http, load, source))
            if (number + 1) % 20 == 0:
                print(f"{number + 1} kills, {time.monotonic() - started:.0f} s", flush=True)
        took = time.monotonic() - started
        after = at_rest(daemon, load, readers, before)
    finally:
        status = daemon.end()
        http.end()
        watchdog.cancel()
    found = problems(before, after, load, options.memory, status)
    print(f"{options.kills} kills in {took:.0f} s, {options.readers} readers")
    for source, times in recoveries.items():
        ordered = sorted(times)
        print(f"  {source}: back after {ordered[len(ordered) // 2]:.2f} s (median), {ordered[-1]:.2f} s (longest)")
    print(f"reads: right {dict(load.right)}, errors {dict(load.errors)}, wrong {len(load.wrong)}")
    for name, then in asdict(before).items():
        print(f"  {name:12} {then:8} before {getattr(after, name):8} after")
    for problem in found:
        print(f"FAILED: {problem}")
    if options.json:
        report = {"kills": options.kills, "seconds": took, "before": asdict(before), "after": asdict(after)}
        options.json.write_text(json.dumps(report | {"right": load.right, "errors": load.errors, "failed": found}))
    return 1 if found else 0


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--readers", type=int, default=6)
    parser.add_argument("--warm-up", type=int, default=20, help="kills before anything is measured")
    parser.add_argument("--memory", type=int, default=8192, help="KiB that the daemon may have more at the end")
    parser.add_argument("--bound", type=float, default=3600, help="seconds for everything")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bbfs-soak-") as home:
        sys.exit(soak(options, Path(home)))


if __name__ == "__main__":
    main()
