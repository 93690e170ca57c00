"""Answers of the tools: a text for a model, or structured content for a program, and never both.

Some hosts hand a model the content of a result, some its structured content, and some hand it both. So one of the two
has all, and the other nothing. A tool that declares an output schema has to answer structured content always (MCP,
server/tools, "Output Schema"), so the tools declare none.
"""

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import unquote

import mcp_types as types
from pydantic import Field

from bbfs.model.errors import BbfsError
from bbfs.model.redaction import printable
from bbfs.server.errors import Fault, described
from bbfs.server_parts.tools import Arguments

LONGEST_LINE = 120
"""Characters of a title or of a description in an answer."""


class AnsweredArguments(Arguments):
    """The arguments of a tool that answers in either form."""

    format: Literal["text", "json"] = Field(default="text", description="json: for programs.")

    def refusal(self, error: BbfsError | Fault, **others: Any) -> types.CallToolResult:
        """Return the answer of a call that failed. others: fields of the structured content beside `error`."""
        return self.answer({**others, "error": described(error)})

    def answer(self, document: Mapping[str, Any], *texts: str) -> types.CallToolResult:
        """Return the answer in the form that was asked for. document: failed if it has an `error`."""
        error = document.get("error")
        said = [*texts] if error is None else [*texts, problem(error)]
        is_json = self.format == "json"
        # Hosts drop the structured content of a failed call, so its text is always there.
        blocks: list[types.ContentBlock] = [types.TextContent(text="\n".join(said))] if error or not is_json else []
        return types.CallToolResult(
            content=blocks, structured_content=dict(document) if is_json else None, is_error=error is not None
        )


def problem(error: Mapping[str, Any]) -> str:
    """Return an error, as `described` has it, in a sentence."""
    return f"{error['code']}: {error['message']}"


def one_line(text: str | None, longest: int = LONGEST_LINE) -> str:
    """Return a source's text in one printable line of a bound."""
    found = " ".join(printable((text or "")[: longest * 4]).split())
    return found if len(found) <= longest else f"{found[:longest].rstrip()}…"


def named(uri: str, title: str) -> str:
    """Return a URI, and its title if the URI does not end with that."""
    shown = one_line(title)
    return uri if not shown or unquote(uri).endswith(shown) else f'{uri} "{shown}"'


def resource_line(resource: Mapping[str, Any]) -> str:
    """Return a resource, as `bbfs.server.documents` describes it, in one line of text."""
    facts = [named(resource["uri"], resource.get("title") or resource["name"])]
    if resource["kind"] != "resource":
        facts.append(resource["kind"])
    if resource["kind"] == "directory" and "path" in resource:
        facts.append(f"path={resource['path']}")
    if "size" in resource:
        facts.append(f"{resource['size']} bytes")
    if description := one_line(resource.get("description")):
        facts.append(f"- {description}")
    if wrong := one_line(resource.get("error")):
        facts.append(f"(last load: {wrong})")
    return " ".join(facts)
