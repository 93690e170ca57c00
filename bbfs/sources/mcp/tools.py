"""The tools and prompts of an MCP server as resources: their URIs, the files that describe them, their templates. Pure.

    tool://NAME/description.md       listed: its purpose, its arguments, how to run it
    tool://NAME/input.schema.json    listed: the schema of its arguments
    tool://NAME/output.schema.json   listed: the schema of its structured result, if it has one
    tool://NAME{?a,b}                a template: opening an expansion runs the tool with these arguments
    tool://NAME?                     runs it without any
    prompt://NAME/…, prompt://NAME{?a,b}: the same for a prompt; reading an expansion renders it

NAME is percent-encoded where it would not be one segment of a URI. All tools are described. The templates of those that
the option `tools` does not allow are refused: opening an expansion fails, with the reason. If a server lists a resource
of its own with such a URI, the URI means that resource.
"""

import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

from bbfs.model import uri_paths
from bbfs.model.calls import Tool, ToolArgument
from bbfs.model.errors import BbfsError, Denied
from bbfs.model.uri import source_uri
from bbfs.model.values import DataSource, Part, ResourceMetadata, ResourceTemplate, Tools
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.mcp import arguments as mcp_arguments
from bbfs.sources.mcp.client.tool_entries import PromptEntry, ToolEntry
from bbfs.sources.mcp.results import json_bytes

Kind = Literal["tool", "prompt"]
BEGINNINGS = ("tool://", "prompt://")
"""Of the URIs of tools and prompts."""

_SAFE = "!$&'()*+,;=:@~"
_ASKED = re.compile(r"(?P<kind>tool|prompt)://(?P<segment>[^/?#]+)(?:\?(?P<query>.*))?", re.DOTALL)
_HOW_TO_WRITE = (
    "They follow `?` with `&` between them, in any order. In a value, `&` is `%26`, `%` is `%25`, a slash `%2F`."
)
_SLASHES = "A slash may stay where a value begins with one, in a URL, and where a required argument comes after it."
_LISTS = "Lists are JSON, or items with commas between them, or the argument repeated."
_OBJECTS = "Objects, and lists of them, are JSON; `input.schema.json` says of which form."
_QUOTED_EXAMPLE = re.compile(
    r"""(?:\be\.g\.|\bfor example|\bsuch as)[,:]?\s*(['"`])([^'"`\n]{1,60})\1""", re.IGNORECASE
)
_PLACEHOLDER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,29}")
_MAX_DESCRIBED = 200
"""Arguments of a tool that its description shows; its schema has all."""
_MAX_TEXT = 2000
"""Characters of the description of one argument, and of a value in it."""
_REFUSED_CALL = ResourceTemplate("tool://{call}", "call", on_open=True, refused=True)
"""Makes the names of calls if tools are off: `?` is part of its variable, so no URI of a server is meant."""
_LIKE_READS = re.compile(
    r"(?:.*[_.-])?(?:get|list|read|search|find|show|describe|view|status|query)(?![a-z])", re.IGNORECASE
)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_FEW = 8
"""Names of tools in one line."""
_LINE_BREAKS = re.compile(r"\s*[\r\n]\s*")


