"""Overlays over a mount: the kernel's (overlayfs), or that of the program fuse-overlayfs.

The overlay of the kernel is mounted on a cover, an empty file system that is read-only: while a command changes the
layers, the overlay is unmounted, and what programs write meanwhile fails instead of reaching the directory below. All
of them are attached to descriptors of directories, never to paths: a directory on the way may be exchanged for a link.

All options that record changes in other ways than plain files and whiteouts are off, so `changes` can read `upper`.
"""

import ctypes
import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, TypeAlias

from bbfs.fuse import mounting, mountpoint
from bbfs.fuse.mounting import MountPoint
from bbfs.fuse.mountpoint import MountError
from bbfs.fuse.scratch.directory import OVERLAYS, Scratch
from bbfs.runtime.files import closed_after

Kind: TypeAlias = Literal["kernel", "kernel in a user namespace", "fuse-overlayfs"]
"""The overlay that wrote a scratch. They mark opaque directories and removed names in different ways."""

_LAYERS = {"lowerdir": "lower", "upperdir": "upper", "workdir": "work"}
"""Relative to the scratch's directory: a path could have characters that separate options."""
_OPTIONS = {"index": "off", "xino": "off", "redirect_dir": "nofollow", "metacopy": "off"}
_COVER = {"mode": "0555", "size": "4096", "nr_inodes": "1"}
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8
_MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _FSPICK = 429, 430, 431, 432, 433
_CLOEXEC, _FSPICK_EMPTY_PATH = 1, 8
_FSCONFIG_SET_FLAG, _FSCONFIG_SET_STRING, _FSCONFIG_CMD_CREATE, _FSCONFIG_CMD_RECONFIGURE = 0, 1, 6, 7
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV, _MOUNT_ATTR_NOEXEC = 1, 2, 4, 8
_BOTH_ARE_DESCRIPTORS = 0x04 | 0x40
"""MOVE_MOUNT_F_EMPTY_PATH and MOVE_MOUNT_T_EMPTY_PATH of move_mount(2)."""
_COVER_ATTRIBUTES = _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV | _MOUNT_ATTR_NOEXEC
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
    """Call umount2(2). It follows no link. Raise OSError, MountError."""
    with mounting.located(path) as there:
        _done(_libc.umount2(os.fsencode(there), _UMOUNT_NOFOLLOW | (_MNT_DETACH if lazily else 0)), path)


def detach_above(directory: int, *, lazily: bool = True) -> None:
    """Unmount what is mounted on a directory, or the mount whose root it is, by its descriptor. Raise OSError."""
    path = f"/proc/self/fd/{directory}"
    _done(_libc.umount2(os.fsencode(path), _MNT_DETACH if lazily else 0), path)


def _new_mount(kind: str, source: str, options: Mapping[str, str], flags: Sequence[str], attributes: int) -> int:
    """Make a file system that is mounted nowhere yet, and return the descriptor of its root. Raise OSError."""
    with closed_after(_done(_libc.syscall(_FSOPEN, kind.encode(), _CLOEXEC), kind)) as made:
        for name, value in {"source": source, **options}.items():
            given = (made, _FSCONFIG_SET_STRING, name.encode(), os.fsencode(value), 0)
            _done(_libc.syscall(_FSCONFIG, *given), name)
        for name in flags:
            _done(_libc.syscall(_FSCONFIG, made, _FSCONFIG_SET_FLAG, name.encode(), None, 0), name)
        _done(_libc.syscall(_FSCONFIG, made, _FSCONFIG_CMD_CREATE, None, None, 0), source)
        return _done(_libc.syscall(_FSMOUNT, made, _CLOEXEC, attributes), source)


def _attach(mounted: int, directory: int) -> None:
    """Mount a new file system on a directory (move_mount(2)). Raise OSError."""
    _done(_libc.syscall(_MOVE_MOUNT, mounted, b"", directory, b"", _BOTH_ARE_DESCRIPTORS), "move_mount")


@contextmanager
def covered(scratch: Scratch, place: MountPoint) -> Iterator[int]:
    """Cover a directory for an overlay, and yield the descriptor of the cover's root. Uncover it at the end.

    Yield that of the directory itself where this user may mount nothing: fuse-overlayfs is mounted there by a program
    that checks whose directory it is. Raise MountError.
    """
    path, directory = place.path, place.directory
    try:
        cover = _new_mount("tmpfs", scratch.path, _COVER, ("ro",), _COVER_ATTRIBUTES)
    except OSError:
        _reopen(scratch, directory)
        yield directory
        return
    with closed_after(cover):
        _attach(cover, directory)
        device = os.fstat(cover).st_dev
        try:
            if all((each.path, each.device) != (path, device) for each in mountpoint.mounts()):
                raise MountError(f"{path} has been exchanged for another directory meanwhile")
            scratch.note(cover=[os.getpid(), cover, device], edited=False)
            yield cover
        finally:
            while any(each.device == device for each in mountpoint.mounts()):
                detach_above(cover)
            scratch.note(cover=None)


