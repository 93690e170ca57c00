"""URI templates as paths: which paths below a source's directory a template makes, and the URI behind each. Pure.

The rule is that of `bbfs.model.uri_paths`: the path of an expansion is the path of that URI. Read backwards, a
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
from typing import Literal, NamedTuple
from urllib.parse import unquote

from bbfs.model.errors import InvalidUri
from bbfs.model.uri import NO_SCHEME
from bbfs.model.uri_paths import hide_component, plain_path, show_component
from bbfs.model.uri_templates.expand import Expression, Value, Variable, expand_template, parse_template

Path = tuple[str, ...]
Atom = str | Expression

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://)?")
_AFTER_SCHEME = re.compile(r":(?://)?")
_ONE = r"[^/]+?"
_MANY = r".+?"
MAX_SEGMENTS = 256
"""Components of a template's paths: each path is compared with all of them."""
_LONGEST_REST = 2048
"""Characters of a path for several variables if one may hold slashes: they may take quadratic time."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One component of a template's paths.

    name: of a literal segment, as shown. regex: of any other, over the encoded component (for `many`, over the rest of
    the path), with a group for each variable. end: of this segment in `Pattern.beginning`. pieces: those of the regex.
    """

    name: str | None
    regex: re.Pattern[str] | None
    variables: tuple["Bound", ...]
    many: bool
    end: int
    pieces: tuple["Piece", ...] = ()

    @property
    def only_variable(self) -> str | None:
        """The only variable of a segment, or None."""
        names = {bound.name for bound in self.variables}
        return names.pop() if len(names) == 1 else None


class Piece(NamedTuple):
    """A part of a regular expression: a literal `text`, a variable that takes as little as it can (`one` component,
    `any` text), or an expression with a form of its `own`."""

    kind: Literal["text", "one", "any", "own"]
    regex: str


class Bound(NamedTuple):
    """A variable, and the way to read its value from a group of a regular expression."""

    name: str
    form: str
    limit: int = 0

    def value(self, text: str) -> Value:
        match self.form:
            case "reserved":
                return text
            case "segments":
                return [unquote(part, errors="strict") for part in text.split("/")]
            case "labels":
                return [unquote(part, errors="strict") for part in text[1:].split(".")]
            case "parameters":
                return [unquote(part.partition("=")[2], errors="strict") for part in text[1:].split(";")]
        value = unquote(text, errors="strict")
        if self.limit and len(value) > self.limit:
            raise ValueError("longer than its prefix")
        return value


class TemplateQuery(NamedTuple):
    """The query of a template: its literal pairs, and its variables."""

    fixed: tuple[str, ...]
    variables: tuple[Variable, ...]


