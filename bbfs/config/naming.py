"""Names of sources: those of people and other programs in the alphabet of URI prefixes (`model.uri`)."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from bbfs.config.problems import quote
from bbfs.model.errors import ConfigError
from bbfs.model.uri import build_uri_prefix
from bbfs.model.values import DataSource

VALID_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 100


def slug(text: str) -> str:
    """Return the nearest name in the alphabet of URI prefixes, or `source` if no character of `text` remains."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return _ILLEGAL.sub("-", plain).lstrip("-._")[:_LONGEST].rstrip("-") or "source"


def unique_slugs(texts: Sequence[str]) -> list[str]:
    """Return a different slug for each text. A text that is its own slug keeps it; others get `-2`, `-3`, …"""
    slugs: list[str] = [""] * len(texts)
    taken: set[str] = set()
    for own in (True, False):
        for index, text in enumerate(texts):
            wanted = slug(text)
            if (wanted == text and text not in texts[:index]) is not own:
                continue
            name, number = wanted, 2
            while name in taken:
                name, number = f"{wanted}-{number}", number + 1
            taken.add(name)
            slugs[index] = name
    return slugs


class Conflict(NamedTuple):
    """Two sources that exclude each other. later, earlier: their positions. what: the property that they share."""

    later: int
    earlier: int
    what: str


def conflicts(sources: Sequence[DataSource]) -> list[Conflict]:
    """Return the sources with equal ids or ambiguous URIs, each with the first one that it clashes with.

    A prefix names one source whatever its scheme: the part before the scheme leads from a URI to its source.
    """
    found: list[Conflict] = []
    for index, source in enumerate(sources):
        for number, earlier in enumerate(sources[:index]):
            what = _shared(source, earlier)
            if what:
                found.append(Conflict(index, number, what))
                break
    return found


def _shared(source: DataSource, earlier: DataSource) -> str:
    if source.uri_prefix == earlier.uri_prefix:
        return f"the URI prefix {source.uri_prefix!r}"
    if source.base_prefix == earlier.base_prefix:
        return f"the URIs of {source.base_prefix!r}"
    if source.id == earlier.id:
        return f"the id {source.id!r}"
    return ""


def give_way(sources: Sequence[DataSource], taken: Sequence[DataSource]) -> tuple[DataSource, ...]:
    """Return `sources`; one that clashes with a source of `taken` gets a name with `-2`, `-3`, ….

    This is for the servers of MCP hosts. A host's file is consistent in itself, but does not know the other files.
    """
    names = {name for source in (*sources, *taken) for name in (source.name, source.id)}
    free: list[DataSource] = []
    for source in sources:
        if any(_shared(source, other) for other in taken):
            number = 2
            while (name := f"{source.name[: _LONGEST - 4]}-{number}") in names:
                number += 1
            names.add(name)
            prefix = build_uri_prefix(source.access_method, source.type, name, source.scheme)
            source = replace(source, id=name, name=name, uri_prefix=prefix)
        free.append(source)
    return tuple(free)


def merge(*groups: tuple[str, Iterable[DataSource]]) -> tuple[DataSource, ...]:
    """Return the sources of several origins, in order. A group is (origin, sources); an origin is a file or an option.

    Raise ConfigError if two sources share an id or a URI prefix; the text names both origins.
    """
    origins: list[str] = []
    sources: list[DataSource] = []
    for origin, group in groups:
        for source in group:
            origins.append(origin)
            sources.append(source)
    found = [
        f"{origins[clash.later]}: source {quote(sources[clash.later].name)} has {clash.what}, and so has "
        f"{quote(sources[clash.earlier].name)} of {origins[clash.earlier]}; give one of them another name"
        for clash in conflicts(sources)
    ]
    if found:
        raise ConfigError("\n".join(found))
    return tuple(sources)
