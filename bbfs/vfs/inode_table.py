"""The inodes that the kernel holds, by number, and the directories that it has locked.

A number is a function of the path and of the content's version (`docs/semantics.md`, S7), so it is the same across
lookups, listings and remounts while the content is the same, and new content is a new inode.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import trio
from cachetools import LRUCache

from bbfs.model.errors import Outdated
from bbfs.resources.catalog.record import FIRST_HASHED, HASHED, ROOT, inode_number

_TABLES = 64
"""Number of dicts: one of a million entries would stop the daemon for a tenth of a second when it grows."""

ENDED = "\0ended"
"""The version of an inode whose source was removed: no resource has it."""
AT_ONCE = 1000
"""Inodes of a portion."""
IN_USE = 0.1
"""Seconds after a request in which the program that sent it likely sends another one for the same directory."""
LOCKS_KEPT = 1000


class InodeKey(NamedTuple):
    """The identity of an inode: the path below the mount's root, and the version of the content."""

    path: tuple[str, ...]
    version: str = ""


Shown: TypeAlias = tuple[tuple[str, ...], str]
"""An inode that was merely shown in a listing: path, version. Most of a large tree are such: a
plain tuple of texts takes little, and nothing that Python's cyclic garbage collector would go through."""


@dataclass(slots=True)
class Inode:
    """An inode that the kernel holds. note: a value of the table's owner, dropped with the inode.

    filled: whether the kernel was given the whole content.
    """

    key: InodeKey
    lookups: int = field(default=0)
    note: Any = field(default=None)
    filled: bool = field(default=False)


def _table() -> dict[int, Inode | Shown]:
    """Return an empty table that the cyclic garbage collector tracks already, so that `gc.freeze` applies to it.

    It does not track an empty dict.
    """
    table: dict[int, Inode | Shown] = {0: Inode(InodeKey(()))}
    table.clear()
    return table


