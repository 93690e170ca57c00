"""The entries of both layers of a scratch, by the descriptors of their directories, and the marks of the upper one.

The programs that wrote the upper layer may be hostile: no symbolic link is followed, and every step goes from a
directory's descriptor.
"""

import errno
import os
import stat
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeAlias

from bbfs.fuse.mountpoint import MountError
from bbfs.fuse.scratch.directory import Scratch
from bbfs.fuse.scratch.origin import ATTRIBUTE, BASE, origin, parsed
from bbfs.runtime.files import closed_after

Type: TypeAlias = Literal["file", "directory", "symlink", "other"]
Identity: TypeAlias = tuple[int, ...]
"""The state of one entry of the upper layer: inode, type and mode, owner, size in bytes, times in ns."""

MANY = 16
"""Names of one directory from which on their statuses are read with its listing, and the others in threads."""
_BLOCK = 1 << 18
_TYPES: Mapping[int, Type] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PREFIX = ".wh."
_OPAQUE_NAMES = (".wh..wh..opq", ".wh..opq")
_OPAQUE: Mapping[str, Sequence[str]] = {
    "kernel": ("trusted.overlay.opaque",),
    "kernel in a user namespace": ("user.overlay.opaque",),
    "fuse-overlayfs": ("trusted.overlay.opaque", "user.fuseoverlayfs.opaque"),
}
"""The attributes by which each overlay marks an opaque directory. It lets no program set them, and copies none up."""


@dataclass(frozen=True, slots=True)
class Marks:
    """How one overlay says in its upper layer that names of the lower one are removed.

    What another overlay would take for such a mark is any file or attribute here: programs make some (they unpack the
    layers of containers), and an overlay copies the attributes of a source's own files.

    opaque: attributes of a directory that hides all of the one below it. by_name: a name with the prefix says it, too.
    """

    opaque: Sequence[str]
    by_name: bool

    @classmethod
    def of(cls, scratch: Scratch) -> "Marks":
        kind = scratch.state.get("kind")
        return cls(_OPAQUE.get(str(kind), ()), kind == "fuse-overlayfs")

    def is_opaque(self, descriptor: int) -> bool:
        """Return whether a directory hides all of the one below it."""
        if self.by_name and any(status(name, descriptor) for name in _OPAQUE_NAMES):
            return True
        for attribute in self.opaque:
            with suppress(OSError):
                if os.getxattr(descriptor, attribute) == b"y":
                    return True
        return False

    def removed_by_name(self, names: Sequence[str]) -> list[str]:
        """Return what the names of a directory say is removed."""
        marks = [name for name in names if self.is_mark(name) and name not in _OPAQUE_NAMES]
        return [name for name in (mark.removeprefix(_PREFIX) for mark in marks) if name not in ("", ".", "..")]

    def is_mark(self, name: str) -> bool:
        """Return whether an entry is a mark by its name, and no file of a program."""
        return self.by_name and name.startswith(_PREFIX)

    def drop(self, name: str, upper: int) -> None:
        """Drop what says that a name is removed, if anything does. Raise OSError."""
        if self.by_name:
            with suppress(FileNotFoundError):
                os.unlink(_PREFIX + name, dir_fd=upper)
        found = status(name, upper)
        if found is not None and is_whiteout(found):
            os.unlink(name, dir_fd=upper)

    def make_merged(self, upper: int, lower: int) -> None:
        """Make an opaque directory a merged one: each name that it hides becomes one that is removed. Raise OSError."""
        names = os.listdir(upper)
        for name in set(os.listdir(lower)).difference(names, self.removed_by_name(names)):
            os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=upper)
        for attribute in self.opaque:
            with suppress(OSError):
                os.removexattr(upper, attribute)
        for name in _OPAQUE_NAMES if self.by_name else ():
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=upper)


def directory(name: str, beneath: int | None = None) -> AbstractContextManager[int]:
    """Open a directory without following a symbolic link. Raise OSError."""
    return closed_after(os.open(name, DIRECTORY, dir_fd=beneath))


@contextmanager
def parent(path: str, root: int) -> Iterator[tuple[int, str]]:
    """Open the directory of a path below a root, and yield it and the last name. Raise OSError."""
    *above, name = names_of(path)
    with ExitStack() as stack:
        for part in above:
            root = stack.enter_context(directory(part, root))
        yield root, name


def names_of(path: str) -> list[str]:
    """Return the names of a path. Raise OSError if one of them would lead elsewhere than to an entry."""
    names = path.split("/")
    if any(name in ("", ".", "..") or "\0" in name for name in names):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
    return names


