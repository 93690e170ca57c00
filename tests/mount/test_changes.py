"""What programs are told of changes: poll on an open file, `bbfs watch`, and `bbfs refresh` (S13, S18, S21)."""

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked_daemon import forked
from harness import Mount, Mounts, SourceTable, folder, mcp
from programs import Program, bbfs, errno_of, run, wait_until
from repository import SERVERS
from scripted import ScriptedServer

from bbfs.fuse import mounting
from bbfs.knowledge.database.store import Store

RECORDING = SERVERS / "recording.py"
LISTING = {"resources/list", "resources/templates/list", "tools/list", "skills/list"}
"""What a server is asked for a listing."""


@dataclass
class KnowledgeBase:
    """A knowledge base that other processes write to while it is served, and what its server was asked."""

    directory: Path
    era: str = "modern"

    def source(self) -> SourceTable:
        options = [] if self.era == "modern" else ["--handshake-only"]
        serve = ("-m", "bbfs.knowledge", "serve", "--db", self.directory / "kb.sqlite", "--create")
        knowledge = forked(*serve, "--interval", "0.05", "--ttl", "3600")
        return mcp("kb", [sys.executable, "-S", RECORDING, self.directory / "requests", *options, "--", *knowledge])

    def put(self, name: str, text: str) -> None:
        with Store(self.directory / "kb.sqlite") as store:
            store.put("guides", name, text.encode())

    def remove(self, name: str) -> None:
        with Store(self.directory / "kb.sqlite") as store:
            store.remove("guides", name)

    def requests(self) -> list[str]:
        return (self.directory / "requests").read_text().splitlines()

    @staticmethod
    def path(mount: Mount, name: str = "") -> Path:
        return mount / "mcp-server+kb/resource/knowledge/guides/document" / name


@pytest.fixture(params=["modern", "handshake"])
def knowledge(request: pytest.FixtureRequest, tmp_path: Path) -> KnowledgeBase:
    """A knowledge base with the documents `first` and `second`, served in either era of the protocol."""
    base = KnowledgeBase(tmp_path, request.param)
    for name in ("first", "second"):
        base.put(name, f"the {name} one\n")
    return base


class Lines:
    """What a program writes, line by line, as soon as it does."""

    def __init__(self, program: Program) -> None:
        self.program = program
        assert program.process.stdout is not None
        self._number = program.process.stdout.fileno()
        os.set_blocking(self._number, False)
        self._received = b""

    def __call__(self, count: int = 1, timeout: float = 60.0) -> list[str]:
        """The next lines. Raises AssertionError when they do not come in time."""
        wait_until(lambda: self._receive().count(b"\n") >= count, f"{count} lines; {self._received!r}", timeout)
        *lines, self._received = self._received.split(b"\n", count)
        return [line.decode() for line in lines]

    def none_yet(self) -> bool:
        return self._receive() == b""

    def _receive(self) -> bytes:
        while True:
            try:
                chunk = os.read(self._number, 65536)
            except BlockingIOError:
                return self._received
            if not chunk:
                assert self.program.running or self._received, self.program.wait()
                return self._received
            self._received += chunk


# -- poll --------------------------------------------------------------------------------------------------------------

