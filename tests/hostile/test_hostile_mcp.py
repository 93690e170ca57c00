"""MCP servers that harm only themselves: whatever they answer, over each transport."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import hostile_mcp
import pytest
from harness import SourceTable, mcp
from hostile import Case
from hostile_sources import started
from repository import TESTS

SERVER = TESTS / "support/hostile_mcp.py"
QUICK = {"lists in a result", "empty pages without end", "gzip of lists"}


def over_stdio(name: str) -> Callable[[Path], SourceTable]:
    return lambda _: mcp("hostile", [sys.executable, "-E", SERVER, "stdio", name], timeout=4, ttl=0)


def over_http(name: str) -> Callable[[Path], SourceTable]:
    options = {"name": "hostile", "timeout": 4, "ttl": 0}
    return lambda _: {**options, "mcpConfig": {"url": started(SERVER, "http", name)}}


_ATTRIBUTES = """
import os, sys
for name in ("", "a", "b", "c", "d"):
    os.listxattr(os.path.join(sys.argv[1], "odd", name))
"""


def read_all(directory: Path) -> Sequence[Sequence[str | Path]]:
    """List the source, then read its files at once, and their attributes."""
    attributes = [sys.executable, "-I", "-c", _ATTRIBUTES, directory]
    files = " ".join(f"{directory}/odd/{name}" for name in "abcdefgh")
    return [("ls", "-R", directory), ("sh", "-c", f"for f in {files}; do cat $f > /dev/null & done; wait"), attributes]


def cases() -> Iterator[Case]:
    for name in (*hostile_mcp.ATTACKS, "never reads", "talks on stderr"):
        yield Case(f"stdio: {name}", over_stdio(name), "mcp-server+hostile", read_all, 60, name in QUICK)
    for name in (*hostile_mcp.ATTACKS, *hostile_mcp.HTTP_ATTACKS):
        quick = name in QUICK and name in hostile_mcp.HTTP_ATTACKS
        yield Case(f"http: {name}", over_http(name), "mcp-server+hostile", read_all, 60, quick)


def watch_all(directory: Path) -> Sequence[Sequence[str | Path]]:
    """Watch the source while its names change: each listing of the directory makes others."""
    watch = f"timeout -s INT 15 {sys.executable} -m bbfs watch '{directory}' > /dev/null & sleep 3"
    return [("sh", "-c", f"{watch}; cd '{directory}/odd/d'; for i in 1 2 3 4; do ls > /dev/null; sleep 2; done; wait")]


@pytest.mark.parametrize(
    "case",
    [Case("watched", over_stdio("other names in each listing"), "mcp-server+hostile", watch_all, 60)],
    ids=str,
)
def test_a_watch_of_other_names_in_each_listing_harms_nobody(case: Case, holds: Callable[[Case], None]) -> None:
    holds(case)


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_a_hostile_server_harms_nobody(case: Case, holds: Callable[[Case], None]) -> None:
    holds(case)
