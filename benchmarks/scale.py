"""Listings of 100 000 and of a million resources over stdio, and a 64 MB text beside other reads.

Nothing but this machine's processes is involved; the server is tests/support/servers/many.py.

listing: in each round, in this order: the MCP SDK's own client walks all pages; then a fresh daemon mounts the same
    server and `find` on the mount shows all. Both are timed from the start of their process on. Medians are compared.
million: one daemon; the time until `find` shows all, then `find` again, in turn with `find` on a copy of the tree on
    tmpfs (empty files, the same names). VmRSS and VmHWM of the daemon from /proc. The longest delay of its event loop
    is taken by `probed.py`.
large: two servers, a daemon for each round; distinct resources of one are read one after the other, alone and while the
    64 MB text of the other is read again and again, three times as long. The 99th percentiles are compared.

    python benchmarks/scale.py listing|million|large [--count N] [--rounds N] [--text BYTES] [--spell S] [--json FILE]
"""

import argparse
import json
import os
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bbfs.fuse import mountpoint

HERE = Path(__file__).parent
SERVER = HERE.parent / "tests" / "support" / "servers" / "many.py"
BOUND = 900
TREE = Path("mcp-server+many", "many", "shelves")
"""The directory of the resources on a mount; beside it bbfs has files of its own (.about.md)."""
SDK_WALK = """
import sys, trio
from mcp import StdioServerParameters
from mcp.client.client import Client
async def walk(command):
    async with Client(StdioServerParameters(command=command[0], args=command[1:]), cache=None) as client:
        cursor, count = None, 0
        while True:
            page = await client.list_resources(cursor=cursor)
            count += len(page.resources)
            cursor = page.next_cursor
            if not cursor:
                return count
print(trio.run(walk, sys.argv[1:]))
"""


