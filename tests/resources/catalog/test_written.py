"""What programs have stored, over listings that began before (S32)."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from fakes import Clock, World, settled
from writable import Program, WritableFlat, program_on, writable

from bbfs.model.listing import Rows
from bbfs.model.values import Content, Listing, ResourceMetadata
from bbfs.model.versions import Expected
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.catalog.overlay import WRITTEN_KEPT, Written
from bbfs.sources import Services
from bbfs.sources.memory.handler import MemoryHandler

BASE = "bb-scripted+tree"


def described(name: str, etag: str | None) -> ResourceMetadata:
    size = 2 if etag is None else 1
    return ResourceMetadata(f"{BASE}+file:./{name}", f"file:./{name}", name, size=size, etag=etag)


@pytest.mark.semantics("S32")
@pytest.mark.parametrize("is_flat", [False, True])
def test_a_listing_has_what_was_stored_since_it_began(is_flat: bool) -> None:
    written = Written()
    written.note(described("early", "new"))
    began = written.count
    for name, etag in (("a", "new"), ("absent", "new"), ("gone", "new"), ("untold", None)):
        written.note(described(name, etag))
    written.forget("file:./gone")

    def versions(began: int) -> dict[str, tuple[int | None, str | None]]:
        names = ("a", "b", "early", "gone", "untold")
        rows = Rows(BASE, listed := [replace(described(name, "old"), description="listed") for name in names])
        written.put_over(rows, began)
        found = rows if is_flat else [written.over(each, began) for each in listed]
        assert all(each.description == "listed" for each in found if each.etag != "new")
        return {each.name: (each.size, each.etag) for each in found}

    old = dict.fromkeys(("a", "b", "early", "gone", "untold"), (1, "old"))
    assert versions(began) == {**old, "a": (1, "new"), "untold": (2, None)}
    assert versions(written.count) == old
    assert [name for name in old if written.is_later(f"file:./{name}", began)] == ["a", "untold"]
    for number in range(WRITTEN_KEPT):
        written.note(described(str(number), "new"))
    assert versions(began) == old
    assert not written.is_later("file:./a", began)


class Gated(MemoryHandler):
    """The answer to `list` waits for `lists`, and a write for `stores`, once they are there.

    more: resources of that answer. description: of all the others in it.
    """

    lists: trio.Event | None = None
    stores: trio.Event | None = None
    more: Sequence[ResourceMetadata] = ()
    description: str | None = None

    async def list(self) -> Listing:
        listing = await super().list()
        if self.lists is not None:
            await self.lists.wait()
        listed = [replace(each, description=self.description) for each in listing.resources]
        return replace(listing, resources=[*listed, *self.more])

    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        if self.stores is not None:
            await self.stores.wait()
        return await super().write(native_uri, content, expected)


@pytest.mark.semantics("S32.17")
@pytest.mark.parametrize(
    ("name", "more", "description", "turns"),
    [("0", 0, None, 0), ("new", 0, None, 9), ("new", 2000, None, 9), ("2999", 0, "other", 13)],
)
async def test_a_listing_that_is_taken_over_during_a_save_leaves_what_was_saved(
    name: str, more: int, description: str | None, turns: int, nursery: trio.Nursery
) -> None:
    """turns: of the listing before the save. more: new resources, of which so many make another tree."""
    config = {"resources": {str(number): "" for number in range(3000)}}
    source = Gated(replace(writable("bb-memory+pad+memory"), config=config), Services())
    path = f"bb-memory+pad+memory/{name}"
    async with program_on(source) as (program, world):
        await program.ls("bb-memory+pad+memory")
        await program.save(path, b"one")
        source.lists, source.stores, source.description = trio.Event(), trio.Event(), description
        source.more = [described(f"more/{number}", "new") for number in range(more)]
        nursery.start_soon(world.manager.sources["bb-memory+pad"].catalog.relist)
        await settled()
        world.clock.advance(1.0)
        handle = await program.begin(path, os.O_WRONLY, b"second")
        nursery.start_soon(program.writes.flush, handle)
        await settled()
        source.lists.set()
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        source.stores.set()
        await settled()
        program.files.release(handle)
        await program.save(f"{path}~", b"third")
        await program.rename(f"{path}~", path)
        assert await program.cat(path) == b"third"


class CountingStore(MetadataStore):
    """outdated: how often a listing was marked as stale."""

    outdated = 0

    def outdate_listing(self, source: str) -> None:
        self.outdated += 1
        super().outdate_listing(source)


@pytest.mark.semantics("S17.2")
@pytest.mark.parametrize("is_under_way", [False, True])
async def test_the_next_mount_has_the_last_names(nursery: trio.Nursery, tmp_path: Path, is_under_way: bool) -> None:
    """Of a source that lists all, also where a listing that began before the writes was stored after them."""
    source, clock, store = WritableFlat(), Clock(), CountingStore(tmp_path / "metadata.sqlite")
    source.contents = {"test://a": b"a", "test://b": b"b"}
    directory = "mcp-server+docs/test"
    async with World(nursery, source, store=store, clock=clock) as world:
        program = Program(world)
        assert await program.ls(directory) == ["a", "b"]
        asked = len(source.listed)
        if is_under_way:
            source.hold(source.LISTING)
            nursery.start_soon(world.manager.sources["mcp-server+docs"].catalog.relist)
            await settled()
            asked += 1
        await program.save(f"{directory}/c", b"c")
        await program.save(f"{directory}/c", b"longer")
        await program.unlink(f"{directory}/a")
        if is_under_way:
            source.release(source.LISTING)
        await settled()
        assert await program.ls(directory) == ["b", "c"]
        assert len(source.listed) == asked, "a write is no reason to list"
        assert store.outdated == 1 + is_under_way, "once for each listing"
        await world.manager.flush()
    async with World(nursery, source, store=store, clock=clock) as world:
        assert await world.kernel.ls(directory) == ["b", "c"]
        assert len(source.listed) == asked + 1
    store.close()
