"""A PostgreSQL table of a million rows: its `rows.csv` through a mount, beside what psql writes for COPY.

Method: a server of its own, as the tests start it. In each round psql copies the table to a file, and `cat` copies
`rows.csv` from the mount to one: cold, after `bbfs refresh`, so that the database is asked, and warm. The files are
compared byte by byte. The daemon's memory is its resident set after all rounds less that before the first.

    python benchmarks/database.py [--rows 1000000] [--rounds 5]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from filecmp import cmp
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from harness import Mount
from postgres_server import PASSWORD, PostgresServer, postgres_server

BOUND = 120


def resident(pid: int) -> int:
    """Bytes of a process in memory."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def copied(path: Path, to: Path) -> None:
    with to.open("wb") as file:
        subprocess.run(["cat", path], stdout=file, stdin=subprocess.DEVNULL, timeout=BOUND, check=True)


def refreshed(mount: Mount, path: Path) -> None:
    command = [sys.executable, "-m", "bbfs", "refresh", str(path)]
    subprocess.run(command, env=mount.environ(), stdin=subprocess.DEVNULL, timeout=BOUND, check=True)


def measure(server: PostgresServer, rows: int, rounds: int) -> None:
    row = "i, 'text ' || i, i / 7.0, timestamptz '2026-01-01 UTC' + i * interval '1 s'"
    made = f"SELECT {row} FROM generate_series(1, {rows}) i"
    server.create("bench", (f"CREATE TABLE t (id, words, number, at) AS {made}", "ANALYZE t"))
    source = {
        "name": "bench",
        "type": "database",
        "config": {"url": server.url("bench")},
        "auth": {"password": PASSWORD},
        "ttl": "1h",
    }
    times: dict[str, list[float]] = {"psql": [], "cold": [], "warm": []}
    with tempfile.TemporaryDirectory() as scratch:
        plain, through = Path(scratch) / "psql", Path(scratch) / "mount"
        mount = Mount([source])
        try:
            table = mount / "bb-database+bench+postgres" / "public" / "t"
            copied(table / "count", through)
            before = resident(mount.pid)
            for _ in range(rounds):
                times["psql"].append(
                    seconds(lambda: plain.write_bytes(server.psql("bench", "COPY t TO STDOUT CSV HEADER")))
                )
                refreshed(mount, table)
                for kind in ("cold", "warm"):
                    times[kind].append(seconds(lambda: copied(table / "rows.csv", through)))
                    if not cmp(plain, through, shallow=False):
                        raise SystemExit(f"{kind}: rows.csv is not what COPY writes")
            grown = resident(mount.pid) - before
            size = plain.stat().st_size
            mount.stop()
        finally:
            mount.destroy()
    base = statistics.median(times["psql"])
    print(f"{rows} rows, {size} bytes, equal to COPY; the daemon grew by {grown / 2**20:.1f} MiB")
    for kind, all_of in times.items():
        median = statistics.median(all_of)
        print(f"{kind}: {median:.2f} s ({min(all_of):.2f} to {max(all_of):.2f}), {median / base:.2f} x psql")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with postgres_server() as server:
        measure(server, given.rows, given.rounds)


if __name__ == "__main__":
    main()
