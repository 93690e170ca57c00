"""The interface of both kinds of catalog, and what they share with the rest of the daemon."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from bbfs.model.errors import DeadlineExceeded
from bbfs.model.values import ChangeEvent, Listing, ResourceTemplate
from bbfs.resources.catalog.directory_view import LargeEntries, View
from bbfs.resources.catalog.record import Lease, Node, Path, Record
from bbfs.resources.requests import SingleFlight

Children = dict[str, Node]
LATE_FOR = 2.0
"""Seconds for which a source that did not answer in time is not asked the same again."""
SERVED_STALE = 1.0
"""Seconds for which the kernel may cache a stale answer that is being refreshed."""


@dataclass(slots=True)
class CatalogContext:
    """The part of the daemon that a catalog uses: the clock (seconds since the epoch), the flights, callbacks.

    notify: called with the changed paths and the event. listed: called with the time of a listing, the listing and its
    changes. outdated: called when the listing is invalidated. completed: called with a directory that has other
    completed names.
    """

    clock: Callable[[], float]
    flights: SingleFlight
    notify: Callable[[Iterable[Path], ChangeEvent], None]
    listed: Callable[[float, Listing, "Changes | None"], None] = field(default=lambda _at, _listing, _changes: None)
    outdated: Callable[[], None] = field(default=lambda: None)
    completed: Callable[[Path], None] = field(default=lambda _directory: None)


class LateAnswers:
    """Directories for which a source did not answer in time a moment ago.

    The kernel looks up the names of a directory one by one; without this, each lookup would wait for the whole timeout.
    clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[Path, tuple[float, str]] = {}

    def refuse(self, directory: Path) -> None:
        """Raise DeadlineExceeded again within `LATE_FOR` seconds."""
        until, text = self._until.get(directory, (0.0, ""))
        if self._clock() < until:
            raise DeadlineExceeded(text)

    @contextmanager
    def noted(self, directory: Path) -> Iterator[None]:
        """Note the directory if the source does not answer within the block."""
        try:
            yield
        except DeadlineExceeded as error:
            now = self._clock()
            self._until = {path: late for path, late in self._until.items() if now < late[0]}
            self._until[directory] = now + LATE_FOR, str(error)
            raise

    def forget(self) -> None:
        self._until.clear()


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a listing: native URIs of resources added or described otherwise, and of those gone."""

    described: tuple[str, ...]
    gone: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.described or self.gone)


class Catalog(Protocol):
    """The tree of one source; paths are names below the source, the scheme's directory included where there is one."""

    @property
    def problem(self) -> str | None:
        """The error of the last listing, or why the listing is incomplete, in words."""
        ...

    @property
    def records(self) -> Mapping[str, Record]:
        """Every listed resource by its native URI. Another object when the listing has changed."""
        ...

    def held(self) -> Collection[Record]:
        """Return the records that may hold more than the listing says."""
        ...

    def usage(self) -> tuple[int, int]:
        """Return the sum of the known sizes (bytes), and the number of listed resources."""
        ...

    def count(self) -> int:
        """Return the number of listed resources, in a hierarchical source those of the cached directories."""
        ...

    def known(self, path: Path) -> Node | None: ...

    def last_known(self, path: Path) -> Node | None:
        """Return the node at a path by the last answer of the source, however old it is, or None.

        Raise NotFound, NotADirectory.
        """
        ...

    def cached_view(self, path: Path, *, completed: bool = True) -> View | None:
        """Return the names of a directory, or None if the source must be asked.

        completed: None as well where the source may have more names to complete; else without these.
        """
        ...

    def large(self, path: Path) -> LargeEntries | None:
        """Return the entries of a directory that is too large to go through at once; None for any other."""
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

    def record(self, native_uri: str) -> Record | None: ...

    def all_records(self) -> list[Record]: ...

    def record_of(self, uri: str, native_uri: str) -> Record: ...

    def absence(self, path: Path) -> float: ...

    def templates(self, path: Path) -> list[ResourceTemplate]: ...

    def all_templates(self) -> tuple[ResourceTemplate, ...]:
        """Return all templates of the last listing, including those that make no paths."""
        ...

    def expire(self) -> None: ...

    def forget(self, path: Path) -> None:
        """Invalidate everything at and below a path, and report it as changed."""
        ...
