"""What a database source does with options, secrets, SQLite files, and what goes wrong."""

import os
import re
import subprocess
import sys
from contextlib import aclosing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trio
from databases import handler, source_of, sqlite_file, text_of
from hypothesis import given
from hypothesis import strategies as st
from postgres_server import PostgresServer

from bbfs.model.errors import (
    BbfsError,
    Busy,
    ConfigError,
    Denied,
    InvalidUri,
    IsADirectory,
    NotFound,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)
from bbfs.model.values import DataSource, Policy
from bbfs.sources import Services
from bbfs.sources.database.handler import DatabaseHandler
from bbfs.sources.database.names import TaggedText
from bbfs.sources.database.tables import Table, part_of, parts_beginning, parts_between
from bbfs.sources.factory import build

NUMBERED = Table("main", "t", "table", (), part_key="rowid")


@pytest.mark.semantics("S23")
async def test_a_missing_sqlite_file_is_unreachable_and_may_come(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with handler(source_of(f"sqlite:///{tmp_path}/a.db")) as made:
        assert "the file is not there" in caplog.text
        assert made.state.state == "down"
        with pytest.raises(Unreachable, match="No such file"):
            await made.list_directory(())
        assert made.state.state == "down"
        assert not (tmp_path / "a.db").exists()
        sqlite_file(tmp_path / "a.db", "CREATE TABLE t (x); INSERT INTO t VALUES (1)")
        assert await text_of(made, "sqlite://main/t/rows.csv") == "x\n1\n"
        assert made.state.state == "up"


@pytest.mark.semantics("S22", "S23")
@pytest.mark.parametrize("is_pipe", [False, True])
async def test_what_is_no_database_is_said_to_be_none_and_not_waited_for(tmp_path: Path, is_pipe: bool) -> None:
    if is_pipe:
        os.mkfifo(tmp_path / "a.db")
    else:
        (tmp_path / "a.db").write_bytes(b"no database " * 100)
    error, why = (Unreachable, "no regular file") if is_pipe else (ProtocolViolation, "not a database")
    async with handler(source_of(f"sqlite:///{tmp_path}/a.db")) as made:
        with pytest.raises(error, match=why):
            await made.list_directory(())


@pytest.mark.semantics("S23")
async def test_a_sqlite_file_that_somebody_has_locked_is_busy(tmp_path: Path) -> None:
    url = sqlite_file(tmp_path / "a.db", "CREATE TABLE t (x)")
    # Another process: to open and close a file takes the locks of this process from it (fcntl(2)).
    lock = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None)"
    lock += "; c.execute('BEGIN EXCLUSIVE'); print('locked', flush=True); sys.stdin.read()"
    command = [sys.executable, "-I", "-c", lock, str(tmp_path / "a.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:  # noqa: ASYNC220
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"locked\n"
        async with handler(source_of(url, Policy(timeout=0.3))) as made:
            with pytest.raises(Busy, match="locked"):
                await made.list_directory(())
        writer.communicate()


@pytest.mark.semantics("S28")
@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM t",
        "INSERT INTO t VALUES (2)",
        "CREATE TABLE u (x)",
        "PRAGMA user_version = 5",
        "PRAGMA query_only = OFF",
        "ATTACH '{directory}/other.db' AS other",
        "SELECT 1 FROM t; DELETE FROM t",
        "VACUUM INTO '{directory}/made.db'",
        "COMMIT",
    ],
)
async def test_a_query_of_sqlite_may_only_read(tmp_path: Path, sql: str) -> None:
    url = sqlite_file(tmp_path / "a.db", "CREATE TABLE t (x); INSERT INTO t VALUES (1)")
    before = (tmp_path / "a.db").read_bytes()
    async with handler(source_of(url, queries={"q": sql.format(directory=tmp_path)})) as made:
        with pytest.raises(BbfsError, match=r"read-only|cannot VACUUM|one statement at a time"):
            await made.load("sqlite://query/q.csv")
    assert (tmp_path / "a.db").read_bytes() == before
    assert os.listdir(tmp_path) == ["a.db"]