class Asked(NamedTuple):
    """The tool to run or the prompt to render that a URI names, with its encoded query."""

    kind: Kind
    name: str
    query: str


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools and prompts of a server that have paths, by name, and the files that describe them.

    tools: the tools that may be run by path. refused: the others. documents: the contents of the listed files, by
    native URI. own: URIs that the server itself lists as resources. problem: a text that says what is missing.
    """

    tools: Mapping[str, ToolEntry] = field(default_factory=dict)
    prompts: Mapping[str, PromptEntry] = field(default_factory=dict)
    documents: Mapping[str, Part] = field(default_factory=dict)
    resources: tuple[ResourceMetadata, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()
    own: Collection[str] = frozenset()
    problem: str | None = None
    refused: Mapping[str, ToolEntry] = field(default_factory=dict)


def asked(native_uri: str) -> Asked | None:
    """Parse an expansion of a tool's or a prompt's template; None for another URI."""
    found = _ASKED.fullmatch(native_uri)
    if found is None:
        return None
    name = unquote(found["segment"])
    return Asked("tool" if found["kind"] == "tool" else "prompt", name, found["query"] or "")


def completed_prompt(offer: Offer, uri_template: str) -> str | None:
    """Return the name of the prompt whose template this is, or None."""
    templates = offer.templates[len(offer.tools) : len(offer.tools) + len(offer.prompts)]
    for prompt, template in zip(offer.prompts, templates, strict=True):
        if template.uri_template == uri_template:
            return prompt
    return None


def refusal(offer: Offer, source: DataSource, name: str) -> BbfsError | None:
    """Return the error of a call by path of a tool that may not be run so; None for any other tool."""
    if source.tools == "off":  # only the names of `_REFUSED_CALL` have their query in here
        return Denied("the tools of this source are off (its option tools)") if "?" in name else None
    tool = offer.refused.get(name)
    if tool is None:
        return None
    command = shlex.join(["bbfs", "call", source.name, name])
    return Denied(f"the option tools of this source does not allow tool {name!r} by path; `{command}` calls it")


def allowed(option: Tools, tools: Iterable[ToolEntry]) -> tuple[list[ToolEntry], str | None]:
    """Return the tools that may be run, and a text that says which of the named ones are missing."""
    there = {tool.name: tool for tool in tools}
    if option == "off":
        return [], None
    if isinstance(option, str):
        return [tool for tool in there.values() if option == "all" or tool.read_only], None
    matched = {pattern: [name for name in there if name == pattern or fnmatchcase(name, pattern)] for pattern in option}
    named = dict.fromkeys(name for names in matched.values() for name in names)
    missing = [pattern for pattern, names in matched.items() if not names]
    return [there[name] for name in named], f"no such tool: {', '.join(missing)}" if missing else None


def named_like_reads(source: str, tools: Iterable[ToolEntry]) -> list[str]:
    """Return a sentence with two lines to paste, for a server none of whose tools declares to be read-only."""
    names = [tool.name for tool in tools if _LIKE_READS.match(tool.name) and _PLAIN_NAME.fullmatch(tool.name)][:_FEW]
    if not names:
        return []
    told = "No tool declares to be read-only. If these are, the first line for `bbfs mount`, or the second line in the"
    option = shlex.join(["--tools", f"{source}={','.join(names)}"])
    return [f"{told} configuration, gives them paths: `{option}` or `tools = {json.dumps(names)}`."]


def offer(
    source: DataSource, tools: Iterable[ToolEntry], prompts: Iterable[PromptEntry], listed: Iterable[str]
) -> Offer:
    """Return the offer of a server whose own resources have the native URIs `listed`. Takes time: for a thread."""
    own = frozenset(uri for uri in listed if uri.startswith(BEGINNINGS))
    there = () if source.tools == "off" else tuple(tools)
    runnable, problem = allowed(source.tools, there)
    by_name = {tool.name: tool for tool in runnable}
    shown = {prompt.name: prompt for prompt in prompts} if source.prompts else {}
    documents: dict[str, Part] = {}
    resources: list[ResourceMetadata] = []
    described = [(tool, _tool_files(tool, source, tool.name in by_name)) for tool in there]
    described += [(prompt, _prompt_files(prompt)) for prompt in shown.values()]
    for entry, files in described:
        for uri, mime_type, data in files:
            if uri in own:
                continue
            content = MemoryContent(data)
            documents[uri] = Part(uri, mime_type, content, "text")
            resources.append(
                ResourceMetadata(
                    uri=source_uri(source.base_prefix, uri),
                    native_uri=uri,
                    name=f"{entry.name}/{uri.rpartition('/')[2]}",
                    title=entry.title,
                    description=entry.description,
                    mime_type=mime_type,
                    content_type="text",
                    size=content.size,
                    etag=content.version,
                    annotations=entry.annotations if isinstance(entry, ToolEntry) else None,
                    mcp_data=entry.mcp_data,
                )
            )
    refused = {tool.name: tool for tool in there if tool.name not in by_name}
    templates = [*map(tool_template, runnable), *map(prompt_template, shown.values())]
    templates += [replace(tool_template(tool), refused=True) for tool in refused.values()]
    templates += [_REFUSED_CALL] if source.tools == "off" else []
    return Offer(by_name, shown, documents, tuple(resources), tuple(templates), own, problem, refused)


def tool_template(tool: ToolEntry) -> ResourceTemplate:
    """Return the template of a tool's results. Its variables are the arguments; arguments that may be lists explode."""
    root = tool.input_schema
    needed = frozenset(mcp_arguments.required(root))
    named = [
        (name, variable, schema)
        for name, schema in mcp_arguments.properties(root).items()
        if (variable := mcp_arguments.variable_of(name)) is not None
    ]
    repeated = (variable + "*" * mcp_arguments.takes_several(schema, root) for _, variable, schema in named)
    return ResourceTemplate(
        uri_template=_template("tool", tool.name, list(repeated)),
        name=tool.name,
        title=tool.title,
        description=tool.description,
        annotations=tool.annotations,
        mcp_data=tool.mcp_data,
        on_open=True,
        slashed=tuple(variable for _, variable, schema in named if mcp_arguments.takes_text(schema, root)),
        needed=tuple(variable for name, variable, _ in named if name in needed),
        choices=tuple(
            f"{name}={choice}" for name, _, schema in named for choice in mcp_arguments.choices(schema, root)
        ),
    )


