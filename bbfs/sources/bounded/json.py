"""A JSON parser with bounds on structure.

A few bytes of JSON can make objects of a hundred times their size, and CPython's parser keeps the global lock from
beginning to end, so neither a thread nor a deadline helps. `parse_json` therefore counts values and depth before it
parses, and parses a document of many values piece by piece. The largest document takes about a second: call it in a
thread for documents of more than `SHORT` bytes.
"""

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any

from bbfs.model.errors import ProtocolViolation, Rejected, TooLarge
from bbfs.model.redaction import shown

SHORT = 1 << 17
"""Bytes of a document that may be parsed on the event loop: some milliseconds."""
_FEW = 20_000
"""Values that the standard parser may make at once."""
_SMALL = 1 << 20
"""Bytes of texts that it may copy at once."""
_PIECE = 1 << 16
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STRUCTURE = b'[]{},"'
_OTHERS = bytes(set(range(256)) - set(_STRUCTURE))
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_STEP = [1 if byte == ord("[") else -1 if byte == ord("]") else 0 for byte in range(256)]
one_at_a_time = threading.Lock()
"""Of the threads that parse long documents."""


@dataclass(frozen=True, slots=True)
class JsonBounds:
    """Bounds of a JSON document.

    size: bytes; texts may take four times as many in memory. values: commas and opening brackets outside strings; each
    stands for at most 130 bytes of memory. depth: arrays and objects inside each other.
    """

    size: int = 32 << 20
    values: int = 1_000_000
    depth: int = 128


DEFAULT = JsonBounds()


def parse_json(data: bytes | bytearray, bounds: JsonBounds = DEFAULT) -> Any:
    """Return the value of a JSON document (RFC 8259) in UTF-8.

    Raises TooLarge if a bound is hit, and ProtocolViolation if it is no JSON. NaN and Infinity are no JSON.
    """
    try:
        few = check_json(data, bounds) <= _FEW and len(data) <= _SMALL
        if few or len(data) <= SHORT:  # the event loop must not wait for the lock
            return json.loads(data, parse_constant=_refuse)
        with one_at_a_time:
            return LongDocument(data.decode()).parsed()
    except (ValueError, RecursionError) as exc:
        raise ProtocolViolation(f"no JSON: {exc}") from exc


def parse_written(data: bytes, bounds: JsonBounds = DEFAULT) -> Any:
    """Return the value of a document that a user writes. Numbers with a fraction are Decimals, which keep their digits.

    Raises Rejected, also for an object with a name twice.
    """
    try:
        check_json(data, bounds)
        return json.loads(data.decode(), parse_float=Decimal, parse_constant=_refuse, object_pairs_hook=_object)
    except TooLarge as error:
        raise Rejected(str(error)) from None
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise Rejected(f"no JSON: {shown(str(error))}") from None  # with line and column


def check_json(data: bytes | bytearray, bounds: JsonBounds = DEFAULT) -> int:
    """Return an upper bound of the number of values in a JSON document. Raises TooLarge if a bound is hit."""
    if len(data) > bounds.size:
        raise TooLarge(f"a JSON document of {len(data)} bytes, more than {bounds.size}")
    commas, opened = (sum(piece.count(mark) for piece in _pieces(data)) for mark in (b",", b"["))
    opened += sum(piece.count(b"{") for piece in _pieces(data))
    if commas + opened <= bounds.values and opened <= bounds.depth:
        return commas + opened
    count = level = 0
    for structure in _outside_strings(data):
        count += structure.count(b",") + structure.count(b"[")
        if count > bounds.values:
            raise TooLarge(f"a JSON document of more than {bounds.values} values")
        levels = list(accumulate(map(_STEP.__getitem__, structure), initial=level))
        if max(levels) > bounds.depth:
            raise TooLarge(f"a JSON document with values nested more than {bounds.depth} deep")
        level = levels[-1]
    return count


def _pieces(data: bytes | bytearray) -> Iterator[bytes | bytearray]:
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE]
        if start:
            time.sleep(0)  # other threads may run


