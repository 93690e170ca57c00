"""Contents in memory: the cache that keeps those used last within a budget of bytes.

Nothing here waits or starts tasks. Between two awaits a task is alone, so the cache needs no lock as long as it is used
from the event loop's thread only.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cachetools import LRUCache

from bbfs.model.values import Content

V = TypeVar("V", bound=object)


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """What a cache did since it was made. `evictions` are entries pushed out by others, not those discarded."""

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int
    max_bytes: int


def _content_size(value: Any) -> int:
    content: Content = value
    return content.size


class _Evicting(LRUCache[Hashable, V]):
    """An LRU cache that counts its evictions."""

    evictions = 0

    def popitem(self) -> tuple[Hashable, V]:
        self.evictions += 1
        return super().popitem()


class ContentCache(Generic[V]):
    """Keeps what was used last within a budget of bytes.

    max_bytes: the budget. getsizeof: bytes of one value (default: its `size`); an empty value counts one byte, so that
    the number of entries is bounded too. What leaves the cache is dropped, never closed: an open file that pins it goes
    on reading.
    """

    def __init__(self, max_bytes: int, getsizeof: Callable[[V], int] = _content_size) -> None:
        self.max_bytes = max_bytes
        self.hits = self.misses = 0
        self._entries: _Evicting[V] = _Evicting(max_bytes, lambda value: max(1, getsizeof(value)))

    def get(self, key: Hashable) -> V | None:
        """Return the value of `key`, which is now the one used last, or None."""
        try:
            value = self._entries[key]
        except KeyError:
            self.misses += 1
            return None
        self.hits += 1
        return value

    def put(self, key: Hashable, value: V) -> bool:
        """Replace the value of `key`. Return False for a value that is larger than the budget: it is not kept."""
        self.discard(key)
        try:
            self._entries[key] = value
        except ValueError:
            return False
        return True

    def discard(self, key: Hashable) -> V | None:
        """Take `key` out, if it is there, and return its value."""
        return self._entries.pop(key, None)

    def clear(self) -> None:
        """Take everything out; the counters go on."""
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
    def statistics(self) -> CacheStatistics:
        return CacheStatistics(
            self.hits, self.misses, self.evictions, len(self._entries), int(self._entries.currsize), self.max_bytes
        )
