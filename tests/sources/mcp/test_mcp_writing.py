"""Writing to a server by its tools."""

import base64
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from forked_daemon import forked

from bbfs.config import Config
from bbfs.fuse.mount_options import options
from bbfs.knowledge.database.store import Store
from bbfs.model.calls import Progress
from bbfs.model.errors import (
    BbfsError,
    Conflict,
    Denied,
    InvalidUri,
    NoSpace,
    NotFound,
    NotSupported,
    Rejected,
    TooLarge,
)
from bbfs.model.listing import Rows
from bbfs.model.values import Capabilities, DataSource, Loaded, McpServer, Part, RemoveTool, ResourceTemplate, WriteTool
from bbfs.model.versions import Expected
from bbfs.sources import MemoryContent, Services
from bbfs.sources.mcp import writing
from bbfs.sources.mcp.client.decode import Entries, content_version
from bbfs.sources.mcp.client.manager import MCPManager
from bbfs.sources.mcp.client.paging import End
from bbfs.sources.mcp.client.tool_entries import PromptEntry, ToolEntry
from bbfs.sources.mcp.handler import McpHandler

TEXT = {"type": "string"}
DOCUMENT = "resource://knowledge/{collectionId}/document/{docId}"
NEW = "resource://knowledge/docs/document/new"


def tool(name: str, *needed: str, hints: Any = None, **more: Any) -> ToolEntry:
    schema = {"type": "object", "properties": dict.fromkeys((*needed, *more), TEXT), "required": list(needed)}
    return ToolEntry(name, input_schema=schema, annotations=hints)


def source(write: WriteTool | None, remove: RemoveTool | None = None, server: McpServer | None = None) -> DataSource:
    return DataSource(
        "kb",
        "kb",
        "server",
        "mcp",
        "mcp-server+kb",
        capabilities=Capabilities(write=True),
        mcp=server or McpServer("http", url="http://127.0.0.1:1/mcp"),
        write=write,
        remove=remove,
    )


def of(data: bytes) -> Expected:
    return Expected(exists=True, version=MemoryContent(data).version)


def test_a_text_goes_as_it_is_and_other_bytes_in_base64() -> None:
    option = WriteTool("put", uri="id", content="text", blob="data", version="etag", arguments={"space": "x"})
    assert writing.write_call(option, "a:1", "ü\0".encode(), "7") == {
        "space": "x",
        "id": "a:1",
        "text": "ü\0",
        "etag": "7",
    }
    assert writing.write_call(option, "a:1", b"\xff", None) == {"space": "x", "id": "a:1", "data": "/w=="}
    only_bytes = WriteTool("put", content="", blob="data")
    assert writing.write_call(only_bytes, "a:1", b"text", "")["data"] == base64.b64encode(b"text").decode()
    with pytest.raises(NotSupported, match=r"write\.blob"):
        writing.write_call(WriteTool("put"), "a:1", b"\xff", None)


def test_the_type_of_a_name_goes_with_it() -> None:
    option = WriteTool("put", mime_type="type")
    assert writing.write_call(option, "a:x/y.md", b"", None)["type"] == "text/markdown"
    assert "type" not in writing.write_call(option, "a:x/y", b"", None)


@pytest.mark.parametrize(
    ("structured", "error"),
    [
        ({"code": "conflict"}, Conflict),
        ({"error": {"code": "Precondition Failed"}}, Conflict),
        ({"code": "not-found"}, NotFound),
        ({"code": "too_large"}, TooLarge),
        ({"code": "QUOTA_EXCEEDED"}, NoSpace),
        ({"code": "read_only"}, Denied),
        ({"code": "not_supported"}, NotSupported),
        ({"code": "invalid"}, Rejected),
        ({"code": 7}, Rejected),
        ({"code": ["conflict"]}, Rejected),
        (["conflict"], Rejected),
        (None, Rejected),
    ],
)
def test_the_code_of_an_error_decides(structured: Any, error: type[BbfsError]) -> None:
    result = {"isError": True, "content": [{"type": "text", "text": "no, because"}], "structuredContent": structured}
    with pytest.raises(error, match="no, because") as caught:
        writing.require_done(result)
    assert type(caught.value) is error


