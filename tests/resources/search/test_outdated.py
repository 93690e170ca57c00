"""A search says what the index does not have yet of a source, and which command reads it."""

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import Clock, FlatSource

from bbfs.model.values import DataSource, Policy
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.commands.indexing import walk
from bbfs.resources.commands.table import Walked
from bbfs.resources.manager import ResourceManager
from bbfs.resources.search.engine import SearchAnswer
from bbfs.resources.search.index.local import LocalIndex
from bbfs.resources.search.index.outdated import AGE_SAID_AFTER
from bbfs.sources import Handler, Services
from bbfs.sources.database.handler import DatabaseHandler
from bbfs.sources.filesystem.handler import FilesystemHandler

MAY_BE = "the index may be out of date: "
READS = "; 'bbfs index notes' reads what has changed"


class Searched:
    """A manager of one source with an index that was made once."""

    def __init__(self, manager: ResourceManager, source_id: str, clock: Clock) -> None:
        self.manager = manager
        self.clock = clock
        self._source_id = source_id

    async def index(self) -> Walked:
        self.clock.advance(2)  # a listing of a folder lives for a second
        return await walk(self.manager, self.manager.roots.named(self._source_id), lambda _: None)

    async def search(self, query: str) -> SearchAnswer:
        self.clock.advance(2)
        return await self.manager.searches.search(query)


@asynccontextmanager
async def searched(path: Path, handler: Handler, *, walked: bool = True) -> AsyncIterator[Searched]:
    clock = Clock()
    index = LocalIndex(path / "index.sqlite", 1 << 30, clock=clock)
    async with trio.open_nursery() as nursery:
        manager = ResourceManager(nursery, cache_bytes=1 << 24, store=MetadataStore(None), index=index, clock=clock)
        await manager.add(handler.source, handler)
        made = Searched(manager, handler.source.id, clock)
        if walked:
            await made.index()
        yield made
        nursery.cancel_scope.cancel()
    await index.aclose()


def local(type_: str, **config: Any) -> DataSource:
    scheme = {"filesystem": "file", "database": "sqlite"}[type_]
    policy = Policy(listing_ttl=1)
    return DataSource("notes", "notes", type_, "bb", f"bb-{type_}+notes+{scheme}", config=config, policy=policy)


def names(answer: SearchAnswer) -> set[str]:
    return {hit.path[-1] for hit in answer.hits}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "notes"
    made.mkdir()
    for name in ("one.md", "two.md", "three.md"):
        (made / name).write_text("a word")
    (made / "picture").write_bytes(b"\0word")
    return made


@pytest.mark.semantics("S36.8")
async def test_a_folder_says_how_many_documents_are_new_or_have_changed(tmp_path: Path, folder: Path) -> None:
    async with searched(tmp_path, FilesystemHandler(local("filesystem", root=str(folder)), Services())) as notes:
        answer = await notes.search("word")
        assert (names(answer), answer.problems) == ({"one.md", "two.md", "three.md"}, ())
        (folder / "one.md").write_text("another word")
        (folder / "two.md").write_text("another word")
        (folder / "four.md").write_text("a new word")
        (folder / "three.md").unlink()
        answer = await notes.search("word")
        assert answer.problems == (f"{MAY_BE}notes (2 changed and 1 new documents){READS}",)
        assert names(answer) == set()  # the index has one.md and two.md as they were
        counts = await notes.index()
        assert (counts.loaded, counts.unchanged, counts.removed) == (3, 1, 1)  # the picture is not read again
        answer = await notes.search("word")
        assert (names(answer), answer.problems) == ({"one.md", "two.md", "four.md"}, ())


@pytest.mark.semantics("S36.8")
async def test_what_has_no_text_is_new_to_the_index_only_when_it_has_changed(tmp_path: Path, folder: Path) -> None:
    async with searched(tmp_path, FilesystemHandler(local("filesystem", root=str(folder)), Services())) as notes:
        (folder / "picture").write_bytes(b"now a word")
        assert (await notes.search("word")).problems == (f"{MAY_BE}notes (1 new document){READS}",)
        await notes.index()
        answer = await notes.search("word")
        assert ("picture" in names(answer), answer.problems) == (True, ())


@pytest.mark.semantics("S36.8")
async def test_a_database_in_a_file_says_that_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT)")
        db.execute("INSERT INTO customer VALUES (1, 'Ada')")
    db.close()
    handler = DatabaseHandler(local("database", url=f"sqlite:///{path}"), Services())
    async with searched(tmp_path, handler) as shop:
        os.utime(path, (shop.clock.now - 3600, shop.clock.now - 3600))
        answer = await shop.search("Ada")
        assert ("1.json" in names(answer), answer.problems) == (True, ())
        os.utime(path, (shop.clock.now, shop.clock.now))
        shop.clock.advance(7200)
        assert (await shop.search("Ada")).problems == (f"{MAY_BE}notes (written since it was read 2 hours ago){READS}",)
        await shop.index()
        assert (await shop.search("Ada")).problems == ()
        await handler.aclose()


@pytest.mark.semantics("S36.8")
async def test_a_source_without_versions_says_when_it_was_read(tmp_path: Path) -> None:
    handler = FlatSource(contents={"x://one": b"a word", "x://two": b"a word"})
    command = f"; 'bbfs index {handler.source.id}' reads what has changed"
    async with searched(tmp_path, handler) as docs:
        assert (await docs.search("word")).problems == ()
        docs.clock.advance(AGE_SAID_AFTER)
        problems = (f"{MAY_BE}{handler.source.id} (read 10 minutes ago){command}",)
        assert (await docs.search("word")).problems == problems
        await trio.testing.wait_all_tasks_blocked()  # the search has had the source listed again
        handler.contents["x://three"] = b"a new word"
        await docs.manager.roots.named(handler.source.id).catalog.relist()
        problems = (f"{MAY_BE}{handler.source.id} (1 new document){command}",)
        assert (await docs.search("word")).problems == problems
        await docs.index()
        assert (await docs.search("word")).problems == ()


@pytest.mark.semantics("S36.8")
async def test_a_source_that_only_learns_does_not_count_what_no_program_has_read(tmp_path: Path) -> None:
    handler = FlatSource(contents={"x://one": b"a word", "x://two": b"a word"}, described={"x://one": {"etag": "1"}})
    handler.source = replace(handler.source, index=True)
    async with searched(tmp_path, handler, walked=False) as docs:
        await docs.manager.by_uri.list_below("docs")
        await docs.manager.by_uri.load(f"{handler.source.base_prefix}+x://one")
        assert docs.manager.index is not None
        await docs.manager.index.flush()
        docs.clock.advance(2 * AGE_SAID_AFTER)
        answer = await docs.search("word")
        assert (names(answer), answer.problems) == ({"one"}, ())
        await trio.testing.wait_all_tasks_blocked()
        handler.described["x://one"] = {"etag": "2"}
        await docs.manager.roots.named(handler.source.id).catalog.relist()
        answer = await docs.search("word")
        assert names(answer) == set()
        assert answer.problems == (f"{MAY_BE}docs (1 changed document); 'bbfs index docs' reads what has changed",)
