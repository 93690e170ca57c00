"""A change that is told while a load, a read or a write of the disk is under way: nothing older is fresh afterwards."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import FlatSource, World, settled, until

from bbfs.model.errors import Unreachable
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.tier import Cached
from bbfs.resources.loading.tiers import UNWRITTEN
from bbfs.resources.source.fingerprint import fingerprint

A = "mcp-server+docs/x/a"
URI = "mcp-server+docs+x://a"

Step = Callable[[], Awaitable[None]]


class StoppingDisk(DiskCache):
    """A disk cache in the midst of which something else happens, once, while its thread waits."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 1 << 30)
        self.after_read: Step | None = None
        self.before_put: Step | None = None

    def read(self, source: str, uri: str, in_memory: int) -> Cached | None:
        found = super().read(source, uri, in_memory)
        step, self.after_read = self.after_read, None
        if step is not None:
            trio.from_thread.run(step)
        return found

    def put(self, *entries: Any, **options: Any) -> bool:
        step, self.before_put = self.before_put, None
        if step is not None:
            trio.from_thread.run(step)
        return super().put(*entries, **options)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[StoppingDisk]:
    with closing(StoppingDisk(tmp_path / "contents")) as opened:
        yield opened


def flat(**contents: Any) -> FlatSource:
    source = FlatSource(contents={f"x://{name}": data for name, data in contents.items()})
    source.content_ttl = 100.0
    return source


def is_stale(disk: DiskCache, source: FlatSource, uri: str = "x://a") -> bool:
    found = disk.read(fingerprint(source.source), uri, 1 << 20)
    assert found is not None
    return found.stale


async def test_a_change_that_is_told_while_the_disk_is_read(nursery: trio.Nursery, disk: StoppingDisk) -> None:
    source = flat(a=b"old")
    async with World(nursery, source, disk=disk) as world:
        await world.kernel.cat(A)
        await world.manager.flush()
    async with World(nursery, source, disk=disk, clock=world.clock) as again:

        async def change() -> None:
            source.contents["x://a"] = b"new"
            source.announce(missed=True)
            await again.manager.flush()

        disk.after_read = change
        assert await again.kernel.cat(A) == b"new"
        assert await again.kernel.cat(A) == b"new"


async def test_a_change_told_while_a_large_content_awaits_the_disk(nursery: trio.Nursery, disk: StoppingDisk) -> None:
    source = flat(a=b"large" * 1000, b=b"b")
    async with World(nursery, source, memory=1000, disk=disk) as world:
        await world.kernel.cat("mcp-server+docs/x/b")
        source.hold("x://a")
        nursery.start_soon(world.kernel.cat, A)
        await until(lambda: "x://a" in source.loaded)
        _, record = world.manager.by_uri.record_of(URI)

        async def change() -> None:
            source.release("x://a")
            await trio.testing.wait_all_tasks_blocked()
            source.announce("x://a")

        disk.before_put = change
        await world.manager.flush()
        await until(lambda: record.fetched_at is not None)
        assert is_stale(disk, source)


async def test_what_finds_no_room_to_wait_for_the_disk_leaves_nothing_fresh_there(
    nursery: trio.Nursery, disk: StoppingDisk
) -> None:
    source, new = flat(a=b"old", b=b"b"), bytes(UNWRITTEN)
    async with World(nursery, source, disk=disk, memory=8 * UNWRITTEN) as world:
        await world.kernel.cat(A)
        await world.manager.flush()
        await world.kernel.cat("mcp-server+docs/x/b")

        async def change() -> None:
            source.contents["x://a"] = new
            source.announce("x://a")
            assert new.startswith(await world.kernel.cat(A))

        disk.before_put = change
        await world.manager.flush()
        assert is_stale(disk, source)


async def test_a_change_told_of_a_resource_listed_while_it_is_loaded(nursery: trio.Nursery, disk: StoppingDisk) -> None:
    source = flat(a=b"old", b=b"b")
    source.unlisted.add("x://a")
    async with World(nursery, source, disk=disk) as world:
        await world.kernel.ls("mcp-server+docs/x")
        source.hold("x://a")
        nursery.start_soon(world.manager.by_uri.load, URI)
        await until(lambda: source.loaded)
        _, unlisted = world.manager.by_uri.record_of(URI)
        source.unlisted.clear()
        source.announce()
        await settled()
        _, listed = world.manager.by_uri.record_of(URI)
        assert listed is not unlisted
        source.announce("x://a")
        source.release("x://a")
        await until(lambda: unlisted.fetched_at is not None)
        await world.manager.flush()
        assert is_stale(disk, source)


@pytest.mark.semantics("S18", "S20")
async def test_what_stands_in_is_asked_for_again_though_opened(nursery: trio.Nursery, disk: StoppingDisk) -> None:
    source = flat(a=b"old")
    source.listing_ttl = 1000.0
    async with World(nursery, source, disk=disk) as world:
        for _ in range(3):
            await world.kernel.cat(A)
        await world.manager.flush()
        disk.expire([(fingerprint(source.source), "x://a")])  # by another mount, which was told of a change
        world.manager.memory.clear()
        source.down = Unreachable("gone")
        world.forgotten()
        assert await world.kernel.cat(A) == b"old"
        assert world.forgotten() == ["a"]
        source.down, source.contents["x://a"] = None, b"new"
        world.clock.advance(10)
        assert await world.kernel.cat(A) == b"new"
