"""The files of passed folders that the kernel holds, by inode number. Pure.

An inode is a file of a folder: its device and inode number there, whatever its names are. Worker threads use this
table beside the event loop, so one lock guards what several steps change.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from os import fsdecode, fsencode, stat_result
from stat import S_IFMT
from threading import Lock

from bbfs.resources.catalog.record import PASSED
from bbfs.sources.content.fd import Descriptor
from bbfs.vfs.told import Told

Key = tuple[int, int, int]
"""The identity of a file: its device, its inode number there, and its type: a number that is used again may be another
type's."""
Place = tuple["PassedInode", bytes]
"""A directory, and a name in it."""
PLACES_KEPT = 16
"""Names of one file that are remembered, the last ones. A file with more hard links is found by these."""
_BITS = 50
_PLAIN = 1 << _BITS
"""The least number of a file that is too large to be part of an inode number; the number has a hash instead."""
MOST_FOLDERS = 1 << (61 - _BITS)


class PassedInode:
    """A file, directory or link of a folder that the kernel holds.

    places: where it was seen, the last one at the end; a directory has one. descriptor: of a directory, with O_PATH,
    for a while. handles: the descriptors of programs that have the file open, by handle. stamp: size, modification and
    change time for which the kernel's pages are those of the file; None while it may be written. told: what the
    kernel was told of the file, below an overlay. asked: of a directory, how often the kernel has asked again. watched:
    of a directory, what is vouched for in it. is_vouched: its attributes are vouched for.
    """

    __slots__ = (
        "asked", "descriptor", "handles", "is_vouched", "key", "lookups", "number", "places", "stamp", "told",
        "watched",
    )  # fmt: skip

    def __init__(self, number: int, key: Key) -> None:
        self.number = number
        self.key = key
        self.places: list[Place] = []
        self.lookups = 0
        self.descriptor: Descriptor | None = None
        self.handles: dict[int, Descriptor] = {}
        self.stamp: tuple[int, int, int] | None = None
        self.told: Told | None = None
        self.asked = 0
        self.watched: Watched | None = None
        self.is_vouched = False

    @property
    def opened(self) -> Descriptor | None:
        """The descriptor of the last open of it that has not ended, or None."""
        handles = self.handles
        return list(handles.values())[-1] if handles else None  # a list: another thread may change the table

    def tell(self, status: stat_result, thread: int | None = None) -> None:
        """Note what the kernel is told of a file below an overlay, and the thread for which it has asked, if any."""
        version = (status.st_size, status.st_mtime_ns)
        if self.told is None:
            self.told = Told(version)
        self.told.tell(version, thread)

    def lacks(self, status: stat_result, thread: int) -> bool:
        """Return whether a thread may have been told of an earlier version only, below an overlay."""
        return self.told is not None and self.told.lacks((status.st_size, status.st_mtime_ns), thread)

    def sends_back(self, status: stat_result, thread: int) -> bool:
        """Return whether an open has to be answered with ESTALE, so that the thread is told again."""
        return self.told is not None and self.told.sends_back((status.st_size, status.st_mtime_ns), thread)

    def was_last_at(self, place: Place) -> bool:
        """Return whether it was seen at a place and not elsewhere since."""
        return bool(self.places) and self.places[-1] == place

    def is_at(self, place: Place, *, directory: bool) -> None:
        """Note a name of it."""
        places = self.places
        if places and places[-1] == place:
            return
        if directory:
            self.places = [place]
            return
        if place in places:
            places.remove(place)
        places.append(place)
        if len(places) > PLACES_KEPT:
            del places[0]


@dataclass(slots=True, eq=False)
class Watched:
    """A directory that is watched. key: the identity that it had then. number: of the watch.

    names, before: what the kernel was told of its names in this interval and in the one before; None for no file. used:
    something was vouched for in this interval. listings: how often it was listed since its last change. ready: made of
    the entries of the last listing, by the caller, until `ready_until` (seconds of time.monotonic).
    """

    directory: PassedInode
    key: Key
    number: int
    names: dict[bytes, PassedInode | None] = field(default_factory=dict)
    before: dict[bytes, PassedInode | None] = field(default_factory=dict)
    used: bool = True
    listings: int = 0
    ready: object = None
    ready_until: float = 0.0

    def knows(self, name: bytes) -> bool:
        """Return whether the kernel may keep a name."""
        return name in self.names or name in self.before

    def told(self, name: bytes) -> PassedInode | None:
        """Return the inode that the kernel was told of for a name, or None."""
        return self.names[name] if name in self.names else self.before.get(name)

    def take(self, name: bytes) -> PassedInode | None:
        """Return the same, and forget the name."""
        inode = self.told(name)
        self.names.pop(name, None)
        self.before.pop(name, None)
        return inode


