"""Compares two schemas of an OpenAPI document: an API must take the documents that it answers. Pure.

Schemas are the same if they have the same properties, items and alternatives of the same types. Limits, formats,
descriptions, and which properties are required do not count: the API itself refuses a body that breaks them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from bbfs.model.errors import ProtocolViolation
from bbfs.model.redaction import shown
from bbfs.sources.api.document import DocumentNode

Steps: TypeAlias = tuple[str, ...]
MAX_COMPARED = 20_000
"""Schemas inside the two that are compared, and their properties."""
_MAX_PARTS = 200
"""Schemas of an `allOf`, with those inside."""
_DEEPEST = 3
"""Objects inside each other down to which read-only properties are found."""
_COMBINED = ("anyOf", "oneOf")
_INNER = ("items", "additionalProperties")
_STRUCTURE = frozenset(("type", "enum", "const", "properties", "allOf", *_INNER, *_COMBINED))


@dataclass(frozen=True, slots=True)
class Compared:
    """What the comparison of a body with an answer has found.

    difference: in words, or None. read_only: the properties that only the API writes, by the keys that lead to them
    through objects. types: of the body's own properties.
    """

    difference: str | None
    read_only: frozenset[Steps] = frozenset()
    types: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class _Shape:
    """One schema, with all schemas of its `allOf`."""

    types: frozenset[str]
    values: frozenset[str]
    properties: Mapping[str, DocumentNode]
    required: frozenset[str]
    inner: Mapping[str, DocumentNode]
    choices: tuple[DocumentNode, ...]

    @classmethod
    def of(cls, schema: DocumentNode) -> "_Shape":
        types, values, required = set[str](), set[str](), set[str]()
        properties, inner = dict[str, DocumentNode](), dict[str, DocumentNode]()
        choices: list[DocumentNode] = []
        for part in _parts(schema):
            said = part.value
            types |= _types(said)
            values |= {_text(each) for each in said["enum"]} if isinstance(said.get("enum"), list) else set()
            values |= {_text(said["const"])} if "const" in said else set()
            part.documents.visit(len(values))
            properties.update(part.get("properties").items())
            needed = said.get("required")
            required.update(map(str, needed) if isinstance(needed, list) else ())
            inner.update((key, node) for key in _INNER if (node := part.get(key)).value)
            choices += [each for key in _COMBINED for _, each in part.get(key).items()]
        if properties and not types:
            types.add("object")
        inner = {key: node for key, node in inner.items() if isinstance(node.value, dict)}
        return cls(frozenset(types), frozenset(values), properties, frozenset(required), inner, tuple(choices))

    @property
    def is_open(self) -> bool:
        """Return whether any object fits."""
        return self.types <= {"object"} and not (self.values or self.properties or self.choices)


def _parts(schema: DocumentNode) -> Iterator[DocumentNode]:
    """Yield a schema and all of its `allOf`. Raise ProtocolViolation if there are too many."""
    ahead, count = [schema], 0
    while ahead:
        part = ahead.pop()
        count += 1
        if count > _MAX_PARTS:
            raise ProtocolViolation(f"{schema}: more than {_MAX_PARTS} schemas in its allOf")
        if isinstance(part.value, dict):
            yield part
            ahead += [each for _, each in part.get("allOf").items()][::-1]


def _types(said: Mapping[str, Any]) -> set[str]:
    kind = said.get("type")
    found = {each for each in (kind if isinstance(kind, list) else [kind]) if isinstance(each, str)}
    return found | ({"null"} if said.get("nullable") is True and found else set())


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def is_open(schema: DocumentNode) -> bool:
    """Return whether a schema takes any object. Raise ProtocolViolation."""
    return _Shape.of(schema).is_open


def compared(body: DocumentNode, answer: DocumentNode) -> Compared:
    """Compare the schema of a body with the schema of an answer. Raise ProtocolViolation if a schema cannot be read.

    Properties that are read-only may be missing in the body, and write-only properties in the answer if no property is
    required.
    """
    read_only = set[Steps]()
    own: Mapping[str, str | None] = {}
    seen, count = set[Any](), 0
    ahead: list[tuple[DocumentNode, DocumentNode, str, Steps | None]] = [(body, answer, "", ())]
    while ahead:
        one, other, place, steps = ahead.pop()
        steps = steps if steps is None or len(steps) <= _DEEPEST else None  # a schema may hold itself
        key = (*_identity(one), *_identity(other), steps)
        if key in seen or (steps is None and one.value is other.value):
            continue
        seen.add(key)
        taken, given = _Shape.of(one), _Shape.of(other)
        count += 1 + len(taken.properties) + len(given.properties)
        if count > MAX_COMPARED:
            raise ProtocolViolation(f"{body}: more than {MAX_COMPARED} schemas to compare")
        if steps == ():
            own = {name: _type(node) for name, node in taken.properties.items()}
        where = f" of {shown(place, 80)}" if place else ""
        if taken.types != given.types or taken.values != given.values:
            return Compared(f"the type{where} differs")
        if taken.inner.keys() != given.inner.keys() or len(taken.choices) != len(given.choices):
            return Compared(f"the items or alternatives{where} differ")
        for name in {**taken.properties, **given.properties}:
            mine, its = taken.properties.get(name), given.properties.get(name)
            if steps is not None and (_flagged(mine, "readOnly") or _flagged(its, "readOnly")):
                read_only.add((*steps, name))
            if mine is not None and its is not None:
                ahead.append((mine, its, _below(place, name), None if steps is None else (*steps, name)))
            elif its is not None and not _flagged(its, "readOnly"):
                return Compared(f"the body has no property {shown(_below(place, name), 80)}")
            elif mine is not None and (not _flagged(mine, "writeOnly") or name in taken.required):
                return Compared(f"the answer has no property {shown(_below(place, name), 80)}")
        ahead += [(node, given.inner[key], _below(place, "*"), None) for key, node in taken.inner.items()]
        pairs = zip(taken.choices, given.choices, strict=True)
        ahead += [(mine, its, place, None) for mine, its in pairs]
    return Compared(None, frozenset(read_only), own)


def _below(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _identity(schema: DocumentNode) -> tuple[str, str, frozenset[str]]:
    """Return what tells a schema from others: its place, and the additions of members beside a reference."""
    keys = schema.value.keys() if isinstance(schema.value, dict) else ()
    return schema.url, schema.pointer, _STRUCTURE.intersection(keys)


def _type(schema: DocumentNode) -> str | None:
    """Return the type of a property's values, or None if it has no type or several."""
    types = {each for part in _parts(schema) for each in _types(part.value)} - {"null"}
    return next(iter(types)) if len(types) == 1 else None


def _flagged(schema: DocumentNode | None, key: str) -> bool:
    return schema is not None and schema.flag(key) is True
