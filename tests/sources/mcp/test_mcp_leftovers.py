"""Processes that a server starts in sessions of their own, and servers that outlive a killed bbfs."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from odd_servers import runs, until

from bbfs.model.redaction import Redactor
from bbfs.model.values import McpServer
from bbfs.sources.content.spool import Spool
from bbfs.sources.mcp.transport.stdio import Stdio

BOUND = 60.0
STUBBORN = """
import os, signal, sys
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
else:
    os.wait()
os.close(0)
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\n")
while True:
    signal.pause()
"""
BBFS = """
import sys, trio
from bbfs.model.redaction import Redactor
from bbfs.model.values import McpServer
from bbfs.sources.mcp.transport.stdio import Stdio

async def main():
    server = McpServer("stdio", command=sys.executable, args=("-c", sys.argv[1], sys.argv[2]))
    async with Stdio("odd", server, Redactor(()), 1 << 20, None).connect():
        await trio.sleep_forever()

trio.run(main)
"""


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """The file to which the server and its child write their numbers."""
    path = tmp_path / "pids"
    path.touch()
    yield path
    for pid in started(path):
        if runs(pid):
            os.kill(pid, signal.SIGKILL)


def started(pids: Path) -> list[int]:
    return [int(line) for line in pids.read_text().split("\n")[:-1]]


@pytest.mark.semantics("S24.3")
async def test_what_a_server_starts_in_a_session_of_its_own_ends_with_it(pids: Path, tmp_path: Path) -> None:
    server = McpServer("stdio", command=sys.executable, args=("-c", STUBBORN, str(pids)))
    beside = await trio.lowlevel.open_process(["sleep", "100"], start_new_session=True)  # is none of its processes
    try:
        with trio.fail_after(BOUND):
            async with Stdio("odd", server, Redactor(()), 1 << 20, lambda: Spool(tmp_path)).connect():
                await until(lambda: len(started(pids)) == 2)
                assert all(map(runs, started(pids)))
        assert not any(map(runs, started(pids)))
        assert beside.poll() is None
    finally:
        beside.kill()
        await beside.wait()


@pytest.mark.semantics("S24.3")
async def test_servers_end_with_a_killed_bbfs(pids: Path) -> None:
    bbfs = await trio.lowlevel.open_process([sys.executable, "-c", BBFS, STUBBORN, pids])
    try:
        with trio.fail_after(BOUND):
            await until(lambda: len(started(pids)) == 2)
            assert all(map(runs, started(pids)))
            bbfs.kill()
            await until(lambda: not any(map(runs, started(pids))))
    finally:
        bbfs.kill()
        await bbfs.wait()
