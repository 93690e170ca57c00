"""Changes at the sources: their turn, their task and deadline, and what the mount shows afterwards.

A request runs in a task of its own: a program that is killed meanwhile does not stop it halfway.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf
from typing import TypeVar
from weakref import WeakValueDictionary

import trio

from bbfs.model.errors import (
    BbfsError,
    Busy,
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
from bbfs.model.values import Content, Loaded, Part, ResourceMetadata, WriteOperation
from bbfs.resources.cache.metadata import Remembered
from bbfs.resources.catalog.record import Path, Record, publish_description, record_node
from bbfs.resources.loading.loader import ContentLoader
from bbfs.resources.loading.publish import Publisher
from bbfs.resources.source import Source
from bbfs.sources import CanDescribe, CanWrite
from bbfs.sources.content.memory import MemoryContent

log = logging.getLogger(__name__)
T = TypeVar("T")

SLOWEST = 256 << 10
"""Bytes a second: the time that a write may take grows by its size at this rate."""
LANDS_WITHIN = 1.0
"""Seconds after a deadline in which a source may still do what it was asked for. Half its timeout, if that is less."""
_REFUSALS = (Busy, Denied, NoSpace, NotEmpty, NotSupported, ReadOnly, Rejected, TooLarge)
"""Errors of a change that leaves the names of the source as they were, and as its last listing has them."""


class WriteRequests:
    """The changes at the sources of one manager.

    changed: called with a source and the changed paths of its catalog. wrote: as `changed`, for what the mount itself
    has changed. clock: seconds since the epoch.
    """

    def __init__(
        self,
        loader: ContentLoader,
        publisher: Publisher,
        *,
        changed: Callable[[Source, list[Path]], None],
        wrote: Callable[[Source, list[Path]], None],
        clock: Callable[[], float],
    ) -> None:
        self._loader = loader
        self._publisher = publisher
        self._changed = changed
        self.wrote = wrote
        self.clock = clock
        self._count = 0
        self._turns: WeakValueDictionary[tuple[str, str], trio.Lock] = WeakValueDictionary()

    # -- before ------------------------------------------------------------------------------------------------------

    @staticmethod
    def handler(source: Source, native_uri: str, operation: WriteOperation, *, by_owner: bool = False) -> CanWrite:
        """Return the handler that changes a resource. by_owner: see `CanDescribe`. Raise ReadOnly, NotSupported."""
        source.require_there()
        handler = source.writes
        if handler is None and by_owner and isinstance(source.handler, CanDescribe):
            handler = source.handler
        if handler is None:
            raise ReadOnly(source.why_read_only)
        if operation not in handler.writes(native_uri):
            raise NotSupported(f"{native_uri}: the source cannot {operation.replace('_', ' ')} it")
        return handler

    @asynccontextmanager
    async def turn(self, source: Source, native_uri: str) -> AsyncIterator[None]:
        """Take the turn of a resource, where its source cannot compare: the mount makes one change at a time.

        Such a source is asked for its state just before a write. Of two saves that do so at the same time, the second
        one would replace what the first one has stored. So would a request that is given up at its deadline while the
        source is at it: the turn is held for `LANDS_WITHIN` seconds then, and the next save finds what it has done.
        """
        if source.writes is not None and source.writes.detects_conflicts:
            yield
            return
        async with self._turns.setdefault((source.key, native_uri), trio.Lock()):
            try:
                yield
            except trio.Cancelled:
                with trio.CancelScope(shield=True):
                    await trio.sleep(min(LANDS_WITHIN, source.data.policy.timeout / 2))
                raise

    # -- the request -------------------------------------------------------------------------------------------------

    async def do(
        self,
        source: Source,
        request: Callable[[], Awaitable[T]],
        size: int = 0,
        *,
        look: Callable[[], None] | None = None,
        look_every: float = inf,
        settles: bool = False,
    ) -> T:
        """Await a request in a task of its own, with the source's timeout and time for its bytes.

        Once it has returned, no mount serves what was before, not even one that begins after a kill. look: called every
        `look_every` seconds meanwhile. settles: the request calls `settle` itself.
        """
        self._count += 1
        key, timeout = ("write", source.data.id, self._count), source.data.policy.timeout + size / SLOWEST
        with source.waiters:
            flight = source.flights.begin(key, request, timeout)
            while True:
                with trio.move_on_after(look_every):
                    value: T = await source.flights.outcome(key, flight)
                    break
                if look is not None:
                    look()
        if not settles:
            await self._loader.settle(source)
        return value

    async def change(
        self, source: Source, what: str, request: Callable[[], Awaitable[None]], paths: list[Path]
    ) -> None:
        """Await a change that hands over no content, and tell why the source refuses it, unless the errno says all.

        paths: of the names that the change makes or removes, in the catalog.
        """
        try:
            await self.do(source, request)
            source.error = None
        except BbfsError as error:
            self.doubt(source, paths, error)
            if not isinstance(error, Exists | IsADirectory | NotADirectory | NotEmpty | NotFound):
                source.error = f"{what}: {error}"
                log.info("%s: %s", source.data.id, source.error)
            raise

    def doubt(self, source: Source, paths: list[Path], error: BbfsError) -> None:
        """Have names listed again after a change of them has failed.

        The source may have made the change, and only the answer was lost; or it has other names than its last listing.
        """
        if isinstance(error, _REFUSALS):
            return
        for path in paths:
            source.catalog.outdate(path)
        self._changed(source, paths)

    async def settle(self, source: Source, also: Callable[[], None] | None) -> None:
        """Have no mount serve what a source had before the changes so far. also: see `DiskTier.settle`."""
        await self._loader.settle(source, also)

    # -- afterwards --------------------------------------------------------------------------------------------------

    def stored(
        self,
        source: Source,
        metadata: ResourceMetadata,
        content: Content | None,
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
        record.overwrite()
        self._publish(source, record, metadata, content, version, is_named=path is not None)
        source.error = None
        if path is not None:
            overlaid = source.overlay.get(path) if source.overlay is not None else None
            written = overlaid is not None and overlaid.node is not None and overlaid.node.draft is not None
            if source.overlay is not None and not written:
                source.overlay.put(path, record_node(record), stored=True)
            self.wrote(source, [path, *self._above(source, native_uri, path, is_there=True)])
        return record

    def _publish(
        self,
        source: Source,
        record: Record,
        metadata: ResourceMetadata,
        content: Content | None,
        version: Remembered | None,
        *,
        is_named: bool,
    ) -> None:
        """Publish what is known of a stored content, as a load would. is_named: the caller notifies of its path."""
        native_uri, now, ttl = metadata.native_uri, self.clock(), source.data.policy.content_ttl
        source.catalog.written.note(metadata, now)
        part: Part | None = None
        exact = metadata.size is not None and (content is None or metadata.size == content.size)
        if content is not None and exact and (metadata.etag is not None or isinstance(content, MemoryContent)):
            part = Part(native_uri, record.metadata.mime_type, content, metadata.content_type)
            loaded = Loaded((part,), metadata=metadata)
            self._publisher.publish(source, record, loaded, now, ttl, notifies=not is_named)
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

    def _above(self, source: Source, native_uri: str, path: Path, *, is_there: bool) -> list[Path]:
        """Have the source asked again for what may list a resource: its completions, and the resource above it.

        is_there: whether the resource was written, and not removed. Return the paths that differ.
        """
        found = source.catalog.wrote(path, native_uri, is_there=is_there)
        for record in found:
            self._loader.invalidate(source, record.metadata.native_uri, announced=True)
            record.invalidate()
            self._loader.overwrite(source, record.metadata.native_uri, self.clock())
        return [record.path for record in found if record.path]

    def gone(self, source: Source, native_uri: str, path: Path | None) -> None:
        self._loader.invalidate(source, native_uri, announced=True)
        source.catalog.written.forget(native_uri)
        record = source.catalog.record(native_uri)
        if record is not None:
            record.invalidate()
            record.shown = None  # the mount has shown nothing of what others make there
        self._loader.overwrite(source, native_uri, self.clock())
        if path is not None:
            if source.overlay is not None:
                source.overlay.put(path, None, stored=True)
            self.wrote(source, [path, *self._above(source, native_uri, path, is_there=False)])

    def moved(self, source: Source, native_uri: str, path: Path) -> None:
        """Serve nothing from before a rename of a directory of what is below one of its names."""
        known = source.catalog.moved(native_uri, path)
        self._loader.overwrite_below(source, native_uri, known, self.clock())

    def overwritten(self, source: Source, native_uri: str) -> None:
        """Serve nothing of a resource from now on that was loaded before."""
        self._loader.overwrite(source, native_uri, self.clock())
