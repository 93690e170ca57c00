"""bbfs makes its files private to its user, also where a file or directory was there before."""

import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from bbfs.cli.logs import log_to_file, log_to_stderr
from bbfs.fuse.places import runtime_directory
from bbfs.knowledge.database.store import Store
from bbfs.model.errors import BbfsError
from bbfs.model.versions import Expected
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.writing.pending import PendingStore, PendingWrite, new_id
from bbfs.runtime.private_files import open_own, own_database, own_directory
from bbfs.server_parts.http import ListenError, token_of_file
from bbfs.sources.content.memory import MemoryContent


@pytest.fixture(autouse=True)
def generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(directory: Path) -> list[Path]:
    return [path for path in (directory, *directory.rglob("*")) if stat.S_IMODE(path.lstat().st_mode) & 0o077]


def kept(store: PendingStore) -> PendingWrite:
    item = PendingWrite(new_id(), "notes", "x://a", "x://a", ("notes", "a"), Expected(), 4, 1.0, "EIO: no")
    store.keep(item, MemoryContent(b"text"))
    return item


@contextmanager
def caches(home: Path) -> Iterator[None]:
    """Open the caches, so that the files beside their databases are there as well."""
    with closing(MetadataStore(home / "metadata.sqlite")), closing(DiskCache(home / "contents", 1 << 20)):
        yield


def test_caches_take_an_earlier_directory_from_others(tmp_path: Path) -> None:
    home = tmp_path / "bbfs"
    with caches(home):
        assert open_to_others(home) == []
    for path in (home, *home.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    with caches(home):
        assert open_to_others(home) == []


def test_each_directory_that_is_made_is_private(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(0o755)
    for _ in range(2):
        own_directory(tmp_path / "there" / "local" / "state" / "bbfs")
    assert open_to_others(tmp_path / "there") == [tmp_path / "there"], "what was there is not bbfs's to change"
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        own_directory(tmp_path / "file" / "bbfs")


def test_a_cache_behind_a_link_is_not_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home, elsewhere = tmp_path / "bbfs", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.write_bytes(b"")
    (home / "metadata.sqlite").symlink_to(elsewhere)
    MetadataStore(home / "metadata.sqlite")
    assert "metadata is not remembered" in caplog.text
    assert elsewhere.read_bytes() == b""


def test_a_new_knowledge_base_and_log_are_private(tmp_path: Path) -> None:
    with Store(tmp_path / "kb.sqlite") as store:
        store.put("a", "b", b"text")
        assert (tmp_path / "kb.sqlite-wal").exists()
        log_to_file(str(tmp_path / "log"), logging.WARNING)
        log_to_stderr(logging.WARNING)
        assert open_to_others(tmp_path / "log") == []
        assert [path for path in open_to_others(tmp_path) if path != tmp_path] == []


@pytest.mark.semantics("S32")
def test_pending_writes_take_an_earlier_directory_from_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = PendingStore(tmp_path / "pending")
    for number, use in enumerate((lambda: list(store.items()), lambda: kept(store))):
        shutil.rmtree(store.directory, ignore_errors=True)
        store.directory.mkdir(0o777)
        use()
        assert open_to_others(store.directory) == []
        assert caplog.text.count(f"{store.directory} was open to other users (mode 0777)") == number + 1


@pytest.mark.semantics("S32")
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_among_pending_writes_hangs_nothing(tmp_path: Path, make: Callable[[Path], None]) -> None:
    store = PendingStore(tmp_path / "pending")
    item = kept(store)
    make(store.directory / "0123456789ab.json")
    assert list(store.items()) == [item]
    (store.directory / item.id).unlink()
    make(store.directory / item.id)
    with pytest.raises(OSError, match=r"regular|symbolic"):
        store.open_content(item)
    make(store.directory / f"{item.id}.bytes")
    with pytest.raises(BbfsError, match="could not be kept"):
        store.keep(item, MemoryContent(b"again"))
    assert list(store.items()) == [item]


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, os.mkfifo])
def test_a_token_file_is_a_regular_file_and_no_link(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "there")
    (tmp_path / "there").chmod(0o600)
    (tmp_path / "link").symlink_to(tmp_path / "there")
    for name in ("there", "link"):
        with pytest.raises(ListenError, match=str(tmp_path / name)):
            token_of_file(str(tmp_path / name))


@pytest.mark.parametrize("ours", [own_directory, own_database, lambda path: open_own(path, os.O_RDONLY)])
def test_nothing_of_others_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: Callable[[Path], object]
) -> None:
    path = tmp_path / "there"
    path.mkdir() if ours is own_directory else path.touch(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError, match="another user"):
        ours(path)


def test_the_directory_of_control_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "bbfs").mkdir(0o777)
    assert open_to_others(Path(runtime_directory())) == []
