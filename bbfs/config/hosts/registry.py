"""A server as the registry of MCP servers describes it: a `server.json`, or a list as the registry's API answers it.

https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json, and its older form in snake_case. Nothing
is contacted or downloaded. All texts are a stranger's: `${` in them is no reference, and an input that the user must
give becomes a reference to a variable whose name no other program uses (but for the environment of a package, which
runs with the rights of the user).
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AliasChoices, AliasGenerator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel, to_snake

from bbfs.config.naming import slug
from bbfs.config.problems import key_text, quote, suggestion
from bbfs.config.toml import read_text
from bbfs.model.errors import ConfigError
from bbfs.model.redaction import one_line

PACKAGES = ("remote", "npm", "pypi", "oci", "nuget")
"""The kinds of ways to a server."""
Text = Annotated[str, StringConstraints(max_length=4096)]
_Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x20\x7f]+$")]
_Variable = Annotated[str, StringConstraints(max_length=200, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_MOST = 100
"""Arguments, variables or packages of a server."""
_RUNNERS: Mapping[str, tuple[str, ...]] = {
    "npm": ("npx",),
    "pypi": ("uvx",),
    "oci": ("docker", "podman"),
    "nuget": ("dnx",),
}
"""The programs that run a package; the first one if the package names none."""
_REGISTRIES: Mapping[str, str] = {"npm": "npmjs", "pypi": "pypi", "oci": "docker", "nuget": "nuget"}
"""The public registries in which those programs look for packages, as their domains are called before the last dot.

Another place takes options of these programs, which the user writes. bbfs asks none of them.
"""
_BRACES = re.compile(r"\{([^{}]*)\}")
_OFFICIAL = "io.modelcontextprotocol.registry/official"


class _Table(BaseModel):
    model_config = ConfigDict(
        alias_generator=AliasGenerator(validation_alias=lambda name: AliasChoices(to_camel(name), to_snake(name))),
        frozen=True,
        hide_input_in_errors=True,
    )


class _Input(_Table):
    description: Text = ""
    is_required: bool = False
    is_secret: bool = False
    default: Text | None = None
    value: Text | None = None
    choices: Annotated[list[Text], Field(max_length=_MOST)] = []
    variables: Annotated[dict[str, "_Input"], Field(max_length=_MOST)] = {}


class _Argument(_Input):
    type: Literal["positional", "named"]
    name: Text | None = None
    value_hint: Text | None = None


class _Header(_Input):
    name: _Name


class _EnvironmentVariable(_Input):
    name: _Variable


class _Transport(_Table):
    type: Text = Field(default="stdio", validation_alias=AliasChoices("type", "transport_type", "transportType"))
    url: Text = ""
    headers: Annotated[list[_Header], Field(max_length=_MOST)] = []
    variables: Annotated[dict[str, _Input], Field(max_length=_MOST)] = {}


class _Package(_Table):
    registry_type: Text
    identifier: _Name
    version: _Name | None = None
    registry_base_url: Text | None = None
    runtime_hint: Text | None = None
    transport: _Transport = _Transport()
    runtime_arguments: Annotated[list[_Argument], Field(max_length=_MOST)] = []
    package_arguments: Annotated[list[_Argument], Field(max_length=_MOST)] = []
    environment_variables: Annotated[list[_EnvironmentVariable], Field(max_length=_MOST)] = []


class _Server(_Table):
    name: _Name
    title: Text | None = None
    packages: Annotated[list[_Package], Field(max_length=_MOST)] = []
    remotes: Annotated[list[_Transport], Field(max_length=_MOST)] = []


@dataclass(frozen=True, slots=True)
class Wanted:
    """A variable that a source refers to. text: what it is for, in the words of the description."""

    variable: str
    text: str


@dataclass(slots=True)
class Registered:
    """A source for a server. table: a table `[[sources]]`, with references for what the user must give.

    wanted: the variables of these references. left_out: variables that may be given and are not. others: the kinds of
    the other ways to the server.
    """

    table: dict[str, Any]
    wanted: tuple[Wanted, ...] = ()
    left_out: tuple[Wanted, ...] = ()
    others: tuple[str, ...] = ()

    def lacking(self, environ: Mapping[str, str]) -> list[Wanted]:
        """Return the variables that are not set."""
        return [each for each in self.wanted if each.variable not in environ]


class NoWay(ConfigError):
    """A way to a server that bbfs cannot go, with the reason."""


def read_servers(path: str) -> list[Mapping[str, Any]]:
    """Return the servers in a file: one `server.json`, or an answer of the registry's API. Raise ConfigError."""
    try:
        document = json.loads(read_text(path, regular=True))
    except json.JSONDecodeError as error:
        reason, line = f"{error.msg} (column {error.colno})", error.lineno
    except (ValueError, RecursionError):  # a number of thousands of digits
        reason, line = "nested too deeply, or a number is too long", 1
    else:
        found = [*servers_in(document)]
        if not found:
            raise ConfigError(f"{path}: no server.json, and no list of the registry: no server with a name in it")
        return found
    raise ConfigError(f"{path}:{line}: not JSON: {reason}")


