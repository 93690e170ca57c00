"""What programs have stored, over listings that began before (S32)."""

from dataclasses import replace
from pathlib import Path

import pytest
import trio
from fakes import Clock, World, settled
from writable import Program, WritableFlat

from bbfs.model.listing import Rows
from bbfs.model.values import Listing, ResourceMetadata
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.catalog.overlay import WRITTEN_KEPT, Written

BASE = "bb-scripted+tree"
A = "file:./a"


def described(name: str, etag: str | None) -> ResourceMetadata:
    size = 2 if etag is None else 1
    return ResourceMetadata(f"{BASE}+file:./{name}", f"file:./{name}", name, size=size, etag=etag)


@pytest.mark.semantics("S32")
@pytest.mark.parametrize("is_flat", [False, True])
def test_a_listing_has_what_was_stored_since_it_began(is_flat: bool) -> None:
    written = Written()
    for name, etag in (("a", "new"), ("absent", "new"), ("gone", "new"), ("untold", None)):
        written.note(described(name, etag), at=5.0)
    written.forget("file:./gone")

    def versions(began: float) -> dict[str, tuple[int | None, str | None]]:
        listed = [replace(described(name, "old"), description="listed") for name in ("a", "b", "gone", "untold")]
        listing = Listing(Rows(BASE, listed) if is_flat else tuple(listed))
        found = written.over(listing, began).resources
        assert [each.description for each in found if each.etag != "new"] == ["listed"] * (
            4 - written.is_later(A, began)
        )
        return {each.name: (each.size, each.etag) for each in found}

    old = dict.fromkeys(("a", "b", "gone", "untold"), (1, "old"))
    assert versions(began=4.0) == {**old, "a": (1, "new"), "untold": (2, None)}
    assert versions(began=5.0) == old
    assert [uri for uri in (A, "file:./b", "file:./gone", "file:./untold") if written.is_later(uri, 4.0)] == [
        A,
        "file:./untold",
    ]
    for number in range(WRITTEN_KEPT):
        written.note(described(str(number), "new"), at=5.0)
    assert versions(began=4.0) == old
    assert not written.is_later(A, 4.0)


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
