"""The search of a source in memory: the words of a query in the names and texts of its resources. Plain values."""

import math
import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote_to_bytes

from bbfs.model.values import Hit
from bbfs.sources.media_types import content_type_of, mime_type_of_name
from bbfs.sources.memory.contents import OPENING, Held

SEARCHED = 1 << 20
"""Bytes of each content that are searched: more of them would hold the interpreter for too long at once."""
MOST_WORDS = 32
"""Different words of a query that are searched for."""
BEFORE, AFTER = 60, 140
"""Characters of a snippet before and after its first match."""
_IN_NAME = 3.0
"""Weight of a word in the name of a resource; in its text a word has 1."""
_WORD = re.compile(r"\w+")


def search(held: Mapping[str, Held], query: str, limit: int) -> Sequence[Hit]:
    """Return at most `limit` resources that have a word of the query, the best first.

    A resource with more of the words comes before one with fewer; then the number of occurrences decides.
    """
    words = list(dict.fromkeys(_WORD.findall(query.casefold())))[:MOST_WORDS]
    found = (_hit(native_uri, each, words) for native_uri, each in sorted(held.items()))
    return sorted((hit for hit in found if hit is not None), key=lambda hit: -(hit.score or 0.0))[:limit]


def _hit(native_uri: str, held: Held, words: Sequence[str]) -> Hit | None:
    path = unquote_to_bytes(native_uri.removeprefix(OPENING)).decode()
    text, name = _text(path, held), path.casefold()
    folded = text.casefold()
    score, first = 0.0, len(folded)
    for word in words:
        in_text = folded.count(word)
        if not in_text and word not in name:
            continue
        score += 10.0 + math.log1p(in_text) + (_IN_NAME if word in name else 0.0)
        first = min(first, folded.find(word)) if in_text else first
    if not score:
        return None
    return Hit(native_uri, round(score, 3), path.rpartition("/")[2], _snippet(text, folded, first))


def _text(path: str, held: Held) -> str:
    """Return the text of a content that is searched: an empty text for binary data."""
    if content_type_of(held.mime_type or mime_type_of_name(path)) == "binary":
        return ""
    data = held.content.data[:SEARCHED]
    return "" if b"\0" in data else data.decode("utf-8", "ignore")


def _snippet(text: str, folded: str, first: int) -> str | None:
    """Return the text around the first match in one line, or None without a match. Few texts get longer by folding."""
    if first >= len(folded):
        return None
    shown = text if len(text) == len(folded) else folded
    return " ".join(shown[max(0, first - BEFORE) : first + AFTER].split())
