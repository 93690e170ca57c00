"""Errors, bounds and recovery on a real mount (S22 to S25, S27)."""

import signal
import sys
import time
from pathlib import Path

import pytest
from harness import Mounts, folder
from programs import Program, errno_of, python, run, wait_until, waits_in_fuse, zombies_of
from scripted import ScriptedServer

SOON = 10.0
"""Seconds on a busy machine for an answer that waits for no source; a source has 30 by default."""


@pytest.fixture
def unlisted(tmp_path: Path) -> ScriptedServer:
    """A server that does not answer listings."""
    server = ScriptedServer(tmp_path / "unlisted")
    server.hang_listing()
    return server


@pytest.mark.semantics("S22", "S23")
def test_a_request_that_is_not_answered_ends_with_etimedout_and_is_cancelled(
    mounted: Mounts, server: ScriptedServer, unlisted: ScriptedServer
) -> None:
    for name in ("opened", "stated"):
        server.add(f"test://d/{name}", "x")
        server.hang(f"test://d/{name}")
    server.add("test://d/fine", "fine")
    mount = mounted(server.source("docs", timeout=1), unlisted.source("unlisted", timeout=1))
    directory, root = mount / "mcp-server+docs/test/d", mount / "mcp-server+unlisted"
    requests = {"open(sys.argv[1]).read()": directory / "opened", "os.stat(sys.argv[1])": directory / "stated"}
    for operation, path in {**requests, "os.listdir(sys.argv[1])": root}.items():
        started = time.monotonic()
        assert errno_of(operation, path) == "ETIMEDOUT"
        assert 0.9 < time.monotonic() - started < SOON
    for path in requests.values():
        wait_until(lambda path=path: f"cancelled test://d/{path.name}" in server.log(), "the request is cancelled")
    assert run("cat", directory / "fine").text == "fine"
    unlisted.options(listGate=None)
    wait_until(lambda: run("ls", root, status=None).status == 0, "it is asked again")


@pytest.mark.semantics("S22.1")
def test_a_blocked_reader_goes_away_on_a_signal_within_a_second(
    mounted: Mounts, programs: type[Program], server: ScriptedServer, unlisted: ScriptedServer
) -> None:
    server.add("test://d/hung", "x")
    server.hang("test://d/hung")
    mount = mounted(server.source("docs", timeout=60), unlisted.source("unlisted", timeout=60))
    path = mount / "mcp-server+docs/test/d/hung"
    opening = [sys.executable, "-I", "-S", "-c", "import sys; open(sys.argv[1])", path]
    for words in (["cat", path], ["stat", path], opening, ["ls", mount / "mcp-server+unlisted/test/d"]):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP):
            blocked = programs(*words)
            wait_until(lambda pid=blocked.pid: waits_in_fuse(pid), "the reader waits")
            sent = time.monotonic()
            blocked.send(number)
            assert blocked.wait().status != 0
            assert time.monotonic() - sent < SOON
            assert run("ls", mount.path).text.split() == ["mcp-server+docs", "mcp-server+unlisted"]


@pytest.mark.semantics("S22")
def test_programs_that_look_up_one_name_of_a_hung_source_go_away_within_a_second(
    mounted: Mounts, programs: type[Program], unlisted: ScriptedServer
) -> None:
    """The kernel lets one of them ask, and the others sleep until it has an answer."""
    path = mounted(unlisted.source("docs", timeout=60)) / "mcp-server+docs/test/d/hung"
    blocked = [programs(command, path) for command in 4 * ["cat", "ls"]]
    wait_until(lambda: any(waits_in_fuse(program.pid) for program in blocked), "one has asked")
    for program in blocked[:6]:
        program.send(signal.SIGKILL)
    for program in blocked[:6]:
        assert program.wait().status == -signal.SIGKILL
    assert all(program.running for program in blocked[6:]), "the killed ones waited for the answer"
    unlisted.release_listing()
    for program in blocked[6:]:
        assert "No such file" in program.wait().err.decode()


@pytest.mark.semantics("S22")
def test_a_server_that_starts_slowly_is_used_as_any(
    mounted: Mounts, programs: type[Program], server: ScriptedServer
) -> None:
    server.add("test://d/file", "whole")
    server.hang_listing()
    root = mounted(server.source("docs")) / "mcp-server+docs"
    path = root / "test/d/file"
    first = {
        "whole": programs("cat", path),
        "5\n": programs("stat", "-c", "%s", path),
        "regular file\n": programs("stat", "-c", "%F", path),
        "file\n": programs("ls", path.parent),
        str(path): programs("realpath", "-z", path),
        "mcp-server+docs+test://d/file": programs("getfattr", "--only-values", "-n", "user.bbfs.uri", path),
    }
    absent = programs("cat", root / "test/none")
    below = programs("cat", path / "below")
    wait_until(lambda: waits_in_fuse(below.pid), "the last one has asked")
    python("os.open(sys.argv[1], os.O_PATH)", path.parent.parent)  # a lookup alone: those before have been answered
    server.release_listing()
    for shown, program in first.items():
        assert program.wait().text.rstrip("\0") == shown
    assert "No such file" in absent.wait().err.decode()
    assert "Not a directory" in below.wait().err.decode()
    assert server.lists() == 1


