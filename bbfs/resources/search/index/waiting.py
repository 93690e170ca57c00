"""The queue of the local index: loaded contents, and marks of documents that may differ.

Between two awaits a task is alone; nothing here locks.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import trio

from bbfs.resources.search.index.entries import Document, Entry, Remove, Stale, Unfit, decoded

if TYPE_CHECKING:
    from bbfs.resources.search.index.store import IndexStore

BATCH, BATCH_BYTES = 1024, 1 << 20
"""Entries that are written before the index may be closed, and bytes of their texts: the hardest MiB takes seconds."""
MOST_WAITING, MOST_WAITING_BYTES = 20_000, 64 << 20
"""Entries, and bytes of their texts, that wait to be written. Documents beyond that are left out."""


@dataclass(frozen=True, slots=True, eq=False)
class Learnt:
    """A loaded content that waits to be indexed."""

    entry: Document
    content: bytes


def _bytes_of(entry: Learnt | Entry) -> int:
    return len(entry.content) if isinstance(entry, Learnt) else 0


class Waiting:
    """The entries that wait, in the order in which they came.

    bytes: of their texts, and of the documents that the owner keeps until they are read. marked: the documents, by
    source and URI, whose mark waits; after a failure it stays, so that a changed document is not found again. came: set
    while entries wait.
    """

    def __init__(self, *, most: int = MOST_WAITING, batch_bytes: int = BATCH_BYTES) -> None:
        self._most, self._batch_bytes = most, batch_bytes
        self.bytes = 0
        self.marked: Counter[tuple[str, str]] = Counter()
        self.came = trio.Event()
        self._entries: deque[Learnt | Entry] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def has_room(self, size: int, others: int) -> bool:
        """Return whether a text of this size may wait, too. others: documents that the owner keeps."""
        return len(self._entries) + others < self._most and self.bytes + size <= MOST_WAITING_BYTES

    def put(self, entry: Learnt | Entry) -> None:
        """Add an entry. The caller has counted the bytes of its text."""
        self._entries.append(entry)
        self.came.set()

    def mark(self, entry: Stale | Remove) -> None:
        """Add a mark of a document that must not be found. Marks are few and small; they are never left out."""
        self.marked[entry.source, entry.uri] += 1
        self.put(entry)

    def take(self) -> list[Learnt | Entry]:
        """Remove and return the entries to be written next."""
        taken: list[Learnt | Entry] = []
        size = 0
        while self._entries and len(taken) < BATCH and size < self._batch_bytes:
            taken.append(self._entries.popleft())
            size += _bytes_of(taken[-1])
        self.bytes -= size
        return taken

    def give_back(self, taken: Sequence[Learnt | Entry]) -> None:
        """Have entries that could not be written now wait again, before all others."""
        self._entries.extendleft(reversed(taken))
        self.bytes += sum(map(_bytes_of, taken))

    def written(self, taken: Sequence[Learnt | Entry]) -> None:
        """Drop the marks that were written."""
        self.marked.subtract((each.source, each.uri) for each in taken if isinstance(each, Stale | Remove))
        self.marked = +self.marked


def write_all(store: "IndexStore", taken: Sequence[Learnt | Entry], now: float) -> None:
    """Decode and write entries. Blocks. now: seconds since the epoch."""
    entries: list[Entry] = []
    for each in taken:
        if not isinstance(each, Learnt):
            entries.append(each)
        elif (text := decoded(each.content)) is None:
            entries.append(Unfit(each.entry.source, each.entry.uri, each.entry.stamp))
        else:
            entries.append(replace(each.entry, text=text))
    store.write(entries, now)
