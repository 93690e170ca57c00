"""Contents that are kept on disk before a program asks for them."""

from pathlib import Path
from typing import Any

import pytest
import trio

from bbfs.model.errors import BbfsError, NotFound, Unreachable
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.commands import table
from bbfs.resources.commands.answers import asked
from tests.support.fakes import FlatSource, World, data_source, uris

DOCS = "mcp-server+docs"


@pytest.fixture
def disk(tmp_path: Path) -> Any:
    made = DiskCache(tmp_path / "contents", 1 << 30)
    yield made
    made.close()


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
