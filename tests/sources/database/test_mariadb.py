"""MySQL and MariaDB, by a real server of MariaDB."""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest
import trio
from databases import handler, source_of, text_of, until
from mariadb_server import PASSWORD, MariadbServer, is_installed, mariadb_server
from test_conformance_database import FTS5, QUERIES, STATEMENTS, listed_of, unknown_of
from test_database_search import SCANNED, check_scan

from bbfs.model.errors import BbfsError, Denied, NotSupported, Unreachable
from bbfs.model.values import Policy
from bbfs.sources import Handler, Services
from bbfs.sources.database.handler import DatabaseHandler
from bbfs.testing import SourceConformance

AUTH = {"password": PASSWORD}


@pytest.fixture(scope="module")
def server() -> Iterator[MariadbServer]:
    if not is_installed():
        pytest.skip("MariaDB is not installed (scripts/install-system run test)")
    with mariadb_server() as running:
        yield running


@pytest.fixture(scope="module")
def filled(server: MariadbServer) -> str:
    # A key of MySQL has a length.
    statements = [statement.replace(" text", " varchar(99)") for statement in (*STATEMENTS, *FTS5[:2])]
    statements.append("ALTER TABLE notes ADD FULLTEXT (title, body)")
    return server.create("filled", statements, "SELECT, SHOW VIEW")


class TestMariadb(SourceConformance):
    known: ClassVar = listed_of("mysql", "filled")
    unknown: ClassVar = unknown_of("mysql", "filled")
    searched: ClassVar = ("renew certificate", "mysql://filled/notes/row/2.json")

    @pytest.fixture(autouse=True)
    def _over(self, filled: str) -> None:
        self.url = filled

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        async with aclosing(DatabaseHandler(source_of(self.url, queries=QUERIES, auth=AUTH), Services())) as made:
            yield made


async def test_a_large_table_has_parts_and_values_of_all_types(server: MariadbServer) -> None:
    columns = "id bigint PRIMARY KEY, d decimal(20, 4), t datetime(6), b blob, f double, j json, e enum('a', 'b')"
    statements = [
        f"CREATE TABLE t ({columns})",
        "INSERT INTO t VALUES (1, 12345678901234.5600, '2026-01-02 03:04:05.5', x'00ff', 1e-12, '{\"k\": [1]}', 'b')",
        "INSERT INTO t (id) SELECT seq FROM seq_2_to_2500",
    ]
    url = server.create("types", statements)
    async with handler(source_of(url, auth=AUTH, row_limit=1000)) as made:
        parts = (await made.list_directory(("types", "t", "rows"))).resources
        assert [part.name for part in parts] == [
            "0000001-0001000.csv",
            "0001001-0002000.csv",
            "0002001-0003000.csv",
        ]
        header, first, *others = (await text_of(made, parts[0].native_uri)).splitlines()
        assert header == "id,d,t,b,f,j,e"
        assert first == '1,12345678901234.5600,2026-01-02 03:04:05.500000,\\x00ff,1e-12,"{""k"": [1]}",b'
        assert len(others) == 999
        assert await text_of(made, "mysql://types/t/count") == "2500\n"


@pytest.mark.semantics("S9.7", "S14")
async def test_parts_of_tables_without_numbers_have_each_row_once(server: MariadbServer) -> None:
    statements = [
        "CREATE TABLE words (k varchar(40) PRIMARY KEY)",
        "INSERT INTO words SELECT concat(char(97 + seq % 26), char(65 + seq % 7), seq, '~-,') FROM seq_1_to_90",
        "CREATE TABLE pairs (a date, b varbinary(9), c datetime(6), PRIMARY KEY (a, b, c))",
        "INSERT INTO pairs SELECT '2026-01-01' + interval seq % 3 day, char(seq), now(6) FROM seq_1_to_27",
        "CREATE TABLE moods (k enum('z', 'a') PRIMARY KEY)",
        "INSERT INTO moods VALUES ('a'), ('z')",
    ]
    url = server.create("ranged", statements)
    async with handler(source_of(url, auth=AUTH, row_limit=8)) as made:
        for table, sizes in (("words", [8] * 11 + [2]), ("pairs", [8, 8, 8, 3])):
            parts = (await made.list_directory(("ranged", table, "rows"))).resources
            rows = [(await text_of(made, part.native_uri)).splitlines()[1:] for part in parts]
            assert [len(part) for part in rows] == sizes
            whole = (await text_of(made, f"mysql://ranged/{table}/rows.csv")).splitlines()[1:]
            assert sorted(row for part in rows for row in part) == sorted(whole)
    async with handler(source_of(url, auth=AUTH, row_limit=0)) as made:
        assert "rows" not in {entry.name for entry in (await made.list_directory(("ranged", "moods"))).resources}


