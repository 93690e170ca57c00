"""The contents below memory: on the disk of this machine, and by choice where machines share them.

A reader is answered from here when memory has not what it wants; what a load brings is put here behind its back. Who
may be answered what is decided here (for what is shared, in `shared_contents`) as well: never anything that the source
has said to be changed as if it were fresh.

Between two awaits a task is alone. Nothing here raises but cancellation, and every wait is bounded: a tier that does
not answer costs a request to the source.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from types import UnionType

import trio

from bbfs.model.values import Part
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.tier import EVERYTHING, Cached, SharedTier
from bbfs.resources.catalog.record import Record
from bbfs.resources.loads_under_way import Loading, LoadsUnderWay
from bbfs.resources.shared import Key, SharedContents
from bbfs.resources.source import Source
from bbfs.sources.content.file import StoredContent
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


class LowerTiers:
    """The tiers below memory, of which each may be absent.

    in_memory: bytes up to which the contents of a resource are read into memory. clock: seconds since the epoch.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        disk: DiskCache | None,
        shared: SharedTier | None,
        *,
        in_memory: int,
        clock: Callable[[], float],
    ) -> None:
        self._nursery = nursery
        self._disk = disk
        self._shared = None if shared is None else SharedContents(nursery, shared, clock)
        self._in_memory = in_memory
        self._clock = clock
        self._loads = LoadsUnderWay()
        self._threads = trio.CapacityLimiter(4)
        self._writing = trio.Lock()
        self._scheduled = False
        self._unwritten: dict[tuple[str, str], Cached] = {}
        self._unwritten_bytes = 0
        self._put_at = 0.0
        self._expired: dict[Key, int] = {}  # with a number, to tell one change from a later one
        self._numbers = count()

    # -- loads -------------------------------------------------------------------------------------------------------

    def begin(self, source: Source, record: Record) -> Loading:
        """A load begins; `end` is to be called when it has ended, whatever came of it."""
        return self._loads.begin((source.fingerprint, record.metadata.native_uri), record)

    def end(self, source: Source, loading: Loading) -> None:
        """A load has ended: unless it was put, the others load for themselves."""
        self._loads.end(loading)
        if self._shared is not None:
            self._shared.give_up(source, loading.record)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def fresh(self, source: Source, loading: Loading) -> Cached | None:
        """What the disk has of a resource and may be served without asking anybody, or None."""
        record = loading.record
        if not record.suspected and self._on_disk(source, record) and not self._absent(loading.key):
            found = await self._from_disk(loading.key)
            if found is not None and not (found.stale or loading.outdated) and self._fits(source, record, found):
                return found
        return None

    async def claim(self, source: Source, loading: Loading) -> Cached | None:
        """What another machine has loaded and may be served without asking the source, or None.

        None says that this machine loads it, for all, until the load ends.
        """
        record = loading.record
        if self._shared is None:
            return None
        found = await self._shared.claim(source, record)
        if found is None or found.size > self._in_memory:
            return None
        if self._on_disk(source, record):
            self._put_behind(loading.key, replace(found, stale=loading.outdated))
        return found

    async def last(self, source: Source, record: Record) -> Cached | None:
        """What may stand in for a source that is down, for as long as it may (S20), or None."""
        found: Cached | None = None
        if self._on_disk(source, record):
            found = await self._from_disk((source.fingerprint, record.metadata.native_uri))
        if found is None and self._shared is not None:
            found = await self._shared.last(source, record)
        if found is None or self._clock() >= found.fetched_at + found.ttl + source.data.policy.max_stale:
            return None
        seen = record.fetched_at is None or found.fetched_at >= record.fetched_at
        return found if seen or found.version == record.digest else None

    async def same(self, source: Source, record: Record) -> Cached | None:
        """The version of a resource that was last seen, as the disk has it, whatever its age; or None."""
        key = (source.fingerprint, record.metadata.native_uri)
        if not self._on_disk(source, record) or self._absent(key):
            return None
        found = await self._from_disk(key)
        return found if found is not None and found.version == record.digest else None

    async def _from_disk(self, key: tuple[str, str]) -> Cached | None:
        unwritten = self._unwritten.get(key)
        if unwritten is not None:
            return unwritten
        assert self._disk is not None
        with trio.move_on_after(DISK_PATIENCE):
            work = partial(_look_and_read, self._disk, key, self._in_memory)
            found = await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
            return replace(found, stale=True) if found is not None and self._has_changed(key) else found
        log.warning("the disk cache does not answer")
        return None

    def _absent(self, key: tuple[str, str]) -> bool:
        """Whether there is no need to wait for a look at the disk."""
        return key not in self._unwritten and self._disk is not None and self._disk.absent(*key) is True

    def _fits(self, source: Source, record: Record, found: Cached) -> bool:
        """Whether what is kept may be served: it is fresh, and nothing newer is known of the resource."""
        now = self._clock()
        if found.parts and found.etag is not None and record.fresh(now) and record.digest == found.etag:
            return True  # the source was asked for the version alone
        if not found.parts or not found.fresh(now) or source.is_refreshed(record.path, found.fetched_at):
            return False
        if record.fetched_at is None or found.fetched_at > record.fetched_at:
            return True
        return record.fresh(now) and record.digest == found.version

    def _has_changed(self, key: tuple[str, str]) -> bool:
        """Whether the disk has not been told yet that a resource has changed."""
        return key in self._expired or (key[0], None) in self._expired

    def _on_disk(self, source: Source, record: Record) -> bool:
        return self._disk is not None and source.data.policy.disk and not record.on_open

    # -- writing -----------------------------------------------------------------------------------------------------

    def put(
        self,
        source: Source,
        loading: Loading,
        parts: Sequence[Part],
        fetched_at: float,
        ttl: float,
        etag: str | None = None,
    ) -> None:
        """Keep what a load has answered, soon; not links, and not what is a file of the source."""
        if not _can_be_kept(parts, MemoryContent | StoredContent):
            return
        cached = Cached(tuple(parts), fetched_at, ttl, etag, loading.outdated)
        if self._on_disk(source, loading.record):
            self._put_behind(loading.key, cached)
        if self._shared is not None and _can_be_kept(parts, MemoryContent) and etag is None and not cached.stale:
            self._shared.put(source, loading.record, cached)

    async def put_large(
        self, source: Source, loading: Loading, parts: Sequence[Part], fetched_at: float, ttl: float
    ) -> tuple[Part, ...] | None:
        """Put what memory has no room for on disk. Returns the parts with contents there, or None if that fails."""
        disk, key = self._disk, loading.key
        if disk is None or not _can_be_kept(parts, MemoryContent) or not self._on_disk(source, loading.record):
            return None

        def work(stale: bool) -> Cached | None:
            put = disk.put([(key, Cached(tuple(parts), fetched_at, ttl, stale=stale))])
            return disk.read(*key, 0) if put else None

        self._forget_unwritten(key)
        async with self._writing:
            # What is told from here on waits for the lock, and is written later.
            found = await trio.to_thread.run_sync(work, loading.outdated, abandon_on_cancel=True, limiter=self._threads)
        return None if found is None else found.parts

    def why_not(self, source: Source, record: Record) -> str:
        """Why `put_large` keeps nothing, in words that end a sentence."""
        if record.on_open:
            return "a result is not kept on disk"
        if not source.data.policy.disk:
            return "contents of the source are not kept on disk (its option disk)"
        if self._disk is None or self._disk.max_bytes == 0:
            return "there is no disk cache ([cache] disk)"
        return f"could not be kept in the disk cache of {self._disk.max_bytes} bytes ([cache] disk)"

    def _put_behind(self, key: tuple[str, str], cached: Cached) -> None:
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

    def _forget_unwritten(self, key: tuple[str, str]) -> None:
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
        """Have the disk know of everything that has come and changed up to now."""
        async with self._writing:
            while self._disk is not None and (self._unwritten or self._expired):
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

    # -- what changes ------------------------------------------------------------------------------------------------

    def changed(self, source: Source, uri: str | None, *, told: bool = False) -> None:
        """What is kept of a resource (None: of every one of a source) is no longer fresh.

        told: the source itself has said so, and every other machine that shares the tier is to know. Otherwise this
        machine alone has reason to ask again.
        """
        self._expire(source.fingerprint, uri)
        if self._shared is not None:
            self._shared.doubt(source, uri)
            if told:
                self._shared.tell(source, uri)

    def dropped(self, source: Source, told_of: str, uri: str | None) -> bool:
        """Another machine has told that a resource has changed (None: any may have) of the source with a fingerprint.

        Says whether that is this source; `EVERYTHING` is every one that is shared.
        """
        if self._shared is None or told_of not in (EVERYTHING, source.fingerprint) or not self._shared.has(source):
            return False
        self._expire(source.fingerprint, uri)
        return True

    def _expire(self, fingerprint: str, uri: str | None) -> None:
        self._loads.changed(fingerprint, uri)
        gone = [key for key in self._unwritten if key[0] == fingerprint] if uri is None else [(fingerprint, uri)]
        for key in gone:
            self._make_stale(key)
        if self._disk is not None:
            if not self._expired:
                self._nursery.start_soon(self.flush)
            self._expired[fingerprint, uri] = next(self._numbers)

    def _make_stale(self, key: tuple[str, str]) -> None:
        """What is not written yet is still what there is while the source is down, but no longer fresh."""
        unwritten = self._unwritten.get(key)
        if unwritten is not None:
            self._unwritten[key] = replace(unwritten, stale=True)

    async def run(
        self,
        dropped: Callable[[str, str | None], None],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keep the disk in order, and hear of what other machines know, until cancelled.

        dropped: told the fingerprint and native URI of what has changed; it must neither block nor raise. Has started
        when the first reader may come.
        """
        if self._shared is not None:
            await self._nursery.start(self._shared.run, dropped)
        task_status.started()
        if self._disk is not None:
            await trio.to_thread.run_sync(self._disk.tidy, abandon_on_cancel=True, limiter=self._threads)


def _can_be_kept(parts: Sequence[Part], kind: UnionType | type) -> bool:
    """Return whether a tier may keep what a load has answered: no link, and every content of a kind that it takes."""
    return all(part.link is None and isinstance(part.content, kind) for part in parts)


def _in_memory(parts: Iterable[Part]) -> int:
    """Return the bytes of memory that contents take."""
    return sum(part.content.size for part in parts if isinstance(part.content, MemoryContent))


def _look_and_read(disk: DiskCache, key: tuple[str, str], in_memory: int) -> Cached | None:
    absent = disk.absent(*key)
    if absent is None:
        disk.look(key[0])
        absent = disk.absent(*key)
    return None if absent else disk.read(*key, in_memory)


def _write(disk: DiskCache, expired: Sequence[Key], entries: Sequence[tuple[tuple[str, str], Cached]]) -> None:
    if expired:
        disk.expire(expired)
    if entries:
        disk.put(entries)
