"""The conformance suite over databases: SQLite, PostgreSQL, and one that only SQLAlchemy knows."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import ClassVar

import pytest
from postgres_server import PASSWORD, PostgresServer

from bbfs.model.values import Capabilities, DataSource
from bbfs.sources import Handler, Services
from bbfs.sources.database import handler, servers
from bbfs.sources.database.backend import Access
from bbfs.sources.database.handler import DatabaseHandler
from bbfs.testing import SourceConformance

STATEMENTS = (
    "CREATE TABLE users (id integer PRIMARY KEY, name text NOT NULL, city text)",
    "CREATE INDEX users_city ON users (city)",
    "INSERT INTO users VALUES (1, 'Ann', 'Berlin'), (2, 'B, \"ob\"', NULL), (7, '', 'São/Paulo')",
    'CREATE TABLE "odd ../name" ("k,1" text, k2 integer, PRIMARY KEY ("k,1", k2))',
    "INSERT INTO \"odd ../name\" VALUES ('a,b~', 1), ('.', 2), ('x y?#%41', 3)",
    "CREATE VIEW names AS SELECT name FROM users WHERE id < 3",
    "CREATE TABLE void (x integer)",
)
FTS5 = (
    "CREATE TABLE notes (id integer PRIMARY KEY, title text, body text)",
    "INSERT INTO notes VALUES (1, 'Coffee', 'The machine is on floor two.'), (2, 'TLS', 'Renew the certificate.')",
    "CREATE VIRTUAL TABLE notes_text USING fts5(title, body, content='notes', content_rowid='id')",
    "INSERT INTO notes_text (notes_text) VALUES ('rebuild')",
)
TSVECTOR = (
    *FTS5[:2],
    "ALTER TABLE notes ADD words tsvector GENERATED ALWAYS AS (to_tsvector('english', title || ' ' || body)) STORED",
)
QUERIES = {
    "all": "SELECT id FROM users ORDER BY id",
    "from": {"sql": "SELECT id FROM users WHERE id >= :id ORDER BY id", "parameters": {"id": "integer"}},
}


def known_of(scheme: str, schema: str) -> dict[str, bytes]:
    root, odd = f"{scheme}://{schema}", f"{scheme}://{schema}/odd%20..%2Fname"
    return {
        f"{root}/users/rows.csv": b'id,name,city\n1,Ann,Berlin\n2,"B, ""ob""",\n7,"",S\xc3\xa3o/Paulo\n',
        f"{root}/users/rows.ndjson": b'{"id":1,"name":"Ann","city":"Berlin"}\n'
        b'{"id":2,"name":"B, \\"ob\\"","city":null}\n'
        b'{"id":7,"name":"","city":"S\xc3\xa3o/Paulo"}\n',
        f"{root}/users/count": b"3\n",
        f"{root}/users/row/7.json": b'{"id":7,\n "name":"",\n "city":"S\xc3\xa3o/Paulo"}\n',
        f"{root}/names/rows.csv": b'name\nAnn\n"B, ""ob"""\n',
        f"{root}/void/rows.csv": b"x\n",
        f"{root}/void/rows.ndjson": b"",
        f"{odd}/row/a~,b~~,1.json": b'{"k,1":"a,b~",\n "k2":1}\n',
        f"{odd}/row/.,2.json": b'{"k,1":".",\n "k2":2}\n',
        f"{odd}/row/x%20y%3F%23%2541,3.json": b'{"k,1":"x y?#%41",\n "k2":3}\n',
        f"{scheme}://query/all.csv": b"id\n1\n2\n7\n",
        f"{scheme}://query/from.sql": b"-- :id integer\nSELECT id FROM users WHERE id >= :id ORDER BY id;\n",
    }


def listed_of(scheme: str, schema: str) -> dict[str, bytes]:
    """Return the known files that a listing has where the rows of a view have no estimate."""
    return {uri: content for uri, content in known_of(scheme, schema).items() if "/names/" not in uri}


def unknown_of(scheme: str, schema: str) -> tuple[str, ...]:
    root = f"{scheme}://{schema}"
    return (
        f"{scheme}://nothing/users/rows.csv",
        f"{root}/nobody/rows.csv",
        f"{root}/users/rows.xml",
        f"{root}/users/rows.csv/below",
        f"{root}/users/row/8.json",
        f"{root}/users/row/07.json",
        f"{root}/users/row/1",
        f"{root}/users/row/.json",
        f"{root}/users/row/~null.json",
        f"{root}/users/by/city/Berlin/2.json",
        f"{root}/users/by/name/Ann/1.json",
        f"{root}/void/row/1.json",
        f"{scheme}://query/none.csv",
        f"{scheme}://query/all.xml",
        "file:./users",
    )


