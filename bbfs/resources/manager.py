"""The sources of a configuration at work: wires listings, loads, caches, writes and searches together.

A handler below only translates. The file system, the server and the commands above get values or a BbfsError within the
source's `timeout` from one of the parts: `tree` for paths, `contents` for records, `by_uri` for URIs.

Two maps hold the metadata: records by URI (`Source.catalog.records` of each source) and URIs by name in each directory
(the catalog's tree). `cache.metadata` keeps both on disk. Between two awaits a task is alone; nothing here locks.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Literal, TypeVar

import trio

from bbfs.model.errors import NotSupported, Outdated
from bbfs.model.source_types import of_source
from bbfs.model.values import Change, ChangeEvent, DataSource
from bbfs.resources.by_uri import ByUri
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.cache.tier import SharedTier
from bbfs.resources.catalog import Catalog, CatalogContext, DirectoryCatalog, FlatCatalog, MixedCatalog
from bbfs.resources.catalog.folding import ChangedPaths
from bbfs.resources.catalog.overlay import Overlay
from bbfs.resources.catalog.record import Path, steady_time
from bbfs.resources.contents import Contents
from bbfs.resources.flights import RequestSlots, SingleFlight
from bbfs.resources.loading.invalidation import Invalidation
from bbfs.resources.loading.loader import ContentLoader
from bbfs.resources.loading.publish import Publisher
from bbfs.resources.loading.shared_tier import SharedContents
from bbfs.resources.loading.tiers import ContentCache, DiskTier, Load
from bbfs.resources.persistence import Persistence
from bbfs.resources.readahead.scheduler import LoadAhead
from bbfs.resources.search.engine import Search
from bbfs.resources.search.index.local import LocalIndex
from bbfs.resources.search.index.outdated import Lags
from bbfs.resources.source import Source
from bbfs.resources.source.fingerprint import fingerprint
from bbfs.resources.tree import Roots, Tree
from bbfs.resources.views import SourceView
from bbfs.resources.writing.pending import PendingStore, pending_path
from bbfs.resources.writing.write_requests import Grants
from bbfs.resources.writing.writer import Writer
from bbfs.runtime.changes import Bus
from bbfs.sources import CanList, CanListDirectory, CanReadDirectory, CanWatch, Handler
from bbfs.sources.documents.converter import DocumentReader

T = TypeVar("T")

AHEAD_SHARE = 16
"""Divisor of the memory budget: a larger resource gets no readahead."""
FILE_SHARE = 4
"""Divisor of the memory budget: a larger content on disk stays there, and is read from its file. Several are read at
once, beside what the budget has."""
AHEAD_BUDGET_SHARE = 4
"""Divisor of the memory budget: bytes of unused readahead of each source."""
FLUSH_EVERY = 2.0
FORGOTTEN_WITHIN = 2.0
"""Seconds for the disk to take what was learnt of a source that is removed."""


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A source that a running mount has taken in, or has let go of."""

    event: Literal["added", "removed"]
    source: Source


