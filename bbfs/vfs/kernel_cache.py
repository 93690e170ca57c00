"""Tells the kernel, and the programs that have files open, what is no longer true.

The kernel believes what it was told for as long as it was told to. What changes before then is ended here: names that
lead elsewhere now, directories that came or went, absent names that a refresh asks for anew. Between two awaits a task
is alone; nothing here waits.
"""

from collections.abc import Callable, Iterable

from cachetools import LRUCache

from bbfs.model.errors import NotADirectory, NotFound
from bbfs.resources.catalog.record import DIRECTORY_VERSION, Path
from bbfs.resources.manager import ResourceManager
from bbfs.vfs.file_handles import OpenFile, OpenFiles
from bbfs.vfs.inode_table import InodeTable

ABSENT_KEPT = 10_000
"""Absent names that programs have asked for and that a refresh has the kernel look up again."""


class KernelCache:
    """What the kernel holds of one mount, beside what is so.

    invalidate: told (parent inode, name) when the kernel's knowledge of a name is no longer true; it must not block.
    changes: how often anything at all has changed: while it stays the same, what was true still is, for as long as it
    was said to be.
    """

    def __init__(
        self,
        manager: ResourceManager,
        inodes: InodeTable,
        files: OpenFiles,
        invalidate: Callable[[int, bytes], None],
    ) -> None:
        self._manager = manager
        self._inodes = inodes
        self._files = files
        self._invalidate = invalidate
        self.changes = 0
        self._absent: LRUCache[tuple[Path, bytes], None] = LRUCache(ABSENT_KEPT)

    def note_absent(self, directory: Path, raw_name: bytes) -> None:
        """The kernel was told that a directory has no such name."""
        self._absent[directory, raw_name] = None

    def appear(self, path: Path) -> None:
        """Absent names at and below a path may be there now."""
        self.changes += 1
        for directory, raw_name in [*self._absent]:
            parent = self._inodes.held(directory, DIRECTORY_VERSION)
            if (*directory, raw_name.decode("utf-8", "replace"))[: len(path)] == path:
                del self._absent[directory, raw_name]
                if parent is not None:
                    self._invalidate(parent, raw_name)

    def changed(self, paths: Iterable[Path]) -> None:
        """Tell the kernel about the names that are not what they were, and about ancestors that came or went."""
        self.changes += 1
        told: set[Path] = set()
        for path in paths:
            self._outdate(path)
            for depth in range(1, len(path) + 1):
                parent = self._inodes.held(path[: depth - 1], DIRECTORY_VERSION)
                if parent is None:
                    break  # the kernel holds nothing below what it does not hold
                place = path[:depth]
                if place not in told and (depth == len(path) or self._came_or_went(place)):
                    told.add(place)
                    self._invalidate(parent, place[-1].encode())

    def _came_or_went(self, directory: Path) -> bool:
        if len(directory) == 1 and self._manager.has_source(directory[0]):
            return False
        known = self._inodes.held(directory, DIRECTORY_VERSION) is not None
        try:
            return (self._manager.known(directory) is not None) != known
        except NotFound:
            return known

    def _outdate(self, told: Path) -> None:
        """Wake those who hold a file open at a path, or below it, that is no longer what they opened."""
        for opened in self._files.below(told):
            if not opened.changed and self._is_outdated(opened, told):
                opened.changed = True
                wake, opened.wake = opened.wake, None
                if wake is not None:
                    wake()

    def _is_outdated(self, opened: OpenFile, told: Path) -> bool:
        """Whether an open file is another version than its path has, now that something is new at `told`."""
        record, node = opened.record, None
        if not opened.shares_inode and (record.suspected or record.inode_version != opened.version):
            return True
        for place in (told, opened.path):  # a directory that is gone takes with it what is below
            try:
                node = self._manager.known(place)
            except (NotFound, NotADirectory):
                return True
            if node is None:
                return place == told
        record = node.record if node is not None else None
        if record is None or opened.shares_inode:
            return record is None
        return record.suspected or record.inode_version != opened.version
