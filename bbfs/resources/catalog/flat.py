"""The tree of a source that lists everything at once: URIs folded into directories, served stale while refreshed."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Protocol, TypeVar

import trio

from bbfs.model import uri_paths
from bbfs.model.errors import BbfsError, DeadlineExceeded, NotADirectory, NotFound, TooLarge, Unreachable
from bbfs.model.listing import Buckets
from bbfs.model.values import DataSource, Listing, ResourceTemplate
from bbfs.resources.catalog.base import Catalog, CatalogContext, Children, LargeEntries, ProblemLog, Stored, View
from bbfs.resources.catalog.folding import ChangedPaths, Directory, Tree
from bbfs.resources.catalog.inventory import Directories, Inventory
from bbfs.resources.catalog.lookups import Mentioned, is_probe
from bbfs.resources.catalog.record import DIRECTORY, Lease, Node, Path, Record, record_node
from bbfs.resources.catalog.templates import Templated, Unlisted
from bbfs.sources import CanList, CanShareListing, ListingExchange

T = TypeVar("T")

CHASES = 3
"""Requests in a row for a listing that changes meanwhile."""


def part_node(node: Node, rest: Path) -> Node:
    """Return the node below a resource that answered several contents. Raise NotFound or NotADirectory."""
    for name in rest:
        parts = node.record.parts if node.record is not None else None
        if parts is None:
            raise NotADirectory(f"{name} is below a file") if node.kind == "file" else NotFound(name)
        if name not in parts:
            raise NotFound(f"no such content: {name}")
        node = record_node(parts[name])
    return node


def _parts(node: Node) -> Children:
    """Return the contents of a resource that answered several. Raise NotADirectory for any other."""
    if node.record is None or node.record.parts is None:
        raise NotADirectory("not a directory")
    return {name: record_node(part) for name, part in sorted(node.record.parts.items())}


class Named(Catalog, Protocol):
    """The directories that a listing names (`Listing.directories`), and what is below them.

    roots: the native URIs of these directories by path.
    """

    roots: Mapping[Path, str]

    def covers(self, path: Path) -> bool:
        """Return whether a path is one of the directories, or below one."""
        ...

    def take(self, named: tuple[str, ...]) -> None:
        """Take over the directories of a new listing, which are others."""
        ...


class FlatCatalog(Catalog):
    """The tree of a source that lists all its resources at once. named: what takes the directories of a listing."""

    lists_all = True

    def __init__(
        self, source: DataSource, handler: CanList, context: CatalogContext, named: Named | None = None
    ) -> None:
        self.source = source
        self._named = named
        self._named_now: Named | None = None  # `named`, while the listing names directories
        self._taken: tuple[str, ...] = ()
        self._problem: str | None = None
        self._handler = handler
        self._context = context
        self.written = context.written
        self._held = Inventory(
            context.key, source.base_prefix, lambda uri: self._unlisted.take(uri) if self._unlisted else None
        )
        self._problems = ProblemLog(source.id, context.clock)
        self._listing = ("list", source.id), self._refresh, source.policy.timeout  # the arguments of its flight
        self._ttl = 0.0
        self._templates: tuple[ResourceTemplate, ...] = ()
        self._recalled: trio.Event | None = None  # set once a listing under way from disk is there
        self._lease = Lease()
        self._confirmed = False  # whether this process has listed the source itself
        self._expiries = 0
        self._writes = 0  # changes by programs of this mount
        self._is_stored_outdated = False  # by a write: the next mount asks the source for its names
        self._began_at = 0.0  # when the request for the listing was sent
        self._unlisted = Unlisted(self._held.gone.__setitem__)
        self._mentioned = self.mentioned = Mentioned(lambda paths: context.notify(paths, "changed"))
        self._templated = Templated(
            source, handler, context, self._held.record, self._unlisted, lambda uri: self._held.gone.pop(uri, None)
        )

    @property
    def problem(self) -> str | None:
        return self._problem

    @property
    def records(self) -> Mapping[str, Record]:
        return self._held.records

    def held(self) -> Iterable[Record]:
        return self._held.held()

    async def usage(self) -> tuple[int, int]:
        return await self._held.usage()

    def count(self) -> int:
        return len(self._held.rows)

    # -- without waiting ---------------------------------------------------------------------------------------------

    def _servable(self) -> Tree | None:
        """Return the tree if it may be served now. An expired one is refreshed in the background (S19)."""
        root, until = self._held.tree, self._held.fetched_at + self._ttl
        if root is None:
            return None
        now = self._context.clock()
        if now < until:
            return root
        if self._confirmed and now < until + self.source.policy.max_stale:
            self._context.flights.begin(*self._listing)
            return root
        return None

    def cached(self, path: Path) -> Node | None:
        """Return the node at `path`, or None if the source must be asked. Raise NotFound if the listing is fresh."""
        if self._named_now is not None and self._named_now.covers(path[:-1]):
            try:
                return self._named_now.cached(path)
            except NotFound:
                if not self._templates:  # which may make a name that is not listed
                    raise
        node = self._cached(self._node, path)
        return DIRECTORY if node is None and not path else node

    def _cached(self, look: Callable[[Tree, Path], T], path: Path) -> T | None:
        """Return the answer of `look` from the tree that may be served now, or None if the source must be asked."""
        root = self._servable()
        if root is None:
            return None
        try:
            return look(root, path)
        except NotFound:
            # A name that programs look for by themselves is no reason to ask.
            if self.validity(path) > 0 or is_probe(path[-1]):
                raise
            return None

    def last_cached(self, path: Path) -> Node | None:
        if self._named_now is not None and self._named_now.covers(path[:-1]):
            return self._named_now.last_cached(path)
        return None if self._held.tree is None else self._node(self._held.tree, path)

    def failure(self, path: Path) -> BbfsError | None:
        return self._templated.failure(path)

    def cached_view(self, path: Path, *, completed: bool = True) -> View | None:
        if self._named_now is not None and self._named_now.covers(path):
            return self._named_now.cached_view(path, completed=completed)
        place = self._cached(self._place, path)
        if place is None:
            return None
        beyond = self._templated.cached_children(path) if self._templates else {}
        return None if beyond is None and completed else self._held.view(place, path, beyond or {})

    def large(self, path: Path) -> LargeEntries | None:
        if self._named_now is not None and self._named_now.covers(path):
            return self._named_now.large(path)
        place = self._held.tree.lookup(path) if self._held.tree is not None else None
        if isinstance(place, Directory) and isinstance(place.children, Buckets):
            return LargeEntries(place.children, lambda child: isinstance(child, Directory))
        return None

    def listed_at(self, path: Path) -> float:
        if self._named_now is not None and self._named_now.covers(path):
            return self._named_now.listed_at(path)
        return self._began_at

    def validity(self, path: Path) -> float:
        """Return the seconds for which names and their absence hold."""
        if self._named_now is not None and self._named_now.covers(path[:-1]):
            return self._named_now.validity(path)
        if self._held.tree is None:
            return 0.0
        return max(0.0, self._held.fetched_at + self._ttl - self._context.clock())

    def lease(self, record: Record) -> Lease | None:
        if self._named_now is not None and self._named_now.covers(record.path[:-1]):
            return self._named_now.lease(record)
        return self._lease if self._held.holds(record) else None

    def names_lease(self, path: Path) -> Lease | None:
        if self._named_now is not None and self._named_now.covers(path):
            return self._named_now.names_lease(path)
        place = self._held.tree.lookup(path) if self._held.tree is not None else None
        completes = bool(self._templates) and self._templated.completes(path)
        return self._lease if isinstance(place, Directory) and not completes else None

    def _node(self, root: Directory, path: Path) -> Node:
        directory = root
        for depth, name in enumerate(path, 1):
            child = directory.children.get(name)
            if child is None:
                alias = directory.alias(name) if depth == len(path) and not uri_paths.PLAIN.fullmatch(name) else None
                return self._unlisted_node(path) if alias is None else Node("symlink", target=alias)
            if not isinstance(child, Directory):
                node = self._held.node(child, path[:depth], directory)
                return node if depth == len(path) else part_node(node, path[depth:])
            directory = child
        return DIRECTORY

    def _unlisted_node(self, path: Path) -> Node:
        """Return the node at a path that is not in the listing. Raise NotFound."""
        if self._mentioned.uris:
            if (mentioned := self._mentioned.at_or_above(path)) is not None:
                uri, above = mentioned
                return part_node(self._templated.mentioned(uri, above), path[len(above) :])
            if self._mentioned.leads(path):
                return DIRECTORY
        if not self._templates:
            raise NotFound(f"no such resource: {'/'.join(path)}")
        owner = self._templated.above(path) if len(path) > 2 and any("?" in name for name in path[:-1]) else None
        node = self._templated.node(path) if owner is None else None
        if node is not None:
            return node
        owner = owner or self._templated.above(path)
        if owner is None:
            raise NotFound(f"no such resource: {'/'.join(path)}")
        return part_node(record_node(owner[0]), owner[1])

    def open_as_file(self, path: Path) -> None:
        self._templated.open_as_file(path)

    def _place(self, root: Directory, path: Path) -> Directory | Children:
        """Return the listed directory at `path`, or the names of one that the tree does not hold.

        The time that this takes does not depend on the size of a listed directory. Raises NotFound, NotADirectory.
        """
        directory = root
        for depth, name in enumerate(path, 1):
            child = directory.children.get(name)
            if child is None:
                node = self._unlisted_node(path)
                return _parts(node) if node.kind != "directory" or node.record is not None else {}
            if not isinstance(child, Directory):
                return _parts(part_node(self._held.node(child, path[:depth], directory), path[depth:]))
            directory = child
        return directory

    # -- waiting for a listing ---------------------------------------------------------------------------------------

    async def relist(self) -> None:
        """List the source now, or join the listing under way. Raise BbfsError."""
        try:
            await self._context.flights.do(*self._listing)
        except DeadlineExceeded as error:
            self._problem = str(error)
            raise

    async def _asked(self, look: Callable[[Tree, Path], T], path: Path) -> T:
        """Return the answer of `look` from the tree as listed now, or as listed last (S6, S20).

        Raise what it raises, but the source's outage instead of NotFound.
        """
        outage: BbfsError | None = None
        try:
            await self.relist()
        except (Unreachable, DeadlineExceeded) as error:
            if self._held.tree is None:
                raise
            outage = error
        assert self._held.tree is not None
        try:
            return look(self._held.tree, path)
        except NotFound as absence:
            raise outage or absence from None

    async def find(self, path: Path) -> Node:
        await self._is_recalled()
        node = self.cached(path)
        if node is not None:
            return node
        if (named := self._named_now) is None or not named.covers(path[:-1]):
            try:
                node = await self._asked(self._node, path)
            except NotFound:
                if (named := self._named_now) is None or not named.covers(path[:-1]):  # which the listing has told
                    raise
            else:
                if (named := self._named_now) is None or not named.covers(path[:-1]):
                    return node
        try:
            return await named.find(path)
        except NotFound:
            if not self._templates:
                raise
            return await self._asked(self._node, path)

    async def view(self, path: Path, *, completed: bool = True) -> View:
        await self._is_recalled()
        place = self._cached(self._place, path)
        if place is None:
            place = await self._asked(self._place, path)
        beyond: Children = {}
        if completed and self._templates:
            try:
                beyond = await self._templated.children(path)
            except BbfsError:
                if not (place.children if isinstance(place, Directory) else place):
                    raise
        return self._held.view(place, path, beyond)

    def record(self, native_uri: str) -> Record | None:
        return self._held.record(native_uri) or self._unlisted.get(native_uri)

    def all_records(self) -> list[Record]:
        return [*self._held.held(), *self._unlisted.values()]

    def record_of(self, uri: str, native_uri: str) -> Record:
        return self._held.record(native_uri) or self._templated.of_uri(uri, native_uri)

    def absence(self, path: Path) -> float:
        return self._templated.absence(path) if self._templates else inf

    def templates(self, path: Path) -> list[ResourceTemplate]:
        return self._templated.given_at(path)

    def all_templates(self) -> tuple[ResourceTemplate, ...]:
        return tuple(template for template in self._templates if not template.refused)

    def expire(self) -> None:
        """Invalidate the listing: ask again at the next use, and now if it was ever used."""
        self._ttl = 0.0
        self._lease.end()
        self._expiries += 1
        self._context.outdated()
        absent = self._templated.expire()
        if absent:
            self._context.notify(ChangedPaths(absent, found="nothing"), "changed")
        if self._confirmed:
            self._context.flights.begin(*self._listing)

    def native_uri(self, path: Path) -> str:
        """Return the native URI that a template makes of a name, or else the rule."""
        return (self._templated.native_uri(path) if self._templates else None) or uri_paths.native_of(path)

    def wrote(self, path: Path, native_uri: str, *, is_there: bool) -> list[Record]:
        self._writes += 1
        if not self._is_stored_outdated:
            self._is_stored_outdated = True
            self._context.outdated()
        if self._templates:
            self._templated.outdate(path, is_there=is_there)
            if self._templated.own_uri(path) is not None:
                self._templated.outdate(path[:-1], is_there=is_there)
        above = native_uri.rstrip("/").rpartition("/")[0]
        found = (self.record(uri) for uri in (above, f"{above}/"))
        # Of a provisional one, no source has said that it is more than a name.
        return [record for record in found if record is not None and not record.provisional]

    def forget(self, path: Path) -> None:
        """Invalidate the listing, and the contents at and below the path."""
        found = [record for record in self.all_records() if _at_or_below(record.path, path)]
        for record in found:
            record.invalidate()
        known = {record.path for record in found}
        below = (place for place in self._held.at_and_below(path) if place not in known)
        self._context.notify(ChangedPaths([*known, *below], found="doubt"), "changed")
        self.expire()

    async def _refresh(self) -> None:
        await self._is_recalled()
        for _ in range(CHASES):
            expiries, writes, stored, began = self._expiries, self._writes, self.written.count, self._context.clock()
            try:
                listing = await _listed(self._handler, self._context.exchange())
                await self._install(listing, self._context.clock(), stored, confirmed=True)
                self._began_at = began
                if writes != self._writes:  # it may have been made before a name was written that this mount shows
                    self._is_stored_outdated = True
                    self._context.outdated()
            except BbfsError as error:
                self._problem = str(error)
                raise
            if expiries == self._expiries:
                return
        self._lease.end()
        self._ttl = 0.0  # it changes faster than it can be listed
        self._context.outdated()

    async def _is_recalled(self) -> None:
        """Wait for a listing that is being read from disk."""
        if self._recalled is not None:
            await self._recalled.wait()

    async def recall(self, stored: Callable[[], Awaitable[Stored]]) -> None:
        """Take over the listing of an earlier mount; it serves while the source does not answer."""
        recalled = self._recalled = trio.Event()
        try:
            rows, listed = await stored()
            if listed is not None and self._held.tree is None:
                with suppress(TooLarge):  # an earlier version may have had other bounds
                    await self._install(listed[1], listed[0], 0, confirmed=False)
                    self._held.remember(rows)
        finally:
            recalled.set()
            self._recalled = None

    @property
    def is_empty(self) -> bool:
        return self._held.tree is None and not self._unlisted

    async def _install(self, listing: Listing, at: float, stored: int, *, confirmed: bool) -> None:
        """Take over a listing. stored: `Written.count` when its request began."""
        was, count = self._held.tree, len(self._held.rows)
        first = was is None
        before = self._templates
        self._lease.end()
        if listing.templates or before:
            await self._templated.install(listing.templates)
        self._templates = listing.templates
        refold = before != listing.templates
        directories = self._templated.directories if listing.templates else None
        if self._named is not None and listing.directories != self._taken:
            self._taken, refold = listing.directories, True
            self._named.take(listing.directories)
            self._named_now = self._named if self._named.roots else None
        if self._named_now is not None:
            directories = _with(self._named_now.roots, directories)
        renew = partial(self.written.put_over, began=stored)
        told, changes = await self._held.update(listing.resources, at, renew, directories, refold=refold)
        self._confirmed = confirmed
        self.descriptions = listing.descriptions
        self._ttl = self.source.policy.listing_ttl if listing.ttl is None else listing.ttl
        if first or told or refold or was is not self._held.tree:
            self._lease = Lease()
        self._lease.until = at + self._ttl  # the same names may go on to be known without a walk
        problem = "; ".join(filter(None, (listing.problem, self._templated.problem))) or None
        self._problems.note(problem)
        self._problem = problem
        for uri in [uri for uri in self._unlisted if uri in self._held.rows]:
            self._held.record(uri)  # it has its place in the listing from now on
        if not first:
            names_differ = changes is not None and (changes.gone or len(self._held.rows) != count)
            self._context.notify(told, "listed" if names_differ else "changed")
        if confirmed:  # where nothing is new, it is noted that it was so at this time
            whole = replace(listing, resources=self._held.rows)
            self._is_stored_outdated = False
            self._context.listed(at, whole, changes)


def _with(roots: Collection[Path], directories: Directories | None) -> Directories:
    """Return what tells the directories besides those of URIs: some roots, and what `directories` tells."""
    fixed = [*roots]
    return lambda paths: fixed if directories is None else [*fixed, *directories(paths)]


async def _listed(handler: CanList, exchange: ListingExchange | None) -> Listing:
    """Return the listing of a source, perhaps what another machine knows of it. Raise BbfsError."""
    if exchange is not None and isinstance(handler, CanShareListing):
        return await handler.list_through(exchange)
    return await handler.list()


def _at_or_below(resource: Path, path: Path) -> bool:
    """Return whether a resource is at or below a path, or has several contents and the path is one of them."""
    return bool(resource) and (resource[: len(path)] == path or path[: len(resource)] == resource)
