"""The composition root: builds the sources of a configuration, mounts them, and takes everything down again.

One nursery and one exit stack own all that lives: connections, requests under way, the FUSE loop. Order matters twice.
pyfuse3 is initialised before anything else runs, because a daemon must fork after that and before any task or thread;
and the kernel's invalidations go through a thread of their own, since they wait for requests that this loop answers.
"""

import errno
import gc
import logging
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import platformdirs
import pyfuse3
import trio

from bbfs import control, fuse_queue, mounts, sources
from bbfs.cache.disk import DiskCache
from bbfs.cache.metadata import MetadataStore
from bbfs.cache.spool import Spools
from bbfs.cache.tiers import SharedTier
from bbfs.config import Config
from bbfs.config.schema import DEFAULT_CACHE_BYTES
from bbfs.control import Control
from bbfs.interrupts import Interrupts
from bbfs.mounts import MountError
from bbfs.notify import ServiceManager
from bbfs.operations import Operations, Ownership
from bbfs.resources import ResourceManager
from bbfs.sources import CanClose, Handler, Services
from bbfs.status import StatusHandler
from bbfs.vfs import FileSystem

log = logging.getLogger(__name__)

MAX_REQUESTS = 4096
"""FUSE requests served at once; far above what the programs that wait for one source may take."""
STATUS_EVERY = 10.0
CLOSING = 5.0
"""Seconds that the sources have, all at once, to give back what they hold."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that unmount: Ctrl-C, a service manager, and the terminal that goes away."""


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


def compose(config: Config, mount_point: str | None = None) -> Composition:
    """Make the handlers. Before anything is mounted: a handler may look at the mount point now, and never again.

    Only a mount uses the cache that machines share: a single command would be done before it is connected. Raises
    ConfigError.
    """
    mcp: Any = None
    if any(source.mcp is not None for source in config.sources):
        from bbfs.mcp_manager import MCPManager  # noqa: PLC0415 - importing the SDK costs a second
        from bbfs.mcp_manager.tokens import TokenStore  # noqa: PLC0415 - as above

        mcp = MCPManager(tokens=TokenStore.of_user(os.environ))
    spools = Spools(config.cache_bytes)
    services = Services(mcp=mcp, mount_point=mount_point, spool=spools)
    shared: SharedTier | None = None
    if config.shared is not None and mount_point is not None:
        from bbfs.cache.shared import ValkeyTier  # noqa: PLC0415 - for those who share

        shared = ValkeyTier(config.shared)
    return Composition(tuple(sources.build(source, services) for source in config.sources), mcp, shared, spools)


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


def options(config: Config) -> set[str]:
    """The mount options (S28): read-only as long as no source can write."""
    chosen = {"fsname=bbfs", "subtype=bbfs", "default_permissions", "nosuid", "nodev", "noexec", "ro"}
    if config.mount.allow_other:
        chosen.add("allow_other")
    return chosen


def mount(
    config: Config, mount_point: str, *, background: bool = False, ready: Callable[[], None] | None = None
) -> int:
    """Mount and serve until an ending signal or an unmount. Returns the exit status.

    background: return as soon as the mount answers, and serve on in a process of its own. ready: called in the serving
    process once the mount answers. Raises MountError and ConfigError before anything is mounted.
    """
    path = mounts.prepare(mount_point)
    service = ServiceManager(os.environ)
    composition = compose(config, path)
    adapter = _Adapter()
    try:
        pyfuse3.init(cast(pyfuse3.Operations, adapter), path, options(config))
    except RuntimeError as error:
        raise MountError(f"{path} could not be mounted: {_why(path, error)}") from error
    told = ready or (lambda: None)
    if background:
        forked = _fork(path, told)
        if isinstance(forked, int):
            return forked
        told = forked
    gc.collect()  # before anybody is kept waiting by it
    early: list[int] = []
    for number in ENDING:
        signal.signal(number, lambda number, _frame: early.append(number))  # until and after the loop handles them
    try:
        trio.run(_serve, config, composition, path, adapter, service, told, early)
    finally:
        adapter.unmount()
    return 0


def _why(path: str, error: Exception) -> str:
    if mounts.missing():
        return mounts.missing() or ""
    if os.geteuid() != 0 and not os.access(path, os.W_OK):
        return "the mount point is not writable by this user"
    return f"{error}; 'bbfs doctor' looks for the cause"


class _Adapter:
    """Stands in for the operations until the daemon's process and loop exist; then everything goes to the real ones."""

    supports_dot_lookup = False
    enable_writeback_cache = False
    enable_acl = False

    def __init__(self) -> None:
        self._mounted = True
        self.greeted = trio.Event()
        """The kernel has greeted the daemon, and got its answer when a task that waits for this goes on."""

    def init(self) -> None:
        """Called by pyfuse3 when the kernel has agreed on the protocol."""
        self.greeted.set()

    def unmount(self) -> None:
        """Unmount, lazily where something is in use. Once: libfuse's session is gone afterwards."""
        if self._mounted:
            self._mounted = False
            pyfuse3.close(unmount=True)

    def become(self, operations: Operations) -> None:
        """Every request goes to `operations` from now on, without a detour."""
        for name in vars(pyfuse3.Operations).keys() - vars(_Adapter).keys():
            if not name.startswith("_"):
                setattr(self, name, getattr(operations, name))


