"""Where the tests find what belongs to the repository."""

import ast
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
DOCS = ROOT / "docs"
SERVERS = Path(__file__).parent / "servers"
"""Servers that tests start as processes of their own."""


def own_modules() -> Iterator[Path]:
    """Yield the modules of the tests, without the forty thousand files of what is installed for them."""
    for directory, directories, files in os.walk(TESTS):
        directories[:] = [name for name in directories if name not in ("thirdparty", "__pycache__")]
        yield from (Path(directory, name) for name in files if name.endswith(".py"))


@cache
def parsed(path: Path) -> ast.Module:
    """Return the tree of a module."""
    return ast.parse(path.read_text())
