"""`bbfs mount /dev/fd/N`: another program has made the mount, and passes its descriptor of `/dev/fuse`."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import State, mount_command
from programs import bbfs, errno_of, run, wait_until

BOUND = 30.0
MS_NOSUID, MS_NODEV, MS_NOEXEC, MNT_DETACH = 2, 4, 8, 2
WITHOUT_RIGHTS = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
assert libc.umount2(os.fsencode(sys.argv[1]), 2) == 0  # umount(8) would look at it, and wait
assert libc.mount(b"/dev/null", b"/dev/fuse", None, 4096, None) == 0
os.execvp("setpriv", ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", *sys.argv[2:]])
"""
"""Runs a program as in a container: without a capability, without `/dev/fuse`, and where nothing shows the mount."""
IN_A_CONTAINER = [
    *("unshare", "--mount", "sh", "-c"),
    'mount --bind /dev/null /dev/fuse && exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all "$@"',
    "sh",
]
HAND_OVER = Path(__file__).parents[2] / "packaging/kubernetes/hand-over/hand_over.py"
LIBC = ctypes.CDLL(None, use_errno=True)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


def _mount(device: int, point: Path) -> None:
    """Mount as a program does that then passes the descriptor."""
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,default_permissions"
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    if LIBC.mount(b"passed", os.fsencode(point), b"fuse.bbfs", flags, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")


class Passed:
    """A mount whose descriptor a daemon gets. log: what the daemon writes. served: the folder,
    if not the notes. confined: the daemon has no rights."""

    def __init__(self, root: Path, served: Path | None = None, *, confined: bool = False) -> None:
        self.notes, self.point, self.state = root / "notes", root / "mnt", State()
        self.log = root / "log"
        self.notes.mkdir()
        self.point.mkdir()
        (self.notes / "a.txt").write_text("one")
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        try:
            _mount(device, self.point)
            confining = (
                ["unshare", "--mount", sys.executable, "-c", WITHOUT_RIGHTS, str(self.point)] if confined else []
            )
            line = [
                *confining,
                *mount_command()[:-1],
                "-vv",
                "--dir",
                f"notes={served or self.notes}",
                f"/dev/fd/{device}",
            ]
            with self.log.open("wb") as log:
                self.process = subprocess.Popen(
                    line, pass_fds=(device,), env=self.state.environ(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
        finally:
            os.close(device)

    @property
    def file(self) -> Path:
        """The path of the folder's file in the mount."""
        return self.point / "bb-filesystem+notes+file/a.txt"

    def read(self) -> bytes:
        return run("cat", self.file).out

    def unmount(self) -> None:
        assert LIBC.umount2(os.fsencode(self.point), MNT_DETACH) == 0

    def end(self) -> None:
        """Leave nothing, whatever has happened."""
        LIBC.umount2(os.fsencode(self.point), MNT_DETACH)
        self.process.kill()
        self.process.wait(BOUND)
        self.state.remove()


@contextmanager
def passed(root: Path, served: Path | None = None, *, confined: bool = False) -> Iterator[Passed]:
    mount = Passed(root, served, confined=confined)
    try:
        yield mount
    finally:
        mount.end()


@pytest.mark.semantics("S28.1")
def test_a_daemon_serves_a_mount_that_another_program_has_made(tmp_path: Path) -> None:
    with passed(tmp_path) as mount:
        assert mount.read() == b"one"
        assert errno_of("open(sys.argv[1], 'a')", mount.file) == "EROFS"
        assert b"notes" in bbfs("status", mount.point).out
        mount.unmount()
        assert mount.process.wait(BOUND) == 0, mount.log.read_text()


def test_a_signal_ends_the_mount_and_leaves_it_to_the_other_program(tmp_path: Path) -> None:
    with passed(tmp_path) as mount:
        assert mount.read() == b"one"
        mount.process.terminate()
        assert mount.process.wait(BOUND) == 0, mount.log.read_text()
        assert b"not connected" in run("cat", mount.file, status=1).err
        mount.unmount()


def test_a_daemon_without_rights_and_without_the_device_serves(tmp_path: Path) -> None:
    with passed(tmp_path, confined=True) as mount:
        assert mount.read() == b"one"
        (mount.notes / "a.txt").write_text("another")
        wait_until(lambda: mount.read() == b"another", "the change of the file")
        mount.unmount()
        assert mount.process.wait(BOUND) == 0, mount.log.read_text()
        said = mount.log.read_text()
        assert "shares the daemon's descriptor" in said
        assert "was not notified" not in said


def test_what_a_kubernetes_node_runs_mounts_for_one_daemon_after_the_other(tmp_path: Path) -> None:
    notes, point, channel, log = (tmp_path / name for name in ("notes", "mnt", "channel", "log"))
    notes.mkdir()
    (notes / "a.txt").write_text("one")
    state, programs = State(), list[subprocess.Popen[bytes]]()

    def start(*line: str) -> "subprocess.Popen[bytes]":
        with log.open("ab") as said:
            programs.append(
                subprocess.Popen(line, env=state.environ(), stdin=subprocess.DEVNULL, stdout=said, stderr=said)
            )
        return programs[-1]

    hand_over = [sys.executable, str(HAND_OVER)]
    try:
        mounter = start("unshare", "--mount", *hand_over, "mount", str(point), str(channel), str(os.geteuid()))
        for served in (1, 2):
            command = [*hand_over, "take", str(channel), *mount_command()[:-1], "--allow-other"]
            daemon = start(*IN_A_CONTAINER, *command, "--dir", f"notes={notes}", "{}")
            wait_until(lambda served=served: log.read_text().count("mounted") == served, "the mount")
            file = point / "bb-filesystem+notes+file/a.txt"
            assert run("nsenter", "--target", str(mounter.pid), "--mount", "cat", file).out == b"one", log.read_text()
            if served == 1:
                daemon.kill()
                wait_until(lambda: "the daemon has ended" in log.read_text(), "the end of the daemon")
        mounter.terminate()
        assert mounter.wait(BOUND) == 0, log.read_text()
        assert daemon.wait(BOUND) == 0, log.read_text()
    finally:
        for program in programs:
            program.kill()
            program.wait(BOUND)
        state.remove()


def test_a_folder_that_may_hold_the_mount_is_refused(tmp_path: Path) -> None:
    with passed(tmp_path, tmp_path) as mount:
        assert mount.process.wait(BOUND) == 32, mount.log.read_text()
        assert f"{tmp_path} holds the mount {mount.point}" in mount.log.read_text()


@pytest.mark.parametrize("option", ["--background", "--restartable", "--scratch=there"])
def test_what_needs_the_place_of_the_mount_is_refused(option: str) -> None:
    said = bbfs("mount", "/dev/fd/3", "--dir", "notes=/usr", option, status=1).err.decode()
    assert f"{option.split('=')[0]} needs a directory; /dev/fd/3 is a mount that another program has made" in said


@pytest.mark.parametrize(
    ("opened", "why"), [(None, "Bad file descriptor"), ("/dev/null", "not a descriptor"), ("/dev/fuse", "has no mount")]
)
def test_a_descriptor_without_a_mount_is_refused(tmp_path: Path, opened: str | None, why: str) -> None:
    notes, state = tmp_path / "notes", State()
    notes.mkdir()
    device = 99 if opened is None else os.open(opened, os.O_RDWR | os.O_CLOEXEC)
    try:
        done = subprocess.run(
            [*mount_command()[:-1], "--dir", f"notes={notes}", f"/dev/fd/{device}"],
            pass_fds=() if opened is None else (device,),
            env=state.environ(),
            capture_output=True,
            text=True,
            timeout=BOUND,
            check=False,
        )
    finally:
        if opened is not None:
            os.close(device)
        state.remove()
    assert done.returncode == 32
    (line,) = done.stderr.splitlines()
    assert f"/dev/fd/{device}" in line
    assert why in line
