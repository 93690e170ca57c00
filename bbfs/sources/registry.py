"""Making handlers from data sources."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from bbfs.model.errors import ConfigError
from bbfs.model.source_types import added, handler_class
from bbfs.model.values import DataSource
from bbfs.sources.abilities import Handler
from bbfs.sources.content.spool import Spool
from bbfs.sources.content.stall_guard import Crowd


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of the daemon that a handler may use.

    mcp: the shared MCP connections. mount_point: the directory that bbfs mounts on. spool: makes a spool, for a content
    that comes as a stream. crowd: the reads that wait for servers while files are open.
    """

    mcp: Any = None
    mount_point: str | None = None
    spool: Callable[[], Spool] = Spool
    crowd: Crowd = field(default_factory=Crowd)


_HANDLERS = {
    ("bb", "api"): "bbfs.sources.api.handler:ApiHandler",
    ("bb", "database"): "bbfs.sources.database.handler:DatabaseHandler",
    ("bb", "filesystem"): "bbfs.sources.filesystem.handler:FilesystemHandler",
    ("bb", "memory"): "bbfs.sources.memory.handler:MemoryHandler",
    ("bb", "notion"): "bbfs.sources.notion.handler:NotionHandler",
    ("bb", "storage"): "bbfs.sources.storage.handler:StorageHandler",
    ("bb", "url"): "bbfs.sources.url.handler:UrlHandler",
}
_MCP_HANDLER = "bbfs.sources.mcp.handler:McpHandler"
"""By access method and type. Every MCP server speaks the same protocol, whatever type its configuration calls it."""


def handler_types() -> list[str]:
    """The types that have a handler, for messages."""
    return [*sorted(["-".join(key) for key in _HANDLERS] + [f"bb-{name}" for name in added()]), "mcp-*"]


def build(source: DataSource, services: Services) -> Handler:
    """The handler of a source. Raises ConfigError for a type that has none, and for options that its type refuses."""
    where = _MCP_HANDLER if source.access_method == "mcp" else _HANDLERS.get((source.access_method, source.type))
    if where is None:
        point = added().get(source.type)
        if point is None:
            there = ", ".join(handler_types())
            raise ConfigError(f"source {source.id!r}: no handler for type {source.type!r}; there are: {there}")
        return handler_class(point)(source, services)
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)(source, services)
