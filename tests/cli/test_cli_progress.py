"""The line on the terminal that says what a command waits for."""

import io
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import click
import pytest
from click.testing import Result
from forked_daemon import forked
from repository import SERVERS
from scripted import PROGRAM, ScriptedServer

from bbfs.cli.progress import Progress, amount, of_sources

Run = Callable[..., Result]

BOUND = 60.0
Mount = Callable[..., tuple[Path, "subprocess.Popen[bytes]"]]


class _Terminal(io.StringIO):
    """A terminal for standard error that notes when something is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written = super().write(text)
        if "\x1b[K\r" in self.getvalue():
            self.drawn.set()
        return written


def test_a_wait_is_told_and_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    line = Progress(first=0.0)
    line.note = lambda: "docs: 3 pages\x1b[2J" + "x" * 1000
    with line.shown():
        assert terminal.drawn.wait(BOUND)
    said = terminal.getvalue()
    assert "docs: 3 pages\\x1b[2J" in said
    assert "\x1b[2J" not in said
    assert said.endswith("\r\x1b[K")
    assert "\n" not in said


@pytest.mark.parametrize("case", ["no terminal", "quiet", "dumb", "short"])
def test_nothing_is_drawn(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal() if case != "no terminal" else io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "dumb" if case == "dumb" else "xterm")
    line = Progress(quiet=case == "quiet", first=BOUND if case == "short" else 0.0)
    looked = threading.Event()
    line.note = lambda: looked.set() or "text"
    with line.shown():
        assert looked.is_set() is False
    assert terminal.getvalue() == ""


def test_words() -> None:
    listing = {"pages": 12, "resources": 11_000, "complete": False}
    assert of_sources(
        [
            {"id": "docs", "state": "up", "listing": listing},
            {"id": "kb", "state": "connecting", "listing": None},
            {"id": "busy", "state": "up", "listing": {**listing, "complete": True}, "in_flight": 2},
            {"id": "idle", "state": "idle", "listing": None, "in_flight": 0},
        ]
    ) == "docs: listing, 12 pages and 11000 resources so far; kb: connecting; busy: 2 requests under way"  # fmt: skip
    assert of_sources([]) is None
    assert [amount(size) for size in (7, 1500, 12_345_678, 5 * 10**12)] == ["7 B", "1.5 kB", "12.3 MB", "5 TB"]


@pytest.fixture
def server(tmp_path: Path) -> ScriptedServer:
    found = ScriptedServer(tmp_path / "server")
    found.add("test://a.txt", "text")
    return found


def source_of(server: ScriptedServer) -> list[str]:
    return ["--mcp", f"slow-listing={shlex.join([sys.executable, '-I', '-S', str(PROGRAM), str(server.directory)])}"]


def watched(line: list[str], pattern: bytes, then: Callable[[bytes], object]) -> tuple[bytes, bytes]:
    """Run a command with standard error on a terminal. Return what it wrote.

    then: called once with what the terminal shows, as soon as a pattern is there. Only then is standard output read.
    """
    ours, its = pty.openpty()
    command = forked("-m", "bbfs", *line)
    out = b""

    def read(pipe: IO[bytes]) -> None:
        nonlocal out
        out = pipe.read()

    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=its, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(its)
        assert process.stdout is not None
        said, reader, deadline = b"", threading.Thread(target=read, args=(process.stdout,)), time.monotonic() + BOUND
        is_done = False
        try:
            while select.select([ours], [], [], max(0, deadline - time.monotonic()))[0]:
                try:
                    said += os.read(ours, 1 << 16)
                except OSError:  # EIO: the other side has ended
                    break
                if not is_done and re.search(pattern, said):
                    is_done = True
                    reader.start()
                    then(said)
        finally:
            process.kill()
            os.close(ours)
        assert is_done, said
        reader.join(BOUND)
    return out, said


def test_a_first_listing_tells_how_far_it_is(server: ScriptedServer) -> None:
    server.hang_listing()
    out, said = watched(
        ["ls", *source_of(server), "slow-listing/test"], rb"slow-listing: ", lambda _: server.release_listing()
    )
    assert out == b"a.txt\n"
    assert said.endswith(b"\r\x1b[K")


def test_through_a_mount_as_well(server: ScriptedServer, mount: Mount) -> None:
    server.hang_listing()
    mount(*source_of(server))
    out, said = watched(["ls", "slow-listing/test"], rb"slow-listing: ", lambda _: server.release_listing())
    assert out == b"a.txt\n"
    assert said.endswith(b"\r\x1b[K")


def test_loads_are_counted(server: ScriptedServer) -> None:
    server.add("test://b.txt", "more")
    server.hang("test://b.txt")
    uris = ["mcp-server+slow-listing+test://a.txt", "mcp-server+slow-listing+test://b.txt"]
    out, _ = watched(
        ["load", "--direct", *source_of(server), *uris], rb"[12] of 2 loaded", lambda _: server.release("test://b.txt")
    )
    assert b'"more"' in out


def test_a_first_listing_counts_pages_and_resources(server: ScriptedServer) -> None:
    for number in range(5):
        server.add(f"test://{number}.txt", "text")
    server.options(pages=2)
    server.hang_listing(after=2)
    pattern = rb"slow-listing: listing, 2 pages and 4 resources so far"
    out, said = watched(["ls", *source_of(server), "slow-listing/test"], pattern, lambda _: server.release_listing())
    assert out.split() == [b"0.txt", b"1.txt", b"2.txt", b"3.txt", b"4.txt", b"a.txt"]
    assert said.endswith(b"\r\x1b[K")


def test_a_large_content_tells_how_much_was_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/large").write_bytes(b"x" * 3_000_000)
    line = ["cat", "--dir", f"notes={tmp_path / 'folder'}", "notes/large"]
    out, said = watched(line, rb"\d MB so far", lambda _: None)
    assert len(out) == 3_000_000
    assert said.endswith(b"\r\x1b[K")


@pytest.fixture
def protected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a server that wants a login, which is kept in a home of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BBFS_TOKEN_STORE", "file")
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    line = forked(SERVERS / "oauth.py")
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as started:
        assert started.stdout is not None
        yield started.stdout.readline().decode().strip()
        started.terminate()


def confirm(said: bytes) -> None:
    """Do what the user does in the browser."""
    found = re.search(rb"http://[^\s\x1b]+authorize[^\s\x1b]+", said)
    assert found is not None, said
    with urllib.request.urlopen(found[0].decode(), timeout=BOUND) as answer:
        answer.read()


def test_a_login_tells_how_long_it_waits(protected: str) -> None:
    line = ["login", "vault", "--no-browser", "--mcp", f"vault={protected}"]
    _, said = watched(line, rb"waiting for the browser, \d+ s left", confirm)
    assert b"logged in to vault" in said
    assert said.rindex(b"\x1b[K") < said.rindex(b"logged in to vault")


def test_no_command_tells_its_progress_off_a_terminal(
    bbfs: Run, server: ScriptedServer, protected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(Progress, "_run", lambda *_: drawn.append("a thread"))
    monkeypatch.setattr(click, "echo", confirming(click.echo))
    assert bbfs("ls", *source_of(server), "slow-listing/test").stdout == "a.txt\n"
    assert bbfs("cat", *source_of(server), "slow-listing/test/a.txt").stdout == "text"
    assert bbfs("load", *source_of(server), "--direct", "mcp-server+slow-listing+test://a.txt").exit_code == 0
    assert bbfs("login", "vault", "--no-browser", "--mcp", f"vault={protected}").exit_code == 0
    assert drawn == []


def confirming(echo: Callable[..., None]) -> Callable[..., None]:
    """Return an echo whose user opens the URL of a login that it prints."""

    def echo_and_open(text: str = "", **options: bool) -> None:
        echo(text, **options)
        if str(text).startswith("http://") and "authorize" in str(text):
            threading.Thread(target=confirm, args=(str(text).encode(),)).start()

    return echo_and_open
