"""A restart that keeps the mount: what programs have open in it goes on, under the next daemon."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from harness import SourceTable, State, config_text, folder, mount_command
from notify_socket import PATIENCE, NotifySocket
from programs import Program, run, wait_until, zombies_of
from scripted import ScriptedServer
from watched import WATCHING, Watcher

from bbfs.fuse.service import handover

LARGE = 8 << 20
PROGRAM = """
import os, sys
os.chdir(sys.argv[1])
file = open("large", "rb", buffering=0)
directory = os.open(".", os.O_RDONLY)
before = os.fstat(file.fileno()).st_ino
print(file.read(4).decode(), flush=True)
sys.stdin.readline()
file.seek(-4, 2)
print(file.read(4).decode(), os.fstat(file.fileno()).st_ino == before, flush=True)
print(open("small").read(), os.stat("small", dir_fd=directory).st_size, sorted(os.listdir()), flush=True)
"""
READER = """
import os, sys
done = 0
while not os.path.exists(sys.argv[2]):
    with open(sys.argv[1], "rb") as file:
        file.seek(done * 4096 % (8 << 20))
        assert len(file.read(4096)) == 4096
    done += 1
print(done)
"""
WRITE = ["list", "read", "write"]
WRITER = """
import os, sys
os.chdir(sys.argv[1])
held = open("held", "wb", buffering=0)
appended = open("appended", "a")
for number in range(3):
    held.write(b"%d" % number * 5000)
    print(number, file=appended, flush=True)
    print(number, flush=True)
    sys.stdin.readline()
    with open("new", "w") as new:
        new.write("new")
print(sorted(os.listdir()))
"""
CHANGER = """
import os, sys
place, number, enough = sys.argv[1:]
done = 0
while not os.path.exists(enough):
    path = f"{place}/{number}-{done}"
    os.mkdir(path)
    with open(path + "/file", "x") as file:
        file.write("text")
    os.rename(path + "/file", path + "/moved")
    with open(path + "/moved") as file:
        assert file.read() == "text"
    os.unlink(path + "/moved")
    os.rmdir(path)
    done += 1
print(done)
"""
HOLDER = """
import sys
with open(sys.argv[1], "w") as file:
    print("open", flush=True)
    sys.stdin.readline()
    file.write(sys.argv[2])
"""
SAVER = """
import json, select, sys
path, number = sys.argv[1:]
texts = iter(range(10**9))
while True:
    enough = select.select([sys.stdin], [], [], 0.05)[0]
    with open(path, "w") as file:
        json.dump({"id": int(number), "city": f"last {number}" if enough else str(next(texts))}, file)
    if enough:
        break
