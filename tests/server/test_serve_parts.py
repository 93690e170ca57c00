"""Parts of texts: read one after the other they are the text, and each says what comes next."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import FlatSource, World, data_source
from harness import folder
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from bbfs.server.excerpts import Unit, Wanted, excerpt
from bbfs.server.kept import KeptResults
from bbfs.server.service import Service
from bbfs.sources.content.memory import MemoryContent

TEXT = st.text(alphabet="a\n\rß😀\u2028", max_size=60)


@given(TEXT, st.integers(1, 9), st.integers(1, 20) | st.none(), st.sampled_from(("lines", "characters")))
def test_parts_make_the_text_again(text: str, most: int, limit: int | None, unit: Unit) -> None:
    async def parts() -> list[str]:
        found: list[str] = []
        wanted = Wanted(1, limit, unit)
        for _ in range(200):
            part = await excerpt(MemoryContent(text.encode()), wanted, most, chunk=7)
            assert part is not None
            assert len(part.text) <= most
            found.append(part.text)
            if part.following is None:
                assert part.total == (
                    text.count("\n") + bool(text.rpartition("\n")[2]) if wanted.unit == "lines" else len(text)
                )
                return found
            assert part.text, "it goes on"
            wanted = Wanted(part.following[1], limit, part.following[0])
        raise AssertionError("no end")

    assert "".join(trio.run(parts)) == text


@given(TEXT, st.integers(1, 20), st.integers(1, 20))
def test_lines_are_those_that_grep_counts(text: str, offset: int, limit: int) -> None:
    part = trio.run(excerpt, MemoryContent(text.encode()), Wanted(offset, limit), 1000)
    assert part is not None
    lines = [f"{line}\n" for line in text.split("\n")]
    assert (
        part.text
        == "".join(lines)[:-1][sum(map(len, lines[: offset - 1])) : sum(map(len, lines[: offset - 1 + limit]))]
    )


async def test_lines_behind_the_part_of_a_very_long_text_are_not_counted() -> None:
    content = MemoryContent(b"a line\n" * 500)
    part = await excerpt(content, Wanted(limit=5), 1000, counted=1000, chunk=100)
    assert str(part) == "lines 1-5 of more, next: offset=6"
    assert str(await excerpt(content, Wanted(limit=5), 1000)) == "lines 1-5 of 500, next: offset=6"


def test_bytes_that_are_no_text_have_no_parts() -> None:
    assert trio.run(excerpt, MemoryContent(b"a\n" * 10 + b"\xff"), Wanted(1, 1), 10) is None
    assert trio.run(excerpt, MemoryContent("ß".encode()[:1]), Wanted(), 10) is None


def blocks(result: CallToolResult) -> list[str]:
    assert not result.is_error, result.content
    return [block.text for block in result.content if isinstance(block, TextContent)]


async def test_a_text_above_the_limit_of_an_answer_is_read_in_parts(service: Callable[..., Any], local: Path) -> None:
    lines = [f"{number:07}\n" for number in range(1, 9001)]
    (local / "large.txt").write_text("".join(lines))
    (local / "one-line.json").write_text("x" * 30_000)
    uri = "bb-filesystem+local+file:./large.txt"
    async with service(folder("local", local), most_bytes=50_000) as served, Client(served) as client:
        about, head = blocks(await client.call_tool("load_resources", {"directUris": [uri]}))
        assert head == "".join(lines[:2500])
        assert about == f"{uri}: text/plain, 72000 bytes, lines 1-2500 of 9000, next: offset=2501"
        arguments = {"directUris": [uri], "offset": 8999, "limit": 5}
        assert blocks(await client.call_tool("load_resources", arguments)) == [
            f"{uri}: text/plain, 72000 bytes, lines 8999-9000 of 9000",
            "".join(lines[-2:]),
        ]
        result = await client.call_tool("load_resources", {**arguments, "format": "json"})
        [outcome] = (result.structured_content or {})["resources"]
        assert outcome["contents"][0]["text"] == "".join(lines[-2:])
        [about, _] = blocks(await client.call_tool("load_resources", {**arguments, "offset": 9002}))
        assert about.endswith("no lines from 9002 on: it has 9000")
        whole = await client.call_tool("load_resources", {"directUris": [uri], "format": "json"})
        assert whole.is_error
        assert "offset, limit" in blocks_of_failure(whole)

        long = "bb-filesystem+local+file:./one-line.json"
        about, head = blocks(await client.call_tool("load_resources", {"directUris": [long]}))
        assert len(head) == 20_000
        assert about.endswith("lines 1-1 of 1, next: offset=20001 unit=characters")
        following = {"directUris": [long], "offset": 20_001, "unit": "characters"}
        assert len(blocks(await client.call_tool("load_resources", following))[1]) == 10_000


def blocks_of_failure(result: CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


async def test_an_answer_of_many_texts_has_a_bound(service: Callable[..., Any], local: Path) -> None:
    for number in range(12):
        (local / f"{number}.txt").write_text("x" * 19_999 + "\n")
    uris = [f"bb-filesystem+local+file:./{number}.txt" for number in range(12)]
    async with service(folder("local", local)) as served, Client(served) as client:
        found = blocks(await client.call_tool("load_resources", {"directUris": uris}))
        assert sum(map(len, found)) < 102_000
        assert (
            found[-1] == f"{uris[-1]}: text/plain, 20000 bytes, left out: 100000 characters are in this answer already"
        )


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_long_result_of_a_tool_is_kept_and_runs_once(nursery: trio.Nursery, era: str) -> None:
    uri = "mcp-server+calls+tool://x"
    contents: dict[str, Any] = {"tool://x": b"a line\n" * 5000 + b"the end\n", "tool://short": b"short\n"}
    source = FlatSource(data_source("mcp-server+calls"), contents=contents)
    source.described = {name: {"on_open": True} for name in contents}
    async with World(nursery, source) as world:
        async with Client(Service(world.manager, nursery), mode=era) as client:
            await client.call_tool("load_datasource", {"dataSourceId": "calls"})
            about, head = blocks(await client.call_tool("load_resources", {"directUris": [uri]}))
            assert head == "a line\n" * 2857
            beginning, _, address = about.partition("kept for later calls as ")
            assert beginning.endswith("lines 1-2857 of 5001, next: offset=2858, ")
            for form in ("text", "json"):
                rest = {"directUris": [address], "offset": 5001, "format": form}
                assert "the end\n" in (await client.call_tool("load_resources", rest)).model_dump_json().replace(
                    "\\n", "\n"
                )
            found = await client.call_tool("grep_resources", {"dataSourceId": address, "pattern": "^the"})
            assert blocks(found) == [f"{address}\n5001:the end"]
            read = (await client.read_resource(address)).contents[0]
            assert read.model_dump()["text"] == contents["tool://x"].decode()
            assert source.loads["tool://x"] == 1

            about, _ = blocks(await client.call_tool("load_resources", {"directUris": [f"{uri[:-1]}short"]}))
            assert "kept" not in about
            for tool, arguments in (
                ("load_resources", {"directUris": ["bbfs-result:0"]}),
                ("grep_resources", {"dataSourceId": "bbfs-result:0", "pattern": "x"}),
            ):
                gone = await client.call_tool(tool, arguments)
                assert gone.is_error
                assert "resource_not_found: this result is not kept any more" in gone.model_dump_json()
            with pytest.raises(MCPError, match="not kept"):
                await client.read_resource("bbfs-result:0")


def test_results_are_kept_within_bounds() -> None:
    results = KeptResults(most=3, most_bytes=100)
    first, *others = (results.keep(MemoryContent(b"x" * 10), None) for _ in range(4))
    assert first is not None
    assert results.loaded(first).error is not None
    assert all(uri is not None and results.loaded(uri).error is None for uri in others)
    assert results.keep(MemoryContent(b"x" * 101), None) is None
    large = results.keep(MemoryContent(b"x" * 95), None)
    assert large is not None
    assert results.loaded(large).error is None
    assert all(uri is not None and results.loaded(uri).error is not None for uri in others)


async def test_rows_of_a_database_come_by_ranges(service: Callable[..., Any], tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
        connection.executemany(
            "INSERT INTO orders (item) VALUES (?)", [(f"item {number}",) for number in range(1, 301)]
        )
    table = {"name": "shop", "type": "database", "config": {"url": f"sqlite:///{tmp_path}/shop.db", "row_limit": 100}}
    async with service(table) as served, Client(served) as client:
        uri = "bb-database+shop+sqlite://main/orders/rows/200-201.csv"
        [_, rows] = blocks(await client.call_tool("load_resources", {"directUris": [uri]}))
        assert rows == "id,item\n200,item 200\n201,item 201\n"
