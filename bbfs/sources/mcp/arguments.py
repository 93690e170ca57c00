"""Conversion of the texts of a query to the values that the schema of a tool wants. Pure.

A property of a tool's `inputSchema` (JSON Schema) is a variable of its URI template, and its value in the query is a
text. The property's type decides how the text is read, strictly, so that a mistake fails before a request is sent:

- string: the unchanged text. integer, number, boolean, null: as in JSON.
- array: JSON, or the variable repeated, or items with commas between them if these are no objects or arrays.
- object: JSON.
- enum and const: one of these. anyOf, oneOf and lists of types: the first that fits, in their order.
- no type: JSON if the text is valid JSON, otherwise the text.

References (`$ref`) are followed within the schema only, and nothing is fetched. The server checks bounds and patterns:
a hostile `pattern` could take for ever.
"""

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any
from urllib.parse import quote, unquote

from bbfs.model.errors import InvalidUri
from bbfs.model.uri import encodable
from bbfs.sources.mcp.client.tool_entries import PromptEntry, ToolEntry

MAX_DEPTH = 16
"""Nested references and alternatives; a deeper one counts as a property without a type."""
MAX_STEPS = 500
"""Schemas to visit for one argument: nested alternatives can multiply without limit."""
_MAX_MERGED = 2000
"""References and parts of `allOf` that are followed for all arguments of a tool."""
MAX_SHOWN = 60
"""Characters of a wrong value in a message."""
MAX_NUMBER = 400
"""Characters of a number."""
_MAX_VALUES = 50
"""Values of an enumeration in a text."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SCALARS = {"true": True, "false": False, "null": None}
_KNOWN = frozenset(("string", "integer", "number", "boolean", "null", "array", "object"))
_KEYWORDS = (
    "$ref", "type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "allOf",
    "title", "description", "default", "examples", "example",
)  # fmt: skip
_ARTICLES = {"array": "an array", "array of object": "an array of objects (JSON)", "object": "an object (JSON)"}


class _Steps:
    """The number of schemas that may still be visited."""

    __slots__ = ("left",)

    def __init__(self, most: int = MAX_STEPS) -> None:
        self.left = most

    def take(self) -> bool:
        self.left -= 1
        return self.left >= 0


class _Misfit(Exception):
    """A text that does not fit a schema; the text of the exception says what does."""


def variable_of(property_name: str) -> str | None:
    """Return the variable of a URI template (RFC 6570, section 2.3) for a property, or None if no variable can have its
    name."""
    if not property_name or not encodable(property_name):
        return None
    # A dot may stand between other characters only, a tilde nowhere; encoded characters may stand anywhere.
    encoded = quote(property_name, safe="").replace("~", "%7E")
    return re.sub(r"^\.|\.$|\.(?=\.)", "%2E", encoded)


def properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the schemas of a tool's arguments by name, in order, with references resolved."""
    found = resolved(schema, schema).get("properties")
    if not isinstance(found, Mapping):
        return {}
    steps = _Steps(_MAX_MERGED)
    return {str(name): resolved(each, schema, steps) for name, each in found.items()}


