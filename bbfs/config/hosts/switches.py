"""Servers that their host has switched off, in another file than the one that describes them."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bbfs.config.interpolation import expand_user


def switched_off(path: str, environ: Mapping[str, str], read: Callable[[str], Any]) -> Callable[[str], bool]:
    """Return the function that tells if a server of a host's file is off.

    Claude Code lists the servers of an `.mcp.json` that its user has rejected; Gemini CLI has a file for all servers.
    read: returns a document, and raises ConfigError. An unreadable file is an error: its servers may be off.
    """
    folder, name = os.path.split(os.path.realpath(path))
    off: set[str] = set()
    if name == ".mcp.json":
        for table in _claude_tables(folder, environ, read):
            for key in ("disabledMcpjsonServers", "disabledMcpServers"):
                listed = table.get(key)
                off |= {each for each in listed if isinstance(each, str)} if isinstance(listed, list) else set()
        return off.__contains__
    if os.path.basename(folder) == ".gemini":
        switches = _table(read, expand_user("~/.gemini/mcp-server-enablement.json", environ))
        off = {
            _folded(key) for key, value in switches.items() if isinstance(value, dict) and value.get("enabled") is False
        }
    return lambda server: _folded(server) in off


def _claude_tables(folder: str, environ: Mapping[str, str], read: Callable[[str], Any]) -> Iterator[dict[str, Any]]:
    """Yield the settings of Claude Code's user and of a project, and what it remembers of that."""
    given = environ.get("CLAUDE_CONFIG_DIR")
    yield _table(read, os.path.join(given or expand_user("~/.claude", environ), "settings.json"))
    for name in ("settings.json", "settings.local.json"):
        yield _table(read, os.path.join(folder, ".claude", name))
    projects = _table(read, os.path.join(given or expand_user("~", environ), ".claude.json")).get("projects")
    for place, project in projects.items() if isinstance(projects, dict) else ():
        if isinstance(project, dict) and os.path.realpath(expand_user(place, environ)) == folder:
            yield project


def _table(read: Callable[[str], Any], path: str) -> dict[str, Any]:
    document = read(path) if os.path.exists(path) else {}
    return document if isinstance(document, dict) else {}


def _folded(name: str) -> str:
    """Return a name as Gemini CLI compares it."""
    return name.strip().lower()
