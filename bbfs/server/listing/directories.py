"""Directories of all sources as resources, read a level and a page at a time (SEP-2640, "Reading Directories").

The URI of a directory is the common beginning of the URIs below it, without a slash at its end. `PREFIX+SCHEME:.` is
all that a source has with a scheme, since a URI has something behind the colon. A read asks the source for this one
directory, and for none below it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mcp_types as types
from cachetools import LRUCache

from bbfs.model.errors import NotADirectory, NotFound
from bbfs.model.uri import source_uri
from bbfs.model.uri_paths import native_of
from bbfs.model.values import ResourceMetadata
from bbfs.resources.catalog.base import Shown, View
from bbfs.resources.catalog.record import Path, Record
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.server.errors import Fault
from bbfs.server.listing.walk import page_token, place_of
from bbfs.server_parts.skills import READ_DIRECTORY, directory

PAGE = 500
_KEPT = 8
"""Directories whose entries are kept from one page to the next: to go through them from the start takes longer."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The entries of a directory as listed at a time (seconds since the epoch)."""

    view: View
    listed_at: float


class Directories:
    """All directories of a manager's sources. described: returns a resource for clients, with what is known of it."""

    def __init__(
        self, manager: ResourceManager, described: Callable[[Record | ResourceMetadata], types.Resource]
    ) -> None:
        self._manager = manager
        self._described = described
        self._kept: LRUCache[tuple[str, Path], _Kept] = LRUCache(_KEPT)

    def roots(self) -> Iterator[types.Resource]:
        """Yield the directories that hold all others: one for each scheme of each source that was listed."""
        for source in self._manager.sources.values():
            if source.data.capabilities.list:
                title = source.data.title or source.data.name
                for scheme in _schemes(source):
                    yield directory(source_uri(source.data.base_prefix, f"{scheme}:."), title)

    async def page(self, uri: str, cursor: str | None) -> tuple[list[types.Resource], str | None]:
        """Return a page of the direct children of a directory, and the cursor of the next page.

        An unchanged child is on one page, whatever changes between two pages. Raises Fault for a cursor that is not
        from this server; NotFound, NotADirectory, or the error of the source.
        """
        position, after = _place(uri, cursor)
        source, path = self._found(uri)
        view = await self._view(source, path)
        begin = _begin(view, position, after)
        page: list[types.Resource] = []
        last = after
        for portion, start in view.portions(begin):
            for name, shown in zip(portion.names[start:], portion.shown[start:], strict=True):
                if len(page) >= PAGE:
                    return page, page_token([READ_DIRECTORY, uri], [begin, last])
                begin, last = begin + 1, name
                child = self._child(source, view, (*path, name), shown)
                if child is not None:
                    page.append(child)
        self._kept.pop((source.key, path), None)
        return page, None

    def _found(self, uri: str) -> tuple[Source, Path]:
        """Return the source of a directory and its path there, whether or not something is there."""
        source, _, native_uri = self._manager.roots.parsed(uri)
        if not source.data.capabilities.list:
            raise NotFound(f"{source.data.id} cannot be listed")
        for spelled in (native_uri, f"{native_uri}/"):
            record = source.catalog.record(spelled)
            if record is not None and record.path and record.metadata.kind == "directory":
                return source, record.path
        return source, source.catalog.plain_path(native_uri)

    async def _view(self, source: Source, path: Path) -> View:
        catalog = source.catalog
        with source.waiters:
            view = await catalog.view(path, completed=bool(path))
        node = catalog.last_cached(path) if path else None
        if node is not None and node.record is not None and node.record.metadata.kind != "directory":
            raise NotADirectory("not a directory resource")
        key, listed_at = (source.key, path), catalog.listed_at(path)
        kept = self._kept.get(key)
        if kept is None or kept.listed_at != listed_at or len(kept.view) != len(view) or not kept.view.unchanged:
            kept = self._kept[key] = _Kept(view, listed_at)
        return kept.view

    def _child(self, source: Source, view: View, path: Path, shown: Shown) -> types.Resource | None:
        """Return an entry of a directory as a resource; None for a symbolic link, which is not followed."""
        if isinstance(shown, str):
            metadata = view.metadata(shown)
            return None if metadata is None else self._described(metadata)
        record = shown.record
        if record is None:
            native = native_of(path, None if source.catalog.lists_all else source.data.scheme)
            return directory(source_uri(source.data.base_prefix, native), path[-1])
        if record.metadata.kind == "directory":
            return directory(record.metadata.uri.rstrip("/"), record.metadata.name)
        return self._described(record) if record.metadata.kind == "resource" else None


def _schemes(source: Source) -> list[str]:
    """Return the schemes of a source, as far as they are known. No source is asked."""
    if source.data.scheme is not None and not source.is_split_by_scheme:
        return [source.data.scheme]
    view = source.catalog.cached_view((), completed=False)
    return [] if view is None else [name for name, shown in view if not isinstance(shown, str)]


def _place(uri: str, cursor: str | None) -> tuple[int, str | None]:
    """Return the position of a page, and the name before it. Raises Fault."""
    if cursor is None:
        return 0, None
    match place_of([READ_DIRECTORY, uri], cursor):
        case [int(position), str(last)] if position > 0:
            return position, last
    raise Fault("invalid_token", "not a cursor of this server")


def _begin(view: View, position: int, after: str | None) -> int:
    """Return the position of the first name behind `after`, which was at `position` when the last page was made."""
    if after is None:
        return 0
    if position <= len(view):
        found = next(view.portions(position - 1), None)
        if found is not None and found[0].names[found[1]] == after:
            return position
    return next((number for number, (name, _) in enumerate(view) if name > after), len(view))