def servers_in(document: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the descriptions of servers in a document. Of the versions of one server, the newest has `isLatest`."""
    listed = document.get("servers") if isinstance(document, dict) else document
    for entry in listed if isinstance(listed, list) else [document]:
        if not isinstance(entry, dict):
            continue
        inner = entry.get("server")
        server = {"_meta": entry.get("_meta"), **inner} if isinstance(inner, dict) else entry
        if isinstance(server.get("name"), str):
            yield server


def named(servers: Sequence[Mapping[str, Any]], name: str, path: str) -> Mapping[str, Any]:
    """Return the server with a name, or with the only name that ends in it. Raise ConfigError."""
    found = [each for each in servers if each["name"] == name]
    found = found or [each for each in servers if each["name"].rpartition("/")[2] == name]
    names = {each["name"] for each in found}
    if len(names) > 1:
        shown = ", ".join(quote(each) for each in sorted(names)[:10])
        raise ConfigError(f"{path}: {quote(name)} may be one of {shown}")
    if not found:
        known = {each["name"] for each in servers}
        raise ConfigError(f"{path}: no server {quote(name)}{suggestion(name, known)}")
    return next((each for each in found if _official(each).get("isLatest") is True), found[-1])


def status_of(server: Mapping[str, Any]) -> str | None:
    """Return `deprecated` or `deleted` for a server that its publisher or the registry advises against."""
    stated = _official(server).get("status", server.get("status"))
    return stated if stated in ("deprecated", "deleted") else None


def _official(server: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = server.get("_meta")
    official = meta.get(_OFFICIAL) if isinstance(meta, dict) else None
    return official if isinstance(official, dict) else {}


def as_source(
    server: Mapping[str, Any], name: str | None = None, kind: str | None = None, *, environ: Mapping[str, str]
) -> Registered:
    """Return the source for a server. Raise ConfigError.

    name: of the source; by default the part of the server's name after the slash. kind: one of `PACKAGES`; by default a
    remote server if there is one, since it gets no rights here, else the first package whose program is installed.
    """
    try:
        made = _Server.model_validate(server)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = key_text(tuple(step for step in first["loc"] if not isinstance(step, str) or step.isidentifier()))
        raise ConfigError(f"{quote(str(server.get('name')))}: {where}: {first['msg']}") from None
    name = name or slug(made.name.rpartition("/")[2])
    ways: list[tuple[str, _Transport | _Package]] = [("remote", each) for each in made.remotes]
    ways.sort(key=lambda way: isinstance(way[1], _Transport) and way[1].type == "sse")
    ways += [(each.registry_type, each) for each in made.packages]
    kinds = list(dict.fromkeys(each for each, _ in ways))
    if kind is not None and kind not in kinds:
        raise ConfigError(f"{quote(made.name)}: has no way {kind!r}; it has: {', '.join(map(quote, kinds)) or 'none'}")
    found: list[tuple[str, Registered]] = []
    refused: list[str] = []
    for each, way in ways:
        if kind not in (None, each):
            continue
        try:
            found.append((each, _Filling(made, name, environ).source(way)))
        except NoWay as error:
            refused.append(f"{each}: {error}")
    if not found:
        raise ConfigError("\n".join([f"{quote(made.name)}: no way that bbfs can go", *refused]))
    chosen, registered = next((each for each in found if _is_at_hand(each[1].table, environ)), found[0])
    registered.others = tuple(each for each in dict.fromkeys(each for each, _ in found) if each != chosen)
    return registered


def _is_at_hand(table: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    command = table["mcpConfig"].get("command")
    return command is None or shutil.which(command, path=environ.get("PATH")) is not None


@dataclass(slots=True)
class _Filling:
    """Makes the source of one way to a server: fills its inputs in with values and references."""

    server: _Server
    name: str
    environ: Mapping[str, str]
    wanted: dict[str, Wanted] = field(default_factory=dict)
    left_out: dict[str, Wanted] = field(default_factory=dict)

    def source(self, way: _Transport | _Package) -> Registered:
        """Raise NoWay."""
        config = self._remote(way) if isinstance(way, _Transport) else self._program(way)
        title = {"title": one_line(self.server.title)} if self.server.title else {}
        table = {"name": self.name, **title, "accessMethod": "mcp", "mcpConfig": config}
        left_out = [each for variable, each in self.left_out.items() if variable not in self.wanted]
        return Registered(table, tuple(self.wanted.values()), tuple(left_out))

    def _remote(self, way: _Transport) -> dict[str, Any]:
        if way.type not in ("streamable-http", "streamable", "http", "sse"):
            raise NoWay(f"the transport {quote(way.type)} is not known")
        url = self._filled(_Input(value=way.url, variables=way.variables, is_required=True), "url")
        if not url or not re.match(r"https?://|\$\{env:", url):
            raise NoWay("its URL is none of http or https")
        headers = {each.name: value for each in way.headers if (value := self._filled(each, each.name)) is not None}
        config: dict[str, Any] = {"url": url, "transport": "sse" if way.type == "sse" else "http"}
        return {**config, "headers": headers} if headers else config

    def _program(self, way: _Package) -> dict[str, Any]:
        kind = way.registry_type
        if kind not in _RUNNERS:
            raise NoWay("bbfs knows no program that runs such a package; add it by its command line")
        if way.transport.type != "stdio":
            raise NoWay("it is a server over HTTP that you start yourself; add it by its URL")
        runner = way.runtime_hint or _RUNNERS[kind][0]
        if runner not in _RUNNERS[kind]:
            raise NoWay(f"bbfs does not run such a package by {quote(runner)}; add it by its command line")
        if way.registry_base_url is not None and _domain(way.registry_base_url) != _REGISTRIES[kind]:
            place = quote(way.registry_base_url)
            raise NoWay(f"it is from {place}, where {runner} does not look; add it by its command line")
        if way.identifier.startswith("-"):
            raise NoWay("its identifier would be an option")
        given = ((each.name, self._filled(each, each.name, each.name)) for each in way.environment_variables)
        env = {key: value for key, value in given if value is not None}
        before, after = ([*self._arguments(each)] for each in (way.runtime_arguments, way.package_arguments))
        args = _command_line(kind, escaped(way.identifier), way.version and escaped(way.version), before, after, env)
        config: dict[str, Any] = {"command": runner, "args": args}
        return {**config, "env": env} if env else config

    def _arguments(self, given: Sequence[_Argument]) -> Iterator[str]:
        for each in given:
            hint = each.name or each.value_hint or "argument"
            if each.type == "named":
                if not each.name:
                    raise NoWay("an argument has no name")
                is_switch = each.value is None and each.default is None and not each.is_required and not each.is_secret
                if is_switch and not each.description:
                    yield escaped(each.name)
                    continue
                if (value := self._filled(each, hint)) is not None:
                    yield escaped(each.name)
                    if value:
                        yield value
            elif (value := self._filled(each, hint)) is not None:
                yield value

    def _filled(self, given: _Input, identifier: str, variable: str | None = None, level: int = 0) -> str | None:
        """Return the text of an input, with references; None for one that may be left out, and is. Raise NoWay."""
        if given.value is not None:
            return self._substituted(given.value, given.variables, level)
        if given.default is not None:
            return escaped(given.default)
        variable = variable or f"BBFS_{_word(self.name)}_{_word(identifier)}"
        choices = f"one of {', '.join(given.choices)}" if given.choices else ""
        wanted = Wanted(variable, one_line("; ".join(filter(None, (given.description, choices))) or identifier))
        if not given.is_required and variable not in self.environ:
            self.left_out[variable] = wanted
            return None
        self.wanted[variable] = wanted
        return f"${{env:{variable}}}"

    def _substituted(self, value: str, variables: Mapping[str, _Input], level: int) -> str | None:
        """Return a text with its `{variables}` filled in. Names that are no variables stay as they are."""
        if level > 3:
            raise NoWay("its variables refer to each other too deeply")
        pieces, text, at = "", "", 0
        for match in _BRACES.finditer(value):
            if match[1] not in variables:
                continue
            text += value[at : match.start()]
            at = match.end()
            filled = self._filled(variables[match[1]], match[1], level=level + 1)
            if filled is None:
                return None
            if "${env:" not in filled:
                text += filled.replace("$${", "${")
                continue
            if text.endswith("$") or filled.endswith("$"):  # with the next character it would be a reference
                raise NoWay("a variable stands after a '$', or ends with one")
            pieces, text = pieces + escaped(text) + filled, ""
        return pieces + escaped(text + value[at:])


def _domain(url: str) -> str | None:
    """Return the name of a URL's domain before its last dot; None if it has none."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return None
    return host.split(".")[-2] if "." in host else None


def escaped(text: str) -> str:
    """Return a stranger's text as a configuration has it: no part of it is a reference."""
    return text.replace("${", "$${")


def _word(text: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", text.upper()).strip("_") or "VALUE"


def _command_line(
    kind: str, identifier: str, version: str | None, before: list[str], after: list[str], env: Mapping[str, str]
) -> list[str]:
    """Return the arguments of the program that runs a package. before: the program's own; after: the package's."""
    package = identifier if version is None else f"{identifier}@{version}"
    match kind:
        case "npm":
            return [*(before if {"-y", "--yes"} & {*before} else ["-y", *before]), package, *after]
        case "pypi":
            return [*before, package, *after]
        case "nuget":
            return [package, *([] if "--yes" in before else ["--yes"]), *before, *(["--", *after] if after else [])]
    tagged = "@" in identifier or ":" in identifier.rpartition("/")[2]
    image = identifier if tagged or version is None else f"{identifier}:{version}"
    passed = [word for key in env for word in ("-e", key)]
    return ["run", "-i", "--rm", *passed, *(before[1:] if before[:1] == ["run"] else before), image, *after]
