"""`load_resources`: both modes over several types of sources, and each resource's own outcome."""

import base64
import io
import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
from forked_daemon import forked
from harness import folder, mcp
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ImageContent, TextContent
from PIL import Image
from programs import printed_url
from repository import SERVERS
from served import FILES, PNG

from bbfs.sources.documents.pictures import scaler

TEMPLATE_EXAMPLE = """{"mode":"template","uriTemplate":"bb-filesystem+local+file:./{path}",
"templateResources":[{"path":"/src/config.ts"},{"path":"/tests/config.test.ts"}]}"""
DIRECT_EXAMPLE = """{"mode":"direct",
"directUris":["bb-filesystem+local+file:./src/config.ts","bb-filesystem+local+file:./package.json"]}"""


def direct(*uris: str) -> dict[str, Any]:
    return {"mode": "direct", "directUris": list(uris)}


async def load(client: Client, arguments: dict[str, Any]) -> tuple[list[dict[str, Any]], CallToolResult]:
    result = await client.call_tool("load_resources", {**arguments, "format": "json"})
    assert result.structured_content is not None, result.content
    return result.structured_content["resources"], result


async def codes(client: Client, *uris: str) -> dict[str, str]:
    """The code of the error that each URI ends with, or `ok`."""
    outcomes, _ = await load(client, direct(*uris))
    assert [outcome["uri"] for outcome in outcomes] == list(uris)
    return {outcome["uri"]: outcome.get("error", {"code": "ok"})["code"] for outcome in outcomes}


def content_of(outcome: dict[str, Any]) -> bytes:
    """The bytes of a resource of one content."""
    (content,) = outcome["contents"]
    data = content["text"].encode() if "text" in content else base64.b64decode(content["blob"])
    assert content["size"] == len(data)
    return data


async def test_the_examples_of_the_data_model(stdio: Callable[..., Any], era: str, local: Path) -> None:
    async with stdio(era, folder("local", local)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"load_datasource", "load_resources", "search_resources", "grep_resources"}
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools.values())
        for example, names in (
            (TEMPLATE_EXAMPLE, ("src/config.ts", "tests/config.test.ts")),
            (DIRECT_EXAMPLE, ("src/config.ts", "package.json")),
        ):
            outcomes, result = await load(client, json.loads(example))
            assert not result.is_error
            assert [outcome["uri"] for outcome in outcomes] == [f"bb-filesystem+local+file:./{n}" for n in names]
            assert [content_of(outcome) for outcome in outcomes] == [FILES[name] for name in names]
            for outcome, name in zip(outcomes, names, strict=True):
                metadata = outcome["metadata"]
                assert metadata["accessMethod"] == "bb"
                assert (metadata["type"], metadata["dataSourceType"]) == ("file", "filesystem")
                assert metadata["contentType"] == "text"
                assert metadata["name"] == name.rpartition("/")[2]
                assert metadata["uri"] == outcome["uri"]
                assert metadata["path"] == name
                assert metadata["size"] == len(FILES[name])
                assert metadata["lastModified"].endswith("Z")


