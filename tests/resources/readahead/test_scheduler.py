"""Loading ahead at work: slots, budget, fairness, and what becomes of a queue whose reader is gone."""

from dataclasses import replace
from typing import Any

import pytest
import trio
from fakes import CompletingSource, FlatSource, TreeSource, World, data_source, settled, uris
from trio.testing import MockClock

from bbfs.model.errors import BbfsError, Unreachable
from bbfs.model.values import McpServer
from bbfs.resources.catalog.inventory import Inventory
from bbfs.resources.catalog.record import inode_number
from bbfs.resources.readahead.scheduler import FORGOTTEN_AFTER
from bbfs.resources.readahead.windows import IDLE

DIRECTORY = "mcp-server+docs/x/d"
LISTED = 200


def slow_source(*, held_from: int, **policy: Any) -> FlatSource:
    """Resources in one directory, of which those from a number on are not answered until they are released."""
    source = FlatSource(data_source(**policy), contents=dict.fromkeys(uris(LISTED), b"x" * 1000))
    for uri in list(uris(LISTED))[held_from:]:
        source.hold(uri)
    return source


def path(number: int, directory: str = DIRECTORY) -> str:
    return f"{directory}/{number:04}"


async def walk(world: World, count: int, directory: str = DIRECTORY) -> None:
    await world.kernel.ls(directory)
    for number in range(count):
        await world.kernel.cat(path(number, directory))


