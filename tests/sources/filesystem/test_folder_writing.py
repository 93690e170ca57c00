"""Whole files, names, directories and times that are written to a local folder by its handler."""

import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest
from test_filesystem import load_bytes, make

from bbfs.model.errors import (
    BbfsError,
    Denied,
    IsADirectory,
    NoSpace,
    NotFound,
    ReadOnly,
)
from bbfs.model.versions import Expected
from bbfs.sources import CanMakeDirectories, CanRename, CanSetTime
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.filesystem import writing
from bbfs.sources.filesystem.handler import FilesystemHandler
from bbfs.sources.unfinished import new_name

ANY = Expected()
NEW = Expected(exists=False)


@pytest.fixture
def handler(tmp_path: Path) -> FilesystemHandler:
    (tmp_path / "root").mkdir()
    return make(tmp_path / "root", tmp_path / "root" / "mnt")


async def write(handler: FilesystemHandler, uri: str, data: bytes, expected: Expected = ANY) -> str | None:
    return (await handler.write(uri, MemoryContent(data), expected)).etag


async def test_what_a_killed_writer_left_is_removed(handler: FilesystemHandler, tmp_path: Path) -> None:
    name = new_name()
    (tmp_path / "root" / name.replace(f"-{os.getpid():x}-", "-7fffffff-")).touch()
    (tmp_path / "root" / name).touch()
    await write(handler, "file:./note.md", b"one", NEW)
    assert {*os.listdir(tmp_path / "root")} == {name, "note.md"}


@pytest.mark.semantics("S32")
async def test_a_file_is_made_and_replaced_with_mode_and_attributes(handler: FilesystemHandler, tmp_path: Path) -> None:
    assert isinstance(handler, CanRename)
    assert isinstance(handler, CanMakeDirectories)
    assert isinstance(handler, CanSetTime)
    path = tmp_path / "root" / "a b.txt"
    etag = await write(handler, "file:./a%20b.txt", b"one", NEW)
    assert etag == (await handler.stat("file:./a%20b.txt")).etag
    path.chmod(0o640)
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("the file system of the tests has no extended attributes")
    large = os.urandom((1 << 20) + 5)
    await write(handler, "file:./a%20b.txt", large, Expected(True, (await handler.stat("file:./a%20b.txt")).etag))
    assert path.read_bytes() == large
    assert await load_bytes(handler, "file:./a%20b.txt") == large
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.getxattr(path, "user.note") == b"kept"
    assert os.listdir(tmp_path / "root") == ["a b.txt"]


@pytest.mark.semantics("S29")
async def test_nothing_is_written_through_links_out_of_the_root_or_at_the_mount_point(
    handler: FilesystemHandler, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "root" / "l").symlink_to(tmp_path / "outside")
    (tmp_path / "root" / "f").symlink_to(tmp_path / "outside" / "new")
    (tmp_path / "root" / "mnt").mkdir()
    for uri in ("file:./l/new", "file:./f", "file:./mnt", "file:./mnt/new", "file:./../outside/new"):
        with pytest.raises((Denied, NotFound)):
            await write(handler, uri, b"1")
    with pytest.raises((Denied, NotFound)):
        await handler.make_directory("file:./l/new")
    with pytest.raises(Denied):
        await handler.remove_directory("file:./mnt")
    assert os.listdir(tmp_path / "outside") == []
    await handler.remove("file:./f", ANY)  # the link itself
    assert sorted(os.listdir(tmp_path / "root")) == ["l", "mnt"]


@pytest.mark.semantics("S33")
async def test_a_time_is_set_and_a_directory_is_no_file(handler: FilesystemHandler) -> None:
    await handler.make_directory("file:./d")
    with pytest.raises(IsADirectory):
        await write(handler, "file:./d", b"1")
    await write(handler, "file:./d/a", b"1")
    assert (await handler.set_time("file:./d/a", 10**18 + 5)).modified_ns == 10**18 + 5


@pytest.mark.semantics("S23", "S32.4")
@pytest.mark.parametrize(
    ("code", "error"),
    [(errno.ENOSPC, NoSpace), (errno.EDQUOT, NoSpace), (errno.EROFS, ReadOnly), (errno.EIO, BbfsError)],
)
async def test_a_write_that_fails_leaves_the_old_file(
    handler: FilesystemHandler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[BbfsError]
) -> None:
    await write(handler, "file:./a", b"old")

    def fail(number: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(writing.os, "fsync", fail)
    with pytest.raises(error):
        await write(handler, "file:./a", b"new")
    assert (tmp_path / "root" / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path / "root") == ["a"]


def set_acl(path: Path, entries: str) -> None:
    subprocess.run(["setfacl", "-m", entries, path], check=True)


def acl(path: Path) -> str:
    return subprocess.run(["getfacl", "-cpnE", path], check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("given", ["", "u:21002:---", "u:21002:rw-,g::---,m:rw-"])
async def test_a_replaced_file_changes_nobodys_rights(handler: FilesystemHandler, tmp_path: Path, given: str) -> None:
    """Neither do those that its directory has for new files."""
    path = tmp_path / "root" / "file"
    path.write_text("old")
    os.chown(path, 21001, 21100)
    path.chmod(0o6660)
    if given:
        set_acl(path, given)
    set_acl(path.parent, "d:u:21003:rwx")
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o6000)
    before = acl(path)
    path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o6000)
    await write(handler, "file:./file", b"new")
    status = path.stat()
    assert (path.read_bytes(), status.st_uid, status.st_gid, status.st_mode & 0o7000) == (b"new", 21001, 21100, 0)
    assert acl(path) == before


@pytest.mark.parametrize("denied", [{21001}, {21001, 21100}])
async def test_a_file_that_cannot_be_given_away_opens_to_no_other_group(
    handler: FilesystemHandler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denied: set[int]
) -> None:
    path = tmp_path / "root" / "file"
    path.write_text("old")
    path.chmod(0o664)
    status = path.stat()
    monkeypatch.setattr(writing, "_given", lambda _number, _to: 21100 not in denied)
    await write(handler, "file:./file", b"new")
    assert stat.S_IMODE(path.stat().st_mode) == (0o644 if 21100 in denied else 0o664)
    assert status.st_uid == path.stat().st_uid


async def test_others_read_no_replacement_before_it_has_its_name(handler: FilesystemHandler, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "secret").touch(0o600)
    replacement = writing.Replacement(handler.root, (b"secret",))
    try:
        replacement.write(b"x")
        (unfinished,) = {*os.listdir(root)} - {"secret"}
        assert stat.S_IMODE((root / unfinished).stat().st_mode) == 0o600
    finally:
        replacement.drop()
