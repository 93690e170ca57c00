"""The tool `grep_resources`: the lines of resources that match a regular expression."""

from typing import Any

import mcp_types as types
from pydantic import BaseModel, ConfigDict, Field

from bbfs.model.errors import BbfsError
from bbfs.resources.commands.answers import asked
from bbfs.resources.commands.encoding import encoded
from bbfs.resources.commands.table import Match, Matched, Problem
from bbfs.resources.manager import ResourceManager
from bbfs.resources.search.literals import LONGEST_PATTERN
from bbfs.server import documents
from bbfs.server.errors import Fault, described, source_called
from bbfs.serving.bounds import LONGEST_URI

NAME = "grep_resources"
LIMIT, MOST = 50, 200
"""Matching lines of one answer: by default, and at most."""
MOST_CONTEXT = 5
"""Lines around a match."""


class GrepArguments(BaseModel):
    """The arguments of `grep_resources`."""

    model_config = ConfigDict(title="Arguments", extra="forbid", strict=True)

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


_TEXT = {"type": "string"}
OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "resources": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "uri": {**_TEXT, "description": "For load_resources, and to cite."},
                    "title": _TEXT,
                    "lines": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "number": {"type": "integer"},
                                "text": _TEXT,
                                "matches": {"type": "boolean", "description": "False for a line of the context."},
                            },
                            "required": ["number", "text", "matches"],
                        },
                    },
                },
                "required": ["uri", "title", "lines"],
            },
        },
        "problems": {"type": "array", "description": "Sentences about what was not read.", "items": _TEXT},
        "error": documents.ERROR_SCHEMA,
    },
    "required": ["resources", "problems"],
}


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
            failed = {"resources": [], "problems": [], "error": described(error)}
            return types.CallToolResult(
                content=[types.TextContent(text=str(error))], structured_content=failed, is_error=True
            )
        found = [answer for answer in answers if isinstance(answer, Matched)]
        problems = [answer.problem for answer in answers if isinstance(answer, Problem)]
        lines = [line for each in found for line in _printed(each)] or ["No line matches."]
        return types.CallToolResult(
            content=[types.TextContent(text="\n".join([*lines, *problems])), *map(_link, found)],
            structured_content={"resources": [*map(_resource, found)], "problems": problems},
        )


def _printed(each: Matched) -> list[str]:
    return [f"{each.uri}{mark}{line.number}{mark}{line.text}" for line in each.lines for mark in ("-:"[line.matches],)]


def _resource(each: Matched) -> dict[str, Any]:
    return {"uri": each.uri, "title": each.title or each.name, "lines": encoded(each.lines)}


def _link(each: Matched) -> types.ResourceLink:
    return types.ResourceLink(uri=each.uri, name=each.name, title=each.title)
