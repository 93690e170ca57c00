"""The tool `grep_resources`: the lines of resources that match a regular expression."""

import mcp_types as types
from pydantic import Field

from bbfs.model.errors import BbfsError
from bbfs.resources.commands.answers import asked
from bbfs.resources.commands.encoding import encoded
from bbfs.resources.commands.table import Match, Matched, Problem
from bbfs.resources.manager import ResourceManager
from bbfs.resources.search.literals import LONGEST_PATTERN
from bbfs.server import documents
from bbfs.server.errors import Fault, described, source_called
from bbfs.serving.bounds import LONGEST_URI
from bbfs.serving.tools import Arguments, array, failure, record, text, value

NAME = "grep_resources"
LIMIT, MOST = 50, 200
"""Matching lines of one answer: by default, and at most."""
MOST_CONTEXT = 5
"""Lines around a match."""


class GrepArguments(Arguments):
    """The arguments of `grep_resources`."""

    pattern: str = Field(
        min_length=1,
        max_length=LONGEST_PATTERN,
        description="An extended regular expression (as of grep -E), matched against each line.",
    )
    dataSourceId: str = Field(  # noqa: N815 - the name in the protocol
        min_length=1, max_length=LONGEST_URI, description="The id of the data source, or its name or URI prefix."
    )
    path: str = Field(
        default="", max_length=LONGEST_URI, description="Only what is at or below this path; all of it by default."
    )
    ignoreCase: bool = Field(default=False, description="Letters of both cases match.")  # noqa: N815
    fixed: bool = Field(default=False, description="The pattern is plain text.")
    context: int = Field(default=0, ge=0, le=MOST_CONTEXT, description="How many lines to show around a match.")
    limit: int = Field(default=LIMIT, ge=1, le=MOST, description="How many matching lines to answer at most.")


_LINE = record(
    "number text matches",
    number=value("integer"),
    text=text(),
    matches=value("boolean", "False for a line of the context."),
)
_RESOURCE = record("uri title lines", uri=text("For load_resources, and to cite."), title=text(), lines=array(_LINE))
OUTPUT = record(
    "resources problems",
    resources=array(_RESOURCE),
    problems=array(text(), "Sentences about what was not read."),
    error=documents.ERROR_SCHEMA,
)


class Greps:
    """Answers `grep_resources`."""

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager

    async def grep(self, given: GrepArguments) -> types.CallToolResult:
        """Return the result: a text as grep prints it, and a link to each resource."""
        try:
            data = source_called(self._manager, given.dataSourceId).data
            path = "/".join((data.uri_prefix, *(name for name in given.path.split("/") if name not in ("", "."))))
            question = Match(path, given.pattern, given.ignoreCase, given.fixed, given.context, given.limit)
            answers = await asked(self._manager, question)
        except (BbfsError, Fault) as error:
            return failure(str(error), {"resources": [], "problems": [], "error": described(error)})
        found = [answer for answer in answers if isinstance(answer, Matched)]
        problems = [answer.problem for answer in answers if isinstance(answer, Problem)]
        lines = [line for each in found for line in _printed(each)] or ["No line matches."]
        links = [types.ResourceLink(uri=each.uri, name=each.name, title=each.title) for each in found]
        resources = [
            {"uri": each.uri, "title": each.title or each.name, "lines": encoded(each.lines)} for each in found
        ]
        return types.CallToolResult(
            content=[types.TextContent(text="\n".join([*lines, *problems])), *links],
            structured_content={"resources": resources, "problems": problems},
        )


def _printed(each: Matched) -> list[str]:
    return [f"{each.uri}{mark}{line.number}{mark}{line.text}" for line in each.lines for mark in ("-:"[line.matches],)]
