"""What the server answers, to clients of both eras."""

import base64
import json
import sqlite3
from collections.abc import Mapping
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import BlobResourceContents, Resource, ResourceLink, ResourceTemplateReference, TextResourceContents

from bbfs.knowledge.addresses import COLLECTIONS_URI, DOCUMENT_TEMPLATE, HEALTH_URI, STATS_TEMPLATE, document_uri
from bbfs.knowledge.database.store import Store

Documents = Mapping[tuple[str, str], tuple[str, bytes]]


async def _pages(client: Client) -> list[list[Resource]]:
    pages: list[list[Resource]] = []
    cursor = None
    while not pages or cursor:
        page = await client.list_resources(cursor=cursor)
        pages.append(page.resources)
        cursor = page.next_cursor
        assert len(pages) < 100
    return pages


async def _all(client: Client) -> list[Resource]:
    return [resource for page in await _pages(client) for resource in page]


async def _read(client: Client, uri: str) -> tuple[str | None, bytes]:
    (content,) = (await client.read_resource(uri)).contents
    assert content.uri == uri
    if isinstance(content, TextResourceContents):
        return content.mime_type, content.text.encode()
    assert isinstance(content, BlobResourceContents)
    return content.mime_type, base64.b64decode(content.blob)


async def _json(client: Client, uri: str) -> Any:
    return json.loads((await _read(client, uri))[1])


async def test_capabilities_promise_what_is_kept(client: Client, era: str) -> None:
    assert client.protocol_version == ("2026-07-28" if era == "auto" else "2025-11-25")
    resources = client.server_capabilities.resources
    assert resources is not None
    assert (resources.subscribe, resources.list_changed) == (True, True)
    assert client.server_capabilities.completions is not None


async def test_all_resources_are_listed_once_with_their_sizes(client: Client, documents: Documents) -> None:
    pages = await _pages(client)
    assert len(pages) == 3
    assert max(map(len, pages)) <= 101
    resources = [resource for page in pages for resource in page]
    generated = 2 + 2 * len({collection for collection, _ in documents})
    uris = [resource.uri for resource in resources]
    assert len(uris) == len(set(uris)) == generated + len(documents)
    assert {document_uri(*key) for key in documents} <= set(uris)
    for resource in resources[: generated + 8]:
        mime_type, content = await _read(client, resource.uri)
        assert (resource.mime_type, resource.size) == (mime_type, len(content))
        assert resource.title
        assert (await _read(client, resource.uri))[1] == content
        if resource.uri != HEALTH_URI:
            assert resource.annotations is not None
            assert resource.annotations.last_modified


async def test_resources_are_named_for_people(client: Client, store: Store) -> None:
    store.import_files("docker", [], title="Docker Guides")
    store.put("docker", "ssl", b"\n# SSL certificates #\n\nFirst the key.\n", name="ssl.md")
    store.put("docker", "plain", b"# no Markdown", name="plain.txt")
    store.put("docker", "below", b"Some text\n# later", name="below.md")
    names = {resource.uri: resource.name for resource in await _all(client)}
    docker = "resource://knowledge/docker"
    assert {uri: name for uri, name in names.items() if uri.startswith(docker)} == {
        f"{docker}/documents": "Docker Guides - All Documents",
        f"{docker}/stats": "Docker Guides - Statistics",
        f"{docker}/document/ssl": "SSL certificates",
        f"{docker}/document/plain": "plain.txt",
        f"{docker}/document/below": "below.md",
    }
    assert (names[COLLECTIONS_URI], names[HEALTH_URI]) == ("Knowledge Base Collections", "System Health Status")


async def test_sizes_follow_the_data(client: Client, store: Store) -> None:
    before = {resource.uri: resource for resource in await _all(client)}
    store.put("docs", "empty", b"no longer")
    changed = {resource.uri for resource in await _all(client) if before[resource.uri] != resource}
    docs = "resource://knowledge/docs"
    assert changed == {COLLECTIONS_URI, f"{docs}/documents", f"{docs}/stats", f"{docs}/document/empty"}
    for resource in await _all(client):
        if resource.uri in changed:
            assert resource.size == len((await _read(client, resource.uri))[1])