@pytest.mark.semantics("S22")
def test_many_readers_of_a_hung_source_leave_room_for_others(
    mounted: Mounts, programs: type[Program], server: ScriptedServer, tmp_path: Path
) -> None:
    for number in range(150):
        server.add(f"test://d/{number}", "x")
        server.hang(f"test://d/{number}")
    (tmp_path / "file").write_text("here")
    mount = mounted(server.source("docs", timeout=60), folder("local", tmp_path))
    directory = mount / "mcp-server+docs/test/d"
    code = """
import threading
def read(name):
    try:
        open(f"{sys.argv[1]}/{name}").read()
    except OSError:
        pass
for number in range(150):
    threading.Thread(target=read, args=(number,), daemon=True).start()
open(sys.argv[2], "w").close()
threading.Event().wait()
"""
    crowd = programs(sys.executable, "-I", "-c", "import os, sys\n" + code, directory, tmp_path / "started")
    wait_until((tmp_path / "started").exists, "the readers have started")
    wait_until(lambda: server.reads() >= 16, "the source is as busy as it may be")
    started = time.monotonic()
    assert run("cat", mount / "bb-filesystem+local+file/file").text == "here"
    assert run("ls", directory).text.count("\n") == 150
    assert time.monotonic() - started < SOON
    crowd.send(signal.SIGKILL)
    assert crowd.wait(10).status == -signal.SIGKILL


@pytest.mark.semantics("S23", "S24")
def test_a_crashed_server_is_an_error_at_once_and_comes_back_on_the_next_use(
    mounted: Mounts, server: ScriptedServer, tmp_path: Path
) -> None:
    sibling = ScriptedServer(tmp_path / "sibling")
    sibling.add("test://d/file", "sibling")
    server.add("test://d/crash", "back again")
    server.add("test://d/fine", "fine")
    server.crash("test://d/crash")
    mount = mounted(server.source("docs"), sibling.source("other", ttl=0))
    directory = mount / "mcp-server+docs/test/d"
    started = time.monotonic()
    assert errno_of("open(sys.argv[1]).read()", directory / "crash") == "EHOSTDOWN"
    assert time.monotonic() - started < SOON
    assert run("cat", mount / "mcp-server+other/test/d/file").text == "sibling"
    server.crash("test://d/crash", crashing=False)
    wait_until(lambda: run("cat", directory / "crash", status=None).text == "back again", "it is back")
    assert run("cat", directory / "fine").text == "fine"
    assert sibling.starts() == 1
    assert server.starts() >= 2
    wait_until(lambda: zombies_of(mount.pid) == [], "the dead are reaped")


ODD_REQUESTS = r"""
import ctypes, fcntl, socket, stat
root = os.fsencode(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
names = [b"\xff\xfe", b"x" * 255, b"x" * 256, b"a\nb", b"%", b"%00", b"~", b"..."]
places = [root, root + b"/mcp-server+docs", root + b"/mcp-server+docs/test", root + b"/mcp-server+docs/test/d/file"]
tried = 0
def attempt(function, *arguments):
    global tried
    tried += 1
    try:
        result = function(*arguments)
        if isinstance(result, int) and function is os.open:
            os.close(result)
    except (OSError, ValueError):
        pass
for place in places:
    for name in names:
        path = place + b"/" + name
        for function in (os.stat, os.lstat, os.readlink, os.listdir, os.unlink, os.rmdir, os.mkdir, os.listxattr):
            attempt(function, path)
        attempt(os.open, path, os.O_RDONLY)
        attempt(os.open, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        attempt(os.mknod, path, 0o600 | stat.S_IFIFO)
        attempt(os.symlink, b"target", path)
        attempt(os.getxattr, place, b"user." + name[:200])
        attempt(os.setxattr, place, b"user." + name[:200], b"x")
        attempt(os.rename, path, root + b"/new")
        attempt(os.link, path, root + b"/new")
    for flags in (os.O_RDWR, os.O_TRUNC | os.O_WRONLY, os.O_PATH, os.O_DIRECT, os.O_TMPFILE | os.O_RDWR):
        attempt(os.open, place, flags)
    for function in (os.statvfs, os.readlink):
        attempt(function, place)
    attempt(os.chmod, place, 0o777)
    attempt(os.chown, place, 1, 1)
    attempt(os.utime, place, (0, 0))
    attempt(os.truncate, place, 1)
    descriptor = os.open(place, os.O_RDONLY)
    for function in (os.fsync, os.fdatasync):
        attempt(function, descriptor)
    attempt(fcntl.flock, descriptor, fcntl.LOCK_SH)
    attempt(fcntl.lockf, descriptor, fcntl.LOCK_SH)
    attempt(fcntl.ioctl, descriptor, 0x5401, b"\0" * 64)
    attempt(os.posix_fallocate, descriptor, 0, 10)
    attempt(os.pread, descriptor, 10, 1 << 62)
    attempt(os.lseek, descriptor, 0, os.SEEK_DATA)
    attempt(os.lseek, descriptor, 0, os.SEEK_HOLE)
    attempt(os.posix_fadvise, descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    attempt(os.copy_file_range, descriptor, descriptor, 10)
    os.close(descriptor)
    attempt(socket.socket(socket.AF_UNIX).bind, place + b"/socket")
print(tried)
"""


@pytest.mark.semantics("S27")
def test_no_request_ends_the_mount(mounted: Mounts, server: ScriptedServer) -> None:
    server.add("test://d/file", "x")
    mount = mounted(server.source("docs"))
    assert int(python(ODD_REQUESTS, mount.path).text) > 400
    assert run("cat", mount / "mcp-server+docs/test/d/file").text == "x"
    assert mount.process.poll() is None
