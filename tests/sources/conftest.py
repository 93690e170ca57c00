"""Fixtures for tests of several kinds of sources: a server with one answer, and a web site."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import pytest
import trio
from web_site import WebSite


@pytest.fixture
def answering(nursery: trio.Nursery) -> Callable[..., Awaitable[str]]:
    """Starts a server that gives one answer, in pieces, and returns its URL."""

    async def start(*pieces: bytes, last: bytes = b"") -> str:
        async def serve(stream: trio.SocketStream) -> None:
            await stream.receive_some()
            try:
                for piece in chain(pieces, repeat(last) if last else ()):
                    await stream.send_all(piece)
                await stream.aclose()
            except trio.BrokenResourceError:
                pass

        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        return f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"

    return start


@pytest.fixture
def site(tmp_path: Path) -> Iterator[WebSite]:
    site = WebSite(tmp_path)
    yield site
    site.stop()