def test_the_result_describes_the_resource() -> None:
    link = {"type": "resource_link", "uri": "a:%C3%BC", "name": "n", "size": 3, "mimeType": "text/x", "title": "T"}
    link["annotations"] = {"lastModified": "2026-01-01T00:00:00Z"}
    found = writing.stored({"content": [{"type": "text", "text": "ok"}, link]}, source(None), "a:ü")
    assert (found.uri, found.native_uri, found.name) == ("mcp-server+kb+a:%C3%BC", "a:%C3%BC", "n")
    assert (found.size, found.mime_type, found.title) == (3, "text/x", "T")
    assert found.modified_ns == 1767225600 * 10**9
    structured = writing.stored({"structuredContent": {"size": 3, "version": "2"}}, source(None), "a:x/y")
    assert (structured.native_uri, structured.name, structured.size) == ("a:x/y", "y", 3)


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"content": [{"type": "text", "text": "done"}]},
        {"content": [{"type": "resource_link", "uri": "a:other", "size": 3}]},
        {"structuredContent": {"uri": "a:other", "size": 3}},
        {"structuredContent": {"uri": 5, "size": 3}},
        {"structuredContent": [1]},
    ],
)
def test_another_resource_says_nothing_of_this_one(result: dict[str, Any]) -> None:
    found = writing.stored(result, source(None), "a:x")
    assert (found.uri, found.native_uri, found.name, found.size) == ("mcp-server+kb+a:x", "a:x", "a:x", None)


@pytest.mark.parametrize(
    ("result", "version"),
    [
        ({"contents": [{"uri": "a:1", "_meta": {"etag": "1"}}], "_meta": {"etag": "2"}}, "1"),
        ({"contents": [{"uri": "a:1", "_meta": {"version": "1"}}]}, "1"),
        ({"contents": [{"uri": "a:1"}], "_meta": {"etag": "2"}}, "2"),
        ({"contents": [{"uri": "a:1", "_meta": {"etag": "1"}}, {"uri": "a:2"}]}, None),
        ({"contents": [{"uri": "a:1", "_meta": {"etag": ["1"]}}, 5], "_meta": []}, None),
        ({"contents": [{"uri": "a:1", "_meta": {"etag": "\ud800"}}]}, None),
    ],
)
def test_the_version_of_a_content(result: dict[str, Any], version: str | None) -> None:
    assert content_version(result) == version


def test_tools_that_plainly_write_are_proposed() -> None:
    tools = [
        tool("put_document", "uri", content=TEXT, blob=TEXT, version=TEXT, mime_type=TEXT),
        tool("removeDocument", "uri", version=TEXT),
        tool("save", "uri", "content"),
    ]
    lines = writing.proposal([tool("search", "query"), *tools])
    assert tomllib.loads("\n".join(lines)) == {
        "capabilities": ["read", "list", "search", "write"],
        "write": {"tool": "put_document", "blob": "blob", "version": "version", "mime_type": "mime_type"},
        "remove": {"tool": "removeDocument", "version": "version"},
    }
    assert writing.proposal(tools, ["capabilities", "remove"]) == lines[1:2]


@pytest.mark.parametrize(
    "other",
    [
        tool("put_document", "uri", "content", hints={"readOnlyHint": True}),
        tool("put_document", "uri", "content", "space"),
        tool("put_document", "path", "content"),
        tool("compute", "uri", "content"),
        tool("remove_document", "uri"),
    ],
)
def test_no_other_tool_is_proposed(other: ToolEntry) -> None:
    assert writing.proposal([other]) == ()


class Notes(MCPManager):
    """A server with one resource, and a tool for whatever a test calls. Reads may have a version."""

    def __init__(self, content: bytes | None, version: str | None = None, tools: tuple[ToolEntry, ...] = ()) -> None:
        super().__init__()
        self.content, self.version, self.tools = content, version, tools
        self.calls: list[tuple[str, Mapping[str, Any]]] = []

    async def list_tools(self, server_id: str) -> Entries[ToolEntry]:
        return Entries(self.tools)

    async def load_version(self, server_id: str, native_uri: str) -> tuple[Loaded, str | None]:
        if self.content is None:
            raise NotFound(native_uri)
        return Loaded((Part(None, None, MemoryContent(self.content)),)), self.version

    async def call_tool(
        self,
        server_id: str,
        tool: ToolEntry,
        arguments: Mapping[str, Any],
        progress: Callable[[Progress], None] | None = None,
    ) -> dict[str, Any]:
        self.calls.append((tool.name, arguments))
        return {"content": []}


def handler(notes: MCPManager, **options: Any) -> McpHandler:
    put = WriteTool("put", version="etag", **options)
    return McpHandler(source(put, RemoveTool("drop", version="etag")), Services(mcp=notes))


def notes(content: bytes | None = b"old", version: str | None = "7") -> Notes:
    return Notes(content, version, (tool("put", "uri", "content"), tool("drop", "uri")))


async def test_the_version_of_the_expected_content_goes_with_a_call() -> None:
    server = notes()
    made = handler(server)
    assert made.detects_conflicts
    await made.write("a:1", MemoryContent(b"new"), of(b"old"))
    await made.write("a:1", MemoryContent(b"new"), Expected(exists=False))
    await made.write("a:1", MemoryContent(b"new"), Expected())
    await made.remove("a:1", of(b"old"))
    given = {"uri": "a:1", "content": "new"}
    assert server.calls == [
        ("put", {**given, "etag": "7"}),
        ("put", {**given, "etag": ""}),
        ("put", given),
        ("drop", {"uri": "a:1", "etag": "7"}),
    ]


