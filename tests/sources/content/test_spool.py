"""Contents that come as a stream: the same bytes in memory or in a file, within a limit, and kept without a copy."""

import os
import resource
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path

import pytest
from programs import descriptors_of

from bbfs.model.errors import BbfsError, TooLarge
from bbfs.model.values import Content, Part
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.tier import Cached
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import DIGEST_BYTES, MemoryContent
from bbfs.sources.content.spool import IN_MEMORY, Spool, Spools

LARGE = os.urandom(3 * IN_MEMORY + 17)


def spooled(spool: Spool, data: bytes, step: int = 100_000) -> MemoryContent | StoredContent:
    with spool:
        for start in range(0, len(data), step):
            spool.write(data[start : start + step])
        return spool.content()


async def whole(content: Content) -> bytes:
    return await content.read_waiting(0, content.size + 1)


@pytest.mark.parametrize("data", [b"", b"small", LARGE[:IN_MEMORY], LARGE], ids=["empty", "small", "border", "large"])
async def test_what_comes_out_is_what_went_in(tmp_path: Path, data: bytes) -> None:
    content = spooled(Spool(tmp_path, 1 << 30), data)
    assert isinstance(content, StoredContent) == (len(data) > IN_MEMORY)
    assert await whole(content) == data
    assert content.version == blake2b(data, digest_size=DIGEST_BYTES).hexdigest()
    assert await content.read_waiting(5, 7) == data[5:12]
    assert os.listdir(tmp_path) == []


@pytest.mark.semantics("S15.2")
@pytest.mark.parametrize("on_disk", [True, False])
def test_a_content_beyond_the_limit_is_refused_with_the_limit_named(tmp_path: Path, on_disk: bool) -> None:
    spools = Spools(2_000_000)
    disk = DiskCache(tmp_path / "contents", 2_000_000)
    if on_disk:
        disk.lend(spools)
    setting = "disk" if on_disk else "memory"
    with closing(disk), pytest.raises(TooLarge, match=rf"more than 2000000 bytes \(\[cache\] {setting}\)"):
        spooled(spools(), LARGE)


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """The kernel refuses to write files of more bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("taken", [0, 5, IN_MEMORY + 1, 2 * IN_MEMORY + 7, len(LARGE) - 1])
@pytest.mark.semantics("S15.1")
async def test_what_the_disk_takes_not_stays_in_memory(tmp_path: Path, taken: int) -> None:
    with no_file_beyond(taken):
        content = spooled(Spool(tmp_path, 1 << 30, spare=len(LARGE)), LARGE)
    assert isinstance(content, MemoryContent)
    assert await whole(content) == LARGE
    assert content.version == blake2b(LARGE, digest_size=DIGEST_BYTES).hexdigest()
    assert os.listdir(tmp_path) == []


async def test_without_the_directory_contents_stay_in_memory(tmp_path: Path) -> None:
    content = spooled(Spool(tmp_path / "gone", 1 << 30, spare=len(LARGE)), LARGE)
    assert await whole(content) == LARGE


@pytest.mark.parametrize("spare", [0, IN_MEMORY, len(LARGE) - 1])
def test_what_neither_disk_nor_memory_takes_says_what_the_disk_said(tmp_path: Path, spare: int) -> None:
    with no_file_beyond(2 * IN_MEMORY), pytest.raises(BbfsError, match="could not be written") as caught:
        spooled(Spool(tmp_path, 1 << 30, spare=spare), LARGE)
    assert not isinstance(caught.value, TooLarge)


async def test_the_disk_cache_keeps_a_spooled_content_without_copying_it(tmp_path: Path) -> None:
    spools = Spools(1 << 20)
    with closing(DiskCache(tmp_path / "contents", 1 << 30)) as disk:
        disk.lend(spools)
        content = spooled(spools(), LARGE)
        assert isinstance(content, StoredContent)
        cached = Cached((Part(None, "text/csv", content),), 1.0, 10.0)
        assert disk.put([(("s 1", "x://a"), cached)])
        kept = tmp_path / "contents" / content.version[:2] / content.version
        assert kept.stat().st_ino == os.fstat(content.fileno()).st_ino
        assert os.listdir(disk.unfinished) == []
        found = disk.read("s 1", "x://a", 0)
        assert found is not None
        assert await whole(found.parts[0].content) == LARGE
        assert disk.put([(("s 1", "x://b"), cached)])
        disk.clear()
        assert await whole(content) == LARGE


def test_what_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    with Spool(tmp_path, 1 << 30) as spool:
        spool.write(LARGE)
    assert os.listdir(tmp_path) == []
    assert [leads for leads in descriptors_of("self").values() if str(tmp_path) in leads] == []
