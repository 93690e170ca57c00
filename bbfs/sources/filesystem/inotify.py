"""inotify(7): which names and files of watched directories have changed.

An instance has a queue in the kernel. What was changed before a call of `events` is in its answer: the kernel queues an
event before the system call returns that has caused it. No event comes for what is written through a shared mapping, by
asynchronous I/O of the kernel (io_submit(2)), or by another name of a file, in a directory that is not watched.
"""

import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from bbfs.sources.content.fd import Descriptor

MODIFIED, ATTRIBUTES, WRITTEN = 0x2, 0x4, 0x8
"""IN_MODIFY, IN_ATTRIB, IN_CLOSE_WRITE: of a file, by its name; without a name, of the directory."""
CREATED = 0x100
NAMES = CREATED | 0x40 | 0x80 | 0x200
"""IN_CREATE, IN_MOVED_FROM, IN_MOVED_TO, IN_DELETE."""
OVERFLOWN, ENDED = 0x4000, 0x8000
"""IN_Q_OVERFLOW: events were dropped. IN_IGNORED: the directory is gone, or its file system, or the watch."""
OF_THIS_MACHINE = frozenset((0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x858458F6, 0xF2F52010, 0xCA451A4E))
"""File systems that only this machine changes, by their number in statfs(2): ext, XFS, Btrfs, tmpfs, ramfs, F2FS,
bcachefs. An overlay is none of them: what is written into its layers causes no event."""
_MOST_WATCHES = Path("/proc/sys/fs/inotify/max_user_watches")
_ONLY_DIRECTORY = 0x01000000
_MASK = MODIFIED | ATTRIBUTES | WRITTEN | NAMES | _ONLY_DIRECTORY
_EVENT = struct.Struct("iIII")
_PIECE = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)

Event = tuple[int, int, bytes]
"""A watch, the bits of what has happened, and the name that it happened to; no name for the directory itself."""


class Inotify:
    """One instance. Raise OSError if this user has too many (fs.inotify.max_user_instances)."""

    def __init__(self) -> None:
        self._descriptor = Descriptor(_checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)))

    def fileno(self) -> int:
        return self._descriptor.number

    def watch(self, directory: Descriptor) -> int:
        """Watch a directory, whatever its path becomes. Raise OSError (ENOSPC: fs.inotify.max_user_watches)."""
        path = b"/proc/self/fd/%d" % directory.number
        return _checked(_libc.inotify_add_watch(self._descriptor.number, path, _MASK))

    def unwatch(self, watch: int) -> None:
        """End a watch. Its event `ENDED` follows."""
        _libc.inotify_rm_watch(self._descriptor.number, watch)

    def events(self) -> Iterator[Event]:
        """Yield the events that have come. Never wait."""
        while True:
            try:
                found = os.read(self._descriptor.number, _PIECE)
            except BlockingIOError:
                return
            at = 0
            while at < len(found):
                watch, bits, _, length = _EVENT.unpack_from(found, at)
                at += _EVENT.size
                yield watch, bits, found[at : at + length].rstrip(b"\0")
                at += length


def file_system_of(found: Descriptor) -> int | None:
    """Return the number of the type of a file's file system (statfs(2)); None if the file system does not say."""
    answer = (ctypes.c_ulong * 64)()
    return answer[0] & 0xFFFFFFFF if _libc.fstatfs(found.number, ctypes.byref(answer)) >= 0 else None


def most_watches() -> int:
    """Return how many watches all programs of this user may have. Raise OSError without /proc."""
    return int(_MOST_WATCHES.read_text())


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