async def test_removing_between_pages_hides_nothing(client: Client, store: Store) -> None:
    first = await client.list_resources()
    store.remove("docs", "empty")
    store.remove("many", "note-000")
    second = await client.list_resources(cursor=first.next_cursor)
    third = await client.list_resources(cursor=second.next_cursor)
    seen = [resource.uri for page in (first, second, third) for resource in page.resources]
    assert len(seen) == len(set(seen))
    assert {document_uri("many", f"note-{number:03}") for number in range(1, 230)} <= set(seen)


FOREIGN = [b"null", b'["document", "\\ud800", ""]', b"[" * 100_000]


@pytest.mark.parametrize("cursor", ["x", "", *(base64.b64encode(text).decode() for text in FOREIGN)])
async def test_a_foreign_cursor_is_refused(client: Client, cursor: str) -> None:
    with pytest.raises(MCPError) as caught:
        await client.list_resources(cursor=cursor)
    assert caught.value.code == types.INVALID_PARAMS


async def test_generated_resources(client: Client, documents: Documents) -> None:
    collections = await _json(client, COLLECTIONS_URI)
    assert [(one["id"], one["documentCount"]) for one in collections] == [("a/b ü%?", 1), ("docs", 5), ("many", 230)]
    for one in collections:
        assert set(one) == {"id", "name", "documentCount", "createdAt", "lastUpdated"}
        assert one["name"]
        assert one["createdAt"] <= one["lastUpdated"]

    listed = await _json(client, "resource://knowledge/docs/documents")
    assert [one["id"] for one in listed] == ["broken", "empty", "guides-install", "logo", "ssl-setup"]
    for one in listed:
        assert set(one) == {"id", "name", "size", "mimeType", "createdAt", "lastUpdated", "uri"}
        name, content = documents["docs", one["id"]]
        assert (one["name"], one["size"], one["uri"]) == (name, len(content), document_uri("docs", one["id"]))
        assert one["createdAt"] <= one["lastUpdated"]
        assert (await _read(client, one["uri"])) == (one["mimeType"], content)

    stats = await _json(client, "resource://knowledge/docs/stats")
    total = sum(len(content) for (collection, _), (_, content) in documents.items() if collection == "docs")
    assert (stats["id"], stats["name"]) == ("docs", "docs")
    assert stats["createdAt"] <= stats["lastUpdated"]
    assert (stats["documentCount"], stats["totalBytes"], stats["averageBytes"]) == (5, total, round(total / 5, 2))
    assert stats["mimeTypes"]["image/png"] == {"documentCount": 1, "totalBytes": 256}


async def test_health_tells_what_is_wrong(client: Client, store: Store) -> None:
    assert await _json(client, HEALTH_URI) == {
        "status": "ok",
        "components": {"database": {"status": "ok"}, "searchIndex": {"status": "ok"}},
    }
    connection = sqlite3.connect(store.path)
    connection.execute("INSERT INTO search (search) VALUES ('delete-all')")
    connection.commit()
    health = await _json(client, HEALTH_URI)
    assert (health["status"], health["components"]["searchIndex"]["status"]) == ("degraded", "error")
    connection.execute("DROP TABLE document")
    connection.close()
    health = await _json(client, HEALTH_URI)
    assert (health["status"], health["components"]["database"]["status"]) == ("error", "error")


async def test_a_failed_database_is_internal(client: Client, store: Store, caplog: pytest.LogCaptureFixture) -> None:
    connection = sqlite3.connect(store.path)
    connection.execute("DROP TABLE document")
    connection.close()
    with pytest.raises(MCPError, match="no such table") as caught:
        await client.read_resource(document_uri("docs", "empty"))
    assert caught.value.code == types.INTERNAL_ERROR
    assert [record.levelname for record in caplog.records if record.name.startswith("bbfs.")] == ["ERROR"]


UNKNOWN = [
    "resource://knowledge/docs",
    "resource://knowledge/docs/files",
    "other://x",
    "nonsense",
    "file:///etc/passwd",
]