POLLING = """
import json, os, select, signal, sys
path, ways = sys.argv[1], sys.argv[2:]
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
file = os.open(path, os.O_RDONLY)
poll, level, edge = select.poll(), select.epoll(), select.epoll()
poll.register(file, select.POLLPRI)
level.register(file, select.EPOLLPRI)
edge.register(file, select.EPOLLPRI | select.EPOLLET)
def names(events):
    return sorted(n for n in ("POLLIN", "POLLOUT", "POLLPRI", "POLLERR") if events & getattr(select, n))
def ask(way, seconds):
    if way == "poll":
        return [names(events) for _, events in poll.poll(seconds * 1000)]
    if way == "select":
        return [len(each) for each in select.select([], [], [file], seconds)]
    return [names(events) for _, events in (level if way == "level" else edge).poll(seconds)]
both = select.poll()
both.register(file, select.POLLIN | select.POLLOUT | select.POLLPRI)
print(json.dumps([names(both.poll(0)[0][1]), [len(each) for each in select.select([file], [], [file], 0)],
    [ask(way, 0) for way in ("poll", "level", "edge", "select")]]), flush=True)
print(json.dumps([ask(way, 20) for way in ways]), flush=True)
print(json.dumps([ask(way, 0) for way in ("poll", "level", "edge", "select")]), flush=True)
signal.sigwait([signal.SIGUSR1])
kept = os.pread(file, 1000, 0).decode()
again = os.open(path, os.O_RDONLY)
other = select.poll()
other.register(again, select.POLLPRI)
print(json.dumps([kept, os.read(again, 1000).decode(), other.poll(0), os.fstat(file).st_size]), flush=True)
"""
WOKEN: dict[str, list[Any]] = {
    "poll": [["POLLERR", "POLLPRI"]],
    "level": [["POLLERR", "POLLPRI"]],
    "edge": [["POLLERR", "POLLPRI"]],
    "select": [0, 0, 1],
}


@pytest.mark.semantics("S13", "S18.2")
def test_an_open_file_wakes_who_polls_it_when_its_source_has_another_content(
    mounted: Mounts, programs: type[Program], knowledge: KnowledgeBase
) -> None:
    knowledge.put("third", "")
    path = knowledge.path(mounted(knowledge.source()), "first")
    run("cat", path, path.with_name("second"))
    # A watch begins once the server has agreed to announce changes of all that was read. What is polled before that is
    # loaded once more when the server agrees (S18.6).
    Watching(programs, path.with_name("third"))
    polling = {way: Lines(programs(sys.executable, "-I", "-S", "-c", POLLING, path, way)) for way in WOKEN}
    other = Lines(programs(sys.executable, "-I", "-S", "-c", POLLING, path.with_name("second"), "poll"))
    for program in (*polling.values(), other):
        assert json.loads(program()[0]) == [["POLLIN", "POLLOUT"], [1, 0, 0], [[], [], [], [0, 0, 0]]]
    reads = [line for line in knowledge.requests() if line.startswith("resources/read")]
    knowledge.put("first", "another one\n")
    for way, program in polling.items():
        # Within 20 s (in the program); nothing expires within the hour, so only the announcement wakes it.
        assert json.loads(program(timeout=30)[0]) == [WOKEN[way]]
        # A level stays until the file is opened anew, an edge is told once.
        rest = {**WOKEN, "edge": []} if way == "edge" else WOKEN
        assert json.loads(program()[0]) == list(rest.values())
    assert [line for line in knowledge.requests() if line.startswith("resources/read")] == reads
    old, new = "the first one\n", "another one\n"
    for program in polling.values():
        program.program.send(signal.SIGUSR1)
        assert json.loads(program()[0]) == [old, new, [], len(old)]
    assert other.none_yet()
    knowledge.remove("second")
    assert json.loads(other()[0])[0] == WOKEN["poll"]
    assert errno_of("os.stat(sys.argv[1])", path.with_name("second")) == "ENOENT"


HOLDING = """
import os, resource, select, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
for round in range(3):
    epoll = select.epoll()
    files = [os.open(sys.argv[1], os.O_RDONLY) for _ in range(int(sys.argv[2]))]
    for file in files:
        epoll.register(file, select.EPOLLPRI)
    assert epoll.poll(0) == []
    print("waiting", flush=True)
    woken = set()
    while len(woken) < len(files):
        found = epoll.poll(20, len(files))
        assert found, len(woken)
        woken.update(file for file, _ in found)
    for file in files:
        os.close(file)
    epoll.close()
    print("woken", flush=True)
"""


