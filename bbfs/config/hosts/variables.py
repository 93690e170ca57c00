"""The variables that MCP hosts allow in their configuration files.

`${VAR}` and `${VAR:-default}` (Claude Code), `${env:VAR}` (VS Code, Cursor, Windsurf), `${file:PATH}` (Windsurf),
`${workspaceFolder}`, `${workspaceFolderBasename}`, `${cwd}`, `${userHome}`, `${pathSeparator}`, `${/}`, `${input:id}`
(VS Code, Cursor). Other text in braces, such as a shell's `${#list}`, stays.
"""

import os
import re
from collections.abc import Container, Mapping

from bbfs.config.interpolation import Interpolated, UnresolvedReference, as_path, expand_user, read_secret_file

_REFERENCE = re.compile(r"\$\{\{(.*?)\}\}|\$\{([^{}]*)\}", re.DOTALL)
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_OTHER_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]*:[^-].*", re.DOTALL)
_ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)")
_NOT_OURS = "cannot be resolved outside the program that the file belongs to"


class HostVariables:
    """Expands the variables of one host's file. `workspace` is the folder that the file or its servers belong to."""

    def __init__(
        self, environ: Mapping[str, str], workspace: str, base: str, left_to_server: Container[str] = ()
    ) -> None:
        """Take the folder and the variables. left_to_server: variables that the server gets and may expand itself (a
        habit of `mcp-remote`'s users). If `environ` lacks one, a reference to it stays.
        """
        self._environ = environ
        self._left_to_server = left_to_server
        self._base = base
        self._fixed = {
            "workspaceFolder": workspace,
            "workspaceRoot": workspace,
            "cwd": workspace,
            "workspaceFolderBasename": os.path.basename(workspace),
            "userHome": expand_user("~", environ),
            "pathSeparator": "/",
            "/": "/",
        }

    def expand(self, text: str) -> str:
        """Return `text` with its variables expanded. Raise UnresolvedReference, which names the variable only."""
        if "${" not in text:
            return text
        values: list[str] = []

        def value(match: re.Match[str]) -> str:
            replacement = self._value(match)
            if match[2] not in self._fixed and replacement != match[0]:
                values.append(replacement)
            return replacement

        expanded = _REFERENCE.sub(value, text)
        return Interpolated.of(expanded, text, values)

    def _value(self, match: re.Match[str]) -> str:
        body = match[2]
        if body is None:
            raise UnresolvedReference(f"${{{{{match[1]}}}}} {_NOT_OURS}")
        if body in self._fixed:
            return self._fixed[body]
        kind, _, argument = body.partition(":")
        if kind == "input":
            return self._input(argument)
        if kind == "file":
            return read_secret_file(as_path(argument, self._base, self._environ), argument)
        variable = _VARIABLE.fullmatch(body)
        if variable:
            if variable[1] in self._left_to_server and variable[1] not in self._environ and body == variable[1]:
                return match[0]
            return self._variable(variable[1], variable[2])
        if _OTHER_KIND.fullmatch(body):
            raise UnresolvedReference(f"${{{body}}} {_NOT_OURS}")
        return match[0]

    def _variable(self, name: str, default: str | None) -> str:
        value = self._environ.get(name)
        if default is not None:
            return value or default  # as in a shell, ":-" also replaces an empty value
        if value is None:
            raise UnresolvedReference(f"environment variable {name} is not set")
        return value

    def _input(self, identifier: str) -> str:
        name = "BBFS_INPUT_" + re.sub(r"[^A-Z0-9]", "_", identifier.upper())
        if name not in self._environ:
            raise UnresolvedReference(
                f"${{input:{identifier}}} would be asked for interactively; set the environment variable {name} instead"
            )
        return self._environ[name]


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
