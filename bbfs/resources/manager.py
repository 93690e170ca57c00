"""The door to all sources: listing and loading, with deadlines, caches and freshness in one place.

A handler below only translates. The file system, the server and the commands above ask the ResourceManager and get
values or a BbfsError within the source's `timeout`.

Two maps hold the metadata: records by URI (`Source.catalog.records` of each source) and URIs by name in each directory
(the catalog's tree). `cache.metadata` keeps both on disk. Between two awaits a task is alone; nothing here locks.
"""

import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Literal, TypeVar

import trio

from bbfs.model import uri_paths
from bbfs.model.errors import (
    BbfsError,
    DeadlineExceeded,
    IsADirectory,
    NotADirectory,
    NotFound,
    NotSupported,
    Unreachable,
)
from bbfs.model.source_types import describes_itself, of_source
from bbfs.model.uri import parse_data_source_uri, source_uri
from bbfs.model.uri_templates.expand import expand_template
from bbfs.model.values import Change, ChangeEvent, Content, DataSource, Expected, Listing, Part, ResourceMetadata
from bbfs.resources import documents
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.memory import ContentCache
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.cache.tier import Cached, SharedTier
from bbfs.resources.catalog import SERVED_STALE, Catalog, CatalogContext, DirectoryCatalog, FlatCatalog
from bbfs.resources.catalog.base import Changes, View, is_directory
from bbfs.resources.catalog.inventory import ChangedPaths
from bbfs.resources.catalog.overlay import Overlay
from bbfs.resources.catalog.record import (
    AWAITED,
    DIRECTORY,
    JUST_NOW,
    Lease,
    Node,
    Path,
    Record,
    record_node,
    steady_time,
)
from bbfs.resources.documents import SEARCH, TEXT
from bbfs.resources.invalidation import Invalidation
from bbfs.resources.loader import ContentLoader, refuse_repeat
from bbfs.resources.publish import ABSENT_FOR, Publisher, content_key, require_current
from bbfs.resources.readahead.scheduler import LoadAhead
from bbfs.resources.requests import RequestSlots, SingleFlight
from bbfs.resources.search.engine import LIMIT, WITHIN, Mode, Search, SearchAnswer
from bbfs.resources.search.index.local import LocalIndex
from bbfs.resources.shared_tier import SharedContents
from bbfs.resources.source import Source, fingerprint
from bbfs.resources.tiers import DiskTier, Load
from bbfs.resources.writeback import Memory
from bbfs.resources.writing.pending import PendingStore, pending_path
from bbfs.resources.writing.temporary import is_temporary
from bbfs.resources.writing.writer import Writer, record_state
from bbfs.serving.changes import Bus
from bbfs.sources import CanList, CanListDirectory, CanStat, CanWatch, Handler, StatesBeginning
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.documents.converter import TEXT_SUFFIX, DocumentReader, is_document_name, kind_of

log = logging.getLogger(__name__)
T = TypeVar("T")

LOADS_AT_ONCE = 64
"""Concurrent loads of one `load_resources`, besides the bound of each source."""
AHEAD_SHARE = 16
"""Divisor of the memory budget: a larger resource gets no readahead."""
FILE_SHARE = 4
"""Divisor of the memory budget: a larger content on disk stays there, and is read from its file. Several are read at
once, beside what the budget has."""
AHEAD_BUDGET_SHARE = 4
"""Divisor of the memory budget: bytes of unused readahead of each source."""
FLUSH_EVERY = 2.0


@dataclass(frozen=True, slots=True)
class LoadedResource:
    """One item of `load_resources`: content and metadata, or its own error."""

    uri: str
    metadata: ResourceMetadata | None = None
    parts: tuple[Part, ...] = ()
    error: BbfsError | None = None


