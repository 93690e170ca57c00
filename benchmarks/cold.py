"""How long a cold `grep -r` over a slow MCP server takes, beside reading the same resources one after the other.

Method: a server over stdio that answers each read after `--delay` seconds. In each round, in this order: a plain client
of the MCP SDK lists and reads all resources in sequence; then a fresh daemon, with a cache directory of its own, mounts
the same server and `grep -r` walks it twice (cold, warm). Rounds are interleaved, medians are compared. The upstream
reads are counted by the server. Nothing but this machine's processes is involved.

    python benchmarks/cold.py [--count 1000] [--delay 0.02] [--rounds 3] [--json FILE]
"""

import argparse
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import trio
from mcp import StdioServerParameters
from mcp.client.client import Client

from bbfs import mounts

SERVER = Path(__file__).parent.parent / "tests" / "servers" / "resources.py"
BOUND = 300


def server_command(count: int, delay: float, counters: Path) -> list[str]:
    options = ["--count", str(count), "--delay", str(delay), "--counters", str(counters)]
    return [sys.executable, str(SERVER), *options]


async def sequential(command: list[str]) -> float:
    """Seconds that the SDK's own client takes to list all resources and read them one after the other."""
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(parameters, cache=None) as client:
        started = time.perf_counter()
        cursor: str | None = None
        while True:
            page = await client.list_resources(cursor=cursor)
            for resource in page.resources:
                if resource.uri.startswith("test://items/"):
                    await client.read_resource(resource.uri)
            cursor = page.next_cursor
            if not cursor:
                return time.perf_counter() - started


def grep(path: Path) -> float:
    started = time.perf_counter()
    done = subprocess.run(["grep", "-rc", "no such text", str(path)], capture_output=True, timeout=BOUND, check=False)
    if done.returncode != 1 or done.stderr:
        raise SystemExit(f"grep failed: {done.stderr.decode()}")
    return time.perf_counter() - started


def mounted(command: list[str], counters: Path) -> tuple[float, float, int, int]:
    """Seconds of a cold and a warm walk, and the upstream reads that each caused."""
    with tempfile.TemporaryDirectory() as home, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        path = Path(home, "mnt")
        address = f"bbfs-bench-{os.getpid()}"
        ready.bind("\0" + address)
        quoted = " ".join(command)
        environ = os.environ | {"XDG_CACHE_HOME": home, "XDG_CONFIG_HOME": home, "NOTIFY_SOCKET": "@" + address}
        daemon = subprocess.Popen(
            [sys.executable, "-m", "bbfs", "mount", str(path), "--mcp", f"slow={quoted}"], env=environ
        )
        try:
            if not select.select([ready], [], [], 30)[0]:
                raise SystemExit("the mount did not begin to serve")
            subprocess.run(["ls", str(path / "mcp-server+slow")], capture_output=True, timeout=BOUND, check=True)
            items = path / "mcp-server+slow" / "test" / "items"
            before = reads(counters)
            cold = grep(items)
            between = reads(counters)
            warm = grep(items)
            return cold, warm, between - before, reads(counters) - between
        finally:
            daemon.terminate()
            daemon.wait(30)
            mounts.unmount(str(path))


def reads(counters: Path) -> int:
    return counters.read_text().count("read test://items/") if counters.exists() else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=0.02)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as directory:
        counters = Path(directory, "counters")
        command = server_command(options.count, options.delay, counters)
        for number in range(options.rounds):
            plain = trio.run(sequential, command)
            cold, warm, cold_reads, warm_reads = mounted(command, counters)
            row = {"sequential": plain, "cold": cold, "warm": warm, "reads": cold_reads, "rereads": warm_reads}
            rows.append(row)
            print(f"round {number + 1}: " + "  ".join(f"{key} {value:.3g}" for key, value in row.items()), flush=True)
    median = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    print(f"{options.count} resources, {options.delay * 1000:g} ms a read, medians of {options.rounds} rounds")
    print(f"in sequence, MCP SDK   {median['sequential']:7.2f} s")
    print(f"grep -r, cold          {median['cold']:7.2f} s   1/{median['sequential'] / median['cold']:.1f}")
    print(f"grep -r, warm          {median['warm']:7.2f} s   1/{median['sequential'] / median['warm']:.0f}")
    print(f"upstream reads: cold {median['reads']:.0f}, warm {median['rereads']:.0f}")
    if options.json:
        options.json.write_text(
            json.dumps({"options": {"count": options.count, "delay": options.delay}, "rounds": rows})
        )


if __name__ == "__main__":
    main()
