"""`load_datasource`, and the list of all resources: pages, depths, templates, completion."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked_daemon import forked
from harness import folder, mcp
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    BlobResourceContents,
    ListResourcesResult,
    Resource,
    ResourceTemplateReference,
    TextResourceContents,
)
from repository import SERVERS
from served import FILES

from bbfs.server.listing.resource_list import MOST_DIRECTORIES


async def look(client: Client, source: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool("load_datasource", {"dataSourceId": source, "format": "json", **arguments})
    assert result.structured_content is not None, result.content
    assert result.is_error == ("error" in result.structured_content)
    return result.structured_content


def names(page: dict[str, Any]) -> list[str]:
    return [resource["path"] for resource in page["resources"]]


def files(page: ListResourcesResult) -> list[Resource]:
    """What a page of the list has beside directories."""
    return [resource for resource in page.resources if resource.mime_type != "inode/directory"]


async def paged(client: Client, source: str, **arguments: Any) -> list[str]:
    """The paths of all pages."""
    found: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = await look(client, source, **arguments, **token)
        found += names(page)
        if "nextPageToken" not in page:
            return found
        token = {"pageToken": page["nextPageToken"]}


async def test_a_data_source(service: Callable[..., Any], sources: list[dict[str, Any]], era: str) -> None:
    async with service(*sources) as served, Client(served, mode=era) as client:
        await client.list_tools()  # whose schemas the client checks the results against from here on
        found = await look(client, "local")
        assert found["dataSource"] == {
            "id": "local",
            "name": "local",
            "type": "filesystem",
            "accessMethod": "bb",
            "uriPrefix": "bb-filesystem+local+file",
            "capabilities": ["read", "list"],
            "state": "up",
        }
        assert (found["dataSourceId"], found["dataSourceName"], found["dataSourceType"]) == (
            "local",
            "local",
            "filesystem",
        )
        assert names(found) == ["data.bin", "empty.txt", "link", "package.json", "pictures", "src", "tests"]
        kinds = {resource["path"]: resource["kind"] for resource in found["resources"]}
        assert (kinds["link"], kinds["src"], kinds["data.bin"]) == ("symlink", "directory", "resource")
        assert found["totalCount"] == 7
        assert [each["uriTemplate"] for each in found["uriTemplates"]] == ["bb-filesystem+local+file:./{path}"]

        found = await look(client, "mcp-server+kb")
        assert found["dataSourceId"] == "kb"
        assert {resource["uri"] for resource in found["resources"]} == {
            f"mcp-server+kb+resource://{rest}"
            for rest in (
                "knowledge/collections",
                "knowledge/docker/documents",
                "knowledge/docker/stats",
                "knowledge/docker/document/ssl-setup",
                "knowledge/docker/document/install",
                "system/health",
            )
        }
        assert {each["uriTemplate"] for each in found["uriTemplates"]} == {
            f"mcp-server+kb+resource://knowledge/{rest}"
            for rest in ("{collectionId}/documents", "{collectionId}/stats", "{collectionId}/document/{docId}")
        }
        # What is listed can be loaded.
        uris = [resource["uri"] for resource in found["resources"]]
        result = await client.call_tool("load_resources", {"format": "json", "directUris": uris})
        assert result.structured_content is not None
        assert all("error" not in outcome for outcome in result.structured_content["resources"])


async def test_depth_and_path(service: Callable[..., Any], sources: list[dict[str, Any]]) -> None:
    everything = sorted([*FILES, "link", "pictures", "src", "tests"], key=lambda name: tuple(name.split("/")))
    async with service(*sources, depth=2) as served, Client(served) as client:
        assert names(await look(client, "local")) == everything
        assert names(await look(client, "local", depth=1, path="/src/")) == ["src/config.ts"]
        assert names(await look(client, "kb", depth=1)) == ["resource"]
        assert names(await look(client, "kb", path="resource/knowledge", depth=1)) == [
            "resource/knowledge/collections",
            "resource/knowledge/docker",
        ]
        # A directory that is the value of a variable, as the source completes it.
        assert names(await look(client, "kb", path="resource/knowledge/docker/document", depth=1)) == [
            "resource/knowledge/docker/document/install",
            "resource/knowledge/docker/document/ssl-setup",
        ]


async def test_pages_are_stable(service: Callable[..., Any], local: Path) -> None:
    for number in range(25):
        (local / f"src/{number:02}.txt").write_text("x")
    table = {**folder("local", local), "ttl": 0}
    async with service(table) as served, Client(served) as client:
        whole = await paged(client, "local", depth=9)
        assert len(whole) == len(set(whole)) == len(FILES) + 4 + 25
        for size in (1, 7, 36):
            assert await paged(client, "local", depth=9, pageSize=size) == whole
        first = await look(client, "local", depth=9, pageSize=10)
        (local / "aaa.txt").write_text("before what was seen")
        (local / "src/04.txt").unlink()
        rest = await paged(client, "local", depth=9, pageToken=first["nextPageToken"])
        assert names(first) + rest == [path for path in whole if path != "src/04.txt" or path in names(first)]


async def test_tokens_are_checked(service: Callable[..., Any], sources: list[dict[str, Any]]) -> None:
    async with service(*sources) as served, Client(served) as client:
        token = (await look(client, "local", pageSize=2))["nextPageToken"]
        for source, arguments in (
            ("local", {"pageToken": "nonsense"}),
            ("local", {"pageToken": ""}),
            ("local", {"pageToken": token, "depth": 2}),
            ("local", {"pageToken": token, "path": "src"}),
            ("kb", {"pageToken": token}),
        ):
            found = await look(client, source, **arguments)
            assert found["error"]["code"] == "invalid_token"
        for cursor in ("nonsense", token):
            with pytest.raises(MCPError) as caught:
                await client.list_resources(cursor=cursor)
            assert caught.value.code == -32602


async def test_what_is_not_there(service: Callable[..., Any], sources: list[dict[str, Any]]) -> None:
    gone = mcp("gone", ["/nonexistent/server"])
    async with service(*sources, gone) as served, Client(served) as client:
        await client.list_tools()
        found = await look(client, "none")
        assert found["error"]["code"] == "data_source_not_found"
        assert found["error"]["message"] == "data source not found: none; there are: gone, items, kb, local"
        assert (await look(client, "local", path="none"))["error"]["code"] == "resource_not_found"
        assert (await look(client, "local", path="package.json"))["error"]["code"] == "type_mismatch"
        assert (await look(client, "kb", path="resource/none"))["error"]["code"] == "resource_not_found"
        down = await look(client, "gone")
        assert down["error"]["code"] == "unreachable"
        assert (down["dataSource"]["state"], down["resources"]) == ("down", [])


async def test_all_resources_of_all_sources(
    service: Callable[..., Any], sources: list[dict[str, Any]], local: Path, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    (local / ".hidden").write_text("x")
    for number in range(450):
        (local / f"src/{number:03}.txt").write_text("x")
    gone = mcp("gone", ["/nonexistent/server"])
    many = mcp("many", forked(SERVERS / "resources.py", "--count", "450"))
    async with service(*sources, gone, many) as served, Client(served, mode=era, cache=None) as client:
        uris: list[str] = []
        cursor: str | None = None
        pages = 0
        while pages == 0 or cursor is not None:
            page = await client.list_resources(cursor=cursor)
            uris += [resource.uri for resource in files(page)]
            cursor, pages = page.next_cursor, pages + 1
            assert len(files(page)) <= 200
        assert len(uris) == len(set(uris)) == len(FILES) + 450 + 6 + 5 + 452
        assert {f"bb-filesystem+local+file:./{name}" for name in FILES} <= set(uris)
        assert "gone: left out of the lists: " in caplog.text

        templates = (await client.list_resource_templates()).resource_templates
        assert {each.uri_template for each in templates} >= {
            "bb-filesystem+local+file:./{+path}",
            "mcp-server+kb+resource://knowledge/{collectionId}/document/{docId}",
            "mcp-server+many+test://items/{number}.txt",
        }


async def test_directories_that_lead_to_the_place_are_no_levels(service: Callable[..., Any], tmp_path: Path) -> None:
    root = tmp_path / "deep"
    (root / "a/b/c/d/e/f").mkdir(parents=True)
    for name in ("a/b/c/one.txt", "a/b/c/d/two.txt", "a/b/c/d/e/three.txt", "a/b/c/d/e/f/four.txt"):
        (root / name).write_text("x")
    async with service(folder("deep", root)) as served, Client(served) as client:
        found = [resource.uri.partition("file:./")[2] for resource in files(await client.list_resources())]
        assert found == ["a/b/c/one.txt", "a/b/c/d/two.txt", "a/b/c/d/e/three.txt"]


async def test_the_template_of_an_archive_leads_into_it(service: Callable[..., Any], tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("docs/a b.md", "# A\n")
    table = {"name": "old", "type": "storage", "config": {"url": f"zip://{archive}"}}
    async with service(table) as served, Client(served) as client:
        (listed,) = files(await client.list_resources())
        found = await look(client, "old", depth=99)
        (path,) = [each["path"] for each in found["resources"] if each["uri"] == listed.uri]
        for given in (path, f"/{path}"):
            template = found["uriTemplates"][0]["uriTemplate"]
            values = [{"path": given}]
            arguments = {"format": "json", "uriTemplate": template, "templateResources": values}
            result = await client.call_tool("load_resources", arguments)
            assert result.structured_content is not None
            (outcome,) = result.structured_content["resources"]
            assert (outcome["uri"], outcome["contents"][0]["text"]) == (listed.uri, "# A\n")


async def test_a_wide_tree_has_bounds(service: Callable[..., Any], local: Path) -> None:
    for number in range(MOST_DIRECTORIES):
        (local / f"pictures{number:03}").mkdir()
    last = MOST_DIRECTORIES - 3  # behind the root and "pictures"
    for number in (last, last + 1):
        (local / f"pictures{number:03}/logo.png").touch()
    async with service(folder("local", local)) as served, Client(served) as client:
        found = {resource.uri.partition("file:./")[2] for resource in files(await client.list_resources())}
        assert found == {"data.bin", "empty.txt", "package.json", "pictures/logo.png", f"pictures{last}/logo.png"}


async def test_reading(service: Callable[..., Any], sources: list[dict[str, Any]], era: str) -> None:
    not_found = -32602 if era == "auto" else -32002
    async with service(*sources, most_bytes=500) as served, Client(served, mode=era) as client:
        (text,) = (await client.read_resource("bb-filesystem+local+file:./src/config.ts")).contents
        assert isinstance(text, TextResourceContents)
        assert text.text.encode() == FILES["src/config.ts"]
        (blob,) = (await client.read_resource("bb-filesystem+local+file:./data.bin")).contents
        assert isinstance(blob, BlobResourceContents)
        assert len((await client.read_resource("mcp-server+items+test://many")).contents) == 2
        for uri, code in (
            ("bb-filesystem+local+file:./none", not_found),
            ("bb-filesystem+none+file:./none", not_found),
            ("bb-filesystem+local+file:./src", -32602),
            ("nonsense", -32602),
            ("bb-filesystem+local+file:./link", -32603),
        ):
            with pytest.raises(MCPError) as caught:
                await client.read_resource(uri)
            assert (uri, caught.value.code) == (uri, code)
            assert caught.value.error.data["uri"] == uri


async def test_completion(service: Callable[..., Any], sources: list[dict[str, Any]]) -> None:
    async def values(client: Client, template: str, name: str, value: str, **context: str) -> list[str]:
        ref = ResourceTemplateReference(uri=template)
        completed = await client.complete(ref, {"name": name, "value": value}, context_arguments=context or None)
        return completed.completion.values

    kb = "mcp-server+kb+resource://knowledge/{collectionId}/document/{docId}"
    async with service(*sources) as served, Client(served) as client:
        await client.list_resource_templates()
        own = "bb-filesystem+local+file:./{+path}"
        assert await values(client, own, "path", "p") == ["package.json", "pictures/"]
        assert await values(client, own, "path", "/src/c") == ["/src/config.ts"]
        assert await values(client, own, "path", "none/") == []
        assert await values(client, kb, "collectionId", "d") == ["docker"]
        assert await values(client, kb, "docId", "s", collectionId="docker") == ["ssl-setup"]
        for template, name in ((kb, "none"), ("mcp-server+kb+x://{y}", "y"), ("nonsense", "x")):
            with pytest.raises(MCPError) as caught:
                await values(client, template, name, "")
            assert caught.value.code == -32602
