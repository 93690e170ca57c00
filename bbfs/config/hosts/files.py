"""The MCP servers of another program's configuration file.

Known forms: `mcpServers` (Claude Code, Claude Desktop, `.mcp.json`, Cursor, Windsurf), Claude Code's
`projects.{path}.mcpServers`, `servers` and `mcp.servers` (VS Code), `context_servers` (Zed), and lists of servers
(Continue). Keys that do not say how to reach a server are ignored.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bbfs.config.hosts import jsonc
from bbfs.config.hosts.variables import HostVariables, read_env_file
from bbfs.config.interpolation import UnresolvedReference, as_path, expand_user
from bbfs.config.naming import unique_slugs
from bbfs.config.problems import KeyPath, Problems, quote
from bbfs.config.server import looks_like_command_line, make_server
from bbfs.config.toml import read_text
from bbfs.model.errors import ConfigError
from bbfs.model.uri import build_uri_prefix
from bbfs.model.values import DataSource, McpServer

_CONTAINERS: tuple[tuple[str, ...], ...] = (
    ("mcpServers",),
    ("servers",),
    ("mcp", "servers"),
    ("mcp.servers",),
    ("context_servers",),
    ("experimental", "modelContextProtocolServers"),
)
_URL_KEYS = ("url", "serverUrl", "httpUrl")
_TRANSPORTS = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamablehttp": "http",
    "streamable": "http",
    "remote": "http",
    "sse": "sse",
}
_HOST_FOLDERS = {".vscode", ".cursor", ".windsurf", ".zed", ".continue", ".claude", ".roo", ".amazonq"}
_HOLDERS = ("transport", "command")
"""Keys under which some hosts keep the parts of a server: Continue's `transport`, Zed's `command`."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One server in its host's form. folder: the start of relative paths; None if the host leaves it open."""

    name: str
    path: KeyPath
    value: Mapping[str, Any]
    folder: str | None


def import_mcp_hosts(
    path: str,
    *,
    environ: Mapping[str, str],
    cwd: str | None = None,
    on_refused: Callable[[ConfigError], None] | None = None,
    on_elsewhere: Callable[[Mapping[str, int]], None] | None = None,
) -> tuple[DataSource, ...]:
    """Return the enabled servers of an MCP host's file, in its order.

    cwd: the directory whose project (of a `~/.claude.json`) counts; default: the current one.
    on_refused: called with the error of each unusable server, while the import goes on. Without it, any such server
        fails the import. Raise ConfigError then, and if the file itself cannot be read.
    on_elsewhere: called with the number of servers of each project in another directory, if there are any.
    """
    here = os.path.realpath(cwd or os.getcwd())
    document = _read(path)
    entries = _entries(document, path, here, environ)
    elsewhere = _elsewhere(document, here, environ)
    if elsewhere and on_elsewhere is not None:
        on_elsewhere(elsewhere)
    problems = Problems(path)
    sources: list[DataSource] = []
    for entry, name in zip(entries, unique_slugs([entry.name for entry in entries]), strict=True):
        if _is_disabled(entry.value):
            continue  # only now: switching one server on or off renames no other
        own = Problems(path)
        server = _Reader(entry, own, environ, here, os.path.dirname(os.path.abspath(path))).server()
        if server is not None:
            prefix = build_uri_prefix("mcp", "server", name)
            sources.append(DataSource(name, name, "server", "mcp", uri_prefix=prefix, mcp=server, title=entry.name))
        elif on_refused is None:
            problems.extend(own)
        else:
            on_refused(ConfigError("\n".join(own)))
    problems.raise_if_any()
    return tuple(sources)


def _read(path: str) -> Any:
    if path.endswith((".yaml", ".yml", ".toml")):
        raise ConfigError(f"{path}: MCP servers are read from JSON files only")
    text = read_text(path, regular=True)
    try:
        return jsonc.loads(text)
    except json.JSONDecodeError as error:
        reason, line = f"{error.msg} (column {error.colno})", error.lineno
    except RecursionError:
        reason, line = "nested too deeply", 1
    # Raised here because a JSONDecodeError carries the whole file.
    raise ConfigError(f"{path}:{line}: not JSON: {reason}")


def _entries(document: Any, path: str, here: str, environ: Mapping[str, str]) -> list[_Entry]:
    """Return every server of the file. A project's server replaces a global one with the same name."""
    folder = _project_folder(path, environ)
    found: dict[str, _Entry] = {}
    containers = [(keys, value) for keys in _CONTAINERS if (value := _get(document, keys)) is not None]
    if isinstance(document, list):
        containers.append(((), document))
    projects = document.get("projects") if isinstance(document, dict) else None
    if not containers and not isinstance(projects, dict):
        keys = ", ".join(".".join(keys) for keys in _CONTAINERS)
        raise ConfigError(f"{path}: has no MCP servers; looked for the keys {keys}")
    for keys, container in containers:
        for entry in _named(container, keys, path, folder):
            found.setdefault(entry.name, entry)
    for place, project in (projects if isinstance(projects, dict) else {}).items():
        if isinstance(project, dict) and os.path.realpath(expand_user(place, environ)) == here:
            servers = project.get("mcpServers")
            for entry in _named(servers if servers is not None else {}, ("projects", place, "mcpServers"), path, here):
                found[entry.name] = entry
            for name in project.get("disabledMcpServers") or ():
                found.pop(name, None)
    return list(found.values())


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


