"""The bytes of files that are written: in memory, or in a file without a name."""

import errno
import gc
import os
import random
import resource
from pathlib import Path

import pytest
import trio

from bbfs.model.errors import NoSpace
from bbfs.model.versions import Expected
from bbfs.resources.writing.pending import PendingStore, PendingWrite
from bbfs.sources.content import buffer as buffer_module
from bbfs.sources.content.buffer import FILES_SHARE, Buffer, BufferSpace, Written
from bbfs.sources.content.spool import IN_MEMORY


def test_a_buffer_has_the_bytes_of_a_file(tmp_path: Path) -> None:
    for seed in range(20):
        random_ = random.Random(seed)
        space = BufferSpace(tmp_path, memory=random_.choice((0, 5000, 1 << 30)))
        buffer, plain = Buffer(space), bytearray()
        for _ in range(50):
            offset, data = random_.randrange(3000), random_.randbytes(random_.randrange(1, 2000))
            if random_.random() < 0.2:
                size = random_.randrange(4000)
                buffer.truncate(size)
                plain[size:] = b""
                plain.extend(bytes(size - len(plain)))
            else:
                buffer.write(offset, data)
                plain.extend(bytes(max(0, offset - len(plain))))
                plain[offset : offset + len(data)] = data
            assert buffer.size == len(plain)
            assert buffer.read(0, 10_000) == bytes(plain)
            assert 0 <= space.held <= space.memory
        snapshot = buffer.snapshot()
        assert trio.run(snapshot.read_waiting, 0, 10_000) == bytes(plain)
        assert snapshot.size == len(plain)
        del buffer, snapshot
        assert space.held == 0


def test_what_is_large_is_in_no_directory(tmp_path: Path) -> None:
    space = BufferSpace(tmp_path)
    buffer = Buffer(space)
    buffer.write(5 << 20, b"end")
    assert (buffer.size, space.held) == ((5 << 20) + 3, 0)
    assert buffer.read(0, 3) == bytes(3)
    assert [*tmp_path.iterdir()] == []


async def test_a_copy_that_finds_no_room_keeps_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # earlier tests may have left what holds descriptors
    buffer, opened = Buffer(BufferSpace(tmp_path)), len(os.listdir("/proc/self/fd"))
    buffer.write(0, bytes(2 << 20))
    snapshot = buffer.snapshot()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(buffer_module, "copy_bytes", full)
    gc.disable()
    try:
        with pytest.raises(NoSpace):
            await buffer.part()
        assert snapshot.size == 2 << 20
        del buffer, snapshot
        assert len(os.listdir("/proc/self/fd")) == opened
    finally:
        gc.enable()


async def test_a_directory_that_was_removed_is_made_again_for_a_copy(tmp_path: Path) -> None:
    buffer = Buffer(BufferSpace(tmp_path / "pending"))
    buffer.write(0, bytes(2 << 20))
    snapshot = buffer.snapshot()
    (tmp_path / "pending").rmdir()
    await buffer.part()
    buffer.write(0, b"more")
    assert (buffer.read(0, 4), await snapshot.read_waiting(0, 4)) == (b"more", bytes(4))


@pytest.mark.semantics("S32.6")
@pytest.mark.parametrize("begun", [0, 2 << 20])
def test_a_file_of_holes_is_no_larger_than_the_disk(tmp_path: Path, begun: int) -> None:
    """A source would get a terabyte of zeros, and no program could end that."""
    buffer, disk = Buffer(BufferSpace(tmp_path)), os.statvfs(tmp_path)
    buffer.write(0, bytes(begun))
    large = (disk.f_blocks + 1) * disk.f_frsize
    for change in (lambda: buffer.truncate(large), lambda: buffer.write(large, b"end")):
        with pytest.raises(NoSpace, match="holes"):
            change()
        assert buffer.size == begun
    buffer.truncate(begun + 5)
    buffer.write(begun + 9, b"end")
    assert buffer.read(begun, 20) == bytes(9) + b"end"


