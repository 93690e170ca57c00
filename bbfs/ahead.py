"""Loading ahead of a reader that walks through a directory: the policy's windows, applied to a source's tree."""

from collections.abc import Callable
from dataclasses import dataclass

from cachetools import LRUCache

from bbfs.attached import Source
from bbfs.cache.prefetch import Window
from bbfs.errors import NotFound
from bbfs.records import Path, Record

DIRECTORIES_WATCHED = 256


@dataclass(slots=True)
class _Walk:
    """A directory that somebody reads in: its files in readdir's order, and the window over them."""

    window: Window
    names: list[str]
    index: dict[str, int]


class LoadAhead:
    """The walks under way, by directory.

    load: starts loading a record if it is not being loaded. largest: bytes; a resource known to be larger is left to
    its reader. clock: seconds since the epoch.
    """

    def __init__(self, load: Callable[[Source, Record], None], *, largest: int, clock: Callable[[], float]) -> None:
        self._load = load
        self._largest = largest
        self._clock = clock
        self._walks: LRUCache[tuple[str, Path], _Walk] = LRUCache(DIRECTORIES_WATCHED)

    def accessed(self, source: Source, path: Path) -> None:
        """Something wants the content at a path of the source's catalog: load what a walk would want next."""
        key = (source.data.id, path[:-1])
        walk = self._walks.get(key)
        if walk is None:
            children = source.catalog.known_children(path[:-1])
            if children is None:
                return
            names = [name for name, node in children.items() if node.kind == "file"]
            window = Window(2 * source.data.policy.concurrency)
            walk = self._walks[key] = _Walk(window, names, {name: i for i, name in enumerate(names)})
        index = walk.index.get(path[-1])
        if index is None:
            return
        for position in walk.window.access(index):
            if position >= len(walk.names):
                break
            self._begin(source, (*path[:-1], walk.names[position]))

    def forget(self, source_id: str, directory: Path) -> None:
        """The names of a directory have changed: what walks there begins anew."""
        self._walks.pop((source_id, directory), None)

    def _begin(self, source: Source, path: Path) -> None:
        try:
            node = source.catalog.known(path)
        except NotFound:
            return
        record = node.record if node is not None else None
        now = self._clock()
        if record is None or record.on_open or record.fresh(now):
            return
        if now < record.error_until or record.best_size() > self._largest:
            return
        record.ahead = True
        self._load(source, record)
