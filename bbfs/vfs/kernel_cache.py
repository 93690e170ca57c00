"""Invalidates what the kernel has cached, and wakes the programs that poll an open file, when something changes.

The kernel caches an answer for as long as its timeout says. What changes before that is invalidated here: names that
lead elsewhere, directories that were added or removed, absent names that a refresh looks up again. Between two awaits a
task is alone; nothing here waits.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Literal, TypeAlias

from cachetools import LRUCache

from bbfs.model.errors import NotADirectory, NotFound
from bbfs.model.values import Change
from bbfs.resources.catalog.record import DIRECTORY_VERSION, ROOT, Node, Path
from bbfs.resources.contents import Contents
from bbfs.resources.tree import Tree
from bbfs.vfs.file_handles import FileHandles, OpenFile
from bbfs.vfs.inode_table import InodeTable

ABSENT_KEPT = 10_000
"""Absent names that the kernel may have cached, and that a refresh invalidates."""

Look: TypeAlias = Callable[[Path], Node | Literal["absent"] | None]
"""Returns the node at a path, or None if only its source can tell."""


class KernelCache:
    """The kernel's cache of one mount: compares what it may hold with the current state, and invalidates what differs.

    invalidate: called with (parent inode, name) to notify the kernel. invalidate_below: called with a change that
    concerns all that is below its paths, to notify the kernel of what `held_below` then yields. Neither may block.
    changes: counts all changes; while it stays the same, every answer holds until its own timeout.
    """

    def __init__(
        self,
        tree: Tree,
        contents: Contents,
        inodes: InodeTable,
        handles: FileHandles,
        invalidate: Callable[[int, bytes], None],
        invalidate_below: Callable[[Change], None],
    ) -> None:
        self._tree = tree
        self._contents = contents
        self._inodes = inodes
        self._handles = handles
        self._invalidate = invalidate
        self._invalidate_below = invalidate_below
        self.changes = 0
        self._absent: LRUCache[tuple[Path, bytes], None] = LRUCache(ABSENT_KEPT)

    def note_absent(self, directory: Path, raw_name: bytes) -> None:
        """Remember that the kernel may cache the absence of a name."""
        self._absent[directory, raw_name] = None

    def appear(self, path: Path) -> None:
        """Invalidate the absent names at and below a path."""
        self.changes += 1
        for directory, raw_name in [*self._absent]:
            parent = self._inodes.held(directory, DIRECTORY_VERSION)
            if (*directory, raw_name.decode("utf-8", "replace"))[: len(path)] == path:
                del self._absent[directory, raw_name]
                if parent is not None:
                    self._invalidate(parent, raw_name)

    def appear_at_root(self, names: Iterable[str]) -> None:
        """Invalidate names at the root, which lead to another source from now on, or to none."""
        for name in names:
            self.appear((name,))
            self._invalidate(ROOT, name.encode())

    def changed(self, change: Change) -> None:
        """Notify the kernel of names that have changed, and of ancestors that were added or removed."""
        self.changes += 1
        told: set[Path] = set()
        look: Look = cache(self._look)
        for path in change.paths:
            self._outdate(path, look, below=change.below)
            for depth in range(1, len(path) + 1):
                parent = self._inodes.held(path[: depth - 1], DIRECTORY_VERSION)
                if parent is None:
                    break  # without the directory, the kernel has nothing below it
                place = path[:depth]
                if place in told:
                    continue
                if depth == len(path) and not change.below:
                    differs = not self._stays(place, look)
                else:
                    differs = self._came_or_went(place, look, unknown=change.below)
                if differs:
                    told.add(place)
                    self._invalidate(parent, place[-1].encode())
        if change.below:
            self._invalidate_below(change)

    def held_below(self, change: Change) -> Iterator[list[tuple[int, bytes]]]:
        """Yield the names at and below the paths of a change that the kernel may hold, in portions."""
        absent = [key for key in self._absent if change.concerns((*key[0], key[1].decode("utf-8", "replace")))]
        for key in absent:
            self._absent.pop(key, None)
        yield self._in_held(absent)
        for shown in self._inodes.portions():
            below = [(path, version) for path, version in shown if path and change.concerns(path)]
            yield self._in_held(
                (path[:-1], path[-1].encode())
                for path, version in below
                if version != DIRECTORY_VERSION or self._came_or_went(path, self._look)
            )

    def _in_held(self, names: Iterable[tuple[Path, bytes]]) -> list[tuple[int, bytes]]:
        """Return the names in directories that the kernel holds, each with the directory's inode."""
        held = cache(partial(self._inodes.held, version=DIRECTORY_VERSION))
        parents = ((held(directory), name) for directory, name in names)
        return [(parent, name) for parent, name in parents if parent is not None]

    def _look(self, path: Path) -> Node | Literal["absent"] | None:
        """Return the node at a path, or None if only its source can tell."""
        try:
            return self._tree.cached(path)
        except (NotFound, NotADirectory):
            return "absent"

    def _stays(self, path: Path, look: Look) -> bool:
        """Return whether a name leads to what the kernel has there: the directory, or the file that a program writes.

        The last close of such a file notifies the kernel.
        """
        is_directory = self._inodes.held(path, DIRECTORY_VERSION) is not None
        if not is_directory and all(opened.draft is None for opened in self._handles.below(path)):
            return False
        node = look(path)
        if not isinstance(node, Node) or node.draft is None:
            return is_directory and isinstance(node, Node) and node.kind == "directory"
        return self._inodes.held(path, node.draft.version) is not None

    def _came_or_went(self, directory: Path, look: Look, *, unknown: bool = True) -> bool:
        """Return whether the kernel's view of a directory is wrong. unknown: the answer if only its source can tell.

        A directory that loses its entry has no path any more: getcwd(2) fails in it.
        """
        if len(directory) == 1 and self._tree.has_root(directory[0]):
            return False
        known, node = self._inodes.held(directory, DIRECTORY_VERSION) is not None, look(directory)
        if node == "absent":
            return known
        is_there = node is not None
        return (is_there or unknown) and is_there != known

    def _outdate(self, place: Path, look: Look, *, below: bool) -> None:
        """Wake the programs that poll an open file at or below a path, if its version is outdated.

        If its content only expired, ask the source once a program polls: it does not open the file again before it is
        woken.
        """
        for opened in self._handles.below(place):
            told = opened.path if below else place
            if not opened.changed and self._is_outdated(opened, told, look):
                opened.changed = True
                wake, opened.wake = opened.wake, None
                if wake is not None:
                    wake()
            elif not opened.shares_inode and self._contents.expires_now(opened.record):
                opened.doubted = opened.wake is None
                if not opened.doubted:
                    self._contents.begin_learning(opened.record)

    @staticmethod
    def _is_outdated(opened: OpenFile, told: Path, look: Look) -> bool:
        """Return whether an open file is another version than its path has, after a change at `told`."""
        record, node = opened.record, None
        if not opened.shares_inode and (record.invalidated or record.inode_version != opened.version):
            return True
        for place in dict.fromkeys((told, opened.path)):  # a directory that is gone takes its entries with it
            node = look(place)
            if not isinstance(node, Node):
                return node == "absent" or place == told
        record = node.record if isinstance(node, Node) else None
        if record is None or opened.shares_inode:
            return record is None
        return record.invalidated or record.inode_version != opened.version
