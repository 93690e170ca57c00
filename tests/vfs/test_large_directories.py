"""Directories of many names, shown and walked through a portion at a time; here a portion has four names."""

import pytest
import trio
from fakes import FlatSource, TreeSource, World, data_source, settled, uris

from bbfs.model import listing
from bbfs.resources.catalog import folding
from bbfs.resources.catalog.inventory import IN_PLACE
from bbfs.vfs import directory_handles as directories
from bbfs.vfs.directory_handles import NODE_SIZE, OpenDirectory

DIRECTORY = "mcp-server+docs/x/d"
NAMES = [f"{number:04}" for number in range(200)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LARGEST", 4)
    monkeypatch.setattr(folding, "LARGEST", 4)


def source() -> FlatSource:
    return FlatSource(data_source(), contents=dict.fromkeys(uris(len(NAMES)), b"x" * 1000))


async def opened(world: World) -> tuple[int, OpenDirectory]:
    handle = await world.files.opendir((await world.kernel.walk(DIRECTORY)).ino)
    return handle, world.files.directories[handle]


async def seen_while(world: World, docs: FlatSource, removed: slice, added: dict[str, bytes]) -> set[str]:
    """Read a directory whose names come and go after the first thirty. Return the names, each of which came once."""
    handle, _ = await opened(world)
    entries = world.files.readdir(handle, 2)
    seen = [next(entries)[0].decode() for _ in range(30)]
    for uri in list(uris(len(NAMES)))[removed]:
        del docs.contents[uri]
    docs.contents |= added
    docs.announce()
    await world.manager.roots.named("docs").catalog.relist()
    seen += [name.decode() for name, _, _ in entries]
    world.files.releasedir(handle)
    assert seen == sorted(set(seen))
    return set(seen)


@pytest.mark.semantics("S12")
async def test_all_names_come_in_order_and_lead_where_a_lookup_does(nursery: trio.Nursery) -> None:
    async with World(nursery, source()) as world:
        shown = await world.kernel.entries(DIRECTORY)
        assert [name for name, _ in shown] == NAMES
        for name, attributes in shown:
            assert (await world.kernel.walk(f"{DIRECTORY}/{name}")).ino == attributes.ino
        assert await world.kernel.cat(f"{DIRECTORY}/0123") == b"x" * 1000
        world.kernel.forget_all()
        assert world.files.held() == (0, 0, 0)


async def test_a_listing_is_given_out_again_until_more_is_known_of_a_name(nursery: trio.Nursery) -> None:
    async with World(nursery, source()) as world:
        first = await opened(world)
        again = await opened(world)
        assert again[1] is first[1]
        await world.kernel.cat(f"{DIRECTORY}/0123")
        anew = await opened(world)
        assert anew[1] is not first[1]
        for handle, _ in (first, again, anew):
            world.files.releasedir(handle)
        sizes = {name: found.size for name, found in await world.kernel.entries(DIRECTORY)}
        assert sizes["0123"] == 1000
        assert sizes["0007"] == 0, "no program has read it"


@pytest.mark.semantics("S12")
async def test_names_that_stay_come_once_while_others_come_and_go(nursery: trio.Nursery) -> None:
    docs = source()
    async with World(nursery, docs) as world:
        added = dict.fromkeys((f"x://d/{number:04}a" for number in range(100)), b"")
        seen = await seen_while(world, docs, slice(20, 60), added)
        assert {*NAMES[:20], *NAMES[60:]} <= seen
        assert await world.kernel.ls(DIRECTORY) == sorted(uri.rpartition("/")[2] for uri in docs.contents)


@pytest.mark.semantics("S12")
async def test_names_that_stay_come_once_while_another_listing_takes_the_place_of_the_open_one(
    nursery: trio.Nursery,
) -> None:
    docs = source()
    async with World(nursery, docs) as world:
        elsewhere = dict.fromkeys((f"x://e/{number}" for number in range(IN_PLACE)), b"")
        seen = await seen_while(world, docs, slice(60, 100), elsewhere)
        assert {*NAMES[:60], *NAMES[100:]} <= seen


async def test_stated_sizes_and_times_show_without_a_lookup(nursery: trio.Nursery) -> None:
    docs = source()
    docs.described = {uri: {"size": 1000, "modified_ns": 7} for uri in list(uris(len(NAMES)))[50:60]}
    async with World(nursery, docs) as world:
        shown = dict(await world.kernel.entries(DIRECTORY))
        stated = [name for name, found in shown.items() if (found.size, found.modified_ns) == (1000, 7)]
        assert stated == NAMES[50:60]
        assert {found.attr_timeout > 0 for name, found in shown.items() if name in stated} == {True}
        assert {found.attr_timeout for name, found in shown.items() if name not in stated} == {0.0}
        assert docs.loaded == []
        for name, found in shown.items():
            assert (await world.kernel.walk(f"{DIRECTORY}/{name}")).ino == found.ino


@pytest.mark.parametrize("step", [1, -1])
async def test_a_walk_loads_ahead_as_in_any_directory(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    asked: list[set[str]] = []
    for is_large in (True, False):
        if not is_large:
            monkeypatch.undo()  # a directory of these names is small by the real bounds
        docs = source()
        async with World(nursery, docs) as world:
            await world.kernel.ls(DIRECTORY)
            for name in NAMES[100 : 100 + 10 * step : step]:
                await world.kernel.cat(f"{DIRECTORY}/{name}")
            await settled()
            asked.append(set(docs.loaded))
    assert asked[0] == asked[1]
    assert len(asked[0]) > 12


@pytest.mark.parametrize("count", [4, 5, 6, 50])
async def test_a_directory_that_is_too_large_to_be_kept_ready_is_listed_all_the_same(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(directories, "KEPT", 5 * NODE_SIZE)
    source = TreeSource(contents={f"file:./d/{number:02}": b"" for number in range(count)})
    async with World(nursery, source) as world:
        for _ in range(2):
            assert await world.kernel.ls("bb-scripted+tree+file/d") == [f"{number:02}" for number in range(count)]
