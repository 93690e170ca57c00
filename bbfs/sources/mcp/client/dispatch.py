"""The way of a request to a server and of its answer back, with fewer stops than the SDK's.

The SDK's dispatcher makes each request a memory stream, a tracing span and a clock, and each message waits in two more
streams: about ten steps of the event loop, which at 64 requests in flight is what bounds the throughput. Here a request
waits for one event, and an answer goes from the transport to that event at once. Everything else (what the server asks,
notifications, the negotiation) takes the SDK's own way.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any

import anyio
import trio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCError, JSONRPCRequest, JSONRPCResponse
from pydantic_core import to_json

from bbfs.sources.mcp.client.decode import greeting
from bbfs.sources.mcp.transport.outbox import Outbox

_CANCEL_NOTICE = 5.0
"""Seconds that telling the server of a cancelled request may take at most."""
_NEGOTIATION = ("initialize", "server/discover")

Answer = JSONRPCResponse | JSONRPCError


class Heard:
    """A stream of messages that notes when the latest one came.

    answers: takes an answer that need not pass through the stream, once there is somebody who does.
    """

    def __init__(self, stream: MemoryObjectReceiveStream[SessionMessage | Exception]) -> None:
        self._stream = stream
        self.at = trio.current_time()
        self.answers: Callable[[Answer], None] | None = None

    def take(self, answer: Answer) -> bool:
        """Hand an answer to whom it is for; False where it must go through the stream."""
        if self.answers is None:
            return False
        self.at = trio.current_time()
        self.answers(answer)
        return True

    async def receive(self) -> SessionMessage | Exception:
        item = await self._stream.receive()
        self.at = trio.current_time()
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "Heard":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        item = await self._stream.__anext__()
        self.at = trio.current_time()
        return item

    async def __aenter__(self) -> "Heard":
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


class _Waiting:
    """A request that waits for its answer: what the SDK's table of pending requests wants of an entry."""

    __slots__ = ("done", "on_progress", "outcome", "send")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.outcome: dict[str, Any] | ErrorData | None = None
        self.on_progress = None
        self.send = self

    def send_nowait(self, outcome: dict[str, Any] | ErrorData) -> None:
        if self.outcome is not None:
            raise anyio.WouldBlock
        self.outcome = outcome
        self.done.set()


class Dispatcher(JSONRPCDispatcher):
    """Tells when no more messages can come; the SDK tells only those who wait for an answer. Mends greetings."""

    def __init__(self, read_stream: Heard, write_stream: Any, on_closed: Callable[[], None]) -> None:
        super().__init__(read_stream, write_stream)
        read_stream.answers = self._take
        self._outbox = write_stream if isinstance(write_stream, Outbox) else None
        self._on_closed = on_closed

    async def run(self, *args: Any, **kwargs: Any) -> None:
        try:
            await super().run(*args, **kwargs)
        finally:
            self._on_closed()

    def _take(self, answer: Answer) -> None:
        self._resolve_pending(answer.id, answer.result if isinstance(answer, JSONRPCResponse) else answer.error)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **related: Any
    ) -> dict[str, Any]:
        """Send a request, return its raw result. Raises MCPError.

        Only `headers` and `cancel_on_abandon` of the options are for the way taken here.
        """
        options = opts or {}
        if method in _NEGOTIATION:
            return greeting(await super().send_raw_request(method, params, opts, **related))
        if related or not self._running or self._closed or options.keys() - {"headers", "cancel_on_abandon"}:
            return await super().send_raw_request(method, params, opts, **related)
        number = self._allocate_id()
        while number in self._pending:
            number = self._allocate_id()
        given = {"params": dict(params)} if params else {}
        if self._outbox is not None:  # headers are for other transports
            request = {"jsonrpc": "2.0", "id": number, "method": method, **given}
            send = partial(self._outbox.send_line, to_json(request, inf_nan_mode="null") + b"\n")
        else:
            headers = options.get("headers")
            metadata = ClientMessageMetadata(headers=headers) if headers else None
            message = JSONRPCRequest(jsonrpc="2.0", id=number, method=method, **given)
            send = partial(self._write_stream.send, SessionMessage(message, metadata))
        outcome = await self._exchange(number, send, cancel=options.get("cancel_on_abandon", True))
        if isinstance(outcome, ErrorData):
            raise MCPError(code=outcome.code, message=outcome.message, data=outcome.data)
        return outcome

    async def _exchange(
        self, number: int, send: Callable[[], Awaitable[None]], *, cancel: bool
    ) -> dict[str, Any] | ErrorData:
        waiting = _Waiting()
        self._pending[number] = waiting  # type: ignore[assignment] # it has what the SDK uses of its own entries
        try:
            await trio.lowlevel.checkpoint_if_cancelled()  # what was never sent need not be cancelled
            try:
                await send()
                await waiting.done.wait()
            except trio.Cancelled:
                if cancel:
                    await self._tell_cancelled(number)
                raise
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise MCPError(code=CONNECTION_CLOSED, message="Connection closed") from None
        finally:
            self._pending.pop(number, None)
        assert waiting.outcome is not None
        return waiting.outcome

    async def _tell_cancelled(self, number: int) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _CANCEL_NOTICE):
            await self.notify("notifications/cancelled", {"requestId": number, "reason": "caller cancelled"})
