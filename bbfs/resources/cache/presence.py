"""Which resources of the sources in use have contents on disk, kept in memory."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from bbfs.resources.cache.disk_index import DiskIndex
from bbfs.resources.cache.sqlite import as_text

LOOKED_EVERY = 1.0
"""Seconds between looks for what other processes have put."""
MOST = 50_000
"""Largest source, in resources, whose URIs are kept in memory (about 150 bytes each)."""
SOURCES = 64
"""Sources whose URIs are kept in memory."""


@dataclass(slots=True)
class _Known:
    """The URIs of a source, maybe with some that are gone; None if they are too many.

    version: `Index.version`. until: when to look again, by `clock`.
    """

    uris: set[str] | None
    version: int
    until: float


class Presence:
    """The URIs that the index has of the sources in use, in memory.

    Most first loads are not on disk, and asking the index in a thread takes a good part of what a load costs here. It
    misses what another process has put a moment ago, which costs a request. `look` and `added` may use the index;
    `absent` never waits. clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, _Known] = {}

    def absent(self, source: str, uri: str) -> bool | None:
        """Return whether a resource is not on disk, or None if the caller has to `look` first."""
        known = self._known.get(source)
        if known is None or self._clock() >= known.until:
            return None
        return known.uris is not None and (uri if uri.isascii() else as_text(uri)) not in known.uris

    def look(self, source: str, index: DiskIndex) -> None:
        """Read the URIs of a source, unless they were read just now. Raises sqlite3.Error."""
        known, now = self._known.get(source), self._clock()
        if known is not None and now < known.until:
            return
        version = index.version()
        if known is None or known.version != version:
            uris = index.uris(source, MOST + 1)
            known = _Known(set(uris) if len(uris) <= MOST else None, version, 0.0)
            while len(self._known) >= SOURCES and source not in self._known:
                del self._known[next(iter(self._known))]
            self._known[source] = known
        known.until = now + LOOKED_EVERY

    def added(self, source: str, uri: str) -> None:
        """Add a resource that this process puts on disk."""
        known = self._known.get(source)
        if known is not None and known.uris is not None:
            known.uris.add(as_text(uri))
            if len(known.uris) > MOST:
                known.uris = None

    def forget(self) -> None:
        """Drop all URIs, for another index."""
        self._known.clear()
