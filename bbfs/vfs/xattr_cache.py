"""The extended attributes of files, made once for a program that asks for one after the other, as `cp -a` does.

Between two awaits a task is alone; nothing here locks or waits.
"""

from dataclasses import dataclass
from typing import Any

from bbfs.resources.catalog.record import Node, Path, Record
from bbfs.resources.manager import ResourceManager
from bbfs.vfs import xattrs

HELD = 0.05
"""Seconds for which what was made is given out again, where nothing has changed: a program asks faster than that."""
AT_ONCE = 64
"""Files whose attributes are kept."""


@dataclass(frozen=True, slots=True)
class _Description:
    """What was made of a record, and the record's state (`_state`) and time (seconds since the epoch) then."""

    record: Record
    state: tuple[Any, ...]
    until: float
    values: dict[str, bytes]


class Described:
    """The attributes of what inodes lead to; those of the files asked for last are kept."""

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager
        self._kept: dict[int, _Description] = {}

    def again(self, ino: int) -> dict[str, bytes] | None:
        """What was made a moment ago for a file, if it is true still; else None."""
        kept = self._kept.get(ino)
        if kept is None:
            return None
        if self._manager.clock() < kept.until and _state(kept.record) == kept.state:
            return kept.values
        del self._kept[ino]
        return None

    def make(self, ino: int, path: Path, node: Node) -> dict[str, bytes]:
        """The attributes as they are now, of all but the mount's root."""
        manager = self._manager
        if len(path) == 1 and node.kind == "directory":
            return xattrs.attributes(manager.source_document(path))
        if node.kind == "symlink":
            return {}
        if node.record is None:
            document = manager.directory_document(path)
            return xattrs.attributes(document) if document else {}
        while len(self._kept) >= AT_ONCE:
            del self._kept[next(iter(self._kept))]
        values = xattrs.attributes(manager.document(path, node.record))
        self._kept[ino] = _Description(node.record, _state(node.record), manager.clock() + HELD, values)
        return values


def _state(record: Record) -> tuple[Any, ...]:
    """What the attributes depend on, time and memory aside."""
    owner = record.parent or record
    learnt = (record.fetched_at, record.size, record.digest, record.modified_ns, record.error, owner.error)
    return (*learnt, record.metadata, record.suspected, record.stale)
