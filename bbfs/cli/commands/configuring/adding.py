"""The sources that `bbfs add` makes of its operands: of a target, a description of the registry, or a host."""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bbfs.cli import lazy, output
from bbfs.model.errors import ConfigError, Unreachable

if TYPE_CHECKING:
    from bbfs.config.command_line.assignments import Assignment
    from bbfs.config.command_line.targets import TargetKind
    from bbfs.config.hosts.registry import Registered, Wanted
    from bbfs.model.values import DataSource

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99})=(.+)", re.DOTALL)
"""A name and a target in one word, as --source, --dir and --mcp have them."""


@dataclass(frozen=True, slots=True)
class Operands:
    """The operands of a command. registry: a file with a list of servers; the target is the name of one of them.

    package: the kind of package by which that server is started, or `remote`.
    """

    words: tuple[str, ...]
    kind: "TargetKind | None" = None
    registry: str | None = None
    package: str | None = None

    @property
    def target(self) -> tuple[str, ...]:
        return self.words[1:] or self.words

    @property
    def name(self) -> str | None:
        """The name before the target, or None."""
        return self.words[0] if len(self.words) > 1 else None


@dataclass(frozen=True, slots=True)
class Made:
    """A source to add. table: a table `[[sources]]`. lacking: the variables that must be set before it can be used.

    notes: sentences for the user.
    """

    table: dict[str, Any]
    lacking: "tuple[Wanted, ...]" = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return str(self.table["name"])

    @property
    def environ(self) -> dict[str, str]:
        """The environment with a text for each variable that is not set, to check all else by."""
        return {**{each.variable: "not-set" for each in self.lacking}, **os.environ}


def make(operands: Operands, given: "Sequence[Assignment]", path: str) -> Made:
    """Return the source that operands name, with its options. Raise ConfigError.

    given: assignments of options. path: of the configuration file. A host is asked where its server is.
    """
    registered = _registered(operands)
    if registered is not None:
        made = _of_registered(registered)
        _set_options(made, given, path)
        return made
    tables, target = lazy.source_tables, operands.target
    name = operands.name or tables.name_of(target)
    if name is None and (named := _NAMED.fullmatch(target[0])) is not None:
        return make(replace(operands, words=(named[1], named[2])), given, path)
    if name is None:
        raise ConfigError(f"expected NAME TARGET: only a URL and a server.json give a name, unlike {target[0][:80]!r}")
    is_host = operands.kind is None and tables.is_host(target)
    made = Made(tables.source_table(name, target, "mcp" if is_host else operands.kind, environ=os.environ))
    source = _set_options(made, given, path)
    return _at_host(made.table, source) if is_host else made


def _set_options(made: Made, given: "Sequence[Assignment]", path: str) -> "DataSource":
    """Set options in the table of a source, and return the source. Raise ConfigError."""
    environ = made.environ
    lazy.assignments.write_options(made.table, _parsed(made.table, path, environ), given, environ=environ)
    return _parsed(made.table, path, environ)


def _parsed(table: dict[str, Any], path: str, environ: dict[str, str]) -> "DataSource":
    return lazy.toml.parse_config(path, lazy.tomlkit.dumps({"sources": [table]}), environ=environ).sources[0]


def _registered(operands: Operands) -> "Registered | None":
    """Return the source for a description of the registry, or None if the operands name none. Raise ConfigError."""
    registry, target = lazy.registry, operands.target
    if operands.registry is not None:
        if len(target) != 1:
            raise ConfigError("--registry: expected the name of one server in that list")
        path = os.path.expanduser(operands.registry)
        server = registry.named(registry.read_servers(path), target[0], path)
    elif len(target) == 1 and operands.kind is None and _is_description(target[0]):
        path = os.path.expanduser(target[0])
        servers = registry.read_servers(path)
        if len({each["name"] for each in servers}) > 1:
            raise ConfigError(f"{path}: a list of {len(servers)} servers; 'bbfs add NAME --registry {path}' adds one")
        server = registry.named(servers, servers[0]["name"], path)
    elif operands.package is not None:
        raise ConfigError("--package: belongs to a server.json, or a name with --registry")
    else:
        return None
    found = registry.as_source(server, operands.name, operands.package, environ=os.environ)
    if (status := registry.status_of(server)) is not None:
        output.message(f"warning: {found.table['name']}: the registry calls this server {status}")
    return found


def _is_description(text: str) -> bool:
    """Return whether a target is a file in JSON. (A document of an API is one, but it is named by its URL.)"""
    return text.endswith(".json") and "://" not in text and os.path.isfile(os.path.expanduser(text))


def _of_registered(found: "Registered") -> Made:
    """Return a source with the sentences that say what it starts or asks, and what else there is."""
    name, config = found.table["name"], found.table["mcpConfig"]
    starts = "url" not in config
    how = shlex.join([config["command"], *config["args"]]) if starts else config["url"]
    notes = [f"{name} {'starts' if starts else 'is at'} {how}"]
    notes += [f"{name}: {each.variable} is used: {each.text}" for each in found.wanted if each.variable in os.environ]
    notes += [f"{name}: {each.variable} may be set, and is left out now: {each.text}" for each in found.left_out]
    if found.others:
        notes.append(f"{name}: other ways to it: {', '.join(f'--package {each}' for each in found.others)}")
    return Made(found.table, tuple(found.lacking(os.environ)), tuple(notes))


def _at_host(table: dict[str, Any], source: "DataSource") -> Made:
    """Ask a host where its server is, and return the source for it. Raise ConfigError."""
    try:
        found = lazy.trio.run(lazy.discovery.find_server, source)
    except Unreachable as error:
        hint = "'--as source' adds the page at this URL, and '--as mcp' a server there, without asking"
        raise ConfigError(f"{error}\n{hint}") from None
    name, config = str(table["name"]), table["mcpConfig"]
    config["url"] = found.remote.url
    if found.remote.transport == "sse":
        config["transport"] = "sse"
    notes = [f"{name} is at {found.remote.url} (by {found.by})"]
    if found.needs_login:
        notes.append(f"{name}: asks for a login: 'bbfs login {name}', or a header (--header)")
    lacking: tuple[Wanted, ...] = ()
    if headers := found.remote.described.get("headers"):
        described = {**found.remote.described, "type": found.remote.transport, "headers": headers}
        filled = lazy.registry.as_source({"name": name, "remotes": [described]}, name, environ=os.environ)
        own = {key.lower() for key in config.get("headers", {})}
        wanted = {k: v for k, v in filled.table["mcpConfig"].get("headers", {}).items() if k.lower() not in own}
        if wanted:
            config["headers"] = {**config.get("headers", {}), **wanted}
        used = [each for each in filled.wanted if any(f"${{env:{each.variable}}}" in text for text in wanted.values())]
        lacking = tuple(each for each in used if each.variable not in os.environ)
    return Made(table, lacking, tuple(notes))
