"""What is given out again without another look: leases on names, files opened again, listings given again."""

from dataclasses import replace
from typing import Any

import pytest
import trio
from fakes import STARTED, FlatSource, TreeSource, World, data_source, settled

from bbfs.model.errors import NotFound, Outdated
from bbfs.resources.catalog.directory import ENTRIES_KEPT
from bbfs.resources.catalog.record import Lease, Record
from bbfs.vfs import directory_handles as handles
from bbfs.vfs.directory_handles import READY_AGAIN, READY_SHARE
from bbfs.vfs.file_handles import Attributes
from bbfs.vfs.names import Wait

DOCS = "mcp-server+docs/x/"
TREE = "bb-scripted+tree+file/"


def flat(**contents: Any) -> FlatSource:
    policy = data_source(listing_ttl=100.0, content_ttl=1000.0)
    return FlatSource(policy, contents={f"x://{name}": data for name, data in contents.items()})


LONG = {"properties": dict.fromkeys(map(str, range(ENTRIES_KEPT // 2000)), "x" * (1 << 20))}
"""Texts by which a directory of one entry takes more than half the memory that is for listings."""


async def lease(world: World, path: str) -> tuple[Record, Lease]:
    record = (await world.manager.tree.find(tuple(path.split("/")))).record
    assert record is not None
    found = world.manager.tree.lease(record)
    assert found is not None
    return record, found


async def entries(world: World, directory: str) -> dict[str, Attributes]:
    return dict(await world.kernel.entries(directory))


# -- leases ------------------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S17", "S18")
async def test_a_listing_promises_its_names_until_it_expires_or_the_source_says_that_it_changed(
    nursery: trio.Nursery,
) -> None:
    source = flat(a=b"1")
    async with World(nursery, source) as world:
        record, promised = await lease(world, DOCS + "a")
        assert promised.until == world.clock() + 100.0
        source.announce()
        assert promised.until == 0.0
        await settled()
        assert world.manager.tree.lease(record) is promised, "the listing is the same"
        assert promised.until == world.clock() + 100.0
        source.contents["x://b"] = b"2"
        source.announce()
        await settled()
        renewed = world.manager.tree.lease(record)
        assert renewed is not None
        assert promised.until == 0.0 < renewed.until
        world.manager.refresh(tuple(DOCS[:-1].split("/")))
        assert renewed.until == 0.0


async def test_what_no_listing_holds_is_promised_by_none(nursery: trio.Nursery) -> None:
    async with World(nursery, flat(a=b"1")) as world:
        await world.kernel.ls(DOCS[:-1])
        _, record = world.manager.by_uri.record_of("mcp-server+docs+x://unlisted")
        assert world.manager.tree.lease(record) is None


@pytest.mark.semantics("S17", "S21")
async def test_a_directory_promises_its_names_until_it_is_listed_again_dropped_or_pushed_out(
    nursery: trio.Nursery,
) -> None:
    source = TreeSource(contents={"file:./a": b"1", "file:./d/b": b"2", "file:./e/c": b"3"})
    source.described = dict.fromkeys(("file:./d/b", "file:./e/c"), LONG)
    async with World(nursery, source) as world:
        _, first = await lease(world, TREE + "a")
        world.clock.advance(31)
        _, again = await lease(world, TREE + "a")
        assert first.until == 0.0 < again.until
        world.manager.refresh((TREE[:-1], "a"))
        assert again.until == 0.0
        _, below = await lease(world, TREE + "d/b")
        await world.kernel.stat(TREE + "e/c")
        await world.kernel.stat(TREE + "e/c")
        assert below.until == 0.0


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S17")
async def test_a_file_that_was_opened_before_is_opened_without_a_walk(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World(nursery, flat(a=b"bytes")) as world:
        files = world.files
        ino = (await world.kernel.walk(DOCS + "a")).ino
        assert isinstance(world.core.open_files.open(ino), Wait), "nothing is known of it yet"
        files.release(await files.open(ino))
        with monkeypatch.context() as patch:
            patch.setattr(world.manager.tree, "cached", None)
            handle = world.core.open_files.open(ino)
            assert isinstance(handle, int)
            assert world.core.open_files.read(handle, 0, 10) == b"bytes"
            files.release(handle)
        world.clock.advance(101)
        with monkeypatch.context() as patch:
            patch.setattr(world.manager.tree, "cached", lambda path, _: None)
            assert isinstance(world.core.open_files.open(ino), Wait), (
                "the promise is over, and the source has to say where it is"
            )
        with pytest.raises(Outdated):
            world.core.open_files.open(12345)


@pytest.mark.semantics("S13")
async def test_a_file_whose_content_is_there_is_opened_without_a_wait(nursery: trio.Nursery) -> None:
    async with World(nursery, flat(a=b"bytes")) as world:
        files = world.files
        ino = (await world.kernel.stat(DOCS + "a")).ino
        handle = world.core.open_files.open(ino)
        assert isinstance(handle, int)
        assert world.core.open_files.read(handle, 0, 10) == b"bytes"
        files.release(handle)


async def test_what_was_loaded_ahead_is_used_without_a_wait_and_leads_on(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={f"x://d/{number:03}": b"1" for number in range(100)}, content_ttl=100.0)
    async with World(nursery, source) as world:
        await world.kernel.ls(DOCS + "d")
        for number in range(5):
            await world.kernel.cat(f"{DOCS}d/{number:03}")
        await settled()
        before = len(source.loaded)
        assert before > 6
        stat = await world.kernel.walk(f"{DOCS}d/005")
        assert isinstance(world.core.getattr(stat.ino), Attributes)
        handle = world.core.open_files.open((await world.kernel.walk(f"{DOCS}d/006")).ino)
        assert isinstance(handle, int)
        await settled()
        assert len(source.loaded) > before
        assert set(source.loads.values()) == {1}
        world.files.release(handle)


@pytest.mark.semantics("S13", "S18")
async def test_a_change_is_never_missed_by_an_open_without_a_walk(nursery: trio.Nursery) -> None:
    source = flat(a=b"old", b=b"stays")
    async with World(nursery, source) as world:
        assert [await world.kernel.cat(DOCS + name) for name in "aab"] == [b"old", b"old", b"stays"]
        source.contents["x://a"] = b"new"
        source.announce("x://a")
        assert await world.kernel.cat(DOCS + "a") == b"new"
        assert await world.kernel.cat(DOCS + "a") == b"new"
        del source.contents["x://a"]
        source.announce()
        await settled()
        with pytest.raises(NotFound):
            await world.kernel.cat(DOCS + "a")
        assert await world.kernel.cat(DOCS + "b") == b"stays"


# -- directories -------------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S9", "S17")
async def test_entries_are_given_again_for_what_is_left_until_something_is_learnt(nursery: trio.Nursery) -> None:
    source = flat(a=b"12345", b=b"1")
    async with World(nursery, source) as world:
        for name in "ab":
            await world.kernel.walk(DOCS + name)
        first = await entries(world, DOCS[:-1])
        assert (first["a"].size, first["a"].attr_timeout) == (0, 0.0)
        again = await entries(world, DOCS[:-1])
        assert again["a"] is first["a"]
        await world.kernel.stat(DOCS + "a")
        learnt = await entries(world, DOCS[:-1])
        assert (learnt["a"].size, learnt["a"].entry_timeout) == (5, 100.0)
        assert learnt["b"] is first["b"]
        world.clock.advance(40)
        later = await entries(world, DOCS[:-1])
        assert later["a"] is learnt["a"]
        assert (later["a"].entry_timeout, later["a"].attr_timeout) == (60.0, 60.0)
        source.announce("x://a")
        assert (await entries(world, DOCS[:-1]))["a"].attr_timeout == 0.0


@pytest.mark.semantics("S7", "S13")
async def test_an_entry_that_is_open_or_forgotten_is_found_out_again(nursery: trio.Nursery) -> None:
    source = flat(a=b"12345")
    async with World(nursery, source) as world:
        await world.kernel.stat(DOCS + "a")
        first = (await entries(world, DOCS[:-1]))["a"]
        handle = await world.kernel.open(DOCS + "a")
        source.announce("x://a")
        assert (await entries(world, DOCS[:-1]))["a"].ino != first.ino, "a stand-in while the old version is open"
        world.files.release(handle)
        world.kernel.forget_all()
        assert world.files.held() == (0, 0, 0)
        assert (await entries(world, DOCS[:-1]))["a"].ino == first.ino
        world.kernel.forget_all()
        assert world.files.held() == (0, 0, 0)


# -- listings held ready -----------------------------------------------------------------------------------------------


async def held_ready(world: World, directory: str) -> list[tuple[bytes, Attributes]] | None:
    """The names of a directory as an adapter would be given them all at once, None where it is not."""
    handle = await world.files.opendir((await world.kernel.walk(directory)).ino)
    try:
        ready = world.files.ready(handle, lambda shown: replace(shown))
    finally:
        world.files.releasedir(handle)
    return None if ready is None else [(name, shown) for name, shown, _ in ready[2:]]


async def read_and_listed(world: World, directory: str, *names: str) -> None:
    for name in names:
        await world.kernel.cat(f"{directory}/{name}")
    await world.kernel.entries(directory)


async def test_a_directory_whose_entries_were_all_told_is_held_ready_for_a_part_of_what_is_left(
    nursery: trio.Nursery,
) -> None:
    async with World(nursery, flat(a=b"1", b=b"22")) as world:
        await world.kernel.entries(DOCS[:-1])
        assert await held_ready(world, DOCS[:-1]) is None, "nobody knows the sizes"
        await read_and_listed(world, DOCS[:-1], "a", "b")
        world.clock.advance(READY_AGAIN)
        ready = await held_ready(world, DOCS[:-1])
        assert ready is not None
        assert [(name, shown.size) for name, shown in ready] == [(b"a", 1), (b"b", 2)]
        for _, shown in ready:
            assert 80.0 < shown.entry_timeout == shown.attr_timeout <= 100.0 * (1 - READY_SHARE)
        told_until = world.clock() + ready[0][1].entry_timeout
        world.clock.advance(9.0)
        assert await held_ready(world, DOCS[:-1]) == ready
        assert world.clock() + ready[0][1].entry_timeout <= STARTED + 100.0 > told_until, "never beyond the validity"
        world.clock.advance(2.0)
        renewed = await held_ready(world, DOCS[:-1])
        assert renewed is not None
        assert renewed != ready


@pytest.mark.semantics("S18")
async def test_what_is_held_ready_ends_with_any_change_and_while_a_file_is_open(nursery: trio.Nursery) -> None:
    source = flat(a=b"1", b=b"22")
    async with World(nursery, source) as world:
        await read_and_listed(world, DOCS[:-1], "a", "b")
        world.clock.advance(READY_AGAIN)
        assert await held_ready(world, DOCS[:-1]) is not None
        handle = await world.kernel.open(DOCS + "a")
        assert await held_ready(world, DOCS[:-1]) is None, "what is open answers for what is open"
        world.files.release(handle)
        assert await held_ready(world, DOCS[:-1]) is not None
        source.contents["x://a"] = b"333"
        source.announce("x://a")
        assert await held_ready(world, DOCS[:-1]) is None
        await read_and_listed(world, DOCS[:-1], "a")
        world.clock.advance(READY_AGAIN)
        ready = await held_ready(world, DOCS[:-1])
        assert ready is not None
        assert [shown.size for _, shown in ready] == [3, 2]
        world.files.refresh(("mcp-server+docs",))
        assert await held_ready(world, DOCS[:-1]) is None


async def test_a_directory_that_is_read_again_from_its_beginning_is_as_it_is_now(nursery: trio.Nursery) -> None:
    source = flat(a=b"1")
    async with World(nursery, source) as world:
        ino = (await world.kernel.walk(DOCS[:-1])).ino
        handle = await world.files.opendir(ino)

        def names() -> list[bytes]:
            world.files.begin(handle)
            return [name for name, _, _ in world.files.readdir(handle, 2)]

        assert names() == [b"a"]
        source.contents["x://b"] = b"2"
        source.announce()
        await settled()
        assert names() == [b"a"], "nobody has asked for it yet, and readdir waits for nothing"
        await world.kernel.ls(DOCS[:-1])
        assert names() == [b"a", b"b"]
        world.files.releasedir(handle)


async def test_a_large_directory_is_not_held_ready(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handles, "READY_MOST", 1)
    async with World(nursery, flat(a=b"1", b=b"22")) as world:
        await read_and_listed(world, DOCS[:-1], "a", "b")
        world.clock.advance(READY_AGAIN)
        assert await held_ready(world, DOCS[:-1]) is None