@dataclass(slots=True)
class Daemon:
    """A mount. delays: where `probed.py` keeps the longest delay of the event loop."""

    process: subprocess.Popen[bytes]
    path: Path
    delays: Path
    log: Path

    def memory(self, field: str) -> float:
        """VmRSS or VmHWM in MB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024 / 1e6
        raise SystemExit(f"no {field}")

    def longest_delay(self) -> float:
        """Milliseconds since the last call."""
        time.sleep(0.5)
        enough = time.monotonic() + 60
        while not self.delays.exists():
            if time.monotonic() > enough or self.process.poll() is not None:
                raise SystemExit(f"the event loop has stopped: {self.log.read_text()[-2000:]}")
            time.sleep(0.1)
        longest = float(self.delays.read_text() or 0) * 1000
        self.delays.unlink()
        return longest


@contextmanager
def mounted(servers: dict[str, list[str]], home: Path, *, short_lived: str = "") -> Iterator[Daemon]:
    """A daemon with its caches in `home`, from its start until it is gone. short_lived: it keeps nothing."""
    path = Path(tempfile.mkdtemp(prefix="bbfs-scale-"))
    config, delays, log = home / "config.toml", home / "delays", home / "log"
    lines = []
    for name, command in servers.items():
        program, *args = command
        lines += ["[[sources]]", f'name = "{name}"', f'ttl = "{"1ms" if name == short_lived else "1h"}"']
        lines.append('timeout = "10m"')
        lines.append(f"mcpConfig = {{command = {json.dumps(program)}, args = {json.dumps(args)}}}")
    config.write_text("\n".join(lines) + "\n")
    address = f"bbfs-scale-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, log.open("ab") as output:
        ready.bind("\0" + address)
        environ = os.environ | {"XDG_CACHE_HOME": str(home), "XDG_CONFIG_HOME": str(home)}
        environ["NOTIFY_SOCKET"] = "@" + address
        command = [sys.executable, str(HERE / "probed.py"), str(delays), "mount", "--config", str(config), str(path)]
        process = subprocess.Popen(command, env=environ, stdout=output, stderr=output)
        try:
            if not select.select([ready], [], [], 60)[0]:
                raise SystemExit(f"the mount did not begin to serve: {log.read_text()}")
            yield Daemon(process, path, delays, log)
        finally:
            process.terminate()
            process.wait(60)
            mountpoint.unmount(str(path))
            path.rmdir()


def server(count: int, *options: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(SERVER), "--count", str(count), *options]


def timed(act: Callable[[], Any]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def find(path: Path, count: int) -> None:
    done = subprocess.run(["find", str(path), "-type", "f", "-printf", "\n"], capture_output=True, timeout=BOUND)
    if done.returncode or done.stdout.count(b"\n") != count:
        raise SystemExit(f"find saw {done.stdout.count(b'%c' % 10)} of {count}: {done.stderr.decode()[:500]}")


def sdk(count: int) -> None:
    command = [sys.executable, "-c", SDK_WALK, *server(count)]
    done = subprocess.run(command, capture_output=True, timeout=BOUND, check=True)
    if int(done.stdout) != count:
        raise SystemExit("the SDK did not see all")


def listing(count: int, rounds: int) -> dict[str, float]:
    rows = []
    for _ in range(rounds):
        plain = timed(lambda: sdk(count))
        with tempfile.TemporaryDirectory() as home:
            started = time.perf_counter()
            with mounted({"many": server(count)}, Path(home)) as daemon:
                find(daemon.path / TREE, count)
                ours = time.perf_counter() - started
                delay = daemon.longest_delay()
        rows.append({"sdk_s": plain, "mount_s": ours, "delay_ms": delay})
        print(rows[-1], flush=True)
    found = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    return found | {"ratio": found["mount_s"] / found["sdk_s"]}


def copy_tree(count: int, path: Path) -> None:
    for number in range(count):
        directory = path / f"{number // 1000:04}"
        if number % 1000 == 0:
            directory.mkdir(parents=True)
        os.close(os.open(directory / f"document-{number:07}.txt", os.O_CREAT | os.O_WRONLY))


def million(count: int, rounds: int, spell: float) -> dict[str, float]:
    copy = Path(tempfile.mkdtemp(prefix="bbfs-scale-", dir="/dev/shm"))
    found: dict[str, float] = {}
    try:
        copy_tree(count, copy)
        with tempfile.TemporaryDirectory() as home:
            started = time.perf_counter()
            with mounted({"many": server(count)}, Path(home)) as daemon:
                subprocess.run(
                    ["ls", str(daemon.path / "mcp-server+many")], capture_output=True, timeout=BOUND, check=True
                )
                found["listed_s"] = time.perf_counter() - started
                found["listed_rss_mb"] = daemon.memory("VmRSS")
                found["first_find_s"] = timed(lambda: find(daemon.path / TREE, count))
                found["delay_ms"] = daemon.longest_delay()
                rows = [
                    (timed(lambda: find(copy, count)), timed(lambda: find(daemon.path / TREE, count)))
                    for _ in range(rounds)
                ]
                found["tmpfs_find_s"] = statistics.median(row[0] for row in rows)
                found["find_s"] = statistics.median(row[1] for row in rows)
                found["find_ratio"] = found["find_s"] / found["tmpfs_find_s"]
                found["find_delay_ms"] = daemon.longest_delay()
                time.sleep(4 * spell)  # what was learnt is written by now
                found["rest_delay_ms"] = daemon.longest_delay()
                found["rss_mb"], found["hwm_mb"] = daemon.memory("VmRSS"), daemon.memory("VmHWM")
            started = time.perf_counter()
            with mounted({"many": server(count)}, Path(home)) as daemon:
                found["remount_s"] = time.perf_counter() - started
                find(daemon.path / TREE, count)
                found["remount_find_s"] = time.perf_counter() - started
                found["remount_delay_ms"] = daemon.longest_delay()
                found["remount_hwm_mb"] = daemon.memory("VmHWM")
            log = (Path(home) / "log").read_text()
            print("\n".join(log.splitlines()[-10:]))
    finally:
        shutil.rmtree(copy)
    return found


def read_all(paths: list[Path], seconds: float) -> list[float]:
    """How long each read took, in seconds; no path is read twice."""
    took: list[float] = []
    enough = time.perf_counter() + seconds
    while time.perf_counter() < enough and paths:
        path = paths.pop()
        took.append(timed(path.read_bytes))
    return took


def percentile(values: list[float], share: float = 0.99) -> float:
    return sorted(values)[int(share * (len(values) - 1))] * 1000


@contextmanager
def loading(path: Path) -> Iterator[list[float]]:
    """Reads a file again and again meanwhile; the list holds the seconds that each reading took."""
    done = threading.Event()
    took: list[float] = []

    def again() -> None:
        while not done.is_set():
            took.append(timed(lambda: subprocess.run(["cat", str(path)], stdout=subprocess.DEVNULL, check=True)))

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield took
    finally:
        done.set()
        thread.join()


def large(count: int, rounds: int, text: int, spell: float) -> dict[str, float]:
    """The reading happens in this process, which serves no mount. spell: seconds of reading without the text."""
    rows = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as home:
            servers = {"large": server(1, "--large", str(text)), "many": server(count)}
            with mounted(servers, Path(home), short_lived="large") as daemon:
                big = daemon.path / "mcp-server+large" / "many" / "large.txt"
                tree = daemon.path / TREE
                paths = [tree / f"{n // 1000:04}" / f"document-{n:07}.txt" for n in range(count)]
                read_all(paths, spell / 5)
                read_all([big], 60)
                alone = read_all(paths, spell)
                daemon.longest_delay()
                with loading(big) as loads:
                    beside = read_all(paths, 3 * spell)
                if not paths:
                    raise SystemExit(f"{count} resources are too few for {spell} s")
                row = {"p99_alone_ms": percentile(alone), "p99_beside_ms": percentile(beside)}
                row |= {"reads_alone": len(alone) / spell, "reads_beside": len(beside) / spell / 3}
                row |= {"max_beside_ms": max(beside) * 1000, "load_s": statistics.median(loads), "loads": len(loads)}
                row |= {"delay_ms": daemon.longest_delay(), "hwm_mb": daemon.memory("VmHWM")}
        rows.append(row)
        print(row, flush=True)
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=("listing", "million", "large"))
    parser.add_argument("--count", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--text", type=int, default=64 << 20)
    parser.add_argument("--spell", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.case == "listing":
        result = listing(options.count or 100_000, options.rounds)
    elif options.case == "million":
        result = million(options.count or 1_000_000, options.rounds, options.spell)
    else:
        result = large(options.count or 50_000, options.rounds, options.text, options.spell)
    for key, value in result.items():
        print(f"{key:20} {value:12.3f}")
    if options.json:
        options.json.write_text(json.dumps({options.case: result}))


if __name__ == "__main__":
    main()
