"""Rows that are written: the same on SQLite, DuckDB, PostgreSQL and MariaDB, and what differs."""

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pytest
import trio
from databases import handler, over, source_of, sqlite_file, text_of
from fakes import World
from mariadb_server import PASSWORD, MariadbServer, is_installed, mariadb_server
from postgres_server import PostgresServer
from writable import Program

from bbfs.model.errors import Busy, Conflict, Denied, NotFound, NotSupported, Rejected, TooLarge
from bbfs.model.values import Capabilities, DataSource
from bbfs.model.versions import Expected
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.database.handler import DatabaseHandler
from bbfs.sources.database.writing.rows import LARGEST_WRITTEN, parsed

NEW, OLD, ANY = Expected(exists=False), Expected(exists=True), Expected()
_numbers = count()
"""Of databases: each test has its own."""
TABLES = (
    "CREATE TABLE city (name varchar(40) PRIMARY KEY)",
    "INSERT INTO city VALUES ('Rome'), ('Oslo')",
    "CREATE TABLE person (id integer PRIMARY KEY, name varchar(40) NOT NULL UNIQUE, city varchar(40) DEFAULT 'Rome',"
    " age integer CHECK (age < 200), pay decimal(20, 2), photo BYTES, FOREIGN KEY (city) REFERENCES city (name))",
    "INSERT INTO person VALUES (1, 'Ann', 'Oslo', 30, 10.5, BLOB)",
    "CREATE TABLE pair (a varchar(9), b integer, note varchar(40), PRIMARY KEY (a, b))",
    "CREATE VIEW people AS SELECT id, name FROM person",
)


def _tables(kind: str, blob: str) -> list[str]:
    return [statement.replace("BYTES", kind).replace("BLOB", blob) for statement in TABLES]


LOCKING = (
    "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
    "c.execute('BEGIN IMMEDIATE'); print(flush=True); sys.stdin.read()"
)
"""A program that locks a file until its input ends."""


@contextmanager
def locked(path: Path, program: str = LOCKING) -> Iterator[None]:
    """Lock a file, from another process: locks of POSIX end when their process closes the file anywhere."""
    line = [sys.executable, "-c", program, path]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as locking:
        assert locking.stdout is not None
        locking.stdout.readline()
        yield


@dataclass(frozen=True)
class Written:
    """A database for one test. root: of its tables' native URIs."""

    source: DataSource
    root: str

    def uri(self, name: str) -> str:
        return f"{self.root}/{name}.json"


def _writable(source: DataSource) -> DataSource:
    return replace(source, capabilities=Capabilities(write=True))


def sqlite(path: Path) -> Written:
    url = sqlite_file(path / "people.db", ";".join(_tables("blob", "x'00ff'")))
    return Written(_writable(source_of(url)), "sqlite://main")


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariadbServer]:
    if not is_installed():
        pytest.skip("MariaDB is not installed (scripts/install-system run test)")
    with mariadb_server() as running:
        yield running


def duckdb_file(path: Path) -> Written:
    with closing(duckdb.connect(str(path / "people.duckdb"))) as connection:
        for statement in _tables("blob", r"'\x00\xff'::blob"):
            connection.execute(statement)
    return Written(_writable(source_of(f"duckdb:///{path / 'people.duckdb'}")), "duckdb://main")


