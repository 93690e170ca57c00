"""Pages of a listing as machines share them: JSON arrays of entries, compressed (zlib, RFC 1950). Pure.

The entries are as the server said them, so that whoever takes them decodes and bounds them as a server's.
"""

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.sources.bounded.json import JsonBounds, parse_json

ENTRIES = 1000
"""Entries of a page at most."""
BOUNDS = JsonBounds(size=8 << 20, values=200_000)
"""Of a page: about 200 values and 8 KiB an entry."""


def packed(entries: Sequence[Any]) -> Iterator[bytes]:
    """Yield pages of all entries. Raises TooLarge for entries that no machine would unpack."""
    for start in range(0, len(entries), ENTRIES):
        some = entries[start : start + ENTRIES]
        text = json.dumps(some, separators=(",", ":")).encode()
        if len(text) > BOUNDS.size:
            raise TooLarge(f"{len(some)} entries of {len(text)} bytes")
        yield zlib.compress(text, 1)


def unpacked(page: bytes) -> list[Any]:
    """Return the entries of a page. Raises ProtocolViolation, and TooLarge for a page beyond `BOUNDS`."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(page, BOUNDS.size + 1)
    except zlib.error as error:
        raise ProtocolViolation(f"no page of a listing: {error}") from error
    if not unpacking.eof and len(text) <= BOUNDS.size:
        raise ProtocolViolation("no page of a listing: it is cut off")
    entries = parse_json(text, BOUNDS)
    if not isinstance(entries, list):
        raise ProtocolViolation("no page of a listing: no JSON array")
    return entries
