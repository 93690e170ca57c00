"""What the local index does not have yet of a source: which documents are new or have changed, or how old the index is.

A search asks for that, so only what costs little is looked at: listings that are in memory, local folders, and the time
of a local file. Of all other sources only the age of the index is known.
"""

import os
import stat
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import trio

from bbfs.model.errors import BbfsError
from bbfs.model.quantities import counted
from bbfs.model.source_types import of_source
from bbfs.model.values import ResourceMetadata
from bbfs.resources.search.index.entries import Known
from bbfs.resources.search.index.local import LocalIndex, stamp_of
from bbfs.resources.source import Source
from bbfs.sources import IsLocalFile

LISTED_WITHIN = 1.0
"""Seconds for the listing of a source."""
MOST_COMPARED = 10_000
"""Documents of a source in the index that are compared with its listing."""
AGE_SAID_AFTER = 600.0
"""Seconds: a younger index counts as up to date where nothing else tells."""
_BINARY = ("image/", "audio/", "video/", "font/", "application/zip", "application/gzip", "application/pdf")


@dataclass(frozen=True, slots=True)
class Lag:
    """What the index does not have of a source. why: for people. changed: native URIs of documents it has as before."""

    why: str
    changed: frozenset[str] = field(default_factory=frozenset)


class Lags:
    """Tells how far the index is behind. listed: lists all of a source, by its id. clock: seconds since the epoch."""

    def __init__(
        self,
        index: LocalIndex,
        listed: Callable[[str], Awaitable[Iterable[ResourceMetadata]]],
        clock: Callable[[], float],
    ) -> None:
        self._index = index
        self._listed = listed
        self._clock = clock

    async def lag(self, source: Source) -> Lag | None:
        """Return what the index does not have of a source, or None if nothing tells of any change."""
        try:
            known = await self._index.indexed(source, MOST_COMPARED)
        except BbfsError:
            return None  # the search itself says why
        file = source.handler.local_file if isinstance(source.handler, IsLocalFile) else None
        written = await trio.to_thread.run_sync(_written_at, file) if file is not None else None
        if written is not None:
            since = known.walked
            return None if since is None or written <= since else Lag(f"written since it was read {self._ago(since)}")
        lag, is_exact = await self._compared(source, known)
        if lag is not None or is_exact or known.walked is None or self._clock() - known.walked < AGE_SAID_AFTER:
            return lag
        return Lag(f"read {self._ago(known.walked)}")

    async def _compared(self, source: Source, known: Known) -> tuple[Lag | None, bool]:
        """Compare a listing with the index. Return what differs, and whether nothing else can."""
        found = of_source(source.data)
        is_local = found is not None and found.is_local
        catalog = source.catalog
        if known.documents is None or not (is_local or (catalog.lists_all and catalog.cached_view(()) is not None)):
            return None, False
        with trio.move_on_after(LISTED_WITHIN):
            try:
                whole = await self._listed(source.data.id)
                listed = [each for each in whole if may_be_text(self._index, source, each)]
            except BbfsError:
                return None, False
            changed = frozenset(each.native_uri for each in listed if _has_changed(known, each))
            new = 0 if known.walked is None else sum(_is_new(self._index, known, each) for each in listed)
            is_exact = (is_local or catalog.validity(()) > 0) and all(_is_stated(known, each) for each in listed)
            lag = Lag(_counted(len(changed), new), changed) if changed or new else None
            return lag, is_exact
        return None, False

    def _ago(self, at: float) -> str:
        """Return how long ago a time is, as its greatest unit."""
        seconds = max(self._clock() - at, 0.0)
        for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
            if seconds >= length:
                return f"{counted(int(seconds // length), unit)} ago"
        return "a moment ago"


def may_be_text(index: LocalIndex, source: Source, metadata: ResourceMetadata) -> bool:
    """Return whether a walk reads a resource, as far as its description tells."""
    if source.leaves_aside(metadata.native_uri):
        return False
    if metadata.kind != "resource" or metadata.on_open or (metadata.size or 0) > index.largest(metadata):
        return False
    return index.kind_of(metadata) is not None or not (metadata.mime_type or "").startswith(_BINARY)


def _has_changed(known: Known, metadata: ResourceMetadata) -> bool:
    """Return whether a document was indexed in another version than its source lists."""
    document = (known.documents or {}).get(metadata.native_uri)
    if document is None:
        return False
    return document.stale or (None not in (was := document.stamp, now := stamp_of(metadata)) and was != now)


def _is_new(index: LocalIndex, known: Known, metadata: ResourceMetadata) -> bool:
    """Return whether no walk has read a resource, or none has in this version, or as a document of this kind."""
    uri = metadata.native_uri
    if uri in (known.documents or {}):
        return False
    if uri not in known.unfit or index.kind_of(metadata) is not None:
        return True
    return None not in (was := known.unfit[uri], now := stamp_of(metadata)) and was != now


def _is_stated(known: Known, metadata: ResourceMetadata) -> bool:
    """Return whether the source states the versions of a resource, so that a change of it shows in the listing."""
    document = (known.documents or {}).get(metadata.native_uri)
    was = known.unfit.get(metadata.native_uri) if document is None else document.stamp
    return None not in (was, stamp_of(metadata))


def _counted(changed: int, new: int) -> str:
    counts = [f"{number} {what}" for number, what in ((changed, "changed"), (new, "new")) if number]
    return f"{' and '.join(counts)} document{'s' if changed + new > 1 else ''}"


def _written_at(path: str) -> float | None:
    """Return when a file, or the log beside it that SQLite or DuckDB writes first, was written (seconds); else None."""
    times: list[float] = []
    for name in (path, f"{path}-wal", f"{path}.wal"):
        try:
            found = os.stat(name)
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode) and (found.st_size or name == path):
            times.append(found.st_mtime)
        elif name == path:
            return None  # a folder
    return max(times, default=None)
