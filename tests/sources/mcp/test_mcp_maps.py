"""Maps: tools of a server as a tree."""

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from bbfs.model.calls import Progress
from bbfs.model.errors import (
    BbfsError,
    ConfigError,
    Denied,
    Exists,
    InvalidUri,
    NotADirectory,
    NotEmpty,
    NotFound,
    NotSupported,
    ProtocolViolation,
    TooLarge,
    ToolFailed,
)
from bbfs.model.values import Capabilities, DataSource, McpServer, RemoveTool
from bbfs.model.versions import Expected
from bbfs.sources import MemoryContent, Services
from bbfs.sources.mcp.client.decode import Entries
from bbfs.sources.mcp.client.manager import MCPManager
from bbfs.sources.mcp.client.tool_entries import ToolEntry
from bbfs.sources.mcp.maps.answers import MOST_ENTRIES, Named, names_in, python_json
from bbfs.sources.mcp.maps.forms import Form, Place
from bbfs.sources.mcp.maps.handler import DEEPEST, MapHandler
from bbfs.sources.mcp.maps.options import map_options
from bbfs.sources.mcp.maps.proposals import proposal
from bbfs.sources.mcp.maps.shipped import shipped

FILES = {
    "errors": {"{any}ENOENT{any}": "not_found"},
    "list": {
        "tool": "ls",
        "arguments": {"path": "/{path}"},
        "lines": {"[DIR] {name}": "{name}/", "[FILE] {name}": "{name}"},
    },
    "read": {"tool": "cat", "arguments": {"path": "/{path}"}},
    "write": {"tool": "put", "arguments": {"path": "/{path}", "content": "{content}"}, "max_size": 10},
}


class Tools(MCPManager):
    """A server that answers calls of its tools with texts, JSON (as structured content) or errors."""

    def __init__(self, **answers: Any) -> None:
        super().__init__()
        self.answers = answers
        self.hints: dict[str, Any] = {}
        self.schemas: dict[str, Mapping[str, Any]] = {}
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.ran: list[ToolEntry] = []

    async def list_tools(self, server_id: str) -> Entries[ToolEntry]:
        schemas = self.schemas
        tools = (
            ToolEntry(name, input_schema=schemas.get(name, {}), annotations=self.hints.get(name))
            for name in self.answers
        )
        return Entries(tuple(tools))

    async def call_tool(
        self,
        server_id: str,
        tool: ToolEntry,
        arguments: Mapping[str, Any],
        progress: Callable[[Progress], None] | None = None,
    ) -> dict[str, Any]:
        self.calls.append((tool.name, arguments))
        self.ran.append(tool)
        answer = self.answers[tool.name]
        answer = answer(arguments) if callable(answer) else answer
        if isinstance(answer, Exception):
            return {"isError": True, "content": [{"type": "text", "text": str(answer)}]}
        return texts(answer) if isinstance(answer, str) else {"content": [], "structuredContent": answer}


