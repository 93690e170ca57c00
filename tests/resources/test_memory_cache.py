"""The content cache against a model of what an LRU of bytes is."""

import tracemalloc
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bbfs.resources.loading.tiers import AROUND, ContentCache
from bbfs.sources.content.memory import MemoryContent, digest_of

BUDGET = 20


@given(st.binary(max_size=64), st.integers(0, 80), st.integers(0, 80))
async def test_a_slice_is_the_slice_though_it_was_closed(data: bytes, offset: int, length: int) -> None:
    content = MemoryContent(data)
    assert content.size == len(data)
    assert await content.read_waiting(offset, length) == data[offset : offset + length]
    content.close()
    assert content.read(offset, length) == data[offset : offset + length]


@given(st.binary(), st.binary())
def test_versions_are_equal_exactly_when_the_bytes_are(one: bytes, other: bytes) -> None:
    assert (MemoryContent(one).version == MemoryContent(other).version) == (one == other)
    assert len(MemoryContent(one).version) == 32


def test_an_item_larger_than_the_budget_is_not_kept_and_replaces_nothing_but_itself() -> None:
    cache = ContentCache(4, around=0)
    kept = MemoryContent(b"ab")
    cache.put("kept", kept)
    cache.put("grown", MemoryContent(b"c"))
    assert not cache.put("grown", MemoryContent(b"12345"))
    assert cache.get("grown") is None, "an outdated value must not outlive its replacement"
    assert cache.get("kept") is kept
    assert cache.evictions == 0


def test_a_budget_of_nothing_keeps_nothing() -> None:
    cache = ContentCache(0, around=0)
    assert not cache.put("empty", MemoryContent(b""))
    assert len(cache) == 0
    with pytest.raises(ValueError):
        ContentCache(-1)


def test_counters() -> None:
    cache = ContentCache(4, around=0)
    cache.put("a", MemoryContent(b"123"))
    assert cache.get("a") is not None
    assert cache.get("b") is None
    cache.put("b", MemoryContent(b"45"))
    assert "a" not in cache
    assert (cache.hits, cache.evictions) == (1, 1)
    cache.clear()
    assert (len(cache), cache.bytes, cache.evictions) == (0, 0, 1)


@pytest.mark.parametrize(("size", "charged"), [(0, AROUND), (30, 30 + AROUND), (9900, 10_000), (10_000, 10_000)])
def test_a_content_is_charged_for_what_is_around_it(size: int, charged: int) -> None:
    cache = ContentCache(10_000)
    assert cache.put("a", MemoryContent(bytes(size)))
    assert cache.bytes == charged


def test_the_charge_is_what_small_contents_take() -> None:
    def content(number: int) -> MemoryContent:
        data = b"%d" % number
        return MemoryContent(data, digest_of(data))

    cache = ContentCache(1 << 30)
    tracemalloc.start()
    try:
        for number in range(5000):
            made = content(number)
            cache.put(("bb-database+shop+sqlite", f"sqlite:///shop.db/main/item/row/{number}", 0, made.version), made)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.5 < held / cache.bytes < 1.5


class AgainstAModel(RuleBasedStateMachine):
    """The same operations on the cache and on an ordered dictionary that is cut by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = ContentCache(BUDGET, around=0)
        self.model: OrderedDict[int, MemoryContent] = OrderedDict()
        self.evictions = 0

    @staticmethod
    def charge(content: MemoryContent) -> int:
        return max(1, content.size)

    def used(self) -> int:
        return sum(self.charge(content) for content in self.model.values())

    @rule(key=st.integers(0, 8), data=st.binary(max_size=BUDGET + 3))
    def put(self, key: int, data: bytes) -> None:
        content = MemoryContent(data)
        kept = self.cache.put(key, content)
        self.model.pop(key, None)
        assert kept == (self.charge(content) <= BUDGET)
        if kept:
            while self.used() + self.charge(content) > BUDGET:
                self.model.popitem(last=False)
                self.evictions += 1
            self.model[key] = content

    @rule(key=st.integers(0, 8))
    def get(self, key: int) -> None:
        assert self.cache.get(key) is self.model.get(key)
        if key in self.model:
            self.model.move_to_end(key)

    @rule(key=st.integers(0, 8))
    def discard(self, key: int) -> None:
        assert self.cache.discard(key) is self.model.pop(key, None)

    @rule()
    def clear(self) -> None:
        self.cache.clear()
        self.model.clear()

    @invariant()
    def never_over_budget_and_the_same(self) -> None:
        assert self.cache.bytes == self.used() <= BUDGET
        assert len(self.cache) == len(self.model)
        assert self.cache.evictions == self.evictions
        assert all(key in self.cache for key in self.model)


TestAgainstAModel = AgainstAModel.TestCase
