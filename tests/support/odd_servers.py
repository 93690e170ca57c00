"""Odd servers, and looking at processes and clocks, for the tests of MCP connections."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import trio

from bbfs.model.values import Loaded, McpServer


class ManualClock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def text(loaded: Loaded) -> str:
    """Return the first content of a loaded resource."""
    content = loaded.parts[0].content
    data = content.read(0, content.size)
    assert data is not None
    return data.decode()


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Return when `condition` holds; fail when it does not within the bound."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for lies in other processes
            await trio.sleep(0.01)


async def given_up(request: Callable[[], Awaitable[object]], begun: Callable[[], object]) -> None:
    """Cancel a request once `begun` shows that its server has it. Raises AssertionError if it was answered."""

    async def ask() -> None:
        await request()
        raise AssertionError("the request was answered")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await until(begun)
        nursery.cancel_scope.cancel()


def exists(pid: int) -> bool:
    """Whether there is such a process, as a zombie too."""
    return Path(f"/proc/{pid}").exists()


def runs(pid: int) -> bool:
    """Whether there is such a process that is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def environment(pid: int) -> set[str]:
    """The names of a process's environment variables."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return {entry.partition(b"=")[0].decode() for entry in entries if entry}


def descriptors_of(pid: int) -> set[int]:
    """The descriptors that a process has open."""
    return {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}


@dataclass(frozen=True)
class Odd:
    """An odd server over stdio, and the log that it writes."""

    server: McpServer
    log: Path

    def lines(self, start: str = "") -> list[str]:
        if not self.log.exists():
            return []
        return [line for line in self.log.read_text().splitlines() if line.startswith(start)]

    @property
    def pids(self) -> list[int]:
        return [int(line.split()[1]) for line in self.lines("start ")]
