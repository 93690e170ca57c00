"""Parts that the tools of both servers share: reading arguments, results of failures, and JSON Schemas of answers."""

from collections.abc import Mapping
from typing import Any, TypeVar

import mcp_types as types
from pydantic import BaseModel, ConfigDict, ValidationError

from bbfs.serving.bounds import shortened

ArgumentsT = TypeVar("ArgumentsT", bound="Arguments")
Schema = dict[str, Any]
MOST_PROBLEMS = 10
"""Faults of the arguments that a refusal names."""


class Arguments(BaseModel):
    """The arguments of a tool."""

    model_config = ConfigDict(title="Arguments", extra="forbid", strict=True)


class InvalidArguments(Exception):
    """Arguments that do not fit the schema of a tool. The text says which, for a model to read."""


def arguments_of(kind: type[ArgumentsT], given: Mapping[str, Any] | None) -> ArgumentsT:
    """Return the arguments of a call. Raise InvalidArguments."""
    try:
        return kind.model_validate(given or {})
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False, include_context=False)
        told = [f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in found[:MOST_PROBLEMS]]
        more = [f"{len(found) - MOST_PROBLEMS} more"] if len(found) > MOST_PROBLEMS else []
        told = [*(shortened(each, 300) for each in told), *more]
        raise InvalidArguments(f"invalid arguments: {'; '.join(told)}") from None


def failure(text: str, structured: dict[str, Any] | None = None) -> types.CallToolResult:
    """Return the result of a call that failed."""
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=structured, is_error=True)


def value(kind: str, description: str | None = None) -> Schema:
    """Return the schema of a value of a type of JSON."""
    return {"type": kind} if description is None else {"type": kind, "description": description}


def text(description: str | None = None) -> Schema:
    return value("string", description)


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": [*words]}


def array(items: Schema, description: str | None = None) -> Schema:
    return {**value("array", description), "items": items}


def record(required: str = "", /, **properties: Schema) -> Schema:
    """Return the schema of an object. required: names of properties, separated by spaces."""
    found = {"type": "object", "properties": properties}
    return {**found, "required": required.split()} if required else found
