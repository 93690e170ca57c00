"""The search of an MCP server by one of its tools: which tool, its arguments, and the hits in its result. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from bbfs.model.errors import ToolFailed
from bbfs.model.values import Hit, SearchTool
from bbfs.sources.hits import LIMITS, QUERIES, hit_of, looks_like_search, with_sound_scores
from bbfs.sources.mcp.arguments import properties, required, resolved, takes_text
from bbfs.sources.mcp.client.decode import usable_text
from bbfs.sources.mcp.client.tool_entries import ToolEntry
from bbfs.sources.mcp.results import is_error, parsed_result, tool_result

_MAX_NESTED = 1000
"""Values that are looked through for the list of hits."""
_MAX_PROPOSED = 3


@dataclass(frozen=True, slots=True)
class ServerSearch:
    """A tool that searches. query, limit: the arguments that take the query and the number of hits. uri: the key of a
    hit that holds its URI. arguments: sent with every search."""

    tool: ToolEntry
    query: str
    limit: str | None = None
    uri: str = "uri"
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def call(self, query: str, limit: int) -> dict[str, Any]:
        """Return the arguments of a call of the tool. limit: hits wanted; the maximum of the schema holds as well."""
        given = {**self.arguments, self.query: query}
        if self.limit is not None:
            most = properties(self.tool.input_schema).get(self.limit, {}).get("maximum")
            given[self.limit] = min(limit, most) if isinstance(most, int) and most > 0 else limit
        return given


def server_search(option: SearchTool | None, tools: Iterable[ToolEntry]) -> ServerSearch | None:
    """Return the search that the option names; without it, by the tool that declares to be one, or None.

    Such a tool is read-only, has `search` or the like in its name, needs a query and nothing else, and its output
    schema has a list of objects with `uri`.
    """
    if option is not None:
        tool = next((each for each in tools if each.name == option.tool), None)
        return _by_option(option, tool) if tool is not None else None
    return next((found for tool in tools if _lists_uris(tool) and (found := _looks_like_search(tool))), None)


def proposed(tools: Iterable[ToolEntry]) -> tuple[str, ...]:
    """Return the names of a few tools that look like a search but do not say that they answer with URIs."""
    found = (tool.name for tool in tools if not _lists_uris(tool) and _looks_like_search(tool) is not None)
    return tuple(islice(found, _MAX_PROPOSED))


def proposal(tools: Iterable[ToolEntry]) -> str | None:
    """Return the option that names the first such tool, as a line of TOML, or None."""
    return next((f"search = {{ tool = {json.dumps(name)} }}" for name in proposed(tools)), None)


def hits(result: Mapping[str, Any], search: ServerSearch, limit: int) -> list[Hit]:
    """Return the hits of a result: of its structured content, else of its text, if that is JSON, else its links.

    Raises ToolFailed, ProtocolViolation.
    """
    if is_error(result):
        tool_result(result)
        raise ToolFailed("the tool failed")
    rows = _rows(parsed_result(result), search.uri) or _links(result.get("content"))
    found: dict[str, Hit] = {}
    for row in rows:
        native_uri = usable_text(row, search.uri) or usable_text(row, "uri")
        if native_uri is not None and native_uri not in found:
            found[native_uri] = hit_of(native_uri, row)
            if len(found) == limit:
                break
    return with_sound_scores([*found.values()])


def _by_option(option: SearchTool, tool: ToolEntry) -> ServerSearch | None:
    query = option.query or _argument(tool, QUERIES, text=True) or next(iter(required(tool.input_schema)), None)
    limit = option.limit or _argument(tool, LIMITS)
    return None if query is None else ServerSearch(tool, query, limit, option.uri, option.arguments)


def _looks_like_search(tool: ToolEntry) -> ServerSearch | None:
    query = _argument(tool, QUERIES, text=True)
    if not tool.read_only or tool.needs_task or query is None or not looks_like_search(tool.name):
        return None
    if set(required(tool.input_schema)) - {query}:
        return None
    return ServerSearch(tool, query, _argument(tool, LIMITS))


def _argument(tool: ToolEntry, names: Sequence[str], *, text: bool = False) -> str | None:
    known = properties(tool.input_schema)
    named = (name for name in names if name in known)
    return next((name for name in named if not text or takes_text(known[name], tool.input_schema)), None)


def _lists_uris(tool: ToolEntry) -> bool:
    """Return whether a property of the structured result is a list of objects with `uri`."""
    schema = tool.output_schema or {}
    for each in properties(schema).values():
        items = each.get("items")
        if isinstance(items, Mapping):
            inner = resolved(items, schema).get("properties")
            if isinstance(inner, Mapping) and "uri" in inner:
                return True
    return False


def _rows(value: Any, key: str) -> Sequence[Mapping[str, Any]]:
    """Return the first list of objects that have the key, nearest to the top."""
    ahead = [value]
    for each in islice(_breadth_first(ahead), _MAX_NESTED):
        if isinstance(each, list):
            rows = [row for row in each if isinstance(row, dict) and (key in row or "uri" in row)]
            if rows:
                return rows
    return []


def _breadth_first(ahead: list[Any]) -> Iterator[Any]:
    for each in ahead:  # grows meanwhile
        yield each
        if len(ahead) < _MAX_NESTED and isinstance(each, dict | list):
            ahead.extend(islice(each.values() if isinstance(each, dict) else each, _MAX_NESTED))


def _links(content: Any) -> list[Mapping[str, Any]]:
    """Return the links and the embedded resources among the contents of a result."""
    rows: list[Mapping[str, Any]] = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "resource_link":
            rows.append(block)
        elif isinstance(block, dict) and isinstance(block.get("resource"), dict):
            rows.append(block["resource"])
    return rows
