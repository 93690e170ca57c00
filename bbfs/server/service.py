"""bbfs as an MCP server: what answers each request of the protocol, in both its eras."""

import logging
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError

from bbfs.resources import ResourceManager
from bbfs.server.tools import Tools, definitions

log = logging.getLogger(__name__)

MAX_RESULT = 4 << 20
"""Bytes of all contents of one answer, by default."""
_INSTRUCTIONS = (
    "Files, databases and other MCP servers as data sources. load_datasource tells what a data source holds, "
    "load_resources loads it."
)

Context = ServerRequestContext[Any, Any]


class Service(Server[Any]):
    """The server over one ResourceManager.

    depth: how far load_datasource goes down by default. most_bytes: of the contents of one answer.
    """

    def __init__(self, manager: ResourceManager, *, depth: int | None = None, most_bytes: int = MAX_RESULT) -> None:
        self._manager = manager
        self._tools = Tools(manager, depth, most_bytes)
        super().__init__(
            "bbfs",
            version=version("bbfs"),
            title="bbfs",
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """As the SDK's, but says `resources.listChanged`, which the SDK leaves out for sessions over HTTP."""
        return super().create_initialization_options(
            notification_options or NotificationOptions(resources_changed=True), experimental_capabilities, extensions
        )

    async def _list_tools(self, _ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=definitions([s.data.id for s in self._manager.sources.values()]))

    async def _call_tool(self, _ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            return await self._tools.call(params.name, params.arguments)
        except KeyError:
            raise MCPError(types.INVALID_PARAMS, f"no tool {params.name!r}") from None