def _outside_strings(data: bytes | bytearray) -> Iterator[bytes]:
    """Yield the commas and brackets outside strings, piece by piece, with all brackets square."""
    in_string = False
    escapes = b""
    for piece in _pieces(data):
        marks = _ESCAPE.sub(b"", escapes + piece)
        escapes = marks[-1:] if marks.endswith(b"\\") else b""
        parts = marks.translate(_BRACKETS, _OTHERS).split(b'"')
        yield b"".join(parts[1 if in_string else 0 :: 2])
        in_string ^= len(parts) % 2 == 0


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"a name twice: {next(name for name, count in counts.items() if count > 1)}")
    return found


_decoder = json.JSONDecoder(parse_constant=_refuse)
_SPACE = re.compile(r"[ \t\n\r]*")
_MARK = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[][{}]', re.DOTALL)


class LongDocument:
    """A parser that gives values of at most a piece to the standard parser, and walks through longer ones itself.

    So other threads can run between two values. The time is linear in the text: a value that a window does not hold to
    its end is tried once, and again in a window of its own if it begins in the second half.
    """

    def __init__(self, text: str, piece: int = _PIECE) -> None:
        self._text, self._piece = text, piece
        self._look(0)

    def _look(self, at: int) -> None:
        """Move the window to a value."""
        self._start, self._window = at, self._text[at : at + self._piece]
        self._unclosed: set[int] | None = None

    def parsed(self) -> Any:
        """Return the value of the document. Raises ValueError if it is no JSON, RecursionError if it is too deep."""
        value, end = self._value(self._after_space(0))
        if self._after_space(end) != len(self._text):
            raise json.JSONDecodeError("Extra data", self._text, end)
        return value

    def _after_space(self, at: int) -> int:
        return at if self._text[at : at + 1] > " " else _SPACE.match(self._text, at).end()  # pyright: ignore[reportOptionalMemberAccess]

    def _value(self, at: int) -> tuple[Any, int]:
        """Return the value that begins at a position, and its end."""
        if (short := self._short_value(at)) is not None:
            return short
        if at - self._start >= self._piece // 2:
            self._look(at)
            if (short := self._short_value(at)) is not None:
                return short
        if self._unclosed is None:
            self._unclosed = self._without_end()
        match self._text[at : at + 1]:
            case "[":
                return self._array(at + 1)
            case "{":
                return self._object(at + 1)
            case _:  # a text longer than half a piece, or an error
                return _decoder.raw_decode(self._text, at)

    def _short_value(self, at: int) -> tuple[Any, int] | None:
        """Return the value and its end if the window holds all of it. A number may go on behind the window ("1e+")."""
        if self._unclosed is not None and at in self._unclosed:
            return None
        try:
            value, end = _decoder.raw_decode(self._window, at - self._start)
        except json.JSONDecodeError:
            return None
        if end + 3 > len(self._window) and self._start + len(self._window) < len(self._text):
            return None
        return value, self._start + end

    def _without_end(self) -> set[int]:
        """Return where the arrays and objects begin that end behind the window."""
        opened: list[int] = []
        for mark in _MARK.finditer(self._window):
            if mark[0] in ("[", "{"):
                opened.append(self._start + mark.start())
            elif mark[0] in ("]", "}") and opened:
                opened.pop()
        return set(opened)

    def _array(self, at: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        at = self._after_space(at)
        if self._text[at : at + 1] == "]":
            return values, at + 1
        while True:
            value, at = self._value(at)
            values.append(value)
            at, is_last = self._next(at, "]")
            if is_last:
                return values, at

    def _object(self, at: int) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        at = self._after_space(at)
        if self._text[at : at + 1] == "}":
            return members, at + 1
        while True:
            key, at = self._value(at)
            at = self._after_space(at)
            if not isinstance(key, str) or self._text[at : at + 1] != ":":
                raise json.JSONDecodeError("Expecting a property name and ':'", self._text, at)
            members[key], at = self._value(self._after_space(at + 1))
            at, is_last = self._next(at, "}")
            if is_last:
                return members, at

    def _next(self, at: int, closing: str) -> tuple[int, bool]:
        """Return the position after a comma, and False; or after the closing bracket, and True."""
        at = self._after_space(at)
        mark = self._text[at : at + 1]
        if mark != "," and mark != closing:
            raise json.JSONDecodeError(f"Expecting ',' or '{closing}'", self._text, at)
        return (at + 1, True) if mark == closing else (self._after_space(at + 1), False)
