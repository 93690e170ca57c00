"""Names that a hierarchical source has beside those it lists, and what it says of resources besides."""

from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

import pytest
import trio
from fakes import World, data_source
from trio.testing import MockClock

from bbfs.model.errors import DeadlineExceeded, NotADirectory, NotFound, Unreachable
from bbfs.model.uri import source_uri
from bbfs.model.uri_paths import hide_component
from bbfs.model.values import DataSource, Listing, Loaded, Part, ResourceMetadata
from bbfs.resources.catalog.lookups import LATE_FOR
from bbfs.resources.catalog.record import Record, publish_description
from bbfs.sources.content.memory import MemoryContent

ROOT = "bb-scripted+tree+db"


@pytest.mark.parametrize("size", [1 << 63, -1])
@pytest.mark.semantics("S9")
def test_a_size_that_no_file_can_have_is_no_size_though_an_etag_comes_with_it(size: int) -> None:
    said = ResourceMetadata(f"{ROOT}://a", "db://a", "a", size=size, etag="v1")
    record = Record("tree", said, ("a",), 1.0)
    publish_description(record, said, 1.0, 10.0)
    assert (record.size, record.best_size()) == (None, 0)


@dataclass
class Database:
    """A source, `db://…`: `row` lists one row and has those of `rows`; `by/COLOUR` is a directory of each colour."""

    source: DataSource = field(default_factory=lambda: data_source(ROOT))
    rows: dict[str, bytes] = field(default_factory=dict)
    down: Exception | None = None
    asked: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    state: Any = None
    waits: bool = False
    hangs: trio.Event = field(default_factory=trio.Event)

    def metadata(self, *path: str, **said: Any) -> ResourceMetadata:
        uri = "db://" + "/".join(map(hide_component, path))
        return ResourceMetadata(source_uri(self.source.base_prefix, uri), uri, path[-1], **said)

    async def list_directory(self, path: tuple[str, ...]) -> Listing:
        await trio.lowlevel.checkpoint()
        match path:
            case ():
                table = {"columns": {"id": "integer"}, "Bad Name": 1}
                row = self.metadata("row", kind="directory", properties=table)
                return Listing((row, self.metadata("by", kind="directory")))
            case ("row",) | ("by", "red"):
                return Listing((self.metadata(*path, "1"),), open=True)
            case ("by",):
                return Listing((), open=True)
        raise NotFound("/".join(path))

    async def find(self, path: tuple[str, ...], name: str) -> ResourceMetadata:
        self.asked.append((path, name))
        await trio.lowlevel.checkpoint()
        if self.waits:
            await self.hangs.wait()
        if self.down is not None:
            raise self.down
        if path == ("by",) and name == "red":
            return self.metadata("by", "red", kind="directory")
        if path == ("row",) and name.lower() in self.rows:
            return self.metadata("row", name.lower())
        raise NotFound(name)

    async def load(self, native_uri: str) -> Loaded:
        self.loaded.append(native_uri)
        await trio.lowlevel.checkpoint()
        data = self.rows.get(unquote(native_uri.rpartition("/")[2]), b"everything")
        said = ResourceMetadata("", native_uri, "", modified_ns=5 * 10**9, properties={"charset": "latin-1"})
        return Loaded((Part(None, "text/plain", MemoryContent(data), "text"),), metadata=said)


@pytest.mark.semantics("S9")
async def test_what_is_not_listed_is_found(nursery: trio.Nursery) -> None:
    source = Database(rows={"1": b"one", "7": b"seven", "a b": b"odd", "a/b": b"none"})
    async with World(nursery, source) as world:
        assert await world.kernel.ls(f"{ROOT}/row") == ["1"]
        assert source.loaded == []
        assert (await world.kernel.stat(f"{ROOT}/row/7")).size == len(b"seven")
        assert await world.kernel.cat(f"{ROOT}/row/7") == b"seven"
        assert len(source.loaded) == 1
        assert await world.kernel.cat(f"{ROOT}/row/a b") == b"odd"
        assert await world.kernel.ls(f"{ROOT}/row") == ["1"]
        assert source.asked == [(("row",), "7"), (("row",), "a b")]


async def test_a_name_is_asked_for_once_while_the_answer_holds(nursery: trio.Nursery) -> None:
    source = Database(rows={"7": b"seven"})
    async with World(nursery, source) as world:
        for _ in range(2):
            await world.kernel.walk(f"{ROOT}/row/7")
            with pytest.raises(NotFound):
                await world.kernel.walk(f"{ROOT}/row/8")
        assert len(source.asked) == 2
        world.clock.advance(1000.0)
        source.rows = {"8": b"eight"}
        assert await world.kernel.cat(f"{ROOT}/row/8") == b"eight"
        with pytest.raises(NotFound):
            await world.kernel.walk(f"{ROOT}/row/7")
        source.rows["8"] = b"changed"
        world.files.refresh((ROOT, "row"))
        assert await world.kernel.cat(f"{ROOT}/row/8") == b"changed"


