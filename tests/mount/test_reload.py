"""The sources of a real mount change while it runs: by a reload, by a signal, one by one."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from harness import Mount, Mounts, config_text, folder, mcp
from programs import run, wait_until

from bbfs.fuse import mountpoint
from bbfs.fuse.service.sd_notify import ServiceManager

WITHIN = 20.0


def rewritten(mount: Mount, *sources: Any) -> None:
    """Give a mount another configuration file, as an editor saves it."""
    file = mount.config
    new = file.with_suffix(".new")
    new.write_text(config_text(sources, {}))
    os.replace(new, file)


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    made: dict[str, Path] = {}
    for name in ("a", "b", "c"):
        made[name] = tmp_path / name
        made[name].mkdir()
        (made[name] / "file").write_text(f"of {name}\n")
    return made


def names(mount: Mount) -> set[str]:
    return {name.split("+")[1] for name in os.listdir(mount.path) if "+" in name}


@pytest.mark.semantics("S41", "S41.1")
def test_a_reload_adds_removes_and_changes(mounted: Mounts, folders: dict[str, Path]) -> None:
    a, b, c = (folder(name, folders[name]) for name in "abc")
    mount = mounted(a, b)
    changed = folder("b", folders["c"])
    with (mount / "bb-filesystem+a+file/file").open() as opened:
        inode = os.stat(mount / "bb-filesystem+a+file/file").st_ino
        assert (mount / "bb-filesystem+b+file/file").read_text() == "of b\n"
        rewritten(mount, a, changed, c)
        said = mount.bbfs("reload", mount.path).err.decode()
        assert [line.split(": ", 2)[2] for line in said.splitlines()] == [
            "added: c",
            "changed: b",
            "unchanged: 1 source",
        ]
        assert opened.read() == "of a\n"
        assert os.stat(mount / "bb-filesystem+a+file/file").st_ino == inode
    wait_until(lambda: (mount / "bb-filesystem+b+file/file").read_text() == "of c\n", "the change shows")
    assert names(mount) == {"a", "b", "c"}
    about = mount / ".about.md"
    assert about.is_file()
    assert "[bb-filesystem+c+file]" in about.read_text()
    assert run("grep", "-rl", "of c", mount.path).text.count("/file\n") == 2
    rewritten(mount, c)
    assert "removed: a, b" in mount.bbfs("reload", mount.path).err.decode()
    assert names(mount) == {"c"}
    assert "bb-filesystem+a+file" not in about.read_text()
    assert "about" not in mount.bbfs("sources", mount.path).text
    with pytest.raises(FileNotFoundError):
        (mount / "bb-filesystem+a+file/file").read_text()
    with pytest.raises(FileNotFoundError):
        (mount / "a/file").read_text()


@pytest.mark.semantics("S41.1")
def test_a_wrong_file_changes_nothing_and_says_where(mounted: Mounts, folders: dict[str, Path]) -> None:
    mount = mounted(folder("a", folders["a"]))
    text = mount.config.read_text()
    for wrong, said in (("\nbad = 1\n", "bad: unknown key"), ("\n= 1\n", "Invalid statement")):
        mount.config.write_text(text + wrong)
        line = text.count("\n") + 2
        done = mount.bbfs("reload", mount.path, status=1)
        assert f"{mount.config}:{line}: " in done.err.decode()
        assert said in done.err.decode()
        assert names(mount) == {"a"}
    mount.config.unlink()
    assert "No such file" in mount.bbfs("reload", mount.path, status=1).err.decode()
    assert (mount / "bb-filesystem+a+file/file").read_text() == "of a\n"


@pytest.mark.semantics("S41", "S26")
def test_a_hang_up_reloads(mounted: Mounts, folders: dict[str, Path]) -> None:
    mount = mounted(folder("a", folders["a"]), expected=["not reloaded, nothing has changed: .*bad: unknown key"])
    rewritten(mount, folder("a", folders["a"]), folder("b", folders["b"]))
    os.kill(mount.pid, signal.SIGHUP)
    wait_until(lambda: names(mount) == {"a", "b"}, "the change shows")
    wait_until(lambda: "reloaded: added b" in mount.log(), "the change shows")
    mount.config.write_text(mount.config.read_text() + "\nbad = 1\n")
    os.kill(mount.pid, signal.SIGHUP)
    wait_until(lambda: "not reloaded" in mount.log(), "the change shows")
    assert names(mount) == {"a", "b"}


@pytest.mark.semantics("S26")
def test_the_end_of_its_terminal_ends_a_mount(mounted: Mounts, folders: dict[str, Path], tmp_path: Path) -> None:
    state, at = mounted.state(), tmp_path / "mnt"
    ours, terminal = os.openpty()
    daemon = subprocess.Popen(
        [sys.executable, "-m", "bbfs", "mount", at, "--dir", f"a={folders['a']}"],
        stdin=terminal,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=state.environ(),
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    try:
        os.close(terminal)
        wait_until(lambda: mountpoint.mount_at(str(at)) is not None and os.listdir(at), "the change shows")
        daemon.send_signal(signal.SIGHUP)
        assert os.listdir(at)  # the terminal is there: it reloads
        os.close(ours)
        assert daemon.wait(WITHIN) == 0
    finally:
        daemon.kill()
        daemon.wait()
    assert mountpoint.mount_at(str(at)) is None


@pytest.mark.semantics("S41.5")
def test_one_source_is_added_and_removed(mounted: Mounts, folders: dict[str, Path]) -> None:
    mount = mounted(folder("a", folders["a"]))
    text = mount.config.read_text()
    said = mount.bbfs("add", "b", folders["b"], "--mount", mount.path).err.decode()
    assert "added: b" in said
    assert (mount / "b/file").read_text() == "of b\n"
    assert "no longer" not in mount.bbfs("reload", mount.path).err.decode()
    assert names(mount) == {"a", "b"}  # it stays beside those of the file
    assert "has the URI prefix" in mount.bbfs("add", "b", folders["c"], "--mount", mount.path, status=1).err.decode()
    assert "removed: b" in mount.bbfs("remove", "b", "--mount", mount.path).err.decode()
    assert names(mount) == {"a"}
    assert "no source 'b'" in mount.bbfs("remove", "b", "--mount", mount.path, status=1).err.decode()
    assert "removed: a" in mount.bbfs("remove", "a", "--mount", mount.path).err.decode()
    assert names(mount) == set()
    assert "added: a" in mount.bbfs("reload", mount.path).err.decode()
    assert mount.config.read_text() == text


@pytest.mark.semantics("S41")
def test_a_walk_over_another_source_notices_nothing(mounted: Mounts, folders: dict[str, Path]) -> None:
    for number in range(100):
        (folders["a"] / f"{number:03}").write_text(f"text {number}\n")
    a, b, c = (folder(name, folders[name]) for name in "abc")
    mount = mounted(a)
    ended = threading.Event()
    failed: list[str] = []

    def walk() -> None:
        while not ended.is_set():
            for command in (["grep", "-r", "text", "."], ["tar", "-cf", "/dev/null", "."]):
                done = subprocess.run(
                    ["timeout", "60", *command], cwd=mount / "bb-filesystem+a+file", capture_output=True, check=False
                )
                if (
                    done.returncode != 0
                    or done.stderr
                    or (command[0] == "grep" and len(done.stdout.splitlines()) != 100)
                ):
                    failed.append(f"{command}: {done.returncode}: {done.stderr!r}")

    thread = threading.Thread(target=walk)
    thread.start()
    try:
        for number in range(40):
            rewritten(mount, a, *((b, c)[number % 2 :] if number % 3 else ()))
            os.kill(mount.pid, signal.SIGHUP)
            time.sleep(0.05)
    finally:
        ended.set()
        thread.join(WITHIN * 6)
    assert not failed
    rewritten(mount, a, c)
    mount.bbfs("reload", mount.path)
    assert names(mount) == {"a", "c"}


@pytest.mark.semantics("S41.2")
def test_a_server_that_hangs_holds_up_nothing(mounted: Mounts, folders: dict[str, Path]) -> None:
    hanging = mcp("hangs", [sys.executable, "-c", "import time; time.sleep(1000)"])
    a = folder("a", folders["a"])
    mount = mounted(a, hanging)
    waiting = subprocess.Popen(
        ["timeout", "20", "cat", str(mount / "mcp-server+hangs/x/y")], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    time.sleep(1.0)
    assert waiting.poll() is None
    rewritten(mount, a)
    began = time.monotonic()
    mount.bbfs("reload", mount.path)
    _, said = waiting.communicate(timeout=WITHIN)
    assert waiting.returncode == 1
    assert b"No such file" in said or b"Stale file handle" in said
    assert time.monotonic() - began < WITHIN / 2
    assert names(mount) == {"a"}


def test_a_kill_during_reloads_leaves_nothing_wrong(mounted: Mounts, folders: dict[str, Path]) -> None:
    a, b = (folder(name, folders[name]) for name in "ab")
    state = mounted.state()
    mount = mounted(a, state=state)
    for number in range(10):
        rewritten(mount, a, *([b] if number % 2 else ()))
        os.kill(mount.pid, signal.SIGHUP)
    mount.kill()
    again = mounted(a, b, state=state, mount_point=mount.path)
    assert (again / "bb-filesystem+b+file/file").read_text() == "of b\n"


@pytest.mark.semantics("S41.6")
def test_a_read_only_mount_takes_no_writer(mounted: Mounts, folders: dict[str, Path]) -> None:
    a = folder("a", folders["a"])
    mount = mounted(a)
    rewritten(mount, a, folder("b", folders["b"], capabilities=["read", "list", "write"]))
    said = mount.bbfs("reload", mount.path).err.decode()
    assert "b is read-only here: no source could be written when the mount was made; mount it again" in said
    with pytest.raises(OSError):
        (mount / "bb-filesystem+b+file/file").write_text("no")
    assert (folders["b"] / "file").read_text() == "of b\n"


def test_a_writable_folder_comes_and_goes(mounted: Mounts, folders: dict[str, Path]) -> None:
    a, b = (folder(name, folders[name], capabilities=["read", "list", "write"]) for name in "ab")
    mount = mounted(a)
    rewritten(mount, a, b)
    mount.bbfs("reload", mount.path)
    file = mount / "bb-filesystem+b+file/file"
    with file.open("r+") as opened:
        opened.write("1")
        opened.flush()
        rewritten(mount, a)
        mount.bbfs("reload", mount.path)
        opened.write("2")
        opened.flush()  # the file itself is open
        with pytest.raises(FileNotFoundError):
            file.read_text()
    assert (folders["b"] / "file").read_text() == "12 b\n"
    rewritten(mount, a, folder("b", folders["c"], capabilities=["read", "list", "write"]))
    mount.bbfs("reload", mount.path)
    wait_until(lambda: file.read_text() == "of c\n", "the change shows")
    file.write_text("new\n")
    assert (folders["c"] / "file").read_text() == "new\n"


def test_a_reload_is_told_to_the_service_manager(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify")}).reloading()
        name, clock = listening.recv(1000).decode().split("\n")
    assert name == "RELOADING=1"
    assert clock.startswith("MONOTONIC_USEC=")
