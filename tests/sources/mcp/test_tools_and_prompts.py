"""What of a server's tools and prompts has paths, and how it is described."""

import json
import shlex
from typing import Any

import pytest
from odd_parts import places, with_part

from bbfs.model.uri_paths import plain_path
from bbfs.model.uri_templates.patterns import Pattern
from bbfs.model.values import DataSource, Tools
from bbfs.sources.mcp.arguments import tool_arguments
from bbfs.sources.mcp.client.tool_entries import PromptEntry, ToolEntry, prompt_entry, tool_entry
from bbfs.sources.mcp.tools import allowed, asked, describe_tool, offer, tool_template

READ_ONLY = {"readOnlyHint": True}
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


def source(tools: Tools = "read-only", prompts: bool = False) -> DataSource:
    return DataSource("s", "s", "server", "mcp", "mcp-server+s", tools=tools, prompts=prompts)


@pytest.mark.semantics("S31.2")
def test_only_tools_that_say_so_are_read_only() -> None:
    tools = [
        ToolEntry("yes", annotations=READ_ONLY),
        ToolEntry("says nothing"),
        ToolEntry("no", annotations={"readOnlyHint": False}),
        ToolEntry("truthy", annotations={"readOnlyHint": "true"}),
        ToolEntry("contradicts itself", annotations={"readOnlyHint": True, "destructiveHint": True}),
    ]
    assert [tool.name for tool in allowed("read-only", tools)[0]] == ["yes"]
    assert allowed("off", tools) == ([], None)
    assert allowed("all", tools) == (tools, None)


@pytest.mark.semantics("S31")
def test_tools_that_are_named_are_allowed_whatever_they_say() -> None:
    tools = [ToolEntry("a"), ToolEntry("b", annotations=READ_ONLY)]
    found, problem = allowed(("a", "missing"), tools)
    assert [tool.name for tool in found] == ["a"]
    assert problem == "no such tool: missing"


@pytest.mark.semantics("S31.2")
def test_patterns_of_names_are_allowed() -> None:
    tools = [ToolEntry(name) for name in ("git_log", "git_show", "push", "odd[1]")]
    found, problem = allowed(("git_*", "odd[1]", "x*"), tools)
    assert [tool.name for tool in found] == ["git_log", "git_show", "odd[1]"]
    assert problem == "no such tool: x*"


@pytest.mark.parametrize("name", ["search", "a/b", "x y", "ü", "..", ".", "100%25", "a#b", "a{b}", "weather:v1"])
def test_any_name_has_paths_of_its_own(name: str) -> None:
    made = offer(source(), [ToolEntry(name, input_schema=SCHEMA, annotations=READ_ONLY)], [], [])
    uris = [resource.native_uri for resource in made.resources]
    assert [plain_path(uri).path[::2] for uri in uris] == [("tool", "description.md"), ("tool", "input.schema.json")]
    directory = plain_path(uris[0]).path[1]
    match = Pattern(made.templates[0].uri_template).place(("tool", f"{directory}?q=x"))
    assert match is not None
    assert match.match is not None
    found = asked(match.match.native_uri)
    assert found is not None
    assert (found.kind, found.name, found.query) == ("tool", name, "q=x")


def test_a_tool_without_arguments_is_run_by_a_question_mark() -> None:
    pattern = Pattern(tool_template(ToolEntry("now")).uri_template)
    place = pattern.place(("tool", "now?"))
    assert place is not None
    assert place.match is not None
    assert place.match.native_uri == "tool://now?"
    assert pattern.place(("tool", "now?x=1")) is None


