"""Telling systemd how the daemon fares, by a stand-in for its socket."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bbfs.fuse.service.sd_notify import ServiceManager


@pytest.fixture(params=["path", "abstract"])
def stand_in(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """A service manager's socket and its name as the environment gives it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        name = str(tmp_path / "notify") if request.param == "path" else f"@bbfs-test-{os.getpid()}"
        sock.bind("\0" + name[1:] if name.startswith("@") else name)
        sock.settimeout(5.0)
        yield name, sock


def test_fields_are_lines_of_one_datagram(stand_in: tuple[str, socket.socket]) -> None:
    name, sock = stand_in
    service = ServiceManager({"NOTIFY_SOCKET": name})
    service.tell(READY="1", STATUS="serving /mnt/é", MAINPID="7")
    assert sock.recv(4096) == "READY=1\nSTATUS=serving /mnt/é\nMAINPID=7".encode()
    service.tell(WATCHDOG="1")
    assert sock.recv(4096) == b"WATCHDOG=1"


def test_a_value_cannot_forge_another_field(stand_in: tuple[str, socket.socket]) -> None:
    name, sock = stand_in
    ServiceManager({"NOTIFY_SOCKET": name}).tell(STATUS="serving /mnt/a\nSTOPPING=1")
    assert sock.recv(4096) == b"STATUS=serving /mnt/a STOPPING=1"


def test_a_status_that_is_no_utf8_is_told_all_the_same(stand_in: tuple[str, socket.socket]) -> None:
    """A mount point is bytes; Python holds those that are no UTF-8 as lone surrogates."""
    name, sock = stand_in
    ServiceManager({"NOTIFY_SOCKET": name}).tell(STATUS="serving /mnt/caf\udce9", READY="1")
    assert b"READY=1" in sock.recv(4096).split(b"\n")


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}])
def test_without_a_service_manager_nothing_is_done(environ: dict[str, str]) -> None:
    service = ServiceManager(environ)
    service.tell(READY="1")
    assert service.watchdog is None


@pytest.mark.parametrize("name", ["{}/missing", "@bbfs-test-nobody-listens"])
def test_a_service_manager_that_is_gone_stops_nobody(tmp_path: Path, name: str) -> None:
    ServiceManager({"NOTIFY_SOCKET": name.format(tmp_path)}).tell(READY="1")


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "20000000"}, 20.0),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getppid())}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_PID": str(os.getpid())}, None),
    ],
)
def test_the_watchdog_is_for_the_process_that_it_names(environ: dict[str, str], seconds: float | None) -> None:
    assert ServiceManager(environ).watchdog == seconds
