"""The contents in memory, the protocol of the tiers below, and the disk tier.

A tier raises nothing but cancellation, and bounds every wait: if it does not answer, the source is asked. Between two
awaits a task is alone.
"""

import logging
import os
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Protocol, TypeVar

import trio
from cachetools import LRUCache

from bbfs.model.values import Content, Part
from bbfs.resources.cache import pins
from bbfs.resources.cache.disk import TIDY_EVERY, DiskCache, Key
from bbfs.resources.cache.tier import Cached
from bbfs.resources.catalog.record import Record
from bbfs.resources.source import Source
from bbfs.sources.content.memory import MemoryContent

log = logging.getLogger(__name__)
T = TypeVar("T")

AROUND = 600
"""Bytes of memory that a content takes beside its own: its key, its version, and the objects that hold it."""
BEHIND, LONGEST_BEHIND = 1.0, 5.0
"""Seconds without a load before the loaded contents are written in one go; and seconds after the first load, if loads
never pause. A program that waits for its source has the processors first."""
BATCH = 256
"""Resources written in one go, so that an invalidation does not wait long."""
UNWRITTEN = 64 << 20
"""Bytes that may wait to be written; contents beyond that stay in memory only."""
UNEXPIRED = 10_000
"""Invalidations that may wait to be written one by one; with more, whole sources become stale on disk."""
DISK_PATIENCE = 5.0
"""Seconds that a reader waits for the disk before it asks the source."""
SETTLING_PATIENCE = 1.0
"""Seconds that a program waits for the disk after a change that the source has made."""


class _Evicting(LRUCache[Hashable, Content]):
    """An LRU cache that counts its evictions: contents that made room for others, not the discarded ones."""

    evictions = 0

    def popitem(self) -> tuple[Hashable, Content]:
        self.evictions += 1
        return super().popitem()


class ContentCache:
    """The contents in memory: an LRU cache within a budget of bytes. Nothing here waits.

    max_bytes: the budget. around: bytes that a content takes of it beside its own; one that fills the budget by itself
    may have all of it. An evicted content is dropped, never closed: open files go on reading it.
    """

    def __init__(self, max_bytes: int, around: int = AROUND) -> None:
        self.max_bytes = max_bytes
        self.hits = 0
        self._around = around
        self._entries = _Evicting(max_bytes, self._charge)

    def _charge(self, content: Content) -> int:
        """Return the bytes that a content takes of the budget. An empty one counts, which bounds their number."""
        return max(1, content.size, min(content.size + self._around, self.max_bytes))

    def get(self, key: Hashable, *, counts: bool = True) -> Content | None:
        """Return the content of `key`, or None. counts: whether that is a hit, and not the end of a miss."""
        try:
            content = self._entries[key]
        except KeyError:
            return None
        self.hits += counts
        return content

    def put(self, key: Hashable, content: Content) -> bool:
        """Replace the content of `key`. Return False if it is larger than the budget, and keep nothing."""
        self.discard(key)
        try:
            self._entries[key] = content
        except ValueError:
            return False
        return True

    def discard(self, key: Hashable) -> Content | None:
        """Remove `key` and return its content, or None."""
        return self._entries.pop(key, None)

    def discard_all(self, belongs: Callable[[Hashable], bool]) -> None:
        """Remove all contents whose keys belong to something."""
        for key in [key for key in self._entries if belongs(key)]:
            self.discard(key)

    def clear(self) -> None:
        """Remove all contents; the counters go on."""
        self._entries.clear()

    def __contains__(self, key: Hashable) -> bool:
        """Return whether `key` is cached, without counting that as a use."""
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def evictions(self) -> int:
        return self._entries.evictions

    @property
    def bytes(self) -> int:
        """The bytes that all contents take of the budget."""
        return int(self._entries.currsize)