def required(schema: Mapping[str, Any]) -> tuple[str, ...]:
    names = resolved(schema, schema).get("required")
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def takes_several(schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Return whether an argument may be a list, so that its variable may be repeated."""
    return any("array" in _types(each) for each in _alternatives(schema, root))


def takes_text(schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Return whether an argument may be any text, not only one of some values."""
    found = [each for each in _alternatives(schema, root) if _fixed(each) is None]
    return any("string" in _types(each) or not _types(each) for each in found)


def type_text(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0, steps: _Steps | None = None) -> str:
    """Describe the type of an argument: `integer`, `array of string`, `one of a, b`, `string or null`."""
    steps = steps or _Steps()
    if not steps.take():
        return "anything"
    schema = resolved(schema, root)
    if (fixed := _fixed(schema)) is not None:
        values = ", ".join(as_text(value)[:MAX_SHOWN] or "nothing" for value in fixed[:_MAX_VALUES])
        values += ", …" if len(fixed) > _MAX_VALUES else ""
        return f"one of {values}" if len(fixed) > 1 else values
    texts = []
    for each in _alternatives(schema, root) if depth < MAX_DEPTH else ():
        if each is not schema:
            texts.append(type_text(each, root, depth + 1, steps))
            continue
        items = each.get("items")
        of_what = f" of {type_text(items, root, depth + 1, steps)}" if isinstance(items, Mapping) and items else ""
        texts += [name + of_what if name == "array" else name for name in _types(each)]
    return " or ".join(dict.fromkeys(texts)) or "anything"


def tool_arguments(tool: ToolEntry, query: str) -> dict[str, Any]:
    """Return the arguments of a call from the query of its URI. Raises InvalidUri, which names all problems."""
    given, problems = _given(query, properties(tool.input_schema), f"tool {tool.name!r}")
    return _converted(tool, given, {}, problems)


def call_arguments(tool: ToolEntry, texts: Mapping[str, Sequence[str]], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call from their texts, and from values that need no conversion. Raises InvalidUri."""
    known = properties(tool.input_schema)
    unknown = [name for name in texts if name not in known]
    # A schema without properties, or with others allowed, describes no argument that JSON may not have.
    if known and not tool.input_schema.get("additionalProperties"):
        unknown += [name for name in given if name not in known]
    problems = [f"there is no argument {_shown(name)}{suggestion(name, known)}" for name in unknown]
    problems += [f"argument {_shown(name)} is given twice" for name in texts if name in given]
    return _converted(tool, {name: each for name, each in texts.items() if name in known}, given, problems)


def value(schema: Mapping[str, Any], text: str, root: Mapping[str, Any]) -> Any:
    """Return the value of one argument from its text. Raises InvalidUri."""
    try:
        return _value(schema, [text], root, 0, _Steps())
    except _Misfit as misfit:
        raise InvalidUri(f"should be {misfit}, not {_shown(text)}") from None


def fitted(tool: ToolEntry, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments in which a text is a number or a boolean where the tool takes no text. Raises InvalidUri."""
    root = tool.input_schema
    known = {name: each for name, each in properties(root).items() if isinstance(given.get(name), str)}
    texts = {name: given[name] for name, each in known.items() if _types(each) and not takes_text(each, root)}
    return {**given, **{name: value(known[name], text, root) for name, text in texts.items()}}


def _converted(
    tool: ToolEntry, texts: Mapping[str, Sequence[str]], given: Mapping[str, Any], problems: list[str]
) -> dict[str, Any]:
    root = tool.input_schema
    known = properties(root)
    values: dict[str, Any] = dict(given)
    for name, texts_of_one in texts.items():
        if len(texts_of_one) > 1 and not takes_several(known[name], root):
            problems.append(f"argument {name!r} is given {len(texts_of_one)} times")
            continue
        try:
            values[name] = _value(known[name], texts_of_one, root, 0, _Steps())
        except _Misfit as misfit:
            problems.append(f"argument {name!r} should be {misfit}, not {_shown(', '.join(texts_of_one))}")
    problems += _missing(required(root), {**texts, **given})
    _require_none(f"tool {tool.name!r}", problems)
    return values


def prompt_arguments(prompt: PromptEntry, query: str) -> dict[str, str]:
    """Return the arguments of a prompt, all texts, from the query of its URI. Raises InvalidUri."""
    given, problems = _given(query, prompt.input_schema["properties"], f"prompt {prompt.name!r}")
    problems += [f"argument {name!r} is given {len(texts)} times" for name, texts in given.items() if len(texts) > 1]
    problems += _missing(prompt.input_schema["required"], given)
    _require_none(f"prompt {prompt.name!r}", problems)
    return {name: texts[0] for name, texts in given.items()}


def _given(query: str, known: Mapping[str, Any], what: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return the texts of each argument in a query, and the problems of the query itself."""
    given: dict[str, list[str]] = {}
    problems: list[str] = []
    if "/" in query:
        # It could also be a path below the result.
        raise InvalidUri(
            f"{what}: write a slash in an argument as %2F; here it could also lead to a part of the result"
        )
    for pair in filter(None, query.split("&")):
        key, equals, encoded = pair.partition("=")
        try:
            name, text = unquote(key, errors="strict"), unquote(encoded, errors="strict")
        except UnicodeDecodeError:
            problems.append(f"{_shown(pair)} is not UTF-8")
            continue
        if name not in known:
            problems.append(f"there is no argument {_shown(name)}{suggestion(name, known)}")
        elif not equals:
            problems.append(f"argument {name!r} has no value (write {name}=…)")
        else:
            given.setdefault(name, []).append(text)
    return given, problems


def suggestion(name: str, known: Mapping[str, Any]) -> str:
    """Return what to add to a message about a name that is not known."""
    if not known:
        return "; it takes none"
    close = get_close_matches(name.lower(), {each.lower(): each for each in known}, n=1)
    if close:
        return f"; did you mean {next(each for each in known if each.lower() == close[0])!r}?"
    return f"; there are: {', '.join(list(known)[:20])}"


def _missing(needed: Sequence[str], given: Mapping[str, Any]) -> list[str]:
    missing = [name for name in needed if name not in given]
    return [f"needed but not given: {', '.join(missing)}"] if missing else []


def _require_none(what: str, problems: Sequence[str]) -> None:
    if problems:
        raise InvalidUri(f"{what}: {'; '.join(problems)}")


def _value(schema: Mapping[str, Any], texts: Sequence[str], root: Mapping[str, Any], depth: int, steps: _Steps) -> Any:
    """Convert the texts of one argument. Raises _Misfit."""
    if not steps.take():
        raise _Misfit("something simpler")
    schema = resolved(schema, root)
    fixed = _fixed(schema)
    if fixed is not None:
        for value in fixed:
            if len(texts) == 1 and texts[0] in (value, as_text(value)):
                return value
        raise _Misfit(type_text(schema, root))
    alternatives = _alternatives(schema, root) if depth < MAX_DEPTH else [{}]
    for each in alternatives:
        try:
            if each is not schema:
                return _value(each, texts, root, depth + 1, steps)
            for name in _types(each) or ("anything",):
                try:
                    return _of_type(name, each, texts, root, depth, steps)
                except _Misfit:
                    continue
        except _Misfit:
            continue
    raise _Misfit(_with_article(type_text(schema, root)))


def _with_article(text: str) -> str:
    """Return a type in words after its article."""
    first = text.partition(" ")[0]
    return _ARTICLES.get(text) or (f"{'an' if text[:1] in 'aio' else 'a'} {text}" if first in _KNOWN else text)


def _of_type(
    name: str, schema: Mapping[str, Any], texts: Sequence[str], root: Mapping[str, Any], depth: int, steps: _Steps
) -> Any:
    if name == "array":
        return _array(schema, texts, root, depth, steps)
    if len(texts) != 1:
        raise _Misfit(name)
    text = texts[0]
    match name:
        case "string":
            return text
        case "integer" if len(text) <= MAX_NUMBER and _INTEGER.fullmatch(text):
            return int(text)
        case "number" if len(text) <= MAX_NUMBER and _NUMBER.fullmatch(text):
            return _json(text)
        case "boolean" if text in ("true", "false"):
            return _SCALARS[text]
        case "null" if text == "null":
            return None
        case "object" if isinstance(value := _json(text), dict):
            return value
    if name in _KNOWN:
        raise _Misfit(name)
    try:
        return _json(text)
    except _Misfit:
        return text


def _array(
    schema: Mapping[str, Any], texts: Sequence[str], root: Mapping[str, Any], depth: int, steps: _Steps
) -> list[Any]:
    if len(texts) == 1 and texts[0].lstrip()[:1] == "[":
        value = _json(texts[0])
        if isinstance(value, list):
            return value
    items = schema.get("items")
    items = resolved(items if isinstance(items, Mapping) else {}, root)
    if not {"array", "object"}.isdisjoint(name for each in _alternatives(items, root) for name in _types(each)):
        raise _Misfit("an array (JSON)")
    if len(texts) == 1:
        texts = texts[0].split(",") if texts[0] else []
    steps.left += len(texts)
    return [_value(items, [text], root, depth + 1, steps) for text in texts]


def _json(text: str) -> Any:
    """Return the value of a JSON text. Raises _Misfit if it is not JSON or cannot be sent."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        value = json.loads(text, parse_constant=refuse)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise _Misfit("JSON") from error
    return value


def resolved(schema: Any, root: Mapping[str, Any], steps: _Steps | None = None) -> Mapping[str, Any]:
    """Return a schema with its references within `root` followed and its `allOf` merged, as far as `steps` last."""
    steps = steps or _Steps()
    for _ in range(MAX_DEPTH):
        if not isinstance(schema, Mapping) or not steps.take():
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            break
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        target = _pointed(reference, root)
        schema = _merged(target, beside) if isinstance(target, Mapping) else beside
    parts = schema.get("allOf")
    if isinstance(parts, list) and "type" not in schema:
        merged: dict[str, Any] = {}
        for part in parts:
            if not steps.take():
                break
            target = _pointed(part["$ref"], root) if isinstance(part, Mapping) and "$ref" in part else part
            merged = _merged(merged, target) if isinstance(target, Mapping) else merged
        return _merged(merged, {key: value for key, value in schema.items() if key != "allOf"})
    return schema


def _merged(schema: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of both schemas that bbfs reads.

    Others are not copied: a schema may refer to a large one from each of a thousand arguments.
    """
    return {key: each[key] for each in (schema, over) for key in _KEYWORDS if key in each}


def _pointed(reference: Any, root: Mapping[str, Any]) -> Any:
    """Return the target of a reference within `root`, or None; nothing is fetched."""
    is_inside = isinstance(reference, str) and reference.startswith("#")
    return pointed(root, unquote(reference[1:])) if is_inside else None


def pointed(value: Any, pointer: str) -> Any:
    """Return the value that a JSON pointer (RFC 6901) names, or None if there is none."""
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list):
            value = value[int(step)] if step.isdecimal() and len(step) < 10 and int(step) < len(value) else None
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _alternatives(schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the alternatives of anyOf and oneOf, or the schema itself if it has none."""
    found: list[Any] = []
    for key in ("anyOf", "oneOf"):
        each = schema.get(key)
        found += each if isinstance(each, list) else []
    return [resolved(each, root) for each in found] or [schema]


def _types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the types that a schema names, or that its other keywords imply."""
    named = schema.get("type")
    if isinstance(named, str):
        return (named,)
    if isinstance(named, list):
        return tuple(name for name in named if isinstance(name, str))
    if "properties" in schema:
        return ("object",)
    return ("array",) if "items" in schema else ()


def _fixed(schema: Mapping[str, Any]) -> list[Any] | None:
    """Return the allowed values if a schema lists them, or None."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) and values else None


def as_text(value: Any) -> str:
    """Return a value as text for a query: a text unchanged, another value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shown(text: str) -> str:
    return repr(text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…")


def choices(schema: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the values that an argument allows besides null, as texts, up to a bound; none if it is free."""
    found: list[Any] = []
    for each in _alternatives(schema, root):
        values = ("true", "false") if _types(each) == ("boolean",) else _fixed(each)
        if values is None and _types(each) != ("null",):
            return ()
        found += (values or ())[:_MAX_VALUES]
    return tuple(as_text(value)[: 4 * MAX_SHOWN] for value in found[:_MAX_VALUES])
