"""The table `[[sources]]` of a target as people type it: a folder, a file, a URL, or the command line of a server."""

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from bbfs.config.command_line.arguments import URL, host_name
from bbfs.config.command_line.urls import as_url, type_of_url
from bbfs.config.interpolation import as_path, expand_user
from bbfs.config.problems import quote
from bbfs.model.errors import ConfigError

TargetKind = Literal["mcp", "dir", "source"]
_SERVER_PATHS = ("/mcp", "/sse")
"""Ends of the URLs of MCP servers, by custom. Any other URL is a web page, an API or a store."""
_RELATIVE = re.compile(r"\.{1,2}(?:/|\Z)")


def source_table(
    name: str, target: Sequence[str], kind: TargetKind | None = None, *, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return the table of a source. References stay as they are.

    target: one text, or the words of a command line. kind: its meaning, as after `--mcp`, `--dir` or `--source`; the
    text decides without it. Raise ConfigError, whose text never holds the target, which may hold a secret.
    """
    text = target[0] if len(target) == 1 else shlex.join(target)
    kind = kind or ("mcp" if len(target) > 1 else _kind(name, text, environ))
    if kind == "dir":
        return {"name": name, "type": "filesystem", "config": {"root": _from_home(text, environ)}}
    if kind == "source":
        url = as_url(text, environ)
        found, option = type_of_url(url)
        if found is None:
            raise ConfigError(f"{name}: is no URL of a source, and no database or archive file")
        return {"name": name, "type": found, "config": {option: [url] if option == "urls" else url}}
    return {"name": name, "accessMethod": "mcp", "mcpConfig": _server(name, text, target, environ)}


def is_host(target: Sequence[str]) -> bool:
    """Return whether a target is a URL of a host alone, without user and path: a server may be anywhere below it."""
    url = URL.fullmatch(target[0]) if len(target) == 1 else None
    if url is None or url[1] or "${" in url[2]:
        return False
    parts = urlsplit(url[2])
    return (
        bool(parts.netloc)
        and "@" not in parts.netloc
        and parts.path in ("", "/")
        and not parts.query
        and not parts.fragment
    )


def name_of(target: Sequence[str]) -> str | None:
    """Return the name of a source at a URL: its host; None for a target that gives no name."""
    url = URL.fullmatch(target[0]) if len(target) == 1 else None
    return None if url is None else host_name(url[2])


def _kind(name: str, text: str, environ: Mapping[str, str]) -> TargetKind:
    """Return the meaning of a single text. Raise ConfigError."""
    url = URL.fullmatch(text)
    if url is not None:
        return "mcp" if url[1] or urlsplit(url[2]).path.rstrip("/").endswith(_SERVER_PATHS) else "source"
    if type_of_url(as_url(text, environ))[0] is not None:
        return "source"
    if os.path.isdir(expand_user(text, environ)):
        return "dir"
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    if words and shutil.which(expand_user(words[0], environ), path=environ.get("PATH")):
        return "mcp"
    raise ConfigError(
        f"{name}: the target is no folder, no known URL or file, and no program that can be run; 'bbfs config edit' "
        "opens the file for sources of other types, such as memory"
    )


def _server(name: str, text: str, target: Sequence[str], environ: Mapping[str, str]) -> dict[str, Any]:
    url = URL.fullmatch(text)
    if url is not None:
        transport = {"transport": "sse" if url[1].lower() == "sse" else "http"} if url[1] else {}
        return {"url": url[2], **transport}
    try:
        words = shlex.split(text) if len(target) == 1 else list(target)
    except ValueError as error:
        raise ConfigError(f"{name}: {str(error)[:1].lower()}{str(error)[1:]}") from None
    if not words:
        raise ConfigError(f"{name}: expected a command line or a URL after {quote(name)}")
    command = words[0] if "/" not in words[0] or "${" in words[0] else as_path(words[0], os.getcwd(), environ)
    server: dict[str, Any] = {"command": command, **({"args": words[1:]} if words[1:] else {})}
    if any(_RELATIVE.match(word) for word in words[1:]):
        server["cwd"] = os.getcwd()  # a mount may be started anywhere
    return server


def _from_home(path: str, environ: Mapping[str, str]) -> str:
    """Return an absolute path, beginning with `~` where it leads into the home directory."""
    if "${" in path:
        return path
    absolute, home = os.path.abspath(expand_user(path, environ)), expand_user("~", environ)
    return "~" + absolute[len(home) :] if (absolute + "/").startswith(home.rstrip("/") + "/") else absolute
