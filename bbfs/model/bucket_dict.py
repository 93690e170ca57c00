"""A mapping of texts to anything that stays quick to change and to go through when it holds a million of them. Pure.

A dict of that size moves all that it holds when it grows, and sorting or copying it takes as long: a tenth of a second
and more in which nothing else runs. Here the keys are in many small dicts, each of a range of keys, which are split as
they fill. So a bucket is what anything takes at most at once, and the keys are in order but for those within a bucket.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, MutableMapping
from typing import TypeVar

T = TypeVar("T")
LARGEST = 8192
"""Keys of a bucket; splitting one takes about 3 ms."""


class Buckets(MutableMapping[str, T]):
    """The mapping. While it has one bucket, it is in the order in which keys came, as a dict is.

    As with a dict, it must not change while an iterator of it is in use; `portions` may be.
    """

    __slots__ = ("_buckets", "_first", "_last", "_length", "_lowest", "_orders", "_place", "_recent")

    def __init__(self, items: dict[str, T] | None = None) -> None:
        self._lowest: list[str] = [""]
        """The least key that each bucket may hold."""
        self._buckets: list[dict[str, T]] = [{}]
        self._orders: list[tuple[str, ...] | None] = [None]
        """The keys of each bucket in order, once they were wanted."""
        self._length = self._place = 0
        self._first, self._last, self._recent = "", None, self._buckets[0]  # the range of the bucket last used
        if items:
            self.update(items)

    def _bucket(self, key: str) -> dict[str, T]:
        last: str | None = self._last
        if key >= self._first and (last is None or key < last):
            return self._recent
        self._place = place = bisect_right(self._lowest, key) - 1
        self._first = self._lowest[place]
        self._last = self._lowest[place + 1] if place + 1 < len(self._lowest) else None
        self._recent = self._buckets[place]
        return self._recent

    def _split(self, key: str, value: T) -> None:
        """Add a key to a full bucket: the last one is left as it is by a key beyond all, others are halved."""
        place = bisect_right(self._lowest, key) - 1
        bucket = self._buckets[place]
        if place == len(self._buckets) - 1 and key > max(bucket):
            self._buckets.append({key: value})
            self._lowest.append(key)
            self._orders.append(None)
        else:
            bucket[key] = value
            keys = sorted(bucket)
            half = len(keys) // 2
            self._buckets[place : place + 1] = [
                {each: bucket[each] for each in keys[:half]},
                {each: bucket[each] for each in keys[half:]},
            ]
            self._lowest.insert(place + 1, keys[half])
            self._orders[place : place + 1] = [None, None]
        self._length += 1
        self._first, self._last = "\U0010ffff", ""  # no key is in this range

    # -- as a dict ---------------------------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> T:
        return self._bucket(key)[key]

    def __setitem__(self, key: str, value: T) -> None:
        bucket = self._bucket(key)
        before = len(bucket)
        if before >= LARGEST and key not in bucket:
            self._split(key, value)
            return
        bucket[key] = value
        if len(bucket) != before:
            self._length += 1
            self._orders[self._place] = None

    def setdefault(self, key: str, default: T) -> T:  # type: ignore[override] # no default is no value
        bucket = self._bucket(key)
        before = len(bucket)
        if before >= LARGEST and key not in bucket:
            self._split(key, default)
            return default
        value = bucket.setdefault(key, default)
        if len(bucket) != before:
            self._length += 1
            self._orders[self._place] = None
        return value

    def __delitem__(self, key: str) -> None:
        del self._bucket(key)[key]
        self._length -= 1
        self._orders[self._place] = None

    def get(self, key: str, default: T | None = None) -> T | None:  # type: ignore[override]
        return self._bucket(key).get(key, default)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self._bucket(key)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        for bucket in self._buckets:
            yield from bucket

    # -- by position -------------------------------------------------------------------------------------------------

    def _order(self, place: int) -> tuple[str, ...]:
        order = self._orders[place]
        if order is None:
            order = self._orders[place] = tuple(sorted(self._buckets[place]))
        return order

    def position(self, key: str) -> int | None:
        """How many keys come before one; None where it is not there."""
        if key not in self._bucket(key):
            return None
        place = self._place
        return sum(map(len, self._buckets[:place])) + bisect_left(self._order(place), key)

    def key_at(self, position: int) -> str:
        """The key before which so many come. Raises IndexError."""
        if position >= 0:
            for place, bucket in enumerate(self._buckets):
                if position < len(bucket):
                    return self._order(place)[position]
                position -= len(bucket)
        raise IndexError(position)

    # -- a bucket at a time ------------------------------------------------------------------------------------------

    def portions(self) -> Iterator[list[tuple[str, T]]]:
        """All items, a bucket at a time. What is in it all the while comes once, whatever changes between two."""
        after = ""  # where a bucket begins one always will
        while True:
            place = bisect_right(self._lowest, after) - 1
            items = list(self._buckets[place].items())
            end = self._lowest[place + 1] if place + 1 < len(self._lowest) else None
            yield items
            if end is None:
                return
            after = end

    def in_order(self) -> Iterator[list[tuple[str, T]]]:
        """As `portions`, all in the order of the keys."""
        for items in self.portions():
            yield sorted(items, key=_key)


def _key(item: tuple[str, object]) -> str:
    return item[0]
