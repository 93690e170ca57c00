"""What may be served from the tiers below memory, and what must not be."""

import itertools
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import Clock, FlatSource, TreeSource, World, data_source, settled, until
from writable import WritableFlat, WritableTree, writable

from bbfs.model.errors import NotFound, TooLarge, Unreachable
from bbfs.model.values import DataSource, Part, Policy
from bbfs.model.versions import Expected
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.cache.tier import Cached
from bbfs.resources.loading.tiers import UNEXPIRED, DiskTier
from bbfs.sources.content.memory import MemoryContent

A = "mcp-server+docs/x/a"


def flat(**contents: Any) -> FlatSource:
    source = FlatSource(contents={f"x://{name}": data for name, data in contents.items()})
    source.content_ttl = 100.0
    return source


def cached(data: bytes, at: float) -> Cached:
    return Cached((Part(None, None, MemoryContent(data)),), at, 10.0)


def kept(disk: DiskCache, source: str, uri: str) -> list[bytes] | None:
    """Return the contents on disk: none of them if it is noted that what was there does not count any more."""
    found = disk.read(source, uri, 1 << 20)
    return None if found is None else [part.content.read(0, 100) or b"" for part in found.parts]


async def on_disk(tier: DiskTier, caplog: pytest.LogCaptureFixture) -> None:
    """Have the disk take what was written. It is asked again if it took too long, which the log says."""
    with trio.fail_after(60):
        while True:
            caplog.clear()
            await tier.settle()
            if not caplog.records:
                return


async def remounted(
    world: World, source: FlatSource | TreeSource, nursery: trio.Nursery, disk: DiskCache, **options: Any
) -> World:
    """Another mount of the same user, after the first has ended."""
    await world.manager.flush()
    await settled()
    source.loaded.clear()
    source.listed.clear()
    options = {"clock": world.clock, **options}
    return World(nursery, source, store=world.store, disk=disk, **options)


@pytest.mark.semantics("S17")
async def test_what_is_fresh_is_not_asked_for(nursery: trio.Nursery, disk: DiskCache, store: MetadataStore) -> None:
    several = (Part("x://b/1", None, MemoryContent(b"1")), Part("x://b/2", None, MemoryContent(b"2")))
    source = flat(a=b"bytes", b=several)
    source.listing_ttl = 100.0
    async with World(nursery, source, store=store, disk=disk) as world:
        assert await world.kernel.cat(A) == b"bytes"
        await world.kernel.stat("mcp-server+docs/x/b")
        stat = await world.kernel.stat(A)
        world.clock.advance(50)
        async with await remounted(world, source, nursery, disk) as again:
            assert await again.kernel.cat(A) == b"bytes"
            now = await again.kernel.stat(A)
            assert (now.ino, now.size, now.modified_ns) == (stat.ino, stat.size, stat.modified_ns)
            await again.kernel.stat("mcp-server+docs/x/b")
            assert await again.kernel.cat("mcp-server+docs/x/b/2") == b"2"
            assert (source.loaded, source.listed) == ([], [])
            again.clock.advance(50)
            await again.kernel.cat(A)
            assert source.loaded == ["x://a"]


@pytest.mark.semantics("S17", "S18")
@pytest.mark.parametrize("how", ["announced", "missed", "refreshed", "described"])
async def test_what_has_changed_is_not_fresh_for_anybody(
    nursery: trio.Nursery, disk: DiskCache, store: MetadataStore, how: str
) -> None:
    source = flat(a=b"old", b=b"other")
    source.listing_ttl = 100.0
    async with World(nursery, source, store=store, disk=disk) as world:
        for name in "ab":
            await world.kernel.cat(f"mcp-server+docs/x/{name}")
        await world.manager.flush()
        world.manager.memory.clear()
        source.contents["x://a"] = b"newer"
        match how:
            case "announced":
                source.announce("x://a")
            case "missed":
                source.announce(missed=True)
            case "refreshed":
                world.manager.refresh(("mcp-server+docs", "x", "a"))
            case _:
                source.described["x://a"] = {"size": 5}
                source.announce()
        await settled()
        async with await remounted(world, source, nursery, disk) as again:
            assert await again.kernel.cat(A) == b"newer"
            await again.kernel.cat("mcp-server+docs/x/b")
            assert source.loaded == ["x://a"] + ["x://b"] * (how == "missed")


