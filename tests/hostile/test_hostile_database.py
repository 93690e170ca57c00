"""Hostile databases: files of SQLite that compute without end or are none, and servers that send without end."""

import contextlib
import os
import random
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import pytest
from harness import SourceTable
from hostile import Case, walk_part
from hostile_postgres import ATTACKS, hostile_server
from hostile_sources import PATIENCE, Source

QUICK = {"a view of zeroblob", "a row of a gigabyte", "a copy of a gigabyte"}
QUICK |= {"DuckDB: a view of a sort without an end", "DuckDB: noise as Parquet"}
MANY_TABLES = {"a file of fifty thousand views"}
"""Files whose tables are all listed. SQLite parses the schema for each request: half a second for that many views."""
NOISE = random.Random(7).randbytes(1 << 20)
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
VIEWS: Mapping[str, str] = {
    "zeroblob": "SELECT zeroblob(900000000)",
    "randomblob": "SELECT randomblob(900000000)",
    "hex": "SELECT hex(zeroblob(400000000))",
    "quote": "SELECT quote(zeroblob(400000000))",
    "printf": "SELECT printf('%900000000d', 1)",
    "printf with a precision": "SELECT printf('%.900000000f', 1)",
    "replace": "SELECT replace(hex(zeroblob(20000)), '0', hex(zeroblob(20000)))",
    "char and group_concat": f"{ENDLESS} SELECT group_concat(hex(zeroblob(100000))) FROM c",
    "json": f"{ENDLESS} SELECT json_group_array(x) FROM c",
    "nested json": f"{ENDLESS} SELECT json_group_object(x, json_array(x, x)) FROM c",
    "many blobs": f"{ENDLESS} SELECT zeroblob(900000) FROM c",
    "rows without an end": f"{ENDLESS} SELECT x FROM c",
    "an end that never comes": f"{ENDLESS} SELECT x FROM c WHERE x < 0",
    "a count without an end": f"{ENDLESS} SELECT count(*) FROM c",
    "an order without an end": f"{ENDLESS} SELECT x FROM c ORDER BY -x",
    "different ones without an end": f"{ENDLESS} SELECT DISTINCT x FROM c",
    "a window without an end": f"{ENDLESS} SELECT sum(x) OVER (ORDER BY -x) FROM c",
    "like": "SELECT hex(zeroblob(400000)) LIKE '" + "%0" * 2000 + "x'",
    "glob": "SELECT hex(zeroblob(400000)) GLOB '" + "*0" * 2000 + "x'",
    "a product of itself": "SELECT count(*) FROM n a, n b, n c, n d, n e, n f",
    "an expression": "SELECT " + " + ".join(["1"] * 900),
    "a compound of selects": " UNION ".join(["SELECT 1"] * 450),
    "two thousand columns": "SELECT " + ",".join(f"zeroblob(100000) AS c{n}" for n in range(1900)),
    "a column of a megabyte": f'SELECT 1 AS "{"c" * 900_000}"',
    "pragmas": "SELECT * FROM pragma_function_list, pragma_module_list, pragma_pragma_list, pragma_function_list",
    "its own schema": "SELECT a.sql || b.sql FROM sqlite_master a, sqlite_master b, sqlite_master c, sqlite_master d",
}


def database(write: Callable[[Path], None]) -> Source:
    """Return the source of a file that `write` makes."""

    def source(directory: Path) -> SourceTable:
        path = directory / "hostile.db"
        write(path)
        config = {"url": f"sqlite:////{path.relative_to('/')}"}
        return {"name": "hostile", "type": "database", "config": config, "timeout": PATIENCE}

    return source


