"""Changes at the sources: hands over what was written, and shows at once what a source has now.

A request runs in a task of its own: a program that is killed meanwhile does not stop it halfway. Every content is on
disk as a pending write before its source is asked, and until it has stored it.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import trio

from bbfs.model.errors import (
    BbfsError,
    Busy,
    Conflict,
    Denied,
    Exists,
    IsADirectory,
    NoSpace,
    NotADirectory,
    NotEmpty,
    NotFound,
    NotSupported,
    ReadOnly,
    Rejected,
    TooLarge,
)
from bbfs.model.uri import source_uri
from bbfs.model.uri_paths import plain_path
from bbfs.model.values import Expected, Labels, Loaded, Part, ResourceMetadata, WriteOperation
from bbfs.resources.cache.metadata import Remembered
from bbfs.resources.catalog.record import Path, Record, publish_description, record_node
from bbfs.resources.loading.loader import ContentLoader
from bbfs.resources.loading.publish import Publisher
from bbfs.resources.loading.tiers import Load
from bbfs.resources.requests import SingleFlight
from bbfs.resources.source import Source
from bbfs.resources.writing.comparison import (
    LARGEST_ATTEMPT,
    PIECE,
    Attempts,
    content_digest,
    present,
    require_state,
    require_steady,
    require_stored,
)
from bbfs.resources.writing.pending import LEFT, PendingStore, PendingWrite, new_id
from bbfs.resources.writing.staging import Staging
from bbfs.sources import (
    CanDescribe,
    CanMakeDirectories,
    CanRename,
    CanSetTime,
    CanStage,
    CanStat,
    CanWrite,
    WritesUnseen,
)
from bbfs.sources.content.buffer import BufferSpace, Written
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import MemoryContent

log = logging.getLogger(__name__)
T = TypeVar("T")
Writable: TypeAlias = MemoryContent | Written | StoredContent
"""A content that can be kept as a pending write."""

SLOWEST = 256 << 10
"""Bytes a second: the time that a write may take grows by its size at this rate."""
DROPPED_EVERY = 2.0
"""Seconds between two looks whether a user has dropped what a source is taking."""
_REFUSALS = (Busy, Denied, NoSpace, NotEmpty, NotSupported, ReadOnly, Rejected, TooLarge)
"""Errors after which a source has the names that it had, and those that its last listing had."""


_NO_LABELS = Labels()


@dataclass(frozen=True, slots=True)
class HandOver:
    """A content for a source.

    expected: the state that it replaces. is_again: the source may have taken it before, and only the answer was lost.
    staged: where the source has the bytes already (`CanStage`). labels: the description of the writer (`CanDescribe`).
    """

    source: Source
    handler: CanWrite
    native_uri: str
    content: Writable
    expected: Expected
    is_again: bool = False
    staged: str | None = None
    labels: Labels = _NO_LABELS

    async def store(self, state: Expected) -> ResourceMetadata:
        """Let the source store the content. state: as `expected`, with what a comparison has told. Raise BbfsError."""
        with self.source.changing():
            if self.staged is not None and isinstance(self.handler, CanStage):
                return await self.handler.write_staged(self.staged, self.native_uri, self.content, state)
            if self.labels and isinstance(self.handler, CanDescribe):
                return await self.handler.write_described(self.native_uri, self.content, state, self.labels)
            return await self.handler.write(self.native_uri, self.content, state)

    @property
    def detects(self) -> bool:
        """Return whether the source compares the expected state itself."""
        source, is_new = self.source, self.expected.exists is False
        return self.handler.detects_conflicts or (is_new and source.looks is not None and source.looks.detects_existing)


class HandedOver(NamedTuple):
    """A content that a source has stored.

    record: of the resource, as the mount shows it now. state: what the next write of the same program replaces: this
    content, by the version in the answer to the write and by its digest. A later description never changes `state`.
    """

    record: Record
    state: Expected


class Writer:
    """Writes to the sources of one manager.

    changed: called with a source and the changed paths of its catalog. wrote: as `changed`, for what the writer itself
    has changed. mounted: the path of a catalog from the mount's root. clock: seconds since the epoch.
    """

    def __init__(
        self,
        flights: SingleFlight,
        loader: ContentLoader,
        publisher: Publisher,
        pending: PendingStore,
        *,
        changed: Callable[[Source, list[Path]], None],
        wrote: Callable[[Source, list[Path]], None],
        mounted: Callable[[Source, Path], Path],
        clock: Callable[[], float],
    ) -> None:
        self._flights = flights
        self._loader = loader
        self._publisher = publisher
        self.pending = pending
        self.space = BufferSpace(pending.directory)
        self.staging = Staging(self._do)
        self._changed = changed
        self._wrote = wrote
        self._mounted = mounted
        self._clock = clock
        self._count = 0
        self._attempts = Attempts()
        self._turns: WeakValueDictionary[tuple[str, str], trio.Lock] = WeakValueDictionary()

    # -- the changes -------------------------------------------------------------------------------------------------

    async def write(
        self,
        source: Source,
        native_uri: str,
        content: Writable,
        expected: Expected,
        *,
        path: Path | None = None,
        earlier: list[str] | None = None,
        keep: bool = True,
        again: PendingWrite | None = None,
        staged: str | None = None,
        labels: Labels = _NO_LABELS,
        by_owner: bool = False,
    ) -> HandedOver:
        """Hand over a content. Return the record of the resource, and the state that the source has now.

        path: of the resource in the catalog, if a name of the mount leads to it. earlier: the IDs of pending writes in
        whose place this one comes; then it has the ID of this one. Given by those who cannot keep what is refused.
        keep: the content is a pending write before, and stays one after an error; if not, the caller has it still.
        again: the pending write that this content is already. Its source may have taken it, and only the answer was
        lost: if it has these bytes, that is no conflict. staged: where the source has the bytes already. labels: the
        description of the writer. by_owner: see `CanDescribe`. Raise BbfsError.
        """
        item = again or PendingWrite(
            new_id(),
            source.data.id,
            native_uri,
            source_uri(source.data.base_prefix, native_uri),
            () if path is None else self._mounted(source, path),
            expected,
            content.size,
            time.time(),
            place=source.place,
            mime_type=labels.mime_type,
            description=labels.description,
        )
        try:
            operation = "create" if expected.exists is False else "replace"
            handler = self._handler(source, native_uri, operation, by_owner=by_owner)
        except BbfsError as error:  # it could write it when the program began
            if keep and earlier is not None:
                await self._keep(item, content, earlier)
                await self._failed(source, item, error, keep)
            raise
        if keep and again is None:
            try:
                await self._keep(item, content, [] if earlier is None else earlier)
            except BbfsError as error:  # as a text: a handler of the log may keep it, and with it the content
                log.warning("%s: %s: not written: %s", source.data.id, item.uri, str(error))
                raise
        given = HandOver(source, handler, native_uri, content, expected, again is not None, staged, labels)
        ended = False

        async def hand_over() -> HandedOver:
            nonlocal ended
            async with self._turn(source, native_uri):
                try:
                    async with source.slots.ask():
                        giving = self._give(given)
                        metadata, state = await (self._unless_dropped(item, giving) if keep else giving)
                except BbfsError as error:
                    ended = True
                    await self._failed(source, item, error, keep)
                    raise
                ended = True
                log.debug("%s: handed over %s, %d bytes", source.data.id, item.uri, item.size)
                if keep:
                    await trio.to_thread.run_sync(self.pending.drop, item.id)
                return HandedOver(await self._stored(source, metadata, content, path), state)

        try:
            return await self._do(source, hand_over, content.size)
        except BbfsError as error:
            if not isinstance(error, Conflict) and content.size <= LARGEST_ATTEMPT:
                digest = await content_digest(content)
                self._attempts.note_unanswered(source.data.id, native_uri, digest, expected)
            if not ended:  # by the deadline
                await self._failed(source, item, error, keep)
            if path is not None:
                self._doubt(source, [path], error)
            raise

    async def _give(self, given: HandOver) -> tuple[ResourceMetadata, Expected]:
        """Let a source store a content. Return the answer, and the state that it leaves. Raise BbfsError."""
        source, native_uri, content = given.source, given.native_uri, given.content
        try:
            state = given.expected
            if not given.detects:
                state = await require_state(source, native_uri, state)
            metadata = await given.store(state)
        except Conflict as error:
            metadata = await self._own(given, error)
        is_unseen = isinstance(given.handler, WritesUnseen) and given.handler.writes_unseen
        if source.data.policy.verify or (is_unseen and metadata.size is None and metadata.etag is None):
            metadata = await require_stored(source, native_uri, content, metadata)
        digest = None
        if metadata.size == content.size and (metadata.etag is None or content.size <= PIECE):
            digest = await content_digest(content)
        self._attempts.note_taken(source.data.id, native_uri, digest, metadata.etag)
        return metadata, Expected(exists=True, etag=metadata.etag, version=digest)

    async def _unless_dropped(self, item: PendingWrite, giving: Awaitable[T]) -> T:
        """Await a hand-over, which may take hours. Cancel it once a user drops its pending write. Raise BbfsError."""
        values, errors = list[T](), list[BbfsError]()

        async def hand_over() -> None:
            try:
                values.append(await giving)
            except BbfsError as error:
                errors.append(error)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hand_over)
            while True:
                await trio.sleep(DROPPED_EVERY)
                if not self.pending.has(item.id):
                    break
            nursery.cancel_scope.cancel()
        if values:
            return values[0]
        raise errors[0] if errors else BbfsError("its pending write was dropped before the source had it")

    async def _own(self, given: HandOver, error: Conflict) -> ResourceMetadata:
        """Replace what an own earlier write has stored, whatever its answer said. Raise Conflict for any other content.

        The earlier write must have replaced the state that this one is to replace: else it may have what somebody else
        wrote in between, and this one has not.
        """
        source, native_uri, content, expected = given.source, given.native_uri, given.content, given.expected
        try:
            there = await present(source, native_uri)
        except BbfsError as look:
            if not isinstance(look, NotFound) and (
                given.is_again or self._attempts.lacks_answers(source.data.id, native_uri)
            ):
                raise  # the other version may be an own one: that the source is down is all that is known
            raise error from None
        if there is None:
            raise error
        is_unanswered = self._attempts.is_unanswered(source.data.id, native_uri, there.digest)
        is_same = there.size == content.size and there.digest == await content_digest(content)
        if is_same and (given.is_again or is_unanswered):
            return self._metadata(source, native_uri, there.metadata, content.size)
        is_own = self._attempts.has_replaced(source.data.id, native_uri, there.digest, expected) or (
            self._attempts.is_replaced(source.data.id, native_uri, there.digest, expected)
        )
        if is_own and "replace" in given.handler.writes(native_uri):
            try:
                return await given.store(there.state)
            except Conflict as later:
                error = later
        elif self._attempts.is_taken(source.data.id, native_uri, there.digest):
            raise Conflict(f"{native_uri}: this mount has written it since it was opened, by another save") from None
        await require_steady(source, native_uri)
        raise error

    @staticmethod
    def _metadata(source: Source, native_uri: str, found: ResourceMetadata | None, size: int) -> ResourceMetadata:
        """Return the metadata of a resource whose content a load has just given."""
        if found is not None:
            return found
        known = source.catalog.record(native_uri) or source.catalog.record_of(
            source_uri(source.data.base_prefix, native_uri), native_uri
        )
        return replace(known.metadata, size=size, etag=None)

    async def keep_left(
        self, source: Source, native_uri: str, content: Writable, expected: Expected, path: Path
    ) -> None:
        """Keep a content that the mount has at its end and no source was asked to take. Raise NoSpace, BbfsError."""
        uri, shown = source_uri(source.data.base_prefix, native_uri), self._mounted(source, path)
        error = f"{BbfsError.__name__}: {LEFT}"
        fields = (new_id(), source.data.id, native_uri, uri, shown, expected, content.size, time.time(), error)
        item = PendingWrite(*fields, source.place)
        await self._keep(item, content, [])
        await trio.to_thread.run_sync(self._keep_failed, item)
        log.warning("%s: %s: %s; `bbfs pending` has it as %s", source.data.id, uri, LEFT, item.id)

    async def remove(
        self, source: Source, native_uri: str, expected: Expected, path: Path | None = None, *, by_owner: bool = False
    ) -> None:
        """Remove a resource. by_owner: see `CanDescribe`. Raise BbfsError."""
        handler = self._handler(source, native_uri, "remove", by_owner=by_owner)

        async def remove() -> None:
            state = expected
            async with self._turn(source, native_uri):
                async with source.slots.ask():
                    if not handler.detects_conflicts and expected.exists is not None:
                        state = await require_state(source, native_uri, expected)
                    with source.changing():
                        await handler.remove(native_uri, state)
                self._gone(source, native_uri, path)

        await self._change(source, f"{native_uri}: not removed", remove, [] if path is None else [path])

    async def rename(
        self,
        source: Source,
        native_uri: str,
        to: str,
        *,
        replace_there: bool,
        path: Path,
        to_path: Path,
        replaced: Expected | None = None,
    ) -> bool:
        """Rename a resource at its source. Return False if the source cannot; then nothing has changed.

        replaced: the state that what is replaced must have. Raise BbfsError.
        """
        handler = source.writes
        if not isinstance(handler, CanRename) or "rename" not in handler.writes(native_uri):
            return False

        async def rename() -> None:
            first, second = sorted((native_uri, to))
            async with self._turn(source, first), self._turn(source, second), source.slots.ask():
                if replaced is not None and replaced.exists is not None:
                    await require_state(source, to, replaced)
                with source.changing():
                    metadata = await handler.rename(native_uri, to, replace=replace_there)
            renamed = source.catalog.record(native_uri)
            version = renamed.to_remember() if renamed is not None else None
            resized = renamed is not None and renamed.is_shown_otherwise(metadata.size)
            self._gone(source, native_uri, path)
            if metadata.kind == "directory":
                source.catalog.drop(path)
                source.catalog.drop(to_path)
                source.catalog.forget(path[:-1])
                source.catalog.forget(to_path[:-1])
                if source.overlay is not None:
                    source.overlay.drop_below(path)
                    source.overlay.drop_below(to_path)
                    source.overlay.drop(to_path)
                self._wrote(source, [path, to_path])
            else:
                self._loader.overwrite(source, to, self._clock())
                stored = await self._stored(source, metadata, None, to_path, version)
                stored.resized |= resized

        await self._change(source, f"{native_uri}: not renamed", rename, [path, to_path])
        return True

    async def make_directory(self, source: Source, native_uri: str, path: Path) -> bool:
        """Make a directory at its source. Return False if the source has none of its own."""
        handler = source.writes
        if not isinstance(handler, CanMakeDirectories) or "make_directory" not in handler.writes(native_uri):
            return False

        async def make() -> None:
            async with source.slots.ask():
                metadata = await handler.make_directory(native_uri)
            record = Record(source.data.id, replace(metadata, kind="directory"), path, self._clock())
            if source.overlay is not None:
                source.overlay.put(path, record_node(record), stored=True)
            self._wrote(source, [path])

        await self._change(source, f"{native_uri}: not made", make, [path])
        return True

    async def make_parents(self, source: Source, native_uri: str) -> None:
        """Make the directories that a new resource is in, as far as its source has directories. Raise BbfsError."""
        handler = source.handler
        if source.writes is None or not (source.makes_directories and isinstance(handler, CanStat)):
            return
        missing: list[str] = []
        above = native_uri.rpartition("/")[0]

        async def look() -> None:
            nonlocal above
            while above:
                try:
                    async with source.slots.ask():
                        await handler.stat(above)
                    return
                except IsADirectory:  # a URI without a slash at its end means a file to servers of files
                    return
                except NotFound:
                    missing.append(above)
                    above = above.rpartition("/")[0]

        await self._do(source, look)
        for each in reversed(missing) if above else ():  # else its root is not there, which the write tells
            await self.make_directory(source, each, plain_path(each, source.data.scheme).path)

    async def remove_directory(self, source: Source, native_uri: str, path: Path) -> bool:
        """Remove an empty directory at its source. Return False if the source has none of its own."""
        handler = source.writes
        if not isinstance(handler, CanMakeDirectories) or "remove_directory" not in handler.writes(native_uri):
            return False

        async def remove() -> None:
            async with source.slots.ask():
                await handler.remove_directory(native_uri)
            source.catalog.drop(path)
            if source.overlay is not None:
                source.overlay.drop_below(path)
                source.overlay.put(path, None, stored=True)
            self._wrote(source, [path])

        await self._change(source, f"{native_uri}: not removed", remove, [path])
        return True

    async def set_time(self, source: Source, record: Record, modified_ns: int) -> Record:
        """Set a resource's time of modification, if its source keeps one. Return its record."""
        handler, native_uri = source.writes, record.metadata.native_uri
        if not isinstance(handler, CanSetTime) or "set_time" not in handler.writes(native_uri):
            return record

        async def set_time() -> Record:
            async with source.slots.ask():
                metadata = await handler.set_time(native_uri, modified_ns)
            return await self._stored(source, metadata, None, record.path or None)

        return await self._do(source, set_time)

    # -- at the source -----------------------------------------------------------------------------------------------

    @staticmethod
    def _handler(source: Source, native_uri: str, operation: WriteOperation, *, by_owner: bool = False) -> CanWrite:
        handler = source.writes
        if handler is None and by_owner and isinstance(source.handler, CanDescribe):
            handler = source.handler
        if handler is None:
            raise ReadOnly(source.why_read_only)
        if operation not in handler.writes(native_uri):
            raise NotSupported(f"{native_uri}: the source cannot {operation.replace('_', ' ')} it")
        return handler

    def _turn(self, source: Source, native_uri: str) -> trio.Lock:
        """Return the lock of a resource, where its source cannot compare: the mount makes one change at a time.

        Such a source is asked for its state just before a write. Of two saves that do so at the same time, the second
        one would replace what the first one has stored.
        """
        detects = source.writes is not None and source.writes.detects_conflicts
        return trio.Lock() if detects else self._turns.setdefault((source.data.id, native_uri), trio.Lock())

    async def _do(self, source: Source, request: Callable[[], Awaitable[T]], size: int = 0) -> T:
        """Await a request in a task of its own, with the source's timeout and time for its bytes."""
        self._count += 1
        timeout = source.data.policy.timeout + size / SLOWEST
        with source.waiters:
            value: T = await self._flights.do(("write", source.data.id, self._count), request, timeout)
        return value

    async def _change(
        self, source: Source, what: str, request: Callable[[], Awaitable[None]], paths: list[Path]
    ) -> None:
        """Await a change that hands over no content, and tell why the source refuses it, unless the errno says all.

        paths: of the names that the change makes or removes, in the catalog.
        """
        try:
            await self._do(source, request)
        except BbfsError as error:
            self._doubt(source, paths, error)
            if not isinstance(error, Exists | IsADirectory | NotADirectory | NotEmpty | NotFound):
                source.error = f"{what}: {error}"
                log.info("%s: %s", source.data.id, source.error)
            raise

    def _doubt(self, source: Source, paths: list[Path], error: BbfsError) -> None:
        """Have names listed again after a change of them has failed.

        The source may have made the change, and only the answer was lost; or it has other names than its last listing.
        """
        if isinstance(error, _REFUSALS):
            return
        for path in paths:
            source.catalog.outdate(path)
        self._changed(source, paths)

    # -- afterwards --------------------------------------------------------------------------------------------------

    async def _keep(self, item: PendingWrite, content: Writable, earlier: list[str]) -> None:
        """Keep a content as a pending write, and drop the earlier ones. Raise NoSpace, BbfsError.

        Each has an ID of its own: what else hands over or drops an earlier one meanwhile has nothing to do with this.
        trio leaves what a thread raises in a cycle with its traceback, which has the content: on a full disk, a write
        that was given up would hold its room until the next collection of garbage.
        """

        def kept() -> tuple[type[BbfsError], str] | None:
            try:
                self.pending.keep(item, content)
                for each in earlier:
                    self.pending.drop(each)
            except BbfsError as error:
                return type(error), str(error)
            earlier[:] = [item.id]
            return None

        refused = await trio.to_thread.run_sync(kept)
        if refused is not None:
            kind, text = refused
            raise kind(text)

    async def _failed(self, source: Source, item: PendingWrite, error: BbfsError, keep: bool) -> None:
        source.error = f"{item.native_uri}: not written: {error}"
        if not keep:
            log.info("%s: %s: not written: %s", source.data.id, item.uri, error)
            return
        log.warning("%s: %s: not written: %s; `bbfs pending` has it as %s", source.data.id, item.uri, error, item.id)
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._keep_failed, replace(item, error=f"{type(error).__name__}: {error}"))

    def _keep_failed(self, item: PendingWrite) -> None:
        try:
            self.pending.describe(item)
            self.pending.sync(item)
        except FileNotFoundError:
            self.pending.drop(item.id)  # somebody has dropped it meanwhile
        except OSError as error:
            log.error("a pending write could not be described in %s: %s", self.pending.directory, error.strerror)

    async def _stored(
        self,
        source: Source,
        metadata: ResourceMetadata,
        content: Writable | None,
        path: Path | None,
        version: Remembered | None = None,
    ) -> Record:
        """Show what the source has now: in its catalog, in all caches, to all who follow.

        version: of the content under the name that it had before.
        """
        native_uri = metadata.native_uri
        self._loader.invalidate(source, native_uri, announced=True)
        record = source.catalog.record(native_uri)
        if record is None:
            record = source.catalog.record_of(metadata.uri, native_uri)
        record.metadata = replace(metadata, mime_type=metadata.mime_type or record.metadata.mime_type)
        if path is not None:
            record.path = path
        record.invalidate()
        record.writes += 1
        record.awaited_until = record.changed_at = 0.0  # nothing older may be served, not even to one sent by ESTALE
        now, ttl = self._clock(), source.data.policy.content_ttl
        source.catalog.written.note(metadata, now)
        part: Part | None = None
        exact = metadata.size is not None and (content is None or metadata.size == content.size)
        if content is not None and exact and (metadata.etag is not None or isinstance(content, MemoryContent)):
            part = Part(native_uri, record.metadata.mime_type, content, metadata.content_type)
            loaded = Loaded((part,), metadata=metadata)
            self._publisher.loaded(Load(source, record), loaded, now, ttl, notifies=path is None)
        elif metadata.etag is not None:  # the source has made another content of it, and says which
            record.describe(metadata, record.path, now)
            publish_description(record, metadata, now, ttl)
        elif version is not None:  # else the next load finds a new version: a second ESTALE in a row ends an open
            record.describe(metadata, record.path, now)
            record.recall(version)
        if content is not None:
            self._loader.overwrite(source, native_uri, now, part)
        if metadata.modified_ns is not None:
            record.modified_ns = metadata.modified_ns
        source.error = None
        if path is not None:
            overlaid = source.overlay.get(path) if source.overlay is not None else None
            written = overlaid is not None and overlaid.node is not None and overlaid.node.draft is not None
            if source.overlay is not None and not written:
                source.overlay.put(path, record_node(record), stored=True)
            self._wrote(source, [path, *self._above(source, native_uri, path, is_there=True)])
        return record

    def _above(self, source: Source, native_uri: str, path: Path, *, is_there: bool) -> list[Path]:
        """Have the source asked again for what may list a resource: its completions, and the resource above it.

        is_there: whether the resource was written, and not removed. Return the paths that differ.
        """
        found = source.catalog.wrote(path, native_uri, is_there=is_there)
        for record in found:
            self._loader.invalidate(source, record.metadata.native_uri, announced=True)
            record.invalidate()
            self._loader.overwrite(source, record.metadata.native_uri, self._clock())
        return [record.path for record in found if record.path]

    def _gone(self, source: Source, native_uri: str, path: Path | None) -> None:
        self._loader.invalidate(source, native_uri, announced=True)
        source.catalog.written.forget(native_uri)
        record = source.catalog.record(native_uri)
        if record is not None:
            record.invalidate()
        self._loader.overwrite(source, native_uri, self._clock())
        if path is not None:
            if source.overlay is not None:
                source.overlay.put(path, None, stored=True)
            self._wrote(source, [path, *self._above(source, native_uri, path, is_there=False)])


def record_state(record: Record) -> Expected:
    """Return the state that a write replaces: the last one that the mount has shown, if that is still thought true."""
    etag = record.metadata.etag
    version = record.digest if etag is None and not record.invalidated else None
    return Expected(exists=True, etag=etag, version=version)
