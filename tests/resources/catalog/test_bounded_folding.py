"""Bounds of listings: other tasks get their turn while names are settled, and what is kept has a bound."""

import itertools
import time

import pytest
import trio
from fakes import FlatSource, TreeSource, World, data_source

from bbfs.model.errors import TooLarge
from bbfs.model.listing import LARGEST, Rows
from bbfs.model.values import ResourceTemplate
from bbfs.resources.catalog import directory, inventory
from bbfs.resources.catalog.flat import FlatCatalog
from bbfs.resources.catalog.folding import Folding
from bbfs.resources.catalog.inventory import Inventory
from bbfs.resources.catalog.record import Path


async def turns(uris: list[str], directories: inventory.Directories | None = None) -> int:
    """Return how often another task gets its turn while a listing is taken over."""
    rows, held, found = Rows(""), Inventory("x", "", lambda _: None), 0
    for uri in uris:
        rows.add(uri, ())

    async def count() -> None:
        nonlocal found
        while True:
            await trio.lowlevel.checkpoint()
            found += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await trio.lowlevel.checkpoint()
        found = 0
        await held.update(rows, 0.0, lambda _: None, directories, refold=False)
        nursery.cancel_scope.cancel()
    return found


@pytest.mark.parametrize(
    ("uris", "step"),
    [
        ([f"x://{number}" + "/d" * 1000 for number in range(50)], 1),
        (
            ["x://" + "".join("%61" if number >> bit & 1 else "a" for bit in range(14)) for number in range(10_000)],
            0,
        ),
    ],
    ids=["deep", "rivals"],
)
async def test_folding_gives_others_a_turn(uris: list[str], step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """step: seconds by which the clock moves on at each look at it."""
    monkeypatch.setattr(time, "perf_counter", itertools.count(step=step).__next__)
    assert await turns(uris) > 40


async def test_templates_give_other_tasks_their_turn() -> None:
    def directories(paths: list[Path]) -> list[Path]:
        time.sleep(0.005 * len(paths))
        return []

    assert await turns([f"x://{number}" for number in range(20)], directories) >= 20


async def test_a_listing_of_too_many_directories_is_refused(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "MAX_DIRECTORIES", 50)
    source = FlatSource(data_source(listing_ttl=1.0), contents={"x://a": b"a"})
    async with World(nursery, source) as world:
        assert list(await world.manager.tree.children(("mcp-server+docs", "x"))) == ["a"]
        for number in range(3):  # a few at a time are added in place
            source.contents["x://b" + f"/{number}" * 20] = b"b"
        (served,) = world.manager.sources.values()
        catalog = served.catalog
        assert isinstance(catalog, FlatCatalog)
        world.clock.advance(2.0)
        with pytest.raises(TooLarge, match="more than 50 directories"):
            await catalog.relist()
        assert "more than 50 directories" in (catalog.problem or "")
        assert (await world.manager.tree.find(("mcp-server+docs", "x", "a"))).kind == "file"


def test_directories_are_counted() -> None:
    folding = Folding()
    folding.add("x://a/b/c")
    folding.add_directory(("x", "a", "d", "e"))
    tree = folding.tree(lambda _: None)
    assert tree.directories == 5
    tree.change(["x://n/o/p"], [])
    assert tree.directories == 7
    tree.change([], ["x://n/o/p", "x://a/b/c"])
    assert tree.directories == 4


async def test_compiling_templates_gives_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", itertools.count().__next__)
    source = FlatSource(contents={"x://a": b"a"})
    found, turns = 0, list[int]()

    async def count() -> None:
        nonlocal found
        while True:
            await trio.lowlevel.checkpoint()
            found += 1

    async with trio.open_nursery() as nursery, World(nursery, source) as world:
        (served,) = world.manager.sources.values()
        assert isinstance(served.catalog, FlatCatalog)
        nursery.start_soon(count)
        for number in (1, 51):
            source.templates = [
                ResourceTemplate(f"x://{n}/" + "/".join(f"{{a{k}}}" for k in range(150)), f"{n}") for n in range(number)
            ]
            found = 0
            await served.catalog.relist()
            turns.append(found)
        nursery.cancel_scope.cancel()
    assert turns[1] >= turns[0] + 2 * 50  # one as each is listed, and one as it is compiled


@pytest.mark.parametrize(
    ("sizes", "properties", "most"),
    [
        ({"a": 20, "b": 20, "c": 20, "d": 20, "e": 1, "f": 60}, None, 60),
        (dict.fromkeys("abcdef", 5), {"fact": "\U0001f600" * 1024}, 10),  # long texts count as more entries
    ],
)
async def test_the_listings_of_a_hierarchical_source_have_a_bound_together(
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    sizes: dict[str, int],
    properties: dict[str, str] | None,
    most: int,
) -> None:
    monkeypatch.setattr(directory, "DIRECTORIES_KEPT", 10)
    monkeypatch.setattr(directory, "ENTRIES_KEPT", 50)
    source = TreeSource(contents={f"file:./{d}/{n}": b"" for d, size in sizes.items() for n in range(size)})
    source.described = {uri: {"properties": properties} for uri in source.contents}
    async with World(nursery, source) as world:
        (served,) = world.manager.sources.values()
        for name in "abcdef":
            assert await world.manager.tree.children(("bb-scripted+tree+file", name))
        assert served.catalog.count() <= most


DEEP = [f"x:./{'/'.join('abcdefgh'[:depth])}/x" for depth in range(1, 9)]


@pytest.mark.semantics("S19")
async def test_a_walk_down_a_tree_whose_names_expire_lists_each_directory_once(nursery: trio.Nursery) -> None:
    data = data_source("bb-scripted+tree+x", listing_ttl=0.0)
    source = TreeSource(source=data, contents=dict.fromkeys(DEEP, b""), start="x:./")
    async with World(nursery, source) as world:
        tree, top = world.manager.tree, "bb-scripted+tree+x"

        async def look_up(path: str) -> None:
            for depth in range(1, len(path) + 1):  # as the kernel does
                assert (await tree.find((top, *path[:depth]))).kind == "directory"

        for depth in range(len("abcdefgh") + 1):
            await look_up("abcdefgh"[:depth])
            await tree.view((top, *"abcdefgh"[:depth]))
            world.clock.advance(4.0)
        assert len(source.listed) == 2 * 9 - 1  # a lookup asks for the name, and then the directory is listed
        source.listed.clear()
        await look_up("abcdefgh")
        assert source.listed == []
        world.clock.advance(4.0)
        await look_up("a")
        assert source.listed == [()]
        source.listed.clear()
        await tree.view((top, *"abcdefg"))
        world.manager.refresh((top,))
        await look_up("a")
        assert source.listed[1:] == [()]


async def test_a_large_directory_is_taken_over_and_compared_in_turns(nursery: trio.Nursery) -> None:
    names = [f"{number:05}" for number in range(LARGEST + 1)]
    source = TreeSource(contents={f"file:./d/{name}": b"x" for name in reversed(names)})
    place = ("bb-scripted+tree+file", "d")
    async with World(nursery, source) as world:
        (served,) = world.manager.sources.values()
        assert [*await world.manager.tree.children(place)] == names
        assert await served.catalog.usage() == (len(names), len(names))
        large = served.catalog.large(("d",))
        assert large is not None
        assert (len(large), large[7], large.places["00999"]) == (len(names), ("00007", False), 999)
        told: list[tuple[str, ...]] = []
        world.manager.changes.subscribe(lambda change: told.extend(change.paths))
        del source.contents["file:./d/00003"]
        source.contents["file:./d/00003a"] = b""
        world.clock.advance(60.0)
        assert [*await world.manager.tree.children(place)][3:5] == ["00003a", "00004"]
        assert {path[-1] for path in told} == {"00003", "00003a"}