@pytest.mark.semantics("S23")
async def test_a_view_can_be_read_without_the_right_to_see_its_definition(server: MariadbServer) -> None:
    statements = ["CREATE TABLE t (x integer)", "INSERT INTO t VALUES (7)", "CREATE VIEW v AS SELECT x AS y FROM t"]
    async with handler(source_of(server.create("views", statements), auth=AUTH)) as made:
        assert {entry.name for entry in (await made.list_directory(("views",))).resources} == {"t", "v"}
        assert await text_of(made, "mysql://views/v/rows.csv") == "y\n7\n"
        assert await text_of(made, "mysql://views/v/count") == "1\n"
        with pytest.raises(Denied, match="SHOW VIEW"):
            await made.load("mysql://views/v/schema.sql")


@pytest.mark.semantics("S28")
async def test_a_query_may_only_read(server: MariadbServer) -> None:
    url = server.create("writing", ["CREATE TABLE t (x integer)", "CREATE SEQUENCE s"])
    queries = {"delete": "DELETE FROM t", "next": "SELECT nextval(s)", "file": "SELECT 1 INTO OUTFILE '/tmp/x'"}
    async with handler(source_of(url, auth=AUTH, queries=queries)) as made:
        for name in queries:
            with pytest.raises(BbfsError):
                await made.load(f"mysql://query/{name}.csv")
        assert await text_of(made, "mysql://writing/t/count") == "0\n"


@pytest.mark.semantics("S16", "S22")
async def test_a_cancelled_request_ends_its_statement_at_the_server(server: MariadbServer, filled: str) -> None:
    def running() -> bool:
        rows = server.run("mysql", ["SELECT info FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%'"])
        return bool(rows)

    async with handler(source_of(filled, Policy(timeout=60), queries={"slow": "SELECT SLEEP(50)"}, auth=AUTH)) as made:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.load, "mysql://query/slow.csv")
            await until(running)
            nursery.cancel_scope.cancel()
        await until(lambda: not running())


@pytest.mark.semantics("S23", "S30")
async def test_who_is_refused_and_who_is_not_there(filled: str) -> None:
    async with handler(source_of(filled, auth={"password": "hunter2"})) as made:
        with pytest.raises(Denied, match="Access denied") as caught:
            await made.list_directory(())
        assert "hunter2" not in str(caught.value)
    async with handler(source_of("mariadb://reader@127.0.0.1:9/x", auth=AUTH)) as made:
        with pytest.raises(Unreachable):
            await made.list_directory(())


async def test_rows_are_found_by_fulltext_indexes_and_by_a_scan(server: MariadbServer) -> None:
    statements = [
        "CREATE TABLE n (id int PRIMARY KEY, title varchar(99), body text, FULLTEXT (title, body), FULLTEXT (title))",
        "INSERT INTO n VALUES (1, 'Proxy', 'Renew the certificate.'), (2, 'Certificate', 'issued'), (3, 'else', 'x')",
        "CREATE TABLE keyless (body text, FULLTEXT (body))",
        "INSERT INTO keyless VALUES ('certificate')",
    ]
    async with handler(source_of(server.create("indexed", statements), auth=AUTH, schemas=["indexed"])) as made:
        hits = {hit.native_uri: hit.snippet for hit in await made.search('renew +certificate* -"proxy', 10)}
        assert hits["mysql://indexed/n/row/1.json"] == "Proxy Renew the certificate."
        assert set(hits) == {f"mysql://indexed/n/row/{number}.json" for number in (1, 2)}
    scanned = server.create("scanned", [each for each in SCANNED.split(";\n") if each.strip()])
    await check_scan(scanned, auth=AUTH, schemas=["scanned"])
    async with handler(source_of(scanned, auth=AUTH, schemas=["scanned"])) as made:
        with pytest.raises(NotSupported, match="FULLTEXT"):
            await made.search("certificate", 10)
