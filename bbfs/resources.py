"""The one door to the sources: list and load across all of them, with deadlines, caches and freshness kept here once.

A handler below only translates. Whoever stands above (the file system, the command line) asks the ResourceManager and
gets values or a BbfsError, within the source's `timeout`.

Two maps hold what is known: metadata by URI (`Source.catalog.records` of each source) and names to URIs by directory
(the catalog's tree). `cache.metadata` keeps both on disk. Between two awaits a task is alone; nothing here locks.
"""

import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import count
from typing import Any, Literal

import trio

from bbfs import tree, xattrs
from bbfs.ahead import LoadAhead
from bbfs.attached import Source, Waiting, fingerprint
from bbfs.cache.content import ContentCache, MemoryContent
from bbfs.cache.metadata import MetadataStore
from bbfs.catalog import SERVED_STALE, Catalog, Changes, DirectoryCatalog, FlatCatalog, Surroundings, settle
from bbfs.errors import (
    BbfsError,
    DeadlineExceeded,
    Denied,
    InvalidUri,
    IsADirectory,
    LoginRequired,
    NotADirectory,
    NotFound,
    NotSupported,
    Outdated,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)
from bbfs.flight import SingleFlight
from bbfs.model import Content, DataSource, Listing, Loaded, Part, ResourceMetadata, SourceEvent
from bbfs.parts import name_parts
from bbfs.places import Place, Places
from bbfs.records import Node, Path, Record
from bbfs.remembering import ListingMemory
from bbfs.sources import CanList, CanListDirectory, CanLoad, CanStat, CanWatch, Handler
from bbfs.templates import expand_template
from bbfs.uri import parse_data_source_uri

log = logging.getLogger(__name__)

JUST_NOW = 0.25
"""Seconds for which what was just learnt counts as known, even where the source's time to live is 0."""
ERROR_KEPT = 2.0
"""Seconds for which a failed load is not repeated: `ls -l` and the `cat` after it cost one request, not two."""
ABSENT_FOR = 5.0
"""Seconds for which an unlisted resource that the source says not to have is not asked for again."""
LOADS_AT_ONCE = 64
"""Items of one `load_resources` that wait at once; the bound of each source comes on top."""
AHEAD_SHARE = 16
"""A resource that is known to take more than this part of the memory budget is not loaded ahead."""
AHEAD_BUDGET_SHARE = 4
"""The part of the memory budget that contents may take which were loaded ahead and not used yet."""
RESULT_KEPT = 60.0
"""Seconds for which what an open has loaded stays a directory where it has several parts, as far as memory allows."""
FLUSH_EVERY = 2.0
RECALLED_AT_ONCE = 20_000
"""Resources of a remembered listing that are taken over before the source is there; more are behind."""


