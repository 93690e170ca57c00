"""Making handlers from data sources."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bbfs.model import source_types
from bbfs.model.errors import ConfigError
from bbfs.model.values import DataSource
from bbfs.sources.abilities import Handler
from bbfs.sources.bounded.workers import WorkerPool
from bbfs.sources.content.spool import Spool
from bbfs.sources.content.stall_guard import Crowd

if TYPE_CHECKING:
    from bbfs.sources.embeddings.embedder import Embedder


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of the daemon that a handler may use.

    mcp: the shared MCP connections. mount_point: the directory that bbfs mounts on. spool: makes a spool, for a content
    that comes as a stream. crowd: the reads that wait for servers while files are open. workers: processes for parsers
    without bounds. embedder: makes vectors of texts for all sources that name no model of their own.
    """

    mcp: Any = None
    mount_point: str | None = None
    spool: Callable[[], Spool] = Spool
    crowd: Crowd = field(default_factory=Crowd)
    workers: WorkerPool = field(default_factory=WorkerPool)
    embedder: "Embedder | None" = None


def build(source: DataSource, services: Services) -> Handler:
    """Return the handler of a source. Raise ConfigError for an unknown type, and for options that its type refuses."""
    found = source_types.of_source(source)
    if found is None:
        there = ", ".join([*(f"bb-{name}" for name in source_types.names()), "mcp-*"])
        raise ConfigError(f"source {source.id!r}: no handler for type {source.type!r}; there are: {there}")
    return found.handler_class()(source, services)
