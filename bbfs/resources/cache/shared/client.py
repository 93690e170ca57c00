"""The client library of Valkey and Redis, as configured here. Importing this needs the extra `shared`."""

import ssl
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha1
from typing import Any

from coredis import Redis, RedisCluster
from coredis.client import Client
from coredis.connection import TCPConnection, TCPLocation, UnixDomainSocketConnection, UnixDomainSocketLocation
from coredis.exceptions import ClusterError, NoScriptError, TryAgainError
from coredis.retry import NoRetryPolicy

from bbfs.model.values import SharedCache
from bbfs.resources.cache.shared.cluster import NodesPool
from bbfs.resources.cache.shared.pool import CONNECTIONS, Pool
from bbfs.resources.cache.shared.sentinel import PrimaryPool

PASSING = (ClusterError, TryAgainError)
"""Errors of one request to a cluster that say nothing about the next: keys of a script are on two nodes for a moment.

The library repeats such a request some times before it raises `ClusterError`.
"""


def open_client(settings: SharedCache, timeout: float, following: float) -> Redis[bytes] | RedisCluster[bytes]:
    """Return a client that is not connected yet, without retries; TLS verifies as the system does.

    timeout: seconds for connecting, and for one answer. following: seconds between questions for the present primary.
    """
    options: dict[str, Any] = {
        "db": settings.database,
        "username": settings.username,
        "password": settings.password,
        "connect_timeout": timeout,
        "stream_timeout": timeout,
        "timeout": timeout,
        "max_connections": CONNECTIONS,
        "client_name": "bbfs",
    }
    if settings.tls:
        options["ssl_context"] = ssl.create_default_context()
    if settings.form == "cluster":
        nodes = NodesPool(settings, **options)
        return RedisCluster(connection_pool=nodes, verify_version=False, retry_policy=NoRetryPolicy())
    pool: Pool
    if settings.form == "sentinel":
        pool = PrimaryPool(settings, following, **options)
    elif settings.socket is not None:
        location = UnixDomainSocketLocation(settings.socket)
        pool = Pool(connection_class=UnixDomainSocketConnection, location=location, **options)
    else:
        pool = Pool(connection_class=TCPConnection, location=TCPLocation(settings.host, settings.port), **options)
    return Redis(connection_pool=pool, verify_version=False, retry_policy=NoRetryPolicy())


async def run_script(client: Client[bytes], text: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
    """Return the answer of a script, which the server may have from an earlier call.

    One server gets the request on the connection of the pool: the ways of the library for commands of all kinds take
    longer than the request. They are for clusters, which redirect requests.
    """
    pool = client.connection_pool
    if not isinstance(pool, Pool):
        return await client.register_script(text)(keys, arguments)
    async with pool.acquire() as connection:
        request = connection.create_request(b"EVALSHA", _sha1(text), len(keys), *keys, *arguments)
    try:
        return await request
    except NoScriptError:
        async with pool.acquire() as connection:
            request = connection.create_request(b"EVAL", text, len(keys), *keys, *arguments)
        return await request


@lru_cache
def _sha1(text: str) -> str:
    return sha1(text.encode(), usedforsecurity=False).hexdigest()
