"""Rows that are written, as JSON objects whose names are columns. Pure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from bbfs.model.errors import Rejected, TooLarge
from bbfs.model.redaction import shown
from bbfs.sources.bounded.json import check_json, parse_written

LARGEST_WRITTEN = 4 << 20
"""Bytes of one row as JSON."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row as a JSON object. text: the object. values: by column; numbers with a fraction are Decimals."""

    text: str
    values: Mapping[str, Any]


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal in JSON, where `true` and 1 differ, and 1 and 1.0."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def parsed(text: str) -> Row:
    """Return the row of a text. Raise Rejected."""
    try:
        values = parse_written(text.encode())
    except Rejected as error:
        raise Rejected(f"a row is a JSON object: {error}") from None
    if not isinstance(values, dict):
        raise Rejected("a row is a JSON object: a value for each column")
    return Row(text, values)


def stored(data: bytes) -> Mapping[str, Any]:
    """Return the values of a row that the database has, to compare them with written ones.

    A value that no user may write, such as an object with a name twice, becomes one that differs from all that is
    written. Raise Rejected.
    """
    try:
        check_json(data)
        return json.loads(
            data.decode(), parse_int=_number(int), parse_float=_number(Decimal), object_pairs_hook=_members
        )
    except (TooLarge, ValueError, RecursionError) as error:
        raise Rejected(f"the row that the database has cannot be compared: {shown(str(error))}") from None


def _number(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def number(text: str) -> Any:
        try:
            return kind(text)
        except (ValueError, ArithmeticError):  # of too many digits, or with too large an exponent
            return object()

    return number


def _members(pairs: list[tuple[str, Any]]) -> Any:
    members = dict(pairs)
    return members if len(members) == len(pairs) else object()


def floats(value: Any) -> Any:
    """Return a value of a row with floats in place of Decimals, for drivers that write JSON by themselves."""
    match value:
        case Decimal():
            return float(value)
        case dict():
            return {name: floats(item) for name, item in value.items()}
        case list():
            return [*map(floats, value)]
    return value
