"""The tool `load_datasource`: a data source, and its resources, a page at a time."""

from collections.abc import Iterator
from typing import Annotated, Any

import mcp_types as types
from pydantic import Field

from bbfs.model.errors import BbfsError, NotADirectory
from bbfs.resources.catalog.record import Path
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.server import documents
from bbfs.server.answers import AnsweredArguments, one_line, problem, resource_line
from bbfs.server.errors import Fault, described, source_called
from bbfs.server.listing import templates
from bbfs.server.listing.walk import LONGEST_TOKEN, Walk, page_token, place_of, texts_of
from bbfs.server_parts.bounds import LONGEST_URI

NAME = "load_datasource"
PAGE = 25
LARGEST_PAGE = 1000
MOST_TEMPLATES = 25
"""Templates in the text of an answer."""


class SourceArguments(AnsweredArguments):
    """The arguments of `load_datasource`."""

    dataSourceId: str = Field(  # noqa: N815 - the name in the protocol
        min_length=1, max_length=LONGEST_URI, description="Its id, name or URI prefix."
    )
    path: str = Field(
        default="",
        max_length=LONGEST_URI,
        description="A directory, as path= of an earlier answer has it.",
    )
    depth: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Levels to go down. Default: 1 in folders and the like, all in MCP servers.",
    )
    pageSize: int = Field(default=PAGE, ge=1, le=LARGEST_PAGE)  # noqa: N815
    pageToken: str | None = Field(  # noqa: N815
        default=None,
        max_length=LONGEST_TOKEN,
        description="From the page before; other arguments as there.",
    )


class DataSources:
    """Answers `load_datasource`. depth: default depth; None for the default of the kind of source."""

    def __init__(self, manager: ResourceManager, depth: int | None = None) -> None:
        self._manager = manager
        self._depth = depth

    async def load(self, given: SourceArguments) -> types.CallToolResult:
        """Return a page. If the source cannot be listed, the answer describes it all the same."""
        try:
            source = source_called(self._manager, given.dataSourceId)
        except (BbfsError, Fault) as error:
            return given.refusal(error, resources=[], uriTemplates=[])
        error: BbfsError | Fault | None = None
        page: dict[str, Any] = {"resources": []}
        try:
            page = await self._page(source, documents.given_path(source, given.path), given)
        except NotADirectory:
            error = Fault("type_mismatch", f"{given.path}: not a directory; load_resources loads it")
        except (BbfsError, Fault) as failure:
            error = failure
        data = source.data
        result = {
            "dataSource": source.document,
            "dataSourceId": data.id,
            "dataSourceName": data.name,
            "dataSourceType": data.type,
            **page,
            "uriTemplates": templates.as_json(templates.templates_of(source)),
        }
        result = result if error is None else {**result, "error": described(error)}
        return given.answer(result, *_lines(result, is_first=given.pageToken is None))

    async def _page(self, source: Source, start: Path, given: SourceArguments) -> dict[str, Any]:
        depth = given.depth or self._depth or (None if source.catalog.lists_all else 1)
        purpose = [NAME, source.data.id, list(start), depth]
        after = None
        if given.pageToken is not None:
            after = texts_of(place_of(purpose, given.pageToken))
        walk = Walk(source, start, depth, given.pageSize, after)
        await walk.run()
        page: dict[str, Any] = {
            "resources": [
                documents.directory(source, found.path)
                if found.record is None
                else documents.resource(self._manager.contents, source, found.record, found.path)
                for found in walk.found
            ]
        }
        if walk.more:
            page["nextPageToken"] = page_token(purpose, walk.found[-1].path)
        total = _total(source, start, depth, given, walk)
        if total is not None:
            page["totalCount"] = total
        if walk.problems:
            page["problems"] = [
                {"path": documents.shown_path(source, path), "error": described(error)}
                for path, error in walk.problems.items()
            ]
        return page


def _lines(result: dict[str, Any], *, is_first: bool) -> Iterator[str]:
    """Yield the lines of the text for a model. is_first: the page is the first, and says what the source is."""
    source, resources, made = result["dataSource"], result["resources"], result["uriTemplates"]
    if is_first:
        title = f' "{one_line(source["title"])}"' if "title" in source else ""
        wrong = f" ({one_line(source['error'])})" if "error" in source else ""
        yield f"{source['id']}{title}: {source['type']}, {', '.join(source['capabilities'])}, {source['state']}{wrong}"
        for each in made[:MOST_TEMPLATES]:
            about = one_line(each.get("description") or each.get("title"))
            yield f"template {each['uriTemplate']}" + (f" - {about}" if about else "")
        if len(made) > MOST_TEMPLATES:
            yield f"{len(made) - MOST_TEMPLATES} more templates: format=json has them"
    total = result.get("totalCount")
    yield f"{len(resources)} resources" if total is None else f"{len(resources)} of {total} resources"
    yield from map(resource_line, resources)
    for each in result.get("problems", ()):
        yield f"not listed: path={each['path']}: {problem(each['error'])}"
    if "nextPageToken" in result:
        yield f"more: pageToken={result['nextPageToken']}"


def _total(source: Source, start: Path, depth: int | None, given: SourceArguments, walk: Walk) -> int | None:
    if given.pageToken is None and not walk.more:
        return len(walk.found)
    if start == documents.given_path(source, "") and depth is None and source.catalog.lists_all:
        return source.catalog.count()
    return walk.names if depth == 1 else None
