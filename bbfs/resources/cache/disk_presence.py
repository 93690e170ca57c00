"""What is known, without a look at the index, of the resources that the disk cache has.

Most of what is loaded for the first time is not on disk, and to find that out in a thread takes a good part of what a
load costs here. So the URIs of a source in use are kept in memory: what is not among them is not on disk, or was put
there by another process a moment ago. Missing that costs a request, as any loss of a cache does.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from bbfs.resources.cache.disk_index import Index
from bbfs.resources.cache.sqlite import as_text

LOOKED_EVERY = 1.0
"""Seconds after which one looks again for what other processes have put."""
MOST = 50_000
"""Resources of a source up to which their URIs are kept, 150 bytes or so each; of more, each is looked for itself."""
SOURCES = 64
"""Sources whose URIs are kept."""


@dataclass(slots=True)
class _Known:
    """uris: of all resources of a source, and of some that were there; None where they are too many.

    version: of the index, see `Index.version`. until: when one looks again, by `clock`.
    """

    uris: set[str] | None
    version: int
    until: float


class Presence:
    """The URIs of the sources in use. `look` and `added` belong where the index may be used; `absent` never waits.

    clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, _Known] = {}

    def absent(self, source: str, uri: str) -> bool | None:
        """Whether a resource is known not to be on disk; None where one has to `look` first."""
        known = self._known.get(source)
        if known is None or self._clock() >= known.until:
            return None
        return known.uris is not None and (uri if uri.isascii() else as_text(uri)) not in known.uris

    def look(self, source: str, index: Index) -> None:
        """Take note of what a source has, unless that was done just now. Raises sqlite3.Error."""
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
        """This process puts a resource there."""
        known = self._known.get(source)
        if known is not None and known.uris is not None:
            known.uris.add(as_text(uri))
            if len(known.uris) > MOST:
                known.uris = None

    def forget(self) -> None:
        """The index is another one."""
        self._known.clear()
