"""Sources that are MCP servers: their resources, and tools and prompts as paths."""

import re
from importlib.metadata import version

from bbfs.model.errors import ConfigError


def require_sdk(installed: str) -> None:
    """Raise ConfigError for a version of the MCP SDK whose public names bbfs does not know."""
    numbers = re.match(r"(\d+)\.(\d+)", installed)
    if numbers is None or not (2, 3) <= (int(numbers[1]), int(numbers[2])) < (3, 0):
        raise ConfigError(f"bbfs works with the MCP SDK (package mcp) from 2.3 to 2.x, and {installed} is installed")


require_sdk(version("mcp"))
