"""Results of tools that are longer than an answer: kept for a while, to be read in parts and matched.

The tool ran for one answer, and reading its resource again would run it again. So the whole result stays here, under a
URI that only the answer tells.
"""

import secrets
from collections import OrderedDict
from typing import Any

from bbfs.model.errors import NotFound
from bbfs.model.values import Content, Part
from bbfs.resources.by_uri import LoadedResource

SCHEME = "bbfs-result:"
MOST = 64
"""Results that are kept; the one used longest ago goes first."""
MOST_BYTES = 64 << 20
"""Bytes of all results that are kept. A longer one is not kept."""


def is_kept(uri: str) -> bool:
    """Return whether a URI is one of a kept result, or has been."""
    return uri.startswith(SCHEME)


def kept_document(loaded: LoadedResource) -> dict[str, Any]:
    """Describe a kept result as a resource."""
    (part,) = loaded.parts
    known = {"uri": loaded.uri, "name": "result", "mimeType": part.mime_type, "size": part.content.size}
    return {key: said for key, said in known.items() if said is not None} | {"kind": "resource"}


class KeptResults:
    """The kept results of one server. most, most_bytes: as `MOST` and `MOST_BYTES`."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._parts: OrderedDict[str, Part] = OrderedDict()

    def keep(self, content: Content, mime_type: str | None) -> str | None:
        """Keep a content; return its URI, or None if it is too long."""
        if content.size > self._most_bytes:
            return None
        uri = SCHEME + secrets.token_hex(12)
        self._parts[uri] = Part(None, mime_type, content)
        while len(self._parts) > self._most or self._bytes() > self._most_bytes:
            self._parts.popitem(last=False)
        return uri

    def _bytes(self) -> int:
        return sum(part.content.size for part in self._parts.values())

    def loaded(self, uri: str) -> LoadedResource:
        """Return a kept result, or the error if it is not there any more."""
        part = self._parts.get(uri)
        if part is None:
            return LoadedResource(uri, error=NotFound("this result is not kept any more: call its tool again"))
        self._parts.move_to_end(uri)
        return LoadedResource(uri, None, (part,))
