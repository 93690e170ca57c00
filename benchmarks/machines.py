"""Four machines that read one server, with and without a shared cache: requests that reach it, and seconds.

    python benchmarks/machines.py [--rounds 5] [--files 1000] [--delay 0.02] [--json FILE]

Method: as root, six network namespaces on one bridge, each with an address of its own: an MCP server over HTTP, a
Valkey or Redis server, and four daemons of bbfs, each with a home of its own. The server answers each request after the
delay, which stands for the network (not each kernel has netem). In each round, with the shared cache and without it in
turns, everything is started again, empty. Two cases:

first, then three   `grep -r` of the whole mount on machine 1; once that is over and what it has loaded is shared, the
                    same on machines 2, 3 and 4 at once
all at once         `grep -r` on all four machines at once, with nothing cached anywhere

A figure of several machines is that of the slowest; of processor time, it is the median. All machines share the
processors of this one: compare figures, and do not add them. Printed as a table of Markdown: medians, with the least
and the greatest; a ratio is the median of the ratios of the rounds.
"""

import argparse
import contextlib
import http.server
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import places
from figures import summary
from files import Shape
from report import row, spread
from rounds import processor_time
from server import Server

MACHINES = 4
SUBNET = "10.231.77."
SOURCE, CACHE, FIRST = 2, 3, 11
"""Last parts of the addresses of the source, the cache and the first machine."""
PORT, CACHE_PORT = 8000, 6379
BOUND = 120.0
PLACES = ("without", "shared")
CASES = {
    "`grep -r` on machine 1": "s",
    "requests to the server": "",
    "processor time of its daemon": "s",
    "`grep -r` on machines 2–4 at once": "s",
    "requests to the server ": "",
    "processor time of a daemon": "s",
    "`grep -r` on all four at once, nothing cached": "s",
    "requests to the server  ": "",
}
"""The rows of the table, with their units; rows of one name differ in spaces at their end."""


