"""The audit log: what it records of requests, and that no request waits for it."""

import errno
import json
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from fakes import FlatSource, World
from programs import wait_until
from pyfuse3 import FUSEError

from bbfs.config import MountOptions
from bbfs.fuse.audit.auditor import Asked, Auditor
from bbfs.fuse.audit.trail import Record, Trail, trail
from bbfs.model.errors import BbfsError, ConfigError, Denied
from bbfs.resources.commands.table import CallTool, Put, Search

BOUND = 60.0


def record(path: str = "notes/a", outcome: str = "ok") -> Record:
    return Record(0.0, "write", 7, 1000, "sh", "notes", path, None, outcome, 5, 1.5)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


class Held:
    """A sink that waits until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = threading.Event()
        self.written: list[dict[str, object]] = []

    def write(self, records: Sequence[dict[str, object]]) -> None:
        self.begun.set()
        assert self.go.wait(BOUND)
        self.written += records


def test_a_record_is_one_line_whatever_a_name_holds(tmp_path: Path) -> None:
    hostile = 'a\nb\x1b[31m"\u202e\udce9'
    with trail(MountOptions(audit=str(tmp_path / "audit"))) as kept:
        assert kept is not None
        kept.note(record(hostile))
    raw = (tmp_path / "audit").read_bytes()
    assert raw.count(b"\n") == 1
    assert raw.isascii()
    assert b"\x1b" not in raw
    assert lines(tmp_path / "audit") == [
        {
            "time": "1970-01-01T00:00:00.000+00:00", "operation": "write", "pid": 7, "uid": 1000, "command": "sh",
            "source": "notes", "path": hostile, "outcome": "ok", "bytes": 5, "ms": 1.5,
        }
    ]  # fmt: skip
    assert (tmp_path / "audit").stat().st_mode & 0o777 == 0o600


def test_nobody_waits_for_a_sink_that_hangs_and_what_is_lost_is_counted() -> None:
    sink = Held()
    kept = Trail(sink, queued=3)
    kept.note(record("first"))
    assert sink.begun.wait(BOUND)
    for number in range(10):
        kept.note(record(str(number)))
    sink.go.set()
    kept.close()
    assert [each.get("path") for each in sink.written] == ["first", "0", "1", "2", None]
    dropped = sink.written[-1]
    assert (dropped["operation"], dropped["records"]) == ("dropped", 7)


@pytest.mark.parametrize("way", ["create", "copytruncate"])
def test_logrotate_needs_no_signal(tmp_path: Path, way: str) -> None:
    path = tmp_path / "audit"
    with trail(MountOptions(audit=str(path))) as kept:
        assert kept is not None
        kept.note(record("before"))
        wait_until(path.read_bytes, "the first record")
        if way == "create":
            path.rename(tmp_path / "audit.1")
        else:
            (tmp_path / "audit.1").write_bytes(path.read_bytes())
            os.truncate(path, 0)
        kept.note(record("after"))
    assert [each["path"] for each in lines(tmp_path / "audit.1")] == ["before"]
    assert [each["path"] for each in lines(path)] == ["after"]


def test_a_full_disk_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    class Full(Held):
        is_full = True

        def write(self, records: Sequence[dict[str, object]]) -> None:
            if self.is_full:
                self.begun.set()
                raise OSError(errno.ENOSPC, "No space left on device")
            self.written += records

    sink = Full()
    kept = Trail(sink)
    with caplog.at_level(logging.ERROR):
        kept.note(record())
        assert sink.begun.wait(BOUND)
        sink.is_full = False
        kept.close()
    assert [each.message for each in caplog.records] == ["audit: records are lost: No space left on device"]
    assert sink.written[-1]["records"] == 1


@pytest.mark.parametrize("is_truncated", [False, True])
def test_a_line_that_a_full_disk_has_torn_takes_no_other_record_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_truncated: bool
) -> None:
    path = tmp_path / "audit"
    room, write, failed = [20], os.write, threading.Event()

    def full(number: int, said: bytes) -> int:
        if not room[0]:
            failed.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(number, said[: room[0]])
        room[0] -= written
        return written

    with trail(MountOptions(audit=str(path))) as kept:
        assert kept is not None
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            kept.note(record("torn"))
            assert failed.wait(BOUND)
        if is_truncated:
            os.truncate(path, 0)
        kept.note(record("whole"))
        wait_until(lambda: b'"whole"' in path.read_bytes(), "the record after the torn one")
        kept.note(record("last"))
    torn = b"" if is_truncated else path.read_bytes()[:21]
    assert path.read_bytes().startswith(torn)
    assert torn[-1:] in (b"", b"\n")
    others = path.read_bytes()[len(torn) :].splitlines()
    assert [each["path"] for each in map(json.loads, others) if each["operation"] != "dropped"] == ["whole", "last"]


def test_a_fifo_without_a_reader_is_a_fault_of_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match=r"audit: .*/audit: No such device or address"):
        with trail(MountOptions(audit=str(path))):
            pass
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with trail(MountOptions(audit=str(path))) as kept:
            assert kept is not None
            kept.note(record())
        assert json.loads(os.read(reader, 1000))["path"] == "notes/a"
    finally:
        os.close(reader)


def test_a_file_that_cannot_be_opened_is_a_fault_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"audit: .*/nosuch/audit: No such file or directory"):
        with trail(MountOptions(audit=str(tmp_path / "nosuch" / "audit"))):
            pass
    with trail(MountOptions()) as kept:
        assert kept is None


async def _fails(error: BaseException) -> None:
    await trio.lowlevel.checkpoint()
    raise error


async def _waits() -> None:
    await trio.sleep_forever()


async def _answers() -> int:
    await trio.lowlevel.checkpoint()
    return 3


async def test_the_outcome_is_that_of_the_request(nursery: trio.Nursery) -> None:
    sink = Held()
    sink.go.set()
    kept = Trail(sink, reads=False)
    async with World(nursery, FlatSource(contents={"x://a": b"1"})) as world:
        auditor = Auditor(kept, world.manager)

        def asked(path: str = "mcp-server+docs/x/a") -> Asked:
            return Asked("rename", 0, 1000, None, path)

        assert await auditor.noted(asked(), _answers()) == 3
        for error in (FUSEError(errno.EACCES), Denied("no")):
            with pytest.raises((FUSEError, BbfsError)):
                await auditor.noted(asked("nosuch/a"), _fails(error))
        with trio.move_on_after(0):
            await auditor.noted(asked(), _waits())
        for request in (Put("docs/a", data=b"four"), CallTool("docs", "t", confirmed=True)):
            await auditor.of_client(1, 0, request, _fails_not())
        await auditor.of_client(1, 0, Search("words", ("docs",)), _fails_not())
    kept.close()
    found = [(each["operation"], each["path"], each.get("source"), each["outcome"]) for each in sink.written]
    here = "mcp-server+docs/x/a"
    assert found == [
        ("rename", here, "docs", "ok"),
        ("rename", "nosuch/a", None, "EACCES"),
        ("rename", "nosuch/a", None, "EACCES"),
        ("rename", here, "docs", "EINTR"),
        ("put", "docs/a", None, "ok"),
        ("call", "docs/tool/t", None, "ok"),
    ]
    assert sink.written[4]["bytes"] == 4


async def _fails_not() -> None:
    await trio.lowlevel.checkpoint()
