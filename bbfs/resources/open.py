"""The sources of a configuration at work: their handlers, what these share, and the ResourceManager above them.

What serves them stands above: the mount (`daemon`), the MCP server (`server`), a single command (`cli`). Nothing here
knows FUSE.
"""

import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs
import trio

from bbfs import sources
from bbfs.config import Config
from bbfs.config.schema import DEFAULT_CACHE_BYTES
from bbfs.model.errors import ConfigError
from bbfs.model.values import DataSource
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.cache.tier import SharedTier
from bbfs.resources.manager import ResourceManager
from bbfs.sources import CanClose, Handler, Services
from bbfs.sources.content.spool import Spools

log = logging.getLogger(__name__)

CLOSING = 5.0
"""Seconds that the sources have, all at once, to give back what they hold."""


def store_path() -> Path:
    """The database of what is remembered across mounts, one a user. The contents that are kept are beside it."""
    return Path(platformdirs.user_cache_dir("bbfs")) / "metadata.sqlite"


def contents_path(store: Path) -> Path:
    """The directory of the contents that are kept on disk."""
    return store.with_name("contents")


@dataclass(frozen=True, slots=True)
class Composition:
    """The handlers of a configuration, and what they share. Nothing of it runs yet.

    mcp: the MCP connections. shared: the contents that machines share. spools: for contents that come as a stream.
    """

    handlers: tuple[Handler, ...]
    mcp: Any = None
    shared: SharedTier | None = None
    spools: Spools = field(default_factory=lambda: Spools(DEFAULT_CACHE_BYTES))


def compose(config: Config, mount_point: str | None = None, *, lasting: bool = False) -> Composition:
    """Make the handlers. Before anything is mounted: a handler may look at the mount point now, and never again.

    lasting: whether what is composed goes on for long. Only that uses the cache that machines share: a single command
    would be done before it is connected. Raises ConfigError.
    """
    mcp: Any = None
    if any(source.mcp is not None for source in config.sources):
        from bbfs.sources.mcp.client import MCPManager  # noqa: PLC0415 - importing the SDK costs a second
        from bbfs.sources.mcp.login.token_store import TokenStore  # noqa: PLC0415 - as above

        mcp = MCPManager(tokens=TokenStore.of_user(os.environ))
    spools = Spools(config.cache_bytes)
    services = Services(mcp=mcp, mount_point=mount_point, spool=spools)
    shared: SharedTier | None = None
    if config.shared is not None and lasting:
        from bbfs.resources.cache.shared.valkey_tier import ValkeyTier  # noqa: PLC0415 - for those who share

        shared = ValkeyTier(config.shared)
    return Composition(tuple(_handler(config, source, services) for source in config.sources), mcp, shared, spools)


def _handler(config: Config, source: DataSource, services: Services) -> Handler:
    """The handler of a source. Raises ConfigError that says where in the file its options are wrong."""
    try:
        return sources.build(source, services)
    except ConfigError as error:
        raise ConfigError(config.located(source.id, str(error))) from None


@asynccontextmanager
async def resource_manager(
    config: Config, composition: Composition, store: Path | None = None
) -> AsyncIterator[ResourceManager]:
    """The sources of a configuration at work, until the block ends. No source is contacted before it is used.

    store: the database of what is remembered beyond this process, with the contents beside it; None for nothing.
    """
    metadata = await trio.to_thread.run_sync(MetadataStore, store)
    async with AsyncExitStack() as stack:
        stack.enter_context(closing(metadata))
        disk = await _disk_cache(store, config.disk_bytes)
        if disk is not None:
            stack.push_async_callback(trio.to_thread.run_sync, disk.close)
            disk.lend(composition.spools)
        stack.push_async_callback(_close_handlers, composition.handlers)
        async with trio.open_nursery() as nursery:
            if composition.mcp is not None:
                await nursery.start(composition.mcp.run)
            manager = ResourceManager(
                nursery, cache_bytes=config.cache_bytes, store=metadata, disk=disk, shared=composition.shared
            )
            try:
                for handler in composition.handlers:
                    await manager.add(handler.source, handler)
                await manager.start()
                yield manager
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
                    await manager.flush()
                nursery.cancel_scope.cancel()


async def _close_handlers(handlers: Iterable[Handler]) -> None:
    """Let all give back what they hold, at once, within a few seconds."""
    with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSING):
        async with trio.open_nursery() as nursery:
            for handler in handlers:
                if isinstance(handler, CanClose):
                    nursery.start_soon(_close, handler.source.id, handler)


async def _close(source_id: str, handler: CanClose) -> None:
    try:
        await handler.aclose()
    except Exception:
        log.exception("%s: could not be closed", source_id)


async def _disk_cache(store: Path | None, max_bytes: int) -> DiskCache | None:
    """The contents on disk; None where there are to be none, or where the directory cannot be used."""
    if store is None or max_bytes == 0:
        return None
    try:
        return await trio.to_thread.run_sync(DiskCache, contents_path(store), max_bytes)
    except (OSError, sqlite3.Error) as error:
        log.warning("contents are not kept on disk: %s", error)
        return None
