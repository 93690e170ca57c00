"""Rows that are written, as JSON objects whose names are columns. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from bbfs.model.errors import Rejected
from bbfs.sources.bounded.json import parse_written

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
