"""The daemon: mounts the sources of a configuration, serves them, and unmounts.

One nursery and one exit stack own connections, requests under way and the FUSE loop. Order matters twice. pyfuse3 is
initialised first, because a daemon must fork after that and before any task or thread. Invalidations of the kernel go
through a process of their own, since they wait for requests that this loop answers (see `notifier_process`).
"""

import ctypes
import errno
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, cast

import pyfuse3
import trio

from bbfs.config import Config
from bbfs.fuse import kernel_notices, mount_options, mounting, mountpoint, request_queue
from bbfs.fuse.adapter import Operations
from bbfs.fuse.audit.trail import Trail, trail
from bbfs.fuse.backings.attributes import Ownership
from bbfs.fuse.control.reload import Reloading
from bbfs.fuse.control.server import Control
from bbfs.fuse.kernel_notices import Notifications, Notifier
from bbfs.fuse.mounting import MountPoint
from bbfs.fuse.mountpoint import ATTRIBUTE, MountError
from bbfs.fuse.neighbours import Neighbours
from bbfs.fuse.scratch.directory import Scratch
from bbfs.fuse.scratch.shown import Shown
from bbfs.fuse.service import handover
from bbfs.fuse.service.handover import Handover
from bbfs.fuse.service.quiet import Quiet
from bbfs.fuse.service.sd_notify import ServiceManager
from bbfs.fuse.service.watchdog import SelfCheck, feed
from bbfs.fuse.status.files import State, StatusHandler
from bbfs.fuse.status.whole import state_of
from bbfs.fuse.tracing.setting import traces
from bbfs.fuse.waiting_programs import Interrupts
from bbfs.fuse.watchers.setting import Watchers, why_off
from bbfs.model.values import DataSource
from bbfs.resources.live import LiveSources
from bbfs.resources.manager import ResourceManager
from bbfs.resources.open import Composition, compose, index_path, resource_manager, store_path
from bbfs.runtime.signals import ENDING, Terminal, ending
from bbfs.sources.content.fd import allow_many
from bbfs.sources.filesystem.handler import FilesystemHandler
from bbfs.vfs.about import AboutHandler
from bbfs.vfs.filesystem import FileSystem
from bbfs.vfs.search import SearchHandler
from bbfs.vfs.texts import TextHandler

if TYPE_CHECKING:
    from bbfs.fuse.audit.auditor import Auditor

log = logging.getLogger(__name__)

MAX_REQUESTS = 4096
"""FUSE requests served at once; far above the number of programs that may wait for one source."""
_AUDITOR, _AUDITED = "bbfs.fuse.audit.auditor", "bbfs.fuse.audit.operations"
_ENDPOINT = "bbfs.fuse.status.endpoint"
"""Imported where metrics are asked for: HTTP takes 20 ms and a megabyte."""
KEPT_WITHIN = 3.0
"""Seconds at the end of a mount for the files that only the mount has to become pending writes."""
STATUS_EVERY = 10.0
_ENDING_MOUNTS = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a mount, whatever its terminal is."""
THREADS_TAKE_TURNS = 0.001
"""Seconds after which a thread that computes lets another one run; Python's default is five times as long. An answer of
a local folder crosses threads several times, and each crossing may wait so long for a thread that parses."""
FULL_COLLECTIONS = 100
"""Collections of younger objects before the garbage collector walks through all; Python's default is 10. A walk stops
every thread for 0.1 s where a source has listed 10^5 names, and finds next to nothing: no cycle holds a listing."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
KEPT_FREE, OWN_PAGES = 4 << 20, 4 << 20
"""Bytes at the end of the heap that are kept when they become free, and of the smallest object with pages of its own
(mallopt(3)). By itself the C library gives the buffers of each large read back to the kernel, and the next read gets
new pages, one fault and 4 KiB of zeros after the other: half of the processor time of such a read."""