class InodeTable:
    """The inodes that the kernel holds (by lookups), and their numbers. Owned by the mount.

    A plain synchronous class: between two awaits a task is alone, so no method needs a lock, and none may be called
    from another thread. The root is always held, and its lookups are not counted.
    """

    def __init__(
        self,
        number_of: Callable[[tuple[str, ...], str], int] = inode_number,
        *,
        identity: Callable[[str], str] | None = None,
    ) -> None:
        """number_of: the hash, from 2 up; tests give another than `inode_number`.

        identity: returns the part of a version that makes another inode; None: each version does. With it, an inode has
        the version of its last lookup, and is in `retold` if that was another one than before.
        """
        self._number_of = number_of if identity is None else lambda path, version: number_of(path, identity(version))
        self._identity = identity
        self.retold: set[int] = set()
        self._held: list[dict[int, Inode | Shown]] = [_table() for _ in range(_TABLES)]  # by number modulo their number
        self._held[ROOT % _TABLES][ROOT] = Inode(InodeKey(()))
        self._again: list[dict[int, int]] = [{} for _ in range(_TABLES)]  # lookups beyond the first of those shown
        self._numbers: dict[InodeKey, int] = {}  # of all but those shown: they have the number of their hash

    def __len__(self) -> int:
        return sum(map(len, self._held))

    def __contains__(self, ino: int) -> bool:
        return ino in self._held[ino % _TABLES]

    def _key(self, path: tuple[str, ...], version: str) -> InodeKey:
        """Return the key of a number."""
        return InodeKey(path, version if self._identity is None else self._identity(version))

    def number(self, path: tuple[str, ...], version: str = "") -> int:
        """Return the number that this inode has, or would get now. Changes nothing."""
        if not path:
            return ROOT
        known = self._numbers.get(self._key(path, version))
        return self._free(path, version) if known is None else known

    def held(self, path: tuple[str, ...], version: str = "") -> int | None:
        """Return the number of this inode if it is held, else None."""
        if not path:
            return ROOT
        known = self._numbers.get(self._key(path, version))
        if known is not None:
            return known
        ino = self._number_of(path, version)
        return ino if self._is_shown(ino, path, version) else None

    def portions(self) -> Iterator[list[Shown]]:
        """Yield the inodes that are held, in portions; one that is held all the time comes once."""
        for table in self._held:
            shown = [held if isinstance(held, tuple) else (held.key.path, held.key.version) for held in table.values()]
            for start in range(0, len(shown), AT_ONCE):
                yield shown[start : start + AT_ONCE]

    def hashed(self, path: tuple[str, ...], version: str) -> int:
        """Return the number that this inode has unless another one has it."""
        return self._number_of(path, version)

    def remember(self, path: tuple[str, ...], version: str = "") -> int:
        """Count one lookup of this inode by the kernel. Return its number."""
        if not path:
            return ROOT
        key = self._key(path, version)
        ino = self._numbers.get(key)
        if ino is None:
            ino = self._free(path, version)
            if ino not in self:
                self._numbers[key] = ino
                self._held[ino % _TABLES][ino] = Inode(InodeKey(path, version))
        inode = self.inode(ino)
        inode.lookups += 1
        if inode.key.version != version:
            inode.key, inode.note = InodeKey(path, version), None
            self.retold.add(ino)
        return ino

    def counted(self) -> Iterator[tuple[int, tuple[str, ...], str, int]]:
        """Yield number, path, version and lookups of each inode that the kernel holds, but for the root."""
        for table, again in zip(self._held, self._again, strict=True):
            for ino, held in table.items():
                if isinstance(held, tuple):
                    yield ino, held[0], held[1], 1 + again.get(ino, 0)
                elif ino != ROOT:
                    yield ino, held.key.path, held.key.version, held.lookups

    def hold(self, ino: int, path: tuple[str, ...], version: str, lookups: int) -> None:
        """Hold an inode as the table of another daemon did (`counted`). Nothing else may be held yet."""
        self._held[ino % _TABLES][ino] = Inode(InodeKey(path, version), lookups)
        self._numbers[self._key(path, version)] = ino

    def show(self, ino: int, path: tuple[str, ...], version: str) -> bool:
        """As `remember`, in little time and memory, where `ino` is the hash and the number. False, and nothing is
        done, where something else has that number: `remember` then.
        """
        table = self._held[ino % _TABLES]
        held = table.get(ino)
        if held is None:
            if self._key(path, version) in self._numbers:
                return False
            table[ino] = (path, version)
        elif isinstance(held, tuple):
            if held[1] != version or held[0] != path:
                return False
            again = self._again[ino % _TABLES]  # no new tuple: the collector would see each of them
            again[ino] = again.get(ino, 0) + 1
        else:
            if held.key != (path, version):
                return False
            held.lookups += 1
        return True

    def forget(self, ino: int, lookups: int = 1) -> bool:
        """Take back `lookups` lookups. Returns True when the inode was dropped: no lookup holds it.

        Raises Outdated when it is not held, and ValueError when the kernel never made that many lookups.
        """
        if ino == ROOT:
            return False
        table = self._held[ino % _TABLES]
        shown = table.get(ino)
        if isinstance(shown, tuple):
            again = self._again[ino % _TABLES]
            held_by = 1 + again.get(ino, 0)
            if lookups == held_by:
                del table[ino]
                again.pop(ino, None)
                return True
            if 0 < lookups < held_by:
                again[ino] = held_by - lookups - 1
                return False
        held = self.inode(ino)
        if not 0 <= lookups <= held.lookups:
            raise ValueError(f"inode {ino} has {held.lookups} lookups, {lookups} cannot be forgotten")
        held.lookups -= lookups
        if held.lookups:
            return False
        del table[ino]
        self._drop_number(ino, held.key)
        self.retold.discard(ino)
        return True

    def detach(self, ino: int) -> None:
        """Let lookups find another inode from now on: the name of this one is gone, but programs have it open."""
        if ino in self:
            self._drop_number(ino, self.inode(ino).key)

    def end(self, is_below: Callable[[tuple[str, ...]], bool]) -> set[str]:
        """Let no inode of a file or link below some paths be found again, as another source may have these paths next.

        What programs have open of it stays held, under its number. Return the names at the root among the paths.
        """
        roots: set[str] = set()
        for table in self._held:
            for ino, held in list(table.items()):
                path, version = held if isinstance(held, tuple) else held.key
                if not path or not is_below(path):
                    continue
                if len(path) == 1:
                    roots.add(path[0])
                if version != "":
                    inode = self.inode(ino)
                    self._drop_number(ino, inode.key)
                    inode.key, inode.note = InodeKey(path, ENDED), None
        return roots

    def _drop_number(self, ino: int, held: InodeKey) -> None:
        key = self._key(*held)
        if self._numbers.get(key) == ino:
            del self._numbers[key]

    def rename(self, path: tuple[str, ...], to: tuple[str, ...]) -> None:
        """Let the held inodes at and below a path be those at and below another one: the kernel has moved its names.

        Lookups find the moved inode then, unless it was detached. One that was there before, with the same version,
        stays what it is to the programs that have it open.
        """
        moved = [
            ino
            for table in self._held
            for ino, held in table.items()
            if (held[0] if isinstance(held, tuple) else held.key.path)[: len(path)] == path
        ]
        for ino in moved:
            inode = self.inode(ino)
            key = InodeKey((*to, *inode.key.path[len(path) :]), inode.key.version)
            if self._numbers.get(self._key(*inode.key)) == ino:
                self._drop_number(ino, inode.key)
                self._numbers[self._key(*key)] = ino
            inode.key, inode.note = key, None

    def get(self, ino: int) -> InodeKey:
        """Return the key of an inode number. Raise Outdated when it is not held."""
        held = self._held[ino % _TABLES].get(ino)
        if isinstance(held, Inode):
            return held.key
        return InodeKey(*held) if held is not None else self.inode(ino).key

    def note(self, ino: int) -> Any:
        """Return the note of an inode, or None."""
        held = self._held[ino % _TABLES].get(ino)
        return held.note if isinstance(held, Inode) else None

    def inode(self, ino: int) -> Inode:
        """Return the inode with this number. Raise Outdated when it is not held. The caller may count lookups on it."""
        table = self._held[ino % _TABLES]
        held = table.get(ino)
        if held is None:
            raise Outdated(f"inode {ino} is not held")
        if isinstance(held, tuple):  # more is asked of it than to be listed
            key = InodeKey(*held)
            held = table[ino] = Inode(key, 1 + self._again[ino % _TABLES].pop(ino, 0))
            self._numbers[self._key(*key)] = ino
        return held

    def _is_shown(self, ino: int, path: tuple[str, ...], version: str) -> bool:
        held = self._held[ino % _TABLES].get(ino)
        return isinstance(held, tuple) and self._key(*held) == self._key(path, version)

    def _free(self, path: tuple[str, ...], version: str) -> int:
        """Return the hash if it is free or this inode's, else the next free number above it."""
        ino = self._number_of(path, version)
        if self._is_shown(ino, path, version):
            return ino
        while ino in self:
            ino = FIRST_HASHED + (ino + 1 - FIRST_HASHED) % HASHED
        return ino