def _fork(path: str, ready: Callable[[], None]) -> int | Callable[[], None]:
    """Fork the serving process, after pyfuse3 is initialised: detaching first deadlocks under automount.

    In the child, what to call once it serves: it lets the parent go and lets go of the terminal. In the parent, the
    exit status once the child serves or has failed.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setsid()

        def serving() -> None:
            ready()
            null = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(null, standard)
            os.close(null)
            os.write(writing, b"1")
            os.close(writing)

        return serving
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        if answer.read():
            return 0
    _, status = os.waitpid(child, 0)
    sys.stderr.write(f"bbfs: {path} could not be mounted; the messages above say why\n")
    return os.waitstatus_to_exitcode(status) or 1


async def _serve(
    config: Config,
    composition: Composition,
    path: str,
    adapter: _Adapter,
    service: ServiceManager,
    ready: Callable[[], None],
    early: list[int],
) -> None:
    interrupts = Interrupts()
    owner = Ownership(
        os.getuid() if config.mount.uid is None else config.mount.uid,
        os.getgid() if config.mount.gid is None else config.mount.gid,
        config.mount.umask or 0,
    )
    async with _stoppable(early) as stop, resource_manager(config, composition, store_path()) as manager:
        status = StatusHandler(manager, manager.clock())
        await manager.add(status.source, status, hidden=True)
        files = FileSystem(manager, _invalidate)
        adapter.become(Operations(files, owner, interrupts))
        with stop:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(interrupts.run)
                nursery.start_soon(manager.keep_flushing)
                nursery.start_soon(_report, manager, service)
                address = await nursery.start(Control(manager, files.refresh, path).run)
                if address is not None:
                    files.root_attributes[control.ATTRIBUTE] = os.fsencode(address)
                nursery.start_soon(_loop, nursery.cancel_scope)
                nursery.start_soon(_tune, adapter, path)
                gc.freeze()  # what is there by now lives as long as the daemon: no collection need walk through it
                service.tell(READY="1", STATUS=f"serving {path}", MAINPID=str(os.getpid()))
                ready()
                log.info("mounted on %s", path)
        service.tell(STOPPING="1", STATUS="unmounting")
        # Unmount before the sources go: nobody can ask any more while they close.
        files.unwatch()
        adapter.unmount()
    log.info("unmounted %s", path)


async def _loop(done: trio.CancelScope) -> None:
    """Serve the kernel until somebody unmounts or the daemon is told to stop."""
    logging.getLogger(pyfuse3.__name__).addFilter(_needed)
    pyfuse3.trio = fuse_queue.trio_for_pyfuse3()  # type: ignore[attr-defined]
    await pyfuse3.main(min_tasks=1, max_tasks=MAX_REQUESTS)
    done.cancel()


async def _tune(adapter: _Adapter, path: str) -> None:
    """Set what can be set only of a mount that is there."""
    await adapter.greeted.wait()
    try:
        mounts.read_further_ahead(path)
    except OSError as error:
        log.debug("the kernel reads 128 KiB ahead, as it does by itself: %s", error)


def _needed(record: logging.LogRecord) -> bool:
    """Whether pyfuse3 says something else than that nobody waits for an answer any more: at an unmount, or a kill."""
    return not record.getMessage().endswith(f"fuse_reply_* failed with {os.strerror(errno.ENOENT)}")


def _invalidate(parent: int, name: bytes) -> None:
    pyfuse3.invalidate_entry_async(pyfuse3.InodeT(parent), pyfuse3.FileNameT(name), ignore_enoent=True)


@asynccontextmanager
async def _stoppable(early: list[int]) -> AsyncIterator[trio.CancelScope]:
    """A scope that the ending signals cancel. Later signals are heard until the block ends, and cut nothing short.

    early: signals that came before there was a loop.
    """
    with trio.open_signal_receiver(*ENDING) as signals:
        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()
            if early:
                scope.cancel()

            async def listen() -> None:
                async for number in signals:
                    log.info("%s: unmounting", signal.Signals(number).name)
                    scope.cancel()

            nursery.start_soon(listen)
            yield scope
            nursery.cancel_scope.cancel()


async def _report(manager: ResourceManager, service: ServiceManager) -> None:
    """Keep the service manager informed, and its watchdog quiet as long as this loop runs."""
    interval = min(STATUS_EVERY, service.watchdog / 2 if service.watchdog else STATUS_EVERY)
    while True:
        await trio.sleep(interval)
        down = [source.data.id for source in manager.sources.values() if source.state.state == "down"]
        count = len(manager.sources)
        status = f"{count} source{'s' if count != 1 else ''}, {manager.loads} loads"
        service.tell(WATCHDOG="1", STATUS=status + (f"; down: {', '.join(down)}" if down else ""))