@pytest.mark.semantics("S18")
@pytest.mark.parametrize("missed", [False, True])
async def test_what_is_announced_while_it_is_loaded_is_not_kept_as_fresh(
    nursery: trio.Nursery, disk: DiskCache, store: MetadataStore, missed: bool
) -> None:
    source = flat(a=b"old")
    source.hold("x://a")
    async with World(nursery, source, store=store, disk=disk) as world:
        nursery.start_soon(world.kernel.cat, A)
        await until(lambda: source.loaded)
        source.announce(None if missed else "x://a", missed=missed)
        source.contents["x://a"] = b"new"
        _, record = world.manager.by_uri.record_of("mcp-server+docs+x://a")
        source.release("x://a")
        await until(lambda: record.fetched_at is not None)
        assert record.invalidated
        async with await remounted(world, source, nursery, disk) as again:
            assert await again.kernel.cat(A) == b"new"


@pytest.mark.semantics("S17")
async def test_the_disk_is_not_read_for_what_it_has_not(
    nursery: trio.Nursery, disk: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def reading(source: str, uri: str, in_memory: int) -> Any:
        read.append(uri)
        return DiskCache.read(disk, source, uri, in_memory)

    monkeypatch.setattr(disk, "read", reading)
    source = flat(a=b"1", b=b"2")
    async with World(nursery, source, disk=disk) as world:
        for name in "ab":
            await world.kernel.cat(f"mcp-server+docs/x/{name}")
        await world.manager.flush()
        assert read == []
    async with World(nursery, source, disk=disk) as again:
        await again.kernel.cat(A)
    assert read == ["x://a"]
    assert source.loads["x://a"] == 1


async def test_what_memory_has_no_room_for_any_more_comes_from_disk(nursery: trio.Nursery, disk: DiskCache) -> None:
    source = flat(**{f"f{number}": bytes([number]) * 400 for number in range(10)})
    async with World(nursery, source, memory=1000, disk=disk) as world:
        for _ in range(3):
            for number in range(10):
                assert await world.kernel.cat(f"mcp-server+docs/x/f{number}") == bytes([number]) * 400
        assert set(source.loads.values()) == {1}


@pytest.mark.semantics("S20")
@pytest.mark.parametrize("seen", ["listed", "unlisted"])
async def test_a_source_that_is_down_is_stood_in_for_as_long_as_may_be(
    nursery: trio.Nursery, disk: DiskCache, store: MetadataStore, seen: str
) -> None:
    source = flat(a=b"bytes")
    uri = "mcp-server+docs+x://a"
    if seen == "unlisted":
        source.unlisted.add("x://a")
    async with World(nursery, source, store=store, disk=disk) as world:
        assert (await world.manager.by_uri.load(uri)).parts[0].content.size == 5
        async with await remounted(world, source, nursery, disk) as again:
            again.clock.advance(200)
            source.down = Unreachable("gone")
            found = await again.manager.by_uri.load(uri)
            assert found.parts[0].content.read(0, 9) == b"bytes"
            _, record = again.manager.by_uri.record_of(uri)
            assert record.stale
            assert not record.fresh(again.clock())
            again.manager.memory.clear()
            again.clock.advance(3600)
            with pytest.raises(Unreachable):
                await again.manager.by_uri.load(uri)


@pytest.mark.semantics("S20")
async def test_what_was_announced_stands_in_while_the_source_is_down_but_is_asked_for_then(
    nursery: trio.Nursery, disk: DiskCache, store: MetadataStore
) -> None:
    source = flat(a=b"old")
    source.listing_ttl = 1000.0
    async with World(nursery, source, store=store, disk=disk) as world:
        await world.kernel.cat(A)
        source.announce("x://a")
        await settled()
        async with await remounted(world, source, nursery, disk) as again:
            source.down = Unreachable("gone")
            assert await again.kernel.cat(A) == b"old"
            assert await again.kernel.xattr(A, "user.bbfs.cache") == "stale"
            source.down, source.contents["x://a"] = None, b"new"
            again.clock.advance(10)
            assert await again.kernel.cat(A) == b"new"


@pytest.mark.semantics("S15.1")
async def test_what_is_over_the_memory_budget_is_served_from_disk(
    nursery: trio.Nursery, disk: DiskCache, store: MetadataStore
) -> None:
    large = bytes(range(256)) * 40
    source = flat(a=large, b=b"x" * (2 << 20), c=(Part("x://c/1", None, MemoryContent(large)),) * 2)
    async with World(nursery, source, store=store, memory=1000, disk=disk) as world:
        assert await world.kernel.cat(A) == large
        assert await world.kernel.cat(A) == large
        assert source.loads["x://a"] == 1
        await world.kernel.stat("mcp-server+docs/x/c")
        names = await world.kernel.ls("mcp-server+docs/x/c")
        assert [await world.kernel.cat(f"mcp-server+docs/x/c/{name}") for name in names] == [large, large]
        with pytest.raises(TooLarge, match=r"\[cache\] disk"):
            await world.kernel.cat("mcp-server+docs/x/b")
        assert world.manager.memory.bytes <= 1000


@pytest.mark.semantics("S20.1")
async def test_what_is_over_the_memory_budget_is_not_kept_from_before_a_change(
    nursery: trio.Nursery, disk: DiskCache
) -> None:
    large = b"from before" * 1000
    source = flat(a=large)
    source.hold("x://a")
    async with World(nursery, source, memory=1000, disk=disk) as world:
        read: list[bytes] = []

        async def cat() -> None:
            read.append(await world.kernel.cat(A))

        nursery.start_soon(cat)
        await until(lambda: source.loaded)
        changed, _ = world.manager.by_uri.record_of("mcp-server+docs+x://a")
        changed.note_written("x://a", world.clock())
        source.release("x://a")
        await until(lambda: read)
        assert read == [large]
        assert not kept(disk, changed.fingerprint, "x://a")


async def test_a_missing_resource_is_not_served_from_disk(nursery: trio.Nursery, disk: DiskCache) -> None:
    source = flat(a=b"bytes")
    async with World(nursery, source, disk=disk) as world:
        await world.kernel.cat(A)
        await world.manager.flush()
        world.manager.memory.clear()
        source.announce("x://a")
        source.contents["x://a"] = NotFound("x://a")
        for _ in range(2):
            with pytest.raises(NotFound):
                await world.manager.by_uri.load("mcp-server+docs+x://a")


@pytest.mark.semantics("S7", "S17", "S19")
async def test_a_version_that_the_source_still_has_is_not_loaded_again(
    nursery: trio.Nursery, disk: DiskCache, store: MetadataStore
) -> None:
    """Of a source that tells its versions, only the version is asked for, however old the content on disk is."""
    source = TreeSource(data_source("bb-storage+tree+s3"), contents={"s3://a": b"bytes", "s3://b": b"b"}, start="s3://")
    path = "bb-storage+tree+s3/a"
    async with World(nursery, source, store=store, disk=disk) as world:
        assert await world.kernel.cat(path) == b"bytes"
        before = await world.kernel.stat(path)
    world.clock.advance(10_000.0)
    async with await remounted(world, source, nursery, disk) as world:
        assert await world.kernel.cat(path) == b"bytes"
        assert source.loaded == []
        after = await world.kernel.stat(path)
        assert (after.ino, after.size) == (before.ino, before.size)
        source.contents["s3://a"] = b"changed"
        world.clock.advance(10_000.0)
        assert await world.kernel.cat(path) == b"changed"
        assert source.loaded == ["s3://a"]
    source.down = Unreachable("gone")
    async with await remounted(world, source, nursery, disk) as world:
        with pytest.raises(Unreachable):  # not even its directory is known
            await world.kernel.cat(path)


@pytest.mark.semantics("S18")
async def test_a_flood_of_changes_waits_for_the_disk_in_bounded_memory(
    nursery: trio.Nursery, disk: DiskCache, store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, portions = threading.Event(), list[int]()

    def expire(changed: Sequence[tuple[str, str | None]]) -> None:
        portions.append(len(changed))
        assert goes_on.wait(60)
        DiskCache.expire(disk, changed)

    source = flat(a=b"old", b=b"other")
    source.listing_ttl = 100.0
    async with World(nursery, source, store=store, disk=disk) as world:
        await world.kernel.cat(A)
        await world.manager.flush()
        monkeypatch.setattr(disk, "expire", expire)
        source.announce("x://unknown/0")
        await until(lambda: portions)
        for number in range(1, 3 * UNEXPIRED):
            source.announce(f"x://unknown/{number}")
        source.announce("x://a")
        goes_on.set()
        source.contents["x://a"] = b"newer"
        async with await remounted(world, source, nursery, disk) as again:
            assert await again.kernel.cat(A) == b"newer"
    assert max(portions) <= UNEXPIRED


@pytest.mark.semantics("S20.1")
@pytest.mark.parametrize("before", ["is on disk", "is being written"])
async def test_what_the_mount_has_written_is_settled_beside_loads_without_a_pause(
    nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture, before: str
) -> None:
    with closing(DiskCache(tmp_path / "cache", 1 << 20)) as disk:
        tier = DiskTier(nursery, disk, in_memory=1 << 20, clock=lambda: 1.0)
        key = ("s", "x://a")
        tier.keep(key, cached(b"old", 1.0))
        if before == "is on disk":
            await tier.flush()
        numbers = itertools.count()

        def put(entries: Any, *given: Any) -> bool:  # a load ends while the disk writes those before it
            trio.from_thread.run_sync(tier.keep, ("s", f"x://{next(numbers)}"), cached(b"old", 1.0))
            return write(entries, *given)

        write, disk.put = disk.put, put  # type: ignore[method-assign]
        tier.keep(("s", "x://b"), cached(b"old", 1.0))
        nursery.start_soon(tier.flush)
        await trio.testing.wait_all_tasks_blocked()
        tier.overwrite(key, Cached((), 2.0, 0.0))
        await on_disk(tier, caplog)
        assert not kept(disk, *key)
        nursery.cancel_scope.cancel()


@pytest.mark.semantics("S20.1")
@pytest.mark.parametrize("becomes", ["removed", "moved away with its directory", "removed and made again"])
async def test_a_change_waits_for_no_batch_of_contents_and_the_batch_undoes_no_change(
    nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture, becomes: str
) -> None:
    old, new = cached(b"old", 1.0), cached(b"new", 3.0)
    key, batches, goes_on = ("s", "x://d/a"), list[list[str]](), threading.Event()

    with closing(DiskCache(tmp_path / "cache", 1 << 20)) as disk:
        tier = DiskTier(nursery, disk, in_memory=1 << 20, clock=lambda: 4.0)

        def put(entries: Any, *given: Any) -> bool:
            batches.append([uri for (_, uri), _ in entries])
            assert goes_on.wait(60)
            return write(entries, *given)

        write, disk.put = disk.put, put  # type: ignore[method-assign]
        tier.keep(key, old)
        tier.keep(("s", "x://beside"), old)
        nursery.start_soon(tier.flush)
        await until(lambda: batches)
        if becomes == "moved away with its directory":
            tier.overwrite_below("s", "x://d/")
        else:
            tier.overwrite(key, Cached((), 2.0, 0.0))
        await on_disk(tier, caplog)
        if becomes == "removed and made again":
            tier.overwrite(key, new)
            await on_disk(tier, caplog)
        with closing(DiskCache(tmp_path / "cache", 1 << 20)) as of_next_mount:
            assert not kept(of_next_mount, *key)  # a kill here leaves nothing of the old content
        goes_on.set()
        await tier.flush()
        assert (kept(disk, *key) or []) == ([b"new"] if becomes == "removed and made again" else [])
        assert kept(disk, "s", "x://beside") is not None
        assert [*itertools.chain(*batches)].count("x://d/a") == (2 if becomes == "removed and made again" else 1)
        nursery.cancel_scope.cancel()


@pytest.mark.semantics("S20.1")
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("handler", "prefix", "uri", "path"),
    [
        (WritableFlat, "mcp-server+docs", "test://a", "mcp-server+docs/test/a"),
        (partial(WritableTree, etags=False), "bb-scripted+tree+file", "file:./a", "bb-scripted+tree+file/a"),
    ],
)
async def test_a_load_from_before_another_process_has_written_is_not_kept(
    nursery: trio.Nursery,
    tmp_path: Path,
    handler: Callable[[DataSource], WritableFlat | WritableTree],
    prefix: str,
    uri: str,
    path: str,
    large: bool,
) -> None:
    """Two processes have one disk cache; the load of one begins before the other's write and ends after it."""
    old, new = b"old" * (1000 if large else 1), b"new"
    data = replace(writable(prefix), policy=Policy(content_ttl=100.0, disk=True))
    writing, reading = (handler(data) for _ in range(2))
    writing.contents = reading.contents = {uri: old}
    clock = Clock()
    directory = tmp_path / "contents"
    one, other = (DiskCache(directory, 1 << 20, clock) for _ in range(2))
    with closing(one), closing(other):
        async with (
            World(nursery, writing, disk=one, clock=clock) as writer,
            World(nursery, reading, disk=other, clock=clock, memory=2000) as reader,
        ):
            read: list[bytes] = []

            async def cat() -> None:
                read.append(await reader.kernel.cat(path))

            await reader.kernel.ls(path.rpartition("/")[0])
            reading.hold(uri)
            nursery.start_soon(cat)
            await until(lambda: reading.loaded)
            clock.advance(1)
            [source] = writer.manager.sources.values()
            await writer.manager.writer.write(source, uri, MemoryContent(new), Expected(exists=True))
            clock.advance(1)
            reading.release(uri)
            await until(lambda: read)
            assert read == [old]
            await reader.manager.flush()
            assert kept(one, source.fingerprint, uri) in (None, [], [new])
            await writer.manager.flush()
            assert kept(one, source.fingerprint, uri) in (None, [], [new])
            clock.advance(1)
            reading.contents[uri] = b"newer"
            reader.manager.refresh(())
            assert await reader.kernel.cat(path) == b"newer"
            await reader.manager.flush()
            assert kept(one, source.fingerprint, uri) == [b"newer"]
        nursery.cancel_scope.cancel()


@pytest.mark.semantics("S20.1")
async def test_a_killed_mount_leaves_the_time_of_its_write_to_others(nursery: trio.Nursery, tmp_path: Path) -> None:
    key, directory = ("s", "x://a"), tmp_path / "contents"
    old, new = cached(b"old", 1.0), cached(b"new", 2.0)
    with closing(DiskCache(directory, 1 << 20)) as one, closing(DiskCache(directory, 1 << 20)) as other:
        writer, reader = (DiskTier(nursery, each, in_memory=1 << 20, clock=lambda: 3.0) for each in (one, other))
        one.look(key[0])  # nothing is on disk, of which the writer would have to remove something
        writer.overwrite(key, new)
        await writer.settle()
        reader.keep(key, old)
        await reader.flush()
        assert not kept(one, *key)
        await writer.flush()
        assert kept(other, *key) == [b"new"]
        nursery.cancel_scope.cancel()


@pytest.mark.semantics("S20.1")
async def test_a_writer_waits_for_one_transaction_of_the_index(nursery: trio.Nursery, tmp_path: Path) -> None:
    key, asked = ("s", "x://a"), list[str]()
    old, new = cached(b"old", 1.0), cached(b"new", 2.0)
    with closing(DiskCache(tmp_path / "contents", 1 << 20)) as disk:
        tier = DiskTier(nursery, disk, in_memory=1 << 20, clock=lambda: 3.0)
        tier.keep(key, old)
        await tier.flush()
        for name in ("expire", "mark", "put"):
            made = getattr(disk, name)
            setattr(disk, name, lambda *given, name=name, made=made: asked.append(name) or made(*given))
        tier.invalidate(*key)
        tier.overwrite(key, new)
        await tier.settle()
        assert asked == ["mark"]
        assert kept(disk, *key) == [], "the disk has nothing from before, and the new content comes later"
        await tier.flush()
        assert asked == ["mark", "put"]
        tier.invalidate(*key)
        await until(lambda: asked == ["mark", "put", "expire"])
        found = await tier.recall(key)
        assert found is not None
        assert found.stale
        nursery.cancel_scope.cancel()


@pytest.mark.semantics("S32.1")
@pytest.mark.parametrize("disk_is", ["in time", "late", "not asked"])
async def test_a_pending_write_is_dropped_in_the_thread(nursery: trio.Nursery, tmp_path: Path, disk_is: str) -> None:
    threads, goes_on = list[tuple[str, int]](), threading.Event()

    def drop() -> None:
        threads.append(("drop", threading.get_ident()))

    with closing(DiskCache(tmp_path / "contents", 1 << 20)) as disk:
        tier = DiskTier(nursery, disk, in_memory=1 << 20, clock=lambda: 3.0)

        def mark(*given: Any) -> bool:
            threads.append(("mark", threading.get_ident()))
            return (disk_is == "in time" or goes_on.wait(60)) and made(*given)

        made, disk.mark = disk.mark, mark  # type: ignore[method-assign]
        if disk_is != "not asked":
            tier.overwrite(("s", "x://a"), Cached((), 2.0, 0.0))
        await tier.settle(drop)
        match disk_is:
            case "in time":
                (one, thread), (other, same) = threads
                assert (one, other, thread) == ("drop", "mark", same)
            case "late":  # then it is dropped for certain
                assert [name for name, _ in threads] == ["drop", "mark", "drop"]
            case _:
                assert [name for name, _ in threads] == ["drop"]
        goes_on.set()
        nursery.cancel_scope.cancel()


@pytest.mark.semantics("S20.1")
async def test_a_write_that_the_index_could_not_take_is_settled_by_the_next_one(
    nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another process holds the index for longer than a write waits. What was before must not outlive a kill."""
    key, directory = ("s", "x://a"), tmp_path / "contents"
    with closing(DiskCache(directory, 1 << 20)) as disk:
        tier = DiskTier(nursery, disk, in_memory=1 << 20, clock=lambda: 3.0)
        tier.keep(key, cached(b"old", 1.0))
        await tier.flush()
        with closing(sqlite3.connect(directory / "index.sqlite", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            tier.overwrite(key, Cached((), 2.0, 0.0))
            await tier.settle()
            assert "from before a change" in caplog.text
            other.execute("ROLLBACK")
        tier.overwrite(("s", "x://b"), Cached((), 2.0, 0.0))
        await tier.settle()
        assert kept(disk, *key) == []
        nursery.cancel_scope.cancel()
