"""Contents in memory: the plain content of one resource, and the cache that keeps the ones used last.

Nothing here waits or starts tasks. Between two awaits a task is alone, so the cache needs no lock as long as it is used
from the event loop's thread only.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

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


class ContentCache(Generic[V]):
    """Keeps what was used last within a budget of bytes. Synchronous: between two awaits a task is alone.

    max_bytes: the budget. getsizeof: bytes of one value (default: its `size`), the same as long as it is kept; an empty
    value counts one byte, so that the number of entries is bounded too. A value larger than the whole budget is not
    kept. What leaves the cache is dropped, never closed: an open file that pins it goes on reading.
    """

    def __init__(self, max_bytes: int, getsizeof: Callable[[V], int] = _content_size) -> None:
        if max_bytes < 0:
            raise ValueError(f"max_bytes is {max_bytes}, less than 0")
        self.max_bytes = max_bytes
        self.hits = self.misses = self.evictions = 0
        self._getsizeof = getsizeof
        self._entries: OrderedDict[Hashable, V] = OrderedDict()  # the one used last is the last one
        self._bytes = 0

    def _charge(self, value: V) -> int:
        return max(1, self._getsizeof(value))

    def get(self, key: Hashable) -> V | None:
        """The value of `key`, which is now the one used last, or None."""
        value = self._entries.get(key)
        if value is None:
            self.misses += 1
            return None
        self._entries.move_to_end(key)
        self.hits += 1
        return value

    def put(self, key: Hashable, value: V) -> bool:
        """Replaces what `key` has. Says whether the value is kept; one larger than the budget is not."""
        self.discard(key)
        charge = self._charge(value)
        if charge > self.max_bytes:
            return False
        while self._bytes + charge > self.max_bytes:
            self._bytes -= self._charge(self._entries.popitem(last=False)[1])
            self.evictions += 1
        self._entries[key] = value
        self._bytes += charge
        return True

    def discard(self, key: Hashable) -> V | None:
        """Takes `key` out, if it is there, and gives what it had."""
        value = self._entries.pop(key, None)
        if value is not None:
            self._bytes -= self._charge(value)
        return value

    def clear(self) -> None:
        """Takes everything out; the counters go on."""
        self._entries.clear()
        self._bytes = 0

    def __contains__(self, key: Hashable) -> bool:
        """Whether `key` is kept; this is no use of it and not counted."""
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def statistics(self) -> CacheStatistics:
        return CacheStatistics(
            hits=self.hits,
            misses=self.misses,
            evictions=self.evictions,
            entries=len(self._entries),
            bytes=self._bytes,
            max_bytes=self.max_bytes,
        )
