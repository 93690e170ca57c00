"""The conformance suite over sources of vectors."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from vectors import DIMENSIONS, NOTES, embedded, notes_file, static_model

from bbfs.model.values import DataSource
from bbfs.sources import Handler, Services
from bbfs.sources.vector_search.handler import VectorSearchHandler
from bbfs.sources.vector_search.stored import floats_json
from bbfs.testing import SourceConformance


def point(key: int, body: str, topic: str, year: int) -> bytes:
    head = f'{{"id": {key},\n "payload": {{"topic": "{topic}",\n  "year": {year},\n  "body": "{body}"}},\n "vector": '
    return f"{head}{floats_json(embedded(body))}}}\n".encode()


INFO = {
    "collection": "notes", "dimensions": DIMENSIONS, "metric": "cosine", "element": "float", "count": 4,
    "texts": ["topic", "body"], "filters": ["topic", "year", "body"], "model": None,
}  # fmt: skip


def source_of(url: str, **config: object) -> DataSource:
    return DataSource(
        "v", "v", "vector_search", "bb", f"bb-vector_search+v+{url.partition(':')[0]}", config={"url": url, **config}
    )


class TestSqlite(SourceConformance):
    known: ClassVar = {
        **{f"sqlite://notes/point/{note[0]}.json": point(*note) for note in NOTES},
        "sqlite://notes/info.json": (json.dumps(INFO, indent=1) + "\n").encode(),
    }
    unknown: ClassVar = (
        "sqlite://nothing/info.json",
        "sqlite://notes/point/4.json",
        "sqlite://notes/point/01.json",
        "sqlite://notes/point/1",
        "sqlite://notes/point/x.json",
        "sqlite://notes/near/9/results.json",
        "sqlite://notes_rowids/info.json",
        "file:./notes",
    )
    searched: ClassVar = ("renew the certificate", "sqlite://notes/point/1.json")

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        async with aclosing(VectorSearchHandler(source_of(notes_file(directory / "v.db")), Services())) as made:
            yield made


class _ByMeaning(TestSqlite):
    """With a static model: words that no note has find what means the same."""

    searched: ClassVar = ("expired", "sqlite://notes/point/1.json")

    def __init__(self, model: Path) -> None:
        self._model = model

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        url = notes_file(directory / "v.db")
        made = VectorSearchHandler(source_of(url, embeddings={"folder": str(self._model)}), Services())
        try:
            await made.search("x", 1)  # the model is loaded at its first use
            yield made
        finally:
            await made.aclose()


@pytest.mark.parametrize(
    "test", [_ByMeaning.test_a_search_ranks_resources_that_load, _ByMeaning.test_nothing_in_a_query_is_syntax]
)
async def test_a_search_by_meaning(tmp_path: Path, test: Callable[[_ByMeaning, Path], Awaitable[None]]) -> None:
    """Only searches ask the model, which takes half a second to load."""
    await test(_ByMeaning(static_model(tmp_path / "words")), tmp_path)
