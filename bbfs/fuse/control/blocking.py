"""A connection to a control socket for a command without an event loop: to import trio takes longer than most greps."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bbfs.fuse.control.messages import Messages, not_connected, require_greeting, require_user

_AT_ONCE = 1 << 16
"""Bytes."""


class BlockingLink:
    """The client's end of a connection. Methods raise OSError if the daemon is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._messages = Messages()

    def send(self, message: dict[str, Any]) -> None:
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None at the end. Raise ProtocolViolation."""
        while (message := self._messages.next()) is None:
            received = self._connection.recv(_AT_ONCE)
            if not received:
                return None
            self._messages.feed(received)
        return message


@contextmanager
def connect(address: str, user: int | None = None, timeout: float | None = None) -> Iterator[BlockingLink]:
    """As `bbfs.fuse.control.link.connect`. timeout: seconds for each answer, by default without a bound."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(address)
        except OSError as error:
            raise not_connected(address, error) from None
        require_user(connection, address, user)
        link = BlockingLink(connection)
        try:
            greeting = link.receive()
        except OSError:
            greeting = None
        require_greeting(greeting)
        yield link
