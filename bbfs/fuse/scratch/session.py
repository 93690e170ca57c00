"""A scratch in use: the daemon below, the overlay above, and what keeps them together."""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bbfs.fuse import mounting, mountpoint
from bbfs.fuse.control import blocking
from bbfs.fuse.mountpoint import ATTRIBUTE, MountError
from bbfs.fuse.scratch import overlay, processes
from bbfs.fuse.scratch.directory import IN_RUN, Scratch
from bbfs.fuse.scratch.processes import Child, Identity
from bbfs.model.errors import BbfsError
from bbfs.runtime.files import closed_after

if TYPE_CHECKING:
    from bbfs.config import Config

log = logging.getLogger(__name__)

REFRESH_EVERY = 1.0
"""Seconds between two refreshes of the overlay: for so long it may show a change of a source as an error."""
_ANSWERS_WITHIN = 20.0
"""Seconds for a daemon to answer."""
_WATCHED = (*processes.ENDING, signal.SIGCHLD)


def keep(
    config: "Config", mount_point: str, scratch: Scratch, ready: Callable[[], None], *, detached: bool = False
) -> int:
    """Mount a configuration with a scratch over it, and serve until an ending signal or an unmount. Return the status.

    ready: called once the overlay is mounted. detached: the daemon gives up the standard streams. Raise MountError,
    ConfigError and OSError before that.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    try:
        with scratch.held():
            overlay.clear_left(scratch, mountpoint.canonical(mount_point))
            with (
                mounting.prepared(mount_point) as place,
                _served(config, scratch, detached=detached) as daemon,
                overlay.covered(scratch, place) as cover,
            ):
                path = place.path
                _allow_others(scratch, allowed=config.mount.allow_other)
                _note_control(scratch, in_run=False)
                overlay.mount_overlay(scratch, path, cover)
                try:
                    scratch.register(path)
                    ready()
                    _await_end(scratch, path, daemon, cover)
                finally:
                    overlay.unmount(path)
                    scratch.unregister(path)
    finally:
        while signal.sigtimedwait(_WATCHED, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 0


@contextmanager
def _served(config: "Config", scratch: Scratch, *, detached: bool = False) -> Iterator[Child]:
    """Serve the sources at the lower layer of a scratch."""
    from bbfs.fuse import daemon  # noqa: PLC0415 - trio and pyfuse3 cost a quarter of a second

    mounting.unmount(scratch.lower)  # that of a daemon that was killed
    child = processes.start(
        lambda ready: daemon.mount(config, scratch.lower, ready=ready, scratch=scratch), detached=detached
    )
    try:
        yield child
    finally:
        child.end()
        with suppress(MountError):
            mounting.unmount(scratch.lower)  # that of a killed daemon


def _allow_others(scratch: Scratch, *, allowed: bool) -> None:
    """Let other users in, or keep them out: an overlay asks its lower layer as the user who mounted it."""
    os.chmod(scratch.upper, 0o755 if allowed else 0o700)


def _note_control(scratch: Scratch, *, in_run: bool) -> None:
    """Note the control socket of the daemon below, which commands ask that see the overlay alone.

    in_run: the overlay is in the namespace of a `bbfs run`, so all commands that see the overlay are started by it.
    """
    address: str | None = None
    with suppress(OSError):  # the daemon has none
        address = os.fsdecode(os.getxattr(scratch.lower, ATTRIBUTE))
    scratch.note(control=address, mounted_at=None, in_run=in_run)


def _await_end(scratch: Scratch, mount_point: str, daemon: Child, cover: int) -> None:
    """Keep the overlay fresh until it is unmounted, its daemon ends, or a signal comes.

    Mount it again after a command that had unmounted it was killed.
    """
    while True:
        came = signal.sigtimedwait(_WATCHED, REFRESH_EVERY)
        if came is not None and came.si_signo != signal.SIGCHLD:
            return
        if came is not None and os.waitid(os.P_PIDFD, daemon.ended, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        if overlay.is_mounted(scratch, mount_point):
            with suppress(OSError):
                overlay.refresh(mount_point)
            continue
        with suppress(MountError), scratch.edited():  # else a command changes it now
            if overlay.is_mounted(scratch, mount_point):
                continue
            if not scratch.state.get("edited"):
                return
            log.warning("a command that changed %s was killed: its overlay is mounted again", scratch.path)
            overlay.mount_overlay(scratch, mount_point, cover)
            scratch.note(edited=False)


def unmount(mount_point: str, scratch: Scratch) -> bool:
    """Unmount a scratch and what is below it. Return whether it was in use. Raise MountError.

    If programs wait there in vain, their requests fail first.
    """
    mounting.release(scratch.lower)
    scratch.note(edited=False)
    in_use = overlay.unmount(mount_point)
    if not scratch.await_end():
        raise MountError(f"{mount_point}: unmounted, but the processes of its scratch have not ended")
    overlay.clear_left(scratch, mount_point)
    mounting.unmount(scratch.lower)  # after a kill of the process that keeps it
    return in_use


@contextmanager
def editable(scratch: Scratch, *, is_holder: bool = False) -> Iterator[None]:
    """Let `upper` be changed: unmount the overlay, and mount it again afterwards. Raise MountError if it is in use.

    is_holder: this process itself holds the scratch, and has unmounted its overlay.
    """
    with scratch.edited():
        mount_point = scratch.mounted_at()
        if mount_point is None:
            if not is_holder and scratch.is_held():
                raise MountError(f"{scratch.path} is in use by a running command, or mounted in another namespace")
            yield
            return
        with ExitStack() as stack:
            cover = overlay.cover_of(scratch)
            if cover is not None:
                stack.callback(os.close, cover)
            scratch.note(edited=True)
            if overlay.unmount(mount_point, lazily=False, cover=cover):
                scratch.note(edited=False)
                raise MountError(
                    f"{mount_point} is in use, and what is below programs cannot be exchanged: leave its directories "
                    f"and close its files ('fuser -vm {mount_point}' lists who has some)"
                )
            directory = stack.enter_context(mounting.opened(mount_point)) if cover is None else cover
            try:
                with nullcontext() if cover is not None else overlay.closed(scratch, directory):
                    yield
            finally:
                overlay.mount_overlay(scratch, mount_point, directory)
                scratch.note(edited=False)


@dataclass(frozen=True, slots=True)
class Ended:
    """A command has ended. status: its exit status, 128 and the signal's number if a signal ended it."""

    status: int


