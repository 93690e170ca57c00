"""Saving to servers of WebDAV, SFTP and FTP through a mount: afterwards the server has it (S32, S33)."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from file_servers import SCHEMES, FileServer
from harness import Mount, Mounts
from object_stores import Relay
from programs import Program, errno_of, run, shell, wait_until

pytestmark = pytest.mark.semantics("S32", "S33")
LOST = ("cannot be reached", "connection broke", "not written", "no answer", "ended", "down", "refused", "connection")
COPY = "exec(\"with open(sys.argv[1], 'wb', 0) as f: f.write(open(sys.argv[2], 'rb').read())\")"
SAVE = "[(file.write('{}'), file.close()) for file in [open(sys.argv[1], 'w')]]"
MIB = 1 << 20
BESIDE = ".big.Xy12Ab"
"""A name as rsync makes one. A file of this name lives in the mount alone, and is renamed when it is whole."""
RENAMED = """
import os, sys
with open(sys.argv[1], "wb", 0) as file:
    file.write(open(sys.argv[3], "rb").read())
print("closed", flush=True)
os.rename(sys.argv[1], sys.argv[2])
"""
NOT_STAGED = "a MOVE over a file would lose what the server keeps beside its bytes"


@pytest.fixture(scope="module", params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def started(scheme: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., FileServer]]:
    """Start a server with an empty folder."""
    servers: list[FileServer] = []

    def start(*, read_only: bool = False, full_at: int = 0) -> FileServer:
        root, home = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("home")
        servers.append(FileServer(scheme, root, home, read_only=read_only, full_at=full_at))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def pending(mount: Mount) -> list[dict[str, object]]:
    return json.loads(mount.bbfs("pending", "list", "--json").text)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A file that is large enough to be staged."""
    file = tmp_path / "data"
    file.write_bytes(os.urandom(3 * MIB))
    return file


def test_a_rename_moves_the_bytes_that_the_close_has_staged(
    mounted: Mounts, started: Callable[..., FileServer], data: Path
) -> None:
    server = started()
    if server.scheme == "webdav":
        pytest.skip(NOT_STAGED)
    here = server.folder(mounted(server.source()))
    run("ls", here)  # before it is listed, a lookup may give up and say that a name is a directory (S22)
    shell("echo old > big", directory=here)
    for name in ("new", "big"):
        shell(f"cat {data} > {BESIDE}", directory=here)
        [staged] = (each for each in server.root.iterdir() if each.name not in ("new", "big"))
        assert staged.read_bytes() == data.read_bytes()
        number = staged.stat().st_ino
        shown = {BESIDE, *os.listdir(server.root)} - {staged.name}
        assert {*os.listdir(here)} == shown
        shell(f"mv -f {BESIDE} {name}", directory=here)
        assert (server.root / name).stat().st_ino == number, "it is moved, not sent again"
        assert run("cat", here / name).out == (server.root / name).read_bytes() == data.read_bytes()
        assert {*os.listdir(server.root)} == {"new", "big"}


def test_a_slow_upload_before_a_rename_freezes_no_name_beside(
    mounted: Mounts, started: Callable[..., FileServer], data: Path
) -> None:
    server = started()
    if server.scheme == "webdav":
        pytest.skip(NOT_STAGED)
    if server.scheme == "ftp":
        pytest.skip("its connections for data go past a relay")
    (server.root / "big").write_bytes(b"old")
    (server.root / "note.md").write_bytes(b"one\n")
    relay, goes_on = Relay(server.port), threading.Event()
    with closing(relay):
        mount = mounted(server.source(relay.port))
        here = server.folder(mount, relay.port)
        assert run("cat", here / "note.md", here / "big").out == b"one\nold"
        from_here = relay.received
        relay.receives = lambda received: received > from_here + MIB and goes_on.wait(100)
        try:
            program = Program(sys.executable, "-c", RENAMED, here / BESIDE, here / "big", data)
            wait_until(lambda: relay.received > from_here + MIB, "the upload stops halfway")
            assert run("stat", "-c", "%s", here / "note.md", here / "big", timeout=20).text == "4\n3\n"
            assert run("stat", here / "none", timeout=20, status=1).out == b""
            assert program.running
        finally:
            goes_on.set()
        assert program.wait(60).text == "closed\n"
    assert (server.root / "big").read_bytes() == data.read_bytes()
    assert {*os.listdir(server.root)} == {"big", "note.md"}


