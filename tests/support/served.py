"""`bbfs serve` in a process of its own, and what the sources of these tests hold."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from forked_daemon import forked
from harness import State, config_text, unexpected_lines
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

BOUND = 60.0
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))
FILES = {
    "src/config.ts": b"export const answer = 42;\r\n",
    "tests/config.test.ts": "// prüft config.ts\n".encode(),
    "package.json": b'{"name": "demo"}\n',
    "pictures/logo.png": PNG,
    "data.bin": bytes(range(256)),
    "empty.txt": b"",
}


@asynccontextmanager
async def serving(
    state: State, directory: Path, era: str, *tables: dict[str, Any],
    options: Sequence[str] = (), expected: Sequence[str] = (), **client: Any,
) -> AsyncGenerator[Client]:  # fmt: skip
    """Yield a client of `bbfs serve` over these sources. expected: patterns of what that may say above INFO."""
    config, errors = directory / "serve.toml", directory / "stderr"
    config.write_text(config_text(tables, {}))
    command, *arguments = forked("-m", "bbfs", "serve", "--config", config, *options)
    with errors.open("w") as errlog:
        parameters = StdioServerParameters(command=command, args=arguments, env=state.environ())
        with trio.fail_after(BOUND):
            async with Client(stdio_client(parameters, errlog=errlog), mode=era, cache=None, **client) as connected:
                yield connected
    assert unexpected_lines(errors.read_text(), expected) == []
