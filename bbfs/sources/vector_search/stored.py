"""Points as JSON, in the processes that read databases. Pure."""

import json
from array import array
from collections.abc import Mapping
from math import isfinite
from typing import Any

from bbfs.model.errors import BbfsError
from bbfs.sources.bounded.json import JsonBounds, parse_json
from bbfs.sources.database.rendering import json_text, value_as_text
from bbfs.sources.vector_search.values import LONGEST_TEXT

_DEEPEST = 40
_DOCUMENT = JsonBounds(size=1 << 20, values=50_000, depth=_DEEPEST)
"""Bounds of a stored text that is shown as JSON."""


def floats_json(blob: bytes) -> str:
    """Return a vector of 32-bit floats as JSON, each number with as few digits as it needs."""
    numbers = array("f")
    numbers.frombytes(blob[: len(blob) // 4 * 4])
    return "[" + ", ".join(map(_float_text, numbers)) + "]"


def _float_text(number: float) -> str:
    if not isfinite(number):
        return f'"{value_as_text(number)}"'
    for digits in (6, 7, 8):
        text = f"{number:.{digits}g}"
        if array("f", [float(text)])[0] == number:
            return text
    return f"{number:.9g}"


def vector_json(element: str, blob: bytes) -> str:
    """Return a stored vector as JSON: numbers, or the hex of a vector of bits."""
    if element == "float":
        return floats_json(blob)
    return json.dumps(blob.hex() if element == "bit" else list(array("b", blob)))


def point_json(id: Any, payload: Mapping[str, Any], vector: str) -> str:
    """Return a point. vector: as JSON."""
    return f'{{"id": {json_text(id)},\n "payload": {_indented(payload)},\n "vector": {vector}}}\n'


def _indented(payload: Mapping[str, Any]) -> str:
    return "{" + ",\n  ".join(f"{json_text(name)}: {json_text(value)}" for name, value in payload.items()) + "}"


def match_json(id: Any, score: float | None, payload: Mapping[str, Any]) -> str:
    """Return a result, with long texts cut."""
    number = "null" if score is None or not isfinite(score) else repr(score)
    return f'{{"id": {json_text(id)}, "score": {number}, "payload": {json_text(shortened(payload))}}}'


def shortened(value: Any, longest: int = LONGEST_TEXT, depth: int = 0) -> Any:
    """Return a payload with long texts cut, and without what is nested deeply."""
    match value:
        case str():
            return value if len(value) <= longest else value[: longest - 1] + "…"
        case bytes():
            return shortened(value_as_text(value[:longest]), longest)
        case float():
            return value if isfinite(value) else value_as_text(value)
        case Mapping():
            return {} if depth > _DEEPEST else {k: shortened(v, longest, depth + 1) for k, v in value.items()}
        case list() | tuple():
            return [] if depth > _DEEPEST else [shortened(each, longest, depth + 1) for each in value]
    return value


def as_document(value: Any) -> Any:
    """Return the object that a text or blob is as JSON, if it is one; else the value."""
    text = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    if not isinstance(text, bytes) or text.lstrip()[:1] != b"{":
        return value
    try:
        return parse_json(text, _DOCUMENT)
    except BbfsError:
        return value


def matches(text: Any, words: list[str]) -> int:
    """Return how many of the words, which are folded, a text has."""
    if not isinstance(text, str):
        return 0
    folded = text.casefold()
    return sum(word in folded for word in words)
