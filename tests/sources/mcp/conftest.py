"""What the tests of MCP connections share: a running manager, and servers to connect to."""

import gc
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from subprocess import DEVNULL, PIPE

import pytest
import trio
from forked_daemon import forked
from memory_server import Linked, MemoryServer
from odd_servers import ManualClock, Odd
from programs import descriptors_of
from repository import SERVERS
from trees_server import open_trees

from bbfs.model.errors import BbfsError
from bbfs.model.values import McpServer, Policy
from bbfs.resources.manager import ResourceManager
from bbfs.sources.mcp.client.manager import MCPManager


@pytest.fixture
def odd(tmp_path: Path) -> Callable[..., Odd]:
    """A maker of odd servers: `odd("crash-after", 2)`."""
    made = 0

    def make(oddity: str, *arguments: object, **env: str) -> Odd:
        nonlocal made
        made += 1
        log = tmp_path / f"odd-{made}.log"
        args = ("-S", str(SERVERS / "odd.py"), oddity, *map(str, arguments), "--log", str(log))
        return Odd(McpServer("stdio", command=sys.executable, args=args, env=env), log)

    return make


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where a server of `trees` logs its requests."""
    return tmp_path / "log"


@pytest.fixture
def trees(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[ResourceManager]]:
    """A manager of one server of trees: `async with trees("--width", "5") as manager`."""
    return partial(open_trees, tmp_path)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def manager(nursery: trio.Nursery, clock: ManualClock) -> MCPManager:
    """A running manager whose pauses pass by `clock`."""
    manager = MCPManager(clock=clock, random=Random(1))
    await nursery.start(lambda task_status: manager.run(task_status=task_status))
    return manager


@pytest.fixture
async def linked(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> Linked:
    """Makes a server and runs a manager with it as the source `memory`. options: of `McpServer`."""

    async def make(
        *,
        modern: bool = False,
        subscribe: bool = False,
        listed: bool = False,
        obstacle: BbfsError | None = None,
        timeout: float = 30,
        **options: object,
    ) -> tuple[MemoryServer, MCPManager]:
        server, manager = MemoryServer(modern=modern, subscribe=subscribe, listChanged=listed), MCPManager()
        server.obstacle = obstacle
        monkeypatch.setattr("bbfs.sources.mcp.client.connection.Stdio", server)
        manager.add("memory", McpServer("stdio", command="memory", **options), Policy(timeout=timeout))  # pyright: ignore[reportArgumentType]
        await nursery.start(lambda task_status: manager.run(task_status=task_status))
        return server, manager

    return make


@pytest.fixture
def short() -> Policy:
    """A policy for servers that do not answer."""
    return Policy(timeout=0.6)


@pytest.fixture
def serve() -> Callable[..., AbstractAsyncContextManager[str]]:
    """Runs a server of `tests/support/servers` that prints its URL: `async with serve("streams.py") as url`.

    output: gets the words that it prints after that.
    """

    @asynccontextmanager
    async def run(script: str, *arguments: object, output: list[str] | None = None) -> AsyncIterator[str]:
        command = forked(SERVERS / script, *map(str, arguments))
        process = await trio.lowlevel.open_process(command, stdin=DEVNULL, stdout=PIPE)
        assert process.stdout is not None
        try:
            line = b""
            with trio.fail_after(30):
                while b"\n" not in line:
                    chunk = await process.stdout.receive_some(1)
                    assert chunk, "the server ended before it printed its URL"
                    line += chunk
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_drain, process.stdout, output)
                yield line.decode().strip()
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                process.terminate()
                with trio.move_on_after(5):
                    await process.wait()
                process.kill()
                await process.wait()
                await process.stdout.aclose()

    return run


async def _drain(stream: trio.abc.ReceiveStream, output: list[str] | None) -> None:
    rest = b""
    async for chunk in stream:
        *lines, rest = (rest + chunk).split(b"\n")
        if output is not None:
            output += b" ".join(lines).decode().split()


@pytest.fixture
def descriptors() -> Callable[[], int]:
    """The number of open descriptors of this process, without those of earlier tests that nothing uses any more."""

    def count() -> int:
        gc.collect()
        return len(descriptors_of("self"))

    return count