@pytest.fixture(params=["sqlite", "duckdb", "postgres", "mariadb"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    if request.param == "sqlite":
        return sqlite(tmp_path)
    if request.param == "duckdb":
        return duckdb_file(tmp_path)
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        name = server.create(f"people_{next(_numbers)}", _tables("bytea", r"'\x00ff'"))
        return Written(_writable(over(server, name)), "postgres://public")
    running: MariadbServer = request.getfixturevalue("mariadb")
    name = f"people_{next(_numbers)}"
    url = running.create(name, _tables("varbinary(9)", "x'00ff'"), "ALL PRIVILEGES")
    return Written(_writable(source_of(url, auth={"password": PASSWORD})), f"mysql://{name}")


async def put(made: DatabaseHandler, uri: str, row: object, expected: Expected = ANY) -> None:
    text = row if isinstance(row, str) else json.dumps(row)
    assert (await made.write(uri, MemoryContent(text.encode()), expected)).native_uri == uri


async def row_of(made: DatabaseHandler, uri: str) -> Any:
    return json.loads(await text_of(made, uri))


@pytest.mark.semantics("S32", "S33")
async def test_a_row_is_made_replaced_and_removed(written: Written) -> None:
    async with handler(written.source) as made:
        ann, bob = written.uri("person/row/1"), written.uri("person/row/2")
        assert set(made.writes(ann)) == {"create", "replace", "remove"}
        before = await row_of(made, ann)
        await put(made, ann, await text_of(made, ann), OLD)  # what is the same changes nothing
        assert await row_of(made, ann) == before
        await put(made, ann, {"age": 31, "city": None}, OLD)  # what is absent stays
        assert await row_of(made, ann) == {**before, "age": 31, "city": None}
        pay = "1234567890123.25" if written.root.startswith("sqlite") else "123456789012345678.25"
        await put(made, ann, f'{{"pay": {pay}, "photo": "\\\\x0102"}}')
        assert f'"pay":{pay}' in await text_of(made, ann)
        assert (await row_of(made, ann))["photo"] == "\\x0102"
        await put(made, bob, {"name": "Bob"}, NEW)
        assert await row_of(made, bob) == {
            "id": 2, "name": "Bob", "city": "Rome", "age": None, "pay": None, "photo": None
        }  # fmt: skip
        await put(made, written.uri("pair/row/x~,y,3"), {"a": "x,y", "note": "ä\n"}, NEW)
        assert await row_of(made, written.uri("pair/row/x~,y,3")) == {"a": "x,y", "b": 3, "note": "ä\n"}
        await made.remove(bob, OLD)
        with pytest.raises(NotFound):
            await made.load(bob)
        with pytest.raises(NotFound):
            await made.remove(bob, Expected())


@pytest.mark.semantics("S32")
async def test_what_is_made_of_rows_shows_a_written_row_at_once(tmp_path: Path) -> None:
    source = sqlite(tmp_path).source
    source = replace(source, config={**source.config, "queries": {"ages": "SELECT sum(age) AS ages FROM person"}})
    async with handler(source) as made, trio.open_nursery() as nursery, World(nursery, made) as world:
        program = Program(world)
        root = f"{source.uri_prefix}"
        person = f"{root}/main/person"
        files = [f"{person}/rows.csv", f"{person}/count", f"{root}/query/ages.ndjson"]

        async def shown() -> list[bytes]:
            rows, *others = [await program.cat(each) for each in files]
            return [rows.splitlines()[-1][:5], *others]

        assert await shown() == [b"1,Ann", b"1\n", b'{"ages":30}\n']
        await program.save(f"{person}/row/2.json", b'{"name": "Bob", "age": 5}')
        assert await shown() == [b"2,Bob", b"2\n", b'{"ages":35}\n']
        await program.unlink(f"{person}/row/2.json")
        assert await shown() == [b"1,Ann", b"1\n", b'{"ages":30}\n']
        nursery.cancel_scope.cancel()


@pytest.mark.semantics("S32.8")
async def test_of_two_writers_one_gets_a_conflict(written: Written) -> None:
    async with handler(written.source) as made:
        ann, bob = written.uri("person/row/1"), written.uri("person/row/2")
        version = (await made.load(ann)).parts[0].content.version
        await put(made, ann, {"age": 40}, Expected(exists=True, version=version))
        for expected in (Expected(exists=True, version=version), NEW):
            with pytest.raises(Conflict):
                await put(made, ann, {"age": 50}, expected)
        with pytest.raises(Conflict):
            await made.remove(ann, Expected(exists=True, version=version))
        with pytest.raises(Conflict):
            await put(made, bob, {"name": "Bob"}, OLD)
        assert (await row_of(made, ann))["age"] == 40
        ended: list[str] = []

        async def create(name: str) -> None:
            try:
                await put(made, bob, {"name": name}, NEW)
                ended.append("made")
            except (Conflict, Busy) as error:
                ended.append(type(error).__name__)

        async with handler(written.source) as other, trio.open_nursery() as nursery:
            nursery.start_soon(create, "Bob")
            nursery.start_soon(create, "Ben")
            await other.load(ann)
        assert sorted(ended) == ["Conflict", "made"]


@pytest.mark.semantics("S32")
async def test_what_the_database_refuses_changes_nothing(written: Written) -> None:
    async with handler(written.source) as made:
        ann, bob, root = written.uri("person/row/1"), written.uri("person/row/2"), written.root
        before = await text_of(made, ann)
        await put(made, written.uri("person/row/3"), {"name": "Carl"})
        refused: list[tuple[str, object, str]] = [
            (ann, {"name": "Carl"}, "(?i)unique|duplicate"),
            (ann, {"name": None}, "(?i)null"),
            (ann, {"city": "Atlantis"}, "(?i)foreign key"),
            (ann, {"age": 200}, "(?i)check|constraint"),
            (ann, {"age": "old"}, "age|integer"),
            (ann, {"nothing": 1}, "no column of person"),
            (ann, {"id": 2}, "in the name of the row"),
            (bob, {"id": 1, "name": "Bob"}, "another key than its name: id"),
            (ann, {"name": ["A"] * 40}, "name|too long"),
            (ann, "[]", "JSON object"),
            (ann, "", "JSON object"),
            (ann, '{"age": 1, "age": 2}', "twice"),
            (ann, '{"age": NaN}', "NaN"),
            (ann, '{"a":' * 500 + "1" + "}" * 500, "deep"),
            (bob, {"id": 4, "name": "Bob"}, "another key"),
            (bob, {"age": 3}, "(?i)null|default"),
            (f"{root}/person/row/x.json", {"name": "Bob"}, "(?i)mismatch|integer|no value"),
            (f"{root}/pair/row/x.json", {}, "no key"),
        ]
        for uri, row, words in refused:
            with pytest.raises(Rejected, match=words):
                await put(made, uri, row)
        with pytest.raises(TooLarge, match=str(LARGEST_WRITTEN)):
            await put(made, ann, " " * (LARGEST_WRITTEN + 1))
        assert await text_of(made, ann) == before
        with pytest.raises(NotFound):
            await made.load(bob)
        for name in ("person/rows.csv", "person/columns.json", "person/schema.sql", "person/by/name/Ann/1.json", "x"):
            assert not made.writes(f"{root}/{name}")
        with pytest.raises(NotSupported):
            await put(made, written.uri("people/row/1"), {"name": "Bob"})


async def test_without_the_capability_nothing_is_written(tmp_path: Path) -> None:
    written = sqlite(tmp_path)
    async with handler(replace(written.source, capabilities=Capabilities())) as made:
        assert not made.writes(written.uri("person/row/1"))
        with pytest.raises(NotSupported):
            await put(made, written.uri("person/row/1"), {"age": 1})


@pytest.mark.semantics("S32.4")
async def test_a_killed_write_to_sqlite_leaves_the_old_row(tmp_path: Path) -> None:
    people = sqlite(tmp_path)
    path = tmp_path / "people.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")  # so that pages are written before the commit
        connection.execute("PRAGMA cache_spill = 1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE person SET age = 99, photo = zeroblob(1000000)")
        connection.execute("UPDATE person SET photo = zeroblob(2000000)")
        half = tmp_path / "half"
        half.mkdir()
        for name in ("people.db", "people.db-journal"):  # as a process leaves them that dies now
            (half / name).write_bytes((tmp_path / name).read_bytes())
    source = replace(people.source, config={"url": f"sqlite:///{half / 'people.db'}"})
    async with handler(source) as made:
        assert (await row_of(made, people.uri("person/row/1")))["age"] == 30
        await put(made, people.uri("person/row/1"), {"age": 32}, OLD)
        assert (await row_of(made, people.uri("person/row/1")))["age"] == 32


async def test_a_locked_file_is_busy_and_a_trigger_speaks(tmp_path: Path) -> None:
    people = sqlite(tmp_path)
    source = replace(people.source, policy=replace(people.source.policy, timeout=0.2))
    with closing(sqlite3.connect(tmp_path / "people.db", isolation_level=None)) as connection:
        connection.execute(
            "CREATE TRIGGER no BEFORE UPDATE ON person WHEN new.age = 13 BEGIN SELECT RAISE(ABORT, 'no luck'); END"
        )
        async with handler(source) as made:
            with pytest.raises(Rejected, match="no luck"):
                await put(made, people.uri("person/row/1"), {"age": 13})
            with locked(tmp_path / "people.db"), pytest.raises(Busy):
                await put(made, people.uri("person/row/1"), {"age": 14})


KEEPING = (
    "CREATE TABLE kept (id integer PRIMARY KEY, v text)",
    "INSERT INTO kept VALUES (1, 'a')",
)
"""A table for triggers that keep its rows as they are."""


def _triggered(request: pytest.FixtureRequest, path: Path, events: Sequence[str], lite: str, postgres: str) -> Written:
    """Return the table with a trigger at some events, whose body is written for each of the two databases."""
    if request.param == "sqlite":
        triggers = (f"CREATE TRIGGER t{n} {event} ON kept BEGIN {lite}; END" for n, event in enumerate(events))
        url = sqlite_file(path / "kept.db", ";".join([*KEEPING, *triggers]))
        return Written(_writable(source_of(url)), "sqlite://main")
    server: PostgresServer = request.getfixturevalue("postgres")
    triggers = (
        f"CREATE FUNCTION triggered() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {postgres}; END'",
        *(f"CREATE TRIGGER t{n} {e} ON kept FOR EACH ROW EXECUTE FUNCTION triggered()" for n, e in enumerate(events)),
    )
    name = server.create(f"triggered_{next(_numbers)}", [*KEEPING, *triggers])
    return Written(_writable(over(server, name)), "postgres://public")


@pytest.fixture(params=["sqlite", "postgres"])
def keeping(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    """A table whose triggers ignore updates and removals."""
    events = ("BEFORE UPDATE", "BEFORE DELETE")
    return _triggered(request, tmp_path, events, "SELECT RAISE(IGNORE)", "RETURN NULL")


@pytest.fixture(params=["sqlite", "postgres"])
def making_again(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    """A table whose trigger makes each removed row again."""
    again = "INSERT INTO kept VALUES (old.id, old.v)"
    return _triggered(request, tmp_path, ["AFTER DELETE"], again, f"{again}; RETURN NULL")


@pytest.mark.semantics("S32")
async def test_a_trigger_that_keeps_the_row_refuses_the_write(keeping: Written) -> None:
    async with handler(keeping.source) as made:
        kept = keeping.uri("kept/row/1")
        with pytest.raises(Rejected, match="trigger, rule"):
            await put(made, kept, {"v": "b"}, OLD)
        with pytest.raises(Rejected, match="trigger, rule"):
            await made.remove(kept, OLD)
        assert await row_of(made, kept) == {"id": 1, "v": "a"}


@pytest.mark.semantics("S32")
async def test_a_row_that_is_there_after_its_removal_is_not_removed(making_again: Written) -> None:
    async with handler(making_again.source) as made:
        with pytest.raises(Rejected, match="again"):
            await made.remove(making_again.uri("kept/row/1"), OLD)
        assert await row_of(made, making_again.uri("kept/row/1")) == {"id": 1, "v": "a"}


@pytest.mark.parametrize("kind", ["VIRTUAL", "STORED"])
async def test_sqlite_refuses_a_value_for_a_generated_column(tmp_path: Path, kind: str) -> None:
    table = f"CREATE TABLE odd (id integer PRIMARY KEY, v text, g int GENERATED ALWAYS AS (id * 2) {kind})"
    url = sqlite_file(tmp_path / "odd.db", f"{table}; INSERT INTO odd (id, v) VALUES (1, 'a')")
    async with handler(_writable(source_of(url))) as made:
        one, two = (f"sqlite://main/odd/row/{number}.json" for number in (1, 2))
        for uri in (one, two):
            with pytest.raises(Rejected, match=r"g .*generated"):
                await put(made, uri, {"v": "b", "g": 7})
        await put(made, one, {**await row_of(made, one), "v": "b"})  # what the database has computed stays
        assert await row_of(made, one) == {"id": 1, "v": "b", "g": 2}


@pytest.mark.semantics("S32")
async def test_sqlite_stores_a_number_as_it_is_written_or_refuses_it(tmp_path: Path) -> None:
    table = "CREATE TABLE odd (id integer PRIMARY KEY, r real, n numeric, f floating point, x, t text)"
    url = sqlite_file(tmp_path / "odd.db", f"{table}; INSERT INTO odd (id) VALUES (1)")
    large, long, huge = "9007199254740993", "0.1234567890123456789", "1e400"
    stored = [
        *(("r", "0.1", 0.1), ("r", "1.50", 1.5), ("r", "9007199254740994", 9007199254740994.0), ("r", "true", 1.0)),
        *(("r", "0.10000000000000001", 0.1), ("n", "3.1415899999999999", 3.14159), ("x", "1e-7", 1e-7)),
        *(("n", large, int(large)), ("n", f"{large}.0", int(large)), ("n", f'"{large}"', int(large))),
        *(("n", '"1.50"', 1.5), ("n", '"2026-01-02"', "2026-01-02"), ("n", '"1_0"', "1_0"), ("n", "1.5e300", 1.5e300)),
        *(("n", "1.152921504606847e18", 1152921504606847000), ("f", large, int(large)), ("x", large, int(large))),
        *(("x", "2.0", 2.0), ("x", f'"{long}"', long), ("t", long, long), ("t", large, large)),
    ]
    refused = [("r", large), ("r", long), ("r", huge), ("n", long), ("n", f'"{long}"'), ("n", f'"{huge}"')]
    refused += [("n", '"123456789012345678.25"'), ("f", long), ("x", long), ("x", f"{large}.0")]
    refused += [("r", "12345678901234567.89")]
    async with handler(_writable(source_of(url))) as made:
        one = "sqlite://main/odd/row/1.json"
        for column, written, value in stored:
            await put(made, one, f'{{"{column}": {written}}}')
            found = (await row_of(made, one))[column]
            assert (found, type(found)) == (value, type(value)), (column, written)
        before = await text_of(made, one)
        for column, written in refused:
            with pytest.raises(Rejected, match="would be stored as"):
                await put(made, one, f'{{"t": "new", "{column}": {written}}}')
            with pytest.raises(Rejected, match="would be stored as"):
                await put(made, "sqlite://main/odd/row/2.json", f'{{"{column}": {written}}}')
        assert await text_of(made, one) == before
        begin = time.process_time()
        await put(made, one, {"n": "1" * 80_000 + "a"})
        assert time.process_time() - begin < 20, "no time that grows faster than the row"


@pytest.mark.semantics("S32")
async def test_sqlite_keeps_what_any_column_of_a_strict_table_gets(tmp_path: Path) -> None:
    tables = "CREATE TABLE kept (id ANY PRIMARY KEY, v ANY) STRICT; CREATE TABLE loose (id integer PRIMARY KEY, v ANY)"
    rows = "INSERT INTO kept VALUES (7, 'number'), ('7', 'text'); INSERT INTO loose VALUES (7, NULL)"
    url = sqlite_file(tmp_path / "any.db", f"{tables}; {rows}")
    long = "0.1234567890123456789"
    async with handler(_writable(source_of(url))) as made:
        kept, loose = (f"sqlite://main/{table}/row/7.json" for table in ("kept", "loose"))
        for value in ("007", "1e3", long, 7, 2.0, "2.0", "word"):
            await put(made, kept, {"v": value})
            found = (await row_of(made, kept))["v"]
            assert (found, type(found)) == (value, type(value))
        assert await row_of(made, "sqlite://main/kept/row/~t7.json") == {"id": "7", "v": "text"}
        await put(made, loose, {"v": "007"})
        assert (await row_of(made, loose))["v"] == 7
        with pytest.raises(Rejected, match="would be stored as"):
            await put(made, loose, {"v": long})


@pytest.mark.semantics("S23")
async def test_a_role_that_may_only_read_is_denied(postgres: PostgresServer) -> None:
    statements = [
        *_tables("bytea", r"'\x00ff'"),
        "CREATE ROLE reader LOGIN PASSWORD 'reader'",
        "GRANT SELECT ON person TO reader",
    ]
    url = postgres.url(postgres.create("reading", statements), "reader", "reader")
    async with handler(_writable(source_of(url))) as made:
        with pytest.raises(Denied, match="permission denied"):
            await put(made, "postgres://public/person/row/1.json", {"age": 1})


async def test_postgres_takes_back_what_it_has_written(postgres: PostgresServer) -> None:
    statements = (
        "CREATE TABLE odd (id integer PRIMARY KEY, a text[], j jsonb, n numeric, f float8, ts timestamptz,"
        " iv interval, g integer GENERATED ALWAYS AS (id * 2) STORED)",
        "INSERT INTO odd VALUES (1, '{x,NULL}', '{\"k\": [1, 2.50]}', 'NaN', 'infinity', 'infinity', '1 day 2 s')",
    )
    async with handler(_writable(over(postgres, postgres.create("odd_written", statements)))) as made:
        one, two = (f"postgres://public/odd/row/{number}.json" for number in (1, 2))
        row = await row_of(made, one)
        with pytest.raises(Rejected, match=r"generated|non-DEFAULT"):
            await put(made, two, {**row, "id": 2, "g": 4})
        copy = {name: value for name, value in row.items() if name not in ("id", "g")}
        await put(made, two, copy)
        assert await row_of(made, two) == {**row, "id": 2, "g": 4}
        await put(made, one, {**row, "a": ["y"], "j": None, "n": 1})
        assert await row_of(made, one) == {**row, "a": ["y"], "j": None, "n": 1}


async def test_a_domain_of_postgres_that_is_never_null_can_be_written(postgres: PostgresServer) -> None:
    statements = (
        "CREATE SCHEMA kinds",
        "CREATE DOMAIN kinds.\"a name\" AS varchar(9) NOT NULL CHECK (value <> 'no')",
        'CREATE TABLE named ("the id" integer, b integer DEFAULT 7, a kinds."a name", c text, PRIMARY KEY ("the id"))',
        "INSERT INTO named VALUES (1, 2, 'x', 'y')",
    )
    async with handler(_writable(over(postgres, postgres.create("domains", statements)))) as made:
        one, two, three = (f"postgres://public/named/row/{number}.json" for number in (1, 2, 3))
        await put(made, one, {"c": "z"}, OLD)
        await put(made, two, {"a": "new"}, NEW)
        await put(made, three, {**await row_of(made, one), "the id": 3, "a": "all"}, NEW)
        rows = [list((await row_of(made, each)).values()) for each in (one, two, three)]
        assert rows == [[1, 2, "x", "z"], [2, 7, "new", None], [3, 2, "all", "z"]]
        for row in ({"a": None}, {"a": "no"}, {"a": "longer than that"}):
            with pytest.raises(Rejected):
                await put(made, one, row)
        with pytest.raises(Rejected):
            await put(made, "postgres://public/named/row/4.json", {"c": "z"})


async def test_a_stored_value_that_nobody_may_write_leaves_the_row_writable(postgres: PostgresServer) -> None:
    large, twice = "7" * 5000, '{"b": 1, "a": 2, "a": 3}'
    statements = (
        "CREATE TABLE odd (id integer PRIMARY KEY, name text, j json, n numeric)",
        f"INSERT INTO odd VALUES (1, 'one', '{twice}', {large}), (2, 'two', '[1e99999999999999999999]', 1)",
    )
    async with handler(_writable(over(postgres, postgres.create("odd_stored", statements)))) as made:
        one, two = (f"postgres://public/odd/row/{number}.json" for number in (1, 2))
        await put(made, one, {"name": "uno"}, OLD)
        await put(made, two, {"name": "dos"}, OLD)
        kept = await text_of(made, one)
        assert all(part in kept for part in ('"uno"', twice, large))
        assert '"dos"' in await text_of(made, two)
        with pytest.raises(Rejected, match="a name twice: a"):
            await put(made, one, kept.replace("uno", "eins").replace(large, "1"))
        await put(made, one, {"j": {"b": 1, "a": 3}, "n": 1})  # as a lenient reader has understood it: this is a change
        assert await text_of(made, one) == kept.replace(twice, '{"b": 1, "a": 3}').replace(large, "1")


@pytest.mark.parametrize("text", ['{"a": 1.10}', '{"a": [1.5, {"b": 1e400}]}'])
def test_numbers_are_compared_by_value_and_not_as_floats(text: str) -> None:
    assert parsed(text).values != parsed(text.replace("1", "1" + "0" * 20)).values


async def test_duckdb_takes_back_what_it_has_written(tmp_path: Path) -> None:
    url = f"duckdb:///{tmp_path / 'odd.duckdb'}"
    with closing(duckdb.connect(str(tmp_path / "odd.duckdb"))) as connection:
        connection.execute(
            "CREATE TABLE odd (id integer PRIMARY KEY, a varchar[], s STRUCT(k integer, t varchar), j json, h hugeint,"
            " ts timestamp, d date, iv interval, u uuid, b boolean, f double, g integer AS (id * 2))"
        )
        connection.execute(
            "INSERT INTO odd VALUES (1, ['x', NULL], {'k': 1, 't': 'ä'}, '{\"k\": [1]}', "
            " 170141183460469231731687303715884, '2026-01-02 03:04:05.678', '2026-01-02', "
            " INTERVAL 2 DAY, uuid(), true, 'infinity')"
        )
    async with handler(_writable(source_of(url))) as made:
        one, two = (f"duckdb://main/odd/row/{number}.json" for number in (1, 2))
        row = await row_of(made, one)
        with pytest.raises(Rejected, match="generated"):
            await put(made, two, {**row, "id": 2, "g": 4})
        for name, value in (("id", 1.5), ("a", 3), ("b", "maybe"), ("d", {"k": 1}), ("j", "{")):
            with pytest.raises(Rejected, match=name):
                await put(made, two, {name: value})
        copy = {name: value for name, value in row.items() if name not in ("id", "g")}
        await put(made, two, copy)
        assert await row_of(made, two) == {**row, "id": 2, "g": 4}


@pytest.mark.semantics("S32")
async def test_a_write_to_duckdb_waits_for_readers_and_says_that_the_file_is_locked(tmp_path: Path) -> None:
    people = duckdb_file(tmp_path)
    ann = people.uri("person/row/1")
    async with handler(people.source) as made:
        async with trio.open_nursery() as nursery:
            for age in range(40, 44):
                nursery.start_soon(put, made, ann, {"age": age})
                nursery.start_soon(made.load, ann)
        assert (await row_of(made, ann))["age"] in range(40, 44)
    locking = "import duckdb, sys; c = duckdb.connect(sys.argv[1], read_only=True); print(flush=True); sys.stdin.read()"
    source = replace(people.source, policy=replace(people.source.policy, timeout=0.2))
    async with handler(source) as made:
        with locked(tmp_path / "people.duckdb", locking):
            assert (await row_of(made, ann))["name"] == "Ann"
            with pytest.raises(Busy, match="lock"):
                await put(made, ann, {"age": 14})
    async with handler(_writable(source_of(f"duckdb:///{tmp_path}"))) as made:
        assert not made.writes("duckdb://main/a.parquet/row/1.json")
