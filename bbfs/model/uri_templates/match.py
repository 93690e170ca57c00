"""URI templates as paths: which paths below a source's directory a template makes, and the URI behind each. Pure.

The rule is that of `bbfs.model.file_names`: the path of an expansion is the path of that URI. Read backwards, a
template is a row of *segments*, one for each component of the path: literal names, names with variables in them, and,
where a variable may hold slashes (`{+path}`, `{#path}`, `{path*}`, `{/path*}`), a segment that stands for any number
of components. Query expressions (`{?q,limit}`, `{&q}`) belong to the last component: `search?q=ssl&limit=5`.

A path that fits is taken apart into values, and the values are expanded again (RFC 6570), so a server gets exactly the
URI that its own template makes. Where that is the URI of another path (`a%20b` is shown as `a b`, query variables have
an order), the path is only another way to write that one.

As the RFC has it, several templates may fit one path, and the first one that does counts; a variable takes as little as
it can. Query variables may be left out, given in any order and, where they explode, repeated; all others are needed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from bbfs.model.errors import InvalidUri
from bbfs.model.file_names import hide_component, plain_path, show_component
from bbfs.model.uri_templates.expand import Value, expand_template, parse_template
from bbfs.model.uri_templates.segments import Bound, Query, Segment, rest_of, segments, split_query

Path = tuple[str, ...]


class Match(NamedTuple):
    """What a path stands for. path: the one that the rule makes of the URI; another than was asked for is its alias."""

    native_uri: str
    variables: dict[str, Value]
    path: Path


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path stands in a pattern.

    match: the resource that has this path, if one can. leads: whether longer paths may be resources; together with a
    match, only the source can tell which of the two it is. following: the segment of the names in the directory.
    variables: the values that the path has given so far. literal: whether the last name is the template's own.
    queried: whether the last name ends with a query of the template.
    """

    match: Match | None
    leads: bool
    following: Segment | None
    variables: dict[str, Value]
    literal: bool
    queried: bool = False


