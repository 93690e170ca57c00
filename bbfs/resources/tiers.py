"""The tiers of contents below memory, and the disk of this machine as one of them.

Between two awaits a task is alone. No tier raises anything but cancellation, and every wait is bounded: a tier that
does not answer costs a request to the source.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Protocol

import trio

from bbfs.model.values import Part
from bbfs.resources.cache.disk import DiskCache, Key
from bbfs.resources.cache.tier import Cached
from bbfs.resources.catalog.record import Record
from bbfs.resources.source import Source
from bbfs.sources.content.memory import MemoryContent

log = logging.getLogger(__name__)

BEHIND, LONGEST_BEHIND = 1.0, 5.0
"""Seconds without a load after which what was loaded is written, all of it at once; and seconds after the first load,
where there is no such pause. A program that waits for its source has the processors first."""
BATCH = 256
"""Resources written in one go, so that nothing that has changed meanwhile waits long."""
UNWRITTEN = 64 << 20
"""Bytes that wait to be written at most; what a load brings beyond that stays in memory only."""
DISK_PATIENCE = 5.0
"""Seconds that a reader waits for the disk; then the source is asked."""


class Load:
    """One load of a resource under way, and whether the resource was invalidated since it began.

    That is kept apart from the record: while a load is under way, the record may be replaced or forgotten.
    """

    __slots__ = ("_invalidated", "_suspicions", "key", "record", "source")

    def __init__(self, source: Source, record: Record) -> None:
        self.source = source
        self.record = record
        self.key: Key = (source.fingerprint, record.metadata.native_uri)
        self.restart()

    def restart(self) -> None:
        """Forget what was invalidated until now: nothing has been asked for yet."""
        self._invalidated = False
        self._suspicions = self.record.suspicions

    def invalidate(self) -> None:
        self._invalidated = True

    @property
    def invalidated(self) -> bool:
        return self._invalidated or self._suspicions != self.record.suspicions


class Tier(Protocol):
    """Keeps the contents of resources below memory, for those sources that may use it."""

    async def get(self, load: Load) -> Cached | None:
        """Return what is kept of a resource, whatever its age, or None."""
        ...

    async def claim(self, load: Load) -> Cached | None:
        """Return what may be served without asking the source, or None."""
        ...

    def put(self, load: Load, cached: Cached) -> None:
        """Keep what a load has answered, soon."""
        ...


class DiskTier:
    """The disk cache of this machine. What a load brings is written behind its reader.

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
        self._scheduled = False
        self._unwritten: dict[Key, Cached] = {}
        self._unwritten_bytes = 0
        self._put_at = 0.0
        self._expired: dict[tuple[str, str | None], int] = {}  # with a number, to tell one change from a later one
        self._numbers = count()

    # -- reading -----------------------------------------------------------------------------------------------------

    async def get(self, load: Load) -> Cached | None:
        key = load.key
        if not _on_disk(load):
            return None
        if (unwritten := self._unwritten.get(key)) is not None or self._disk.absent(*key):
            return unwritten
        with trio.move_on_after(DISK_PATIENCE):
            work = partial(_look_and_read, self._disk, key, self._in_memory)
            found = await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
            if found is not None and (key in self._expired or (key[0], None) in self._expired):
                found = replace(found, stale=True)  # the index has not been told yet
            return found
        log.warning("the disk cache does not answer")
        return None

    async def claim(self, load: Load) -> Cached | None:
        found = None if load.record.suspected else await self.get(load)
        stale = found is None or found.stale or load.invalidated or not self._is_current(load, found)
        return None if stale else found

    def _is_current(self, load: Load, found: Cached) -> bool:
        """Return whether `found` is fresh, and nothing newer is known of the resource."""
        source, record, now = load.source, load.record, self._clock()
        if found.parts and found.etag is not None and record.fresh(now) and record.digest == found.etag:
            return True  # the source was asked for the version alone
        if not found.parts or not found.fresh(now) or source.is_refreshed(record.path, found.fetched_at):
            return False
        if record.fetched_at is None or found.fetched_at > record.fetched_at:
            return True
        return record.fresh(now) and record.digest == found.version

    # -- writing -----------------------------------------------------------------------------------------------------

    def put(self, load: Load, cached: Cached) -> None:
        if not _on_disk(load):
            return
        self._forget_unwritten(load.key)
        size = _in_memory(cached.parts)
        if self._unwritten and self._unwritten_bytes + size > UNWRITTEN:
            return
        self._unwritten[load.key] = cached
        self._unwritten_bytes += size
        self._put_at = trio.current_time()
        if not self._scheduled:
            self._scheduled = True
            self._nursery.start_soon(self._flush_later)

    async def put_now(self, load: Load, cached: Cached) -> Cached | None:
        """Write what memory has no room for. Return it with its contents in files, or None if that fails."""
        disk, key = self._disk, load.key
        if not _on_disk(load):
            return None

        def work(stale: bool) -> Cached | None:
            return disk.read(*key, 0) if disk.put([(key, replace(cached, stale=stale))]) else None

        self._forget_unwritten(key)
        async with self._writing:
            # What invalidates it from here on waits for the lock, and is written later.
            return await trio.to_thread.run_sync(work, load.invalidated, abandon_on_cancel=True, limiter=self._threads)

    def _forget_unwritten(self, key: Key) -> None:
        unwritten = self._unwritten.pop(key, None)
        if unwritten is not None:
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

    async def flush(self) -> None:
        """Write everything that was put and invalidated up to now."""
        async with self._writing:
            while self._unwritten or self._expired:
                expired = dict(self._expired)
                batch = dict(list(self._unwritten.items())[:BATCH])
                work = partial(_write, self._disk, list(expired), list(batch.items()))
                await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
                for key, number in expired.items():
                    if self._expired.get(key) == number:
                        del self._expired[key]
                for key, unwritten in batch.items():
                    if self._unwritten.get(key) is unwritten:
                        self._forget_unwritten(key)

    async def tidy(self) -> None:
        """Keep the directory in order."""
        await trio.to_thread.run_sync(self._disk.tidy, abandon_on_cancel=True, limiter=self._threads)

    # -- what changes ------------------------------------------------------------------------------------------------

    def invalidate(self, fingerprint: str, uri: str | None) -> None:
        """End the freshness of a resource (None: of every one of the source). It still stands in for a source down."""
        for key in list(self._unwritten) if uri is None else [(fingerprint, uri)]:
            if key[0] == fingerprint and key in self._unwritten:
                self._unwritten[key] = replace(self._unwritten[key], stale=True)
        if not self._expired:
            self._nursery.start_soon(self.flush)
        self._expired[fingerprint, uri] = next(self._numbers)


def _on_disk(load: Load) -> bool:
    return load.source.data.policy.disk and not load.record.on_open


def _in_memory(parts: Iterable[Part]) -> int:
    """Return the bytes of memory that contents take."""
    return sum(part.content.size for part in parts if isinstance(part.content, MemoryContent))


def _look_and_read(disk: DiskCache, key: Key, in_memory: int) -> Cached | None:
    if disk.absent(*key) is None:
        disk.look(key[0])
    return None if disk.absent(*key) else disk.read(*key, in_memory)


def _write(disk: DiskCache, expired: Sequence[tuple[str, str | None]], entries: Sequence[tuple[Key, Cached]]) -> None:
    if expired:
        disk.expire(expired)
    if entries:
        disk.put(entries)
