"""Clocks that are set while a mount is up, or between two mounts."""

import os
import time
from pathlib import Path

import pytest
import trio
from fakes import STARTED, Clock, FlatSource, World, data_source, settled

from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.catalog.record import steady_time

HOUR = 3600.0
FILE = "mcp-server+docs/x/a"


class Steady(Clock):
    """The clock of a real mount."""

    def __call__(self) -> float:
        return steady_time()


def source() -> FlatSource:
    return FlatSource(data_source(content_ttl=10.0, listing_ttl=30.0), contents={"x://a": b"old"})


@pytest.mark.semantics("S17.3")
@pytest.mark.parametrize("step", [-HOUR, HOUR])
async def test_the_clock_changes_no_lifetime(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    elapsed = [time.clock_gettime(time.CLOCK_BOOTTIME)]
    monkeypatch.setattr(time, "clock_gettime", lambda _clock: elapsed[0])
    docs = source()
    async with World(nursery, docs, clock=Steady()) as world:
        assert await world.kernel.cat(FILE) == b"old"
        wall = time.time() + step
        monkeypatch.setattr(time, "time", lambda: wall)
        docs.contents["x://a"] = b"new"
        elapsed[0] += 9.0
        assert await world.kernel.cat(FILE) == b"old"
        elapsed[0] += 2.0
        assert await world.kernel.cat(FILE) == b"new"
        elapsed[0] += 20.0
        await world.kernel.ls("mcp-server+docs/x")
        await settled()
        assert len(docs.listed) == 2


@pytest.mark.semantics("S17.3")
async def test_a_time_in_the_future_counts_as_expired_for_the_next_mount(
    nursery: trio.Nursery, store: MetadataStore, disk: DiskCache
) -> None:
    first, second = source(), source()
    async with World(nursery, first, store=store, disk=disk, clock=Clock(STARTED + HOUR)) as world:
        assert await world.kernel.cat(FILE) == b"old"
        await settled()
        await world.manager.flush()
    second.contents["x://a"] = b"newer"
    async with World(nursery, second, store=store, disk=disk, clock=Clock()) as world:
        assert await world.kernel.cat(FILE) == b"newer"
        assert (second.listed, second.loaded) == ([()], ["x://a"])


@pytest.mark.semantics("S9")
async def test_a_size_from_the_future_is_not_believed(nursery: trio.Nursery, store: MetadataStore) -> None:
    first, second = source(), source()
    async with World(nursery, first, store=store, clock=Clock(STARTED + HOUR)) as world:
        await world.kernel.stat(FILE)
        await settled()
        await world.manager.flush()
    second.contents["x://a"] = b"longer"
    async with World(nursery, second, store=store, clock=Clock()) as world:
        assert (await world.kernel.stat(FILE)).size == 6


async def test_a_disk_cache_that_was_tidied_in_the_future_is_tidied_again(tmp_path: Path) -> None:
    clock = Clock(time.time() - 2 * 24 * HOUR)
    disk = DiskCache(tmp_path / "contents", 1 << 20, clock=clock)
    disk.tidy()  # its stamp is two days ahead of the clock
    stray = disk.unfinished / "stray"
    stray.write_bytes(b"")
    os.utime(stray, (0, 0))
    disk.tidy()
    assert not stray.exists()
    disk.close()
