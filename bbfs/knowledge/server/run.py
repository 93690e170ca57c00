"""Running the server: over standard input and output, or over Streamable HTTP."""

import signal

import trio

from bbfs.knowledge.server.service import KnowledgeServer
from bbfs.runtime.signals import ending
from bbfs.server_parts.http import Listener
from bbfs.server_parts.stdio import serve_one_client


def serve_stdio(server: KnowledgeServer) -> None:
    """Serve one client on standard input and output until its input ends.

    A signal ends the process at once: SQLite needs no clean-up.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    trio.run(serve_one_client, server, trio.Event())


def serve_http(server: KnowledgeServer, listener: Listener) -> None:
    """Serve any number of clients until an ending signal comes."""

    async def run() -> None:
        async with ending() as stop:
            await listener.run(server, stop)

    trio.run(run)
