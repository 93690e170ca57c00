"""The sending end of a stdio transport: what a server's pipe takes at once is written at once."""

import os
from types import TracebackType

from anyio.streams.memory import MemoryObjectSendStream
from mcp.shared.message import SessionMessage


class Outbox:
    """Messages to a server. Those that its pipe has no room for wait in order; `backlog` is drained by the transport.

    waiting: pieces in the backlog or being written from it; whoever drains it counts them down. descriptor: the pipe's,
    in non-blocking mode.
    """

    def __init__(self, descriptor: int, backlog: MemoryObjectSendStream[bytes]) -> None:
        self._descriptor = descriptor
        self._backlog = backlog
        self._closed = False
        self.waiting = 0

    async def send(self, item: SessionMessage) -> None:
        """Write a message or put it in line. Raises anyio's errors of a closed or broken stream."""
        await self.send_line(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

    async def send_line(self, data: bytes) -> None:
        """As `send`, of a message as it is to be written, line feed included."""
        if not self.waiting and not self._closed:
            data = data[self._write(data) :]
            if not data:
                return
        self.waiting += 1
        await self._backlog.send(data)

    def _write(self, data: bytes) -> int:
        """How many bytes the pipe has taken. A broken one takes none: draining the backlog finds that out."""
        try:
            return os.write(self._descriptor, data)
        except OSError:
            return 0

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        self._backlog.close()

    def __enter__(self) -> "Outbox":
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> "Outbox":
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
