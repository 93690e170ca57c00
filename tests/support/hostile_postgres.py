"""Answers of a hostile PostgreSQL server, and the server that gives them."""

import json
import random
import struct
from collections.abc import Mapping
from pathlib import Path

from hostile_sources import Reply, started
from repository import SERVERS

_GIGABYTE = 1 << 30
_ZEROS = bytes(1 << 20)
_NOISE = random.Random(7).randbytes(1 << 20)


def _message(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack(">I", len(data) + 4) + data


def _columns(*names: bytes) -> bytes:
    described = b"".join(name + b"\0" + struct.pack(">IHIhih", 0, 0, 25, -1, -1, 0) for name in names)
    return _message(b"T", struct.pack(">H", len(names)) + described)


def _row(value: bytes) -> bytes:
    return _message(b"D", struct.pack(">HI", 1, len(value)) + value)


def _notice(kind: bytes, text: bytes) -> bytes:
    return _message(kind, b"SERROR\0VERROR\0C99999\0M" + text + b"\0\0")


_PARAMETERS = b"".join(_message(b"S", b"p%d\0%s\0" % (n, bytes([97]) * 1000)) for n in range(1000))
_COPY = _message(b"H", bytes(3))


def _endless(body: bytes, begins: bytes = b"") -> Reply:
    return Reply(body, begins=begins, endless=True)


def _long(kind: bytes, begins: bytes = b"") -> Reply:
    """Return a message of a gigabyte."""
    return _endless(_ZEROS, kind + struct.pack(">I", _GIGABYTE) + begins)


_WIDE_ROW = _message(b"D", struct.pack(">H", 60_000) + b"\xff\xff\xff\xff" * 60_000)
ATTACKS: Mapping[str, tuple[str, Reply]] = {
    "a row of a gigabyte": (
        "query",
        _endless(_ZEROS, _columns(b"x") + b"D" + struct.pack(">IHI", _GIGABYTE, 1, _GIGABYTE - 10)),
    ),
    "rows without an end": ("query", _endless(_row(b"x" * 100) * 1000, _columns(b"x"))),
    "large rows without an end": ("query", _endless(_row(b"x" * 1_000_000), _columns(b"x"))),
    "sixty thousand columns": ("query", _endless(_WIDE_ROW, _columns(*[b"c" * 60] * 60_000))),
    "a copy of a gigabyte": ("copy", _endless(_ZEROS, _COPY + b"d" + struct.pack(">I", _GIGABYTE))),
    "a copy without an end": ("copy", _endless(_message(b"d", b"x" * 100 + b"\n") * 1000, _COPY)),
    "notices without an end": ("query", _endless(_notice(b"N", b"x" * 100) * 1000)),
    "notifications without an end": ("query", _endless(_message(b"A", bytes(4) + b"channel\0payload\0") * 1000)),
    "settings without an end": ("query", _endless(_PARAMETERS)),
    "a notice of a gigabyte": ("query", _long(b"N", b"M")),
    "an error of a gigabyte": ("query", _long(b"E", b"M")),
    "errors without an end": ("query", _endless(_notice(b"E", b"x" * 100) * 1000)),
    "noise": ("query", _endless(_NOISE)),
    "noise at the start": ("startup", _endless(_NOISE)),
    "settings at the start": ("startup", _endless(_PARAMETERS, _message(b"R", bytes(4)))),
    "salt without an end": ("startup", _endless(_message(b"R", struct.pack(">I", 5) + b"salt") * 1000)),
    "mechanisms of a gigabyte": ("startup", _long(b"R", struct.pack(">I", 10))),
    "no welcome": ("startup", Reply()),
    "no answer": ("query", Reply()),
    "no rows of a copy": ("copy", Reply(begins=_COPY)),
}
"""The place of the protocol, and the reply."""


def hostile_server(directory: Path, name: str) -> str:
    """Start the server of an attack. Return its URL."""
    place, reply = ATTACKS[name]
    plan = directory / "plan.json"
    plan.write_text(json.dumps({place: reply.written(directory, 0)}))
    port = started("-S", SERVERS / "hostile_postgres.py", plan)
    return f"postgresql://user@127.0.0.1:{port}/hostile?sslmode=disable"
