"""The local index learns what programs read, and forgets what its source says has changed."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import Clock, FlatSource

from bbfs.model.errors import Busy
from bbfs.model.values import Content
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.commands.indexing import walk
from bbfs.resources.manager import ResourceManager
from bbfs.resources.search.index.entries import Entry
from bbfs.resources.search.index.local import LocalIndex
from bbfs.resources.search.index.store import IndexStore
from bbfs.resources.search.index.waiting import Waiting
from bbfs.resources.search.literals import plan
from bbfs.sources.documents import converter
from bbfs.sources.documents.converter import DocumentReader


class Indexed:
    """A manager of one source with an index."""

    def __init__(self, manager: ResourceManager, index: LocalIndex, handler: FlatSource) -> None:
        self.manager = manager
        self.index = index
        self.handler = handler

    async def search(self, query: str) -> list[str]:
        return [
            hit.native_uri for _, hit in (await self.index.search(query, 10, sources=[self.handler.source.id])).hits
        ]

    async def read(self, uri: str) -> None:
        await self.manager.by_uri.load(f"{self.handler.source.base_prefix}+{uri}")
        await self.index.flush()

    def announce(self, uri: str) -> None:
        self.handler.announce(uri)


@asynccontextmanager
async def indexed(
    path: Path, texts: dict[str, str], *, index: bool | None = True, **options: Any
) -> AsyncIterator[Indexed]:
    handler = FlatSource(contents={f"docs://{name}": text.encode() for name, text in texts.items()})
    handler.source = replace(handler.source, index=index)
    clock = Clock()
    made = LocalIndex(path, 1 << 30, clock=clock, **options)
    async with trio.open_nursery() as nursery:
        manager = ResourceManager(nursery, cache_bytes=1 << 24, store=MetadataStore(None), index=made, clock=clock)
        await manager.add(handler.source, handler)
        yield Indexed(manager, made, handler)
        nursery.cancel_scope.cancel()
    await made.aclose()


async def test_a_read_resource_is_found(tmp_path: Path) -> None:
    async with indexed(tmp_path / "index.sqlite", {"a": "renew the certificate", "b": "renew"}) as docs:
        assert await docs.search("renew") == []
        await docs.read("docs://a")
        assert await docs.search("renew") == ["docs://a"]


async def test_what_was_learnt_stays_for_the_next_process(tmp_path: Path) -> None:
    async with indexed(tmp_path / "index.sqlite", {"a": "renew"}) as docs:
        await docs.read("docs://a")
    async with indexed(tmp_path / "index.sqlite", {"a": "renew"}) as docs:
        assert await docs.search("renew") == ["docs://a"]


async def test_what_another_process_indexes_is_found_by_the_next_search(tmp_path: Path) -> None:
    path, texts = tmp_path / "index.sqlite", {"a": "renew"}
    async with indexed(path, texts, index=None) as docs, indexed(path, texts, index=None) as other:
        search = docs.manager.searches.search
        assert (await search("renew")).problems == ("cannot be searched: docs (no search of their own, not indexed)",)
        await walk(other.manager, other.manager.tree.place(("mcp-server+docs",))[0], lambda _counts: None)
        answer = await search("renew")
        assert ([hit.native_uri for hit in answer.hits], answer.problems) == (["docs://a"], ())


async def test_an_announced_change_is_out_at_once_and_found_by_its_new_words(tmp_path: Path) -> None:
    async with indexed(tmp_path / "index.sqlite", {"a": "oldword", "b": "oldword"}) as docs:
        await docs.read("docs://a")
        await docs.read("docs://b")
        docs.handler.contents["docs://a"] = b"newword"
        docs.announce("docs://a")
        assert await docs.search("oldword") == ["docs://b"]  # before anything is written
        source = docs.manager.roots.named(docs.handler.source.id)
        found = await docs.index.candidates(source, plan("nothing", "fixed"), versions=True)
        assert found is not None
        assert found.uris == {"docs://a"}
        assert {*(found.versions or ())} == {"docs://a", "docs://b"}
        await docs.index.flush()
        assert await docs.search("oldword") == ["docs://b"]
        await docs.read("docs://a")
        assert await docs.search("newword") == ["docs://a"]
        assert await docs.search("oldword") == ["docs://b"]


async def test_a_change_announced_during_a_load_keeps_its_content_out(tmp_path: Path) -> None:
    async with indexed(tmp_path / "index.sqlite", {"a": "oldword"}) as docs:
        docs.handler.hold("docs://a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(docs.read, "docs://a")
            await trio.testing.wait_all_tasks_blocked()
            docs.announce("docs://a")
            docs.handler.release("docs://a")
        assert await docs.search("oldword") == []


async def test_a_resource_that_is_not_listed_any_more_is_removed(tmp_path: Path) -> None:
    async with indexed(tmp_path / "index.sqlite", {"a": "word", "b": "word"}) as docs:
        await docs.manager.by_uri.list_below(docs.handler.source.id)
        await docs.read("docs://a")
        await docs.read("docs://b")
        del docs.handler.contents["docs://a"]
        docs.manager.refresh((docs.handler.source.uri_prefix,))
        await docs.manager.by_uri.list_below(docs.handler.source.id)
        await trio.testing.wait_all_tasks_blocked()
        await docs.index.flush()
        assert await docs.search("word") == ["docs://b"]


async def test_content_that_is_no_text_any_more_is_removed(tmp_path: Path) -> None:
    async with indexed(tmp_path / "index.sqlite", {"a": "word"}) as docs:
        await docs.read("docs://a")
        docs.handler.contents["docs://a"] = b"word\0"
        docs.announce("docs://a")
        await docs.read("docs://a")
        assert await docs.search("word") == []
        source = docs.manager.roots.named(docs.handler.source.id)
        assert (await docs.index.indexed(source)).documents == {}


@pytest.mark.parametrize("index", [None, False])
async def test_a_source_without_the_option_is_not_learnt(tmp_path: Path, index: bool | None) -> None:
    path = tmp_path / "index.sqlite"
    async with indexed(path, {"a": "word"}, index=index) as docs:
        await docs.read("docs://a")
        assert not docs.index.covers(docs.handler.source.id)
    assert not path.exists()


async def test_a_flood_of_documents_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = {str(number): "word" for number in range(10)}
    async with indexed(tmp_path / "index.sqlite", texts, waiting=Waiting(most=3)) as docs:
        prefix = docs.handler.source.base_prefix
        await docs.manager.by_uri.load_many("direct", direct_uris=[f"{prefix}+docs://{number}" for number in range(10)])
        await docs.index.flush()
        assert len(await docs.search("word")) == 3
    assert [record.message for record in caplog.records] == [
        "documents come faster than they can be indexed: some are left out"
    ]


async def test_an_index_that_cannot_be_opened_costs_only_searches(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    path.mkdir()
    async with indexed(path, {"a": "word"}) as docs:
        loaded = await docs.manager.by_uri.load(f"{docs.handler.source.base_prefix}+docs://a")
        assert loaded.error is None


async def test_what_waits_for_another_process_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bbfs.resources.cache.sqlite.BUSY_TIMEOUT", 0.01)
    path = tmp_path / "index.sqlite"
    async with indexed(path, {"a": "oldword", "b": "other"}) as docs:
        await docs.read("docs://a")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        docs.announce("docs://a")
        with pytest.raises(Busy, match="another process"):
            await docs.read("docs://b")
        assert await docs.search("oldword") == []
        other.execute("ROLLBACK")
        other.close()
        await docs.index.flush()
        assert await docs.search("other") == ["docs://b"]
        assert await docs.search("oldword") == []


async def test_few_large_documents_are_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    write = IndexStore.write

    def counted(store: IndexStore, entries: Sequence[Entry], now: float) -> int:
        batches.append(len(entries))
        return write(store, entries, now)

    monkeypatch.setattr(IndexStore, "write", counted)
    texts = {name: f"words of {name}" for name in "abc"}
    async with indexed(tmp_path / "index.sqlite", texts, waiting=Waiting(batch_bytes=10)) as docs:
        for name in "abc":
            await docs.manager.by_uri.load(f"{docs.handler.source.base_prefix}+docs://{name}")
        await docs.index.flush()
        assert batches == [1, 1, 1]


class Reader(DocumentReader):
    """A reader that needs no worker process. asked: how often it has read."""

    asked = 0

    def __init__(self) -> None:
        super().__init__()
        self.has_read = trio.Event()
        self.meanwhile: Callable[[], object] = lambda: None

    async def text(self, content: Content, kind: str, *, owner: str, what: str) -> bytes:
        self.asked += 1
        data = content.read(0, content.size)
        assert data is not None
        self.meanwhile()
        self.has_read.set()
        return b"# Page\n\nwords of " + data


async def test_a_document_is_found_by_the_words_of_its_text(tmp_path: Path) -> None:
    reader = Reader()
    async with indexed(tmp_path / "index.sqlite", {"a.pdf": "one", "b": "words"}, documents=reader) as docs:
        source = docs.manager.roots.named(docs.handler.source.id)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(docs.index.run)
            await docs.read("docs://a.pdf")
            with trio.fail_after(20):
                await reader.has_read.wait()
                await docs.index.flush()
            nursery.cancel_scope.cancel()
        assert await docs.search("words of one") == ["docs://a.pdf"]
        found = await docs.index.candidates(source, plan("nothing", "fixed"), versions=True)
        assert found is not None
        assert not found.versions  # its bytes are not its text
        docs.handler.contents["docs://a.pdf"] = b"two"
        docs.announce("docs://a.pdf")
        assert await docs.search("one") == []
        reader.meanwhile = lambda: docs.announce("docs://a.pdf")
        await walk(docs.manager, source, lambda _: None)
        assert await docs.search("two") == []  # it changed while it was read
        reader.meanwhile = lambda: None
        walked = await walk(docs.manager, source, lambda _: None)
        assert (walked.loaded, walked.failed) == (2, 0)
        assert await docs.search("two") == ["docs://a.pdf"]
        await walk(docs.manager, source, lambda _: None)
        assert reader.asked == 3


async def test_without_the_extra_documents_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converter, "_is_installed", lambda _kind: False)
    reader = Reader()
    async with indexed(tmp_path / "index.sqlite", {"a.pdf": "%PDF\0"}, documents=reader) as docs:
        await docs.read("docs://a.pdf")
        assert (reader.asked, await docs.search("PDF")) == (0, [])
