"""A stand-in for the notification socket of systemd."""

import select
import socket
import time
from pathlib import Path

PATIENCE = 15.0
"""Seconds."""


class NotifySocket:
    """Stands in for the service manager: collects the fields that a daemon sends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def expect(self, field: str) -> dict[str, str]:
        """The next message that has the field. Raises AssertionError after a while."""
        deadline = time.monotonic() + PATIENCE
        while (left := deadline - time.monotonic()) > 0 and select.select([self._socket], [], [], left)[0]:
            lines = self._socket.recv(4096).decode().splitlines()
            message = dict(line.split("=", 1) for line in lines)
            if field in message:
                return message
        raise AssertionError(f"no message with {field} within {PATIENCE:g} s")

    def close(self) -> None:
        self._socket.close()
