"""Catalogs: listings, their freshness, and what changed between two of them."""

from typing import Any

import pytest
import trio
from fakes import FlatSource, TreeSource, World, data_source, settled

from bbfs.model.errors import BbfsError, DeadlineExceeded, Denied, NotADirectory, NotFound, Unreachable
from bbfs.resources.catalog.record import Path


def flat(*uris: str, **policy: Any) -> FlatSource:
    return FlatSource(data_source(**policy), contents={uri: uri.encode() for uri in uris})


async def names(world: World, path: str = "mcp-server+docs/x") -> list[str]:
    return list(await world.manager.tree.children(tuple(path.split("/"))))


@pytest.mark.semantics("S17")
async def test_a_listing_is_asked_for_once_within_its_time_to_live(nursery: trio.Nursery) -> None:
    source = flat("x://a", "x://b", listing_ttl=30.0)
    async with World(nursery, source) as world:
        assert source.listed == [], "nothing is asked before it is used"
        assert await names(world) == ["a", "b"]
        world.clock.advance(29.9)
        assert await names(world) == ["a", "b"]
        assert (await world.manager.tree.find(("mcp-server+docs", "x", "a"))).kind == "file"
        with pytest.raises(NotFound):
            await world.manager.tree.find(("mcp-server+docs", "x", "none"))
        assert len(source.listed) == 1


@pytest.mark.semantics("S17.1")
async def test_the_time_to_live_of_the_server_comes_first(nursery: trio.Nursery) -> None:
    source = flat("x://a", listing_ttl=30.0)
    source.listing_ttl = 100.0
    async with World(nursery, source) as world:
        await names(world)
        assert world.manager.tree.validity(("mcp-server+docs", "x", "a")) == 100.0
        world.clock.advance(99.0)
        await names(world)
        assert len(source.listed) == 1


@pytest.mark.semantics("S16")
async def test_ten_askers_cause_one_listing(nursery: trio.Nursery) -> None:
    source = flat("x://a")
    source.hold(source.LISTING)
    async with World(nursery, source) as world:
        async with trio.open_nursery() as askers:
            for _ in range(10):
                askers.start_soon(names, world)
            await settled()
            source.release(source.LISTING)
        assert len(source.listed) == 1


@pytest.mark.semantics("S19")
async def test_an_expired_listing_is_served_at_once_and_refreshed_behind(nursery: trio.Nursery) -> None:
    source = flat("x://a", listing_ttl=30.0, max_stale=100.0)
    async with World(nursery, source) as world:
        await names(world)
        source.contents["x://b"] = b""
        world.clock.advance(31.0)
        source.hold(source.LISTING)
        assert await names(world) == ["a"], "the source does not answer, and nobody waits for it"
        await settled()
        assert len(source.listed) == 2
        source.release(source.LISTING)
        await settled()
        assert await names(world) == ["a", "b"]
        assert len(source.listed) == 2


@pytest.mark.semantics("S19")
async def test_beyond_max_stale_the_source_is_asked_first(nursery: trio.Nursery) -> None:
    source = flat("x://a", listing_ttl=30.0, max_stale=100.0)
    async with World(nursery, source) as world:
        await names(world)
        source.contents["x://b"] = b""
        world.clock.advance(131.0)
        assert await names(world) == ["a", "b"]


@pytest.mark.semantics("S19")
async def test_a_name_that_an_expired_listing_lacks_is_asked_for(nursery: trio.Nursery) -> None:
    source = flat("x://a", listing_ttl=30.0)
    async with World(nursery, source) as world:
        await names(world)
        source.contents["x://b"] = b""
        world.clock.advance(31.0)
        assert (await world.manager.tree.find(("mcp-server+docs", "x", "b"))).kind == "file"