class Match(NamedTuple):
    """The resource at a path. path: the path that the rule gives the URI; if it differs, the given path is an alias."""

    native_uri: str
    variables: dict[str, Value]
    path: Path


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a path in a pattern.

    match: the resource with this path, if there can be one. leads: whether longer paths may be resources. With both,
    only the source can tell a resource from a directory. following: the segment of the names in the directory.
    variables: the values that the path gives so far. literal: whether the last name is the template's own.
    queried: whether the last name ends with a query of the template.
    """

    match: Match | None
    leads: bool
    following: Segment | None
    variables: dict[str, Value]
    literal: bool
    queried: bool = False


class Pattern:
    """The paths of one template, from the source's directory (the scheme's directory included). Immutable.

    beginning: the template without its query.
    """

    def __init__(self, uri_template: str) -> None:
        """Raise InvalidUri for a malformed template, and for a template without variables or with too many segments."""
        self.uri_template = uri_template
        parts, self._query = _split_query(parse_template(uri_template))
        self._segments, self.beginning = _segments(parts)
        self._many = next((i for i, segment in enumerate(self._segments) if segment.many), len(self._segments))
        if self._many < len(self._segments) - 1 and any(segment.many for segment in self._segments[self._many + 1 :]):
            raise InvalidUri(f"template {uri_template!r}: two parts of it could hold any number of slashes")
        if self._query is None and all(segment.name is not None for segment in self._segments):
            raise InvalidUri(f"template {uri_template!r} has no variables")
        self._rest = _rest_of(self._segments[self._many :])

    @property
    def literal(self) -> Path:
        """The names of the directories above the first variable."""
        names: list[str] = []
        for segment in self._segments if self._query is None else self._segments[:-1]:
            if segment.name is None:
                break
            names.append(segment.name)
        return tuple(names)

    def place(self, path: Sequence[str], *, is_plain: bool = False) -> Position | None:
        """Return the position of `path`, or None if no resource of this template can be at or below it. is_plain: it is
        the plain path of a URI."""
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
            match = self._match(path, variables, is_plain)
            if match is None:
                return None
            queried = self._query is not None and "?" in path[-1]
            return Position(match, False, None, variables, self._literal(len(path)), queried)
        if len(path) <= self._many:
            return Position(None, True, self._segments[len(path)], variables, self._literal(len(path)))
        return Position(self._match_rest(path, raw, is_plain), True, self._segments[self._many], variables, False)

    def _literal(self, depth: int) -> bool:
        return depth == 0 or self._segments[depth - 1].name is not None

    def _match_rest(self, path: Sequence[str], raw: list[tuple[Bound, str]], is_plain: bool) -> Match | None:
        """Return the resource at a path that holds a value with slashes, or None."""
        components = list(path[self._many :])
        if self._query is not None:
            components[-1] = components[-1].partition("?")[0]
        rest = "/".join(map(hide_component, components))
        is_quadratic = self._rest.groups > 1
        found = self._rest.fullmatch(rest) if not is_quadratic or len(rest) <= _LONGEST_REST else None
        if found is None:
            return None
        bounds = [bound for segment in self._segments[self._many :] for bound in segment.variables]
        variables = _values([*raw, *zip(bounds, found.groups(), strict=True)])
        return None if variables is None else self._match(path, variables, is_plain)

    def _match(self, path: Sequence[str], variables: dict[str, Value], is_plain: bool) -> Match | None:
        """Return the resource at `path`, or None. variables: all values except the values of the query."""
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
        if not is_plain and plain != tuple(path) and not self._leads_back(plain, native_uri):
            plain = tuple(path)  # `q=a%26b` would be shown as `q=a&b`, which is something else
        return Match(native_uri, variables, plain)

    def _leads_back(self, path: Path, native_uri: str) -> bool:
        """Return whether the plain path of a URI, decoded, is an expansion to this URI as well."""
        place = self.place(path, is_plain=True)
        return place is not None and place.match is not None and place.match.native_uri == native_uri

    def expand(self, variables: Mapping[str, Value]) -> str:
        """Return the native URI of these values. Raise InvalidUri."""
        return _expanded(self.uri_template, variables)

    def path_of(self, following: Segment, variables: Mapping[str, Value]) -> Path:
        """Return the path of a name that depends on the variables up to `following` alone. Raise InvalidUri."""
        needed = {bound.name for segment in self._segments[: self._segments.index(following) + 1]
                  for bound in segment.variables}  # fmt: skip
        return plain_path(
            _expanded(self.beginning[: following.end], {n: v for n, v in variables.items() if n in needed})
        ).path

    @property
    def has_query(self) -> bool:
        """Return whether a query may follow the last name."""
        return self._query is not None

    @property
    def many_from(self) -> int:
        """The depth from which a path belongs to a value with slashes."""
        return self._many

    def ends_with(self, segment: Segment) -> bool:
        """Return whether the names of a segment are names of resources."""
        return self._segments[-1] is segment


def shown(variables: Mapping[str, Value]) -> dict[str, str | list[str]]:
    """Return the values percent-decoded."""
    return {
        name: unquote(value) if isinstance(value, str) else [unquote(item) for item in value]
        for name, value in variables.items()
    }


def _expanded(template: str, variables: Mapping[str, Value]) -> str:
    """Expand as `expand_template` does. The path of a `file` URI without an authority is absolute (RFC 8089)."""
    first = re.match(r"file://\{\+([^},:*]+)\}", template)
    if first is not None:
        value = variables.get(first[1])
        if isinstance(value, str) and not value.startswith("/"):
            variables = {**variables, first[1]: "/" + value}
    return expand_template(template, variables)


def _values(raw: list[tuple[Bound, str]]) -> dict[str, Value] | None:
    """Return the variables' values, or None if they contradict each other or are no text."""
    values: dict[str, Value] = {}
    for bound, text in raw:
        try:
            value = bound.value(text or "")
        except ValueError:
            return None
        if values.setdefault(bound.name, value) != value:
            return None
    return values


def _asked(query: TemplateQuery, text: str) -> dict[str, Value] | None:
    """Return the values in a query, or None if the template has no such query."""
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


def _split_query(parts: Sequence[Atom]) -> tuple[list[Atom], TemplateQuery | None]:
    """Return the template without its query, and the query. A fragment after a query belongs to it."""
    for index, part in enumerate(parts):
        if isinstance(part, Expression) and part.operator and part.operator in "?&":
            return list(parts[:index]), _query("", parts[index:])
        if isinstance(part, str) and "?" in part:
            before, _, after = part.partition("?")
            rest = parts[index + 1 :]
            queried = any(isinstance(other, Expression) and other.operator in ("?", "&") for other in rest)
            if not queried and (after or rest):  # a `?` at the very end is an empty query
                continue
            return [*parts[:index], *([before] if before else [])], _query(after, rest)
    return list(parts), None


def _query(text: str, parts: Sequence[Atom]) -> TemplateQuery:
    variables: list[Variable] = []
    for part in parts:
        if isinstance(part, str):
            text += part
        elif part.operator and part.operator in "?&":
            variables += part.variables
        else:
            raise InvalidUri(f"{part.text} in a query has no place in a path")
    return TemplateQuery(tuple(filter(None, text.split("&"))), tuple(variables))


def _segments(parts: Sequence[Atom]) -> tuple[tuple[Segment, ...], str]:
    """Return the components of the template's paths, and the text that their ends count in. Raise InvalidUri."""
    scheme, upto, atoms = _scheme(list(parts))
    made = [scheme]
    current: list[Atom] = []

    def close() -> None:
        if current:
            made.append(_segment(current, len(upto)))
            current.clear()
        if len(made) > MAX_SEGMENTS:
            raise InvalidUri(f"template of more than {MAX_SEGMENTS} segments: '{upto[:100]}…'")

    for atom in atoms:
        if isinstance(atom, str):
            for index, text in enumerate(atom.split("/")):
                if index:
                    close()
                    upto += "/"
                if text:
                    current.append(text)
                    upto += text
        elif atom.operator == "/":
            for variable in atom.variables:
                close()
                one = Expression(f"{{/{variable.name}{variable.modifier}}}", "/", (variable,))
                current.append(one)
                upto += one.text
        else:
            current.append(atom)
            upto += atom.text
    close()
    return tuple(made), upto


def _scheme(parts: list[Atom]) -> tuple[Segment, str, list[Atom]]:
    """Return the segment of the scheme, the template's text up to its end, and the rest."""
    first = parts[0] if parts else ""
    if isinstance(first, str):
        found = _SCHEME.match(first)
        if found is None:
            return Segment(NO_SCHEME, None, (), False, 0), "", parts
        rest = first[found.end() :]
        name = show_component(found[1])
        return Segment(name, None, (), False, found.end()), found.group(), [*([rest] if rest else []), *parts[1:]]
    following = parts[1] if len(parts) > 1 else ""
    found = _AFTER_SCHEME.match(following) if isinstance(following, str) else None
    if found is None or first.operator not in ("", "+"):
        return Segment(NO_SCHEME, None, (), False, 0), "", parts
    assert isinstance(following, str)
    opening = first.text + found.group()
    segment = _segment([first], len(opening))
    rest = following[found.end() :]
    return segment, opening, [*([rest] if rest else []), *parts[2:]]