def texts(*given: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": each} for each in given]}


def source(tree: Mapping[str, Any], **more: Any) -> DataSource:
    server = McpServer("stdio", command="server")
    return DataSource(
        "x", "x", "server", "mcp", "mcp-server+x+tree", Capabilities(write=True), mcp=server, map=tree, **more
    )


def handler(tree: Mapping[str, Any], server: MCPManager | None = None, **more: Any) -> MapHandler:
    return MapHandler(source(tree, **more), Services(mcp=server or Tools()))


async def listed(made: MapHandler, *path: str) -> dict[str, str]:
    return {each.native_uri: each.kind for each in (await made.list_directory(path)).resources}


async def read(made: MapHandler, uri: str) -> bytes:
    (part,) = (await made.load(uri)).parts
    return await part.content.read_waiting(0, part.content.size)


@pytest.mark.parametrize(
    ("template", "text", "values"),
    [
        ("[DIR] {name}", "[DIR] a [DIR] b", {"name": "a [DIR] b"}),
        ("[DIR] {name}", "x [DIR] b", None),
        ("- {name} ({size})", "- a (1).docx (12 KB)", {"name": "a (1).docx", "size": "12 KB"}),
        ("{date} {name}", "today a b", {"date": "today", "name": "a b"}),
        ("{a}: {b}", "x: y: z", {"a": "x", "b": "y: z"}),
        ("{any}ENOENT{any}", "ENOENT", {}),
        ("{any}ENOENT{any}", "an ENOEN", None),
        ("{a}-{a}", "x-x", {"a": "x"}),
        ("{a}-{a}", "x-y", None),
        ("[{name}]", "[]", None),
        ("{name}.", ".", None),
        ("only this", "only this", {}),
    ],
)
def test_a_line_has_a_form(template: str, text: str, values: dict[str, str] | None) -> None:
    assert Form.of(template).match(text) == values


@pytest.mark.parametrize("template", ["{a}{b}", "{", "{a:3}", "{?a}", "{a,b}"])
def test_a_form_is_refused(template: str) -> None:
    with pytest.raises(InvalidUri):
        Form.of(template)


@pytest.mark.parametrize(
    ("template", "path", "values"),
    [
        ("", (), {}),
        ("", ("a",), None),
        ("commit/{hash}.txt", ("commit", "f00.txt"), {"hash": "f00"}),
        ("commit/{hash}.txt", ("commit",), None),
        ("{+any}.png", ("a", "b.png"), {}),
        ("{db}/{+rest}", ("x", "y", "z"), {"db": "x", "rest": "y/z"}),
        ("{db}/{+rest}", ("x",), None),
        ("{a}/{a}", ("x", "y"), None),
    ],
)
def test_a_place_has_values(template: str, path: tuple[str, ...], values: dict[str, str] | None) -> None:
    assert Place(template).match(path) == values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"list": None}, r"map\.list: this option is required"),
        ({"list": {"tool": "ls"}}, r"map\.list: should have names, or a tool with lines or items"),
        ({"read": {"tol": "cat"}}, r"map\.read\.0\.tol: unknown option; did you mean 'tool'"),
        ({"read": {"tool": "cat", "arguments": {"path": "{root}/{path}"}}}, r"map\.read: \{root\} has no value"),
        ({"read": [FILES["read"], {"tool": "cat", "at": "{"}]}, r"map\.read\[2\]: malformed template"),
        ({"list": {"tool": "ls", "lines": {"{name}": "{id}"}}}, r"map\.list: lines: \{id\} is not in the form"),
        ({"list": {"tool": "ls", "items": {"a": "{id}"}}}, r"map\.list: items: 'a' is no JSON pointer"),
        ({"errors": {"{any}": "odd"}}, r"map\.errors: 'odd' is none of .*not_found"),
        ({"use": "server-filesystm"}, r"map\.use: no map 'server-filesystm'; bbfs has .*server-filesystem"),
        ({"use": "server-filesystem"}, r"map\.values: the map 'server-filesystem' needs root"),
        ({"reed": {}}, r"map\.reed: unknown option; did you mean 'read'"),
    ],
)
def test_a_fault_of_a_map_is_named_by_its_key(change: Mapping[str, Any], message: str) -> None:
    tree = {key: value for key, value in {**FILES, **change}.items() if value is not None}
    with pytest.raises(ConfigError, match=message):
        handler(tree)


def test_options_for_resources_belong_to_no_map() -> None:
    with pytest.raises(ConfigError, match=r"remove: is for resources; with a map it is map\.remove"):
        handler(FILES, remove=RemoveTool("rm"))


@pytest.mark.parametrize("name", shipped())
def test_a_map_that_comes_with_bbfs_can_be_used(name: str) -> None:
    made = handler({"use": name, "values": dict.fromkeys(shipped()[name].needs, "/x")})
    assert made.notes[0].startswith("A map shows the tools")
    assert map_options(made.source).use == name