def status(name: str, beneath: int) -> os.stat_result | None:
    """Return the status of a name in a directory, or None if it is not there. Raise OSError."""
    try:
        return os.stat(name, dir_fd=beneath, follow_symlinks=False)
    except FileNotFoundError:
        return None


def statuses(names: Collection[str], beneath: int) -> dict[str, os.stat_result]:
    """Return the status of some of these names in a directory of the lower layer; of all, as a rule, if they are many.

    A listing of a mount brings the statuses of all names in one request. A lookup brings the status of one name.
    Raise OSError.
    """
    found: dict[str, os.stat_result] = {}
    if len(names) < MANY:
        return found
    wanted = set(names)
    with os.scandir(beneath) as entries:
        # The next part of a listing has statuses only if those of the part before it were asked for.
        for entry in islice(entries, 2 * len(names)):
            if entry.name in wanted:
                with suppress(FileNotFoundError):
                    found[entry.name] = entry.stat(follow_symlinks=False)
    return found


def type_of(found: os.stat_result) -> Type:
    return _TYPES.get(stat.S_IFMT(found.st_mode), "other")


def origin_of(name: str, beneath: int) -> Mapping[str, Any]:
    """Return path and version of the resource that a file is, or was copied from. Empty if nothing says that."""
    try:
        return parsed(os.getxattr(_path(name, beneath), ATTRIBUTE, follow_symlinks=False))
    except OSError:
        return {}


def require_base(name: str, beneath: int, version: Mapping[str, Any]) -> None:
    """Let the next change of a name by this thread be refused unless the source has this version. Raise OSError."""
    os.setxattr(_path(name, beneath), BASE, origin("", version), follow_symlinks=False)


def identity(found: os.stat_result) -> Identity:
    """Return the identity of an entry of the upper layer.

    No program sets the time of change (ctime), which changes with the content and with every attribute.
    """
    if stat.S_ISDIR(found.st_mode):  # its size and times change with the names in it
        return (found.st_ino, found.st_mode, found.st_uid, found.st_gid)
    return (
        *(found.st_ino, found.st_mode, found.st_uid, found.st_gid),
        *(found.st_size, found.st_mtime_ns, found.st_ctime_ns),
    )


def is_whiteout(found: os.stat_result) -> bool:
    """Return whether an entry of the upper layer is a device by which every overlay says that its name is removed."""
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _path(name: str, beneath: int) -> str:
    """Return a path for the calls that take no directory's descriptor."""
    return f"/proc/self/fd/{beneath}/{name}"


def is_same(name: str, upper: int, lower: int, found: os.stat_result, below: os.stat_result) -> bool:
    """Return whether a file has the same content in both layers, or a link the same target. Raise OSError."""
    if stat.S_ISLNK(found.st_mode):
        return os.readlink(name, dir_fd=upper) == os.readlink(name, dir_fd=lower)
    if not stat.S_ISREG(found.st_mode):
        return False
    if found.st_size != below.st_size:
        return False
    try:
        mine = open_file(name, upper)
    except PermissionError:  # a program has taken the right to read it from its user
        return False
    with closed_after(mine), closed_after(open_file(name, lower)) as theirs:
        return _have_same_bytes(mine, theirs)


def _have_same_bytes(one: int, other: int) -> bool:
    """Return whether two open files have the same bytes. Raise OSError.

    A file object of Python would ask for the status first, which is one request more to a mount.
    """
    while block := os.read(one, _BLOCK):
        wanted = memoryview(block)
        while wanted:
            read = os.read(other, len(wanted))
            if not read or read != wanted[: len(read)]:
                return False
            wanted = wanted[len(read) :]
    return not os.read(other, 1)


def open_file(name: str, beneath: int) -> int:
    """Open a regular file for reading, without following a symbolic link. Raise OSError.

    Once more if the lower layer has a new version since its name was looked up.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=beneath)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return os.open(name, flags, dir_fd=beneath)


def remove_tree(*paths: str) -> None:
    """Remove trees of any depth, without following symbolic links. Raise MountError.

    rm(1) needs no call frame for each level, as shutil.rmtree does.
    """
    for start in range(0, len(paths), 100):
        some = paths[start : start + 100]
        for path in some:  # the overlay leaves a directory of mode 0 in `work`
            if stat.S_ISDIR(os.lstat(path).st_mode):
                os.chmod(path, 0o700)
        done = _run("rm", "-rf", "--one-file-system", "--", *some)
        if done.returncode:  # a program has taken its user's rights to a directory
            _run("chmod", "-R", "u+rwx", "--", *some)
            done = _run("rm", "-rf", "--one-file-system", "--", *some)
        if done.returncode:
            raise MountError(done.stderr.strip() or f"rm ended with status {done.returncode}")


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
