"""Qdrant as a source of vectors, over REST: its client's local mode answers, or says something wrong."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from embedding_endpoint import config, endpoint
from qdrant_server import KEY, QdrantServer, qdrant_server
from vectors import DIMENSIONS, NOTES, found, loaded, vectors_of

from bbfs.model.errors import BbfsError, ConfigError, DeadlineExceeded, Denied, NotFound, NotSupported
from bbfs.model.values import DataSource, Policy
from bbfs.sources import Handler, Services
from bbfs.sources.factory import build
from bbfs.testing import SourceConformance

UUID = "5c56c793-69f3-4fbf-87e6-c4bf54c28c26"


@pytest.fixture(scope="module")
def server() -> Iterator[QdrantServer]:
    with qdrant_server() as running:
        two = {"size": 2, "distance": "Euclid"}
        points: list[dict[str, Any]] = [
            {"id": UUID, "vector": {"a": [1, 0], "b": [0, 1, 0]}, "payload": {"deep": {"page": 3}, "ok": True}},
            {"id": 5, "vector": {"a": [1, 1], "b": [1, 1, 0]}, "payload": {"deep": {"page": "3"}}},
        ]
        many = [{"id": number, "vector": [number, 1], "payload": {}} for number in range(2500)]
        running.control(
            create=[
                {"name": "na me", "vectors": {"a": two, "b": {"size": 3, "distance": "Dot"}}, "points": points},
                {"name": "many", "vectors": two, "points": many},
            ]
        )
        yield running


@pytest.fixture(autouse=True)
def _right(server: QdrantServer) -> Iterator[None]:
    yield
    server.control()


def source_of(server: QdrantServer, key: str = KEY, timeout: float = 10, **options: Any) -> DataSource:
    return DataSource(
        "v", "v", "vector_search", "bb", "bb-vector_search+v+qdrant", policy=Policy(timeout=timeout),
        config={"url": server.url, **options}, auth={"api_key": key},
    )  # fmt: skip


class TestQdrant(SourceConformance):
    known: ClassVar = {
        "qdrant://notes/info.json": (
            json.dumps(
                {"collection": "notes", "dimensions": DIMENSIONS, "metric": "cosine", "element": "float", "count": 4,
                 "texts": ["body"], "filters": None, "model": "words-32"}, indent=1,
            ) + "\n"
        ).encode(),
    }  # fmt: skip
    unknown: ClassVar = ("qdrant://nothing/info.json", "qdrant://notes/point/4.json", "qdrant://notes/point/07.json",
                         "qdrant://notes/point/x.json", "qdrant://notes/near/9/results.json")  # fmt: skip
    searched: ClassVar = ("expired", "qdrant://notes/point/1.json")

    @pytest.fixture(autouse=True)
    def _over(self, server: QdrantServer) -> Iterator[None]:
        with endpoint() as running:
            self.server, self.running = server, running
            yield

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        embeddings = config(self.running)
        async with vectors_of(
            source_of(self.server, collections=["notes"], text="body", embeddings=embeddings)
        ) as made:
            yield made


async def test_points_neighbours_and_filters_are_those_of_the_server(server: QdrantServer) -> None:
    with endpoint() as running:
        async with vectors_of(source_of(server, embeddings=config(running))) as made:
            names = [entry.name for entry in (await made.list_directory(())).resources]
            assert names == ["many", "na me.a", "na me.b", "notes"]
            listed = [entry.name for entry in (await made.list_directory(("notes", "point"))).resources]
            assert sorted(listed) == [f"{note[0]}.json" for note in NOTES]
            assert (await loaded(made, "notes/point/7.json"))["payload"] == {
                "topic": "kitchen", "year": 2026, "body": "coffee beans",
            }  # fmt: skip
            assert await found(made, "notes/search?text=expired&limit=1.json") == ["1"]
            assert await found(made, "notes/search?text=brew&year=2026&topic=kitchen.json") == ["7"]
            assert (await found(made, "notes/near/2/results.json"))[0] == "7"
            assert [hit.snippet for hit in await made.search("expired", 1)] == ["renew certificate"]
            with pytest.raises(NotSupported, match="its vectors have 2 dimensions"):
                await loaded(made, "many/search?text=x.json")


async def test_named_vectors_are_collections_and_ids_may_be_uuids(server: QdrantServer) -> None:
    async with vectors_of(source_of(server)) as made:
        point = await loaded(made, f"na%20me.b/point/{UUID}.json")
        assert (point["id"], point["vector"]) == (UUID, [0, 1, 0])
        matches = await loaded(made, f"na%20me.a/near/{UUID}/results.json")
        assert [(match["id"], match["score"]) for match in matches] == [("5", 0.5)]
        assert (await made.find(("na%20me.a", "point"), f"{UUID}.json")).name == f"{UUID}.json"


async def test_ids_come_in_pages_up_to_the_limit(server: QdrantServer) -> None:
    async with vectors_of(source_of(server, listed_points=2100)) as made:
        listing = await made.list_directory(("many", "point"))
        assert (len(listing.resources), listing.open) == (2100, True)
        assert "listed_points" in (listing.problem or "")


async def test_words_are_searched_for_in_the_field_of_the_option(server: QdrantServer) -> None:
    async with vectors_of(source_of(server, text="body")) as made:
        assert await found(made, "notes/search?text=coffee&year=2025.json") == ["2"]
    async with vectors_of(source_of(server)) as made:
        with pytest.raises(NotSupported, match=r"set \[embeddings\]"):
            await loaded(made, "notes/search?text=coffee.json")


def _collection(vectors: str) -> str:
    return '{"result": {"config": {"params": {"vectors": {' + vectors + "}}}}}"


WRONG: dict[str, tuple[str, str]] = {
    "no json": ("collections", "<html>"),
    "no result": ("collections", '{"status": "ok"}'),
    "no list": ("collections", '{"result": {"collections": 7}}'),
    "no names": ("collections", '{"result": {"collections": [{"name": 7}]}}'),
    "long name": ("collections", '{"result": {"collections": [{"name": "' + "x" * 2000 + '"}]}}'),
    "deep": ("collections", '{"result": ' + "[" * 10_000 + "]" * 10_000 + "}"),
    "lying size": ("collections/notes", _collection('"size": -1, "distance": "Dot"')),
    "huge size": ("collections/notes", _collection('"size": 1e9, "distance": "Dot"')),
    "odd distance": ("collections/notes", _collection('"size": 32, "distance": "X"')),
    "same page": ("scroll", '{"result": {"points": [{"id": 1}], "next_page_offset": 1}}'),
    "odd offset": ("scroll", '{"result": {"points": [], "next_page_offset": {}}}'),
    "odd ids": ("scroll", '{"result": {"points": [{"id": "../x"}], "next_page_offset": null}}'),
    "no vector": ("notes/points", '{"result": [{"id": 1, "vector": [1, 2], "payload": {}}]}'),
    "no numbers": ("notes/points", '{"result": [{"id": 1, "vector": ' + json.dumps(["x"] * 32) + "}]}"),
    "infinite": ("notes/points", '{"result": [{"id": 1, "vector": [' + ", ".join(["1e400"] * 32) + "]}]}"),
    "another point": ("notes/points", '{"result": [{"id": 2, "vector": null}]}'),
    "too many": ("query", '{"result": {"points": ' + json.dumps([{"id": n} for n in range(2000)]) + "}}"),
    "odd points": ("query", '{"result": {"points": [7]}}'),
}  # fmt: skip


@pytest.mark.semantics("S23", "S25", "S27")
@pytest.mark.parametrize("name", WRONG)
async def test_a_server_that_breaks_its_protocol_is_one_sentence(server: QdrantServer, name: str) -> None:
    part, answer = WRONG[name]
    async with vectors_of(source_of(server)) as made:
        assert await found(made, "notes/near/1/results.json")
        server.control(wrong={part: answer})
        refused = 0
        for path in ((), ("notes", "point")):
            try:
                await made.list_directory(path)
            except BbfsError as error:
                refused += 0 < len(str(error)) < 1000
        for uri in ("qdrant://notes/point/1.json", "qdrant://notes/near/1/results.json"):
            try:
                await made.load(uri)
            except BbfsError as error:
                refused += 0 < len(str(error)) < 1000
        server.control()
        if name == "infinite":
            return  # 1e400 is a number of JSON; the vector says Infinity
        assert refused
        assert await found(made, "notes/near/1/results.json")


@pytest.mark.semantics("S22", "S23", "S30")
async def test_a_wrong_key_a_silent_server_and_one_that_is_gone(server: QdrantServer) -> None:
    async with vectors_of(source_of(server, key="not it")) as made:
        with pytest.raises(Denied):
            await made.list_directory(())
    async with vectors_of(source_of(server, timeout=0.5)) as made:
        server.control(wrong={"collections": "hang"})
        with pytest.raises(DeadlineExceeded):
            await made.list_directory(())
    with pytest.raises(ConfigError, match=r"auth\.api_key"):
        build(source_of(server, url="http://user:secret@localhost:6333"), Services())
    async with vectors_of(source_of(server, url="http://qdrant.example")) as made:
        with pytest.raises(BbfsError):
            await made.list_directory(())
    async with vectors_of(source_of(server)) as made:
        server.control()
        with pytest.raises(NotFound):
            await made.load("qdrant://nothing.x/info.json")