@pytest.mark.semantics("S23")
@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 10**100])
async def test_a_number_that_sqlite_cannot_have_is_an_argument_that_does_not_fit(tmp_path: Path, number: int) -> None:
    url = sqlite_file(tmp_path / "a.db", "CREATE TABLE t (x)")
    query = {"sql": "SELECT :n AS n", "parameters": {"n": "integer"}}
    async with handler(source_of(url, queries={"q": query})) as made:
        assert await text_of(made, f"sqlite://query/q?n={(1 << 63) - 1}.csv") == f"n\n{(1 << 63) - 1}\n"
        with pytest.raises(InvalidUri, match="64 bits"):
            await made.load(f"sqlite://query/q?n={number}.csv")


async def test_texts_that_are_no_utf_8_keep_their_bytes(tmp_path: Path) -> None:
    url = sqlite_file(
        tmp_path / "a.db",
        "CREATE TABLE t (k text PRIMARY KEY, v); INSERT INTO t VALUES (CAST(x'ff41' AS text), CAST(x'fe' AS text))",
    )
    async with handler(source_of(url)) as made:
        loaded = await made.load("sqlite://main/t/rows.csv")
        assert loaded.parts[0].content.read(0, 99) == b"k,v\n\xffA,\xfe\n"
        (row,) = (await made.list_directory(("main", "t", "row"))).resources
        assert row.native_uri == "sqlite://main/t/row/%FFA.json"
        assert await text_of(made, row.native_uri) == '{"k":"\\\\xff41",\n "v":"\\\\xfe"}\n'


@pytest.mark.semantics("S9.6", "S12")
async def test_files_of_all_rows_are_listed_if_the_last_rowid_is_small_and_nothing_is_computed(tmp_path: Path) -> None:
    url = sqlite_file(
        tmp_path / "a.db",
        "CREATE TABLE large (x integer PRIMARY KEY, t text); CREATE TABLE small (x); INSERT INTO small VALUES (1);"
        "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r LIMIT 3000)"
        " INSERT INTO large SELECT x, 'ttttttttt' FROM r;"
        "CREATE TABLE keyed (k text PRIMARY KEY) WITHOUT ROWID; INSERT INTO keyed VALUES ('k');"
        "CREATE VIEW v AS SELECT * FROM large;"
        "CREATE TABLE sparse (x integer PRIMARY KEY); INSERT INTO sparse VALUES (9000000000000000000);"
        "CREATE TABLE made (x, y AS (zeroblob(x))); CREATE VIRTUAL TABLE words USING fts5(text)",
    )
    rows = {"rows.csv", "rows.ndjson", "count"}
    async with handler(source_of(url, row_limit=2999)) as made:
        for table in ("large", "small", "keyed", "v", "made", "words"):
            listing = await made.list_directory(("main", table))
            names = {entry.name for entry in listing.resources}
            is_large = table != "small"
            assert (listing.open, not names & rows) == (is_large, is_large)
            assert ("rows" in names) == (table in ("large", "made", "keyed"))
            for name in rows:
                found = await made.find(("main", table), name)
                assert (await made.load(found.native_uri)).parts[0].content.size or table in ("made", "words")
        with pytest.raises(NotFound):
            await made.find(("main", "large"), "rows.xml")
    async with handler(source_of(url, row_limit=10_000)) as made:
        for table in ("large", "sparse", "keyed"):
            assert rows <= {entry.name for entry in (await made.list_directory(("main", table))).resources}, table