@pytest.mark.semantics("S6", "S20")
@pytest.mark.parametrize("error", [Unreachable("gone"), DeadlineExceeded("slow")])
async def test_a_source_that_is_down_lists_what_was_last_known(nursery: trio.Nursery, error: BbfsError) -> None:
    source = flat("x://a", listing_ttl=30.0, max_stale=100.0)
    async with World(nursery, source) as world:
        await names(world)
        source.down = error
        for _ in range(3):
            world.clock.advance(500.0)
            assert await names(world) == ["a"]
        assert world.manager.sources["mcp-server+docs"].problem == str(error)
        source.down = None
        world.clock.advance(500.0)
        await names(world)
        assert world.manager.sources["mcp-server+docs"].problem is None


@pytest.mark.semantics("S6", "S20", "S23")
@pytest.mark.parametrize("kind", [Unreachable, Denied, DeadlineExceeded])
async def test_a_source_that_never_answered_has_its_directory_there(
    nursery: trio.Nursery, kind: type[BbfsError]
) -> None:
    source = flat("x://a")
    source.down = kind("no")
    async with World(nursery, source) as world:
        assert list(world.manager.roots.directories()) == ["mcp-server+docs"]
        assert world.manager.tree.cached(("mcp-server+docs",)) is not None
        with pytest.raises(kind):
            await names(world)


@pytest.mark.semantics("S6", "S20")
async def test_a_hierarchical_source_that_is_down_lists_what_was_last_known(nursery: trio.Nursery) -> None:
    source = TreeSource(contents={"file:./d/a": b"1"})
    async with World(nursery, source) as world:
        assert await names(world, "bb-scripted+tree+file/d") == ["a"]
        source.down = Unreachable("gone")
        world.clock.advance(100.0)
        assert await names(world, "bb-scripted+tree+file/d") == ["a"]


@pytest.mark.semantics("S25")
async def test_what_is_missing_from_a_listing_is_said(nursery: trio.Nursery, caplog: pytest.LogCaptureFixture) -> None:
    source = flat("x://a")
    source.problem = "10000 pages, the rest is left out"
    async with World(nursery, source) as world:
        await names(world)
        world.clock.advance(1000.0)
        await names(world)
        assert world.manager.sources["mcp-server+docs"].problem == source.problem
        assert [record.getMessage() for record in caplog.records] == [f"docs: {source.problem}"]
        assert (await world.kernel.xattr("mcp-server+docs", "user.bbfs.error")) == source.problem


@pytest.mark.semantics("S5")
async def test_a_resource_below_which_there_are_others_is_a_directory(nursery: trio.Nursery) -> None:
    source = flat("x://a", "x://a/b", "x://c/")
    async with World(nursery, source) as world:
        assert await names(world) == ["a", "c"]
        assert await names(world, "mcp-server+docs/x/a") == ["b", "index.txt"]
        assert await world.kernel.cat("mcp-server+docs/x/a/index.txt") == b"x://a"
        assert await world.kernel.cat("mcp-server+docs/x/c/index.txt") == b"x://c/"


async def test_a_file_is_no_directory(nursery: trio.Nursery) -> None:
    source = flat("x://a")
    async with World(nursery, source) as world:
        with pytest.raises(NotADirectory):
            await names(world, "mcp-server+docs/x/a")
        with pytest.raises(NotADirectory):
            await world.manager.tree.find(("mcp-server+docs", "x", "a", "b"))


@pytest.mark.semantics("S2")
async def test_a_name_written_as_in_the_uri_leads_to_the_shown_one(nursery: trio.Nursery) -> None:
    async with World(nursery, flat("x://a%20b")) as world:
        node = await world.manager.tree.find(("mcp-server+docs", "x", "a%20b"))
        assert (node.kind, node.target) == ("symlink", "a b")
        assert await names(world) == ["a b"]


@pytest.mark.semantics("S3", "S29")
async def test_the_names_of_a_folder_are_what_they_are(nursery: trio.Nursery) -> None:
    """A link that says `a%20b` leads to the file of that name, never to `a b`."""
    tree = TreeSource(contents={"file:./a%2520b": b"1", "file:./c%20d": b"2"})
    async with World(nursery, tree) as world:
        assert await names(world, "bb-scripted+tree+file") == ["a%20b", "c d"]
        with pytest.raises(NotFound):
            await world.manager.tree.find(("bb-scripted+tree+file", "c%20d"))


