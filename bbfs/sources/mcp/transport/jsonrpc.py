"""JSON-RPC 2.0: messages out of bytes, and a peer that exchanges them over the streams of a transport.

A request waits for one event, and a transport hands an answer to that event at once: with 64 requests in flight, steps
of the event loop bound the throughput.
"""

import codecs
import itertools
import json
import os
import re
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
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from bbfs.model.errors import ProtocolViolation
from bbfs.sources.mcp.client.errors import ConnectionClosed, invalid_answer
from bbfs.sources.mcp.transport.long_strings import LONG, Line, put_back, take_out

_CANCEL_NOTICE = 5.0
"""Seconds that telling the server of a cancelled request may take at most."""


_DEEPEST = 200
"""Levels of nesting; about what pydantic's parser takes."""
_LENIENT = json.JSONDecoder(strict=False)
_ANSWER_START = re.compile(rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*,\s*"(?:result|error)"')
_ANSWER_END = re.compile(rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*\}\s*\Z')
"""The beginning or end of an answer from most servers: it names the request even if the rest is not readable."""

Params = Mapping[str, Any]


class LineSplitter:
    """Splits chunks into lines, in linear time. limit: bytes of one line; more raise ProtocolViolation."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # One block, not a list of chunks: its memory goes back to the system when freed.
        self._pending = bytearray()

    def feed(self, chunk: bytes) -> list[Line]:
        """Return the lines that end within `chunk`, without their line feeds. A long one is not copied again."""
        first, *others = chunk.split(b"\n")
        self._pending += first
        if len(self._pending) > self._limit:
            self._pending.clear()  # otherwise the traceback would keep it
            raise ProtocolViolation(f"the server sent a message of more than {self._limit} bytes")
        if not others:
            return []
        pending = self._pending
        lines: list[Line] = [pending if len(pending) >= LONG else bytes(pending), *others[:-1]]
        self._pending = bytearray(others[-1])
        return lines


def decode(line: Line) -> list[types.JSONRPCMessage] | None:
    """Return the messages on one line (several in a batch), or None if it holds none.

    Mistakes are tolerated: bytes that are not UTF-8 are replaced, halves of surrogate pairs and control characters in
    texts are kept, a byte order mark is skipped. An answer with an id but no valid shape fails its request at once,
    instead of at its deadline. Parsing first and validating then takes a fifth of the time of
    `jsonrpc_message_adapter.validate_json`. Long texts in a result are `LongText`.
    """
    if len(line) >= LONG and (parted := take_out(line)) is not None:
        rest, texts = parted
        found = decode(rest)
        for message in found or ():
            if isinstance(message, types.JSONRPCResponse):
                put_back(message.result, texts)
        return found
    if line.startswith(codecs.BOM_UTF8):
        line = line[len(codecs.BOM_UTF8) :]
    try:
        value = from_json(line)
    except ValueError:
        try:
            value = _LENIENT.decode(line.decode("utf-8", "replace").strip())
            _require_shallow(value)
        except (ValueError, RecursionError):
            broken = _ANSWER_START.match(line) or _ANSWER_END.search(line[-100:])
            return [invalid_answer(int(broken[1]), "not JSON")] if broken else None
    found = [message for item in (value if isinstance(value, list) else [value]) if (message := _message(item))]
    return found or None


async def decode_aside(line: Line) -> list[types.JSONRPCMessage] | None:
    """Decode a line, a long one in a thread."""
    return await trio.to_thread.run_sync(decode, line) if len(line) >= LONG else decode(line)


def _require_shallow(value: Any) -> None:
    """Raise ValueError for a value nested so deep that encoding it as JSON could fail."""
    level = [value]
    for _ in range(_DEEPEST):
        inner = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list))
        level = [item for items in inner for item in items]
        if not level:
            return
    raise ValueError("nested too deep")


def _message(item: Any) -> types.JSONRPCMessage | None:
    if not isinstance(item, dict):
        return None
    try:
        return types.jsonrpc_message_adapter.validate_python(item, by_name=False)
    except ValidationError:
        return _answer(item)


def _answer(item: dict[str, Any]) -> types.JSONRPCMessage | None:
    """Return the answer that a malformed object is meant to be, or None: programs log in JSON too."""
    request_id, result, error = item.get("id"), item.get("result"), item.get("error")
    if isinstance(request_id, float) and request_id.is_integer():
        request_id = int(request_id)  # some languages have no other numbers than floats
    if item.get("method") is not None or not ("result" in item or "error" in item):
        return None
    if not isinstance(request_id, int | str) or isinstance(request_id, bool):
        return None
    match error:
        case None if isinstance(result, dict):
            return types.JSONRPCResponse(jsonrpc="2.0", id=request_id, result=result)
        case {"code": int(code)} if not isinstance(code, bool):
            text = error.get("message")
            data = types.ErrorData(code=code, message=text if isinstance(text, str) else "")
            return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=data)
    return invalid_answer(request_id, "not a JSON-RPC response")


class Inbox:
    """The receiving end of a transport that calls its peer directly.

    take: called with each message; a peer sets it. ended: set when no more messages can come.
    """

    def __init__(self) -> None:
        self.take: Callable[[types.JSONRPCMessage], None] = lambda _: None
        self.ended = trio.Event()


class Outbox:
    """The sending end of a pipe to a server. It writes at once as much as the pipe takes.

    The rest waits in `backlog`, in order, and the transport drains that. descriptor: the pipe's, in non-blocking mode.
    waiting: pieces in the backlog or being written from it; the transport counts them down.
    """

    def __init__(self, descriptor: int, backlog: MemoryObjectSendStream[bytes]) -> None:
        self._descriptor = descriptor
        self._backlog = backlog
        self.waiting = 0
        self.closed = False

    async def send(self, data: bytes) -> None:
        """Write a message, line feed included. Raises anyio's errors of a closed or broken stream."""
        if not self.waiting and not self.closed:
            data = data[self._write(data) :]
            if not data:
                return
        self.waiting += 1
        await self._backlog.send(data)

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
                try:
                    outcome = {"result": self._answer(message.method, message.params)}
                except MCPError as exc:
                    outcome = {"error": exc.error.model_dump(exclude_unset=True)}
                self._nursery.start_soon(self._send_if_open, {"jsonrpc": "2.0", "id": message.id, **outcome})

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
