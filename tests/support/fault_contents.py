"""Contents that prove themselves: records, each with writer, number, length and a checksum. Pure.

A record is one line. A content is a sequence of records, for rows of a database in a property of a JSON object.
"""

import hashlib
import json
import re
from collections.abc import Sequence

_HEAD = 12
"""Hexadecimal digits of a checksum."""
LEAST = 48
"""Bytes that a record has at least."""
HALF = "half of "
"""Begins the name of a record that another one follows before it is whole; then as much of its own name as is there."""
_NAME = re.compile(r"[a-z]\d*(\.\d*)?")
_BEGINNING = re.compile(r"[a-z]\d*\.\d+ (\d+) ")
Records = tuple[str, ...]
"""The names of the records in a content, in order: `w3.17` is the 17th of the program w3."""


class Torn(ValueError):
    """A content that no program wrote as a whole."""


def record(name: str, size: int) -> str:
    """Return the record of a name, with about `size` bytes."""
    length = max(size, LEAST)
    body = f"{name} {length} ".ljust(length - _HEAD - 2, name[-1])
    return f"{body} {_sum(body)}\n"


def _sum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:_HEAD]


def names_of(text: str, *, is_growing: bool = False) -> Records:
    """Return the names of the records in a text. Raise Torn if a byte of it belongs to none.

    is_growing: programs append to the file. The kernel sends a long append in several requests, so a record may be
    half: the last one, which is not named then, or one before, which is named with `HALF`.
    """
    names: list[str] = []
    *lines, rest = text.split("\n")
    for line in lines:
        names += _names_in_line(line, is_growing=is_growing)
    if rest and not (is_growing and _is_half(rest)):
        raise Torn(f"{len(rest)} bytes after the last record {names[-3:]}: {rest[:80]!r}")
    return tuple(names)


def _names_in_line(line: str, *, is_growing: bool) -> Records:
    """Return the name of the record in a line, after that of a record that has no end. Raise Torn."""
    if is_whole(line):
        return (line.partition(" ")[0],)
    for found in _BEGINNING.finditer(line) if is_growing else ():
        half, whole = line[: found.start()], line[found.start() :]
        if int(found[1]) == len(whole) + 1 and is_whole(whole) and _is_half(half):
            return HALF + half.partition(" ")[0], whole.partition(" ")[0]
    raise Torn(f"no record, but {len(line)} bytes: {line[:80]!r} … {line[-40:]!r}")


def is_whole(line: str) -> bool:
    """Return whether a line is one record."""
    body, _, checksum = line.rpartition(" ")
    return len(line) >= LEAST - 1 and checksum == _sum(body) and f" {len(line) + 1} " in body


def _is_half(text: str) -> bool:
    """Return whether a text is the beginning of a record."""
    name, size, *rest = text.split(" ", 2) if " " in text else (text, "")
    if not _NAME.fullmatch(name):
        return False
    if not rest:
        return not size or size.isdigit()
    return size.isdigit() and int(size) >= LEAST and record(name, int(size)).startswith(text)


class Plain:
    """Files of text, to which programs append."""

    appends = True

    def encode(self, file: str, text: str) -> bytes:
        """Return the content of a file with a text."""
        return text.encode()

    def decode(self, data: bytes) -> str:
        """Return the text of a content. Raise Torn."""
        try:
            return data.decode()
        except ValueError as error:
            raise Torn(str(error)) from None


class Rows(Plain):
    """Rows as JSON objects with the columns `id` and `what`."""

    appends = False

    def encode(self, file: str, text: str) -> bytes:
        return json.dumps({"id": int(file.partition(".")[0]), "what": text}).encode() + b"\n"

    def decode(self, data: bytes) -> str:
        try:
            return str(json.loads(data)["what"]) if data else ""
        except (ValueError, KeyError, TypeError) as error:
            raise Torn(f"{error}: {data[:80]!r}") from None


CODECS: dict[str, Plain] = {"plain": Plain(), "rows": Rows()}


def names_in(codec: Plain, data: bytes, file: str = "") -> Records:
    """Return the names of the records in the content of a file. Raise Torn."""
    return names_of(codec.decode(data), is_growing=file.startswith("a"))


def is_within(some: Sequence[str], more: Sequence[str]) -> bool:
    """Return whether all records of one content are in another."""
    return set(some) <= set(more)
