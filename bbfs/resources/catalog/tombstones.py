"""What was learnt of resources that no listing holds: not any more, or not yet in this mount.

A resource that is listed again goes on from there. Else one whose content has changed meanwhile would begin with the
inode of the content before, of which the kernel may have pages.
"""

from collections.abc import Iterable
from weakref import WeakValueDictionary

from cachetools import LRUCache

from bbfs.model.values import ResourceMetadata
from bbfs.resources.cache.metadata import Remembered
from bbfs.resources.catalog.record import Path, Record

KEPT = 100_000


class Past:
    """The resources that were loaded and left last, and those that are there, by native URI."""

    def __init__(self) -> None:
        self._rows: LRUCache[str, Remembered] = LRUCache(KEPT)
        self._there: WeakValueDictionary[str, Record] = WeakValueDictionary()

    def take_in(self, rows: Iterable[Remembered]) -> None:
        """What an earlier mount has learnt."""
        for row in rows:
            self._rows.setdefault(row.uri, row)

    def there(self, native_uri: str) -> Record | None:
        """The record of a resource that is still held, by a listing or by whoever asked for its name."""
        return self._there.get(native_uri)

    def left(self, record: Record) -> None:
        """A record is let go."""
        if record.digest is not None and record.parent is None:
            self._rows[record.metadata.native_uri] = record.to_remember()

    def record(self, source_id: str, metadata: ResourceMetadata, path: Path, now: float) -> Record:
        """The record of a resource that had none, or had one of another kind."""
        record = Record(source_id, metadata, path, now)
        if metadata.kind == "resource":
            self._there[metadata.native_uri] = record
        row = self._rows.pop(metadata.native_uri, None) if metadata.kind == "resource" else None
        if row is not None:
            record.recall(row)
        return record
