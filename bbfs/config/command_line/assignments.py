"""Options of sources by assignments: `-o [NAME.]KEY[.KEY…]=VALUE`, `--header`, `--tools`.

The keys are those of the configuration file. A key of a table in the file (`config`, `mcpConfig`, …) needs no name of
that table. The tables of options decide the type of a value: a number, `true` or an array where they take one, else a
text; and a list of texts may be written with commas. Messages never hold a value, which may be a secret.
"""

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from bbfs.config.interpolation import Interpolator, UnresolvedReference, as_path
from bbfs.config.problems import KeyPath, quote, suggestion
from bbfs.config.schema import SERVER_TOOLS, McpTable, SourceTable, explain
from bbfs.config.server import make_server
from bbfs.config.toml import MCP_KEYS
from bbfs.model.errors import ConfigError, InvalidUri
from bbfs.model.source_types import find, fixed_scheme, mcp_scheme
from bbfs.model.uri import build_uri_prefix, parse_uri_prefix
from bbfs.model.values import DataSource, McpServer

_ASSIGNMENT = re.compile(r"""((?:"[^"]*"|[^="])+)=(.*)""", re.DOTALL)
_STEP = re.compile(r'"([^"]*)"|([^."]+)')
_KEY = re.compile(rf"(?:{_STEP.pattern})(?:\.(?:{_STEP.pattern}))*")
_HEADER = re.compile(r"(?:([A-Za-z0-9][A-Za-z0-9._-]*)=)?([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*)", re.DOTALL)
_IDENTITY = frozenset(("name", "id", "type", "accessMethod", "uriPrefix"))
_TABLES = frozenset(("config", "auth", "mcpConfig"))
_OF_MOUNT = {"allow_other": "--allow-other", "uid": "--uid", "gid": "--gid", "umask": "--umask"}
"""Words after the -o of mount(8), with the options of `bbfs mount` for them."""
_TEXTS = ("command", "args", "env", "cwd", "url", "headers")


@dataclass(frozen=True, slots=True)
class Assignment:
    """One option as written. label: names it in messages. source: a name or id; None leaves it to the keys."""

    label: str
    source: str | None
    keys: tuple[str, ...]
    value: str


@dataclass(frozen=True, slots=True)
class Setting:
    """One option of one source. path: its keys in a table `[[sources]]`. value: typed, with its references."""

    path: tuple[str, ...]
    value: Any


def assignment(text: str, option: str = "-o") -> Assignment:
    """Return the assignment of `[NAME.]KEY=VALUE`. The name stays among the keys. Raise ConfigError."""
    found = _ASSIGNMENT.fullmatch(text)
    left = found[1].strip() if found else ""
    word = text.partition("=")[0].strip()
    if word in _OF_MOUNT:
        raise ConfigError(f"{option} {word}: sets options of sources; for the mount there is {_OF_MOUNT[word]}")
    if found is None or not _KEY.fullmatch(left):
        raise ConfigError(f"{option} {quote(word)}: expected [NAME.]KEY=VALUE, such as notes.ttl=30s")
    keys = tuple(quoted or plain for quoted, plain in _STEP.findall(left))
    return Assignment(f"{option} {left}", None, keys, found[2])


def header(text: str) -> Assignment:
    """Return the assignment of `[NAME=]HEADER: VALUE`. Raise ConfigError."""
    found = _HEADER.fullmatch(text)
    if found is None:
        raise ConfigError("--header: expected [NAME=]HEADER: VALUE, such as 'kb=Authorization: Bearer ${env:TOKEN}'")
    return Assignment(f"--header {found[2]}", found[1], ("headers", found[2]), found[3])


def tools(text: str) -> Assignment:
    """Return the assignment of `[NAME=]WORD` or `[NAME=]TOOL,TOOL…`."""
    name, equals, value = text.rpartition("=")
    return Assignment("--tools", name if equals else None, ("tools",), value)


def with_options(
    sources: Sequence[DataSource], assignments: Sequence[Assignment], *, environ: Mapping[str, str]
) -> tuple[DataSource, ...]:
    """Return the sources with the options set; one with `enabled=false` is left out. Raise ConfigError."""
    found: list[DataSource | None] = list(sources)
    for each in assignments:
        for index, keys in _meant(each, found):
            source = found[index]
            assert source is not None
            found[index] = changed(source, setting(source, each, keys, environ=environ), environ, each.label)
    return tuple(source for source in found if source is not None)


