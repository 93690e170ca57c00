"""Bounds of what a client sends, checked before it is parsed."""

import re

MOST_VALUES = 50_000
"""Values of one JSON-RPC message. Parsed, three bytes of `[],` take sixty, and nothing else runs meanwhile."""
LONGEST_URI = 1 << 14
"""Characters of a URI that a client reads or subscribes to."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)


def has_too_many_values(message: bytes) -> bool:
    """Return whether a JSON text has more than `MOST_VALUES` values. Characters inside strings do not count."""
    return _values(message) > MOST_VALUES and _values(_STRING.sub(b"", message)) > MOST_VALUES


def shortened(text: str, length: int = 200) -> str:
    """Return a client's text for an error message."""
    return text if len(text) <= length else f"{text[:length]}…"


def _values(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")
