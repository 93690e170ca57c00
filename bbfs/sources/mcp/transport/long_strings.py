"""Extraction of long texts from a JSON message before it is parsed, piece by piece.

A JSON parser holds Python's global lock while it runs, a second for 64 MB, and every other source would wait. So long
string values are cut out of the message, and their escapes are resolved piece by piece; the rest is parsed as usual.
Call this in a thread. Memory holds the message and the text only.
"""

import re
import secrets
import time
from base64 import b64decode
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from pydantic_core import from_json

LONG = 1 << 20
"""Bytes from which a message is read in a thread and searched for long texts, and from which a text is long."""
PIECE = 1 << 17
_DIGITS = 1 << 18  # a multiple of 4: as much of base64 as decodes alone
_VALUE = re.compile(rb'"(?:text|blob)"\s*:\s*"')
_HIGH_SURROGATE = re.compile(rb"\\u[Dd][89ABab][0-9A-Fa-f]{2}")
_LONGEST_ESCAPE = 6

Line = bytes | bytearray


@dataclass(frozen=True, slots=True)
class LongText:
    """A text of a message, in UTF-8."""

    data: bytes

    def base64_decoded(self) -> bytes:
        """Decode the text as base64. Raises ValueError unless it is strictly valid."""
        out = BytesIO()
        for start in range(0, len(self.data), _DIGITS):
            digits = self.data[start : start + _DIGITS]
            if start + _DIGITS < len(self.data) and b"=" in digits:
                raise ValueError("padding within")
            out.write(b64decode(digits, validate=True))
            time.sleep(0)
        return out.getvalue()


def take_out(line: Line) -> tuple[bytes, dict[str, LongText]] | None:
    """Return the message with a placeholder for each long text, and the texts by placeholder.

    None if there is no long text, or if the line is not JSON.
    """
    texts: dict[str, LongText] = {}
    rest: list[bytes] = []
    done = at = 0
    mark = secrets.token_hex(16)
    while (found := _VALUE.search(line, at, at + PIECE)) is not None or at + PIECE < len(line):
        if found is None:
            at += PIECE - 64  # a value may begin across the boundary
            continue
        start, at = found.end(), found.end()
        if len(line) - start < LONG:
            break
        end = _closing_quote(line, start)
        if end is None:
            return None
        if end - start >= LONG:
            text = _resolved(line, start, end)
            if text is None:
                return None
            texts[placeholder := f"{mark}-{len(texts)}"] = LongText(text)
            rest += [bytes(line[done:start]), placeholder.encode()]
            done = end
        at = end
    return (b"".join((*rest, line[done:])), texts) if texts else None


def put_back(result: dict[str, Any], texts: dict[str, LongText]) -> None:
    """Put the texts back: as `LongText` into the contents of a result, elsewhere as plain texts."""
    contents = result.get("contents")
    for content in contents if isinstance(contents, list) else ():
        for key in ("text", "blob") if isinstance(content, dict) else ():
            value = content.get(key)
            if isinstance(value, str) and value in texts:
                content[key] = texts.pop(value)
    if texts:
        _put_back_plain(result, texts)


def _put_back_plain(value: Any, texts: dict[str, LongText]) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        if isinstance(item, str) and item in texts:
            value[key] = texts[item].data.decode()
        elif isinstance(item, dict | list):
            _put_back_plain(item, texts)


def _closing_quote(line: Line, start: int) -> int | None:
    """Return the end of the string that begins at `start`, or None."""
    at = start
    while True:
        quote = line.find(b'"', at, at + PIECE)
        if quote < 0:
            at += PIECE
            if at >= len(line):
                return None
            time.sleep(0)
            continue
        before = quote
        while before > start and line[before - 1] == 0x5C:
            before -= 1
        if (quote - before) % 2 == 0:
            return quote
        at = quote + 1


def _resolved(line: Line, start: int, end: int) -> bytes | None:
    """Return the text between two quotes with its escapes resolved; None if it is no JSON string in UTF-8."""
    out = BytesIO()
    at = start
    while at < end:
        stop = min(at + PIECE, end)
        piece = bytes(line[at:stop])
        if stop < end:
            piece = _whole(piece)
            if not piece:
                return None
        try:
            out.write(from_json(b'"' + piece + b'"', cache_strings=False).encode())
        except ValueError:
            return None
        at += len(piece)
        time.sleep(0)  # releases the global lock
    return out.getvalue()


def _whole(piece: bytes) -> bytes:
    """Cut a piece of a string where no escape, pair of surrogates or character is split."""
    last = piece.rfind(b"\\", max(0, len(piece) - _LONGEST_ESCAPE))
    if last >= 0 and _begins_escape(piece, last):
        escape = piece[last : last + 6]
        if len(escape) < (6 if escape[1:2] == b"u" else 2):
            high = last - 6
            if high >= 0 and _HIGH_SURROGATE.match(piece, high) and _begins_escape(piece, high):
                return piece[:high]
            return piece[:last]
        if _HIGH_SURROGATE.match(escape):
            return piece[:last]
    size = len(piece)
    while size and piece[size - 1] & 0xC0 == 0x80:
        size -= 1
    return piece[: size - 1] if size and piece[size - 1] >= 0xC0 else piece


def _begins_escape(piece: bytes, at: int) -> bool:
    """Return whether the backslash at a position begins an escape, and is not itself escaped."""
    return (at - len(piece[:at].rstrip(b"\\"))) % 2 == 0
