"""The contents below memory: on the disk of this machine, and by choice where machines share them.

A reader is answered from here when memory has not what it wants; what a load brings is put here behind its back. Who
may be answered what is decided here (for what is shared, in `shared_contents`) as well: never anything that the source
has said to be changed as if it were fresh.

Between two awaits a task is alone. Nothing here raises but cancellation, and every wait is bounded: a tier that does
not answer costs a request to the source.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import trio

from bbfs.model.values import Part
from bbfs.resources.cache.disk import DiskCache, Entry, Found
from bbfs.resources.cache.tier import EVERYTHING, Kept, KeptPart, SharedTier
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


@dataclass(frozen=True, slots=True, eq=False)
class _Unwritten:
    """What a load has brought and the disk has not yet."""

    kept: Kept
    contents: tuple[MemoryContent | StoredContent, ...]
    stale: bool

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return sum(content.size for content in self.contents if isinstance(content, MemoryContent))

    def entry(self, key: tuple[str, str]) -> Entry:
        contents = (content.data if isinstance(content, MemoryContent) else content for content in self.contents)
        return Entry(*key, self.kept, tuple(contents), self.stale)


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
        self._unwritten: dict[tuple[str, str], _Unwritten] = {}
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

    async def fresh(self, source: Source, loading: Loading) -> Found | None:
        """What the disk has of a resource and may be served without asking anybody, or None."""
        record = loading.record
        if not record.suspected and self._on_disk(source, record) and not self._absent(loading.key):
            found = await self._from_disk(loading.key)
            if found is not None and not (found.stale or loading.outdated) and self._fits(source, record, found.kept):
                return found
        return None

    async def claim(self, source: Source, loading: Loading) -> Found | None:
        """What another machine has loaded and may be served without asking the source, or None.

        None says that this machine loads it, for all, until the load ends.
        """
        record = loading.record
        if self._shared is None:
            return None
        found = await self._shared.claim(source, record)
        if found is None or sum(part.size for part in found.kept.parts) > self._in_memory:
            return None
        if self._on_disk(source, record):
            self._put_behind(loading.key, _Unwritten(found.kept, _as_memory(found), loading.outdated))
        return found

    async def last(self, source: Source, record: Record) -> Found | None:
        """What may stand in for a source that is down, for as long as it may (S20), or None."""
        found: Found | None = None
        if self._on_disk(source, record):
            found = await self._from_disk((source.fingerprint, record.metadata.native_uri))
        if found is None and self._shared is not None:
            found = await self._shared.last(source, record)
        if found is None or self._clock() >= found.kept.fetched_at + found.kept.ttl + source.data.policy.max_stale:
            return None
        seen = record.fetched_at is None or found.kept.fetched_at >= record.fetched_at
        return found if seen or found.kept.version == record.digest else None

    async def same(self, source: Source, record: Record) -> Found | None:
        """The version of a resource that was last seen, as the disk has it, whatever its age; or None."""
        key = (source.fingerprint, record.metadata.native_uri)
        if not self._on_disk(source, record) or self._absent(key):
            return None
        found = await self._from_disk(key)
        return found if found is not None and found.kept.version == record.digest else None

    async def _from_disk(self, key: tuple[str, str]) -> Found | None:
        unwritten = self._unwritten.get(key)
        if unwritten is not None:
            return Found(unwritten.kept, unwritten.contents, unwritten.stale)
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

    def _fits(self, source: Source, record: Record, kept: Kept) -> bool:
        """Whether what is kept may be served: it is fresh, and nothing newer is known of the resource."""
        now = self._clock()
        if kept.parts and kept.etag is not None and record.fresh(now) and record.digest == kept.etag:
            return True  # the source was asked for the version alone
        if not kept.parts or not kept.fresh(now) or source.is_refreshed(record.path, kept.fetched_at):
            return False
        if record.fetched_at is None or kept.fetched_at > record.fetched_at:
            return True
        return record.fresh(now) and record.digest == kept.version

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
        contents = _to_keep(parts)
        on_disk = self._on_disk(source, loading.record)
        if contents is None or not (on_disk or self._shared):
            return
        kept = Kept(tuple(map(KeptPart.of, parts)), fetched_at, ttl, etag)
        if on_disk:
            self._put_behind(loading.key, _Unwritten(kept, contents, loading.outdated))
        in_memory = _in_memory(parts)
        if self._shared is not None and in_memory is not None and etag is None and not loading.outdated:
            self._shared.put(source, loading.record, kept, in_memory)

    async def put_large(
        self, source: Source, loading: Loading, parts: Sequence[Part], fetched_at: float, ttl: float
    ) -> tuple[Part, ...] | None:
        """Put what memory has no room for on disk. Returns the parts with contents there, or None if that fails."""
        contents = _in_memory(parts)
        disk = self._disk
        if disk is None or contents is None or not self._on_disk(source, loading.record):
            return None
        key = loading.key

        def work(stale: bool) -> Found | None:
            kept = Kept(tuple(map(KeptPart.of, parts)), fetched_at, ttl)
            put = disk.put([Entry(*key, kept, tuple(content.data for content in contents), stale)])
            return disk.read(*key, 0) if put else None

        self._forget_unwritten(key)
        async with self._writing:
            # What is told from here on waits for the lock, and is written later.
            found = await trio.to_thread.run_sync(work, loading.outdated, abandon_on_cancel=True, limiter=self._threads)
        if found is None:
            return None
        return tuple(kept.part(content) for kept, content in zip(found.kept.parts, found.contents, strict=True))

    def why_not(self, source: Source, record: Record) -> str:
        """Why `put_large` keeps nothing, in words that end a sentence."""
        if record.on_open:
            return "a result is not kept on disk"
        if not source.data.policy.disk:
            return "contents of the source are not kept on disk (its option disk)"
        if self._disk is None or self._disk.max_bytes == 0:
            return "there is no disk cache ([cache] disk)"
        return f"could not be kept in the disk cache of {self._disk.max_bytes} bytes ([cache] disk)"

    def _put_behind(self, key: tuple[str, str], unwritten: _Unwritten) -> None:
        self._forget_unwritten(key)
        if self._unwritten and self._unwritten_bytes + unwritten.size > UNWRITTEN:
            return
        self._unwritten[key] = unwritten
        self._unwritten_bytes += unwritten.size
        self._put_at = trio.current_time()
        if not self._scheduled:
            self._scheduled = True
            self._nursery.start_soon(self._flush_later)

    def _forget_unwritten(self, key: tuple[str, str]) -> None:
        unwritten = self._unwritten.pop(key, None)
        if unwritten is not None:
            self._unwritten_bytes -= unwritten.size

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
                work = partial(_write, self._disk, list(expired), [each.entry(key) for key, each in batch.items()])
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
            self._unwritten[key] = _Unwritten(unwritten.kept, unwritten.contents, stale=True)

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


def _to_keep(parts: Sequence[Part]) -> tuple[MemoryContent | StoredContent, ...] | None:
    """The contents of what a load has answered, if all can be kept: no link, and in memory or spooled."""
    found = (part.content for part in parts if part.link is None)
    contents = tuple(content for content in found if isinstance(content, MemoryContent | StoredContent))
    return contents if len(contents) == len(parts) else None


def _in_memory(parts: Sequence[Part]) -> tuple[MemoryContent, ...] | None:
    """The contents of what a load has answered, if all can be kept: no link, and whole in memory."""
    contents = tuple(part.content for part in parts if isinstance(part.content, MemoryContent) and part.link is None)
    return contents if len(contents) == len(parts) else None


def _as_memory(found: Found) -> tuple[MemoryContent, ...]:
    return tuple(content for content in found.contents if isinstance(content, MemoryContent))


def _look_and_read(disk: DiskCache, key: tuple[str, str], in_memory: int) -> Found | None:
    absent = disk.absent(*key)
    if absent is None:
        disk.look(key[0])
        absent = disk.absent(*key)
    return None if absent else disk.read(*key, in_memory)


def _write(disk: DiskCache, expired: Sequence[Key], entries: Sequence[Entry]) -> None:
    if expired:
        disk.expire(expired)
    if entries:
        disk.put(entries)
