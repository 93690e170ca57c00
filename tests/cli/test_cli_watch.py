"""`bbfs watch` and `bbfs refresh` as commands: operands, --exec, --once, --timeout, and how they end."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from click.testing import Result
from forked_daemon import ForkedDaemon, forked

from bbfs.cli.commands.watch import Teller, by_reference
from bbfs.fuse.mountpoint import ATTRIBUTE
from bbfs.knowledge.database.store import Store
from bbfs.resources.commands.table import Event

Run = Callable[..., Result]

Mount = Callable[..., tuple[Path, ForkedDaemon]]
Process = Callable[..., "subprocess.CompletedProcess[bytes]"]
Until = Callable[..., None]
Watch = Callable[..., "subprocess.Popen[bytes]"]
BOUND = 60.0


@pytest.fixture(autouse=True)
def runtime(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control sockets are the test's own."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))


@pytest.fixture
def watch(tmp_path: Path, until: Until) -> Iterator[Watch]:
    """Starts `bbfs watch`, and waits until it watches. Its standard error is a file."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str | Path, stdout: int = subprocess.PIPE) -> "subprocess.Popen[bytes]":
        log = tmp_path / f"watch-{len(started)}.log"
        line = forked("-m", "bbfs", "watch", *arguments)
        with log.open("wb") as errors:
            watching = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=stdout, stderr=errors)
        started.append(watching)
        until(lambda: b"bbfs: watching " in log.read_bytes() or watching.poll() is not None)
        assert watching.poll() is None, log.read_text()
        return watching

    yield start
    for number, watching in enumerate(started):
        status = watching.poll()
        if status is None:
            watching.kill()
        watching.communicate(timeout=BOUND)
        # pytest shows it if the test failed
        print(f"watch {number}, status {status}:", (tmp_path / f"watch-{number}.log").read_text(), sep="\n")


def said(tmp_path: Path, number: int = 0) -> list[str]:
    """What a watch told on standard error beside its log."""
    lines = (tmp_path / f"watch-{number}.log").read_text().splitlines()
    return [line for line in lines if line and not line.startswith(("bbfs: info: ", "bbfs: watching "))]


def line_of(watching: "subprocess.Popen[bytes]") -> str:
    assert watching.stdout is not None
    return watching.stdout.readline().decode().rstrip("\n")


