"""The table of mounts, canonical paths, and what makes a mount point fit."""

import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bbfs.fuse import mounting, mountpoint
from bbfs.fuse.mounting import is_dead, opened, prepared, unmount
from bbfs.fuse.mountpoint import MountError, SilentMount, canonical, mount_at
from bbfs.fuse.mountpoint import mounts as read_mounts

TABLE = """\
22 28 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:14 - proc proc rw
28 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
90 28 0:50 / /mnt/a\\040b\\011c\\012d\\134e rw,nosuid,nodev master:3 propagate_from:2 - fuse.bbfs bbfs ro,user_id=0
91 28 0:51 /sub /mnt/plain rw - fuse.other some\\040where rw
92 91 4095:1048575 / /mnt/plain rw - fuse.bbfs bbfs ro,user_id=1000,group_id=0
"""


def escape(path: str, also: str = "") -> str:
    """As the kernel writes a mount point (seq_path_root with " \\t\\n\\\\"); in a source it escapes `#`, too."""
    return "".join(f"\\{ord(c):03o}" if c in " \t\n\\" + also else c for c in path)


def test_mountinfo(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    found = read_mounts(table)
    assert [mount.path for mount in found] == ["/proc", "/", "/mnt/a b\tc\nd\\e", "/mnt/plain", "/mnt/plain"]
    assert [mount.type for mount in found] == ["proc", "ext4", "fuse.bbfs", "fuse.other", "fuse.bbfs"]
    assert [mount.is_bbfs for mount in found] == [False, False, True, False, True]
    assert [mount.user for mount in found] == [None, None, 0, None, 1000]
    assert [mount.device for mount in found] == [
        os.makedev(0, 21), os.makedev(254, 1), os.makedev(0, 50), os.makedev(0, 51), os.makedev(4095, 1048575),
    ]  # fmt: skip


def test_no_name_of_a_device_says_who_mounted(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text("30 1 0:52 / /mnt rw,nosuid - fuse.bbfs docs,user_id=0,x rw,user_id=1000,group_id=1000\n")
    [mount] = read_mounts(table)
    assert (mount.source, mount.user) == ("docs,user_id=0,x", 1000)


@pytest.mark.parametrize(
    ("options", "is_ours"),
    [("user_id=0", False), ("user_id=0,allow_other", True), ("user_id=4711", True), ("user_id=1,allow_other", False)],
)
def test_a_mount_of_root_is_ours_where_root_shares_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, is_ours: bool
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"30 1 0:52 / /mnt rw - fuse.bbfs bbfs rw,{options}\n")
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert [mount.is_ours for mount in read_mounts(table)] == [is_ours]


@given(
    st.text(st.characters(exclude_characters="\0/", exclude_categories=("Cs",)), min_size=1)
    | st.text("\\01234 \t\n-", min_size=1)
)
@example("a\\040b")
@example(" - ")
@example("a\x0cb\x85c\u2028d\xa0e\rf")
@example("caf\udce9")
def test_any_mount_point_and_source_are_read_as_they_are(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    table = tmp_path_factory.getbasetemp() / "mountinfo"
    path = "/mnt/" + name
    line = f"90 28 0:50 / {escape(path)} rw,nosuid shared:1 - fuse.bbfs {escape(path, '#')} ro\n"
    table.write_bytes((line * 2).encode("utf-8", "surrogateescape"))
    assert [(mount.path, mount.type, mount.source) for mount in read_mounts(table)] == [(path, "fuse.bbfs", path)] * 2


def test_the_topmost_mount_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    everything = read_mounts(table)
    monkeypatch.setattr(mountpoint, "mounts", lambda: everything)
    top = mount_at("/mnt/plain")
    assert top is not None
    assert (top.type, top.device) == ("fuse.bbfs", os.makedev(4095, 1048575))
    assert mount_at("/mnt/plain/below") is None


def test_what_this_process_sees() -> None:
    here = mount_at("/proc")
    assert here is not None
    assert here.type == "proc"
    assert not here.is_bbfs


def test_canonical_resolves_parents_and_never_the_last_component(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "dangling").symlink_to("nowhere")
    real = os.path.realpath(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "link"))
    assert canonical("link/mnt") == f"{real}/real/mnt"
    assert canonical("link/mnt/") == f"{real}/real/mnt"
    assert canonical("link/../link/./mnt") == f"{real}/real/mnt"
    assert canonical("link/dangling") == f"{real}/real/dangling"
    assert canonical("link") == f"{real}/link"
    assert canonical("~/mnt") == f"{real}/real/mnt"
    assert canonical("/") == "/"


def test_what_is_not_mounted_is_neither_dead_nor_hard_to_unmount(tmp_path: Path) -> None:
    assert not is_dead(str(tmp_path))
    assert not is_dead(str(tmp_path / "missing"))
    unmount(str(tmp_path))
    unmount(str(tmp_path / "missing"))
    assert tmp_path.is_dir()


def test_a_mount_point_is_made_and_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounting, "missing", lambda: None)
    with prepared(str(tmp_path / "new" / "mnt")) as place:
        assert place.path == os.path.realpath(tmp_path / "new" / "mnt")
        assert (tmp_path / "new" / "mnt").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(MountError, match="is not a directory"), prepared(str(tmp_path / "file")):
        pass


def test_a_link_to_a_directory_is_followed_unless_it_is_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounting, "missing", lambda: None)
    (tmp_path / "to").symlink_to("made")
    with prepared(str(tmp_path / "to")) as place:
        assert place.path == os.path.realpath(tmp_path / "made")
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(MountError, match="Too many levels"), prepared(str(tmp_path / "round")):
        pass
    if os.geteuid() == 0:
        os.chown(tmp_path / "to", 65534, 65534, follow_symlinks=False)
        with pytest.raises(MountError, match="another user"), prepared(str(tmp_path / "to")):
            pass


