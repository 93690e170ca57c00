"""The changes of the mount to the catalog of one source: names, and the descriptions of written resources.

A change lies over the catalog until a listing that began after it shows what the source has. So a change shows at once
and costs no listing. Between two awaits a task is alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from bbfs.model.errors import NotADirectory, NotFound
from bbfs.model.listing import Rows
from bbfs.model.values import Listing, ResourceMetadata
from bbfs.resources.catalog.draft import Draft
from bbfs.resources.catalog.record import DIRECTORY, Node, Path, Record

if TYPE_CHECKING:
    from bbfs.resources.catalog.base import Catalog, View

WRITTEN_KEPT = 1000
"""Written resources that are remembered until the listings that began before have ended."""
COUNTED = 10_000
"""Names of a listed directory that may be gone through at once."""
PRUNED_EVERY = 1000
"""Names of a directory after which those are dropped that its listing shows by now."""


class Written:
    """The resources that programs have stored last, as their source described them then.

    An answer whose request began before may describe an earlier version. No program may get its bytes or version then.
    """

    def __init__(self) -> None:
        self._stored: dict[str, tuple[float, ResourceMetadata]] = {}

    def note(self, metadata: ResourceMetadata, at: float) -> None:
        """Note what was stored. at: when its source had done so (seconds since the epoch)."""
        self.forget(metadata.native_uri)
        self._stored[metadata.native_uri] = at, metadata
        if len(self._stored) > WRITTEN_KEPT:
            self.forget(next(iter(self._stored)))

    def forget(self, native_uri: str) -> None:
        self._stored.pop(native_uri, None)

    def is_later(self, native_uri: str, began: float) -> bool:
        """Return whether a resource was stored after a request began: the answer tells nothing of it then."""
        stored = self._stored.get(native_uri)
        return stored is not None and stored[0] > began

    def over(self, listing: Listing, began: float) -> Listing:
        """Return a listing with the resources that were stored since its request began. It may be changed itself."""
        later = {uri: metadata for uri, (at, metadata) in self._stored.items() if at > began}
        rows = listing.resources
        if not later:
            return listing
        if not isinstance(rows, Rows):
            described = tuple(_described(each, later.get(each.native_uri)) for each in rows)
            return replace(listing, resources=described)
        for uri, metadata in later.items():
            if uri in rows:
                rows.replace_metadata(_described(rows.metadata(uri), metadata))
        return listing


def _described(listed: ResourceMetadata, stored: ResourceMetadata | None) -> ResourceMetadata:
    """Return the description of a listed resource; stored: as its source described it after a later write, if any.

    An answer to a write that states no version often says nothing else either.
    """
    if stored is None or stored.etag is not None or stored.kind != listed.kind:
        return stored or listed
    mime_type = stored.mime_type or listed.mime_type
    return replace(listed, mime_type=mime_type, size=stored.size, modified_ns=stored.modified_ns, etag=None)


@dataclass(frozen=True, slots=True)
class Overlaid:
    """One name. node: None if it was removed. since: when the source stored it (seconds since the epoch); infinite for
    what only the mount has.

    made: a directory that the catalog does not have, made at the time `at`. An older listing may still show another one
    of that name. until: when the source is to be asked again (seconds since the epoch).
    """

    node: Node | None
    since: float = inf
    made: bool = False
    at: float = 0.0
    until: float = inf


class Overlay:
    """The overlaid names of one source, by path in its catalog.

    derived: its directories exist by what is in them. One in which a name was changed stays until a program removes it,
    as on a disk. ttl: seconds for which what the source has stored holds without a listing.
    """

    def __init__(
        self, catalog: "Catalog", clock: Callable[[], float], *, derived: bool = False, ttl: float = inf
    ) -> None:
        self._catalog = catalog
        self._ttl = ttl
        self._derived = derived
        self._clock = clock
        self._below: dict[Path, dict[str, Overlaid]] = {}

    def get(self, path: Path) -> Overlaid | None:
        """Return what is overlaid at exactly this path, or None."""
        names = self._below.get(path[:-1]) if path else None
        found = names.get(path[-1]) if names else None
        if found is None or (found.since == inf and not found.made):
            return found  # no listing ends what only the mount has
        listed_at = self._catalog.listed_at(path[:-1])
        shown = found.at < listed_at and self._is_confirmed(path) if found.made else found.since < listed_at
        if shown:
            self.drop(path)
        return None if shown else found

    def put(self, path: Path, node: Node | None, *, stored: bool = False, made: bool = False) -> None:
        """Overlay a name. stored: the source has it so, and its next listing shows it."""
        names = self._below.setdefault(path[:-1], {})
        now = self._clock()
        names[path[-1]] = Overlaid(node, now if stored else inf, made, now, now + self._ttl if stored else inf)
        if len(names) % PRUNED_EVERY == 0:
            for name in [*names]:
                self.get((*path[:-1], name))  # which drops one that is listed
        if self._derived and len(path) > 2 and self.get(path[:-1]) is None:
            self.put(path[:-1], DIRECTORY)

    def lacks(self, path: Path, asked_at: float) -> bool:
        """Overlay that the source has lost what is at a path, by its answer to a request of that time.

        Return False, and change nothing, if there is something newer.
        """
        found = self.get(path)
        if self._catalog.listed_at(path[:-1]) > asked_at or (found is not None and found.since >= asked_at):
            return False
        self.put(path, None, stored=True)
        names = self._below[path[:-1]]
        names[path[-1]] = replace(names[path[-1]], since=asked_at)
        return True

    def drop(self, path: Path) -> None:
        """Show what the catalog has at a path."""
        names = self._below.get(path[:-1], {})
        names.pop(path[-1], None)
        if not names:
            self._below.pop(path[:-1], None)

    def unshow(self, path: Path) -> None:
        """Drop a name that only the mount had. An older listing may still have a removed resource of that name."""
        self.drop(path)
        if self.is_listed(path):
            self.put(path, None, stored=True)

    def expire(self, path: Path) -> list[Record]:
        """Have the source asked for what it has stored at and below a path. Return the records of it."""
        records: list[Record] = []
        for directory, names in self._below.items():
            for name, found in names.items():
                if (*directory, name)[: len(path)] != path:
                    continue
                if found.since != inf:
                    names[name] = replace(found, until=0.0)
                if found.node is not None and found.node.record is not None and found.node.kind == "file":
                    records.append(found.node.record)
        return records

    def drop_below(self, path: Path) -> None:
        for directory in [each for each in self._below if each[: len(path)] == path]:
            del self._below[directory]

    def drafts_below(self, path: Path) -> list[Draft]:
        """Return what programs write at and below a directory, or have written there for the mount alone."""
        names = [each for directory, each in self._below.items() if directory[: len(path)] == path]
        nodes = [overlaid.node for each in names for overlaid in each.values()]
        return [node.draft for node in nodes if node is not None and node.draft is not None]

    def is_directory(self, path: Path) -> bool:
        """Return whether a directory is overlaid at a path."""
        found = self.get(path)
        return found is not None and found.node is not None and found.node.kind == "directory"

    def find(self, path: Path) -> Node | None:
        """Return the overlaid node at a path, or None if the catalog has to answer. Raise NotFound, NotADirectory."""
        return self._find(path, asks=False) if self._below else None

    def cached(self, path: Path) -> Node | None:
        """As `find`. None as well where the source has to be asked again: the catalog then answers that by None."""
        return self._find(path, asks=True) if self._below else None

    def _find(self, path: Path, *, asks: bool) -> Node | None:
        """As `find`, or with `asks` as `cached`."""
        for depth in range(1, len(path) + 1):
            names = self._below.get(path[: depth - 1])
            found = self.get(path[:depth]) if names and path[depth - 1] in names else None
            if found is None:
                continue
            if asks and found.until < inf and found.until <= self._clock() and self._must_be_asked(path):
                return None
            if found.node is None:
                raise NotFound(f"removed: {'/'.join(path[:depth])}")
            if depth == len(path):
                return found.node
            if found.node.kind != "directory":
                raise NotADirectory("/".join(path[:depth]))
            if found.made and self.get(path[: depth + 1]) is None:
                raise NotFound("/".join(path))
        return None

    def is_made(self, path: Path) -> bool:
        """Return whether the catalog does not have a directory, so that all of its names are overlaid."""
        return any((found := self.get(path[:depth])) is not None and found.made for depth in range(1, len(path) + 1))

    def over(self, path: Path, view: "View") -> "View":
        """Return the names of a directory: those of its listing, changed by the overlaid ones."""
        names = {name: found for name in [*self._below.get(path, ())] if (found := self.get((*path, name)))}
        if not names:
            return view
        nodes = {name: each.node for name, each in names.items()}
        if len(view) <= COUNTED:
            listed = sum(name in nodes for name, _ in view)
        else:
            listed = sum(self.is_listed((*path, name)) for name in nodes)
        return view.overlaid(nodes, len(view) - listed + sum(node is not None for node in nodes.values()))

    def is_listed(self, path: Path) -> bool:
        """Return whether the catalog has something at a path."""
        return self._cataloged(path) is not None

    def _is_confirmed(self, path: Path) -> bool:
        """Return whether the catalog has more at a path than what a template makes of any name."""
        node = self._cataloged(path)
        record = None if node is None else node.record or node.candidate
        return node is not None and (record is None or not record.provisional)

    def _must_be_asked(self, path: Path) -> bool:
        """Return whether the catalog knows nothing of a path without a request."""
        try:
            return self._catalog.cached(path) is None
        except (NotFound, NotADirectory):
            return False

    def _cataloged(self, path: Path) -> Node | None:
        try:
            return self._catalog.last_cached(path)
        except (NotFound, NotADirectory):
            return None
