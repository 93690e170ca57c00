"""The tree of a source that lists all at once, with directories that it lists a level at a time (SEP-2640).

A listing names such directories (`Listing.directories`). What is below one comes from the source, a directory at a time
and only where a program looks; the flat listing has nothing of it. All else is as in a flat source: other resources,
templates, tools.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import cast

from bbfs.model import uri_paths
from bbfs.model.errors import NotADirectory, NotFound
from bbfs.model.values import DataSource, Listing, ResourceMetadata
from bbfs.resources.catalog.base import CatalogContext, Stored, View
from bbfs.resources.catalog.directory import DirectoryCatalog
from bbfs.resources.catalog.flat import FlatCatalog
from bbfs.resources.catalog.folding import ChangedPaths
from bbfs.resources.catalog.lookups import last_segment, own_segment
from bbfs.resources.catalog.record import Path, Record
from bbfs.sources import CanListDirectory, CanReadDirectory

TOLD_APART = 10_000
"""Cached names that are notified one by one when all may have changed; beyond that, the directories above them are."""


class _Levels(DirectoryCatalog):
    """What is below the directories that a listing names. roots: their native URIs by path."""

    def __init__(self, source: DataSource, handler: CanReadDirectory, context: CatalogContext) -> None:
        super().__init__(source, cast(CanListDirectory, handler), context)  # `_ask` alone would ask it as such
        self._literal = False
        self.roots: Mapping[Path, str] = {}
        self._reader = handler

    def covers(self, path: Path) -> bool:
        roots = self.roots
        return bool(roots) and any(path[:depth] in roots for depth in range(1, len(path) + 1))

    def take(self, named: tuple[str, ...]) -> None:
        was = self.roots
        self.roots = {uri_paths.plain_path(uri).path: uri for uri in named}
        gone = [path for path, uri in was.items() if self.roots.get(path) != uri]
        for path in gone:
            self.drop(path)
        if gone:
            self._context.notify(ChangedPaths.all_below(gone), "listed")

    async def _ask(self, path: Path) -> Listing:
        return await self._reader.read_directory(await self._uri(path))

    async def _uri(self, path: Path) -> str:
        """Return the native URI of a directory. Lists what is above it, where that is not known."""
        depth = next((depth for depth in range(len(path), 0, -1) if path[:depth] in self.roots), None)
        if depth is None:
            raise NotFound(f"no such directory: {'/'.join(path)}")
        uri = self.roots[path[:depth]]
        for end in range(depth, len(path)):
            listed = self._directories.get(path[:end]) or await self._list(path[:end])
            record = listed.entries.get(path[end])
            if record is None:
                raise NotFound(f"no such directory: {'/'.join(path)}")
            if record.metadata.kind != "directory":
                raise NotADirectory(f"not a directory: {'/'.join(path[: end + 1])}")
            uri = record.metadata.native_uri
        return uri

    def _own_uri(self, path: Path) -> str | None:
        root = self.roots.get(path)
        return super()._own_uri(path) if root is None else root.rstrip("/")

    def _segment(self, metadata: ResourceMetadata, own: str | None) -> str:
        segment = own_segment(metadata, own) or last_segment(metadata.native_uri)
        return segment if segment != metadata.native_uri else segment[segment.find(":") + 1 :]

    def expire(self) -> None:
        super().expire()
        if self._directories:
            self._context.notify(self._told(), "changed")

    def announce(self, path: Path) -> None:
        """Have a directory listed again whose change the source has announced."""
        listed = self._directories.get(path)
        if listed is not None:
            listed.expire()
            told = ChangedPaths([path, *((*path, name) for name in listed.entries)], found="source")
            self._context.notify(told, "changed")

    def _told(self) -> ChangedPaths:
        """Return the paths of all cached names."""
        if sum(len(listed.entries) for listed in self._directories.there.values()) > TOLD_APART:
            return ChangedPaths.all_below(self.roots)
        names = ((*path, name) for path, listed in self._directories.there.items() for name in listed.entries)
        return ChangedPaths([*self._directories, *names])


class MixedCatalog(FlatCatalog):
    """The tree of a source that lists all at once, or names directories that are to be listed a level at a time."""

    def __init__(self, source: DataSource, handler: CanReadDirectory, context: CatalogContext) -> None:
        self._levels = _Levels(source, handler, context)
        super().__init__(source, handler, context, self._levels)

    @property
    def lists_all(self) -> bool:
        return not self._levels.roots

    # -- without waiting ---------------------------------------------------------------------------------------------

    @property
    def problem(self) -> str | None:
        return "; ".join(filter(None, (self._problem, self._levels.problem))) or None

    def held(self) -> Iterable[Record]:
        return chain(super().held(), self._levels.held()) if self._levels.roots else super().held()

    async def usage(self) -> tuple[int, int]:
        (size, count), (more, others) = await super().usage(), await self._levels.usage()
        return size + more, count + others

    def count(self) -> int:
        return super().count() + self._levels.count()

    # -- after a listing if necessary --------------------------------------------------------------------------------

    async def view(self, path: Path, *, completed: bool = True) -> View:
        if not self._levels.covers(path):
            try:
                view = await super().view(path, completed=completed)
            except NotFound:
                if not self._levels.covers(path):
                    raise
            else:
                if not self._levels.covers(path):
                    return view
        return await self._levels.view(path, completed=completed)

    # -- by URI ------------------------------------------------------------------------------------------------------

    def record(self, native_uri: str) -> Record | None:
        return super().record(native_uri) or self._levels.record(native_uri)

    def all_records(self) -> list[Record]:
        return [*super().all_records(), *self._levels.all_records()]

    def record_of(self, uri: str, native_uri: str) -> Record:
        if self._levels.covers(uri_paths.plain_path(native_uri).path[:-1]):
            return self._levels.record_of(uri, native_uri)
        return super().record_of(uri, native_uri)

    # -- changes -----------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        super().expire()
        self._levels.expire()

    def forget(self, path: Path) -> None:
        self._levels.forget(path)
        super().forget(path)

    def drop(self, path: Path) -> None:
        self._levels.drop(path)

    def announced(self, native_uri: str) -> None:
        path = uri_paths.plain_path(native_uri).path
        if self._levels.covers(path):
            self._levels.announce(path)

    @property
    def is_empty(self) -> bool:
        return super().is_empty and self._levels.is_empty

    async def recall(self, stored: Callable[[], Awaitable[Stored]]) -> None:
        async def kept() -> Stored:
            found = await stored()
            await self._levels.recall(partial(_again, found))
            return found

        await super().recall(kept)


async def _again(found: Stored) -> Stored:
    return found
