"""Parameters of OpenAPI operations as expressions of URI templates (RFC 6570). Pure.

The styles `simple`, `label`, `matrix` and `form` of OpenAPI are operators of the RFC. A `deepObject` has one variable
for each of its properties (`filter[name]`). A list with commas is one text, and `on_the_wire` leaves its commas
unescaped. A list with spaces or bars is one text as well.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, unquote

from bbfs.model.errors import ProtocolViolation
from bbfs.model.redaction import shown
from bbfs.sources.api.document import TOKEN, UNSENDABLE, DocumentNode, is_unicode

_VARIABLE = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
IGNORED_HEADERS = frozenset(("accept", "content-type", "authorization")) | UNSENDABLE
"""OpenAPI, Parameter Object: header parameters with the first three names are ignored."""
_LONGEST_NAME = 255
"""Characters of a parameter's name."""
MAX_PARAMETERS = 500
"""Parameters of one operation."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operation, or one property of a `deepObject`.

    name: as in the URL. variable: its name in the template. style: operator of the template expression; in a path it is
    empty, `.` or `;`. exploded: repeated for each item. commas: holds a list with commas. values: all allowed values,
    if the document enumerates them. samples: some values (examples, the default). type: of the JSON value. dynamic: the
    document's hint at a source of values.
    """

    name: str
    place: Literal["path", "query"]
    variable: str
    required: bool
    style: str = ""
    exploded: bool = False
    commas: bool = False
    type: str | None = None
    values: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    default: Any = None
    dynamic: Mapping[str, Any] = field(default_factory=dict)

    @property
    def expression(self) -> str:
        return f"{self.variable}{'*' if self.exploded else ''}"


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters of an operation. headers: the header parameters with one value in the document. lacking: required
    header and cookie parameters without a value."""

    path: tuple[Parameter, ...]
    query: tuple[Parameter, ...]
    headers: Mapping[str, str]
    lacking: tuple[str, ...]


def parameters(
    path: str, nodes: Iterable[DocumentNode], given_headers: Iterable[str], hidden: Iterable[str]
) -> Parameters:
    """Read the parameters of an operation. nodes: arrays of parameters, of the path item and then of the operation.

    given_headers: names of headers that the configuration sends. hidden: names of query parameters that are secrets.
    """
    declared: dict[tuple[str, str], DocumentNode] = {}
    for node in nodes:
        for _, each in node.items():
            name, place = each.text("name"), each.text("in")
            if (
                name is None
                or len(name) > _LONGEST_NAME
                or not is_unicode(name)
                or place not in ("path", "query", "header", "cookie")
            ):
                raise ProtocolViolation(f"{each}: a parameter without a usable name or place")
            declared[(place, name.lower() if place == "header" else name)] = each
        if len(declared) > MAX_PARAMETERS:
            raise ProtocolViolation(f"more than {MAX_PARAMETERS} parameters")
    in_path = tuple(dict.fromkeys(re.findall(r"\{([^{}/]*)\}", path)))
    secret = set(hidden)
    queried = [made for (place, name), each in declared.items() if place == "query" and name not in secret
               for made in _of_query(name, each)]  # fmt: skip
    taken = {parameter.variable for parameter in queried}
    routed = [_of_path(name, declared.get(("path", name)), taken) for name in in_path]
    headers, lacking = _unseen(declared, {name.lower() for name in given_headers})
    unique = {parameter.variable: parameter for parameter in reversed(queried)}
    if len(unique) > MAX_PARAMETERS:
        raise ProtocolViolation(f"more than {MAX_PARAMETERS} parameters")
    return Parameters(tuple(routed), tuple(reversed(unique.values())), headers, lacking)


def _unseen(
    declared: Mapping[tuple[str, str], DocumentNode], given: set[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the header and cookie parameters that have a value, and the names of required parameters that have no
    value."""
    headers: dict[str, str] = {}
    lacking: list[str] = []
    for (place, name), each in declared.items():
        if place not in ("header", "cookie") or not each.flag("required"):
            continue
        if place == "header" and (name in IGNORED_HEADERS or name in given):
            continue
        if place == "cookie" and "cookie" in given:
            continue
        facts = _Facts.of(each)
        only = facts.values[0] if len(facts.values) == 1 else text_of(facts.default)
        sendable = only is not None and only.isascii() and only.isprintable() and TOKEN.fullmatch(name)
        if place == "header" and only is not None and sendable:
            headers[each.text("name") or name] = only
        else:
            lacking.append(f"{place} {shown(name)}")
    return headers, tuple(lacking)


def _of_path(name: str, node: DocumentNode | None, taken: set[str]) -> Parameter:
    """Return a variable of a path. Without a description it holds any text."""
    variable = _variable(name)
    while variable in taken:  # names of a path's variables do not show, those of a query do
        variable += "_"
    if node is None:
        return Parameter(name, "path", variable, True)
    style = {"label": ".", "matrix": ";"}.get(node.text("style") or "", "")
    facts = _Facts.of(node)
    listed = facts.type in ("array", "object")
    exploded = style != "" and listed and bool(node.flag("explode"))
    if style == ";":
        variable = _variable(name)  # here the name shows in the path
    return Parameter(
        name, "path", variable, True, style, exploded, listed and not exploded, facts.item_type,
        facts.values, facts.samples, facts.default, facts.dynamic,
    )  # fmt: skip


