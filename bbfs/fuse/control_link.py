"""The messages of a control socket, and the client's end of a connection. It needs nothing that a daemon has.

`bbfs.fuse.control` describes the messages.
"""

import json
import os
import socket
import struct
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import trio

from bbfs.model.errors import Denied, ProtocolViolation, Unreachable

ATTRIBUTE = "user.bbfs.control"
VERSION = 1
LONGEST_LINE = 1 << 20
"""Bytes."""
_CREDENTIALS = struct.Struct("3i")


class MessageStream:
    """One end of a connection: messages instead of bytes."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def send(self, messages: Iterable[dict[str, Any]]) -> None:
        """Send messages. Raise trio.BrokenResourceError if the other side is gone."""
        await self.send_lines(map(json.dumps, messages))

    async def send_lines(self, lines: Iterable[str]) -> None:
        """As `send`, with messages in JSON."""
        await self._stream.send_all("".join(line + "\n" for line in lines).encode())

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None at the end. Raise ProtocolViolation, trio.BrokenResourceError."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > LONGEST_LINE:
                raise ProtocolViolation(f"a line of more than {LONGEST_LINE} bytes")
            received = await self._stream.receive_some()
            if not received:
                return None
            self._buffer += received
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            raise ProtocolViolation("a line that is no JSON") from None
        if not isinstance(message, dict):
            raise ProtocolViolation("a line that is no JSON object")
        return message


@asynccontextmanager
async def connect(address: str, user: int | None = None) -> AsyncGenerator[MessageStream]:
    """Connect to a daemon and read its greeting. Raise Unreachable, ProtocolViolation, Denied.

    user: the id of the user who must have made the socket; None for this one.
    """
    try:
        stream = await trio.open_unix_socket(address)
    except OSError as error:
        raise Unreachable(f"the control socket {address}: {error.strerror}") from None
    async with stream:
        if (other := peer(stream.socket)[1]) != (os.geteuid() if user is None else user):
            raise Denied(f"the control socket {address} belongs to another user ({other})")
        link = MessageStream(stream)
        try:
            greeting = await link.receive()
        except trio.BrokenResourceError:
            greeting = None
        if greeting is None:
            raise Unreachable("the daemon has ended, or refused")
        if (greeting.get("bbfs"), greeting.get("version")) != ("control", VERSION):
            raise ProtocolViolation("the daemon is another version of bbfs: mount again")
        yield link


def peer(connection: socket.socket | trio.socket.SocketType) -> tuple[int, int]:
    """Return the process and the user at the other end (SO_PEERCRED, unix(7))."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid
