"""What happens to a source in the middle of a save: the save fails in time and with the reason (S23, S32).

It stops reading, or takes the right to write away. The bytes are pending, and land later.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Mount, Mounts
from killable import NAME, Killable, killable
from programs import Program, run

pytestmark = pytest.mark.semantics("S22", "S23", "S32")
KINDS = ("mcp-http", "webdav", "sftp", "s3")
OLD, NEW = b"old\n", b"%07d" % 7 * 40_000
READ = 100_000
"""Bytes of the save that a server reads before it stops."""
SAVE = """
import errno, os, sys
f = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
os.write(f, open(sys.argv[2], "rb").read())
with open(sys.argv[3], "w"):
    pass
open(sys.argv[4]).read()
try:
    os.close(f)
except OSError as error:
    print(errno.errorcode[error.errno])
"""
EXPECTED = ("not written", "login", "refuse", "401", "cannot be reached", "connection")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Killable]]:
    sources = [killable(kind, tmp_path_factory.mktemp(kind) / "home", relayed=True) for kind in KINDS]
    yield sources
    for each in sources:
        each.close()


@pytest.fixture(scope="module")
def mount(sources: list[Killable], module_mounted: Mounts) -> Mount:
    for each in sources:
        each.put(OLD)
    return module_mounted(*({**each.table(), "timeout": "6s"} for each in sources), expected=EXPECTED)


class Saves:
    """Programs that save to all sources. They have written, and wait to be told to close."""

    def __init__(self, mount: Mount, sources: list[Killable], directory: Path) -> None:
        self._mount, self._sources = mount, sources
        (directory / "data").write_bytes(NEW)
        pipes = [(directory / f"wrote-{number}", directory / f"close-{number}") for number, _ in enumerate(sources)]
        for pair in pipes:
            for pipe in pair:
                os.mkfifo(pipe)
        self._closing = [close for _, close in pipes]
        self._programs = [
            Program(sys.executable, "-I", "-c", SAVE, mount / each.directory / NAME, directory / "data", *pair)
            for each, pair in zip(sources, pipes, strict=True)
        ]
        for wrote, _ in pipes:
            run("cat", wrote)

    def close(self) -> list[str]:
        """Return the errors that the programs get."""
        for pipe in self._closing:
            run("tee", pipe)
        return [program.wait().text.strip() for program in self._programs]

    def look(self, *errors: str) -> None:
        """Check that each save is pending with one of these errors, is in the log, and lands now."""
        items = json.loads(self._mount.bbfs("pending", "list", "--json").out)
        assert len(items) == len(self._sources)
        log = self._mount.log()
        for source in self._sources:
            item = next(each for each in items if source.directory.startswith("/".join(each["path"][:1])))
            assert f"{item['uri']}: not written: " in log
            assert item["error"].startswith(errors)
            assert source.get() == OLD or not source.is_whole
            self._mount.bbfs("pending", "retry", item["id"], *([] if source.is_whole else ["--force"]))
            assert source.get() == NEW


@pytest.fixture
def saves(mount: Mount, sources: list[Killable], tmp_path: Path) -> Saves:
    for each in sources:
        each.put(OLD)
        assert run("cat", mount / each.directory / NAME).out == OLD
    return Saves(mount, sources, tmp_path)


def test_an_upload_that_stalls_ends_in_time(saves: Saves, sources: list[Killable]) -> None:
    goes_on = threading.Event()
    relays = [each.relay for each in sources if each.relay is not None]
    for relay in relays:
        relay.receives = lambda received, end=relay.received + READ: received > end and goes_on.wait()
    try:
        assert saves.close() == ["ETIMEDOUT"] * len(KINDS)
    finally:
        for relay in relays:
            relay.refuse()
        goes_on.set()
    for relay in relays:
        relay.refuse(False)
        relay.receives = lambda _: None
    saves.look("DeadlineExceeded")


def test_a_right_that_is_taken_away_before_the_close_is_told(saves: Saves, sources: list[Killable]) -> None:
    for each in sources:
        each.refuse_writes()
    try:
        assert saves.close() == ["EACCES"] * len(KINDS)
    finally:
        for each in sources:
            each.refuse_writes(False)
    saves.look("Denied", "LoginRequired")