def prompt_template(prompt: PromptEntry) -> ResourceTemplate:
    names = map(mcp_arguments.variable_of, prompt.input_schema["properties"])
    return ResourceTemplate(
        uri_template=_template("prompt", prompt.name, [name for name in names if name is not None]),
        name=prompt.name,
        title=prompt.title,
        description=prompt.description,
        mcp_data=prompt.mcp_data,
    )


def _base(kind: Kind, name: str) -> str:
    """Return the URI without arguments. A segment of dots alone is encoded: it would vanish from a path."""
    segment = quote(name, safe=_SAFE)
    return f"{kind}://{segment.replace('.', '%2E') if set(segment) == {'.'} else segment}"


def _template(kind: Kind, name: str, variables: list[str]) -> str:
    base = _base(kind, name)
    return f"{base}{{?{','.join(variables)}}}" if variables else f"{base}?"


def _tool_files(tool: ToolEntry, source: DataSource, is_allowed: bool) -> list[tuple[str, str, bytes]]:
    """Return URI, MIME type and bytes of the files that describe a tool."""
    base = _base("tool", tool.name)
    text = describe_tool(tool, source.name, is_allowed)
    schemas = {"input": tool.input_schema, "output": tool.output_schema}
    return [
        (f"{base}/description.md", "text/markdown", text.encode("utf-8", "replace")),
        *(
            (f"{base}/{name}.schema.json", "application/json", json_bytes(schema))
            for name, schema in schemas.items()
            if schema is not None
        ),
    ]


def _prompt_files(prompt: PromptEntry) -> list[tuple[str, str, bytes]]:
    base, schema = _base("prompt", prompt.name), prompt.input_schema
    how = [
        "This renders it, in the directory of the source:",
        "",
        f"    cat {example_of('prompt', prompt.name, schema)}",
    ]
    text = "\n".join([*_headed(prompt), *how, *_arguments(schema)])
    return [
        (f"{base}/description.md", "text/markdown", (text.rstrip() + "\n").encode("utf-8", "replace")),
        (f"{base}/input.schema.json", "application/json", json_bytes(schema)),
    ]


def describe_tool(tool: ToolEntry, source: str, is_allowed: bool) -> str:
    """Describe a tool in Markdown: its purpose, its arguments, and the lines that run it."""
    lines = [*_headed(tool), _effects(tool), ""]
    if is_allowed:
        example = example_of("tool", tool.name, tool.input_schema)
        lines += ["This runs it, each time again, in the directory of the source:", "", f"    cat {example}", ""]
        lines += ["Where `cat` says *Is a directory*, the result has several parts, which are there now:", ""]
        lines += [f"    cat {example}/*", ""]
    else:
        allow = shlex.join(["bbfs", "mount", "--tools", f"{source}=all"])
        lines += [
            f"It cannot be called by path: the option `tools` of the source does not allow it (`{allow}` allows all).",
            "",
        ]
    lines += ["On the command line:", "", f"    {_command(tool, source)}"]
    return "\n".join([*lines, *_arguments(tool.input_schema), *_how_to_call(tool.input_schema)]).rstrip() + "\n"


def _how_to_call(root: Mapping[str, Any]) -> list[str]:
    """Return how the arguments of a schema are written, as far as their types need it."""
    known = mcp_arguments.properties(root).values()
    types = [mcp_arguments.type_text(schema, root) for schema in known]
    needs = {
        _SLASHES: any(mcp_arguments.takes_text(schema, root) for schema in known),
        _LISTS: any("array" in text for text in types),
        _OBJECTS: any("object" in text for text in types),
    }
    return [line for line, is_needed in needs.items() if is_needed]


def described(tool: ToolEntry, has_path: bool) -> Tool:
    """Return a tool as bbfs describes it elsewhere."""
    root = tool.input_schema
    needed = set(mcp_arguments.required(root))
    arguments = (
        ToolArgument(
            name,
            _cut(mcp_arguments.type_text(schema, root)),
            name in needed,
            _cut(text) if isinstance(text := schema.get("description"), str) else None,
            mcp_arguments.choices(schema, root),
        )
        for name, schema in islice(mcp_arguments.properties(root).items(), _MAX_DESCRIBED)
    )
    description = _cut(tool.description) if tool.description else None
    return Tool(tool.name, tool.title, description, tuple(arguments), tool.read_only, has_path)