def write_options(
    table: dict[str, Any], source: DataSource, assignments: Sequence[Assignment], *, environ: Mapping[str, str]
) -> None:
    """Set the options in a table `[[sources]]`, with their references. Raise ConfigError.

    source: of the table.
    """
    current: DataSource | None = source
    for each in assignments:
        for _, keys in _meant(each, [current]):
            assert current is not None
            found = setting(current, each, keys, environ=environ)
            first = "mcpConfig" if found.path[0] == "mcp_config" else found.path[0]
            _put(table, (first, *found.path[1:]), found.value)
            current = changed(current, found, environ, each.label)


def _meant(each: Assignment, sources: Sequence[DataSource | None]) -> list[tuple[int, tuple[str, ...]]]:
    """Return the positions of the sources that an assignment sets an option of, each with the keys after the name."""
    there = [(index, source) for index, source in enumerate(sources) if source is not None]
    named = [each.source] if each.source is not None else []
    named += [".".join(each.keys[:length]) for length in range(len(each.keys) - 1, 0, -1) if each.source is None]
    for name in named:
        found = [index for index, source in there if name in (source.id, source.name, source.base_prefix)]
        if len(found) > 1:
            places = ", ".join(source.uri_prefix for index, source in there if index in found)
            raise ConfigError(f"{each.label}: {name!r} names several sources: {places}")
        if found:
            return [(found[0], each.keys if each.source is not None else each.keys[name.count(".") + 1 :])]
    names = [name for _, source in there for name in (source.id, source.name)]
    if each.source is not None:
        raise ConfigError(f"{each.label}: no source {quote(each.source)}{suggestion(each.source, names)}")
    taking = [(index, each.keys) for index, source in there if _takes(source, each.keys)]
    if not taking:
        keys = {key for _, source in there for key in _keys_of(source)}
        raise ConfigError(
            f"{each.label}: no source and no option is called {quote(each.keys[0])}"
            + suggestion(each.keys[0], [*names, *sorted(keys)])
        )
    if len(taking) > 1 and to_camel(each.keys[0]) not in _common():
        # A secret, a URL or the leave to reach private addresses is for one server, not for all.
        of = ", ".join(source.name for index, source in there if any(index == other for other, _ in taking))
        raise ConfigError(f"{each.label}: several sources have this option: {of}; write NAME before it")
    return taking


def option_names(sources: Sequence[DataSource]) -> list[str]:
    """Return the beginnings of assignments to any of the sources: `KEY=` for all, and `NAME.KEY=`."""
    common = [key for key in SourceTable.model_fields if to_camel(key) in _common() and key not in MCP_KEYS]
    return [f"{key}=" for key in common] + [f"{each.name}.{key}=" for each in sources for key in _keys_of(each)]


def _takes(source: DataSource, keys: Sequence[str]) -> bool:
    """Return whether an option without a name may be meant for a source."""
    other = (
        ("url", "headers") if source.mcp is not None and source.mcp.url is None else ("command", "args", "env", "cwd")
    )
    return _path(source, keys) is not None and (source.mcp is None or keys[0] not in other)


def _common() -> frozenset[str]:
    return frozenset(map(to_camel, SourceTable.model_fields)) - _IDENTITY - _TABLES


def _keys_of(source: DataSource) -> list[str]:
    """Return the keys that a source has, without the names of their tables, in snake_case."""
    keys = [key for key in SourceTable.model_fields if source.mcp is not None or key not in MCP_KEYS]
    keys = [key for key in keys if to_camel(key) not in _IDENTITY and (source.mcp is not None or key != "mcp_config")]
    keys += McpTable.model_fields if source.mcp is not None else []
    return [*keys, *(key for table in _tables(source).values() for key in table.model_fields)]


def _tables(source: DataSource) -> Mapping[tuple[str, ...], Any]:
    """Return the tables of options of a source's type, by their paths. A type from a package need not have any."""
    found = find(source.type) if source.mcp is None else None
    options = getattr(found.handler_class(), "options", None) if found is not None else None
    return {} if options is None else options.tables(source.config)


def _path(source: DataSource, keys: Sequence[str]) -> tuple[str, ...] | None:
    """Return the key path of an option in the source's table, or None if the source has no such option."""
    first = to_camel(keys[0])
    is_mcp = source.mcp is not None
    own = next((key for key in SourceTable.model_fields if to_camel(key) == first), None)
    if own is not None and first not in _IDENTITY and (is_mcp or own not in (*MCP_KEYS, "mcp_config")):
        return (own, *keys[1:])
    if is_mcp:
        return ("mcp_config", *keys) if first in map(to_camel, McpTable.model_fields) else None
    for place, table in _tables(source).items():
        key = next((key for key in table.model_fields if to_camel(key) == first), None)
        if key is not None:
            return (*place, key, *keys[1:])
    return None


