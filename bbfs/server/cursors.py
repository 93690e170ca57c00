"""Opaque tokens that say where a listing goes on: JSON in Base64, checked when they come back. Pure."""

import base64
import binascii
import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from bbfs.server.errors import Fault

LONGEST = 1 << 16
"""Characters."""


def token(purpose: Sequence[Any], place: Sequence[Any]) -> str:
    """A token for `place`, good for requests with an equal `purpose` alone."""
    text = json.dumps([_mark(purpose), *place], ensure_ascii=True, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place_of(purpose: Sequence[Any], text: str) -> list[Any]:
    """The place that a token was made for. Raises Fault."""
    try:
        if len(text) > LONGEST:
            raise ValueError
        found = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        found = None
    if not isinstance(found, list) or not found or not isinstance(found[0], str):
        raise Fault("invalid_token", f"not a token of this server: {text[:100]!r}")
    if found[0] != _mark(purpose):
        raise Fault("invalid_token", "the token belongs to another request: begin again without one")
    return found[1:]


def texts(value: Any) -> tuple[str, ...]:
    """A part of a place that must be a list of texts. Raises Fault."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise Fault("invalid_token", "not a token of this server")
    return tuple(value)


def _mark(purpose: Sequence[Any]) -> str:
    return blake2b(json.dumps(list(purpose)).encode(), digest_size=6).hexdigest()
