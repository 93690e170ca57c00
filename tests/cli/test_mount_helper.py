"""`mount.bbfs`, as mount(8) runs it for a line of fstab(5)."""

import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bbfs.cli.mount_helper import PATH, WrongCall, become, translated
from bbfs.fuse import mounting, mountpoint

HELPER = Path(sys.executable).with_name("mount.bbfs")
BOUND = 60
Call = Callable[..., "subprocess.CompletedProcess[str]"]
ME = pwd.getpwuid(os.geteuid())


@pytest.mark.parametrize(
    ("flags", "source", "command"),
    [
        ([], "/etc/bbfs/docs.toml", ["--config", "/etc/bbfs/docs.toml"]),
        ([], "none", []),
        ([("-o", "rw,_netdev,nofail,x-systemd.automount,relatime")], "none", []),
        ([("-o", "ro,allow_other"), ("-o", "umask=077,uid=5")], "none",
         ["--read-only", "--allow-other", "--umask", "077", "--uid", "5"]),
        ([("-r", ""), ("-o", "metrics=127.0.0.1:9464")], "none", ["--metrics", "127.0.0.1:9464", "--read-only"]),
        ([("-s", ""), ("-o", "no_such=1")], "none", []),
    ],
)  # fmt: skip
def test_the_words_of_mount_are_those_of_bbfs(flags: list[tuple[str, str]], source: str, command: list[str]) -> None:
    assert translated(flags, [source, "/srv/docs"]) == (["mount", "--background", "/srv/docs", *command], ME)


@pytest.mark.parametrize(
    ("flags", "operands", "said"),
    [
        ([], ["none"], "expected SOURCE DIRECTORY"),
        ([("-o", "no_such=1")], ["none", "/srv"], "unknown option 'no_such=1'"),
        ([("-o", "umask")], ["none", "/srv"], "unknown option 'umask'"),
        ([("-o", "setuid=no-such-user")], ["none", "/srv"], "no such user"),
    ],
)
def test_a_wrong_call_is_told(flags: list[tuple[str, str]], operands: list[str], said: str) -> None:
    with pytest.raises(WrongCall, match=said):
        translated(flags, operands)


def test_the_environment_follows_from_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    for name in list(os.environ):
        monkeypatch.delenv(name)
    become(ME)
    assert (os.environ["HOME"], os.environ["USER"]) == (ME.pw_dir, ME.pw_name)
    assert os.environ["PATH"] == f"{ME.pw_dir}/.local/bin:{PATH}"


@pytest.fixture
def point(fuse: None, tmp_path: Path) -> Iterator[Path]:
    """A mount point; what is mounted there is gone at the end."""
    yield tmp_path / "mnt"
    if mountpoint.mount_at(str(tmp_path / "mnt")) is not None:
        mounting.unmount(str(tmp_path / "mnt"))


@pytest.fixture
def boot(tmp_path: Path) -> dict[str, str]:
    """The environment of mount(8) at boot, which has hardly any. Only the state is kept out of the real home."""
    names = ("CACHE_HOME", "STATE_HOME", "DATA_HOME", "RUNTIME_DIR")
    for name in names:
        (tmp_path / name).mkdir(mode=0o700)
    return {"LANG": "C", **{f"XDG_{name}": str(tmp_path / name) for name in names}}


@pytest.fixture
def called(boot: dict[str, str]) -> Call:
    def call(*words: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [HELPER, *words], env=boot, capture_output=True, text=True, timeout=BOUND, check=False, cwd="/"
        )

    return call


@pytest.mark.semantics("S28.4")
def test_a_call_mounts_and_umount_ends_it(called: Call, boot: dict[str, str], point: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("hello\n")
    config = tmp_path / "docs.toml"
    config.write_text(
        f'[[sources]]\nname = "notes"\ntype = "filesystem"\ncapabilities = ["read", "list", "write"]\n'
        f'config.root = "{tmp_path}/notes"\n'
    )
    done = called(config, point, "-o", f"ro,_netdev,x-systemd.automount,log={tmp_path}/log")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    file = point / "bb-filesystem+notes+file" / "a.md"
    assert file.read_text() == "hello\n"
    with pytest.raises(OSError, match="Read-only file system"):
        file.write_text("changed\n")
    put = subprocess.run(
        [HELPER.with_name("bbfs"), "put", "-", file], input="changed\n", env={**boot, "HOME": ME.pw_dir},
        capture_output=True, text=True, timeout=BOUND, check=False,
    )  # fmt: skip
    assert put.returncode == 1
    assert (tmp_path / "notes" / "a.md").read_text() == "hello\n"
    subprocess.run(["umount" if os.geteuid() == 0 else "fusermount3", *(["-u"] if os.geteuid() else []), point],
                   timeout=BOUND, check=True)  # fmt: skip
    assert mountpoint.mount_at(str(point)) is None


def test_the_exit_statuses_are_those_of_mount(called: Call, point: Path, tmp_path: Path) -> None:
    assert called(tmp_path / "missing.toml", point).returncode == 1
    assert called("none").returncode == 1
    assert called("none", point, "-o", "no_such").returncode == 1
    assert called("none", point, "-f").returncode == 0
    assert mountpoint.mount_at(str(point)) is None
    config = tmp_path / "empty.toml"
    config.write_text(f'[[sources]]\nname = "n"\ntype = "filesystem"\nconfig.root = "{tmp_path}"\n')
    (tmp_path / "file").write_text("no directory")
    assert called(config, tmp_path / "file").returncode == 32


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts what fstab has, in a namespace of its own")
def test_mount_finds_the_helper_for_a_line_of_fstab(fuse: None, boot: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("hello\n")
    config, point, table = tmp_path / "docs.toml", tmp_path / "mnt", tmp_path / "fstab"
    config.write_text(f'[[sources]]\nname = "n"\ntype = "filesystem"\nconfig.root = "{tmp_path}/notes"\n')
    table.write_text(f"{config} {point} bbfs _netdev,nofail,x-systemd.automount 0 0\n")
    point.mkdir()
    script = f"""
        mount --make-rprivate /
        mount -t tmpfs none /usr/sbin  # where mount(8) looks for helpers; nobody else sees this one
        ln -s {HELPER} /usr/sbin/mount.bbfs
        mount -T {table} -a
        trap 'umount {point}' EXIT
        cat {point}/*/a.md
        mount -t bbfs -o no_such none {point} || echo $?
    """
    command = ["unshare", "-m", "sh", "-ec", script]
    done = subprocess.run(command, env=boot, capture_output=True, text=True, timeout=BOUND, check=False)
    assert (done.returncode, done.stdout) == (0, "hello\n1\n"), done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_root_becomes_another_user_with_nothing_of_its_own(boot: dict[str, str]) -> None:
    found = pwd.getpwnam("nobody")
    script = (
        "from bbfs.cli.mount_helper import become; import os, pwd; become(pwd.getpwnam('nobody'));"
        "print(os.getresuid(), os.getresgid(), os.environ['HOME'], os.getgroups(), 'XDG_RUNTIME_DIR' in os.environ)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=boot, capture_output=True, text=True, timeout=BOUND, check=True
    )
    ids = ((found.pw_uid,) * 3, (found.pw_gid,) * 3)
    assert done.stdout == f"{ids[0]} {ids[1]} {found.pw_dir} {[found.pw_gid]} False\n"
