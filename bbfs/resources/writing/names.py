"""The names at the sources: remove and rename resources, make and remove directories, set times."""

from contextlib import suppress
from dataclasses import replace

from bbfs.model.errors import Conflict, IsADirectory, NotFound
from bbfs.model.uri_paths import plain_path
from bbfs.model.values import ResourceMetadata
from bbfs.model.versions import Expected
from bbfs.resources.catalog.record import Path, Record, record_node
from bbfs.resources.source import Source
from bbfs.resources.writing.conflicts import require_state
from bbfs.resources.writing.write_requests import WriteRequests
from bbfs.sources import CanMakeDirectories, CanRename, CanSetTime, CanStat, CanWrite, DetectsRemoved, RenamesSome


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
