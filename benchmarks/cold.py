"""How long programs take over a slow MCP server that nothing is known of yet, beside what its delay allows.

Method: a server over stdio with `--count` resources of `--size` bytes answers each read after `--delay` seconds
(`tests/support/servers/slow.py`). At each `--concurrency`, the ideal is count * delay / concurrency. In each round the
rivals are interleaved: the SDK's own client with as many requests in flight, and each command on a mount of its own,
with a daemon and a cache that are fresh, after the directory was listed. Medians are compared. The server counts the
reads, so a resource that is read twice, or that no program asked for, shows. Only processes of this machine take part.

    python benchmarks/cold.py [--concurrency 16 32 64] [--rounds 3] [--only NAME …] [--directories N] [--json FILE]
"""

import argparse
import json
import os
import random
import select
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio
from mcp import StdioServerParameters
from mcp.client.client import Client

from bbfs.fuse import mountpoint

SERVER = Path(__file__).parent.parent / "tests" / "support" / "servers" / "slow.py"
BOUND = 300
FIRST = 20


@dataclass(frozen=True, slots=True)
class Workload:
    """What the server has and how long it takes. size: bytes of each resource; delay: seconds of each read."""

    count: int = 1000
    size: int = 4096
    delay: float = 0.02
    directories: int = 0

    def command(self, counters: Path) -> list[str]:
        """The server; `counters` gets a line for each read."""
        options = {"count": self.count, "size": self.size, "delay": self.delay, "directories": self.directories}
        arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        return [sys.executable, str(SERVER), *arguments, "--counters", str(counters)]

    def ideal(self, concurrency: int) -> float:
        """Seconds that all resources take with so many requests always in flight."""
        return self.count * self.delay / concurrency


@dataclass(frozen=True, slots=True)
class Run:
    """One command on a fresh mount: seconds, reads at the server, resources read more than once."""

    seconds: float
    reads: int
    repeated: int


COMMANDS: dict[str, str] = {
    "grep -r": "grep -rc 'no such text' . | wc -l",
    "cat all": "find . -type f -print0 | xargs -0 cat | wc -c",
    "tar": "tar cf - . | wc -c",
    "cp -a": 'cp -a . "$OUT"',
    "ls -l": "ls -lR . | wc -l",
    "rg": "rg -c test: . | wc -l",
    "xargs -P4 -n1 cat": "find . -type f -print0 | xargs -0 -P4 -n1 cat | wc -c",
    "xargs -P4 -n20 cat": "find . -type f -print0 | xargs -0 -P4 -n20 cat | wc -c",
}
"""Programs that read everything, by name, as shell commands in the directory of the resources."""