def mount(
    config: Config,
    mount_point: str,
    *,
    background: bool = False,
    ready: Callable[[], None] | None = None,
    scratch: Scratch | None = None,
    reread: Callable[[], Config] | None = None,
    is_restartable: bool = False,
) -> int:
    """Mount and serve until an ending signal or an unmount. Return the exit status.

    background: return as soon as the mount answers, and serve on in a process of its own. ready: called in the serving
    process once the mount answers. scratch: the mount is the lower layer of its overlay. So every file and directory
    shows the owner's permission to write, and the versions that are shown are noted. reread: returns the configuration
    again, for a reload; it runs in a thread. is_restartable: a signal has bbfs start again under the mount, see
    `handover`. Raise MountError and ConfigError before anything is mounted.
    """
    told = ready or (lambda: None)
    serve = partial(_mount, config, background=background, told=told, scratch=scratch, reread=reread)
    received = Handover.received()
    if received is not None:
        path = mountpoint.canonical(mount_point)
        try:
            return serve(MountPoint(path, received.device), handed=received)
        except handover.Refused as error:
            mounting.detach(path)
            log.warning("%s is mounted again, since the mount of the daemon before cannot be kept: %s", path, error)
        except BaseException:
            with suppress(MountError):  # the reason for the end is what counts
                mounting.detach(path)
            raise
    children = received.children if received is not None else []
    with mounting.prepared(mount_point) as place:
        return serve(place, handed=Handover(children=children) if is_restartable else None)


def _mount(
    config: Config,
    place: MountPoint,
    *,
    background: bool,
    told: Callable[[], None],
    scratch: Scratch | None,
    reread: Callable[[], Config] | None,
    handed: Handover | None,
) -> int:
    """Mount at a prepared place; as `mount`. Raise Refused if the mount that is handed over cannot be kept."""
    path = place.path
    service = ServiceManager(os.environ)
    allow_many()
    if config.mount.read_only:
        config = mount_options.without_writes(config)
    composition = compose(config, path if place.device is None else None, lasting=True)
    handlers, adapter = composition.handlers, _Adapter(lets_others_in=config.mount.allow_other)
    off = why_off(config, handlers, is_lower=scratch is not None, is_passed=place.device is not None)
    chosen, target = mount_options.options(config, handlers, has_events=off is None), place.target
    if handed is not None and handed.prepare(config, handlers, chosen, is_able=scratch is None and not background):
        adapter.handed_over, adapter.device = path, handed.device
        target = f"/dev/fd/{handed.device}"
    if place.device is not None:
        mounting.require_apart(os.fsdecode(each.root.path) for each in handlers if isinstance(each, FilesystemHandler))
        adapter.device = place.device
    _connect(adapter, path, target, chosen)
    if background:
        forked = _fork(path, told)
        if isinstance(forked, int):
            return forked
        told = forked
    _set_up_interpreter()
    early: list[int] = []
    is_deaf = not background and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # see nohup(1)
    for number in ENDING:
        signal.signal(number, lambda number, _frame: early.append(number))  # until and after the loop handles them
    hang_ups = None if is_deaf else Terminal()
    try:
        if handed is not None:
            handed.greet(adapter.device, partial(_greeted, adapter))
        with trail(config.mount) as records:
            of_start = told, early, scratch, reread, hang_ups, records, handed, Watchers(config, path, off)
            trio.run(_serve, config, composition, path, adapter, service, *of_start)
        if handed is not None and handed.is_wanted:
            handed.start_next()
    finally:
        adapter.unmount()
    return 0


def _connect(adapter: "_Adapter", path: str, target: str, chosen: set[str]) -> None:
    """Mount at `target`, or take the connection of the mount at `path` that it names. Raise MountError."""
    others = kernel_notices.devices()
    try:
        pyfuse3.init(cast(pyfuse3.Operations, adapter), target, chosen)
    except RuntimeError as error:
        raise MountError(f"{path} could not be mounted: {_why(path, error)}") from error
    if mountpoint.passed_device(path) is not None:
        return
    mount = mountpoint.mount_at(path)
    if mount is None or not mount.is_bbfs:
        adapter.unmount()
        raise MountError(f"{path} has been exchanged for another directory meanwhile")
    adapter.mount = mount
    if adapter.handed_over is None:
        (adapter.device,) = kernel_notices.devices() - others