async def test_one_place_is_left_for_whoever_comes_next(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    source = slow_source(held_from=10, concurrency=4)
    async with World(nursery, source) as world:
        await walk(world, 10)
        await settled()
        assert source.under_way == 3
        source.release("x://d/0150")
        with trio.fail_after(1):
            await world.kernel.cat(path(150))


async def test_what_somebody_waits_for_goes_before_what_is_loaded_ahead(nursery: trio.Nursery) -> None:
    source = slow_source(held_from=10, concurrency=2)
    async with World(nursery, source) as world, trio.open_nursery() as readers:
        await walk(world, 10)
        for number in (150, 170):
            readers.start_soon(world.kernel.cat, path(number))
            await settled()
        assert "x://d/0170" not in source.loaded, "both slots are taken"
        source.release("x://d/0010")
        await settled()
        assert source.loaded[-1] == "x://d/0170"
        for uri in list(source.gates):
            source.release(uri)


async def test_walks_through_two_directories_take_turns(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    contents: dict[str, Any] = {uri: b"1" for start in ("x://a/", "x://b/") for uri in uris(60, start)}
    source = FlatSource(data_source(concurrency=4), contents=dict(contents))
    async with World(nursery, source) as world:
        await walk(world, 3, "mcp-server+docs/x/a")
        await walk(world, 3, "mcp-server+docs/x/b")
        await settled()
        source.loaded.clear()
        for uri in contents:
            source.hold(uri)
        for directory in "ab":
            with trio.move_on_after(0.01):
                await walk(world, 12, f"mcp-server+docs/x/{directory}")
        for uri in contents:
            source.release(uri)
        await settled()
        assert {uri[4] for uri in source.loaded[:6]} == {"a", "b"}


async def test_what_has_not_begun_when_the_reader_is_gone_never_does(nursery: trio.Nursery) -> None:
    source = slow_source(held_from=10, concurrency=4)
    async with World(nursery, source) as world:
        await walk(world, 10)
        await settled()
        begun = len(source.loaded)
        world.clock.advance(IDLE + 1)
        for uri in list(source.gates):
            source.release(uri)
        await settled()
        assert len(source.loaded) == begun


async def test_what_is_loaded_and_not_used_keeps_to_a_budget(nursery: trio.Nursery) -> None:
    source = FlatSource(data_source(concurrency=16), contents=dict.fromkeys(uris(LISTED), b"x" * 1000))
    async with World(nursery, source, memory=40_000) as world:
        await walk(world, 100)
        await settled()
        assert 100 < len(source.loaded) <= 111, "a quarter of 40 000 bytes"
        assert set(source.loads.values()) == {1}


async def test_a_source_that_is_down_is_left_to_those_who_ask(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    source = FlatSource(data_source(concurrency=16), contents=dict.fromkeys(uris(LISTED), b"1"))
    async with World(nursery, source) as world:
        await walk(world, 10)
        await settled()
        before = len(source.loaded)
        source.down = Unreachable("gone")
        for number in range(10, 60):
            with trio.move_on_after(1):
                try:
                    await world.kernel.cat(path(number))
                except BbfsError:
                    continue
        await settled()
        assert len(source.loaded) - before <= 100
        assert max(source.loads.values()) == 1, "no error is asked for twice"


@pytest.mark.parametrize(
    ("policy", "ttl"),
    [({"sizes": "lazy"}, None), ({"concurrency": 1}, None), ({"content_ttl": 0.0}, None), ({}, 0.1)],
)
async def test_where_nothing_is_loaded_ahead(nursery: trio.Nursery, policy: dict[str, Any], ttl: float | None) -> None:
    source = FlatSource(data_source(**policy), contents=dict.fromkeys(uris(LISTED), b"1"), content_ttl=ttl)
    async with World(nursery, source) as world:
        await walk(world, 30)
        await settled()
        assert sorted(source.loaded) == list(uris(30))


@pytest.mark.parametrize("count", [LISTED, 3_000, 10_001])
async def test_a_walk_in_the_order_of_inode_numbers_is_a_walk(nursery: trio.Nursery, count: int) -> None:
    """As `cp` walks, and programs on gnulib's fts through more than 10 000 entries."""
    source = FlatSource(data_source(concurrency=16), contents=dict.fromkeys(uris(count), b"1"))
    async with World(nursery, source) as world:
        await world.kernel.ls(DIRECTORY)
        numbers = {inode_number((*DIRECTORY.split("/"), f"{n:04}"), f"x://d/{n:04}"): n for n in range(count)}
        for ino in sorted(numbers)[:100]:
            await world.kernel.cat(path(numbers[ino]))
        await settled()
        assert 100 < len(source.loaded) <= 140
        assert set(source.loads.values()) == {1}
        assert source.busiest > 4


async def test_random_reads_load_nothing_whose_neighbours_in_any_order_are_not_read(nursery: trio.Nursery) -> None:
    source = FlatSource(data_source(concurrency=16), contents=dict.fromkeys(uris(LISTED), b"1"))
    async with World(nursery, source) as world:
        await world.kernel.ls(DIRECTORY)
        numbers = {inode_number((*DIRECTORY.split("/"), f"{n:04}"), f"x://d/{n:04}"): n for n in range(LISTED)}
        by_number = [numbers[ino] for ino in sorted(numbers)]
        chosen: list[int] = []
        for n in range(0, LISTED, 17):  # far from each other in both orders
            if all(abs(by_number.index(n) - by_number.index(other)) > 9 for other in chosen):
                chosen.append(n)
        for n in chosen:
            await world.kernel.cat(path(n))
        await settled()
        assert len(chosen) >= 5
        assert len(source.loaded) == len(chosen)


def completing_source(**policy: Any) -> CompletingSource:
    """Resources in one directory, with a template for more names there; the source can complete these."""
    contents: dict[str, Any] = dict.fromkeys(uris(LISTED), b"1")
    source = CompletingSource(data_source(concurrency=16, **policy), contents=contents)
    source.template("x://d/{slug}")
    return source


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The path of the directory, once for each time that its listing was built."""
    paths: list[tuple[str, ...]] = []
    build = Inventory.view

    def view(self: Inventory, directory: Any, path: tuple[str, ...], beyond: Any) -> Any:
        if path == ("x", "d"):
            paths.append(path)
        return build(self, directory, path, beyond)

    monkeypatch.setattr(Inventory, "view", view)
    return paths


async def test_a_walk_by_name_needs_no_completed_names(nursery: trio.Nursery, built: list[tuple[str, ...]]) -> None:
    source = completing_source()
    async with World(nursery, source) as world:
        for number in range(30):
            await world.kernel.cat(path(number))
        await settled()
        assert len(source.loaded) > 40
        assert set(source.loads.values()) == {1}
        assert source.completions == []
        assert len(built) == 1


async def test_random_access_by_name_builds_one_listing_an_order(
    nursery: trio.Nursery, built: list[tuple[str, ...]]
) -> None:
    source = completing_source()
    async with World(nursery, source) as world:
        for number in range(17, LISTED, 30):
            await world.kernel.cat(path(number))
        await settled()
        assert len(source.loaded) == 7
        assert len(built) == 2


async def test_a_single_access_builds_no_order_before_another(
    nursery: trio.Nursery, built: list[tuple[str, ...]]
) -> None:
    source = completing_source(content_ttl=1000.0, listing_ttl=10_000.0)
    async with World(nursery, source) as world:
        for number in (50, 100, 150):
            await world.kernel.cat(path(number))
            assert built == []
            world.clock.advance(FORGOTTEN_AFTER + 1)
        for number in (0, 1, 2):
            await world.kernel.cat(path(number))
        await settled()
        assert len(built) == 1
        assert len(source.loaded) > 6, "the first of the three counts"


@pytest.mark.parametrize("change", ["list_changed", "refresh", "expiry"])
async def test_a_walk_by_name_finds_names_that_were_listed_meanwhile(
    nursery: trio.Nursery, built: list[tuple[str, ...]], change: str
) -> None:
    source = completing_source(listing_ttl=60.0, max_stale=0.0, content_ttl=600.0)
    async with World(nursery, source) as world:
        for number in range(3):
            await world.kernel.cat(path(number))
        await settled()
        source.contents |= {f"x://d/0005-{number:02}": b"1" for number in range(50)}
        match change:
            case "list_changed":
                source.announce()
            case "refresh":
                world.manager.refresh(())
            case "expiry":
                world.clock.advance(61)
        await settled()
        for number in range(20):
            await world.kernel.cat(f"{path(5)}-{number:02}")
        await settled()
        assert len(source.listed) == 2
        assert len([uri for uri in source.loaded if "-" in uri]) > 30
        assert len(built) <= 3, "once before, then once for each order"


async def test_completed_names_join_the_order_of_a_walk(nursery: trio.Nursery, built: list[tuple[str, ...]]) -> None:
    source = completing_source(listing_ttl=600.0, content_ttl=60.0)
    names = [f"0005-{number:02}" for number in range(50)]
    source.unlisted = {f"x://d/{name}" for name in names}
    source.contents |= dict.fromkeys(source.unlisted, b"1")
    source.values["slug"] = names
    async with World(nursery, source) as world:
        for number in range(3):
            await world.kernel.cat(path(number))
        assert set(names) < set(await world.kernel.ls(DIRECTORY))
        for name in names:
            await world.kernel.cat(f"{DIRECTORY}/{name}")
        await settled()
        world.clock.advance(61)
        source.loaded.clear()
        built.clear()
        for name in names[:20]:
            await world.kernel.cat(f"{DIRECTORY}/{name}")
        await settled()
        assert len(source.loaded) > 30
        assert built == []


async def test_a_source_that_tells_versions_without_loading_is_loaded_ahead_as_well(nursery: trio.Nursery) -> None:
    contents: dict[str, Any] = {f"s3://{number:02}": b"x" * number for number in range(40)}
    source = TreeSource(data_source("bb-storage+tree+s3"), contents=contents, start="s3://")
    async with World(nursery, source) as world:
        names = await world.kernel.ls("bb-storage+tree+s3")
        for name in names[:4]:
            await world.kernel.cat(f"bb-storage+tree+s3/{name}")
        await settled()
        assert len(source.loaded) > 6
        for name in names:
            await world.kernel.cat(f"bb-storage+tree+s3/{name}")
        await settled()
        assert set(source.loads.values()) == {1}


@pytest.mark.semantics("S36.9")
@pytest.mark.parametrize("apps", [False, True])
async def test_pages_of_apps_are_loaded_ahead_only_where_the_source_says_so(nursery: trio.Nursery, apps: bool) -> None:
    data = replace(data_source(), mcp=McpServer("stdio", command="s"), apps=apps)
    source = FlatSource(data, contents=dict.fromkeys(uris(LISTED, "ui://d/"), b"1"))
    async with World(nursery, source) as world:
        await walk(world, 10, "mcp-server+docs/ui/d")
        await settled()
        assert (len(source.loaded) > 10) is apps
