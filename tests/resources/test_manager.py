"""The ResourceManager over scripted sources: loads, sizes, errors, freshness and bounds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import Clock, FlatSource, TreeSource, World, data_source, settled, several, uris
from trio.testing import MockClock

from bbfs.model.errors import (
    BbfsError,
    Busy,
    DeadlineExceeded,
    Denied,
    InvalidUri,
    LoginRequired,
    NoAttribute,
    NotFound,
    NotSupported,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)
from bbfs.model.values import Capabilities, Content, DataSource, Loaded
from bbfs.resources.by_uri import LoadedResource
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.catalog.lookups import MENTIONED_KEPT, Mentioned
from bbfs.resources.catalog.record import JUST_NOW, Record
from bbfs.resources.flights import WAITERS_PER_SOURCE
from bbfs.resources.loading.publish import ERROR_KEPT
from bbfs.resources.loading.tiers import AROUND

ROOT = "mcp-server+docs/x/"


def flat(**contents: bytes) -> FlatSource:
    return FlatSource(contents={f"x://{name}": data for name, data in contents.items()})


async def record(world: World, path: str) -> Record:
    node = await world.manager.tree.find(tuple(path.split("/")))
    assert node.record is not None
    return node.record


def everything(content: Content) -> bytes:
    data = content.read(0, content.size)
    assert data is not None
    return data


async def load(world: World, name: str = "a") -> bytes:
    return everything(await world.manager.contents.open(await record(world, ROOT + name)))


@pytest.mark.semantics("S16")
async def test_concurrent_readers_of_one_resource_cause_one_load(nursery: trio.Nursery) -> None:
    source = flat(a=b"bytes")
    source.hold("x://a")
    found: list[bytes] = []
    async with World(nursery, source) as world:
        a = await record(world, ROOT + "a")

        async def read() -> None:
            found.append(everything(await world.manager.contents.open(a)))

        async with trio.open_nursery() as readers:
            for _ in range(9):
                readers.start_soon(read)
            readers.start_soon(world.manager.contents.learn, a)
            await settled()
            source.release("x://a")
    assert found == [b"bytes"] * 9
    assert source.loaded == ["x://a"]


@pytest.mark.semantics("S16")
async def test_a_killed_reader_leaves_the_load_to_the_others(nursery: trio.Nursery) -> None:
    source = flat(a=b"bytes")
    source.hold("x://a")
    async with World(nursery, source) as world:
        a = await record(world, ROOT + "a")
        async with trio.open_nursery() as readers:
            readers.start_soon(world.manager.contents.open, a)
            await settled()
            readers.cancel_scope.cancel()
        assert source.cancelled == []
        assert world.manager.sources["mcp-server+docs"].waiters.count == 0
        source.release("x://a")
        await settled()
        assert everything(await world.manager.contents.open(a)) == b"bytes"
        assert source.loaded == ["x://a"]


@pytest.mark.semantics("S22")
async def test_past_the_deadline_the_caller_gets_an_error_and_the_request_is_cancelled(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    source = FlatSource(data_source(timeout=5.0), contents={"x://a": b""})
    source.hold("x://a")
    async with World(nursery, source) as world:
        a = await record(world, ROOT + "a")
        started = trio.current_time()
        with pytest.raises(DeadlineExceeded):
            await world.manager.contents.open(a)
        assert trio.current_time() - started == 5.0
        await settled()
        assert source.cancelled == ["x://a"]


@pytest.mark.semantics("S20", "S22")
async def test_stat_and_open_of_what_has_expired_wait_once_for_a_source_that_does_not_answer(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    source = FlatSource(data_source(timeout=5.0, content_ttl=10.0), contents={"x://a": b"old"})
    async with World(nursery, source) as world:
        assert await world.kernel.cat(ROOT + "a") == b"old"
        world.clock.advance(11.0)
        source.hold("x://a")
        started = trio.current_time()
        assert (await world.kernel.stat(ROOT + "a")).size == 3
        await settled()
        assert await world.kernel.cat(ROOT + "a") == b"old"
        assert trio.current_time() - started == 5.0
        assert await world.kernel.xattr(ROOT + "a", "user.bbfs.cache") == "stale"
        world.clock.advance(ERROR_KEPT)
        source.release("x://a")
        source.contents["x://a"] = b"new"
        assert await world.kernel.cat(ROOT + "a") == b"new"


@pytest.mark.semantics("S22")
async def test_asking_for_metadata_and_loading_have_one_deadline_together(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    sizeless = several((None, b"bytes"))
    tree = TreeSource(data_source("bb-scripted+tree+file", timeout=5.0), contents={"file:./a": sizeless})
    async with World(nursery, tree) as world:
        a = await record(world, "bb-scripted+tree+file/a")
        tree.hold("file:./a")

        async def answer_late() -> None:
            await trio.sleep(4.0)
            tree.release("file:./a")
            tree.hold("file:./a")

        nursery.start_soon(answer_late)
        started = trio.current_time()
        with pytest.raises(DeadlineExceeded):
            await world.manager.contents.learn(a)
        assert tree.stated == tree.loaded == ["file:./a"]
        assert trio.current_time() - started == 5.0


@pytest.mark.semantics("S22", "S6")
async def test_a_listing_has_a_deadline_too(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    tree = TreeSource(data_source("bb-scripted+tree+file", timeout=5.0), contents={"file:./a": b""})
    source = FlatSource(data_source(timeout=5.0), contents={"x://a": b""})
    for handler in (tree, source):
        handler.hold(handler.LISTING)
    async with World(nursery, source, tree) as world:
        for root in ("mcp-server+docs", "bb-scripted+tree+file"):
            started = trio.current_time()
            with pytest.raises(DeadlineExceeded):
                await world.manager.tree.children((root,))
            assert trio.current_time() - started == 5.0


async def test_no_more_requests_are_in_flight_than_the_source_takes(nursery: trio.Nursery) -> None:
    source = FlatSource(data_source(concurrency=3), contents=dict.fromkeys(uris(20), b""))
    async with World(nursery, source) as world:
        loaded = await world.manager.by_uri.load_many(
            "direct", direct_uris=[f"mcp-server+docs+{uri}" for uri in source.contents]
        )
        assert [item.error for item in loaded] == [None] * 20
        assert source.busiest == 3


@pytest.mark.semantics("S22")
async def test_a_source_that_hangs_takes_a_bounded_number_of_places(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    source, sibling = flat(a=b""), FlatSource(data_source("mcp-server+other"), contents={"x://a": b"fine"})
    source.hold("x://a")
    async with World(nursery, source, sibling) as world:
        a = await record(world, ROOT + "a")
        async with trio.open_nursery() as readers:
            for _ in range(WAITERS_PER_SOURCE):
                readers.start_soon(world.manager.contents.learn, a)
            await settled()
            with pytest.raises(Busy):
                await world.manager.contents.open(a)
            assert everything(await world.manager.contents.open(await record(world, "mcp-server+other/x/a"))) == b"fine"
            source.release("x://a")
        assert everything(await world.manager.contents.open(a)) == b""


@pytest.mark.semantics("S17", "S19")
@pytest.mark.parametrize("ttl", [None, 3.0])
async def test_content_is_loaded_once_within_its_time_to_live(nursery: trio.Nursery, ttl: float | None) -> None:
    source = flat(a=b"1")
    source.content_ttl = ttl
    async with World(nursery, source) as world:
        lives = ttl or world.manager.sources["mcp-server+docs"].data.policy.content_ttl
        assert await load(world) == b"1"
        source.contents["x://a"] = b"2"
        world.clock.advance(lives - 0.1)
        assert await load(world) == b"1"
        assert source.loaded == ["x://a"]
        world.clock.advance(0.2)
        assert await load(world) == b"2"
        assert source.loaded == ["x://a"] * 2


@pytest.mark.semantics("S17", "S9")
async def test_a_time_to_live_of_nothing_asks_at_every_open(nursery: trio.Nursery) -> None:
    source = flat(a=b"1")
    source.content_ttl = 0.0
    async with World(nursery, source) as world:
        for number in range(3):
            source.contents["x://a"] = str(number).encode() * (number + 1)
            assert len(await world.kernel.cat(ROOT + "a")) == number + 1


@pytest.mark.semantics("S18")
async def test_an_update_ends_the_validity_of_content_at_once(nursery: trio.Nursery) -> None:
    source = flat(a=b"1", b=b"other")
    async with World(nursery, source) as world:
        assert await load(world) == b"1"
        await load(world, "b")
        assert source.watched == {"x://a", "x://b"}
        source.contents["x://a"] = b"22"
        source.announce("x://a")
        assert world.manager.contents.size_now(await record(world, ROOT + "a")) is None
        assert await load(world) == b"22"
        await load(world, "b")
        source.announce("x://never heard of")
        assert source.loads == {"x://a": 2, "x://b": 1}


@pytest.mark.semantics("S18")
async def test_a_load_under_way_when_its_update_comes_is_not_taken_for_the_new_content(nursery: trio.Nursery) -> None:
    source = flat(a=b"old")
    async with World(nursery, source) as world:
        a = await record(world, ROOT + "a")
        source.hold("x://a")
        nursery.start_soon(world.manager.contents.open, a)
        await settled()
        source.contents["x://a"] = b"new"
        source.announce("x://a")
        source.release("x://a")
        await settled()
        assert everything(await world.manager.contents.open(a)) == b"new"


@pytest.mark.semantics("S18", "S5")
async def test_an_update_reaches_each_of_several_contents(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://a": several(("x://a/p", b"1"), ("x://a/q", b"2"))})
    async with World(nursery, source) as world:
        with pytest.raises(BbfsError):
            await load(world)
        assert await load(world, "a/p") == b"1"
        source.contents["x://a"] = several(("x://a/p", b"one"), ("x://a/q", b"2"))
        source.announce("x://a")
        assert (await world.kernel.stat(ROOT + "a/p")).size == 3
        assert await world.kernel.cat(ROOT + "a/p") == b"one"


@pytest.mark.semantics("S20")
@pytest.mark.parametrize("kind", [Unreachable, DeadlineExceeded])
async def test_what_is_cached_is_served_and_marked_stale(nursery: trio.Nursery, kind: type[BbfsError]) -> None:
    source = FlatSource(data_source(content_ttl=10.0, max_stale=100.0), contents={"x://a": b"kept", "x://b": b"never"})
    async with World(nursery, source) as world:
        assert await load(world) == b"kept"
        assert await world.kernel.xattr(ROOT + "a", "user.bbfs.cache") == "fresh"
        source.down = kind("gone")
        world.clock.advance(50.0)
        for _ in range(3):
            assert await load(world) == b"kept"
            assert (await world.kernel.stat(ROOT + "a")).size == 4
            assert await world.kernel.xattr(ROOT + "a", "user.bbfs.cache") == "stale"
            assert await world.kernel.xattr(ROOT + "a", "user.bbfs.error") == "gone"
        with pytest.raises(kind):
            await load(world, "b")
        with pytest.raises(kind):
            await world.kernel.stat(ROOT + "b")
        world.clock.advance(61.0)
        with pytest.raises(kind):
            await load(world)
        source.down = None
        world.clock.advance(ERROR_KEPT)
        assert await load(world) == b"kept"
        assert await world.kernel.xattr(ROOT + "a", "user.bbfs.cache") == "fresh"


@pytest.mark.semantics("S20", "S18")
async def test_an_update_of_a_source_that_went_down_is_served_stale_within_the_bound(nursery: trio.Nursery) -> None:
    source = FlatSource(data_source(content_ttl=10.0, max_stale=100.0), contents={"x://a": b"kept"})
    async with World(nursery, source) as world:
        await load(world)
        source.announce("x://a")
        source.down = Unreachable("gone")
        world.clock.advance(111.0)
        with pytest.raises(Unreachable):
            await load(world)


@pytest.mark.semantics("S20", "S23")
@pytest.mark.parametrize("kind", [Denied, NotFound, ProtocolViolation, TooLarge])
async def test_an_answer_that_is_an_error_is_no_outage(nursery: trio.Nursery, kind: type[BbfsError]) -> None:
    source = flat(a=b"kept")
    async with World(nursery, source) as world:
        await load(world)
        source.contents["x://a"] = kind("no longer")
        world.clock.advance(50.0)
        with pytest.raises(kind):
            await load(world)
        with pytest.raises(kind):
            await world.kernel.stat(ROOT + "a")


@pytest.mark.semantics("S23")
@pytest.mark.parametrize("kind", [NotFound, Denied, LoginRequired, Unreachable, ProtocolViolation, TooLarge])
async def test_a_failed_load_is_not_repeated_for_a_little_while(nursery: trio.Nursery, kind: type[BbfsError]) -> None:
    source = flat(a=b"")
    source.contents["x://a"] = kind("the cause")
    async with World(nursery, source) as world:
        for _ in range(3):
            with pytest.raises(kind, match="the cause"):
                await world.kernel.stat(ROOT + "a")
            with pytest.raises(kind, match="the cause"):
                await world.kernel.cat(ROOT + "a")
        assert source.loaded == ["x://a"]
        assert await world.kernel.xattr(ROOT + "a", "user.bbfs.error") == "the cause"
        source.contents["x://a"] = b"there"
        world.clock.advance(ERROR_KEPT)
        assert await world.kernel.cat(ROOT + "a") == b"there"
        assert source.loaded == ["x://a"] * 2


async def test_an_open_counts_as_a_hit_or_as_a_miss(nursery: trio.Nursery) -> None:
    source = flat(a=b"bytes")
    source.content_ttl = 10
    async with World(nursery, source) as world:
        counted: list[tuple[int, int]] = []
        for pause in (0, 1, 10):  # it is cold, fresh, and expired
            world.clock.advance(pause)
            await world.kernel.cat(ROOT + "a")
            counted.append((world.manager.loads, world.manager.memory.hits))
        assert counted == [(1, 0), (1, 1), (2, 1)]


@pytest.mark.semantics("S23")
@pytest.mark.parametrize("etags", [True, False])
async def test_a_load_of_the_version_from_before_ends_an_error(nursery: trio.Nursery, etags: bool) -> None:
    source = TreeSource(contents={"file:./a": b"same"}, etags=etags, listing_ttl=10_000, content_ttl=10)
    async with World(nursery, source) as world:
        path = "bb-scripted+tree+file/a"
        assert await world.kernel.cat(path) == b"same"
        world.clock.advance(10)
        source.down = Denied("the cause")
        with pytest.raises(Denied):
            await world.kernel.cat(path)
        assert await world.kernel.xattr(path, "user.bbfs.error") == "the cause"
        world.clock.advance(ERROR_KEPT)
        source.down = None
        assert await world.kernel.cat(path) == b"same"
        with pytest.raises(NoAttribute):
            await world.kernel.xattr(path, "user.bbfs.error")


@pytest.mark.semantics("S18", "S23")
async def test_an_update_ends_an_error(nursery: trio.Nursery) -> None:
    source = flat(a=b"")
    source.contents["x://a"] = NotFound("not yet")
    async with World(nursery, source) as world:
        with pytest.raises(NotFound):
            await load(world)
        source.contents["x://a"] = b"there"
        source.announce("x://a")
        assert await load(world) == b"there"


@pytest.mark.semantics("S23")
async def test_an_answer_without_content_violates_the_protocol(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://a": ()})
    async with World(nursery, source) as world:
        with pytest.raises(ProtocolViolation):
            await load(world)


@pytest.mark.semantics("S23", "S27")
async def test_a_bug_in_a_handler_fails_that_request(nursery: trio.Nursery, caplog: pytest.LogCaptureFixture) -> None:
    source = flat(a=b"", b=b"fine")
    source.contents["x://a"] = ZeroDivisionError("oops")
    async with World(nursery, source) as world:
        with pytest.raises(BbfsError, match="ZeroDivisionError"):
            await load(world)
        assert "Traceback" in caplog.text
        assert await load(world, "b") == b"fine"


async def test_what_the_configuration_does_not_grant_is_not_done(nursery: trio.Nursery) -> None:
    granted = Capabilities(read=False, list=False)
    source = FlatSource(
        DataSource("docs", "docs", "server", "mcp", "mcp-server+docs", granted), contents={"x://a": b""}
    )
    async with World(nursery, source) as world:
        with pytest.raises(NotSupported):
            await world.manager.by_uri.load("mcp-server+docs+x://a")
        with pytest.raises(NotSupported):
            await world.manager.by_uri.list_below("docs")
        assert world.manager.roots.named("docs").capabilities == []
        assert source.loaded == source.listed == []


async def test_a_handler_without_abilities_is_refused(nursery: trio.Nursery) -> None:
    class Useless:
        source = data_source()
        state = FlatSource().state

    with pytest.raises(NotSupported):
        async with World(nursery, Useless()):
            pass


@pytest.mark.semantics("S15.2")
async def test_a_content_over_the_whole_budget_is_too_large_and_the_log_names_the_limit(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    source = flat(a=bytes(101), b=bytes(100))
    async with World(nursery, source, memory=100) as world:
        with pytest.raises(TooLarge, match="100 bytes"):
            await load(world)
        assert "100 bytes" in caplog.text
        assert await load(world, "b") == bytes(100)


@pytest.mark.semantics("S13")
async def test_a_version_that_was_replaced_leaves_memory_and_who_has_it_open_keeps_it(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://a": b"one"})
    async with World(nursery, source) as world:
        handle = await world.kernel.open("mcp-server+docs/x/a")
        for number in range(5):
            source.contents["x://a"] = b"version %d" % number
            source.announce("x://a")
            await world.kernel.cat("mcp-server+docs/x/a")
        contents = world.manager.memory
        assert (len(contents), contents.bytes) == (1, len("version 4") + AROUND)
        assert await world.kernel.read(handle) == b"one"
        world.files.release(handle)


async def test_directories_that_were_looked_at_count(nursery: trio.Nursery) -> None:
    source = TreeSource(contents={"file:./a": b"12", "file:./d/b": b"3"})
    async with World(nursery, source) as world:
        catalog = world.manager.sources["bb-scripted+tree"].catalog
        assert (catalog.count(), await catalog.usage()) == (0, (0, 0))
        await world.kernel.ls("bb-scripted+tree+file")
        assert catalog.count() == 1  # the directory is none
        await world.kernel.cat("bb-scripted+tree+file/a")
        await world.kernel.ls("bb-scripted+tree+file/d")
        assert catalog.count() == 2
        assert (await catalog.usage())[1] == 2


async def test_memory_stays_within_its_budget_and_an_open_file_keeps_what_it_pins(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={uri: uri.encode() * 5 for uri in uris(40)})
    async with World(nursery, source, memory=500) as world:
        handle = await world.kernel.open("mcp-server+docs/x/d/0000")
        for number in range(40):
            await world.kernel.cat(f"mcp-server+docs/x/d/{number:04}")
            assert world.manager.memory.bytes <= 500
        assert await world.kernel.read(handle) == b"x://d/0000" * 5
        world.files.release(handle)
        assert world.manager.memory.evictions > 0


@pytest.mark.parametrize("prefix", ["mcp-server+docs", "mcp-server+docs+x"])
async def test_listing_by_path_and_depth(nursery: trio.Nursery, prefix: str) -> None:
    """Paths are as the mount shows them, with the scheme's directory or, where the scheme is fixed, without it."""
    listed = ["x://a", "x://d/b", "x://d/e/c", "x://f/g"]
    source = FlatSource(data_source(prefix), contents=dict.fromkeys(listed, b""))
    start = "" if prefix.endswith("+x") else "x"
    async with World(nursery, source) as world:

        async def below(path: str, depth: int | None = None) -> list[str]:
            path = "/".join(filter(None, (start, path)))
            return sorted(m.native_uri for m in await world.manager.by_uri.list_below("docs", path, depth))

        assert await below("") == listed
        assert await below("", 1) == ["x://a"]
        assert await below("", 2) == ["x://a", "x://d/b", "x://f/g"]
        assert await below("d") == ["x://d/b", "x://d/e/c"]
        assert await below("/d/", 1) == ["x://d/b"]
        for path in ("none", "d/none"):
            with pytest.raises(NotFound):
                await below(path)
        with pytest.raises(NotSupported):
            await below("", 0)
        assert len(source.listed) == 1


