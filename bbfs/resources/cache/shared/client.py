"""The client library of Valkey and Redis, as configured here. Importing this needs the extra `shared`."""

import ssl
from types import TracebackType
from typing import Any

from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from coredis import Redis
from coredis.connection import (
    BaseConnection,
    TCPConnection,
    TCPLocation,
    UnixDomainSocketConnection,
    UnixDomainSocketLocation,
)
from coredis.pool import ConnectionPool
from coredis.retry import NoRetryPolicy

from bbfs.model.values import SharedCache

CONNECTIONS = 2
"""One that listens, and one for all requests: the client pipelines them."""


class _Pool(ConnectionPool[BaseConnection]):
    """A connection pool that closes the buffers of its connections.

    The library leaves them open after a failed connection, which causes ResourceWarnings.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._made: list[BaseConnection] = []

    async def _construct_connection(self) -> BaseConnection:
        connection = await super()._construct_connection()
        self._made.append(connection)
        return connection

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(exc_type, exc, traceback)
        finally:
            for connection in self._made:
                for value in vars(connection).values():
                    if isinstance(value, MemoryObjectSendStream | MemoryObjectReceiveStream):
                        value.close()


def open_client(settings: SharedCache, timeout: float) -> Redis[bytes]:
    """Return a client that is not connected yet, without retries; TLS verifies as the system does.

    timeout: seconds for connecting, and for one answer.
    """
    options: dict[str, Any]
    if settings.socket is not None:
        location = UnixDomainSocketLocation(settings.socket)
        options = {"connection_class": UnixDomainSocketConnection, "location": location}
    else:
        options = {"connection_class": TCPConnection, "location": TCPLocation(settings.host, settings.port)}
        if settings.tls:
            options["ssl_context"] = ssl.create_default_context()
    pool = _Pool(
        db=settings.database,
        username=settings.username,
        password=settings.password,
        connect_timeout=timeout,
        stream_timeout=timeout,
        timeout=timeout,
        max_connections=CONNECTIONS,
        client_name="bbfs",
        **options,
    )
    return Redis(connection_pool=pool, verify_version=False, retry_policy=NoRetryPolicy())
