"""The interface of both kinds of catalog: what they use of the daemon, and the views of directories that they answer.

Most resources of a large listing are merely listed: no program has looked them up. Such a name comes with the native
URI alone, without a node or a record of its own.
"""

import logging
from array import array
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, islice
from math import inf
from operator import itemgetter
from typing import Any, Protocol, overload

from bbfs.model import uri_paths
from bbfs.model.errors import BbfsError, NotSupported
from bbfs.model.listing import Buckets
from bbfs.model.values import ChangeEvent, DataSource, Listing, ResourceMetadata, ResourceTemplate
from bbfs.resources.cache.metadata import Remembered
from bbfs.resources.catalog.folding import Directory
from bbfs.resources.catalog.lookups import Mentioned
from bbfs.resources.catalog.overlay import Written
from bbfs.resources.catalog.record import Lease, Node, Path, Record, record_node
from bbfs.resources.flights import SingleFlight
from bbfs.sources.abilities import ListingExchange
from bbfs.sources.bounded.turns import let_go

log = logging.getLogger(__name__)

Children = Mapping[str, Node]
"""Nodes by name. Those of completed names are made when they are asked for."""
PORTION = 1000
"""Names that are read before other tasks get their turn, where the source does not divide a directory itself."""
MADE = 200
"""Names of a portion that may need a record each: to make one takes up to 40 µs."""
PORTIONS_AT_ONCE = 10
"""Portions of a directory that are freed at once."""
Shown = Node | str
"""A name's node, or the native URI of a merely listed file."""
SERVED_STALE = 1.0
"""Seconds for which the kernel may cache a stale answer that is being refreshed."""
Stored = tuple[list[Remembered], tuple[float, Listing] | None]
"""The rows of resources that an earlier mount has stored; and its listing with the time of its fetch, or None."""
LOGGED_EVERY = 60.0
"""Seconds between two logged problems of a source."""


@dataclass(frozen=True, slots=True)
class CatalogContext:
    """The part of the daemon that a catalog uses: the clock (seconds since the epoch), the flights, callbacks.

    key: of the source, for its records. notify: called with the changed paths and the event. listed: called with the
    time of a listing, the listing and its changes. outdated: called when the listing is invalidated. completed: called
    with a directory that has other completed names. exchange: returns what shares the next listing with other machines,
    None for nothing.
    """

    key: str
    clock: Callable[[], float]
    flights: SingleFlight
    notify: Callable[[Iterable[Path], ChangeEvent], None]
    listed: Callable[[float, Listing, "Changes | None"], None] = field(default=lambda _at, _listing, _changes: None)
    outdated: Callable[[], None] = field(default=lambda: None)
    completed: Callable[[Path], None] = field(default=lambda _directory: None)
    exchange: Callable[[], ListingExchange | None] = field(default=lambda: None)
    written: Written = field(default_factory=Written)


