"""The contents on disk, in files and in the index: whole or not at all, within their bound, and shared by processes."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from glob import glob
from pathlib import Path
from unittest.mock import Mock

import pytest

from bbfs.model.errors import NoSpace
from bbfs.model.values import Part
from bbfs.resources.cache import disk as disk_module
from bbfs.resources.cache import sqlite
from bbfs.resources.cache.disk import MARK_KEPT, SMALL, DiskCache, Key
from bbfs.resources.cache.disk_index import EXPIRED_AT_ONCE, DiskIndex, charge
from bbfs.resources.cache.tier import Cached
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import MemoryContent, digest_of

ALL = 1 << 40
Opens = Callable[..., DiskCache]


def entry(uri: str, *contents: bytes, source: str = "s 1", at: float = 1.0, stale: bool = False) -> tuple[Key, Cached]:
    parts = tuple(Part(None, "text/plain", MemoryContent(data), "text") for data in contents)
    return (source, uri), Cached(parts, at, 10.0, stale=stale)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "contents"


@pytest.fixture(params=[0, SMALL], ids=["files", "rows"])
def small(request: pytest.FixtureRequest) -> int:
    """Return the bytes below which contents are rows of the index."""
    return request.param


@pytest.fixture
def opens(directory: Path, small: int) -> Iterator[Opens]:
    """A maker of caches of so many bytes in the same directory, which are closed at the end."""
    with ExitStack() as opened:
        yield lambda size=1 << 20, *more: opened.enter_context(closing(DiskCache(directory, size, *more, small=small)))


@pytest.fixture
def disk(opens: Opens) -> DiskCache:
    return opens()


@contextmanager
def index_of(directory: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(directory / "index.sqlite")) as db, db:
        yield db


def names(directory: Path) -> list[str]:
    """Return the contents, also while another process removes some."""
    with index_of(directory) as db:
        rows = [row[0] for row in db.execute("SELECT digest FROM small")]
    return [Path(path).name for path in glob("??/*", root_dir=directory)] + rows


def kept(directory: Path) -> dict[str, int]:
    """Return the digests and sizes of the bytes in files and in rows."""
    files = {path.name: path.stat().st_size for path in directory.glob("??/*")}
    with index_of(directory) as db:
        rows = dict(db.execute("SELECT digest, length(bytes) FROM small"))
    assert files.keys().isdisjoint(rows)
    return files | rows


def read(disk: DiskCache, uri: str, source: str = "s 1") -> list[bytes] | None:
    found = disk.read(source, uri, ALL)
    return None if found is None else [p.content.data for p in found.parts if isinstance(p.content, MemoryContent)]


def test_what_was_put_is_read_with_all_that_was_said_of_it(disk: DiskCache) -> None:
    part = Part("x://a/\udce9", "text/plain", MemoryContent(b"bytes"), "text", name="naïve.txt")
    assert disk.put([(("s", "x://\udce9"), Cached((part,), 1234.56789, 0.1))])
    found = disk.read("s", "x://\udce9", ALL)
    assert found is not None
    assert (found.fetched_at, found.ttl, found.stale) == (1234.56789, 0.1, False)
    assert (found.parts[0].name, found.parts[0].content_type) == ("naïve.txt", "text")
    assert disk.read("s", "x://other", ALL) is None
    assert disk.read("other", "x://\udce9", ALL) is None


def test_several_contents_keep_their_order_and_an_empty_one_is_one(disk: DiskCache) -> None:
    disk.put([entry("a", b"two", b"", b"one", b"two")])
    assert read(disk, "a") == [b"two", b"", b"one", b"two"]


def test_equal_bytes_are_kept_once_and_go_with_the_last_resource(disk: DiskCache, directory: Path) -> None:
    disk.put([entry("a", b"same"), entry("b", b"same"), entry("c", b"same", source="s 2")])
    assert len(kept(directory)) == 1
    disk.put([entry("a", b"changed")])
    assert read(disk, "b") == [b"same"]
    disk.put([entry("b", b"changed")])
    disk.clear("s 2")
    assert kept(directory) == {digest_of(b"changed"): 7}
    assert disk.usage()[0] == charge(7)


def test_what_is_removed_is_not_read_though_its_file_cannot_be_removed(
    disk: DiskCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [("s", "x://\udce9"), ("s", "x://b")]
    for number, key in enumerate(keys):
        part = Part(None, None, MemoryContent(b"%d" % number))
        disk.put([(key, Cached((part,), 1.0, 10.0))])
    monkeypatch.setattr(Path, "unlink", Mock(side_effect=PermissionError("no")))
    disk.remove(keys)
    assert [disk.read(*key, 1 << 20) for key in keys] == [None, None]
    assert "could not be removed" in caplog.text


def test_what_changed_is_stale_until_it_is_put_again(disk: DiskCache) -> None:
    disk.put([entry("a", b"1"), entry("b", b"2"), entry("c", b"3", source="s 2")])
    disk.expire([*(("s 1", f"unknown {number}") for number in range(2 * EXPIRED_AT_ONCE)), ("s 1", "a")])
    stale = [disk.read(source, uri, ALL) for source, uri in (("s 1", "a"), ("s 1", "b"))]
    assert [found and found.stale for found in stale] == [True, False]
    disk.expire([("s 1", None)])
    assert [f and f.stale for f in (disk.read("s 1", "b", ALL), disk.read("s 2", "c", ALL))] == [True, False]
    disk.put([entry("a", b"1", at=2.0)])
    found = disk.read("s 1", "a", ALL)
    assert found is not None
    assert not found.stale


def test_what_was_asked_for_earlier_does_not_replace_what_is_there(disk: DiskCache, directory: Path) -> None:
    disk.put([entry("a", b"written", at=20.0)], 20.0)
    key, earlier = entry("a", b"asked for", b"before", at=21.0)
    assert not disk.put([(key, replace(earlier, took=1.5))], 21.0)
    assert disk.put([entry("b", b"beside", at=19.0)], 21.0)
    assert read(disk, "a") == [b"written"]
    assert len(kept(directory)) == 2
    disk.put([entry("a", b"at the same time", at=20.0)], 21.0)
    assert read(disk, "a") == [b"at the same time"]


def test_what_is_from_the_future_is_replaced(disk: DiskCache) -> None:
    disk.put([entry("a", b"by a wrong clock", at=1e6)], 1e6)
    disk.put([entry("a", b"now", at=20.0)], 20.0)
    assert read(disk, "a") == [b"now"]


@pytest.mark.parametrize("damage", ["other bytes", "torn", "longer", "gone", "a link"])
@pytest.mark.parametrize("in_memory", [0, ALL])
def test_damage_is_never_served_and_what_was_damaged_can_be_put_again(
    disk: DiskCache, directory: Path, damage: str, in_memory: int, small: int
) -> None:
    disk.put([entry("a", b"whole", b"beside"), entry("b", b"whole"), entry("c", b"else")])
    path = directory / digest_of(b"whole")[:2] / digest_of(b"whole")
    in_row = {"other bytes": b"whale", "torn": b"wh", "longer": b"whole and more"}.get(damage)
    match damage:
        case _ if small and in_row is not None:
            with index_of(directory) as db:
                db.execute("UPDATE small SET bytes = ? WHERE digest = ?", (in_row, path.name))
        case _ if small:
            with index_of(directory) as db:
                db.execute("DELETE FROM small WHERE digest = ?", (path.name,))
        case "other bytes":
            path.write_bytes(b"whale")
        case "torn":
            os.truncate(path, 2)
        case "longer":
            path.write_bytes(b"whole and more")
        case "gone":
            path.unlink()
        case _:
            (directory / "elsewhere").write_bytes(b"whole")
            path.unlink()
            path.symlink_to(directory / "elsewhere")
    assert disk.read("s 1", "a", in_memory) is None
    assert disk.read("s 1", "b", in_memory) is None
    assert set(kept(directory)) == {digest_of(b"else")}
    assert read(disk, "c") == [b"else"]
    disk.put([entry("b", b"whole")])
    assert read(disk, "b") == [b"whole"]


async def test_a_large_content_is_read_from_its_file_though_it_was_removed(disk: DiskCache, directory: Path) -> None:
    data = bytes(range(256)) * 1000
    disk.put([entry("a", data)])
    found = disk.read("s 1", "a", len(data) - 1)
    assert found is not None
    content = found.parts[0].content
    assert isinstance(content, StoredContent)
    disk.clear()
    assert kept(directory) == {}
    assert (content.size, content.version) == (len(data), digest_of(data))
    for offset, length in ((0, 10), (1000, 300), (len(data) - 5, 100), (len(data), 1), (len(data) + 9, 1)):
        assert content.read(offset, length) == data[offset : offset + length]
        assert await content.read_waiting(offset, length) == data[offset : offset + length]


def test_what_was_used_longest_ago_goes_first_and_the_bound_holds(directory: Path, opens: Opens) -> None:
    clock = iter(range(1_000_000))
    disk = opens(100 * charge(1), lambda: float(next(clock)))
    for number in range(100):
        disk.put([entry(f"{number}", b"%d" % number)])
    assert read(disk, "3") == [b"3"]
    for number in range(100, 140):
        disk.put([entry(f"{number}", b"%d" % number)])
    taken = disk.usage()[0]
    assert taken <= 100 * charge(1)
    assert len(kept(directory)) * charge(1) == taken
    assert read(disk, "3") == [b"3"]
    assert read(disk, "4") is None
    assert read(disk, "139") == [b"139"]


def test_what_alone_is_over_the_bound_is_not_kept(opens: Opens) -> None:
    disk = opens(10_000)
    disk.put([entry("small", b"small")])
    assert not disk.put([entry("large", b"x" * 20_000)])
    assert (read(disk, "large"), read(disk, "small")) == (None, [b"small"])


def test_a_smaller_bound_holds_from_the_next_start_on(directory: Path, opens: Opens) -> None:
    disk = opens()
    disk.put([entry(str(number), b"%d" % number) for number in range(50)])
    disk.close()
    disk = opens(10 * charge(1))
    disk.tidy()
    assert len(kept(directory)) <= 10


def test_the_times_of_old_writes_are_not_kept_for_ever(opens: Opens) -> None:
    now = 1_700_000_000.0
    disk = opens(1 << 20, lambda: now)
    written = [(("s", f"{number}"), Cached((), now + number, 0.0)) for number in range(1000)]
    disk.put([*written, entry("a", b"read", at=now)])
    now += MARK_KEPT + 600
    disk.tidy()
    left = {uri for uri in map(str, range(1000)) if disk.read("s", uri, 0) is not None}
    assert left == set(map(str, range(600, 1000)))
    assert read(disk, "a") == [b"read"]


def test_a_crash_in_the_middle_leaves_nothing_that_is_served_or_stays(
    directory: Path, opens: Opens, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = opens()
    disk.put([entry("a", b"old")])

    class Crash(BaseException):
        """What no code expects."""

    def die(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(DiskIndex, "put", die)  # the file is in its place, the row is not
        with pytest.raises(Crash):
            disk.put([entry("a", b"new")])
    (directory / "new" / "123-0").write_bytes(b"half")
    os.utime(directory / "new" / "123-0", (0, 0))
    (directory / "new" / "456-0").write_bytes(b"being written")
    digest = digest_of(b"lost")
    disk.put([entry("lost", b"lost")])
    if small:
        with index_of(directory) as db:
            db.execute("DELETE FROM small WHERE digest = ?", (digest,))
    else:
        (directory / digest[:2] / digest).unlink()
    disk.close()

    disk = opens()
    assert read(disk, "a") == [b"old"]
    disk.tidy()
    assert set(kept(directory)) == {digest_of(b"old")}
    assert [path.name for path in (directory / "new").iterdir()] == ["456-0"]
    assert disk.usage()[0] == charge(3)


def test_a_full_disk_costs_the_cache_and_is_said_once(
    disk: DiskCache, directory: Path, small: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk.put([entry("a", b"before")])

    def full(*_: object) -> int:
        if small:
            raise sqlite3.OperationalError("No space left on device")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*((DiskIndex, "put", full) if small else (disk_module.os, "write", full)))
        assert not disk.put([entry("b", b"b")])
        assert not disk.put([entry("c", b"c")])
    assert caplog.text.count("No space left on device") == 1
    assert list((directory / "new").iterdir()) == []
    assert read(disk, "a") == [b"before"]
    assert disk.put([entry("b", b"b")])


def test_a_full_disk_is_cleared_and_pins_stay(directory: Path, opens: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, other = opens(), opens()
    disk.put([entry("a", b"a"), entry("b", b"b" * 5000)])
    disk.asked(lambda index: index.note_path("s 1", "[]", 1.0), None)

    def full(*_: object) -> list[str]:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(DiskIndex, "forget_source", full)
        disk.clear()
    assert (disk.usage(), kept(directory)) == ((0, []), {})
    assert disk.asked(lambda index: index.paths("s 1"), []) == ["[]"]
    assert not other.put([entry("c", b"c")])  # in the index that was removed: it opens the other one now
    assert other.put([entry("c", b"c")])
    assert read(disk, "c") == [b"c"]


@pytest.mark.parametrize("in_use", [False, True], ids=["closed", "in use"])
def test_one_source_can_be_cleared_on_a_full_disk(tmp_path: Path, opens: Opens, small: int, in_use: bool) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk of its own size")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", tmp_path], check=True)
    try:
        disk = opens(64 << 20)
        for source in ("s 1", "s 2"):
            assert disk.put([entry(str(n), os.urandom(2_000), source=source) for n in range(300)])
        if not in_use:
            disk.close()
        with (tmp_path / "filler").open("wb", 0) as filler, suppress(OSError):
            while True:
                filler.write(bytes(4096))
        cleared = opens(0)
        if in_use and small:  # its room is that of the index, which stays while it is open
            with pytest.raises(NoSpace, match="a mount has the index open"):
                cleared.clear("s 1")
            disk.close()
            assert read(cleared, "1", "s 1")
            cleared.close()
            cleared = opens(0)
        cleared.clear("s 1")
        assert [usage.source for usage in cleared.usage()[1]] == ["s 2"]
        assert read(cleared, "1", "s 2")
        assert not read(cleared, "1", "s 1")
        cleared.close()
        disk.close()
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


@pytest.mark.parametrize(
    "damage",
    ["uri = 'b'", "uri = 'b', position = 1", "source = 's 2'", "digest = :other", "mime_type = 'text/html'"],
)
def test_a_damaged_row_gives_its_content_to_no_other_resource(directory: Path, opens: Opens, damage: str) -> None:
    disk = opens()
    disk.put([entry("a", b"of a", b"of a, too"), entry("b", b"of b"), entry("b", b"of b", source="s 2")])
    with closing(sqlite3.connect(directory / "index.sqlite")) as db, db:
        where = "source = 's 1' AND uri = 'a' AND position = 0"
        db.execute("DELETE FROM part WHERE uri = 'b' AND position = 0")  # in its place, where that counts
        db.execute(f"UPDATE part SET {damage} WHERE {where}", {"other": digest_of(b"of b")} if ":" in damage else {})
    for uri, source in (("a", "s 1"), ("b", "s 1"), ("a", "s 2"), ("b", "s 2")):
        assert not read(disk, uri, source)


def test_a_damaged_index_is_begun_anew(directory: Path, opens: Opens, caplog: pytest.LogCaptureFixture) -> None:
    disk = opens()
    disk.put([entry("a", b"1")])
    disk.close()
    for companion in ("-wal", "-shm"):
        (directory / f"index.sqlite{companion}").unlink(missing_ok=True)
    (directory / "index.sqlite").write_bytes(b"no database" * 1000)
    disk = opens()
    assert "set aside" in caplog.text
    assert read(disk, "a") is None
    disk.put([entry("a", b"2")])
    assert read(disk, "a") == [b"2"]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE part SET digest = CAST(x'ff' AS TEXT) WHERE uri = 'a'",
        "UPDATE sqlite_master SET sql = CAST(x'ff' AS TEXT) WHERE name = 'small'",
    ],
    ids=["row", "schema"],
)
def test_text_of_the_index_that_is_not_utf8_is_damage(
    directory: Path, opens: Opens, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    with closing(opens()) as disk:
        disk.put([entry("a", b"1")])
    with index_of(directory) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute(damage)
    with closing(opens()) as disk:
        assert read(disk, "a") is None
        assert "set aside" in caplog.text
        assert disk.put([entry("a", b"2")])
        assert read(disk, "a") == [b"2"]


def test_a_resource_of_which_the_index_has_lost_a_content_is_not_served(disk: DiskCache, directory: Path) -> None:
    disk.put([entry("a", b"first", b"second")])
    with index_of(directory) as db:
        db.execute("DELETE FROM content WHERE digest = ?", (digest_of(b"second"),))
    assert disk.read("s 1", "a", 1) is None
    assert read(disk, "a") is None
    assert disk.put([entry("a", b"first", b"second")])
    assert read(disk, "a") == [b"first", b"second"]


def test_a_removed_directory_is_begun_anew(disk: DiskCache, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert disk.put([entry("x://a", b"one")])
    shutil.rmtree(directory)
    assert not disk.put([entry("x://b", b"two")])
    assert "could not be kept on disk" in caplog.text
    assert read(disk, "x://a") is read(disk, "x://b") is None
    assert disk.put([entry("x://b", b"two")])
    assert read(disk, "x://b") == [b"two"]


def test_another_that_holds_the_index_for_long_costs_a_miss(
    directory: Path, opens: Opens, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT", 0.01)
    disk = opens()
    disk.put([entry("a", b"1")])
    other = sqlite3.connect(directory / "index.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert read(disk, "a") == [b"1"]  # readers do not wait
    assert not disk.put([entry("b", b"2")])
    assert "cannot be used now" in caplog.text
    other.execute("ROLLBACK")
    other.close()
    assert disk.put([entry("b", b"2")])


def test_the_directory_is_the_users_own_even_if_it_was_not(directory: Path, opens: Opens) -> None:
    directory.mkdir(mode=0o755)
    disk = opens()
    disk.put([entry("a", b"1")])
    assert {path.stat().st_mode & 0o777 for path in (directory, *directory.glob("??"))} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in (*directory.glob("??/*"), *directory.glob("index*"))} == {0o600}


def test_a_closed_cache_does_nothing(opens: Opens) -> None:
    disk = opens()
    disk.put([entry("a", b"1")])
    disk.close()
    disk.close()
    assert read(disk, "a") is None
    assert not disk.put([entry("b", b"2")])


def test_what_earlier_versions_keep_in_files_is_read_and_takes_no_second_place(directory: Path) -> None:
    with closing(DiskCache(directory, 1 << 20, small=0)) as earlier:
        earlier.put([entry("a", b"in a file"), entry("b", b"in a file, and asked for again")])
    with index_of(directory) as db:  # an earlier version makes no such table, and no free page goes back
        db.execute("DROP TRIGGER small_removed")
        db.execute("DROP TABLE small")
        db.execute("PRAGMA auto_vacuum = NONE")
    with index_of(directory) as db:
        db.execute("VACUUM")
    with closing(DiskCache(directory, 1 << 20)) as disk:
        with index_of(directory) as db:  # rebuilt at once, before it holds contents that would all be written again
            assert db.execute("PRAGMA auto_vacuum").fetchone() == (2,)
        assert disk.put([entry("b", b"in a file, and asked for again"), entry("c", b"in a row")])
        assert [read(disk, uri) for uri in "abc"] == [
            [b"in a file"],
            [b"in a file, and asked for again"],
            [b"in a row"],
        ]
        disk.tidy()
        assert sorted(kept(directory).values()) == [8, 9, 30]
        disk.clear()
        assert kept(directory) == {}


def test_a_small_resource_costs_no_file_and_a_larger_one_is_a_file(directory: Path) -> None:
    with closing(DiskCache(directory, 1 << 20)) as disk:
        disk.put(
            [entry("a", b"x" * (SMALL - 1)), entry("b", b"y" * SMALL), entry("c", *[b"z%d" % n for n in range(3)])]
        )
        assert [path.stat().st_size for path in directory.glob("??/*")] == [SMALL]
        assert list((directory / "new").iterdir()) == []
        assert [list(map(len, read(disk, uri) or ())) for uri in "abc"] == [[SMALL - 1], [SMALL], [2, 2, 2]]
        assert isinstance(disk.read("s 1", "a", 0).parts[0].content, MemoryContent)  # type: ignore[union-attr]


def test_small_contents_can_have_files_for_who_must_not_have_them_in_memory(directory: Path) -> None:
    with closing(DiskCache(directory, 1 << 20)) as disk:
        disk.put([entry("a", b"small")])
        assert disk.put([entry("b", b"small")], in_files=True)
        found = disk.read("s 1", "b", 0)
        assert found is not None
        assert isinstance(found.parts[0].content, StoredContent)
        assert found.parts[0].content.read(0, 9) == b"small"


@pytest.mark.parametrize("how", ["cleared", "evicted"])
def test_the_index_gives_the_room_of_removed_contents_back(directory: Path, how: str) -> None:
    bound = 400 * charge(4000)
    with closing(DiskCache(directory, bound)) as disk:
        disk.put([entry(str(number), b"%d" % number + b"x" * 4000) for number in range(390)])
        if how == "cleared":
            disk.clear()
        else:
            disk.put([entry("large", b"y" * int(0.85 * bound))])
            assert read(disk, "large") is not None
        journal = (directory / "index.sqlite-wal").stat().st_size
        assert how != "cleared" or journal == 0
    assert (directory / "index.sqlite").stat().st_size < 0.3 * bound


_WORKER = """
import random, sys
from pathlib import Path
from bbfs.resources.cache.disk import DiskCache
from bbfs.model.values import Part
from bbfs.resources.cache.tier import Cached
from bbfs.sources.content.memory import MemoryContent, digest_of

