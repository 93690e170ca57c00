"""What both kinds of catalog are to those above, and what they share with the rest of the daemon."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from bbfs.flight import SingleFlight
from bbfs.model import Listing, ResourceTemplate
from bbfs.records import Node, Path, Record

Children = dict[str, Node]
SERVED_STALE = 1.0
"""Seconds for which the kernel may keep what is served while it is being refreshed."""


@dataclass(slots=True)
class Surroundings:
    """What a catalog shares with the rest: the clock (seconds since the epoch), the flights, who hears of changes."""

    clock: Callable[[], float]
    flights: SingleFlight
    changed: Callable[[Iterable[Path]], None]
    listed: Callable[[float, Listing], None] = field(default=lambda _at, _listing: None)


class Catalog(Protocol):
    """The tree of one source; paths are names below the source, the scheme's directory included where there is one."""

    records: dict[str, Record]
    problem: str | None

    def known(self, path: Path) -> Node | None: ...

    def known_children(self, path: Path) -> Children | None: ...

    async def find(self, path: Path) -> Node: ...

    async def children(self, path: Path) -> Children: ...

    def validity(self, path: Path) -> float: ...

    def record(self, native_uri: str) -> Record | None: ...

    def all_records(self) -> list[Record]: ...

    def record_of(self, uri: str, native_uri: str) -> Record: ...

    def absence(self, path: Path) -> float: ...

    def templates(self, path: Path) -> list[ResourceTemplate]: ...

    def expire(self) -> None: ...

    def forget(self, path: Path) -> None:
        """Drop what is known at and below a path, and tell that it may have changed."""
        ...
