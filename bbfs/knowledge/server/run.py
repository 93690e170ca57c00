"""Running the server: over standard input and output, or over Streamable HTTP."""

import signal
from typing import TypedDict, Unpack

import trio

from bbfs.knowledge.database.store import Store
from bbfs.knowledge.server.service import KnowledgeServer
from bbfs.serving.http import Listener
from bbfs.serving.signals import ending
from bbfs.serving.stdio import serve_one_client


class Options(TypedDict):
    """The options of `KnowledgeServer`."""

    ttl: float
    interval: float
    writable: bool


def serve_stdio(store: Store, **options: Unpack[Options]) -> None:
    """Serve one client on standard input and output until its input ends.

    A signal ends the process at once: SQLite needs no clean-up.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    trio.run(serve_one_client, KnowledgeServer(store, **options), trio.Event())


def serve_http(store: Store, listener: Listener, **options: Unpack[Options]) -> None:
    """Serve any number of clients until an ending signal comes."""

    async def run() -> None:
        async with ending() as stop:
            await listener.run(KnowledgeServer(store, **options), stop)

    trio.run(run)
