"""Tools and prompts of MCP servers behind `bbfs serve`, for clients of both eras."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked_daemon import forked
from harness import mcp
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    EmbeddedResource,
    ImageContent,
    PromptReference,
    ResourceLink,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
)
from repository import SERVERS
from served import BOUND

from bbfs.server.gateway.requests import PAGE

Opened = Callable[..., Any]
SILENT = ["python3", "-c", "import sys; sys.stdin.read()"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "calls.log"


@pytest.fixture
def calls(log: Path) -> dict[str, Any]:
    """The source `c`: a server with tools and prompts, all of which may be called."""
    return mcp("c", forked(SERVERS / "calls.py", log), tools="all", timeout=BOUND)


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines()


async def test_prompts_pass_through(service: Opened, calls: dict[str, Any], log: Path, era: str) -> None:
    other = mcp("d", forked(SERVERS / "calls.py", log), prompts=False, timeout=BOUND)
    async with service(calls, other) as served, Client(served, mode=era, cache=None) as client:
        prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        assert list(prompts) == ["c_greet", "c_plain", "c_talk"]
        greet = prompts["c_greet"]
        assert greet.title == "Greet"
        assert [(each.name, each.required) for each in greet.arguments or ()] == [("who", True), ("how", False)]
        (message,) = (await client.get_prompt("c_greet", {"who": "Ada"})).messages
        assert message.content == TextContent(text="Greet Ada kindly.")
        talk = await client.get_prompt("c_talk")
        assert [message.role for message in talk.messages] == ["user", "assistant"]
        for name in ("greet", "d_greet", "x"):
            with pytest.raises(MCPError, match=f"no prompt '{name}'"):
                await client.get_prompt(name)
        reference = PromptReference(name="c_greet")
        found = await client.complete(reference, {"name": "who", "value": "A"})
        assert found.completion.values == ["Ada", "Alan"]
        with pytest.raises(MCPError, match="no prompt 'greet'"):
            await client.complete(PromptReference(name="greet"), {"name": "who", "value": "A"})
        template = ResourceTemplateReference(uri="mcp-server+c+doc://page/{number}")
        assert (await client.complete(template, {"name": "number", "value": ""})).completion.values == []


async def test_tools_pass_through(service: Opened, calls: dict[str, Any], log: Path, era: str) -> None:
    async with service(calls) as served, Client(served, mode=era, cache=None) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools)[:2] == ["load_datasource", "load_resources"]
        echo = tools["c_echo"]
        assert echo.description == "What echo does."
        assert echo.input_schema["required"] == ["text"]
        assert echo.annotations is not None
        assert echo.annotations.read_only_hint
        (text,) = (await client.call_tool("c_echo", {"text": "ab", "times": 2})).content
        assert text == TextContent(text="abab")
        long = await client.call_tool("c_echo", {"text": "line\n", "times": 6000})
        said, part = (block.text for block in long.content if isinstance(block, TextContent))
        about, _, uri = said.rpartition(" ")
        assert about == "lines 1-4000 of 6000, next: offset=4001, kept for later calls as"
        rest = await client.call_tool("load_resources", {"directUris": [uri], "offset": 4001})
        assert isinstance(rest.content[-1], TextContent)
        assert part + rest.content[-1].text == "line\n" * 6000
        record = await client.call_tool("c_record", {})
        assert record.structured_content == {"name": "Käthe", "calls": [1, 2]}
        failed = await client.call_tool("c_fail", {})
        assert (failed.is_error, failed.content) == (True, [TextContent(text="the disk is full")])
        refused = await client.call_tool("c_refuse", {})
        assert refused.is_error
        (text,) = refused.content
        assert isinstance(text, TextContent)
        assert "refused, as told" in text.text
        with pytest.raises(MCPError, match="no tool 'echo'"):
            await client.call_tool("echo", {"text": "x"})
        odd = next(name for name in tools if name.startswith("c_odd_name__41_"))
        await client.call_tool(odd, {"an argument.": "x"})
    assert lines(log)[-1] == 'call odd/name %41 {"an argument.": "x"}'


async def test_results_have_uris_that_load(service: Opened, calls: dict[str, Any]) -> None:
    async with service(calls) as served, Client(served, mode="legacy", cache=None) as client:
        result = await client.call_tool("c_several", {})
        assert result.structured_content == {"calls": 1}
        picture, embedded, *links = result.content[1:]
        assert isinstance(picture, ImageContent)
        assert isinstance(embedded, EmbeddedResource)
        assert embedded.resource.uri == "mcp-server+c+doc://embedded/notes.md"
        assert [link.uri for link in links if isinstance(link, ResourceLink)] == [
            "mcp-server+c+doc://guide",
            "mcp-server+c+doc://page/7",
            "https://example.org/elsewhere",
            "mcp-server+c+_:../../../../etc/passwd",
            "mcp-server+c+doc://unlisted/notes",
        ]
        (content,) = (await client.read_resource("mcp-server+c+doc://page/7")).contents
        assert isinstance(content, TextResourceContents)
        assert content.text == "content of doc://page/7\n"


@pytest.mark.semantics("S31", "S31.4")
async def test_only_allowed_tools_pass(service: Opened, log: Path) -> None:
    some = mcp("some", forked(SERVERS / "calls.py", log), tools=["write", "e*"], timeout=BOUND)
    plain = mcp("plain", forked(SERVERS / "calls.py", log), timeout=BOUND)
    off = mcp("off", forked(SERVERS / "calls.py", log), tools="off", timeout=BOUND)
    async with service(some, plain, off) as served, Client(served, mode="auto", cache=None) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {name for name in names if name.startswith("some_")} == {"some_write", "some_echo"}
        assert {"plain_echo", "plain_count"} <= names
        assert not {"plain_write", "plain_silent", "plain_contradiction", "off_echo"} & names
        for name in ("plain_write", "off_echo"):
            with pytest.raises(MCPError, match="no tool"):
                await client.call_tool(name, {"text": "x"})
    assert {*lines(log)} == {"tools"}


async def test_a_silent_one_delays_no_list(
    service: Opened, calls: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        service(calls, {**mcp("silent", SILENT), "timeout": BOUND}, wait=1) as served,
        Client(served, mode="auto", cache=None) as client,
    ):
        while "c_greet" not in {prompt.name for prompt in (await client.list_prompts()).prompts}:
            pass
        assert "c_echo" in {tool.name for tool in (await client.list_tools()).tools}
        assert "silent: its tools and prompts are left out: no answer within 1 s" in caplog.text
        assert (await client.call_tool("c_count", {})).content
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("silent_tool", {})


async def test_lists_have_pages(service: Opened, log: Path, era: str) -> None:
    tables = [mcp(f"c{n}", forked(SERVERS / "calls.py", log), tools="all", timeout=BOUND) for n in range(13)]
    async with service(*tables) as served, Client(served, mode=era, cache=None) as client:
        names: list[str] = []
        cursor: str | None = None
        while True:
            page = await client.list_tools(cursor=cursor)
            assert len(page.tools) <= PAGE
            names += [tool.name for tool in page.tools]
            if (cursor := page.next_cursor) is None:
                break
        assert len(names) == len({*names}) > PAGE
        assert page.ttl_ms == 0
        with pytest.raises(MCPError, match="not a token of this server"):
            await client.list_tools(cursor="x")


async def test_a_result_is_bounded(service: Opened, calls: dict[str, Any]) -> None:
    async with service(calls, most_bytes=1000) as served, Client(served, mode="auto", cache=None) as client:
        result = await client.call_tool("c_echo", {"text": "x" * 600, "times": 2})
        assert result.is_error
        (text,) = result.content
        assert isinstance(text, TextContent)
        assert "at most 1000 characters (--max-result)" in text.text
