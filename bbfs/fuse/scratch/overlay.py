"""Overlays over a mount: the kernel's (overlayfs), or that of the program fuse-overlayfs.

All options that record changes in other ways than plain files and whiteouts are off, so `changes` can read `upper`.
"""

import ctypes
import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from bbfs.fuse import mountpoint
from bbfs.fuse.mountpoint import MountError
from bbfs.fuse.scratch.directory import OVERLAYS, Scratch

Kind: TypeAlias = Literal["kernel", "kernel in a user namespace", "fuse-overlayfs"]
"""The overlay that wrote a scratch. They mark opaque directories and removed names in different ways."""

_LAYERS = "lowerdir=lower,upperdir=upper,workdir=work"
"""Relative to the scratch's directory: a path could have characters that separate options."""
_OPTIONS = "index=off,xino=off,redirect_dir=nofollow,metacopy=off"
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_AT_FDCWD = -100
_FSCONFIG, _FSPICK = 431, 433
_FSPICK_CLOEXEC, _FSCONFIG_CMD_RECONFIGURE = 1, 7
_MOUNT_TIMEOUT = 30.0

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Call mount(2). Raise OSError."""
    _done(
        _libc.mount(
            os.fsencode(source),
            os.fsencode(target),
            None if kind is None else kind.encode(),
            ctypes.c_ulong(flags),
            data.encode() if data else None,
        ),
        target,
    )


def detach(path: str, *, lazily: bool = True) -> None:
    """Call umount2(2). Raise OSError."""
    _done(_libc.umount2(os.fsencode(path), _MNT_DETACH if lazily else 0), path)


def make_private() -> None:
    """Let no mount of this namespace appear in another one."""
    mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def bind(source: str, target: str) -> None:
    """Show a mount at another path."""
    mount(source, target, None, _MS_BIND)


def mount_overlay(scratch: Scratch, mount_point: str, *, in_user_namespace: bool = False) -> None:
    """Mount the overlay of a scratch, whose `lower` is mounted. Raise MountError.

    in_user_namespace: root of a namespace alone has the privilege.
    """
    wrote = scratch.state.get("kind") if os.listdir(scratch.upper) else None
    kind: Kind = "kernel in a user namespace" if in_user_namespace else "kernel"
    try:
        if wrote == "fuse-overlayfs" and not in_user_namespace:
            raise OSError(errno.EPERM, "its changes are in the form of fuse-overlayfs")
        with _working_directory(scratch.path):
            data = f"{_LAYERS},{_OPTIONS}{',userxattr' if in_user_namespace else ''}"
            mount(scratch.path, mount_point, "overlay", _MS_NOSUID | _MS_NODEV, data)
    except OSError as error:
        if in_user_namespace or error.errno not in (errno.EPERM, errno.EACCES, errno.ENODEV):
            raise MountError(f"{mount_point}: no overlay over {scratch.lower}: {_why(error)}") from None
        _mount_by_program(scratch, mount_point, error)
        kind = "fuse-overlayfs"
    if wrote not in (None, kind):
        unmount(mount_point)
        raise MountError(f"{scratch.path} has changes of another overlay ({wrote}), which this one ({kind}) misreads")
    scratch.note(kind=kind)


def _mount_by_program(scratch: Scratch, mount_point: str, refused: OSError) -> None:
    program = shutil.which("fuse-overlayfs")
    if program is None:
        raise MountError(
            f"{mount_point}: the kernel refuses this user an overlay ({refused.strerror}). Install fuse-overlayfs "
            "('apt install fuse-overlayfs'), or use 'bbfs run', which needs user namespaces only"
        )
    command = [program, "-o", f"{_LAYERS},timeout=1", mount_point]
    done = subprocess.run(
        command,
        cwd=scratch.path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_MOUNT_TIMEOUT,
        check=False,
    )
    if done.returncode:
        raise MountError(f"{mount_point}: fuse-overlayfs: {done.stderr.strip() or done.returncode}")


def unmount(mount_point: str, *, lazily: bool = True) -> bool:
    """Unmount the overlay at a path, if one is there. Return whether it was in use. Raise MountError.

    lazily: also one that is in use.
    """
    found = mountpoint.mount_at(mount_point)
    if found is None or found.type not in OVERLAYS:
        return False
    if found.type != "overlay" and lazily:
        return mountpoint.unmount(mount_point)
    try:
        if found.type == "overlay":
            detach(mount_point, lazily=False)
        else:
            _unmount_program(mount_point)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise MountError(f"{mount_point}: {error.strerror}") from None
        if lazily:
            detach(mount_point)
        return True
    return False


def _unmount_program(mount_point: str) -> None:
    command = ["fusermount3", "-u", "-q", mount_point]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_MOUNT_TIMEOUT, check=False)
    if done.returncode:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), mount_point)


def refresh(mount_point: str) -> None:
    """Let an overlay of the kernel drop the names that it caches and no program uses. Raise OSError.

    overlayfs takes its lower layer for immutable. For a name whose file has changed below it answers ESTALE, and for
    one that has appeared ENOENT, as long as it caches the name. Reconfiguring a file system shrinks its dentry cache
    (`reconfigure_super`); by fsconfig(2), because mount(2) would wake all that watch the table of mounts.
    """
    picked = _done(_libc.syscall(_FSPICK, _AT_FDCWD, os.fsencode(mount_point), _FSPICK_CLOEXEC), mount_point)
    try:
        _done(_libc.syscall(_FSCONFIG, picked, _FSCONFIG_CMD_RECONFIGURE, None, None, 0), mount_point)
    finally:
        os.close(picked)


def _done(result: int, path: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result


def _why(error: OSError) -> str:
    if error.errno == errno.EINVAL:
        return "the file system of the scratch cannot be an upper layer; put it on a local disk"
    return error.strerror or str(error)


@contextmanager
def _working_directory(path: str) -> Iterator[None]:
    """Change the working directory for a while. Only for a process of one thread."""
    before = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(path)
        yield
    finally:
        os.fchdir(before)
        os.close(before)
