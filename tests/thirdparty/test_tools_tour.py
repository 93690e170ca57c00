"""docs/tools-tour.md, run as it is written: one file of an MCP host, and tools by path and by command."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import State
from http_server import HttpServer
from played_page import play
from programs import run
from repository import DOCS
from thirdparty_servers import FETCH, FILESYSTEM, NODE, THINKING, Page

TIMEOUT = 60.0
"""Seconds for a command whose servers may have to start."""
_PACKAGES = {"server-filesystem": FILESYSTEM, "server-sequential-thinking": THINKING}


@pytest.fixture
def home(thirdparty: None) -> Iterator[State]:
    """A home with a folder, a repository, a host's file, and `npx` and `uvx` that start what is installed."""
    state = State()
    home = state.home
    for name in ("bin", "files", "run"):
        (home / name).mkdir()
    (home / "files/my plan.md").write_text("# Plan\n")
    subprocess.run(["git", "init", "-q", home / "src"], check=True)
    author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    subprocess.run(["git", "-C", home / "src", *author, "commit", "-q", "--allow-empty", "-m", "the first"], check=True)
    scope = "@modelcontextprotocol/"
    cases = " ".join(f'{scope}{name}) set -- {NODE} {path} ${{1+"$@"}};;' for name, path in _PACKAGES.items())
    scripts = {
        "npx": f'shift; name=$1; shift; case $name in {cases} esac; exec "$@"',
        "uvx": f'name=$1; shift; exec {FETCH.parent}/$name "$@"',
        "bbfs": f'exec {sys.executable} -m bbfs "$@"',
        "node": "exit 1",  # with one on the PATH, the server of web pages would install packages from npm for itself
    }
    for name, script in scripts.items():
        (home / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (home / "bin" / name).chmod(0o755)
    servers = {
        "filesystem": ["npx", "-y", f"{scope}server-filesystem", str(home / "files")],
        "git": ["uvx", "mcp-server-git", "--repository", str(home / "src")],
        "fetch": ["uvx", "mcp-server-fetch", "--allow-private-ips"],
        "time": ["uvx", "mcp-server-time", "--local-timezone", "UTC"],
        "sequential-thinking": ["npx", "-y", f"{scope}server-sequential-thinking"],
    }
    lines = (f"  {json.dumps(n)}: {json.dumps({'command': c[0], 'args': c[1:]})}" for n, c in servers.items())
    (home / ".claude.json").write_text('{"mcpServers": {\n' + ",\n".join(lines) + "\n}}\n")
    try:
        yield state
    finally:
        state.remove()


def plain(text: str, home: Path) -> str:
    """Return what a command prints, without what differs from run to run."""
    text = text.replace(str(home), "/home/me")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\+\d\d:\d\d", "TIME", text)
    text = re.sub(r"\b[0-9a-f]{40}\b", "COMMIT", text)
    return re.sub(r'"[A-Z][a-z]+day"', '"DAY"', text)


@pytest.mark.timeout(300)
@pytest.mark.semantics("S31", "S35")
def test_the_tour_of_tools_is_as_it_is_written(home: State) -> None:
    web = HttpServer(Page)
    mount = home.home / "bb"
    environ = home.environ() | {"PATH": f"{home.home / 'bin'}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    environ |= {"BBFS_MOUNT": str(mount), "PYTHONWARNINGS": "ignore"}

    def output(command: str) -> str:
        script = f"cd; {{ {command.replace('PORT', str(web.port))}; }} 2>&1"
        return plain(run("bash", "-c", script, env=environ, status=None, timeout=TIMEOUT).text, home.home)

    try:
        play(DOCS / "tools-tour.md", output)
        assert home.processes() == []
    finally:
        run("fusermount3", "-uz", mount, status=None)
        web.close()
