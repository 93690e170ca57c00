"""Sources that come and go while a mount runs: what happens to theirs, and that nothing happens to the others."""

import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio
from fakes import FlatSource, TreeSource, World, data_source, settled

from bbfs.config import Config
from bbfs.model.errors import BbfsError, ConfigError, NotFound, Outdated
from bbfs.model.values import Capabilities, Change, DataSource, Loaded, Part, ResourceMetadata, WriteOperation
from bbfs.model.versions import Expected
from bbfs.resources import live
from bbfs.resources.live import LiveSources
from bbfs.resources.open import Composition
from bbfs.resources.watch import Watch
from bbfs.sources.content.memory import MemoryContent

DOCS = "mcp-server+docs"
KEPT = "bb-scripted+kept+file"


@dataclass
class Closing(FlatSource):
    """A source that notes when it is closed."""

    closed: trio.Event = field(default_factory=trio.Event)

    async def aclose(self) -> None:
        self.closed.set()


@dataclass
class Labelled(Closing):
    """A source with versions of its own: all of them are `v1`."""

    async def load(self, native_uri: str) -> Loaded:
        part = (await super().load(native_uri)).parts[0]
        content = part.content
        assert isinstance(content, MemoryContent)
        return Loaded((Part(None, "text/plain", MemoryContent(content.data, "v1"), "text"),))


@dataclass
class Stored(TreeSource):
    """A source that can be written, and refuses each write while `down`."""

    detects_conflicts = True

    def writes(self, native_uri: str) -> tuple[WriteOperation, ...]:
        return ("create", "replace", "remove")

    async def write(self, native_uri: str, content: Any, expected: Expected) -> ResourceMetadata:
        await self._request(native_uri)
        self.contents[native_uri] = await content.read_waiting(0, content.size)
        return self.metadata(native_uri)

    async def remove(self, native_uri: str, expected: Expected) -> None:
        await self._request(native_uri)
        del self.contents[native_uri]


@dataclass
class Running:
    """A world whose sources change. made: the handler that is built for a definition."""

    world: World
    sources: LiveSources
    made: dict[str, Any]

    async def become(self, *handlers: Any) -> Any:
        self.made.update({each.source.id: each for each in handlers})
        outcome = await self.sources.configure(Config(sources=tuple(each.source for each in handlers)))
        await settled()
        return outcome


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    made: dict[str, Any] = {}

    def built(_config: Config, source: DataSource, _services: Any) -> Any:
        if source.title == "wrong":
            raise ConfigError("config.toml:3: sources[docs].config.root: wrong")
        return made[source.id]

    monkeypatch.setattr(live, "built", built)

    @asynccontextmanager
    async def run(*handlers: Any) -> AsyncIterator[Running]:
        async with trio.open_nursery() as nursery:
            async with World(nursery, *handlers) as world:
                config = Config(sources=tuple(each.source for each in handlers))
                composition = Composition(list(handlers))
                sources = LiveSources(
                    world.manager,
                    composition,
                    config,
                    nursery,
                    leaving=world.core.drafts.end,
                    why_read_only=lambda _: None,
                )
                yield Running(world, sources, made)
            nursery.cancel_scope.cancel()

    return run


def kept() -> TreeSource:
    return TreeSource(data_source(KEPT), contents={"file:./a": b"kept"})


@pytest.mark.semantics("S41")
async def test_the_others_go_on_undisturbed(running: Callable[..., Any]) -> None:
    other, docs = kept(), Closing(contents={"x://d/a": b"docs"})
    async with running(other, docs) as run:
        kernel = run.world.kernel
        assert await kernel.cat(f"{KEPT}/a") == b"kept"
        inode, opened = (await kernel.walk(f"{KEPT}/a")).ino, await kernel.open(f"{KEPT}/a")
        loads = other.loads.total()
        run.world.forgotten()
        outcome = await run.become(other)
        assert (outcome.removed, outcome.kept) == (("docs",), 1)
        assert not {KEPT, "a"} & {*run.world.forgotten()}
        assert await kernel.read(opened) == b"kept"
        assert (await kernel.walk(f"{KEPT}/a")).ino == inode
        assert await kernel.cat(f"{KEPT}/a") == b"kept"
        assert other.loads.total() == loads
        run.world.files.release(opened)