@pytest.mark.parametrize("command", ["echo {}", 'echo "{}"', "echo '{}'", 'echo ""{}', "sh -c 'echo \"$1\"' - {}"])
def test_a_name_is_no_text_of_the_shell(command: str, tmp_path: Path) -> None:
    for name in ("a b", "$(touch pwned)", "`touch pwned`", "';touch pwned;'", '";touch pwned;"', "$HOME", "-n", "*"):
        line = by_reference(command)
        environ = os.environ | {"BBFS_PATH": name}
        done = subprocess.run(line, shell=True, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
        assert name == "-n" or done.stdout == f"{name}\n"
        assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("command", ["sh -c 'cat {}'", 'sh -c "cat {}"', "echo 'a {}'"])
def test_a_name_among_quoted_text_is_refused(command: str, bbfs: Run, only: list[str]) -> None:
    result = bbfs("watch", *only, "--exec", command, "notes")
    assert result.exit_code == 2
    assert "write $BBFS_PATH there" in result.stderr


@pytest.mark.semantics("S18")
def test_sources_without_a_mount_are_watched(watch: Watch, only: list[str], folder: Path, tmp_path: Path) -> None:
    everything, file = watch(*only, "notes"), watch(*only, "bb-filesystem+notes+file:./hello.txt")
    (folder / "hello.txt").write_text("hello again\n")
    (folder / "sub dir" / "new").write_text("")
    assert line_of(file) == "changed bb-filesystem+notes+file/hello.txt"
    lines = {line_of(everything) for _ in range(2)}
    assert lines == {
        "changed bb-filesystem+notes+file/hello.txt",
        "added bb-filesystem+notes+file/sub dir/new",
    }
    everything.send_signal(signal.SIGINT)
    assert everything.communicate(timeout=BOUND)[0] == b""
    assert everything.returncode == 130
    assert said(tmp_path) == []


@pytest.mark.semantics("S18")
def test_a_server_that_no_mount_has_is_watched(watch: Watch, knowledge: list[str], tmp_path: Path) -> None:
    watching = watch(*knowledge, "--json", "shelf/resource/knowledge/guides/document")
    with Store(tmp_path / "kb.sqlite") as store:
        store.put("guides", "second", b"# Second\n", name="second.md")
    told = json.loads(line_of(watching))
    assert (told["event"], told["uri"], told["source"]) == (
        "added",
        "mcp-server+shelf+resource://knowledge/guides/document/second",
        "shelf",
    )


def test_a_command_is_run_for_each_change_with_the_path_quoted(
    mount: Mount, watch: Watch, only: list[str], folder: Path, tmp_path: Path, until: Until
) -> None:
    point, _ = mount(*only)
    seen = tmp_path / "seen"
    command = (
        f'printf "%s|%s|%s|%s\\n" {{}} "$BBFS_EVENT" "$BBFS_URI" "$BBFS_SOURCE" >> {seen}; cat {{}} >> {seen}; exit 3'
    )
    watching = watch("--exec", command, point / "bb-filesystem+notes+file")
    (folder / "it's $HOME; a `name`").write_text("content\n")
    until(lambda: seen.exists() and seen.read_text().endswith("content\n"), BOUND)
    path = point / "bb-filesystem+notes+file/it's $HOME; a `name`"
    first, second = seen.read_text().splitlines()
    assert first.split("|")[:2] == [str(path), "added"]
    assert first.split("|")[2].startswith("bb-filesystem+notes+file:./it")
    assert (first.split("|")[3], second) == ("notes", "content")
    until(lambda: bool(said(tmp_path)), BOUND)
    assert said(tmp_path) == [f"bbfs: {path}: the command ended with status 3"]
    assert watching.poll() is None
    watching.terminate()
    assert watching.communicate(timeout=BOUND)[0] == b""


def test_commands_run_one_at_a_time_and_what_changes_meanwhile_is_one_change(
    watch: Watch, only: list[str], folder: Path, tmp_path: Path, until: Until
) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    os.mkfifo(gate)
    watch(*only, "--exec", f"echo begin >> {log}; read line < {gate}; echo $BBFS_EVENT >> {log}", "notes")
    (folder / "hello.txt").write_text("1")
    until(lambda: log.exists() and log.read_text() == "begin\n", BOUND)
    second = watch(*only, "notes")  # which sees as much as the first one
    for content in ("22", "333"):
        (folder / "hello.txt").write_text(content)
        assert line_of(second).startswith("changed")
    assert log.read_text() == "begin\n"

    def have_ended(count: int) -> bool:  # a command that begins before the gate is closed needs no other opening
        _open_gate(gate)
        return log.read_text().startswith("begin\nchanged\n" * count)

    for count in (1, 2):
        until(lambda count=count: have_ended(count), BOUND)
    (folder / "other").write_text("")

    def all_ended() -> bool:
        _open_gate(gate)
        return log.read_text().endswith("added\n")

    until(all_ended, BOUND)
    # The first one may have seen the last content only when its second command ran.
    assert re.fullmatch("(begin\nchanged\n){2,3}begin\nadded\n", log.read_text())


def _open_gate(gate: Path) -> bool:
    try:
        file = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    os.write(file, b"go\n")
    os.close(file)
    return True


async def test_changes_of_one_path_before_its_command_are_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    teller = Teller(False, f"echo $BBFS_EVENT >>{log}", once=False)
    for path, *events in (("a", "added", "changed"), ("b", "removed", "added"), ("c", "changed", "removed")):
        for event in events:
            teller.hear(Event(event, path))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(teller.run)
        with trio.fail_after(BOUND):
            while not log.exists() or log.read_text() != "added\nchanged\nremoved\n":  # noqa: ASYNC110 - a program writes
                await trio.sleep(0.02)
        nursery.cancel_scope.cancel()


def test_once_ends_with_the_first_change(watch: Watch, only: list[str], folder: Path, tmp_path: Path) -> None:
    printing, running = watch(*only, "--once", "notes"), watch(*only, "-1", "--exec", "echo {}; false", "notes")
    (folder / "hello.txt").write_text("hello again\n")
    (folder / "other").write_text("")
    assert len(printing.communicate(timeout=BOUND)[0].splitlines()) == 1
    assert len(running.communicate(timeout=BOUND)[0].splitlines()) == 1
    assert (printing.returncode, running.returncode) == (0, 0)
    assert "status 1" in said(tmp_path, 1)[0]


@pytest.mark.parametrize(
    ("options", "first"), [((), "ready"), (("--json",), '{"event": "ready"}'), (("--exec", "echo changed"), "ready")]
)
def test_a_script_is_told_when_the_watch_of_all_operands_has_begun(
    mount: Mount, only: list[str], folder: Path, options: tuple[str, ...], first: str
) -> None:
    point, _ = mount(*only)
    line = forked("-m", "bbfs", "watch", "--ready", *options, *only, "notes", point)
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watching:
        try:
            assert line_of(watching) == first
            (folder / "hello.txt").write_text("hello again\n")
            assert "changed" in line_of(watching)
        finally:
            watching.terminate()
        assert b"ready" not in watching.communicate(timeout=BOUND)[0]


def test_a_watch_says_on_standard_error_that_it_has_begun(only: list[str]) -> None:
    line = forked("-m", "bbfs", "watch", *only, "notes")
    with subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as watching:
        try:
            assert watching.stderr is not None
            assert watching.stderr.readline() == b"bbfs: watching bb-filesystem+notes+file\n"
        finally:
            watching.terminate()


def test_a_quiet_watch_does_not(process: Process, only: list[str]) -> None:
    assert process("watch", "-q", "--timeout", "0.5", *only, "notes").stderr == b""


def test_a_timeout_ends_with_the_status_of_timeout(process: Process, only: list[str]) -> None:
    done = process("watch", *only, "--timeout", "0.5", "--once", "notes")
    assert (done.returncode, done.stdout) == (124, b"")


def test_a_reader_that_goes_ends_it_before_anything_is_written(watch: Watch, only: list[str], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    watching = watch(*only, "notes", stdout=writing)
    os.close(writing)
    os.close(reading)
    assert watching.wait(BOUND) == 1
    assert said(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("notes/none",), "no such file"),
        (("none",), "no source 'none'"),
        (("/etc",), "not inside a bbfs mount"),
        (("notes", "notes/none"), "none"),
    ],
)
def test_what_is_absent_is_not_watched(
    process: Process, only: list[str], arguments: tuple[str, ...], says: str
) -> None:
    done = process("watch", *only, "--timeout", "20", *arguments)
    assert (done.returncode, done.stdout) == (1, b"")
    assert says in done.stderr.decode()


