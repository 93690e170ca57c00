"""The tools and prompts of an MCP server as resources: their URIs, the files that describe them, their templates. Pure.

    tool://NAME/schema.json      listed: the schemas and annotations of a tool
    tool://NAME/description.md   listed: its purpose, its arguments, how to run it
    tool://NAME{?a,b}            a template: opening an expansion runs the tool with these arguments
    tool://NAME?                 runs it without any
    prompt://NAME/arguments.json listed, and prompt://NAME{?a,b}: reading an expansion renders the prompt

NAME is percent-encoded where it would not be one segment of a URI. If a server lists a resource of its own with such a
URI, the URI means that resource.
"""

import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

from bbfs.model import uri_paths
from bbfs.model.uri import source_uri
from bbfs.model.values import DataSource, Part, ResourceMetadata, ResourceTemplate, Tools
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.mcp import arguments as mcp_arguments
from bbfs.sources.mcp.client.tool_entries import PromptEntry, ToolEntry
from bbfs.sources.mcp.results import json_bytes

Kind = Literal["tool", "prompt"]

_SAFE = "!$&'()*+,;=:@~"
_ASKED = re.compile(r"(?P<kind>tool|prompt)://(?P<segment>[^/?#]+)(?:\?(?P<query>.*))?", re.DOTALL)
_HOW_TO_WRITE = (
    "They follow `?` with `&` between them, in any order. In a value, `&` is written `%26`, `/` is `%2F`, `%` is",
    "`%25`; lists are JSON, or items with commas between them, or the argument repeated; objects are JSON.",
)
_LINE_BREAKS = re.compile(r"\s*[\r\n]\s*")


class Asked(NamedTuple):
    """The tool to run or the prompt to render that a URI names, with its encoded query."""

    kind: Kind
    name: str
    query: str


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools and prompts of a server that have paths, by name, and the files that describe them.

    documents: the contents of the listed files, by native URI. own: URIs that the server itself lists as resources.
    problem: a text that says what is missing.
    """

    tools: Mapping[str, ToolEntry] = field(default_factory=dict)
    prompts: Mapping[str, PromptEntry] = field(default_factory=dict)
    documents: Mapping[str, Part] = field(default_factory=dict)
    resources: tuple[ResourceMetadata, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()
    own: Collection[str] = frozenset()
    problem: str | None = None


def concerns(native_uri: str) -> bool:
    """Return whether a URI has the scheme of tools or of prompts."""
    return native_uri.startswith(("tool://", "prompt://"))


def asked(native_uri: str) -> Asked | None:
    """Parse an expansion of a tool's or a prompt's template; None for another URI."""
    found = _ASKED.fullmatch(native_uri)
    if found is None:
        return None
    name = unquote(found["segment"])
    return Asked("tool" if found["kind"] == "tool" else "prompt", name, found["query"] or "")


def completed_prompt(offer: Offer, uri_template: str) -> str | None:
    """Return the name of the prompt whose template this is, or None."""
    for prompt, template in zip(offer.prompts, offer.templates[len(offer.tools) :], strict=True):
        if template.uri_template == uri_template:
            return prompt
    return None


def allowed(option: Tools, tools: Iterable[ToolEntry]) -> tuple[list[ToolEntry], str | None]:
    """Return the tools that may be run, and a text that says which of the named ones are missing."""
    if option == "off":
        return [], None
    there = {tool.name: tool for tool in tools}
    if option == "read-only":
        return [tool for tool in there.values() if tool.read_only and not tool.needs_task], None
    missing = [name for name in option if name not in there]
    tasks = [name for name in option if name in there and there[name].needs_task]
    problems = [f"no such tool: {', '.join(missing)}"] if missing else []
    problems += [f"runs as a task only: {', '.join(tasks)}"] if tasks else []
    return [there[name] for name in option if name in there and name not in tasks], "; ".join(problems) or None


def offer(
    source: DataSource, tools: Iterable[ToolEntry], prompts: Iterable[PromptEntry], listed: Iterable[str]
) -> Offer:
    """Return the offer of a server whose own resources have the native URIs `listed`."""
    own = frozenset(filter(concerns, listed))
    runnable, problem = allowed(source.tools, tools)
    shown = {prompt.name: prompt for prompt in prompts} if source.prompts else {}
    documents: dict[str, Part] = {}
    resources: list[ResourceMetadata] = []
    templates: list[ResourceTemplate] = []
    described = [(tool, _tool_files(tool), tool_template(tool)) for tool in runnable]
    described += [(prompt, _prompt_files(prompt), prompt_template(prompt)) for prompt in shown.values()]
    for entry, files, template in described:
        templates.append(template)
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
                )
            )
    by_name = {tool.name: tool for tool in runnable}
    return Offer(by_name, shown, documents, tuple(resources), tuple(templates), own, problem)


def tool_template(tool: ToolEntry) -> ResourceTemplate:
    """Return the template of a tool's results. Its variables are the arguments; those that may be lists explode."""
    root = tool.input_schema
    variables = [
        variable + "*" if mcp_arguments.takes_several(schema, root) else variable
        for name, schema in mcp_arguments.properties(root).items()
        if (variable := mcp_arguments.variable_of(name)) is not None
    ]
    return ResourceTemplate(
        uri_template=_template("tool", tool.name, variables),
        name=tool.name,
        title=tool.title,
        description=tool.description,
        annotations=tool.annotations,
        mcp_data=tool.mcp_data,
        on_open=True,
    )


