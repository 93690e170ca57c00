"""A connection to a control socket for tasks: both ends."""

import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import trio

from bbfs.fuse.control.messages import Messages, not_connected, require_greeting, require_user


class MessageStream:
    """One end of a connection: messages instead of bytes."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._messages = Messages()

    async def send(self, messages: Iterable[dict[str, Any]]) -> None:
        """Send messages. Raise trio.BrokenResourceError if the other side is gone."""
        await self.send_lines(map(json.dumps, messages))

    async def send_lines(self, lines: Iterable[str]) -> None:
        """As `send`, with messages in JSON."""
        await self._stream.send_all("".join(line + "\n" for line in lines).encode())

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None at the end. Raise ProtocolViolation, trio.BrokenResourceError."""
        while (message := self._messages.next()) is None:
            received = await self._stream.receive_some()
            if not received:
                return None
            self._messages.feed(received)
        return message


@asynccontextmanager
async def connect(address: str, user: int | None = None) -> AsyncGenerator[MessageStream]:
    """Connect to a daemon and read its greeting. Raise Unreachable, ProtocolViolation, Denied.

    user: the id of the user who must have made the socket; None for this one.
    """
    try:
        stream = await trio.open_unix_socket(address)
    except OSError as error:
        raise not_connected(address, error) from None
    async with stream:
        require_user(stream.socket, address, user)
        link = MessageStream(stream)
        try:
            greeting = await link.receive()
        except trio.BrokenResourceError:
            greeting = None
        require_greeting(greeting)
        yield link