def _set_up_interpreter() -> None:
    """Set what lasts as long as the daemon."""
    gc.collect()  # now, while no request waits
    sys.setswitchinterval(THREADS_TAKE_TURNS)
    gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTIONS)


async def _greeted(adapter: "_Adapter") -> None:
    """Serve the kernel until it has greeted the daemon."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_loop, adapter, nursery.cancel_scope)
        await adapter.greeted.wait()
        nursery.cancel_scope.cancel()


def keep_freed_buffers() -> None:
    """Let the buffer of a read have the pages of the one before. Only the GNU C library can be told."""
    with suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, KEPT_FREE)
        mallopt(_M_MMAP_THRESHOLD, OWN_PAGES)


def _why(path: str, error: Exception) -> str:
    if mounting.missing():
        return mounting.missing() or ""
    if os.geteuid() != 0 and not os.access(path, os.W_OK):
        return "the mount point is not writable by this user"
    cause = mounting.missing_table() or "'bbfs doctor' looks for the cause"
    return f"{error}; {cause}"


class _Adapter:
    """The operations until the daemon's process and loop exist; from then on it passes requests to the real ones.

    lets_others_in: the kernel judges each user by the access control lists of files, too, and not by modes alone.
    """

    supports_dot_lookup = False
    enable_writeback_cache = False

    def __init__(self, *, lets_others_in: bool = False) -> None:
        self.enable_acl = lets_others_in
        self._mounted = True
        self.device = -1
        """The descriptor of `/dev/fuse`."""
        self.mount: mountpoint.Mount | None = None
        """The mount that this daemon has made, if no other program has."""
        self.handed_over: str | None = None
        """The path of the mount, if another daemon has made it."""
        self.greeted = trio.Event()
        """Set when the kernel has greeted the daemon. It has the answer when a task that waits for this goes on."""

    def init(self) -> None:
        """Note that the kernel has agreed on the protocol. pyfuse3 calls this."""
        self.greeted.set()

    def unmount(self) -> None:
        """Unmount, lazily if the mount is in use. Only once: libfuse's session is gone afterwards."""
        if self._mounted:
            self._mounted = False
            is_there = self.mount is None or mounting.is_there(self.mount)
            pyfuse3.close(unmount=is_there)  # libfuse unmounts whatever is at the path
            if self.handed_over is not None and is_there:  # libfuse does not know where it is
                mounting.detach(self.handed_over)

    def needed(self, record: logging.LogRecord) -> bool:
        """Return whether a log record of pyfuse3 should be kept.

        Drop those of answers without a waiting request (after a kill, at an unmount).
        """
        said = record.getMessage()
        return not said.endswith(f"fuse_reply_* failed with {os.strerror(errno.ENOENT)}")

    def become(self, operations: Operations) -> None:
        """Pass every request to `operations` from now on, without a detour."""
        for name in vars(pyfuse3.Operations).keys() - vars(_Adapter).keys() - {"enable_acl"}:
            if not name.startswith("_"):
                setattr(self, name, getattr(operations, name))


