"""What a source over PostgreSQL does with what goes wrong, and with many requests at once."""

import os
import signal
from typing import Any

import pytest
import trio
from databases import handler, over, source_of, text_of, until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postgres_server import PASSWORD, PostgresServer
from test_database_search import SCANNED, check_scan

from bbfs.model.errors import BbfsError, DeadlineExceeded, Denied, InvalidUri, NotFound, ProtocolViolation, TooLarge
from bbfs.model.values import Policy
from bbfs.sources import Services
from bbfs.sources.content.spool import Spool
from bbfs.sources.database import backend
from bbfs.sources.database.rendering import csv_line


@pytest.fixture(scope="module")
def filled(postgres: PostgresServer) -> str:
    statements = (
        "CREATE TABLE t (id integer PRIMARY KEY, v text)",
        "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 20000) AS i",
        "CREATE TABLE closed (id integer PRIMARY KEY)",
        "CREATE ROLE guest LOGIN PASSWORD 'guest'",
        "GRANT SELECT ON t TO guest",
        "CREATE VIEW closed_view AS SELECT * FROM closed",
        "CREATE TABLE parts (id integer, y integer, PRIMARY KEY (id, y)) PARTITION BY RANGE (y)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        "INSERT INTO parts SELECT i, i % 10 FROM generate_series(1, 2000) AS i",
        "ANALYZE",
    )
    return postgres.create("filled", statements)


@pytest.mark.semantics("S23")
async def test_what_a_role_may_not_read_is_denied(postgres: PostgresServer, filled: str) -> None:
    async with handler(source_of(postgres.url(filled, "guest", "guest"))) as made:
        tables = {entry.name for entry in (await made.list_directory(("public",))).resources}
        assert tables == {"t", "closed", "closed_view", "parts", "parts_1"}
        assert await text_of(made, "postgres://public/t/count") == "20000\n"
        for table in ("closed", "closed_view"):
            await made.list_directory(("public", table))
            with pytest.raises(Denied, match="permission denied"):
                await made.load(f"postgres://public/{table}/rows.csv")


@pytest.mark.semantics("S9.7", "S14")
@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("k text PRIMARY KEY", "SELECT chr(97 + i % 26) || upper(chr(97 + i % 7)) || i FROM {}"),
        (
            'k text COLLATE "C" PRIMARY KEY',
            "SELECT CASE i WHEN 7 THEN '' ELSE chr(65 + i % 60) || i || '~-''%s' END FROM {}",
        ),
        ("k text COLLATE folded PRIMARY KEY", "SELECT chr(65 + i % 26) || i FROM {}"),
        ("k uuid PRIMARY KEY", "SELECT md5(i::text)::uuid FROM {}"),
        ("k numeric PRIMARY KEY", "SELECT CASE i WHEN 7 THEN 'NaN' ELSE (i - 50) / 7.0 END FROM {}"),
        ("k double precision PRIMARY KEY", "SELECT CASE i WHEN 7 THEN 'infinity' ELSE sqrt(i) END FROM {}"),
        ("k timestamptz PRIMARY KEY", "SELECT '2026-03-29 00:30+00'::timestamptz + i * interval '10.001 min' FROM {}"),
        ("k date PRIMARY KEY", "SELECT CASE i WHEN 7 THEN '-infinity' ELSE date '0001-02-01 BC' + i END FROM {}"),
        ("k char(9) PRIMARY KEY", "SELECT chr(97 + i % 26) || i FROM {}"),
        ("k bytea PRIMARY KEY", "SELECT sha256(i::text::bytea) FROM {}"),
        ("a text, b bigint, PRIMARY KEY (a, b)", "SELECT chr(97 + i % 3), i FROM {}"),
    ],
    ids=range(11),
)
async def test_parts_of_a_table_without_numbers_have_each_row_once(
    postgres: PostgresServer, columns: str, values: str
) -> None:
    statements = (
        "CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        f"CREATE TABLE t ({columns})",
        f"INSERT INTO t {values.format('generate_series(1, 90) AS i')}",
        "CREATE TYPE mood AS ENUM ('z', 'a')",
        "CREATE TABLE other (k mood PRIMARY KEY)",
        "INSERT INTO other VALUES ('a'), ('z')",
    )
    name = postgres.create(f"ranged{abs(hash(columns))}", statements)
    async with handler(over(postgres, name, row_limit=8)) as made:
        parts = (await made.list_directory(("public", "t", "rows"))).resources
        rows = [(await text_of(made, part.native_uri)).splitlines()[1:] for part in parts]
        assert [len(part) for part in rows] == [8] * 11 + [2]
        whole = (await text_of(made, "postgres://public/t/rows.csv")).splitlines()[1:]
        assert sorted(row for part in rows for row in part) == sorted(whole)
    async with handler(over(postgres, name, row_limit=0)) as made:
        assert "rows" not in {entry.name for entry in (await made.list_directory(("public", "other"))).resources}
        if "uuid" in columns:
            with pytest.raises(NotFound, match="no such keys"):
                await made.load("postgres://public/t/rows/no-uuid~-.csv")


