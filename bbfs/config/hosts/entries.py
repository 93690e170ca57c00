"""One MCP server in the file of another program: its keys, in the names and forms of each host.

Keys that do not say how to reach a server are ignored.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bbfs.config.hosts.variables import Form, HostReferences, HostVariables, read_env_file
from bbfs.config.interpolation import Interpolated, UnresolvedReference, as_path
from bbfs.config.problems import KeyPath, Problems, quote
from bbfs.config.server import looks_like_command_line, make_server, transport_of_url
from bbfs.model.values import McpServer

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
_HOLDERS = ("transport", "command")
"""Keys under which some hosts keep the parts of a server: Continue's `transport`, Zed's `command`."""
_OTHER_NAMES = {"cmd": "command", "envs": "env", "environment": "env", "uri": "url", "http_headers": "headers"}
"""Keys of a server in Codex, Goose and opencode, with the keys of all others."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One server in its host's form. folder: the start of relative paths; None if the host leaves it open."""

    name: str
    path: KeyPath
    value: Mapping[str, Any]
    folder: str | None
    form: Form = "braces"


class EntryReader:
    """Makes the McpServer of one entry, and adds its faults to `problems`."""

    def __init__(self, entry: Entry, problems: Problems, environ: Mapping[str, str], here: str, base: str) -> None:
        self._entry = entry
        self._problems = problems
        self._environ = environ
        self._folder = entry.folder
        self._start = entry.folder or here
        self._base = base
        self._parts = self._lifted()
        self._use(HostVariables)

    def _use(self, variables: type[HostVariables]) -> None:
        """Expand variables this way from now on."""
        form, given = self._entry.form, self._parts.get("env")
        own = {key: text for key, text in given.items() if isinstance(text, str)} if isinstance(given, dict) else {}
        places = (self._environ, self._start, self._base)
        self._variables = variables(*places, form=form)
        self._arguments = variables(*places, frozenset(own), form)
        self._addresses = variables(*places, form=form, own=own if form == "shell" else {})

    def server(self) -> McpServer | None:
        parts = self._expanded()
        if parts["command"] is not None and (wrong := looks_like_command_line(parts["command"], parts["env"])):
            self._problem(("command",), wrong)
        if self._problems:
            return None
        return make_server(self._transport(), **parts, problem=self._problem)

    def table(self, name: str, server: McpServer) -> Mapping[str, Any]:
        """Return the server as a table `[[sources]]`, with references instead of variables."""
        self._use(HostReferences)
        parts = {key: value for key, value in self._expanded().items() if value}
        if server.url is not None and server.transport != transport_of_url(server.url):
            parts["transport"] = server.transport
        command = parts.get("command", "")
        if "/" in command and "${" not in command:
            parts["command"] = as_path(command, server.cwd or self._start, self._environ)
        title = {"title": self._entry.name} if self._entry.name != name else {}
        return {"name": name, **title, "accessMethod": "mcp", "mcpConfig": parts}

    def _expanded(self) -> dict[str, Any]:
        """Return the parts of the server, with variables expanded."""
        transport = self._transport()
        command = self._string("command")
        url = next((self._string(key) for key in _URL_KEYS if self._parts.get(key) is not None), None)
        if command is not None and url is not None and transport in ("stdio", None):
            url = None  # some hosts keep both, and start the program
        env = self._table("env") | self._forwarded()
        if command is not None and self._parts.get("envFile") is not None:
            env = self._env_file() | env
        cwd = self._string("cwd")
        if cwd and "${" not in cwd:
            cwd = as_path(cwd, self._start, self._environ)
        return {
            "command": command if url is None or transport == "stdio" else None,
            "args": self._strings("args"),
            "env": env,
            "cwd": cwd or (self._folder if url is None else None),
            "url": url,
            "headers": self._headers(),
        }

    def _problem(self, path: KeyPath, message: str) -> None:
        """Add a fault, under the key that the host has for it."""
        given = self._entry.value
        written = next((old for old, new in _OTHER_NAMES.items() if (new,) == path[:1] and old in given), None)
        path = (written, *path[1:]) if written is not None and path[0] not in given else path
        self._problems.add((*self._entry.path, *path), message)

    def _lifted(self) -> dict[str, Any]:
        """Return the entry's keys under the names of most hosts.

        Those of `transport: {…}` and `command: {path, args, env}` are lifted up.
        """
        given = self._entry.value
        parts = {new: given[old] for old, new in _OTHER_NAMES.items() if old in given} | dict(given)
        for holder in _HOLDERS:
            inner = parts.get(holder)
            if isinstance(inner, dict):
                del parts[holder]
                parts |= {"command" if key == "path" else key: value for key, value in inner.items()}
        if isinstance(parts.get("command"), list):  # a whole command line in one list
            line = parts["command"]
            more = parts.get("args") or []
            parts["command"] = line[0] if line else ""
            parts["args"] = [*line[1:], *more] if isinstance(more, list) else more
        if parts.get("source") == "extension" and parts.get("command") is None:
            self._problem((), "is started by an extension of the editor; its command is not in this file")
        return parts

    def _transport(self) -> str | None:
        for key in ("type", "transport", "transportType"):
            kind = self._parts.get(key)
            if isinstance(kind, str):
                known = _TRANSPORTS.get(re.sub(r"[^a-z]", "", kind.lower()))
                if known is None:
                    expected = "'stdio', 'http', 'streamable-http' or 'sse'"
                    self._problem((key,), f"transport {quote(kind)} is not supported; expected {expected}")
                if kind == "remote":
                    return None  # there is a URL, with either of the two transports
                return known
        # Gemini CLI has `url` for SSE alone.
        is_gemini = ".gemini" in self._base.split(os.sep)
        return "sse" if is_gemini and "url" in self._parts and not {"httpUrl", "command"} & {*self._parts} else None

    def _string(self, key: str) -> str | None:
        value = self._parts.get(key)
        return None if value is None else self._expand(value, (key,), self._addresses)

    def _strings(self, key: str) -> list[str]:
        return [self._expand(item, (key, index), self._arguments) for index, item in enumerate(self._listed(key))]

    def _listed(self, key: str) -> list[Any]:
        value = self._parts.get(key)
        if value is None or isinstance(value, list):
            return value or []
        self._problem((key,), "should be a list of strings")
        return []

    def _table(self, key: str, variables: HostVariables | None = None) -> dict[str, str]:
        value = self._parts.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._problem((key,), "should be a table of strings")
            return {}
        return {name: self._expand(item, (key, name), variables) for name, item in value.items() if item is not None}

    def _headers(self) -> dict[str, str]:
        """Return the headers, with those of Continue's `requestOptions` and `apiKey`, and Codex's from variables."""
        options = self._parts.get("requestOptions")
        nested = options.get("headers") if isinstance(options, dict) else None
        headers = self._table("headers", self._addresses)
        for name, value in (nested if isinstance(nested, dict) else {}).items():
            headers[name] = self._expand(value, ("requestOptions", "headers", name))
        key = self._parts.get("apiKey")
        if isinstance(key, str) and "Authorization" not in headers:
            headers["Authorization"] = self._expand(f"Bearer {key}", ("apiKey",))
        named = self._parts.get("env_http_headers")
        for name, variable in (named if isinstance(named, dict) else {}).items():
            if isinstance(variable, str) and self._environ.get(variable):
                headers[name] = self._variables.variable(variable)
        token = self._parts.get("bearer_token_env_var")
        if isinstance(token, str):
            value = self._variable(token, "bearer_token_env_var")
            secrets = frozenset((value,))
            headers["Authorization"] = Interpolated.of(f"Bearer {value}", f"Bearer ${{env:{token}}}", secrets)
        return headers

    def _forwarded(self) -> dict[str, str]:
        """Return the variables that Codex forwards (`env_vars`), if they are set, and those that Goose requires."""
        env: dict[str, str] = {}
        for each in self._listed("env_vars"):
            if isinstance(each, dict) and each.get("source") == "remote":
                continue  # it is set where Codex runs the server, not here
            name = each.get("name") if isinstance(each, dict) else each
            if isinstance(name, str) and name in self._environ:
                env[name] = self._variables.variable(name)
        for name in self._listed("env_keys"):
            if isinstance(name, str):
                env[name] = self._variable(name, "env_keys")
        return env

    def _variable(self, name: str, key: str) -> str:
        try:
            return self._variables.variable(name)
        except UnresolvedReference as error:
            self._problem((key,), str(error))
            return ""

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

    def _env_file(self) -> dict[str, str]:
        written = str(self._parts["envFile"])
        try:
            path = HostVariables(self._environ, self._start, self._base, form=self._entry.form).expand(written)
            found = read_env_file(as_path(path, self._start, self._environ), written)
        except UnresolvedReference as error:
            self._problem(("envFile",), str(error))
            return {}
        return {name: self._variables.literal(value) for name, value in found.items()}
