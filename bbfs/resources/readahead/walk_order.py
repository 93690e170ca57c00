"""The order in which a program that walks a tree comes to its files. Pure: a callable says what a directory holds.

A recursive walk (`grep -r`, `find`, `tar`) takes the entries of a directory one after the other and goes down into a
directory when it comes to it. So the files of a tree have one order, whatever the depth; a walk that takes entries from
the end (a stack of work, as in `rg`) goes through the same order backward.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from cachetools import LRUCache

from bbfs.resources.catalog.directory_view import LargeEntries

Path = tuple[str, ...]
Direction = Literal[-1, 1]
Entries = Sequence[tuple[str, bool]]
"""Names of a directory in order; True for a directory, False for a file."""

EDGE_FROM = 16
"""Files of a directory from which the access of its first or last one says something: of few, any may be the first."""
_PASSED_OVER = 256
"""Directories in a row without a file after which a search for the next one ends."""


class _Layout:
    """One directory: its entries in order, and the places of their names."""

    __slots__ = ("entries", "files", "first", "index", "last")

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self.index: Mapping[str, int] = {name: place for place, (name, _) in enumerate(entries)}
        files = [place for place, (_, is_directory) in enumerate(entries) if not is_directory]
        self.files = len(files)
        self.first, self.last = (files[0], files[-1]) if files else (-1, -1)


class _LargeLayout:
    """As `_Layout`. Where the ends are is looked for among the first and the last entries."""

    __slots__ = ("entries", "files", "first", "index", "last")

    def __init__(self, entries: LargeEntries) -> None:
        self.entries: Entries = entries
        self.index: Mapping[str, int] = entries.places
        self.files = size = len(entries)
        ends = range(min(size, _PASSED_OVER))
        self.first = next((place for place in ends if not entries[place][1]), -1)
        self.last = next((size - 1 - place for place in ends if not entries[size - 1 - place][1]), -1)


class TreeOrder:
    """The files of a tree in the order of a walk through it.

    list_directory: the entries of a directory, or None where they are not known; the walk ends there, for nobody is
    asked. opens_at: accesses next to each other that are a walk; more for an order in which few programs walk, so that
    random access seldom is one. directories: how many layouts are kept.
    """

    def __init__(
        self, list_directory: Callable[[Path], Entries | None], *, opens_at: int = 3, directories: int = 256
    ) -> None:
        self.opens_at = opens_at
        self._list = list_directory
        self._layouts: LRUCache[Path, _Layout | _LargeLayout] = LRUCache(directories)

    def __contains__(self, path: Path) -> bool:
        layout = self._layout(path[:-1])
        return layout is not None and path[-1] in layout.index

    def has(self, directory: Path) -> bool:
        """Whether the layout of a directory is kept."""
        return directory in self._layouts

    def size(self, directory: Path) -> int:
        """Entries of a directory; 0 where they are not known."""
        layout = self._layout(directory)
        return len(layout.entries) if layout is not None else 0

    def step(self, path: Path, direction: Direction) -> Path | None:
        """The next file of the tree, or None at its end."""
        *above, name = path
        directory: Path = tuple(above)
        layout = self._layout(directory)
        place = layout.index.get(name) if layout is not None else None
        empty = 0
        while layout is not None and place is not None:
            place += direction
            if not 0 <= place < len(layout.entries):
                if not directory:
                    return None
                directory, name = directory[:-1], directory[-1]
                layout = self._layout(directory)
                place = layout.index.get(name) if layout is not None else None
                continue
            name, is_directory = layout.entries[place]
            if not is_directory:
                return (*directory, name)
            directory = (*directory, name)
            layout = self._layout(directory)
            place = -1 if direction > 0 or layout is None else len(layout.entries)
            if (empty := empty + 1) > _PASSED_OVER:
                return None
        return None

    def sibling(self, path: Path, direction: Direction) -> Path | None:
        """The next file of the same directory, or None."""
        layout = self._layout(path[:-1])
        place = layout.index.get(path[-1]) if layout is not None else None
        if layout is None or place is None:
            return None
        entries, end = layout.entries, layout.last + 1 if direction > 0 else layout.first - 1
        for other in range(place + direction, end, direction):
            name, is_directory = entries[other]
            if not is_directory:
                return (*path[:-1], name)
        return None

    def amid(self, path: Path, direction: Direction, count: int) -> bool:
        """Whether the next `count` steps lead to files of the same directory, with no other directory in between."""
        layout = self._layout(path[:-1])
        place = layout.index.get(path[-1]) if layout is not None else None
        if layout is None or place is None:
            return False
        first = place + 1 if direction > 0 else place - count
        following = layout.entries[max(0, first) : max(0, first) + count]
        return first >= 0 and len(following) == count and not any(is_directory for _, is_directory in following)

    def edge(self, path: Path) -> int:
        """1 for the first file of a directory of many, -1 for the last one, 0 for all others."""
        layout = self._layout(path[:-1])
        if layout is None or layout.files < EDGE_FROM:
            return 0
        place = layout.index.get(path[-1])
        return 1 if place == layout.first else -1 if place == layout.last else 0

    def changed(self, path: Path) -> None:
        """Something is new at a path. The layout of a directory that had no such name is made again when needed."""
        for depth in range(len(path)):
            layout = self._layouts.get(path[:depth])
            if layout is not None and path[depth] not in layout.index:
                del self._layouts[path[:depth]]

    def forget(self, directory: Path) -> None:
        """Drop the layout of a directory whose names have changed; it is made again when needed."""
        self._layouts.pop(directory, None)

    def _layout(self, directory: Path) -> _Layout | _LargeLayout | None:
        layout = self._layouts.get(directory)
        if layout is None:
            entries = self._list(directory)
            if entries is None:
                return None
            layout = _LargeLayout(entries) if isinstance(entries, LargeEntries) else _Layout(entries)
            self._layouts[directory] = layout
        return layout