@pytest.mark.semantics("S9.7", "S14")
async def test_the_parts_of_a_large_table_are_all_of_it(tmp_path: Path) -> None:
    numbers = [-70, -1, 0, 1, 10, 11, *range(100, 200), 250]
    values = ", ".join(f"({number})" for number in numbers)
    url = sqlite_file(tmp_path / "a.db", f"CREATE TABLE t (x integer PRIMARY KEY); INSERT INTO t VALUES {values}")
    async with handler(source_of(url, row_limit=20)) as made:
        parts = (await made.list_directory(("main", "t", "rows"))).resources
        assert [part.name for part in parts][:3] == [
            "-000099--000050.csv",
            "-000049-0000000.csv",
            "0000001-0000050.csv",
        ]
        found: list[str] = []
        for part in parts:
            header, *lines = (await text_of(made, part.native_uri)).splitlines()
            assert header == "x"
            found += lines
        assert found == [str(number) for number in numbers]
        assert await text_of(made, "sqlite://main/t/rows/10-100.ndjson") == '{"x":10}\n{"x":11}\n{"x":100}\n'
        assert (await made.find(("main", "t", "rows"), "10-100.csv")).name == "10-100.csv"
        for name in ("10-9.csv", "a-b.csv", "1-5.json", f"1-{1 << 63}.csv"):
            with pytest.raises(NotFound):
                await made.find(("main", "t", "rows"), name)


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 1 << 64), st.none() | st.integers(0, 10**12))
def test_parts_cover_all_keys_once(lowest: int, span: int, rows: int | None) -> None:
    highest = min(lowest + span, (1 << 63) - 1)
    parts = list(parts_between(lowest, highest, rows, 1000, 50))
    assert 1 <= len(parts) <= 52
    assert parts[0][1].first <= lowest
    assert parts[-1][1].last >= highest
    assert all(one.last + 1 == other.first for (_, one), (_, other) in pairwise(parts))
    assert all(part_of(name, NUMBERED) == part for name, part in parts)
    assert len({name for name, _ in parts}) == len(parts)


VALUES = (
    st.text(max_size=9) | st.binary(max_size=5) | st.builds(TaggedText, st.text()) | st.sampled_from(["~-", "-", ""])
)


@given(st.lists(st.tuples(VALUES, VALUES)))
def test_parts_between_keys_are_read_from_their_names(starts: list[Any]) -> None:
    ranged = Table("main", "t", "table", (), range_key=("a", "b"))
    parts = list(parts_beginning(starts))
    assert (parts[0][1].first, parts[-1][1].end) == (None, None)
    assert all(one.end == other.first for (_, one), (_, other) in pairwise(parts))
    assert all(part_of(name, ranged) == part for name, part in parts)
    for name in ("", "a", "~~-", "a~-b"):
        with suppress(NotFound):
            assert part_of(name, ranged) is None


async def rows_of(made: DatabaseHandler, native_uri: str) -> list[bytes]:
    content = (await made.load(native_uri)).parts[0].content
    return (content.read(0, content.size) or b"").splitlines()[1:]


async def rows_of_parts(made: DatabaseHandler, table: str) -> list[list[bytes]]:
    """Return the rows of each part of a table, without the line of names."""
    parts = (await made.list_directory(("main", table, "rows"))).resources
    return [await rows_of(made, part.native_uri) for part in parts]


@pytest.mark.semantics("S9.7", "S14")
@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("k text COLLATE NOCASE PRIMARY KEY", [f"'{c}{n}'" for n in range(9) for c in "aBcDé"]),
        ("k text PRIMARY KEY", [f"'{c}{n}'" for n in range(9) for c in ("a", "A", "~-", "a,/", "''", "%41")]),
        (
            "k PRIMARY KEY",
            [*map(str, range(30)), "'7'", "'x'", "''", "x'00ff'", "1e300", "-0.5", "CAST(x'ff' AS text)"],
        ),
        ("k real PRIMARY KEY", ["0.1", "1e308", "-7", "9e999", "1e-12", "'text'", "x'61'"]),
        ("a text, b integer, PRIMARY KEY (b, a)", [f"'{a}', {b}" for a in ("x", "X", "") for b in range(9)]),
        ("a COLLATE NOCASE, b, PRIMARY KEY (a, b COLLATE NOCASE)", [f"'{a}', '{b}'" for a in "xyZ" for b in "bcDef"]),
    ],
    ids=range(6),
)
async def test_parts_of_a_table_without_numbers_have_each_row_once(
    tmp_path: Path, columns: str, values: list[str]
) -> None:
    rows = ", ".join(f"({value})" for value in values)
    url = sqlite_file(tmp_path / "a.db", f"CREATE TABLE t ({columns}) WITHOUT ROWID; INSERT INTO t VALUES {rows}")
    async with handler(source_of(url, row_limit=4)) as made:
        parts = await rows_of_parts(made, "t")
        assert [len(part) for part in parts[:-1]] == [4] * (len(parts) - 1)
        assert 1 <= len(parts[-1]) <= 4
        whole = await rows_of(made, "sqlite://main/t/rows.csv")
        assert sorted(row for part in parts for row in part) == sorted(whole)
        assert len(whole) == len(values)
    async with handler(source_of(url, row_limit=0)) as made:
        assert "rows" in {entry.name for entry in (await made.list_directory(("main", "t"))).resources}


