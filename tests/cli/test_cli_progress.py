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
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted import PROGRAM, ScriptedServer

from bbfs.cli import progress
from bbfs.cli.progress import Progress, amount, of_sources

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
    monkeypatch.setattr(progress, "FIRST", 0.0)
    line = Progress()
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
    monkeypatch.setattr(progress, "FIRST", BOUND if case == "short" else 0.0)
    monkeypatch.setenv("TERM", "dumb" if case == "dumb" else "xterm")
    line = Progress(quiet=case == "quiet")
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


def watched(line: list[str], pattern: bytes, then: Callable[[], None]) -> tuple[bytes, bytes]:
    """Run a command with standard error on a terminal; do something once that shows a pattern. Return what it wrote."""
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "bbfs", *line]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=its, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(its)
        said, is_done, deadline = b"", False, time.monotonic() + BOUND
        try:
            while select.select([ours], [], [], max(0, deadline - time.monotonic()))[0]:
                try:
                    said += os.read(ours, 1 << 16)
                except OSError:  # EIO: the other side has ended
                    break
                if not is_done and re.search(pattern, said):
                    is_done = True
                    then()
            out = process.communicate(timeout=BOUND)[0]
        finally:
            process.kill()
            os.close(ours)
    assert is_done, said
    return out, said


def test_a_first_listing_tells_how_far_it_is(server: ScriptedServer) -> None:
    server.hang_listing()
    out, said = watched(["ls", *source_of(server), "slow-listing/test"], rb"slow-listing: ", server.release_listing)
    assert out == b"a.txt\n"
    assert said.endswith(b"\r\x1b[K")


def test_through_a_mount_as_well(server: ScriptedServer, mount: Mount) -> None:
    server.hang_listing()
    mount(*source_of(server))
    out, said = watched(["ls", "slow-listing/test"], rb"slow-listing: ", server.release_listing)
    assert out == b"a.txt\n"
    assert said.endswith(b"\r\x1b[K")


def test_loads_are_counted(server: ScriptedServer) -> None:
    server.add("test://b.txt", "more")
    server.hang("test://b.txt")
    uris = ["mcp-server+slow-listing+test://a.txt", "mcp-server+slow-listing+test://b.txt"]
    out, _ = watched(
        ["load", "--direct", *source_of(server), *uris], rb"[12] of 2 loaded", lambda: server.release("test://b.txt")
    )
    assert b'"more"' in out