class ProblemLog:
    """Logs the problem of a source when it changes, at most once a minute: a source can change it at will.

    clock: seconds since the epoch.
    """

    def __init__(self, source_id: str, clock: Callable[[], float]) -> None:
        self._id = source_id
        self._clock = clock
        self._logged: str | None = None
        self._logged_at = -inf

    def note(self, problem: str | None) -> None:
        """Log a problem unless it was the last one. None: there is no problem any more."""
        now = self._clock()
        if problem is None:
            self._logged = None
        elif problem != self._logged and not 0 <= now - self._logged_at < LOGGED_EVERY:
            log.warning("%s: %s", self._id, problem)
            self._logged, self._logged_at = problem, now


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a listing: native URIs of resources added or described otherwise, and of those gone."""

    described: tuple[str, ...]
    gone: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.described or self.gone)


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

    def __del__(self) -> None:
        """Free the portions of a large directory in turns: each has a thousand objects and more."""
        if len(self._taken) > PORTIONS_AT_ONCE:
            let_go(self._taken)

    @classmethod
    def of(cls, entries: Mapping[str, Node | Record], beyond: Children | None = None) -> "View":
        """Return a view of names that do not change meanwhile, in their order; with those of `beyond`, sorted.

        A name of `entries` takes precedence.
        """
        if not beyond:
            names = entries.sorted_keys() if isinstance(entries, Buckets) else entries
            return cls(portions(names, entries.__getitem__), len(entries))
        names = sorted({*entries, *beyond})
        return cls(portions(names, lambda name: entries[name] if name in entries else beyond[name]), len(names))

    def preceded_by(self, nodes: Mapping[str, Node]) -> "View":
        """Return a view that has more names, before the others."""
        more = chain(portions(nodes, nodes.__getitem__), (portion for portion, _ in self.portions()))
        return View(more, self._count + len(nodes), self.listed, self._directory, self.modified_ns)

    def followed_by(self, nodes: Mapping[str, Node]) -> "View":
        """Return a view that has more names, after the others."""
        more = chain((portion for portion, _ in self.portions()), portions(nodes, nodes.__getitem__))
        return View(more, self._count + len(nodes), self.listed, self._directory, self.modified_ns)

    def overlaid(self, nodes: Mapping[str, Node | None], count: int) -> "View":
        """Return a view in which these names have these nodes, or are absent (None). count: of its names."""
        listed = (child for child in self if child[0] not in nodes)
        others = ((name, node) for name, node in sorted(nodes.items()) if node is not None)
        children = merge(listed, others, key=itemgetter(0))

        def portions() -> Iterator[Portion]:
            while some := list(islice(children, MADE)):
                yield Portion([name for name, _ in some], [shown for _, shown in some], alike=False)

        return View(portions(), count, self.listed, None, self.modified_ns)

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


def portions(names: Iterable[str], entry: Callable[[str], Shown | Record], *, alike: bool = True) -> Iterator[Portion]:
    """Yield names in their order, at most `MADE` at once. entry: returns the entry of a name."""
    left = iter(names)
    while some := tuple(islice(left, MADE)):
        entries = map(entry, some)
        shown = [record_node(each) if isinstance(each, Record) else each for each in entries]
        yield Portion(some, shown, alike=alike)


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


class Catalog(Protocol):
    """The tree of one source; paths are names below the source, the scheme's directory included where there is one.

    lists_all: whether the source lists everything at once, and no directory at a time. is_asked_singly: whether the
    source can be asked for the metadata of one resource (`confirm`). beginning: that of the native URIs of the root's
    entries (`zip://`), where names are added to it; None until it is known, and where URIs have schemes of their own.
    descriptions: how many listed resources are files that describe what else the source offers. mentioned: the unlisted
    resources that answers of the source have named; None where no answer does that.
    """

    source: DataSource
    written: Written
    lists_all: bool
    is_asked_singly: bool = False
    beginning: str | None = None
    descriptions: int = 0
    mentioned: Mentioned | None = None

    @property
    def problem(self) -> str | None:
        """The error of the last listing, or why the listing is incomplete, in words."""
        ...

    @property
    def records(self) -> Mapping[str, Record]:
        """Every listed resource by its native URI; none if a directory is listed at a time.

        Another object when the listing has changed.
        """
        return {}

    def held(self) -> Iterable[Record]:
        """Return the records that may hold more than the listing says."""
        ...

    async def usage(self) -> tuple[int, int]:
        """Return the sum of the known sizes (bytes), and the number of listed resources."""
        ...

    def count(self) -> int:
        """Return the number of listed resources, in a hierarchical source those of the cached directories."""
        ...

    def cached(self, path: Path) -> Node | None: ...

    def last_cached(self, path: Path) -> Node | None:
        """Return the node at a path by the last answer of the source, however old it is, or None.

        Raise NotFound, NotADirectory.
        """
        ...

    def failure(self, path: Path) -> BbfsError | None:
        """Return the error of the last answer for the names of a directory that the source completes, or None."""
        return None

    def cached_view(self, path: Path, *, completed: bool = True) -> View | None:
        """Return the names of a directory, or None if the source must be asked.

        completed: None as well where the source may have more names to complete; else without these.
        """
        ...

    def large(self, path: Path) -> LargeEntries | None:
        """Return the entries of a directory that is too large to go through at once; None for any other."""
        return None

    def listed_at(self, path: Path) -> float:
        """Return when the listing of a directory that is shown now was begun; 0 if there is none."""
        ...

    async def find(self, path: Path) -> Node: ...

    async def view(self, path: Path, *, completed: bool = True) -> View:
        """Return the names of a directory, after a listing if necessary. completed: with those the source completes."""
        ...

    def validity(self, path: Path) -> float: ...

    def lease(self, record: Record) -> Lease | None:
        """Return the promise that a record stays at its path; None for an unlisted one."""
        ...

    def names_lease(self, path: Path) -> Lease | None:
        """Return the promise that the children of a directory do not change; None if templates make some of them."""
        ...

    def record(self, native_uri: str) -> Record | None:
        """Return the record of a resource, listed or not, or None."""
        ...

    def all_records(self) -> list[Record]: ...

    def record_of(self, uri: str, native_uri: str) -> Record:
        """Return the record of a resource by its URIs, made for an unlisted one."""
        ...

    def plain_path(self, native_uri: str) -> Path:
        """Return the path that the rule gives a native URI, whether or not something is there (S2)."""
        return uri_paths.plain_path(native_uri, None if self.lists_all else self.source.scheme).path

    def native_uri(self, path: Path) -> str | None:
        """Return the native URI for a name that leads to nothing yet; None if it follows from that of its directory."""
        return None

    def open_as_file(self, path: Path) -> None:
        """Note that a program opens a name that may also lead on."""
        return

    # -- templates ---------------------------------------------------------------------------------------------------

    def absence(self, path: Path) -> float:
        """Return the seconds for which a name is absent beyond the listing's own time; infinite if unbounded."""
        return inf

    def templates(self, path: Path) -> list[ResourceTemplate]:
        """Return the templates that make names in a directory."""
        return []

    def all_templates(self) -> tuple[ResourceTemplate, ...]:
        """Return all templates of the last listing, including those that make no paths."""
        return ()

    # -- changes -----------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Invalidate the listings: ask again at the next use."""
        ...

    async def relist(self) -> None:
        """Have everything listed again: now if the source lists all at once, else at the next use. Raise BbfsError."""
        ...

    def forget(self, path: Path) -> None:
        """Invalidate everything at and below a path, and report it as changed."""
        ...

    def outdate(self, path: Path) -> None:
        """Have a name listed again, and what is below it if it is a directory."""
        self.expire()

    def announced(self, native_uri: str) -> None:
        """Take note that the source reports a change of what may be a directory."""
        return

    def drop(self, path: Path) -> None:
        """Forget the listings at and below a path: the directory is gone."""
        return

    def moved(self, native_uri: str, path: Path) -> Collection[str]:
        """Serve nothing older of what is below a directory that the mount has renamed, or that is named so now.

        Return the URIs of the resources there that are known.
        """
        self.forget(path[:-1])
        return ()

    def wrote(self, path: Path, native_uri: str, *, is_there: bool) -> list[Record]:
        """Take note that the mount has written (`is_there`) or removed a resource.

        Return the other resources whose contents may differ now: those that list it, by their URIs.
        """
        return []

    async def confirm(self, record: Record) -> None:
        """Ask the source for the metadata of one resource. Raise BbfsError."""
        raise NotSupported(f"{self.source.id} cannot be asked for the metadata of one resource")

    # -- what an earlier mount has stored ----------------------------------------------------------------------------

    async def recall(self, stored: Callable[[], Awaitable[Stored]]) -> None:
        """Take over what an earlier mount had learnt. Requests for names wait for it. stored: reads it."""
        ...

    @property
    def is_empty(self) -> bool:
        """Return whether nothing of the source is cached here."""
        ...
