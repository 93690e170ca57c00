"""Sources that say whether what is kept is still theirs: what they are asked, and what an answer is worth."""

from dataclasses import dataclass, field

import pytest
import trio
from fakes import FlatSource, World, several

from bbfs.model.errors import Unreachable
from bbfs.model.values import Loaded, ResourceMetadata, Unchanged
from bbfs.resources.cache.disk import DiskCache
from bbfs.sources.content.memory import MemoryContent

A = "mcp-server+docs/x/a"


@dataclass
class Revalidating(FlatSource):
    """A FlatSource that is asked with versions. asked: what it was, URI and version. said: goes with "unchanged"."""

    asked: list[tuple[str, str]] = field(default_factory=list)
    said: Unchanged = field(default_factory=Unchanged)

    async def load_if_changed(self, native_uri: str, version: str) -> Loaded | Unchanged:
        self.asked.append((native_uri, version))
        await self._request(native_uri)
        data = self.contents[native_uri]
        if isinstance(data, bytes) and MemoryContent(data).version == version:
            return self.said
        return await self.load(native_uri)


def source(**contents: bytes) -> Revalidating:
    made = Revalidating(contents={f"x://{name}": data for name, data in contents.items()})
    made.listing_ttl, made.content_ttl = 10_000.0, 10.0
    return made


def version(data: bytes) -> str:
    return MemoryContent(data).version


@pytest.mark.semantics("S19")
async def test_what_is_unchanged_is_not_loaded_again(nursery: trio.Nursery) -> None:
    docs = source(a=b"bytes")
    async with World(nursery, docs) as world:
        before = await world.kernel.stat(A)
        assert await world.kernel.cat(A) == b"bytes"
        for number in range(1, 4):
            world.clock.advance(11)
            assert await world.kernel.cat(A) == b"bytes"
            assert len(docs.asked) == number
        assert docs.asked[0] == ("x://a", version(b"bytes"))
        after = await world.kernel.stat(A)
        assert (after.ino, after.size, after.modified_ns) == (before.ino, before.size, before.modified_ns)
        assert (docs.loaded, world.forgotten()) == (["x://a"], [])
        assert await world.kernel.xattr(A, "user.bbfs.cache") == "fresh"
        assert world.manager.memory.hits == 1, "of the open after the stat, and none of those that asked"


@pytest.mark.semantics("S7.1", "S19")
async def test_what_has_changed_is_another_inode(nursery: trio.Nursery) -> None:
    docs = source(a=b"old")
    async with World(nursery, docs) as world:
        before = await world.kernel.stat(A)
        assert await world.kernel.cat(A) == b"old"
        docs.contents["x://a"] = b"newer"
        world.clock.advance(11)
        assert await world.kernel.cat(A) == b"newer"
        assert (await world.kernel.stat(A)).ino != before.ino
        world.clock.advance(11)
        assert await world.kernel.cat(A) == b"newer"
        assert docs.asked == [("x://a", version(b"old")), ("x://a", version(b"newer"))]
        assert docs.loads["x://a"] == 2


async def test_the_answer_has_a_time_to_live_and_a_description_of_its_own(nursery: trio.Nursery) -> None:
    docs = source(a=b"bytes")
    docs.said = Unchanged(100.0, ResourceMetadata("u", "x://a", "a", properties={"charset": "utf-8"}))
    async with World(nursery, docs) as world:
        await world.kernel.cat(A)
        world.clock.advance(11)
        await world.kernel.cat(A)
        assert await world.kernel.xattr(A, "user.bbfs.charset") == "utf-8"
        world.clock.advance(90)
        await world.kernel.cat(A)
        assert len(docs.asked) == 1


@pytest.mark.semantics("S18")
async def test_what_was_announced_while_it_was_asked_for_is_asked_for_again(nursery: trio.Nursery) -> None:
    docs = source(a=b"bytes")
    async with World(nursery, docs) as world:
        await world.kernel.cat(A)
        world.clock.advance(11)
        docs.hold("x://a")
        async with trio.open_nursery() as reading:
            reading.start_soon(world.kernel.cat, A)
            await trio.testing.wait_all_tasks_blocked()
            docs.announce("x://a")
            docs.release("x://a")
        await world.kernel.cat(A)
        assert len(docs.asked) == 2
        assert docs.loaded == ["x://a"]


async def test_what_memory_has_no_more_is_asked_for_by_what_is_on_disk(nursery: trio.Nursery, disk: DiskCache) -> None:
    docs = source(a=b"a" * 600, b=b"b" * 600)
    async with World(nursery, docs, memory=1000, disk=disk) as world:
        await world.kernel.cat(A)
        await world.manager.flush()
        await world.kernel.cat("mcp-server+docs/x/b")
        world.clock.advance(11)
        assert await world.kernel.cat(A) == b"a" * 600
        assert docs.asked == [("x://a", version(b"a" * 600))]
        assert docs.loads["x://a"] == 1
        # It is as fresh on disk now as in memory.
        await world.kernel.cat("mcp-server+docs/x/b")
        await world.manager.flush()
        world.clock.advance(5)
        assert await world.kernel.cat(A) == b"a" * 600
        assert len([uri for uri, _ in docs.asked if uri == "x://a"]) == 1


async def test_what_is_kept_nowhere_is_loaded(nursery: trio.Nursery) -> None:
    docs = source(a=b"a" * 600, b=b"b" * 600)
    async with World(nursery, docs, memory=1000) as world:
        for name in ("a", "b", "a"):
            await world.kernel.cat(f"mcp-server+docs/x/{name}")
            world.clock.advance(11)
        assert docs.asked == []
        assert docs.loads["x://a"] == 2


async def test_several_contents_are_loaded(nursery: trio.Nursery) -> None:
    docs = source()
    docs.contents["x://a"] = several(("x://a/1", b"one"), ("x://a/2", b"two"))
    async with World(nursery, docs) as world:
        for _ in range(2):
            await world.kernel.stat(A)
            assert await world.kernel.cat(f"{A}/1") == b"one"
            world.clock.advance(11)
        assert docs.asked == []


@pytest.mark.semantics("S20")
async def test_while_the_source_is_down_what_is_kept_is_served(nursery: trio.Nursery) -> None:
    docs = source(a=b"bytes")
    async with World(nursery, docs) as world:
        await world.kernel.cat(A)
        world.clock.advance(11)
        docs.down = Unreachable("gone")
        assert await world.kernel.cat(A) == b"bytes"
        assert await world.kernel.xattr(A, "user.bbfs.cache") == "stale"
        docs.down = None
        world.clock.advance(11)
        assert await world.kernel.cat(A) == b"bytes"
        assert await world.kernel.xattr(A, "user.bbfs.cache") == "fresh"
        assert docs.loaded == ["x://a"]
