"""SQLite files of a stranger: what they compute is bounded, ends with the request, and takes the process alone."""

import os
import sqlite3
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
import trio
from databases import handler, source_of, text_of, until
from hostile_database import EXPENSIVE, column_file, looped_page, many_tables, view_file
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bbfs.model.errors import BbfsError, DeadlineExceeded, ProtocolViolation, TooLarge
from bbfs.model.values import Policy
from bbfs.sources.database.names import TaggedText
from bbfs.sources.database.sqlite.database import SqliteDatabase
from bbfs.sources.database.tables import Column, ForeignKey, Schema, Table, TableIndex
from bbfs.sources.database.wire import decode, encode


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("name", EXPENSIVE)
@pytest.mark.semantics("S2", "S12", "S15", "S22")
async def test_a_view_costs_nothing_to_list_and_ends_when_it_is_opened(tmp_path: Path, name: str) -> None:
    path = view_file(tmp_path / "a.db", name)
    async with handler(source_of(f"sqlite:///{path}", Policy(timeout=20))) as made:
        before = resident()
        with trio.fail_after(30):
            assert {each.name for each in (await made.list_directory(("main",))).resources} == {"good", "bad"}
            entries = (await made.list_directory(("main", "bad"))).resources
            assert {each.name for each in entries} == {"columns.json", "schema.sql"}
            for file in ("rows.csv", "rows.ndjson", "count"):
                with trio.move_on_after(0.5):
                    try:
                        await made.load(f"sqlite://main/bad/{file}")
                    except BbfsError as error:
                        assert type(error) in (TooLarge, ProtocolViolation, BbfsError)  # noqa: PT017
            assert await text_of(made, "sqlite://main/good/rows.csv") == "x\n7\n"
        assert resident() - before < 200 << 20


def test_a_view_without_columns_is_resolved_once_until_its_schema_changes(tmp_path: Path) -> None:
    class Traced(SqliteDatabase):
        def extend(self, connection: sqlite3.Connection) -> None:
            connection.set_trace_callback(asked.append)

    def described() -> tuple[list[str], bool]:
        """The columns of the view, and whether SQLite has resolved it."""
        asked.clear()
        try:
            columns = [column.name for column in database.begin().table("main", "v").columns]
        finally:
            database.end()
        return columns, any("table_xinfo" in each for each in asked)

    asked: list[str] = []
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as stranger:
        stranger.execute("CREATE VIEW v AS SELECT * FROM later")
        database = Traced(str(path), 1.0)
        assert described() == ([], True)
        assert described() == ([], False)
        stranger.execute("CREATE TABLE later (x)")
        assert described() == (["x"], True)
        assert described() == (["x"], True)


async def test_a_computed_column_is_bounded_as_a_view_is(tmp_path: Path) -> None:
    path = column_file(tmp_path / "a.db")
    async with handler(source_of(f"sqlite:///{path}")) as made:
        entries = (await made.list_directory(("main", "bad"))).resources
        assert {each.name for each in entries} == {"columns.json", "schema.sql", "row", "rows"}
        for file in ("rows.csv", "rows/1-900000000.csv", "row/900000000.json"):
            with pytest.raises(TooLarge, match="max_memory"):
                await made.load(f"sqlite://main/bad/{file}")
        assert await text_of(made, "sqlite://main/good/rows.csv") == "x\n7\n"


async def test_a_chain_of_pages_that_goes_round_ends(tmp_path: Path) -> None:
    path = looped_page(tmp_path / "a.db")
    async with handler(source_of(f"sqlite:///{path}")) as made:
        assert (await made.load("sqlite://main/bad/rows.csv")).parts[0].content.size < 1 << 20
        assert (await made.list_directory(("main",))).resources


async def test_the_value_of_a_row_has_a_bound_that_an_option_sets(tmp_path: Path) -> None:
    path = view_file(tmp_path / "a.db", "a blob of a gigabyte")
    queries = {"large": "SELECT zeroblob(20000000) AS x"}
    async with handler(source_of(f"sqlite:///{path}", max_memory="64MiB", queries=queries)) as made:
        with pytest.raises(TooLarge, match="max_memory"):
            await made.load("sqlite://query/large.csv")
    async with handler(source_of(f"sqlite:///{path}", max_memory="512MiB", queries=queries)) as made:
        assert (await made.load("sqlite://query/large.csv")).parts[0].content.size == 40_000_005


async def test_many_tables_are_listed_or_too_many(tmp_path: Path) -> None:
    path = many_tables(tmp_path / "a.db", 1000, 20)
    async with handler(source_of(f"sqlite:///{path}")) as made:
        assert len((await made.list_directory(("main",))).resources) == 1000
    path = many_tables(tmp_path / "b.db", 500, 400)
    async with handler(source_of(f"sqlite:///{path}")) as made:
        with pytest.raises(TooLarge):
            await made.list_directory(("main",))


@pytest.mark.semantics("S16", "S22")
async def test_the_process_ends_with_the_request(tmp_path: Path) -> None:
    path = view_file(tmp_path / "a.db", "a search")
    async with handler(source_of(f"sqlite:///{path}", Policy(timeout=60))) as made:
        before = children()
        with trio.move_on_after(2):
            await made.load("sqlite://main/bad/rows.csv")
        await until(lambda: not children() - before)


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


async def test_a_process_is_used_again_and_replaced_when_it_died(tmp_path: Path) -> None:
    path = view_file(tmp_path / "a.db", "a padded text")
    async with handler(source_of(f"sqlite:///{path}")) as made:
        before = children()
        assert await text_of(made, "sqlite://main/good/count") == "1\n"
        mine = children() - before
        assert await text_of(made, "sqlite://main/good/rows.csv") == "x\n7\n"
        assert children() - before == mine
        for number in mine:
            os.kill(int(number), 9)
        assert await text_of(made, "sqlite://main/good/count") == "1\n"
        assert not (children() - before) & mine
    assert not children() - before


@given(data=st.binary(max_size=200), at=st.integers(0, 8191))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_any_damage_is_an_error_of_bbfs(tmp_path: Path, data: bytes, at: int) -> None:
    path = tmp_path / "a.db"
    path.unlink(missing_ok=True)
    view_file(path, "a padded text")
    damaged = bytearray(path.read_bytes())
    damaged[at : at + len(data)] = data
    path.write_bytes(damaged)
    async with handler(source_of(f"sqlite:///{path}", Policy(timeout=5))) as made:
        for uri in ("sqlite://main/good/rows.csv", "sqlite://main/good/schema.sql", "sqlite://main/bad/columns.json"):
            try:
                with trio.fail_after(60):
                    await made.load(uri)
            except (BbfsError, DeadlineExceeded):
                pass


def test_what_crosses_the_pipe_comes_back() -> None:
    table = Table(
        "main", "t", "table", (Column("a", "integer", default="'\udcff'"),), ("a",),
        (TableIndex("i", ("a",), True, "a"),), (ForeignKey(("a",), None, "u", ("b",)),), estimated_rows=7,
    )  # fmt: skip
    for value in (
        table,
        Schema("x"),
        [(b"\0\xff", TaggedText("7"), None, "\udcff")],
        {"a": 1.5},
        None,
        True,
        [Decimal("1.50"), date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5)],
    ):
        found = decode(encode(value))
        assert found == (tuple(value) if isinstance(value, list) else value)
