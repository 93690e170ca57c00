"""Where a path of the command line is: in which mount, and where in it. It needs no event loop."""

import errno
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from bbfs.cli.operands import scratches
from bbfs.cli.operands.rule import Path, components
from bbfs.fuse import mountpoint
from bbfs.fuse.control.messages import ATTRIBUTE
from bbfs.fuse.mountpoint import MountError
from bbfs.fuse.scratch.directory import Scratch
from bbfs.model.errors import Denied, NotSupported

T = TypeVar("T")
ANSWERS_WITHIN = 5.0
"""Seconds for an answer that a daemon gives from memory."""


def inside_mount(operand: str) -> tuple[str, Path] | None:
    """Return the mount of sources that an operand leads into, and the path in it, or None."""
    plain = operand.startswith(("/", ".", "~"))
    absolute = os.path.abspath(os.path.expanduser(operand))
    found = _mount_of(absolute)
    if found is None and not any(map(scratches.is_tree, mountpoint.mounts())):
        return None
    if found is None and os.path.lexists(os.path.dirname(absolute)):
        found = _mount_of(os.path.realpath(absolute))
    # A bare word in a directory of a mount may also be the name of a source. The last name of a path may be new.
    first, slash, _ = operand.partition("/")
    is_there = plain or _exists(absolute) or (bool(slash) and _exists(os.path.abspath(first)))
    return found if found is not None and is_there else None


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
        return os.fsdecode(os.getxattr(mount, ATTRIBUTE))
    except OSError as error:
        if error.errno in mountpoint.GONE:
            raise mountpoint.dead(mount) from None
        if error.errno == errno.ENODATA:
            raise NotSupported(f"the daemon of {mount} has no control socket; its log says why") from None
        raise


def no_answer(mount: str) -> MountError:
    return MountError(f"{mount} does not answer")


def asked(mount: str, ask: Callable[[], T]) -> T:
    """Ask a mount in a thread. Raise MountError if it does not answer, and the errors of `ask`."""
    results: list[T] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            results.append(ask())
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(ANSWERS_WITHIN)
    if failures:
        raise failures[0]
    if not results:
        raise no_answer(mount)
    return results[0]
