"""The values of a variable in a path: the list of the API that has them, and the member of its items. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bbfs.sources.api.following import plain
from bbfs.sources.api.operations import Api, Operation, shape
from bbfs.sources.api.parameters import Parameter

_USUAL = ("id", "uuid", "guid", "key", "slug", "name", "login", "username", "code", "number")
_LONGEST = 2048
"""Characters of a value. No file name is as long."""
_BODY = "$response.body#"


@dataclass(frozen=True, slots=True)
class Lister:
    """An operation that lists the values of a variable. field: the steps to the value in each item, or None to guess
    it."""

    operation: Operation
    field: tuple[str, ...] | None = None


def variable_at(api: Api, uri_template: str, variable: str) -> tuple[Operation, Parameter, int] | None:
    """Return the operation of a template, the parameter of its variable, and the parameter's index in the path."""
    operation = api.index.templates.get(uri_template)
    for index, parameter in enumerate(operation.in_path if operation is not None else ()):
        if operation is not None and parameter.variable == variable:
            return operation, parameter, index
    return None


def answers_for(api: Api, operation: Operation, uri_template: str, index: int) -> bool:
    """Return whether this template gives the values of a variable.

    Templates with the same beginning give the same names in a directory, and each would cost the same requests, so one
    template is enough. Templates that require a query at this place do not count.
    """
    if uri_template != (operation.query_template if operation.required else operation.base):
        return False
    return api.index.answering.get((index, shape(operation.upto(index)))) is operation


def lister(api: Api, operation: Operation, index: int, path: str | None = None) -> Lister | None:
    """Return the operation that lists a variable's values: on the path above it, or at `path` of the document."""
    if path is not None:
        found = api.index.paths.get(path)
        return Lister(found) if found is not None else None
    whole = shape(operation.upto(index))
    above, _, last = whole.rpartition("/")
    for candidate in (above, above + "/", above + last.partition("{}")[2]):
        for each in api.index.shapes.get(candidate, ()):
            if len(each.in_path) <= index:
                return Lister(each, _linked(each, operation, operation.in_path[index]))
    return None


def hinted(api: Api, parameter: Parameter) -> Lister | None:
    """Return the operation in the parameter's extension `x-ms-dynamic-values`, which many documents have."""
    wanted, path = parameter.dynamic.get("operationId"), parameter.dynamic.get("value-path")
    found = api.index.ids.get(wanted) if isinstance(wanted, str) and wanted else None
    if found is None or found.required or found.in_path:
        return None
    return Lister(found, tuple(path.split("/")) if isinstance(path, str) and path else None)


def _linked(listing: Operation, operation: Operation, parameter: Parameter) -> tuple[str, ...] | None:
    """Return the steps to the value in an item, if the document links the list's answer to the operation's
    parameter."""
    for leads_to, given in listing.links:
        if leads_to != operation.operation_id and not leads_to.endswith(_reference(operation)):
            continue
        said = given.get(parameter.name, given.get(f"path.{parameter.name}"))
        if isinstance(said, str) and said.startswith(_BODY):
            steps = said[len(_BODY) :].split("/")[1:]
            numbers = [place for place, step in enumerate(steps) if step.isdigit() or step == "*"]
            return tuple(steps[numbers[-1] + 1 :]) if numbers else tuple(steps[-1:])
    return None


def _reference(operation: Operation) -> str:
    return "#/paths/" + operation.path.replace("~", "~0").replace("/", "~1") + "/get"


def values_in(items: Sequence[Any], parameter: Parameter, field: Sequence[str] | None) -> list[str]:
    """Return the values of items in their order, without duplicates. Items without a value are skipped."""
    if field is None:
        chosen = member(items, parameter)
        field = () if chosen is None else (chosen,)
    found = (text_at(item, field) for item in items)
    return list(dict.fromkeys(value for value in found if value is not None))


def member(items: Sequence[Any], parameter: Parameter) -> str | None:
    """Return the member with the value: named like the parameter, like the parameter's last word, or a usual name.

    A member with values of the parameter's type comes first: `{repo}` is a name where the items' ids are numbers.
    """
    objects = [item for item in items if isinstance(item, Mapping)]
    keys = {plain(key): key for item in objects[:100] for key in item}
    name = plain(parameter.name)
    words = plain(re.split(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])", parameter.name)[-1])
    candidates = [keys[each] for each in dict.fromkeys((name, words, *_USUAL)) if each in keys]
    for key in candidates:
        if any(_fits(item.get(key), parameter.type) for item in objects):
            return key
    likely = [key for key in candidates if plain(key) in (name, words, "id")]
    return next((key for key in likely if any(_scalar(item.get(key)) is not None for item in objects)), None)


def text_at(item: Any, field: Sequence[str]) -> str | None:
    """Return the value at the end of some steps as text for a path, or None."""
    for step in field:
        item = item.get(step) if isinstance(item, Mapping) else None
    return _scalar(item)


def _fits(value: Any, kind: str | None) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind in ("integer", "number"):
        return isinstance(value, int | float)
    return isinstance(value, str) if kind == "string" else isinstance(value, str | int)


def _scalar(value: Any) -> str | None:
    """Return a value as text for a path, or None."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        text = str(value)
        return text if text not in ("", ".", "..") and len(text) <= _LONGEST else None
    return None