@dataclass(frozen=True, slots=True)
class LoadedResource:
    """One item of `load_resources`: content and metadata, or the error that this item alone ended with."""

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
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.sources: dict[str, Source] = {}
        self._by_id: dict[str, Source] = {}
        self._by_prefix: dict[str, Source] = {}
        self.contents: ContentCache[Content] = ContentCache(cache_bytes)
        self.loads = 0
        self.clock = clock
        self.cache_bytes = cache_bytes
        self._nursery = nursery
        self._flights = SingleFlight(nursery)
        self._opens = count()
        self._store = store
        self._listings = ListingMemory(store)
        self._ahead = LoadAhead(
            self._fetch,
            self._flights,
            budget=cache_bytes // AHEAD_BUDGET_SHARE,
            largest=cache_bytes // AHEAD_SHARE,
            mounted=lambda source, path: self._mounted(source, path)[0],
            clock=clock,
        )
        self._listeners: list[Callable[[Iterable[Path]], None]] = []

    # -- sources -----------------------------------------------------------------------------------------------------

    async def add(self, data: DataSource, handler: Handler) -> Source:
        """Take in a source and what earlier mounts remember of it. Nothing is asked of the source itself."""
        around = Surroundings(self.clock, self._flights, lambda paths: self._tell(data.base_prefix, paths))
        if isinstance(handler, CanList):
            catalog: Catalog = FlatCatalog(data, handler, around)
        elif isinstance(handler, CanListDirectory):
            catalog = DirectoryCatalog(data, handler, around)
        else:
            raise NotSupported(f"{data.id}: a source of type {data.type!r} cannot be listed")
        source = Source(data, handler, catalog, Places(max(1, data.policy.concurrency)), fingerprint(data))
        if not (isinstance(handler, CanStat) and isinstance(catalog, DirectoryCatalog)):
            self._ahead.add(source)
        self.sources[data.base_prefix] = self._by_id[data.id] = self._by_prefix[data.uri_prefix] = source
        if isinstance(catalog, FlatCatalog):
            around.listed = partial(self._remember_listing, source)
            recall = partial(self._recall, source, catalog)
            if await trio.to_thread.run_sync(self._store.listed, source.fingerprint) > RECALLED_AT_ONCE:
                self._nursery.start_soon(catalog.recalling, recall)
            else:
                await recall()
        if isinstance(handler, CanWatch):
            handler.watch(partial(self._event, source))
        return source

    async def _recall(self, source: Source, catalog: FlatCatalog) -> None:
        """Take over what earlier mounts have learnt."""
        rows, listing = await trio.to_thread.run_sync(self._store.recall, source.fingerprint)
        if listing is not None:
            fetched_at, whole = listing
            await catalog.recall(fetched_at, whole, rows)

    def on_change(self, listener: Callable[[Iterable[Path]], None]) -> Callable[[], None]:
        """`listener` hears of every path (from the mount's root) whose entry or content is not what it was.

        Returns what ends that. The listener must neither block nor raise.
        """
        self._listeners.append(listener)
        return partial(self._listeners.remove, listener)

    def _tell(self, base: str, paths: Iterable[Path]) -> None:
        source = self.sources[base]
        paths = list(paths)
        for path in paths:
            self._ahead.changed(source, path)
        changed = [full for path in paths for full in self._mounted(source, path)]
        for listener in tuple(self._listeners):
            listener(changed)

    @staticmethod
    def _mounted(source: Source, path: Path) -> list[Path]:
        """Where a path of the catalog stands from the mount's root."""
        data = source.data
        if data.scheme is None or isinstance(source.catalog, DirectoryCatalog):
            return [(data.uri_prefix, *path)]
        return [(f"{data.base_prefix}+{path[0]}", *path[1:])]

    def _event(self, source: Source, event: SourceEvent) -> None:
        """A handler says that something changed: validity ends at once (S18)."""
        if event.missed:
            self._suspect_all(source)
        if event.uri is None:
            source.catalog.expire()
            return
        record = source.catalog.record(event.uri)
        if record is not None:
            record.suspect()  # the content stays: should the source go down now, it is what there is (S20)
            if record.path:
                self._tell(source.data.base_prefix, [record.path])

    def refresh(self, path: Path) -> None:
        """Drop what is known at and below a path: the next use asks the source (S21). Raises NotFound for no source.

        Contents stay for as long as the source does not answer (S20).
        """
        places = [self.place(path)] if path else [(source, path) for source in self.sources.values()]
        for source, below in places:
            source.error = None
            source.catalog.forget(below)

    def _suspect_all(self, source: Source) -> None:
        """Changes may have been missed: everything that was loaded is asked for again when it is next wanted."""
        loaded = [record for record in source.catalog.all_records() if record.fetched_at is not None]
        for record in loaded:
            record.suspect()
        self._tell(source.data.base_prefix, [record.path for record in loaded if record.path])

    # -- the tree, from the mount's root -----------------------------------------------------------------------------

    def roots(self) -> dict[str, Source]:
        """The directories at the mount's root: one a source, and one a stray scheme of a source with a fixed one."""
        roots: dict[str, Source] = {}
        for source in self.sources.values():
            roots[source.data.uri_prefix] = source
            if source.data.scheme is not None and isinstance(source.catalog, FlatCatalog):
                for scheme in source.catalog.known_children(()) or ():
                    roots.setdefault(f"{source.data.base_prefix}+{scheme}", source)
        return roots

    def has_source(self, name: str) -> bool:
        """Whether a source's own directory has this name; it is there from the start to the end (S6)."""
        return name in self._by_prefix

    def root_link(self, name: str) -> str | None:
        """Where a name at the root leads that is a prefix with its scheme (S2): `docs+resource` → `docs/resource`."""
        base, plus, scheme = _split_scheme(name)
        source = self.sources.get(base)
        if not plus or not scheme or source is None or source.data.scheme is not None:
            return None
        return f"{source.data.uri_prefix}/{scheme}"

    def place(self, path: Path) -> tuple[Source, Path]:
        """The source of a path from the mount's root, and the path in its catalog. Raises NotFound."""
        source = self._by_prefix.get(path[0]) or self.roots().get(path[0])
        if source is None:
            raise NotFound(f"no such source: {path[0]}")
        if source.data.scheme is None or isinstance(source.catalog, DirectoryCatalog):
            return source, path[1:]
        return source, (path[0].removeprefix(source.data.base_prefix + "+"), *path[1:])

    def known(self, path: Path) -> Node | None:
        """The node at a path, without waiting; None if the source must be asked. Raises NotFound."""
        source, below = self.place(path)
        if len(path) == 1:
            return Node("directory")
        return source.catalog.known(below)

    async def find(self, path: Path) -> Node:
        """The node at a path, after a listing if need be. Raises NotFound or the source's error."""
        source, below = self.place(path)
        if len(path) == 1:
            return Node("directory")
        node = source.catalog.known(below)
        if node is not None:
            return node
        with Waiting(source):
            return await source.catalog.find(below)

    async def children(self, path: Path) -> dict[str, Node]:
        """The names of a directory in readdir's order (sorted), with their nodes."""
        source, below = self.place(path)
        try:
            children = source.catalog.known_children(below)
            if children is None:
                with Waiting(source):
                    children = await source.catalog.children(below)
        except NotFound:
            if len(path) > 1:
                raise
            return {}  # S6: the directory of a fixed scheme is there, whether or not anything is listed below it
        return children

    def validity(self, path: Path) -> float:
        """Seconds for which the names in the directory of `path` hold; a little while they are being refreshed."""
        source, below = self.place(path)
        return max(SERVED_STALE, source.catalog.validity(below)) if len(path) > 1 else 60.0

    def absence(self, path: Path) -> float:
        """Seconds for which the kernel may take a name for absent."""
        source, below = self.place(path)
        return min(ABSENT_FOR, source.catalog.absence(below))

    def absent_until(self, record: Record) -> float | None:
        """Until when the source's word holds that there is no such resource; None if it has not said so."""
        said_so = isinstance(record.error, NotFound) and self.clock() < record.error_until
        return record.error_until if said_so else None

    def directory_document(self, path: Path) -> dict[str, Any]:
        """What is known of a directory that no resource is: the templates that make names in it, if any do."""
        source, below = self.place(path)
        return xattrs.directory_document(source.catalog.templates(below))

    def mounted(self, record: Record) -> Path:
        """Where a listed resource stands from the mount's root."""
        return self._mounted(self.source_of(record), record.path)[0]

    def source_of(self, record: Record) -> Source:
        return self._by_id[record.source_id]

    # -- sizes and contents ------------------------------------------------------------------------------------------

    def size_now(self, record: Record) -> tuple[int, float] | None:
        """The size in bytes and for how many seconds it holds, or None when only the source can tell."""
        source = self.source_of(record)
        if source.misstates_sizes and record.digest is None:
            return None  # `cp` and `tar` would take the file for one that is replaced while they read it
        return record.known_size(self.clock(), source.data.policy.listing_ttl)

    def settled(self, record: Record) -> bool:
        """Whether asking the source for the size of a resource now would tell nothing new."""
        return self.size_now(record) is not None or record.confirmed_within(JUST_NOW, self.clock())

    def send_on(self, record: Record) -> None:
        """A program is told to look again (ESTALE), and is to find then what was just loaded for it.

        Even if that is said to have changed meanwhile: the kernel looks again only once, so a resource that changes
        faster than that could never be opened.
        """
        if record.loaded_within(JUST_NOW, self.clock()):
            record.awaited_until = self.clock() + JUST_NOW

    def just_changed(self, record: Record) -> bool:
        """Whether a program may be on its way to the version that the last load has found."""
        return record.changed_within(JUST_NOW, self.clock())

    def lazy(self, record: Record) -> bool:
        """Whether the size is 0 until it is opened: where only that loads it, or with `sizes = "lazy"`."""
        return record.on_open or self.source_of(record).data.policy.sizes == "lazy"

    async def learn(self, record: Record) -> None:
        """Make the record's size, version and time the source's own: by asking for them, or by loading the content.

        Where a source is down and the size was once learnt, that stands (S20). Raises the source's error otherwise.
        Does nothing for what only an open loads (S31).
        """
        if record.on_open:
            return
        source = self.source_of(record)
        with Waiting(source):
            try:
                self._refuse_repeat(record)
                if isinstance(source.handler, CanStat) and isinstance(source.catalog, DirectoryCatalog):
                    await self._ask(source, ("stat", record.key), lambda: self._confirm(source, record))
                    if self.size_now(record) is not None or record.confirmed_within(JUST_NOW, self.clock()):
                        return
                await self._load(source, record)
                _require_current(record)
            except (Unreachable, DeadlineExceeded):
                if record.size is None or not self._within_stale(source, record):
                    raise
                record.stale = True

    async def exists(self, record: Record) -> bool:
        """Whether the source has a resource, which only a load can tell. Raises what else goes wrong."""
        try:
            await self.learn(record)
        except NotFound:
            return False
        return True

    async def find_certain(self, path: Path) -> Node:
        """As `find`, but where a name may be a resource or a directory, the source has been asked which."""
        node = await self.find(path)
        if node.candidate is not None and await self.exists(node.candidate):
            node = await self.find(path)
        return node

    def _refuse_repeat(self, record: Record) -> None:
        """Raises again what a load has just ended with; see `ERROR_KEPT`."""
        owner = record.parent or record
        if owner.error is not None and self.clock() < owner.error_until:
            raise type(owner.error)(*owner.error.args)

    async def _confirm(self, source: Source, record: Record) -> None:
        assert isinstance(source.catalog, DirectoryCatalog)
        async with source.places.ask():
            await source.catalog.confirm(record)

    def content_now(self, record: Record) -> Content | None:
        """The content, if it is in memory and fresh, or has just been found.

        A part of what an open has loaded is good for as long as its directory is there.
        """
        kept = record.on_open and record.parent is not None
        usable = kept or record.fresh(self.clock()) or self.just_changed(record)
        return self.contents.get(_content_key(record)) if usable and record.parts is None else None

    async def open(self, record: Record) -> Content:
        """The content of a resource, from memory or from the source. Raises IsADirectory for one of several parts."""
        content = self.content_now(record)
        if content is not None:
            return content
        contents = await self._contents(record)
        if record.parts is not None:
            raise IsADirectory(f"{record.metadata.name} answered several contents")
        _require_current(record)
        return contents[record.part] if record.parent is not None else contents[0]

    async def _contents(self, record: Record) -> list[Content]:
        """All contents of the resource that a record belongs to, by their part; kept ones while the source is down."""
        source = self.source_of(record)
        with Waiting(source):
            if record.on_open:
                return await self._load_anew(source, record)
            try:
                self._refuse_repeat(record)
                return await self._load(source, record)
            except (Unreachable, DeadlineExceeded):
                kept = self._kept(record) if self._within_stale(source, record) else None
                if kept is None:
                    raise
                record.stale = True
                return kept

    async def _load_anew(self, source: Source, record: Record) -> list[Content]:
        """Load what only an open loads (S31): once for each open, shared with no other, and nothing stale instead."""
        if record.parent is not None:
            self._put_away(record.parent)
            raise Outdated(f"{record.metadata.name} belongs to a result that is no longer kept")
        key = ("open", next(self._opens))
        timeout = source.data.policy.timeout
        try:
            return await self._flights.do_alone(key, lambda: self._fetch(source, record, source.places.ask()), timeout)
        except DeadlineExceeded as error:
            source.error = str(error)
            raise

    async def _put_away_later(self, record: Record, seconds: float) -> None:
        """Keep the parts of a result for a while; then the resource is a file again, and an open loads it anew."""
        loaded = record.fetched_at
        await trio.sleep(seconds)
        if record.fetched_at == loaded:
            self._put_away(record)

    def _put_away(self, record: Record) -> None:
        parts, record.parts = record.parts, None
        for part in (parts or {}).values():
            self.contents.discard(_content_key(part))
        if parts is not None and record.path:
            self._tell(self.source_of(record).data.base_prefix, [record.path])

    def _kept(self, record: Record) -> list[Content] | None:
        """The contents in memory of the version last seen, whatever their age; None unless all are there."""
        owner = record.parent or record
        records = sorted(owner.parts.values(), key=lambda part: part.part) if owner.parts is not None else [owner]
        kept = [self.contents.get(_content_key(each)) for each in records]
        return [content for content in kept if content is not None] if None not in kept else None

    def _within_stale(self, source: Source, record: Record) -> bool:
        if record.fetched_at is None:
            return False
        return self.clock() < record.fetched_at + record.ttl + source.data.policy.max_stale

    async def _load(self, source: Source, record: Record) -> list[Content]:
        owner = record.parent or record
        # The place is asked for when the flight begins, before any that nobody waits for.
        return await self._ask(source, ("load", record.key), lambda: self._fetch(source, owner, source.places.ask()))

    async def _ask(self, source: Source, key: tuple[Any, ...], request: Callable[[], Any]) -> Any:
        try:
            return await self._flights.do(key, request, source.data.policy.timeout)
        except DeadlineExceeded as error:
            source.error = str(error)
            raise

    async def _fetch(self, source: Source, record: Record, place: Place) -> list[Content]:
        """One load, in a flight of its own: at a place among the requests in flight, load, keep what came."""
        size: int | None = None
        try:
            contents = await self._load_at(source, record, place)
            size = sum(content.size for content in contents)
            return contents
        finally:
            self._ahead.ended(source, record, size, record.ttl)

    async def _load_at(self, source: Source, record: Record, place: Place) -> list[Content]:
        handler = source.handler
        try:
            async with place:
                if not source.data.capabilities.read or not isinstance(handler, CanLoad):
                    raise NotSupported(f"{source.data.id} cannot be read")
                self.loads += 1
                suspicions = record.suspicions
                loaded = await handler.load(record.metadata.native_uri)
        except BbfsError as error:
            if isinstance(error, NotFound) and record.digest is not None and not record.suspected:
                record.suspect()  # it was there: whoever has it open is told
                if record.path:
                    self._tell(source.data.base_prefix, [record.path])
            # A new instance: the one that was raised holds on to all that its frames hold.
            unlisted = record.metadata.uri_template is not None
            kept = ABSENT_FOR if unlisted and isinstance(error, NotFound) else ERROR_KEPT
            record.error, record.error_until = type(error)(*error.args), self.clock() + kept
            harmless = isinstance(error, NotFound | Denied | InvalidUri)
            source.error = None if harmless else f"{record.metadata.native_uri}: {error}"
            if record.on_open or not isinstance(error, NotFound | Unreachable | LoginRequired):  # those are logged once
                log.info("%s: %s: %s", source.data.id, record.metadata.native_uri, error)
            if isinstance(error, TooLarge):
                log.warning("%s: %s: %s", source.data.id, record.metadata.native_uri, error)
            raise
        if not loaded.parts:
            raise ProtocolViolation("answered no content")
        self._require_room(source, record, loaded)
        source.error = None
        if isinstance(handler, CanWatch):
            handler.interested(record.metadata.native_uri)
        return self._keep(source, record, loaded, suspicions)

    def _require_room(self, source: Source, record: Record, loaded: Loaded) -> None:
        """A content that is whole in memory must fit the budget (S15). Raises TooLarge, which the log repeats."""
        size = sum(part.content.size for part in loaded.parts if isinstance(part.content, MemoryContent))
        if size > self.cache_bytes:
            error = TooLarge(
                f"{size} bytes are more than the memory budget of {self.cache_bytes} bytes ([cache] memory)"
            )
            record.error, record.error_until = TooLarge(*error.args), self.clock() + ERROR_KEPT
            log.warning("%s: %s: %s", source.data.id, record.metadata.native_uri, error)
            raise error

    def _keep(self, source: Source, record: Record, loaded: Loaded, suspicions: int) -> list[Content]:
        now = self.clock()
        ttl = source.data.policy.content_ttl if loaded.ttl is None else loaded.ttl
        changed: list[Path] = []
        if len(loaded.parts) == 1 and loaded.parts[0].link is None:
            content = loaded.parts[0].content
            record.settle_type(loaded.parts[0])
            if record.digest is None and record.metadata.size not in (None, content.size):
                source.misstates_sizes = True
            if self._settle(record, loaded, content, now, ttl, suspicions) or record.parts is not None:
                changed.append(record.path)
            record.parts = None
            if isinstance(content, MemoryContent) and (ttl > 0 or not record.on_open):
                self.contents.put(_content_key(record), content)
        else:
            changed = self._keep_parts(record, loaded, now, ttl, suspicions)
        if changed and record.path:
            self._tell(source.data.base_prefix, changed)
        return [part.content for part in loaded.parts]

    @staticmethod
    def _settle(record: Record, loaded: Loaded, content: Content, now: float, ttl: float, suspicions: int) -> bool:
        """Take over the version and size of a content. Says whether it is another version."""
        if loaded.metadata is None or loaded.metadata.etag is None or loaded.metadata.size is None:
            return record.learn(content.size, content.version, now, ttl, suspicions)
        before = record.salt
        record.describe(loaded.metadata, record.path, now)
        settle(record, loaded.metadata, now, ttl)
        return record.salt != before

    def _keep_parts(self, record: Record, loaded: Loaded, now: float, ttl: float, suspicions: int) -> list[Path]:
        """Several contents make a directory, each content named by its own URI. Returns the paths that changed."""
        digest = blake2b("".join(part.content.version for part in loaded.parts).encode(), digest_size=16).hexdigest()
        before = record.parts
        if before is None or record.digest != digest:
            record.parts = name_parts(record, loaded.parts, now, partial(self._link, record))
        record.digest = digest
        if record.metadata.on_open:
            self._nursery.start_soon(self._put_away_later, record, max(RESULT_KEPT, ttl))
        else:
            record.salt = digest
        record.size, record.dirty, record.error = None, True, None
        if before is not record.parts:
            for child in (record, *(record.parts or {}).values()):
                child.changed_at = now
        for child in (record, *(record.parts or {}).values()):
            child.fetched_at, child.ttl, child.stale = now, ttl, False
            child.suspected = suspicions != record.suspicions
        for child in (record.parts or {}).values():
            self.contents.put(_content_key(child), loaded.parts[child.part].content)
        if before is None:
            return [record.path]
        after = record.parts or {}
        names = before.keys() | after.keys()
        versions = ((name, before.get(name), after.get(name)) for name in names)
        return [(*record.path, n) for n, old, new in versions if (old and old.salt) != (new and new.salt)]

    def _link(self, record: Record, native_uri: str) -> str | None:
        """Where a link in the directory of `record` leads for another resource of the source; None if it has none."""
        source = self.source_of(record)
        linked = source.catalog.record(native_uri)
        path = linked.path if linked is not None and linked.path else tree.plain_path(native_uri).path
        try:
            node = source.catalog.known(path)
        except (NotFound, NotADirectory):
            return None
        there = node.record or node.candidate if node is not None else None
        if there is None or there.metadata.native_uri != native_uri or not record.path:
            return None
        start, end = self._mounted(source, record.path)[0], self._mounted(source, path)[0]
        return os.path.relpath("/".join(("", *end)), "/".join(("", *start)))

    # -- loading ahead -----------------------------------------------------------------------------------------------

    def accessed(self, path: Path, record: Record, *, wanted: bool) -> None:
        """Something wants the content at `path`: where this goes on in the order of a walk, load the next ones.

        To be called when the content is not there (`wanted`: it is loaded next), and when it was loaded ahead
        (`Record.ahead`), so that a walk goes on; other hits cost nothing.
        """
        source, below = self.place(path)
        self._ahead.accessed(source, below, record, wanted=wanted)

    # -- listing and loading by URI ----------------------------------------------------------------------------------

    def by_id(self, source_id: str) -> Source:
        """The source with this id, name, URI prefix or base prefix. Raises NotFound, naming those there are."""
        for source in self.sources.values():
            if source_id in (source.data.id, source.data.name, source.data.uri_prefix, source.data.base_prefix):
                return source
        there = ", ".join(sorted(s.data.id for s in self.sources.values())) or "none"
        raise NotFound(f"no source {source_id!r}; there are: {there}")

    async def list_resources(self, source_id: str, path: str = "", depth: int | None = None) -> list[ResourceMetadata]:
        """The resources of a source below `path` (names as the mount shows them), down to `depth` directories.

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
            for name, node in (await self.below(source, directory)).items():
                record = node.record
                if record is not None:
                    found.append(record.metadata)
                deeper = depth is None or level < depth
                if node.kind == "directory" and deeper and level < tree.MAX_DEPTH:
                    pending.append(((*directory, name), level + 1))
        return found

    async def below(self, source: Source, path: Path) -> dict[str, Node]:
        """The children of a path of the source's catalog."""
        with Waiting(source):
            return await source.catalog.children(path)

    async def record_of(self, uri: str) -> tuple[Source, Record]:
        """The record of a bbfs URI, listed or not. Raises InvalidUri, or NotFound for an unknown source."""
        parsed = parse_data_source_uri(uri)
        source = self.sources.get(parsed.base_prefix)
        if source is None:
            there = ", ".join(sorted(self.sources)) or "none"
            raise NotFound(f"no source {parsed.base_prefix!r}; there are: {there}")
        native = parsed.original_uri
        return source, source.catalog.record_of(str(parsed), native)

    async def load_resource(self, uri: str) -> LoadedResource:
        """Content and metadata of one resource, listed or not. Raises InvalidUri or the source's error."""
        _, record = await self.record_of(uri)
        if not record.path:
            record = await self._part_of(record) or record
        content = self.content_now(record)
        contents = [content] if content is not None else self._kept(record) if record.fresh(self.clock()) else None
        contents = contents or await self._contents(record)
        if record.parts is None:
            return LoadedResource(uri, self.described(record), (Part(None, record.metadata.mime_type, contents[0]),))
        parts = sorted(record.parts.values(), key=lambda part: part.part)
        return LoadedResource(
            uri,
            self.described(record),
            tuple(Part(p.metadata.native_uri, p.metadata.mime_type, contents[p.part]) for p in parts),
        )

    async def _part_of(self, unlisted: Record) -> Record | None:
        """The content among several that a URI below a listed resource names (S2, S5), or None."""
        source = self.source_of(unlisted)
        above, _, segment = unlisted.metadata.native_uri.rpartition("/")
        known = source.catalog.record(above)
        if known is not None and known.on_open:
            return (known.parts or {}).get(tree.show_component(segment))
        listed = source.catalog.records.get(above) or source.catalog.records.get(above + "/")
        if listed is None:
            return None
        if listed.parts is None:
            await self._contents(listed)
        return (listed.parts or {}).get(tree.show_component(segment))

    def described(self, record: Record) -> ResourceMetadata:
        """The metadata with what was learnt: the true size and the time of the last change."""
        m = record.metadata
        return ResourceMetadata(
            m.uri, m.native_uri, m.name, m.title, m.description, m.mime_type, m.content_type, m.uri_template,
            m.size if record.size is None else record.size, record.modified_ns, m.etag or record.digest,
            m.annotations, m.mcp_data, m.kind, m.target,
        )  # fmt: skip

    def document(self, path: Path, record: Record) -> dict[str, Any]:
        """Everything known of a resource, as one JSON object; nothing is asked of its source."""
        source = self.source_of(record)
        fresh = record.fresh(self.clock()) and not record.stale
        error = record.error or (record.parent.error if record.parent is not None else None)
        size = self.size_now(record)
        return xattrs.resource_document(
            record.metadata,
            source.data,
            path="/".join(path),
            size=record.size if size is None else size[0],
            modified_ns=record.modified_ns,
            fetched_at=record.fetched_at,
            cache="absent" if _content_key(record) not in self.contents else "fresh" if fresh else "stale",
            error=None if error is None else str(error),
        )

    def source_document(self, path: Path) -> dict[str, Any]:
        """Everything known of the source whose directory is at `path`, as one JSON object."""
        source, _ = self.place(path)
        return xattrs.source_document(source.data, source.state, source.problem, source.capabilities)

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
        places = trio.Semaphore(LOADS_AT_ONCE)

        async def load(position: int, make_uri: Callable[[], str]) -> None:
            uri = uri_template or ""
            try:
                uri = make_uri()
                async with places:
                    results[position] = await self.load_resource(uri)
            except BbfsError as error:
                results[position] = LoadedResource(uri, error=error)

        async with trio.open_nursery() as nursery:
            for position, make_uri in enumerate(asked):
                nursery.start_soon(load, position, make_uri)
        return [result for result in results if result is not None]

    # -- memory across mounts ----------------------------------------------------------------------------------------

    def _remember_listing(self, source: Source, at: float, listing: Listing, changes: Changes | None) -> None:
        self._nursery.start_soon(self._write, partial(self._listings.write, source.fingerprint, at, listing, changes))

    async def _write(self, write: Callable[[], Awaitable[None]]) -> None:
        try:
            await write()
        except Exception as error:  # noqa: BLE001 - the store is a cache: without it everything still works
            log.warning("metadata could not be remembered: %s", error)

    async def flush(self) -> None:
        """Write what was learnt since the last flush."""
        for source in self.sources.values():
            if isinstance(source.catalog, DirectoryCatalog):
                continue
            dirty = [record for record in source.catalog.held() if record.dirty]
            if dirty:
                rows = [record.to_remember() for record in dirty]
                for record in dirty:
                    record.dirty = False
                remember = partial(self._store.remember, source.fingerprint, rows)
                await self._write(partial(trio.to_thread.run_sync, remember))

    async def keep_flushing(self) -> None:
        """Runs for the life of the daemon; writes the rest when it is cancelled."""
        try:
            while True:
                await trio.sleep(FLUSH_EVERY)
                await self.flush()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
                await self.flush()


def _require_current(record: Record) -> None:
    """Raises Outdated for one of several contents that the resource no longer answers."""
    if record.parent is not None and (record.parent.parts or {}).get(record.metadata.name) is not record:
        raise Outdated(f"{record.metadata.name} is no longer a content of {record.key[1]}")


def _content_key(record: Record) -> tuple[str, str, int, str | None]:
    """Contents are kept by version: none is ever served as another. 0 is the resource, its parts count from 1."""
    return (*record.key, 0 if record.parent is None else record.part + 1, record.digest)


def _split_scheme(name: str) -> tuple[str, str, str]:
    """`a-b+c+git+ssh` → (`a-b+c`, `+`, `git+ssh`): a scheme may hold `+`, the rest of a prefix one only."""
    parts = name.split("+", 2)
    return ("+".join(parts[:2]), "+", parts[2]) if len(parts) == 3 else (name, "", "")