async def test_listing_a_hierarchical_source(nursery: trio.Nursery) -> None:
    source = TreeSource(contents={"file:./a": b"", "file:./d/b": b"", "file:./d/e/c": b""})
    async with World(nursery, source) as world:
        found = await world.manager.by_uri.list_below("tree")
        assert sorted((m.native_uri, m.kind) for m in found) == [
            ("file:./a", "resource"),
            ("file:./d", "directory"),
            ("file:./d/b", "resource"),
            ("file:./d/e", "directory"),
            ("file:./d/e/c", "resource"),
        ]
        assert [m.native_uri for m in await world.manager.by_uri.list_below("tree", "d/e", 1)] == ["file:./d/e/c"]
        assert len(await world.manager.by_uri.list_below("tree", depth=1)) == 2


@pytest.mark.parametrize("name", ["docs", "mcp-server+docs"])
async def test_a_source_is_found_by_any_of_its_names(nursery: trio.Nursery, name: str) -> None:
    async with World(nursery, flat()) as world:
        assert world.manager.roots.named(name).data.id == "docs"
        with pytest.raises(NotFound, match="there are: docs"):
            world.manager.roots.named("elsewhere")


async def test_loading_one_resource_listed_or_not(nursery: trio.Nursery) -> None:
    source = flat(a=b"listed")
    source.contents["x://hidden"] = b"not"
    source.unlisted.add("x://hidden")
    async with World(nursery, source) as world:
        for uri, data in (("mcp-server+docs+x://a", b"listed"), ("mcp-server+docs+x://hidden", b"not")):
            for _ in range(2):
                item = await world.manager.by_uri.load(uri)
                assert [everything(part.content) for part in item.parts] == [data]
                assert item.metadata is not None
                assert (item.metadata.uri, item.metadata.size, item.uri) == (uri, len(data), uri)
                assert item.metadata.etag is not None
                assert item.metadata.modified_ns == int(world.clock.now * 1e9)
        assert source.loads == {"x://a": 1, "x://hidden": 1}
        source.contents["x://hidden"] = b"changed"
        source.announce("x://hidden")
        item = await world.manager.by_uri.load("mcp-server+docs+x://hidden")
        assert everything(item.parts[0].content) == b"changed"
        for bad, error in (("nonsense", InvalidUri), ("mcp-server+else+x://a", NotFound)):
            with pytest.raises(error):
                await world.manager.by_uri.load(bad)


