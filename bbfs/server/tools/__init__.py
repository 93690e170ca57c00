"""The tools of the server: definitions and calls."""

import json
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from pydantic import BaseModel, ValidationError

from bbfs.resources.manager import ResourceManager
from bbfs.server.tools import grep_resources, load_datasource, load_resources, search_resources, write_resources
from bbfs.serving.bounds import shortened

_ARGUMENTS: Mapping[str, type[BaseModel]] = {
    load_datasource.NAME: load_datasource.SourceArguments,
    load_resources.NAME: load_resources.ResourceArguments,
    search_resources.NAME: search_resources.SearchArguments,
    grep_resources.NAME: grep_resources.GrepArguments,
    write_resources.WRITE: write_resources.WriteArguments,
    write_resources.REMOVE: write_resources.RemoveArguments,
}
MOST_PROBLEMS = 10
"""Faults of the arguments that a refusal names."""
_READS = types.ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True)
_WRITES = types.ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=True)


def _tool(
    name: str,
    title: str,
    description: str,
    arguments: type[BaseModel],
    output: Mapping[str, Any],
    effects: types.ToolAnnotations = _READS,
) -> types.Tool:
    return types.Tool(
        name=name,
        title=title,
        description=description,
        input_schema=arguments.model_json_schema(),
        output_schema=dict(output),
        annotations=effects,
    )


def definitions(source_ids: list[str], written_ids: list[str]) -> list[types.Tool]:
    """Return the definitions for a server with these sources. written_ids: of those that can be written."""
    there, written = ", ".join(source_ids) or "none", ", ".join(written_ids)
    writing = [
        _tool(
            write_resources.WRITE,
            "Write a resource",
            "Create a resource, or replace its whole content. When it returns without an error, the data source has "
            f"the content. Data sources that can be written: {written}.",
            write_resources.WriteArguments,
            write_resources.OUTPUT,
            _WRITES,
        ),
        _tool(
            write_resources.REMOVE,
            "Remove a resource",
            f"Remove a resource from its data source for good. Data sources that can be written: {written}.",
            write_resources.RemoveArguments,
            write_resources.OUTPUT,
            _WRITES,
        ),
    ]
    return [
        _tool(
            load_datasource.NAME,
            "Look into a data source",
            "What a data source is and how it fares, and the metadata of its resources, a page at a time, with the URI "
            f"templates that make more of them. Data sources: {there}.",
            load_datasource.SourceArguments,
            load_datasource.OUTPUT,
        ),
        _tool(
            load_resources.NAME,
            "Load resources",
            "The contents of resources of any data sources, many at once: by a URI template and values, or by URIs as "
            "load_datasource gives them. Each resource has its own outcome.",
            load_resources.ResourceArguments,
            load_resources.OUTPUT,
        ),
        _tool(
            search_resources.NAME,
            "Search resources",
            "The resources of all data sources, or of some, that fit a query best: URIs with titles and the text "
            "around the match, and which data sources could not be searched. Load a hit with load_resources, and cite "
            "its URI.",
            search_resources.SearchArguments,
            search_resources.OUTPUT,
        ),
        _tool(
            grep_resources.NAME,
            "Grep resources",
            "The lines of the resources of a data source that match a regular expression, with their numbers. Exact, "
            "and slower than search_resources if the data source is not indexed.",
            grep_resources.GrepArguments,
            grep_resources.OUTPUT,
        ),
        *(writing if written_ids else []),
    ]


class Tools:
    """The tools of one server. depth, most_bytes: as for `DataSources` and `Resources`."""

    def __init__(self, manager: ResourceManager, depth: int | None, most_bytes: int) -> None:
        self._data_sources = load_datasource.DataSources(manager, depth)
        self._resources = load_resources.Resources(manager, most_bytes)
        self._searches = search_resources.Searches(manager)
        self._greps = grep_resources.Greps(manager)
        self._writings = write_resources.Writings(manager)

    async def call(self, name: str, arguments: Mapping[str, Any] | None) -> types.CallToolResult:
        """Call a tool. Wrong arguments are explained in the result, for the model to read. Raises KeyError."""
        kind = _ARGUMENTS[name]
        try:
            # Hosts write null for what is left out.
            given = kind.model_validate({key: value for key, value in (arguments or {}).items() if value is not None})
        except ValidationError as error:
            return failure(f"invalid arguments: {_problems(error)}")
        if isinstance(given, load_resources.ResourceArguments):
            return await self._resources.load(given)
        if isinstance(given, search_resources.SearchArguments):
            return await self._searches.search(given)
        if isinstance(given, grep_resources.GrepArguments):
            return await self._greps.grep(given)
        if isinstance(given, write_resources.WriteArguments):
            return _structured(await self._writings.write(given))
        if isinstance(given, write_resources.RemoveArguments):
            return _structured(await self._writings.remove(given))
        assert isinstance(given, load_datasource.SourceArguments)
        return _structured(await self._data_sources.load(given))


def failure(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _structured(result: dict[str, Any]) -> types.CallToolResult:
    """Return a structured result. Its text is the same as JSON for older clients, or the error's message."""
    error = result.get("error")
    text = error["message"] if error is not None else json.dumps(result, ensure_ascii=False, default=str)
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=result, is_error=error is not None
    )


def _problems(error: ValidationError) -> str:
    found = error.errors(include_input=False, include_url=False, include_context=False)
    told = [f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in found[:MOST_PROBLEMS]]
    more = [f"{len(found) - MOST_PROBLEMS} more"] if len(found) > MOST_PROBLEMS else []
    return "; ".join([*(shortened(each, 300) for each in told), *more])
