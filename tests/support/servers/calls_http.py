"""An MCP server of protocol 2026-07-28 over HTTP whose tools the SDK serves. Its first line on stdout is its URL.

`where` wants its argument repeated in a header; `grow` announces that there are more tools.
"""

from typing import Annotated, Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import Field

READ_ONLY = types.ToolAnnotations(read_only_hint=True)
server = MCPServer("calls")
City = Annotated[str, Field(json_schema_extra={"x-mcp-header": "City"})]


@server.tool(annotations=READ_ONLY)
def where(city: City) -> list[str]:
    """Say where."""
    return ["in", city]


@server.tool(annotations=READ_ONLY)
async def grow(context: Context[Any, Any]) -> str:
    """Have one more tool."""
    server.tool(annotations=READ_ONLY)(grown)
    await context.notify_tools_changed()
    return "more"


def grown() -> None:
    """Do nothing."""


async def main() -> None:
    config = uvicorn.Config(server.streamable_http_app(), port=0, log_level="warning", timeout_graceful_shutdown=1)
    config.load()
    socket = config.bind_socket()
    socket.listen(100)  # before the URL is printed: who has it connects at once
    print(f"http://127.0.0.1:{socket.getsockname()[1]}/mcp", flush=True)
    await uvicorn.Server(config).serve([socket])


if __name__ == "__main__":
    anyio.run(main)