class Pattern:
    """The paths of one template, from the source's directory (the scheme's directory included). Immutable."""

    def __init__(self, uri_template: str) -> None:
        """Raises InvalidUri for what is no template, or one that has no path of its own at all."""
        self.uri_template = uri_template
        parts, self._query = split_query(parse_template(uri_template))
        self._segments = segments(parts)
        self._many = next((i for i, segment in enumerate(self._segments) if segment.many), len(self._segments))
        if self._many < len(self._segments) - 1 and any(segment.many for segment in self._segments[self._many + 1 :]):
            raise InvalidUri(f"template {uri_template!r}: two parts of it could hold any number of slashes")
        if self._query is None and all(segment.name is not None for segment in self._segments):
            raise InvalidUri(f"template {uri_template!r} has no variables")
        self._rest = rest_of(self._segments[self._many :])

    @property
    def literal(self) -> Path:
        """The names of the directories that are there whatever the variables are."""
        names: list[str] = []
        for segment in self._segments if self._query is None else self._segments[:-1]:
            if segment.name is None:
                break
            names.append(segment.name)
        return tuple(names)

    def place(self, path: Sequence[str]) -> Place | None:
        """Where `path` stands, or None when neither it nor anything below it can be a resource of this template."""
        if not {".", ".."}.isdisjoint(path):
            return None  # no URI has such a path
        raw: list[tuple[Bound, str]] = []
        own = min(len(path), self._many)
        if len(path) > self._many == len(self._segments):
            return None
        ends = len(path) == len(self._segments) == self._many
        for position in range(own):
            segment, name = self._segments[position], path[position]
            if ends and position == own - 1 and self._query is not None:
                # A component is shown decoded or encoded as a whole, so a query can keep what is before it encoded.
                name = show_component(hide_component(name.partition("?")[0]))
            if segment.name is not None:
                if segment.name != name:
                    return None
                continue
            assert segment.regex is not None
            found = segment.regex.fullmatch(hide_component(name))
            if found is None:
                return None
            raw += zip(segment.variables, found.groups(), strict=True)
        variables = _values(raw)
        if variables is None:
            return None
        if ends:
            match = self._match(path, variables)
            if match is None:
                return None
            queried = self._query is not None and "?" in path[-1]
            return Place(match, False, None, variables, self._literal(len(path)), queried)
        if len(path) <= self._many:
            return Place(None, True, self._segments[len(path)], variables, self._literal(len(path)))
        return Place(self._match_rest(path, raw), True, self._segments[self._many], variables, False)

    def _literal(self, depth: int) -> bool:
        return depth == 0 or self._segments[depth - 1].name is not None

    def _match_rest(self, path: Sequence[str], raw: list[tuple[Bound, str]]) -> Match | None:
        """The resource at a path of which a part stands for a value with slashes."""
        components = list(path[self._many :])
        if self._query is not None:
            components[-1] = components[-1].partition("?")[0]
        found = self._rest.fullmatch("/".join(map(hide_component, components)))
        if found is None:
            return None
        bounds = [bound for segment in self._segments[self._many :] for bound in segment.variables]
        variables = _values([*raw, *zip(bounds, found.groups(), strict=True)])
        return None if variables is None else self._match(path, variables)

    def _match(self, path: Sequence[str], variables: dict[str, Value]) -> Match | None:
        """The resource at `path`, whose values but those of the query are known."""
        query = path[-1].partition("?")
        if self._query is not None:
            asked = _asked(self._query, hide_component(query[2]) if query[1] else "")
            if asked is None:
                return None
            variables = variables | asked
        try:
            native_uri = self.expand(variables)
        except InvalidUri:
            return None
        if self._query is not None and query[1] and not query[2] and not native_uri.endswith("?"):
            native_uri += "?"  # asked with nothing to ask for, which is not the same as not asked
        plain = plain_path(native_uri).path
        if plain != tuple(path) and not self._leads_back(plain, native_uri):
            plain = tuple(path)  # `q=a%26b` would be shown as `q=a&b`, which is something else
        return Match(native_uri, variables, plain)

    def _leads_back(self, path: Path, native_uri: str) -> bool:
        """Whether the plain path of a URI, decoded as it is shown, is an expansion to this URI as well."""
        place = self.place(path)
        return place is not None and place.match is not None and place.match.native_uri == native_uri

    def expand(self, variables: Mapping[str, Value]) -> str:
        """The native URI of these values. Raises InvalidUri."""
        return _expanded(self.uri_template, variables)

    def path_of(self, following: Segment, variables: Mapping[str, Value]) -> Path:
        """The path of a name that only the variables up to `following` decide. Raises InvalidUri."""
        needed = {bound.name for segment in self._segments[: self._segments.index(following) + 1]
                  for bound in segment.variables}  # fmt: skip
        return plain_path(_expanded(following.upto, {n: v for n, v in variables.items() if n in needed})).path

    @property
    def has_query(self) -> bool:
        """Whether the last name may go on with a query."""
        return self._query is not None

    @property
    def many_from(self) -> int:
        """The depth from which on a path belongs to a value with slashes."""
        return self._many

    def ends_with(self, segment: Segment) -> bool:
        """Whether the names of a segment are those of resources."""
        return self._segments[-1] is segment


def shown(variables: Mapping[str, Value]) -> dict[str, str | list[str]]:
    """Values as people write them."""
    return {
        name: unquote(value) if isinstance(value, str) else [unquote(item) for item in value]
        for name, value in variables.items()
    }


def _expanded(template: str, variables: Mapping[str, Value]) -> str:
    """As `expand_template`; the path of a `file` URI is absolute where nothing stands before it (RFC 8089)."""
    first = re.match(r"file://\{\+([^},:*]+)\}", template)
    if first is not None:
        value = variables.get(first[1])
        if isinstance(value, str) and not value.startswith("/"):
            variables = {**variables, first[1]: "/" + value}
    return expand_template(template, variables)


def _values(raw: list[tuple[Bound, str]]) -> dict[str, Value] | None:
    """The variables' values, or None where they contradict each other or are no text."""
    values: dict[str, Value] = {}
    for bound, text in raw:
        try:
            value = bound.value(text or "")
        except ValueError:
            return None
        if values.setdefault(bound.name, value) != value:
            return None
    return values


def _asked(query: Query, text: str) -> dict[str, Value] | None:
    """The values that a query gives, or None when the template has no such query."""
    exploding = {variable.name for variable in query.variables if variable.modifier == "*"}
    known = {unquote(variable.name): variable.name for variable in query.variables}  # names may hold triplets
    fixed = list(query.fixed)
    values: dict[str, Value] = {}
    for pair in filter(None, text.split("&")):
        key, _, encoded = pair.partition("=")
        if pair in fixed:
            fixed.remove(pair)
            continue
        try:
            name, value = known.get(unquote(key, errors="strict")), unquote(encoded, errors="strict")
        except UnicodeDecodeError:
            return None
        if name is None or (name in values and name not in exploding):
            return None
        if name in exploding:
            before = values.get(name, [])
            values[name] = [*before, value]
        else:
            values[name] = value
    return None if fixed else values
