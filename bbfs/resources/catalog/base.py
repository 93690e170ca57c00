"""What both kinds of catalog are to those above, and what they share with the rest of the daemon."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from bbfs.model.errors import DeadlineExceeded
from bbfs.model.values import Listing, ResourceTemplate
from bbfs.resources.catalog.directory_view import LargeEntries
from bbfs.resources.catalog.record import Lease, Node, Path, Record
from bbfs.resources.requests import SingleFlight

Children = dict[str, Node]
LATE_FOR = 2.0
"""Seconds for which a source that has not answered in time is not asked the same again."""
SERVED_STALE = 1.0
"""Seconds for which the kernel may keep what is served while it is being refreshed."""


@dataclass(slots=True)
class CatalogContext:
    """What a catalog shares with the rest: the clock (seconds since the epoch), the flights, who hears of changes.

    listed: told of a listing, when it was fetched, and what is new in it. outdated: told when the listing is known not
    to be the source's any more. completed: told of a directory for which the source has completed other names.
    """

    clock: Callable[[], float]
    flights: SingleFlight
    changed: Callable[[Iterable[Path]], None]
    listed: Callable[[float, Listing, "Changes | None"], None] = field(default=lambda _at, _listing, _changes: None)
    outdated: Callable[[], None] = field(default=lambda: None)
    completed: Callable[[Path], None] = field(default=lambda _directory: None)


class LateAnswers:
    """Directories of which a source has not answered in time a moment ago.

    The kernel looks up one name of a directory after the other: without this, each program that wants one would wait as
    long again. clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[Path, tuple[float, str]] = {}

    def refuse(self, directory: Path) -> None:
        """Raises DeadlineExceeded again, where it is true still."""
        until, text = self._until.get(directory, (0.0, ""))
        if self._clock() < until:
            raise DeadlineExceeded(text)

    @contextmanager
    def noted(self, directory: Path) -> Iterator[None]:
        """What waits for an answer of the source about a directory."""
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
    """What is new in a listing: native URIs of those described anew (added or otherwise), and of those gone."""

    described: tuple[str, ...]
    gone: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.described or self.gone)


class Catalog(Protocol):
    """The tree of one source; paths are names below the source, the scheme's directory included where there is one."""

    @property
    def problem(self) -> str | None:
        """What went wrong with listing last, or is missing from what is listed, in words."""
        ...

    @property
    def records(self) -> Mapping[str, Record]:
        """Every listed resource by its native URI. Another object when the listing has changed."""
        ...

    def held(self) -> Collection[Record]:
        """The records of which more may be known than the listing says."""
        ...

    def usage(self) -> tuple[int, int]:
        """Bytes whose size is known, and how many resources are listed."""
        ...

    def count(self) -> int:
        """How many resources are listed; where a directory is listed at a time, in those that were looked at."""
        ...

    def known(self, path: Path) -> Node | None: ...

    def known_children(self, path: Path, *, completed: bool = True) -> Children | None:
        """completed: None as well where the source may have more names to complete; else without these."""
        ...

    def large(self, path: Path) -> LargeEntries | None:
        """The entries of a directory that is too large for `known_children`; None for any other."""
        ...

    async def find(self, path: Path) -> Node: ...

    async def children(self, path: Path) -> Children: ...

    def validity(self, path: Path) -> float: ...

    def lease(self, record: Record) -> Lease | None:
        """The promise that a record stays at its path; None for one that no listing holds."""
        ...

    def names_lease(self, path: Path) -> Lease | None:
        """The promise that a directory's children stay as they are; None where anything but a listing makes some."""
        ...

    def record(self, native_uri: str) -> Record | None: ...

    def all_records(self) -> list[Record]: ...

    def record_of(self, uri: str, native_uri: str) -> Record: ...

    def absence(self, path: Path) -> float: ...

    def templates(self, path: Path) -> list[ResourceTemplate]: ...

    def all_templates(self) -> tuple[ResourceTemplate, ...]:
        """All templates of the source as last listed, those that make no paths among them."""
        ...

    def expire(self) -> None: ...

    def forget(self, path: Path) -> None:
        """Drop what is known at and below a path, and tell that it may have changed."""
        ...