@pytest.mark.semantics("S41.2")
async def test_a_removed_source_is_gone_and_open_files_of_it_go_on(running: Callable[..., Any]) -> None:
    other, docs = kept(), Closing(contents={"x://d/a": b"docs"})
    async with running(other, docs) as run:
        kernel = run.world.kernel
        opened = await kernel.open(f"{DOCS}/x/d/a")
        held = (await kernel.walk(f"{DOCS}/x/d/a")).ino
        await run.become(other)
        assert docs.closed.is_set()
        assert await kernel.read(opened) == b"docs"
        assert await kernel.ls() == [KEPT]
        assert DOCS in run.world.forgotten()
        with pytest.raises(NotFound):
            await kernel.walk(DOCS)
        with pytest.raises(NotFound):
            await kernel.walk("docs")
        run.world.files.release(opened)
        with pytest.raises((NotFound, Outdated)):
            await run.world.files.open(held)


@pytest.mark.semantics("S41.2")
async def test_an_open_directory_of_a_removed_source_ends(running: Callable[..., Any]) -> None:
    other, docs = kept(), Closing(contents={"x://d/a": b"docs"})
    async with running(other, docs) as run:
        files = run.world.files
        directory = await files.opendir((await run.world.kernel.walk(f"{DOCS}/x/d")).ino)
        await run.become(other)
        with pytest.raises(Outdated):
            list(files.readdir(directory, 0))
        files.releasedir(directory)


@pytest.mark.semantics("S41.3")
async def test_what_another_source_of_the_name_had_is_never_shown(running: Callable[..., Any]) -> None:
    other = kept()
    first = Labelled(contents={"x://d/a": b"old", "x://d/b": b"old b"})
    second = Labelled(replace(first.source, config={"url": "x:elsewhere"}), contents={"x://d/a": b"new"})
    async with running(other, first) as run:
        kernel = run.world.kernel
        opened = await kernel.open(f"{DOCS}/x/d/a")
        inode = (await kernel.walk(f"{DOCS}/x/d/a")).ino
        outcome = await run.become(other, second)
        assert outcome.changed == ("docs",)
        assert await kernel.cat(f"{DOCS}/x/d/a") == b"new"
        assert (await kernel.walk(f"{DOCS}/x/d/a")).ino != inode  # the kernel has pages of the old content there
        assert await kernel.read(opened) == b"old"
        with pytest.raises(Outdated):
            await run.world.files.open(inode)
        with pytest.raises(NotFound):
            await kernel.walk(f"{DOCS}/x/d/b")
        run.world.files.release(opened)


@pytest.mark.semantics("S41.2")
async def test_a_request_to_a_removed_source_ends_at_once(running: Callable[..., Any]) -> None:
    other, docs = kept(), Closing(contents={"x://d/a": b"docs"})
    async with running(other, docs) as run:
        kernel = run.world.kernel
        await kernel.walk(f"{DOCS}/x/d")
        docs.hold("x://d/a")
        errors: list[BbfsError] = []

        async def read() -> None:
            try:
                await kernel.cat(f"{DOCS}/x/d/a")
            except BbfsError as error:
                errors.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await settled()
            assert not errors
            await run.become(other)
        assert [type(error) for error in errors] in ([Outdated], [NotFound])