async def test_lines_become_entries() -> None:
    server = Tools(ls="[DIR] a b\n[FILE] ü.md\n[FILE] ..\n[FILE] x\ny\n\n", cat="text")
    made = handler(FILES, server)
    listing = await made.list_directory(())
    assert [(each.native_uri, each.name, each.kind) for each in listing.resources] == [
        ("tree://a%20b", "a b", "directory"),
        ("tree://%C3%BC.md", "ü.md", "resource"),
        ("tree://x", "x", "resource"),
    ]
    assert listing.problem == "lines or items of the answer that are no names: 2"
    await made.list_directory(("a%20b",))
    assert await read(made, "tree://a%20b/%C3%BC.md") == b"text"
    assert server.calls == [("ls", {"path": "/"}), ("ls", {"path": "/a b"}), ("cat", {"path": "/a b/ü.md"})]
    assert all(tool.repeatable for tool in server.ran), "the map says that the tools only read"


@pytest.mark.parametrize(
    "uri", ["tree://%2E%2E/passwd", "tree://..%2Fpasswd", "tree://a/..", "tree://", "a:b", "tree://%FF"]
)
async def test_no_path_leads_out_of_the_tree(uri: str) -> None:
    server = Tools(cat="secret")
    with pytest.raises(NotFound):
        await handler(FILES, server).load(uri)
    assert server.calls == []


async def test_items_become_entries() -> None:
    tree = {
        "list": [
            {"at": "", "tool": "boards", "items": {"/boards": "{meta.id}/"}},
            {"at": "{board}", "tool": "cards", "arguments": {"id": "{board}", "most": 5}, "items": {"": "{title}.json"},
             "directories": {"kind": "list"}, "names": ["about.txt"]},
        ],
        "read": {"at": "{board}/{title}.json", "tool": "card", "arguments": {"ids": [{"t": "{title}"}]},
                 "result": "/a~1b/0"},
    }  # fmt: skip
    server = Tools(
        boards={"boards": [{"meta": {"id": 7}}, {"meta": {}}]},
        cards=[{"title": "a/b"}, {"title": "x", "kind": "list"}, "odd"],
        card={"a/b": [{"title": "ü"}]},
    )
    made = handler(tree, server)
    assert await listed(made) == {"tree://7": "directory"}
    assert await listed(made, "7") == {
        "tree://7/about.txt": "resource",
        "tree://7/a%2Fb.json": "resource",
        "tree://7/x.json": "directory",
    }
    assert json.loads(await read(made, "tree://7/a%2Fb.json")) == {"title": "ü"}
    assert server.calls[1:] == [("cards", {"id": "7", "most": 5}), ("card", {"ids": [{"t": "a/b"}]})]
    with pytest.raises(NotADirectory):
        await made.list_directory(("7", "x", "y"))
    with pytest.raises(NotSupported, match="no call for it"):
        await made.load("tree://7/x.md")
    server.answers["card"] = {"a/b": []}
    with pytest.raises(NotFound):
        await made.load("tree://7/a.json")


async def test_the_names_of_a_whole_tree() -> None:
    tree = {**FILES, "list": {"tool": "ls", "lines": {"{name}": "{name}"}, "whole": True}}
    made = handler(tree, Tools(ls="/a/b/c.md\na/d.md\ne.md\nf/\n"))
    assert await listed(made) == {"tree://a": "directory", "tree://e.md": "resource", "tree://f": "directory"}
    assert await listed(made, "a") == {"tree://a/b": "directory", "tree://a/d.md": "resource"}
    with pytest.raises(NotFound):
        await made.list_directory(("x",))


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (texts('["a", "b"]'), ["a", "b"]),
        (texts("a", "b"), ["a", "b"]),
        (texts("1", "2"), ["1", "2"]),
        ({**texts('["a"]'), "structuredContent": {"result": '["a"]'}}, ["a"]),
        ({**texts("a"), "structuredContent": {"result": ["a"]}}, ["a"]),
        ({"content": [], "structuredContent": {"result": {"a": 1}}}, ["1"]),
    ],
)
def test_an_answer_has_the_form_of_its_sdk(result: dict[str, Any], expected: list[str]) -> None:
    assert [*names_in(result, Named(items=(("", "{item}"),))).names] == expected


