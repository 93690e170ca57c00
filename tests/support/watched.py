"""Programs that watch a mount, for tests of its events."""

import json
import os
from pathlib import Path
from typing import Any

from harness import TOUCHER, Mount
from programs import Program, children_of, wait_until

WATCHING = Path(__file__).with_name("watching.py")
"""The program; its arguments are paths."""


class Watcher:
    """A program that watches directories and files, and what it has said."""

    def __init__(self, program: Program) -> None:
        assert program.process.stdout is not None
        self._number = program.process.stdout.fileno()
        os.set_blocking(self._number, False)
        self._said = b""
        wait_until(lambda: self.events("watching"), "the program watches")

    def events(self, *expected: str) -> bool:
        """Return whether it has been told exactly of these events, in any order, since they were expected last."""
        try:
            self._said += os.read(self._number, 1 << 16)
        except BlockingIOError:
            pass
        *lines, _ = self._said.decode().split("\n")
        assert set(lines) <= set(expected), lines
        if sorted(lines) != sorted(expected):
            return False
        self._said = b""
        return True


def events_of(mount: Mount) -> dict[str, Any]:
    """Return what the status says of the events."""
    found: dict[str, Any] = json.loads(mount.bbfs("status", "--json", mount.path).out)[0]["inotify"]
    return found


def toucher_of(daemon: int) -> int | None:
    for child in children_of(daemon):
        if TOUCHER in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
            return child
    return None
