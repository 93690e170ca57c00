"""The end of everything that runs for the sources: in order, and within one deadline."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import FlatSource, data_source
from trio.testing import MockClock

from bbfs.config import Config
from bbfs.resources.manager import ResourceManager
from bbfs.resources.open import ENDING, Composition, resource_manager


class Connections:
    """The connections of MCP servers. `ended` is set when they end."""

    def __init__(self) -> None:
        self.ended = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            self.ended.set()


class Stuck:
    """A call that waits in its thread until the end of the test, as for a disk that hangs."""

    def __init__(self) -> None:
        self.came, self.ended = threading.Event(), threading.Event()

    def __call__(self, *_: object) -> None:
        self.came.set()
        self.ended.wait(600)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    made = Stuck()
    yield made
    made.ended.set()


class Closing(FlatSource):
    """A source that closes only when `stuck` ends."""

    stuck: Callable[[], None] = staticmethod(lambda: None)

    async def aclose(self) -> None:
        await trio.to_thread.run_sync(self.stuck, abandon_on_cancel=True)


@pytest.mark.semantics("S26")
@pytest.mark.parametrize(
    "step",
    [
        "bbfs.resources.cache.metadata.MetadataStore.outdate_listing",
        "bbfs.resources.cache.metadata.MetadataStore.close",
        "bbfs.resources.cache.disk.DiskCache.put",
        "bbfs.resources.cache.disk.DiskCache.close",
        "bbfs.resources.search.index.local.write_all",
        "bbfs.resources.search.index.store.IndexStore.close",
        "test_open.Closing.stuck",
    ],
)
async def test_all_ends_within_one_deadline(
    tmp_path: Path, step: str, stuck: Stuck, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    leaving = trio.Event()

    async def pass_time() -> None:
        assert await trio.to_thread.run_sync(stuck.came.wait, 600, abandon_on_cancel=True)
        await leaving.wait()
        mock_clock.jump(ENDING)

    monkeypatch.setattr(step, stuck)
    source = Closing(replace(data_source(), index=True), contents={"x://a": b"text"})
    places = tmp_path / "metadata.sqlite", tmp_path / "index.sqlite"
    async with trio.open_nursery() as nursery:
        async with resource_manager(Config(), Composition([source]), *places) as manager:
            await manager.by_uri.load("mcp-server+docs+x://a")
            source.announce()
            nursery.start_soon(pass_time)
            leaving.set()
        assert stuck.came.is_set()


async def test_sources_end_before_the_last_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connections = Connections()
    seen: list[bool] = []

    async def flush(_: Any) -> None:
        await connections.ended.wait()
        seen.append(True)

    monkeypatch.setattr(ResourceManager, "flush", flush)
    async with resource_manager(Config(), Composition([], connections), tmp_path / "metadata.sqlite"):
        pass
    assert seen == [True]