async def test_parts_of_a_table_that_changes_meanwhile_have_each_row_once(tmp_path: Path) -> None:
    script = "CREATE TABLE t (k text PRIMARY KEY) WITHOUT ROWID; INSERT INTO t VALUES "
    url = sqlite_file(tmp_path / "a.db", script + ", ".join(f"('k{n:03}')" for n in range(0, 100, 2)))
    async with handler(source_of(url, row_limit=10)) as made:
        parts = (await made.list_directory(("main", "t", "rows"))).resources
        assert [part.name for part in parts][:2] == ["~-k020.csv", "k020~-k040.csv"]
        first = await text_of(made, parts[0].native_uri)
        changes = "DELETE FROM t WHERE k IN ('k020', 'k022'); INSERT INTO t VALUES ('a'), ('k021'), ('z')"
        sqlite_file(tmp_path / "a.db", changes)
        rows = first.splitlines()[1:]
        for part in parts[1:]:
            rows += (await text_of(made, part.native_uri)).splitlines()[1:]
        there = [f"k{n:03}" for n in range(0, 100, 2) if n not in (20, 22)]
        assert rows == sorted([*there, "k021", "z"])  # `a` came after its part was read
        assert await text_of(made, "sqlite://main/t/rows/k021~-k026.ndjson") == '{"k":"k021"}\n{"k":"k024"}\n'
        assert (await made.find(("main", "t", "rows"), "~-.csv")).name == "~-.csv"
        for name in ("k.csv", "1-2.csv", "~-.txt"):
            with pytest.raises(NotFound):
                await made.find(("main", "t", "rows"), name)


async def test_parts_are_bounded_and_need_a_key_without_null(tmp_path: Path) -> None:
    script = "CREATE TABLE t (k text PRIMARY KEY) WITHOUT ROWID; INSERT INTO t VALUES "
    script += ", ".join(f"('k{n:03}')" for n in range(100)) + ", ('" + "long" * 50 + "')"
    # No name is left for the rowid, and SQLite takes NULL in such a key several times.
    script += "; CREATE TABLE n (rowid text PRIMARY KEY, _rowid_, oid); INSERT INTO n VALUES (NULL, 1, 2), (NULL, 3, 4)"
    url = sqlite_file(tmp_path / "a.db", script)
    async with handler(source_of(url, row_limit=1, listed_rows=7)) as made:
        parts = await rows_of_parts(made, "t")
        assert len(parts) <= 8
        assert sum(map(len, parts)) == 101
        assert "rows" not in {entry.name for entry in (await made.list_directory(("main", "n"))).resources}
        with pytest.raises(NotFound):
            await made.list_directory(("main", "n", "rows"))
    async with aclosing(DatabaseHandler(source_of(url, row_limit=1, listed_rows=7), Services(), 50)) as made:
        with pytest.raises(TooLarge, match="more than 50 rows"):
            await made.list_directory(("main", "t", "rows"))


async def test_directories_are_told_from_files(tmp_path: Path) -> None:
    url = sqlite_file(tmp_path / "a.db", "CREATE TABLE t (x integer PRIMARY KEY, y); CREATE INDEX i ON t (y)")
    async with handler(source_of(url)) as made:
        for path in ("", "/t", "/t/row", "/t/by", "/t/by/y", "/t/by/y/1"):
            with pytest.raises(IsADirectory):
                await made.load(f"sqlite://main{path}")


@pytest.mark.semantics("S16", "S22")
async def test_a_cancelled_request_ends_what_sqlite_does(tmp_path: Path) -> None:
    forever = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r"
    url = sqlite_file(tmp_path / "a.db", "CREATE TABLE t (x)")
    async with handler(source_of(url, Policy(concurrency=1), queries={"forever": forever})) as made:
        with trio.move_on_after(0.3):
            await made.load("sqlite://query/forever.csv")
        # With one thread in all, this waits until the other has ended.
        assert await text_of(made, "sqlite://main/t/count") == "0\n"


