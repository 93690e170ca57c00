"""The tool `search_resources`: the best hits of one search in all data sources, or in some."""

from typing import Annotated, Any, Literal

import mcp_types as types
from pydantic import BaseModel, ConfigDict, Field

from bbfs.model.errors import BbfsError
from bbfs.resources.commands.answers import asked
from bbfs.resources.commands.table import Hit, Problem, Search
from bbfs.resources.manager import ResourceManager
from bbfs.resources.search.engine import LIMIT
from bbfs.server import documents
from bbfs.server.errors import Fault, described, source_called
from bbfs.serving.bounds import LONGEST_URI
from bbfs.sources.abilities import LONGEST_QUERY

NAME = "search_resources"
MOST = 50
"""Hits of one answer: each takes a kilobyte of the model's context."""
MOST_SOURCES = 100


class SearchArguments(BaseModel):
    """The arguments of `search_resources`."""

    model_config = ConfigDict(title="Arguments", extra="forbid", strict=True)

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


_TEXT = {"type": "string"}
OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "hits": {
            "type": "array",
            "description": "The best first.",
            "items": {
                "type": "object",
                "properties": {
                    "uri": {**_TEXT, "description": "For load_resources, and to cite."},
                    "title": _TEXT,
                    "dataSourceId": _TEXT,
                    "snippet": {**_TEXT, "description": "The text around the match."},
                    "where": {**_TEXT, "description": "The place of the match, such as a heading."},
                    "score": {"type": "number", "description": "Of the merged ranks; greater is better."},
                },
                "required": ["uri", "title", "dataSourceId", "score"],
            },
        },
        "problems": {
            "type": "array",
            "description": "Sentences about data sources that may have more: down, slow, or without a search.",
            "items": _TEXT,
        },
        "error": documents.ERROR_SCHEMA,
    },
    "required": ["hits", "problems"],
}


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
            failed = {"hits": [], "problems": [], "error": described(error)}
            return types.CallToolResult(
                content=[types.TextContent(text=str(error))], structured_content=failed, is_error=True
            )
        hits = [answer for answer in answers if isinstance(answer, Hit)]
        problems = [answer.problem for answer in answers if isinstance(answer, Problem)]
        lines = [_line(rank, hit) for rank, hit in enumerate(hits, 1)] or ["Nothing was found."]
        text = types.TextContent(text="\n".join([*lines, *problems]))
        return types.CallToolResult(
            content=[text, *map(_link, hits)],
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