class Load:
    """A load under way. It notes whether its resource was invalidated since it began.

    The record alone cannot tell that: it may be replaced or dropped meanwhile.
    """

    __slots__ = (
        "_invalidated", "_invalidations", "_writes", "_written_at", "asks", "began", "key", "on_disk", "record",
        "source",
    )  # fmt: skip

    def __init__(self, source: Source, record: Record) -> None:
        self.source = source
        self.record = record
        self.key: Key = (source.fingerprint, record.metadata.native_uri)
        self.on_disk = source.data.policy.disk and not record.metadata.on_open
        """True if the disk cache may keep the content."""
        self.asks = "disk"
        """The tier that is asked at the moment; `slot` while the load waits for its turn."""
        self.began = time.monotonic()
        self.restart()

    def restart(self) -> None:
        """Forget earlier invalidations: the request to the source or tier begins now."""
        self._invalidated = False
        self._invalidations = self.record.invalidations
        self._writes = self.record.writes
        self._written_at = self._written_now()

    def _written_now(self) -> float:
        return self.source.written_at(self.key[1]) if self.source.was_written else 0.0

    def invalidate(self) -> None:
        self._invalidated = True

    @property
    def invalidated(self) -> bool:
        return self._invalidated or self._invalidations != self.record.invalidations

    @property
    def is_overwritten(self) -> bool:
        """Return whether the mount has written the resource since: what comes may be from before."""
        return self._writes != self.record.writes

    @property
    def may_be_kept(self) -> bool:
        """Return whether a tier may keep what comes: the mount has changed neither the resource nor what makes it."""
        return not self.is_overwritten and self._written_at == self._written_now()


class Tier(Protocol):
    """A cache of contents by resource, for the sources that may use it."""

    async def get(self, load: Load) -> Cached | None:
        """Return what is cached of a resource, fresh or stale, or None."""
        ...

    async def claim(self, load: Load) -> Cached | None:
        """Return what may be served without asking the source, or None."""
        ...

    def put(self, load: Load, cached: Cached) -> None:
        """Cache the answer of a load, behind its reader."""
        ...


