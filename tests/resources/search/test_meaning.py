"""The vectors of the local index: what they find, when they are made again, and what a bad model costs."""

import fcntl
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from embedding_endpoint import Endpoint, config, endpoint, vectors_of
from fakes import Clock, FlatSource
from vectors import packed, static_model

from bbfs.config.values import Config
from bbfs.model.errors import BbfsError, DeadlineExceeded, NotSupported, ProtocolViolation, Unreachable
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.manager import ResourceManager
from bbfs.resources.open import compose
from bbfs.resources.search.engine import Way
from bbfs.resources.search.index import meaning, vectors
from bbfs.resources.search.index.entries import Document, Remove
from bbfs.resources.search.index.local import LocalIndex
from bbfs.resources.search.index.store import IndexStore
from bbfs.sources.embeddings.embedder import Embedder

BOUND = 60.0
TEXTS = {"tls": "renew certificate", "cup": "brew coffee", "code": "source handler catalog"}


class Model:
    """An embedder with the vectors of the tests' model. error: raised instead. asked: the texts of each request."""

    costs = False

    def __init__(self, name: str = "words", dimensions: int = 32) -> None:
        self.name = name
        self.dimensions: int | None = dimensions
        self.asked: list[Sequence[str]] = []
        self.error: BbfsError | None = None
        self.failed = trio.Event()

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        await trio.lowlevel.checkpoint()
        self.asked.append(texts)
        if self.error is not None:
            self.failed.set()
            raise self.error
        return [packed(*vector[: self.dimensions]) for vector in vectors_of([*texts])]

    async def aclose(self) -> None:
        pass


class Meant:
    """A manager of one source whose texts are indexed, with what makes vectors."""

    def __init__(self, manager: ResourceManager, index: LocalIndex, handler: FlatSource) -> None:
        self.manager = manager
        self.index = index
        self.handler = handler

    async def found(self, query: str, mode: Way = "meaning") -> list[str]:
        found = (await self.index.search(query, 10, sources=[self.handler.source.id], mode=mode)).hits
        return [hit.native_uri.removeprefix("docs://") for _, hit in found]

    async def read(self, *names: str) -> None:
        for name in names:
            await self.manager.by_uri.load(f"{self.handler.source.base_prefix}+docs://{name}")
        await self.index.flush()


@asynccontextmanager
async def meant(path: Path, embedder: Embedder | None, *, runs: bool = False, **options: Any) -> AsyncIterator[Meant]:
    """runs: as in a daemon; else a test says when vectors are made. Everything is read."""
    handler = FlatSource(contents={f"docs://{name}": text.encode() for name, text in TEXTS.items()})
    handler.source = replace(handler.source, index=True)
    clock = Clock()
    made = LocalIndex(path, 1 << 30, clock=clock, embedder=embedder, **options)
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            manager = ResourceManager(nursery, cache_bytes=1 << 24, store=MetadataStore(None), index=made, clock=clock)
            await manager.add(handler.source, handler)
            if runs:
                await manager.start()
            docs = Meant(manager, made, handler)
            await docs.read(*TEXTS)
            yield docs
            nursery.cancel_scope.cancel()
        await made.aclose()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.sqlite"


@pytest.fixture
def running() -> Iterator[Endpoint]:
    with endpoint() as started:
        yield started


@pytest.mark.semantics("S36.3")
async def test_a_model_in_a_folder_finds_what_has_none_of_the_words(path: Path, tmp_path: Path) -> None:
    embedder = compose(Config(embeddings={"folder": str(static_model(tmp_path / "m"))})).embedder
    assert embedder is not None
    async with meant(path, embedder, runs=True) as docs:
        await docs.index.embed()
        assert await docs.found("expired", "words") == []
        answer = await docs.manager.searches.search("expired")
        assert answer.hits[0].native_uri == "docs://tls"
        assert answer.hits[0].snippet == "renew certificate"
        both = await docs.manager.searches.search("coffee beans")
        assert both.hits[0].native_uri == "docs://cup"
        assert both.hits[0].score > 1 / 61  # the sum of two ranks
        assert both.problems == ()
    await embedder.aclose()


async def test_without_a_model_the_index_finds_words_and_says_so(path: Path) -> None:
    async with meant(path, None) as docs:
        answer = await docs.manager.searches.search("coffee", mode="meaning")
        assert answer.hits == ()
        assert answer.problems == (f"the index, by meaning: {meaning.WITHOUT_MODEL}",)
        assert [hit.native_uri for hit in (await docs.manager.searches.search("coffee")).hits] == ["docs://cup"]


async def test_no_extension_is_said(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(vectors, "extended", lambda _db: False)
    async with meant(path, Model()) as docs:
        await docs.index.embed()
        answer = await docs.manager.searches.search("coffee", mode="meaning")
        assert "needs the extra 'vector'" in answer.problems[0]
        assert await docs.found("coffee", "words") == ["cup"]
    assert "needs the extra 'vector'" in caplog.text


@pytest.mark.semantics("S37.2")
async def test_an_announced_change_is_out_at_once_and_found_by_its_new_meaning(path: Path) -> None:
    async with meant(path, Model()) as docs:
        await docs.manager.by_uri.list_below(docs.handler.source.id)
        await docs.index.embed()
        assert (await docs.found("expired"))[0] == "tls"
        docs.handler.contents["docs://tls"] = b"brew beans"
        docs.handler.announce("docs://tls")
        assert "tls" not in await docs.found("expired")  # before anything is written
        await docs.index.flush()
        assert "tls" not in await docs.found("expired")
        await docs.read("tls")
        await docs.index.embed()
        assert {*(await docs.found("coffee"))[:2]} == {"tls", "cup"}
        del docs.handler.contents["docs://cup"]
        docs.manager.refresh((docs.handler.source.uri_prefix,))
        await docs.manager.by_uri.list_below(docs.handler.source.id)
        await trio.testing.wait_all_tasks_blocked()
        await docs.index.flush()
        assert (await docs.found("coffee"))[0] == "tls"
        assert "cup" not in await docs.found("coffee")


async def test_vectors_are_made_once_and_only_for_what_is_new(path: Path) -> None:
    async with meant(path, Model()) as docs:
        await docs.index.embed()
        await docs.index.embed()
    model = Model()
    async with meant(path, model) as docs:
        docs.handler.contents["docs://new"] = b"beans"
        await docs.read("new")
        await docs.index.embed()
        assert model.asked == [["new\nbeans"]]
        assert {*(await docs.found("beans"))[:2]} == {"new", "cup"}


@pytest.mark.parametrize("model", [Model("another"), Model(dimensions=16)], ids=["name", "dimensions"])
async def test_another_model_replaces_the_vectors_and_nothing_else(path: Path, model: Model) -> None:
    async with meant(path, Model()) as docs:
        await docs.index.embed()
    async with meant(path, model) as docs:
        assert await docs.found("coffee", "words") == ["cup"]
        with pytest.raises(Unreachable, match=r"no vectors of the model '(another|words)' yet"):
            await docs.found("coffee")
        docs.handler.contents["docs://new"] = b"beans"
        await docs.read("new")
        await docs.index.embed()
        assert {*(await docs.found("brew"))[:2]} == {"cup", "new"}


async def test_only_one_process_makes_vectors_at_a_time(path: Path) -> None:
    model = Model()
    async with meant(path, model) as docs:
        with path.with_suffix(".lock").open("w") as lock:
            path.with_suffix(".lock").chmod(0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            await docs.index.embed()
            assert model.asked == []
        await docs.index.embed()
        assert (await docs.found("expired"))[0] == "tls"


async def test_two_processes_with_two_models_do_not_go_on_for_ever(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with meant(path, Model("one")) as first:
        await first.index.embed()
        second = LocalIndex(path, 1 << 30, clock=Clock(), embedder=Model("two"))
        await second.embed()
        first.handler.contents["docs://new"] = b"beans"
        await first.read("new")
        await first.index.embed()
        await second.embed()
        answer = await first.manager.searches.search("coffee", mode="meaning")
        assert "another process has taken it over with vectors of the model 'two'" in answer.problems[0]
        await second.aclose()
    assert "the model 'two'" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((200, {"data": [{"index": 0, "embedding": [1.0]}]}), "no list of 3 vectors"),
        ((200, b"{"), "."),
        ((404, {"error": "no such model"}), "refuses the model"),
    ],
    ids=["dimensions", "garbage", "model"],
)
async def test_an_endpoint_that_answers_wrong_costs_only_the_meaning(
    path: Path, running: Endpoint, wrong: tuple[int, object], message: str
) -> None:
    embedder = compose(Config(embeddings=config(running, dimensions=32))).embedder
    assert embedder is not None
    running.wrong = lambda _request: wrong
    async with meant(path, embedder) as docs:
        with pytest.raises((NotSupported, ProtocolViolation), match=message):
            await docs.index.embed()
        answer = await docs.manager.searches.search("coffee")
        assert [hit.native_uri for hit in answer.hits] == ["docs://cup"]
        assert [problem.partition(": ")[0] for problem in answer.problems] == ["the index, by meaning"]
        running.wrong = None
        await docs.index.embed()
        assert (await docs.found("expired"))[0] == "tls"
    await embedder.aclose()


async def test_an_endpoint_that_is_slow_costs_only_the_meaning(path: Path, running: Endpoint) -> None:
    embedder = compose(Config(embeddings=config(running))).embedder
    assert embedder is not None
    async with meant(path, embedder) as docs:
        await docs.index.embed()
        running.hang.clear()
        answer = await docs.manager.searches.search("brew coffee", within=2)
        assert [hit.native_uri for hit in answer.hits] == ["docs://cup"]
        assert answer.problems == ("the index, by meaning: no answer within 2 s",)
        running.hang.set()
    await embedder.aclose()


async def test_what_could_not_be_made_is_made_later(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = Model()
    model.error = Unreachable("it is down")
    async with meant(path, model, runs=True, again_after=0.01) as docs:
        await model.failed.wait()
        assert await docs.found("coffee", "words") == ["cup"]
        model.error = None
        while not (answer := await docs.manager.searches.search("expired", mode="meaning")).hits:
            assert answer.problems == ("the index, by meaning: it has no vectors of the model 'words' yet",)
            await trio.sleep(0.01)
        assert answer.hits[0].native_uri == "docs://tls"
    assert "no vectors for the index: it is down; the next attempt is in 0.01 s" in caplog.text


async def test_damaged_vectors_are_made_again(path: Path) -> None:
    async with meant(path, Model()) as docs:
        await docs.index.embed()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE near_vector_chunks00 SET vectors = x'00'")
    connection.close()
    async with meant(path, Model()) as docs:
        answer = await docs.manager.searches.search("coffee")
        assert [hit.native_uri for hit in answer.hits] == ["docs://cup"]
        assert "its vectors are made again" in answer.problems[0]
        await docs.index.embed()
        assert (await docs.found("expired"))[0] == "tls"


def filled(path: Path, count: int) -> IndexStore:
    """An index of documents of two sources, each with the vector of its number, in three dimensions."""
    opened = IndexStore(path, 1 << 30)
    opened.write([Document(f"s{n % 2}", f"u{n}", "v", None, "", "a.md", f"text {n}") for n in range(count)], 1.0)
    put(opened)
    return opened


def put(opened: IndexStore) -> None:
    while (chunks := opened.pending("m", 7)).texts:
        made = [packed(1.0, int(text.split()[1]) / 10, 0.0) for text in chunks.texts.values()]
        assert opened.put_vectors("m", chunks, made, first=True) is None


def near(opened: IndexStore, number: float, *sources: str, limit: int = 3) -> list[str] | None:
    found = opened.nearest("m", packed(1.0, number / 10, 0.0), "text", limit, sources or ("s0", "s1"), 30.0)
    return None if found is None else [hit.native_uri for _, hit in found]


def test_the_nearest_come_first_in_the_given_sources(path: Path) -> None:
    opened = filled(path, 20)
    assert near(opened, 6.1) == ["u6", "u7", "u5"]
    assert near(opened, 6.1, "s1") == ["u7", "u5", "u9"]
    assert near(opened, 6.1, "s2") == []
    ((source, hit), *_) = opened.nearest("m", packed(1.0, 0.6, 0.0), "6", 1, ("s0",), 30.0) or []
    assert (source, hit.title, hit.snippet, hit.where) == ("s0", None, "text 6", "line 1")
    assert opened.nearest("m", packed(0.0, 0.0, 0.0), "", 3, ("s0",), 30.0) == []
    assert opened.nearest("m", packed(1.0, 0.0), "", 3, ("s0",), 30.0) is None
    assert opened.nearest("other", packed(1.0, 0.0, 0.0), "", 3, ("s0",), 30.0) is None
    opened.close()


def test_vectors_of_what_is_gone_meanwhile_or_was_made_twice_are_left_out(path: Path) -> None:
    opened = IndexStore(path, 1 << 30)
    opened.write([Document("s0", f"u{n}", "v", None, "", "a.md", f"text {n}") for n in range(2)], 1.0)
    chunks = opened.pending("m", 10)
    opened.write([Remove("s0", "u0")], 1.0)
    made = [packed(1.0, 0.0, 0.0), packed(1.0, 0.1, 0.0)]
    for _ in range(2):  # as two processes would
        opened.put_vectors("m", chunks, made, first=True)
    assert near(opened, 0) == ["u1"]
    assert opened.pending("m", 10).texts == {}
    opened.close()


def test_a_cleared_source_leaves_no_vector_and_the_others_are_found(path: Path) -> None:
    opened = filled(path, 2500)  # sqlite-vec has a thousand in one row
    opened.clear("s0")
    opened.shrink()
    assert near(opened, 6.1) == ["u7", "u5", "u9"]
    put(opened)
    opened.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM vector").fetchone() == (1250,)
        assert connection.execute("SELECT count(*) FROM near_rowids").fetchone() == (1250,)
    connection.close()


def test_a_source_cleared_without_the_extension_leaves_no_vector(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path, 20).close()
    with monkeypatch.context() as patched:
        patched.setattr(vectors, "extended", lambda _db: False)
        opened = IndexStore(path, 1 << 30)
        opened.clear("s0")
        opened.shrink()
        opened.close()
    with sqlite3.connect(path) as connection:
        for table in ("vector", "near_rowids", "near_vector_chunks00"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    connection.close()
    opened = IndexStore(path, 1 << 30)
    assert near(opened, 6.1) is None
    put(opened)
    assert near(opened, 6.1) == ["u7", "u5", "u9"]
    opened.close()


@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_a_damaged_file_with_vectors_is_set_aside(path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    filled(path, 2000).close()
    data = path.read_bytes()
    half = len(data) // 2 // 4096 * 4096
    path.write_bytes(data[:half] + (b"" if damage == "cut" else b"\x5a" * (len(data) - half)))
    opened = IndexStore(path, 1 << 30)
    for _ in range(2):
        opened.write([Document("s0", f"u{n}", "w", None, "", "a.md", f"text {n}") for n in range(2000)], 1.0)
    put(opened)
    assert near(opened, 6.1, limit=1) == ["u6"]
    opened.close()


def test_a_full_index_gets_no_vectors(path: Path) -> None:
    opened = filled(path, 5)
    opened.close()
    full = IndexStore(path, 1)
    assert full.pending("another", 5).texts == {}
    full.close()


class SlowModel(Model):
    """A model that needs two minutes, as one in a folder may on a busy machine."""

    def __init__(self, *, costs: bool) -> None:
        super().__init__()
        self.costs = costs

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        await trio.sleep(120)
        return await super().embed(texts)


@pytest.mark.parametrize(("costs", "made"), [(False, 1), (True, 0)])
async def test_a_model_in_a_folder_has_more_time_than_an_endpoint(
    tmp_path: Path, autojump_clock: trio.abc.Clock, costs: bool, made: int
) -> None:
    store = IndexStore(tmp_path / "index.sqlite", 1 << 30)
    store.write([Document("one", "a", "1", None, "", "a.txt", "coffee")], 1.0)

    async def now(work: Callable[[], meaning.T]) -> meaning.T:
        return work()

    vectors = meaning.Meaning(tmp_path / "index.sqlite", SlowModel(costs=costs), now, now, print)
    with suppress(DeadlineExceeded):
        await vectors.make(store, lambda: False)
    assert len(store.nearest("words", packed(*vectors_of(["coffee"])[0]), "coffee", 5, ("one",), 30.0) or ()) == made
    store.close()
