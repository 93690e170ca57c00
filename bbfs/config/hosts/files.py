"""The MCP servers of another program's configuration file.

Known forms: `mcpServers` (Claude Code, Claude Desktop, `.mcp.json`, Cursor, Windsurf, Gemini CLI, LM Studio), Claude
Code's `projects.{path}.mcpServers`, `servers` and `mcp.servers` (VS Code), `context_servers` (Zed), `mcp` and
`mcp.servers` (opencode), `mcp_servers` (Codex, TOML), `extensions` (Goose, YAML), and lists of servers (Continue, JSON
and YAML).
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bbfs.config.hosts import jsonc
from bbfs.config.hosts.entries import Entry, EntryReader
from bbfs.config.hosts.switches import switched_off
from bbfs.config.hosts.variables import Form
from bbfs.config.interpolation import expand_user
from bbfs.config.naming import unique_slugs
from bbfs.config.problems import KeyPath, Problems
from bbfs.config.toml import LARGEST_FILE, parse_toml, read_text
from bbfs.model.errors import BbfsError, ConfigError
from bbfs.model.uri import build_uri_prefix
from bbfs.model.values import DataSource

_CONTAINERS: tuple[tuple[str, ...], ...] = (
    ("mcpServers",),
    ("servers",),
    ("mcp", "servers"),
    ("mcp.servers",),
    ("context_servers",),
    ("experimental", "modelContextProtocolServers"),
    ("mcp_servers",),
)
_YAML = (".yaml", ".yml")
YAML_BOUNDS = {"depth": 64, "size": LARGEST_FILE}
"""Levels, and bytes as JSON, of a file in YAML."""
ReadYaml = Callable[[bytes, str], bytes]
"""Returns a document in YAML as JSON, within `YAML_BOUNDS`. The text begins its messages. Raises BbfsError."""
_FORMS: Mapping[str, Form] = {"mcp_servers": "literal", "mcp": "opencode", "extensions": "shell"}
"""The form of the variables in a container, if it is not `${VAR}`."""
_OPENCODE_TYPES = ("local", "remote")
_NO_SERVERS = frozenset(("builtin", "platform", "frontend", "inline_python"))
"""Types of Goose's extensions that are no servers."""
_HOST_FOLDERS = {".vscode", ".cursor", ".windsurf", ".zed", ".continue", ".claude", ".roo", ".amazonq"}
_HOST_FOLDERS |= {".codex", ".gemini", ".kiro", ".opencode", ".kilocode"}
_PROJECT_FILES = (".mcp.json", "opencode.json", "opencode.jsonc")


class NoServers(ConfigError):
    """The file has none of the keys under which hosts keep their servers."""


class RefusedServer(ConfigError):
    """A server of a host's file cannot be used. name: that its source would have."""

    def __init__(self, problem: str, name: str = "") -> None:
        super().__init__(problem)
        self.name = name


@dataclass(frozen=True, slots=True)
class Imported:
    """One server of a host's file. table: as a table `[[sources]]`, with references instead of variables."""

    source: DataSource
    table: Mapping[str, Any] = field(repr=False)


