"""The systemd journal, by its native protocol: datagrams of fields to a socket (systemd.io/JOURNAL_NATIVE_PROTOCOL).

The protocol is stable and a few lines. The library for it (`systemd-python`) has no wheels and needs a compiler and
libsystemd on each machine, so it is no dependency.
"""

import errno
import fcntl
import logging
import os
import socket
from array import array
from collections.abc import Mapping

SOCKET = "/run/systemd/journal/socket"
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_PRIORITIES = ((logging.ERROR, "3"), (logging.WARNING, "4"), (logging.INFO, "6"))


def has_stderr() -> bool:
    """Return whether standard error is a stream of the journal (JOURNAL_STREAM in systemd.exec(5))."""
    try:
        status = os.fstat(2)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def priority(level: int) -> str:
    """Return the priority of syslog(3) for a level of `logging`."""
    return next((value for least, value in _PRIORITIES if level >= least), "7")


class Journal:
    """Sends messages to the journal. path: its socket, by default that of this machine."""

    def __init__(self, path: str | None = None) -> None:
        self._path = SOCKET if path is None else path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def send(self, fields: Mapping[str, str]) -> None:
        """Send one message. It may wait while the journal is busy. Raise OSError."""
        data = b"".join(_field(name, value) for name, value in {"SYSLOG_IDENTIFIER": "bbfs", **fields}.items())
        try:
            self._socket.sendto(data, self._path)
        except OSError as error:
            if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
                raise
            self._send_file(data)

    def close(self) -> None:
        self._socket.close()

    def _send_file(self, data: bytes) -> None:
        """Send a message that is too long for a datagram as a sealed file in memory, as the protocol says."""
        number = os.memfd_create("bbfs-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.write(number, data)
            fcntl.fcntl(number, fcntl.F_ADD_SEALS, _SEALS)
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [number]))]
            self._socket.sendmsg([], ancillary, 0, self._path)
        finally:
            os.close(number)


def _field(name: str, value: str) -> bytes:
    """Return a field with the length of its value before it, so that no line feed in it begins another field."""
    data = value.encode("utf-8", "backslashreplace")
    return b"%s\n%s%s\n" % (name.encode(), len(data).to_bytes(8, "little"), data)
