"""DuckDB files and folders of data files as sources: their tree, and what they cannot do."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import ClassVar

import duckdb
import pytest
import trio
from databases import handler, source_of, text_of
from test_conformance_database import QUERIES, STATEMENTS, listed_of, unknown_of

from bbfs.model.errors import BbfsError, Busy, ConfigError, Denied, ProtocolViolation, TooLarge, Unreachable
from bbfs.model.values import Policy
from bbfs.sources import Handler, Services
from bbfs.sources.database.handler import DatabaseHandler
from bbfs.sources.factory import build
from bbfs.testing import SourceConformance


def made_file(path: Path, statements: Sequence[str]) -> str:
    """Make a database with these statements run. Return its URL."""
    with closing(duckdb.connect(str(path))) as connection:
        for statement in statements:
            connection.execute(statement)
    return f"duckdb:///{path}"


class TestDuckdb(SourceConformance):
    known: ClassVar = listed_of("duckdb", "main")
    unknown: ClassVar = unknown_of("duckdb", "main")

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        url = made_file(directory / "a b.duckdb", STATEMENTS)
        async with aclosing(DatabaseHandler(source_of(url, queries=QUERIES), Services())) as made:
            yield made


def read_parquet(directory: Path, data: bytes) -> list[tuple[object, ...]]:
    (directory / "read.parquet").write_bytes(data)
    with closing(duckdb.connect()) as connection:
        return connection.execute("SELECT * FROM read_parquet(?)", [str(directory / "read.parquet")]).fetchall()


async def bytes_of(made: DatabaseHandler, native_uri: str) -> bytes:
    content = (await made.load(native_uri)).parts[0].content
    return content.read(0, content.size) or b""


async def test_rows_are_parquet_too_and_a_large_table_has_parts(tmp_path: Path) -> None:
    statements = (
        "CREATE TABLE t (id bigint PRIMARY KEY, v varchar)",
        "INSERT INTO t SELECT i, 'v' || i FROM range(2500) r(i)",
    )
    url = made_file(tmp_path / "a.duckdb", statements)
    async with handler(source_of(url)) as made:
        names = {entry.name for entry in (await made.list_directory(("main", "t"))).resources}
        assert names == {"schema.sql", "columns.json", "rows.csv", "rows.ndjson", "rows.parquet", "count", "row"}
        rows = read_parquet(tmp_path, await bytes_of(made, "duckdb://main/t/rows.parquet"))
        assert rows == [(number, f"v{number}") for number in range(2500)]
    async with handler(source_of(url, row_limit=1000)) as made:
        parts = (await made.list_directory(("main", "t", "rows"))).resources
        names = [part.name for part in parts]
        assert names == ["0000001-0001000.csv", "0001001-0002000.csv", "0002001-0003000.csv"]
        text = "".join([(await text_of(made, part.native_uri)).partition("\n")[2] for part in parts])
        assert text.splitlines() == [f"{number},v{number}" for number in range(2500)]
        assert len(read_parquet(tmp_path, await bytes_of(made, "duckdb://main/t/rows/1-10.parquet"))) == 10


async def test_values_of_nested_types_are_json(tmp_path: Path) -> None:
    statements = (
        "CREATE TABLE t (id integer PRIMARY KEY, d decimal(10, 2), l integer[], s struct(a int, b text), x blob)",
        "INSERT INTO t VALUES (1, 1.50, [1, NULL], {'a': 1, 'b': 'x'}, '\\x00\\xFF'::blob)",
    )
    async with handler(source_of(made_file(tmp_path / "a.duckdb", statements))) as made:
        assert await text_of(made, "duckdb://main/t/rows.csv") == (
            'id,d,l,s,x\n1,1.50,"[1,null]","{""a"":1,""b"":""x""}",\\x00ff\n'
        )
        assert await text_of(made, "duckdb://main/t/rows.ndjson") == (
            '{"id":1,"d":1.50,"l":[1,null],"s":{"a":1,"b":"x"},"x":"\\\\x00ff"}\n'
        )


async def test_a_folder_shows_its_data_files_as_tables(tmp_path: Path) -> None:
    folder = tmp_path / "it's data"
    (folder / "sub").mkdir(parents=True)
    with closing(duckdb.connect()) as connection:
        for name in ("a.parquet", "b.csv", "sub/c.json"):
            path = str(folder / name).replace("'", "''")
            connection.execute(f"COPY (SELECT i AS n, 'x' || i AS t FROM range(50) r(i)) TO '{path}'")
    (folder / "notes.txt").write_text("no data")
    (tmp_path / "outside.csv").write_text("secret\n1\n")
    (folder / "link.csv").symlink_to(tmp_path / "outside.csv")
    async with handler(source_of(f"duckdb:///{folder}", row_limit=20)) as made:
        assert [entry.name for entry in (await made.list_directory(())).resources] == ["main"]
        tables = {entry.name: entry for entry in (await made.list_directory(("main",))).resources}
        assert set(tables) == {"a.parquet", "b.csv", "sub%2Fc.json"}
        expected = "n,t\n" + "".join(f"{n},x{n}\n" for n in range(50))
        for entry in tables.values():
            assert await text_of(made, f"{entry.native_uri}/rows.csv") == expected
            assert await text_of(made, f"{entry.native_uri}/count") == "50\n"
        parts = (await made.list_directory(("main", "a.parquet", "rows"))).resources
        text = "".join([(await text_of(made, part.native_uri)).partition("\n")[2] for part in parts])
        assert (len(parts), text) == (3, expected.partition("\n")[2])
        assert "read_csv('b.csv')" in await text_of(made, "duckdb://main/b.csv/schema.sql")
    async with handler(source_of(f"duckdb:///{folder}/a.parquet")) as made:
        assert await text_of(made, "duckdb://main/a.parquet/count") == "50\n"


@pytest.mark.semantics("S28", "S29")
@pytest.mark.parametrize(
    "select",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_csv('{directory}/other.csv')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM read_parquet('http://127.0.0.1:9/x')",
        "SELECT * FROM duckdb_secrets()",
        "ATTACH '{directory}/b.duckdb'",
        "COPY t TO '{directory}/out.csv'",
        "INSTALL httpfs",
        "SET memory_limit = '9GB'",
        "SELECT 1; SELECT 2",
        "INSERT INTO t VALUES (2)",
    ],
)
async def test_a_query_reads_the_database_alone(tmp_path: Path, select: str) -> None:
    (tmp_path / "other.csv").write_text("x\n1\n")
    url = made_file(tmp_path / "a.duckdb", ("CREATE TABLE t (x integer)",))
    before = sorted(os.listdir(tmp_path))
    async with handler(source_of(url, queries={"q": select.format(directory=tmp_path)})) as made:
        with pytest.raises(BbfsError) as caught:
            await made.load("duckdb://query/q.csv")
        assert caught.type in (Denied, BbfsError)
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.semantics("S12", "S15", "S22")
@pytest.mark.parametrize(
    "select",
    [
        "SELECT repeat('x', 2000000000) AS x",
        "SELECT list(i) AS x FROM range(1000000000) r(i)",
        "SELECT i, repeat('x', 1000) AS x FROM range(100000000) r(i) ORDER BY hash(i)",
        "SELECT count(*) AS x FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3",
    ],
)
async def test_what_a_view_computes_is_bounded(tmp_path: Path, select: str) -> None:
    url = made_file(tmp_path / "a.duckdb", ("CREATE TABLE t (x integer)", f"CREATE VIEW v AS {select}"))
    async with handler(source_of(url, Policy(timeout=20))) as made:
        assert {entry.name for entry in (await made.list_directory(("main", "v"))).resources} == {
            "schema.sql",
            "columns.json",
        }
        with trio.move_on_after(2):
            with pytest.raises(TooLarge, match="max_memory"):
                await made.load("duckdb://main/v/rows.csv")
        assert await text_of(made, "duckdb://main/t/count") == "0\n"


@pytest.mark.semantics("S23")
async def test_what_is_no_database_or_locked_is_said(tmp_path: Path) -> None:
    async with handler(source_of(f"duckdb:///{tmp_path}/none.duckdb")) as made:
        with pytest.raises(Unreachable, match="No such file"):
            await made.list_directory(())
    (tmp_path / "a.duckdb").write_bytes(b"no database " * 1000)
    async with handler(source_of(f"duckdb:///{tmp_path}/a.duckdb")) as made:
        with pytest.raises(ProtocolViolation, match="not a valid"):
            await made.list_directory(())
    url = made_file(tmp_path / "b.duckdb", ("CREATE TABLE t (x integer)",))
    # Another process: to open and close a file takes the locks of this process from it (fcntl(2)).
    lock = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('locked', flush=True); sys.stdin.read()"
    command = [sys.executable, "-I", "-c", lock, str(tmp_path / "b.duckdb")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:  # noqa: ASYNC220
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"locked\n"
        async with handler(source_of(url)) as made:
            with pytest.raises(Busy, match="lock"):
                await made.list_directory(())
        writer.communicate()


@pytest.mark.parametrize("url", ["duckdb://", "duckdb:///x?access_mode=read_write", "duckdb+x:///x"])
def test_options_of_a_url_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="expected a file or folder"):
        build(source_of(url), Services())