@pytest.mark.parametrize(
    "uri",
    [
        "resource://knowledge/none/documents",
        "resource://knowledge/none/stats",
        "resource://knowledge/none/document/a",
        "resource://knowledge/docs/document/none",
        "resource://system/none",
        *UNKNOWN,
    ],
)
async def test_unknown_resources_are_not_found(client: Client, era: str, uri: str) -> None:
    with pytest.raises(MCPError) as caught:
        await client.read_resource(uri)
    assert caught.value.code == (types.INVALID_PARAMS if era == "auto" else -32002)
    assert caught.value.error.data == {"uri": uri}
    if uri in UNKNOWN:
        assert caught.value.message == f"Unknown resource URI pattern: {uri}"


async def test_templates(client: Client) -> None:
    templates = (await client.list_resource_templates()).resource_templates
    assert [template.uri_template for template in templates] == [
        "resource://knowledge/{collectionId}/documents",
        "resource://knowledge/{collectionId}/stats",
        "resource://knowledge/{collectionId}/document/{docId}",
    ]


async def _complete(
    client: Client, argument: str, prefix: str, *, template: str = DOCUMENT_TEMPLATE, **known: str
) -> tuple[list[str], int | None, bool | None]:
    reference = ResourceTemplateReference(uri=template)
    answer = await client.complete(reference, {"name": argument, "value": prefix}, context_arguments=known or None)
    return answer.completion.values, answer.completion.total, answer.completion.has_more


async def test_completion(client: Client) -> None:
    assert await _complete(client, "collectionId", "") == (["a/b ü%?", "docs", "many"], 3, False)
    assert await _complete(client, "collectionId", "d", template=STATS_TEMPLATE) == (["docs"], 1, False)
    assert await _complete(client, "docId", "note-01", collectionId="many") == (
        [f"note-01{digit}" for digit in range(10)],
        10,
        False,
    )
    assert await _complete(client, "docId", "note", collectionId="docs") == ([], 0, False)
    assert await _complete(client, "docId", "ssl") == (["ssl-setup"], 1, False)
    assert await _complete(client, "docId", "%") == ([], 0, False)
    values, total, has_more = await _complete(client, "docId", "", collectionId="many")
    assert (len(values), total, has_more) == (100, 230, True)


@pytest.mark.parametrize(("template", "argument"), [("resource://{x}", "x"), (STATS_TEMPLATE, "id")])
async def test_completion_of_what_there_is_not(client: Client, template: str, argument: str) -> None:
    with pytest.raises(MCPError) as caught:
        await _complete(client, argument, "", template=template)
    assert caught.value.code == types.INVALID_PARAMS


async def test_search_tool(client: Client) -> None:
    (tool,) = (await client.list_tools()).tools
    assert tool.annotations is not None
    assert tool.annotations.read_only_hint is True
    result = await client.call_tool("search_knowledge", {"query": "certificate", "collection": "docs"})
    assert not result.is_error
    (found,) = result.structured_content["results"]
    assert (found["id"], found["uri"]) == ("ssl-setup", document_uri("docs", "ssl-setup"))
    assert "**certificate**" in found["snippet"]
    (link,) = [content for content in result.content if isinstance(content, ResourceLink)]
    (listed,) = [resource for resource in await _all(client) if resource.uri == link.uri]
    assert (link.size, link.mime_type, link.name) == (listed.size, listed.mime_type, listed.name)
    nothing = await client.call_tool("search_knowledge", {"query": '"NEAR('})
    assert (nothing.is_error, nothing.structured_content) == (False, {"results": []})


@pytest.mark.parametrize(
    "arguments",
    [{}, {"query": 1}, {"query": "x", "limit": 0}, {"query": "x", "more": 1}, {"query": "x", "collection": "none"}],
)
async def test_wrong_arguments_are_told_to_the_caller_of_the_tool(client: Client, arguments: dict[str, Any]) -> None:
    result = await client.call_tool("search_knowledge", arguments)
    assert result.is_error


async def test_an_unknown_tool_is_an_error(client: Client) -> None:
    with pytest.raises(MCPError) as caught:
        await client.call_tool("none", {})
    assert caught.value.code == types.INVALID_PARAMS
