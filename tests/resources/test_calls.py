"""Calls of tools: how long a source may go on with one."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from bbfs.model.calls import Call, Progress
from bbfs.model.errors import DeadlineExceeded
from bbfs.model.values import Loaded
from bbfs.resources.commands.answers import ask
from bbfs.resources.commands.calls import LONGEST
from bbfs.resources.commands.table import CallTool
from bbfs.resources.manager import ResourceManager


class Endless:
    """A handler whose tool reports progress each second and never ends."""

    async def tools(self) -> tuple[()]:
        return ()

    async def call(self, call: Call, progress: Callable[[Progress], None]) -> Loaded:
        for number in range(1_000_000):
            await trio.sleep(1)
            progress(Progress(float(number)))
        raise AssertionError("no end")


def manager(timeout: float) -> ResourceManager:
    """Return a manager of one source with that handler, which has what a call needs."""

    @asynccontextmanager
    async def ask() -> AsyncIterator[None]:
        yield

    data = SimpleNamespace(id="mcp-server+x", policy=SimpleNamespace(timeout=timeout))
    source = SimpleNamespace(handler=Endless(), data=data, waiters=nullcontext(), slots=SimpleNamespace(ask=ask))
    return cast(ResourceManager, SimpleNamespace(tree=SimpleNamespace(place=lambda _: (source, ()))))


@pytest.mark.parametrize(("timeout", "longest"), [(5.0, LONGEST), (2 * LONGEST, 2 * LONGEST)])
async def test_progress_for_ever_ends(autojump_clock: MockClock, timeout: float, longest: float) -> None:
    start, told = trio.current_time(), list[Any]()
    with pytest.raises(DeadlineExceeded, match=f"within {longest:g} s"):
        await ask(manager(timeout), CallTool("mcp-server+x", "t"), told.append)
    assert trio.current_time() - start == pytest.approx(longest)
    assert len(told) >= longest - 2