disk, rng = DiskCache(Path(sys.argv[1]), 40 * 4096, small=int(sys.argv[3])), random.Random(sys.argv[2])
hits = 0
for step in range(250):
    name = rng.randrange(80)
    found = disk.read("s", str(name), 1 << 20)
    if found is not None:
        hits += 1
        assert found.parts[0].content.data.startswith(b"%d " % name), found
        continue
    data = b"%d " % name + b"x" * rng.randrange(3000)
    disk.put([(("s", str(name)), Cached((Part(None, None, MemoryContent(data)),), 1.0, 10.0))])
disk.close()
print(hits)
"""


def test_processes_share_contents_and_none_loses_what_another_keeps(directory: Path, opens: Opens, small: int) -> None:
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(directory), str(seed), str(small)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for seed in range(3)
    ]
    for worker in workers:
        out, err = worker.communicate(timeout=60)
        assert (worker.returncode, err) == (0, b"")
        assert int(out) > 0
    disk = opens(40 * charge(1))
    there = kept(directory)
    with sqlite3.connect(directory / "index.sqlite") as db:
        indexed = dict(db.execute("SELECT digest, size FROM content"))
        held = {row[0] for row in db.execute("SELECT DISTINCT digest FROM part")}
    db.close()
    assert there == indexed
    assert held == set(indexed)
    assert disk.usage()[0] == sum(map(charge, indexed.values())) <= 40 * charge(1)


def test_a_process_that_is_killed_while_it_writes_harms_nobody(directory: Path, opens: Opens, small: int) -> None:
    script = _WORKER.replace("range(250)", "range(10**9)")
    opens().close()
    for seed in range(4):
        worker = subprocess.Popen([sys.executable, "-c", script, str(directory), str(seed), str(small)])
        deadline = time.monotonic() + 20
        before = len(names(directory))
        while len(names(directory)) < min(before + 5, 20) and time.monotonic() < deadline:
            time.sleep(0.005)
        worker.kill()
        worker.wait(10)
    disk = opens()
    disk.tidy()
    found = [read(disk, str(number), "s") for number in range(80)]
    assert any(found)
    assert all(contents is None or contents[0].startswith(b"%d " % number) for number, contents in enumerate(found))
    with sqlite3.connect(directory / "index.sqlite") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        indexed = dict(db.execute("SELECT digest, size FROM content"))
    db.close()
    assert kept(directory) == indexed
