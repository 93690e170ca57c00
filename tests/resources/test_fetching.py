"""Contents that are kept on disk before a program asks for them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import Clock, FlatSource, World, data_source, until, uris

from bbfs.model.errors import BbfsError, NotFound, Unreachable
from bbfs.resources.cache import pins
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.pins import kept
from bbfs.resources.commands import table
from bbfs.resources.commands.answers import asked
from bbfs.resources.offline.pins import Pins
from bbfs.resources.source import Pinned

DOCS = "mcp-server+docs"


@pytest.fixture
def disk(tmp_path: Path) -> Any:
    with closing(DiskCache(tmp_path / "contents", 1 << 30, Clock())) as made:
        yield made


def source(count: int = 3, **policy: Any) -> FlatSource:
    return FlatSource(data_source(**policy), contents={uri: f"content of {uri}".encode() for uri in uris(count)})


async def fetched(world: World, *paths: str, **bounds: int) -> tuple[table.Fetched, list[str]]:
    """The last counts of a fetch, and its sentences."""
    answers = await asked(world.manager, table.Fetch(paths or ("",), **bounds))
    counts = [answer for answer in answers if isinstance(answer, table.Fetched)][-1]
    return counts, [answer.problem for answer in answers if isinstance(answer, table.Problem)]


@pytest.mark.semantics("S42")
async def test_what_was_fetched_is_read_while_the_source_is_down(nursery: trio.Nursery, disk: DiskCache) -> None:
    docs = source()
    async with World(nursery, docs, disk=disk) as world:
        counts, problems = await fetched(world, DOCS)
        assert (counts.files, counts.loaded, counts.failed, problems) == (3, 3, 0, [])
        assert counts.bytes == sum(map(len, docs.contents.values()))  # type: ignore[arg-type]
        world.manager.memory.clear()
        docs.down = Unreachable("away")
        world.clock.advance(100)
        for number in range(3):
            assert await world.kernel.cat(f"{DOCS}/x/d/{number:04}") == f"content of x://d/{number:04}".encode()


@pytest.mark.semantics("S42")
async def test_what_is_fresh_on_disk_is_not_loaded_again(nursery: trio.Nursery, disk: DiskCache) -> None:
    docs = source(content_ttl=1000.0)
    async with World(nursery, docs, disk=disk) as world:
        await fetched(world, f"{DOCS}/x/d/0001")
        assert docs.loads.total() == 1
        counts, _ = await fetched(world)
        assert (counts.loaded, counts.present, docs.loads.total()) == (2, 1, 3)
        world.manager.memory.clear()
        counts, _ = await fetched(world, DOCS)
        assert (counts.loaded, counts.present, docs.loads.total()) == (0, 3, 3)


@pytest.mark.semantics("S42")
async def test_what_only_memory_has_goes_to_the_disk(nursery: trio.Nursery, disk: DiskCache) -> None:
    docs = source(1, content_ttl=1000.0)
    async with World(nursery, docs, disk=disk) as world:
        await world.kernel.cat(f"{DOCS}/x/d/0000")
        await world.manager.flush()
        disk.clear()
        counts, _ = await fetched(world, DOCS)
        assert (counts.loaded, docs.loads.total()) == (1, 1)
        found = disk.read(world.manager.roots.named("docs").fingerprint, "x://d/0000", 1 << 20)
        assert found is not None
        assert found.parts[0].content.read(0, 100) == b"content of x://d/0000"


@pytest.mark.semantics("S42.1")
async def test_the_bounds_hold(nursery: trio.Nursery, disk: DiskCache) -> None:
    docs = source(10)
    async with World(nursery, docs, disk=disk) as world:
        counts, _ = await fetched(world, DOCS, most_files=4)
        assert (counts.loaded, counts.left_out, docs.loads.total()) == (4, 6, 4)
        assert (await fetched(world, DOCS))[0].loaded == 6


@pytest.mark.semantics("S42.1")
async def test_no_more_bytes_are_loaded_than_asked_for(nursery: trio.Nursery, disk: DiskCache) -> None:
    docs = source(10)
    docs.described = {uri: {"size": 21} for uri in docs.contents}
    async with World(nursery, docs, disk=disk) as world:
        counts, _ = await fetched(world, DOCS, most_bytes=4 * 21 + 5)
        assert (counts.loaded, counts.left_out, counts.bytes) == (4, 6, 4 * 21)


@pytest.mark.semantics("S42.1")
async def test_failures_are_told_and_cost_no_other_file(nursery: trio.Nursery, disk: DiskCache) -> None:
    docs, away = (
        source(),
        FlatSource(data_source("mcp-server+away"), contents={"x://a": b"a"}, down=Unreachable("away")),
    )
    docs.contents["x://d/0001"] = BbfsError("broken")
    async with World(nursery, docs, away, disk=disk) as world:
        counts, problems = await fetched(world)
        assert (counts.loaded, counts.failed) == (2, 2)
        assert sorted(problems) == ["mcp-server+away: away", f"{DOCS}+x://d/0001: broken"]
        with pytest.raises(NotFound):
            await fetched(world, f"{DOCS}/x/d/nothing")


@pytest.mark.semantics("S42.1")
async def test_a_stale_content_is_a_failure_and_stays(nursery: trio.Nursery, disk: DiskCache) -> None:
    docs = source(1)
    async with World(nursery, docs, disk=disk) as world:
        await fetched(world, DOCS)
        docs.contents["x://d/0000"] = Unreachable("away")
        world.clock.advance(100)
        counts, problems = await fetched(world, f"{DOCS}/x/d/0000")
        assert (counts.present, counts.failed) == (0, 1)
        assert "away" in problems[0]
        assert await world.kernel.cat(f"{DOCS}/x/d/0000") == b"content of x://d/0000"


@pytest.mark.semantics("S42.1")
async def test_a_source_without_a_place_on_disk_says_why(nursery: trio.Nursery, disk: DiskCache) -> None:
    docs, memory = source(), source(disk=False)
    async with World(nursery, memory, disk=disk) as world:
        counts, problems = await fetched(world)
        assert problems == ["docs: its contents are not kept on disk (its option disk)"]
        assert (counts.files, memory.loads.total()) == (0, 0)
    async with World(nursery, docs) as world:
        assert (await fetched(world))[1] == ["docs: there is no disk cache ([cache] disk)"]


@asynccontextmanager
async def pinning(world: World) -> AsyncIterator[Pins]:
    """The pins of a world at work."""
    pins = Pins(world.manager, paced=0.01)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pins.run)
        yield pins
        nursery.cancel_scope.cancel()


def pinned(world: World, name: str = "docs") -> Pinned | None:
    return world.manager.roots.named(name).state_of_pins


@pytest.mark.semantics("S42.2")
async def test_a_pinned_source_is_loaded_and_again_when_it_changes(nursery: trio.Nursery, disk: DiskCache) -> None:
    docs = source()
    docs.source = replace(docs.source, pin=True)
    async with World(nursery, docs, disk=disk) as world, pinning(world):
        size = sum(len(each) for each in docs.contents.values() if isinstance(each, bytes))
        await until(lambda: pinned(world) == Pinned(3, size, 0))
        assert docs.loads.total() == 3
        docs.contents["x://d/0001"] = b"changed"
        docs.announce("x://d/0001")
        await until(lambda: docs.loads["x://d/0001"] == 2)
        docs.contents["x://d/0003"] = b"new"
        docs.announce()
        await until(lambda: pinned(world) == Pinned(4, sum(map(len, docs.contents.values())), 0))  # type: ignore[arg-type]
        docs.down = Unreachable("away")
        world.manager.memory.clear()
        world.clock.advance(365 * 86400)
        assert await world.kernel.cat(f"{DOCS}/x/d/0001") == b"changed"  # whatever max_stale is


@pytest.mark.semantics("S42.2")
async def test_what_is_pinned_is_not_evicted(nursery: trio.Nursery, tmp_path: Path) -> None:
    disk = DiskCache(tmp_path / "contents", 40 << 12, Clock())
    docs = FlatSource(data_source(), contents={uri: uri.encode() for uri in uris(5, "x://pinned/")})
    docs.contents |= {uri: uri.encode() for uri in uris(100, "x://other/")}
    async with World(nursery, docs, disk=disk) as world, pinning(world) as pins:
        await pins.set((DOCS, "x", "pinned"), is_pinned=True)
        await until(lambda: pinned(world) == Pinned(5, 5 * 15, 0))
        world.clock.advance(10)
        await fetched(world, f"{DOCS}/x/other")
        there = kept(disk, world.manager.roots.named("docs").fingerprint)
        assert set(uris(5, "x://pinned/")) <= set(there)
        assert len(there) <= 40
        await pins.set((DOCS, "x", "pinned"), is_pinned=False)
        await until(lambda: pinned(world) is None)
        world.clock.advance(1000)
        docs.announce()
        await fetched(world, f"{DOCS}/x/other")
        assert not set(uris(5, "x://pinned/")) <= set(kept(disk, world.manager.roots.named("docs").fingerprint))
    disk.close()


@pytest.mark.semantics("S42.2")
async def test_the_next_mount_has_the_same_pins(nursery: trio.Nursery, disk: DiskCache) -> None:
    docs = source()
    async with World(nursery, docs, disk=disk) as world, pinning(world) as pins:
        await pins.set((DOCS, "x", "d", "0001"), is_pinned=True)
        await until(lambda: pinned(world) is not None)
    async with World(nursery, source(), disk=disk) as world, pinning(world) as pins:
        await until(lambda: pinned(world) == Pinned(1, len(b"content of x://d/0001"), 0))
        with pytest.raises(BbfsError, match=r"is not pinned; pinned of docs: x/d/0001"):
            await pins.set((DOCS, "x"), is_pinned=False)
        await pins.set((DOCS, "x", "d", "0001"), is_pinned=False)
        await until(lambda: pinned(world) is None)


@pytest.mark.semantics("S42.2")
async def test_what_is_not_there_is_counted_as_missing(nursery: trio.Nursery, disk: DiskCache) -> None:
    docs = source()
    docs.source = replace(docs.source, pin=True)
    docs.contents["x://d/0001"] = BbfsError("broken")
    async with World(nursery, docs, disk=disk) as world, pinning(world):
        await until(lambda: pinned(world) == Pinned(3, 2 * len(b"content of x://d/0000"), 1))


@pytest.mark.semantics("S42.2")
def test_the_pins_of_a_source_that_no_mount_has_end(tmp_path: Path) -> None:
    clock = Clock()
    disk = DiskCache(tmp_path / "contents", 1 << 20, clock)
    pins.note_path(disk, "docs", "[]", clock())
    pins.hold(disk, "docs", [""], clock())
    for days, expected in ((29.0, ["[]"]), (2.0, [])):
        clock.advance(days * 86400)
        disk.tidy()
        assert pins.paths(disk, "docs") == expected
    disk.close()
