"""The tool `grep_resources`: the lines of resources that match a regular expression."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

import mcp_types as types
import trio
from pydantic import Field

from bbfs.model.errors import BbfsError, InvalidUri
from bbfs.model.values import DataSource
from bbfs.resources.commands.answers import ask, asked
from bbfs.resources.commands.encoding import encoded
from bbfs.resources.commands.matching import WITHIN, first_matches, match_one
from bbfs.resources.commands.table import Line, Match, Matched, Problem
from bbfs.resources.manager import ResourceManager
from bbfs.resources.search.literals import LONGEST_PATTERN
from bbfs.server.answers import AnsweredArguments
from bbfs.server.contents import Budget, items_of
from bbfs.server.errors import Fault, source_called
from bbfs.server.kept import MOST_BYTES, KeptResults, is_kept
from bbfs.server_parts.bounds import LONGEST_URI, shortened

NAME = "grep_resources"
LIMIT, MOST = 50, 200
"""Matching lines of one answer: by default, and at most."""
SHOWN, BEFORE = 200, 60
"""Characters of a line in the text of an answer; of them, before the match in a longer line."""
AT_ONCE = 4
"""Data sources that are read at once, if a call names none. Each may have a batch of contents in memory."""
MOST_CONTEXT = 5
"""Lines around a match."""


class GrepArguments(AnsweredArguments):
    """The arguments of `grep_resources`."""

    pattern: str = Field(
        min_length=1, max_length=LONGEST_PATTERN, description="An extended regular expression (grep -E)."
    )
    dataSourceId: str = Field(  # noqa: N815 - the name in the protocol
        default="",
        max_length=LONGEST_URI,
        description="Its id, name or URI prefix; or the URI of a kept result. Default: all.",
    )
    path: str = Field(default="", max_length=LONGEST_URI, description="Only at or below it.")
    ignoreCase: bool = False  # noqa: N815
    fixed: bool = Field(default=False, description="The pattern is plain text.")
    context: int = Field(default=0, ge=0, le=MOST_CONTEXT, description="Lines around a match.")
    limit: int = Field(default=LIMIT, ge=1, le=MOST, description="Matching lines.")


class Greps:
    """Answers `grep_resources`. within: seconds for a call that names no data source."""

    def __init__(self, manager: ResourceManager, kept: KeptResults, within: float = WITHIN) -> None:
        self._within = within
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
        """Return what matches in a source, in all of them, or in a kept result. Raise BbfsError, Fault."""
        options = given.pattern, given.ignoreCase, given.fixed, given.context, given.limit
        if is_kept(given.dataSourceId):
            loaded = self._kept.loaded(given.dataSourceId)
            if loaded.error is not None:
                raise loaded.error
            (item,) = await items_of(loaded, "", Budget(MOST_BYTES))
            lines = await match_one(Match("", *options), item.data)
            return [Matched(item.uri, "result", None, lines)] if lines else []
        if not given.dataSourceId:
            if given.path:
                raise InvalidUri("a path is one of a data source: name its dataSourceId")
            return await self._everywhere(Match("", *options))
        data = source_called(self._manager, given.dataSourceId).data
        path = "/".join((data.uri_prefix, *(name for name in given.path.split("/") if name not in ("", "."))))
        return await asked(self._manager, Match(path, *options))

    async def _everywhere(self, request: Match) -> list[Matched | Problem]:
        """Return what matches in all sources, and what was not read in time. Raise BbfsError.

        A pattern that grep refuses is an error of the call; all other errors are those of a source.
        """
        await match_one(request, b"")
        sources = [source.data for source in self._manager.sources.values()]
        heard: dict[str, list[Matched | Problem]] = {data.id: [] for data in sources}
        unread = {data.id for data in sources}
        limiter = trio.CapacityLimiter(AT_ONCE)

        async def read(data: DataSource) -> None:
            async with limiter:
                try:
                    await ask(self._manager, replace(request, path=data.uri_prefix), heard[data.id].append)
                except BbfsError as error:
                    heard[data.id].append(Problem(str(error)))
                unread.discard(data.id)

        with trio.move_on_after(self._within):
            async with trio.open_nursery() as nursery:
                for data in sources:
                    nursery.start_soon(read, data)
        found = [[each for each in answers if isinstance(each, Matched)] for answers in heard.values()]
        shown, is_cut = _shared_out(found, request.limit)
        more = f"there may be more than {request.limit} matching lines"
        said = [
            (name, each.problem) for name, answers in heard.items() for each in answers if isinstance(each, Problem)
        ]
        told = [Problem(more)] if is_cut or more in (text for _, text in said) else []
        told += [Problem(f"{name}: {text}") for name, text in said if text != more]
        if unread:
            told.append(Problem(f"not read to the end within {self._within:g} s: {', '.join(sorted(unread))}"))
        return [*shown, *told]


def _shared_out(found: Sequence[Sequence[Matched]], limit: int) -> tuple[list[Matched], bool]:
    """Return the resources of all sources up to so many matching lines, and whether lines are left out.

    The sources take turns, a resource at a time, so that one with many matches does not take all the room. The answer
    has them in the order of the sources.
    """
    kept: list[list[Matched]] = [[] for _ in found]
    left, is_cut = limit, False
    for turn in zip_longest(*found):
        for number, each in enumerate(turn):
            if each is None:
                continue
            lines = first_matches(each.lines, left)
            taken = sum(line.matches for line in lines)
            is_cut = is_cut or taken < sum(line.matches for line in each.lines)
            left -= taken
            if lines:
                kept[number].append(replace(each, lines=lines))
    return [each for of_source in kept for each in of_source], is_cut


def _printed(each: Matched) -> list[str]:
    """Return the URI of a resource, and its lines below it as grep prints them."""
    return [each.uri, *(f"{line.number}{'-:'[line.matches]}{shown(line)}" for line in each.lines)]


def shown(line: Line) -> str:
    """Return a line, or the part of a long one around its match, in `SHOWN` characters."""
    at = line.match - line.begin
    start = max(0, min(at - BEFORE, len(line.text) - SHOWN)) if at + BEFORE > SHOWN else 0
    text = shortened(line.text[start:], SHOWN)
    return f"{'…' if line.begin + start else ''}{text}"