@pytest.mark.semantics("S30")
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "this option is required"),
        ({"url": "nonsense"}, "must be a URL"),
        ({"url": "sqlite://"}, "names no file"),
        ({"url": "sqlite:///:memory:"}, "names no file"),
        ({"url": "sqlite:///x?immutable=1"}, "takes no options"),
        ({"url": "sqlite+aiosqlite:///x"}, "Python's own driver"),
        ({"url": "postgresql+asyncpg://user:hunter2@host/db"}, "through psycopg"),
        ({"url": "postgresql://user:hunter2@host:port/db"}, "not a URL"),
        ({"url": "unheard+of://user:hunter2@host/db"}, "unknown kind of database 'unheard+of'"),
        ({"url": "mysql+mysqldb://user:hunter2@host/db"}, "needs the driver of mysql, a Python package"),
        ({"url": "sqlite:///x", "schemas": 5}, "schemas: should be an array"),
        (
            {"url": "sqlite:///x", "queries": {"a": {"zzz": "x"}}},
            "known options are description, lazy, parameters, sql",
        ),
        ({"url": "sqlite:///x", "queries": {"a/b": "SELECT 1"}}, "cannot be the name of a query"),
        ({"url": "sqlite:///x", "queries": {"a.csv": "SELECT 1"}}, "cannot be the name of a query"),
        ({"url": "sqlite:///x", "rows": 5}, "unknown option"),
        ({"url": "sqlite:///x", "row_limit": -1}, "row_limit"),
        ({"url": "sqlite:///x", "rowLimit": -1}, "config.row_limit: should be greater than or equal to 0"),
        (
            {"url": "sqlite:///x", "rowLimit": 1, "row_limit": 1},
            "in camelCase and in snake_case; leave one of them out",
        ),
    ],
)
def test_options_that_cannot_be_are_refused(config: dict[str, Any], words: str) -> None:
    source = DataSource("db", "db", "database", "bb", "bb-database+db", config=config)
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        build(source, Services())
    assert "hunter2" not in str(caught.value)


@pytest.mark.semantics("S30")
def test_a_secret_that_this_type_has_not_is_refused() -> None:
    config = {"url": "postgresql://host/db"}
    source = DataSource("db", "db", "database", "bb", "bb-database+db", config=config, auth={"pasword": "hunter2"})
    with pytest.raises(ConfigError, match=r"^sources\[db\]\.auth\.pasword: 'password' is the only key") as caught:
        build(source, Services())
    assert "hunter2" not in str(caught.value)


def test_sqlite_needs_no_extra_and_others_say_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in sys.modules if re.match(r"bbfs\.sources\.database\.(generic|postgres|servers)\b", name)
    ]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("sqlalchemy", "psycopg"):
        monkeypatch.setitem(sys.modules, name, None)
    build(source_of(f"sqlite:///{tmp_path}/a.db"), Services())
    for dialect, extra in (("postgresql", "database"), ("mssql", "database"), ("mysql", "mysql")):
        with pytest.raises(ConfigError, match=f"needs the extra '{extra}' "):
            build(source_of(f"{dialect}://host/db"), Services())


@pytest.mark.semantics("S23", "S30")
async def test_no_password_is_in_what_is_said(postgres: PostgresServer) -> None:
    secret = "p%&/ä s"
    url = postgres.url("postgres", quote(secret, safe=""))
    for source in (source_of(url), source_of(postgres.url("postgres"), auth={"password": secret})):
        async with handler(source) as made:
            with pytest.raises(Denied, match="password authentication failed") as caught:
                await made.list_directory(())
            told = f"{caught.value!r} {caught.value.__cause__!r} {made.state!r} {made!r} {vars(made)!r}"
            assert secret not in told
            assert quote(secret, safe="") not in told


@pytest.mark.semantics("S23")
async def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    async with handler(source_of(f"postgresql:///db?host={tmp_path}")) as made:
        with pytest.raises(Unreachable):
            await made.list_directory(())
        assert made.state.state == "down"
