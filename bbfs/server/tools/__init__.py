"""The tools of the server: definitions and calls."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import mcp_types as types

from bbfs.resources.manager import ResourceManager
from bbfs.server.tools import grep_resources, load_datasource, load_resources, search_resources, write_resources
from bbfs.serving.tools import Arguments, InvalidArguments, Schema, arguments_of, failure

Answer: TypeAlias = Callable[[Any], Awaitable[types.CallToolResult | dict[str, Any]]]
"""Answers the arguments of a call."""
_READS = types.ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True)
_WRITES = types.ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=True)


def _tool(
    name: str,
    title: str,
    arguments: type[Arguments],
    output: Schema,
    description: str,
    effects: types.ToolAnnotations = _READS,
) -> types.Tool:
    return types.Tool(
        name=name,
        title=title,
        description=description,
        input_schema=arguments.model_json_schema(),
        output_schema=output,
        annotations=effects,
    )


def definitions(source_ids: list[str], written_ids: list[str]) -> list[types.Tool]:
    """Return the definitions for a server with these sources. written_ids: of those that can be written."""
    reading = [
        _tool(
            *(load_datasource.NAME, "Look into a data source", load_datasource.SourceArguments, load_datasource.OUTPUT),
            "What a data source is and how it fares, and the metadata of its resources, a page at a time, with the URI "
            f"templates that make more of them. Data sources: {', '.join(source_ids) or 'none'}.",
        ),
        _tool(
            *(load_resources.NAME, "Load resources", load_resources.ResourceArguments, load_resources.OUTPUT),
            "The contents of resources of any data sources, many at once: by a URI template and values, or by URIs as "
            "load_datasource gives them. Each resource has its own outcome.",
        ),
        _tool(
            *(search_resources.NAME, "Search resources", search_resources.SearchArguments, search_resources.OUTPUT),
            "The resources of all data sources, or of some, that fit a query best: URIs with titles and the text "
            "around the match, and which data sources could not be searched. Load a hit with load_resources, and cite "
            "its URI.",
        ),
        _tool(
            *(grep_resources.NAME, "Grep resources", grep_resources.GrepArguments, grep_resources.OUTPUT),
            "The lines of the resources of a data source that match a regular expression, with their numbers. Exact, "
            "and slower than search_resources if the data source is not indexed.",
        ),
    ]
    return [*reading, *_writing(", ".join(written_ids))] if written_ids else reading


def _writing(written: str) -> list[types.Tool]:
    """Return the definitions of the tools that write. written: the sources that can be written."""
    return [
        _tool(
            *(write_resources.WRITE, "Write a resource", write_resources.WriteArguments, write_resources.OUTPUT),
            "Create a resource, or replace its whole content. When it returns without an error, the data source has "
            f"the content. Data sources that can be written: {written}.",
            _WRITES,
        ),
        _tool(
            *(write_resources.REMOVE, "Remove a resource", write_resources.RemoveArguments, write_resources.OUTPUT),
            f"Remove a resource from its data source for good. Data sources that can be written: {written}.",
            _WRITES,
        ),
    ]


class Tools:
    """The tools of one server. depth, most_bytes: as for `DataSources` and `Resources`."""

    def __init__(self, manager: ResourceManager, depth: int | None, most_bytes: int) -> None:
        writings = write_resources.Writings(manager)
        self._answers: Mapping[str, tuple[type[Arguments], Answer]] = {
            load_datasource.NAME: (load_datasource.SourceArguments, load_datasource.DataSources(manager, depth).load),
            load_resources.NAME: (load_resources.ResourceArguments, load_resources.Resources(manager, most_bytes).load),
            search_resources.NAME: (search_resources.SearchArguments, search_resources.Searches(manager).search),
            grep_resources.NAME: (grep_resources.GrepArguments, grep_resources.Greps(manager).grep),
            write_resources.WRITE: (write_resources.WriteArguments, writings.write),
            write_resources.REMOVE: (write_resources.RemoveArguments, writings.remove),
        }

    async def call(self, name: str, arguments: Mapping[str, Any] | None) -> types.CallToolResult:
        """Call a tool. Wrong arguments are explained in the result, for the model to read. Raises KeyError."""
        kind, answer = self._answers[name]
        try:
            # Hosts write null for what is left out.
            given = arguments_of(kind, {key: item for key, item in (arguments or {}).items() if item is not None})
        except InvalidArguments as error:
            return failure(str(error))
        result = await answer(given)
        return result if isinstance(result, types.CallToolResult) else _structured(result)


def _structured(result: dict[str, Any]) -> types.CallToolResult:
    """Return a structured result. Its text is the same as JSON for older clients, or the error's message."""
    error = result.get("error")
    text = error["message"] if error is not None else json.dumps(result, ensure_ascii=False, default=str)
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=result, is_error=error is not None
    )
