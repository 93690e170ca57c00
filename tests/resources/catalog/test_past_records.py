"""Hierarchical sources without versions of their own: what was learnt outlives listings, refreshes and mounts."""

from typing import Any

import pytest
import trio
from fakes import TreeSource, World, data_source, settled

from bbfs.model.errors import Unreachable
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.catalog.directory import ENTRIES_KEPT

ROOT = "bb-scripted+tree+db"


def database(**policy: Any) -> TreeSource:
    source = TreeSource(data_source(ROOT, **policy), start="db://", etags=False)
    source.contents = {"db://t/rows": b"first", "db://u/rows": b"other"}
    return source


@pytest.mark.semantics("S21")
async def test_a_refresh_asks_in_spite_of_the_disk(
    nursery: trio.Nursery, disk: DiskCache, store: MetadataStore
) -> None:
    source = database(content_ttl=3600.0, listing_ttl=3600.0)
    async with World(nursery, source, store=store, disk=disk) as world:
        assert await world.kernel.cat(f"{ROOT}/t/rows") == b"first"
        await world.manager.flush()
        source.contents["db://t/rows"] = b"second"
        world.clock.advance(10.0)
        assert await world.kernel.cat(f"{ROOT}/t/rows") == b"first"
        world.files.refresh((ROOT, "t"))
        assert await world.kernel.cat(f"{ROOT}/t/rows") == b"second"
        await world.manager.flush()
    source.contents["db://t/rows"] = b"third"
    source.loaded.clear()
    async with World(nursery, source, store=store, disk=disk, clock=world.clock) as world:
        world.clock.advance(10.0)
        world.files.refresh((ROOT, "t"))  # before anything of it was looked at in this mount
        assert await world.kernel.cat(f"{ROOT}/t/rows") == b"third"
        assert await world.kernel.cat(f"{ROOT}/u/rows") == b"other"
        assert source.loaded.count("db://t/rows") == 1


@pytest.mark.semantics("S20", "S21")
async def test_what_is_refreshed_is_there_while_the_source_is_down(nursery: trio.Nursery) -> None:
    source = database()
    async with World(nursery, source) as world:
        assert await world.kernel.cat(f"{ROOT}/t/rows") == b"first"
        world.files.refresh((ROOT,))
        source.down = Unreachable("gone")
        assert await world.kernel.ls(f"{ROOT}/t") == ["rows"]
        assert await world.kernel.cat(f"{ROOT}/t/rows") == b"first"


@pytest.mark.semantics("S7.1")
async def test_a_new_content_is_a_new_inode_however_long_ago_the_last_was_seen(
    nursery: trio.Nursery,
) -> None:
    source = database(content_ttl=1.0, listing_ttl=1.0)
    long = dict.fromkeys(map(str, range(ENTRIES_KEPT // 2000)), "x" * (1 << 20))
    source.described = {uri: {"properties": long} for uri in source.contents}  # one listing drives the other out
    async with World(nursery, source) as world:
        path = f"{ROOT}/t/rows"
        await world.kernel.cat(path)
        before = await world.kernel.stat(path)
        await world.kernel.cat(f"{ROOT}/u/rows")
        source.contents["db://t/rows"] = b"second"
        world.clock.advance(10.0)
        await world.kernel.cat(f"{ROOT}/u/rows")
        assert await world.kernel.cat(path) == b"second"
        assert (await world.kernel.stat(path)).ino != before.ino


@pytest.mark.semantics("S7", "S9")
async def test_sizes_and_inodes_outlive_the_mount(nursery: trio.Nursery, store: MetadataStore) -> None:
    source = database(content_ttl=1.0, listing_ttl=1.0)
    path = f"{ROOT}/t/rows"
    async with World(nursery, source, store=store) as world:
        await world.kernel.cat(path)
        source.contents["db://t/rows"] = b"second, and longer"
        world.clock.advance(10.0)
        await world.kernel.cat(path)
        before = await world.kernel.stat(path)
        await world.manager.flush()
        await settled()
    async with World(nursery, source, store=store, clock=world.clock) as world:
        after = await world.kernel.stat(path)
        assert (after.ino, after.size, after.modified_ns) == (before.ino, before.size, before.modified_ns)


@pytest.mark.semantics("S18")
async def test_a_resource_is_one_by_its_path_and_by_its_uri(nursery: trio.Nursery) -> None:
    source = database(content_ttl=3600.0, listing_ttl=3600.0)
    async with World(nursery, source) as world:
        assert await world.kernel.cat(f"{ROOT}/t/rows") == b"first"
        loaded = await world.manager.by_uri.load("bb-scripted+tree+db://t/rows")
        assert await loaded.parts[0].content.read_waiting(0, 99) == b"first"
        assert source.loaded == ["db://t/rows"]
        source.contents["db://t/rows"] = b"again"
        world.files.refresh((ROOT, "t"))
        loaded = await world.manager.by_uri.load("bb-scripted+tree+db://t/rows")
        assert await loaded.parts[0].content.read_waiting(0, 99) == b"again"
        assert await world.kernel.cat(f"{ROOT}/t/rows") == b"again"
        assert len(source.loaded) == 2
