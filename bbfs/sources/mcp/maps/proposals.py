"""A map for a server with tools alone: one that comes with bbfs, or one guessed from the tools. Pure; calls nothing.

The lines are TOML for the table of the source. What bbfs is not sure of is a comment above the line.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bbfs.model.values import McpServer
from bbfs.sources.hits import LIMITS, QUERIES, looks_like_search
from bbfs.sources.mcp.arguments import properties, required, resolved, takes_text
from bbfs.sources.mcp.client.tool_entries import ToolEntry
from bbfs.sources.mcp.maps.shipped import Shipped, shipped

_VERBS = {
    "list": "list", "ls": "list", "browse": "list", "index": "list",
    "read": "read", "get": "read", "open": "read", "view": "read", "show": "read", "cat": "read", "load": "read",
    "write": "write", "put": "write", "save": "write", "update": "write", "upsert": "write",
    "remove": "remove", "delete": "remove", "rm": "remove",
}  # fmt: skip
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_SAME = {"directory": "file", "dir": "file", "folder": "file", "path": "file", "text": "file", "content": "file"}
"""What is listed and what is read may have different names: `list_directory`, `read_text_file`."""
_DIRECTORIES = re.compile(r"(?:^|_)(?:path|dir|directory|folder|prefix)(?:_name|_path)?$", re.IGNORECASE)
_CONTENTS = ("content", "contents", "text", "body", "data", "markdown")
_USUAL = ("id", "name", "title", "path", "key", "slug", "uri", "filename")
"""Members of items that are the names of them."""


class _Use(NamedTuple):
    """A tool by its name: what it does, and with what. id: its argument for the name of the thing, or None."""

    tool: ToolEntry
    verb: str
    noun: str
    id: str | None = None


def proposal(
    tools: Sequence[ToolEntry], server: str | None, config: McpServer | None, *, alone: bool = True
) -> tuple[str, ...]:
    """Return the lines that show a server as a tree, or none. server: the name by which it introduces itself. alone:
    whether it has nothing but tools, so that a guess is of use."""
    tools = [tool for tool in tools if tool.name.isprintable()]
    names = {tool.name for tool in tools}
    for name, known in shipped().items():
        if known.is_of(server or "") and _tools_of(known, ("list", "read")) <= names:
            resources = () if alone else ("# its resources are not in the tree",)
            return (*resources, *_shipped_lines(name, known, () if config is None else config.args))
    if not alone:
        return ()
    return tuple(_guessed([use for tool in tools for use in _uses(tool)], tools))


def _tools_of(known: Shipped, operations: Iterable[str]) -> set[str]:
    tables = (known.map.get(each, ()) for each in operations)
    calls = (call for each in tables for call in ([each] if isinstance(each, Mapping) else each))
    return {call["tool"] for call in calls if "tool" in call}


def _shipped_lines(name: str, known: Shipped, args: Sequence[str]) -> Iterator[str]:
    reading, writing = (
        ", ".join(sorted(_tools_of(known, each)))
        for each in (("list", "read", "search"), ("write", "create", "remove", "rename", "make_directory"))
    )
    yield f"# {reading} are called to list, read and search" + (
        f"; {writing} only where capabilities grants write" if writing else ""
    )
    if not known.needs:
        yield f"map = {json.dumps(name)}"
        return
    for need, what in known.needs.items():
        yield f"# {need}: {what}"
    paths = [each for each in args if each.startswith("/") and "\n" not in each]
    guess = paths[-1] if paths and len(known.needs) == 1 else "/path"
    values = ", ".join(f"{need} = {json.dumps(guess)}" for need in known.needs)
    yield f"map = {{ use = {json.dumps(name)}, values = {{ {values} }} }}"


def _uses(tool: ToolEntry) -> Iterator[_Use]:
    words = [word.lower() for word in _WORDS.findall(tool.name)[:8]]
    verbs = [word for word in words if word in _VERBS]
    if not verbs:
        return
    # Words before the verb are most often the name of the server: `memory_bank_read`.
    nouns = words[words.index(verbs[0]) + 1 :] or words[: words.index(verbs[0])]
    noun = str((nouns or ["file"])[-1])
    noun = noun.removesuffix("ies") + "y" if noun.endswith("ies") else noun.removesuffix("s")
    yield _Use(tool, _VERBS[verbs[0]], _SAME.get(noun, noun), _id_of(tool))


def _id_of(tool: ToolEntry) -> str | None:
    """Return the one argument that has to name the thing: a text, beside a content."""
    root = tool.input_schema
    known = {name for name, schema in properties(root).items() if takes_text(schema, root) and _is_plain(name)}
    needed = [name for name in required(root) if name not in _CONTENTS]
    if len(needed) > 1 or (needed and needed[0] not in known):
        return None
    return needed[0] if needed else next((name for name in known if _DIRECTORIES.search(name)), None)


def _is_plain(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,60}", name) is not None


def _guessed(uses: Sequence[_Use], tools: Sequence[ToolEntry]) -> Iterator[str]:
    """Yield the lines for the first two tools of which one lists what the other one reads."""
    lists = [use for use in uses if use.verb == "list" and (use.id is None) == (not required(use.tool.input_schema))]
    lists += [use for use in uses if use.verb == "list" and use.id is not None and use not in lists]
    reads = [use for use in uses if use.verb == "read" and use.id is not None]
    pair = next(((a, b) for a in lists for b in reads if a.noun == b.noun), None)
    if pair is None:
        return
    listing, reading = pair
    is_tree = listing.id is not None and _DIRECTORIES.search(listing.id) is not None
    if listing.id is not None and not is_tree:
        return
    undeclared = [use.tool.name for use in pair if not use.tool.read_only]
    if undeclared:
        yield f"# not sure: only by its name {' and '.join(undeclared)} reads; the server declares nothing"
    yield from _list_lines(listing, reading.id or "name", is_tree=is_tree)
    at, name = ({}, "{path}") if is_tree else ({"at": "{id}"}, "{id}")
    yield _line("read", reading.tool.name, at, {reading.id or "": name})
    yield from _change_lines(uses, reading.noun, is_tree=is_tree)
    yield from _search_line(tools)


def _list_lines(listing: _Use, id: str, *, is_tree: bool) -> Iterator[str]:
    found = _declared_items(listing.tool, id)
    if found is None:
        yield f"# not sure: {listing.tool.name[:100]} does not say what it answers: this is for JSON; for lines, in the"
        yield '# place of items: lines = { "[DIR] {name}" = "{name}/", "[FILE] {name}" = "{name}" }'
    elif is_tree:
        yield '# not sure: which items are directories; for example directories = { type = "directory" }'
    pointer, member = found or ("", id)
    arguments = {listing.id: "{path}"} if is_tree and listing.id is not None else {}
    at: dict[str, Any] = {} if is_tree else {"at": ""}
    yield _line("list", listing.tool.name, {**at, "items": {pointer: f"{{{member}}}"}}, arguments)


def _declared_items(tool: ToolEntry, id: str) -> tuple[str, str] | None:
    """Return the pointer to the items in the declared answer of a tool, and the member or `item` that is the name."""
    schema = tool.output_schema or {}
    for name, each in properties(schema).items():
        items = each.get("items")
        if not isinstance(items, Mapping) or not _is_plain(name):
            continue
        pointer = "" if name == "result" and len(properties(schema)) == 1 else f"/{name}"
        whole = resolved(items, schema)
        inner = whole.get("properties")
        if not isinstance(inner, Mapping):
            return (pointer, "item") if whole.get("type") == "string" else None
        member = next((key for key in (id, id.rpartition("_")[2], *_USUAL) if key in inner), None)
        return None if member is None else (pointer, member)
    return None


def _change_lines(uses: Sequence[_Use], noun: str, *, is_tree: bool) -> Iterator[str]:
    name = "{path}" if is_tree else "{id}"
    at = {} if is_tree else {"at": "{id}"}
    done: set[str] = set()
    for use in uses:
        if use.noun != noun or use.verb not in ("write", "remove") or use.id is None or use.verb in done:
            continue
        known, needed = properties(use.tool.input_schema), set(required(use.tool.input_schema)) - {use.id}
        content = next((each for each in _CONTENTS if each in known), None)
        if use.tool.read_only or needed > {content} or (use.verb == "write") != (content is not None):
            continue
        done.add(use.verb)
        if use.verb == "write":
            yield f"# not sure: if {use.tool.name[:100]} keeps another text than it gets, add changes = true"
        more = {content: "{content}"} if content is not None else {}
        yield _line(use.verb, use.tool.name, at, {use.id: name, **more})
    if done:
        yield '# nothing is written before this, too: capabilities = ["read", "list", "search", "write"]'


def _search_line(tools: Sequence[ToolEntry]) -> Iterator[str]:
    for tool in tools:
        query = next((name for name in QUERIES if name in properties(tool.input_schema)), None)
        if query is None or not looks_like_search(tool.name) or set(required(tool.input_schema)) - {query}:
            continue
        found = _declared_items(tool, "path")
        if found is not None:
            limit = next((name for name in LIMITS if name in properties(tool.input_schema)), None)
            arguments = {query: "{query}", **({} if limit is None else {limit: "{limit}"})}
            yield _line("search", tool.name, {"items": {found[0]: f"{{{found[1]}}}"}}, arguments)
        return


def _line(key: str, tool: str, more: Mapping[str, Any], arguments: Mapping[str, str]) -> str:
    given = {"tool": tool, **more, **({"arguments": arguments} if arguments else {})}
    return f"map.{key} = {_toml(given)}"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)