"""

pytestmark = pytest.mark.skipif(
    tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (6, 9), reason="the kernel sends no request again"
)


class Daemon:
    """A daemon of one folder that can be started again, and its directory in the mount. others: more sources."""

    def __init__(
        self, root: Path, *others: SourceTable, mount: Mapping[str, object] | None = None, **options: object
    ) -> None:
        self.state = State()
        self.notes = root / "notes"
        self.notes.mkdir()
        (self.notes / "large").write_bytes(b"head" + bytes(LARGE - 8) + b"tail")
        (self.notes / "small").write_text("small")
        self.point, config = root / "mnt", root / "config.toml"
        self.config = config
        config.write_text(config_text([folder("notes", self.notes, **options), *others], {"mount": mount or {}}))
        self.there = self.point / "bb-filesystem+notes+file"
        self.manager = NotifySocket(root / "notify")
        self.log = root / "log"
        command = [*mount_command()[:-1], "--restartable", "--config", str(config), str(self.point)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                env=self.state.environ() | {"NOTIFY_SOCKET": str(self.manager.path)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def await_ready(self) -> None:
        """Wait until the daemon serves, which is the same process after a restart."""
        assert self.manager.expect("READY")["MAINPID"] == str(self.process.pid), self.log.read_text()

    def restart(self) -> None:
        self.process.send_signal(handover.SIGNAL)
        self.await_ready()

    def await_log(self, words: str) -> None:
        with subprocess.Popen(["tail", "-n", "+1", "-F", self.log], stdout=subprocess.PIPE, text=True) as tail:
            assert tail.stdout is not None
            assert any(words in line for line in tail.stdout)
            tail.kill()

    def started(self) -> str:
        """Return when the daemon began, as the mount says it."""
        command = ["timeout", "-s", "KILL", "20", "cat", str(self.point / ".bbfs/status.json")]
        found = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE)
        return str(json.loads(found.stdout)["started"])

    def end(self) -> None:
        self.process.terminate()
        try:
            assert self.process.wait(PATIENCE) == 0, self.log.read_text()
            assert not os.path.ismount(self.point)
        finally:
            self.process.kill()
            self.process.wait(PATIENCE)
            subprocess.run(["umount", "-l", str(self.point)], check=False, capture_output=True, timeout=PATIENCE)
            self.manager.close()
            self.state.remove()


@pytest.fixture
def daemon(fuse: None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    made = Daemon(tmp_path, mount=getattr(request, "param", None))
    try:
        made.await_ready()
        yield made
    finally:
        made.end()


def program(*words: str | Path) -> subprocess.Popen[str]:
    command = ["timeout", "-s", "KILL", "60", sys.executable, "-c", *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.semantics("S26.3")
@pytest.mark.parametrize("daemon", [{}, {"allow_other": True}, {"inotify": True}], indirect=True, ids=str)
def test_a_program_keeps_its_files_and_its_directory_over_a_restart(daemon: Daemon) -> None:
    using = program(PROGRAM, daemon.there)
    assert using.stdout is not None
    assert using.stdout.readline() == "head\n"
    began = [daemon.started()]
    for _ in range(2):  # the second time by a daemon that has got the mount itself
        daemon.process.send_signal(handover.SIGNAL)
        daemon.await_ready()
        began.append(daemon.started())  # its file may have the number of another content by the daemon before
    assert began == sorted(began)
    said, complaint = using.communicate("go on\n", PATIENCE)
    assert complaint == ""
    assert said == "tail True\nsmall 5 ['large', 'small']\n"


@pytest.mark.semantics("S26.3")
def test_a_program_that_reads_all_the_time_sees_no_error(daemon: Daemon, tmp_path: Path) -> None:
    reading = [program(READER, daemon.there / "large", tmp_path / "enough") for _ in range(3)]
    for _ in range(2):
        daemon.process.send_signal(handover.SIGNAL)
        daemon.await_ready()
    (tmp_path / "enough").touch()
    for each in reading:
        said, complaint = each.communicate(timeout=PATIENCE)
        assert complaint == ""
        assert int(said) > 0


@pytest.mark.semantics("S26.3")
def test_a_program_that_waits_for_a_source_waits_for_the_next_daemon(fuse: None, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "server")
    server.add("resource://slow", "at last", size=7)
    server.hang("resource://slow")
    daemon = Daemon(tmp_path, server.source("docs"))
    try:
        daemon.await_ready()
        waiting = subprocess.Popen(
            ["timeout", "-s", "KILL", "60", "cat", str(daemon.point / "mcp-server+docs/resource/slow")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_until(lambda: server.reads("resource://slow") > 0, "the first daemon asks the server")
        daemon.process.send_signal(handover.SIGNAL)
        daemon.await_ready()
        wait_until(lambda: server.reads("resource://slow") > 1, "the next one asks again")
        server.release("resource://slow")
        assert waiting.communicate(timeout=PATIENCE) == ("at last", "")
        wait_until(lambda: not zombies_of(daemon.process.pid), "the next daemon reaps what the first one has started")
    finally:
        daemon.end()


@pytest.mark.semantics("S26.3")
def test_a_file_that_has_changed_meanwhile_is_stale_and_its_name_leads_to_the_new_one(daemon: Daemon) -> None:
    using = program(PROGRAM, daemon.there)
    assert using.stdout is not None
    assert using.stdout.readline() == "head\n"
    (daemon.notes / "large").write_bytes(b"another")
    daemon.process.send_signal(handover.SIGNAL)
    daemon.await_ready()
    _, complaint = using.communicate("go on\n", PATIENCE)
    assert "Stale file handle" in complaint
    command = ["timeout", "-s", "KILL", "20", "cat", str(daemon.there / "large")]
    assert subprocess.run(command, capture_output=True, timeout=PATIENCE).stdout == b"another"


@pytest.mark.semantics("S26.3")
def test_a_mount_with_other_options_is_made_again(daemon: Daemon) -> None:
    using = program(PROGRAM, daemon.there)
    assert using.stdout is not None
    assert using.stdout.readline() == "head\n"
    writable = folder("notes", daemon.notes, capabilities=["list", "read", "write"])
    daemon.config.write_text(config_text([writable], {}))
    daemon.process.send_signal(handover.SIGNAL)
    daemon.await_ready()
    assert "its options or its folders are others now" in daemon.log.read_text()
    _, complaint = using.communicate("go on\n", PATIENCE)
    assert re.search("Software caused connection abort|endpoint is not connected", complaint)
    command = ["timeout", "-s", "KILL", "20", "sh", "-c", f"echo new > {daemon.there}/new"]
    assert subprocess.run(command, timeout=PATIENCE).returncode == 0
    assert (daemon.notes / "new").read_text() == "new\n"


@pytest.mark.semantics("S26.4")
def test_programs_that_write_a_folder_go_on(fuse: None, tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, capabilities=["list", "read", "write"])
    try:
        daemon.await_ready()
        (daemon.notes / "below").mkdir()
        writing = program(WRITER, daemon.there / "below")
        changing = [program(CHANGER, daemon.there, str(number), tmp_path / "enough") for number in range(2)]
        assert writing.stdout is not None
        for number in range(3):
            assert writing.stdout.readline() == f"{number}\n"
            daemon.restart()
            assert writing.stdin is not None
            writing.stdin.write("go on\n")
            writing.stdin.flush()
        assert writing.communicate(timeout=PATIENCE) == ("['appended', 'held', 'new']\n", "")
        (tmp_path / "enough").touch()
        for each in changing:
            said, complaint = each.communicate(timeout=PATIENCE)
            assert complaint == ""
            assert int(said) > 0
        assert (daemon.notes / "below/held").read_text() == "0" * 5000 + "1" * 5000 + "2" * 5000
        assert (daemon.notes / "below/appended").read_text() == "0\n1\n2\n"
        assert sorted(path.name for path in daemon.notes.iterdir()) == ["below", "large", "small"]
    finally:
        daemon.end()


@pytest.mark.semantics("S26.4")
def test_what_programs_write_to_a_source_is_not_lost(fuse: None, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as database:
        database.execute("create table customer (id integer primary key, city text)")
        database.executemany("insert into customer values (?, 'Paris')", [(number,) for number in range(4)])
    shop = {"name": "shop", "type": "database", "config": {"url": f"sqlite:///{path}"}, "capabilities": WRITE}

    def cities() -> list[str]:
        with sqlite3.connect(path) as database:
            return [city for (city,) in database.execute("select city from customer order by id")]

    daemon = Daemon(tmp_path, shop)
    try:
        daemon.await_ready()
        rows = next(iter(subprocess.check_output(["find", daemon.point, "-name", "0.json"], text=True).split()))
        row = Path(rows)
        holding = program(HOLDER, row, '{"id": 0, "city": "Rome"}')
        assert holding.stdout is not None
        assert holding.stdout.readline() == "open\n"
        before = daemon.started()
        daemon.process.send_signal(handover.SIGNAL)
        daemon.await_log(f"programs write {row.relative_to(daemon.point)}")
        assert daemon.started() == before
        assert holding.communicate("go on\n", PATIENCE) == ("", "")
        assert cities()[0] == "Rome"
        saving = [program(SAVER, row.with_name(f"{number}.json"), str(number)) for number in (1, 2)]
        for _ in range(2):
            daemon.restart()
        for each in saving:
            assert each.stdin is not None
            assert each.communicate("enough\n", PATIENCE)[1] == ""
        assert daemon.started() > before
        command = ["timeout", "-s", "KILL", "20", "cat", str(row.with_name("1.json")), str(row.with_name("2.json"))]
        shown = subprocess.check_output(command, text=True, timeout=PATIENCE)
        assert cities() == ["Rome", "last 1", "last 2", "Paris"]
        assert "last 1" in shown
        assert "last 2" in shown
    finally:
        daemon.end()


@pytest.mark.semantics("S26.3", "S43.8")
def test_programs_that_watch_get_events_from_the_next_daemon(
    fuse: None, programs: type[Program], server: ScriptedServer, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        server.add(f"docs://a/{name}", name)
    daemon = Daemon(tmp_path, server.source("docs"), mount={"inotify": True})
    try:
        daemon.await_ready()
        shown, file = daemon.point / "mcp-server+docs/docs/a", daemon.point / "mcp-server+docs/docs/a/one"
        run("cat", file)
        watcher = Watcher(programs(sys.executable, WATCHING, shown, file))
        for number in range(3):
            server.add("docs://a/one", f"{number}")
            server.say("notifications/resources/updated", uri="docs://a/one")
            wait_until(lambda: watcher.events(f"MODIFY {shown} one", f"MODIFY {file} "), "a new content")
            server.add(f"docs://a/new{number}")
            server.say("notifications/resources/list_changed")
            wait_until(partial(watcher.events, f"CREATE {shown} new{number}"), f"new{number}")
            assert run("cat", file).text == f"{number}"
            daemon.restart()
            wait_until(partial(watcher.events, f"ATTRIB,DIRECTORY {shown} "), "watched directories are touched")
            assert run("cat", file).text == f"{number}"
        server.remove("docs://a/two")
        server.say("notifications/resources/list_changed")
        wait_until(lambda: watcher.events(f"DELETE {shown} two"), "a name that went")
    finally:
        daemon.end()