@pytest.mark.parametrize(
    "value",
    [[{"name": "it's", 'a "b"': None, "c": (1, -2.5, True)}], "\x1b\n\\ \U0001f600 ü", {"a": [(), (1,)]}, [], "'\"\\'"],
)
def test_the_text_of_a_python_value_is_read(value: Any) -> None:
    assert json.loads(python_json(repr(value))) == json.loads(json.dumps(value))


@pytest.mark.parametrize("text", ["['a", '"', r"'\U00110000'"])
def test_a_text_of_python_without_end_is_refused(text: str) -> None:
    with pytest.raises(ProtocolViolation):
        python_json(text)


@pytest.mark.parametrize("text", ["[" + "0," * 600_000 + "0]", '["' + "x" * (17 << 20) + '"]'], ids=["values", "bytes"])
def test_the_texts_of_an_answer_have_the_bounds_of_one(text: str) -> None:
    named = Named(items=(("", "{item}"),))
    names_in(texts(text), named)
    with pytest.raises(TooLarge):
        names_in(texts(text, text), named)


def test_a_directory_has_a_bound() -> None:
    found = names_in(texts("\n".join(map(str, range(MOST_ENTRIES + 2)))), Named(lines=[(Form.of("{name}"), "{name}")]))
    assert len(found.names) == MOST_ENTRIES
    assert found.problem == f"only the first {MOST_ENTRIES} entries are there"


async def test_a_tree_has_a_bound() -> None:
    server = Tools(ls="[DIR] a")
    with pytest.raises(NotSupported):
        await handler(FILES, server).list_directory(("a",) * DEEPEST)
    assert server.calls == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Exception("ENOENT: x"), NotFound),
        (Exception("no"), ToolFailed),
        ("Error: ENOENT, x", NotFound),
        (Exception("Note 'b.md' not found"), NotFound),
        (Exception("program 'git' not found"), ToolFailed),
        (Exception("odd"), NotFound),
    ],
)
async def test_an_error_is_known_by_its_text(answer: object, error: type[BbfsError]) -> None:
    listed = "[FILE] b.md" if error is ToolFailed else "[FILE] c.md"
    with pytest.raises(error):
        await handler(FILES, Tools(cat=answer, ls=listed)).load("tree://a/b.md")


async def test_a_text_of_several_lines_is_no_error() -> None:
    assert await read(handler(FILES, Tools(cat="about\nENOENT")), "tree://a") == b"about\nENOENT"


async def test_a_text_with_replaced_bytes_is_no_content() -> None:
    with pytest.raises(NotSupported, match="not the bytes"):
        await handler(FILES, Tools(cat="\x00\ufffd")).load("tree://a")


async def test_a_value_in_a_query_has_no_quotation_mark() -> None:
    read_rows = {"at": "{t}.json", "tool": "cat", "arguments": {"q": 'SELECT "{t}"'}, "without": '"'}
    server = Tools(cat="[]")
    with pytest.raises(NotSupported, match="without"):
        await handler({**FILES, "read": read_rows}, server).load("tree://a%22;.json")
    assert server.calls == []


@pytest.mark.semantics("S31.12")
async def test_a_tool_that_declares_to_change_something_reads_nothing() -> None:
    server = Tools(cat="x")
    server.hints["cat"] = {"readOnlyHint": False}
    with pytest.raises(Denied, match="declares that it changes something"):
        await handler(FILES, server).load("tree://a")
    assert server.calls == []


