"""The names of a large directory in order, in portions, with as little memory for each as possible.

Most of the resources are merely listed, and have the same attributes. Such a name comes with the native URI alone,
without a node, a record or attributes of its own.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

from bbfs.model.listing import Buckets
from bbfs.resources.catalog.folding import Directory
from bbfs.resources.catalog.record import Node

Shown = Node | str
"""A name's node, or the native URI of a merely listed file without a size or a time."""


class Portion:
    """Some names of a directory, in order. numbers: their inode numbers, 0 where not computed yet.

    Tuples of texts, which Python's cyclic garbage collector does not go through.
    """

    __slots__ = ("names", "numbers", "shown")

    def __init__(self, names: tuple[str, ...], shown: tuple[Shown, ...]) -> None:
        self.names = names
        self.shown = shown
        self.numbers = array("Q", bytes(8 * len(names)))


class View:
    """The names of one directory, taken in portions as a reader reaches them.

    A name that exists all the time comes once. portions: in order; none is empty; each is made when it is reached.
    modified_ns: the time of merely listed resources.
    """

    __slots__ = ("_changes", "_directory", "_end", "_portions", "_starts", "_taken", "modified_ns")

    def __init__(self, directory: Directory, portions: Iterator[Portion], modified_ns: int) -> None:
        self._directory = directory
        self._changes = directory.changes
        self._portions = portions
        self._taken: list[Portion] = []
        self._starts: list[int] = []
        self._end = 0
        self.modified_ns = modified_ns

    @property
    def unchanged(self) -> bool:
        """Return whether the directory is the same as at first, so that the view may be read again. Only while its
        tree is current.
        """
        return self._directory.changes == self._changes

    def __len__(self) -> int:
        """Return the number of names of the directory."""
        return len(self._directory.children)

    @property
    def worthwhile(self) -> bool:
        """Return whether it is large, or has merely listed files. The entries of any other can be kept."""
        first = self.at(0)
        return first is not None and (len(first[0].names) < len(self) or any(type(s) is str for s in first[0].shown))

    def at(self, position: int) -> tuple[Portion, int] | None:
        """Return the portion with a position, and the position in it; None at the end."""
        while position >= self._end:
            portion = next(self._portions, None)
            if portion is None:
                return None
            self._starts.append(self._end)
            self._taken.append(portion)
            self._end += len(portion.names)
        place = bisect_right(self._starts, position) - 1
        return self._taken[place], position - self._starts[place]


class _Places(Mapping[str, int]):
    """The positions of the names of a large directory, computed on demand."""

    def __init__(self, children: Buckets[Any]) -> None:
        self._children = children

    def __getitem__(self, name: str) -> int:
        place = self._children.position(name)
        if place is None:
            raise KeyError(name)
        return place

    def __contains__(self, name: object) -> bool:
        return name in self._children

    def __iter__(self) -> Iterator[str]:
        return (name for items in self._children.in_order() for name, _ in items)

    def __len__(self) -> int:
        return len(self._children)


class LargeEntries(Sequence[tuple[str, bool]]):
    """The current entries of a directory that is too large to go through at once."""

    def __init__(self, children: Buckets[Any], is_directory: Callable[[Any], bool]) -> None:
        self._children = children
        self._is_directory = is_directory
        self.places: Mapping[str, int] = _Places(children)

    @overload
    def __getitem__(self, index: int) -> tuple[str, bool]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[str, bool]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, bool] | Sequence[tuple[str, bool]]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        name = self._children.key_at(index)
        return name, self._is_directory(self._children[name])

    def __len__(self) -> int:
        return len(self._children)
