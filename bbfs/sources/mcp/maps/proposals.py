"""A map for a server with tools alone: one that comes with bbfs, or one guessed from the tools. Pure; calls nothing.

The lines are TOML for the table of the source. What bbfs is not sure of is a comment above the line.
"""

import json
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from bbfs.model.values import McpServer
from bbfs.sources.hits import LIMITS, QUERIES, looks_like_search
from bbfs.sources.mcp.arguments import properties, required, resolved, takes_text
from bbfs.sources.mcp.client.tool_entries import ToolEntry
from bbfs.sources.mcp.maps.shipped import Shipped, shipped

_VERBS = {
    "list": "list", "ls": "list", "browse": "list",
    "read": "read", "get": "read", "open": "read", "view": "read", "show": "read", "cat": "read", "load": "read",
    "describe": "read", "fetch": "read",
    "write": "write", "put": "write", "save": "write", "upsert": "write", "update": "update", "create": "create",
    "make": "create", "mkdir": "mkdir", "remove": "remove", "delete": "remove", "rm": "remove",
    "move": "rename", "rename": "rename", "mv": "rename",
}  # fmt: skip
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_DIRECTORY_WORDS = frozenset({"directory", "dir", "folder"})
_FILE_WORDS = frozenset({"file", "path", *_DIRECTORY_WORDS})
_PLAIN_WORDS = frozenset({"text", "content", "full", "available", "all", "by", "from", "the", "a", "of", "in"})
"""Words beside the one that says what a tool lists or reads."""
_PARTIAL_WORDS = frozenset((
    "allowed", "multiple", "recent", "info", "metadata", "meta", "stats", "status", "history", "outline", "toc",
    "similar", "diff", "size", "count", "hash", "link", "backlink", "outlink", "tag", "summary", "xml", "range",
    "tree", "random", "batch", "many", "next", "schema", "structure", "context", "log", "usage", "connection",
    "orphan", "linked", "result", "version",
))  # fmt: skip
"""A tool with such a word lists or reads something else than the whole."""
_DIRECTORY_ARGUMENTS = re.compile(r"(?:^|_)(?:path|dir|directory|folder|prefix)(?:_?(?:name|path))?$", re.IGNORECASE)
_PATH_ARGUMENTS = re.compile(r"(?:^|_)(?:path|file|filename)(?:_?(?:name|path))?$", re.IGNORECASE)
_NEW_ARGUMENTS = re.compile(r"(?:new|dest|destination|target|to)(?:$|_|[A-Z])")
_SEVERAL_ARGUMENTS = re.compile(r"recurs|force|cascad|child|glob|pattern|director|folder|all(?:$|_)", re.IGNORECASE)
"""Arguments of a tool that may remove more than one thing."""
_SEVERAL = re.compile(r"director|folder|child|cascad|recurs|\ball\b|\bevery|\bassociated|\brelated|\band its\b")
"""The same in its description."""
_CONTENTS = ("content", "contents", "text", "body", "data", "markdown")
_USUAL = ("id", "name", "title", "path", "key", "slug", "uri", "filename")
"""Members of items that are the names of them."""
_KINDS = ("type", "kind", "entry_type")
_MOST = 40
"""Tools that list, and tools that read, which are compared with each other."""
_MARKED_LINES = {"[DIR] {name}": "{name}/", "[FILE] {name}": "{name}"}


class _Use(NamedTuple):
    """A tool by its name: what it does, and with what. words: in the singular, without `_PLAIN_WORDS`.

    before: those before the verb, most often the name of the server (`memory_bank_read`), or of the thing (`task_get`).
    plural: whether the last word is one. needed: the required arguments but contents.
    """

    tool: ToolEntry
    verb: str
    words: tuple[str, ...]
    before: tuple[str, ...]
    plural: bool
    needed: tuple[str, ...]

    @property
    def about(self) -> str:
        """What the description says, in small letters."""
        return (self.tool.description or "")[:4000].lower()

    @property
    def of_directories(self) -> bool:
        return not _DIRECTORY_WORDS.isdisjoint(self.words)

    def fits(self, listing: "_Use") -> bool:
        """Return whether this reads what the other one lists."""
        if not self.words or not listing.words:
            return bool(self.words or listing.words) or self.before == listing.before
        ours, theirs = ({"file" if each in _FILE_WORDS else each for each in use.words} for use in (self, listing))
        return bool(ours & theirs)


