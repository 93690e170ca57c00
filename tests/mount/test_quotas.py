"""A quota that is used up, at a source and on the disk that keeps what is written: a real one, of btrfs (S23, S32)."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Mounts, folder
from killable import NAME, KilledMemory
from programs import errno_of, run, shell

QUOTA = 4 << 20
_COPY = """
f, data = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), open(sys.argv[2], "rb").read()
try:
    while data:
        data = data[os.write(f, data):]
finally:
    os.close(f)
"""
COPY = f"exec({_COPY!r})"
OLD, KEPT_IN_MEMORY = b"old\n", 900_000


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("mkfs.btrfs") is None:
        pytest.skip("only root can mount, and mkfs.btrfs is needed")
    image, disk = tmp_path_factory.mktemp("image") / "image", tmp_path_factory.mktemp("disk")
    image.touch()
    os.truncate(image, 120 << 20)
    run("mkfs.btrfs", "-q", image)
    if run("mount", "-o", "loop", image, disk, status=None).status != 0:
        pytest.skip("this machine mounts no btrfs")
    try:
        run("btrfs", "quota", "enable", disk)
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True, timeout=20)


@pytest.fixture
def limited(disk: Path, tmp_path: Path) -> Path:
    """A directory that takes 4 MiB."""
    path = disk / tmp_path.name
    run("btrfs", "subvolume", "create", path)
    run("btrfs", "qgroup", "limit", str(QUOTA), path)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").write_bytes(os.urandom(2 * QUOTA))
    return tmp_path / "data"


@pytest.mark.semantics("S23", "S40")
def test_a_folder_at_its_quota_keeps_its_files(limited: Path, data: Path, mounted: Mounts, tmp_path: Path) -> None:
    root = limited / "root"
    root.mkdir()
    (root / NAME).write_bytes(OLD)
    mount = mounted(folder("limited", root, capabilities=["read", "list", "write"]))
    here = mount / "bb-filesystem+limited+file"
    assert errno_of(COPY, here / "new", data) == "EDQUOT", "the kernel's own error"
    shell(f"rm new; cp {data} .tmp && mv .tmp {NAME}", directory=here, status=1)
    shell("rm -f .tmp", directory=here)
    (root / NAME).chmod(0o640)
    os.setxattr(root / NAME, "user.kept", b"1")
    assert "quota" in mount.bbfs("put", data, here / NAME, status=1).err.decode()
    assert (root / NAME).read_bytes() == OLD
    mount.bbfs("put", __file__, here / NAME)
    assert (root / NAME).read_bytes() == Path(__file__).read_bytes()
    assert ((root / NAME).stat().st_mode & 0o777, os.getxattr(root / NAME, "user.kept")) == (0o640, b"1")
    assert os.listdir(root) == [NAME]


@pytest.mark.semantics("S23", "S32.5")
def test_where_no_more_can_be_kept_nothing_is_written(
    limited: Path, data: Path, mounted: Mounts, tmp_path: Path
) -> None:
    source, state = KilledMemory(tmp_path / "home"), mounted.state()
    source.put(OLD)
    (state.home / ".local").mkdir()
    (limited / "state").mkdir()
    (state.home / ".local/state").symlink_to(limited / "state")
    mount = mounted(source.table(), state=state, expected=["quota"])
    file = mount / source.directory / NAME
    assert errno_of(COPY, file, data) == "ENOSPC"
    assert source.get() == OLD
    assert errno_of(COPY, limited / "filling", data) == "EDQUOT"
    (tmp_path / "small").write_bytes(data.read_bytes()[:KEPT_IN_MEMORY])
    assert errno_of(COPY, file, tmp_path / "small") == "ENOSPC", "the bytes are in memory until the close"
    assert "quota" in mount.log(), "the log has the reason"
    assert source.get() == OLD
    assert run("cat", file).out == OLD
    assert not [each for each in (limited / "state").rglob("*") if each.is_file()]
    (limited / "filling").unlink()
    run("sync")
    assert errno_of(COPY, file, tmp_path / "small") == "OK None"
    assert source.get() is not None