def test_what_is_not_there_on_a_mount_cannot_be_watched(mount: Mount, process: Process, only: list[str]) -> None:
    point, _ = mount(*only)
    for path in (point / "none", point / "bb-filesystem+notes+file/none"):
        done = process("watch", "--timeout", "20", path)
        assert (done.returncode, done.stdout) == (1, b"")
        assert f"{path}: no such" in done.stderr.decode()


def test_a_stopped_daemon_is_told_and_not_waited_for(mount: Mount, process: Process, only: list[str]) -> None:
    point, daemon = mount(*only)
    daemon.send_signal(signal.SIGSTOP)
    try:
        for command in ("watch", "refresh"):
            done = process(command, point)
            assert done.returncode == 1
            assert b"does not answer" in done.stderr
    finally:
        daemon.send_signal(signal.SIGCONT)


def test_without_the_file_of_the_socket_the_remedy_is_told(mount: Mount, process: Process, only: list[str]) -> None:
    point, _ = mount(*only)
    os.unlink(os.getxattr(point, ATTRIBUTE))
    for command in (("watch",), ("refresh",), ("search", "hello", "--in")):
        done = process(*command, point)
        assert done.returncode == 1
        assert b" is gone: unmount and mount again" in done.stderr


def test_json_and_a_command_exclude_each_other(bbfs: Run, only: list[str]) -> None:
    result = bbfs("watch", *only, "--json", "--exec", "true", "notes")
    assert result.exit_code == 2
    assert "exclude each other" in result.stderr


@pytest.mark.semantics("S21")
def test_without_a_mount_there_is_nothing_to_refresh(process: Process, folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "config/bbfs/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[[sources]]\nname = "only-here"\ntype = "filesystem"\nconfig = {{root = "{folder}"}}\n')
    done = process("refresh", "only-here")
    assert done.returncode == 1
    assert b"not at any mount" in done.stderr
