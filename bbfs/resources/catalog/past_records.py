"""Records of resources that were dropped from the listing, or that this mount has not listed yet.

A resource that is listed again continues with its record. Otherwise one whose content has changed in between would get
the inode of the old content, of which the kernel may have cached pages.
"""

from collections.abc import Iterable
from weakref import WeakValueDictionary

from cachetools import LRUCache

from bbfs.model.values import ResourceMetadata
from bbfs.resources.cache.metadata import Remembered
from bbfs.resources.catalog.record import Path, Record

KEPT = 100_000


class Past:
    """The loaded resources that were dropped last, and those that are held, by native URI."""

    def __init__(self) -> None:
        self._rows: LRUCache[str, Remembered] = LRUCache(KEPT)
        self._there: WeakValueDictionary[str, Record] = WeakValueDictionary()

    def take_in(self, rows: Iterable[Remembered]) -> None:
        """Take over the records of an earlier mount."""
        for row in rows:
            self._rows.setdefault(row.uri, row)

    def there(self, native_uri: str) -> Record | None:
        """Return the record of a resource that a listing or a lookup still holds, or None."""
        return self._there.get(native_uri)

    def left(self, record: Record) -> None:
        """Keep the learnt state of a record that is dropped."""
        if record.digest is not None and record.parent is None:
            self._rows[record.metadata.native_uri] = record.to_remember()

    def record(self, source_id: str, metadata: ResourceMetadata, path: Path, now: float) -> Record:
        """Make the record of a resource that had none, or had one of another kind."""
        record = Record(source_id, metadata, path, now)
        if metadata.kind == "resource":
            self._there[metadata.native_uri] = record
        row = self._rows.pop(metadata.native_uri, None) if metadata.kind == "resource" else None
        if row is not None:
            record.recall(row)
        return record