async def test_both_modes_over_several_types(
    stdio: Callable[..., Any], sources: list[dict[str, Any]], tmp_path: Path, era: str
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
        connection.executemany("INSERT INTO orders (item) VALUES (?)", [("tea",), ("milk",)])
    database = {"name": "shop", "type": "database", "config": {"url": f"sqlite:///{tmp_path}/shop.db"}}
    memory = {
        "name": "scratch",
        "type": "memory",
        "config": {"resources": {"notes/a b.md": "# A\n", "pixel": {"base64": "AAEC", "mimeType": "image/x-raw"}}},
    }
    async with stdio(era, *sources, memory, database) as client:
        by_template = {
            "bb-filesystem+local+file:./{+path}": [{"path": "pictures/logo.png"}, {"path": "data.bin"}],
            "bb-memory+scratch+memory://{+path}": [{"path": "notes/a%20b.md"}, {"path": "pixel"}],
            "bb-database+shop+sqlite://{path}": [
                {"path": "/main/orders/rows.csv"},
                {"path": "main/orders/row/2.json"},
            ],
            "mcp-server+kb+resource://knowledge/{collectionId}/document/{docId}": [
                {"collectionId": "docker", "docId": "ssl-setup"},
                {"collectionId": "docker", "docId": "install"},
            ],
            "mcp-server+items+test://items/{number}.txt": [{"number": "0001"}, {"number": "0000"}],
        }
        seen: dict[str, bytes] = {}
        for template, values in by_template.items():
            arguments = {"mode": "template", "uriTemplate": template, "templateResources": values}
            outcomes, result = await load(client, arguments)
            assert not result.is_error
            seen |= {outcome["uri"]: content_of(outcome) for outcome in outcomes}
        assert seen["bb-filesystem+local+file:./pictures/logo.png"] == PNG
        assert seen["bb-filesystem+local+file:./data.bin"] == FILES["data.bin"]
        assert seen["bb-memory+scratch+memory://notes/a%20b.md"] == b"# A\n"
        assert seen["bb-database+shop+sqlite://main/orders/rows.csv"] == b"id,item\n1,tea\n2,milk\n"
        assert json.loads(seen["bb-database+shop+sqlite://main/orders/row/2.json"]) == {"id": 2, "item": "milk"}
        assert seen["bb-memory+scratch+memory://pixel"] == b"\0\1\2"
        assert seen["mcp-server+kb+resource://knowledge/docker/document/ssl-setup"] == b"# SSL\n"
        assert seen["mcp-server+items+test://items/0001.txt"].startswith(b"item 1, version 1.0\n")

        outcomes, result = await load(client, direct(*seen, "bb-filesystem+local+file:./empty.txt"))
        assert {o["uri"]: content_of(o) for o in outcomes} == seen | {"bb-filesystem+local+file:./empty.txt": b""}
        result = await client.call_tool("load_resources", direct(*list(seen)[:2]))
        about, logo, binary = result.content
        assert isinstance(about, TextContent)
        assert isinstance(binary, TextContent)
        assert about.text == "bb-filesystem+local+file:./pictures/logo.png: image/png, 72 bytes"
        assert isinstance(logo, ImageContent)
        assert base64.b64decode(logo.data) == PNG
        assert binary.text.endswith("256 bytes, binary: format=json has it in Base64")


async def test_a_picture_is_scaled_if_a_call_says(service: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    Image.linear_gradient("L").resize((400, 200)).save(out, "PNG")
    pictures = {
        name: {"base64": base64.b64encode(data).decode(), "mimeType": "image/png"}
        for name, data in (("large", out.getvalue()), ("broken", out.getvalue()[:100]))
    }
    table = {"name": "album", "type": "memory", "config": {"resources": pictures}}
    uris = [f"bb-memory+album+memory://{name}" for name in pictures]
    async with service(table) as served, Client(served) as client:
        arguments = {**direct(*uris), "pictureSide": 100}
        result = await client.call_tool("load_resources", arguments)
        about, picture, failed = result.content
        assert isinstance(picture, ImageContent)
        assert Image.open(io.BytesIO(base64.b64decode(picture.data))).size == (100, 50)
        assert isinstance(about, TextContent)
        assert about.text.startswith(f"{uris[0]}: image/png, {len(out.getvalue())} bytes, scaled to ")
        assert isinstance(failed, TextContent)
        assert failed.text.startswith(f"{uris[1]}: invalid_answer: ")
        outcomes, _ = await load(client, arguments)
        [content] = outcomes[0]["contents"]
        assert content["scaled"].endswith(" bytes as image/png")
        assert content["blob"] == picture.data
        small = await client.call_tool("load_resources", {**direct(uris[0]), "pictureSide": 400})
        plain = await client.call_tool("load_resources", direct(uris[0]))
        assert small.content == plain.content
        monkeypatch.setattr(scaler, "find_spec", lambda _name: None)
        [block] = (await client.call_tool("load_resources", {**direct(uris[0]), "pictureSide": 100})).content
        assert isinstance(block, TextContent)
        assert "left out: scaling it needs the extra 'documents' (" in block.text


async def test_a_resource_of_several_contents(service: Callable[..., Any], sources: list[dict[str, Any]]) -> None:
    async with service(*sources) as served, Client(served) as client:
        (outcome,), result = await load(client, direct("mcp-server+items+test://many"))
        assert [content["text"] for content in outcome["contents"]] == [
            "test://many/one.txt",
            "test://many/two.txt",
        ]
        assert [content["uri"] for content in outcome["contents"]] == [
            "mcp-server+items+test://many/one.txt",
            "mcp-server+items+test://many/two.txt",
        ]
        assert result.content == []
        result = await client.call_tool("load_resources", direct("mcp-server+items+test://many"))
        assert [block.text for block in result.content if isinstance(block, TextContent)] == [
            "mcp-server+items+test://many/one.txt: text/plain, 19 bytes",
            "test://many/one.txt",
            "mcp-server+items+test://many/two.txt: text/plain, 19 bytes",
            "test://many/two.txt",
        ]


async def test_each_error_is_its_own(service: Callable[..., Any], sources: list[dict[str, Any]], era: str) -> None:
    crash = {**mcp("gone", ["/nonexistent/server"]), "timeout": 5}
    expected = {
        "bb-filesystem+local+file:./package.json": "ok",
        "bb-filesystem+other+file:./package.json": "data_source_not_found",
        "mcp-server+none+test://x": "data_source_not_found",
        "bb-filesystem+local+file:./none.txt": "resource_not_found",
        "mcp-server+kb+resource://knowledge/docker/document/none": "resource_not_found",
        "bb-filesystem+local+file:./link": "access_denied",
        "bb-filesystem+local+file:./../outside": "access_denied",
        "bb-filesystem+local+file:./src": "type_mismatch",
        "bb-filesystem+local+https://example.com": "type_mismatch",
        "bb-database+local+sqlite://t": "type_mismatch",
        "mcp-server+local+file:./package.json": "type_mismatch",
        "mcp-server+gone+x://y": "unreachable",
        "package.json": "invalid_uri",
        "bb-filesystem+local": "invalid_uri",
    }
    async with service(*sources, crash) as served, Client(served, mode=era) as client:
        await client.list_tools()
        assert await codes(client, *expected) == expected
        outcomes, result = await load(client, direct("bb-filesystem+other+file:./x", "mcp-server+gone+x://y"))
        assert result.is_error
        assert "there are: gone, items, kb, local" in outcomes[0]["error"]["message"]
        assert [outcome["error"]["errno"] for outcome in outcomes] == ["ENOENT", "EHOSTDOWN"]
        assert len(result.content) == 2


async def test_what_does_not_fit_the_template_fails_that_resource_alone(
    service: Callable[..., Any], local: Path
) -> None:
    arguments = {
        "mode": "template",
        "uriTemplate": "bb-filesystem+local+file:./{path}",
        "templateResources": [{"path": "package.json"}, {"name": "x"}, {}],
    }
    async with service(folder("local", local)) as served, Client(served) as client:
        outcomes, result = await load(client, arguments)
        assert not result.is_error
        assert [outcome.get("error", {}).get("code") for outcome in outcomes] == [
            None,
            "invalid_uri",
            "invalid_uri",
        ]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"mode": "all"},
        {"mode": "template", "directUris": ["x"]},
        {"mode": "template", "uriTemplate": "x:{y}"},
        {"mode": "direct", "directUris": ["x"], "uriTemplate": "x:{y}"},
        {"mode": "direct", "directUris": "x"},
        {"mode": "direct", "directUris": [1]},
        {"mode": "direct", "directUris": [], "more": 1},
    ],
)
async def test_wrong_arguments_are_refused(service: Callable[..., Any], local: Path, arguments: dict[str, Any]) -> None:
    async with service(folder("local", local)) as served, Client(served) as client:
        result = await client.call_tool("load_resources", arguments)
        assert result.is_error
        (block,) = result.content
        assert isinstance(block, TextContent)
        assert block.text.startswith("invalid arguments: ")


