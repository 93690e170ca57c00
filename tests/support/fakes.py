"""Fakes for tests of the core: scripted sources, a clock that a test turns, and a kernel that counts its lookups."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import trio
import trio.testing

from bbfs.model.errors import BbfsError, NotADirectory, NotFound, NotSupported, Outdated
from bbfs.model.uri import source_uri
from bbfs.model.values import (
    Change,
    Completion,
    DataSource,
    Hit,
    Listing,
    Loaded,
    Part,
    Policy,
    ResourceMetadata,
    ResourceTemplate,
    SourceState,
)
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.cache.tier import SharedTier
from bbfs.resources.catalog.record import ROOT
from bbfs.resources.manager import ResourceManager
from bbfs.resources.writing.pending import PendingStore
from bbfs.sources import Handler
from bbfs.sources.content.memory import MemoryContent
from bbfs.vfs.file_handles import Attributes
from bbfs.vfs.filesystem import FileSystem
from bbfs.vfs.names import Aim, answered

MEMORY = 1 << 20
STARTED = 1_700_000_000.0
"""When a fake clock begins, in seconds since the epoch."""


class Clock:
    """The wall clock of a ResourceManager, which moves only when a test says so."""

    def __init__(self, now: float = STARTED) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


UP = SourceState("up")


def data_source(
    prefix: str = "mcp-server+docs",
    *,
    config: Mapping[str, Any] | None = None,
    auth: Mapping[str, Any] | None = None,
    **policy: Any,
) -> DataSource:
    """A data source of the given URI prefix; its id is its name."""
    base, name = prefix.split("+")[:2]
    method, _, kind = base.partition("-")
    policed = Policy(**policy)
    return DataSource(name, name, kind, method, prefix, policy=policed, config=config or {}, auth=auth or {})  # type: ignore[arg-type]


def several(*parts: tuple[str | None, bytes], mime_type: str | None = "text/plain") -> tuple[Part, ...]:
    """Contents for `Scripted.contents`: each with a URI of its own, or None."""
    return tuple(Part(uri, mime_type, MemoryContent(data), "text") for uri, data in parts)


def of(*uri_templates: str) -> list[ResourceTemplate]:
    """Templates for `FlatSource.templates`."""
    return [ResourceTemplate(each, each) for each in uri_templates]


@dataclass
class Scripted:
    """What both scripted sources share. A test sets the answers and reads the counters.

    contents: what a load answers, by native URI. described: fields of the metadata, by native URI.
    down: what every request ends with instead. gates: requests for this URI (`LISTING`: listings) wait for the event.
    loaded, listed: what was asked for, in order. busiest: the most requests that were under way at once.
    """

    source: DataSource = field(default_factory=data_source)
    state: SourceState = UP
    contents: dict[str, bytes | tuple[Part, ...] | BbfsError | Exception] = field(default_factory=dict)
    described: dict[str, dict[str, Any]] = field(default_factory=dict)
    down: BbfsError | None = None
    gates: dict[str, trio.Event] = field(default_factory=dict)
    listing_ttl: float | None = None
    content_ttl: float | None = None
    problem: str | None = None
    loaded: list[str] = field(default_factory=list)
    listed: list[tuple[str, ...]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    under_way: int = 0
    busiest: int = 0

    LISTING = "(listing)"

    def hold(self, uri: str) -> trio.Event:
        """From now on requests for `uri` wait until the event is set."""
        self.gates[uri] = trio.Event()
        return self.gates[uri]

    def release(self, uri: str) -> None:
        self.gates.pop(uri).set()

    async def _request(self, uri: str) -> None:
        self.under_way += 1
        self.busiest = max(self.busiest, self.under_way)
        try:
            await trio.lowlevel.checkpoint()
            if (gate := self.gates.get(uri)) is not None:
                await gate.wait()
        except trio.Cancelled:
            self.cancelled.append(uri)
            raise
        finally:
            self.under_way -= 1
        if self.down is not None:
            raise self.down

    def metadata(self, uri: str, **fields: Any) -> ResourceMetadata:
        name = uri.rstrip("/").rpartition("/")[2] or uri
        given = {"mime_type": "text/plain", **self.described.get(uri, {}), **fields}
        return ResourceMetadata(source_uri(self.source.base_prefix, uri), uri, name, **given)

    async def load(self, native_uri: str) -> Loaded:
        self.loaded.append(native_uri)
        answer = self.contents.get(native_uri, NotFound(native_uri))
        await self._request(native_uri)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, bytes):
            answer = (Part(None, "text/plain", MemoryContent(answer), "text"),)
        return Loaded(answer, self.content_ttl)

    @property
    def loads(self) -> Counter[str]:
        return Counter(self.loaded)


@dataclass
class FlatSource(Scripted):
    """CanList, CanLoad and CanWatch. unlisted: URIs that load but that no listing holds."""

    unlisted: set[str] = field(default_factory=set)
    templates: list[ResourceTemplate] = field(default_factory=list)
    watched: set[str] = field(default_factory=set)
    _sink: Callable[[Change], None] = field(default=lambda event: None)

    async def list(self) -> Listing:
        self.listed.append(())
        resources = tuple(self.metadata(uri) for uri in self.contents if uri not in self.unlisted)
        await self._request(self.LISTING)
        return Listing(resources, self.listing_ttl, self.problem, tuple(self.templates))

    def watch(self, sink: Callable[[Change], None]) -> None:
        self._sink = sink

    def interested(self, native_uri: str) -> None:
        self.watched.add(native_uri)

    def announce(self, uri: str | None = None, *, missed: bool = False) -> None:
        """Report to the sink that a resource (or the listing) changed, or that changes of it may have been missed."""
        event = "missed" if missed else "changed" if uri is not None else "listed"
        self._sink(Change(self.source.id, event, uri))

    def template(self, uri_template: str, **fields: Any) -> None:
        """Have one more template."""
        self.templates.append(ResourceTemplate(uri_template, uri_template, **fields))


@dataclass
class CompletingSource(FlatSource):
    """A FlatSource that completes. values: of each variable; page: how many it answers at most; final: as it says.

    completions: what was asked for: variable, value and context.
    """

    values: dict[str, list[str]] = field(default_factory=dict)
    page: int = 100
    final: bool = False
    completions: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    COMPLETING = "(completion)"

    async def complete(self, uri_template: str, variable: str, value: str, context: Mapping[str, str]) -> Completion:
        self.completions.append((variable, value, dict(context)))
        await self._request(self.COMPLETING)
        found = [known for known in self.values.get(variable, ()) if known.startswith(value)]
        return Completion(tuple(found[: self.page]), len(found) > self.page, self.final)


@dataclass
class SearchingSource(FlatSource):
    """A FlatSource with a search. hits: its answer. searched: the queries, in order. by_meaning: as the ability."""

    hits: list[Any] = field(default_factory=list)
    searches: bool | None = True
    by_meaning: bool = False
    searched: list[str] = field(default_factory=list)
    SEARCHING = "(search)"

    async def search(self, query: str, limit: int) -> Sequence[Hit]:
        self.searched.append(query)
        await self._request(self.SEARCHING)
        if self.searches is None:
            self.searches = bool(self.hits)
        if not self.searches:
            raise NotSupported("no search")
        return self.hits


@dataclass
class TreeSource(Scripted):
    """CanListDirectory, CanStat and CanLoad: `contents` has URIs `file:./a/b`; a directory is what has something below.

    links: targets of symbolic links, by URI. etags: whether metadata has an etag, as a good hierarchical source gives.
    start: what the URIs of the root's entries begin with.
    """

    source: DataSource = field(default_factory=lambda: data_source("bb-scripted+tree+file"))
    links: dict[str, str] = field(default_factory=dict)
    etags: bool = True
    start: str = "file:./"
    stated: list[str] = field(default_factory=list)

    def metadata(self, uri: str, **fields: Any) -> ResourceMetadata:
        answer = self.contents.get(uri)
        if uri in self.links:
            fields = {"kind": "symlink", "target": self.links[uri], **fields}
        elif isinstance(answer, bytes):
            etag = MemoryContent(answer).version if self.etags else None
            fields = {"size": len(answer), "etag": etag, **fields}
        elif answer is None:
            fields = {"kind": "directory", "mime_type": None, **fields}
        return super().metadata(uri, **fields)

    async def list_directory(self, path: tuple[str, ...]) -> Listing:
        self.listed.append(path)
        await self._request(self.LISTING)
        start = self.start + "".join(f"{name}/" for name in path)
        below = [uri.removeprefix(start) for uri in (*self.contents, *self.links) if uri.startswith(start)]
        if path and not below:
            raise NotFound("/".join(path))
        names = dict.fromkeys(rest.partition("/")[0] for rest in below)
        return Listing(tuple(self.metadata(start + name) for name in names), self.listing_ttl)

    async def load(self, native_uri: str) -> Loaded:
        loaded = await super().load(native_uri)
        return replace(loaded, metadata=self.metadata(native_uri)) if self.etags else loaded

    async def stat(self, native_uri: str) -> ResourceMetadata:
        self.stated.append(native_uri)
        await self._request(native_uri)
        if native_uri not in self.contents:
            raise NotFound(native_uri)
        return self.metadata(native_uri)


class Files:
    """The requests of a FileSystem; those that may have to wait do, as they do for the adapter."""

    WAITING = ("lookup", "getattr", "readlink", "opendir", "open", "read", "getxattr", "listxattr")

    def __init__(self, core: FileSystem) -> None:
        self.core = core

    def held(self) -> tuple[int, int, int]:
        """Inodes (without the root), open files and open directories that the file system still holds."""
        return len(self.core.inodes) - 1, len(self.core.handles), len(self.core.directories)

    def __getattr__(self, name: str) -> Any:
        places: tuple[object, ...] = (self.core, self.core.names, self.core.open_files)
        ask = getattr(next((place for place in places if hasattr(place, name)), self.core.directories), name)
        if name not in self.WAITING:
            return ask

        async def asked(*arguments: Any, **more: Any) -> Any:
            request = partial(ask, **more)
            return await answered(request(*arguments), request, *arguments)

        return asked


class Kernel:
    """What the kernel does with a file system: lookups, which it counts, and one more try when an inode is outdated."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.references: Counter[int] = Counter()

    async def lookup(self, parent: int, name: str, aim: Aim = Aim.OTHER) -> Attributes:
        async def asker() -> Aim:
            return aim

        found = await self.files.lookup(parent, name.encode("utf-8", "surrogateescape"), asker=asker)
        if found.ino:
            self.references[found.ino] += 1
        return found

    async def walk(self, path: str, aim: Aim = Aim.OTHER) -> Attributes:
        """The attributes that LOOKUP gives. Raises NotFound. aim: of the lookup of the last name."""
        found = Attributes(ROOT, "directory", 0, 0, 0.0, 0.0)
        names = path.split("/") if path else []
        for number, name in enumerate(names, 1):
            if found.kind == "directory" and found.ino != ROOT and found.attr_timeout == 0:
                found = await self.files.getattr(found.ino)  # its permissions are to be known to walk through it
            if found.kind != "directory":
                raise NotADirectory(path)
            found = await self.lookup(found.ino, name, Aim.PASSES if number < len(names) else aim)
            if found.ino == 0:
                raise NotFound(path)
        return found

    async def again(self, path: str, request: Callable[[int], Any]) -> Any:
        for _ in range(3):
            try:
                return await request((await self.walk(path)).ino)
            except Outdated:
                continue
        return await request((await self.walk(path)).ino)

    async def stat(self, path: str) -> Attributes:
        """LOOKUP, then GETATTR."""
        return await self.again(path, self.files.getattr)

    async def open(self, path: str) -> int:
        """A handle, without a GETATTR before it, unless it seems to be a directory."""
        for _ in range(3):
            found = await self.walk(path)
            try:
                if found.kind == "directory":
                    await self.files.getattr(found.ino)
                return await self.files.open(found.ino)
            except Outdated:
                continue
        return await self.files.open((await self.walk(path)).ino)

    async def read(self, handle: int) -> bytes:
        """All bytes that a handle pins, in two steps."""
        files = self.files
        first = files.core.open_files.read(handle, 0, 3)
        assert isinstance(first, bytes)
        return first + await files.read(handle, len(first), 1 << 20)

    async def cat(self, path: str) -> bytes:
        handle = await self.open(path)
        try:
            return await self.read(handle)
        finally:
            self.files.release(handle)

    async def ls(self, path: str = "") -> list[str]:
        """The names of a directory, by OPENDIR, READDIRPLUS (which counts) and RELEASEDIR."""
        return [name for name, _ in await self.entries(path)]

    async def entries(self, path: str = "") -> list[tuple[str, Attributes]]:
        handle = await self.again(path, self.files.opendir)
        found: list[tuple[str, Attributes]] = []
        shared = self.files.directories[handle].listed
        for name, attributes, _ in self.files.readdir(handle, 0):
            if name not in (b".", b".."):
                self.references[attributes.ino] += 1
                found.append((name.decode(), replace(attributes) if attributes is shared else attributes))
        self.files.releasedir(handle)
        return found

    async def xattr(self, path: str, name: str) -> str:
        return (await self.files.getxattr((await self.walk(path)).ino, name.encode())).decode()

    def forget_all(self) -> None:
        """Give every reference back, as an unmount does."""
        for ino, count in self.references.items():
            self.files.forget(ino, count)
        self.references.clear()


