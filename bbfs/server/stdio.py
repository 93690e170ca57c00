"""One client on standard input and output, a JSON-RPC message a line.

The SDK has this too; this one ends at once when it is cancelled, whatever the client does with its ends of the pipes,
and takes any descriptors for them.
"""

import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import mcp_types as types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from bbfs.errors import ProtocolViolation
from bbfs.mcp_manager.lines import LineSplitter

log = logging.getLogger(__name__)

MAX_MESSAGE = 64 << 20
"""Bytes of one message of the client."""
_CHUNK = 1 << 16

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def stdio() -> AsyncGenerator[Streams]:
    """Where messages of the client come from, until it closes its end, and where those to it go.

    Meanwhile descriptor 0 is empty and descriptor 1 is standard error: nothing else writes between two messages.
    """
    reading, writing = _set_aside()
    incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        with incoming, received, sent, outgoing:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_read, reading, incoming)
                nursery.start_soon(_write, writing, outgoing, incoming)
                yield received, sent
                nursery.cancel_scope.cancel()
    finally:
        os.dup2(reading, 0)
        os.dup2(writing, 1)


def _set_aside() -> tuple[int, int]:
    """Descriptors of their own for the connection. They are never closed: a thread may still wait on one."""
    reading, writing = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return reading, writing


async def _read(descriptor: int, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    splitter = LineSplitter(MAX_MESSAGE)
    with incoming:
        while True:
            # Left to itself when this is cancelled: nothing else ends a read of a terminal or a pipe.
            try:
                chunk = await trio.to_thread.run_sync(os.read, descriptor, _CHUNK, abandon_on_cancel=True)
            except OSError:
                return
            if not chunk:
                return
            try:
                lines = splitter.feed(chunk)
            except ProtocolViolation:
                log.error("a message of more than %d bytes: the client is let go", MAX_MESSAGE)
                return
            for line in lines:
                if line.strip():
                    try:
                        await incoming.send(_message(bytes(line)))
                    except anyio.BrokenResourceError:
                        return


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError as error:
        return error


async def _write(
    descriptor: int,
    outgoing: MemoryObjectReceiveStream[SessionMessage],
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    async for message in outgoing:
        text = message.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
        try:
            await trio.to_thread.run_sync(_write_all, descriptor, text.encode(), abandon_on_cancel=True)
        except OSError:
            incoming.close()  # nobody reads any more: the end like any other
            return


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
