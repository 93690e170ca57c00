"""The hits in the JSON that a source answers to a search. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from bbfs.model.redaction import printable
from bbfs.model.values import Hit

QUERIES = ("query", "q", "search_query", "searchQuery", "search", "text", "keywords", "term", "question")
"""Names of arguments that take the words of a search."""
LIMITS = (
    "limit", "max_results", "maxResults", "num_results", "top_k", "topK", "n", "count", "k", "page_size", "per_page",
)  # fmt: skip
"""Names of arguments that take the number of hits."""
_SEARCH = re.compile(r"(?:^|[^a-z])(?:search|find|query|retrieve)(?:[^a-z]|$)|^(?:search|find|query|retrieve)[A-Z]")
_TITLE = ("title", "name")
_SNIPPET = ("snippet", "excerpt", "highlight", "summary", "description", "text", "content")
_SCORE = ("score", "relevance", "similarity")
_WHERE = ("where", "heading", "section")
_LONGEST = {"title": 300, "snippet": 500, "where": 300}
"""Characters of the texts of a hit."""


def looks_like_search(name: str) -> bool:
    """Return whether a tool or an operation is named like a search."""
    return _SEARCH.search(name) is not None


def hit_of(native_uri: str, row: Mapping[str, Any]) -> Hit:
    """Return the hit of an object: its score and texts have usual names."""
    title, snippet, where = (
        _text(row, keys, _LONGEST[name]) for name, keys in (("title", _TITLE), ("snippet", _SNIPPET), ("where", _WHERE))
    )
    score = next((row[key] for key in _SCORE if isinstance(row.get(key), int | float)), None)
    usable = score is not None and not isinstance(score, bool) and abs(score) < 1e300 and isfinite(score)
    return Hit(native_uri, float(score) if usable and score is not None else None, title, snippet, where)


def _text(row: Mapping[str, Any], keys: Iterable[str], longest: int) -> str | None:
    for key in keys:
        value = row.get(key)
        text = value[: longest * 4].encode("utf-8", "replace").decode() if isinstance(value, str) else ""
        if words := " ".join(printable(text).split()):
            return words if len(words) <= longest else words[: longest - 1] + "…"
    return None


def with_sound_scores(found: Sequence[Hit]) -> list[Hit]:
    """Return the hits, without scores if these contradict the order (a distance is smaller for the better)."""
    scores = [hit.score for hit in found]
    known = [score for score in scores if score is not None]
    if len(known) == len(scores) and known == sorted(known, reverse=True):
        return [*found]
    return [Hit(hit.native_uri, None, hit.title, hit.snippet, hit.where) for hit in found]