def setting(source: DataSource, each: Assignment, keys: tuple[str, ...], *, environ: Mapping[str, str]) -> Setting:
    """Return the typed setting of an assignment. Raise ConfigError, whose text has a suggestion."""
    path = _path(source, keys)
    if path is None:
        if to_camel(keys[0]) in _IDENTITY:
            raise ConfigError(f"{each.label}: says which source it is, so it is no option")
        if to_camel(keys[0]) in map(to_camel, (*MCP_KEYS, *McpTable.model_fields)) and source.mcp is None:
            raise ConfigError(f"{each.label}: belongs to MCP sources")
        if not _tables(source) and source.mcp is None:
            path = ("config", *keys)  # the handler of a package knows its options
        else:
            known = suggestion(keys[0], _keys_of(source))
            hint = known or f"; there are: {', '.join(sorted(_keys_of(source)))}"
            raise ConfigError(f"{each.label}: unknown option{hint}")
    if path in (("config",), ("auth",), ("mcp_config",)):
        raise ConfigError(f"{each.label}: is a table; name the key in it")
    return Setting(path, _typed(each, _check(source, path, environ)))


def _typed(each: Assignment, problem: Callable[[Any], str | None]) -> Any:
    """Return the first reading of a value without a problem. Raise ConfigError with the problem of the likeliest."""
    told: str | None = None
    for reading in _readings(each.value):
        try:
            found = problem(reading)
        except UnresolvedReference as error:
            raise ConfigError(f"{each.label}: {error}") from None
        if found is None:
            return reading
        told = found if told in (None, "should be an array") else told  # the fault of an item says more
        if "did you mean" in told:
            break  # a mistyped word, which might also be taken for a list of one
    raise ConfigError(f"{each.label}: {told}")


def _readings(text: str) -> Iterator[Any]:
    """Yield the possible meanings of a value: a value of TOML that is no text, the text, the texts between commas."""
    try:
        table = tomllib.loads(f"value = {text}\n")
    except (tomllib.TOMLDecodeError, RecursionError):
        table = {}
    if list(table) == ["value"] and isinstance(table["value"], bool | int | float | list | dict):
        yield table["value"]
    yield text
    yield [part.strip() for part in text.split(",") if part.strip()]


def _check(source: DataSource, path: tuple[str, ...], environ: Mapping[str, str]) -> Callable[[Any], str | None]:
    """Return the check of values of an option: it returns the fault of one, and raises UnresolvedReference."""
    tables = {place: table for place, table in _tables(source).items() if path[: len(place)] == place}

    def own(value: Any) -> str | None:
        faults: list[str] = []

        def report(where: KeyPath, message: str) -> None:
            faults.append(message if _is_below(where, path) else f"{'.'.join(map(str, where))} {message}")

        try:
            SourceTable.model_validate(_table(source, path, value))
        except ValidationError as error:
            explain(error, SourceTable, report)
        return faults[0] if faults else None

    def of_type(value: Any) -> str | None:
        given: dict[str, Any] = {"config": _plain(source.config), "auth": _plain(source.auth)}
        _put(given, path, _resolved(value, environ))
        for step in place:
            given = given.get(step, {})
        return next(
            (text for where, text in tables[place].problems(given) if _is_below(where, path[len(place) :])), None
        )

    place = max(tables, key=len, default=())
    return of_type if tables else own


