"""The tool `load_datasource`: a data source, and its resources, a page at a time."""

from typing import Annotated, Any

from pydantic import Field

from bbfs.model.errors import BbfsError, NotADirectory
from bbfs.resources.catalog.record import Path
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.server import documents, templates
from bbfs.server.errors import Fault, described, source_called
from bbfs.server.walk import LONGEST_TOKEN, Walk, page_token, place_of, texts_of
from bbfs.serving.bounds import LONGEST_URI
from bbfs.serving.tools import Arguments, array, record, text, value

NAME = "load_datasource"
PAGE = 100
LARGEST_PAGE = 1000


class SourceArguments(Arguments):
    """The arguments of `load_datasource`."""

    dataSourceId: str = Field(  # noqa: N815 - the name in the protocol
        min_length=1, max_length=LONGEST_URI, description="The id of the data source, or its name or URI prefix."
    )
    path: str = Field(
        default="",
        max_length=LONGEST_URI,
        description="The directory to begin at, below the data source; all of it by default.",
    )
    depth: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="How many levels of directories to go down; 1 is the directory itself. "
        "Without it, all of a source that lists everything at once, and one level of one that lists directories.",
    )
    pageSize: int = Field(  # noqa: N815
        default=PAGE, ge=1, le=LARGEST_PAGE, description="How many resources to answer at most."
    )
    pageToken: str | None = Field(  # noqa: N815
        default=None,
        max_length=LONGEST_TOKEN,
        description="nextPageToken of the page before; all other arguments as there.",
    )


_PROBLEM = record("path error", path=text(), error=documents.ERROR_SCHEMA)
OUTPUT = record(
    "resources uriTemplates",
    dataSource=documents.SOURCE_SCHEMA,
    dataSourceId=text(),
    dataSourceName=text(),
    dataSourceType=text(),
    resources=array(documents.RESOURCE_SCHEMA),
    uriTemplates=array(documents.TEMPLATE_SCHEMA),
    nextPageToken=text("There is more: pass it as pageToken."),
    totalCount=value("integer", "Of all pages, where that is known."),
    problems=array(_PROBLEM, "Directories that could not be listed."),
    error=documents.ERROR_SCHEMA,
)


class DataSources:
    """Answers `load_datasource`. depth: default depth; None for the default of the kind of source."""

    def __init__(self, manager: ResourceManager, depth: int | None = None) -> None:
        self._manager = manager
        self._depth = depth

    async def load(self, given: SourceArguments) -> dict[str, Any]:
        """Return the structured result; a failure is its `error`."""
        try:
            source = source_called(self._manager, given.dataSourceId)
        except (BbfsError, Fault) as error:
            return {"resources": [], "uriTemplates": [], "error": described(error)}
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
        return result if error is None else {**result, "error": described(error)}

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


def _total(source: Source, start: Path, depth: int | None, given: SourceArguments, walk: Walk) -> int | None:
    if given.pageToken is None and not walk.more:
        return len(walk.found)
    if not start and depth is None and source.catalog.lists_all:
        return source.catalog.count()
    return None