def _fork(path: str, ready: Callable[[], None]) -> int | Callable[[], None]:
    """Fork the serving process, after pyfuse3 is initialised: detaching first deadlocks under automount.

    In the child, return a function to call once it serves: it ends the parent's wait and detaches from the terminal. In
    the parent, return the exit status once the child serves or has failed.
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
    scratch: Scratch | None,
    reread: Callable[[], Config] | None,
    terminal: Terminal | None,
    records: Trail | None,
    handed: Handover | None,
    watchers: Watchers,
) -> None:
    places, is_lower, others = (store_path(), index_path()), scratch is not None, config.mount.allow_other
    opened = resource_manager(config, composition, *places, is_lower=is_lower, has_other_users=others)
    async with ending("unmounting", _ENDING_MOUNTS) as ended, traces() as tracing, opened as manager:
        interrupts, left_out = Interrupts() if tracing is None else tracing.interrupts, dict(config.left_out)
        state = state_of(manager, left_out, interrupts, lambda inode: files.names.path(inode), watchers.state)
        await _add_views(manager, config, state, left_out)
        (notifier := Notifier(adapter.device)).start()
        queue = Notifications(notifier.send)
        files = FileSystem(manager, queue.invalidate, queue.invalidate_below, kernel_notices.expire)
        shown = Shown() if scratch is None else Shown(scratch)
        auditor = None if records is None else import_module(_AUDITOR).Auditor(records, manager)
        owner = _ownership(config, is_lower=is_lower)
        operations = _operations(files, owner, interrupts, shown, auditor)
        adapter.become(operations if tracing is None else tracing.begin(operations, manager, files.names.path))
        watchers.follow(manager, files, owner, copy(adapter), adapter.become, handed)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop, ended, early, nursery.cancel_scope)
            lasting = partial(queue.run, files.held_below, files.locks), Neighbours(manager.changes, path).run
            for each in (*lasting, interrupts.run, files.passed.vouch, watchers.run, manager.keep_flushing):
                nursery.start_soon(each)
            await _begin_reports(config, manager, service, state, nursery)
            live = None if is_lower else _live(manager, composition, config, nursery, files)
            reloading = Reloading(live, config, reread, left_out, service, queue.emptied)
            nursery.start_soon(_hear_hang_ups, terminal, reloading, ended)
            served = manager, files.refresh, path, shown, reloading, auditor
            await _begin_requests(Control(*served, state=partial(state, 0), is_lower=is_lower), files, nursery)
            await handover.begin(handed, files, operations, Quiet(copy(adapter), files, adapter.become), ended, nursery)
            nursery.start_soon(_loop, adapter, nursery.cancel_scope)
            await _begin(adapter, path, service, ready)
            nursery.start_soon(feed, service, SelfCheck(path))
        watchers.end()
        if handed is not None and handed.is_wanted:
            handed.keep(files, operations, notifier, watchers)
        else:
            await _end(adapter, path, files, notifier, service, watchers)


async def _begin_reports(
    config: Config, manager: ResourceManager, service: ServiceManager, state: State, nursery: trio.Nursery
) -> None:
    """Begin to tell the service manager how the sources are, and to answer for Prometheus, if that is configured."""
    nursery.start_soon(_report, manager, service)
    if config.mount.metrics is not None:
        await nursery.start(import_module(_ENDPOINT).Endpoint(config.mount.metrics, partial(state, 0)).run)


async def _begin_requests(control: Control, files: FileSystem, nursery: trio.Nursery) -> None:
    """Begin to serve the control socket, and let programs find it. Begin to keep what is pinned."""
    nursery.start_soon(control.pins.run)
    address = await nursery.start(control.run)
    if address is not None:
        files.root_attributes[ATTRIBUTE] = os.fsencode(address)


async def _end(
    adapter: _Adapter, path: str, files: FileSystem, notifier: Notifier, service: ServiceManager, watchers: Watchers
) -> None:
    """Unmount before the sources close, so that no request comes meanwhile, and keep what only the mount has."""
    service.tell(STOPPING="1", STATUS="unmounting")
    files.open_files.unwatch()
    notifier.end()
    adapter.unmount()
    with trio.move_on_after(KEPT_WITHIN):
        await files.drafts.keep_left()
    notifier.reap()
    await watchers.reap()
    log.info("unmounted %s", path)


def _operations(
    files: FileSystem, owner: Ownership, interrupts: Interrupts, shown: Shown, auditor: "Auditor | None"
) -> Operations:
    """Return what answers pyfuse3. Without an audit it costs no request anything."""
    if auditor is None:
        return Operations(files, owner, interrupts, shown)
    operations: Operations = import_module(_AUDITED).AuditedOperations(files, owner, interrupts, shown, auditor)
    return operations


def _ownership(config: Config, *, is_lower: bool) -> Ownership:
    return Ownership(
        os.getuid() if config.mount.uid is None else config.mount.uid,
        os.getgid() if config.mount.gid is None else config.mount.gid,
        config.mount.umask or 0,
        is_lower,
        config.mount.allow_other,
    )


def _live(
    manager: ResourceManager, composition: Composition, config: Config, nursery: trio.Nursery, files: FileSystem
) -> LiveSources:
    """Return what changes the sources while they are mounted."""
    is_read_only = not manager.grants.roots and not any(
        each.source.writes is not None for each in files.passed.values()
    )

    def why_read_only(source: DataSource) -> str | None:
        if config.mount.read_only:
            return "the mount is"
        if is_read_only:
            return "no source could be written when the mount was made; mount it again"
        if files.is_unflushed and source.type != "filesystem":
            return "the kernel no longer tells this mount when programs close files; mount it again"
        return None

    return LiveSources(manager, composition, config, nursery, leaving=files.drafts.end, why_read_only=why_read_only)


async def _hear_hang_ups(terminal: Terminal | None, reloading: Reloading, ended: trio.Event) -> None:
    """Reload at each SIGHUP, but end the mount when it comes since the terminal of the mount has gone away.

    terminal: None where SIGHUP was ignored when the program began.
    """
    if terminal is None:
        return
    with trio.open_signal_receiver(signal.SIGHUP) as hang_ups:
        async for _ in hang_ups:
            if terminal.is_gone():
                log.info("SIGHUP: the terminal is gone, unmounting")
                ended.set()
            else:
                await reloading.reload_logged()


async def _add_views(manager: ResourceManager, config: Config, state: State, left_out: Mapping[str, str]) -> None:
    """Add the sources that show others: their status, descriptions, searches, and texts of documents."""
    await manager.add_view(StatusHandler(state))
    await manager.add_view(TextHandler(manager, manager.documents))
    await manager.add_view(SearchHandler(manager))
    await manager.add_view(AboutHandler(manager, agents=config.mount.agents, left_out=left_out))


async def _loop(adapter: _Adapter, done: trio.CancelScope) -> None:
    """Serve the kernel until an unmount or an ending signal."""
    logging.getLogger(pyfuse3.__name__).addFilter(adapter.needed)
    pyfuse3.trio = request_queue.trio_for_pyfuse3()  # type: ignore[attr-defined]
    await pyfuse3.main(min_tasks=1, max_tasks=MAX_REQUESTS)
    done.cancel()


async def _begin(adapter: _Adapter, path: str, service: ServiceManager, ready: Callable[[], None]) -> None:
    """Make the last settings, and tell everybody that the mount answers."""
    await _tune(adapter, path)
    gc.freeze()  # these objects live as long as the daemon: no collection need walk through them
    keep_freed_buffers()  # not those of the start
    service.tell(READY="1", STATUS=f"serving {path}", MAINPID=str(os.getpid()))
    ready()
    log.info("mounted on %s", path)


async def _tune(adapter: _Adapter, path: str) -> None:
    """Make the settings that the kernel resets when it greets the daemon."""
    await adapter.greeted.wait()
    try:
        mounting.read_further_ahead(path)
    except OSError as error:
        log.debug("the kernel reads 128 KiB ahead, as it does by itself: %s", error)


async def _stop(ended: trio.Event, early: list[int], scope: trio.CancelScope) -> None:
    """Cancel a scope when an ending signal has come. early: those before the loop took signals."""
    if not any(number in _ENDING_MOUNTS for number in early):
        await ended.wait()
    scope.cancel()


async def _report(manager: ResourceManager, service: ServiceManager) -> None:
    """Send the state to the service manager."""
    interval = min(STATUS_EVERY, service.watchdog / 2 if service.watchdog else STATUS_EVERY)
    while True:
        await trio.sleep(interval)
        down = [source.data.id for source in manager.sources.values() if source.state.state == "down"]
        count = len(manager.sources)
        status = f"{count} source{'s' if count != 1 else ''}, {manager.loads} loads"
        service.tell(STATUS=status + (f"; down: {', '.join(down)}" if down else ""))