@contextmanager
def run(config: "Config | None", lower: str | None, at: str, scratch: Scratch, command: list[str]) -> Iterator[Ended]:
    """Run a command that sees the sources at `at` with a scratch, and yield when it has ended.

    Then the overlay is gone and `scratch.lower` is still there. config: the sources; or lower: a mount to use. This
    process is in a mount namespace of its own afterwards, so nothing is left behind when it ends. Raise MountError.
    """
    identity = Identity(os.geteuid(), os.getegid())
    with scratch.held(), _mount_directory(at) as path:
        overlay.clear_left(scratch)
        in_user_namespace = processes.enter_namespaces()
        with _bound(lower, scratch) if config is None else _served(config, scratch):
            _allow_others(scratch, allowed=False)
            _note_control(scratch, in_run=True)
            with mounting.opened(path) as directory:
                overlay.mount_overlay(scratch, path, directory, in_user_namespace=in_user_namespace)
            try:
                with _terminal(), _signals_kept():
                    told = {mountpoint.MOUNT_VARIABLE: path, IN_RUN: path}
                    child = processes.run(command, told, [scratch.lower], identity, in_user_namespace=in_user_namespace)
                    ended = Ended(_status(child, path))
            finally:
                overlay.unmount(path)
            yield ended


@contextmanager
def _mount_directory(path: str) -> Iterator[str]:
    """Yield the canonical path of a directory to mount at. If that makes it, remove it afterwards."""
    path = mountpoint.canonical(path)
    try:
        os.makedirs(path)
        is_made = True
    except FileExistsError:
        is_made = False
    try:
        yield os.path.realpath(path)
    finally:
        if is_made:
            with suppress(OSError):
                os.rmdir(path)


@contextmanager
def _bound(lower: str | None, scratch: Scratch) -> Iterator[None]:
    """Show an existing mount of bbfs as the lower layer."""
    mount = None if lower is None else mountpoint.mount_at(lower)
    if lower is None or mount is None or not mount.is_bbfs:
        raise MountError(f"{lower} is no bbfs mount")
    overlay.bind(mountpoint.canonical(lower), scratch.lower)
    try:
        with suppress(OSError):  # without the right to it, names that the kernel has cached are unknown
            overlay.refresh(scratch.lower)
        with _noted(scratch):
            yield
    finally:
        overlay.detach(scratch.lower)


@contextmanager
def _noted(scratch: Scratch) -> Iterator[None]:
    """Let the daemon of a mount that is there note for a scratch which versions it shows, while the block runs.

    Each change of what a source has is a conflict later without it.
    """
    with ExitStack() as stack:
        try:
            address = os.fsdecode(os.getxattr(scratch.lower, ATTRIBUTE))
            link = stack.enter_context(blocking.connect(address, timeout=_ANSWERS_WITHIN))
            link.send({"id": 1, "request": "note", "scratch": scratch.path})
            answer = link.receive() or {"error": "its daemon has ended"}
            if answer.get("ok") is not True:
                raise MountError(str(answer.get("error")))
        except (OSError, BbfsError) as error:
            log.warning("the mount notes no versions for %s: %s", scratch.path, error)
        yield


@contextmanager
def _terminal() -> Iterator[None]:
    """Have the terminal again afterwards if this process has it now.

    A shell makes its own process group the one in the foreground, and cannot give it back: it sees none of the groups
    outside its namespace.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        yield  # there is none
        return
    with closed_after(terminal):
        is_ours = os.tcgetpgrp(terminal) == os.getpgrp()
        yield
        if is_ours:
            before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # it would stop this process
            os.tcsetpgrp(terminal, os.getpgrp())
            signal.signal(signal.SIGTTOU, before)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep the signals that are for a command until `_status` takes them; the command may get one as it begins."""
    ignored = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*processes.PASSED, signal.SIGCHLD))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in ignored.items():
            signal.signal(number, handler)


def _status(child: Child, mount_point: str) -> int:
    """Keep the overlay fresh until a command ends, and pass on signals to it. Return its status."""
    while True:
        came = signal.sigtimedwait((*processes.PASSED, signal.SIGCHLD), REFRESH_EVERY)
        if came is not None and came.si_signo in processes.PASSED:
            signal.pidfd_send_signal(child.ended, came.si_signo)
        pid, status = os.waitpid(child.pid, os.WNOHANG)
        if pid:
            os.close(child.ended)
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        with suppress(OSError):
            overlay.refresh(mount_point)
