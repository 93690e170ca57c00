"""Full-text search of rows."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from databases import handler, source_of, sqlite_file
from test_conformance_database import make_sqlite

from bbfs.model.errors import BbfsError, ConfigError, NotSupported
from bbfs.model.values import DataSource
from bbfs.sources import Services
from bbfs.sources.database.handler import DatabaseHandler
from bbfs.sources.factory import build


@asynccontextmanager
async def database(directory: Path, *statements: str, **options: Any) -> AsyncIterator[DatabaseHandler]:
    config = {"url": make_sqlite(directory / "a.db", statements), **options}
    async with aclosing(
        DatabaseHandler(DataSource("db", "db", "database", "bb", "bb-database+db", config=config), Services())
    ) as handler:
        yield handler


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


SCANNED = """
CREATE TABLE notes (id integer PRIMARY KEY, title varchar(99), body varchar(999));
INSERT INTO notes VALUES (1, 'Proxy', 'The CERTIFICATE ends in May.'), (2, 'renew', 'the certificate');
INSERT INTO notes VALUES (3, 'x_y', '50%'), (4, 'xzy', NULL);
CREATE TABLE other (id varchar(9) PRIMARY KEY, name varchar(99), size integer);
INSERT INTO other VALUES ('a/b', 'a certificate', 12345);
CREATE TABLE keyless (name varchar(99));
INSERT INTO keyless VALUES ('certificate');
"""


async def finds(made: DatabaseHandler, query: str, limit: int = 10) -> list[str]:
    hits = await made.search(query, limit)
    return [hit.native_uri.partition("://")[2].partition("/")[2] for hit in hits]


async def test_only_a_database_with_an_index_says_that_it_searches(tmp_path: Path) -> None:
    path = sqlite_file(tmp_path / "a.db", "CREATE TABLE note (id INTEGER PRIMARY KEY, body TEXT);")
    async with handler(source_of(path)) as made:
        assert made.searches is None
        await made.list_directory(())
        assert made.searches is None  # one may be made any time: only a search tells
        with closing(sqlite3.connect(tmp_path / "a.db")) as db, db:
            db.execute("CREATE VIRTUAL TABLE words USING fts5(body, content = 'note', content_rowid = 'id')")
        await made.list_directory(())
        assert made.searches


async def check_scan(url: str, **config: Any) -> None:
    """Check a scan of a database with the tables of `SCANNED`."""
    async with handler(source_of(url, search="scan", **config)) as made:
        assert made.searches
        assert await finds(made, "renew the certificate") == [
            "notes/row/2.json",
            "notes/row/1.json",
            "other/row/a%2Fb.json",
        ]
        assert await finds(made, "certificate", 1) == ["notes/row/1.json"]
        assert [hit.snippet for hit in await made.search("CERTIFICATE may", 1)] == [
            "Proxy The CERTIFICATE ends in May."
        ]
        assert await finds(made, "x_y") == ["notes/row/3.json"], "an underscore is no pattern"
        assert await finds(made, "12345") == await finds(made, "%") == []
    async with handler(source_of(url, search=["other.size", "notes.title"], **config)) as made:
        assert await finds(made, "certificate") == []
        assert sorted(await finds(made, "renew 234")) == ["notes/row/2.json", "other/row/a%2Fb.json"]
    async with handler(source_of(url, search=["notes.title", "notes.body", "notes.*"], **config)) as made:
        assert await finds(made, "proxy certificate") == ["notes/row/1.json", "notes/row/2.json"]
    for column in ("notes.none", "none.*", "keyless.name", "none.notes.title"):
        async with handler(source_of(url, search=[column], **config)) as made:
            with pytest.raises(BbfsError, match="is no column of a table") as caught:
                await made.search("certificate", 10)
            assert not isinstance(caught.value, NotSupported), "a wrong option is told"
    async with handler(source_of(url, search="scan", row_limit=1, **config)) as made:
        assert not {"notes/row/1.json"} & {*await finds(made, "certificate")}, "a large table is not scanned"


async def test_columns_are_scanned_in_sqlite(tmp_path: Path) -> None:
    await check_scan(sqlite_file(tmp_path / "a.db", SCANNED))


async def test_columns_are_scanned_in_duckdb(tmp_path: Path) -> None:
    with closing(duckdb.connect(str(tmp_path / "a.duckdb"))) as connection:
        connection.execute(SCANNED)
    await check_scan(f"duckdb:///{tmp_path}/a.duckdb")


async def test_rows_of_an_index_come_before_those_of_a_scan(tmp_path: Path) -> None:
    async with database(tmp_path, *indexed("t", "id text", {"1": "alpha"}), search=["t.id", "t.body"]) as made:
        assert [hit.native_uri for hit in await made.search("alpha", 10)] == ["sqlite://main/t/row/1.json"]
        assert [hit.native_uri for hit in await made.search("lph", 10)] == ["sqlite://main/t/row/1.json"]


@pytest.mark.parametrize("option", ["all", ["notes"], ["a.b.c.d"], [""], 1])
async def test_an_option_that_names_no_column_is_refused(option: Any) -> None:
    with pytest.raises(ConfigError, match="search"):
        build(source_of("sqlite:////a.db", search=option), Services())


async def test_odd_values_of_a_stranger_are_scanned(tmp_path: Path) -> None:
    script = """
        CREATE TABLE t (id text PRIMARY KEY, body text);
        INSERT INTO t VALUES ('blob', x'00ff'), ('invalid', 'alpha ' || CAST(x'ff' AS text)), ('null', NULL);
        INSERT INTO t VALUES ('zero', 'alpha' || char(0) || 'beta'), ('number', 7), (x'ff', 'alpha'), (NULL, 'alpha');
        INSERT INTO t VALUES ('only a blob', CAST('alpha' AS blob));
    """
    async with handler(source_of(sqlite_file(tmp_path / "a.db", script), search=["t.body"])) as made:
        found = await finds(made, "alpha")
        assert {"t/row/invalid.json", "t/row/zero.json", "t/row/~xff.json", "t/row/only%20a%20blob.json"} <= {*found}
        for hit in await made.search("alpha", 10):
            await made.load(hit.native_uri)
