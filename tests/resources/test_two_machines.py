"""Two machines over one source and one cache server: what is asked of the source, and what is believed instead."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
from cache_server import CacheServer
from fakes import Clock, FlatSource, World, data_source, several
from shared_machines import BOUND, PATIENT

from bbfs.model.errors import BbfsError
from bbfs.model.values import Content, DataSource, McpServer, SharedCache
from bbfs.resources.cache.shared.valkey_tier import ValkeyTier
from bbfs.resources.catalog.record import Record

URI = "x://a"
MCP = McpServer("stdio", command="server")
PUBLIC = McpServer("http", url="https://mcp.example.org/mcp")


class Machine:
    """One machine: a source's handler of its own, with its contents, and the file system over it."""

    def __init__(self, nursery: trio.Nursery, data: DataSource, settings: SharedCache) -> None:
        self.source = FlatSource(data, contents={URI: b"one", "x://b": b"two"})
        clock = Clock()
        self.tier = ValkeyTier(settings, clock=clock, waits=PATIENT)
        self.world = World(nursery, self.source, clock=clock, shared=self.tier)

    async def record(self, uri: str = URI) -> Record:
        node = await self.world.manager.tree.find(("mcp-server+docs", "x", uri[-1]))
        assert node.record is not None
        return node.record

    async def load(self, uri: str = URI) -> bytes:
        content: Content = await self.world.manager.contents.open(await self.record(uri))
        data = content.read(0, content.size)
        assert data is not None
        return data


@asynccontextmanager
async def machines(server: CacheServer, data: DataSource | None = None) -> AsyncIterator[tuple[Machine, Machine]]:
    data = data or replace(data_source(content_ttl=100), shared=True, mcp=MCP)
    settings = SharedCache(socket=str(server.socket), timeout=BOUND)  # a busy machine is no outage
    async with trio.open_nursery() as nursery:
        one, two = (Machine(nursery, data, settings) for _ in range(2))
        async with one.world, two.world:
            yield one, two
            nursery.cancel_scope.cancel()


async def shared(server: CacheServer, entries: int) -> None:
    """Until so many resources are kept."""
    with trio.fail_after(BOUND):
        while len(server.keys("entry")) != entries:  # noqa: ASYNC110 - another process
            await trio.sleep(0.01)


async def test_a_load_is_shared_with_the_time_that_is_left(server: CacheServer) -> None:
    async with machines(server) as (one, two):
        two.source.contents[URI] = b"never asked for"
        assert await one.load() == b"one"
        await shared(server, 1)
        assert await two.load() == b"one"
        assert two.source.loaded == []
        assert two.source.watched == {URI}
        record = await two.record()
        assert record.fetched_at is not None
        assert 90 < record.fetched_at + record.ttl - two.world.clock() <= 100
        assert (await two.record()).digest == (await one.record()).digest


async def test_a_load_that_fails_is_each_ones_own(server: CacheServer) -> None:
    async with machines(server) as (one, two):
        for machine in (one, two):
            machine.source.contents[URI] = BbfsError("broken")
            with trio.fail_after(BOUND), pytest.raises(BbfsError):
                await machine.load()
        assert two.source.loads[URI] == 1
        assert server.keys("entry") == []


async def test_several_contents_are_shared_and_links_are_not(server: CacheServer) -> None:
    async with machines(server) as (one, two):
        parts = several(("x://a/1", b"1"), ("x://a/2", b"2"))
        for machine in (one, two):
            machine.source.contents = {URI: parts, "x://b": (replace(parts[0], link="x://c"), parts[1])}
        for uri in (URI, "x://b"):
            with pytest.raises(BbfsError, match="several contents"):
                await one.load(uri)
        await shared(server, 1)
        for uri in (URI, "x://b"):
            with pytest.raises(BbfsError, match="several contents"):
                await two.load(uri)
        assert two.source.loads == {"x://b": 1}
        mine, others = (await one.record()).parts, (await two.record()).parts
        assert mine is not None
        assert others is not None
        assert list(mine) == list(others)
