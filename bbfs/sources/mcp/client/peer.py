"""A JSON-RPC peer: requests to a server and their answers, requests of the server, and notifications.

A request waits for one event, and a transport hands an answer to that event at once: with 64 requests in flight, steps
of the event loop bound the throughput.
"""

import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
import trio
from mcp.shared.exceptions import MCPError

from bbfs.sources.mcp.client.errors import ConnectionClosed
from bbfs.sources.mcp.transport.messages import Transport

CANCEL_NOTICE = 5.0
"""Seconds that telling the server of a cancelled request may take at most."""
_ANSWER_TIMEOUT = 10.0
"""Seconds for sending one answer to a request of the server."""
MAX_ANSWERS = 64
"""Answers that may wait until the server takes them. It gets none for more requests."""
MAX_ID = 1024
"""Characters of the id of a request of the server, which its answer repeats. It gets none for a longer one."""

Params = Mapping[str, Any]


@dataclass(slots=True, eq=False)
class _Pending:
    """A request that waits for its answer. If it is done without an outcome, the connection has closed."""

    done: trio.Event = field(default_factory=trio.Event)
    outcome: dict[str, Any] | types.ErrorData | None = None


class Peer:
    """One end of a JSON-RPC connection. Requests may come from any task.

    answer: called with the method and parameters of the server's requests; returns a result, or a coroutine that does,
    or raises MCPError.
    notified: called with its notifications. closed: called when no more messages can come. The last two must
    not raise. nursery: runs what sends the answers; it must end before the streams close.
    """

    def __init__(
        self,
        transport: Transport,
        nursery: trio.Nursery,
        *,
        answer: Callable[[str, Params | None], dict[str, Any] | Coroutine[Any, Any, dict[str, Any]]],
        notified: Callable[[str, Params], None],
        closed: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._nursery = nursery
        self._answer = answer
        self._notified = notified
        self._on_closed = closed
        self._pending: dict[types.RequestId, _Pending] = {}
        self._numbers = itertools.count(1)
        self._answers: deque[dict[str, Any]] = deque()
        self._is_answering = False
        self._asking: dict[types.RequestId, trio.CancelScope] = {}
        self._closed = False
        self.heard_at = trio.current_time()
        """The time of the latest message, in trio's clock."""
        transport.inbox.take = self._take

    async def run(self) -> None:
        """Receive messages until the transport ends; then fail all requests under way."""
        try:
            await self._transport.inbox.ended.wait()
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
                await self._transport.send(message, headers or {})
                await pending.done.wait()
            except trio.Cancelled:
                if cancellable:
                    with trio.CancelScope(shield=True, deadline=trio.current_time() + CANCEL_NOTICE):
                        reason = {"requestId": number, "reason": "caller cancelled"}
                        await self.notify("notifications/cancelled", reason)
                raise
        except (trio.BrokenResourceError, trio.ClosedResourceError):
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
                if len(self._answers) + len(self._asking) < MAX_ANSWERS and _is_short(message.id):
                    self._answer_request(message)

    def _answer_request(self, request: types.JSONRPCRequest) -> None:
        try:
            answer = self._answer(request.method, request.params)
        except MCPError as exc:
            self._queue_answer(request.id, {"error": exc.error.model_dump(exclude_unset=True)})
            return
        if isinstance(answer, dict):
            self._queue_answer(request.id, {"result": answer})
        else:
            scope = self._asking[request.id] = trio.CancelScope()
            self._nursery.start_soon(self._await_answer, request.id, answer, scope)

    async def _await_answer(
        self, number: types.RequestId, answer: Coroutine[Any, Any, dict[str, Any]], scope: trio.CancelScope
    ) -> None:
        """Wait for the answer of somebody else. A request that the server cancels gets none."""
        try:
            with scope:
                try:
                    self._queue_answer(number, {"result": await answer})
                except MCPError as exc:
                    self._queue_answer(number, {"error": exc.error.model_dump(exclude_unset=True)})
        finally:
            self._asking.pop(number, None)

    def cancel_answer(self, number: types.RequestId) -> None:
        """End the wait for an answer that the server needs no more."""
        if (scope := self._asking.get(number)) is not None:
            scope.cancel()

    def _queue_answer(self, number: types.RequestId, outcome: dict[str, Any]) -> None:
        self._answers.append({"jsonrpc": "2.0", "id": number, **outcome})
        if not self._is_answering:
            self._is_answering = True
            self._nursery.start_soon(self._send_answers)

    async def _send_answers(self) -> None:
        """Send the answers to requests of the server, one after the other."""
        while self._answers:
            with trio.move_on_after(_ANSWER_TIMEOUT):
                await self._send_if_open(self._answers.popleft())
        self._is_answering = False

    async def _send_if_open(self, message: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        if not self._closed:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._transport.send(message, headers or {})


def _is_short(number: types.RequestId) -> bool:
    return len(number) <= MAX_ID if isinstance(number, str) else number.bit_length() <= MAX_ID