@pytest.mark.semantics("S18", "S22")
def test_thousands_who_poll_are_woken_and_nothing_of_them_is_left(
    mounted: Mounts, programs: type[Program], server: ScriptedServer
) -> None:
    server.add("test://d/file", "0")
    mount = mounted(server.source("docs", ttl={"listing": 3600, "content": 3600}))
    path = mount / "mcp-server+docs/test/d/file"
    program = Lines(programs(sys.executable, "-I", "-S", "-c", HOLDING, path, "2000"))
    sizes: list[int] = []
    for turn in range(3):
        assert program(timeout=30) == ["waiting"]
        server.add("test://d/file", f"{turn + 1}")
        server.say("notifications/resources/updated", uri="test://d/file")
        assert program(timeout=30) == ["woken"]
        status = Path(f"/proc/{mount.pid}/status").read_text()
        sizes.append(int(status.partition("VmRSS:")[2].split()[0]))
    assert program.program.wait().status == 0
    assert sizes[-1] - sizes[0] < 3000, sizes  # KiB; the handles of one round take more


# -- bbfs watch --------------------------------------------------------------------------------------------------------


class Watching(Lines):
    """`bbfs watch` under way, from the moment at which it misses nothing."""

    def __init__(self, program: type[Program], *arguments: str | Path) -> None:
        super().__init__(program(*forked("-m", "bbfs", "watch", "-v", *arguments)))
        errors = self.program.process.stderr
        assert errors is not None
        os.set_blocking(errors.fileno(), False)
        self.said = b""
        wait_until(lambda: b": watching " in self.errors(), "it watches")

    def errors(self) -> bytes:
        errors = self.program.process.stderr
        assert errors is not None
        try:
            self.said += os.read(errors.fileno(), 65536)
        except BlockingIOError:
            pass
        if not self.program.running:
            raise AssertionError(self.said.decode())
        return self.said


@pytest.mark.semantics("S18")
def test_what_changes_is_printed_at_once_and_nobody_is_asked_meanwhile(
    mounted: Mounts, programs: type[Program], knowledge: KnowledgeBase
) -> None:
    mount = mounted(knowledge.source())
    directory = knowledge.path(mount)
    watching = Watching(programs, directory)
    quiet = knowledge.requests()
    single = Watching(programs, directory / "first")
    # What is watched already costs nothing. A listing that is older than the subscription expires once.
    assert set(knowledge.requests()[len(quiet) :]) <= LISTING
    quiet = knowledge.requests()

    knowledge.put("first", "another one\n")
    # Nothing expires within the hour, so only the announcement tells it.
    assert watching() == single() == [f"changed {directory}/first"]
    asked = knowledge.requests()[len(quiet) :]
    # Once; and once more where the listing, which says that its size is another one, comes after that.
    assert asked.count("resources/read resource://knowledge/guides/document/first") in (1, 2)
    assert set(asked) <= {*LISTING, "resources/read resource://knowledge/guides/document/first"}
    knowledge.put("third", "a third one\n")
    assert watching() == [f"added {directory}/third"]
    assert run("cat", directory / "third").text == "a third one\n"
    knowledge.put("third", "a third one, revised\n")
    assert watching() == [f"changed {directory}/third"]
    knowledge.remove("first")
    assert watching() == single() == [f"removed {directory}/first"]
    assert errno_of("os.stat(sys.argv[1])", directory / "first") == "ENOENT"
    assert watching.none_yet()
    assert single.none_yet()


@pytest.mark.semantics("S20")
def test_a_server_that_dies_is_started_again_and_nothing_is_missed(
    mounted: Mounts, programs: type[Program], server: ScriptedServer
) -> None:
    server.add("test://d/a", "old")
    server.add("test://d/crash", "")
    mount = mounted(server.source("docs"))
    watching = Watching(programs, mount.path)
    os.kill(mount.children()[0], signal.SIGKILL)
    server.add("test://d/a", "new")
    server.add("test://d/b", "")
    assert sorted(watching(2)) == [
        f"added {mount.path}/mcp-server+docs/test/d/b",
        f"changed {mount.path}/mcp-server+docs/test/d/a",
    ]