async def test_all_pages_are_taken() -> None:
    def page(arguments: Mapping[str, Any]) -> dict[str, Any]:
        number = arguments["page"]
        return {"names": [{"name": f"{number}.md"}], "more": number < 3}

    def text(arguments: Mapping[str, Any]) -> dict[str, Any]:
        at = arguments.get("cursor", 0)
        return {"rows": [at, at + 1], "next": at + 2 if at < 4 else None}

    tree = {
        "list": {"tool": "ls", "arguments": {"page": "{page}"}, "items": {"/names": "{name}"}, "next": "/more"},
        "read": {"tool": "cat", "arguments": {"cursor": "{next}"}, "result": "/rows", "next": "/next"},
    }
    server = Tools(ls=page, cat=text)
    made = handler(tree, server)
    assert [*await listed(made)] == ["tree://1.md", "tree://2.md", "tree://3.md"]
    assert json.loads(await read(made, "tree://1.md")) == [0, 1, 2, 3, 4, 5]
    assert [arguments for _, arguments in server.calls[3:]] == [{}, {"cursor": 2}, {"cursor": 4}]
    server.answers["cat"] = {"rows": [], "next": True}
    with pytest.raises(TooLarge, match="pages"):
        await made.load("tree://1.md")


async def test_a_search_gives_paths() -> None:
    found = {"tool": "find", "arguments": {"q": "{query}", "n": "{limit}"}, "items": {"/hits": "{dir}/{file}"}}
    server = Tools(find={"hits": [{"dir": "a b", "file": "c"}, {"dir": "d"}]})
    made = handler({**FILES, "search": found}, server)
    assert [hit.native_uri for hit in await made.search("some words", 5)] == ["tree://a%20b/c"]
    assert server.calls == [("find", {"q": "some words", "n": 5})]
    assert made.searches
    assert not handler(FILES).searches


async def test_a_file_is_written_by_a_call() -> None:
    server = Tools(put="done", cat="x")
    made = handler(FILES, server)
    assert made.writes("tree://a/b") == ["remove_directory", "create", "replace"]
    assert made.writes("tree://") == []
    assert made.writes_unseen
    stored = await made.write("tree://a/b", MemoryContent(b"new"), Expected())
    assert (stored.native_uri, stored.size, stored.etag) == ("tree://a/b", None, None)
    assert server.calls == [("put", {"path": "/a/b", "content": "new"})]
    with pytest.raises(TooLarge, match=r"map\.write\.max_size"):
        await made.write("tree://a", MemoryContent(b"x" * 11), Expected())
    with pytest.raises(NotSupported, match="UTF-8"):
        await made.write("tree://a", MemoryContent(b"\xff"), Expected())
    with pytest.raises(NotSupported, match="removes no such file"):
        await made.remove("tree://a", Expected())
    assert len(server.calls) == 1
    assert not server.ran[0].repeatable


async def test_a_file_that_is_not_there_may_have_a_call_of_its_own() -> None:
    tree = {**FILES, "create": {"tool": "new", "arguments": {"title": "{path}", "text": "{content}"}}}
    server = Tools(put="", new="", cat=Exception("ENOENT"))
    made = handler(tree, server)
    await made.write("tree://a", MemoryContent(b"1"), Expected(exists=False))
    await made.write("tree://a", MemoryContent(b"2"), Expected())
    server.answers["cat"] = "1"
    await made.write("tree://a", MemoryContent(b"3"), Expected())
    await made.write("tree://a", MemoryContent(b"4"), Expected(exists=True))
    assert [(name, *arguments.values()) for name, arguments in server.calls if name != "cat"] == [
        ("new", "a", "1"), ("new", "a", "2"), ("put", "/a", "3"), ("put", "/a", "4"),
    ]  # fmt: skip
    del tree["write"]
    assert handler(tree).writes("tree://a") == ["remove_directory", "create"]


async def test_other_changes_are_calls_as_well() -> None:
    tree = {
        **FILES,
        "write": {"tool": "put", "arguments": {"data": "{blob}"}, "changes": True},
        "remove": {"at": "{id}.md", "tool": "rm", "arguments": {"id": "{id}"}},
        "makeDirectory": {"tool": "mkdir", "arguments": {"p": "{path}", "in": "{folder}"}},
    }
    server = Tools(put="", rm="", mkdir=Exception("ENOENT"))
    made = handler(tree, server)
    assert made.writes("tree://a.md") == ["remove_directory", "make_directory", "create", "replace", "remove"]
    assert not made.writes_unseen
    await made.write("tree://a", MemoryContent(b"\xff"), Expected())
    await made.remove("tree://a.md", Expected(exists=True))
    with pytest.raises(NotFound):
        await made.make_directory("tree://a/b")
    assert server.calls == [("put", {"data": "/w=="}), ("rm", {"id": "a"}), ("mkdir", {"p": "a/b", "in": "a"})]


