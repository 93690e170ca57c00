"""The tier that machines share: which sources use it, and which of its contents this machine accepts.

A machine may have its own reason to distrust older contents: its source announced a change or describes a resource
otherwise, announcements may have been missed, the user asked for a refresh. Then it accepts nothing that was requested
before, by any machine. After another machine's invalidation it asks the tier first.

Between two awaits a task is alone; nothing here locks.

Two machines share a source if their configurations of it are equal (`source.fingerprint`). That must mean equal
contents, and contents that are not personal. So by default (`DataSource.shared` is None) only an MCP server over HTTP
is shared, and only if it answers the same to every client:

- no `auth`, no headers, no secret in its definition, no user or query in the URL: its answers may be for one user. The
  same holds after a login (`bbfs login`);
- no `tools` and no `roots`: they act, or look at folders, for this user;
- not on this machine (`localhost`): there the same URL means another server on every machine. For the same reason no
  program started here, and no local folder, which is read faster than any server anyway.

`shared = true` overrides this, `shared = false` excludes a source.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

import trio
from cachetools import LRUCache

from bbfs.model.values import DataSource, McpServer
from bbfs.resources.cache.tier import LISTING, Cached, SharedTier
from bbfs.resources.loading.shared_listing import SharedListing
from bbfs.resources.loading.tiers import Load
from bbfs.resources.source import Source
from bbfs.sources import CanShareListing
from bbfs.sources.content.memory import MemoryContent

MOST_INVALIDATED = 10_000
"""Resources invalidated one by one; beyond that, the oldest one counts for its whole source."""
PUTS_AT_ONCE = 64
"""Write-behind under way. The tier bounds what readers might wait for."""
TELLING_PATIENCE = 1.0
"""Seconds that a reader waits until the other machines are notified of a change of what it wants."""
NANOSECONDS = 1e9

Key = tuple[str, str | None]
"""Fingerprint of a source and native URI; None for all of the source."""


@dataclass(slots=True)
class _Telling:
    """A notification of the other machines under way. changes: how many there were since it began."""

    changes: int = 1
    done: trio.Event = field(default_factory=trio.Event)


class SharedContents:
    """The shared tier, for the sources that may use it.

    nursery: for write-behind. in_memory: bytes; larger contents are not accepted. clock: seconds since the epoch.
    """

    def __init__(self, nursery: trio.Nursery, tier: SharedTier, *, in_memory: int, clock: Callable[[], float]) -> None:
        self.run = tier.run
        self._nursery = nursery
        self._tier = tier
        self._in_memory = in_memory
        self._clock = clock
        self._puts = trio.CapacityLimiter(PUTS_AT_ONCE)
        self._may: dict[str, tuple[DataSource, bool]] = {}
        """By sources: the answer of `may_be_shared` to a definition. It takes longer than the rest of a claim."""
        self._claimed: set[Key] = set()
        self._waiting: dict[Key, trio.CancelScope] = {}
        self._telling: dict[Key, _Telling] = {}
        self._invalidated: LRUCache[tuple[str, str], float] = LRUCache(MOST_INVALIDATED)
        self._invalidated_sources: dict[str, float] = {}

    def has(self, source: Source) -> bool:
        """Return whether the contents of a source are shared. A login may change that."""
        data, may = self._may.get(source.key, (None, False))
        if data is not source.data:
            may = may_be_shared(source.data)
            self._may[source.key] = source.data, may
        return may and (source.data.shared is not None or source.logs_in is None or not source.logs_in.logged_in)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def get(self, load: Load) -> Cached | None:
        return await self._tier.get(*load.key) if not load.record.on_open and self.has(load.source) else None

    async def claim(self, load: Load) -> Cached | None:
        """Return what another machine has loaded and is fresh. Wait for a machine that is loading it.

        After None, the caller asks the source, and calls `release` when the load has ended.
        """
        record = load.record
        if record.on_open or not self.has(load.source) or not await self._are_notified(load.key):
            return None
        found = await self._claim(load, self._invalid_before(load))
        if found is not None and self._is_outdated(load, found):
            known_at = max(record.listed_at, record.fetched_at or 0.0)
            found = await self._claim(load, max(known_at, self._invalid_before(load)))
        return found if found is not None and found.size <= self._in_memory else None

    async def _claim(self, load: Load, newer_than: float) -> Cached | None:
        key = load.key
        if (waiting := self._waiting.pop(key, None)) is not None:
            waiting.cancel()  # it would be stored under this claim, as the result of this load
            self._tier.give_up(*key)
        left = trio.current_effective_deadline() - trio.current_time()
        timeout = max(0.0, min(load.source.data.policy.timeout, left))
        found = await self._tier.claim(*key, timeout=timeout, newer_than=newer_than)
        if found is None:
            self._claimed.add(key)
        return found

    def _invalid_before(self, load: Load) -> float:
        """Return the time (seconds since the epoch) before which no request is accepted any more."""
        record, fingerprint = load.record, load.key[0]
        before = max(
            self._invalidated.get(load.key, 0.0), self._invalidated_sources.get(fingerprint, 0.0), record.invalid_before
        )
        modified_ns = record.metadata.modified_ns
        return before if modified_ns is None else max(before, min(modified_ns / NANOSECONDS, self._clock()))

    @staticmethod
    def _is_outdated(load: Load, found: Cached) -> bool:
        """Return whether this machine knows a newer version, or another size."""
        record = load.record
        if record.digest is not None and record.fetched_at is not None:
            return record.digest != found.version and found.fetched_at < record.fetched_at
        declared = record.metadata.size
        return len(found.parts) == 1 and declared not in (None, found.size) and not load.source.misstates_sizes

    def listing(self, source: Source) -> SharedListing | None:
        """Return what shares the next listing of a source; None if machines do not share it."""
        if source.data.capabilities.write or not isinstance(source.handler, CanShareListing) or not self.has(source):
            return None
        key = source.fingerprint
        newer_than = max(self._invalidated.get((key, LISTING), 0.0), self._invalidated_sources.get(key, 0.0))
        return SharedListing(self._tier, source, newer_than, self._are_notified, self._nursery.start_soon, self._clock)

    # -- writing -----------------------------------------------------------------------------------------------------

    def put(self, load: Load, cached: Cached) -> None:
        """Share the answer of a load that was claimed."""
        in_memory = all(isinstance(part.content, MemoryContent) for part in cached.parts)
        if load.key in self._claimed and in_memory and cached.etag is None and not cached.stale:
            self._claimed.discard(load.key)
            scope = self._waiting[load.key] = trio.CancelScope()
            self._nursery.start_soon(self._put, load.key, cached, scope)

    async def _put(self, key: tuple[str, str], cached: Cached, scope: trio.CancelScope) -> None:
        with scope:
            async with self._puts:
                if self._waiting.get(key) is scope:
                    del self._waiting[key]
                    await self._tier.put(*key, cached)

    def release(self, load: Load) -> None:
        """End a load. If nothing was put, release the claim: waiting machines load it themselves."""
        if load.key in self._claimed:
            self._claimed.discard(load.key)
            self._tier.give_up(*load.key)

    # -- what changes ------------------------------------------------------------------------------------------------

    def invalidate(self, source: Source, uri: str | None, *, announced: bool) -> None:
        """Accept nothing of a resource (None: of the source) any more that was requested until now.

        announced: the source itself said so; notify the other machines.
        """
        if announced and self.has(source):
            self._notify((source.fingerprint, uri))
        now, fingerprint = self._clock(), source.fingerprint
        if uri is None:
            self._invalidated_sources[fingerprint] = now
            return
        key = (fingerprint, uri)
        if len(self._invalidated) >= MOST_INVALIDATED and key not in self._invalidated:
            (oldest, _), since = self._invalidated.popitem()
            self._invalidated_sources[oldest] = max(since, self._invalidated_sources.get(oldest, 0.0))
        self._invalidated[key] = now

    def _notify(self, key: Key) -> None:
        if key in self._telling:
            self._telling[key].changes += 1
        else:
            telling = self._telling[key] = _Telling()
            self._nursery.start_soon(self._tell, key, telling)

    async def _tell(self, key: Key, telling: _Telling) -> None:
        told = 0
        try:
            while told != telling.changes:  # a change meanwhile needs one more notification
                told = telling.changes
                await self._tier.drop(*key)
        finally:
            del self._telling[key]
            telling.done.set()

    async def _are_notified(self, key: tuple[str, str]) -> bool:
        """Wait until the other machines are notified of a change, as that drops claims. Return whether they are."""
        if not self._telling:
            return True
        with trio.move_on_after(TELLING_PATIENCE):
            while telling := self._telling.get(key) or self._telling.get((key[0], None)):
                await telling.done.wait()
            return True
        return False


def may_be_shared(source: DataSource) -> bool:
    """Return whether the contents of a source are shared, if this user has no login there."""
    if source.shared is not None or source.mcp is None:
        return bool(source.shared) and source.mcp is not None
    own_tools = source.tools not in ("off", "read-only")
    return not (source.auth or own_tools) and _is_public(source.mcp)


def _is_public(server: McpServer) -> bool:
    if server.transport == "stdio" or server.url is None:
        return False
    parts = urlsplit(server.url)
    personal = server.headers or server.env or server.secrets or server.roots or parts.query or "@" in parts.netloc
    return not personal and not _is_this_machine(parts.hostname or "")


def _is_this_machine(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        name = host.rstrip(".").lower()
        return name == "localhost" or name.endswith(".localhost")
    return address.is_loopback or address.is_unspecified or address.is_link_local