def key_of(status: stat_result) -> Key:
    return status.st_dev, status.st_ino, S_IFMT(status.st_mode)


def folder_of(number: int) -> int:
    """Return the number of the folder that an inode number belongs to."""
    return (number >> _BITS + 1) & (MOST_FOLDERS - 1)


class PassedInodes:
    """The inodes of one folder. number: of the folder in its mount, from 0 up. It is part of the inode numbers."""

    def __init__(self, number: int) -> None:
        if number >= MOST_FOLDERS:
            raise ValueError(f"more than {MOST_FOLDERS} folders")
        self._base = PASSED | number << _BITS + 1
        self._lock = Lock()
        self._by_key: dict[Key, PassedInode] = {}
        self._by_number: dict[int, PassedInode] = {}
        self.root = PassedInode(self._base, (0, 0, 0))
        """The folder itself, which is always held. Its key is set when it is opened."""

    def __len__(self) -> int:
        return len(self._by_number)

    def __getitem__(self, number: int) -> PassedInode:
        """Return a held inode. Raise KeyError."""
        return self.root if number == self._base else self._by_number[number]

    def kept(self) -> Iterator[tuple[int, Key, int, list[tuple[int, str]]]]:
        """Yield number, identity, lookups and places of each inode that the kernel holds, but for the folder's own."""
        for inode in self._by_number.values():
            places = [(directory.number, fsdecode(name)) for directory, name in inode.places]
            yield inode.number, inode.key, inode.lookups, places

    def hold(self, kept: Iterable[tuple[int, Sequence[int], int, Sequence[tuple[int, str]]]]) -> None:
        """Hold what the table of another daemon did (`kept`). Nothing else may be held yet."""
        kept = list(kept)
        for number, (device, own, kind), lookups, _ in kept:
            inode = self._by_number[number] = PassedInode(number, (device, own, kind))
            self._by_key[inode.key] = inode
            inode.lookups = lookups
        for number, _, _, places in kept:
            for directory, name in places:
                if directory == self._base or directory in self._by_number:  # else it is found by no name any more
                    self._by_number[number].places.append((self[directory], fsencode(name)))

    def known(self, key: Key) -> PassedInode | None:
        return self.root if key == self.root.key else self._by_key.get(key)

    def count(self, status: stat_result, place: Place, *, directory: bool) -> PassedInode:
        """Count one lookup of a file that was found at a place. Return its inode."""
        key = key_of(status)
        with self._lock:
            inode = self._by_key.get(key)
            if inode is None:
                if key == self.root.key:
                    return self.root
                inode = PassedInode(self._free(key), key)
                self._by_key[key] = self._by_number[inode.number] = inode
            inode.lookups += 1
            inode.is_at(place, directory=directory)
            return inode

    def forget(self, number: int, lookups: int) -> PassedInode | None:
        """Take back lookups. Return the inode if no lookup holds it any more."""
        with self._lock:
            inode = self._by_number.get(number)
            if inode is None:
                return None
            inode.lookups -= lookups
            if inode.lookups > 0:
                return None
            del self._by_number[number], self._by_key[inode.key]
            return inode

    def _free(self, key: Key) -> int:
        """Return the number of a file: from its own one where that is possible, so that it lasts across mounts."""
        device, own, _ = key
        base = self._base
        if device != self.root.key[0] or not 0 < own < _PLAIN:
            base |= _PLAIN
            own = int.from_bytes(blake2b(b"%d %d %d" % key, digest_size=8).digest(), "big") % _PLAIN
        while base | own in self._by_number:
            own = (own + 1) % _PLAIN
        return base | own