@pytest.mark.parametrize("replaces", [False, True])
async def test_a_file_is_renamed_by_a_call(replaces: bool) -> None:
    names, moves = {"[FILE] a.md", "[FILE] b.md", "[DIR] d"}, list[Mapping[str, Any]]()

    def move(arguments: Mapping[str, Any]) -> str:
        moves.append(arguments)
        names.remove(f"[FILE] {arguments['from']}.md")
        names.add(f"[FILE] {arguments['to']}.md")
        return "moved"

    rule = {"at": "{+old}.md", "to": "{+new}.md", "tool": "mv", "arguments": {"from": "{old}", "to": "{to_stem}"}}
    server = Tools(ls=lambda _: "\n".join(names), mv=move)
    made = handler({**FILES, "rename": {**rule, "replaces": replaces}}, server)
    assert "rename" in made.writes("tree://a.md")
    assert "rename" not in made.writes("tree://d")
    assert made.renames("tree://a.md", "tree://c.md", is_directory=False, replace=False)
    assert not made.renames("tree://a.md", "tree://c.txt", is_directory=False, replace=False)
    assert not made.renames("tree://a.md", "tree://c.md", is_directory=True, replace=True)
    assert made.renames("tree://a.md", "tree://b.md", is_directory=False, replace=True) is replaces
    for over in (False, True)[: 1 if replaces else 2]:
        with pytest.raises(Exists):
            await made.rename("tree://a.md", "tree://b.md", replace=over)
    assert moves == []
    to = "tree://b.md" if replaces else "tree://c.md"
    assert (await made.rename("tree://a.md", to, replace=replaces)).native_uri == to
    assert moves == [{"from": "a", "to": to[7:8]}]
    with pytest.raises(NotSupported):
        await made.rename("tree://d", "tree://e", replace=False)
    server.answers["mv"] = "done"
    with pytest.raises(BbfsError, match="the server has no such name"):
        await made.rename(to, "tree://x.md", replace=False)


def test_a_rename_may_be_for_some_new_names() -> None:
    rule = {"at": "{board}/{title}", "to": "{board}/{new}", "tool": "mv", "arguments": {"t": "{title}", "n": "{new}"}}
    made = handler({**FILES, "rename": {**rule, "directories": True}})
    assert made.renames("tree://x/a", "tree://x/b", is_directory=True, replace=True)
    assert not made.renames("tree://x/a", "tree://y/a", is_directory=False, replace=False)
    with pytest.raises(ConfigError, match=r"map\.rename: \{other\} has no value"):
        handler({**FILES, "rename": {**rule, "arguments": {"t": "{other}"}}})


async def test_only_a_directory_that_is_empty_now_is_removed() -> None:
    server = Tools(ls="[FILE] a", rmdir="")
    made = handler({**FILES, "removeDirectory": {"tool": "rmdir", "arguments": {"p": "{path}"}}}, server)
    with pytest.raises(NotEmpty):
        await made.remove_directory("tree://d")
    server.answers["ls"] = ""
    await made.remove_directory("tree://d")
    assert server.calls[-1] == ("rmdir", {"p": "d"})
    await handler(FILES, server).remove_directory("tree://d")  # it went with its last file
    server.answers["ls"] = "[DIR] d"
    with pytest.raises(NotSupported):
        await handler(FILES, server).remove_directory("tree://d")


