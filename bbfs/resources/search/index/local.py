"""The local index at work: it learns what passes through the cache, follows changes, and searches.

Words are indexed first; then come the vectors of the chunks, if something makes them.

The database is opened at the first use. Reading and writing happen in threads of their own; between two awaits a task
is alone. Without a usable database everything else still works.
"""

import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Literal, TypeVar

import trio

from bbfs.model.errors import BbfsError, Busy, DeadlineExceeded, NotFound, Unreachable
from bbfs.model.values import Change, Content, ResourceMetadata
from bbfs.resources.cache.sqlite import BUSY_TIMEOUT
from bbfs.resources.catalog.record import Node, Path, Record
from bbfs.resources.search.index.covered import CoveredDirectories
from bbfs.resources.search.index.entries import (
    LARGEST_TEXT,
    Answer,
    Candidates,
    Document,
    Entry,
    IndexUsage,
    Known,
    Remove,
    Seen,
    Stale,
)
from bbfs.resources.search.index.meaning import Meaning
from bbfs.resources.search.index.waiting import Learnt, Waiting, write_all
from bbfs.resources.source import Source
from bbfs.sources.documents.converter import TEXT_SUFFIX, DocumentReader, kind_of

if TYPE_CHECKING:
    from bbfs.resources.search.index.store import IndexStore
    from bbfs.resources.search.literals import Query
    from bbfs.sources.embeddings.embedder import Embedder

log = logging.getLogger(__name__)

T = TypeVar("T")
BEHIND = 0.3
"""Seconds from the first entry to its transaction: programs that wait for their sources have the processors first."""
SEARCH_WITHIN = 5.0
"""Seconds for one question to the database."""
MOST_PATHS = 1000
"""Paths of one change that are looked up."""
LOOKED_EVERY = 5.0
"""Seconds between two looks for sources that other processes have indexed."""
AGAIN_AFTER, AGAIN_AT_LATEST = 5.0, 300.0
"""Seconds to the next attempt after a failure to make vectors: the first, and at most."""
_COMPLAINED_EVERY = 60.0
_STORE = "bbfs.resources.search.index.store"
"""Imported when there is a database, in a thread: that takes a while, and most processes have none."""
_TEXT_OF = "text of "
"""Begins the version of a document that is indexed as text."""


def stamp_of(metadata: ResourceMetadata) -> str | None:
    """Return the version of a content as its description states it, or None if it states none."""
    if metadata.etag is not None:
        return metadata.etag
    return None if metadata.modified_ns is None else f"{metadata.size}-{metadata.modified_ns}"


def _opened(path: FilePath, max_bytes: int) -> "IndexStore":
    return import_module(_STORE).IndexStore(path, max_bytes)


@dataclass(frozen=True, slots=True)
class _Unread:
    """A loaded document that waits to be read as text. owner: the id of its source."""

    entry: Document
    content: Content
    kind: str
    owner: str


