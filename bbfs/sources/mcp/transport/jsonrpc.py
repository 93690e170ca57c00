"""JSON-RPC 2.0: a peer that exchanges messages over the streams of a transport.

A request waits for one event, and a transport hands an answer to that event at once: with 64 requests in flight, steps
of the event loop bound the throughput.
"""

import itertools
import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from pydantic_core import to_json

from bbfs.sources.mcp.client.errors import ConnectionClosed

_CANCEL_NOTICE = 5.0
"""Seconds that telling the server of a cancelled request may take at most."""
_ANSWER_TIMEOUT = 10.0
"""Seconds for sending one answer to a request of the server."""
MAX_ANSWERS = 64
"""Answers that may wait until the server takes them. It gets none for more requests."""
_UNSENT_MESSAGES = 1024
"""Messages that may wait for a server to read them: cancelling a request must not wait for the server."""


Params = Mapping[str, Any]


class Inbox:
    """The receiving end of a transport that calls its peer directly.

    take: called with each message; a peer sets it. ended: set when no more messages can come.
    """

    def __init__(self) -> None:
        self.take: Callable[[types.JSONRPCMessage], None] = lambda _: None
        self.ended = trio.Event()


class Outbox:
    """The sending end of a pipe to a server. It writes at once as much as the pipe takes.

    The rest waits in `backlog`, which has no limit, in order, and the transport drains that. descriptor: the pipe's, in
    non-blocking mode. waiting: pieces in the backlog or being written from it; the transport counts them down.
    """

    def __init__(self, descriptor: int, backlog: MemoryObjectSendStream[bytes]) -> None:
        self._descriptor = descriptor
        self._backlog = backlog
        self.waiting = 0
        self.closed = False

    async def send(self, data: bytes) -> None:
        """Write a message, line feed included. Raises anyio's errors of a closed or broken stream."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.waiting >= _UNSENT_MESSAGES:
            raise anyio.BrokenResourceError
        if not self.waiting and not self.closed:
            data = data[self._write(data) :]
            if not data:
                return
        self._backlog.send_nowait(data)
        self.waiting += 1

    def _write(self, data: bytes) -> int:
        """Return how many bytes the pipe took. A broken one takes none: draining the backlog finds that out."""
        try:
            return os.write(self._descriptor, data)
        except OSError:
            return 0


ServerStreams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception] | Inbox, MemoryObjectSendStream[SessionMessage] | Outbox
]
"""The streams of messages from a server and to it."""


@dataclass(slots=True, eq=False)
class _Pending:
    """A request that waits for its answer. If it is done without an outcome, the connection has closed."""

    done: trio.Event = field(default_factory=trio.Event)
    outcome: dict[str, Any] | types.ErrorData | None = None


class Peer:
    """One end of a JSON-RPC connection. Requests may come from any task.

    answer: called with the method and parameters of the server's requests; returns a result or raises MCPError.
    notified: called with those of its notifications. closed: called when no more messages can come. The last two must
    not raise. nursery: runs what sends the answers; it must end before the streams close.
    """

    def __init__(
        self,
        streams: ServerStreams,
        nursery: trio.Nursery,
        *,
        answer: Callable[[str, Params | None], dict[str, Any]],
        notified: Callable[[str, Params], None],
        closed: Callable[[], None],
    ) -> None:
        self._incoming, self._outgoing = streams
        self._nursery = nursery
        self._answer = answer
        self._notified = notified
        self._on_closed = closed
        self._pending: dict[types.RequestId, _Pending] = {}
        self._numbers = itertools.count(1)
        self._answers: deque[dict[str, Any]] = deque()
        self._is_answering = False
        self._closed = False
        self.heard_at = trio.current_time()
        """When the latest message came, in trio's clock."""
        if isinstance(self._incoming, Inbox):
            self._incoming.take = self._take

    async def run(self) -> None:
        """Receive messages until the transport ends; then fail all requests under way."""
        try:
            if isinstance(self._incoming, Inbox):
                await self._incoming.ended.wait()
            else:
                with suppress(anyio.ClosedResourceError):
                    async for item in self._incoming:
                        if isinstance(item, SessionMessage):
                            self._take(item.message)
        finally:
            self._closed = True
            for pending in self._pending.values():
                pending.done.set()
            self._on_closed()

    async def request(
        self,
        method: str,
        params: Params | None = None,
        headers: dict[str, str] | None = None,
        *,
        number: types.RequestId | None = None,
        cancellable: bool = True,
    ) -> dict[str, Any]:
        """Send a request and return its raw result. Raises MCPError.

        headers: for transports that have them. number: the request's id, otherwise the next free one. cancellable:
        whether the server may be notified when the caller gives up.
        """
        if self._closed:
            raise ConnectionClosed
        number = next(self._numbers) if number is None else number
        pending = self._pending[number] = _Pending()
        message = {"jsonrpc": "2.0", "id": number, "method": method, **({"params": params} if params else {})}
        try:
            await trio.lowlevel.checkpoint_if_cancelled()  # a request that was never sent needs no cancelling
            try:
                await self._send(message, headers)
                await pending.done.wait()
            except trio.Cancelled:
                if cancellable:
                    with trio.CancelScope(shield=True, deadline=trio.current_time() + _CANCEL_NOTICE):
                        reason = {"requestId": number, "reason": "caller cancelled"}
                        await self.notify("notifications/cancelled", reason)
                raise
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ConnectionClosed from None
        finally:
            del self._pending[number]
        if isinstance(pending.outcome, types.ErrorData):
            raise MCPError(pending.outcome.code, pending.outcome.message, pending.outcome.data)
        if pending.outcome is None:
            raise ConnectionClosed
        return pending.outcome

    async def notify(self, method: str, params: Params | None = None, headers: dict[str, str] | None = None) -> None:
        """Send a notification. It is dropped when the connection is closed."""
        message = {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}
        await self._send_if_open(message, headers)

    def resolve(self, number: types.RequestId | None, outcome: dict[str, Any] | types.ErrorData) -> None:
        """End a request under way. No-op for one that has its outcome."""
        if isinstance(number, str):
            with suppress(ValueError):
                number = int(number)  # some servers write every id as a text
        pending = self._pending.get(number) if number is not None else None
        if pending is not None and pending.outcome is None:
            pending.outcome = outcome
            pending.done.set()

    def _take(self, message: types.JSONRPCMessage) -> None:
        self.heard_at = trio.current_time()
        match message:
            case types.JSONRPCResponse():
                self.resolve(message.id, message.result)
            case types.JSONRPCError():
                self.resolve(message.id, message.error)
            case types.JSONRPCNotification():
                self._notified(message.method, message.params or {})
            case types.JSONRPCRequest():
                if len(self._answers) < MAX_ANSWERS:
                    self._answers.append({"jsonrpc": "2.0", "id": message.id, **self._outcome(message)})
                    if not self._is_answering:
                        self._is_answering = True
                        self._nursery.start_soon(self._send_answers)

    def _outcome(self, request: types.JSONRPCRequest) -> dict[str, Any]:
        try:
            return {"result": self._answer(request.method, request.params)}
        except MCPError as exc:
            return {"error": exc.error.model_dump(exclude_unset=True)}

    async def _send_answers(self) -> None:
        """Send the answers to requests of the server, one after the other."""
        while self._answers:
            with trio.move_on_after(_ANSWER_TIMEOUT):
                await self._send_if_open(self._answers.popleft())
        self._is_answering = False

    async def _send_if_open(self, message: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        if not self._closed:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self._send(message, headers)

    async def _send(self, message: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        if isinstance(self._outgoing, Outbox):
            await self._outgoing.send(to_json(message, inf_nan_mode="null") + b"\n")
            return
        metadata = ClientMessageMetadata(headers=headers) if headers else None
        await self._outgoing.send(SessionMessage(types.jsonrpc_message_adapter.validate_python(message), metadata))