def tool(name: str, *needed: str, optional: tuple[str, ...] = (), output: Any = None, reads: bool = False) -> ToolEntry:
    known = {each: {"type": "string"} for each in (*needed, *optional)}
    schema = {"type": "object", "properties": known, "required": list(needed)}
    hints = {"readOnlyHint": True} if reads else None
    return ToolEntry(name, input_schema=schema, output_schema=output, annotations=hints)


def test_a_map_that_comes_with_bbfs_is_proposed_for_its_server() -> None:
    tools = [tool("list_directory", "path"), tool("read_text_file", "path"), tool("read_media_file", "path")]
    server = McpServer("stdio", command="npx", args=("-y", "pkg", "/home/me"))
    lines = proposal(tools, "secure-filesystem-server 0.2.0", server, alone=False)
    made = tomllib.loads("\n".join(lines))
    assert made == {"map": {"use": "server-filesystem", "values": {"root": "/home/me"}}}
    assert "# its resources are not in the tree" in lines
    assert any("write_file only where capabilities grants write" in line for line in lines)
    assert proposal(tools[:1], "secure-filesystem-server 0.2.0", server) == (), "a tool of the map is missing"


async def test_a_map_is_guessed_from_names_and_schemas() -> None:
    items = {"type": "array", "items": {"type": "object", "properties": {"title": {"type": "string"}}}}
    tools = [
        tool("listNotes", output={"type": "object", "properties": {"notes": items}}),
        tool("readNote", "title", optional=("format",), reads=True),
        tool("saveNote", "title", "content"),
        tool("deleteNote", "title"),
        tool("shareNote", "title", "with"),
    ]
    lines = proposal(tools, "x 1", None)
    made = tomllib.loads("\n".join(lines))["map"]
    assert made == {
        "read": {"tool": "readNote", "at": "{id}", "arguments": {"title": "{id}"}},
        "list": {"tool": "listNotes", "at": "", "items": {"/notes": "{title}"}},
        "write": {"tool": "saveNote", "at": "{id}", "arguments": {"title": "{id}", "content": "{content}"}},
        "remove": {"tool": "deleteNote", "at": "{id}", "arguments": {"title": "{id}"}},
    }
    told = [line for line in lines if line.startswith("# not sure")]
    assert told[0] == "# not sure: only by the name listNotes reads; the server does not declare it"
    assert "changes = true" in told[1]
    server = Tools(listNotes={"notes": [{"title": "a"}]}, readNote="text")
    guessed = handler(made, server)
    assert await listed(guessed) == {"tree://a": "resource"}
    assert await read(guessed, "tree://a") == b"text"


def test_a_guess_says_what_the_server_does_not() -> None:
    lines = proposal([tool("list_directory", "path"), tool("read_file", "path")], None, None)
    made = tomllib.loads("\n".join(lines))["map"]
    assert made["list"] == {"tool": "list_directory", "items": {"": "{name}"}, "arguments": {"path": "{path}"}}
    assert any("list_directory does not say what it answers" in line for line in lines)
    handler(made)


