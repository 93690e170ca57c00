"""Names of sources: from what people and other programs call them to the alphabet of URI prefixes (`model.uri`)."""

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
    """The nearest name in the alphabet of URI prefixes; `source` where nothing of `text` is left."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return _ILLEGAL.sub("-", plain).lstrip("-._")[:_LONGEST].rstrip("-") or "source"


def unique_slugs(texts: Sequence[str]) -> list[str]:
    """A slug for each text, all different: a text that is its own slug keeps it, others give way with `-2`, `-3`, …"""
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
    """Two sources that cannot be in one configuration: `later` and `earlier` by number, and what they share."""

    later: int
    earlier: int
    what: str


def conflicts(sources: Sequence[DataSource]) -> list[Conflict]:
    """The sources that share an id or whose URIs could not be told apart, each with the first one it clashes with.

    A prefix names one source whatever its scheme: what stands before the scheme is how a URI leads to its source.
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
    """`sources`, where one that clashes with a source of `taken` has a name with `-2`, `-3`, … instead.

    For the servers of MCP hosts, whose files are not bbfs's: they agree among themselves, but not with other files.
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
    """The sources of several origins, in order. A group is (origin, sources); an origin names a file or an option.

    Raises ConfigError when two sources share an id or a URI prefix; the text names both origins.
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
