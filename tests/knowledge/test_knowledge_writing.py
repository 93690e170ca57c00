"""The tools that write documents."""

import base64
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceLink

from bbfs.knowledge.addresses import COLLECTIONS_URI, document_uri
from bbfs.knowledge.database.store import Store
from bbfs.knowledge.documents import MAX_DOCUMENT_BYTES, Conflict, NotFound
from bbfs.knowledge.server import tools
from bbfs.knowledge.server.service import KnowledgeServer

NEW = document_uri("docs", "new")


@pytest.fixture
async def writer(store: Store, era: str) -> AsyncIterator[Client]:
    """A client of a writable server. Its watcher looks for changes only when a client has written."""
    async with Client(KnowledgeServer(store, ttl=0, interval=3600, writable=True), mode=era) as client:
        yield client


async def put(client: Client, uri: str, content: str = "text\n", **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool("put_document", {"uri": uri, "content": content, **arguments})
    assert result.structured_content is not None
    assert result.is_error is ("code" in result.structured_content)
    return result.structured_content


async def version(client: Client, uri: str) -> str:
    (content,) = (await client.read_resource(uri)).contents
    return (content.meta or {})["etag"]


async def test_documents_can_be_written_only_if_the_server_is_writable(client: Client, writer: Client) -> None:
    assert [tool.name for tool in (await client.list_tools()).tools] == ["search_knowledge"]
    with pytest.raises(MCPError, match="no tool 'put_document'"):
        await client.call_tool("put_document", {"uri": NEW, "content": ""})
    hints = {tool.name: tool.annotations for tool in (await writer.list_tools()).tools}
    for name in ("put_document", "remove_document"):
        hint = hints[name]
        assert hint is not None
        assert (hint.read_only_hint, hint.destructive_hint, hint.idempotent_hint) == (False, True, True)


async def test_a_put_document_is_what_is_read(writer: Client, store: Store) -> None:
    result = await writer.call_tool("put_document", {"uri": NEW, "content": "# One\n", "name": "one.md"})
    added = result.structured_content or {}
    (link,) = (each for each in result.content if isinstance(each, ResourceLink))
    assert (link.uri, link.mime_type, link.size, link.meta) == (NEW, "text/markdown", 6, {"etag": added["version"]})
    assert (added["uri"], added["outcome"], added["name"]) == (NEW, "added", "one.md")
    assert await version(writer, NEW) == added["version"]
    updated = await put(writer, NEW, "# Two\n", version=added["version"])
    assert (updated["outcome"], updated["name"]) == ("updated", "one.md")
    assert updated["version"] != added["version"]
    data = bytes(range(256))
    other = await writer.call_tool(
        "put_document",
        {"uri": document_uri("other", "ü/x"), "blob": base64.b64encode(data).decode(), "mime_type": "application/x-y"},
    )
    assert other.structured_content is not None
    with store.snapshot() as snapshot:
        assert snapshot.content("docs", "new") == b"# Two\n"
        assert snapshot.content("other", "ü/x") == data
        assert snapshot.document("other", "ü/x").mime_type == "application/x-y"


@pytest.mark.parametrize("absent", ["", None])
async def test_a_version_guards_a_document(writer: Client, store: Store, absent: str | None) -> None:
    first = await put(writer, NEW, "first", version=absent)
    taken = await put(writer, NEW, "second", version=absent)
    assert (taken["code"], taken["version"]) == ("conflict", first["version"])
    store.put("docs", "new", b"by somebody else")
    lost = await put(writer, NEW, "second", version=first["version"])
    assert lost["code"] == "conflict"
    gone = await put(writer, document_uri("none", "gone"), "x", version=first["version"])
    assert (gone["code"], gone.get("version")) == ("conflict", None)
    with store.snapshot() as snapshot:
        assert snapshot.content("docs", "new") == b"by somebody else"
        assert "none" not in [each.id for each in snapshot.collections()]
    refused = await writer.call_tool("remove_document", {"uri": NEW, "version": first["version"]})
    assert (refused.structured_content or {})["code"] == "conflict"
    removed = await writer.call_tool("remove_document", {"uri": NEW, "version": lost["version"]})
    assert removed.structured_content == {"uri": NEW, "outcome": "removed"}
    again = await writer.call_tool("remove_document", {"uri": NEW})
    assert (again.structured_content or {})["code"] == "not_found"


async def test_a_repeated_put_has_the_same_answer(writer: Client) -> None:
    first = await put(writer, NEW, "first", version="")
    repeated = await put(writer, NEW, "first", version="")
    assert repeated == {**first, "outcome": "unchanged"}


async def test_any_spelling_of_a_uri_is_the_document(writer: Client) -> None:
    added = await put(writer, "resource://knowledge/docs/document/a!b%c3%bc")
    assert added["uri"] == document_uri("docs", "a!bü")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"uri": COLLECTIONS_URI, "content": ""}, "not_supported"),
        ({"uri": "resource://knowledge/docs/stats", "content": ""}, "not_supported"),
        ({"uri": "file:///etc/passwd", "content": ""}, "not_supported"),
        ({"uri": "resource://knowledge/docs/document/%2E%2E", "content": ""}, "invalid"),
        ({"uri": "resource://knowledge/docs/document/%00", "content": ""}, "invalid"),
        ({"uri": NEW}, "invalid"),
        ({"uri": NEW, "content": "", "blob": ""}, "invalid"),
        ({"uri": NEW, "blob": "?"}, "invalid"),
        ({"uri": NEW, "content": 1}, "invalid"),
        ({"uri": NEW, "content": "", "title": "x"}, "invalid"),
        ({}, "invalid"),
    ],
)
async def test_what_cannot_be_written_has_a_code(writer: Client, arguments: dict[str, Any], code: str) -> None:
    result = await writer.call_tool("put_document", arguments)
    assert result.is_error
    assert result.structured_content is not None
    assert result.structured_content["code"] == code


def test_bounds_and_a_full_disk_have_a_code(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    large = tools.put_document(store, {"uri": NEW, "content": "x" * (MAX_DOCUMENT_BYTES + 1)})
    assert (large.structured_content or {})["code"] == "too_large"
    monkeypatch.setattr(store, "replace", failing)
    full = tools.put_document(store, {"uri": NEW, "content": "four"})
    assert (full.structured_content or {})["code"] == "no_space"


async def test_a_write_wakes_the_watcher_of_changes(store: Store) -> None:
    async with (
        Client(KnowledgeServer(store, ttl=0, interval=3600, writable=True), mode="auto") as writer,
        writer.listen(resource_subscriptions=[NEW], resources_list_changed=True) as heard,
    ):
        await put(writer, NEW)
        with trio.fail_after(60):
            events = [await anext(heard), await anext(heard)]
    assert len({type(event) for event in events}) == 2


def test_a_version_never_comes_back(tmp_path: Path) -> None:
    times = [datetime(2026, 1, 1, second=second, tzinfo=UTC) for second in range(9, 0, -1)]
    with Store(tmp_path / "kb.sqlite", now=times.pop, durable=True) as store:
        seen = {store.replace("c", "d", b"one", None)[1].version}
        seen.add(store.replace("c", "d", b"two", None)[1].version)
        third = store.replace("c", "d", b"one", None)[1].version
        with pytest.raises(Conflict):
            store.remove("c", "d", seen.copy().pop())
        store.remove("c", "d", third)
        with pytest.raises(NotFound):
            store.remove("c", "d", third)
        seen.add(third)
        seen.add(store.replace("c", "d", b"one", "")[1].version)
        assert len(seen) == 4
