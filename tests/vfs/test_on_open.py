"""What only an open loads, each open anew (S31), on the core: nothing else loads it, and what it has loaded stays."""

from collections.abc import Callable
from math import inf

import pytest
import trio
import trio.testing
from fakes import FlatSource, World, settled
from trio.testing import MockClock

from bbfs.model.errors import BbfsError, InvalidUri, IsADirectory, NotADirectory, NotFound, Outdated, Unreachable
from bbfs.model.values import Loaded, Part
from bbfs.resources.loading.publish import RESULT_KEPT
from bbfs.sources.content.memory import MemoryContent

ROOT = "mcp-server+docs"
RUN = f"{ROOT}/run/t?x=1"
URI = "run://t?x=1"


class Runner(FlatSource):
    """A source in which every load of `run://t…` counts, and answers another text unless told otherwise."""

    answer: Callable[[int], Loaded] | None = None

    def __init__(self, **fields: object) -> None:
        super().__init__(contents={"run://t/about.md": b"about", "doc://a": b"doc"}, **fields)  # type: ignore[arg-type]
        self.template("run://t{?x}", on_open=True)

    async def load(self, native_uri: str) -> Loaded:
        if not native_uri.startswith("run://t?"):
            return await super().load(native_uri)
        self.loaded.append(native_uri)
        number = self.loads[native_uri]
        await self._request(native_uri)
        if self.answer is not None:
            return self.answer(number)
        return Loaded((part(f"{'run ' * number}{number}"),), 0.0)

    @property
    def runs(self) -> int:
        return self.loads[URI]


def part(text: str, name: str = "1.txt", **fields: str) -> Part:
    return Part(None, "text/plain", MemoryContent(text.encode()), "text", name=name, **fields)


def several(number: int) -> Loaded:
    link = {"link": "doc://a"}
    nowhere = {"link": "https://example.org/x"}
    parts = (part(f"text {number}"), part("two", "2.txt"), part("url", "3", **link), part("url", "4", **nowhere))
    return Loaded(parts, 0.0)


@pytest.mark.semantics("S31", "S12")
async def test_nothing_but_an_open_loads_it(nursery: trio.Nursery) -> None:
    source = Runner()
    async with World(nursery, source) as world:
        kernel = world.kernel
        assert await kernel.ls(f"{ROOT}/run") == ["t"]
        assert await kernel.ls(f"{ROOT}/run/t") == ["about.md"]
        for _ in range(3):
            found = await kernel.stat(RUN)
            assert (found.kind, found.size, found.attr_timeout) == ("file", 0, 0.0)
        assert await kernel.xattr(RUN, "user.bbfs.uri") == f"{ROOT}+{URI}"
        assert await world.files.listxattr((await kernel.walk(RUN)).ino)
        source_, record = world.manager.by_uri.record_of(f"{ROOT}+{URI}")
        await world.manager.contents.learn(record)
        assert world.manager.contents.document(("x",), record)["name"] == "t?x=1"
        assert source_.handler is source
        assert source.runs == 0


@pytest.mark.semantics("S31")
async def test_each_open_is_one_load_and_its_own_version(nursery: trio.Nursery) -> None:
    source = Runner()
    async with World(nursery, source) as world:
        kernel = world.kernel
        seen = (await kernel.stat(RUN)).ino
        first = await kernel.open(RUN)
        second = await kernel.open(RUN)
        assert (await kernel.stat(RUN)).size == len(b"run run 2")
        assert await kernel.read(first) == b"run 1"
        assert await kernel.read(second) == b"run run 2"
        assert first in world.core.open_files.uncached
        world.files.release(second)
        assert (await kernel.stat(RUN)).size == len(b"run 1")
        world.files.release(first)
        after = await kernel.stat(RUN)
        # A program that looks before it opens (cp does) finds the file it has looked at.
        assert (after.ino, after.size, after.attr_timeout) == (seen, 0, 0.0)
        assert source.runs == 2


async def test_two_opens_at_a_time_are_two_loads(nursery: trio.Nursery) -> None:
    source = Runner()
    async with World(nursery, source) as world:
        gate = source.hold(URI)
        read: list[bytes] = []

        async def cat() -> None:
            read.append(await world.kernel.cat(RUN))

        async with trio.open_nursery() as readers:
            readers.start_soon(cat)
            readers.start_soon(cat)
            await settled()
            gate.set()
        assert source.runs == 2
        assert len(read) == 2