ROWS = (
    b'{"id":8,\n "name":"Zo\xc3\xab",\n "city":null}\n',
    b'{"id":8,\n "name":"",\n "city":""}\n',
    b'{"id":8,\n "name":"' + b"long " * 9000 + b'",\n "city":"Rome"}\n',
)
"""Contents of a row."""


def source_of(url: str, scheme: str, **auth: str) -> DataSource:
    config = {"url": url, "queries": QUERIES}
    may = Capabilities(write=True)
    return DataSource(
        "db", "db", "database", "bb", f"bb-database+db+{scheme}", capabilities=may, config=config, auth=auth
    )


def make_sqlite(path: Path, statements: Sequence[str]) -> str:
    """A file with these statements run; the URL of it."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return f"sqlite:///{path}"


class TestSqlite(SourceConformance):
    known: ClassVar = listed_of("sqlite", "main")
    unknown: ClassVar = (*unknown_of("sqlite", "main"), "sqlite://main/sqlite_master/rows.csv")
    searched: ClassVar = ("renew certificate", "sqlite://main/notes/row/2.json")
    written: ClassVar = ("sqlite://main/users/row/8.json", "sqlite://main/users/row/9.json")
    contents: ClassVar = ROWS

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        async with aclosing(
            DatabaseHandler(source_of(make_sqlite(directory / "a b%20.db", (*STATEMENTS, *FTS5)), "sqlite"), Services())
        ) as made:
            yield made


class TestPostgres(SourceConformance):
    known: ClassVar = known_of("postgres", "public")
    unknown: ClassVar = (
        *unknown_of("postgres", "public"),
        "postgres://pg_catalog/pg_class/rows.csv",
        "postgres://public/users/row/%00.json",
        "postgres://public/users/row/%FF.json",
        "postgres://public/users/row/99999999999999999999.json",
    )
    searched: ClassVar = ("renewing certificates", "postgres://public/notes/row/2.json")
    written: ClassVar = ("postgres://public/users/row/8.json", "postgres://public/users/row/9.json")
    contents: ClassVar = ROWS
    server: PostgresServer

    @pytest.fixture(autouse=True)
    def _over(self, postgres: PostgresServer, conformance_database: str) -> None:
        self.server, self.database = postgres, conformance_database

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        source = source_of(self.server.url(self.database), "postgres", password=PASSWORD)
        async with aclosing(DatabaseHandler(source, Services())) as made:
            yield made


@pytest.fixture(scope="module")
def conformance_database(postgres: PostgresServer) -> str:
    return postgres.create("conformance", (*STATEMENTS, *TSVECTOR))


class _PostgresAsAnyDialect(TestPostgres):
    """PostgreSQL again, by what SQLAlchemy alone knows of it."""

    known: ClassVar = listed_of("postgres", "public")


@pytest.mark.parametrize(
    "test",
    [
        _PostgresAsAnyDialect.test_it_lists_what_is_there,
        _PostgresAsAnyDialect.test_whatever_is_listed_loads_with_the_size_it_gives,
        _PostgresAsAnyDialect.test_what_is_known_loads_with_its_bytes,
        _PostgresAsAnyDialect.test_what_is_not_there_is_not_found,
        _PostgresAsAnyDialect.test_hostile_uris_get_an_error_of_bbfs_and_nothing_else,
    ],
)
async def test_postgres_is_any_dialect_to_sqlalchemy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    postgres: PostgresServer,
    conformance_database: str,
    test: Callable[[TestPostgres, Path], Awaitable[None]],
) -> None:
    """The statements of each file on a server; the rest of the suite goes the way of `TestAnyDialect`."""

    def make(source: DataSource, url: str, memory: int) -> Access:
        url = url.replace("postgresql:", "postgresql+psycopg:")
        return servers.generic("url", url, source.auth["password"], source.policy, memory)

    monkeypatch.setattr(handler, "access_of", make)
    over = _PostgresAsAnyDialect()
    over.server, over.database = postgres, conformance_database
    await test(over, tmp_path)


class TestAnyDialect(SourceConformance):
    """SQLite again, as SQLAlchemy sees it: what any dialect without a backend of its own gets."""

    known: ClassVar = listed_of("sqlite", "main")
    unknown: ClassVar = unknown_of("sqlite", "main")

    @pytest.fixture(autouse=True)
    def _generic(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def make(source: DataSource, url: str, memory: int) -> Access:
            return servers.generic("url", url, None, source.policy, memory)

        monkeypatch.setattr(handler, "access_of", make)

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        async with aclosing(
            DatabaseHandler(source_of(make_sqlite(directory / "a.db", STATEMENTS), "sqlite"), Services())
        ) as made:
            yield made