class Network:
    """Network namespaces on one bridge, which is in a namespace of its own: nothing of the machine is changed."""

    def __init__(self, stack: ExitStack) -> None:
        self._prefix = f"bbfs-bench-{os.getpid()}"
        self._stack = stack
        self._hub = self._namespace("hub")
        _ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._hub, "link", "set", "bridge", "up")

    def _namespace(self, name: str) -> str:
        full = f"{self._prefix}-{name}"
        _ip("netns", "add", full)
        self._stack.callback(_ip, "netns", "delete", full)
        _ip("-n", full, "link", "set", "lo", "up")
        return full

    def machine(self, number: int) -> list[str]:
        """Add a machine with this last part of its address. Return the beginning of a command that runs there."""
        space, end = self._namespace(str(number)), f"v{number}"
        _ip("-n", self._hub, "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("-n", self._hub, "link", "set", end, "master", "bridge", "up")
        _ip("-n", space, "address", "add", f"{SUBNET}{number}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        return ["nsenter", f"--net=/run/netns/{space}"]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=BOUND)


# -- the source ------------------------------------------------------------------------------------------------------


def serve(shape: Shape, delay: float, counters: str) -> None:
    """Serve the files of server.py over HTTP, for `machines.py --serve`."""
    made = Server(shape, 0.0, None, template=False)
    counted = os.open(counters, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if request.get("method", "").startswith("resources/"):
                os.write(counted, f"{request['method']}\n".encode())
            time.sleep(delay)
            if "id" not in request:
                self._send(202, b"")
                return
            result = made.result(request)
            answer = {"result": result} if result is not None else {"error": {"code": -32601, "message": "not served"}}
            self._send(200, json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}).encode())

        def do_GET(self) -> None:
            self._send(405, b"")  # no stream of messages

        def do_DELETE(self) -> None:
            self._send(405, b"")

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: it would be part of what is measured."""

    class Threads(http.server.ThreadingHTTPServer):
        request_queue_size = 256

    Threads((f"{SUBNET}{SOURCE}", PORT), Handler).serve_forever()


class Round:
    """Everything started again, empty. shared: with the shared cache."""

    def __init__(self, network: "Machines", root: Path, shape: Shape, delay: float, *, shared: bool) -> None:
        self._network, self._root, self._shape = network, root, shape
        self._delay, self._shared = delay, shared
        self._counters = root / "counters"

    @contextmanager
    def mounts(self) -> Iterator[list[tuple[Path, int]]]:
        """The mounts of the machines, each with the PID of its daemon."""
        with ExitStack() as stack:
            served = [sys.executable, __file__, "--serve", str(self._counters), "--delay", str(self._delay)]
            served += ["--files", str(self._shape.count)]
            source = self._network.source
            stack.enter_context(places.running([*source, *served], self._root / "source", self._root / "source.log"))
            _listening(source, f"{SUBNET}{SOURCE}", PORT)
            if self._shared:
                server = shutil.which("valkey-server") or shutil.which("redis-server") or "redis-server"
                options = ["--bind", f"{SUBNET}{CACHE}", "--save", "", "--appendonly", "no", "--protected-mode", "no"]
                cache, log = self._network.cache, self._root / "cache.log"
                stack.enter_context(places.running([*cache, server, *options], self._root / "cache", log))
                _listening(cache, f"{SUBNET}{CACHE}", CACHE_PORT)
            yield [stack.enter_context(self._mount(number)) for number in range(MACHINES)]

    @contextmanager
    def _mount(self, number: int) -> Iterator[tuple[Path, int]]:
        home, point = self._root / f"home{number}", self._root / f"machine{number}"
        url = f"http://{SUBNET}{SOURCE}:{PORT}/mcp"
        source = {"name": "docs", "mcpConfig": {"url": url}, "ttl": "1h", "timeout": "60s", "concurrency": 16}
        command = places.bbfs(home, [source])(point)
        if self._shared:
            config = home / "bench.toml"
            config.write_text(f'[cache]\nshared = "redis://{SUBNET}{CACHE}"\n{config.read_text()}')
        with places.mounted([*self._network.machines[number], *command], point, home) as pid:
            yield point, pid

    def requests(self) -> int:
        return self._counters.read_text().count("\n") if self._counters.exists() else 0

    def stored(self) -> None:
        """Wait until what the first machine has loaded is shared: each file and the listing."""
        if not self._shared:
            return
        client = shutil.which("valkey-cli") or shutil.which("redis-cli") or "redis-cli"
        line = [*self._network.cache, client, "-h", f"{SUBNET}{CACHE}", "--scan", "--pattern", "*:entry:*"]
        deadline = time.monotonic() + BOUND
        while time.monotonic() < deadline:
            done = subprocess.run(line, capture_output=True, timeout=BOUND, check=True)
            if done.stdout.count(b"\n") > self._shape.count:
                return
            time.sleep(0.05)
        raise SystemExit("not all contents were shared in time")


class Machines:
    """The machines of all rounds: the beginnings of commands that run there."""

    def __init__(self, stack: ExitStack) -> None:
        network = Network(stack)
        self.source, self.cache = network.machine(SOURCE), network.machine(CACHE)
        self.machines = [network.machine(FIRST + number) for number in range(MACHINES)]


def _listening(where: Sequence[str], host: str, port: int) -> None:
    probe = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)"
    deadline = time.monotonic() + BOUND
    while subprocess.run(
        [*where, sys.executable, "-c", probe, host, str(port)], stderr=subprocess.DEVNULL, timeout=BOUND, check=False
    ).returncode:
        if time.monotonic() > deadline:
            raise SystemExit(f"nothing listens at {host}:{port}")
        time.sleep(0.05)


def grep(point: Path, files: int) -> float:
    """Return the seconds of a `grep -r` that reads all files. Raise SystemExit unless it has."""
    started = time.perf_counter()
    done = subprocess.run(
        ["grep", "-rc", "", "mcp-server+docs/bench"], cwd=point, capture_output=True, timeout=BOUND, check=False
    )
    seconds = time.perf_counter() - started
    found = done.stdout.count(b"\n")
    if found != files or done.returncode:
        raise SystemExit(f"grep has read {found} files: {done.stderr.decode()[:200]}")
    return seconds


def at_once(points: Sequence[Path], files: int) -> float:
    """Return the seconds of the slowest of greps that begin together."""
    begin = threading.Barrier(len(points))

    def one(point: Path) -> float:
        begin.wait()
        return grep(point, files)

    with ThreadPoolExecutor(len(points)) as pool:
        return max(pool.map(one, points))


def measure(make: Callable[[], contextlib.AbstractContextManager[Round]], files: int) -> list[float]:
    """Return the figures of one round at one place, in the order of the table."""
    figures: list[float] = []
    with make() as one, one.mounts() as mounts:
        for group in (mounts[:1], mounts[1:]):
            before, worked = one.requests(), [processor_time(pid) for _, pid in group]
            figures.append(at_once([point for point, _ in group], files))
            figures.append(one.requests() - before)
            one.stored()
            after = [processor_time(pid) for _, pid in group]
            figures.append(statistics.median(now - then for now, then in zip(after, worked, strict=True)))
    with make() as one, one.mounts() as mounts:
        before = one.requests()
        figures.append(at_once([point for point, _ in mounts], files))
        figures.append(one.requests() - before)
    return figures


def table(rounds: list[dict[str, list[float]]]) -> str:
    lines = [row(["", "without", "with the shared cache", "× without"]), row(["---"] * 4)]
    for number, (case, unit) in enumerate(CASES.items()):
        found = [summary([one[place][number] for one in rounds]) for place in PLACES]
        ratio = statistics.median(one["shared"][number] / one["without"][number] for one in rounds)
        cells = [spread(each, unit) for each in found if each is not None]
        lines.append(row([case.strip(), *cells, f"{ratio:.2g}" if ratio < 0.1 else f"{ratio:.2f}"]))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=0.02, help="seconds before each answer of the server")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", metavar="COUNTERS", help="be the server (this program starts it)")
    options = parser.parse_args()
    shape = Shape(10, options.files // 10)
    if options.serve:
        serve(shape, options.delay, options.serve)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left over
    rounds: list[dict[str, list[float]]] = []
    with ExitStack() as stack:
        network = Machines(stack)
        for number in range(options.rounds):
            figures: dict[str, list[float]] = {}
            for place in PLACES if number % 2 == 0 else PLACES[::-1]:

                @contextmanager
                def make(shared: bool = place == "shared") -> Iterator[Round]:
                    with tempfile.TemporaryDirectory(prefix="bbfs-bench-") as root:
                        yield Round(network, Path(root), shape, options.delay, shared=shared)

                figures[place] = measure(make, shape.count)
            rounds.append(figures)
            print(f"round {number + 1} of {options.rounds}: {figures}", file=sys.stderr, flush=True)
    if options.json:
        options.json.write_text(json.dumps(rounds, indent=1) + "\n")
    print(table(rounds))


if __name__ == "__main__":
    main()