def _headed(entry: ToolEntry | PromptEntry) -> list[str]:
    heading = f"{entry.title} (`{entry.name}`)" if entry.title and entry.title != entry.name else entry.name
    return [f"# {heading}", "", *([entry.description.strip(), ""] if entry.description else [])]


def _effects(tool: ToolEntry) -> str:
    """Say what a tool declares of its effects."""
    hints = tool.annotations or {}
    if tool.read_only:
        return "It declares to be read-only."
    if hints.get("destructiveHint") is False:
        return "It declares to change something, and to destroy nothing."
    declares = "declares to" if hints.get("destructiveHint") is True else "may"
    return f"It {declares} change or destroy something."


def _arguments(root: Mapping[str, Any]) -> list[str]:
    """Return the lines that describe the arguments of a schema."""
    known, needed = mcp_arguments.properties(root), set(mcp_arguments.required(root))
    if not known:
        return []
    lines = [_argument_line(name, known[name], root, name in needed) for name in list(known)[:_MAX_DESCRIBED]]
    more = [f"- and {len(known) - _MAX_DESCRIBED} more, see `input.schema.json`"] if len(known) > _MAX_DESCRIBED else []
    return ["", "## Arguments", "", *lines, *more, "", _HOW_TO_WRITE]


def _chosen(root: Mapping[str, Any]) -> dict[str, str]:
    """Return possible values of the arguments of an example: of all required arguments, else of the first argument."""
    known, needed = mcp_arguments.properties(root), set(mcp_arguments.required(root))
    chosen = [name for name in known if name in needed] or list(known)[:1]
    return {name: _sample(name, known[name], root) for name in chosen[:_MAX_DESCRIBED]}


def _command(tool: ToolEntry, source: str) -> str:
    """Return the command line that runs a tool, quoted for a shell."""
    pairs = [f"{name}={value}" for name, value in _chosen(tool.input_schema).items()]
    return shlex.join(["bbfs", "call", source, tool.name, *pairs, *([] if tool.read_only else ["--yes"])])


def _argument_line(name: str, schema: Mapping[str, Any], root: Mapping[str, Any], needed: bool) -> str:
    facts = [_cut(mcp_arguments.type_text(schema, root))]
    facts += ["required"] if needed else []
    facts += [f"default {_cut(mcp_arguments.as_text(schema['default']))}"] if "default" in schema else []
    examples = schema.get("examples")
    if isinstance(examples, list) and examples:
        facts.append(f"for example {_cut(mcp_arguments.as_text(examples[0]))}")
    if mcp_arguments.variable_of(name) is None:
        facts.append("cannot be given in a path")
    description = schema.get("description")
    text = f": {_LINE_BREAKS.sub(' ', _cut(description.strip()))}" if isinstance(description, str) else ""
    return f"- `{name}` ({', '.join(facts)}){text}"


def example_of(kind: Kind, name: str, root: Mapping[str, Any]) -> str:
    """Return the path of the file to open, from the directory of the source, quoted for a shell."""
    pairs = [
        f"{variable}={quote(value, safe=_SAFE.replace('&', ''), errors='replace')}"
        for argument, value in _chosen(root).items()
        if (variable := mcp_arguments.variable_of(argument)) is not None
    ]
    native = f"{_base(kind, name)}?{'&'.join(pairs)}"
    return shlex.quote("/".join(uri_paths.plain_path(native).path))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def _sample(name: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """Return a possible value of an argument, as text: a value that the server shows, or a placeholder."""
    for key in ("examples", "enum"):
        values = schema.get(key)
        if isinstance(values, list) and values:
            return _cut(mcp_arguments.as_text(values[0]))
    for key in ("example", "const", "default"):
        if key in schema:
            return _cut(mcp_arguments.as_text(schema[key]))
    samples = {
        "integer": "1",
        "number": "1",
        "boolean": "true",
        "null": "null",
        "object": "{}",
        "array of object": "[{}]",
    }
    first = mcp_arguments.type_text(schema, root).partition(" or ")[0]
    if first in samples:
        return samples[first]
    description = schema.get("description")
    shown = _QUOTED_EXAMPLE.search(description[:_MAX_TEXT]) if isinstance(description, str) else None
    if shown is not None:
        return shown[2]
    return name.upper() if _PLACEHOLDER.fullmatch(name) else "TEXT"
