"""Beginning and end of a mount, and its safety (S26, S28, S29), and that the harness notices what it should."""

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import Mount, Mounts, State, folder, unexpected_lines
from programs import Program, descriptors_of, errno_of, python, run, shell, wait_until, waits_in_fuse
from scripted import ScriptedServer

from bbfs.fuse import mounting, mountpoint

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture(scope="module")
def local_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("local")
    (root / "dir").mkdir()
    (root / "file").write_text("x")
    return root


@pytest.fixture(scope="module")
def local(local_folder: Path, module_mounted: Mounts) -> Mount:
    """A mount of that folder alone, for tests that change nothing."""
    return module_mounted(folder("local", local_folder))


def test_the_daemon_never_blocks_where_requests_come_from(mounted: Mounts, server: ScriptedServer) -> None:
    """The kernel takes a request back when its program is killed, also after it has said that there is one."""
    server.add("test://d/file", "x")
    mount = mounted(server.source("docs"))
    assert run("cat", mount / "mcp-server+docs/test/d/file").text == "x"
    fuse = [number for number, leads in descriptors_of(mount.pid).items() if leads == "/dev/fuse"]
    assert fuse
    for number in fuse:
        flags = re.search(r"flags:\s*(\d+)", Path(f"/proc/{mount.pid}/fdinfo/{number}").read_text())
        assert flags is not None
        assert int(flags[1], 8) & os.O_NONBLOCK
    for number in range(40):
        looking = Program("sh", "-c", f"while :; do stat {mount / 'mcp-server+docs/test/d'}/no-$$-{number}; done")
        looking.kill()
        assert run("cat", mount / "mcp-server+docs/test/d/file").text == "x"


def test_the_kernel_reads_ahead_as_much_as_one_request_holds(local: Mount) -> None:
    found = mountpoint.mount_at(str(local.path))
    assert found is not None
    setting = Path(f"/sys/class/bdi/{os.major(found.device)}:{os.minor(found.device)}/read_ahead_kb")
    if os.access(setting, os.W_OK):
        wait_until(lambda: setting.read_text() == f"{mounting.READ_AHEAD}\n", "the kernel was told")
    else:  # not root's, or a container's sysfs
        assert int(setting.read_text()) == 128


@pytest.mark.semantics("S26")
@pytest.mark.parametrize("lazily", [False, True])
def test_an_unmount_from_outside_ends_the_daemon_with_status_0(mounted: Mounts, tmp_path: Path, lazily: bool) -> None:
    (tmp_path / "file").write_text("x")
    mount = mounted(folder("local", tmp_path))
    assert run("cat", mount / "bb-filesystem+local+file/file").text == "x"
    run("fusermount3", "-u", *(["-z"] if lazily else []), mount.path)
    mount.check_end()


HOLD = """
os.chdir(sys.argv[1])
file = open(sys.argv[2])
open(sys.argv[3], "w").close()
open(sys.argv[4]).read()
"""


@pytest.mark.semantics("S26")
def test_a_busy_mount_is_unmounted_lazily(mounted: Mounts, programs: type[Program], tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "file").write_text("x")
    os.mkfifo(tmp_path / "go")
    mount = mounted(folder("local", tmp_path / "local"))
    directory = mount / "bb-filesystem+local+file"
    code = "import os, sys\n" + HOLD
    holder = programs(
        sys.executable, "-I", "-c", code, directory, directory / "file", tmp_path / "held", tmp_path / "go"
    )
    wait_until((tmp_path / "held").exists, "the mount is busy")
    mount.stop()
    assert holder.running


@pytest.mark.semantics("S26")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_cut_the_end_short(
    mounted: Mounts, server: ScriptedServer, number: signal.Signals
) -> None:
    server.add("test://d/file", "x")
    server.options(stubborn=True)
    mount = mounted(server.source("docs"))
    assert run("cat", mount / "mcp-server+docs/test/d/file").text == "x"
    mount.process.send_signal(number)
    wait_until(lambda: not mount.mounted, "it is unmounted")
    mount.stop(number)


@pytest.mark.semantics("S22", "S26")
def test_a_mount_with_a_hung_reader_is_unmounted(
    mounted: Mounts, programs: type[Program], server: ScriptedServer
) -> None:
    server.add("test://d/hung", "x")
    server.hang("test://d/hung")
    mount = mounted(server.source("docs", timeout=60))
    blocked = programs("cat", mount / "mcp-server+docs/test/d/hung")
    wait_until(lambda: waits_in_fuse(blocked.pid), "the reader waits")
    mount.stop()
    assert blocked.wait(10).status == 1


