"""The connections to the primary that sentinels name."""

import logging
from functools import partial
from typing import Any

import trio
from coredis import Redis
from coredis.connection import BaseConnection, TCPConnection, TCPLocation
from coredis.exceptions import StalePrimaryError

from bbfs.model.errors import ProtocolViolation, Unreachable
from bbfs.model.values import SharedCache
from bbfs.resources.cache.shared.members import Members
from bbfs.resources.cache.shared.pool import Pool, first_answer

log = logging.getLogger(__name__)


class PrimaryPool(Pool):
    """All connections of one client lead to one primary. Another primary ends the client, and the next one asks.

    A fail-over ends the connections to the primary before, unless that one is cut off from the sentinels and not from
    this machine. So the pool asks again every `following` seconds.
    """

    def __init__(self, settings: SharedCache, following: float, **options: Any) -> None:
        super().__init__(connection_class=TCPConnection, **options)
        self._settings = settings
        self._following = following
        self._members = Members(settings)
        login = {"username": settings.sentinel_username, "password": settings.sentinel_password, "db": 0}
        self._options = {**options, **login}

    async def _initialize(self) -> None:
        self.location = await self._primary()
        await super()._initialize()
        self.task_group.start_soon(self._follow)

    async def _construct_connection(self) -> BaseConnection:
        connection = await super()._construct_connection()
        connection.register_connect_callback(_expect_primary)
        return connection

    async def _follow(self) -> None:
        """Raise Unreachable once the sentinels name another primary. Sentinels that are away change nothing."""
        while True:
            await trio.sleep(self._following)
            try:
                present = await self._primary()
            except Exception:
                log.debug("shared cache: no sentinel answers; the primary is the one before", exc_info=True)
                continue
            if present != self.location:
                raise Unreachable("the sentinels name another primary")

    async def _primary(self) -> TCPLocation:
        """Return where the primary is. Raise an error if no sentinel says so, and ProtocolViolation for a stranger."""
        ask = partial(_ask, service=self._settings.service)
        _, (host, port) = await first_answer(self._settings.nodes, self._members, self._options, ask)
        self._members.check(host)
        return TCPLocation(host, port)


async def _ask(client: "Redis[bytes]", *, service: str) -> tuple[str, int]:
    found = await client.sentinel_get_master_addr_by_name(service)
    if not found:
        raise StalePrimaryError(f"the sentinels know no primary {service!r}")
    host, port = found
    if not 0 < port < 1 << 16:
        raise ProtocolViolation("a sentinel has named a port that does not exist")
    return host.decode() if isinstance(host, bytes) else host, port


async def _expect_primary(connection: BaseConnection) -> None:
    """Raise StalePrimaryError at a server that is a replica: a sentinel may not know of a fail-over yet."""
    role = await connection.create_request(b"ROLE", decode=True)
    if not isinstance(role, list) or role[0] != "master":
        raise StalePrimaryError("the sentinels name a server that is no primary")
