"""YAML as JSON: a job of worker processes, since libyaml recurses and an alias makes much of a little.

It reads events, so it needs memory only for the text and the result, and takes 0.8 s for an OpenAPI document of 2.5 MB;
`CSafeLoader` takes 3.6 s, and its composer recurses on the C stack. Scalars are those of YAML 1.2 and JSON: no `no`,
no dates, no octal numbers. An alias repeats the text of its anchor, and merge keys (`<<`) are followed; the bound of
the result bounds both.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Any, NamedTuple

import yaml

from bbfs.model.errors import ProtocolViolation, TooLarge

_TAG = "tag:yaml.org,2002:"
_BEGINNINGS = frozenset("~nNtTfF-+.0123456789")
_NULL = frozenset(("~", "null", "Null", "NULL", ""))
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)")
_LONGEST_NUMBER = 1000
"""Characters. A longer number stays a text: no integer of Python is made of it."""
_CONTAINERS = {None, "!", _TAG + "map", _TAG + "seq"}


def job(data: bytes, options: Mapping[str, Any]) -> bytes:
    """Return a document in YAML as JSON. Keys become texts.

    options: `depth` and `size` (bytes of the result) are bounds. Raises ProtocolViolation with the line, and TooLarge.
    """
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    writer = _Writer(options["depth"], options["size"])
    try:
        for event in yaml.parse(data, loader):
            writer.take(event)
    except yaml.MarkedYAMLError as error:
        raise _invalid(error.problem_mark, error.problem or "no YAML") from None
    except yaml.YAMLError as error:
        raise _invalid(None, str(error)) from None
    return bytes(writer.result) or b"null"


def _invalid(mark: Any, problem: str) -> ProtocolViolation:
    where = f"line {mark.line + 1}: " if mark is not None else ""
    return ProtocolViolation(where + " ".join(problem.split()))


class _Anchored(NamedTuple):
    """The value of an anchor: its place in the result, or its text. scalar: its value, if the node is a scalar."""

    start: int
    end: int
    text: bytes | None
    scalar: Any


@dataclass(slots=True)
class _Open:
    """A mapping or sequence that has not ended. key: the key that waits for its value. merged: from merge keys."""

    start: int
    anchor: str | None
    is_mapping: bool
    is_empty: bool = True
    key: str | None = None
    is_merge: bool = False
    keys: set[str] = field(default_factory=set)
    merged: dict[str, Any] = field(default_factory=dict)


class _Writer:
    """Writes the events of one document as JSON, within bounds."""

    def __init__(self, depth: int, size: int) -> None:
        self.result = bytearray()
        self._depth = depth
        self._size = size
        self._open: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}
        self._is_done = False

    def take(self, event: Any) -> None:
        match event:
            case yaml.ScalarEvent():
                self._add(event, _json(value := _value(event)), value, event.anchor)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._begin(event, isinstance(event, yaml.MappingStartEvent))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._end(event)
            case yaml.AliasEvent():
                found = self._anchors.get(event.anchor)
                if found is None:
                    raise _invalid(event.start_mark, "an alias without its anchor")
                text = self.result[found.start : found.end] if found.text is None else found.text
                self._add(event, text, found.scalar, None)
            case yaml.DocumentStartEvent() if self._is_done:
                raise _invalid(event.start_mark, "expected a single document")
        if len(self.result) > self._size:
            raise TooLarge(f"becomes more than {self._size} bytes")

    def _add(self, event: Any, text: bytes | bytearray, scalar: Any, anchor: str | None) -> None:
        """Add a whole value, which may be a key."""
        inner = self._open[-1] if self._open else None
        if inner is None or not inner.is_mapping or inner.key is not None:
            start = self._place(inner)
            self.result += text
            self._placed(event, start, scalar, anchor)
            return
        if scalar is _NO_SCALAR:
            raise _invalid(event.start_mark, "unhashable key")
        inner.key = key = str(scalar)
        inner.is_merge = key == "<<" and isinstance(event, yaml.ScalarEvent) and event.implicit[0]
        if not inner.is_merge:
            inner.keys.add(key)
            self.result += (b"" if inner.is_empty else b",") + _json(key) + b":"
            inner.is_empty = False
        if anchor is not None:
            self._anchors[anchor] = _Anchored(0, 0, bytes(text), scalar)

    def _place(self, inner: _Open | None) -> int:
        """Return the place of a value in the result."""
        if inner is not None and not inner.is_mapping:
            if not inner.is_empty:
                self.result += b","
            inner.is_empty = False
        return len(self.result)

    def _begin(self, event: Any, is_mapping: bool) -> None:
        inner = self._open[-1] if self._open else None
        if inner is not None and inner.is_mapping and inner.key is None:
            raise _invalid(event.start_mark, "unhashable key")
        if event.tag not in _CONTAINERS:
            raise _invalid(event.start_mark, f"could not determine a constructor for the tag {event.tag}")
        if len(self._open) >= self._depth:
            raise TooLarge(f"nested more than {self._depth} deep")
        start = self._place(inner)
        self._open.append(_Open(start, event.anchor, is_mapping))
        self.result += b"{" if is_mapping else b"["

    def _end(self, event: Any) -> None:
        ended = self._open.pop()
        for key in ended.merged.keys() - ended.keys:
            self.result += (b"" if ended.is_empty else b",") + _json(key) + b":" + _json(ended.merged[key])
            ended.is_empty = False
        self.result += b"}" if ended.is_mapping else b"]"
        self._placed(event, ended.start, _NO_SCALAR, ended.anchor)

    def _placed(self, event: Any, start: int, scalar: Any, anchor: str | None) -> None:
        """Note that the value that begins at `start` has ended."""
        if anchor is not None:
            self._anchors[anchor] = _Anchored(start, len(self.result), None, scalar)
        inner = self._open[-1] if self._open else None
        if inner is None:
            self._is_done = True
        elif inner.is_mapping:
            if inner.is_merge:
                self._merge(event, inner, start)
            inner.key = None

    def _merge(self, event: Any, into: _Open, start: int) -> None:
        """Take the value at the end of the result out of it, and its members into a mapping."""
        text = bytes(self.result[start:])
        for name, found in self._anchors.items():
            if found.text is None and found.start >= start:
                self._anchors[name] = found._replace(text=bytes(self.result[found.start : found.end]))
        del self.result[start:]
        value = json.loads(text)
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, dict):
                raise _invalid(event.start_mark, "expected a mapping or a list of mappings for merging")
            for key, inner in each.items():
                into.merged.setdefault(key, inner)


_NO_SCALAR = object()


def _value(event: Any) -> Any:
    """Return the value of a scalar. Numbers that JSON lacks stay texts."""
    text, tag = event.value, event.tag
    if tag is None and event.implicit[0]:
        if text and (text[0] not in _BEGINNINGS or len(text) > _LONGEST_NUMBER):
            return text
        if text in _NULL:
            return None
        if text in _BOOL:
            return _BOOL[text]
        if _INT.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
            return number
        return text
    if tag in (None, "!", _TAG + "str"):
        return text
    if tag == _TAG + "null":
        return None
    try:
        if tag in (_TAG + "int", _TAG + "float") and len(text) <= _LONGEST_NUMBER and math.isfinite(float(text)):
            return int(text) if tag == _TAG + "int" else float(text)
        if tag == _TAG + "bool":
            return _BOOL[text]
    except (ValueError, KeyError):
        pass
    raise _invalid(event.start_mark, f"could not determine a constructor for the tag {tag}")


def _json(value: Any) -> bytes:
    text = encode_basestring(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace")
