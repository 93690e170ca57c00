"""The frames between the daemon and the process that reads a SQLite file. No I/O.

A request is a line of JSON: the name of a call and its arguments. An answer is any number of frames: bytes of a content
(`DATA`), parts of a result (`PART`), and at the end `DONE` or `FAILED` with the class and text of an error. A file of a
stranger may have taken the process over, so a frame is data of these types and nothing else.
"""

import json
import struct
from dataclasses import fields
from typing import Any

from bbfs.sources.database.names import TaggedText
from bbfs.sources.database.tables import Column, ForeignKey, Schema, Table, TableIndex

FRAME = struct.Struct(">cI")
"""The kind of a frame, and the bytes that follow."""
DATA, PART, DONE, FAILED = b"d", b"p", b"v", b"f"
LARGEST_FRAME = 1 << 20
"""Bytes of a frame."""
_CLASSES = {kind.__name__: kind for kind in (Schema, Table, Column, TableIndex, ForeignKey, TaggedText)}


def encode(value: Any) -> bytes:
    """Return a value as JSON: scalars, bytes, sequences, dicts, and the values of tables and keys."""
    return json.dumps(_plain(value), separators=(",", ":")).encode()


def decode(text: bytes) -> Any:
    """Return the value; sequences are tuples. Raises ValueError, TypeError, KeyError and RecursionError."""
    return _value(json.loads(text))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, list | tuple):
        return ["sequence", *map(_plain, value)]
    if isinstance(value, dict):
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
    if kind == "bytes":
        return bytes.fromhex(items[0])
    values = tuple(map(_value, items))
    return values if kind == "sequence" else _CLASSES[kind](*values)