@pytest.mark.semantics("S32")
def test_a_disk_that_takes_a_part_has_taken_nothing(tmp_path: Path) -> None:
    """The limit of a file's size ends a write(2) halfway without an error, as a disk that is almost full does."""
    space, allowed = BufferSpace(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    small, large = Buffer(space), Buffer(space)
    small.write(0, bytes(1000))
    large.truncate(2 << 20)
    for buffer, room in ((small, 500), (large, (2 << 20) + 500)):
        before = buffer.size
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, allowed[1]))
        try:
            with pytest.raises(NoSpace):
                buffer.write(before, b"x" * (3 << 20))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
        assert (buffer.size, buffer.read(0, 4 << 20)) == (before, bytes(before))


@pytest.mark.semantics("S32")
def test_a_disk_that_cannot_cut_a_file_gives_no_byte_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system whose metadata count for a quota (btrfs) refuses a cut, too."""

    def refused(*_: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    def half(number: int, view: memoryview, offset: int) -> int:
        if len(view) <= 500:
            refused()
        return pwrite(number, view[:500], offset)

    buffer, pwrite = Buffer(BufferSpace(tmp_path)), os.pwrite
    buffer.truncate(2 << 20)
    with monkeypatch.context() as full:
        full.setattr(os, "ftruncate", refused)
        full.setattr(os, "pwrite", half)
        with pytest.raises(NoSpace):
            buffer.write(2 << 20, b"x" * 1000)
        with pytest.raises(NoSpace):
            buffer.snapshot()
    content = buffer.snapshot()
    assert isinstance(content, Written)
    assert os.fstat(content.fileno()).st_size == content.size == 2 << 20


@pytest.mark.semantics("S23", "S33")
def test_buffers_leave_most_descriptors_to_others(tmp_path: Path) -> None:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64 * FILES_SHARE, allowed[1]))
    try:
        space = BufferSpace(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, allowed)
    large = [Buffer(space, program) for program in range(64)]
    for buffer in large:
        buffer.truncate(5 << 20)
    another = Buffer(space, 64)
    another.write(0, b"text")
    with pytest.raises(NoSpace):
        another.truncate(5 << 20)
    with pytest.raises(NoSpace):
        another.write(5 << 20, b"x")
    assert (another.size, another.read(0, 9)) == (4, b"text")
    large.pop(0)  # the loop has the last one still
    another.truncate(5 << 20)
    assert another.read(0, 5) == b"text\0"
    assert (space.files, space.held) == (64, 0)


@pytest.mark.semantics("S23", "S33")
def test_a_program_may_have_as_many_large_files_as_are_left_for_others(tmp_path: Path) -> None:
    space = BufferSpace(tmp_path)
    space.most_files = 64
    greedy = [Buffer(space, 1) for _ in range(33)]
    for number in range(32):
        greedy[number].truncate(5 << 20)
    with pytest.raises(NoSpace):
        greedy[32].truncate(5 << 20)
    modest = Buffer(space, 2)
    modest.truncate(5 << 20)
    assert space.files == 33
    del greedy
    assert space.files == 1


@pytest.mark.semantics("S32")
async def test_a_snapshot_stays_as_it_is(tmp_path: Path) -> None:
    """What a source has refused is pending in this file, and the program goes on writing."""
    buffer = Buffer(BufferSpace(tmp_path))
    buffer.truncate(2 << 20)
    snapshot = buffer.snapshot()
    for change in (lambda: buffer.write(0, b"later"), lambda: buffer.truncate(IN_MEMORY + 1)):
        await buffer.part()
        change()
    assert (snapshot.size, snapshot.read(0, 5)) == (2 << 20, bytes(5))
    assert isinstance(snapshot, Written)
    assert os.fstat(snapshot.fileno()).st_size == 2 << 20
    assert (buffer.size, buffer.read(0, 6)) == (IN_MEMORY + 1, b"later\0")


@pytest.mark.semantics("S32")
async def test_a_file_is_kept_as_often_as_it_is_handed_over(tmp_path: Path) -> None:
    """linkat(2) gives no name to a file that had one and lost it."""
    store, buffer = PendingStore(tmp_path / "pending"), Buffer(BufferSpace(tmp_path))
    item = PendingWrite("0123456789ab", "s", "s:a", "bb://s/a", (), Expected(), 2 << 20, 1.0)
    for number in range(3):
        if number != 1:
            await buffer.part()
            buffer.write((2 << 20) - 1, str(number).encode())
        content = buffer.snapshot()
        store.keep(item, content)
        assert store.content_path(item).read_bytes() == content.read(0, 2 << 20)
        store.drop(item.id)