def _named(container: Any, keys: KeyPath, file: str, folder: str | None) -> Iterator[_Entry]:
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
        yield _Entry(name, path, value, folder)


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
    return folder if name == ".mcp.json" else None


def _is_disabled(value: Mapping[str, Any]) -> bool:
    return value.get("disabled") is True or value.get("enabled") is False


class _Reader:
    """Makes the McpServer of one entry, and adds its faults to `problems`."""

    def __init__(self, entry: _Entry, problems: Problems, environ: Mapping[str, str], here: str, base: str) -> None:
        self._entry = entry
        self._problems = problems
        self._environ = environ
        self._folder = entry.folder
        self._start = entry.folder or here
        own = entry.value.get("env")
        left_to_server = frozenset(own) if isinstance(own, dict) else frozenset()
        self._variables = HostVariables(environ, self._start, base)
        self._arguments = HostVariables(environ, self._start, base, left_to_server)

    def server(self) -> McpServer | None:
        parts = self._parts()
        transport = self._transport(parts)
        args = self._strings(parts, "args")
        command = self._string(parts, "command")
        url = next((self._string(parts, key) for key in _URL_KEYS if parts.get(key) is not None), None)
        if command is not None and url is not None and transport in ("stdio", None):
            url = None  # some hosts keep both, and start the program
        env = self._table(parts, "env")
        cwd = self._string(parts, "cwd")
        if command is not None and parts.get("envFile") is not None:
            env = self._env_file(parts) | env
        headers = self._table(parts, "headers") | self._nested_headers(parts)
        if command is not None and url is None and (wrong := looks_like_command_line(command, env)):
            self._problem(("command",), wrong)
        if self._problems:
            return None
        return make_server(
            transport,
            command=command if url is None or transport == "stdio" else None,
            args=args,
            env=env,
            cwd=as_path(cwd, self._start, self._environ) if cwd else self._folder if url is None else None,
            url=url,
            headers=headers,
            problem=self._problem,
        )

    def _problem(self, path: KeyPath, message: str) -> None:
        self._problems.add((*self._entry.path, *path), message)

    def _parts(self) -> dict[str, Any]:
        """Return the entry's keys, with those of `transport: {…}` and `command: {path, args, env}` lifted up."""
        parts = dict(self._entry.value)
        for holder in _HOLDERS:
            inner = parts.get(holder)
            if isinstance(inner, dict):
                del parts[holder]
                parts |= {"command" if key == "path" else key: value for key, value in inner.items()}
        if isinstance(parts.get("command"), list):  # a whole command line in one list
            line = parts["command"]
            parts["command"], parts["args"] = (line[0] if line else ""), [*line[1:], *(parts.get("args") or [])]
        if parts.get("source") == "extension" and parts.get("command") is None:
            self._problem((), "is started by an extension of the editor; its command is not in this file")
        return parts

    def _transport(self, parts: Mapping[str, Any]) -> str | None:
        for key in ("type", "transport", "transportType"):
            kind = parts.get(key)
            if isinstance(kind, str):
                known = _TRANSPORTS.get(re.sub(r"[^a-z]", "", kind.lower()))
                if known is None:
                    expected = "'stdio', 'http', 'streamable-http' or 'sse'"
                    self._problem((key,), f"transport {quote(kind)} is not supported; expected {expected}")
                if kind == "remote":
                    return None  # there is a URL, with either of the two transports
                return known
        return None

    def _string(self, parts: Mapping[str, Any], key: str) -> str | None:
        value = parts.get(key)
        return None if value is None else self._expand(value, (key,))

    def _strings(self, parts: Mapping[str, Any], key: str) -> list[str]:
        value = parts.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self._problem((key,), "should be a list of strings")
            return []
        return [self._expand(item, (key, index), self._arguments) for index, item in enumerate(value)]

    def _table(self, parts: Mapping[str, Any], key: str) -> dict[str, str]:
        value = parts.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._problem((key,), "should be a table of strings")
            return {}
        return {name: self._expand(item, (key, name)) for name, item in value.items() if item is not None}

    def _nested_headers(self, parts: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers of Continue's `requestOptions: {headers: {…}}`."""
        options = parts.get("requestOptions")
        return self._table(options, "headers") if isinstance(options, dict) else {}

    def _expand(self, value: object, path: KeyPath, variables: HostVariables | None = None) -> str:
        if isinstance(value, bool | int | float):
            return json.dumps(value)  # hosts in JavaScript take 8080 for "8080"
        if not isinstance(value, str):
            self._problem(path, "should be a string")
            return ""
        try:
            return (variables or self._variables).expand(value)
        except UnresolvedReference as error:
            self._problem(path, str(error))
            return ""

    def _env_file(self, parts: Mapping[str, Any]) -> dict[str, str]:
        path = self._string(parts, "envFile") or ""
        if self._problems:
            return {}
        try:
            return read_env_file(as_path(path, self._start, self._environ), str(parts["envFile"]))
        except UnresolvedReference as error:
            self._problem(("envFile",), str(error))
            return {}
