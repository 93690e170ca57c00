"""URI templates (RFC 6570, all four levels) with the rules that bbfs adds for paths. Pure.

Expansion itself is the `uritemplate` library's. The MCP SDK's own `UriTemplate` falls short: it refuses `{path*}` (the
wildcard most Python servers write), `{v:3}`, `{?q*}` and names with `-`. `uritemplate` in turn takes anything for a
template, so braces, operators, names and modifiers are checked here. `-` in a name is accepted beyond the RFC, because
servers use it.

Rules on top of the RFC:
- Templates of bbfs's own sources (`bb-…`): a simple `{var}` keeps the slashes of its value, which is a path there; and
  a `/` in front of the expression meets a leading `/` of the value in one slash (`file:./{path}` with `/src` is
  `file:./src`, `memory://{path}` with it `memory://src`; but `file://{path}` is `file:///src`, since a file's authority
  may be empty). Likewise for `{+var}`.
- All other templates: the RFC to the letter, but that `{path*}` with a text (not a list) keeps its slashes. Servers
  match it against the rest of the path and percent-decode what they matched, so all else is encoded, unlike in
  `{+path}`.
- Query variables (`{?q}`, `{&q}`) may be left out, all others must be given, and nothing may be given that the template
  does not have.

`..` segments in a value are expanded as they are: the source that opens a path decides how far it may reach.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

from uritemplate import URITemplate

from bbfs.model.errors import InvalidUri

Value: TypeAlias = str | Sequence[str]

LONGEST = 1 << 16
"""Characters of all values at their places in a template: a short template can repeat a long value many times."""
_OPERATORS = "+#./;?&"
_OPTIONAL = "?&"
_VARIABLE = re.compile(
    r"(?P<name>(?:[A-Za-z0-9_-]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_-]|%[0-9A-Fa-f]{2}))*)"
    r"(?P<modifier>\*|:[1-9][0-9]{0,3})?"
)
_RESERVED = ":/?#[]@!$&'()*+,;="  # RFC 3986, section 2.2
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Variable(NamedTuple):
    """`name` with its modifier: none, `*`, or `:` and a number."""

    name: str
    modifier: str


class Expression(NamedTuple):
    """`{…}` as it is written, its operator (empty for the simple form) and its variables."""

    text: str
    operator: str
    variables: tuple[Variable, ...]


def template_variables(template: str) -> tuple[str, ...]:
    """Return the names of a template's variables, each once, in order. Raise InvalidUri for a malformed template."""
    return tuple(dict.fromkeys(variable.name for variable in _variables(parse_template(template))))


def expand_template(template: str, values: Mapping[str, Value]) -> str:
    """Expand a URI template, with or without a bbfs prefix (which stays untouched).

    Raise InvalidUri, naming the part or the variables, for a malformed template, for variables that are missing or
    unknown, for values that cannot stand in a URI (lone surrogates, a list where `{v:3}` wants a text), and for more
    than `LONGEST` characters.
    """
    parts = parse_template(template)
    _check_names(template, parts, values)
    room = LONGEST
    for variable in _variables(parts):
        room -= _check_value(template, variable, values.get(variable.name, ""))
        if room < 0:
            raise InvalidUri(f"template {template[:100]!r}: more than {LONGEST} characters of values")
    paths = template.startswith("bb-")
    result = ""
    for part in parts:
        if isinstance(part, str):
            result += part
            continue
        text = _expand(part, values, keep_slashes=paths)
        if paths and part.operator in ("", "+") and result.endswith("/") and not result.endswith("file://"):
            text = text.lstrip("/")
        result += text
    return result


