"""Opens the sources of a configuration: builds their handlers and runs a ResourceManager over them.

The mount (`fuse.daemon`), the MCP server (`server.run`) and single commands (`cli`) all open their sources here.
"""

import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
import trio

from bbfs.config import Config
from bbfs.config.values import DEFAULT_CACHE_BYTES, EMBEDDINGS
from bbfs.model.errors import ConfigError
from bbfs.model.values import DataSource
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.cache.tier import SharedTier
from bbfs.resources.catalog.record import steady_time
from bbfs.resources.manager import ResourceManager
from bbfs.resources.persistence import in_thread
from bbfs.resources.search.index.local import LocalIndex
from bbfs.sources import CanClose, Handler, Services
from bbfs.sources.content.spool import Spools
from bbfs.sources.documents.converter import DocumentReader
from bbfs.sources.factory import build
from bbfs.sources.options import parse_table

if TYPE_CHECKING:
    from bbfs.sources.embeddings.embedder import Embedder

log = logging.getLogger(__name__)

ENDING = 4.0
"""Seconds from the end of the block of `resource_manager` in which all must be written and closed."""


def store_path() -> Path:
    """Return the path of this user's metadata database. The disk cache lies beside it."""
    return Path(platformdirs.user_cache_dir("bbfs")) / "metadata.sqlite"


def contents_path(store: Path) -> Path:
    """Return the directory of the disk cache."""
    return store.with_name("contents")


def index_path() -> Path:
    """Return the path of this user's local index."""
    return store_path().with_name("index.sqlite")


@dataclass(slots=True)
class Composition:
    """The handlers of a configuration and the parts they share. Nothing runs yet.

    handlers: the open ones; a running mount adds and removes some. mcp: the MCPManager, if a source needs one. shared:
    the cache shared between machines. spools: for streams. embedder: makes vectors of texts, if configured. services:
    what handlers use.
    """

    handlers: list[Handler]
    mcp: Any = None
    shared: SharedTier | None = None
    spools: Spools = field(default_factory=lambda: Spools(DEFAULT_CACHE_BYTES))
    embedder: "Embedder | None" = None
    services: Services = field(default_factory=Services)


def compose(config: Config, mount_point: str | None = None, *, lasting: bool = False) -> Composition:
    """Build the handlers of a configuration. Raise ConfigError.

    Nothing looks at the mount point itself: this process may serve it already. lasting: whether the process runs
    for long. Only then does it use the shared cache; a single command would end before the cache is connected.
    """
    mcp: Any = None
    spools = Spools(config.cache_bytes)
    if any(source.mcp is not None for source in config.sources):
        mcp = mcp_manager(spools)
    embedder = _embedder(config)
    services = Services(mcp=mcp, mount_point=mount_point, spool=spools, embedder=embedder)
    shared: SharedTier | None = None
    if config.shared is not None and lasting:
        from bbfs.resources.cache.shared.valkey_tier import ValkeyTier  # noqa: PLC0415 - optional

        shared = ValkeyTier(config.shared, clock=steady_time)
    handlers = [built(config, source, services) for source in config.sources]
    return Composition(handlers, mcp, shared, spools, embedder, services)


def mcp_manager(spools: Spools) -> Any:
    """Return a manager of connections to MCP servers."""
    from bbfs.sources.mcp.client.manager import MCPManager  # noqa: PLC0415 - importing the SDK costs a second

    return MCPManager.of_user(os.environ, spools)


def _embedder(config: Config) -> "Embedder | None":
    """Return the embedder that all sources and the index share. Raise ConfigError with the line of a wrong option."""
    if config.embeddings is None:
        return None
    from bbfs.sources.embeddings import embedder, options  # noqa: PLC0415 - its HTTP client costs start-up time

    try:
        parsed = parse_table(options.EmbeddingOptions, config.embeddings, EMBEDDINGS)
        return embedder.made(DataSource(EMBEDDINGS, EMBEDDINGS, EMBEDDINGS, "bb", EMBEDDINGS), parsed, EMBEDDINGS)
    except ConfigError as error:
        raise ConfigError(config.located("", str(error))) from None


