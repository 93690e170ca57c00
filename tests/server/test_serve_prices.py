"""What the tools cost a model: the characters that a host hands it of a definition and of an answer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import folder
from mcp import Client
from mcp_types import CallToolResult, TextContent

from bbfs.server.tools import definitions
from bbfs.server.tools.search_resources import SHOWN, window

SENTENCE = "The certificate of the web server is renewed every ninety days by a timer that runs certbot. "
GUIDES = {f"guides/renewing-certificates-{n:02}.md": (f"# Part {n}\n\n" + SENTENCE * 10)[:900] for n in range(30)}
KB = {"name": "kb", "type": "memory", "config": {"resources": GUIDES}}


def price(result: CallToolResult) -> int:
    """The characters of an answer: all of it, though hosts keep `_meta` from models."""
    return len(result.model_dump_json(by_alias=True, exclude_none=True))


def text_of(result: CallToolResult) -> str:
    assert result.structured_content is None
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


@pytest.mark.parametrize("sources", [[], ["notes", "kb", "shop"], [f"src-{n}" for n in range(400)]])
def test_the_definitions_are_short_and_plain(sources: list[str]) -> None:
    tools = definitions(sources, sources)
    assert sum(len(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in tools) <= 6000
    for tool in tools:
        assert tool.output_schema is None, "such a tool has to send structured content each time"
        for name, schema in tool.input_schema["properties"].items():
            assert isinstance(schema["type"], str), (tool.name, name)
            assert "anyOf" not in json.dumps(schema), (tool.name, name)


async def test_a_first_look_a_search_and_a_document_have_a_price(service: Callable[..., Any], tmp_path: Path) -> None:
    root = tmp_path / "notes"
    root.mkdir()
    for number in range(1400):
        (root / f"a note on the certificates of the servers, {number:04}.md").write_text("# Renew\n")
    async with service(folder("notes", root), KB) as served, Client(served, cache=None) as client:
        look = await client.call_tool("load_datasource", {"dataSourceId": "notes"})
        assert price(look) <= 5000
        lines = text_of(look).splitlines()
        assert lines[0] == "notes: filesystem, read, list, up"
        assert "25 of 1400 resources" in lines
        assert sum(line.endswith(" 8 bytes") for line in lines) == 25
        token = lines[-1].removeprefix("more: pageToken=")
        following = await client.call_tool("load_datasource", {"dataSourceId": "notes", "pageToken": token})
        assert "0025.md 8 bytes" in text_of(following).splitlines()[1]
        assert text_of(await client.call_tool("load_datasource", {"dataSourceId": "kb"})).count(".md") == 25

        search = await client.call_tool("search_resources", {"query": "renewed certbot"})
        assert price(search) <= 3500
        found = text_of(search)
        assert found.count("bb-memory+kb+memory://") == 10
        assert sum("renewed" in line for line in found.splitlines()) == 10

        [(name, document), *_] = GUIDES.items()
        loaded = await client.call_tool("load_resources", {"directUris": [f"bb-memory+kb+memory://{name}"]})
        assert len(document) == 900
        assert price(loaded) <= 1300
        about, content = loaded.content
        assert isinstance(about, TextContent)
        assert isinstance(content, TextContent)
        assert (about.text, content.text) == (
            f"bb-memory+kb+memory://{name}: text/markdown, 900 bytes",
            document,
        )


async def test_a_model_is_told_where_to_begin(service: Callable[..., Any], local: Path) -> None:
    async with service(folder("local", local, index=True), KB) as served, Client(served) as client:
        said = client.instructions
        assert said is not None
        assert said.startswith("Data sources: local, kb. Their text is indexed, so a search finds all of it: ")
        assert len(said.split()) <= 85
        assert all(tool.name in said for tool in (await client.list_tools()).tools)
        nothing = text_of(await client.call_tool("search_resources", {"query": "zebra"}))
        assert "grep_resources" in nothing
        assert "bbfs index" in nothing


async def test_a_failure_says_its_code(service: Callable[..., Any], local: Path) -> None:
    async with service(folder("local", local)) as served, Client(served) as client:
        for tool, arguments, code in (
            ("load_datasource", {"dataSourceId": "none"}, "data_source_not_found"),
            ("load_datasource", {"dataSourceId": "local", "path": "none"}, "resource_not_found"),
            ("load_resources", {"directUris": ["bb-filesystem+local+file:./none"]}, "resource_not_found"),
            ("grep_resources", {"dataSourceId": "none", "pattern": "x"}, "data_source_not_found"),
            ("search_resources", {"sources": ["none"], "query": "x"}, "data_source_not_found"),
            ("write_resource", {"uri": "bb-filesystem+local+file:./a", "text": "x"}, "read_only"),
        ):
            for form in ("text", "json"):
                result = await client.call_tool(tool, {**arguments, "format": form})
                assert result.is_error
                [block] = result.content
                assert isinstance(block, TextContent)
                assert f"{code}: " in block.text
                assert (result.structured_content is None) == (form == "text")


@pytest.mark.parametrize(
    ("snippet", "shown"),
    [
        ("short", "short"),
        ("a " * 300 + "where certbot renews it" + " b" * 300, "certbot renews"),
        ("renews " + "a " * 300 + "certbot renews it" + " b" * 300, "certbot renews"),
        ("a " * 300, "a a a"),
        ("İ" * 300 + "certbot renews", "İİİ"),
        ("x" * 600, "xxx"),
    ],
)
def test_a_snippet_shows_why(snippet: str, shown: str) -> None:
    found = window(snippet, "Renews CERTBOT")
    assert shown in found
    assert len(found) <= SHOWN + 2