class ResourceManager:
    """All sources of a configuration. Requests run in `nursery`, so they outlive a killed reader.

    sources: by base prefix. roots: the directories at the root. tree: paths. contents: sizes and contents. by_uri: the
    same for programs without paths. grants: what programs may write. writer: changes at the sources. searches: one
    search in all sources. changes: the bus. source_changes: the bus of sources that come and go. memory: the contents
    in memory. index: the local one, if configured.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        cache_bytes: int,
        store: MetadataStore,
        disk: DiskCache | None = None,
        shared: SharedTier | None = None,
        index: LocalIndex | None = None,
        documents: DocumentReader | None = None,
        pending: PendingStore | None = None,
        clock: Callable[[], float] = steady_time,
        is_lower: bool = False,
        has_other_users: bool = False,
    ) -> None:
        """Take the memory budget of contents, and the tiers below memory and the index of texts, if configured.

        documents: reads documents as text. pending: keeps what a source did not take; by default, that of this user.
        is_lower: an overlay is over the mount. has_other_users: other users than the mount's get in.
        """
        self.documents = DocumentReader() if documents is None else documents
        self.clock = clock
        self.cache_bytes = cache_bytes
        self.roots = Roots()
        self.sources = self.roots.sources
        self.tree = Tree(self.roots, clock)
        self.grants = Grants(self.roots, is_lower=is_lower)
        self.changes: Bus[Change] = Bus()
        self.source_changes: Bus[SourceChange] = Bus()
        self.memory = ContentCache(cache_bytes)
        self.index = index
        self.has_other_users = has_other_users
        self._nursery = nursery
        self._flights = SingleFlight(nursery)
        gone = index.gone if index is not None else lambda _source, _uris: None
        self._persistence = Persistence(nursery, store, clock, gone)
        self._disk, self._shared = self._tiers(disk, shared)
        self._publisher = Publisher(nursery, self.memory, changed=self._notify, link=self.tree.link, clock=clock)
        self._ahead = self._made_readahead()
        self._loader = self._made_loader()
        self.contents = self._made_contents()
        self._invalidation = Invalidation(self.sources, self._loader, self._notify, clock)
        self.writer = self._made_writer(PendingStore(pending_path()) if pending is None else pending)
        self.by_uri = self._made_by_uri()
        self.searches = Search(self.roots)
        if index is not None:
            self.searches.searchers.append(index)
            self.searches.lag = Lags(index, self.by_uri.list_below, clock).lag
            index.follow = partial(self.changes.subscribe, partial(index.changed, last_cached=self.tree.last_cached))

    def _tiers(
        self, disk: DiskCache | None, shared: SharedTier | None
    ) -> tuple[DiskTier | None, SharedContents | None]:
        """Return the tiers below memory, if they are configured."""
        of_disk, of_all = None, None
        if disk is not None:
            of_disk = DiskTier(self._nursery, disk, in_memory=self.cache_bytes // FILE_SHARE, clock=self.clock)
        if shared is not None:
            of_all = SharedContents(self._nursery, shared, in_memory=self.cache_bytes, clock=self.clock)
        return of_disk, of_all

    def _made_loader(self) -> ContentLoader:
        return ContentLoader(
            self._publisher,
            self._disk,
            self._shared,
            memory=self.cache_bytes,
            ended=self._ahead.ended,
            loaded=self.index.learn if self.index is not None else lambda _source, _record, _content: None,
            clock=self.clock,
        )

    def _made_readahead(self) -> LoadAhead:
        return LoadAhead(
            lambda source, record, slot: self._loader.fetch(source, record, slot),
            budget=self.cache_bytes // AHEAD_BUDGET_SHARE,
            largest=self.cache_bytes // AHEAD_SHARE,
            held=self._publisher.holds,
            mounted=self.roots.mounted,
            clock=self.clock,
        )

    def _made_contents(self) -> Contents:
        return Contents(
            self.roots, self.tree, self._loader, self._publisher, self._ahead, self.memory, self._disk, self.clock
        )

    def _made_by_uri(self) -> ByUri:
        return ByUri(
            self.roots, self.tree, self.contents, self._loader, self._publisher, self.changes, self._notify, self.clock
        )

    def _made_writer(self, pending: PendingStore) -> Writer:
        return Writer(
            self._loader,
            self._publisher,
            pending,
            changed=self._notify,
            wrote=partial(self._notify, own=True),
            mounted=self.roots.mounted,
            clock=self.clock,
        )

    @property
    def loads(self) -> int:
        """The number of loads by the sources."""
        return self._loader.loads

    @property
    def loads_by_tier(self) -> Mapping[str, int]:
        """The numbers of loads that the disk, another machine's cache and the sources have answered."""
        loader = self._loader
        return {"disk": loader.from_disk, "shared": loader.from_others, "source": loader.loads}

    @property
    def loads_under_way(self) -> Iterable[Load]:
        return self._loader.under_way

    # -- sources -----------------------------------------------------------------------------------------------------

    async def add(self, data: DataSource, handler: Handler, *, hidden: bool = False) -> Source:
        """Take in a source and what earlier mounts remember of it. Nothing is asked of the source itself.

        hidden: it is there for those who ask for it by its name, and not among `sources`.
        """
        key, flights = self.roots.new_key(data.id), SingleFlight(self._nursery)
        context = self._context(key, flights)
        if isinstance(handler, CanReadDirectory):
            catalog: Catalog = MixedCatalog(data, handler, context)
        elif isinstance(handler, CanList):
            catalog = FlatCatalog(data, handler, context)
        elif isinstance(handler, CanListDirectory):
            catalog = DirectoryCatalog(data, handler, context)
        else:
            raise NotSupported(f"{data.id}: a source of type {data.type!r} cannot be listed")
        slots = RequestSlots(max(1, data.policy.concurrency))
        is_judged = self.has_other_users and not hidden
        source = Source(key, data, handler, catalog, flights, slots, fingerprint(data), judged_by_files=is_judged)
        if source.writes is not None and not source.is_passed and not hidden:
            source.overlay = Overlay(
                catalog, self.clock, derived=not source.makes_directories, ttl=data.policy.listing_ttl
            )
            self.grants.roots.add(data.uri_prefix)
        found = None if hidden else of_source(data)  # views are of no type, and to look for one takes 8 ms
        if found is None or not found.is_local:  # a local source answers at once
            self._ahead.add(source)
        self.roots.add(source, hidden=hidden)
        await self._persistence.recall(source)
        if self.index is not None and not hidden:
            self.index.add(source)
        if isinstance(handler, CanWatch) and not source.is_passed:
            handler.watch(partial(self._announced, source))
        if not hidden:
            self.tree.added(source)
            self.source_changes.notify(SourceChange("added", source))
        return source

    def _announced(self, source: Source, change: Change) -> None:
        if source.ended is None:
            self._invalidation.announced(source, change)

    async def remove(self, source: Source) -> None:
        """Let a source go. Its requests end at once with Outdated, and no path leads to it.

        What programs have open of it keeps the bytes that were loaded. Its pending writes stay. The caller closes the
        handler. Nothing waits here but the disk, for `FORGOTTEN_WITHIN` seconds at most.
        """
        data = source.data
        source.ended = Outdated(f"{data.id} was removed from this mount, or is another source now")
        paths = frozenset([(name,) for name, each in self.roots.directories().items() if each is source])
        self.roots.remove(source)
        self.tree.removed(source)
        self.grants.roots.discard(data.uri_prefix)
        self._ahead.remove(source)
        if self.index is not None:
            self.index.remove(source)
        source.flights.end(source.ended)
        self.memory.discard_all(lambda key: isinstance(key, tuple) and key[0] == source.key)
        self.source_changes.notify(SourceChange("removed", source))
        self.changes.notify(Change(data.id, "removed", None, paths, below=True))
        with trio.move_on_after(FORGOTTEN_WITHIN):
            await self._persistence.flush([source])

    def _context(self, key: str, flights: SingleFlight) -> CatalogContext:
        """Return what a catalog uses of the daemon. key: of the source that the catalog is made for."""
        source = partial(self.roots.by_key, key)
        return CatalogContext(
            key,
            self.clock,
            flights,
            notify=lambda paths, event: self._notify(source(), paths, event),
            listed=lambda at, listing, changes: self._persistence.listed(source(), at, listing, changes),
            outdated=lambda: self._persistence.outdated(source()),
            completed=lambda directory: self._ahead.completed(source(), directory),
            exchange=lambda: self._shared.listing(source()) if self._shared is not None else None,
        )

    async def add_view(self, view: SourceView) -> None:
        """Add a source that shows others, or what bbfs knows of them."""
        source = await self.add(view.source, view, hidden=True)
        if view.root_files:
            await source.catalog.view(())  # a lookup at the root waits for nothing
        self.tree.add(view, source)

    async def start(self) -> None:
        """Start the tiers, after all sources were added. Takes three seconds at most, for the first connection."""
        if self._shared is not None:
            await self._nursery.start(self._shared.run, self._invalidation.dropped)
        if self._disk is not None:
            self._nursery.start_soon(self._disk.keep_tidy)
        if self.index is not None:
            self._nursery.start_soon(self.index.run)
        if self.grants.roots:
            await trio.to_thread.run_sync(self.writer.pending.sweep, abandon_on_cancel=True)

    async def flush(self) -> None:
        """Write all metadata and contents since the last flush."""
        await self._persistence.flush(self.sources.values())
        if self._disk is not None:
            await self._disk.flush()

    async def keep_flushing(self) -> None:
        """Flush metadata again and again until cancelled."""
        while True:
            await trio.sleep(FLUSH_EVERY)
            await self._persistence.flush(self.sources.values())

    def begin(self, work: Callable[[T], Awaitable[None]], argument: T) -> None:
        """Run something in a task of its own, to the end of the mount at most."""
        self._nursery.start_soon(work, argument)

    async def go_on(self, change: Callable[[], Awaitable[T]]) -> T:
        """Await a change in a task of its own. It goes on if its caller is cancelled. Raise BbfsError."""
        key = ("change", object())
        value: T = await self._flights.outcome(key, self._flights.begin(key, change, inf))
        return value

    # -- changes -----------------------------------------------------------------------------------------------------

    def _notify(
        self,
        source: Source,
        paths: Iterable[Path],
        event: ChangeEvent = "changed",
        uri: str | None = None,
        *,
        own: bool = False,
    ) -> None:
        """Pass on a change at some paths of a source's catalog. own: this process has made it."""
        told = paths if isinstance(paths, ChangedPaths) else None
        paths = tuple(paths)
        if source.key in self._ahead.sources:
            for path in paths:
                self._ahead.changed(source, path)
                if told is not None and told.below:
                    self._ahead.completed(source, path)
        mounted = partial(self.roots.mounted, source)
        change = Change(source.data.id, event, uri, frozenset(map(mounted, paths)), own=own)
        if told is not None:
            added, removed = frozenset(map(mounted, told.added)), frozenset(map(mounted, told.removed))
            change = replace(change, below=told.below, added=added, removed=removed, found=told.found)
        self.changes.notify(change)

    def notify_of(self, source: Source, paths: Iterable[Path]) -> None:
        """Notify the kernel and all others of paths in a catalog that lead elsewhere now."""
        self._notify(source, paths)

    def refresh(self, path: Path) -> None:
        """Invalidate everything at and below a path: the next use asks the source (S21). Raise NotFound for no source.

        Contents stay for as long as the source does not answer (S20).
        """
        places = [self.tree.place(path)] if path else [(source, path) for source in self.sources.values()]
        for source, below in places:
            source.refreshed_at(below, self.clock())
            self._invalidation.refresh(source, below)

    def written(self, source: Source, path: Path, native_uri: str) -> None:
        """Take note that a program has changed a name in a passed folder. path: in the catalog."""
        self._invalidation.written(source, path, native_uri)
