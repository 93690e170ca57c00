"""One client on standard input and output, a JSON-RPC message a line.

Unlike the SDK's, it ends at once when cancelled, whatever the client does with its ends of the pipes, and takes any
descriptors.
"""

import json
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from bbfs.server_parts.bounds import MOST_VALUES, has_too_many_values

log = logging.getLogger(__name__)

MAX_MESSAGE = 64 << 20
"""Bytes of one message of the client."""
MOST_UNDER_WAY = 256
"""Requests without an answer. While there are as many, no more are read: what answers hold in memory is bounded."""
_CHUNK = 1 << 16
_ENDLESS = "subscriptions/listen"

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class LineTooLong(Exception):
    """A line over the limit."""


class LineSplitter:
    """Splits chunks into lines, in linear time. limit: bytes of one line; more raise LineTooLong."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # One block, not a list of chunks: its memory goes back to the system when freed.
        self._pending = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that end within `chunk`, without their line feeds."""
        first, *others = chunk.split(b"\n")
        self._pending += first
        if len(self._pending) > self._limit:
            self._pending.clear()  # otherwise the traceback would keep it
            raise LineTooLong
        if not others:
            return []
        lines = [bytes(self._pending), *others[:-1]]
        self._pending = bytearray(others[-1])
        return lines


async def serve_one_client(server: Server[Any], stop: trio.Event) -> None:
    """Serve the client on standard input and output until its input ends or `stop` is set."""
    async with trio.open_nursery() as nursery:

        async def cancel() -> None:
            await stop.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(cancel)
        async with stdio() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def stdio() -> AsyncGenerator[Streams]:
    """Yield the streams of messages from the client, until it closes its end, and to it.

    Meanwhile descriptor 0 is empty and descriptor 1 is standard error, so that only messages reach the client.
    """
    reading, writing = _set_aside()
    incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        with incoming, received, sent, outgoing:
            async with trio.open_nursery() as nursery:
                under_way = _UnderWay()
                nursery.start_soon(_read, reading, incoming, sent.clone(), under_way)
                nursery.start_soon(_write, writing, outgoing, incoming, under_way)
                yield received, sent
                nursery.cancel_scope.cancel()
    finally:
        os.dup2(reading, 0)
        os.dup2(writing, 1)


def _set_aside() -> tuple[int, int]:
    """Return new descriptors for the connection. They are never closed: a thread may still wait on one."""
    reading, writing = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return reading, writing


class _UnderWay:
    """The client's unanswered requests, without `subscriptions/listen`, which is answered at its end."""

    def __init__(self) -> None:
        self._ids: set[types.RequestId] = set()
        self._fewer = trio.Event()

    def received(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest) and message.method != _ENDLESS:
            self._ids.add(message.id)
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            cancelled = (message.params or {}).get("requestId")  # it may never be answered
            if isinstance(cancelled, str | int):
                self._ended(cancelled)

    def sent(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and message.id is not None:
            self._ended(message.id)

    async def room(self) -> None:
        """Wait until there are fewer than `MOST_UNDER_WAY`."""
        while len(self._ids) >= MOST_UNDER_WAY:
            self._fewer = trio.Event()
            await self._fewer.wait()

    def _ended(self, request_id: types.RequestId) -> None:
        self._ids.discard(request_id)
        self._fewer.set()


async def _read(
    descriptor: int,
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
    answers: MemoryObjectSendStream[SessionMessage],
    under_way: _UnderWay,
) -> None:
    splitter = LineSplitter(MAX_MESSAGE)
    with incoming, answers:
        while True:
            # A cancelled read is abandoned: nothing ends a read of a terminal or a pipe.
            try:
                chunk = await trio.to_thread.run_sync(os.read, descriptor, _CHUNK, abandon_on_cancel=True)
            except OSError:
                return
            if not chunk:
                return
            try:
                lines = splitter.feed(chunk)
            except LineTooLong:
                log.error("a message of more than %d bytes: the client is let go", MAX_MESSAGE)
                return
            for line in lines:
                try:
                    await _take(bytes(line), incoming, answers, under_way)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return


async def _take(
    line: bytes,
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
    answers: MemoryObjectSendStream[SessionMessage],
    under_way: _UnderWay,
) -> None:
    """Pass one message on. Answer an invalid line here: the SDK would not, and the client would wait for ever."""
    if not line.strip():
        return
    if has_too_many_values(line):
        error = types.ErrorData(code=types.INVALID_REQUEST, message=f"more than {MOST_VALUES} values in one message")
        await answers.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=None, error=error)))
        return
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        refusal = _refusal(line)
        if refusal is not None:
            await answers.send(SessionMessage(refusal))
        return
    await under_way.room()
    under_way.received(message)
    await incoming.send(SessionMessage(message))


def _refusal(line: bytes) -> types.JSONRPCError | None:
    """Return the answer to an invalid line (JSON-RPC 2.0, section 5.1); None for an invalid response."""
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        return types.JSONRPCError(
            jsonrpc="2.0", id=None, error=types.ErrorData(code=types.PARSE_ERROR, message="no JSON")
        )
    if isinstance(found, dict) and "method" not in found:
        return None
    error = types.ErrorData(code=types.INVALID_REQUEST, message="no JSON-RPC message in valid Unicode")
    request_id = found.get("id") if isinstance(found, dict) else None
    try:
        return types.JSONRPCError.model_validate_json(
            json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error.model_dump()}), strict=True
        )
    except ValidationError:  # an invalid id
        return types.JSONRPCError(jsonrpc="2.0", id=None, error=error)


async def _write(
    descriptor: int,
    outgoing: MemoryObjectReceiveStream[SessionMessage],
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
    under_way: _UnderWay,
) -> None:
    async for message in outgoing:
        text = message.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
        try:
            await trio.to_thread.run_sync(_write_all, descriptor, text.encode(), abandon_on_cancel=True)
        except OSError:
            incoming.close()  # the client has closed its end
            return
        under_way.sent(message.message)


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