class LocalIndex:
    """The index of one process, for all its sources but those that forbid it.

    path: the database. max_bytes: its budget; 0 turns the index off. clock: seconds since the epoch. embedder: makes
    vectors; the caller closes it. documents: reads documents as text; without it, they are left out. waiting:
    the entries until they are written. again_after: seconds after the first failure to make vectors.
    """

    def __init__(
        self,
        path: FilePath,
        max_bytes: int,
        *,
        clock: Callable[[], float],
        embedder: "Embedder | None" = None,
        documents: DocumentReader | None = None,
        waiting: Waiting | None = None,
        again_after: float = AGAIN_AFTER,
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._clock = clock
        self._sources: dict[str, Source] = {}
        self._ids: dict[str, str] = {}
        self._store: IndexStore | None = None
        self._opening = trio.Lock()
        self._flushing = trio.Lock()
        self._meaning = Meaning(path, embedder, self._writer, self._read, self._complain)
        self._reading = trio.CapacityLimiter(2)
        self._writing = trio.CapacityLimiter(1)
        self._waiting, self._again_after = Waiting() if waiting is None else waiting, again_after
        self._documents = documents
        self._unread: deque[_Unread] = deque()
        self._came = trio.Event()
        self._being_read: dict[tuple[str, str], Document] = {}
        self._written = trio.Event()
        self._having: frozenset[str] = frozenset()
        self._complained = -_COMPLAINED_EVERY
        self.covered = CoveredDirectories()
        self.follow: Callable[[], object] | None = None
        """Subscribes `changed` to the changes of all sources. It is called once, when there is something to index."""

    @property
    def without_meaning(self) -> str | None:
        """Why there is no search by meaning, or None."""
        return self._meaning.lacks

    # -- sources -----------------------------------------------------------------------------------------------------

    def add(self, source: Source) -> None:
        """Take in a source, unless it forbids the index."""
        if source.data.index is not False and self._max_bytes > 0:
            self._sources[source.data.id] = source
            self._ids[source.fingerprint] = source.data.id
            if source.data.index:
                self._follow()

    def remove(self, source: Source) -> None:
        """Let a source go. Its documents stay in the index, for a later source with the same definition."""
        if self._sources.get(source.data.id) is source:
            del self._sources[source.data.id]
            self._ids.pop(source.fingerprint, None)

    def _follow(self) -> None:
        if self.follow is not None:
            self.follow()
            self.follow = None

    def covers(self, source_id: str) -> bool:
        """Return whether the index has, or is getting, the contents of a source."""
        source = self._sources.get(source_id)
        return source is not None and (source.data.index is True or source.fingerprint in self._having)

    def has_none_of(self, source_id: str) -> bool:
        """Return whether no document of a source is in the index, as far as it was looked at."""
        source = self._sources.get(source_id)
        return source is None or source.fingerprint not in self._having

    async def open(self, *, make: bool = False) -> "IndexStore | None":
        """Return the database, or None if there is none yet. make: make it. Raise Unreachable."""
        async with self._opening:
            if self._store is None and self._max_bytes > 0 and (make or self._path.exists()):
                try:
                    self._store = await trio.to_thread.run_sync(_opened, self._path, self._max_bytes)
                except (OSError, sqlite3.Error) as error:
                    raise Unreachable(f"the index: {error}") from error
                self._meaning.check(self._store)
                await self._look()
        return self._store

    async def aclose(self) -> None:
        """Write what waits, and close the database."""
        try:
            await self.flush()
        except BbfsError as error:
            log.warning("%s", error)
        if self._store is not None:
            store, self._store = self._store, None
            await trio.to_thread.run_sync(store.close, abandon_on_cancel=True, limiter=self._writing)

    # -- learning ----------------------------------------------------------------------------------------------------

    def learn(self, source: Source, record: Record, content: Content) -> bool:
        """Queue a loaded content, if it may be text and there is room. Return whether it is queued."""
        entry, kind, size = self._entry(source, record), self.kind_of(record.metadata), content.size
        if entry is None or (kind is None and size > LARGEST_TEXT):
            return False
        if not self._waiting.has_room(size, len(self._unread)):
            self._complain("documents come faster than they can be indexed: some are left out")
            return False
        if kind is not None:
            self._unread.append(_Unread(entry, content, kind, source.data.id))
            self._came.set()
        else:
            data = content.read(0, size)
            if data is None or len(data) != size:
                return False
            self._waiting.put(Learnt(entry, data))
        self._waiting.bytes += size
        return True

    async def learn_now(self, source: Source, record: Record, content: Content) -> bool:
        """As `learn`, but read a document as text before it returns. Raise BbfsError where that fails."""
        entry, kind = self._entry(source, record), self.kind_of(record.metadata)
        if entry is None or kind is None:
            return self.learn(source, record, content)
        await self._read_document(_Unread(entry, content, kind, source.data.id))
        return True

    def kind_of(self, metadata: ResourceMetadata) -> str | None:
        """Return the kind of a document whose text is indexed instead of its bytes, or None for any other resource."""
        return None if self._documents is None else self._documents.kind_of_binary(metadata)

    def largest(self, metadata: ResourceMetadata) -> int:
        """Return the bytes of the largest resource of its kind that is indexed."""
        is_text = self._documents is None or self.kind_of(metadata) is None
        return LARGEST_TEXT if is_text or self._documents is None else self._documents.bounds.max_size

    def _entry(self, source: Source, record: Record) -> Document | None:
        """Return the entry of a loaded resource, without its text, or None if it is not indexed."""
        metadata, version = record.metadata, self._version(record)
        if version is None or record.on_open or record.parent is not None or source.leaves_aside(metadata.native_uri):
            return None
        name = metadata.name if self.kind_of(metadata) is None else metadata.name + TEXT_SUFFIX
        if kind_of(metadata) == "html":
            name = "page.html"  # whatever its name is
        title = metadata.title or metadata.name
        stamp, uri = stamp_of(metadata), metadata.native_uri
        return Document(source.fingerprint, uri, version, stamp, title, name, "", metadata.modified_ns)

    def _version(self, record: Record) -> str | None:
        """Return the version of what is indexed of a resource.

        That of a document is no version of its bytes: `bbfs grep` has to read these, whatever words the text has.
        """
        is_text = record.digest is None or self.kind_of(record.metadata) is None
        return record.digest if is_text else f"{_TEXT_OF}{record.digest}"

    async def _keep_reading(self) -> None:
        """Read the documents that wait as text, one after the other, until cancelled."""
        while True:
            await self._came.wait()
            self._came = trio.Event()
            while self._unread:
                document = self._unread.popleft()
                try:
                    await self._read_document(document)
                except BbfsError as error:
                    log.info("not indexed: %s", error)
                finally:
                    self._waiting.bytes -= document.content.size

    async def _read_document(self, document: _Unread) -> None:
        """Read a document as text and queue that, unless the index has this version already. Raise BbfsError.

        Drop the text if the document changes meanwhile.
        """
        entry = document.entry
        key = entry.source, entry.uri
        await self.flush()  # a mark that it has changed must come first
        store = await self.open()
        if store is not None and await self._writer(partial(store.confirmed, entry, self._clock())):
            return
        assert self._documents is not None
        self._being_read[key] = entry
        try:
            text = await self._documents.text(document.content, document.kind, owner=document.owner, what=entry.name)
        finally:
            is_current = self._being_read.pop(key, None) is not None
        if is_current:
            self._waiting.bytes += len(text)
            self._waiting.put(Learnt(entry, text))

    def changed(self, change: Change, last_cached: Callable[[Path], Node | None]) -> None:
        """Take in a change at a source: documents that may differ are out of the results from now on.

        last_cached: returns the node at a path from the mount's root, or None.
        """
        source = self._sources.get(change.source_id)
        if source is None or not self.covers(change.source_id):
            return
        if change.uri is not None and change.event == "changed":
            self._mark(Stale(source.fingerprint, change.uri))
        elif change.uri is None:
            for path in islice(change.paths, MOST_PATHS):
                try:
                    node = last_cached(path) if path else None
                except NotFound:
                    continue
                if node is not None and node.record is not None:
                    self._compare(source, node.record)

    def gone(self, source: Source, uris: Iterable[str]) -> None:
        """Remove documents that a source does not list any more."""
        if self.covers(source.data.id):
            for uri in uris:
                self._mark(Remove(source.fingerprint, uri))

    def _compare(self, source: Source, record: Record) -> None:
        """Compare a resource whose description or content may have changed with what was indexed."""
        metadata = record.metadata
        version = None if record.invalidated else self._version(record)
        self._mark(Seen(source.fingerprint, metadata.native_uri, version, stamp_of(metadata)))

    def _mark(self, entry: Stale | Seen | Remove) -> None:
        """Queue a mark. A document that is being read is dropped if the mark is about it."""
        key = entry.source, entry.uri
        read = self._being_read.get(key)
        if read is not None and not (
            isinstance(entry, Seen) and entry.version in (None, read.version) and entry.stamp in (None, read.stamp)
        ):
            del self._being_read[key]
        if isinstance(entry, Seen):
            self._waiting.put(entry)
        else:
            self._waiting.mark(entry)

    async def run(self) -> None:
        """Write what was learnt, and make its vectors, again and again, until cancelled."""
        async with trio.open_nursery() as nursery:
            if self._meaning.has_model:
                nursery.start_soon(self._keep_embedding)
            if self._documents is not None:
                nursery.start_soon(self._keep_reading)
            await self._keep_writing()

    async def _keep_writing(self) -> None:
        try:
            await self.open()
        except Unreachable as error:
            self._complain(str(error))
        while True:
            is_unread = self._store is not None and self._store.unread > 0
            with trio.move_on_after(BEHIND if is_unread else LOOKED_EVERY):
                await self._waiting.came.wait()
                await trio.sleep(BEHIND)
            try:
                await self.flush()
                await self._look()
            except BbfsError as error:
                self._complain(str(error))

    async def _keep_embedding(self) -> None:
        pause = self._again_after
        while True:
            written = self._written
            try:
                await self.embed()
            except BbfsError as error:
                self._complain(f"no vectors for the index: {error}; the next attempt is in {pause:g} s")
                await trio.sleep(pause)
                pause = min(pause * 2, AGAIN_AT_LATEST)
            else:
                pause = self._again_after
                with trio.move_on_after(LOOKED_EVERY):
                    await written.wait()

    async def embed(self) -> None:
        """Make the vectors that are missing, unless documents wait to be written. Raise BbfsError."""
        store = await self.open()
        if store is not None:
            await self._meaning.make(store, lambda: bool(self._waiting))

    async def flush(self) -> None:
        """Write all that waits. Raise BbfsError."""
        async with self._flushing:  # one at a time: a mark must come after the document that it is about
            while self._waiting:
                taken = self._waiting.take()
                try:
                    await self._write(taken)
                except (Busy, trio.Cancelled):  # another process writes, or this one ends: not lost, but later
                    self._waiting.give_back(taken)
                    raise
                self._waiting.written(taken)
            self._waiting.came = trio.Event()
            written, self._written = self._written, trio.Event()
            written.set()

    async def _write(self, taken: Sequence[Learnt | Entry]) -> None:
        store = await self.open(make=any(isinstance(each, Learnt) for each in taken))
        if store is not None:
            await self._writer(partial(write_all, store, taken, self._clock()))
            self._having |= {each.entry.source for each in taken if isinstance(each, Learnt)}

    async def write(self, entries: Sequence[Entry]) -> int:
        """Write entries now. Return the number of documents left out because the index is full. Raise BbfsError."""
        store = await self.open(make=True)
        if store is None:
            return 0
        left_out = await self._writer(partial(store.write, entries, self._clock()))
        self._having |= {entry.source for entry in entries if isinstance(entry, Document)}
        return left_out

    @property
    def waiting(self) -> int:
        """The number of entries that wait to be written."""
        return len(self._waiting)

    async def walking(self, source: Source, since: float, *, ended: bool = False) -> None:
        """Note that a walk over a source, which began then, goes on or has ended. Raise BbfsError."""
        store = await self.open(make=True)
        if store is not None:
            await self._writer(partial(store.walking, source.fingerprint, since, ended=ended))
            if ended:
                self._having |= {source.fingerprint}

    async def _writer(self, work: Callable[[], T]) -> T:
        try:
            return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._writing)
        except (OSError, sqlite3.Error) as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise Busy(f"the index: another process has written to it for {BUSY_TIMEOUT:g} s") from error
            raise Unreachable(f"the index cannot be written: {error}") from error

    def _complain(self, text: str) -> None:
        if self._clock() - self._complained >= _COMPLAINED_EVERY:
            self._complained = self._clock()
            log.warning("%s", text)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def _read(self, work: Callable[[], T]) -> T:
        try:
            return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._reading)
        except TimeoutError as error:
            raise DeadlineExceeded(str(error)) from None
        except (OSError, sqlite3.Error) as error:
            raise Unreachable(f"the index cannot be read: {error}") from error

    async def _look(self) -> None:
        if self._store is not None:
            if self._store.unread:
                await self._writer(partial(self._store.read_again, BEHIND))
            await self._note_sources(self._store)

    async def _note_sources(self, store: "IndexStore") -> None:
        self._having = frozenset(await self._read(store.fingerprints))
        if not self._having.isdisjoint(self._ids):
            self._follow()

    async def look(self) -> None:
        """Take in which sources other processes have indexed meanwhile. The search itself says what fails."""
        with suppress(BbfsError):
            if (store := await self.open()) is not None:
                await self._note_sources(store)

    async def search(
        self, query: str, limit: int, *, sources: Collection[str], mode: Literal["words", "meaning"] = "words"
    ) -> Answer:
        """Return at most `limit` hits in the sources with these ids, each with its source's id. Raise BbfsError."""
        store = await self.open()
        if store is None:
            return Answer([])
        asked = [self._sources[each].fingerprint for each in sources if each in self._sources]
        most = limit + min(sum(self._waiting.marked.values()), limit)
        if mode == "meaning":
            found = Answer(await self._meaning.nearest(store, query, most, asked, SEARCH_WITHIN))
        else:
            found = await self._read(partial(store.search, query, most, asked, SEARCH_WITHIN))
        marked = self._waiting.marked
        hits = [(self._ids[key], hit) for key, hit in found.hits if not marked[key, hit.native_uri]][:limit]
        return Answer(hits, found.said)

    async def candidates(self, source: Source, query: "Query", *, versions: bool = False) -> Candidates | None:
        """Return the documents of a source that may match a pattern; None if it is not in the index. Raise BbfsError.

        A change that waits to be written counts as one that may match. versions: return the versions of all documents
        as well, but those of documents indexed as text.
        """
        store = await self.open() if source.data.id in self._sources else None
        if store is None:
            return None
        fingerprint = source.fingerprint
        found = await self._read(partial(store.candidates, fingerprint, query, SEARCH_WITHIN, versions=versions))
        if found.uris is None:
            return found
        changed = {uri for owner, uri in self._waiting.marked if owner == fingerprint}
        known = found.versions
        plain = None if known is None else {uri: at for uri, at in known.items() if not at.startswith(_TEXT_OF)}
        return Candidates(found.state, found.uris | changed, plain)

    async def indexed(self, source: Source, most: int | None = None) -> Known:
        """Return what the index has of a source. Raise BbfsError. most: as `IndexReader.indexed`."""
        store = await self.open()
        return Known() if store is None else await self._read(partial(store.indexed, source.fingerprint, most))

    async def usage(self) -> Sequence[IndexUsage]:
        """Return the sources in the index. Raise BbfsError."""
        store = await self.open()
        return [] if store is None else await self._read(store.usage)