def prompt_template(prompt: PromptEntry) -> ResourceTemplate:
    names = [mcp_arguments.variable_of(argument.name) for argument in prompt.arguments]
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


def _tool_files(tool: ToolEntry) -> list[tuple[str, str, bytes]]:
    """Return URI, MIME type and bytes of the files that describe a tool."""
    base = _base("tool", tool.name)
    document = {"name": tool.name, "inputSchema": tool.input_schema}
    document |= {"outputSchema": tool.output_schema} if tool.output_schema is not None else {}
    document |= {"annotations": tool.annotations} if tool.annotations is not None else {}
    text = describe_tool(tool)
    return [
        (f"{base}/description.md", "text/markdown", text.encode("utf-8", "replace")),
        (f"{base}/schema.json", "application/json", json_bytes(document)),
    ]


def _prompt_files(prompt: PromptEntry) -> list[tuple[str, str, bytes]]:
    given: dict[str, Any] = {"name": prompt.name, "title": prompt.title, "description": prompt.description}
    document = {key: value for key, value in given.items() if value is not None}
    document["arguments"] = [
        {
            "name": argument.name,
            **({"title": argument.title} if argument.title is not None else {}),
            **({"description": argument.description} if argument.description is not None else {}),
            "required": argument.required,
        }
        for argument in prompt.arguments
    ]
    return [(f"{_base('prompt', prompt.name)}/arguments.json", "application/json", json_bytes(document))]


def describe_tool(tool: ToolEntry) -> str:
    """Describe a tool in Markdown: its purpose, its arguments, and the file name that runs it."""
    root = tool.input_schema
    needed = set(mcp_arguments.required(root))
    heading = f"{tool.title} (`{tool.name}`)" if tool.title and tool.title != tool.name else tool.name
    lines = [f"# {heading}", ""]
    if tool.description:
        lines += [tool.description.strip(), ""]
    known = mcp_arguments.properties(root)
    lines += ["Opening this file runs it, each time anew:", "", f"    cat {_example(tool, known, needed)}", ""]
    if known:
        lines += ["## Arguments", ""]
    for name, schema in known.items():
        lines.append(_argument_line(name, schema, root, name in needed))
    if known:
        lines += ["", *_HOW_TO_WRITE]
    return "\n".join(lines).rstrip() + "\n"


def _argument_line(name: str, schema: Mapping[str, Any], root: Mapping[str, Any], needed: bool) -> str:
    facts = [mcp_arguments.type_text(schema, root)]
    facts += ["required"] if needed else []
    facts += [f"default {mcp_arguments.as_text(schema['default'])}"] if "default" in schema else []
    if mcp_arguments.variable_of(name) is None:
        facts.append("cannot be given in a path")
    description = schema.get("description")
    text = f": {_LINE_BREAKS.sub(' ', description.strip())}" if isinstance(description, str) else ""
    return f"- `{name}` ({', '.join(facts)}){text}"


def _example(tool: ToolEntry, known: Mapping[str, Mapping[str, Any]], needed: Collection[str]) -> str:
    """Return the path of the file to open, from the directory of the tool, quoted for a shell."""
    chosen = [name for name in known if name in needed] or list(known)[:1]
    pairs = [
        f"{variable}={quote(_sample(known[name], tool.input_schema), safe=_SAFE.replace('&', ''))}"
        for name in chosen
        if (variable := mcp_arguments.variable_of(name)) is not None
    ]
    native = f"{_base('tool', tool.name)}?{'&'.join(pairs)}"
    return shlex.quote("../" + uri_paths.plain_path(native).path[-1])


def _sample(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """Return a possible value of an argument, as text for a path."""
    for key in ("examples", "enum"):
        values = schema.get(key)
        if isinstance(values, list) and values:
            return mcp_arguments.as_text(values[0])
    for key in ("example", "const", "default"):
        if key in schema:
            return mcp_arguments.as_text(schema[key])
    samples = {"integer": "1", "number": "1", "boolean": "true", "null": "null", "object": "{}"}
    return samples.get(mcp_arguments.type_text(schema, root), "TEXT")