@pytest.mark.semantics("S5")
async def test_loading_a_resource_of_several_contents_gives_them_all_each_time(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://a": several(("x://a/p", b"1"), ("x://a/q", b"2"))})
    async with World(nursery, source) as world:
        for _ in range(2):
            item = await world.manager.by_uri.load("mcp-server+docs+x://a")
            assert [(p.native_uri, everything(p.content)) for p in item.parts] == [("x://a/p", b"1"), ("x://a/q", b"2")]
        assert source.loaded == ["x://a"]


def outcome(item: LoadedResource) -> bytes | type[BbfsError]:
    return type(item.error) if item.error is not None else everything(item.parts[0].content)


async def test_loading_many_in_direct_mode_gives_each_its_content_or_its_error(nursery: trio.Nursery) -> None:
    source = flat(a=b"1", b=b"2")
    source.contents["x://denied"] = Denied("no")
    async with World(nursery, source) as world:
        asked = [
            f"mcp-server+docs+x://{name}" if name.isalpha() else name for name in ("b", "none", "", "a", "denied", "b")
        ]
        items = await world.manager.by_uri.load_many("direct", direct_uris=asked)
        assert [item.uri for item in items] == asked
        assert [outcome(item) for item in items] == [b"2", NotFound, InvalidUri, b"1", Denied, b"2"]
        assert source.loads["x://b"] == 1
        assert await world.manager.by_uri.load_many("direct") == []


async def test_loading_many_in_template_mode(nursery: trio.Nursery) -> None:
    source = flat(**{"a": b"1", "d/e": b"2"})
    async with World(nursery, source) as world:
        items = await world.manager.by_uri.load_many(
            "template",
            uri_template="mcp-server+docs+x://{+path}",
            template_resources=[{"path": "a"}, {"path": "d/e"}, {"path": "none"}, {}],
        )
        assert [outcome(item) for item in items[:3]] == [b"1", b"2", NotFound]
        assert items[1].uri == "mcp-server+docs+x://d/e"
        assert items[3].error is not None


@pytest.mark.parametrize(
    ("mode", "arguments"),
    [
        ("template", {}),
        ("template", {"direct_uris": ["mcp-server+docs+x://a"]}),
        ("template", {"uri_template": "mcp-server+docs+x://{a}", "direct_uris": ["mcp-server+docs+x://a"]}),
        ("direct", {"uri_template": "mcp-server+docs+x://{a}"}),
        ("direct", {"template_resources": [{"a": "b"}]}),
        ("neither", {}),
    ],
)
async def test_arguments_of_the_other_mode_are_refused(
    nursery: trio.Nursery, mode: str, arguments: dict[str, object]
) -> None:
    async with World(nursery, flat(a=b"")) as world:
        with pytest.raises(NotSupported):
            await world.manager.by_uri.load_many(mode, **arguments)  # type: ignore[arg-type]


@pytest.mark.semantics("S18.6")
async def test_what_was_loaded_before_its_changes_are_reported_is_asked_for_once_more(nursery: trio.Nursery) -> None:
    source = FlatSource(data_source(listing_ttl=3600.0, content_ttl=3600.0), contents={"x://a": b"old"})
    async with World(nursery, source) as world:
        handle = await world.kernel.open(ROOT + "a")
        assert source.watched == {"x://a"}
        before = await world.kernel.stat(ROOT + "a")
        world.clock.advance(1.0)
        source.announce("x://a", missed=True)
        assert world.forgotten() == ["a"]
        assert not world.files.core.open_files.changed(handle)  # a program that polls it goes on to wait
        after = await world.kernel.stat(ROOT + "a")
        assert (after.ino, source.loads["x://a"]) == (before.ino, 2)
        source.contents["x://a"] = b"new"
        assert await world.kernel.cat(ROOT + "a") == b"old"
        source.announce("x://a", missed=True)
        assert await world.kernel.cat(ROOT + "a") == b"old"  # which was loaded just now, for this open
        world.clock.advance(JUST_NOW)
        assert await world.kernel.cat(ROOT + "a") == b"new"
        assert world.files.core.open_files.changed(handle)
        assert source.loads["x://a"] == 3


class StatingSource(FlatSource):
    """Its loads state an etag and a size, which its listing does not."""

    async def load(self, native_uri: str) -> Loaded:
        loaded = await super().load(native_uri)
        content = loaded.parts[0].content
        return replace(loaded, metadata=self.metadata(native_uri, size=content.size, etag=content.version))


@pytest.mark.semantics("S6", "S9.4", "S17")
@pytest.mark.parametrize("kind", [FlatSource, StatingSource])
async def test_sizes_and_the_listing_are_remembered_across_mounts(
    nursery: trio.Nursery, tmp_path: Path, kind: type[FlatSource]
) -> None:
    contents: Any = {"x://a": b"12345", "x://b": b"1"}
    clock, source = Clock(), kind(contents=contents)
    store = MetadataStore(tmp_path / "metadata.sqlite")
    async with World(nursery, source, store=store, clock=clock) as world:
        await world.kernel.stat(ROOT + "a")
        await settled()
        await world.manager.flush()
    store.close()

    clock.advance(5.0)
    again = kind(contents=contents)
    store = MetadataStore(tmp_path / "metadata.sqlite")
    async with World(nursery, again, store=store, clock=clock) as world:
        found = await world.kernel.stat(ROOT + "a")
        assert (found.size, found.attr_timeout) == (5, 5.0)
        assert await world.kernel.ls("mcp-server+docs/x") == ["a", "b"]
        assert again.loaded == again.listed == []
        again.down = Unreachable("gone")
        clock.advance(500.0)
        assert await world.kernel.ls("mcp-server+docs/x") == ["a", "b"]
        assert (await world.kernel.stat(ROOT + "a")).size == 5
        with pytest.raises(Unreachable):
            await world.kernel.cat(ROOT + "a")
        with pytest.raises(Unreachable):
            await world.kernel.stat(ROOT + "b")
    store.close()


@pytest.mark.semantics("S17.2")
async def test_the_time_to_live_of_the_server_holds_across_mounts(nursery: trio.Nursery, tmp_path: Path) -> None:
    clock, source = Clock(), FlatSource(data_source(listing_ttl=30.0), contents={"x://a": b""}, listing_ttl=1.0)
    store = MetadataStore(tmp_path / "metadata.sqlite")
    async with World(nursery, source, store=store, clock=clock) as world:
        await world.kernel.ls("mcp-server+docs/x")
        await settled()
    source.contents["x://b"] = b""
    clock.advance(5.0)
    async with World(nursery, source, store=store, clock=clock) as world:
        assert await world.kernel.ls("mcp-server+docs/x") == ["a", "b"]
    store.close()


def files_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def test_what_another_definition_remembers_is_another_source(nursery: trio.Nursery, tmp_path: Path) -> None:
    store = MetadataStore(tmp_path / "metadata.sqlite")
    source = flat(a=b"")
    async with World(nursery, source, store=store) as world:
        await world.kernel.ls("mcp-server+docs/x")
        await settled()
    moved = FlatSource(
        DataSource("docs", "docs", "server", "mcp", "mcp-server+docs", config={"password": "hunter2"}),
        contents={"x://b": b""},
    )
    async with World(nursery, moved, store=store) as world:
        assert await world.kernel.ls("mcp-server+docs/x") == ["b"]
        await settled()
    store.close()
    assert b"hunter2" not in b"".join(path.read_bytes() for path in files_in(tmp_path))


@pytest.mark.semantics("S31.10")
async def test_what_an_answer_mentions_has_a_path(nursery: trio.Nursery) -> None:
    mentioned = [
        "x://n/1",
        "y:z",
        "x://a",
        "x://n/1/below",
        "https://h/x",
        "tool://t?a",
        "x://" + "l" * 5000,
    ]
    links = tuple(replace(part, link=uri) for uri in mentioned for part in several((None, b"to it")))
    source = FlatSource(contents={"x://a": links, "x://n/1": b"one", "x://gone": b""}, unlisted={"x://n/1"})
    async with World(nursery, source) as world:
        with pytest.raises(NotFound):
            await world.kernel.cat(ROOT + "n/1")
        await world.kernel.stat(ROOT + "a")
        assert "1" in await world.kernel.ls(ROOT + "a")
        assert await world.kernel.cat(ROOT + "n/1") == b"one"
        shown = [world.manager.tree.leads_to(world.manager.roots.named("docs"), uri) for uri in mentioned]
        assert shown[:3] == [("mcp-server+docs", "x", "n", "1"), None, ("mcp-server+docs", "x", "a")]
        assert shown[3:] == [None] * 4


async def test_only_the_last_mentioned_resources_keep_their_paths() -> None:
    appeared: list[list[tuple[str, ...]]] = []
    mentioned = Mentioned(appeared.append)
    for number in range(MENTIONED_KEPT + 1):
        assert mentioned.add(f"x://{number}/a") == ("x", str(number), "a")
    assert appeared[:2] == [[("x",), ("x", "0"), ("x", "0", "a")], [("x", "1"), ("x", "1", "a")]]
    assert (mentioned.at_or_above(("x", "0", "a")), mentioned.leads(("x", "0"))) == (None, False)
    assert mentioned.at_or_above(("x", "1", "a", "part")) == ("x://1/a", ("x", "1", "a"))
    assert mentioned.leads(("x", "1"))
