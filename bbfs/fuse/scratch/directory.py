"""The directory of a scratch: its layers, its state, and who holds it.

`upper` has the changes, `work` belongs to the overlay, `lower` is the mount point of the sources. The locks are those
of flock(2), so none outlives its process: `held` while an overlay may be mounted, `edited` while a command changes
`upper`.
"""

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from bbfs.fuse import mountpoint
from bbfs.fuse.mountpoint import Mount, MountError
from bbfs.runtime.files import closed_after
from bbfs.runtime.private_files import open_own, own_directory

_STATE = "scratch.json"
_LARGEST_STATE = 64 << 20
"""Bytes of a state that is read; it has an entry for each file that was applied."""
_ROOM = 4096
"""Bytes that a state has at least, spaces included: so many can be written again on a disk without room."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a disk without room."""
ENDS_WITHIN = 20.0
"""Seconds for the processes of a scratch to end."""
_LOCKS = ("held", "edited")
"""The files by whose locks a scratch is held, and edited."""
_RETRY = 0.05
IN_RUN = "BBFS_RUN"
"""The variable by which `bbfs run` tells its command where the mount is."""
OVERLAYS = ("overlay", "fuse.fuse-overlayfs")
"""The types of mounts that a scratch may have."""
COVER = "tmpfs"
"""The type of the cover below an overlay."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """The directory of a scratch, by its canonical path."""

    path: str

    @property
    def upper(self) -> str:
        return os.path.join(self.path, "upper")

    @property
    def work(self) -> str:
        return os.path.join(self.path, "work")

    @property
    def lower(self) -> str:
        return os.path.join(self.path, "lower")

    @classmethod
    def made(cls, path: str, mount_point: str) -> "Scratch":
        """Return the scratch in a directory; make it, or begin one in an empty directory. Raise MountError, OSError."""
        path, mount_point = os.path.realpath(os.path.expanduser(path)), mountpoint.canonical(mount_point)
        if os.path.commonpath([path, mount_point]) in (path, mount_point):
            raise MountError(f"{path}: the scratch and the mount point {mount_point} must not lie in each other")
        if not _is_scratch(path) and os.path.lexists(path) and (not os.path.isdir(path) or os.listdir(path)):
            raise MountError(f"{path} is not empty, and no scratch: name a new directory")
        scratch = cls(path)
        for directory in (path, scratch.upper, scratch.work, scratch.lower):
            if not os.path.ismount(directory):
                own_directory(directory)
        if not _is_scratch(path):
            scratch.note(applied={})
        for name in _LOCKS:  # while the disk has room for a file
            with scratch._lock(name):
                pass
        return scratch

    @classmethod
    def of(cls, operand: str) -> "Scratch":
        """Return the scratch that a mount point or the directory itself names. Raise MountError."""
        path = os.path.realpath(os.path.expanduser(operand))
        if _is_scratch(path):
            return cls(path)
        found = cls.mounted(mountpoint.canonical(operand))
        if found is None:
            raise MountError(f"{operand} has no scratch: 'bbfs mount {operand} --scratch DIR' makes one")
        return found

    @classmethod
    def mounted(cls, mount_point: str) -> "Scratch | None":
        """Return the scratch that is mounted at a canonical path, or None. Do not touch the mount."""
        mount = mountpoint.mount_at(mount_point)
        return None if mount is None else cls.of_mount(mount)

    @classmethod
    def of_mount(cls, mount: Mount) -> "Scratch | None":
        """Return the scratch whose overlay a mount is, or None. Do not touch the mount.

        That of the kernel names the scratch as its source, in every namespace that has it; fuse-overlayfs takes no
        such name, so a link in this user's runtime directory says it.
        """
        if mount.type not in (*OVERLAYS, COVER):
            return None
        path = mount.source
        if mount.type not in ("overlay", COVER):
            try:
                path = os.readlink(_registered(mount.path))
            except OSError:
                return None
        return cls(path) if os.path.isabs(path) and _is_scratch(path) else None

    def is_cover(self, mount: Mount) -> bool:
        """Return whether a mount is the cover below the overlay, which shows while the overlay is unmounted."""
        return mount.type == COVER and mount.source == self.path

    @classmethod
    def above(cls, mount_point: str) -> "Scratch | None":
        """Return the scratch whose lower layer is mounted at a canonical path, or None."""
        path, name = os.path.split(mount_point)
        return cls(path) if name == "lower" and _is_scratch(path) else None

    @property
    def state(self) -> Mapping[str, Any]:
        """Return what is noted about it: `kind`, `mounted_at`, `in_run`, `cover`, `edited`, `control`, `applied`."""
        with open(os.path.join(self.path, _STATE), "rb", opener=open_own) as file:
            read = file.read(_LARGEST_STATE)
        try:
            found = json.loads(read)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or "applied" not in found:
            raise MountError(f"{self.path}/{_STATE} is damaged; the changes are in {self.upper}")
        return found

    def note(self, **changes: Any) -> None:
        """Change what is noted about it. On a disk without room the present file is written again."""
        state = {**(self.state if _is_scratch(self.path) else {}), **changes}
        path = os.path.join(self.path, _STATE)
        text, new = json.dumps(state).encode("ascii").ljust(_ROOM), f"{path}.{os.getpid()}"
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(text)
            os.replace(new, path)
        except OSError as error:
            with suppress(OSError):
                os.unlink(new)
            if error.errno not in FULL or not _is_scratch(self.path):
                raise
            _write_again(path, text)

    def mounted_at(self) -> str | None:
        """Return where its overlay is mounted in this mount namespace, or None."""
        path = self.state.get("mounted_at")
        return path if isinstance(path, str) and self.mounted(path) == self else None

    def register(self, mount_point: str) -> None:
        """Let the mount point lead to this directory."""
        link = _registered(mount_point)
        with suppress(FileNotFoundError):
            os.unlink(link)
        os.symlink(self.path, link)
        self.note(mounted_at=mount_point)

    def unregister(self, mount_point: str) -> None:
        with suppress(OSError):
            os.unlink(_registered(mount_point))
        with suppress(OSError, MountError):
            self.note(mounted_at=None)

    def held(self) -> AbstractContextManager[None]:
        """Hold it for one overlay. Raise MountError if another one has it."""
        return self._locked("held", f"{self.path} is in use by another mount or run")

    def edited(self) -> AbstractContextManager[None]:
        """Hold it for a command that changes `upper`. Raise MountError if another one does."""
        return self._locked("edited", f"{self.path}: another command changes it now")

    def is_held(self) -> bool:
        try:
            with self.held():
                return False
        except MountError:
            return True

    def await_end(self) -> bool:
        """Wait until nothing holds it. Return whether that came within ENDS_WITHIN."""
        until = time.monotonic() + ENDS_WITHIN
        while self.is_held():
            if time.monotonic() > until:
                return False
            time.sleep(_RETRY)
        return True

    def _lock(self, name: str) -> AbstractContextManager[int]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return closed_after(os.open(os.path.join(self.path, name), flags, 0o600))

    @contextmanager
    def _locked(self, name: str, refusal: str) -> Iterator[None]:
        with self._lock(name) as descriptor:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise MountError(refusal) from None
            yield


def _write_again(path: str, text: bytes) -> None:
    """Write a file in its place. Raise OSError if there is no room for all of it."""
    with closed_after(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as descriptor:
        text = text.ljust(os.fstat(descriptor).st_size)
        if os.pwrite(descriptor, text, 0) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def _is_scratch(path: str) -> bool:
    return os.path.isfile(os.path.join(path, _STATE))


def _registered(mount_point: str) -> str:
    from bbfs.fuse.places import scratch_link  # noqa: PLC0415 - it takes 10 ms, and only a mount of fuse-overlayfs asks

    return scratch_link(mount_point)
