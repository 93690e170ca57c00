"""Changes at the sources: what programs may change, the turn, task and deadline of a change, and what the mount shows
afterwards; and the changes of names there.

A request runs in a task of its own: a program that is killed meanwhile does not stop it halfway.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from math import inf
from typing import TypeVar
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
from bbfs.model.uri_paths import plain_path
from bbfs.model.values import Content, Loaded, Part, ResourceMetadata, WriteOperation
from bbfs.model.versions import Expected
from bbfs.resources.cache.metadata import Remembered
from bbfs.resources.catalog.record import Node, Path, Record, publish_description, record_node
from bbfs.resources.loading.loader import ContentLoader
from bbfs.resources.loading.publish import Publisher
from bbfs.resources.source import Source
from bbfs.resources.tree import Roots
from bbfs.resources.writing.conflicts import require_state
from bbfs.resources.writing.temporary import is_temporary, made_for
from bbfs.sources import (
    CanDescribe,
    CanMakeDirectories,
    CanRename,
    CanSetTime,
    CanStat,
    CanWrite,
    DetectsRemoved,
    RenamesSome,
)
from bbfs.sources.content.memory import MemoryContent

log = logging.getLogger(__name__)
T = TypeVar("T")

SLOWEST = 256 << 10
"""Bytes a second: the time that a write may take grows by its size at this rate."""
LANDS_WITHIN = 1.0
"""Seconds after a deadline in which a source may still do what it was asked for. Half its timeout, if that is less."""
_REFUSALS = (Busy, Denied, NoSpace, NotEmpty, NotSupported, ReadOnly, Rejected, TooLarge)
"""Errors of a change that leaves the names of the source as they were, and as its last listing has them."""


class Grants:
    """What programs may write on one mount.

    is_lower: an overlay is over the mount, so programs create names there, whatever the sources take. roots: the
    directories at the root whose sources can be written.
    """

    def __init__(self, roots: Roots, *, is_lower: bool) -> None:
        self._roots = roots
        self.is_lower = is_lower
        self.roots: set[str] = set()

    def replaceable(self, record: Record) -> bool:
        """Return whether the content of a resource can be written."""
        writes = self._roots.of(record).writes
        return writes is not None and not record.on_open and "replace" in writes.writes(record.metadata.native_uri)

    def may_create(self, path: Path) -> bool:
        """Return whether a program may try to create a name at a path."""
        return self.is_lower or path[0] in self.roots

    def may_be_new(self, path: Path, node: Node) -> Record | None:
        """Return the resource that a template alone makes of a name, if a program may try to create it, else None.

        If the source creates nothing there, that is an error of its own, and a file may still live in the mount alone.
        A name that programs make up is one that they try to create wherever they are: mkstemp(3) would go on to the
        next name as long as each is there.
        """
        record = node.record or node.candidate if node.draft is None else None
        if record is None or not record.provisional or record.on_open:
            return None
        if self.is_lower or is_temporary(path[-1]) or made_for(path[-1]) is not None:
            return record
        if not self.may_create(path):
            return None
        writes = self._roots.of(record).writes
        return record if writes is not None and writes.writes(record.metadata.native_uri) else None


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
            if source.overlay is not None and source.overlay.draft(path) is None:
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
        source.catalog.written.note(metadata)
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


class SourceNames:
    """Changes the names at the sources of one manager. Methods raise BbfsError."""

    def __init__(self, changes: WriteRequests) -> None:
        self._changes = changes

    async def remove(
        self, source: Source, native_uri: str, expected: Expected, path: Path | None = None, *, by_owner: bool = False
    ) -> None:
        """Remove a resource. by_owner: see `CanDescribe`. Raise BbfsError."""
        handler = self._changes.handler(source, native_uri, "remove", by_owner=by_owner)

        async def remove() -> None:
            async with self._changes.turn(source, native_uri):
                async with source.slots.ask():
                    await self._removed(source, handler, native_uri, expected)
                self._changes.gone(source, native_uri, path)

        await self._changes.change(source, f"{native_uri}: not removed", remove, [] if path is None else [path])

    @staticmethod
    async def _removed(source: Source, handler: CanWrite, native_uri: str, expected: Expected) -> None:
        """Let a source remove what has the expected state, after a comparison where the source has none."""
        detects = isinstance(handler, DetectsRemoved) and handler.detects_removed(expected)
        if detects:
            with suppress(Conflict):  # the same bytes may have another ETag by now, and only a load tells
                with source.changing():
                    await handler.remove(native_uri, expected)
                return
        state = expected
        if not handler.detects_conflicts and expected.exists is not None:
            state = await require_state(source, native_uri, expected)
            if detects:
                state = replace(state, version=None)  # a load has just compared it
        with source.changing():
            await handler.remove(native_uri, state)

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
        is_directory: bool = False,
    ) -> bool:
        """Rename a resource at its source. Return False if the source cannot; then nothing has changed.

        replaced: the state that what is replaced must have. Raise BbfsError.
        """
        handler = source.writes
        if not isinstance(handler, CanRename) or "rename" not in handler.writes(native_uri):
            return False
        if isinstance(handler, RenamesSome) and not handler.renames(
            native_uri, to, is_directory=is_directory, replace=replace_there
        ):
            return False

        async def rename() -> None:
            first, second = sorted((native_uri, to))
            async with self._changes.turn(source, first), self._changes.turn(source, second), source.slots.ask():
                if replaced is not None and replaced.exists is not None:
                    await require_state(source, to, replaced)
                with source.changing():
                    metadata = await handler.rename(native_uri, to, replace=replace_there)
            self._renamed(source, native_uri, to, metadata, path, to_path)

        await self._changes.change(source, f"{native_uri}: not renamed", rename, [path, to_path])
        return True

    def _renamed(
        self, source: Source, native_uri: str, to: str, metadata: ResourceMetadata, path: Path, to_path: Path
    ) -> None:
        """Show what a source has under both names after a rename. metadata: under `to`, the new one."""
        renamed = source.catalog.record(native_uri)
        version = renamed.to_remember() if renamed is not None else None
        resized = renamed is not None and renamed.is_shown_otherwise(metadata.size)
        self._changes.gone(source, native_uri, path)
        if metadata.kind == "directory":
            self._changes.moved(source, native_uri, path)
            self._changes.moved(source, to, to_path)
            if source.overlay is not None:
                source.overlay.drop_below(path)
                source.overlay.drop_below(to_path)
                source.overlay.drop(to_path)
            self._changes.wrote(source, [path, to_path])
        else:
            self._changes.overwritten(source, to)
            stored = self._changes.stored(source, metadata, None, to_path, version)
            stored.resized |= resized
            stored.shown = version.shown if version is not None else None

    async def make_directory(self, source: Source, native_uri: str, path: Path) -> bool:
        """Make a directory at its source. Return False if the source has none of its own."""
        handler = source.writes
        if not isinstance(handler, CanMakeDirectories) or "make_directory" not in handler.writes(native_uri):
            return False

        async def make() -> None:
            async with source.slots.ask():
                metadata = await handler.make_directory(native_uri)
            record = Record(source.key, replace(metadata, kind="directory"), path, self._changes.clock())
            if source.overlay is not None:
                source.overlay.put(path, record_node(record), stored=True)
            self._changes.wrote(source, [path])

        await self._changes.change(source, f"{native_uri}: not made", make, [path])
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

        await self._changes.do(source, look)
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
            self._changes.wrote(source, [path])

        await self._changes.change(source, f"{native_uri}: not removed", remove, [path])
        return True

    async def set_time(self, source: Source, record: Record, modified_ns: int) -> Record:
        """Set a resource's time of modification, if its source keeps one. Return its record."""
        handler, native_uri = source.writes, record.metadata.native_uri
        if not isinstance(handler, CanSetTime) or "set_time" not in handler.writes(native_uri):
            return record

        async def set_time() -> Record:
            async with source.slots.ask():
                metadata = await handler.set_time(native_uri, modified_ns)
            return self._changes.stored(source, metadata, None, record.path or None)

        return await self._changes.do(source, set_time)
