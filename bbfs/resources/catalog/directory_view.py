"""The names of a directory in order, in portions, with as little memory for each as possible.

Most resources of a large listing are merely listed: no program has looked them up. Such a name comes with the native
URI alone, without a node or a record of its own.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Protocol, overload

from bbfs.model.listing import Buckets
from bbfs.model.values import ResourceMetadata
from bbfs.resources.catalog.folding import Directory
from bbfs.resources.catalog.record import Node, Record, record_node

PORTION = 1000
"""Names that are read before other tasks get their turn, where the source does not divide a directory itself."""
Shown = Node | str
"""A name's node, or the native URI of a merely listed file."""


def is_directory(shown: Shown) -> bool:
    return not isinstance(shown, str) and shown.kind == "directory"


class Portion:
    """Some names of a directory, in order.

    alike: whether the merely listed names all have the same attributes. numbers, answers: what the reader keeps of a
    name: its inode number, 0 where not computed yet, or the answer for a node, by place.

    Tuples of texts, which Python's cyclic garbage collector does not go through.
    """

    __slots__ = ("alike", "answers", "names", "numbers", "shown")

    def __init__(self, names: Iterable[str], shown: Iterable[Shown], *, alike: bool = True) -> None:
        self.names = tuple(names)
        self.shown = tuple(shown)
        self.alike = alike
        self.numbers = array("Q", bytes(8 * len(self.names)))
        self.answers: dict[int, Any] = {}


class Listed(Protocol):
    """The listing behind merely listed names, by native URI."""

    def stated(self, uri: str) -> tuple[int | None, int]:
        """Return the stated size in bytes, if any, and the time in nanoseconds."""
        ...

    def metadata(self, uri: str) -> ResourceMetadata: ...


class View:
    """The names of one directory, taken in portions as a reader reaches them; a small directory is one portion.

    A name that exists all the time comes once. portions: in order; none is empty; each but the first is made when it is
    reached. count: of the names. listed: where merely listed names come from. directory: of the folded tree, if any.
    modified_ns: the time of merely listed resources that state none.
    """

    __slots__ = ("_changes", "_count", "_directory", "_end", "_portions", "_starts", "_taken", "listed", "modified_ns")

    def __init__(
        self,
        portions: Iterator[Portion],
        count: int,
        listed: Listed | None = None,
        directory: Directory | None = None,
        modified_ns: int = 0,
    ) -> None:
        self._directory = directory
        self._changes = 0 if directory is None else directory.changes
        self._portions = portions
        self._taken: list[Portion] = []
        self._starts: list[int] = []
        self._end = 0
        self._count = count
        self.listed = listed
        self.modified_ns = modified_ns
        self._at(0)

    @classmethod
    def of(cls, entries: Mapping[str, Node | Record]) -> "View":
        """Return a view of names that do not change meanwhile, in their order."""
        return cls(_portions(entries), len(entries))

    def beside(self, name: str, node: Node) -> "View":
        """Return a view that has one more name, before the others."""
        portions = chain((Portion((name,), (node,)),), (portion for portion, _ in self.portions()))
        return View(portions, self._count + 1, self.listed, self._directory, self.modified_ns)

    @property
    def unchanged(self) -> bool:
        """Return whether the directory is the same as at first, so that the view may be read again. Only while its
        tree is current.
        """
        return self._directory is None or self._directory.changes == self._changes

    def __len__(self) -> int:
        """Return the number of names of the directory."""
        return self._count

    def __iter__(self) -> Iterator[tuple[str, Shown]]:
        return (child for portion, _ in self.portions() for child in zip(portion.names, portion.shown, strict=True))

    def metadata(self, shown: Shown) -> ResourceMetadata | None:
        """Return the metadata of a name, None for a directory without a resource. Makes no record."""
        if isinstance(shown, Node):
            return None if shown.record is None else shown.record.metadata
        assert self.listed is not None
        return self.listed.metadata(shown)

    def stated(self, uri: str) -> tuple[int | None, int]:
        """Return the stated size of a merely listed file in bytes, if any, and its time in nanoseconds."""
        assert self.listed is not None
        return self.listed.stated(uri)

    def portions(self, position: int = 0) -> Iterator[tuple[Portion, int]]:
        """Yield the portions from a position on, each with the place in it where to begin."""
        while (found := self._at(position)) is not None:
            yield found
            position += len(found[0].names) - found[1]

    def _at(self, position: int) -> tuple[Portion, int] | None:
        """Return the portion with a position, and the place in it; None at the end."""
        while position >= self._end:
            portion = next(self._portions, None)
            if portion is None:
                return None
            self._starts.append(self._end)
            self._taken.append(portion)
            self._end += len(portion.names)
        number = bisect_right(self._starts, position) - 1
        return self._taken[number], position - self._starts[number]


def _portions(entries: Mapping[str, Node | Record]) -> Iterator[Portion]:
    left = iter(entries.items())
    while some := dict(islice(left, PORTION)):
        yield Portion(some, [entry if isinstance(entry, Node) else record_node(entry) for entry in some.values()])


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
