"""`write_resource` and `remove_resource`: a model changes what a data source has, and nothing else."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from forked_daemon import forked
from harness import mcp
from mcp import Client

from bbfs.knowledge.database.store import Store
from bbfs.resources.writing.pending import PendingStore, pending_path

DOCUMENTS = "mcp-server+kb+resource://knowledge/docker/document"
SSL = f"{DOCUMENTS}/ssl-setup"
TEMPLATE = "resource://knowledge/{collectionId}/document/{docId}"


@pytest.fixture
def writable(knowledge: Store) -> dict[str, Any]:
    """The knowledge base as a source that is written by its tools."""
    command = forked("-m", "bbfs.knowledge", "serve", "--db", knowledge.path, "--writable", "--ttl", "0")
    tools = {"version": "version", "template": TEMPLATE}
    options = {
        "write": {"tool": "put_document", "blob": "blob", **tools},
        "remove": {"tool": "remove_document", **tools},
    }
    return mcp("kb", command, capabilities=["read", "list", "write"], **options)


async def done(client: Client, tool: str, uri: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, {"uri": uri, "format": "json", **arguments})
    found = result.structured_content
    assert found is not None
    assert result.is_error is ("error" in found)
    return found["error"] if result.is_error else found


async def test_a_model_writes_the_version_that_it_has_read(
    service: Callable[..., Any], writable: dict[str, Any], knowledge: Store, era: str
) -> None:
    before = list(PendingStore(pending_path()).items())
    async with service(writable) as server, Client(server, mode=era, cache=None) as client:
        hints = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        for name in ("write_resource", "remove_resource"):
            hint = hints[name]
            assert hint is not None
            assert (hint.read_only_hint, hint.destructive_hint, hint.idempotent_hint) == (False, True, True)
        loaded = await client.call_tool("load_resources", {"format": "json", "directUris": [SSL]})
        version = (loaded.structured_content or {})["resources"][0]["metadata"]["version"]
        (content,) = (await client.read_resource(SSL)).contents
        assert content.meta == {"etag": version}
        written = await done(client, "write_resource", SSL, text="# TLS\n", ifMatch=version)
        assert written["metadata"]["version"] != version
        lost = await done(client, "write_resource", SSL, text="# Lost\n", ifMatch=version)
        assert (lost["code"], lost["errno"]) == ("conflict", "ESTALE")
        taken = await done(client, "write_resource", SSL, text="", ifMatch="")
        assert taken["code"] == "conflict"
        (content,) = (await client.read_resource(SSL)).contents
        assert content.model_dump()["text"] == "# TLS\n"
        own = await client.call_tool("load_resources", {"format": "json", "directUris": [SSL]})
        own_version = (own.structured_content or {})["resources"][0]["metadata"]["mcpData"]["_meta"]["etag"]
        again = await done(client, "write_resource", SSL, text="# TLS\n", ifMatch=own_version)
        assert again["metadata"]["version"] == written["metadata"]["version"]
        new = await done(client, "write_resource", f"{DOCUMENTS}/new", blob="/w==", ifMatch="")
        assert new["uri"] == f"{DOCUMENTS}/new"
        with knowledge.snapshot() as snapshot:
            assert snapshot.content("docker", "ssl-setup") == b"# TLS\n"
            assert snapshot.content("docker", "new") == b"\xff"
        assert (await done(client, "remove_resource", SSL, ifMatch=version))["code"] == "conflict"
        removed = await done(client, "remove_resource", SSL, ifMatch=written["metadata"]["version"])
        assert removed == {"uri": SSL}
        gone = await done(client, "remove_resource", SSL, ifMatch=version)
        assert gone["code"] == "conflict"
        assert (await done(client, "remove_resource", SSL))["code"] == "resource_not_found"
    assert list(PendingStore(pending_path()).items()) == before, "the client has what was not written"


async def test_the_answer_has_the_version_of_the_row_as_the_database_has_it(
    service: Callable[..., Any], tmp_path: Path, era: str
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.executescript(
            "CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT); INSERT INTO item VALUES (1, 'nut')"
        )
    config = {"url": f"sqlite:///{tmp_path / 'shop.db'}"}
    shop = {"name": "shop", "type": "database", "capabilities": ["read", "list", "write"], "config": config}
    row = "bb-database+shop+sqlite://main/item/row"
    async with service(shop) as server, Client(server, mode=era, cache=None) as client:
        found = await client.call_tool("load_resources", {"format": "json", "directUris": [f"{row}/1.json"]})
        metadata = (found.structured_content or {})["resources"][0]["metadata"]
        for key, match in ((1, metadata["version"]), (2, "")):
            for name in ("screw", "a long bolt"):
                text = json.dumps({"name": name})
                written = await done(client, "write_resource", f"{row}/{key}.json", text=text, ifMatch=match)
                content = (await client.read_resource(f"{row}/{key}.json")).contents[0]
                assert json.loads(content.model_dump()["text"])["name"] == name
                assert content.meta == {"etag": written["metadata"]["version"]}
                assert written["metadata"]["size"] == len(content.model_dump()["text"].encode())
                match = written["metadata"]["version"]


async def test_what_cannot_be_written_is_refused_with_a_code(
    service: Callable[..., Any], writable: dict[str, Any], sources: list[dict[str, Any]]
) -> None:
    local, _, items = sources
    generated = "mcp-server+kb+resource://knowledge/docker/stats"
    async with service(local, writable, items) as server, Client(server, mode="auto", cache=None) as client:
        for uri, code in {
            generated: "not_supported",
            "bb-filesystem+local+file:./package.json": "read_only",
            "mcp-server+items+item://1": "read_only",
            "mcp-server+none+item://1": "data_source_not_found",
            "bb-filesystem+kb+file:./x": "type_mismatch",
            "no URI": "invalid_uri",
        }.items():
            for tool, arguments in (("write_resource", {"text": "x"}), ("remove_resource", {})):
                assert (await done(client, tool, uri, **arguments))["code"] == code, (tool, uri)
        for arguments in ({}, {"text": "x", "blob": "eA=="}, {"blob": "?"}, {"text": 1}, {"text": "", "if": ""}):
            result = await client.call_tool("write_resource", {"uri": SSL, **arguments})
            assert result.is_error
            assert "invalid arguments" in result.model_dump()["content"][0]["text"]


async def test_a_server_without_writing_has_no_tools(
    service: Callable[..., Any], sources: list[dict[str, Any]]
) -> None:
    async with service(*sources) as server, Client(server, mode="auto", cache=None) as client:
        assert not [tool for tool in (await client.list_tools()).tools if "write" in tool.name]
        refused = await done(client, "write_resource", SSL, text="x")
        assert (refused["code"], refused["errno"]) == ("read_only", "EROFS")
        (content,) = (await client.read_resource(SSL)).contents
        assert content.meta is None
