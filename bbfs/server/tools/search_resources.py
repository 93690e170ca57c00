"""The tool `search_resources`: the best hits of one search in all data sources, or in some."""

import re
from itertools import islice
from typing import Annotated, Any, Literal

import mcp_types as types
from pydantic import Field

from bbfs.model.errors import BbfsError
from bbfs.resources.commands.answers import asked
from bbfs.resources.commands.table import Hit, Problem, Search
from bbfs.resources.manager import ResourceManager
from bbfs.server.answers import AnsweredArguments, named, one_line
from bbfs.server.errors import Fault, source_called
from bbfs.server_parts.bounds import LONGEST_URI
from bbfs.sources.abilities import LONGEST_QUERY

NAME = "search_resources"
LIMIT, MOST = 10, 50
"""Hits of one answer: by default, and at most. Each takes 300 characters of the model's context."""
MOST_SOURCES = 100
NOTHING = (
    "Nothing was found. grep_resources matches exact text, indexed or not. The user can have a data "
    "source indexed with 'bbfs index'."
)
SHOWN, BEFORE = 160, 40
"""Characters of a snippet in the text of an answer; of them, before the first word that was found."""
MOST_PLACES = 64
"""Places of words that are considered for that."""


class SearchArguments(AnsweredArguments):
    """The arguments of `search_resources`."""

    query: str = Field(min_length=1, max_length=LONGEST_QUERY, description="Words; nothing in them is syntax.")
    sources: list[Annotated[str, Field(min_length=1, max_length=LONGEST_URI)]] | None = Field(
        default=None, min_length=1, max_length=MOST_SOURCES, description="Ids, names or URI prefixes. Default: all."
    )
    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    mode: Literal["words", "meaning", "both"] = "both"


class Searches:
    """Answers `search_resources`."""

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager

    async def search(self, given: SearchArguments) -> types.CallToolResult:
        """Return the hits, the best first, and sentences about the sources that may have more."""
        try:
            found = [source_called(self._manager, called) for called in given.sources or ()]
            below = tuple(name for name, source in self._manager.roots.directories().items() if source in found)
            answers = await asked(self._manager, Search(given.query, below, given.limit, given.mode))
        except (BbfsError, Fault) as error:
            return given.refusal(error, hits=[], problems=[])
        hits = [answer for answer in answers if isinstance(answer, Hit)]
        problems = [answer.problem for answer in answers if isinstance(answer, Problem)]
        lines = [_line(rank, hit, given.query) for rank, hit in enumerate(hits, 1)] or [NOTHING]
        return given.answer({"hits": [*map(_hit, hits)], "problems": problems}, *lines, *problems)


def _line(rank: int, hit: Hit, query: str) -> str:
    where = f" ({one_line(hit.part)})" if hit.part else ""
    shown = f"\n   {window(hit.snippet, query)}" if hit.snippet else ""
    return f"{rank}. {named(hit.uri, hit.title)}{where}{shown}"


def window(snippet: str, query: str) -> str:
    """Return the part of a snippet that has the most words of a query, or else its beginning, in `SHOWN` characters."""
    if len(snippet) <= SHOWN:
        return snippet
    folded = snippet.lower()
    if len(folded) != len(snippet):  # a letter that is two in lower case: places in one are none in the other
        return f"{snippet[:SHOWN].rstrip()}…"
    words = sorted({re.escape(word.lower()) for word in query.split()}, key=len, reverse=True)
    places = [(found.start(), found[0]) for found in islice(re.finditer("|".join(words), folded), MOST_PLACES)]
    best, most = 0, 0
    for at, _ in places:
        count = len({word for place, word in places if at <= place and place + len(word) <= at + SHOWN - BEFORE})
        if count > most:
            best, most = at, count
    start = min(max(0, best - BEFORE), len(snippet) - SHOWN)
    start = (start and snippet.find(" ", start, best) + 1) or start
    end = start + SHOWN
    return f"{'…' if start else ''}{snippet[start:end].strip()}{'…' if end < len(snippet) else ''}"


def _hit(hit: Hit) -> dict[str, Any]:
    fields = {
        "uri": hit.uri,
        "title": hit.title,
        "dataSourceId": hit.source,
        "snippet": hit.snippet,
        "where": hit.where,
        "score": hit.score,
        "foundBy": [*hit.found_by],
    }
    return {key: value for key, value in fields.items() if value is not None}
