"""The head of an answer has a bound, and its body none here."""

import gzip
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import httpcore2
import httpx2
import pytest
import trio

from bbfs.model.values import DataSource, Policy
from bbfs.sources.http.client import WebClient, unguarded_client
from bbfs.sources.http.heads import BoundedHeads, HeadStream, answered

HINT = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nconnection: close\r\n"


@pytest.mark.parametrize(
    ("first", "last"), [(b"", HINT * 1000), (OK, b"x-a: y\r\n" * 1000), (OK + b"x-a: ", b"y" * 10_000)], ids=len
)
async def test_a_head_without_end_is_a_protocol_error(answering: Callable[..., Any], first: bytes, last: bytes) -> None:
    url = await answering(*filter(None, (first,)), last=last)
    async with unguarded_client(timeout=20) as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get(url)


async def test_what_a_server_sends_is_acknowledged_at_once(nursery: trio.Nursery) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        while await stream.receive_some():
            await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx")

    (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"
    acknowledged: list[int] = []

    def note(stream: HeadStream) -> None:
        made = stream.get_extra_info("socket")
        acknowledged.append(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))

    pool = httpcore2.AsyncConnectionPool(network_backend=BoundedHeads())
    for _ in range(5):  # by the second request the kernel takes the connection for a dialogue, and acknowledges late
        response = await answered(pool, httpcore2.Request("GET", url, headers=[("host", "here")]))
        note(response.extensions["network_stream"])
        await response.aread()
        note(response.extensions["network_stream"])
        await response.aclose()
    await pool.aclose()
    assert acknowledged == [1] * 10


async def test_interim_answers_and_a_long_body_are_read(answering: Callable[..., Any]) -> None:
    url = await answering(HINT * 100, OK + b"\r\n", b"x" * (4 << 20))
    async with unguarded_client(timeout=20) as client:
        response = await client.get(url)
        assert (response.status_code, len(response.content)) == (200, 4 << 20)


class Steps(trio.abc.Instrument):
    """The steps of one task: the CPU time (seconds) of the longest, in which nothing else could run, and of all."""

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self.longest = self.all = 0.0
        self._task = task
        self._since = time.thread_time()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._since = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            step = time.thread_time() - self._since
            self.longest, self.all = max(self.longest, step), self.all + step


@pytest.mark.parametrize("by", ["web", "mcp"])
async def test_chunks_of_one_byte_let_others_run(answering: Callable[..., Any], by: str) -> None:
    chunks = 200_000
    url = await answering(OK + b"transfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * chunks, b"0\r\n\r\n")
    steps = Steps(trio.lowlevel.current_task())
    trio.lowlevel.add_instrument(steps)
    try:
        if by == "web":
            source = DataSource("web", "web", "url", "bb", "bb-url+web", policy=Policy(timeout=60))
            client = WebClient(source, allow_private=True)
            pieces: list[int] = []
            async with client.stream(url) as stream:
                pieces.extend([len(piece) async for piece in stream])
            await client.aclose()
            assert (sum(pieces), pieces[0]) == (chunks, 1)
            assert len(pieces) < 20
        else:
            async with unguarded_client(timeout=60) as plain, plain.stream("GET", url) as response:
                assert sum([len(piece) async for piece in response.aiter_raw()]) == chunks
    finally:
        trio.lowlevel.remove_instrument(steps)
    assert steps.longest < steps.all / 10


async def test_a_body_that_grows_very_much_lets_others_run(answering: Callable[..., Any]) -> None:
    size = 48 << 20
    url = await answering(OK + b"content-encoding: gzip\r\n\r\n", gzip.compress(bytes(size)))
    steps = Steps(trio.lowlevel.current_task())
    client = WebClient(DataSource("web", "web", "url", "bb", "bb-url+web"), allow_private=True)
    async with client.stream(url) as stream:
        trio.lowlevel.add_instrument(steps)
        try:
            assert sum([len(piece) async for piece in stream]) == size
        finally:
            trio.lowlevel.remove_instrument(steps)
    await client.aclose()
    assert steps.longest < steps.all / 4


async def test_errors_of_a_connection_are_those_of_httpx() -> None:
    with trio.socket.socket() as unused:
        await unused.bind(("127.0.0.1", 0))
        async with unguarded_client(timeout=5) as client:
            with pytest.raises(httpx2.ConnectError):
                await client.get(f"http://127.0.0.1:{unused.getsockname()[1]}/")
