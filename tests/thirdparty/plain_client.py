"""What a plain client of the MCP SDK gets from a server: the truth that a mount of the server is compared with."""

import base64
import os
from dataclasses import dataclass

import anyio
from mcp import MCPError, StdioServerParameters
from mcp.client import Client, Transport
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import BlobResourceContents
from thirdparty_servers import Address

TIMEOUT = 60.0
"""Seconds for everything that a server lists."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One listed resource. data: its bytes, or None where the server answers an error."""

    uri: str
    mime_type: str | None
    data: bytes | None

    @property
    def path(self) -> str:
        """Below the directory of the source: `://` written as `/`. The URIs here need no other rule of S2 to S5."""
        return self.uri.replace("://", "/", 1)


def read_everything(address: Address) -> dict[str, Reference]:
    """All listed resources by their path, read one after the other.

    It runs on asyncio, as most clients do; on trio the SDK's HTTP transports leave generators behind, with warnings.
    """
    with open(os.devnull, "w") as devnull:
        match address.transport:
            case "stdio":
                command, *args = address.command
                parameters = StdioServerParameters(command=command, args=args, env=dict(address.env))
                transport = stdio_client(parameters, errlog=devnull)
            case "http":
                transport = streamable_http_client(address.url)
            case "sse":
                transport = sse_client(address.url)
        found = anyio.run(_read_everything, transport)
    return {reference.path: reference for reference in found}


async def _read_everything(transport: Transport) -> list[Reference]:
    found: list[Reference] = []
    with anyio.fail_after(TIMEOUT):
        async with Client(transport) as client:
            cursor: str | None = None
            while True:
                page = await client.list_resources(cursor=cursor)
                for resource in page.resources:
                    found.append(Reference(resource.uri, resource.mime_type, await _read(client, resource.uri)))
                cursor = page.next_cursor
                if not cursor:
                    return found


async def _read(client: Client, uri: str) -> bytes | None:
    try:
        answer = await client.read_resource(uri)
    except MCPError:
        return None
    [content] = answer.contents
    return base64.b64decode(content.blob) if isinstance(content, BlobResourceContents) else content.text.encode()