async def test_many_are_answered_in_order(service: Callable[..., Any], local: Path) -> None:
    for number in range(150):
        (local / f"{number}.txt").write_text(str(number))
    uris = [f"bb-filesystem+local+file:./{number}.txt" for number in range(150)]
    async with service(folder("local", local)) as served, Client(served) as client:
        outcomes, _ = await load(client, {**direct(*uris), "uriTemplate": None, "templateResources": None})
        assert [content_of(outcome) for outcome in outcomes] == [b"%d" % number for number in range(150)]


@pytest.fixture
def guarded() -> Iterator[dict[str, Any]]:
    """A server over HTTP that wants a token, which nobody has."""
    with printed_url(*forked(SERVERS / "resources.py", "--transport", "http", "--token", "secret")) as url:
        yield {"name": "guarded", "mcpConfig": {"url": url}}


async def test_a_server_that_refuses_is_access_denied(service: Callable[..., Any], guarded: dict[str, Any]) -> None:
    uri = "mcp-server+guarded+test://items/0000.txt"
    async with service(guarded) as served, Client(served) as client:
        assert await codes(client, uri) == {uri: "access_denied"}
        result = await client.call_tool("load_datasource", {"dataSourceId": "guarded", "format": "json"})
        assert result.is_error
        assert (result.structured_content or {})["error"]["code"] == "access_denied"


