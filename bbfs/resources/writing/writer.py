"""Hands over contents to the sources.

Every content is on disk as a pending write before its source is asked, and until it has stored it.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeAlias

import trio
from cachetools import LRUCache

from bbfs.model.errors import BbfsError, Conflict, NotFound
from bbfs.model.uri import source_uri
from bbfs.model.values import ResourceMetadata
from bbfs.model.versions import Expected, Labels
from bbfs.resources.catalog.record import Path, Record
from bbfs.resources.loading.loader import ContentLoader
from bbfs.resources.loading.publish import Publisher
from bbfs.resources.source import Source
from bbfs.resources.writing.conflicts import present, require_state, require_steady, require_stored
from bbfs.resources.writing.pending import LEFT, PendingStore, PendingWrite, new_id
from bbfs.resources.writing.staging import Staging
from bbfs.resources.writing.write_requests import SourceNames, WriteRequests
from bbfs.sources import CanDescribe, CanStage, CanWrite, WritesUnseen
from bbfs.sources.content.buffer import PIECE, BufferSpace, Written, content_digest
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import MemoryContent

log = logging.getLogger(__name__)
Writable: TypeAlias = MemoryContent | Written | StoredContent
"""A content that can be kept as a pending write."""

DROPPED_EVERY = 2.0
"""Seconds between two looks whether a user has dropped what a source is taking."""
LARGEST_ATTEMPT = 1 << 30
"""Bytes of a content without an answer that are read to know it again. A sparse file may have 10 TB."""
ATTEMPTS_KEPT = 4096
"""Resources whose handed-over contents are remembered, as two numbers each."""
_NO_LABELS = Labels()


@dataclass(slots=True)
class HandOver:
    """A content for a source.

    expected: the state that it replaces. item: its pending write. keep: whether that is on disk. path: of the resource
    in the catalog, if a name of the mount leads to it. is_again: the source may have taken it before, and only the
    answer was lost. staged: where the source has the bytes already (`CanStage`). labels: the description of the writer
    (`CanDescribe`). giving: the request to the source. is_answered: it has ended, by an answer or an error.
    """

    source: Source
    handler: CanWrite
    native_uri: str
    content: Writable
    expected: Expected
    item: PendingWrite
    keep: bool
    path: Path | None = None
    is_again: bool = False
    staged: str | None = None
    labels: Labels = _NO_LABELS
    giving: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_answered: bool = False

    async def store(self, state: Expected) -> ResourceMetadata:
        """Let the source store the content. state: as `expected`, with what a comparison has told. Raise BbfsError."""
        with self.source.changing():
            if self.staged is not None and isinstance(self.handler, CanStage):
                return await self.handler.write_staged(self.staged, self.native_uri, self.content, state)
            if self.labels != _NO_LABELS and isinstance(self.handler, CanDescribe):
                return await self.handler.write_described(self.native_uri, self.content, state, self.labels)
            return await self.handler.write(self.native_uri, self.content, state)

    @property
    def detects(self) -> bool:
        """Return whether the source compares the expected state itself."""
        source, is_new = self.source, self.expected.exists is False
        return self.handler.detects_conflicts or (is_new and source.looks is not None and source.looks.detects_existing)


class Attempts:
    """The contents that this process has handed over, by the key of the source and native URI.

    unanswered: no answer said whether the source has stored them; with the state that each was to replace. taken: the
    last one that the source took.
    """

    def __init__(self) -> None:
        self._unanswered: LRUCache[tuple[str, str], dict[str, Expected]] = LRUCache(ATTEMPTS_KEPT)
        self._taken: LRUCache[tuple[str, str], tuple[str, str | None]] = LRUCache(ATTEMPTS_KEPT)

    def note_unanswered(self, source: str, native_uri: str, digest: str, replaced: Expected) -> None:
        """Note a content, and the state that it was to replace."""
        self._unanswered.setdefault((source, native_uri), {})[digest] = replaced

    def note_taken(self, source: str, native_uri: str, digest: str | None, etag: str | None) -> None:
        """Note that a source has stored a content. digest: None if it is not known. etag: in the answer."""
        self._unanswered.pop((source, native_uri), None)
        self._taken.pop((source, native_uri), None)
        if digest is not None:
            self._taken[source, native_uri] = digest, etag

    def lacks_answers(self, source: str, native_uri: str) -> bool:
        """Return whether some content was handed over without an answer."""
        return (source, native_uri) in self._unanswered

    def is_unanswered(self, source: str, native_uri: str, digest: str) -> bool:
        return digest in self._unanswered.get((source, native_uri), ())

    def has_replaced(self, source: str, native_uri: str, digest: str, expected: Expected) -> bool:
        """Return whether an unanswered content was to replace just this state: its writer had seen no later one."""
        replaced = self._unanswered.get((source, native_uri), {}).get(digest)
        if replaced is None or replaced.exists != expected.exists:
            return False
        if replaced.etag is not None and expected.etag is not None:
            return replaced.etag == expected.etag
        return replaced.version == expected.version

    def is_taken(self, source: str, native_uri: str, digest: str) -> bool:
        return self._taken.get((source, native_uri), (None, None))[0] == digest

    def is_replaced(self, source: str, native_uri: str, digest: str, expected: Expected) -> bool:
        """Return whether a content is the last one that the source took, and the one that a write is to replace.

        Some servers state one ETag in the answer to a PUT and another one later.
        """
        etag = expected.etag
        return etag is not None and self._taken.get((source, native_uri)) == (digest, etag)


class HandedOver(NamedTuple):
    """A content that a source has stored.

    record: of the resource, as the mount shows it now. state: what the next write of the same program replaces: this
    content, by the version in the answer to the write and by its digest. A later description never changes `state`.
    """

    record: Record
    state: Expected


class Writer:
    """Writes to the sources of one manager. names: changes their names. staging: gives them bytes before a rename.

    changed: called with a source and the changed paths of its catalog. wrote: as `changed`, for what the writer itself
    has changed. mounted: the path of a catalog from the mount's root. clock: seconds since the epoch.
    """

    def __init__(
        self,
        loader: ContentLoader,
        publisher: Publisher,
        pending: PendingStore,
        *,
        changed: Callable[[Source, list[Path]], None],
        wrote: Callable[[Source, list[Path]], None],
        mounted: Callable[[Source, Path], Path],
        clock: Callable[[], float],
    ) -> None:
        self._changes = WriteRequests(loader, publisher, changed=changed, wrote=wrote, clock=clock)
        self._settle = loader.settle
        self.names = SourceNames(self._changes)
        self.staging = Staging(self._changes.do)
        self.pending = pending
        self.space = BufferSpace(pending.directory)
        self._mounted = mounted
        self._attempts = Attempts()

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

        path: of the resource in the catalog, if a name of the mount leads to it. earlier: a list of the IDs of pending
        writes that this content replaces once it is on disk; it has the ID of this pending write afterwards, if there
        is one. keep: the content is a pending write before, and stays one after an error; if not, the caller has it.
        again: the pending write that this content is already. Its source may have taken it, and only the answer was
        lost: if it has these bytes, that is no conflict. staged: where the source has the bytes already. labels: the
        description of the writer. by_owner: see `CanDescribe`. Raise BbfsError.
        """
        item = again or self._described(source, native_uri, content, expected, path, labels)
        try:
            operation = "create" if expected.exists is False else "replace"
            handler = self._changes.handler(source, native_uri, operation, by_owner=by_owner)
        except BbfsError as error:  # it could write it when the program began
            if keep and earlier is not None:
                await self._keep(source, item, content, earlier)
                await self._failed(source, item, error, keep)
            raise
        if keep and again is None:
            await self._keep(source, item, content, [] if earlier is None else earlier)
        given = HandOver(
            source, handler, native_uri, content, expected, item, keep, path, again is not None, staged, labels
        )
        look = partial(self._end_if_dropped, given) if keep else None
        try:
            return await self._changes.do(
                source, partial(self._hand_over, given), content.size, look=look, look_every=DROPPED_EVERY, settles=True
            )
        except BbfsError as error:
            await self._unanswered(given, error)
            raise

    async def _hand_over(self, given: HandOver) -> HandedOver:
        """Give a source a content, show it, and drop its pending write. Raise BbfsError."""
        source, item, keep = given.source, given.item, given.keep
        async with self._changes.turn(source, given.native_uri):
            try:
                answer = None
                async with source.slots.ask():
                    with given.giving:
                        answer = await self._give(given)
                if answer is None:
                    raise BbfsError("its pending write was dropped before the source had it")
            except BbfsError as error:
                given.is_answered = True
                await self._failed(source, item, error, keep)
                raise
            given.is_answered, (metadata, state) = True, answer
            log.debug("%s: handed over %s, %d bytes", source.data.id, item.uri, item.size)
            record = self._changes.stored(source, metadata, given.content, given.path)
            record.shown = state.version if metadata.etag is None else None
            await self._settle(source, partial(self.pending.drop, item.id) if keep else None)
            return HandedOver(record, state)

    def _end_if_dropped(self, given: HandOver) -> None:
        """Cancel a hand-over, which may take hours, once a user has dropped its pending write."""
        if not given.is_answered and not self.pending.has(given.item.id):
            given.giving.cancel()

    async def _unanswered(self, given: HandOver, error: BbfsError) -> None:
        """Note that a hand-over has failed: the source may have taken the content."""
        source, content = given.source, given.content
        if not isinstance(error, Conflict) and content.size <= LARGEST_ATTEMPT:
            digest = await content_digest(content)
            self._attempts.note_unanswered(source.key, given.native_uri, digest, given.expected)
        if not given.is_answered:  # the deadline has ended it
            await self._failed(source, given.item, error, given.keep)
        if given.path is not None:
            self._changes.doubt(source, [given.path], error)

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
        is_told = metadata.etag is not None if metadata.size is None else metadata.size == content.size
        if source.data.policy.verify or (is_unseen and not is_told):
            metadata = await require_stored(source, native_uri, content, metadata)
        digest = None
        if metadata.size == content.size and (metadata.etag is None or content.size <= PIECE):
            digest = await content_digest(content)
        self._attempts.note_taken(source.key, native_uri, digest, metadata.etag)
        return metadata, Expected(exists=True, etag=metadata.etag, version=digest)

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
                given.is_again or self._attempts.lacks_answers(source.key, native_uri)
            ):
                raise  # the other version may be an own one: that the source is down is all that is known
            raise error from None
        if there is None:
            raise error
        is_unanswered = self._attempts.is_unanswered(source.key, native_uri, there.digest)
        is_same = there.size == content.size and there.digest == await content_digest(content)
        if is_same and (given.is_again or is_unanswered):
            return self._metadata(source, native_uri, there.metadata, content.size)
        is_own = self._attempts.has_replaced(source.key, native_uri, there.digest, expected) or (
            self._attempts.is_replaced(source.key, native_uri, there.digest, expected)
        )
        if is_own and "replace" in given.handler.writes(native_uri):
            try:
                return await given.store(there.state)
            except Conflict as later:
                error = later
        elif self._attempts.is_taken(source.key, native_uri, there.digest):
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

    # -- pending writes ----------------------------------------------------------------------------------------------

    async def keep_left(
        self, source: Source, native_uri: str, content: Writable, expected: Expected, path: Path
    ) -> None:
        """Keep a content that the mount has at its end and no source was asked to take. Raise NoSpace, BbfsError."""
        error = f"{BbfsError.__name__}: {LEFT}"
        item = self._described(source, native_uri, content, expected, path, error=error)
        await self._keep(source, item, content, [])
        await trio.to_thread.run_sync(self._keep_failed, item)
        log.warning("%s: %s: %s; `bbfs pending` has it as %s", source.data.id, item.uri, LEFT, item.id)

    def _described(
        self,
        source: Source,
        native_uri: str,
        content: Writable,
        expected: Expected,
        path: Path | None,
        labels: Labels = _NO_LABELS,
        error: str | None = None,
    ) -> PendingWrite:
        """Return the pending write of a content, with a new ID. path: in the catalog. error: as of `PendingWrite`."""
        uri, shown = (
            source_uri(source.data.base_prefix, native_uri),
            () if path is None else self._mounted(source, path),
        )
        identity = (new_id(), source.data.id, native_uri, uri, shown)
        labelled = (labels.mime_type, labels.description)
        return PendingWrite(*identity, expected, content.size, time.time(), error, source.place, *labelled)

    async def _keep(self, source: Source, item: PendingWrite, content: Writable, earlier: list[str]) -> None:
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
            kind, text = refused  # as a text: a handler of the log may keep it, and with it the content
            log.warning("%s: %s: not written: %s", source.data.id, item.uri, text)
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