def _of_query(name: str, node: DocumentNode) -> Iterator[Parameter]:
    style, facts = node.text("style") or "form", _Facts.of(node)
    explode = node.flag("explode")
    explode = style == "form" if explode is None else explode
    required = bool(node.flag("required"))
    if facts.type == "object" and (style == "deepObject" or (style == "form" and explode)):
        for inner, schema in facts.properties.items():
            key = f"{name}[{inner}]" if style == "deepObject" else inner
            about = _Facts.of_schema(schema)
            if about.type != "object" and is_unicode(inner):
                yield Parameter(key, "query", _variable(key), required and inner in facts.needed, "?",
                                about.type == "array", False, about.item_type, about.values, about.samples,
                                about.default)  # fmt: skip
        return
    exploded = facts.type == "array" and explode
    commas = style == "form" and facts.type in ("array", "object") and not exploded
    yield Parameter(
        name, "query", _variable(name), required, "?", exploded, commas, facts.item_type,
        facts.values, facts.samples, facts.default, facts.dynamic,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Facts:
    """Facts about a parameter from its schema and examples. An unreadable schema gives none."""

    type: str | None = None
    item_type: str | None = None
    values: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    default: Any = None
    dynamic: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, DocumentNode] = field(default_factory=dict)
    needed: tuple[str, ...] = ()

    @classmethod
    def of(cls, node: DocumentNode) -> "_Facts":
        """Read a parameter. One with `content` holds a text in that format."""
        try:
            about = cls.of_schema(node.get("schema"))
            examples = [example.value.get("value") for _, example in node.get("examples").items()
                        if isinstance(example.value, dict)]  # fmt: skip
        except ProtocolViolation:
            return cls()
        more = _texts([node.value.get("example"), *examples])
        hint = node.value.get("x-ms-dynamic-values")
        dynamic = hint if isinstance(hint, dict) else about.dynamic
        samples = tuple(dict.fromkeys((*more, *about.samples)))
        return cls(about.type, about.item_type, about.values, samples, about.default, dynamic,
                   about.properties, about.needed)  # fmt: skip

    @classmethod
    def of_schema(cls, schema: DocumentNode) -> "_Facts":
        """Read a schema; of alternatives (`anyOf`, `oneOf`), the first alternative that is not null."""
        try:
            schema = _chosen(schema)
            if not isinstance(schema.value, dict):
                return cls()
            kind = _type(schema.value.get("type"))
            inner = _chosen(schema.get("items")) if kind == "array" else schema
            properties = dict(schema.get("properties").items()) if kind == "object" else {}
        except ProtocolViolation:
            return cls()
        said = inner.value if isinstance(inner.value, dict) else {}
        fixed = said["enum"] if isinstance(said.get("enum"), list) else [said["const"]] if "const" in said else []
        if not fixed and _type(said.get("type")) == "boolean":
            fixed = [True, False]
        examples = schema.value.get("examples")
        schema.documents.visit(len(fixed) + (len(examples) if isinstance(examples, list) else 0))
        default = schema.value.get("default")
        default = default[0] if isinstance(default, list) and default else default
        samples = [schema.value.get("example"), *(examples if isinstance(examples, list) else []), default]
        hint, needed = schema.value.get("x-ms-dynamic-values"), schema.value.get("required")
        return cls(
            kind, _type(said.get("type")), _texts(fixed), _texts(samples), default,
            hint if isinstance(hint, dict) else {}, properties,
            tuple(map(str, needed)) if isinstance(needed, list) else (),
        )  # fmt: skip


def _chosen(schema: DocumentNode) -> DocumentNode:
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.value, dict) and isinstance(schema.value.get(key), list) and "type" not in schema.value:
            for _, each in schema.get(key).items():
                if isinstance(each.value, dict) and each.value.get("type") != "null":
                    schema.documents.visit(len(schema.value) + len(each.value))
                    beside = {k: v for k, v in schema.value.items() if k != key}
                    return DocumentNode(each.documents, each.url, each.pointer, {**each.value, **beside})
    return schema


def _type(said: Any) -> str | None:
    """Return the type of a schema. Since OpenAPI 3.1 there may be several; `null` cannot be in a URL."""
    if isinstance(said, list):
        said = next((each for each in said if each != "null"), None)
    return said if isinstance(said, str) else None


def text_of(value: Any) -> str | None:
    """Return a JSON scalar as text for a URL; None for other values and for an empty text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value) if isinstance(value, str | int | float) else ""
    return text if text and is_unicode(text) else None


def _texts(values: Sequence[Any]) -> tuple[str, ...]:
    texts = (text_of(value) for value in values)
    return tuple(dict.fromkeys(text for text in texts if text))


def _variable(name: str) -> str:
    """Return the variable name for a parameter: RFC 6570 allows letters, digits, `_`, inner dots, and escaped bytes."""
    if _VARIABLE.fullmatch(name):
        return name
    return quote(name, safe="").replace("~", "%7E").replace(".", "%2E")


def on_the_wire(path: str, query: str, template_path: str, known: Sequence[Parameter]) -> tuple[str, str]:
    """Return path and query of a URL with unescaped commas in lists. template_path: has `{variable}` for each
    variable."""
    listed = [parameter for parameter in known if parameter.commas]
    if not listed:
        return path, query
    in_path = {f"{{{p.style}{p.expression}}}" for p in listed if p.place == "path"}
    segments = [
        segment.replace("%2C", ",") if any(each in template for each in in_path) else segment
        for segment, template in zip(path.split("/"), template_path.split("/"), strict=True)
    ]
    in_query = {parameter.name for parameter in listed if parameter.place == "query"}
    pairs = [
        pair.replace("%2C", ",") if unquote(pair.partition("=")[0]) in in_query else pair for pair in query.split("&")
    ]
    return "/".join(segments), "&".join(pairs)