async def test_a_reader_that_gives_up_ends_its_load(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    source = Runner()
    async with World(nursery, source) as world:
        source.hold(URI)
        with trio.move_on_after(0.05):
            await world.kernel.cat(RUN)
        await settled()
        assert source.cancelled == [URI]


@pytest.mark.semantics("S31")
async def test_a_time_to_live_that_the_source_gives_is_kept(nursery: trio.Nursery) -> None:
    source = Runner()
    source.answer = lambda number: Loaded((part(f"kept {number}"),), 60.0)
    async with World(nursery, source) as world:
        assert await world.kernel.cat(RUN) == b"kept 1"
        assert await world.kernel.cat(RUN) == b"kept 1"
        assert (await world.kernel.stat(RUN)).size == 6
        world.clock.advance(61)
        assert (await world.kernel.stat(RUN)).size == 0
        assert await world.kernel.cat(RUN) == b"kept 2"
        assert source.runs == 2


async def test_an_error_is_the_result_of_one_load(nursery: trio.Nursery) -> None:
    source = Runner()
    errors = iter((InvalidUri("x is wrong"), BbfsError("it failed"), Unreachable("down")))

    def fail(_: int) -> Loaded:
        raise next(errors)

    source.answer = fail
    async with World(nursery, source) as world:
        for kind in (InvalidUri, BbfsError, Unreachable):
            with pytest.raises(kind):
                await world.kernel.open(RUN)
        assert source.runs == 3
        assert await world.kernel.xattr(RUN, "user.bbfs.error") == "down"
        assert (await world.kernel.stat(RUN)).size == 0
        source.answer = None
        assert await world.kernel.cat(RUN) == b"run run run run 4"


async def test_nothing_stale_stands_in_for_a_result(nursery: trio.Nursery) -> None:
    source = Runner()
    async with World(nursery, source) as world:
        await world.kernel.cat(RUN)
        source.down = Unreachable("gone")
        with pytest.raises(Unreachable):
            await world.kernel.cat(RUN)


@pytest.mark.semantics("S31", "S5")
async def test_several_parts_are_a_directory_for_a_while(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    source = Runner()
    source.answer = several
    async with World(nursery, source) as world:
        kernel = world.kernel
        with pytest.raises(IsADirectory):
            await kernel.open(RUN)
        assert source.runs == 1
        entries = {name: found.kind for name, found in await kernel.entries(RUN)}
        assert entries == {"1.txt": "file", "2.txt": "file", "a": "symlink", "x.url": "file"}
        assert await world.files.readlink((await kernel.walk(f"{RUN}/a")).ino) == b"../../doc/a"
        for _ in range(2):
            assert await kernel.cat(f"{RUN}/1.txt") == b"text 1"
            assert await kernel.cat(f"{RUN}/2.txt") == b"two"
            assert (await kernel.stat(f"{RUN}/2.txt")).size == 3
        held = await kernel.open(f"{RUN}/1.txt")
        part_of_it = await kernel.walk(f"{RUN}/1.txt")
        await trio.sleep(RESULT_KEPT - 1)
        world.clock.advance(RESULT_KEPT - 1)
        assert await kernel.cat(f"{RUN}/1.txt") == b"text 1"
        assert source.runs == 1
        world.told.clear()
        await trio.sleep(2)
        assert world.told == [((await kernel.walk(f"{ROOT}/run")).ino, b"t?x=1")]
        assert (await kernel.stat(RUN)).kind == "file"
        with pytest.raises(NotADirectory):
            await kernel.walk(f"{RUN}/1.txt")
        with pytest.raises((NotADirectory, NotFound, Outdated)):
            await world.files.open(part_of_it.ino)
        assert await kernel.read(held) == b"text 1"
        world.files.release(held)
        assert source.runs == 1
        with pytest.raises(IsADirectory):
            await kernel.open(RUN)
        assert await kernel.cat(f"{RUN}/1.txt") == b"text 2"


async def test_a_part_that_memory_has_lost_is_no_reason_to_run_again(nursery: trio.Nursery) -> None:
    source = Runner()
    source.answer = several
    async with World(nursery, source) as world:
        with pytest.raises(IsADirectory):
            await world.kernel.open(RUN)
        world.manager.memory.clear()
        with pytest.raises((NotADirectory, NotFound)):
            await world.kernel.cat(f"{RUN}/1.txt")
        assert (await world.kernel.stat(RUN)).kind == "file"
        assert source.runs == 1


async def test_one_part_that_is_a_link_is_a_directory(nursery: trio.Nursery) -> None:
    source = Runner()
    source.answer = lambda _: Loaded((part("url", "1", link="doc://a"),), inf)
    async with World(nursery, source) as world:
        with pytest.raises(IsADirectory):
            await world.kernel.open(RUN)
        assert await world.kernel.ls(RUN) == ["a"]


async def test_a_walk_over_parts_loads_none_of_them_ahead(nursery: trio.Nursery) -> None:
    source = Runner()
    source.answer = lambda number: Loaded(tuple(part(str(i), f"{i:03}.txt") for i in range(20)), 0.0)
    async with World(nursery, source) as world:
        with pytest.raises(IsADirectory):
            await world.kernel.open(RUN)
        for name in await world.kernel.ls(RUN):
            await world.kernel.stat(f"{RUN}/{name}")
            await world.kernel.cat(f"{RUN}/{name}")
        await settled()
        assert source.runs == 1


async def test_a_load_by_uri_is_a_load(nursery: trio.Nursery) -> None:
    source = Runner()
    async with World(nursery, source) as world:
        uri = f"{ROOT}+{URI}"
        await world.kernel.ls(ROOT)
        for number in (1, 2):
            loaded = await world.manager.by_uri.load(uri)
            assert loaded.parts[0].content.read(0, 100) == f"{'run ' * number}{number}".encode()
        source.answer = several
        loaded = await world.manager.by_uri.load(uri)
        assert len(loaded.parts) == 4
        assert source.runs == 3
        one = await world.manager.by_uri.load(f"{uri}/1.txt")
        assert one.parts[0].content.read(0, 100) == b"text 3"
        assert source.runs == 3


async def test_a_file_that_the_daemon_before_had_open_goes_on_after_its_source_has_ended(nursery: trio.Nursery) -> None:
    async with World(nursery, Runner()) as world:
        files = world.core.open_files
        files.renumber(await world.kernel.open(RUN), 1000)
        files.end(world.manager.by_uri.record_of(f"{ROOT}+{URI}")[1].source_key)
        assert await world.kernel.read(1000) == b"run 1"
        files.release(1000)
        assert not files.uncached
