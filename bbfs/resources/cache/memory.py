"""The contents in memory: an LRU cache within a budget of bytes.

Nothing here waits. Between two awaits a task is alone, so the event loop's thread needs no lock.
"""

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from cachetools import LRUCache

from bbfs.model.values import Content

V = TypeVar("V", bound=object)
AROUND = 600
"""Bytes of memory that a content takes beside its own: its key, its version, and the objects that hold it."""


def _content_size(value: Any) -> int:
    content: Content = value
    return content.size


def charge(content: Content, budget: int) -> int:
    """Return the bytes that a content takes of a budget: of many small ones, most are around them.

    One that fills the budget by itself may have all of it.
    """
    return max(content.size, min(content.size + AROUND, budget))


class _Evicting(LRUCache[Hashable, V]):
    """An LRU cache that counts its evictions: entries that made room for others, not the discarded ones."""

    evictions = 0

    def popitem(self) -> tuple[Hashable, V]:
        self.evictions += 1
        return super().popitem()


class ContentCache(Generic[V]):
    """An LRU cache within a budget of bytes.

    max_bytes: the budget. getsizeof: bytes of one value (default: its `size`); an empty value counts one byte, which
    bounds the number of entries too. An evicted content is dropped, never closed: open files go on reading it.
    """

    def __init__(self, max_bytes: int, getsizeof: Callable[[V], int] = _content_size) -> None:
        self.max_bytes = max_bytes
        self.hits = 0
        self._entries: _Evicting[V] = _Evicting(max_bytes, lambda value: max(1, getsizeof(value)))

    def get(self, key: Hashable) -> V | None:
        """Return the value of `key` and count the use, or return None."""
        try:
            value = self._entries[key]
        except KeyError:
            return None
        self.hits += 1
        return value

    def put(self, key: Hashable, value: V) -> bool:
        """Replace the value of `key`. Return False if it is larger than the budget, and keep nothing."""
        self.discard(key)
        try:
            self._entries[key] = value
        except ValueError:
            return False
        return True

    def discard(self, key: Hashable) -> V | None:
        """Remove `key` and return its value, or None."""
        return self._entries.pop(key, None)

    def discard_all(self, belongs: Callable[[Hashable], bool]) -> None:
        """Remove all entries whose keys belong to something."""
        for key in [key for key in self._entries if belongs(key)]:
            self.discard(key)

    def clear(self) -> None:
        """Remove all entries; the counters go on."""
        self._entries.clear()

    def __contains__(self, key: Hashable) -> bool:
        """Return whether `key` is cached, without counting that as a use."""
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def evictions(self) -> int:
        return self._entries.evictions

    @property
    def bytes(self) -> int:
        """The bytes of all entries, each as `getsizeof` has it."""
        return int(self._entries.currsize)
