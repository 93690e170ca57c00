"""MCP servers as data sources: the resources of one server, under the schemes that the server uses."""

from collections.abc import Callable

from bbfs.errors import ConfigError
from bbfs.mcp_manager import MCPManager, ResourceEntry
from bbfs.model import DataSource, Listing, Loaded, ResourceMetadata, SourceEvent, SourceState
from bbfs.sources import Services
from bbfs.uri import source_uri


class McpHandler:
    """One MCP server. Lists, loads and watches its resources through the shared connection."""

    def __init__(self, source: DataSource, services: Services) -> None:
        if source.mcp is None:
            raise ConfigError(f"source '{source.id}' names no MCP server")
        if not isinstance(services.mcp, MCPManager):
            raise ConfigError(f"source '{source.id}' needs MCP connections, and there are none here")
        self.source = source
        self._manager = services.mcp
        self._manager.add(source.id, source.mcp, source.policy)

    @property
    def state(self) -> SourceState:
        return self._manager.state(self.source.id)

    async def list(self) -> Listing:
        """All resources of the server. Raises BbfsError."""
        entries = await self._manager.list_resources(self.source.id)
        prefix = self.source.base_prefix
        resources = tuple(_metadata(prefix, entry) for entry in entries.entries)
        return Listing(resources, entries.ttl, entries.problem)

    async def load(self, native_uri: str) -> Loaded:
        """The content of one resource. Raises BbfsError."""
        return await self._manager.load_resource(self.source.id, native_uri)

    def watch(self, sink: Callable[[SourceEvent], None]) -> None:
        self._manager.subscribe_events(self.source.id, sink)

    def interested(self, native_uri: str) -> None:
        self._manager.interested(self.source.id, native_uri)


def _metadata(base_prefix: str, entry: ResourceEntry) -> ResourceMetadata:
    return ResourceMetadata(
        uri=source_uri(base_prefix, entry.uri),
        native_uri=entry.uri,
        name=entry.name,
        title=entry.title,
        description=entry.description,
        mime_type=entry.mime_type,
        size=entry.size,
        modified_ns=entry.modified_ns,
        annotations=entry.annotations,
        mcp_data=entry.mcp_data,
    )
