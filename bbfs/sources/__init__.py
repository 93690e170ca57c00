"""Source types: the abilities a handler may have, and the registry that makes handlers from data sources.

A handler translates one data source: it caches nothing, retries nothing, holds no deadline (the ResourceManager does
all three) and raises only `BbfsError`. Its abilities are the protocols below; what it lacks is simply absent.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from bbfs.model.errors import ConfigError
from bbfs.model.source_types import added, handler_class
from bbfs.model.values import (
    Completion,
    DataSource,
    Listing,
    ListingProgress,
    Loaded,
    ResourceMetadata,
    SourceEvent,
    SourceState,
    Unchanged,
)
from bbfs.sources.content.spool import Spool
from bbfs.sources.content.stall_guard import Crowd


@runtime_checkable
class CanList(Protocol):
    """A flat source: all its resources in one listing, in the source's order. URIs make the tree."""

    async def list(self) -> Listing: ...


@runtime_checkable
class CanListDirectory(Protocol):
    """A hierarchical source: the entries of one directory at a time, `path` being names below the root."""

    async def list_directory(self, path: tuple[str, ...]) -> Listing: ...


@runtime_checkable
class CanFind(Protocol):
    """A hierarchical source that has more than it lists: names beside those of a listing with `Listing.open`."""

    async def find(self, path: tuple[str, ...], name: str) -> ResourceMetadata:
        """What has this name in the directory at `path` (as in `list_directory`). Raises NotFound.

        name: the file name as a program asks for it. The last segment of the native URI that is answered must be shown
        as that name (`bbfs.model.file_names.show_component`), or else nothing has it.
        """
        ...


@runtime_checkable
class CanLoad(Protocol):
    async def load(self, native_uri: str) -> Loaded: ...


@runtime_checkable
class LoadsWhileWanted(Protocol):
    """Has loads that cost the source much: one ends when the last program that waits for it has given up.

    The loads of others are finished for whoever comes next.
    """

    @property
    def loads_while_wanted(self) -> bool: ...


@runtime_checkable
class CanLoadIfChanged(Protocol):
    """A load that costs little where the source still has what bbfs keeps."""

    async def load_if_changed(self, native_uri: str, version: str) -> Loaded | Unchanged:
        """version: of the content that is kept (`Content.version`), as an earlier load of this handler gave it."""
        ...


@runtime_checkable
class CanStat(Protocol):
    """Metadata of one resource (exact size and etag included) without its content, and cheaply."""

    async def stat(self, native_uri: str) -> ResourceMetadata: ...


@runtime_checkable
class CanWatch(Protocol):
    """Says what changes. `interested` names a resource whose updates are wanted; the sink must not block."""

    def watch(self, sink: Callable[[SourceEvent], None]) -> None: ...

    def interested(self, native_uri: str) -> None: ...


@runtime_checkable
class CanAnnounce(CanWatch, Protocol):
    """Knows what it is going to be told, so that nobody need look whether that has changed."""

    def announces(self, native_uri: str | None) -> bool:
        """Whether a change of this resource will be told (None: of the listing), as things are now."""
        ...

    async def settled(self) -> None:
        """Until the source has said what of all that is of interest it will tell. Wait for it with a bound."""
        ...


@runtime_checkable
class TellsProgress(Protocol):
    """Knows how far its listing is."""

    @property
    def progress(self) -> ListingProgress | None:
        """Of the latest listing, under way or not; None before the first page."""
        ...


@runtime_checkable
class CanLogIn(Protocol):
    """May answer each user something else, once there is a login."""

    @property
    def logged_in(self) -> bool:
        """Whether a login of this user is kept, as things are now. Cheap."""
        ...


@runtime_checkable
class CanComplete(Protocol):
    """Values for a variable of one of its templates (`Listing.templates`).

    value: what they should begin with. context: the values of the variables before it, decoded.
    """

    async def complete(
        self, uri_template: str, variable: str, value: str, context: Mapping[str, str]
    ) -> Completion: ...


@runtime_checkable
class CanPut(Protocol):
    """Takes in whole resources from whoever owns the mount (`bbfs put`), and tells of them at once (`CanWatch`)."""

    @property
    def largest(self) -> int:
        """Bytes above which no content is taken in."""
        ...

    async def put(
        self, where: str, data: bytes, *, mime_type: str | None = None, description: str | None = None
    ) -> ResourceMetadata:
        """Take in a resource, or another content for one that is there. where: a native URI."""
        ...

    async def remove(self, where: str) -> None:
        """Take a resource away. Raises NotFound."""
        ...


@runtime_checkable
class CanClose(Protocol):
    """Holds something that is to be given back when the daemon ends: connections, threads, files."""

    async def aclose(self) -> None:
        """Called once, after the last request, and given a few seconds. Raises nothing that is foreseen."""
        ...


class Handler(Protocol):
    """What every handler is: the source that it was made for, and how that source fares."""

    source: DataSource

    @property
    def state(self) -> SourceState: ...


@dataclass(frozen=True, slots=True)
class Services:
    """What a handler may use of the daemon.

    mcp: the shared MCP connections. mount_point: the directory that is being mounted on. spool: makes what takes in a
    content that comes as a stream. crowd: the reads that wait for servers while files are open.
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