def test_a_local_folder_is_watched(mounted: Mounts, programs: type[Program], tmp_path: Path) -> None:
    root = tmp_path / "folder"
    (root / "sub").mkdir(parents=True)
    (root / "file").write_text("old")
    (root / "link").symlink_to("file")
    mount = mounted(folder("local", root))
    base = mount / "bb-filesystem+local+file"
    watching = Watching(programs, base)
    through_link = Watching(programs, base / "link")
    (root / "file").write_text("new and longer")
    assert watching() == through_link() == [f"changed {base}/file"]
    (root / "sub" / "deeper").mkdir()
    (root / "sub" / "deeper" / "grüße").write_text("")
    assert watching() == [f"added {base}/sub/deeper/grüße"]
    (root / "file").unlink()
    assert watching() == [f"removed {base}/file"]


POLLED_UNTIL_THE_END = """
import os, select, sys
poll = select.poll()
poll.register(os.open(sys.argv[1], os.O_RDONLY), select.POLLPRI)
print(poll.poll(0), flush=True)
print([events == select.POLLERR for _, events in poll.poll(20000)], flush=True)
"""


@pytest.mark.semantics("S26", "S30")
def test_the_end_of_the_daemon_wakes_who_polls_and_ends_the_watch_and_the_control_socket(
    mounted: Mounts, programs: type[Program], server: ScriptedServer
) -> None:
    server.add("test://d/a", "")
    mount = mounted(server.source("docs"))
    path = mount / "mcp-server+docs/test/d/a"
    polling = Lines(programs(sys.executable, "-I", "-S", "-c", POLLED_UNTIL_THE_END, path))
    assert polling() == ["[]"]
    watching = Watching(programs, mount.path)
    socket = Path(run("getfattr", "--only-values", "-n", "user.bbfs.control", mount.path).text)
    assert socket.is_socket()
    assert (socket.stat().st_mode & 0o777, socket.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    mount.stop()
    assert polling() == ["[True]"]
    done = watching.program.wait()
    assert done.status == 1
    assert b"the daemon has ended" in watching.said + done.err
    assert not socket.exists()


def test_a_dead_mount_is_told(mounted: Mounts, server: ScriptedServer) -> None:
    server.add("test://d/a", "")
    mount = mounted(server.source("docs"))
    mount.kill()
    for command in ("watch", "refresh"):
        done = bbfs(command, mount.path, status=1)
        assert b"is dead: its daemon is gone" in done.err
    mounting.unmount(str(mount.path))
    mount.destroy()


# -- bbfs refresh ------------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S21")
def test_a_refresh_drops_what_is_known_there_and_says_what_it_cannot_do(
    mounted: Mounts, server: ScriptedServer
) -> None:
    server.add("test://d/a", "0")
    mount = mounted(server.source("refreshed", ttl={"listing": 3600, "content": 3600}))
    directory = mount / "mcp-server+refreshed/test/d"
    by_name = ("refreshed", "mcp-server+refreshed+test://d/a", "refreshed/test/d")
    for number, path in enumerate((mount.path, mount / "mcp-server+refreshed", directory, directory / "a", *by_name)):
        new = directory / f"new-{number}"
        assert run("cat", directory / "a").text == str(number)
        assert errno_of("os.stat(sys.argv[1])", new) == "ENOENT"
        server.add("test://d/a", str(number + 1))
        server.add(f"test://d/new-{number}", "")
        assert run("cat", directory / "a").text == str(number)
        bbfs("refresh", path)
        assert run("cat", directory / "a").text == str(number + 1)
        wait_until(lambda new=new: errno_of("os.stat(sys.argv[1]).st_size", new) == "OK 0", "the new one is there")
    for operand, says in ((mount / "none", "no such source"), ("/etc", "not inside a bbfs mount")):
        done = bbfs("refresh", operand, status=1)
        assert says in done.err.decode()
