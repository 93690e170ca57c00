"""Full-text search of rows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from test_conformance_database import make_sqlite

from bbfs.model.errors import NotSupported
from bbfs.model.values import DataSource
from bbfs.sources import Services
from bbfs.sources.database.handler import DatabaseHandler


@asynccontextmanager
async def database(directory: Path, *statements: str, **options: Any) -> AsyncIterator[DatabaseHandler]:
    config = {"url": make_sqlite(directory / "a.db", statements), **options}
    handler = DatabaseHandler(DataSource("db", "db", "database", "bb", "bb-database+db", config=config), Services())
    try:
        yield handler
    finally:
        await handler.aclose()


def indexed(table: str, key: str, texts: dict[str, str], row_id: str = "rowid") -> tuple[str, ...]:
    rows = ", ".join(f"('{each}', '{text}')" for each, text in texts.items())
    return (
        f'CREATE TABLE "{table}" ({key} PRIMARY KEY, body text)',
        f'INSERT INTO "{table}" VALUES {rows}',
        f'CREATE VIRTUAL TABLE "{table} index" USING fts5(body, content="{table}", content_rowid={row_id})',
        f"""INSERT INTO "{table} index" ("{table} index") VALUES ('rebuild')""",
    )


async def test_rows_are_found_by_keys_of_any_type(tmp_path: Path) -> None:
    texts = indexed("odd name", "id text", {"a/b": "alpha beta", "c": "alpha"})
    async with database(tmp_path, *texts, *indexed("n", "id integer", {"7": "alpha gamma"}, "id")) as handler:
        hits = {hit.native_uri: hit.snippet for hit in await handler.search("alpha", 10)}
        assert hits == {
            "sqlite://main/odd%20name/row/a%2Fb.json": "alpha beta",
            "sqlite://main/odd%20name/row/c.json": "alpha",
            "sqlite://main/n/row/7.json": "alpha gamma",
        }
        (best, *_) = await handler.search("gamma beta", 10)
        assert best.native_uri in hits, "with no row that has all words, those with any of them"
        assert len(await handler.search("alpha", 2)) == 2


async def test_only_tables_that_are_shown_are_searched(tmp_path: Path) -> None:
    async with database(tmp_path, *indexed("t", "id", {"1": "alpha"}), schemas=["temp"]) as handler:
        with pytest.raises(NotSupported):
            await handler.search("alpha", 10)


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE t (id integer PRIMARY KEY, body text)",),
        ("CREATE VIRTUAL TABLE t USING fts5(body)",),
        ("CREATE VIRTUAL TABLE t USING fts5(body, content='')",),
        ("CREATE VIRTUAL TABLE t USING fts5vocab('missing', 'row')",),
    ],
    ids=["no index", "content of its own", "no content", "another module"],
)
async def test_a_file_without_such_an_index_says_so(tmp_path: Path, statements: tuple[str, ...]) -> None:
    async with database(tmp_path, *statements) as handler:
        with pytest.raises(NotSupported, match="FTS5"):
            await handler.search("alpha", 10)


async def test_a_table_without_a_key_has_no_rows_to_find(tmp_path: Path) -> None:
    statements = (
        "CREATE TABLE t (body text)",
        "INSERT INTO t VALUES ('alpha')",
        "CREATE VIRTUAL TABLE f USING fts5(body, content='t')",
        "INSERT INTO f (f) VALUES ('rebuild')",
    )
    async with database(tmp_path, *statements) as handler:
        assert await handler.search("alpha", 10) == []
