"""Announcing server: cold as in cold_cases.py, from a server like real ones, beside the SDK's own client.

The server is built on the SDK (tests/support/servers/resources.py). It announces changes and has templates and tools. A
read takes it about 1 ms of processor time beside the delay, so the ideal of the delay alone is out of reach, and the
SDK's client with 16 readers is what a client can reach at best. The server counts the requests to listen to changes.
"""

import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from cold_cases import AT_A_TIME, CELL_BOUND, Round, Slow, Upstream, by_client, requests
from figures import Sheet
from rounds import HERE, Bench, Sizes, run

GROUP = "announcing server"
GREP, LISTENS = "grep -r", "requests to listen"
SERVER = HERE.parent / "tests" / "support" / "servers" / "resources.py"
FRESH = 60_000
"""Milliseconds that the server calls its answers fresh."""


def plan(sheet: Sheet, _sizes: Sizes) -> None:
    sheet.plan(GROUP, [GREP], ["ideal", AT_A_TIME, "bbfs"])
    sheet.plan(GROUP, [LISTENS], ["bbfs"], unit="")


def serve(slow: Slow, _seed: str, counters: Path) -> list[str | Path]:
    options = {"count": slow.count, "delay": slow.delay, "counters": counters, "ttl-ms": FRESH, "tools": 3}
    return [sys.executable, SERVER, *(word for name, value in options.items() for word in (f"--{name}", str(value)))]


def grep(one: Round) -> None:
    with ExitStack() as ending:
        upstream = Upstream(one.stage(GROUP, ending), one.slow, [GREP], 16, serve=serve, below="test/items")
        tree = upstream.tree(GREP)
        taken = run(["grep", "-r", "no such text", tree], bound=CELL_BOUND, accepted=(1,))
        upstream.read_all(GREP)
        one.sheet.add(one.number, GROUP, GREP, "bbfs", taken)
        one.sheet.add(one.number, GROUP, LISTENS, "bbfs", requests(upstream.counters(GREP), b"listen"))


def client(one: Round) -> None:
    command = serve(one.slow, "", one.scratch / f"counters-{one.number}")
    one.sheet.add(one.number, GROUP, GREP, AT_A_TIME, by_client(command, 16, one.slow.count))


def measure(bench: Bench) -> None:
    slow = Slow(bench.sizes.slow)
    for number in bench.budget.numbers():
        one = Round(bench.sheet, number, slow, bench.memory)
        one.sheet.add(number, GROUP, GREP, "ideal", slow.ideal(16))
        both = {"bbfs": grep, AT_A_TIME: client}
        for name in (*both,)[:: -1 if number % 2 else 1]:
            one.sheet.attempt(GROUP, [GREP], name, partial(both[name], one))