@pytest.mark.semantics("S41.1")
async def test_a_wrong_definition_changes_nothing(running: Callable[..., Any]) -> None:
    other, docs = kept(), Closing(contents={"x://d/a": b"docs"})
    new = Closing(data_source("mcp-server+new"))
    wrong = Closing(replace(docs.source, title="wrong"))
    async with running(other, docs) as run:
        with pytest.raises(ConfigError, match=r"config\.toml:3"):
            await run.become(new, wrong)
        assert new.closed.is_set()
        assert not docs.closed.is_set()
        assert sorted(await run.world.kernel.ls()) == [KEPT, DOCS]
        assert await run.world.kernel.cat(f"{DOCS}/x/d/a") == b"docs"
        assert (await run.become(other, docs)).kept == 2


@pytest.mark.semantics("S41.4")
async def test_what_a_removed_source_has_not_taken_is_pending(running: Callable[..., Any]) -> None:
    source = replace(data_source("bb-scripted+notes+file"), capabilities=Capabilities(write=True))
    other, notes = kept(), Stored(source, contents={"file:./a": b"before"})
    async with running(other, notes) as run:
        kernel, pending = run.world.kernel, run.world.manager.writer.pending
        inode = (await kernel.walk("bb-scripted+notes+file/a")).ino
        handle = await run.world.core.open_files.open_to_write(inode, 1)
        await run.world.core.open_files.write(handle, 0, b"change")
        outcome = await run.become(other)
        assert outcome.removed == ("notes",)
        with pytest.raises(Outdated):
            await run.world.core.open_files.flush(handle)
        run.world.files.release(handle)
        (item,) = pending.items()
        assert (item.source_id, item.path[-1]) == ("notes", "a")
        assert pending.content_path(item).read_bytes() == b"change"


@pytest.mark.semantics("S41.4")
async def test_the_outcome_tells_of_pending_writes(running: Callable[..., Any]) -> None:
    source = replace(data_source("bb-scripted+notes+file"), capabilities=Capabilities(write=True))
    other, notes = kept(), Stored(source, contents={"file:./a": b"before"})
    async with running(other, notes) as run:
        kernel, files = run.world.kernel, run.world.core.open_files
        handle = await files.open_to_write((await kernel.walk("bb-scripted+notes+file/a")).ino, 1)
        await files.write(handle, 0, b"change")
        notes.down = BbfsError("no")
        with pytest.raises(BbfsError, match="no"):
            await files.flush(handle)
        run.world.files.release(handle)
        outcome = await run.become(other)
        assert outcome.notes == ("notes: 1 pending write of it stay: 'bbfs pending' lists them",)


async def test_removed_sources_do_not_pile_up(running: Callable[..., Any]) -> None:
    other, old = kept(), []
    async with running(other) as run:
        for number in range(20):
            docs = Closing(replace(data_source(), title=str(number)), contents={"x://d/a": b"%d" % number})
            old.append(weakref.ref(docs))
            await run.become(other, docs)
            assert await run.world.kernel.cat(f"{DOCS}/x/d/a") == b"%d" % number
        gc.collect()
        assert sum(each() is not None for each in old) <= 2


@pytest.mark.semantics("S41")
async def test_a_watch_follows_the_sources(running: Callable[..., Any]) -> None:
    other, docs = kept(), Closing(contents={"x://d/a": b"docs"})
    told: list[str] = []
    notes: list[str] = []

    def hear(change: Change) -> None:
        told.append(f"{change.event} {'/'.join(next(iter(change.paths)))}")

    async with running(other) as run, trio.open_nursery() as nursery:
        await nursery.start(Watch(run.world.manager, [()], hear, notes.append).run)
        await run.become(other, docs)
        assert told == [f"added {DOCS}/x/d/a"]
        docs.contents["x://d/a"] = b"changed"
        docs.announce("x://d/a")
        await settled()
        await run.become(other)
        assert told[1:] == [f"changed {DOCS}/x/d/a", f"removed {DOCS}/x/d/a"]
        assert notes == [f"{DOCS}: removed from the mount"]
        nursery.cancel_scope.cancel()