class _Shape(NamedTuple):
    """How a guessed tree is made. id: argument of `reading` for a file. directory: that of `listing` for a directory.

    container: the argument of both for what a directory at the root stands for. root: what is in front of all paths.
    """

    listing: _Use
    reading: _Use
    id: str
    directory: str | None = None
    containers: _Use | None = None
    container: str | None = None
    root: str = ""

    @property
    def is_path(self) -> bool:
        return self.container is None and (self.directory is not None or _PATH_ARGUMENTS.search(self.id) is not None)

    @property
    def at(self) -> dict[str, str]:
        if self.container is not None:
            return {"at": "{container}/{id}"}
        return {} if self.is_path else {"at": "{id}"}

    def arguments(self, name: str, value: str | None = None) -> dict[str, str]:
        """Return the arguments for a file. name: of the argument that has its path or name. value: of that one."""
        value = f"{self.root}{value or '{path}'}" if self.is_path else value or "{id}"
        return {name: value} if self.container is None else {self.container: "{container}", name: value}


def proposal(
    tools: Sequence[ToolEntry], server: str | None, config: McpServer | None, *, alone: bool = True
) -> tuple[str, ...]:
    """Return the lines that show a server as a tree, or none. server: the name by which it introduces itself. alone:
    whether it has nothing but tools, so that a guess is of use."""
    tools = [tool for tool in tools if tool.name.isprintable() and _is_for_models(tool)]
    names = {tool.name for tool in tools}
    for name, known in shipped().items():
        if known.is_of(server or "") and _tools_of(known, ("list", "read")) <= names:
            resources = () if alone else ("# its resources are not in the tree",)
            return (*resources, *_shipped_lines(name, known, () if config is None else config.args))
    if not alone:
        return ()
    return tuple(_guessed([use for tool in tools for use in _uses(tool)], tools, () if config is None else config.args))