@pytest.mark.semantics("S32.17")
async def test_a_name_is_asked_for_again_that_a_program_has_stored_meanwhile(nursery: trio.Nursery) -> None:
    source = Database(rows={"7": b"seven"}, waits=True)
    async with World(nursery, source) as world, trio.open_nursery() as asking:
        asking.start_soon(world.kernel.walk, f"{ROOT}/row/7")
        with trio.fail_after(60):
            while not source.asked:
                await trio.lowlevel.checkpoint()
        [asked] = world.manager.sources.values()
        asked.catalog.written.note(source.metadata("row", "7"))
        source.hangs.set()
    assert source.asked == [(("row",), "7")] * 2


async def test_a_directory_can_be_found_as_well(nursery: trio.Nursery) -> None:
    source = Database(rows={"1": b"one"})
    async with World(nursery, source) as world:
        assert await world.kernel.ls(f"{ROOT}/by") == []
        assert await world.kernel.cat(f"{ROOT}/by/red/1") == b"one"
        with pytest.raises(NotADirectory):
            await world.manager.tree.find((ROOT, "by", "red", "1", "x"))


@pytest.mark.semantics("S3", "S4")
async def test_only_the_name_that_an_answer_is_shown_as_has_it(nursery: trio.Nursery) -> None:
    source = Database(rows={"x": b"x", ".git": b""})
    async with World(nursery, source) as world:
        assert await world.kernel.cat(f"{ROOT}/row/x") == b"x"
        for name in ("X", ".git"):
            with pytest.raises(NotFound):
                await world.kernel.walk(f"{ROOT}/row/{name}")
        assert source.asked == [(("row",), "x"), (("row",), "X")], "what programs look for by themselves is not asked"


@pytest.mark.semantics("S23")
async def test_an_outage_is_no_absence(nursery: trio.Nursery) -> None:
    source = Database(rows={"7": b"seven"}, down=Unreachable("gone"))
    async with World(nursery, source) as world:
        with pytest.raises(Unreachable):
            await world.kernel.walk(f"{ROOT}/row/7")
        source.down = None
        assert await world.kernel.cat(f"{ROOT}/row/7") == b"seven"


@pytest.mark.semantics("S10", "S11")
async def test_what_a_source_says_besides_is_shown(nursery: trio.Nursery) -> None:
    source = Database(rows={"1": b"one"})
    async with World(nursery, source) as world:
        assert await world.kernel.xattr(f"{ROOT}/row", "user.bbfs.columns") == '{"id": "integer"}'
        path = f"{ROOT}/row/1"
        await world.kernel.cat(path)
        assert await world.kernel.xattr(path, "user.bbfs.charset") == "latin-1"
        assert (await world.kernel.stat(path)).modified_ns == 5 * 10**9
        world.clock.advance(1000.0)  # the listing comes anew and says nothing of it
        assert await world.kernel.ls(f"{ROOT}/row") == ["1"]
        assert await world.kernel.xattr(path, "user.bbfs.charset") == "latin-1"


@pytest.mark.semantics("S22")
async def test_a_source_that_is_late_is_not_waited_for_by_one_after_the_other(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    source = Database(source=data_source(ROOT, timeout=5.0), waits=True)
    async with World(nursery, source) as world:
        await world.kernel.ls(f"{ROOT}/row")
        started = trio.current_time()
        for number in range(10, 14):
            with pytest.raises(DeadlineExceeded):
                await world.kernel.stat(f"{ROOT}/row/{number}")
        assert trio.current_time() - started < 6
        world.clock.advance(LATE_FOR)
        source.hangs.set()
        source.rows["10"] = b"ten"
        assert await world.kernel.cat(f"{ROOT}/row/10") == b"ten"


@pytest.mark.semantics("S7")
@pytest.mark.parametrize("salt", ["", "~"])
def test_the_first_content_keeps_the_inode_and_another_one_does_not(salt: str) -> None:
    record = Record("docs", ResourceMetadata("docs+x://a", "x://a", "a", size=1), ("a",), 0.0)
    record.salt = salt
    listed = record.inode_version
    for etag in ("one", "one", "two"):
        described = replace(record.metadata, etag=etag)
        publish_description(record, described, 0.0, 10.0, keeps_inode=record.digest is None)
        assert (record.inode_version == listed) == (etag == "one")