@pytest.mark.semantics("S28")
@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("DELETE FROM t RETURNING id", Denied),
        ("SELECT set_config('transaction_read_only', 'off', false)", BbfsError),
        ("SELECT 1) TO STDOUT; COMMIT; DELETE FROM t; COPY (SELECT 1", BbfsError),
        ("SELECT 1; DELETE FROM t", BbfsError),
        ("SELECT nextval('s')", Denied),
    ],
)
async def test_a_query_of_postgres_may_only_read(postgres: PostgresServer, sql: str, error: type[BbfsError]) -> None:
    statements = ("CREATE TABLE t (id integer)", "INSERT INTO t VALUES (1)", "CREATE SEQUENCE s")
    name = postgres.create(f"reading{abs(hash(sql))}", statements)
    async with handler(over(postgres, name, queries={"q": sql})) as made:
        for form in ("csv", "ndjson"):
            with pytest.raises(BbfsError) as caught:
                await made.load(f"postgres://query/q.{form}")
            if form == "csv":
                assert caught.type is error
        assert await text_of(made, "postgres://public/t/count") == "1\n"


async def test_all_of_a_partitioned_table_counts(postgres: PostgresServer, filled: str) -> None:
    async with handler(over(postgres, filled, row_limit=1999)) as made:
        entries = {entry.name: entry for entry in (await made.list_directory(("public", "parts"))).resources}
        assert set(entries) == {"columns.json", "schema.sql", "row", "rows", "by"}
        assert (entries["rows"].properties or {})["estimated_rows"] == 2000
        assert (await made.find(("public", "parts"), "rows.csv")).native_uri == "postgres://public/parts/rows.csv"
        assert (await text_of(made, "postgres://public/parts/rows.csv")).count("\n") == 2001
        assert '"y":7' in await text_of(made, "postgres://public/parts/row/7,7.json")


