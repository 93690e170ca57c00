"""Searches as file names: `search?text=renew it&limit=5&lang=en.json`. Pure.

A value is percent-encoded where it must be: `&` is `%26`, `/` is `%2F`, `%` is `%25`. With `.json` the name is a file,
without it a directory of links.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from bbfs.model.errors import InvalidUri, NotFound
from bbfs.model.redaction import shown
from bbfs.model.uri import encodable
from bbfs.sources.abilities import LONGEST_QUERY
from bbfs.sources.vector_search.values import MOST_MATCHES

START = "search?"
_MOST_FILTERS = 16
_MOST_WORDS = 32


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search. limit: of its results, None where it names no limit. filters: fields of the payload."""

    text: str
    limit: int | None = None
    filters: Mapping[str, str] = field(default_factory=dict)
    is_file: bool = False


def parse_search(segment: str) -> SearchQuery:
    """Return the search of a segment of a native URI. Raise NotFound for a name that is no search, InvalidUri for a
    search with a fault."""
    if not segment.startswith(START):
        raise NotFound(f"{shown(segment)}: no such name")
    is_file = segment.endswith(".json")
    given: dict[str, str] = {}
    for pair in segment.removesuffix(".json")[len(START) :].split("&"):
        name, equals, value = pair.partition("=")
        name = _decoded(name)
        if not equals or not name:
            raise InvalidUri(f"{shown(segment)}: expected search?text=WORDS&limit=N&FIELD=VALUE")
        if name in given:
            raise InvalidUri(f"{shown(segment)}: {shown(name)} is given twice")
        given[name] = _decoded(value)
    text, limit = given.pop("text", "").strip(), given.pop("limit", None)
    if not text:
        raise InvalidUri(f"{shown(segment)}: no text to search for; expected search?text=WORDS")
    if len(text) > LONGEST_QUERY:
        raise InvalidUri(f"a text of more than {LONGEST_QUERY} characters")
    if len(given) > _MOST_FILTERS:
        raise InvalidUri(f"more than {_MOST_FILTERS} fields to filter by")
    return SearchQuery(text, None if limit is None else _limit(limit), given, is_file)


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= MOST_MATCHES):
        raise InvalidUri(f"limit={shown(text)}: expected a number from 1 to {MOST_MATCHES}")
    return int(text)


def _decoded(value: str) -> str:
    try:
        text = unquote(value, errors="strict")
    except UnicodeError:
        text = "\0"
    if "\0" in text or not encodable(text):
        raise InvalidUri(f"{shown(value)}: not UTF-8, or with a zero byte")
    return text


def words_of(text: str) -> list[str]:
    """Return the different words of a text, which are searched for where nothing makes vectors."""
    found = "".join(character if character.isalnum() else " " for character in text.casefold()).split()
    return list(dict.fromkeys(found))[:_MOST_WORDS]