def cover_of(scratch: Scratch) -> int | None:
    """Return a new descriptor of the cover below the overlay, which the process that keeps it has; None without one."""
    noted = scratch.state.get("cover")
    if not isinstance(noted, list):
        return None
    keeper, number, device = noted
    with suppress(OSError):
        cover = os.open(f"/proc/{keeper}/fd/{number}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        if os.fstat(cover).st_dev == device:
            return cover
        os.close(cover)
    return None


def clear_left(scratch: Scratch, *paths: str) -> None:
    """Remove overlays and covers that a killed process has left at paths and where it noted one. Raise MountError.

    No other process may hold the scratch. A program at a left overlay would write into the layers of the next one.
    """
    noted = scratch.state.get("mounted_at")
    for path in {*paths, *([noted] if isinstance(noted, str) else [])}:
        while (found := mountpoint.mount_at(path)) is not None:
            if is_mounted(scratch, path):
                unmount(path)
            elif scratch.is_cover(found):
                try:
                    detach(path)
                except OSError as error:
                    raise MountError(f"{path}: {error.strerror}") from None
            else:
                break


def make_private() -> None:
    """Let no mount of this namespace appear in another one."""
    mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def bind(source: str, target: str) -> None:
    """Show a mount at another path."""
    mount(source, target, None, _MS_BIND)


def mount_overlay(scratch: Scratch, mount_point: str, directory: int, *, in_user_namespace: bool = False) -> None:
    """Mount the overlay of a scratch, whose `lower` is mounted, on a directory by its descriptor. Raise MountError.

    mount_point: the path of the directory. in_user_namespace: root of a namespace alone has the privilege.
    """
    wrote = scratch.state.get("kind") if os.listdir(scratch.upper) else None
    kind: Kind = "kernel in a user namespace" if in_user_namespace else "kernel"
    try:
        if wrote == "fuse-overlayfs" and not in_user_namespace:
            raise OSError(errno.EPERM, "its changes are in the form of fuse-overlayfs")
        with _working_directory(scratch.path):
            flags = ("userxattr",) if in_user_namespace else ()
            attributes = _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV
            made = _new_mount("overlay", scratch.path, {**_LAYERS, **_OPTIONS}, flags, attributes)
        with closed_after(made):
            _attach(made, directory)
    except OSError as error:
        if in_user_namespace or error.errno not in (errno.EPERM, errno.EACCES, errno.ENODEV):
            raise MountError(f"{mount_point}: no overlay over {scratch.lower}: {_why(error)}") from None
        _reopen(scratch, directory)
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
    layers = ",".join(f"{name}={value}" for name, value in _LAYERS.items())
    command = [program, "-o", f"{layers},timeout=1", mount_point]
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


def is_mounted(scratch: Scratch, mount_point: str) -> bool:
    """Return whether the overlay of a scratch is what shows at a path, and not its cover. Do not touch the mount."""
    found = mountpoint.mount_at(mount_point)
    return found is not None and found.type in OVERLAYS and Scratch.of_mount(found) == scratch


def unmount(mount_point: str, *, lazily: bool = True, cover: int | None = None) -> bool:
    """Unmount the overlay at a path, if one is there. Return whether it was in use. Raise MountError.

    lazily: also one that is in use. cover: what is below it, if its descriptor is known: then the path is not used.
    """
    found = mountpoint.mount_at(mount_point)
    if found is None or found.type not in OVERLAYS:
        return False
    if found.type != "overlay" and lazily:
        return mounting.unmount(mount_point)
    try:
        if found.type != "overlay":
            _unmount_program(mount_point)
        elif cover is None:
            detach(mount_point, lazily=False)
        else:
            detach_above(cover, lazily=False)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise MountError(f"{mount_point}: {error.strerror}") from None
        if lazily:
            detach(mount_point)
        return True
    return False


@contextmanager
def closed(scratch: Scratch, directory: int) -> Iterator[None]:
    """Let no program but root's make a name in a directory without a cover, while its overlay is unmounted.

    fuse-overlayfs mounts only on a directory that its user may write, so it is opened again just before. Raise OSError.
    """
    scratch.note(bare_mode=stat.S_IMODE(os.fstat(directory).st_mode))
    os.chmod(f"/proc/self/fd/{directory}", 0o555)
    try:
        yield
    finally:
        _reopen(scratch, directory)


def _reopen(scratch: Scratch, directory: int) -> None:
    """Give a directory the mode that it had before it was closed, also by a process that was killed."""
    mode = scratch.state.get("bare_mode")
    if isinstance(mode, int):
        os.chmod(f"/proc/self/fd/{directory}", mode & 0o777)
        scratch.note(bare_mode=None)


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
    mount = mountpoint.mount_at(mount_point)
    with closed_after(os.open(mount_point, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)) as directory:
        if mount is None or not mounting.is_at(directory, mount):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), mount_point)
        picked = _done(_libc.syscall(_FSPICK, directory, b"", _CLOEXEC | _FSPICK_EMPTY_PATH), mount_point)
    with closed_after(picked):
        _done(_libc.syscall(_FSCONFIG, picked, _FSCONFIG_CMD_RECONFIGURE, None, None, 0), mount_point)


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
