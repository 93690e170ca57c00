"""The MCP servers that bbfs talks to: one supervised connection a server, listings, contents and events.

Every method belongs to the event loop's thread. Requests wait for as long as a server takes, so callers bound them with
a deadline; connecting is bounded here as well, by the `timeout` of the source's policy.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

import trio

from bbfs.errors import NotFound, NotSupported
from bbfs.mcp_manager.connection import Connection, RequestCounts
from bbfs.mcp_manager.translate import (
    Entries,
    ResourceEntry,
    TemplateEntry,
    encodable,
    loaded,
    loaded_size,
    next_cursor,
    page,
    resource_entry,
    template_entry,
    ttl_seconds,
)
from bbfs.model import Loaded, McpServer, Policy, SourceEvent, SourceState

__all__ = ["Entries", "MCPManager", "RequestCounts", "ResourceEntry", "TemplateEntry"]

T = TypeVar("T")
log = logging.getLogger("bbfs.mcp")

MAX_MESSAGE = 256 << 20
"""Bytes of one message of a server; a larger one is a `ProtocolViolation`."""
MAX_PAGES = 10_000
"""Pages of one listing (`docs/semantics.md` S25)."""
_THREAD_FROM_CHARACTERS = 1 << 20
_THREAD_FROM_ENTRIES = 1000
_LIBRARY_LOGGERS = {"httpx2": logging.WARNING, "mcp": logging.CRITICAL, "client": logging.CRITICAL}
"""httpx2 logs whole URLs, which may hold secrets, at INFO; the SDK logs with tracebacks what it reports too."""


class MCPManager:
    """All connections to MCP servers. `run` owns them; everything else may be called before, during and after.

    clock: seconds, monotonic, for the pauses between tries to connect; random: for their jitter. max_message: bytes.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = trio.current_time,
        random: Random | None = None,
        max_message: int = MAX_MESSAGE,
    ) -> None:
        self._clock = clock
        self._random = random or Random()
        self._max_message = max_message
        self._connections: dict[str, Connection] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the connections until cancelled; no server process is left then. Ending them takes 3 seconds at most."""
        for name, level in _LIBRARY_LOGGERS.items():
            logging.getLogger(name).setLevel(level)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for connection in self._connections.values():
                nursery.start_soon(connection.run)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def add(self, server_id: str, server: McpServer, policy: Policy) -> None:
        """Make a server known. It is connected to when first used. Raises ValueError for an id that is taken."""
        if server_id in self._connections:
            raise ValueError(f"there is an MCP server '{server_id}' already")
        connection = Connection(
            server_id, server, policy, clock=self._clock, random=self._random, max_message=self._max_message
        )
        self._connections[server_id] = connection
        if self._nursery is not None:
            self._nursery.start_soon(connection.run)

    async def list_resources(self, server_id: str) -> Entries[ResourceEntry]:
        """All resources that the server lists, each URI once, in its order. Raises BbfsError."""
        return await self._list(server_id, "resources/list", "resources", resource_entry, lambda entry: entry.uri)

    async def list_resource_templates(self, server_id: str) -> Entries[TemplateEntry]:
        """All resource templates that the server lists. Raises BbfsError."""
        return await self._list(
            server_id,
            "resources/templates/list",
            "resourceTemplates",
            template_entry,
            lambda entry: entry.uri_template,
        )

    async def load_resource(self, server_id: str, native_uri: str) -> Loaded:
        """The content of one resource: one part, or several where the server answers with several. Raises BbfsError."""
        connection = self._connection(server_id)
        if not encodable(native_uri):
            raise NotFound("a URI that cannot be written in UTF-8")
        session, result = await connection.request("resources/read", {"uri": native_uri}, reading=True)
        ttl = ttl_seconds(result) if session.modern else None
        if loaded_size(result) >= _THREAD_FROM_CHARACTERS:
            return await trio.to_thread.run_sync(loaded, result, ttl)
        return loaded(result, ttl)

    def state(self, server_id: str) -> SourceState:
        """How the connection to a server is doing."""
        return self._connection(server_id).state

    def requests(self, server_id: str) -> RequestCounts:
        """How many requests went to a server so far."""
        return replace(self._connection(server_id).counts)

    def subscribe_events(self, server_id: str, sink: Callable[[SourceEvent], None]) -> None:
        """Have `sink` called, in the event loop, when the server tells of a change. It must not block."""
        self._connection(server_id).sinks.append(sink)

    def interested(self, server_id: str, native_uri: str) -> None:
        """Ask the server to tell when this resource changes, as far as it can. The latest 256 are kept."""
        if encodable(native_uri):
            self._connection(server_id).interests.add(native_uri)

    def _connection(self, server_id: str) -> Connection:
        try:
            return self._connections[server_id]
        except KeyError:
            raise NotFound(f"no MCP server '{server_id}'") from None

    async def _list(
        self,
        server_id: str,
        method: str,
        key: str,
        parse: Callable[[Any], T | None],
        identity: Callable[[T], str],
    ) -> Entries[T]:
        """Every page of a listing, as far as the bounds allow."""
        connection = self._connection(server_id)
        found: dict[str, T] = {}
        ttls: list[float] = []
        invalid = 0
        problem: str | None = None
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            try:
                session, result = await connection.request(method, {"cursor": cursor} if cursor else None)
            except NotSupported:
                if cursor is None:
                    return Entries(())
                raise
            entries, wrong = await _parse(result, key, parse)
            invalid += wrong
            for entry in entries:
                found.setdefault(identity(entry), entry)
            if session.modern and (ttl := ttl_seconds(result)) is not None:
                ttls.append(ttl)
            cursor = next_cursor(result)
            if cursor is None:
                break
            if cursor in seen:
                problem = "the server repeats a page cursor: the listing may be incomplete"
                break
            seen.add(cursor)
        else:
            problem = f"the server has more than {MAX_PAGES} pages: the listing is incomplete"
        problems = [f"{invalid} invalid {'entry' if invalid == 1 else 'entries'} left out"] if invalid else []
        problems += [problem] if problem else []
        for text in problems:
            log.warning("%s: %s: %s", server_id, method, text)
        return Entries(tuple(found.values()), min(ttls, default=None), "; ".join(problems) or None)


async def _parse(result: dict[str, Any], key: str, parse: Callable[[Any], T | None]) -> tuple[list[T], int]:
    """As `translate.page`, a long page in a thread, so that other servers go on meanwhile."""
    raw = result.get(key)
    if isinstance(raw, list) and len(raw) >= _THREAD_FROM_ENTRIES:
        return await trio.to_thread.run_sync(page, result, key, parse)
    return page(result, key, parse)