def _expand(expression: Expression, values: Mapping[str, Value], *, keep_slashes: bool) -> str:
    if expression.operator == "":
        given = [v for v in expression.variables if _is_defined(values[v.name])]
        return ",".join(_expand_simple(variable, values[variable.name], keep_slashes) for variable in given)
    text = URITemplate(expression.text).expand({name: _plain(value) for name, value in values.items()})
    if expression.operator in "+#":
        # RFC 6570, section 3.2.3: triplets of a value stay, all else that is illegal is encoded, a lone `%` too.
        # uritemplate leaves a value that holds a triplet wholly as it is.
        text = _STRAY_PERCENT.sub("%25", quote(text, safe=_RESERVED + "%"))
    return text


def _expand_simple(variable: Variable, value: Value, keep_slashes: bool) -> str:
    text = URITemplate(f"{{{variable.name}{variable.modifier}}}").expand({variable.name: _plain(value)})
    wildcard = variable.modifier == "*" and isinstance(value, str)
    # A `%2F` of the value itself has become `%252F`, so this one stands for a slash.
    return text.replace("%2F", "/") if keep_slashes or wildcard else text


def _plain(value: Value) -> str | list[str]:
    return value if isinstance(value, str) else list(value)


def _check_names(template: str, parts: list[str | Expression], values: Mapping[str, Value]) -> None:
    known = {variable.name for variable in _variables(parts)}
    needed = {variable.name for variable in _variables([p for p in parts if not _is_optional(p)])}
    if unknown := sorted(values.keys() - known):
        raise InvalidUri(f"template {template!r} has no {_listed(unknown)}; it has {_listed(known)}")
    if missing := sorted(needed - values.keys()):
        raise InvalidUri(f"template {template!r} needs {_listed(missing)}; given: {_listed(values)}")


def _check_value(template: str, variable: Variable, value: Value) -> int:
    """Return the number of characters of a value. Raise InvalidUri."""
    if variable.modifier.startswith(":") and not isinstance(value, str):
        raise InvalidUri(f"template {template!r}: {variable.name}{variable.modifier} takes a text, not a list")
    texts = (value,) if isinstance(value, str) else value
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidUri(f"template {template!r}: the value of {variable.name} is not valid Unicode") from error
    return sum(map(len, texts))


def _is_optional(part: str | Expression) -> bool:
    return isinstance(part, Expression) and part.operator != "" and part.operator in _OPTIONAL


def _is_defined(value: Value) -> bool:
    return isinstance(value, str) or len(value) > 0  # RFC 6570, section 2.3: an empty list counts as undefined


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "no variables"


def _variables(parts: Sequence[str | Expression]) -> list[Variable]:
    return [variable for part in parts if isinstance(part, Expression) for variable in part.variables]


def parse_template(template: str) -> list[str | Expression]:
    """Return the template's literals and expressions in order. Raise InvalidUri."""
    parts: list[str | Expression] = []
    position = 0
    while position < len(template):
        start = template.find("{", position)
        literal = template[position : start if start >= 0 else None]
        if "}" in literal:
            raise _malformed(template, "'}' without '{'", position + literal.index("}"))
        if literal:
            parts.append(literal)
        if start < 0:
            break
        end = template.find("}", start)
        if end < 0:
            raise _malformed(template, "'{' without '}'", start)
        parts.append(_parse_expression(template, start, template[start : end + 1]))
        position = end + 1
    return parts


def _parse_expression(template: str, start: int, text: str) -> Expression:
    body = text[1:-1]
    if not body:
        raise _malformed(template, "an empty expression", start)
    operator = body[0] if body[0] in _OPERATORS else ""
    if body[0] in "=,!@|":  # set aside by RFC 6570, section 2.2
        raise _malformed(template, f"the reserved operator {body[0]!r}", start)
    variables: list[Variable] = []
    for spec in body.removeprefix(operator).split(","):
        match = _VARIABLE.fullmatch(spec)
        if match is None:
            raise _malformed(template, f"an illegal variable {spec!r}", start)
        variables.append(Variable(match["name"], match["modifier"] or ""))
    return Expression(text, operator, tuple(variables))


def _malformed(template: str, problem: str, position: int) -> InvalidUri:
    return InvalidUri(f"malformed template {template!r}: {problem} at character {position + 1}")
