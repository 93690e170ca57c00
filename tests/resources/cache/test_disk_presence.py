"""What is known of the disk without a look at it: never that something is absent which this process has put there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bbfs.model.values import Part
from bbfs.resources.cache import presence as presence_of_resources
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.disk_index import DiskIndex
from bbfs.resources.cache.presence import LOOKED_EVERY, SOURCES, Presence
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
def indexes(tmp_path: Path) -> Iterator[tuple[DiskIndex, DiskIndex]]:
    """Two processes' connections to one index."""
    mine, others = DiskIndex(tmp_path / "index.sqlite"), DiskIndex(tmp_path / "index.sqlite")
    yield mine, others
    mine.close()
    others.close()


def test_what_is_not_there_is_absent_after_a_look(indexes: tuple[DiskIndex, DiskIndex]) -> None:
    index, _ = indexes
    put(index, "x://a\udc80")
    presence = Presence(Seconds())
    assert presence.absent(SOURCE, "x://a") is None
    presence.look(SOURCE, index)
    assert presence.absent(SOURCE, "x://a") is True
    assert presence.absent(SOURCE, "x://a\udc80") is False
    assert presence.absent("s 2", "x://a") is None


def test_what_this_process_puts_is_there_at_once(indexes: tuple[DiskIndex, DiskIndex]) -> None:
    presence = Presence(Seconds())
    presence.look(SOURCE, indexes[0])
    presence.added(SOURCE, "x://a")
    assert presence.absent(SOURCE, "x://a") is False
    presence.forget()
    assert presence.absent(SOURCE, "x://a") is None


def test_what_another_process_puts_is_there_after_the_next_look(indexes: tuple[DiskIndex, DiskIndex]) -> None:
    index, other = indexes
    clock = Seconds()
    presence = Presence(clock)
    presence.look(SOURCE, index)
    put(other, "x://a")
    presence.look(SOURCE, index)
    assert presence.absent(SOURCE, "x://a") is True, "it has been looked for just now"
    clock.now += LOOKED_EVERY
    assert presence.absent(SOURCE, "x://a") is None
    presence.look(SOURCE, index)
    assert presence.absent(SOURCE, "x://a") is False


def test_of_many_nothing_is_known_absent(indexes: tuple[DiskIndex, DiskIndex], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence_of_resources, "MOST", 2)
    index, _ = indexes
    presence = Presence(Seconds())
    presence.look(SOURCE, index)
    for uri in "abc":
        assert presence.absent(SOURCE, "d") is True
        put(index, uri)
        presence.added(SOURCE, uri)
    assert presence.absent(SOURCE, "d") is False
    presence = Presence(Seconds())
    presence.look(SOURCE, index)
    assert presence.absent(SOURCE, "d") is False


def test_the_sources_looked_at_first_are_let_go(indexes: tuple[DiskIndex, DiskIndex]) -> None:
    presence = Presence(Seconds())
    for number in range(SOURCES + 1):
        presence.look(f"s {number}", indexes[0])
    assert presence.absent("s 0", "x://a") is None
    assert presence.absent("s 1", "x://a") is True


def test_a_disk_cache_knows_what_it_keeps(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path / "contents", 1 << 20)
    disk.look(SOURCE)
    assert disk.absent(SOURCE, "x://a") is True
    assert disk.put([((SOURCE, "x://a"), CACHED)])
    assert disk.absent(SOURCE, "x://a") is False
    disk.close()