class World:
    """Sources at work under a file system, and what the kernel was told to forget."""

    def __init__(
        self,
        nursery: trio.Nursery,
        *handlers: Handler,
        store: MetadataStore | None = None,
        memory: int = MEMORY,
        clock: Clock | None = None,
        disk: DiskCache | None = None,
        shared: SharedTier | None = None,
        is_lower: bool = False,
    ) -> None:
        self.clock = clock or Clock()
        self.handlers = handlers
        self._store = store
        self.store = store or MetadataStore(None)
        self._pending = Path(tempfile.gettempdir()) / f"bbfs-pending-{uuid4().hex}"
        self.manager = ResourceManager(
            nursery,
            cache_bytes=memory,
            store=self.store,
            disk=disk,
            shared=shared,
            pending=PendingStore(self._pending),
            clock=self.clock,
            is_lower=is_lower,
        )
        self.told: list[tuple[int, bytes]] = []
        self.core = FileSystem(
            self.manager,
            lambda parent, name: self.told.append((parent, name)),
            lambda change: self.told.extend(name for names in self.core.held_below(change) for name in names),
            lambda _: None,
        )
        self.files = Files(self.core)
        self.kernel = Kernel(self.files)

    async def __aenter__(self) -> "World":
        for handler in self.handlers:
            await self.manager.add(handler.source, handler)
        await self.manager.start()
        self.told.clear()  # a daemon has its sources before its kernel
        return self

    async def __aexit__(self, *_: object) -> None:
        with trio.CancelScope(shield=True):
            await settled()
        if self._store is None:
            self.store.close()
        shutil.rmtree(self._pending, ignore_errors=True)

    def forgotten(self) -> list[str]:
        """The names that the kernel was told to forget since the last call, sorted."""
        names = sorted(name.decode() for _, name in self.told)
        self.told.clear()
        return names


async def settled() -> None:
    """Until every task waits and no thread works: requests and writes begun behind the reader's back have ended."""
    while True:
        await trio.testing.wait_all_tasks_blocked()
        if not trio.testing.active_thread_count():
            return
        await trio.lowlevel.checkpoint()


async def until(condition: Callable[[], object]) -> None:
    """Until something holds, where threads of the disk are part of it."""
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - it sets no event
            await trio.sleep(0.001)


def uris(count: int, start: str = "x://d/") -> Iterable[str]:
    return (f"{start}{number:04}" for number in range(count))