def partial_commands(workload: Workload) -> dict[str, tuple[str, int]]:
    """Programs that read a part, with the number of files that they read: anything beyond was loaded for nobody."""
    picked = " ".join(map(str, random.Random(7).sample(range(1, workload.count + 1), workload.count // 10)))
    choose = f'for n in {picked}; do sed -n "${{n}}p" "$NAMES"; done'
    return {
        f"first {FIRST}": (f'head -n {FIRST} "$NAMES" | xargs cat | wc -c', FIRST),
        "random tenth": (f"{choose} | xargs cat | wc -c", workload.count // 10),
        "random tenth, sorted": (f"{choose} | sort | xargs cat | wc -c", workload.count // 10),
    }


async def sdk_client(command: Sequence[str], in_flight: int) -> float:
    """Seconds that the SDK's own client takes to read everything that is listed with so many requests in flight."""
    parameters = StdioServerParameters(command=command[0], args=list(command[1:]))
    async with Client(parameters, cache=None) as client:
        uris = [resource.uri for resource in (await client.list_resources()).resources]
        left = iter(uris)

        async def read() -> None:
            for uri in left:
                await client.read_resource(uri)

        started = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(in_flight):
                nursery.start_soon(read)
        return time.perf_counter() - started


@contextmanager
def mounted(command: Sequence[str], concurrency: int) -> Iterator[Path]:
    """The directory of the resources on a fresh mount of the server, listed once."""
    with tempfile.TemporaryDirectory() as home, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        path = Path(home, "mnt")
        address = f"bbfs-bench-{os.getpid()}"
        ready.bind("\0" + address)
        environ = os.environ | {"XDG_CACHE_HOME": home, "XDG_CONFIG_HOME": home, "XDG_RUNTIME_DIR": home}
        environ |= {"NOTIFY_SOCKET": "@" + address}
        config = Path(home, "bbfs.toml")
        server = json.dumps({"command": command[0], "args": list(command[1:])}).replace('": ', '" = ')
        config.write_text(f'[[sources]]\nname = "slow"\nconcurrency = {concurrency}\nttl = 600\nmcpConfig = {server}\n')
        profiled = os.environ.get("BBFS_BENCH_PROFILER", "")
        daemon = subprocess.Popen(
            [sys.executable, *shlex.split(profiled), "-m", "bbfs", "mount", "--config", str(config), str(path)],
            env=environ,
            stdin=subprocess.DEVNULL,
        )
        try:
            if not select.select([ready], [], [], 30)[0]:
                raise SystemExit("the mount did not begin to serve")
            items = path / "mcp-server+slow" / "test" / "items"
            shell("find . > /dev/null", path / "mcp-server+slow", {})
            yield items
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(30)
            mountpoint.unmount(str(path))


def shell(command: str, directory: Path, variables: dict[str, str]) -> float:
    """Seconds that a shell command takes; the mount is touched by its processes only."""
    script = f"cd {shlex.quote(str(directory))} && {command}"
    started = time.perf_counter()
    done = subprocess.run(
        ["sh", "-c", script],
        stdin=subprocess.DEVNULL, capture_output=True, env=os.environ | variables, timeout=BOUND, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    if done.returncode != 0 or done.stderr:
        raise SystemExit(f"{command}: exit status {done.returncode}: {done.stderr.decode()}")
    return seconds


def on_a_mount(command: str, workload: Workload, concurrency: int) -> Run:
    """Run a shell command over the resources on a mount of its own. $NAMES: a file with all paths; $OUT: for output."""
    with tempfile.TemporaryDirectory() as scratch:
        counters = Path(scratch, "counters")
        names = Path(scratch, "names")
        variables = {"NAMES": str(names), "OUT": str(Path(scratch, "out"))}
        with mounted(workload.command(counters), concurrency) as items:
            shell('find . -type f > "$NAMES"', items, variables)
            seconds = shell(command, items, variables)
            time.sleep(2 * workload.delay + 0.1)  # what was begun for nobody counts
            read = [line for line in counters.read_text().splitlines() if line.startswith("read ")]
        return Run(seconds, len(read), len(read) - len(set(read)))


def by_the_sdk(workload: Workload, concurrency: int) -> Run:
    with tempfile.TemporaryDirectory() as scratch:
        counters = Path(scratch, "counters")
        seconds = trio.run(sdk_client, workload.command(counters), concurrency)
        return Run(seconds, len(counters.read_text().splitlines()), 0)


def cases(workload: Workload, concurrency: int, only: Sequence[str]) -> dict[str, tuple[Callable[[], Run], int]]:
    """What is run in each round, with the reads that it needs."""
    found: dict[str, tuple[Callable[[], Run], int]] = {}
    found["SDK client"] = (lambda: by_the_sdk(workload, concurrency), workload.count)
    commands = {name: (command, workload.count) for name, command in COMMANDS.items()} | partial_commands(workload)
    for name, (command, needed) in commands.items():
        found[name] = (lambda command=command: on_a_mount(command, workload, concurrency), needed)
    return {name: case for name, case in found.items() if not only or name in only}


def measure(workload: Workload, concurrency: int, rounds: int, only: Sequence[str] = ()) -> dict[str, list[Run]]:
    """The runs of each case, interleaved."""
    runs: dict[str, list[Run]] = {}
    for _ in range(rounds):
        for name, (run, _needed) in cases(workload, concurrency, only).items():
            runs.setdefault(name, []).append(run())
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--delay", type=float, default=0.02)
    parser.add_argument("--directories", type=int, default=0)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    workload = Workload(options.count, options.size, options.delay, options.directories)
    table: list[dict[str, object]] = []
    print(f"{'command':22} {'at once':>7} {'seconds':>8} {'x ideal':>8} {'reads':>6} {'extra':>6} {'twice':>6}")
    for concurrency in options.concurrency:
        runs = measure(workload, concurrency, options.rounds, options.only)
        for name, (_, needed) in cases(workload, concurrency, options.only).items():
            seconds = statistics.median(run.seconds for run in runs[name])
            reads = max(run.reads for run in runs[name])
            ratio = seconds / workload.ideal(concurrency) if needed == workload.count else None
            twice = max(run.repeated for run in runs[name])
            shown = f"{ratio:8.2f}" if ratio is not None else " " * 8
            print(
                f"{name:22} {concurrency:7} {seconds:8.3f} {shown} {reads:6} {reads - needed:6} {twice:6}", flush=True
            )
            row = {"command": name, "concurrency": concurrency, "seconds": [run.seconds for run in runs[name]]}
            table.append(row | {"ratio": ratio, "reads": reads, "extra": reads - needed, "repeated": twice})
    if options.json:
        options.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