class DirectoryLocks:
    """The directories, by inode number, that the kernel has locked: for a request that waits, or likely for the next
    one of a program that creates, renames or removes names.
    """

    def __init__(self) -> None:
        self._waiting: Counter[int] = Counter()
        self._used_until: LRUCache[int, float] = LRUCache(LOCKS_KEPT)

    @contextmanager
    def held(self, *directories: int) -> Iterator[None]:
        """Note that the kernel has locked directories for a request, as long as that waits."""
        self._waiting.update(directories)
        try:
            yield
        finally:
            self._waiting.subtract(directories)
            for directory in directories:
                self.used(directory)
                if not self._waiting[directory]:
                    del self._waiting[directory]

    def used(self, directory: int) -> None:
        """Note that a program changes something in a directory."""
        self._used_until[directory] = trio.current_time() + IN_USE

    @property
    def are_free(self) -> bool:
        """Return whether no request waits that changes a name."""
        return not self._waiting

    def locked(self, directory: int) -> bool:
        """Return whether a request for a directory waits."""
        return directory in self._waiting

    def in_use(self, directory: int) -> bool:
        """Return whether a request for a directory waits, or has ended just now."""
        return directory in self._waiting or trio.current_time() < self._used_until.get(directory, 0.0)

    def free_at(self, directory: int) -> float:
        """Return the time (trio's) at which a directory is in use no longer, at the earliest."""
        now = trio.current_time()
        return now + IN_USE if directory in self._waiting else self._used_until.get(directory, now)