def sql(*statements: str) -> Callable[[Path], None]:
    """Return what makes a database by some statements."""

    def write(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in ("PRAGMA writable_schema = ON", "BEGIN", *statements, "COMMIT"):
                connection.execute(statement)

    return write


def touch(directory: Path) -> Sequence[Sequence[str | Path]]:
    """Return the programs that stat everything and read the rows of the view `v`."""
    return [("ls", "-lR", directory), *read_view(directory)]


def touch_part(directory: Path) -> Sequence[Sequence[str | Path]]:
    """As `touch`, of a file with many tables: stat and read the first of them."""
    return [*walk_part(directory, 10), *read_view(directory)]


def read_view(directory: Path) -> Sequence[Sequence[str | Path]]:
    view = directory / "main" / "v"
    return [("cat", view / "rows.csv"), ("cat", view / "columns.json", view / "count")]


def views() -> Iterator[Case]:
    """Yield each view beside a table."""
    numbers = ("CREATE TABLE n (x)", f"INSERT INTO n {ENDLESS} SELECT x FROM c LIMIT 1000")
    for name, select in VIEWS.items():
        yield case(f"a view of {name}", sql(*numbers, f"CREATE VIEW v AS {select}"))
    yield case("a view without an end", sql(f"CREATE VIEW v AS {ENDLESS} SELECT hex(zeroblob(x)) FROM c"))


def schemas() -> Iterator[Case]:
    """Yield files whose schema is the attack, and files that are no databases."""
    doubled = [f"CREATE VIEW v{n} AS SELECT a.x FROM v{n - 1} a, v{n - 1} b" for n in range(1, 30)]
    schema = "INSERT INTO sqlite_master VALUES ('view', '{0}', '{0}', 0, '{1}')"
    files: Mapping[str, Callable[[Path], None]] = {
        "views of views": sql("CREATE VIEW v0 AS SELECT 1 AS x", *doubled, "CREATE VIEW v AS SELECT * FROM v29"),
        "fifty thousand views": sql(
            "CREATE TABLE v (a PRIMARY KEY, b)",
            f"INSERT INTO sqlite_master {ENDLESS} "
            "SELECT 'view', 'v' || x, 'v' || x, 0, 'CREATE VIEW v' || x || ' AS SELECT 1' FROM c LIMIT 50000",
        ),
        "two thousand columns in tables": sql(
            *(f"CREATE TABLE t{t} ({','.join(f'c{n}' for n in range(1900))})" for t in range(100))
        ),
        "long names": sql(*(f'CREATE TABLE "{n}{"x" * 500_000}" (a)' for n in range(60))),
        "a generated column": sql(
            "CREATE TABLE v (a INTEGER PRIMARY KEY, b AS (hex(zeroblob(400000000))))", "INSERT INTO v VALUES (1)"
        ),
        "an index of an expression": sql(
            "CREATE TABLE v (a INTEGER PRIMARY KEY)", "CREATE INDEX i ON v (hex(zeroblob(a * 400000000)))"
        ),
        "a text of a hundred megabytes": sql(
            "CREATE TABLE v (a INTEGER PRIMARY KEY, b)", "INSERT INTO v VALUES (1, CAST(zeroblob(100000000) AS TEXT))"
        ),
        "keys of a megabyte": sql(
            "CREATE TABLE v (a PRIMARY KEY)",
            f"INSERT INTO v {ENDLESS} SELECT hex(zeroblob(500000 + x)) FROM c LIMIT 60",
        ),
        "a view that loops": sql(
            "CREATE VIEW v AS SELECT 1", schema.format("w", "CREATE VIEW w AS SELECT * FROM w, v")
        ),
        "a virtual table of the system": sql(
            "CREATE TABLE v (a)", schema.format("e", "CREATE VIRTUAL TABLE e USING fts5(a)").replace("view", "table")
        ),
        "zeros": _data(bytes(1 << 20)),
        "pages of bytes": _data(b"SQLite format 3\0" + b"\x10\x00\x01\x01" + b"\xff" * 1_000_000),
        "a pipe": os.mkfifo,
        "a device": lambda path: path.symlink_to("/dev/zero"),
        "a pipe as its log": _beside("-wal"),
        "a pipe as its journal": _beside("-journal"),
    }  # fmt: skip
    for name, write in files.items():
        yield case(f"a file of {name}", write)


def _data(data: bytes, times: int = 1) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(data * times)

    return write


def _beside(suffix: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        sql("CREATE TABLE v (a)")(path)
        os.mkfifo(f"{path}{suffix}")

    return write


def duckdb_files() -> Iterator[Case]:
    """Yield DuckDB files with views that compute without end, and files that are none."""
    views = {
        "a text of two gigabytes": "SELECT repeat('x', 2000000000) AS x",
        "a list without an end": "SELECT list(i) AS x FROM range(1000000000) r(i)",
        "a sort without an end": "SELECT i, repeat('x', 1000) AS x FROM range(100000000) r(i) ORDER BY hash(i)",
        "rows without an end": "SELECT i, repeat('x', 1000) AS x FROM range(1000000000) r(i)",
        "a count without an end": "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range*b.range%7=3",
    }
    for name, select in views.items():

        def write(path: Path, select: str = select) -> None:
            with contextlib.closing(duckdb.connect(str(path))) as connection:
                connection.execute(f"CREATE VIEW v AS {select}")

        yield duckdb_case(f"DuckDB: a view of {name}", "hostile.duckdb", write)
    yield duckdb_case("DuckDB: noise", "hostile.duckdb", _data(NOISE))
    yield duckdb_case("DuckDB: noise as Parquet", "v.parquet", _data(b"PAR1" + NOISE + b"\xff\xff\x0f\0PAR1"))
    yield duckdb_case("DuckDB: deep JSON", "v.json", _data(b"[", 10_000_000))
    yield duckdb_case("DuckDB: a line of CSV without an end", "v.csv", _data(b"x,", 100_000_000))


def duckdb_case(name: str, file: str, write: Callable[[Path], None]) -> Case:
    def source(directory: Path) -> SourceTable:
        write(directory / file)
        config = {"url": f"duckdb:///{directory / file}"}
        return {"name": "hostile", "type": "database", "config": config, "timeout": PATIENCE}

    return Case(name, source, "bb-database+hostile+duckdb", touch, quick=name in QUICK)


def servers() -> Iterator[Case]:
    """Yield servers of PostgreSQL that answer what they like."""
    for name in ATTACKS:

        def source(directory: Path, name: str = name) -> SourceTable:
            config = {"url": hostile_server(directory, name), "queries": {"q": "SELECT 1"}}
            return {"name": "hostile", "type": "database", "config": config, "timeout": PATIENCE}

        yield Case(name, source, "bb-database+hostile+postgres", ask, quick=name in QUICK)


def ask(directory: Path) -> Sequence[Sequence[str | Path]]:
    """Return the programs that list a server and run a query, several at once."""
    read = 'for n in 1 2 3 4 5 6; do cat "$1/query/q.csv" "$1/query/q.ndjson" "$1/public/t/row/$n.json" & done; wait'
    return [("ls", "-lR", directory), ("sh", "-c", read, "sh", directory)]


def case(name: str, write: Callable[[Path], None]) -> Case:
    programs, within = (touch_part, 90.0) if name in MANY_TABLES else (touch, 20.0)
    return Case(name, database(write), "bb-database+hostile+sqlite", programs, within, name in QUICK)


@pytest.mark.parametrize("case", [*views(), *schemas(), *duckdb_files(), *servers()], ids=str)
def test_a_hostile_database_harms_nobody(case: Case, holds: Callable[[Case], None]) -> None:
    holds(case)