def _is_for_models(tool: ToolEntry) -> bool:
    """Return whether a tool is not only for the pages of an app (MCP Apps, `visibility`)."""
    found: Any = tool.mcp_data
    for key in ("_meta", "ui", "visibility"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return not isinstance(found, list) or "model" in found


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
    at = next((number for number, word in enumerate(words) if word in _VERBS), None)
    if at is None:
        return
    nouns = words[at + 1 :]
    root = tool.input_schema
    needed = tuple(name for name in required(root) if name not in _CONTENTS)
    singular = tuple(word for word in map(_singular, nouns) if word not in _PLAIN_WORDS)
    plural = bool(nouns) and nouns[-1] != _singular(nouns[-1])
    yield _Use(tool, _VERBS[words[at]], singular, tuple(words[:at]), plural, needed)


def _singular(word: str) -> str:
    return (
        word.removesuffix("ies") + "y"
        if word.endswith("ies")
        else word
        if word.endswith("ss")
        else word.removesuffix("s")
    )


def _texts(tool: ToolEntry) -> set[str]:
    """Return the arguments of a tool that take any text, or any whole number."""
    root = tool.input_schema
    known = {name: schema for name, schema in properties(root).items() if _is_plain(name)}
    return {name for name, schema in known.items() if takes_text(schema, root) or schema.get("type") == "integer"}


def _is_plain(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,60}", name) is not None


def _guessed(uses: Sequence[_Use], tools: Sequence[ToolEntry], args: Sequence[str]) -> Iterator[str]:
    """Yield the lines for the best two tools of which one lists what the other one reads."""
    whole = [use for use in uses if _PARTIAL_WORDS.isdisjoint(use.words) and not _changes(use.tool)]
    lists = sorted((use for use in whole if use.verb == "list"), key=lambda use: len(use.words))[:_MOST]
    reads = sorted((use for use in whole if use.verb == "read"), key=_rank)[:_MOST]
    shape = next((found for way in (_tree, _nested, _flat) for found in way(lists, reads)), None)
    if shape is None:
        return
    if shape.is_path and any("allowed" in tool.name.lower() and "director" in tool.name.lower() for tool in tools):
        paths = [each for each in args if each.startswith("/") and each.isprintable()]
        yield "# not sure: the server allows some folders, so paths begin with one of them"
        yield f"map.values = {_toml({'root': paths[-1] if paths else '/path'})}"
        shape = shape._replace(root="{root}/")
    called = [use for use in (shape.containers, shape.listing, shape.reading) if use is not None]
    undeclared = [use.tool.name[:100] for use in called if not use.tool.read_only]
    if undeclared:
        yield f"# not sure: only by the name {' and '.join(undeclared)} reads; the server does not declare it"
    yield from _list_lines(shape)
    yield from _read_lines(shape)
    yield from _change_lines(uses, shape)
    yield from _search_line(tools)


def _changes(tool: ToolEntry) -> bool:
    """Return whether a tool declares to change something, so that bbfs does not call it to read."""
    return (tool.annotations or {}).get("readOnlyHint") is False


def _rank(use: _Use) -> tuple[bool, bool, int]:
    """Return the place of a tool among those that read: the plain ones first."""
    is_text = any(word in ("text", "content") for word in _WORDS.findall(use.tool.name.lower()))
    return "deprecated" in use.about, not is_text, len(use.words)


def _tree(lists: Sequence[_Use], reads: Sequence[_Use]) -> Iterator[_Shape]:
    """Yield trees: one tool lists any directory, one reads by path."""
    for listing in lists:
        texts = _texts(listing.tool)
        of = listing.needed[0] if listing.needed else next(filter(_DIRECTORY_ARGUMENTS.search, sorted(texts)), None)
        if not {*listing.words} <= _FILE_WORDS or len(listing.needed) > 1 or of not in texts:
            continue
        for reading in reads:
            name = _only(reading)
            if (
                name is not None
                and reading.fits(listing)
                and _PATH_ARGUMENTS.search(name)
                and _DIRECTORY_ARGUMENTS.search(of)
            ):
                yield _Shape(listing, reading, name, of)


def _nested(lists: Sequence[_Use], reads: Sequence[_Use]) -> Iterator[_Shape]:
    """Yield two levels: one tool lists containers, one what is in a container, one reads by both names."""
    for containers in lists:
        for listing in lists if not containers.needed and containers.words else ():
            of = _only(listing)
            if of is None or "".join(_WORDS.findall(of)[:1]).lower() != containers.words[-1]:
                continue
            for reading in reads:
                rest = [name for name in reading.needed if name != of]
                is_one = len(reading.needed) == 2 and len(rest) == 1 and {of, *rest} <= _texts(reading.tool)
                if is_one and reading.fits(listing):
                    yield _Shape(listing, reading, rest[0], None, containers, of)


def _flat(lists: Sequence[_Use], reads: Sequence[_Use]) -> Iterator[_Shape]:
    """Yield lists of all that there is."""
    for listing in lists:
        for reading in reads if not listing.needed else ():
            name = _only(reading)
            if name is not None and reading.fits(listing) and not listing.of_directories:
                yield _Shape(listing, reading, name)


def _only(use: _Use) -> str | None:
    """Return the one argument that a tool needs, if it takes any text."""
    return use.needed[0] if len(use.needed) == 1 and use.needed[0] in _texts(use.tool) else None


def _list_lines(shape: _Shape) -> Iterator[str]:
    calls: list[dict[str, Any]] = []
    if shape.containers is not None and shape.container is not None:
        found = yield from _names_lines(shape.containers, shape.containers.words[-1], ends="/")
        calls.append({"tool": shape.containers.tool.name, "at": "", **found})
    found = yield from _names_lines(
        shape.listing, "name" if shape.directory else shape.id, is_tree=shape.directory is not None
    )
    call: dict[str, Any] = {"tool": shape.listing.tool.name}
    if shape.container is not None:
        call |= {"at": "{container}", **found, "arguments": {shape.container: "{container}"}}
    elif shape.directory is not None:
        call |= {**found, "arguments": {shape.directory: f"{shape.root}{{path}}"}}
    else:
        call |= {**found, "whole": True} if shape.is_path else {"at": "", **found}
    calls.append(call)
    yield f"map.list = {_toml(calls if len(calls) > 1 else call)}"


def _names_lines(use: _Use, id: str, *, ends: str = "", is_tree: bool = False) -> Generator[str, None, dict[str, Any]]:
    """Yield what is not sure of the names in the answer of a tool. Return the options that take them."""
    tool = use.tool
    if is_tree and "[dir]" in use.about and "[file]" in use.about:
        return {"lines": _MARKED_LINES}
    found = _declared_items(tool, id)
    if found is None:
        yield f"# not sure: {tool.name[:100]} does not say what it answers: this is for JSON; for lines, in the"
        yield f"# place of items: lines = {_toml(_MARKED_LINES if is_tree else {'{name}': '{name}' + ends})}"
    pointer, member, directories = found or ("", None, {})
    if found is not None and member is None:
        yield f"# not sure: {tool.name[:100]} does not say which member of an item is its name"
    if is_tree and not directories:
        yield '# not sure: which items are directories; for example directories = { type = "directory" }'
    name = f"{{{member or _WORDS.findall(id)[-1].lower()}}}{ends}"
    return {"items": {pointer: name}, **({"directories": directories} if is_tree and directories else {})}


def _declared_items(tool: ToolEntry, id: str) -> tuple[str, str | None, dict[str, Any]] | None:
    """Return what a tool declares of its answer: the pointer to the items, the member or `item` that is the name, None
    if it has none of the usual ones, and the values of members of a directory."""
    schema = tool.output_schema or {}
    for name, each in properties(schema).items():
        items = each.get("items")
        if not isinstance(items, Mapping) or not _is_plain(name):
            continue
        pointer = "" if name == "result" and len(properties(schema)) == 1 else f"/{name}"
        whole = resolved(items, schema)
        if whole.get("type") == "string":
            return pointer, "item", {}
        found = whole.get("properties")
        inner: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
        usual = (id, id.rpartition("_")[2], *_USUAL)
        member = next((key for key in usual if key in inner), None)
        kinds = {key: value for key in inner for value in [_of_directory(key, inner[key], schema)] if value is not None}
        return pointer, member, dict([*kinds.items()][:1])
    return None


def _of_directory(name: str, member: Any, root: Mapping[str, Any]) -> str | bool | None:
    """Return the value of a member of an item that makes it a directory, or None."""
    schema = resolved(member, root) if isinstance(member, Mapping) else {}
    if re.fullmatch(r"is_?(?:dir|directory|folder)", name, re.IGNORECASE) and schema.get("type") == "boolean":
        return True
    values = schema.get("enum") if name in _KINDS else None
    words = [each for each in values if isinstance(each, str)] if isinstance(values, list) else []
    return next((each for each in words if each in _DIRECTORY_WORDS), None)


def _read_lines(shape: _Shape) -> Iterator[str]:
    tool = shape.reading.tool
    schema = tool.output_schema or {}
    declared = properties(schema)
    member = next((key for key in _CONTENTS if key in declared), None)
    result: dict[str, str] = {}
    if member is not None and len(declared) > 1:
        result = {"result": f"/{member}"}
    elif schema and not declared:
        yield f"# not sure: {tool.name[:100]} does not say which member of its answer is the content"
        result = {"result": "/content"}
    yield _line("read", tool.name, {**shape.at, **result}, shape.arguments(shape.id))


def _change_lines(uses: Sequence[_Use], shape: _Shape) -> Iterator[str]:
    """Yield the lines for tools that change what is read, each only if nothing of it is ambiguous."""
    found: dict[str, tuple[_Use, dict[str, Any], dict[str, str]]] = {}
    for use in uses:
        made = None if use.tool.read_only else _change(use, shape)
        if made is not None:
            key, more, arguments = made
            found.setdefault(key, (use, more, arguments))
    if "write" not in found and "update" in found:
        found["write"] = found.pop("update")
    elif "update" in found:  # one of the two may refuse what is there, or what is not
        found.setdefault("create", found["write"])
        found["write"] = found.pop("update")
    for key in ("write", "create", "remove", "rename", "make_directory"):
        if key not in found:
            continue
        use, more, arguments = found[key]
        if key in ("write", "create"):
            yield f"# not sure: if {use.tool.name[:100]} keeps another text than it gets, add changes = true"
        yield _line(key, use.tool.name, more, arguments)
    if found:
        yield '# nothing is written before this, too: capabilities = ["read", "list", "search", "write"]'


def _change(use: _Use, shape: _Shape) -> tuple[str, dict[str, Any], dict[str, str]] | None:
    """Return the key of a map that a tool is for, with the options and arguments of its call, or None."""
    known, texts = properties(use.tool.input_schema), _texts(use.tool)
    container = set() if shape.container is None else {shape.container}
    needed = {*use.needed} - container
    is_plain = container <= {*use.needed} and needed <= texts and needed <= known.keys()
    if not is_plain or not _PARTIAL_WORDS.isdisjoint(use.words):
        return None
    reading = shape.reading
    is_bare = not use.words and (bool(reading.words) or use.before == reading.before)
    is_same = is_bare or (not use.plural and use.words[-1:] == (reading.words or ("file",))[-1:])
    if use.verb == "mkdir" or (use.verb == "create" and len(use.words) == 1 and use.of_directories):
        (name,) = needed if len(needed) == 1 else (None,)
        is_path = shape.directory is not None and name is not None and _DIRECTORY_ARGUMENTS.search(name)
        return ("make_directory", {}, shape.arguments(name)) if is_path and name is not None else None
    if not is_same or use.of_directories or len(use.words) > 1:
        return None
    if use.verb == "rename":
        return _renaming(use, shape, needed)
    if needed != {shape.id}:
        return None
    content = next((each for each in _CONTENTS if each in texts), None)
    if use.verb in ("write", "update", "create") and content is not None:
        return use.verb, shape.at, {**shape.arguments(shape.id), content: "{content}"}
    several = _SEVERAL.search(use.about) or any(map(_SEVERAL_ARGUMENTS.search, known))
    if use.verb == "remove" and not several:
        return "remove", shape.at, shape.arguments(shape.id)
    return None


def _renaming(use: _Use, shape: _Shape, needed: Set[str]) -> tuple[str, dict[str, Any], dict[str, str]] | None:
    new = [name for name in needed if _NEW_ARGUMENTS.match(name)]
    if len(needed) != 2 or len(new) != 1 or not shape.is_path:
        return None
    (old,) = needed - {*new}
    more = {"directories": True} if shape.directory is not None and "director" in use.about else {}
    return "rename", more, {**shape.arguments(old), **shape.arguments(new[0], "{to}")}


def _search_line(tools: Sequence[ToolEntry]) -> Iterator[str]:
    for tool in tools:
        query = next((name for name in QUERIES if name in properties(tool.input_schema)), None)
        if query is None or not looks_like_search(tool.name) or set(required(tool.input_schema)) - {query}:
            continue
        found = _declared_items(tool, "path")
        if found is not None and found[1] is not None:
            limit = next((name for name in LIMITS if name in properties(tool.input_schema)), None)
            arguments = {query: "{query}", **({} if limit is None else {limit: "{limit}"})}
            yield _line("search", tool.name, {"items": {found[0]: f"{{{found[1]}}}"}}, arguments)
        return


def _line(key: str, tool: str, more: Mapping[str, Any], arguments: Mapping[str, str]) -> str:
    given = {"tool": tool, **more, **({"arguments": arguments} if arguments else {})}
    return f"map.{key} = {_toml(given)}"


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)
