"""Parts that the tools of both servers share: reading arguments, results of failures, and JSON Schemas of answers."""

from collections.abc import Mapping
from typing import Any, TypeVar

import mcp_types as types
from pydantic import BaseModel, ConfigDict, ValidationError

from bbfs.server_parts.bounds import shortened

ArgumentsT = TypeVar("ArgumentsT", bound="Arguments")
Schema = dict[str, Any]
MOST_PROBLEMS = 10
"""Faults of the arguments that a refusal names."""
_UNSAID = frozenset(("title", "minLength", "maxLength", "minItems", "maxItems"))
"""Keys of a schema that a model pays for and does not use: a refusal names the bound."""


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


def input_schema(kind: type[Arguments]) -> Schema:
    """Return the JSON Schema of arguments, in few characters: models read it at the start of every conversation.

    An optional argument has its plain type: a model leaves it out, and `null` is taken all the same.
    """
    return _brief(kind.model_json_schema())


def _brief(schema: Schema) -> Schema:
    found = {key: said for key, said in schema.items() if key not in _UNSAID}
    if not found.get("default", True):
        del found["default"]
    types_of_it = [_brief(each) for each in found.pop("anyOf", ()) if each != {"type": "null"}]
    found = {**types_of_it[0], **found} if len(types_of_it) == 1 else found
    if len(types_of_it) > 1:
        found["anyOf"] = types_of_it
    if "items" in found:
        found["items"] = _brief(found["items"])
    if "properties" in found:
        found["properties"] = {name: _brief(each) for name, each in found["properties"].items()}
    return found


def failure(text: str, structured: dict[str, Any] | None = None) -> types.CallToolResult:
    """Return the result of a call that failed."""
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=structured, is_error=True)


def value(kind: str, description: str | None = None) -> Schema:
    """Return the schema of a value of a type of JSON."""
    return {"type": kind} if description is None else {"type": kind, "description": description}


def text(description: str | None = None) -> Schema:
    return value("string", description)


def array(items: Schema, description: str | None = None) -> Schema:
    return {**value("array", description), "items": items}


def record(required: str = "", /, **properties: Schema) -> Schema:
    """Return the schema of an object. required: names of properties, separated by spaces."""
    found = {"type": "object", "properties": properties}
    return {**found, "required": required.split()} if required else found
