"""Scale: listings of 100 000 and of a million resources over stdio, and a 64 MB text beside other reads.

Nothing but this machine's processes is involved; the server is tests/support/servers/many.py.

The list: the MCP SDK's own client walks all pages; then a fresh daemon mounts the same server and `find` on the mount
shows all. Both are timed from the start of their process on. A million: `find` on a mount that is listed, beside `find`
on a copy of the tree on tmpfs (empty files, the same names); then a second daemon with the cache of the first. The
longest delay of the event loops is taken by `probed.py`. The text: distinct resources of one server are read one after
the other, alone, and three times as long while the text of another server is read again and again.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import places
from figures import Sheet, Unmeasurable
from files import write_list
from rounds import HERE, Bench, Place, Sizes, answer, expect, run

GROUP = "scale"
LISTING, FIND, AGAIN = "list of 100 000", "find in a million", "find in a million, by a second daemon"
MEMORY, LOOP = "memory with a million", "longest stall of the loop, a million"
STALL = "stall by a 64 MB text, 99th percentile"
SERVER = HERE.parent / "tests" / "support" / "servers" / "many.py"
BOUND = 300.0
"""Seconds for one program."""
BESIDE = 150_000
"""Resources beside the text."""
TREE = Path("mcp-server+many", "many", "shelves")
"""The directory of the resources on a mount; beside it bbfs has files of its own (.about.md)."""


def plan(sheet: Sheet, _sizes: Sizes) -> None:
    sheet.plan(GROUP, [LISTING], ["SDK client", "bbfs"])
    sheet.plan(GROUP, [STALL], ["bbfs"], unit="ms")
    sheet.plan(GROUP, [FIND], ["tmpfs", "bbfs"])
    sheet.plan(GROUP, [MEMORY], ["bbfs"], unit="MB")
    sheet.plan(GROUP, [LOOP], ["bbfs"], unit="ms")
    sheet.plan(GROUP, [AGAIN], ["bbfs"])


@dataclass(frozen=True)
class Daemon:
    """A mount. delays: where `probed.py` keeps the longest delay of the event loop."""

    mount: Place
    delays: Path

    def longest_delay(self) -> float:
        """Milliseconds since the last call. Raises Unmeasurable."""
        time.sleep(0.5)
        enough = time.monotonic() + BOUND
        while not self.delays.exists():
            if time.monotonic() > enough:
                raise Unmeasurable("the event loop has stopped")
            time.sleep(0.1)
        longest = float(self.delays.read_text() or 0) * 1000
        self.delays.unlink()
        return longest


@contextmanager
def mounted(home: Path, servers: Mapping[str, Sequence[str | Path]], *, short_lived: str = "") -> Iterator[Daemon]:
    """A daemon with its caches in `home`, from its start until it is gone. short_lived: it keeps nothing."""
    sources = [
        places.served(name, command) | {"ttl": "1ms" if name == short_lived else "1h", "timeout": "10m"}
        for name, command in servers.items()
    ]
    delays, path = home / "delays", home.parent / f"{home.name}-{time.monotonic_ns()}"
    command = places.bbfs(home, sources)(path)
    words = command[command.index("mount") :]
    with places.mounted([sys.executable, HERE / "probed.py", delays, *words], path, home) as pid:
        yield Daemon(Place("bbfs", path / TREE, pid=pid), delays)


def server(count: int, *options: str) -> list[str | Path]:
    return [sys.executable, "-I", "-S", SERVER, "--count", str(count), *options]


def find(path: Path, count: int) -> float:
    """Seconds. Raises Unmeasurable: there are not exactly so many files."""
    with tempfile.TemporaryFile() as output:
        taken = run(["find", path, "-type", "f", "-printf", "\n"], bound=BOUND, output=output)
        expect("find saw", output.tell(), count)
    return taken


def list_by_client(bench: Bench, number: int) -> None:
    began = time.perf_counter()
    said = answer([sys.executable, HERE / "client.py", "list", "--", *server(bench.sizes.listed)], bound=BOUND)
    taken = time.perf_counter() - began
    expect("resources", said["count"], bench.sizes.listed)
    bench.sheet.add(number, GROUP, LISTING, "SDK client", taken)


def list_by_find(bench: Bench, number: int) -> None:
    began = time.perf_counter()
    with mounted(bench.memory / f"listing-{number}", {"many": server(bench.sizes.listed)}) as daemon:
        find(daemon.mount.tree, bench.sizes.listed)
        bench.sheet.add(number, GROUP, LISTING, "bbfs", time.perf_counter() - began)


def copy_tree(count: int, path: Path) -> None:
    for number in range(count):
        directory = path / f"{number // 1000:04}"
        if number % 1000 == 0:
            directory.mkdir(parents=True)
        os.close(os.open(directory / f"document-{number:07}.txt", os.O_CREAT | os.O_WRONLY))


def million(bench: Bench) -> None:
    count, copy, home = bench.sizes.many, bench.memory / "copy", bench.memory / "million"
    copy_tree(count, copy)
    servers, stalls = {"many": server(count)}, list[float]()
    with mounted(home, servers) as daemon:
        find(daemon.mount.tree, count)
        bench.sheet.add(0, GROUP, FIND, "tmpfs", find(copy, count))
        bench.sheet.add(0, GROUP, FIND, "bbfs", find(daemon.mount.tree, count))
        time.sleep(4 * bench.sizes.spell)  # what was learnt is written by now
        stalls.append(daemon.longest_delay())
        bench.sheet.add(0, GROUP, MEMORY, "bbfs", daemon.mount.memory() * (1 << 20) / 1e6)
    began = time.perf_counter()
    with mounted(home, servers) as daemon:
        find(daemon.mount.tree, count)
        bench.sheet.add(0, GROUP, AGAIN, "bbfs", time.perf_counter() - began)
        stalls.append(daemon.longest_delay())
    bench.sheet.add(0, GROUP, LOOP, "bbfs", max(stalls))


def beside_text(bench: Bench) -> None:
    spell, names = bench.sizes.spell, [f"{n // 1000:04}/document-{n:07}.txt" for n in range(BESIDE)]
    servers = {"large": server(1, "--large", str(bench.sizes.text)), "many": server(BESIDE)}
    home, read = bench.memory / "text", 0

    def read_for(seconds: float) -> float:
        """The 99th percentile of reads, in milliseconds; no resource is read twice."""
        nonlocal read
        command = [sys.executable, HERE / "reader.py", "each", paths, str(read), str(seconds)]
        took = answer(command, bound=BOUND)["each"]
        read += len(took)
        if read == BESIDE:
            raise Unmeasurable("there were not enough resources to read")
        return sorted(took)[int(0.99 * (len(took) - 1))] * 1000

    with mounted(home, servers, short_lived="large") as daemon:
        big = daemon.mount.tree.parents[2] / "mcp-server+large" / "many" / "large.txt"
        paths = write_list(bench.memory / "paths", [str(daemon.mount.tree / name) for name in names])
        read_for(spell / 5)
        run(["cat", big], bound=BOUND)
        alone, log = read_for(spell), bench.memory / "again.log"
        with places.running([sys.executable, HERE / "reader.py", "again", big], home, log) as again:
            beside = read_for(3 * spell)
            expect("the reading of the text has ended with", again.poll(), None)
        bench.sheet.add(0, GROUP, STALL, "bbfs", max(0.0, beside - alone))


def measure(bench: Bench) -> None:
    """The listing as often as there is time for, the others once."""
    for number in bench.budget.numbers(first_apart=True):
        bench.sheet.attempt(GROUP, [LISTING], "SDK client", partial(list_by_client, bench, number))
        bench.sheet.attempt(GROUP, [LISTING], "bbfs", partial(list_by_find, bench, number))
        if number == 0:
            bench.sheet.attempt(GROUP, [STALL], "bbfs", partial(beside_text, bench))
            bench.sheet.attempt(GROUP, [FIND, MEMORY, LOOP, AGAIN], "bbfs", partial(million, bench))
