"""Running the server: over standard input and output, or over Streamable HTTP."""

import logging
import signal
import socket
from contextlib import closing

import anyio
import uvicorn
from mcp.server.stdio import stdio_server

from bbfs.knowledge.database.store import Store
from bbfs.knowledge.server.service import KnowledgeServer

HTTP_PATH = "/mcp"
# Seconds that open streams get to end when the HTTP server stops.
_SHUTDOWN_TIMEOUT = 3


def serve_stdio(store: Store, *, ttl: float, interval: float) -> None:
    """Serves one client on standard input and output, until its input ends. A signal ends the process at once: the
    reading thread could not be stopped, and SQLite needs no farewell.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    async def run() -> None:
        server = KnowledgeServer(store, ttl=ttl, interval=interval)
        async with stdio_server() as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options())

    anyio.run(run, backend="trio")


def serve_http(store: Store, host: str, port: int, *, ttl: float, interval: float) -> None:
    """Serves any number of clients at `http://host:port/mcp` (port 0: a free one) until SIGINT or SIGTERM. The address
    goes to standard output once connections are taken. Raises OSError when the address cannot be had.

    uvicorn runs on asyncio only, so this does.
    """
    with closing(_bind(host, port)) as listener:
        shown = f"[{host}]" if ":" in host else host
        knowledge = KnowledgeServer(store, ttl=ttl, interval=interval)
        app = knowledge.streamable_http_app(streamable_http_path=HTTP_PATH, host=host)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT, lifespan="on"
        )
        # uvicorn raises the signal that stopped it once more when it is done; that then means nothing, and we exit 0.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        print(f"http://{shown}:{listener.getsockname()[1]}{HTTP_PATH}", flush=True)
        anyio.run(lambda: _HttpServer(config, knowledge).serve(sockets=[listener]), backend="asyncio")


class _HttpServer(uvicorn.Server):
    """uvicorn, which on its own would wait for streams that have no end."""

    def __init__(self, config: uvicorn.Config, knowledge: KnowledgeServer) -> None:
        super().__init__(config)
        self._knowledge = knowledge

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the streams first. Those of the handshake era have no proper end, of which uvicorn would complain."""
        self._knowledge.close_streams()
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener
