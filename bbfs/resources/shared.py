"""The contents that machines share: which resources the shared tier is asked for, and what is believed of it.

A machine that has reason of its own to doubt what it knows (its source has announced a change or describes a resource
otherwise, announcements may have been missed, the user wants it fresh) does not take what was asked for before that,
whoever has fetched it. What another machine says to have changed is asked for again, of the tier first.

Between two awaits a task is alone; nothing here locks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import trio
from cachetools import LRUCache

from bbfs.resources.cache.tier import Cached, SharedTier
from bbfs.resources.catalog.record import Record
from bbfs.resources.sharing_policy import may_be_shared
from bbfs.resources.source import Source
from bbfs.sources import CanLogIn

DOUBTS = 10_000
"""Resources with a doubt of their own; beyond that, the oldest doubt is one about all of its source."""
PUTS_AT_ONCE = 8
"""Fewer than the requests that a tier makes at once, so that no reader waits for what is put behind its back."""
TELLING_PATIENCE = 1.0
"""Seconds that a reader waits until the others are told that what it wants has changed."""
NANOSECONDS = 1e9

Key = tuple[str, str | None]
"""Fingerprint of a source and native URI; None for all of the source."""


@dataclass(slots=True)
class _Telling:
    """The other machines are being told of a change. changes: how many there were since that began."""

    changes: int = 1
    done: trio.Event = field(default_factory=trio.Event)


class SharedContents:
    """The shared tier for the sources that may use it. Nothing here raises but cancellation, and every wait is bounded.

    nursery: for what is told to the tier behind a reader's back. clock: seconds since the epoch.
    """

    def __init__(self, nursery: trio.Nursery, tier: SharedTier, clock: Callable[[], float]) -> None:
        self.run = tier.run
        self._nursery = nursery
        self._tier = tier
        self._clock = clock
        self._puts = trio.CapacityLimiter(PUTS_AT_ONCE)
        self._claimed: set[Key] = set()
        self._waiting: dict[Key, trio.CancelScope] = {}
        self._telling: dict[Key, _Telling] = {}
        self._doubts: LRUCache[tuple[str, str], float] = LRUCache(DOUBTS)
        self._doubted_sources: dict[str, float] = {}

    @staticmethod
    def has(source: Source) -> bool:
        """Whether the contents of a source are shared, as things are now."""
        handler = source.handler
        return may_be_shared(source.data, logged_in=isinstance(handler, CanLogIn) and handler.logged_in)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def claim(self, source: Source, record: Record) -> Cached | None:
        """What another machine has loaded, and is still fresh; one that loads it now is waited for.

        Else None: the source is to be asked, and `give_up` to be called when the load has ended.
        """
        key = (source.fingerprint, record.metadata.native_uri)
        if record.on_open or not self.has(source) or not await self._are_told(key):
            return None
        found = await self._claim(source, key, self._doubted_until(source, record))
        if found is not None and self._is_outdated(source, record, found):
            known_at = max(record.listed_at, record.fetched_at or 0.0)
            found = await self._claim(source, key, max(known_at, self._doubted_until(source, record)))
        return found

    async def _claim(self, source: Source, key: tuple[str, str], newer_than: float) -> Cached | None:
        if (waiting := self._waiting.pop(key, None)) is not None:
            waiting.cancel()  # it would be put under this claim, as what this load has brought
            self._tier.give_up(*key)
        left = trio.current_effective_deadline() - trio.current_time()
        timeout = max(0.0, min(source.data.policy.timeout, left))
        found = await self._tier.claim(*key, timeout=timeout, newer_than=newer_than)
        if found is None:
            self._claimed.add(key)
        return found

    def _doubted_until(self, source: Source, record: Record) -> float:
        """What was asked for before this (seconds since the epoch) is not believed to be the source's any more."""
        own = (source.fingerprint, record.metadata.native_uri)
        doubted = max(self._doubts.get(own, 0.0), self._doubted_sources.get(own[0], 0.0), record.doubted_until)
        modified_ns = record.metadata.modified_ns
        return doubted if modified_ns is None else max(doubted, min(modified_ns / NANOSECONDS, self._clock()))

    @staticmethod
    def _is_outdated(source: Source, record: Record, found: Cached) -> bool:
        """Whether this machine knows of another version that is newer, or of one of another size."""
        if record.digest is not None and record.fetched_at is not None:
            return record.digest != found.version and found.fetched_at < record.fetched_at
        declared = record.metadata.size
        return len(found.parts) == 1 and declared not in (None, found.size) and not source.misstates_sizes

    async def last(self, source: Source, record: Record) -> Cached | None:
        """What was shared of a resource at last, however old."""
        if record.on_open or not self.has(source):
            return None
        return await self._tier.get(source.fingerprint, record.metadata.native_uri)

    # -- writing -----------------------------------------------------------------------------------------------------

    def put(self, source: Source, record: Record, cached: Cached) -> None:
        """Share what a load has answered, if that was claimed."""
        key = (source.fingerprint, record.metadata.native_uri)
        if key in self._claimed:
            self._claimed.discard(key)
            scope = self._waiting[key] = trio.CancelScope()
            self._nursery.start_soon(self._put, key, cached, scope)

    async def _put(self, key: tuple[str, str], cached: Cached, scope: trio.CancelScope) -> None:
        with scope:
            async with self._puts:
                if self._waiting.get(key) is scope:
                    del self._waiting[key]
                    await self._tier.put(*key, cached)

    def give_up(self, source: Source, record: Record) -> None:
        """A load is over, whatever came of it: unless it was put, the others load for themselves. Never waits."""
        key = (source.fingerprint, record.metadata.native_uri)
        if key in self._claimed:
            self._claimed.discard(key)
            self._tier.give_up(*key)

    # -- what changes ------------------------------------------------------------------------------------------------

    def doubt(self, source: Source, uri: str | None) -> None:
        """This machine takes nothing of a resource (None: of the source) any more that was asked for until now."""
        now, fingerprint = self._clock(), source.fingerprint
        if uri is None:
            self._doubted_sources[fingerprint] = now
            return
        key = (fingerprint, uri)
        if len(self._doubts) >= DOUBTS and key not in self._doubts:
            (oldest, _), since = self._doubts.popitem()
            self._doubted_sources[oldest] = max(since, self._doubted_sources.get(oldest, 0.0))
        self._doubts[key] = now

    def tell(self, source: Source, uri: str | None) -> None:
        """The source itself has said that a resource (None: any of its resources) changed: every machine is told."""
        if not self.has(source):
            return
        key = (source.fingerprint, uri)
        if key in self._telling:
            self._telling[key].changes += 1
        else:
            telling = self._telling[key] = _Telling()
            self._nursery.start_soon(self._tell, key, telling)

    async def _tell(self, key: Key, telling: _Telling) -> None:
        told = 0
        try:
            while told != telling.changes:  # what changes while it is told is told once more
                told = telling.changes
                await self._tier.drop(*key)
        finally:
            del self._telling[key]
            telling.done.set()

    async def _are_told(self, key: tuple[str, str]) -> bool:
        """Wait until the others are told of a change, or that would take a claim along. Says whether they are."""
        with trio.move_on_after(TELLING_PATIENCE):
            while telling := self._telling.get(key) or self._telling.get((key[0], None)):
                await telling.done.wait()
            return True
        return False
