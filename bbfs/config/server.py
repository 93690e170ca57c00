"""The connection of a configured MCP server: its transport, and checks of its parts.

Messages name the part and never its value, which may be or contain a secret.
"""

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from urllib.parse import urlsplit

from bbfs.config.interpolation import Interpolated
from bbfs.config.problems import KeyPath
from bbfs.model.values import McpServer

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # token of RFC 9110, section 5.6.2


def transport_of_url(url: str) -> str:
    """Return `sse` if the path ends in `/sse`, as is the custom of the older HTTP transport, else `http`."""
    return "sse" if re.search(r"/sse/?(?:[?#]|\Z)", url) else "http"


def looks_like_command_line(command: str, env: Mapping[str, str]) -> str | None:
    """Return the fault of a `command` that has white space and names no program, or None."""
    if not any(map(str.isspace, command.strip())):
        return None
    if shutil.which(command, path=env.get("PATH", os.environ.get("PATH"))) is not None:
        return None
    return "is the program alone, and no program has this name; its arguments belong in 'args'"


def make_server(
    transport: str | None,
    *,
    command: str | None = None,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    url: str | None = None,
    headers: Mapping[str, str] | None = None,
    problem: Callable[[KeyPath, str], None],
) -> McpServer | None:
    """Return the server, or None after `problem(path, message)` got its faults. Paths begin at the server's keys."""
    if command is not None and url is not None:
        return problem((), "has both 'command' and 'url'; a server is either started or connected to")
    if command is None and url is None:
        return problem((), "needs 'command' (a program to start) or 'url' (a server to connect to)")
    if url is not None:
        if transport == "stdio":
            return problem((), "transport 'stdio' needs 'command', not 'url'")
        wrong = _url_problems(url, headers or {})
    else:
        if transport in ("http", "sse"):
            return problem((), f"transport {transport!r} needs 'url', not 'command'")
        wrong = _command_problems(command or "", args, env or {}, cwd)
    for path, message in wrong:
        problem(path, message)
    if wrong:
        return None
    return McpServer(
        transport="stdio" if url is None else "sse" if (transport or transport_of_url(url)) == "sse" else "http",
        command=command,
        args=tuple(args),
        env=MappingProxyType(dict(env or {})),
        cwd=cwd,
        url=url,
        headers=MappingProxyType(dict(headers or {})),
        secrets=_secrets(command, *args, *(env or {}).values(), cwd, url, *(headers or {}).values()),
    )


def _secrets(*texts: str | None) -> frozenset[str]:
    return frozenset(secret for text in texts if isinstance(text, Interpolated) for secret in text.secrets)


def _url_problems(url: str, headers: Mapping[str, str]) -> list[tuple[KeyPath, str]]:
    found: list[tuple[KeyPath, str]] = []
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        found.append((("url",), "should be an http:// or https:// URL with a host"))
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            found.append((("headers", name), "is not a legal name of an HTTP header"))
        elif any(character in value for character in "\r\n\0"):
            found.append((("headers", name), "has a line break or NUL, which no HTTP header may have"))
    return found


def _command_problems(
    command: str, args: Sequence[str], env: Mapping[str, str], cwd: str | None
) -> list[tuple[KeyPath, str]]:
    found: list[tuple[KeyPath, str]] = []
    if not command.strip():
        found.append((("command",), "is empty"))
    texts: list[tuple[KeyPath, str]] = [(("command",), command), (("cwd",), cwd or "")]
    texts += [(("args", index), text) for index, text in enumerate(args)]
    texts += [(("env", name), value) for name, value in env.items()]
    found += [(path, "has a NUL character") for path, text in texts if "\0" in text]
    found += [
        (("env", name), "is not a legal name of an environment variable")
        for name in env
        if not name or "=" in name or "\0" in name
    ]
    return found