def _segment(atoms: Sequence[Atom], end: int) -> Segment:
    if all(isinstance(atom, str) for atom in atoms):
        return Segment(show_component("".join(map(str, atoms))), None, (), False, end)
    pieces: list[Piece] = []
    bounds: list[Bound] = []
    many = False
    for atom in atoms:
        if isinstance(atom, str):
            pieces.append(Piece("text", re.escape(hide_component(unquote(atom)))))
            continue
        made, bound, holds_slashes = _expression(atom)
        pieces += made
        bounds += bound
        many = many or holds_slashes
    return Segment(None, _compiled(pieces), tuple(bounds), many, end, tuple(pieces))


def _expression(expression: Expression) -> tuple[list[Piece], list[Bound], bool]:
    """Return the pieces of an expression, the variables of its groups, and whether it may hold slashes."""
    operator = expression.operator
    pieces: list[Piece] = []
    bounds: list[Bound] = []
    many = False
    if operator == "#":
        pieces.append(Piece("text", "#"))
    for position, (name, modifier) in enumerate(expression.variables):
        explode, limit = modifier == "*", int(modifier[1:]) if modifier.startswith(":") else 0
        if position and operator in ("", "+", "#"):
            pieces.append(Piece("text", ","))
        form = "text"
        match operator:
            case "+" | "#":
                pieces.append(Piece("any", f"({_MANY})"))
                form, many = "reserved", True
            case "" if explode:
                pieces.append(Piece("any", f"({_MANY})"))
                many = True
            case "/" if explode:
                pieces.append(Piece("any", f"({_MANY})"))
                form, many = "segments", True
            case "." if explode:
                pieces.append(Piece("own", r"((?:\.[^/.]+)+)"))
                form = "labels"
            case ";" if explode:
                pieces.append(Piece("own", f"((?:;{re.escape(name)}=[^/;]*)+)"))
                form = "parameters"
            case ".":
                pieces += [Piece("text", r"\."), Piece("one", f"({_ONE})")]
            case ";":
                pieces += [Piece("text", f";{re.escape(name)}"), Piece("own", "(?:=([^/;]*))?")]
            case _:
                pieces.append(Piece("one", f"({_ONE})"))
        bounds.append(Bound(name, form, limit))
    return pieces, bounds, many


def _compiled(pieces: Sequence[Piece]) -> re.Pattern[str]:
    """Return the regular expression of pieces. Its time is bounded for every text. Raise InvalidUri.

    Where variables could divide a text in many ways, each ends at the first place where its follower matches, and stays
    so (an atomic group). No match is lost if the next variable may hold all that this variable may: it takes the rest.
    """
    regex, ambiguous = "", 0
    rest = list(pieces)
    while rest:
        piece = rest.pop(0)
        if piece.kind == "text":
            regex += piece.regex
            continue
        end = next((i for i, other in enumerate(rest) if other.kind != "text"), None)
        if end is None:
            regex += piece.regex
            continue
        literal, following = "".join(other.regex for other in rest[:end]), rest[end]
        if piece.kind != "own" and (following.kind == "any" or piece.kind == following.kind == "one"):
            regex += f"(?>{piece.regex}{literal})"
            del rest[:end]
            continue
        parameters = piece.kind == "own" and (literal + following.regex).startswith((";", "((?:;"))
        ambiguous += not parameters
        regex += piece.regex
    if ambiguous > 1:
        raise InvalidUri("a template of which one name could be read in too many ways")
    return re.compile(regex, re.DOTALL)


def _rest_of(row: Sequence[Segment]) -> re.Pattern[str]:
    """Return one regular expression for all components from the component whose value may hold slashes."""
    pieces: list[Piece] = []
    for segment in row:
        if pieces:
            pieces.append(Piece("text", "/"))
        if segment.name is not None:
            pieces.append(Piece("text", re.escape(hide_component(segment.name))))
        pieces += segment.pieces
    return _compiled(pieces)