def host_servers(
    path: str,
    *,
    environ: Mapping[str, str],
    cwd: str | None = None,
    on_refused: Callable[[RefusedServer], None] | None = None,
    on_elsewhere: Callable[[Mapping[str, int]], None] | None = None,
    read_yaml: ReadYaml | None = None,
) -> tuple[Imported, ...]:
    """Return the enabled servers of an MCP host's file, in its order, also in the form of bbfs's own file.

    cwd: the directory whose project (of a `~/.claude.json`) counts; default: the current one.
    on_refused: called with the error of each unusable server, while the import goes on. Without it, any such server
        fails the import. Raise ConfigError then, and if the file itself cannot be read.
    on_elsewhere: called with the number of servers of each project in another directory, if there are any.
    read_yaml: reads files in YAML.
    """
    here = os.path.realpath(cwd or os.getcwd())
    document = _read(path, read_yaml)
    entries = _entries(document, path, here, environ)
    is_off = switched_off(path, environ, partial(_read, read_yaml=read_yaml))
    elsewhere = _elsewhere(document, here, environ)
    if elsewhere and on_elsewhere is not None:
        on_elsewhere(elsewhere)
    problems = Problems(path)
    found: list[Imported] = []
    for entry, name in zip(entries, unique_slugs([entry.name for entry in entries]), strict=True):
        if _is_disabled(entry, document) or is_off(entry.name):
            continue  # only now: switching one server on or off renames no other
        own = Problems(path)
        reader = EntryReader(entry, own, environ, here, os.path.dirname(os.path.abspath(path)))
        server = reader.server()
        if server is not None:
            prefix = build_uri_prefix("mcp", "server", name)
            source = DataSource(name, name, "server", "mcp", uri_prefix=prefix, mcp=server, title=entry.name)
            found.append(Imported(source, reader.table(name, server)))
        elif on_refused is None:
            problems.extend(own)
        else:
            on_refused(RefusedServer("\n".join(own), name))
    problems.raise_if_any()
    return tuple(found)


def server_names(
    path: str, *, environ: Mapping[str, str], cwd: str | None = None, read_yaml: ReadYaml | None = None
) -> list[str]:
    """Return the names of the enabled servers in an MCP host's file, usable or not. Raise ConfigError."""
    document = _read(path, read_yaml)
    entries = _entries(document, path, os.path.realpath(cwd or os.getcwd()), environ)
    is_off = switched_off(path, environ, partial(_read, read_yaml=read_yaml))
    return [entry.name for entry in entries if not _is_disabled(entry, document) and not is_off(entry.name)]


def import_mcp_hosts(path: str, *, environ: Mapping[str, str], **others: Any) -> tuple[DataSource, ...]:
    """Return the sources of `host_servers`, which takes the same arguments."""
    return tuple(each.source for each in host_servers(path, environ=environ, **others))


def _read(path: str, read_yaml: ReadYaml | None) -> Any:
    text = read_text(path, regular=True)
    if path.endswith(".toml"):
        return parse_toml(path, text)
    if path.endswith(_YAML):
        if read_yaml is None:
            raise ConfigError(f"{path}: files in YAML cannot be read here")
        try:
            text = read_yaml(text.encode(), path).decode()
        except ConfigError:
            raise
        except BbfsError as error:
            raise ConfigError(str(error)) from None
    try:
        return jsonc.loads(text)
    except json.JSONDecodeError as error:
        reason, line = f"{error.msg} (column {error.colno})", error.lineno
    except RecursionError:
        reason, line = "nested too deeply", 1
    # Raised here because a JSONDecodeError carries the whole file.
    raise ConfigError(f"{path}:{line}: not JSON: {reason}")


def _entries(document: Any, path: str, here: str, environ: Mapping[str, str]) -> list[Entry]:
    """Return every server of the file. A project's server replaces a global one with the same name."""
    folder = _project_folder(path, environ)
    found: dict[str, Entry] = {}
    containers = [(keys, value) for keys in _CONTAINERS if (value := _get(document, keys)) is not None]
    containers += _own_forms(document, path)
    if isinstance(document, list):
        containers.append(((), document))
    projects = document.get("projects") if isinstance(document, dict) else None
    if not containers and not isinstance(projects, dict):
        keys = ", ".join([*(".".join(keys) for keys in _CONTAINERS), "mcp", "extensions"])
        raise NoServers(f"{path}: has no MCP servers; looked for the keys {keys}")
    for keys, container in containers:
        for entry in _named(container, keys, path, folder):
            found.setdefault(entry.name, entry)
    for place, project in (projects if isinstance(projects, dict) else {}).items():
        if isinstance(project, dict) and os.path.realpath(expand_user(place, environ)) == here:
            servers = project.get("mcpServers")
            for entry in _named(servers if servers is not None else {}, ("projects", place, "mcpServers"), path, here):
                found[entry.name] = entry
            disabled = project.get("disabledMcpServers")
            for name in disabled if isinstance(disabled, list) else ():
                found.pop(str(name), None)
    return list(found.values())


