"""MCP servers whose tools a map shows as a tree, whatever they answer."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hostile_tools
import pytest
from harness import SourceTable, mcp
from hostile import Case, walk_part
from repository import TESTS

SERVER = TESTS / "support/hostile_tools.py"
QUICK = {"names that lead out"}


def mapped(form: str, name: str) -> Callable[[Path], SourceTable]:
    listing = {"tool": "ls", **hostile_tools.MAPS[form]}
    tree = {"list": listing, "read": {"tool": "cat", "arguments": {"path": "{path}"}}}
    return lambda _: mcp("hostile", [sys.executable, "-E", SERVER, name], timeout=8, map=tree)


def cases() -> Iterator[Case]:
    for form, name in hostile_tools.ATTACKS:
        yield Case(f"{form}: {name}", mapped(form, name), "mcp-server+hostile+tree", walk_part, 90, name in QUICK)


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_a_hostile_answer_of_a_tool_harms_nobody(case: Case, holds: Callable[[Case], None]) -> None:
    holds(case)