class ResourceManager:
    """All sources of a configuration, by base prefix. Requests run in `nursery`, so they outlive a killed reader."""

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
    ) -> None:
        """Take the memory budget of contents, and the tiers below memory and the index of texts, if configured.

        documents: reads documents as text. pending: keeps what a source did not take; by default, that of this user.
        """
        self.documents = DocumentReader() if documents is None else documents
        self.sources: dict[str, Source] = {}
        self._by_id: dict[str, Source] = {}
        self._by_prefix: dict[str, Source] = {}
        self._about: tuple[str, Source] | None = None
        self._searches: Source | None = None
        self._texts: Source | None = None
        self.writable_roots: set[str] = set()
        """The directories at the root whose sources can be written."""
        self.is_lower = False
        """True if an overlay is over the mount: programs create names there, whatever the sources take."""
        self.root_files: tuple[str, ...] = ()
        """The names of the files at the root."""
        self.contents: ContentCache[Content] = ContentCache(cache_bytes)
        self.clock = clock
        self.cache_bytes = cache_bytes
        self._nursery = nursery
        self._flights = SingleFlight(nursery)
        self._memory = Memory(nursery, store, clock)
        self._disk = None
        if disk is not None:
            self._disk = DiskTier(nursery, disk, in_memory=cache_bytes // FILE_SHARE, clock=clock)
        self._shared = None
        if shared is not None:
            self._shared = SharedContents(nursery, shared, in_memory=cache_bytes, clock=clock)
        self._publisher = Publisher(nursery, self.contents, changed=self._notify, link=self._link, clock=clock)
        self._loader = ContentLoader(
            self._flights,
            self._publisher,
            self._disk,
            self._shared,
            memory=cache_bytes,
            ended=lambda source, record, size: self._ahead.ended(source, record, size, record.ttl),
            loaded=self._learn,
            clock=clock,
        )
        self._invalidation = Invalidation(self.sources, self._loader, self._notify, clock)
        self.writer = Writer(
            self._flights,
            self._loader,
            self._publisher,
            PendingStore(pending_path()) if pending is None else pending,
            changed=self._notify,
            mounted=lambda source, path: self._mounted(source, path)[0],
            clock=clock,
        )
        self._ahead = LoadAhead(
            self._loader.fetch,
            self._flights,
            budget=cache_bytes // AHEAD_BUDGET_SHARE,
            largest=cache_bytes // AHEAD_SHARE,
            held=lambda record: content_key(record) in self.contents,
            mounted=lambda source, path: self._mounted(source, path)[0],
            clock=clock,
        )
        self.changes: Bus[Change] = Bus()
        self._search = Search(self._flights, lambda source, path: self._mounted(source, path)[0])
        self.searchers = self._search.searchers
        """The indexes that searches ask beside the sources."""
        self.index = index
        if index is not None:
            self.searchers.append(index)
            index.follow = partial(self.changes.subscribe, partial(index.changed, last_cached=self.last_cached))

    @property
    def loads(self) -> int:
        """The number of loads by the sources."""
        return self._loader.loads

    async def start(self) -> None:
        """Start the tiers, after all sources were added. Takes three seconds at most, for the first connection."""
        if self._shared is not None:
            await self._nursery.start(self._shared.run, self._invalidation.dropped)
        if self._disk is not None:
            self._nursery.start_soon(self._disk.tidy)
        if self.index is not None:
            self._nursery.start_soon(self.index.run)
        if self.writable_roots:
            await trio.to_thread.run_sync(self.writer.pending.sweep, abandon_on_cancel=True)

    # -- sources -----------------------------------------------------------------------------------------------------

    async def add(self, data: DataSource, handler: Handler, *, hidden: bool = False) -> Source:
        """Take in a source and what earlier mounts remember of it. Nothing is asked of the source itself.

        hidden: it is there for those who ask for it by its name, and not among `sources`.
        """
        context = CatalogContext(self.clock, self._flights, lambda *change: self._notify(self._by_id[data.id], *change))
        if isinstance(handler, CanList):
            catalog: Catalog = FlatCatalog(data, handler, context)
        elif isinstance(handler, CanListDirectory):
            catalog = DirectoryCatalog(data, handler, context)
        else:
            raise NotSupported(f"{data.id}: a source of type {data.type!r} cannot be listed")
        source = Source(data, handler, catalog, RequestSlots(max(1, data.policy.concurrency)), fingerprint(data))
        if source.writes is not None and not source.is_passed and not hidden:
            source.overlay = Overlay(
                catalog, self.clock, derived=not source.makes_directories, ttl=data.policy.listing_ttl
            )
            self.writable_roots.add(data.uri_prefix)
        found = of_source(data)
        if found is None or not found.is_local:  # a local source answers at once
            self._ahead.add(source)
        self._by_id[data.id] = self._by_prefix[data.uri_prefix] = source
        if not hidden:
            self.sources[data.base_prefix] = source
        if isinstance(catalog, FlatCatalog):
            context.listed = partial(self._listed, source)
            context.outdated = partial(self._memory.outdated, source)
            context.completed = partial(self._ahead.completed, source)
            await self._memory.recall(source, catalog)
        elif data.scheme != "file" and isinstance(catalog, DirectoryCatalog):
            await self._memory.recall_learnt(source, catalog)
        if self.index is not None and not hidden:
            self.index.add(source)
        if isinstance(handler, CanWatch):
            handler.watch(partial(self._invalidation.announced, source))
        return source

    def let_others_in(self) -> None:
        """Let the files of local folders decide what each user may do. Call this before the mount is served."""
        for source in self.sources.values():
            source.judged_by_files = True

    async def add_description(self, name: str, data: DataSource, handler: Handler) -> None:
        """Take in a source with files at the root, and a file called `name` below the URI prefix of each other source.

        The latter are in the directories of these sources, unless there is a resource of that name.
        """
        about = await self.add(data, handler, hidden=True)
        self.root_files = tuple(name for name, shown in await about.catalog.view(()) if not is_directory(shown))
        self._about = name, about

    def _listed(self, source: Source, at: float, listing: Listing, changes: Changes | None) -> None:
        self._memory.listed(source, at, listing, changes)
        if self.index is not None and changes is not None:
            self.index.gone(source, changes.gone)

    def _learn(self, source: Source, record: Record, content: Content) -> None:
        if self.index is not None and source.data.index is True:
            self.index.learn(source, record, content)

    async def add_searches(self, data: DataSource, handler: Handler) -> None:
        """Take in the source of the directories `SEARCH`. They are everywhere but where a source lists that name."""
        self._searches = await self.add(data, handler, hidden=True)

    async def add_texts(self, data: DataSource, handler: Handler) -> None:
        """Take in the source of the texts of documents. They are beside the documents, where no resource has the name.

        Its id is `TEXT`.
        """
        self._texts = await self.add(data, handler, hidden=True)

    def _notify(
        self, source: Source, paths: Iterable[Path], event: ChangeEvent = "changed", uri: str | None = None
    ) -> None:
        """Pass on a change at some paths of a source's catalog."""
        told = paths if isinstance(paths, ChangedPaths) else ChangedPaths(paths)
        mounted: list[Path] = []
        for path in told:
            self._ahead.changed(source, path)
            if told.below:
                self._ahead.completed(source, path)
            mounted += self._mounted(source, path)
        self.changes.notify(Change(source.data.id, event, uri, frozenset(mounted), told.below))

    @staticmethod
    def _mounted(source: Source, path: Path) -> list[Path]:
        """Return the paths from the mount's root of a path of the catalog."""
        data = source.data
        if not data.uri_prefix:
            return [path]
        if data.scheme is None or isinstance(source.catalog, DirectoryCatalog):
            return [(data.uri_prefix, *path)]
        if not path:
            return [()]  # it may have several roots
        return [(f"{data.base_prefix}+{path[0]}", *path[1:])]

    def refresh(self, path: Path) -> None:
        """Invalidate everything at and below a path: the next use asks the source (S21). Raise NotFound for no source.

        Contents stay for as long as the source does not answer (S20).
        """
        places = [self.place(path)] if path else [(source, path) for source in self.sources.values()]
        for source, below in places:
            source.refreshed_at(below, self.clock())
            self._invalidation.refresh(source, below)

    def written(self, source: Source, path: Path, native_uri: str) -> None:
        """Take note that a program has changed a name in a passed folder. path: in the catalog."""
        self._invalidation.written(source, path, native_uri)

    @staticmethod
    def keeps_nothing(source: Source) -> bool:
        """Return whether no name of a folder is cached."""
        return isinstance(source.catalog, DirectoryCatalog) and source.catalog.is_empty

    # -- the tree, from the mount's root -----------------------------------------------------------------------------

    def roots(self) -> dict[str, Source]:
        """Return the directories at the root: one a source, and one a stray scheme of a source with a fixed scheme."""
        roots: dict[str, Source] = {}
        for source in self.sources.values():
            roots[source.data.uri_prefix] = source
            if source.data.scheme is not None and isinstance(source.catalog, FlatCatalog):
                for scheme, _ in source.catalog.cached_view(()) or ():
                    roots.setdefault(f"{source.data.base_prefix}+{scheme}", source)
        return roots

    def has_source(self, name: str) -> bool:
        """Return whether a directory of the root has this name for the whole mount: that of a source, or of searches.

        (S6)
        """
        return name in self._by_prefix or (name == SEARCH and self._searches is not None)

    def root_link(self, name: str) -> str | None:
        """Return the target of a link at the root that no listing has (S2), or None.

        `mcp-server+docs+resource` leads to `mcp-server+docs/resource`, and `docs` to `mcp-server+docs` if no other
        source has this name or id.
        """
        base, plus, scheme = _split_scheme(name)
        source = self.sources.get(base)
        if source is None:
            named = [each.data.uri_prefix for each in self.sources.values() if name in (each.data.name, each.data.id)]
            return named[0] if len(named) == 1 else None
        if not plus or not scheme or source.data.scheme is not None:
            return None
        return f"{source.data.uri_prefix}/{scheme}"

    def place(self, path: Path) -> tuple[Source, Path]:
        """Return the source of a path from the mount's root, and the path in its catalog. Raise NotFound."""
        if self._searches is not None and SEARCH in path and self._is_search(path):
            return self._searches, path
        if self._about is not None and self._is_description(path):
            return self._about[1], path
        return self._place(path)

    def _place(self, path: Path) -> tuple[Source, Path]:
        source = self._by_prefix.get(path[0]) or self.roots().get(path[0])
        if source is None:
            raise NotFound(f"no such source: {path[0]}")
        if source.data.scheme is None or isinstance(source.catalog, DirectoryCatalog):
            return source, path[1:]
        return source, (path[0].removeprefix(source.data.base_prefix + "+"), *path[1:])

    def _is_description(self, path: Path) -> bool:
        """Return whether the file that describes a source has a path, as far as can be told without a request.

        A source that does not describe itself may have a file of that name, and is asked first.
        """
        if len(path) == 1:
            return path[0] in self.root_files
        if self._about is None or path[1:] != (self._about[0],):
            return False
        source, below = self._place(path)
        if source.data.base_prefix not in self.sources:
            return False
        catalog, is_first = source.catalog, describes_itself(source.data)
        try:
            node = catalog.last_cached(below) if is_first else catalog.cached(below)
        except (NotFound, NotADirectory):
            return True
        return node is None and is_first

    def _is_search(self, path: Path) -> bool:
        """Return whether a path with the name `SEARCH` is a search, as far as can be told without a request.

        A source that may list the name is asked first.
        """
        at = path.index(SEARCH)
        if at == 0:
            return True
        source, below = self._place(path[: at + 1])
        if source.data.base_prefix not in self.sources:
            return False
        try:
            if source.catalog.cached(below) is not None:
                return False
        except (NotFound, NotADirectory):
            return True
        return at + 1 < len(path) and source.catalog.last_cached(below) is None

    def cached(self, path: Path) -> Node | None:
        """Return the cached node at a path, or None if the source must be asked. Raise NotFound."""
        source, below = self.place(path)
        if len(path) == 1 and path[0] not in self.root_files:
            return DIRECTORY
        if source.overlay is not None and not (source.overlay.is_due(below) and _must_be_asked(source, below)):
            overlaid = source.overlay.find(below)
            if overlaid is not None:
                return overlaid
        try:
            node = source.catalog.cached(below)
            if node is None or node.record is None or not self.gives_way(path, node.record):
                return node
        except NotFound:
            if self.text_of(path) is None:
                raise
        return self._texts.catalog.cached(path) if self._texts is not None else None

    def gives_way(self, path: Path, record: Record) -> bool:
        """Return whether a name leads to a text: the source does not have the resource that a template makes of it."""
        is_absent = record.provisional and self.absent_until(record) is not None
        return is_absent and self.text_of(path) is not None

    def text_of(self, path: Path) -> Record | None:
        """Return the document whose text a path names, by what is cached, or None."""
        name = path[-1].removesuffix(TEXT_SUFFIX)
        if self._texts is None or name in ("", path[-1]) or len(path) == 1:
            return None
        try:
            source, below = self._place((*path[:-1], name))
            node = source.catalog.last_cached(below) if source.data.text != "off" else None
        except (NotFound, NotADirectory):
            return None
        record = node.record if node is not None and node.kind == "file" else None
        return record if record is not None and kind_of(record.metadata) is not None else None

    async def _find_text(self, path: Path) -> Node | None:
        """Return the node of the text of a document, or None. Raise the error of the document's source."""
        document = (*path[:-1], path[-1].removesuffix(TEXT_SUFFIX))
        if self._texts is None or document == path:
            return None
        try:
            if is_document_name(document[-1]):
                await self.find(document)
            if self.text_of(path) is not None:
                return await self._texts.catalog.find(path)
        except NotFound:
            pass
        return None

    def last_cached(self, path: Path) -> Node | None:
        """Return the node at a path by the last answer of the source, however old it is, or None.

        A hit is a link even before its search has ended. Otherwise the kernel would give up an open: it looks a name up
        again only once, which the file that the link leads to may need.
        """
        source, below = self.place(path)
        try:
            node = source.overlay.find(below) if source.overlay is not None else None
            node = source.catalog.last_cached(below) if node is None else node
        except (NotFound, NotADirectory):
            node = None
        if node is None and self.text_of(path) is not None and self._texts is not None:
            node = self._texts.catalog.last_cached(path)
        is_hit = source is self._searches and path[-3:-2] == (SEARCH,) and documents.HIT.match(path[-1])
        return Node("symlink", target="") if node is None and is_hit else node

    async def find(self, path: Path) -> Node:
        """Return the node at a path, after a listing if necessary. Raise NotFound or the source's error."""
        node = self.cached(path)
        if node is None:
            source, below = self.place(path)
            try:
                with source.waiters:
                    node = await _asked(source, below)
                if node.record is not None and self.gives_way(path, node.record):
                    node = await self._find_text(path) or node
            except BbfsError as error:
                text = await self._find_text(path) if isinstance(error, NotFound) else None
                if text is not None:
                    return text
                beside = self._searches if path[-1] == SEARCH and source is not self._searches else None
                if self._about is not None and len(path) == 2 and path[1] == self._about[0]:
                    beside = self._about[1]
                if beside is None:
                    raise
                node = await beside.catalog.find(path)
        return node

    def lease(self, record: Record) -> Lease | None:
        """Return the promise that a listed resource stays at its path; None for an unlisted one."""
        source = self.source_of(record)
        return source.catalog.lease(record) if record.parent is None and source.overlay is None else None

    def names_lease(self, path: Path) -> Lease | None:
        """Return the promise that the names of a directory do not change, or None."""
        source, below = self.place(path)
        return source.catalog.names_lease(below) if source.overlay is None else None

    async def view(self, path: Path) -> View:
        """Return the names of a directory in readdir's order (sorted)."""
        source, below = self.place(path)
        try:
            made = source.overlay is not None and source.overlay.is_made(below)
            view = View.of({}) if made else source.catalog.cached_view(below)
            if view is not None and not len(view) and (failure := source.catalog.failure(below)) is not None:
                raise failure  # it is not empty, it could not be asked for
            view = await self.below(source, below) if view is None else view
        except NotFound:
            if len(path) > 1 and not (source.overlay is not None and source.overlay.is_directory(below)):
                raise
            view = View.of({})  # S6: the directory of a fixed scheme is there, whether or not anything is listed below
        if source.overlay is not None:
            view = source.overlay.over(below, view)
        if self._texts is not None and source.data.text == "listed" and source.data.base_prefix in self.sources:
            view = view.followed_by(await self._texts_in(path, view))
        if self._about is not None and len(path) == 1 and describes_itself(source.data):
            name, about = self._about
            if self._is_description((*path, name)):
                return view.beside(name, await about.catalog.find((*path, name)))
        return view

    async def _texts_in(self, path: Path, view: View) -> dict[str, Node]:
        """Return the texts of the documents in a directory, by name, but for names that it has itself."""
        found: dict[str, Node] = {}
        names: set[str] = set()
        for portion, _ in view.portions():
            await trio.lowlevel.checkpoint()
            for name, shown in zip(portion.names, portion.shown, strict=True):
                metadata = view.metadata(shown)
                names.add(name)
                if metadata is not None and kind_of(metadata) is not None:
                    found[name + TEXT_SUFFIX] = DIRECTORY
        for name in found.keys() - names:
            node = await self._find_text((*path, name))
            if node is not None:
                found[name] = node
        return {name: node for name, node in sorted(found.items()) if node is not DIRECTORY}

    async def children(self, path: Path) -> dict[str, Node]:
        """Return the names of a directory with their nodes. Makes the records of all resources in it."""
        view, records = await self.view(path), self.place(path)[0].catalog.records
        found: dict[str, Node] = {}
        for portion, _ in view.portions():
            for name, shown in zip(portion.names, portion.shown, strict=True):
                found[name] = record_node(records[shown]) if isinstance(shown, str) else shown
            await trio.lowlevel.checkpoint()
        return found

    def stated_validity(self, path: Path) -> float:
        """Return the seconds for which the sizes hold that the listing states in a directory."""
        source, below = self.place(path)
        # `cp` and `tar` would report a file that changed while they read it.
        return 0.0 if source.misstates_sizes else source.catalog.validity((*below, ""))

    def validity(self, path: Path) -> float:
        """Return the seconds for which the names in the directory of `path` hold; a few while they are refreshed."""
        source, below = self.place(path)
        return max(SERVED_STALE, source.catalog.validity(below)) if len(path) > 1 else 60.0

    def absence(self, path: Path) -> float:
        """Return the seconds for which the kernel may cache the absence of a name."""
        source, below = self.place(path)
        return min(ABSENT_FOR, source.catalog.absence(below))

    def absent_until(self, record: Record) -> float | None:
        """Return until when the source's word holds that a resource is absent; None if it has not said so."""
        said_so = isinstance(record.error, NotFound) and self.clock() < record.error_until
        return record.error_until if said_so else None

    def directory_document(self, path: Path) -> dict[str, Any]:
        """Return the metadata of a directory without a resource: the templates that make names in it."""
        source, below = self.place(path)
        return documents.directory_document(source.catalog.templates(below))

    def mounted(self, record: Record) -> Path:
        """Return the path of a listed resource from the mount's root."""
        return self._mounted(self.source_of(record), record.path)[0]

    def mounted_at(self, source: Source, path: Path) -> Path:
        """Return the path from the mount's root of a path in the catalog of a source."""
        return self._mounted(source, path)[0]

    async def find_below(self, source: Source, below: Path) -> Node:
        """As `find`, by the path in the catalog of a source."""
        return await self.find(self.mounted_at(source, below))

    def notify_of(self, source: Source, paths: Iterable[Path]) -> None:
        """Notify the kernel and all others of paths in a catalog that lead elsewhere now."""
        self._notify(source, paths)

    def begin(self, work: Callable[[T], Awaitable[None]], argument: T) -> None:
        """Run something in a task of its own, to the end of the mount at most."""
        self._nursery.start_soon(work, argument)

    async def go_on(self, change: Callable[[], Awaitable[T]]) -> T:
        """Await a change in a task of its own. It goes on if its caller is cancelled. Raise BbfsError."""
        value: T = await self._flights.do(("change", object()), change, inf)
        return value

    def source_of(self, record: Record) -> Source:
        return self._by_id[record.source_id]

    # -- sizes and contents ------------------------------------------------------------------------------------------

    def size_now(self, record: Record) -> tuple[int, float] | None:
        """Return the size in bytes and its validity in seconds, or None if only the source can tell."""
        source = self.source_of(record)
        if source.misstates_sizes and record.digest is None:
            return None  # `cp` and `tar` would report a file that changed while they read it
        return record.cached_size(self.clock(), source.data.policy.listing_ttl)

    def last_size(self, record: Record) -> int | None:
        """Return the size in bytes that a load, or else the source, told last, however old it is; None if neither."""
        size = self.size_now(record)
        return record.size if size is None else size[0]

    async def text(self, record: Record, version: str, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return the text of a document from the disk cache, or else make it and cache it. Raise what `make` raises.

        version: of the text. What is cached is true for as long as it is there: another text has another version.
        """
        source = self._by_id[record.source_id]
        disk = self._disk if source.data.policy.disk else None
        key = source.fingerprint, f"{TEXT} {version} {record.metadata.native_uri}"
        if disk is not None and (cached := await disk.recall(key)) is not None:
            content = cached.parts[0].content
            return await content.read_waiting(0, content.size)
        text = await make()
        if disk is not None:
            disk.keep(key, Cached((Part(None, None, MemoryContent(text), "text"),), self.clock(), 0.0))
        return text

    def fresh_for(self, record: Record) -> float:
        """Return the seconds for which the cached content is served without a request."""
        now = self.clock()
        return record.fetched_at + record.ttl - now if record.fetched_at is not None and record.fresh(now) else 0.0

    def resolved(self, record: Record) -> bool:
        """Return whether the size is known, or was asked for just now."""
        return self.size_now(record) is not None or record.confirmed_within(JUST_NOW, self.clock())

    def send_on(self, record: Record) -> None:
        """Keep what was just loaded for the lookup that follows ESTALE, even if it is invalidated meanwhile.

        The kernel retries only once, so a resource that changes faster could never be opened otherwise.
        """
        if record.loaded_within(JUST_NOW, self.clock()):
            record.awaited_until = self.clock() + AWAITED

    def just_changed(self, record: Record) -> bool:
        """Return whether the kernel may be about to look up the version of the last load."""
        return record.changed_within(JUST_NOW, self.clock())

    def replaceable(self, record: Record) -> bool:
        """Return whether the content of a resource can be written."""
        writes = self.source_of(record).writes
        return writes is not None and not record.on_open and "replace" in writes.writes(record.metadata.native_uri)

    def may_create(self, path: Path) -> bool:
        """Return whether a program may try to create a name at a path."""
        return self.is_lower or path[0] in self.writable_roots

    def may_be_new(self, path: Path, node: Node) -> Record | None:
        """Return the resource that a template alone makes of a name, if a program may try to create it, else None.

        If the source creates nothing there, that is an error of its own, and a file may still live in the mount alone.
        """
        record = node.record or node.candidate if node.draft is None else None
        if record is None or not record.provisional or record.on_open or not self.may_create(path):
            return None
        if self.is_lower:
            return record
        writes = self.source_of(record).writes
        may_create = writes is not None and (is_temporary(path[-1]) or bool(writes.writes(record.metadata.native_uri)))
        return record if may_create else None

    def lazy(self, record: Record) -> bool:
        """Return whether the size is 0 until an open: if only an open loads the resource, or with `sizes = "lazy"`."""
        return record.on_open or self.source_of(record).data.policy.sizes == "lazy"

    async def learn(self, record: Record) -> None:
        """Update size, version and time of the record: by asking the source for them, or by a load.

        While the source is down, a learnt size stays valid (S20). Raises the source's error otherwise. Does nothing for
        what only an open loads (S31).
        """
        if record.on_open:
            return
        source = self.source_of(record)
        deadline = trio.current_time() + source.data.policy.timeout
        with source.waiters:
            try:
                refuse_repeat(record, self.clock())
                if isinstance(source.handler, CanStat) and isinstance(source.catalog, DirectoryCatalog):
                    key = ("stat", record.key)
                    await self._loader.ask(source, record, key, lambda: self._confirm(source, record))
                    if self.size_now(record) is not None or record.confirmed_within(JUST_NOW, self.clock()):
                        return
                await self._loader.load(source, record, deadline)
                require_current(record)
            except (Unreachable, DeadlineExceeded):
                known = record.size is not None and self._loader.within_stale(source, record)
                if not known and await self._loader.last(source, record) is None:
                    raise
                record.stale = True

    def begin_learning(self, record: Record) -> None:
        """Begin to learn a record that expires now, without waiting: a program waits to hear of another content."""
        left = record.fetched_at + record.ttl - self.clock() if record.fetched_at is not None else 0.0
        if record.on_open or left > JUST_NOW:
            return

        async def learn() -> None:
            await trio.sleep(max(0.0, left))  # until then `learn` would take what was loaded just now
            await self.learn(record)

        timeout = self.source_of(record).data.policy.timeout
        self._flights.begin(("learn", record.key), learn, timeout + JUST_NOW)

    async def exists(self, record: Record) -> bool:
        """Return whether the source has a resource, by a load. Raises any other error."""
        try:
            await self.learn(record)
        except NotFound:
            return False
        return True

    async def find_certain(self, path: Path) -> Node:
        """As `find`, but ask the source if a name may be a resource or a directory."""
        node = await self.find(path)
        if self.opened_as_file(path, node) or (node.candidate is not None and await self.exists(node.candidate)):
            node = await self.find(path)
        return node

    def opened_as_file(self, path: Path, node: Node) -> bool:
        """Return whether opening a directory means a call, whose name could also lead on; for a moment it is a file."""
        source, below = self.place(path)
        is_call = node.kind == "directory" and node.candidate is not None and node.candidate.on_open
        if not is_call or not isinstance(source.catalog, FlatCatalog):
            return False
        source.catalog.open_as_file(below)
        return True

    async def _confirm(self, source: Source, record: Record) -> None:
        assert isinstance(source.catalog, DirectoryCatalog)
        async with source.slots.ask():
            load = Load(source, record)
            for is_last in (False, True):  # the mount may change the name while the source is asked
                asked_at = self.clock()
                try:
                    await source.catalog.confirm(record)
                    return
                except NotFound:
                    if self._publisher.absent(load, asked_at) or is_last:
                        raise

    def content_now(self, record: Record) -> Content | None:
        """Return the content, if it is in memory, and fresh or just loaded; else None.

        A part of what an open has loaded is valid as long as its directory exists.
        """
        kept = record.parent is not None and record.on_open
        usable = record.fresh(self.clock()) or kept or self.just_changed(record)
        return self.contents.get(content_key(record)) if usable and record.parts is None else None

    async def open(self, record: Record) -> Content:
        """Return the content of a resource, from memory or by a load. Raises IsADirectory if it has several parts."""
        content = self.content_now(record)
        if content is not None:
            return content
        contents = await self._loader.contents(self.source_of(record), record)
        if record.parts is not None:
            raise IsADirectory(f"{record.metadata.name} answered several contents")
        require_current(record)
        return contents[record.part] if record.parent is not None else contents[0]

    def _link(self, source: Source, record: Record, native_uri: str) -> str | None:
        """Return the target of a link in the directory of `record` to another resource of the source, or None."""
        linked = source.catalog.record(native_uri)
        path = linked.path if linked is not None and linked.path else uri_paths.plain_path(native_uri).path
        try:
            node = source.catalog.cached(path)
        except (NotFound, NotADirectory):
            return None
        there = node.record or node.candidate if node is not None else None
        if there is None or there.metadata.native_uri != native_uri or not record.path:
            return None
        start, end = self._mounted(source, record.path)[0], self._mounted(source, path)[0]
        return os.path.relpath("/".join(("", *end)), "/".join(("", *start)))

    # -- loading ahead -----------------------------------------------------------------------------------------------

    def accessed(self, path: Path, record: Record, *, wanted: bool) -> None:
        """Take note of an access for readahead.

        Call this if the content is not cached (`wanted`: it is loaded next), or was loaded ahead (`Record.ahead`).
        """
        source, below = self.place(path)
        if record.source_id != TEXT:
            self._ahead.accessed(source, below, record, wanted=wanted)

    # -- listing and loading by URI ----------------------------------------------------------------------------------

    def by_id(self, source_id: str) -> Source:
        """Return the source with this id, name, URI prefix or base prefix. Raise NotFound, which names the sources."""
        for source in self.sources.values():
            if source_id in (source.data.id, source.data.name, source.data.uri_prefix, source.data.base_prefix):
                return source
        there = ", ".join(sorted(s.data.id for s in self.sources.values())) or "none"
        raise NotFound(f"no source {source_id!r}; there are: {there}")

    async def list_resources(self, source_id: str, path: str = "", depth: int | None = None) -> list[ResourceMetadata]:
        """Return the resources of a source below `path` (names as the mount shows them), down to `depth` directories.

        depth: 1 is the directory itself, None all of it. Directories of a hierarchical source are among the answers.
        Raises NotFound or the source's error.
        """
        source = self.by_id(source_id)
        if depth is not None and depth < 1:
            raise NotSupported(f"depth is {depth}: it counts levels and begins at 1")
        if not source.data.capabilities.list:
            raise NotSupported(f"{source.data.id} cannot be listed")
        start = tuple(name for name in path.split("/") if name)
        if source.data.scheme is not None and isinstance(source.catalog, FlatCatalog):
            start = (source.data.scheme, *start)
        found: list[ResourceMetadata] = []
        pending: list[tuple[Path, int]] = [(start, 1)]
        while pending:
            directory, level = pending.pop()
            try:
                view = await self.below(source, directory)
            except NotFound:
                if path or directory != start:
                    raise
                return []  # a source of one scheme that lists nothing yet has no directory for it
            for name, shown in view:
                metadata = view.metadata(shown)
                if metadata is not None:
                    found.append(metadata)
                deeper = depth is None or level < depth
                if is_directory(shown) and deeper and level < uri_paths.MAX_DEPTH:
                    pending.append(((*directory, name), level + 1))
        return found

    async def search(
        self,
        query: str,
        *,
        below: Collection[Path] = (),
        limit: int = LIMIT,
        mode: Mode = "both",
        within: float = WITHIN,
    ) -> SearchAnswer:
        """Return the best hits at and below some paths from the mount's root, by default everywhere.

        within: seconds. Raise NotFound for a path without a source, InvalidUri, TooLarge. A source that fails costs
        only its own hits, and the answer says so.
        """
        within_all = not below or () in below
        sources = {} if not within_all else {source.data.id: source for source in self.sources.values()}
        for path in () if within_all else below:
            source = self._place(path)[0]
            sources[source.data.id] = source
        scope = () if within_all else below
        found = [source for source in sources.values() if source.data.base_prefix in self.sources]
        return await self._search.search(query, found, below=scope, limit=limit, mode=mode, within=within)

    async def below(self, source: Source, path: Path) -> View:
        """Return the names of a directory of the source's catalog."""
        with source.waiters:
            return await source.catalog.view(path)

    async def record_of(self, uri: str) -> tuple[Source, Record]:
        """Return the record of a bbfs URI, listed or not. Raise InvalidUri, or NotFound for an unknown source."""
        parsed = parse_data_source_uri(uri)
        source = self.sources.get(parsed.base_prefix)
        if source is None:
            there = ", ".join(sorted(self.sources)) or "none"
            raise NotFound(f"no source {parsed.base_prefix!r}; there are: {there}")
        native = parsed.original_uri
        return source, source.catalog.record_of(str(parsed), native)

    async def uri_for(self, path: Path) -> str:
        """Return the bbfs URI for a name of the mount that leads to nothing yet. Raise NotFound for no source."""
        source, below = self.place(path)
        return source_uri(source.data.base_prefix, await self.native_uri_for(source, below))

    async def native_uri_for(self, source: Source, below: Path) -> str:
        """Return the native URI for a name that the source does not have: that of its directory, and the name."""
        catalog = source.catalog
        if not isinstance(catalog, DirectoryCatalog):
            return catalog.native_uri(below) if isinstance(catalog, FlatCatalog) else uri_paths.native_of(below)
        segments = [uri_paths.hide_component(name, literal=source.data.scheme == "file") for name in below]
        for depth in range(len(below) - 1, 0, -1):
            try:
                directory = await self.find_below(source, below[:depth])
            except NotFound:
                continue  # it is new, too
            if directory.record is not None:
                return "/".join((directory.record.metadata.native_uri.rstrip("/"), *segments[depth:]))
        if isinstance(source.handler, StatesBeginning):
            return source.handler.beginning + "/".join(segments)
        if catalog.beginning is None:
            await catalog.view(())
        if catalog.beginning is None:
            return uri_paths.native_of(below, source.data.scheme)
        return catalog.beginning + "/".join(segments)

    async def write_resource(self, uri: str, data: bytes, expected: Expected, *, keep: bool = True) -> ResourceMetadata:
        """Create a resource, or replace its content, by its bbfs URI. Return its metadata after this write.

        The etag is the version that a next write of the same client replaces; None if the source does not tell it.
        The directories that it is in are made as well. When this returns, the source has the content, and a lookup
        finds it. Raise BbfsError: ReadOnly if the source is not written, Conflict if it has another state than the
        expected one. The content is a pending write then, unless `keep` is false: the caller has it still.
        """
        source, native_uri = self._parsed(uri)
        known = source.catalog.record(native_uri)
        path = known.path if known is not None and known.path else None
        if path is None and expected.exists is not True:
            await self.writer.make_parents(source, native_uri)
        stored = await self.writer.write(source, native_uri, MemoryContent(data), expected, path=path, keep=keep)
        if path is None:
            await self.relist(source)
        size = len(data) if stored.state.version is not None else stored.record.metadata.size
        return replace(self.described(stored.record), size=size, etag=stored.state.etag or stored.state.version)

    async def remove_resource(self, uri: str, expected: Expected) -> None:
        """Remove a resource by its bbfs URI. Raise BbfsError, as `write_resource`."""
        source, native_uri = self._parsed(uri)
        known = source.catalog.record(native_uri)
        path = known.path if known is not None and known.path else None
        await self.writer.remove(source, native_uri, expected, path)
        if path is None:
            await self.relist(source)

    def state_of(self, record: Record) -> Expected:
        """Return the state of a resource as it was last shown, for a write that replaces exactly this."""
        return record_state(record)

    async def relist(self, source: Source, changed: Path | None = None) -> None:
        """Let the next lookup find what has changed, in other mounts as well.

        changed: the path of it from the mount's root, if it is known. The kernel may have that name as absent.
        """
        if self.writer.told is not None:
            self.writer.told(changed or (source.data.uri_prefix,))
        source.catalog.expire()  # what is being listed now may not have it
        if isinstance(source.catalog, FlatCatalog):
            with suppress(BbfsError):  # the write succeeded; the next lookup reports the error of the listing
                await source.catalog.refresh()
        with suppress(NotFound):  # the mount that had it at this path may have named its sources otherwise
            found, below = self.place(changed) if changed else (None, ())
            if found is source:
                if source.overlay is not None:
                    source.overlay.expire(below)
                self.notify_of(source, [below])

    def _parsed(self, uri: str) -> tuple[Source, str]:
        """Return the source of a bbfs URI, and the native URI. Raise NotFound, InvalidUri."""
        parsed = parse_data_source_uri(uri)
        source = self.sources.get(parsed.base_prefix)
        if source is None:
            raise NotFound(f"no such source: {parsed.base_prefix}")
        return source, parsed.original_uri

    async def load_resource(self, uri: str) -> LoadedResource:
        """Return content and metadata of one resource, listed or not. Raises InvalidUri or the source's error."""
        source, record = await self.record_of(uri)
        if not record.path:
            record = await self._part_of(record) or record
        content = self.content_now(record)
        kept = self._publisher.kept(record) if content is None and record.fresh(self.clock()) else None
        contents = [content] if content is not None else kept or await self._loader.contents(source, record)
        if record.parts is None:
            return LoadedResource(uri, self.described(record), (Part(None, record.metadata.mime_type, contents[0]),))
        parts = sorted(record.parts.values(), key=lambda part: part.part)
        return LoadedResource(
            uri,
            self.described(record),
            tuple(Part(p.metadata.native_uri, p.metadata.mime_type, contents[p.part]) for p in parts),
        )

    async def _part_of(self, unlisted: Record) -> Record | None:
        """Return the part of a resource with several contents that a URI names (S2, S5), or None."""
        source = self.source_of(unlisted)
        above, _, segment = unlisted.metadata.native_uri.rpartition("/")
        known = source.catalog.record(above)
        if known is not None and known.on_open:
            return (known.parts or {}).get(uri_paths.show_component(segment))
        listed = source.catalog.records.get(above) or source.catalog.records.get(above + "/")
        if listed is None:
            return None
        if listed.parts is None:
            await self._loader.contents(source, listed)
        return (listed.parts or {}).get(uri_paths.show_component(segment))

    def described(self, record: Record) -> ResourceMetadata:
        """Return the metadata with the true size and the time of the last change."""
        m = record.metadata
        size = m.size if record.size is None else record.size
        return replace(m, size=size, modified_ns=record.modified_ns, etag=m.etag or record.digest)

    def document(self, path: Path, record: Record) -> dict[str, Any]:
        """Return the metadata of a resource as one JSON object, without a request to its source."""
        source, metadata = self.source_of(record), record.metadata
        if source is self._texts and metadata.properties is not None:
            metadata = replace(metadata, native_uri=metadata.properties["text_of"])
        fresh = record.fresh(self.clock()) and not record.stale
        error = record.error or (record.parent.error if record.parent is not None else None)
        return documents.resource_document(
            metadata,
            source.data,
            path="/".join(path),
            size=self.last_size(record),
            modified_ns=record.modified_ns,
            fetched_at=record.fetched_at,
            cache="absent" if content_key(record) not in self.contents else "fresh" if fresh else "stale",
            error=None if error is None else str(error),
        )

    def source_document(self, path: Path) -> dict[str, Any]:
        """Return the description of the source whose directory is at `path`, as one JSON object."""
        source, _ = self.place(path)
        document = documents.source_document(
            source.data, source.state, source.problem, source.capabilities, source.offers
        )
        return {**document, **source.proposals}

    async def load_resources(
        self,
        mode: Literal["template", "direct"],
        *,
        uri_template: str | None = None,
        template_resources: Sequence[Mapping[str, str | Sequence[str]]] = (),
        direct_uris: Sequence[str] = (),
    ) -> list[LoadedResource]:
        """Load many resources at once, in the order asked for; each has its content and metadata, or its own error.

        template: `uri_template` is expanded with each mapping of `template_resources`. direct: `direct_uris` as they
        are. Raises NotSupported only when the arguments do not fit the mode.
        """
        if mode == "template" and uri_template and not direct_uris:
            asked = [partial(expand_template, uri_template, values) for values in template_resources]
        elif mode == "direct" and uri_template is None and not template_resources:
            asked = [partial(str, uri) for uri in direct_uris]
        else:
            raise NotSupported(
                "mode 'template' takes uri_template and template_resources, mode 'direct' takes direct_uris"
            )
        results: list[LoadedResource | None] = [None] * len(asked)
        slots = trio.Semaphore(LOADS_AT_ONCE)

        async def load(position: int, make_uri: Callable[[], str]) -> None:
            uri = uri_template or ""
            try:
                uri = make_uri()
                async with slots:
                    results[position] = await self.load_resource(uri)
            except BbfsError as error:
                results[position] = LoadedResource(uri, error=error)

        async with trio.open_nursery() as nursery:
            for position, make_uri in enumerate(asked):
                nursery.start_soon(load, position, make_uri)
        return [result for result in results if result is not None]

    # -- memory across mounts ----------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Write all metadata and contents since the last flush."""
        await self._memory.flush(self.sources.values())
        if self._disk is not None:
            await self._disk.flush()

    async def keep_flushing(self) -> None:
        """Flush metadata again and again until cancelled."""
        while True:
            await trio.sleep(FLUSH_EVERY)
            await self._memory.flush(self.sources.values())


def _split_scheme(name: str) -> tuple[str, str, str]:
    """Split `a-b+c+git+ssh` into (`a-b+c`, `+`, `git+ssh`): a scheme may hold `+`, the rest of a prefix one only."""
    parts = name.split("+", 2)
    return ("+".join(parts[:2]), "+", parts[2]) if len(parts) == 3 else (name, "", "")


def _must_be_asked(source: Source, below: Path) -> bool:
    """Return whether the catalog of a source knows nothing of a path without a request."""
    try:
        return source.catalog.cached(below) is None
    except (NotFound, NotADirectory):
        return False


async def _asked(source: Source, below: Path) -> Node:
    """Return the node at a path after a listing. What the mount has changed since, or what no listing showed, holds.

    Raise NotFound or the source's error.
    """
    try:
        node = await source.catalog.find(below)
    except BbfsError:
        overlaid = source.overlay.find(below) if source.overlay is not None else None
        if overlaid is None:
            raise
        return overlaid
    return (source.overlay.find(below) if source.overlay is not None else None) or node
