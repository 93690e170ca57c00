"""The tool `grep_resources`: the lines of resources that match a regular expression."""

from collections.abc import Sequence

import mcp_types as types
from pydantic import Field

from bbfs.model.errors import BbfsError
from bbfs.resources.commands.answers import asked
from bbfs.resources.commands.encoding import encoded
from bbfs.resources.commands.matching import match_one
from bbfs.resources.commands.table import Match, Matched, Problem
from bbfs.resources.manager import ResourceManager
from bbfs.resources.search.literals import LONGEST_PATTERN
from bbfs.server.answers import AnsweredArguments
from bbfs.server.contents import Budget, items_of
from bbfs.server.errors import Fault, source_called
from bbfs.server.kept import MOST_BYTES, KeptResults, is_kept
from bbfs.serving.bounds import LONGEST_URI, shortened

NAME = "grep_resources"
LIMIT, MOST = 50, 200
"""Matching lines of one answer: by default, and at most."""
SHOWN = 200
"""Characters of a line in the text of an answer."""
MOST_CONTEXT = 5
"""Lines around a match."""


class GrepArguments(AnsweredArguments):
    """The arguments of `grep_resources`."""

    pattern: str = Field(
        min_length=1, max_length=LONGEST_PATTERN, description="An extended regular expression (grep -E)."
    )
    dataSourceId: str = Field(  # noqa: N815 - the name in the protocol
        min_length=1, max_length=LONGEST_URI, description="Its id, name or URI prefix; or the URI of a kept result."
    )
    path: str = Field(default="", max_length=LONGEST_URI, description="Only at or below it.")
    ignoreCase: bool = False  # noqa: N815
    fixed: bool = Field(default=False, description="The pattern is plain text.")
    context: int = Field(default=0, ge=0, le=MOST_CONTEXT, description="Lines around a match.")
    limit: int = Field(default=LIMIT, ge=1, le=MOST, description="Matching lines.")


class Greps:
    """Answers `grep_resources`."""

    def __init__(self, manager: ResourceManager, kept: KeptResults) -> None:
        self._manager = manager
        self._kept = kept

    async def grep(self, given: GrepArguments) -> types.CallToolResult:
        """Return the lines that match, by resource, and sentences about what was not read."""
        try:
            answers = await self._answers(given)
        except (BbfsError, Fault) as error:
            return given.refusal(error, resources=[], problems=[])
        found = [answer for answer in answers if isinstance(answer, Matched)]
        problems = [answer.problem for answer in answers if isinstance(answer, Problem)]
        lines = [line for each in found for line in _printed(each)] or ["No line matches."]
        resources = [
            {"uri": each.uri, "title": each.title or each.name, "lines": encoded(each.lines)} for each in found
        ]
        return given.answer({"resources": resources, "problems": problems}, *lines, *problems)

    async def _answers(self, given: GrepArguments) -> Sequence[Matched | Problem]:
        """Return what matches in a source, or in a kept result. Raise BbfsError, Fault."""
        options = given.pattern, given.ignoreCase, given.fixed, given.context, given.limit
        if is_kept(given.dataSourceId):
            loaded = self._kept.loaded(given.dataSourceId)
            if loaded.error is not None:
                raise loaded.error
            (item,) = await items_of(loaded, "", Budget(MOST_BYTES))
            lines = await match_one(Match("", *options), item.data)
            return [Matched(item.uri, "result", None, lines)] if lines else []
        data = source_called(self._manager, given.dataSourceId).data
        path = "/".join((data.uri_prefix, *(name for name in given.path.split("/") if name not in ("", "."))))
        return await asked(self._manager, Match(path, *options))


def _printed(each: Matched) -> list[str]:
    """Return the URI of a resource, and its lines below it as grep prints them."""
    lines = [f"{line.number}{'-:'[line.matches]}{shortened(line.text, SHOWN)}" for line in each.lines]
    return [each.uri, *lines]