class DiskTier:
    """The disk cache of this machine, with write-behind.

    in_memory: bytes up to which the contents of a resource are read into memory. clock: seconds since the epoch.
    """

    def __init__(self, nursery: trio.Nursery, disk: DiskCache, *, in_memory: int, clock: Callable[[], float]) -> None:
        self.max_bytes = disk.max_bytes
        self._nursery = nursery
        self._disk = disk
        self._in_memory = in_memory
        self._clock = clock
        self._threads = trio.CapacityLimiter(4)
        self._writing = trio.Lock()
        self._marking = trio.Lock()
        self._scheduled = False
        self._unwritten: dict[Key, Cached] = {}
        self._unwritten_bytes = 0
        self._put_at = 0.0
        # Invalidated and not yet in the index, each with a number that tells it from a later invalidation.
        self._expired: dict[tuple[str, str | None], int] = {}
        self._numbers = count()
        self._overwritten: dict[Key, float] = {}
        self._overwritten_below: set[Key] = set()

    # -- reading -----------------------------------------------------------------------------------------------------

    async def get(self, load: Load) -> Cached | None:
        return await self.recall(load.key) if load.on_disk else None

    async def recall(self, key: Key) -> Cached | None:
        """Return what is cached under a key, fresh or stale, or None."""
        if (unwritten := self._unwritten.get(key)) is not None or self._disk.absent(*key):
            return unwritten
        with trio.move_on_after(DISK_PATIENCE):
            work = partial(_look_and_read, self._disk, key, self._in_memory)
            found = await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
            is_behind = key in self._overwritten or key in self._expired or (key[0], None) in self._expired
            if found is not None and is_behind:
                found = replace(found, stale=True)  # the index has not been updated yet
            return found
        log.warning("the disk cache does not answer")
        return None

    async def kept(self, fingerprint: str) -> dict[str, int]:
        """Return the bytes that are cached of each resource of a source, by URI."""
        kept = await self.run_on_disk(pins.kept, fingerprint)
        for (source, uri), cached in self._unwritten.items():
            if source == fingerprint and cached.parts:
                kept[uri] = cached.size
        return kept

    async def run_on_disk(self, work: Callable[..., T], *arguments: object) -> T:
        """Return the result of a function of the disk cache, in a thread."""
        work = partial(work, self._disk, *arguments)
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)

    async def claim(self, load: Load) -> Cached | None:
        found = None if load.record.invalidated else await self.get(load)
        stale = found is None or found.stale or load.invalidated or not self._is_current(load, found)
        return None if stale else found

    def _is_current(self, load: Load, found: Cached) -> bool:
        """Return whether `found` is fresh, and no older than what the record knows."""
        source, record, now = load.source, load.record, self._clock()
        if found.parts and found.etag is not None and record.fresh(now) and record.digest == found.etag:
            return True  # the source has confirmed the version without a load
        if not found.parts or not found.fresh(now) or source.is_refreshed(record.path, found.fetched_at):
            return False
        if record.fetched_at is None or found.fetched_at > record.fetched_at:
            return True
        return record.fresh(now) and record.digest == found.version

    # -- writing -----------------------------------------------------------------------------------------------------

    def put(self, load: Load, cached: Cached) -> None:
        if load.on_disk:
            self.keep(load.key, cached)

    def keep(self, key: Key, cached: Cached) -> None:
        """Cache something under a key, behind its reader."""
        self._forget_unwritten(key)
        size = _in_memory(cached.parts)
        if self._unwritten and self._unwritten_bytes + size > UNWRITTEN:
            return
        self._unwritten[key] = cached
        self._unwritten_bytes += size
        self._put_at = trio.current_time()
        if not self._scheduled:
            self._scheduled = True
            self._nursery.start_soon(self._flush_later)

    def overwrite(self, key: Key, cached: Cached) -> None:
        """Cache what the mount has written under a key. The disk has what was before until `settle`."""
        self.keep(key, cached)
        self._overwritten[key] = cached.fetched_at
        self._expired.pop(key, None)  # `settle` leaves nothing of it that could be fresh

    def overwrite_below(self, fingerprint: str, start: str) -> None:
        """Cache nothing of the resources whose URIs begin so. The disk has what was before until `settle`."""
        for key in list(self._unwritten):
            if key[0] == fingerprint and key[1].startswith(start):
                self._forget_unwritten(key)
        self._overwritten_below.add((fingerprint, start))

    async def settle(self, also: Callable[[], None] | None = None) -> None:
        """Have on the disk the times of the writes so far instead of what was before: a killed mount leaves that.

        The disk takes nothing earlier any more, also from another process whose load is under way, and from a batch
        that is being written: no program waits for the contents of other resources. Of the resources below a
        directory, only those of which the mount knows have a time.

        also: blocking work of the caller, for the same thread, since a program waits for each thread. It is done
        whatever becomes of the disk cache, and twice if that does not answer.
        """
        if not (self._overwritten or self._overwritten_below):
            if also is not None:
                await trio.to_thread.run_sync(also)
            return
        with trio.move_on_after(SETTLING_PATIENCE):
            async with self._marking:
                overwritten, below = dict(self._overwritten), frozenset(self._overwritten_below)
                if not (overwritten or below) and also is None:
                    return
                work = partial(self._mark, overwritten, below, also)
                if await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads):
                    for key, at in overwritten.items():
                        if self._overwritten.get(key) == at:
                            del self._overwritten[key]
                            self._forget_unwritten(key, only_times=True)
                    self._overwritten_below -= below
                    return
        if also is not None:
            await trio.to_thread.run_sync(also)
        log.warning("the disk cache does not answer: it has contents from before a change")

    def _mark(self, overwritten: Mapping[Key, float], below: frozenset[Key], also: Callable[[], None] | None) -> bool:
        """Do the work of `settle` in a thread. Return whether the index has all times."""
        if also is not None:
            also()
        return not (overwritten or below) or self._disk.mark(overwritten, below, self._clock())

    async def put_now(self, load: Load, cached: Cached) -> Cached | None:
        """Write contents over the memory budget. Return them as files, or None if that fails.

        They come from a key of this load alone, as their own may have what is later. They are not kept under that if
        the mount has changed the resource meanwhile.
        """
        disk, key, now = self._disk, load.key, self._clock()
        if not load.on_disk:
            return None
        alone = f"load {os.getpid()} {next(self._numbers)}", key[1]

        def work(stale: bool, kept: bool) -> Cached | None:
            stored = disk.read(*alone, 0) if disk.put([(alone, cached)], in_files=True) else None
            if stored is not None and kept:
                disk.put([(key, replace(cached, stale=stale))], now, in_files=True)
            disk.remove([alone])
            return stored

        async with self._writing, self._marking:
            # A later invalidation or change waits for its lock and is written after this.
            if kept := load.may_be_kept:
                self._forget_unwritten(key)
            run = partial(work, load.invalidated, kept)
            return await trio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=self._threads)

    def _forget_unwritten(self, key: Key, *, only_times: bool = False) -> None:
        """Drop what waits to be written. only_times: unless it has contents, and not only the time of a write."""
        unwritten = self._unwritten.get(key)
        if unwritten is not None and not (only_times and unwritten.parts):
            del self._unwritten[key]
            self._unwritten_bytes -= _in_memory(unwritten.parts)

    async def _flush_later(self) -> None:
        latest = trio.current_time() + LONGEST_BEHIND
        while True:
            due = min(self._put_at + BEHIND, latest)
            if trio.current_time() >= due or self._unwritten_bytes >= UNWRITTEN / 4:
                break
            await trio.sleep_until(due)
        self._scheduled = False
        await self.flush()

    async def _flush_expired(self) -> None:
        if self._expired:  # the mount may have overwritten it since
            await self.flush()

    async def flush(self) -> None:
        """Write all contents and invalidations up to now. Between two batches, others have the lock."""
        while self._unwritten or self._expired:
            async with self._writing:
                expired = dict(self._expired)
                batch = dict(list(self._unwritten.items())[:BATCH])
                work = partial(self._write, list(expired), list(batch.items()), self._clock())
                await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
                for key, number in expired.items():
                    if self._expired.get(key) == number:
                        del self._expired[key]
                for key, unwritten in batch.items():
                    if self._unwritten.get(key) is unwritten:
                        self._forget_unwritten(key)

    def _write(
        self, expired: Sequence[tuple[str, str | None]], entries: Sequence[tuple[Key, Cached]], now: float
    ) -> None:
        """Write invalidations and contents, in a thread. Leave out what the mount has changed since."""
        if expired:
            self._disk.expire(expired)
        if entries:
            self._disk.put(entries, now, lambda key, cached: self._unwritten.get(key) is cached)

    async def keep_tidy(self) -> None:
        """Evict, and remove leftovers from the directory, once a day. Runs until cancelled."""
        while True:
            await trio.to_thread.run_sync(self._disk.tidy, abandon_on_cancel=True, limiter=self._threads)
            await trio.sleep(TIDY_EVERY)

    # -- what changes ------------------------------------------------------------------------------------------------

    def invalidate(self, fingerprint: str, uri: str | None) -> None:
        """Make a resource (None: every one of the source) stale. It is still served while the source is down."""
        for key in list(self._unwritten) if uri is None else [(fingerprint, uri)]:
            if key[0] == fingerprint and key in self._unwritten:
                self._unwritten[key] = replace(self._unwritten[key], stale=True)
        if not self._expired:
            self._nursery.start_soon(self._flush_expired)
        self._expired[fingerprint, uri] = next(self._numbers)
        if len(self._expired) > UNEXPIRED:
            self._expired = {(source, None): next(self._numbers) for source, _ in self._expired}


def _in_memory(parts: Iterable[Part]) -> int:
    """Return the bytes of memory that the contents take."""
    return sum(part.content.size for part in parts if isinstance(part.content, MemoryContent))


def _look_and_read(disk: DiskCache, key: Key, in_memory: int) -> Cached | None:
    if disk.absent(*key) is None:
        disk.look(key[0])
    return None if disk.absent(*key) else disk.read(*key, in_memory)
