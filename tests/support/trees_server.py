"""A manager of one server of trees (`servers/trees.py`), and what that server was asked for."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from harness import config_text, mcp
from repository import SERVERS

from bbfs.config.toml import load_config
from bbfs.resources.manager import ResourceManager
from bbfs.resources.open import compose, resource_manager


def server_of_trees(directory: Path, *options: str | Path) -> list[str | Path]:
    """Return the command of a server that logs into `directory`."""
    return [sys.executable, "-E", SERVERS / "trees.py", "--log", directory / "log", *options]


@asynccontextmanager
async def open_trees(directory: Path, *options: str | Path, **table: Any) -> AsyncGenerator[ResourceManager]:
    """Open a manager whose server logs into `directory`. options: of the server. table: of the source."""
    written = directory / "sources.toml"
    written.write_text(config_text([mcp("t", server_of_trees(directory, *options), **table)], {}))
    config = load_config(str(written), environ={})
    async with resource_manager(config, compose(config)) as manager:
        yield manager


def asked(log: Path, method: str) -> list[str]:
    """Return what the server was asked for by a method: URIs, or cursors where there are none."""
    lines = (line.split() for line in log.read_text().splitlines())
    return [uri if uri != "-" else cursor for each, uri, cursor in lines if each == method]