def test_the_example_runs_the_tool() -> None:
    properties = {
        "q": {"type": "string"},
        "n": {"type": "integer"},
        "kind": {"enum": ["a/b", "c"]},
        "on": {"type": "boolean", "description": "whether\nit is on"},
        "opt": {"type": "string", "default": "x"},
        "zone": {"type": "string", "description": "A zone (e.g. 'Europe/London', 'UTC')."},
        "edits": {"type": "array", "items": {"type": "object"}},
        "": {"type": "string"},
    }
    schema = {"type": "object", "properties": properties, "required": ["q", "n", "kind", "on", "zone", "edits"]}
    tool = ToolEntry("do it", "Do It", "Does it.", schema, annotations=READ_ONLY)
    text = describe_tool(tool, "s", True)
    command = next(line for line in text.splitlines() if line.startswith("    cat "))
    path = shlex.split(command)[1].split("/")
    place = Pattern(tool_template(tool).uri_template).place(path)
    assert place is not None
    assert place.match is not None
    found = asked(place.match.native_uri)
    assert found is not None
    assert tool_arguments(tool, found.query) == {
        "q": "Q",
        "n": 1,
        "kind": "a/b",
        "on": True,
        "zone": "Europe/London",
        "edits": [{}],
    }
    command = next(line for line in text.splitlines() if line.startswith("    bbfs call "))
    pairs = ["q=Q", "n=1", "kind=a/b", "on=true", "zone=Europe/London", "edits=[{}]"]
    assert shlex.split(command) == ["bbfs", "call", "s", "do it", *pairs]
    assert "# Do It (`do it`)\n\nDoes it.\n" in text
    assert "It declares to be read-only.\n" in text
    assert "- `opt` (string, default x)\n" in text
    assert "- `on` (boolean, required): whether it is on\n" in text
    assert "- `` (string, cannot be given in a path)\n" in text


def test_the_schemas_are_as_the_server_gave_them() -> None:
    output = {"type": "object"}
    made = offer(source(), [ToolEntry("t", None, None, SCHEMA, output, READ_ONLY)], [], [])
    document = made.documents["tool://t/input.schema.json"].content.read(0, 10_000)
    assert json.loads(document or b"") == SCHEMA
    assert json.loads(made.documents["tool://t/output.schema.json"].content.read(0, 10_000) or b"") == output
    listed = {resource.native_uri: resource for resource in made.resources}
    assert listed["tool://t/input.schema.json"].size == len(document or b"")
    assert listed["tool://t/input.schema.json"].uri == "mcp-server+s+tool://t/input.schema.json"


@pytest.mark.semantics("S31.3")
def test_a_tool_that_is_not_allowed_is_described_and_its_template_is_refused() -> None:
    made = offer(source(), [ToolEntry("write", annotations={"destructiveHint": True})], [], [])
    text = (made.documents["tool://write/description.md"].content.read(0, 10_000) or b"").decode()
    assert "declares to change or destroy something" in text
    assert "`bbfs mount --tools s=all`" in text
    assert "bbfs call s write --yes\n" in text
    assert [(each.uri_template, each.on_open, each.refused) for each in made.templates] == [
        ("tool://write?", True, True)
    ]
    assert not made.tools
    assert not offer(source("off"), [ToolEntry("t", annotations=READ_ONLY)], [], []).resources


def test_a_description_is_bounded_whatever_the_schema() -> None:
    large = {"enum": ["x" * 1000] * 500, **{f"k{number}": number for number in range(5000)}}
    properties = {f"p{number}": {"$ref": "#/$defs/large", "default": "y" * 5000} for number in range(5000)}
    schema = {"type": "object", "properties": properties, "$defs": {"large": large}}
    text = describe_tool(ToolEntry("t", input_schema=schema), "s", True)
    assert len(text) < 2_000_000
    assert "4800 more" in text


def test_resources_of_the_servers_own_come_first() -> None:
    listed = ["tool://t/input.schema.json", "tool://t?q=1", "doc://x"]
    made = offer(source(), [ToolEntry("t", input_schema=SCHEMA, annotations=READ_ONLY)], [], listed)
    assert [resource.native_uri for resource in made.resources] == ["tool://t/description.md"]
    assert made.own == {"tool://t/input.schema.json", "tool://t?q=1"}


def test_prompts_are_listed_where_they_are_wanted() -> None:
    arguments = [{"name": "who", "description": "Whom", "required": True}, {"name": "how"}, {"name": "how", "title": 7}]
    prompt = prompt_entry({"name": "p", "title": "Title", "arguments": arguments})
    assert prompt is not None
    assert not offer(source(), [], [prompt], []).resources
    made = offer(source(prompts=True), [], [prompt], [])
    assert [(template.uri_template, template.on_open) for template in made.templates] == [
        ("prompt://p{?who,how}", False)
    ]
    assert json.loads(made.documents["prompt://p/input.schema.json"].content.read(0, 1000) or b"") == {
        "type": "object",
        "properties": {"who": {"type": "string", "description": "Whom"}, "how": {"type": "string"}},
        "required": ["who"],
    }
    text = (made.documents["prompt://p/description.md"].content.read(0, 1000) or b"").decode()
    assert text.startswith("# Title (`p`)\n")
    assert "    cat 'prompt/p?who=WHO'\n" in text


def test_results_stand_beside_the_directory_of_their_tool() -> None:
    made = offer(source(), [ToolEntry("t", annotations=READ_ONLY)], [], [])
    assert plain_path("tool://t?").path == ("tool", "t?")
    assert made.templates[0].on_open


def test_entries_that_cannot_be_used() -> None:
    for raw in (None, {}, {"name": "t"}, {"name": "", "inputSchema": {}}, {"name": "\ud800", "inputSchema": {}}):
        assert tool_entry(raw) is None
    header = {"type": "object", "properties": {"q": {"type": "object", "x-mcp-header": "Q"}}}
    assert tool_entry({"name": "t", "inputSchema": header}) is None
    assert prompt_entry({"name": "p", "arguments": [{"description": "no name"}]}) is None
    prompt = prompt_entry({"name": "p", "arguments": None, "title": 7})
    assert prompt == PromptEntry("p")


ODD: list[Any] = [
    None, True, -1, 1.5, 10**400, float("inf"), "", "\x00", "\ud800", "a\udc00b", "{", "{a", "%", "..", "/", "//[",
    "x" * 70_000, [], {}, [None], ["\ud800"], {"": None}, {"\ud800": 1}, {"$ref": "#"}, {"$ref": 1}, {"type": []},
    {"enum": ["\ud800", [], {}]}, {"properties": []}, {"anyOf": [None]}, {"required": 1},
]  # fmt: skip
TOOL: dict[str, Any] = {
    "name": "odd",
    "title": "T",
    "description": "e.g. 'x'",
    "inputSchema": {
        "type": "object",
        "properties": {
            "a": {"type": "string", "description": "d", "enum": ["x"], "default": "x", "examples": ["e"]},
            "b": {"type": "array", "items": {"type": "string"}},
            "c": {"anyOf": [{"type": "string"}, {"const": "n"}]},
            "d": {"$ref": "#/$defs/D"},
        },
        "required": ["a"],
        "$defs": {"D": {"type": "object", "properties": {"q": {"type": "integer"}}}},
    },
    "outputSchema": {"type": "object"},
    "annotations": {"title": "x", "readOnlyHint": True},
    "execution": {"taskSupport": "optional"},
}
PROMPT: dict[str, Any] = {
    "name": "odd",
    "title": "P",
    "arguments": [{"name": "a", "title": "t", "description": "d", "required": True}],
}


@pytest.mark.parametrize("place", list(places(TOOL)), ids=lambda place: "/".join(map(str, place)))
def test_one_odd_tool_takes_no_other_away(place: tuple[Any, ...]) -> None:
    for odd in ODD:
        raw = [with_part(TOOL, place, odd), {"name": "good", "inputSchema": SCHEMA}]
        made = offer(source("all"), [tool for tool in map(tool_entry, raw) if tool is not None], [], [])
        assert "good" in made.tools
        assert "tool://good/description.md" in made.documents
        assert "tool://good{?q}" in {template.uri_template for template in made.templates}


@pytest.mark.parametrize("place", list(places(PROMPT)), ids=lambda place: "/".join(map(str, place)))
def test_one_odd_prompt_takes_no_other_away(place: tuple[Any, ...]) -> None:
    for odd in ODD:
        raw = [with_part(PROMPT, place, odd), {"name": "good", "arguments": [{"name": "q"}]}]
        made = offer(source(prompts=True), [], [each for each in map(prompt_entry, raw) if each is not None], [])
        assert "good" in made.prompts
        assert "prompt://good/description.md" in made.documents


def test_the_files_of_a_tool_have_what_its_server_says_besides() -> None:
    icons = {"icons": [{"src": "https://x/i.png"}]}
    tools = [ToolEntry("t", input_schema=SCHEMA, annotations=READ_ONLY, mcp_data=icons)]
    made = offer(source(prompts=True), tools, [PromptEntry("p", mcp_data=icons)], [])
    assert [(each.annotations, each.mcp_data) for each in made.resources] == [(READ_ONLY, icons)] * 2 + [
        (None, icons)
    ] * 2