@pytest.mark.parametrize("now", [b"other", None])
async def test_another_content_is_a_conflict(now: bytes | None) -> None:
    server = notes(now)
    made = handler(server)
    with pytest.raises(Conflict):
        await made.write("a:1", MemoryContent(b"new"), of(b"old"))
    with pytest.raises(Conflict):
        await made.remove("a:1", of(b"old"))
    assert server.calls == []


@pytest.mark.parametrize(
    ("version", "max_size", "error", "why"),
    [(None, 9, NotSupported, "leave the option version out"), ("7", 2, TooLarge, r"write\.max_size")],
)
async def test_what_the_options_do_not_let_through(
    version: str | None, max_size: int, error: type[BbfsError], why: str
) -> None:
    server = notes(version=version)
    with pytest.raises(error, match=why):
        await handler(server, max_size=max_size).write("a:1", MemoryContent(b"new"), of(b"old"))
    assert server.calls == []


async def test_without_a_version_bbfs_has_to_compare() -> None:
    server = notes(version=None)
    made = McpHandler(source(WriteTool("put")), Services(mcp=server))
    assert not made.detects_conflicts
    await made.write("a:1", MemoryContent(b"new"), of(b"other"))
    assert server.calls == [("put", {"uri": "a:1", "content": "new"})]


async def test_a_tool_that_is_missing_is_named() -> None:
    """Also by the listing, which 'bbfs doctor' and 'bbfs sources' show."""

    class Listed(Notes):
        async def reads_directories(self, server_id: str) -> bool:
            return False

        async def has_skills(self, server_id: str) -> bool:
            return False

        async def gather_resources(self, server_id: str, rows: Rows, exchange: object = None) -> End:
            return End(None, None)

        async def list_resource_templates(self, server_id: str) -> Entries[ResourceTemplate]:
            return Entries(())

        async def list_prompts(self, server_id: str) -> Entries[PromptEntry]:
            return Entries(())

    with pytest.raises(NotSupported, match="no tool 'put'"):
        await handler(Notes(b"")).write("a:1", MemoryContent(b"new"), Expected())
    listing = await handler(Listed(b"", tools=(tool("drop", "uri"),))).list()
    assert listing.problem == "option write: the server has no tool 'put'"


def test_a_template_says_which_uris_are_written() -> None:
    made = handler(notes(), template="a:{+id}.md")
    assert made.writes("a:x/y.md") == ("create", "replace", "remove")
    assert made.writes("a:x/y.txt") == ("remove",)
    assert made.writes("tool://put/description.md") == ()
    assert McpHandler(source(None), Services(mcp=notes())).writes("a:x") == ()
    with pytest.raises(InvalidUri):
        handler(notes(), template="a:{")


@pytest.mark.semantics("S28", "S31.5")
@pytest.mark.parametrize(
    ("write", "remove", "access"),
    [(None, None, "ro"), (WriteTool("put"), None, "rw"), (None, RemoveTool("drop"), "rw")],
)
def test_a_server_without_the_tool_is_read_only(
    write: WriteTool | None, remove: RemoveTool | None, access: str
) -> None:
    """Else a program that makes a name of a template gets ENOENT, and not the reason."""
    made = McpHandler(source(write, remove), Services(mcp=notes()))
    assert access in options(Config(), [made])


async def test_the_knowledge_base_is_written(manager: MCPManager, tmp_path: Path) -> None:
    with Store(tmp_path / "kb.sqlite") as store:
        store.put("docs", "new", b"old")
    command, *args = forked("-m", "bbfs.knowledge", "serve", "--db", tmp_path / "kb.sqlite", "--writable")
    server = McpServer("stdio", command, tuple(args))
    guarded = WriteTool("put_document", blob="blob", version="version", template=DOCUMENT)
    made = McpHandler(
        source(guarded, RemoveTool("remove_document", version="version"), server),
        Services(mcp=manager),
    )
    with trio.fail_after(60):
        await made.list()
        assert made.proposed_write == ()
        unnamed = replace(source(None, None, server), id="unnamed")
        granted = McpHandler(unnamed, Services(mcp=manager))
        await granted.list()
        assert {*tomllib.loads("\n".join(granted.proposed_write))} == {"write", "remove"}
        assert made.writes("resource://knowledge/docs/documents") == ("remove",)
        odd = await made.write("resource://knowledge/docs/document/a!b", MemoryContent(b"x"), Expected(exists=False))
        assert odd.native_uri == "resource://knowledge/docs/document/a%21b"