async def test_what_nobody_foresaw_is_in_the_log(
    service: Callable[..., Any], local: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise LookupError("nobody foresaw this")

    async with service(folder("local", local)) as served, Client(served) as client:
        with monkeypatch.context() as patched:
            patched.setattr("bbfs.resources.by_uri.ByUri.load_many", fail)
            with pytest.raises(MCPError):
                await client.call_tool("load_resources", direct("bb-filesystem+local+file:./package.json"))
        assert "nobody foresaw this" in caplog.text
        assert await codes(client, "bb-filesystem+local+file:./package.json")


async def test_one_answer_has_a_bound(service: Callable[..., Any], local: Path) -> None:
    (local / "large.txt").write_bytes(b"x" * 1001)
    (local / "half.txt").write_bytes(b"x" * 600)
    uris = [f"bb-filesystem+local+file:./{name}" for name in ("large.txt", "half.txt", "half.txt", "package.json")]
    async with service(folder("local", local), most_bytes=1000) as served, Client(served) as client:
        outcomes, _ = await load(client, direct(*uris))
        found = [outcome.get("error", {}).get("code") for outcome in outcomes]
        assert found == ["too_large", None, "too_large", None]
        assert "--max-result" in outcomes[0]["error"]["message"]


async def test_options_of_the_command_line_count(stdio: Callable[..., Any], local: Path) -> None:
    (local / ".secret").write_text("secret")
    for options, is_listed in (((), True), (("-o", "local.hidden=false"), False), (("-o", "hidden=false"), False)):
        async with stdio("auto", folder("local", local), options=options) as client:
            listed = await client.call_tool("load_datasource", {"dataSourceId": "local", "format": "json"})
            names = {each["name"] for each in listed.structured_content["resources"]}
        assert (".secret" in names) is is_listed
        assert "package.json" in names


async def test_a_source_that_hangs_keeps_no_other_call(stdio: Callable[..., Any], local: Path) -> None:
    hanging = {**mcp("hanging", [sys.executable, SERVERS / "odd.py", "hung"], tools="off"), "timeout": 4}
    expected = [r"hanging: left out of the lists", r"bbfs\.mcp"]
    async with stdio("auto", folder("local", local), hanging, expected=expected) as client:
        late: dict[str, str] = {}

        async def hang() -> None:
            late.update(await codes(client, "mcp-server+hanging+x://y"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hang)
            uri = "bb-filesystem+local+file:./package.json"
            assert await codes(client, uri) == {uri: "ok"}
            result = await client.call_tool("load_datasource", {"dataSourceId": "local"})
            assert not result.is_error
            assert late == {}
        assert late == {"mcp-server+hanging+x://y": "timeout"}


async def test_a_long_template_is_refused_as_a_whole(stdio: Callable[..., Any], local: Path) -> None:
    """It would be read, and said, for each of a thousand resources."""
    async with stdio("auto", folder("local", local)) as client:
        template = "bb-filesystem+local+file:./" + "{path}" * 1400
        arguments = {"mode": "template", "uriTemplate": template, "templateResources": [{"path": "a"}]}
        result = await client.call_tool("load_resources", arguments)
        assert result.is_error
        (block,) = result.content
        assert isinstance(block, TextContent)
        assert "uriTemplate: String should have at most 8192 characters" in block.text