def built(config: Config, source: DataSource, services: Services) -> Handler:
    """Build one handler. Raise ConfigError with the line of the option that is wrong."""
    try:
        return build(source, services)
    except ConfigError as error:
        raise ConfigError(config.located(source.id, str(error))) from None


@asynccontextmanager
async def resource_manager(
    config: Config,
    composition: Composition,
    store: Path | None = None,
    index: Path | None = None,
    *,
    is_lower: bool = False,
    has_other_users: bool = False,
) -> AsyncIterator[ResourceManager]:
    """Run the sources of a configuration until the block ends. A source is contacted at its first use.

    store: the metadata database, with the disk cache beside it; None to keep nothing beyond this process.
    index: the database of the local index, None for none. is_lower, has_other_users: as `ResourceManager` takes them.
    """
    metadata = await trio.to_thread.run_sync(MetadataStore, store)
    end = _End()
    async with AsyncExitStack() as stack:
        at_end = partial(stack.push_async_callback, end.run)
        at_end(partial(in_thread, metadata.close))
        disk = await _disk_cache(store, config.disk_bytes, composition.spools)
        if disk is not None:
            at_end(partial(in_thread, disk.close))
        at_end(partial(close_handlers, composition.handlers))
        if (embedder := composition.embedder) is not None:
            at_end(embedder.aclose)
        local, documents = None, DocumentReader(config.documents)
        if index is not None and config.index_bytes > 0:
            local = LocalIndex(index, config.index_bytes, clock=steady_time, embedder=embedder, documents=documents)
            at_end(local.aclose)
        async with trio.open_nursery() as nursery, trio.open_nursery() as connections:
            if composition.mcp is not None:
                await connections.start(composition.mcp.run)
            manager = ResourceManager(
                nursery,
                cache_bytes=config.cache_bytes,
                store=metadata,
                disk=disk,
                shared=composition.shared,
                index=local,
                documents=documents,
                is_lower=is_lower,
                has_other_users=has_other_users,
            )
            try:
                await _start(manager, composition.handlers)
                yield manager
            finally:
                connections.cancel_scope.cancel()  # a server may announce more than can be written
                await end.run(manager.flush)
                nursery.cancel_scope.cancel()


class _End:
    """The end of all that runs, step by step: even if cancelled, and within `ENDING` seconds of the first step."""

    def __init__(self) -> None:
        self._deadline: float | None = None

    async def run(self, step: Callable[[], Awaitable[object]]) -> None:
        """Run a step. After the deadline it is cut short."""
        if self._deadline is None:
            self._deadline = trio.current_time() + ENDING
        with trio.CancelScope(shield=True, deadline=self._deadline):
            await step()


async def _start(manager: ResourceManager, handlers: Iterable[Handler]) -> None:
    for handler in handlers:
        await manager.add(handler.source, handler)
    await manager.start()


async def close_handlers(handlers: Iterable[Handler]) -> None:
    """Close all handlers at once."""
    async with trio.open_nursery() as nursery:
        for handler in handlers:
            if isinstance(handler, CanClose):
                nursery.start_soon(_close, handler.source.id, handler)


async def _close(source_id: str, handler: CanClose) -> None:
    try:
        await handler.aclose()
    except Exception:
        log.exception("%s: could not be closed", source_id)


async def _disk_cache(store: Path | None, max_bytes: int, spools: Spools) -> DiskCache | None:
    """Open the disk cache, and lend it to the spools. Return None if there is none or the directory is unusable."""
    if store is None or max_bytes == 0:
        return None
    try:
        disk = await trio.to_thread.run_sync(DiskCache, contents_path(store), max_bytes)
    except (OSError, sqlite3.Error) as error:
        log.warning("contents are not kept on disk: %s", error)
        return None
    disk.lend(spools)
    return disk
