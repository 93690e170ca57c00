"""The variables that MCP hosts allow in their configuration files.

`${VAR}` and `${VAR:-default}` (Claude Code), `${env:VAR}` (VS Code, Cursor, Windsurf), `${file:PATH}` (Windsurf),
`${workspaceFolder}`, `${workspaceFolderBasename}`, `${cwd}`, `${userHome}`, `${pathSeparator}`, `${/}`, `${input:id}`
(VS Code, Cursor), `${extensionPath}`, `${workspacePath}` (extensions of Gemini CLI), `${{ secrets.VAR }}` (Continue),
`$VAR` (Gemini CLI, Goose), `{env:VAR}`, `{file:PATH}` (opencode).
Other text in braces, such as a shell's `${#list}`, stays.
"""

import os
import re
from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Literal

from bbfs.config.interpolation import Interpolated, UnresolvedReference, as_path, expand_user, read_secret_file

Form = Literal["braces", "shell", "opencode", "literal"]
"""The form of the variables in a file: `${VAR}`, this and `$VAR`, `{env:VAR}`, or none (Codex)."""
_BRACES = r"\$\{\{(?P<template>(?:[^$]|\$(?!\{\{))*?)\}\}|\$\{(?P<body>[^{}]*)\}"
_REFERENCES: Mapping[Form, re.Pattern[str]] = {
    "braces": re.compile(_BRACES, re.DOTALL),
    "shell": re.compile(rf"{_BRACES}|\$(?P<bare>[A-Za-z_][A-Za-z0-9_]*)", re.DOTALL),
    "opencode": re.compile(r"\{(?P<body>(?:env|file):[^{}]*)\}"),
    "literal": re.compile(r"(?!)"),
}
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_SECRET = re.compile(r"\s*secrets\.([A-Za-z_][A-Za-z0-9_]*)\s*")
_OTHER_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]*:[^-].*", re.DOTALL)
_ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)")
_NOT_OURS = "cannot be resolved outside the program that the file belongs to"


class HostVariables:
    """Expands the variables of one host's file. `workspace` is the folder that the file or its servers belong to."""

    def __init__(
        self,
        environ: Mapping[str, str],
        workspace: str,
        base: str,
        left_to_server: Container[str] = (),
        form: Form = "braces",
        own: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Take the folder and the variables. left_to_server: variables that the server gets and may expand itself (a
        habit of `mcp-remote`'s users). If `environ` lacks one, a reference to it stays. own: variables of the server
        that come before those of `environ`.
        """
        self._own = own
        self._environ = environ
        self._left_to_server = left_to_server
        self._base = base
        self._references = _REFERENCES[form]
        self._fixed = {
            "workspaceFolder": workspace,
            "workspaceRoot": workspace,
            "workspacePath": workspace,
            "extensionPath": base,
            "cwd": workspace,
            "workspaceFolderBasename": os.path.basename(workspace),
            "userHome": expand_user("~", environ),
            "pathSeparator": "/",
            "/": "/",
        }

    def expand(self, text: str) -> str:
        """Return `text` with its variables expanded. Raise UnresolvedReference, which names the variable only."""
        values: list[str] = []
        pieces: list[str] = []
        at = 0
        for match in self._references.finditer(text):
            pieces.append(self.literal(text[at : match.start()]))
            value = self._value(match)
            pieces.append(self.literal(match[0]) if value is None else value)
            if value is not None and match["body"] not in self._fixed:
                values.append(value)
            at = match.end()
        return self._made("".join([*pieces, self.literal(text[at:])]), text, values)

    def _made(self, expanded: str, text: str, values: list[str]) -> str:
        return Interpolated.of(expanded, text, values) if expanded != text or values else text

    def literal(self, text: str) -> str:
        """Return text without variables as it is in the result."""
        return text

    def _value(self, match: re.Match[str]) -> str | None:
        """Return the value of a reference, or None if it stays."""
        groups = match.groupdict()
        if groups.get("bare") is not None:
            known = groups["bare"] in self._environ or groups["bare"] in self._own
            return self.variable(groups["bare"]) if known else None
        if groups.get("template") is not None:
            secret = _SECRET.fullmatch(groups["template"])
            if secret is None:
                raise UnresolvedReference(f"${{{{{groups['template']}}}}} {_NOT_OURS}")
            return self.variable(secret[1])
        body = groups["body"]
        if body in self._fixed:
            return self.literal(self._fixed[body])
        kind, _, argument = body.partition(":")
        if kind == "input":
            return self._input(argument)
        if kind == "file":
            return self._file(argument)
        variable = _VARIABLE.fullmatch(body)
        if variable:
            if variable[1] in self._left_to_server and variable[1] not in self._environ and body == variable[1]:
                return None
            return self.variable(variable[1], variable[2])
        if _OTHER_KIND.fullmatch(body):
            raise UnresolvedReference(f"${{{body}}} {_NOT_OURS}")
        return None

    def variable(self, name: str, default: str | None = None) -> str:
        """Return a variable. Raise UnresolvedReference."""
        value = self._own.get(name, self._environ.get(name))
        if default is not None:
            return value or default  # as in a shell, ":-" also replaces an empty value
        if value is None:
            raise UnresolvedReference(f"environment variable {name} is not set")
        return value

    def _file(self, path: str) -> str:
        return read_secret_file(as_path(path, self._base, self._environ), path)

    def _input(self, identifier: str) -> str:
        name = _input_variable(identifier)
        if name not in self._environ:
            raise UnresolvedReference(
                f"${{input:{identifier}}} would be asked for interactively; set the environment variable {name} instead"
            )
        return self._environ[name]


class HostReferences(HostVariables):
    """Writes the variables of one host's file as references of bbfs's own, so that no value is copied."""

    def _made(self, expanded: str, text: str, values: list[str]) -> str:
        return expanded

    def literal(self, text: str) -> str:
        return text.replace("${", "$${")

    def variable(self, name: str, default: str | None = None) -> str:
        if name in self._own:
            return self.literal(self._own[name])
        return f"${{env:{name}}}" if default is None else f"${{env:{name}:-{default}}}"

    def _file(self, path: str) -> str:
        return f"${{file:{as_path(path, self._base, self._environ)}}}"

    def _input(self, identifier: str) -> str:
        return f"${{env:{_input_variable(identifier)}}}"


def _input_variable(identifier: str) -> str:
    return "BBFS_INPUT_" + re.sub(r"[^A-Z0-9]", "_", identifier.upper())


def read_env_file(path: str, shown: str) -> dict[str, str]:
    """Return the variables of a `.env` file: `NAME=value` lines, `export` allowed, quotes removed, nothing expanded.

    Raise UnresolvedReference. No value appears in a `repr`.
    """
    variables: dict[str, str] = {}
    for number, line in enumerate(read_secret_file(path, shown).splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _ASSIGNMENT.fullmatch(text)
        if not match:
            raise UnresolvedReference(f"line {number} of {shown} is not NAME=value")
        value = match[2]
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        else:
            value = re.split(r"\s#", value, maxsplit=1)[0].rstrip()
        variables[match[1]] = Interpolated.of(value, f"${{file:{shown}}}")
    return variables
