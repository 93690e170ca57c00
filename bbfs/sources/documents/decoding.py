"""Bytes of documents as characters, where the document states the wrong encoding or none."""

import codecs
import re
from contextlib import suppress

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_BEGINNING = 1 << 12
"""Bytes that tell whether a file is text."""
_LAST = "cp1252"
"""The encoding of a text that is not in UTF-8 and states no other: Windows wrote most of them."""


def decoded(data: bytes, charset: str | None = None) -> str:
    """Return the characters of a text. charset: what the document states, which is tried first.

    A byte order mark decides; else the stated encoding, UTF-8 and Windows-1252 are tried in this order, and bytes that
    have no character become the replacement character.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    for encoding in (charset, "utf-8"):
        with suppress(LookupError, ValueError):  # an unknown encoding, or bytes that are not in it
            if encoding is not None:
                return data.decode(encoding)
    return data.decode(_LAST, "replace")


def is_plain(data: bytes) -> bool:
    """Return whether a file without a format of its own is text."""
    beginning = data[:_BEGINNING]
    return bool(beginning) and (
        beginning.startswith(tuple(mark for mark, _ in _MARKS)) or not _BINARY.search(beginning)
    )