def _own_forms(document: Any, path: str) -> list[tuple[tuple[str, ...], Any]]:
    """Return the containers whose key means something else in other files: `mcp` of opencode, `extensions` of Goose."""
    found: list[tuple[tuple[str, ...], Any]] = []
    listed = _get(document, ("mcp",))
    if isinstance(listed, dict):
        servers = {name: value for name, value in listed.items() if _get(value, ("type",)) in _OPENCODE_TYPES}
        found += [(("mcp",), servers)] if servers else []
    listed = _get(document, ("extensions",))
    if isinstance(listed, dict) and path.endswith(_YAML):
        servers = {name: _unnested(value) for name, value in listed.items()}
        found.append((("extensions",), {k: v for k, v in servers.items() if _get(v, ("type",)) not in _NO_SERVERS}))
    return found


def _unnested(value: Any) -> Any:
    """Return an extension of Goose with the keys of its `config`, under which some versions have all but `enabled`."""
    inner = _get(value, ("config",))
    return value | inner if isinstance(inner, dict) else value


def _elsewhere(document: Any, here: str, environ: Mapping[str, str]) -> dict[str, int]:
    """Return the directories other than `here` that have servers of their own, with the number of each."""
    projects = document.get("projects") if isinstance(document, dict) else None
    counts: dict[str, int] = {}
    for place, project in (projects if isinstance(projects, dict) else {}).items():
        servers = project.get("mcpServers") if isinstance(project, dict) else None
        if isinstance(servers, dict | list) and servers and os.path.realpath(expand_user(place, environ)) != here:
            counts[place] = len(servers)
    return counts


def _get(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _named(container: Any, keys: KeyPath, file: str, folder: str | None) -> Iterator[Entry]:
    """Yield the servers of a table (by name) or of a list (with names inside, or numbered)."""
    if isinstance(container, dict):
        items = [(name, (*keys, name), value) for name, value in container.items()]
    elif isinstance(container, list):
        items = [(_list_name(value, index), (*keys, index), value) for index, value in enumerate(container)]
    else:
        items = [("", keys, container)]
    for name, path, value in items:
        if not isinstance(value, dict):
            problems = Problems(file)
            problems.add(path, "should be a table that describes a server")
            problems.raise_if_any()
        form = "shell" if ".gemini" in file.split(os.sep) else _FORMS.get(".".join(map(str, keys)), "braces")
        if keys == ("mcp", "servers") and value.get("type") in _OPENCODE_TYPES:
            form = "opencode"  # of its second version; elsewhere, this is VS Code's key
        yield Entry(name, path, value, folder, form)


def _list_name(value: Any, index: int) -> str:
    name = value.get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) and name else f"server-{index + 1}"


def _project_folder(path: str, environ: Mapping[str, str]) -> str | None:
    """Return the folder of the project that a file belongs to, or None for a user's (such as `~/.cursor/mcp.json`)."""
    folder, name = os.path.split(os.path.realpath(path))
    parts = folder.split(os.sep)
    for index, part in enumerate(parts):
        if part in _HOST_FOLDERS:
            owner = os.sep.join(parts[:index]) or "/"
            return owner if owner != os.path.realpath(expand_user("~", environ)) else None
    is_users = folder.startswith(os.path.realpath(expand_user("~/.config", environ)) + os.sep)
    return folder if name in _PROJECT_FILES and not is_users else None


def _is_disabled(entry: Entry, document: Any) -> bool:
    """Return whether a server is off, by its own keys or by the lists of Gemini CLI."""
    if entry.value.get("disabled") is True or entry.value.get("enabled") is False:
        return True
    excluded, allowed = (_get(document, ("mcp", key)) for key in ("excluded", "allowed"))
    if isinstance(excluded, list) and entry.name in excluded:
        return True
    return isinstance(allowed, list) and bool(allowed) and entry.name not in allowed
