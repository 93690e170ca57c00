"""The tool `search_resources`: the best hits of one search in all data sources, or in some."""

from typing import Annotated, Any, Literal

import mcp_types as types
from pydantic import Field

from bbfs.model.errors import BbfsError
from bbfs.resources.commands.answers import asked
from bbfs.resources.commands.table import Hit, Problem, Search
from bbfs.resources.manager import ResourceManager
from bbfs.resources.search.engine import LIMIT
from bbfs.server import documents
from bbfs.server.errors import Fault, described, source_called
from bbfs.serving.bounds import LONGEST_URI
from bbfs.serving.tools import Arguments, array, failure, record, text, value
from bbfs.sources.abilities import LONGEST_QUERY

NAME = "search_resources"
MOST = 50
"""Hits of one answer: each takes a kilobyte of the model's context."""
MOST_SOURCES = 100


class SearchArguments(Arguments):
    """The arguments of `search_resources`."""

    query: str = Field(
        min_length=1, max_length=LONGEST_QUERY, description="Words to search for; nothing in them is syntax."
    )
    sources: list[Annotated[str, Field(min_length=1, max_length=LONGEST_URI)]] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_SOURCES,
        description="The ids of the data sources to search, or their names or URI prefixes; all by default.",
    )
    limit: int = Field(default=LIMIT, ge=1, le=MOST, description="How many hits to answer at most.")
    mode: Literal["words", "meaning", "both"] = Field(
        default="both", description="Which searches to use: those by words, those by meaning, or both."
    )


_HIT = record(
    "uri title dataSourceId score",
    uri=text("For load_resources, and to cite."),
    title=text(),
    dataSourceId=text(),
    snippet=text("The text around the match."),
    where=text("The place of the match, such as a heading."),
    score=value("number", "Of the merged ranks; greater is better."),
)
OUTPUT = record(
    "hits problems",
    hits=array(_HIT, "The best first."),
    problems=array(text(), "Sentences about data sources that may have more: down, slow, or without a search."),
    error=documents.ERROR_SCHEMA,
)


class Searches:
    """Answers `search_resources`."""

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager

    async def search(self, given: SearchArguments) -> types.CallToolResult:
        """Return the result: a text with all hits for a model, and a link to each resource."""
        try:
            found = [source_called(self._manager, called) for called in given.sources or ()]
            below = tuple(name for name, source in self._manager.roots.directories().items() if source in found)
            answers = await asked(self._manager, Search(given.query, below, given.limit, given.mode))
        except (BbfsError, Fault) as error:
            return failure(str(error), {"hits": [], "problems": [], "error": described(error)})
        hits = [answer for answer in answers if isinstance(answer, Hit)]
        problems = [answer.problem for answer in answers if isinstance(answer, Problem)]
        lines = [_line(rank, hit) for rank, hit in enumerate(hits, 1)] or ["Nothing was found."]
        return types.CallToolResult(
            content=[types.TextContent(text="\n".join([*lines, *problems])), *map(_link, hits)],
            structured_content={"hits": [*map(_hit, hits)], "problems": problems},
        )


def _line(rank: int, hit: Hit) -> str:
    where = f" ({hit.where})" if hit.where else ""
    return f"{rank}. {hit.title}{where}: {hit.uri}" + (f"\n   {hit.snippet}" if hit.snippet else "")


def _hit(hit: Hit) -> dict[str, Any]:
    fields = {
        "uri": hit.uri,
        "title": hit.title,
        "dataSourceId": hit.source,
        "snippet": hit.snippet,
        "where": hit.where,
        "score": hit.score,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _link(hit: Hit) -> types.ResourceLink:
    return types.ResourceLink(uri=hit.uri, name=hit.path.rpartition("/")[2], title=hit.title, description=hit.snippet)