@pytest.mark.semantics("S23")
async def test_what_the_database_cannot_compute_or_spell_is_its_error(postgres: PostgresServer) -> None:
    with postgres.connect("postgres") as connection:
        connection.execute("CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    with postgres.connect("bytes") as connection:
        connection.execute("CREATE TABLE t (k text PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES (convert_from('\\xff', 'SQL_ASCII'))")
        connection.execute("CREATE VIEW v AS SELECT 1 / (count(*) - 1) AS x FROM t")
    async with handler(over(postgres, "bytes", row_limit=0, queries={"q": "SELECT 1 / :n::integer AS x"})) as made:
        with pytest.raises(ProtocolViolation, match="invalid byte sequence"):
            await made.load("postgres://public/t/rows.csv")
        with pytest.raises(ProtocolViolation, match="invalid byte sequence"):
            await made.list_directory(("public", "t", "row"))
        with pytest.raises(BbfsError, match="division by zero") as caught:
            await made.load("postgres://public/v/rows.csv")
        assert caught.type is BbfsError
        with pytest.raises(InvalidUri, match="division by zero"):
            await made.load("postgres://query/q?n=0.csv")
        assert made.state.state == "up"


async def test_keys_that_are_longer_than_names_are_reached_from_the_listing(postgres: PostgresServer) -> None:
    statements = (
        "CREATE TABLE t (k text PRIMARY KEY, l text)",
        "CREATE INDEX ON t (l)",
        "INSERT INTO t SELECT repeat('ü', 200) || i, 'l' FROM generate_series(1, 3) AS i",
    )
    async with handler(over(postgres, postgres.create("longkeys", statements))) as made:
        rows = (await made.list_directory(("public", "t", "row"))).resources
        assert len({entry.name for entry in rows}) == 3
        assert all(len(entry.name.encode()) <= 255 for entry in rows)
        links = (await made.list_directory(("public", "t", "by", "l", "l"))).resources
        assert {entry.target for entry in links} == {f"../../../row/{entry.name}" for entry in rows}
        for entry in rows:
            assert '"l":"l"' in await text_of(made, entry.native_uri)


async def test_connections_are_as_many_as_requests_at_once(postgres: PostgresServer, filled: str) -> None:
    most = 0

    def connections() -> int:
        with postgres.connect(filled) as connection:
            sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'bbfs' AND datname = %s"
            return connection.execute(sql, (filled,)).fetchall()[0][0]

    async with handler(over(postgres, filled, Policy(concurrency=3))) as made:
        async with trio.open_nursery() as nursery:

            async def watch(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
                nonlocal most
                task_status.started()
                while True:
                    most = max(most, await trio.to_thread.run_sync(connections))

            await nursery.start(watch)
            async with trio.open_nursery() as loads:
                for number in range(1, 200):
                    loads.start_soon(made.load, f"postgres://public/t/row/{number}.json")
            nursery.cancel_scope.cancel()
        assert 1 <= most <= 3
    await until(lambda: connections() == 0)


@pytest.mark.semantics("S22")
async def test_a_server_that_takes_no_cancellation_gets_its_connection_closed(
    postgres: PostgresServer, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "STOPPING", 0.3)
    queries = {"pid": "SELECT pg_backend_pid() AS pid", "slow": "SELECT pg_sleep(50)"}
    async with handler(over(postgres, filled, Policy(concurrency=1), queries=queries)) as made:
        pid = int((await text_of(made, "postgres://query/pid.csv")).split()[1])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.load, "postgres://query/slow.csv")
            await until(lambda: _state(postgres, pid) == "active")
            os.kill(pid, signal.SIGSTOP)  # from now on it hears nothing
            nursery.cancel_scope.cancel()
        try:
            # With one thread in all, this waits until the other has been given up.
            assert int((await text_of(made, "postgres://query/pid.csv")).split()[1]) != pid
        finally:
            os.kill(pid, signal.SIGCONT)


def _state(server: PostgresServer, pid: int) -> str:
    with server.connect("postgres") as connection:
        return connection.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchall()[0][0]


@pytest.mark.semantics("S20", "S23")
async def test_a_connection_that_the_server_ends_is_made_again(postgres: PostgresServer, filled: str) -> None:
    async with handler(over(postgres, filled)) as made:
        assert await text_of(made, "postgres://public/t/count") == "20000\n"
        with postgres.connect("postgres") as connection:
            ended = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'bbfs'"
            connection.execute(ended)  # waits for the end: a request before it would fail
        assert await text_of(made, "postgres://public/t/count") == "20000\n"


async def test_what_is_too_large_for_the_spool_leaves_the_connection_usable(
    postgres: PostgresServer, filled: str
) -> None:
    services = Services(spool=lambda: Spool(None, 100_000))
    async with handler(over(postgres, filled, Policy(concurrency=1)), services) as made:
        with pytest.raises(TooLarge, match="100000 bytes"):
            await made.load("postgres://public/t/rows.csv")
        assert await text_of(made, "postgres://public/t/count") == "20000\n"


async def test_one_load_sees_one_state_of_the_database(postgres: PostgresServer, filled: str) -> None:
    """A row that is written while COPY runs is in none of it."""
    queries = {"twice": "SELECT count(*) FROM t, pg_sleep(0.5) UNION ALL SELECT count(*) FROM t"}
    async with handler(over(postgres, filled, queries=queries)) as made:
        assert await text_of(made, "postgres://query/twice.csv") == "count\n20000\n20000\n"
        with pytest.raises(DeadlineExceeded):
            async with handler(over(postgres, filled, Policy(timeout=0.2), queries=queries)) as hasty:
                await hasty.load("postgres://query/twice.csv")


FIELDS = st.none() | st.text(st.sampled_from('ab,"\n\r\\. \t;é'), max_size=4)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(FIELDS, min_size=1, max_size=3))
def test_lines_of_csv_are_those_of_copy(csv_connection: Any, row: list[str | None]) -> None:
    columns = ", ".join("%s::text" for _ in row)
    statement = csv_connection.mogrify(f"COPY (SELECT {columns}) TO STDOUT (FORMAT csv)", row)
    with csv_connection.copy(statement) as copy:
        assert csv_line(row).encode() == b"".join(map(bytes, copy))


@pytest.fixture(scope="module")
def csv_connection(postgres: PostgresServer) -> Any:
    from psycopg import ClientCursor

    with postgres.connect("postgres") as connection, ClientCursor(connection) as cursor:
        yield cursor


@pytest.mark.semantics("S15", "S23")
async def test_a_row_beyond_the_bound_is_too_large(postgres: PostgresServer) -> None:
    statements = (
        "CREATE TABLE t (k integer PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (1, repeat('x', 40000000)), (2, 'short')",
    )
    postgres.create("long_rows", statements)
    async with handler(over(postgres, "long_rows")) as made:
        with pytest.raises(TooLarge, match="33554432 bytes"):
            await made.load("postgres://public/t/row/1.json")
        assert await text_of(made, "postgres://public/t/row/2.json") == '{"k":2,\n "v":"short"}\n'
        assert await text_of(made, "postgres://public/t/count") == "2\n"


async def test_columns_are_scanned(postgres: PostgresServer) -> None:
    await check_scan(postgres.url(postgres.create("scanned", [SCANNED])), auth={"password": PASSWORD})
