"""The frames between the daemon and the process that reads a database. No I/O.

A request is a line of JSON: the name of a call and its arguments. An answer is any number of frames: bytes of a
content (`DATA`), parts of a result (`PART`), and at the end `DONE`, or `FAILED` with an error; `end`
has none. A stranger's database may have taken the process over, so a frame is data of these types and nothing else.
"""

import json
import struct
from dataclasses import fields
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from bbfs.sources.database.names import TaggedText
from bbfs.sources.database.tables import Column, ForeignKey, KeyRange, KeysBetween, RowHit, Schema, Table, TableIndex

FRAME = struct.Struct(">cI")
"""The kind of a frame, and the bytes that follow."""
DATA, PART, DONE, FAILED = b"d", b"p", b"v", b"f"
LARGEST_FRAME = 1 << 20
"""Bytes of a frame."""
_KINDS = (Schema, Table, Column, TableIndex, ForeignKey, TaggedText, KeyRange, KeysBetween, RowHit)
_CLASSES = {kind.__name__: kind for kind in _KINDS}
_WRITTEN = {"bytes": bytes.fromhex, "decimal": Decimal, "date": date.fromisoformat, "datetime": datetime.fromisoformat}
"""Types of which a text is sent, with the functions that read it."""


def encode(value: Any) -> bytes:
    """Return a value as JSON: scalars, bytes, sequences, dicts, values of queries, of tables and of keys."""
    return json.dumps(_plain(value), separators=(",", ":")).encode()


def decode(text: bytes) -> Any:
    """Return the value; sequences are tuples. Raises ValueError, TypeError, KeyError, and RecursionError."""
    return _value(json.loads(text))


def _plain(value: Any) -> Any:
    if value is None or type(value) in (str, int, bool):
        return value  # most values
    match value:
        case bytes():
            return ["bytes", value.hex()]
        case Decimal():
            return ["decimal", str(value)]
        case date():  # or a datetime
            return [type(value).__name__, value.isoformat()]
        case list() | tuple():
            return ["sequence", *map(_plain, value)]
        case dict():
            return {key: _plain(item) for key, item in value.items()}
    if type(value) in _CLASSES.values():
        return [type(value).__name__, *(_plain(getattr(value, field.name)) for field in fields(value))]
    return value


def _value(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _value(item) for key, item in plain.items()}
    if not isinstance(plain, list):
        return plain
    kind, *items = plain
    if kind in _WRITTEN:
        return _WRITTEN[kind](items[0])
    values = tuple(map(_value, items))
    return values if kind == "sequence" else _CLASSES[kind](*values)
