"""What machines that share contents take from each other, and what each asks its own source for."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import trio
from fakes import Clock, FlatSource, World, data_source, settled
from shared_machines import whole

from bbfs.model.errors import Unreachable
from bbfs.model.values import Loaded, McpServer, Part
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.tier import EVERYTHING, Cached
from bbfs.resources.loading.shared_tier import PUTS_AT_ONCE
from bbfs.resources.source.fingerprint import fingerprint
from bbfs.sources.content.memory import MemoryContent

A = "mcp-server+docs/x/a"


class Shared:
    """A shared tier in memory. Machines that share it have one each, over the same `entries`."""

    def __init__(self, clock: Clock, entries: dict[tuple[str, str], Cached] | None = None) -> None:
        self.clock = clock
        self.entries = {} if entries is None else entries
        self.others: list[Shared] = []
        self.heard: Callable[[str, str | None], None] | None = None
        self.claimed: set[tuple[str, str]] = set()
        self.putting: list[tuple[bytes | None, ...]] = []
        self.gate = trio.Event()
        self.gate.set()

    async def get(self, source: str, uri: str) -> Cached | None:
        return self.entries.get((source, uri))

    async def claim(self, source: str, uri: str, *, timeout: float, newer_than: float = 0.0) -> Cached | None:
        found = self.entries.get((source, uri))
        if found is not None and found.fetched_at >= newer_than and found.fresh(self.clock()):
            return found
        self.claimed.add((source, uri))
        return None

    def give_up(self, source: str, uri: str) -> None:
        self.claimed.remove((source, uri))

    async def put(self, source: str, uri: str, cached: Cached) -> None:
        self.claimed.remove((source, uri))
        self.putting.append(whole(cached))
        await self.gate.wait()
        self.entries[source, uri] = cached

    async def drop(self, source: str, uri: str | None) -> None:
        for key in [key for key in self.entries if key[0] == source and uri in (None, key[1])]:
            del self.entries[key]
        for other in self.others:
            assert other.heard is not None
            other.heard(source, uri)

    async def run(
        self,
        dropped: Callable[[str, str | None], None],
        *,
        task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        self.heard = dropped
        task_status.started()
        await trio.sleep_forever()


@dataclass
class LoginSource(FlatSource):
    """A FlatSource that may have a login, and answers some as a tool does."""

    logged_in: bool = False
    once: tuple[str, ...] = ()
    personal: tuple[str, ...] = ()

    async def load(self, native_uri: str) -> Loaded:
        loaded = await super().load(native_uri)
        return replace(loaded, once=native_uri in self.once, personal=native_uri in self.personal)


def shareable(**contents: Any) -> LoginSource:
    data = replace(data_source(content_ttl=100.0), mcp=McpServer("stdio", command="server"), shared=True)
    return LoginSource(data, contents={f"x://{name}": content for name, content in contents.items()})


def two_machines(clock: Clock) -> tuple[Shared, Shared]:
    first = Shared(clock)
    second = Shared(clock, first.entries)
    first.others, second.others = [second], [first]
    return first, second


@asynccontextmanager
async def both(
    nursery: trio.Nursery, source: FlatSource, other: FlatSource, **second: Any
) -> AsyncIterator[tuple[World, World, Shared]]:
    """Two machines with what the first of them has loaded already: everything."""
    clock = Clock()
    one, two = two_machines(clock)
    async with World(nursery, source, shared=one, clock=clock) as here:
        async with World(nursery, other, shared=two, clock=clock, **second) as there:
            await here.kernel.ls("mcp-server+docs/x")
            for uri in source.contents:
                await here.manager.by_uri.load(f"mcp-server+docs+{uri}")
            await settled()
            source.loaded.clear()
            clock.advance(1)
            await there.kernel.ls("mcp-server+docs/x")
            yield here, there, two
            await settled()
            assert not one.claimed | two.claimed


@pytest.mark.semantics("S17.4")
async def test_what_another_machine_has_is_kept_on_this_ones_disk(nursery: trio.Nursery, disk: DiskCache) -> None:
    other = shareable(a=b"never asked for")
    async with both(nursery, shareable(a=b"bytes"), other, disk=disk) as (_, there, _):
        assert await there.kernel.cat(A) == b"bytes"
        assert other.loaded == []
        await there.manager.flush()
        found = disk.read(fingerprint(other.source), "x://a", 100)
        assert found is not None
        assert not found.stale
        there.clock.advance(100)
        assert await there.kernel.cat(A) == b"never asked for"


@pytest.mark.semantics("S18.5")
async def test_an_update_that_one_hears_of_is_served_by_the_other(nursery: trio.Nursery, disk: DiskCache) -> None:
    source, other = shareable(a=b"old"), shareable(a=b"old")
    async with both(nursery, source, other, disk=disk) as (here, there, _):
        await there.kernel.cat(A)
        await there.manager.flush()
        there.forgotten()
        source.contents["x://a"] = b"newer"
        source.announce("x://a")
        await settled()
        assert there.forgotten() == ["a"]
        await there.manager.flush()
        found = disk.read(fingerprint(other.source), "x://a", 100)
        assert found is not None
        assert found.stale
        assert await here.kernel.cat(A) == b"newer"
        await settled()
        assert await there.kernel.cat(A) == b"newer"
        assert other.loaded == []


@pytest.mark.parametrize("how", ["missed", "refreshed", "described", "announced before it was listed"])
async def test_what_this_machine_alone_doubts_is_asked_of_the_source(nursery: trio.Nursery, how: str) -> None:
    other = shareable(a=b"old")
    async with both(nursery, shareable(a=b"old"), other) as (_, there, shared):
        if how != "announced before it was listed":
            await there.kernel.cat(A)
        there.clock.advance(1)
        other.contents["x://a"] = b"newer"
        match how:
            case "missed":
                other.announce(missed=True)
            case "refreshed":
                there.manager.refresh(("mcp-server+docs", "x", "a"))
            case "described":
                other.described["x://a"] = {"size": 5}
                other.announce()
                await settled()
            case _:
                shared.others.clear()
                other.announce("x://a")
        assert await there.kernel.cat(A) == b"newer"
        await settled()
        assert whole(shared.entries[fingerprint(other.source), "x://a"]) == (b"newer",)
        assert other.loaded == ["x://a"]


async def test_what_is_back_is_asked_of_the_source_whatever_others_tell(nursery: trio.Nursery) -> None:
    other = shareable(a=b"old", b=b"b")
    async with both(nursery, shareable(a=b"old"), other) as (_, there, shared):
        await there.kernel.cat(A)
        del other.contents["x://a"]
        other.announce()
        await settled()
        there.clock.advance(1)
        other.contents["x://a"] = b"newer"
        other.announce()
        await settled()
        await there.manager.tree.find(("mcp-server+docs", "x", "a"))
        assert shared.heard is not None
        shared.heard(EVERYTHING, None)
        assert await there.kernel.cat(A) == b"newer"


async def test_what_waits_to_be_put_is_not_for_later_loads(nursery: trio.Nursery) -> None:
    others = [f"b{number}" for number in range(PUTS_AT_ONCE)]
    source, clock = shareable(a=b"old", **dict.fromkeys(others, b"b")), Clock()
    shared = Shared(clock)
    async with World(nursery, source, shared=shared, clock=clock) as world:
        shared.gate = trio.Event()
        for name in (*others, "a"):
            await world.kernel.cat(f"mcp-server+docs/x/{name}")
        await settled()
        source.contents["x://a"] = b"newer"
        source.announce("x://a")
        await settled()
        clock.advance(1)
        assert await world.kernel.cat(A) == b"newer"
        shared.gate.set()
        await settled()
        assert shared.putting == [*[(b"b",)] * PUTS_AT_ONCE, (b"newer",)]
        assert not shared.claimed


@pytest.mark.parametrize("described", [{"size": 5}, {"modified_ns": 2 * 10**18}])
async def test_what_the_listing_denies_is_asked_of_the_source(nursery: trio.Nursery, described: dict[str, int]) -> None:
    other = shareable(a=b"newer")
    other.described["x://a"] = described
    async with both(nursery, shareable(a=b"old"), other) as (_, there, _):
        assert await there.kernel.cat(A) == b"newer"
        assert other.loaded == ["x://a"]


async def test_sizes_that_a_source_misstates_cost_one_load(nursery: trio.Nursery) -> None:
    other = shareable(a=b"a", b=b"b", c=b"c")
    other.described = {uri: {"size": 5} for uri in other.contents}
    async with both(nursery, shareable(a=b"a", b=b"b", c=b"c"), other) as (_, there, _):
        for name in "abc":
            assert await there.kernel.cat(f"mcp-server+docs/x/{name}") == name.encode()
        assert other.loaded == ["x://a"]


async def test_a_version_that_is_older_than_the_known_one_is_not_taken(nursery: trio.Nursery) -> None:
    other = shareable(a=b"newer")
    async with both(nursery, shareable(a=b"old"), other) as (_, there, shared):
        before = dict(shared.entries)
        shared.entries.clear()
        await there.kernel.cat(A)
        await settled()
        shared.entries.update(before)  # as by a machine that was late
        there.manager.memory.clear()
        assert await there.kernel.cat(A) == b"newer"
        await settled()
        assert whole(shared.entries[fingerprint(other.source), "x://a"]) == (b"newer",)


async def test_what_others_may_have_told_is_asked_of_the_tier(nursery: trio.Nursery) -> None:
    other, alone = shareable(a=b"old"), replace(shareable().source, shared=False)
    mine = LoginSource(replace(alone, uri_prefix="mcp-server+mine", id="mine"), contents={"x://m": b"m"})
    async with both(nursery, shareable(a=b"old"), other) as (_, there, shared):
        await there.manager.add(mine.source, mine)
        for path in (A, "mcp-server+mine/x/m"):
            await there.kernel.cat(path)
        there.forgotten()
        assert shared.heard is not None
        shared.heard(EVERYTHING, None)
        assert there.forgotten() == ["a"]
        for _ in range(2):
            assert await there.kernel.cat(A) == b"old"
            assert not (there.manager.by_uri.record_of("mcp-server+docs+x://a"))[1].invalidated
        assert (other.loaded, mine.loaded) == ([], ["x://m"])


@pytest.mark.semantics("S20")
async def test_what_is_shared_stands_in_for_a_source_that_is_down(nursery: trio.Nursery) -> None:
    other = shareable(a=b"a")
    async with both(nursery, shareable(a=b"a"), other) as (_, there, _):
        await there.kernel.ls("mcp-server+docs/x")
        there.clock.advance(200)
        other.down = Unreachable("gone")
        assert await there.kernel.cat(A) == b"a"
        assert await there.kernel.xattr(A, "user.bbfs.cache") == "stale"


@pytest.mark.parametrize("option", [None, True])
async def test_a_login_makes_a_source_personal_at_once(nursery: trio.Nursery, option: bool | None) -> None:
    """Unless the user says that it is shared all the same."""
    other = shareable(a=b"a", b=b"b")
    public = replace(other.source, shared=option, mcp=McpServer("http", url="https://mcp.example.org/mcp"))
    source = shareable(a=b"a", b=b"b")
    source.source = other.source = public
    async with both(nursery, source, other) as (_, there, shared):
        for name, logged_in in (("a", True), ("b", False)):
            other.logged_in = logged_in
            await there.kernel.cat(f"mcp-server+docs/x/{name}")
            other.announce(f"x://{name}")
            await settled()
        assert other.loaded == ([] if option else ["x://a"])
        assert [uri for _, uri in shared.entries] == ([] if option else ["x://a"])
        assert shared.putting == []


async def test_what_is_never_shared(nursery: trio.Nursery, disk: DiskCache) -> None:
    link = Part("x://a/1", None, MemoryContent(b"1"), link="x://b")
    loaded = {"a": (link, link), "b": b"b" * 2000, "d": b"d", "e": b"e", "f": b"f"}
    source, other = shareable(**loaded), shareable(**loaded)
    for each in (source, other):
        each.described["x://d"] = {"on_open": True}
        each.once, each.personal = ("x://e",), ("x://f",)
    async with both(nursery, source, other, disk=disk, memory=1000) as (_, there, shared):
        assert [uri for _, uri in shared.entries] == ["x://b"]
        for uri in other.contents:
            await there.manager.by_uri.load(f"mcp-server+docs+{uri}")
        await there.manager.flush()
        assert other.loaded == list(other.contents)
        assert disk.usage()[1][0].resources == 2, "what is for this user alone is kept on this machine"
