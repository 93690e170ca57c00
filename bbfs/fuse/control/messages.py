"""The messages of a control socket: lines of JSON, and the greeting. It needs nothing that a daemon or trio has.

`bbfs.fuse.control.server` describes the messages.
"""

import errno
import json
import os
import socket
import struct
from typing import TYPE_CHECKING, Any

from bbfs.model.errors import Denied, ProtocolViolation, Unreachable

if TYPE_CHECKING:
    import trio

VERSION = 1
LONGEST_LINE = 1 << 20
"""Bytes."""
_CREDENTIALS = struct.Struct("3i")


class Messages:
    """Takes the bytes of a connection and gives its messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0

    def feed(self, received: bytes) -> None:
        self._buffer += received

    def next(self) -> dict[str, Any] | None:
        """Return the next message, or None if more bytes are needed. Raise ProtocolViolation."""
        end = self._buffer.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._buffer)
            if self._searched > LONGEST_LINE:
                raise ProtocolViolation(f"a line of more than {LONGEST_LINE} bytes")
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            raise ProtocolViolation("a line that is no JSON") from None
        if not isinstance(message, dict):
            raise ProtocolViolation("a line that is no JSON object")
        return message


def not_connected(address: str, error: OSError) -> Unreachable:
    """Return the error of a control socket that takes no connection."""
    if error.errno == errno.ENOENT:
        return Unreachable(f"the control socket {address} is gone: unmount and mount again, which makes a new one")
    return Unreachable(f"the control socket {address}: {error.strerror}")


def require_user(connection: "socket.socket | trio.socket.SocketType", address: str, user: int | None) -> None:
    """Raise Denied unless a user has made the socket. user: the id; None for this one."""
    if (other := peer(connection)[1]) != (os.geteuid() if user is None else user):
        raise Denied(f"the control socket {address} belongs to another user ({other})")


def require_greeting(greeting: dict[str, Any] | None) -> None:
    """Raise Unreachable, ProtocolViolation unless this is the greeting of a daemon that speaks the same language."""
    if greeting is None:
        raise Unreachable("the daemon has ended, or refused")
    if (greeting.get("bbfs"), greeting.get("version")) != ("control", VERSION):
        raise ProtocolViolation("the daemon is another version of bbfs: mount again")


def peer(connection: "socket.socket | trio.socket.SocketType") -> tuple[int, int]:
    """Return the process and the user at the other end (SO_PEERCRED, unix(7))."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid
