"""The native protocol of the systemd journal, against a socket of our own."""

import array
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bbfs.cli import logs
from bbfs.fuse.service import journal


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.settimeout(10)
        yield listener


def received(listener: socket.socket) -> dict[str, str]:
    """Return the fields of the next message, whether it is a datagram or a file in memory."""
    data, ancillary, _, _ = listener.recvmsg(1 << 20, socket.CMSG_SPACE(4))
    if not data:
        number = array.array("i", ancillary[0][2])[0]
        with os.fdopen(number, "rb") as file:
            file.seek(0)
            data = file.read()
    fields: dict[str, str] = {}
    while data:
        name, _, rest = data.partition(b"\n")
        size = int.from_bytes(rest[:8], "little")
        fields[name.decode()] = rest[8 : 8 + size].decode()
        assert rest[8 + size : 9 + size] == b"\n"
        data = rest[9 + size :]
    return fields


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_message_of_any_length_keeps_its_fields(listening: socket.socket, tmp_path: Path, size: int) -> None:
    said = "two\nPRIORITY=0\n" + "x" * size
    with closing(journal.Journal(str(tmp_path / "socket"))) as sender:
        sender.send({"MESSAGE": said, "LOGGER": "bbfs"})
    assert received(listening) == {"SYSLOG_IDENTIFIER": "bbfs", "MESSAGE": said, "LOGGER": "bbfs"}


def test_the_log_goes_to_the_journal_where_standard_error_does(
    listening: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SOCKET", str(tmp_path / "socket"))
    monkeypatch.setenv("JOURNAL_STREAM", "0:0")
    assert not journal.has_stderr()
    status = os.fstat(2)
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
    before = logging.getLogger().level
    try:
        logs.log_to_stderr(logging.INFO, "journal")
        logging.getLogger("bbfs.some").warning("%s is away", "docs\x1b[31m")
    finally:
        logs.log_to_stderr(before)
    found = received(listening)
    assert found.pop("CODE_LINE").isdigit()
    assert found == {
        "SYSLOG_IDENTIFIER": "bbfs",
        "MESSAGE": "docs\\x1b[31m is away",
        "PRIORITY": "4",
        "LOGGER": "bbfs.some",
        "CODE_FILE": __file__,
        "CODE_FUNC": "test_the_log_goes_to_the_journal_where_standard_error_does",
    }
