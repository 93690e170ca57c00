"""Identifiers and keys of a database as parts of a native URI, and back from file names. Pure.

Any text can be the name of a table or the value of a key. In a native URI it is percent-encoded, and the tree shows
it decoded where that is a legal file name (`bbfs.model.uri_paths.show_component`). A tilde marks what
percent-encoding cannot distinguish; a tilde of the text itself is doubled:

    ~null ~empty            NULL, and the empty text
    ~x00ff                  a blob, in hex
    ~t7                     the text `7` where a number may stand as well
    a~,b                    a comma within a part of a composite key; one without a tilde is between two parts
    a~-b                    rows from the key `a` on and before `b`; without one of them, all on that side
    ~query                  the schema `query`: the name `query` belongs to the named queries

So different things always have different names.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import quote, unquote_to_bytes

from bbfs.model.errors import NotFound
from bbfs.model.redaction import shown
from bbfs.model.uri_paths import show_component

QUERIES = "query"
"""The directory of the named queries, at the root."""
_SAFE = "-._~!$&'()*+,;=:@"  # RFC 3986, section 3.3: pchar
_TRIPLET = re.compile(r"%[0-9A-Fa-f]{2}")
_SPECIAL = {None: "~null", "": "~empty"}


@dataclass(frozen=True, slots=True)
class TaggedText:
    """A text that looks like a number."""

    text: str


KeyValue: TypeAlias = str | bytes | TaggedText | None
"""One value of a key: a text, a blob, a text marked as such, or NULL. Surrogates stand for bytes that are not UTF-8."""
Key: TypeAlias = tuple[KeyValue, ...]


def value_text(value: KeyValue, *, in_composite: bool = False) -> str:
    """Return the text for a value."""
    if isinstance(value, bytes):
        return "~x" + value.hex()
    if isinstance(value, TaggedText):
        return "~t" + _doubled(value.text, in_composite)
    return _SPECIAL[value] if value in _SPECIAL else _doubled(value or "", in_composite)


def _doubled(text: str, in_composite: bool) -> str:
    text = text.replace("~", "~~")
    return text.replace(",", "~,") if in_composite else text


def text_value(text: str) -> KeyValue:
    """Return the value for a text. Raises NotFound if there is none."""
    if text in _SPECIAL.values():
        return None if text == _SPECIAL[None] else ""
    if text.startswith("~x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise NotFound(f"{shown(text)}: no blob in hex") from None
    if text.startswith("~t"):
        return TaggedText(_single(text[2:]))
    return _single(text)


def _single(text: str) -> str:
    return re.sub(r"~([~,])", r"\1", text)


def key_text(key: Sequence[KeyValue]) -> str:
    """Return the text for a whole key: its parts with commas between them."""
    return ",".join(value_text(value, in_composite=len(key) > 1) for value in key)


def text_key(text: str, parts: int) -> Key:
    """Return the key of so many parts for a text. Raises NotFound."""
    pieces = re.findall(r"(?:[^,~]|~[\s\S])+", text) if parts > 1 else [text]
    key = tuple(map(text_value, pieces))
    if len(key) != parts or key_text(key) != text:
        raise NotFound(f"{shown(text)}: no key of {parts} part{'s' if parts > 1 else ''}, written as it is here")
    return key


def identifier_text(name: str) -> str:
    """Return the text for the name of a table or column."""
    return value_text(name)


def text_identifier(text: str) -> str:
    """Return the name of a table or column for a text. Raises NotFound."""
    value = text_value(text)
    if not isinstance(value, str) or identifier_text(value) != text:
        raise NotFound(f"{shown(text)}: no name")
    return value


def schema_text(name: str) -> str:
    """Return the text for a schema. It is never the text that stands for the named queries."""
    return "~" + QUERIES if name == QUERIES else identifier_text(name)


def text_schema(text: str) -> str:
    """Return the schema for a text. Raises NotFound."""
    if text == QUERIES:
        raise NotFound(f"{QUERIES}: no schema, but the named queries")
    return QUERIES if text == "~" + QUERIES else text_identifier(text)


def segment_of(text: str) -> str:
    """Return the segment of a native URI for a text."""
    if text in (".", ".."):
        return text.replace(".", "%2E")
    return quote(text, safe=_SAFE, errors="surrogateescape")


def text_of(segment: str) -> str:
    """Return the text of a segment of a native URI. Raises NotFound for a segment without one."""
    try:
        text = unquote_to_bytes(segment).decode("utf-8", "surrogateescape")
    except UnicodeError:
        text = ""
    if not text or segment in (".", ".."):
        raise NotFound(f"{shown(segment)}: no such name")
    return text


def named(name: str) -> str:
    """Return the text that has a file name. Raises NotFound if there is none."""
    with suppress(UnicodeError):  # a lone surrogate in a name that no text has
        text = unquote_to_bytes(name).decode("utf-8", "surrogateescape") if _TRIPLET.search(name) else name
        if show_component(segment_of(text)) == name:
            return text
    raise NotFound(f"{shown(name)}: no such name")