async def test_a_hierarchical_source_lists_only_what_is_looked_at(nursery: trio.Nursery) -> None:
    source = TreeSource(contents={"file:./a/b/c": b"1", "file:./a/d": b"2", "file:./e/f": b"3"})
    async with World(nursery, source) as world:
        assert (await world.manager.tree.find(("bb-scripted+tree+file", "a", "b", "c"))).kind == "file"
        assert source.listed == [(), ("a",), ("a", "b")]
        with pytest.raises(NotFound):
            await world.manager.tree.find(("bb-scripted+tree+file", "a", "none"))
        with pytest.raises(NotADirectory):
            await world.manager.tree.find(("bb-scripted+tree+file", "a", "d", "c"))
        assert source.listed == [(), ("a",), ("a", "b")]


async def test_a_directory_that_vanishes_is_not_found(nursery: trio.Nursery) -> None:
    source = TreeSource(contents={"file:./a/b": b"1", "file:./c": b""})
    async with World(nursery, source) as world:
        await names(world, "bb-scripted+tree+file/a")
        del source.contents["file:./a/b"]
        world.clock.advance(100.0)
        with pytest.raises(NotFound):
            await names(world, "bb-scripted+tree+file/a")
        assert await names(world, "bb-scripted+tree+file") == ["c"]


async def changes(world: World, source: FlatSource) -> list[str]:
    """What is told after a listing that is fetched now."""
    told: list[Path] = []
    world.manager.changes.subscribe(lambda change: told.extend(change.paths))
    source.announce()
    await settled()
    return sorted("/".join(path[1:]) for path in told)


@pytest.mark.semantics("S18")
async def test_a_changed_listing_tells_what_came_went_and_changed(nursery: trio.Nursery) -> None:
    source = flat("x://same", "x://gone", "x://grown", "x://d/gone", "x://d/same")
    source.described["x://grown"] = {"size": 3}
    async with World(nursery, source) as world:
        await names(world)
        del source.contents["x://gone"], source.contents["x://d/gone"]
        source.contents |= {"x://new": b"", "x://e/new": b""}
        source.described["x://grown"] = {"size": 4}
        assert await changes(world, source) == ["x/d/gone", "x/e/new", "x/gone", "x/grown", "x/new"]


@pytest.mark.semantics("S18")
async def test_an_unchanged_listing_tells_nothing(nursery: trio.Nursery) -> None:
    source = flat("x://a", "x://b")
    async with World(nursery, source) as world:
        await names(world)
        assert await changes(world, source) == []
        assert len(source.listed) == 2


@pytest.mark.semantics("S18")
async def test_a_listing_that_was_never_used_is_not_fetched_for_an_event(nursery: trio.Nursery) -> None:
    source = flat("x://a")
    async with World(nursery, source):
        source.announce()
        await settled()
        assert source.listed == []


@pytest.mark.semantics("S18")
async def test_a_listing_under_way_when_its_event_comes_is_not_taken_for_the_new_one(nursery: trio.Nursery) -> None:
    source = flat("x://a")
    async with World(nursery, source) as world:
        await names(world)
        source.hold(source.LISTING)
        source.announce()
        await settled()
        source.contents["x://b"] = b""
        source.announce()  # the request under way was made before this change
        source.release(source.LISTING)
        await settled()
        assert await names(world) == ["a", "b"]


@pytest.mark.semantics("S18", "S7")
async def test_a_name_that_another_resource_takes_over_is_told(nursery: trio.Nursery) -> None:
    source = flat("x://a%20b")
    async with World(nursery, source) as world:
        old = await world.kernel.stat("mcp-server+docs/x/a b")
        del source.contents["x://a%20b"]
        source.contents["x://a b"] = b"another"
        assert await changes(world, source) == ["x/a b"]
        assert (await world.kernel.stat("mcp-server+docs/x/a b")).ino != old.ino
