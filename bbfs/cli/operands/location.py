"""Where a path of the command line is: in which mount, and where in it. It needs no event loop."""

import errno
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from bbfs.cli.operands import scratches
from bbfs.cli.operands.rule import Path, components
from bbfs.fuse import mountpoint
from bbfs.fuse.mountpoint import MountError
from bbfs.fuse.scratch.directory import Scratch
from bbfs.model.errors import Denied, NotSupported

T = TypeVar("T")
ANSWERS_WITHIN = 5.0
"""Seconds for an answer that a daemon gives from memory."""
_SHOWN_WITHIN, _LOOK_EVERY = 0.5, 0.005
"""Seconds for the kernel to forget that a name was absent, and between two looks."""


def inside_mount(operand: str) -> tuple[str, Path] | None:
    """Return the mount of sources that an operand leads into, and the path in it, or None.

    Raise NoAnswer if the mount does not answer. A source that is slow is waited for: its daemon bounds that.
    """
    plain = operand.startswith(("/", ".", "~"))
    absolute = os.path.abspath(os.path.expanduser(operand))
    found = _mount_of(absolute)
    if found is None:
        trees = [mount.path for mount in mountpoint.mounts() if scratches.is_tree(mount)]
        found = _mount_of(_real(absolute, trees)) if trees else None
    if found is None:
        return None
    _require_answer(found[0])
    # A bare word in a directory of a mount may also be the name of a source. The last name of a path may be new.
    first, slash, _ = operand.partition("/")
    is_there = plain or _exists(absolute) or (bool(slash) and _exists(os.path.abspath(first)))
    return found if is_there else None


def _real(absolute: str, trees: list[str]) -> str:
    """Return a path without the symbolic links that are there. Raise NoAnswer if it leads into a mount that hangs."""

    def real() -> str:
        return os.path.realpath(absolute) if os.path.lexists(os.path.dirname(absolute)) else absolute

    asking = Asking(absolute, real)
    try:
        return asking.answer(ANSWERS_WITHIN)
    except NoAnswer:
        for mount in trees:
            _require_answer(mount)
        return asking.answer()


def _require_answer(mount: str) -> None:
    """Raise NoAnswer if the daemon of a mount hangs or is stopped. Its root needs no source.

    The use of a mount that is dead or of another user reports that.
    """

    def ask() -> None:
        with suppress(OSError):
            if Scratch.mounted(mount) is None:
                os.getxattr(mount, mountpoint.ATTRIBUTE)
            else:
                os.listdir(mount)  # an overlay asks what is below it for no attribute of its own root

    asked(mount, ask)


def _exists(path: str) -> bool:
    """Return whether a mount has a path. The resource may be broken, and is not loaded."""
    try:
        os.getxattr(path, "user.bbfs.uri", follow_symlinks=False)
    except OSError as error:
        return error.errno in (errno.ENODATA, errno.EPERM, errno.EIO)  # EPERM: a link, which has no such attribute
    return True


def is_removed(path: str) -> bool:
    """Return whether a name is not there. The resource is not loaded; an error of its source says nothing."""
    try:
        os.getxattr(path, "user.bbfs.uri", follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def await_shown(mount: str, path: Path) -> None:
    """Wait until a mount shows a name that its source has just got. Raise NoAnswer.

    The kernel has it as absent until the daemon has told it, and the next program may come before that. A source may
    also show it under another name, so the wait ends soon.
    """
    here, until = os.path.join(mount, *path), time.monotonic() + _SHOWN_WITHIN

    def wait() -> None:
        while is_removed(here) and time.monotonic() < until:
            time.sleep(_LOOK_EVERY)

    asked(mount, wait)


def _mount_of(absolute: str) -> tuple[str, Path] | None:
    """Return the mount of sources that holds an absolute path, by a comparison of texts. Do not touch any file."""
    holding: mountpoint.Mount | None = None
    for mount in mountpoint.mounts():
        is_above = mount.path == "/" or absolute == mount.path or absolute.startswith(mount.path + "/")
        if is_above and (holding is None or len(mount.path) >= len(holding.path)):
            holding = mount
    if holding is None or not scratches.is_tree(holding):
        return None
    return holding.path, components(absolute.removeprefix(holding.path))


def without_links(mount: str, path: Path) -> Path:
    """Return a path of a mount without symbolic links. Raise Denied if they lead out of it, OSError. It may block."""
    real = os.path.realpath(os.path.join(mount, *path))
    if real != mount and not real.startswith(mount.rstrip("/") + "/"):
        raise Denied(f"leads out of the mount, to {real}")
    return components(real[len(mount) :])


def control_address(mount: str) -> str:
    """Return the control socket of a mount. Raise DeadMount, NotSupported, OSError. It may block."""
    scratch = Scratch.mounted(mount)
    try:
        if scratch is not None:
            return scratches.control_of(scratch)
        return os.fsdecode(os.getxattr(mount, mountpoint.ATTRIBUTE))
    except OSError as error:
        if error.errno in mountpoint.GONE:
            raise mountpoint.dead(mount) from None
        if error.errno == errno.ENODATA:
            raise NotSupported(f"the daemon of {mount} has no control socket; its log says why") from None
        raise


class NoAnswer(MountError):
    """A mount has not answered in time."""


class Asking(Generic[T]):
    """A call of a mount in a thread of its own, so that a command can end while the mount holds the call."""

    def __init__(self, mount: str, ask: Callable[[], T]) -> None:
        self._mount = mount
        self._ask = ask
        self._results: list[T] = []
        self._failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._results.append(self._ask())
        except BaseException as error:  # noqa: BLE001 - raised again in `answer`
            self._failures.append(error)

    def answer(self, within: float | None = None) -> T:
        """Return the result of the call. Raise its errors, and NoAnswer after some seconds. Ctrl-C ends the wait."""
        self._thread.join(within)
        if self._failures:
            raise self._failures[0]
        if not self._results:
            raise NoAnswer(mountpoint.silent(self._mount))
        return self._results[0]


def asked(mount: str, ask: Callable[[], T], within: float | None = ANSWERS_WITHIN) -> T:
    """Ask a mount in a thread. Raise NoAnswer if it does not answer, and the errors of `ask`. within: seconds."""
    return Asking(mount, ask).answer(within)


def resolved(mount: str, path: Path) -> Path:
    """Return a path of a mount without symbolic links. Raise Denied if they lead out of it, OSError, NoAnswer."""
    return asked(mount, lambda: without_links(mount, path))
