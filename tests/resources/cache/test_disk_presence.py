"""What is known of the disk without a look at it: never that something is absent which this process has put there."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bbfs.model.values import Part
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.disk_index import LOOKED_EVERY, SOURCES, DiskIndex
from bbfs.resources.cache.tier import Cached
from bbfs.sources.content.memory import MemoryContent

SOURCE = "s 1"
CACHED = Cached((Part(None, "text/plain", MemoryContent(b"1"), "text"),), 1.0, 10.0)


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def put(index: DiskIndex, uri: str, source: str = SOURCE) -> None:
    with index.changing():
        index.put(source, uri, CACHED, 1.0)


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def indexes(tmp_path: Path, clock: Seconds) -> Iterator[tuple[DiskIndex, DiskIndex]]:
    """Two processes' connections to one index."""
    mine, others = (DiskIndex(tmp_path / "index.sqlite", clock) for _ in range(2))
    yield mine, others
    mine.close()
    others.close()


def test_what_is_not_there_is_absent_after_a_look(indexes: tuple[DiskIndex, DiskIndex]) -> None:
    index, _ = indexes
    put(index, "x://a\udc80")
    assert index.absent(SOURCE, "x://a") is None
    index.look(SOURCE)
    assert index.absent(SOURCE, "x://a") is True
    assert index.absent(SOURCE, "x://a\udc80") is False
    assert index.absent("s 2", "x://a") is None


def test_what_this_process_puts_is_there_at_once(indexes: tuple[DiskIndex, DiskIndex]) -> None:
    index, _ = indexes
    index.look(SOURCE)
    put(index, "x://a")
    assert index.absent(SOURCE, "x://a") is False
    made, _ = index.replaced()
    assert made.absent(SOURCE, "x://a") is None
    made.close()


def test_what_another_process_puts_is_there_after_the_next_look(
    indexes: tuple[DiskIndex, DiskIndex], clock: Seconds
) -> None:
    index, other = indexes
    index.look(SOURCE)
    put(other, "x://a")
    index.look(SOURCE)
    assert index.absent(SOURCE, "x://a") is True, "it has been looked for just now"
    clock.now += LOOKED_EVERY
    assert index.absent(SOURCE, "x://a") is None
    index.look(SOURCE)
    assert index.absent(SOURCE, "x://a") is False


def test_of_many_nothing_is_known_absent(tmp_path: Path, clock: Seconds) -> None:
    path = tmp_path / "index.sqlite"
    with closing(DiskIndex(path, clock, most=2)) as index, closing(DiskIndex(path, clock, most=2)) as other:
        index.look(SOURCE)
        for uri in "abc":
            assert index.absent(SOURCE, "d") is True
            put(index, uri)
        assert index.absent(SOURCE, "d") is False
        other.look(SOURCE)
        assert other.absent(SOURCE, "d") is False


def test_the_sources_looked_at_first_are_let_go(indexes: tuple[DiskIndex, DiskIndex]) -> None:
    index, _ = indexes
    for number in range(SOURCES + 1):
        index.look(f"s {number}")
    assert index.absent("s 0", "x://a") is None
    assert index.absent("s 1", "x://a") is True


def test_a_disk_cache_knows_what_it_keeps(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path / "contents", 1 << 20)
    disk.look(SOURCE)
    assert disk.absent(SOURCE, "x://a") is True
    assert disk.put([((SOURCE, "x://a"), CACHED)])
    assert disk.absent(SOURCE, "x://a") is False
    disk.close()