@pytest.mark.parametrize("exchanged", ["mnt", "above"])
def test_what_takes_the_place_of_a_mount_point_is_not_mounted_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanged: str
) -> None:
    """Between any two steps of preparing, and after them: the descriptor is of the checked directory, or none is."""
    monkeypatch.setattr(mounting, "missing", lambda: None)
    first = ("mount_at",) if os.geteuid() == 0 else ()  # a user may follow links of the same user
    for step in (*first, "opened", None):
        root = Path(os.path.realpath(tmp_path), str(step))
        victim = root / "victim" / "mnt"
        victim.mkdir(parents=True)
        mnt = root / "above" / "mnt"
        mnt.mkdir(parents=True)
        moved = root / "moved"
        found = os.stat(mnt)

        def exchange(root: Path = root, moved: Path = moved) -> None:
            if not moved.exists():
                place = root / "above" / "mnt" if exchanged == "mnt" else root / "above"
                place.rename(moved)
                place.symlink_to(root / "victim" / "mnt" if exchanged == "mnt" else root / "victim")
                os.chown(place, 65534 if os.geteuid() == 0 else -1, -1, follow_symlinks=False)

        with monkeypatch.context() as patched, ExitStack() as stack:
            if step is not None:
                module = mountpoint if step == "mount_at" else mounting
                real = getattr(module, step)

                def exchanging(
                    *given: Any, real: Callable[..., Any] = real, exchange: Callable[[], None] = exchange
                ) -> Any:
                    exchange()
                    return real(*given)

                patched.setattr(module, step, exchanging)
                stack.enter_context(pytest.raises(MountError))
            with prepared(str(mnt)) as place:
                exchange()
                held = os.stat(f"/proc/self/fd/{place.directory}")
                assert (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)
        assert moved.exists()


def test_a_directory_is_made_where_the_one_above_it_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounting, "missing", lambda: None)
    (tmp_path / "victim").mkdir()
    (tmp_path / "above").mkdir()
    real = os.mkdir

    def exchange(name: str, **given: Any) -> None:
        (tmp_path / "above").rename(tmp_path / "moved")
        (tmp_path / "above").symlink_to("victim")
        real(name, **given)

    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", exchange)
        with prepared(str(tmp_path / "above" / "mnt")) as place:
            made = os.stat(f"/proc/self/fd/{place.directory}")
            assert made.st_ino == os.stat(tmp_path / "moved" / "mnt").st_ino
    assert os.listdir(tmp_path / "victim") == os.listdir(tmp_path / "moved") == []


def test_a_directory_is_opened_by_a_path_without_links_alone(tmp_path: Path) -> None:
    (tmp_path / "real" / "mnt").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    root = os.path.realpath(tmp_path)
    with opened(f"{root}/real/mnt") as directory:
        assert os.stat(f"/proc/self/fd/{directory}").st_ino == (tmp_path / "real" / "mnt").stat().st_ino
    for path in (f"{root}/link/mnt", f"{root}/link", f"{root}/missing"):
        with pytest.raises(MountError), opened(path):
            pass


def test_only_a_mount_point_that_was_made_and_is_empty_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounting, "missing", lambda: None)
    (tmp_path / "existing").mkdir()
    for name, content in (("made", None), ("filled", "file"), ("existing", None)):
        with prepared(str(tmp_path / name)) as place:
            if content is not None:
                Path(place.path, content).touch()
    assert sorted(os.listdir(tmp_path)) == ["existing", "filled"]


def test_a_live_mount_of_ours_is_refused_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.path.realpath(tmp_path)
    monkeypatch.setattr(mounting, "missing", lambda: None)
    monkeypatch.setattr(mountpoint, "mounts", lambda: [mountpoint.Mount(path, "fuse.bbfs", 1, 0)])
    with pytest.raises(MountError, match="bbfs umount"), prepared(path):
        pass


def test_what_a_machine_lacks_is_said_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounting, "missing", lambda: "/dev/fuse is missing: do this")
    with pytest.raises(MountError, match="do this"), prepared(str(tmp_path / "mnt")):
        pass
    assert not (tmp_path / "mnt").exists()


@pytest.mark.semantics("S26")
def test_a_mount_that_hangs_stays_until_somebody_may_end_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Once no path leads to it, not even root could name it."""
    monkeypatch.setattr(mountpoint, "mount_at", lambda _: mountpoint.Mount(str(tmp_path), mountpoint.TYPE, 0))
    monkeypatch.setattr(mounting, "abort", lambda _: False)
    commands: list[list[str]] = []

    def silent(_path: str, _timeout: float = 0) -> None:
        raise SilentMount("no answer")

    def busy(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "busy")

    monkeypatch.setattr(mountpoint, "names", silent)
    monkeypatch.setattr(subprocess, "run", busy)
    with pytest.raises(MountError, match=f"only root can end that: 'umount -f {tmp_path}' as root"):
        unmount(str(tmp_path))
    assert [{"-z", "10"} & {*command} for command in commands] == [set()], "a lazy unmount was tried"


def test_the_file_of_a_connection_aborts_it(tmp_path: Path) -> None:
    (tmp_path / "51").mkdir()
    (tmp_path / "51/abort").touch()
    assert mounting.abort(mountpoint.Mount("/mnt/x", mountpoint.TYPE, os.makedev(0, 51)), tmp_path)
    assert (tmp_path / "51/abort").read_bytes() == b"1"
    unmounted = mountpoint.Mount("/mnt/x", mountpoint.TYPE, os.makedev(0, 52))
    assert not mounting.abort(unmounted, tmp_path)
