"""Connections that bound the head of an answer: its interim answers and its headers.

httpcore2 goes through interim answers (1xx) in one go, as many as come, and the event loop waits meanwhile.

A server that writes the head and the body of an answer apart, as those on Python's `http.server` do, sends the body
only when the head is acknowledged (Nagle's algorithm, RFC 9293, section 3.7.4). The kernel of a client that has just
sent a request waits up to 40 ms with that acknowledgement, so it is told to send each one at once.
"""

import socket
import ssl
from typing import Any

import httpcore2

_PIECE = 1 << 11
"""Bytes of a head that are read at once: a few milliseconds of interim answers."""
_LONGEST = 1 << 17
"""Bytes of a head, its interim answers included."""


class HeadStream(httpcore2.AsyncNetworkStream):
    """A connection whose answers begin with a bounded head. `begin_body` ends the head of the current one."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._socket = stream.get_extra_info("socket")
        self._head: int | None = 0

    def begin_body(self) -> None:
        """Note that the head of the answer is complete."""
        self._head = None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return the next bytes. Raises httpcore2.RemoteProtocolError if a head is too long."""
        data = await self._stream.read(max_bytes if self._head is None else min(max_bytes, _PIECE), timeout)
        if data:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # the kernel forgets it (tcp(7))
        if self._head is None:
            return data
        self._head += len(data)
        if self._head > _LONGEST:
            raise httpcore2.RemoteProtocolError(f"the head of an answer of more than {_LONGEST} bytes")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._head = 0
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        return HeadStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class BoundedHeads(httpcore2.AsyncNetworkBackend):
    """A network back end whose connections bound heads. It connects to no socket of this machine."""

    def __init__(self) -> None:
        self._backend: httpcore2.AsyncNetworkBackend = httpcore2.TrioBackend()  # type: ignore[assignment]

    async def connect_tcp(self, *where: Any, **how: Any) -> httpcore2.AsyncNetworkStream:
        return HeadStream(await self._backend.connect_tcp(*where, **how))

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


async def answered(pool: httpcore2.AsyncConnectionPool, request: httpcore2.Request) -> httpcore2.Response:
    """Return the answer of a pool on `BoundedHeads`, with its body still to be read."""
    response = await pool.handle_async_request(request)
    stream = response.extensions.get("network_stream")
    if isinstance(stream, HeadStream):
        stream.begin_body()
    return response
