"""Documents that are written, and the bodies of the requests for them. Pure.

Numbers keep their digits. A document is sent byte by byte, unless it has properties that only the API writes.
"""

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from bbfs.model.errors import NotSupported, Rejected
from bbfs.model.redaction import shown
from bbfs.sources.api.writing.schemas import Steps
from bbfs.sources.bounded.json import JsonBounds, parse_written

BOUNDS = JsonBounds(size=4 << 20, values=100_000)
"""Bounds of a document that is written, and of the one that it replaces. It is parsed in about 50 ms."""
_ABSENT = object()


def parsed(data: bytes) -> Any:
    """Return the object or array of a document; numbers with a fraction are Decimals. Raise Rejected."""
    value = parse_written(data, BOUNDS)
    if not isinstance(value, dict | list):
        raise Rejected("a document is a JSON object or array")
    return value


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal in JSON, where `true` and 1 differ, and 1 and 1.0 do not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


def text_of(value: Any) -> str:
    """Return a value of `parsed` as JSON."""
    match value:
        case Decimal():
            return str(value)
        case dict():
            return "{" + ", ".join(f"{json.dumps(name)}: {text_of(each)}" for name, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(text_of, value)) + "]"
    return json.dumps(value)


def without(document: Any, read_only: Iterable[Steps], old: Any = None) -> Any:
    """Return a document without the properties that only the API writes.

    old: the document that it replaces, None for a new document. Raise Rejected if such a property differs from the
    property there.
    """
    for steps in sorted(read_only, key=len, reverse=True):
        value = _at(document, steps)
        if value is _ABSENT:
            continue
        if old is not None and not same(value, _at(old, steps)):
            raise Rejected(f"the API writes {shown('.'.join(steps), 100)} itself: leave it as it is, or out")
        document = _cut(document, steps)
    return document


def _at(value: Any, steps: Steps) -> Any:
    for step in steps:
        value = value.get(step, _ABSENT) if isinstance(value, dict) else _ABSENT
    return value


def _cut(value: dict[str, Any], steps: Steps) -> dict[str, Any]:
    if len(steps) == 1:
        return {name: each for name, each in value.items() if name != steps[0]}
    return {**value, steps[0]: _cut(value[steps[0]], steps[1:])}


def merge_patch(old: Any, new: Any) -> Any:
    """Return the JSON Merge Patch (RFC 7396) from one document to another. Raise NotSupported if there is none."""
    patch = _difference(old, new)
    if not same(_patched(old, patch), new):
        raise NotSupported("a merge patch cannot set a property to null, and the API takes nothing else")
    return patch


def _difference(old: Any, new: Any) -> Any:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    changed = {name: None for name in old if name not in new}
    return changed | {
        name: _difference(old[name], value) if name in old else value
        for name, value in new.items()
        if not (name in old and same(old[name], value))
    }


def _patched(old: Any, patch: Any) -> Any:
    """RFC 7396, section 2."""
    if not isinstance(patch, dict):
        return patch
    found: dict[str, Any] = dict(old) if isinstance(old, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _patched(found.get(name), value)
    return found
