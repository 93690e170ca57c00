"""The connections to one server, and one look at a server that names others."""

from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, TypeVar

import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from coredis import Redis
from coredis.connection import BaseConnection, TCPConnection, TCPLocation
from coredis.exceptions import RedisError
from coredis.pool import ConnectionPool
from coredis.retry import NoRetryPolicy

from bbfs.resources.cache.shared.members import Members

T = TypeVar("T")
CONNECTIONS = 2
"""One that listens, and one for all requests: the client pipelines them."""


def close_buffers(connections: Iterable[BaseConnection]) -> None:
    """Close the buffers that the library leaves open after a failed connection, which causes ResourceWarnings."""
    for connection in connections:
        for value in vars(connection).values():
            if isinstance(value, MemoryObjectSendStream | MemoryObjectReceiveStream):
                value.close()


class Pool(ConnectionPool[BaseConnection]):
    """A connection pool that closes the buffers of its connections."""

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
            close_buffers(self._made)


async def first_answer(
    nodes: Iterable[tuple[str, int]],
    members: Members,
    options: dict[str, Any],
    ask: "Callable[[Redis[bytes]], Awaitable[T]]",
) -> tuple[str, T]:
    """Return the first answer of configured nodes, asked one after the other, and the host that has given it.

    A node that is silent costs its share of the time, so that the last one may still answer within all of it. members
    learn where the names of the nodes lead. options: those of a pool; `connect_timeout` is the time for all nodes.
    Raises the error of the last node if none answers.
    """
    nodes = list(nodes)
    share = options["connect_timeout"] / (len(nodes) + 1)
    failure: Exception = RedisError("no node is configured")
    for host, port in nodes:
        try:
            with trio.fail_after(share):
                await members.resolve(host)
                pool = Pool(connection_class=TCPConnection, location=TCPLocation(host, port), **options)
                client: Redis[bytes] = Redis(connection_pool=pool, verify_version=False, retry_policy=NoRetryPolicy())
                async with client:
                    return host, await ask(client)
        except Exception as error:  # noqa: BLE001 - an odd answer too: the next node may have a usable one
            failure = error
    raise failure
