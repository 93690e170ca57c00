"""The templates of a map: which paths a rule is for, the arguments of its calls, the lines of an answer. Pure.

They are written as URI templates (RFC 6570), of which they have `{name}` and `{+name}` alone. A value stands in them as
it is, without percent-encoding: it is no part of a URI. A text is compared with a template by searches for its literal
parts, so the time is linear in the text, whatever a server answers.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from bbfs.model.errors import InvalidUri
from bbfs.model.uri_templates.expand import Expression, parse_template

Path = tuple[str, ...]
ANY = "any"
"""The variable whose value nothing uses: `{any}` may stand for several texts."""
NAME = "name"
"""In a line, this variable takes as much as it can."""
OWN = ("path", NAME, "stem", "folder")
"""The variables that every path has: the whole path, its last name with and without extension, the path without it."""


def variables_of(value: Any) -> set[str]:
    """Return the variables in the texts of a value of JSON. Raise InvalidUri for a malformed template."""
    if isinstance(value, str):
        return {name for part in parse_template(value) if isinstance(part, Expression) for name in [_variable(part)]}
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return set().union(*map(variables_of, items))


def filled(value: Any, values: Mapping[str, Any]) -> Any:
    """Return a value of JSON with the values of its variables. A text that is one variable becomes its very value."""
    if isinstance(value, str):
        parts = [values[_variable(part)] if isinstance(part, Expression) else part for part in parse_template(value)]
        return parts[0] if len(parts) == 1 else "".join(map(str, parts))
    if isinstance(value, Mapping):
        return {key: filled(item, values) for key, item in value.items()}
    return [filled(item, values) for item in value] if isinstance(value, list | tuple) else value


def _variable(part: Expression) -> str:
    if part.operator not in ("", "+") or len(part.variables) != 1 or part.variables[0].modifier:
        raise InvalidUri(f"{part.text}: a map has {{name}} and {{+name}} alone")
    return part.variables[0].name


@dataclass(frozen=True, slots=True)
class Form:
    """A text with variables in it. literals: the texts before, between and after the variables `names`."""

    literals: tuple[str, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, template: str) -> "Form":
        """Return the form of a template. Raise InvalidUri if it is malformed, or has no text between two variables."""
        literals, names = [""], list[str]()
        for part in parse_template(template):
            if isinstance(part, str):
                literals[-1] += part
                continue
            if names and not literals[-1]:
                raise InvalidUri(f"template {template!r}: there has to be a text between two variables")
            names.append(_variable(part))
            literals.append("")
        return cls(tuple(literals), tuple(names))

    def match(self, text: str) -> dict[str, str] | None:
        """Return the values of the variables in a text, or None if it has another form.

        `name`, else the last variable, takes as much as it can; the others take as little. Only `any` may be empty.
        """
        first, last = self.literals[0], self.literals[-1]
        if not self.names:
            return {} if text == first else None
        start, end = len(first), len(text) - len(last)
        if end < start or not (text.startswith(first) and text.endswith(last)):
            return None
        found: list[tuple[str, str]] = []
        widest = self.names.index(NAME) if NAME in self.names else len(self.names) - 1
        for name, literal in zip(self.names[:widest], self.literals[1:], strict=False):
            at = text.find(literal, start + (name != ANY), end)
            if at < 0:
                return None
            found.append((name, text[start:at]))
            start = at + len(literal)
        for name, literal in zip(reversed(self.names[widest + 1 :]), reversed(self.literals[1:-1]), strict=False):
            at = text.rfind(literal, start, max(start, end - (name != ANY)))
            if at < 0:
                return None
            found.append((name, text[at + len(literal) : end]))
            end = at
        if end < start + (self.names[widest] != ANY):
            return None
        values: dict[str, str] = {}
        for name, value in (*found, (self.names[widest], text[start:end])):
            if name != ANY and values.setdefault(name, value) != value:
                return None
        return values


class Place:
    """The paths that a rule is for: a template with a segment for each name, of which the last one may be `{+name}`."""

    def __init__(self, template: str) -> None:
        """Raise InvalidUri for a malformed template."""
        segments = template.split("/") if template else []
        self._forms = [Form.of(segment) for segment in segments]
        long = ["{+" in segment for segment in segments]
        if any(long[:-1]):
            raise InvalidUri(f"template {template!r}: only its last name may have a value with slashes")
        self._is_long = bool(long) and long[-1]
        names = [name for form in self._forms for name in form.names if name != ANY]
        self.variables = frozenset(names)
        if reserved := self.variables & {*OWN} - {NAME}:
            raise InvalidUri(f"template {template!r}: every path has {{{min(reserved)}}} already")

    def match(self, path: Path) -> dict[str, str] | None:
        """Return the values of the variables of a path, or None if it is no such path."""
        own = len(self._forms) - self._is_long
        names = [*path[:own], *(["/".join(path[own:])] if self._is_long and len(path) > own else [])]
        if len(path) < len(self._forms) or len(names) != len(self._forms) or (len(path) > own and not self._is_long):
            return None
        values: dict[str, str] = {}
        for form, name in zip(self._forms, names, strict=True):
            found = form.match(name)
            if found is None or any(values.get(key, value) != value for key, value in found.items()):
                return None
            values |= found
        return values


def own_values(path: Path) -> dict[str, str]:
    """Return the values of the variables that every path has."""
    name = path[-1] if path else ""
    return {"path": "/".join(path), NAME: name, "stem": name.rpartition(".")[0] or name, "folder": "/".join(path[:-1])}


def require_known(value: Any, known: Collection[str]) -> None:
    """Raise InvalidUri if a value of JSON has a template that is malformed, or a variable that has no value."""
    if unknown := sorted(variables_of(value) - set(known)):
        there = ", ".join(f"{{{name}}}" for name in sorted(known))
        raise InvalidUri(f"{{{unknown[0]}}} has no value; there are {there}, and those in the table values")