@pytest.mark.semantics("S26.2")
@pytest.mark.parametrize("busy", [False, True])
def test_after_kill_9_the_next_mount_repairs_the_mount_point(
    mounted: Mounts, programs: type[Program], server: ScriptedServer, tmp_path: Path, busy: bool
) -> None:
    server.add("test://d/file", "x")
    os.mkfifo(tmp_path / "go")
    point = tmp_path / "point"
    point.mkdir()
    first = mounted(server.source("docs"), mount_point=point)
    directory = first / "mcp-server+docs/test/d"
    assert run("cat", directory / "file").text == "x"
    if busy:
        code = "import os, sys\n" + HOLD
        programs(sys.executable, "-I", "-c", code, directory, directory / "file", tmp_path / "held", tmp_path / "go")
        wait_until((tmp_path / "held").exists, "the mount is busy")
    first.kill()
    assert errno_of("os.listdir(sys.argv[1])", point) in [errno.errorcode[number] for number in mountpoint.GONE]
    wait_until(lambda: not first.state.processes(), "the server goes with the daemon")
    second = mounted(server.source("docs"), mount_point=point)
    assert run("cat", second / "mcp-server+docs/test/d/file").text == "x"
    second.stop()
    assert mountpoint.mount_at(str(point)) is None


@pytest.mark.semantics("S28.1")
def test_the_mount_is_read_only_and_grants_nothing(local: Mount) -> None:
    line = next(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {local.path} " in line)
    before, _, after = line.partition(" - ")
    own, (kind, name, of_file_system) = set(before.split()[5].split(",")), after.split()
    assert (kind, name) == ("fuse.bbfs", "bbfs")
    assert {"ro", "nosuid", "nodev", "noexec"} <= own
    assert {"ro", "default_permissions"} <= set(of_file_system.split(","))
    assert "allow_other" not in of_file_system


WRITES = [
    "os.open(sys.argv[1] + '/new', os.O_CREAT | os.O_WRONLY)", "os.open(sys.argv[1] + '/file', os.O_WRONLY)",
    "os.open(sys.argv[1] + '/file', os.O_RDWR)", "os.open(sys.argv[1] + '/file', os.O_RDONLY | os.O_TRUNC)",
    "os.truncate(sys.argv[1] + '/file', 0)", "os.mkdir(sys.argv[1] + '/new')", "os.rmdir(sys.argv[1] + '/dir')",
    "os.unlink(sys.argv[1] + '/file')", "os.rename(sys.argv[1] + '/file', sys.argv[1] + '/new')",
    "os.link(sys.argv[1] + '/file', sys.argv[1] + '/new')", "os.symlink('x', sys.argv[1] + '/new')",
    "os.mkfifo(sys.argv[1] + '/new')", "os.chmod(sys.argv[1] + '/file', 0o600)",
    "os.chown(sys.argv[1] + '/file', 0, 0)", "os.utime(sys.argv[1] + '/file')",
    "os.setxattr(sys.argv[1] + '/file', 'user.x', b'x')", "os.removexattr(sys.argv[1] + '/file', 'user.bbfs.uri')",
]  # fmt: skip


@pytest.mark.semantics("S23", "S28")
def test_every_write_is_refused_with_erofs(local: Mount, local_folder: Path) -> None:
    directory = local / "bb-filesystem+local+file"
    assert {write: errno_of(write, directory) for write in WRITES} == dict.fromkeys(WRITES, "EROFS")
    assert sorted(os.listdir(local_folder)) == ["dir", "file"]
    assert (local_folder / "file").read_text() == "x"


@as_root
@pytest.mark.semantics("S28.1")
@pytest.mark.parametrize("allowed", [False, True])
def test_other_users_get_in_only_when_they_are_allowed_to(mounted: Mounts, tmp_path: Path, allowed: bool) -> None:
    (tmp_path / "file").write_text("x")
    tmp_path.chmod(0o755)
    mount = mounted(folder("local", tmp_path), tables={"mount": {"allow_other": allowed}})
    mount.path.parent.stat()
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = run(*nobody, "cat", mount / "bb-filesystem+local+file/file", status=None)
    assert (done.status, done.out) == ((0, b"x") if allowed else (1, b""))
    if not allowed:
        assert b"Permission denied" in done.err


@pytest.mark.semantics("S29")
def test_links_are_shown_and_not_followed_by_the_daemon(mounted: Mounts, tmp_path: Path) -> None:
    secret = tmp_path / "outside"
    secret.mkdir()
    (secret / "file").write_text("outside")
    root = tmp_path / "root"
    (root / "dir").mkdir(parents=True)
    (root / "dir" / "file").write_text("inside")
    targets = {
        "absolute": str(secret),
        "relative": "../outside/file",
        "inside": "dir/file",
        "loop": "loop",
        "dead": "x",
    }
    for name, target in targets.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "fifo")
    directory = mounted(folder("local", root)) / "bb-filesystem+local+file"
    found = shell("find . -type l -printf '%P %l\\n' | sort", directory=directory).text
    assert found == "".join(f"{name} {target}\n" for name, target in sorted(targets.items()))
    assert run("cat", directory / "inside").text == "inside"
    # The kernel follows a link from where it is: `..` of the source's directory is the mount's root.
    assert errno_of("open(sys.argv[1])", directory / "relative") == "ENOENT"
    assert errno_of("open(sys.argv[1])", directory / "loop") == "ELOOP"
    assert errno_of("os.listdir(sys.argv[1] + '/fifo')", directory) == "ENOENT"
    assert run("find", directory, "-name", "file").text.split() == [str(directory / "dir/file")]


