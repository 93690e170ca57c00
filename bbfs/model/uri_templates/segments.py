"""URI templates taken apart: the components of the paths that one makes, and the regular expression of each. Pure.

`bbfs.model.uri_templates.match` reads paths with them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple
from urllib.parse import unquote

from bbfs.model.errors import InvalidUri
from bbfs.model.file_names import hide_component, show_component
from bbfs.model.uri import NO_SCHEME
from bbfs.model.uri_templates.expand import Expression, Value, Variable

Atom = str | Expression

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://)?")
_AFTER_SCHEME = re.compile(r":(?://)?")
_ONE = r"[^/]+?"
_MANY = r".+?"


@dataclass(frozen=True, slots=True)
class Segment:
    """One component of a template's paths.

    name: of a literal one, as shown. regex: for any other, over the encoded component (for `many`, over the rest of
    the path); a group a variable. upto: the template up to its end, for names that only it decides. pieces: what the
    regex is made of.
    """

    name: str | None
    regex: re.Pattern[str] | None
    variables: tuple["Bound", ...]
    many: bool
    upto: str
    pieces: tuple["Piece", ...] = ()

    @property
    def only_variable(self) -> str | None:
        """The variable of a segment that has one alone."""
        names = {bound.name for bound in self.variables}
        return names.pop() if len(names) == 1 else None


class Piece(NamedTuple):
    """A part of a regular expression: `text` as it is, a variable that takes as little as it can (`one` component,
    `any` text), or an expression with a form of its `own`."""

    kind: Literal["text", "one", "any", "own"]
    regex: str


class Bound(NamedTuple):
    """How the text of a regular expression's group becomes the value of a variable."""

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


class Query(NamedTuple):
    """The query of a template: what stands in it as text, and the variables that it may have."""

    fixed: tuple[str, ...]
    variables: tuple[Variable, ...]


def split_query(parts: Sequence[Atom]) -> tuple[list[Atom], Query | None]:
    """The template without its query, and the query. What follows a query (a fragment) belongs to it."""
    for index, part in enumerate(parts):
        if isinstance(part, Expression) and part.operator and part.operator in "?&":
            return list(parts[:index]), _query("", parts[index:])
        if isinstance(part, str) and "?" in part:
            before, _, after = part.partition("?")
            rest = parts[index + 1 :]
            queried = any(isinstance(other, Expression) and other.operator in ("?", "&") for other in rest)
            if not queried and (after or rest):  # a `?` at the very end is a query that has nothing to ask for
                continue
            return [*parts[:index], *([before] if before else [])], _query(after, rest)
    return list(parts), None


def _query(text: str, parts: Sequence[Atom]) -> Query:
    variables: list[Variable] = []
    for part in parts:
        if isinstance(part, str):
            text += part
        elif part.operator and part.operator in "?&":
            variables += part.variables
        else:
            raise InvalidUri(f"{part.text} in a query has no place in a path")
    return Query(tuple(filter(None, text.split("&"))), tuple(variables))


def segments(parts: Sequence[Atom]) -> tuple[Segment, ...]:
    """The components of the template's paths."""
    scheme, upto, atoms = _scheme(list(parts))
    made = [scheme]
    current: list[Atom] = []

    def close() -> None:
        if current:
            made.append(_segment(current, upto))
            current.clear()

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
    return tuple(made)


def _scheme(parts: list[Atom]) -> tuple[Segment, str, list[Atom]]:
    """The segment of the scheme, the template's text up to the end of it, and the rest."""
    first = parts[0] if parts else ""
    if isinstance(first, str):
        found = _SCHEME.match(first)
        if found is None:
            return Segment(NO_SCHEME, None, (), False, ""), "", parts
        rest = first[found.end() :]
        name = show_component(found[1])
        return Segment(name, None, (), False, found.group()), found.group(), [*([rest] if rest else []), *parts[1:]]
    following = parts[1] if len(parts) > 1 else ""
    found = _AFTER_SCHEME.match(following) if isinstance(following, str) else None
    if found is None or first.operator not in ("", "+"):
        return Segment(NO_SCHEME, None, (), False, ""), "", parts
    assert isinstance(following, str)
    opening = first.text + found.group()
    segment = _segment([first], opening)
    rest = following[found.end() :]
    return segment, opening, [*([rest] if rest else []), *parts[2:]]


def _segment(atoms: Sequence[Atom], upto: str) -> Segment:
    if all(isinstance(atom, str) for atom in atoms):
        return Segment(show_component("".join(map(str, atoms))), None, (), False, upto)
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
    return Segment(None, _compiled(pieces), tuple(bounds), many, upto, tuple(pieces))


def _expression(expression: Expression) -> tuple[list[Piece], list[Bound], bool]:
    """The pieces of an expression, its groups' variables, and whether it may hold slashes."""
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
    """The regular expression of pieces, whose time is bounded whatever text it is given. Raises InvalidUri.

    Of variables that could share out a text in many ways, each ends where what follows it is first found and stays so
    (an atomic group). That loses no match where the next variable may hold all that this one may: it takes the rest.
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


def rest_of(row: Sequence[Segment]) -> re.Pattern[str]:
    """All that follows where one value may hold slashes, as one regular expression over the components."""
    pieces: list[Piece] = []
    for segment in row:
        if pieces:
            pieces.append(Piece("text", "/"))
        if segment.name is not None:
            pieces.append(Piece("text", re.escape(hide_component(segment.name))))
        pieces += segment.pieces
    return _compiled(pieces)