def guessed(*tools: ToolEntry, args: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the map that is guessed from tools, which bbfs takes."""
    lines = proposal(tools, None, McpServer("stdio", command="x", args=args))
    made = tomllib.loads("\n".join(lines)).get("map", {})
    if made:
        handler(made)
    return made


def test_a_guess_knows_servers_of_files() -> None:
    told = "Lists a directory. Results have [FILE] and [DIR] prefixes."
    made = guessed(
        replace(tool("list_directory", "path"), description=told),
        tool("list_allowed_directories"),
        replace(tool("read_file", "path"), description="DEPRECATED: read_text_file is better"),
        tool("read_multiple_files", "path"),
        tool("read_text_file", "path"),
        tool("write_file", "path", "content"),
        replace(tool("move_file", "source", "destination"), description="Moves files and directories"),
        tool("create_directory", "path"),
        args=("x.js", "/home/me"),
    )
    path = {"path": "{root}/{path}"}
    assert made == {
        "values": {"root": "/home/me"},
        "list": {"tool": "list_directory", "lines": FILES["list"]["lines"], "arguments": path},
        "read": {"tool": "read_text_file", "arguments": path},
        "write": {"tool": "write_file", "arguments": {**path, "content": "{content}"}},
        "rename": {
            "tool": "move_file",
            "directories": True,
            "arguments": {"source": "{root}/{path}", "destination": "{root}/{to}"},
        },
        "make_directory": {"tool": "create_directory", "arguments": path},
    }


def test_a_guess_knows_two_levels() -> None:
    made = guessed(
        tool("list_projects"),
        tool("list_project_files", "projectName"),
        tool("bank_read", "projectName", "fileName"),
        tool("bank_write", "projectName", "fileName", "content"),
        tool("bank_update", "projectName", "fileName", "content"),
    )
    assert made["list"] == [
        {"tool": "list_projects", "at": "", "items": {"": "{project}/"}},
        {
            "tool": "list_project_files",
            "at": "{container}",
            "items": {"": "{name}"},
            "arguments": {"projectName": "{container}"},
        },
    ]
    both = {"projectName": "{container}", "fileName": "{id}"}
    assert made["read"] == {"tool": "bank_read", "at": "{container}/{id}", "arguments": both}
    assert (made["create"]["tool"], made["write"]["tool"]) == ("bank_write", "bank_update")


async def test_a_guess_knows_names_with_the_verb_at_the_end() -> None:
    number = ToolEntry(
        "task_get", input_schema={"properties": {"task_id": {"type": "integer"}}, "required": ["task_id"]}
    )
    made = guessed(tool("tag_list"), tool("task_list"), number, tool("tag_delete", "task_id"))
    assert made == {
        "list": {"tool": "task_list", "at": "", "items": {"": "{id}"}},
        "read": {"tool": "task_get", "at": "{id}", "arguments": {"task_id": "{id}"}},
    }
    server = Tools(task_get="text")
    server.schemas["task_get"] = number.input_schema
    assert await read(handler(made, server), "tree://7") == b"text"
    assert server.calls == [("task_get", {"task_id": 7})]
    with pytest.raises(NotFound):
        await handler(made, server).load("tree://x")


@pytest.mark.parametrize(
    "remove",
    [
        tool("delete_directory", "path"),
        tool("delete_files", "path"),
        tool("delete_all_files", "path"),
        tool("delete_file", "name"),
        tool("delete_file", "path", "reason"),
        tool("delete_file", "path", optional=("recursive",)),
        replace(tool("delete_file", "path"), description="Deletes a file or directory"),
        replace(tool("delete_file", "path"), description="Deletes a file and its copies"),
        tool("delete_file_tags", "path"),
        tool("delete_file", "path", reads=True),
    ],
    ids=lambda each: f"{each.name} {each.input_schema['properties'].keys()}",
)
def test_a_tool_that_may_remove_something_else_is_not_proposed(remove: ToolEntry) -> None:
    tools = [tool("list_directory", "path"), tool("read_file", "path")]
    assert guessed(*tools, tool("delete_file", "path"))["remove"]["tool"] == "delete_file"
    assert "remove" not in guessed(*tools, remove)


def only_for_apps(made: ToolEntry) -> ToolEntry:
    return replace(made, mcp_data={"_meta": {"ui": {"visibility": ["app"]}}})


@pytest.mark.parametrize(
    "tools",
    [
        [],
        [tool("get_current_time", "timezone"), tool("convert_time", "source", "target")],
        [tool("list_notes"), tool("read_card", "id")],
        [tool("list_notes", "account"), tool("read_note", "id")],
        [tool("list_notes"), tool("read_note", "id", "account")],
        [only_for_apps(tool("list_notes")), tool("read_note", "id")],
        [replace(tool("list_notes"), annotations={"readOnlyHint": False}), tool("read_note", "id")],
        [tool("list_recent_notes"), tool("read_note_history", "id")],
    ],
)
def test_tools_that_do_not_fit_make_no_map(tools: list[ToolEntry]) -> None:
    assert proposal(tools, "x", None) == ()