@pytest.mark.semantics("S29")
def test_a_directory_that_is_swapped_for_a_link_out_is_not_entered(mounted: Mounts, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("outside")
    (tmp_path / "root" / "dir").mkdir(parents=True)
    (tmp_path / "root" / "dir" / "file").write_text("inside")
    directory = mounted(folder("local", tmp_path / "root", ttl=3600)) / "bb-filesystem+local+file"
    assert run("ls", directory / "dir").text == "file\n"
    (tmp_path / "root" / "dir" / "file").unlink()
    (tmp_path / "root" / "dir").rmdir()
    (tmp_path / "root" / "dir").symlink_to(tmp_path / "outside")
    # The mount still believes in the directory.
    assert run("cat", directory / "dir/file", status=1).out == b""


@pytest.mark.semantics("S29")
def test_a_folder_that_holds_the_mount_point_does_not_recurse_into_it(mounted: Mounts, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "point").mkdir()
    (tmp_path / "file").write_text("x")
    mount = mounted(folder("local", tmp_path), mount_point=tmp_path / "below" / "point")
    directory = mount / "bb-filesystem+local+file"
    found = shell("find . -printf '%P\\n' | sort", directory=directory).text.split()
    assert found == ["below", "below/point", "file"]
    assert run("ls", "-A", directory / "below/point").text == ""


@pytest.mark.semantics("S29")
def test_a_folder_that_is_the_mount_point_is_refused(mounted: Mounts, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="mount point"):
        Mount([folder("local", tmp_path)], mount_point=tmp_path, state=mounted.state())
    assert mountpoint.mount_at(str(tmp_path)) is None


@pytest.mark.semantics("S30")
def test_a_server_gets_its_own_environment_and_no_descriptor_of_the_daemon(
    mounted: Mounts, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add("test://d/file", "x")
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "not-for-servers")
    mount = mounted(server.source("docs", env={"OWN": "for-this-one"}))
    run("cat", mount / "mcp-server+docs/test/d/file")
    (pid,) = mount.children()
    child = Path("/proc") / str(pid)
    environ = child.joinpath("environ").read_bytes()
    assert b"OWN=for-this-one" in environ
    assert b"SECRET_OF_THE_DAEMON" not in environ
    assert b"NOTIFY_SOCKET" not in environ
    held = descriptors_of(pid).values()
    assert held
    assert not any("/dev/fuse" in target or str(mount.state.home) in target for target in held)


def test_the_harness_sees_what_is_unexpected_in_a_log() -> None:
    log = "bbfs: info: a: b\nbbfs: warning: b: odd\nTraceback (most recent call last):\n\nbbfs: debug: c: d\nnoise\n"
    assert unexpected_lines(log, []) == ["bbfs: warning: b: odd", "Traceback (most recent call last):", "noise"]
    assert unexpected_lines(log, ["odd$", "^Traceback", "noi"]) == []


def test_the_harness_gives_a_program_up_that_does_not_end() -> None:
    with pytest.raises(AssertionError, match=r"did not end within 0\.2 s"):
        python("import threading; threading.Event().wait()", timeout=0.2)


@pytest.mark.semantics("S26")
def test_the_harness_sees_what_a_daemon_leaves_behind(mounted: Mounts, server: ScriptedServer) -> None:
    server.add("test://d/file", "x")
    mount = mounted(server.source("docs"))
    run("cat", mount / "mcp-server+docs/test/d/file")
    mount.process.kill()
    with pytest.raises(AssertionError) as caught:
        mount.check_end()
    assert "exit status -9" in str(caught.value)
    assert "the mount is still there" in str(caught.value)
    assert not mount.mounted
    assert mount.state.processes() == []


_EXCHANGED_LATE = """
import os, sys
import pyfuse3
place, victim, *words = sys.argv[1:]
real = pyfuse3.init
def init(*given):
    os.rename(place, place + " moved")
    os.symlink(victim, place)
    real(*given)
pyfuse3.init = init
from bbfs.cli import main
sys.argv = ["bbfs", *words]
main(prog_name="bbfs")
"""


@as_root
@pytest.mark.semantics("S28")
@pytest.mark.parametrize("exchanged", ["mnt", "above"])
def test_a_link_in_the_place_of_a_checked_mount_point_is_not_mounted_on(
    fuse: None, tmp_path: Path, exchanged: str
) -> None:
    """It comes in the last moment, when all checks have been made."""
    above, victim, home = tmp_path / "above", tmp_path / "victim", tmp_path / "home"
    for directory in (above / "mnt", victim / "mnt", home, tmp_path / "folder"):
        directory.mkdir(parents=True)
    place, leads = (above / "mnt", victim / "mnt") if exchanged == "mnt" else (above, victim)
    words = ("mount", above / "mnt", "--dir", f"notes={tmp_path / 'folder'}")
    done = subprocess.run(
        [sys.executable, "-c", _EXCHANGED_LATE, place, leads, *words],
        env=State(home).environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "exchanged for another directory" in done.stderr) == (32, True), done.stderr
    assert place.is_symlink()
    assert not [mount.path for mount in mountpoint.mounts() if mount.path.startswith(str(tmp_path))]