def _table(source: DataSource, path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a table `[[sources]]` that sets one option. One of a tool keeps what else the source says of the tool."""
    raw: dict[str, Any] = {"name": source.name}
    if len(path) > 1 and path[0] == "map" and source.map is not None:
        raw["map"] = _plain(source.map)
    if len(path) > 1 and path[0] in SERVER_TOOLS and (tool := getattr(source, path[0])) is not None:
        raw[path[0]] = {field.name: _plain(getattr(tool, field.name)) for field in fields(tool)}
    _put(raw, path, value)
    return raw


def _is_below(where: KeyPath, path: tuple[str, ...]) -> bool:
    """Return whether a fault is at a path or below it, in either spelling of the keys."""
    steps = list(zip(map(str, where), path, strict=False))
    return len(steps) == len(path) and all(to_camel(at) == to_camel(step) for at, step in steps)


def _resolved(value: Any, environ: Mapping[str, str]) -> Any:
    """Return a value with its references resolved. Raise UnresolvedReference."""

    def refuse(_path: KeyPath, message: str) -> None:
        raise UnresolvedReference(message)

    return Interpolator(environ, os.getcwd()).resolve_all(value, (), refuse)


def _plain(value: Any) -> Any:
    """Return a copy of an option that may be changed."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, list | tuple) else value


def _put(table: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set an option in nested tables, in the spelling that is there. A text in the way of a table is replaced."""
    for step in path[:-1]:
        key = _spelt(table, step)
        if not isinstance(table.get(key), dict):
            table[key] = {}
        table = table[key]
    table[_spelt(table, path[-1])] = value


def _spelt(table: Mapping[str, Any], step: str) -> str:
    return next((key for key in table if key == step or to_camel(key) == to_camel(step)), step)


def changed(source: DataSource, each: Setting, environ: Mapping[str, str], label: str) -> DataSource | None:
    """Return a source with one option set, or None if that turns it off. Raise ConfigError."""
    if each.path[0] in ("config", "auth"):
        given: dict[str, Any] = {"config": _plain(source.config), "auth": _plain(source.auth)}
        _put(given, each.path, _resolved(each.value, environ))
        return _with_config(source, given, label)
    table = SourceTable.model_validate(_table(source, each.path, each.value))
    if not table.enabled:
        return None
    mcp = source.mcp
    if mcp is not None and table.mcp_config is not None:
        mcp = _with_server(mcp, table.mcp_config, label, environ)
    if mcp is not None:
        given = table.connection()
        if "roots" in given:
            given["roots"] = tuple(as_path(root, os.getcwd(), environ) for root in given["roots"])
        mcp = replace(mcp, **given)
    plain = ("title", "prompts", "apps", "shared", "index", "pin", "text")
    own = {key: getattr(table, key) for key in plain if key in table.model_fields_set} | table.server_tools()
    if table.map is not None:
        own["map"] = MappingProxyType(_resolved(table.map, environ))
        own["uri_prefix"] = f"{source.base_prefix}+{mcp_scheme(source.config, table.map)}"
    if table.tools is not None:
        own["tools"] = tuple(table.tools) if isinstance(table.tools, list) else table.tools
    abilities = {key: getattr(table.capabilities, key) for key in table.capabilities.model_fields_set}
    return replace(
        source,
        mcp=mcp,
        policy=replace(source.policy, **table.policy()),
        capabilities=replace(source.capabilities, **abilities),
        **own,
    )


def _with_config(source: DataSource, given: dict[str, Any], label: str) -> DataSource:
    config, auth = given["config"], given["auth"]
    if source.type == "filesystem" and isinstance(config.get("root"), str):
        config["root"] = as_path(config["root"], os.getcwd(), os.environ)
    prefix = source.uri_prefix
    if source.mcp is None and source.scheme is not None:
        before, after = fixed_scheme(source.type, source.config), fixed_scheme(source.type, config)
        try:
            if source.scheme == before != after:
                parsed = parse_uri_prefix(prefix)
                prefix = build_uri_prefix(parsed.access_method, parsed.type, parsed.name, after)
        except InvalidUri as error:
            raise ConfigError(f"{label}: {error}") from None
    return replace(source, uri_prefix=prefix, config=MappingProxyType(config), auth=MappingProxyType(auth))


def _with_server(mcp: McpServer, table: McpTable, label: str, environ: Mapping[str, str]) -> McpServer:
    parts: dict[str, Any] = {key: getattr(mcp, key) for key in _TEXTS}
    problems: list[str] = []
    for key in table.model_fields_set & set(_TEXTS):
        try:
            value = _resolved(getattr(table, key), environ)
        except UnresolvedReference as error:
            raise ConfigError(f"{label}: {error}") from None
        if key == "headers":  # RFC 9110, 5.1: their names are the same in any case of letters
            new = {name.lower() for name in value}
            parts[key] = {name: text for name, text in mcp.headers.items() if name.lower() not in new} | value
        else:
            parts[key] = {**mcp.env, **value} if key == "env" else value
    for key in ("cwd", "command"):
        if key in table.model_fields_set and (key == "cwd" or "/" in parts[key]):
            parts[key] = as_path(parts[key], os.getcwd(), environ)
    transport = table.transport or (mcp.transport if parts["url"] == mcp.url else None)
    server = make_server(transport, **parts, problem=lambda _, message: problems.append(message))
    if server is None:
        raise ConfigError(f"{label}: {'; '.join(problems)}")
    keep = {key: getattr(mcp, key) for key in ("start", "idle_timeout", "list_limit", "roots")}
    return replace(server, secrets=server.secrets | mcp.secrets, **keep)