def test_what_a_killed_daemon_has_staged_is_swept(
    mounted: Mounts, started: Callable[..., FileServer], data: Path
) -> None:
    server = started()
    if server.scheme == "webdav":
        pytest.skip(NOT_STAGED)
    mount = mounted(server.source(), expected=[""])
    shell(f"ls; cat {data} > {BESIDE}", directory=server.folder(mount))
    assert len(os.listdir(server.root)) == 1
    mount.kill()
    mount.destroy()
    mount = mounted(server.source(), state=mount.state)
    here = server.folder(mount)
    assert run("ls", "-A", here).text == ""
    shell("echo one > note.md", directory=here)
    assert os.listdir(server.root) == ["note.md"]


def test_a_server_that_dies_during_an_upload_gets_it_later(
    mounted: Mounts, started: Callable[..., FileServer], tmp_path: Path
) -> None:
    server, data = started(), tmp_path / "data"
    (server.root / "note.md").write_bytes(b"one\n")
    data.write_bytes(os.urandom(2 * MIB))
    with server.dying() as (port, die_at):
        mount = mounted(server.source(port, timeout="10s"), expected=LOST)
        note = server.folder(mount, port) / "note.md"
        assert run("cat", note).out == b"one\n"
        die_at(MIB)
        assert errno_of(COPY, note, data) == "EHOSTDOWN"
        server.process.wait(10)
        [item] = pending(mount)
        assert item["size"] == 2 * MIB
        server.start()
        retry = ["pending", "retry", str(item["id"])]
        if (server.root / "note.md").read_bytes() != b"one\n":
            assert server.scheme == "webdav", "rclone stores in place, as soon as it has bytes"
            assert "somebody else has changed it" in mount.bbfs(*retry, status=1).err.decode()
            retry += ["--force"]
        mount.bbfs(*retry)
        assert (server.root / "note.md").read_bytes() == data.read_bytes()
        assert mount.state.kept() == []
        assert run("cat", note).out == data.read_bytes()


def test_a_server_that_is_stopped_fails_a_save_in_time(mounted: Mounts, started: Callable[..., FileServer]) -> None:
    server = started()
    (server.root / "note.md").write_bytes(b"one\n")
    mount = mounted(server.source(timeout="1s"), expected=LOST)
    note = server.folder(mount) / "note.md"
    assert run("cat", note).out == b"one\n"
    server.process.send_signal(signal.SIGSTOP)
    assert errno_of(SAVE.format("mine"), note) == "ETIMEDOUT"
    server.process.send_signal(signal.SIGCONT)
    assert mount.state.kept() == [b"mine"]
    wait_until(lambda: errno_of(SAVE.format("again"), note).startswith("OK"), "it is written again")
    assert os.listdir(server.root) == ["note.md"]


def test_a_full_server_takes_nothing(mounted: Mounts, started: Callable[..., FileServer], tmp_path: Path) -> None:
    server, data = started(full_at=2 * MIB), tmp_path / "data"
    data.write_bytes(os.urandom(4 * MIB))
    mount = mounted(server.source(), expected=["not written"])
    here = server.folder(mount)
    assert run("ls", here).text == ""
    shell("echo one > note.md", directory=here)
    assert server.path("note.md").read_bytes() == b"one\n"
    # For WebDAV, rclone gives no reason.
    assert errno_of(COPY, here / "new", data) == ("EIO" if server.scheme == "webdav" else "ENOSPC")
    assert mount.state.kept() == [data.read_bytes()]
    shell("echo two >> note.md", directory=here)
    assert server.path("note.md").read_bytes() == b"one\ntwo\n", "nothing is left that takes its room"
    assert os.listdir(server.path("")) == ["note.md"]


def test_a_server_that_refuses_says_so(mounted: Mounts, started: Callable[..., FileServer]) -> None:
    server = started(read_only=True)
    (server.root / "note.md").write_bytes(b"one\n")
    mount = mounted(server.source(), expected=["not written"])
    here = server.folder(mount)
    assert run("ls", here).text == "note.md\n"
    assert errno_of(SAVE.format("mine"), here / "note.md") == "EACCES"
    assert errno_of(SAVE.format("mine"), here / "new.md") == "EACCES"
    assert errno_of("os.mkdir(sys.argv[1])", here / "d") == "EACCES"
    assert errno_of("os.unlink(sys.argv[1])", here / "note.md") == "EACCES"
    assert errno_of("os.rename(sys.argv[1], sys.argv[1] + '2')", here / "note.md") == "EACCES"
    assert (server.root / "note.md").read_bytes() == b"one\n"
    assert run("cat", here / "note.md").out == b"one\n"
    assert mount.state.kept() == [b"mine", b"mine"]
