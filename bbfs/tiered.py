"""The contents below memory: on the disk of this machine, and by choice on a server that machines share.

A reader is answered from here when memory has not what it wants; what a load brings is put here behind its back. Who
may be answered what is decided here as well: never anything that the source has said to be changed as if it were fresh.

Between two awaits a task is alone. Nothing here raises but cancellation, and every wait is bounded: a tier that does
not answer costs a request to the source.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

import trio

from bbfs.attached import Source
from bbfs.cache.content import MemoryContent
from bbfs.cache.disk import DiskCache, Entry, Found
from bbfs.cache.tiers import Kept, KeptPart, SharedTier
from bbfs.model import DataSource, Part
from bbfs.records import Record

log = logging.getLogger(__name__)

BEHIND = 1.0
"""Seconds after which what was loaded is written, all of it at once."""
BATCH = 256
"""Resources written in one go, so that nothing that has changed meanwhile waits long."""
UNWRITTEN = 64 << 20
"""Bytes that wait to be written at most; what a load brings beyond that stays in memory only."""
DISK_PATIENCE = 5.0
"""Seconds that a reader waits for the disk; then the source is asked."""
SHARED_AT_ONCE = 16

Key = tuple[str, str | None]
"""Fingerprint of a source and native URI; None for all of the source."""


@dataclass(frozen=True, slots=True, eq=False)
class _Unwritten:
    """What a load has brought and the disk has not yet."""

    kept: Kept
    contents: tuple[MemoryContent, ...]
    stale: bool

    @property
    def size(self) -> int:
        return sum(content.size for content in self.contents)

    def entry(self, key: tuple[str, str]) -> Entry:
        return Entry(*key, self.kept, tuple(content.data for content in self.contents), self.stale)


class LowerTiers:
    """The tiers below memory, of which each may be absent.

    shares: whether the contents of a source may be kept in the shared one.
    in_memory: bytes up to which the contents of a resource are read into memory. clock: seconds since the epoch.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        disk: DiskCache | None,
        shared: SharedTier | None,
        *,
        shares: Callable[[DataSource], bool],
        in_memory: int,
        clock: Callable[[], float],
    ) -> None:
        self._nursery = nursery
        self._disk = disk
        self._shared = shared
        self._shares = shares
        self._in_memory = in_memory
        self._clock = clock
        self._threads = trio.CapacityLimiter(4)
        self._writing = trio.Lock()
        self._sharing = trio.CapacityLimiter(SHARED_AT_ONCE)
        self._scheduled = False
        self._unwritten: dict[tuple[str, str], _Unwritten] = {}
        self._unwritten_bytes = 0
        self._expired: dict[Key, int] = {}  # with a number, to tell one change from a later one
        self._numbers = count()
        self._dropping: dict[Key, int] = {}
        self._dropped: set[Key] = set()

    # -- reading -----------------------------------------------------------------------------------------------------

    async def fresh(self, source: Source, record: Record) -> Found | None:
        """What a tier has of a resource and may be served without asking the source, or None."""
        key = (source.fingerprint, record.metadata.native_uri)
        if not record.suspected and self._on_disk(source, record):
            found = await self._from_disk(key)
            if found is not None and not found.stale and not self._has_changed(key) and self._fits(record, found.kept):
                return found
        if self._shared is not None and self._is_shared(source, record) and self._may_share(key, record):
            shared = await self._shared.get(*key)
            if shared is not None and self._fits(record, shared[0]):
                kept, contents = shared
                found = Found(kept, tuple(map(MemoryContent, contents)), stale=False)
                if self._on_disk(source, record):
                    self._put_behind(key, _Unwritten(kept, tuple(map(MemoryContent, contents)), stale=False))
                return found
        return None

    async def last(self, source: Source, record: Record) -> Found | None:
        """What the disk has of a resource, for as long as it may stand in for a source that is down (S20), or None."""
        if not self._on_disk(source, record):
            return None
        found = await self._from_disk((source.fingerprint, record.metadata.native_uri))
        if found is None or self._clock() >= found.kept.fetched_at + found.kept.ttl + source.data.policy.max_stale:
            return None
        seen = record.fetched_at is None or found.kept.fetched_at >= record.fetched_at
        return found if seen or found.kept.version == record.digest else None

    async def _from_disk(self, key: tuple[str, str]) -> Found | None:
        unwritten = self._unwritten.get(key)
        if unwritten is not None:
            return Found(unwritten.kept, unwritten.contents, unwritten.stale)
        assert self._disk is not None
        with trio.move_on_after(DISK_PATIENCE):
            return await trio.to_thread.run_sync(
                self._disk.read, *key, self._in_memory, abandon_on_cancel=True, limiter=self._threads
            )
        log.warning("the disk cache does not answer")
        return None

    def _fits(self, record: Record, kept: Kept) -> bool:
        """Whether what is kept may be served: it is fresh, and nothing newer is known of the resource."""
        now = self._clock()
        if not kept.parts or not kept.fresh(now):
            return False
        if record.fetched_at is None or kept.fetched_at > record.fetched_at:
            return True
        return record.fresh(now) and record.digest == kept.version

    def _has_changed(self, key: tuple[str, str]) -> bool:
        """Whether the disk has not been told yet that a resource has changed."""
        return key in self._expired or (key[0], None) in self._expired

    def _may_share(self, key: Key, record: Record) -> bool:
        """Whether the others can know more than this one: not where it alone has reason to doubt what it knows."""
        return key not in self._dropping and (not record.suspected or key in self._dropped)

    def _on_disk(self, source: Source, record: Record) -> bool:
        return self._disk is not None and source.data.policy.disk and not record.on_open

    def _is_shared(self, source: Source, record: Record) -> bool:
        return self._shared is not None and self._shares(source.data) and not record.on_open

    # -- writing -----------------------------------------------------------------------------------------------------

    def put(self, source: Source, record: Record, parts: Sequence[Part], fetched_at: float, ttl: float) -> None:
        """Keep what a load has answered, soon. What cannot be kept is left out: links, and what is not in memory."""
        contents = _in_memory(parts)
        key = (source.fingerprint, record.metadata.native_uri)
        self._dropped.discard(key)
        on_disk = self._on_disk(source, record)
        shared = ttl > 0 and not record.suspected and self._is_shared(source, record)
        if contents is None or not (on_disk or shared):
            return
        kept = Kept(tuple(map(KeptPart.of, parts)), fetched_at, ttl)
        if on_disk:
            self._put_behind(key, _Unwritten(kept, contents, record.suspected))
        if shared:
            self._nursery.start_soon(self._share, key, kept, contents)

    async def put_large(
        self, source: Source, record: Record, parts: Sequence[Part], fetched_at: float, ttl: float, *, stale: bool
    ) -> tuple[Part, ...] | None:
        """Put what memory has no room for on disk. Returns the parts with contents there, or None if that fails.

        stale: whether the source has said already that it changed.
        """
        contents = _in_memory(parts)
        disk = self._disk
        if disk is None or contents is None or not self._on_disk(source, record):
            return None
        key = (source.fingerprint, record.metadata.native_uri)

        def work() -> Found | None:
            kept = Kept(tuple(map(KeptPart.of, parts)), fetched_at, ttl)
            put = disk.put([Entry(*key, kept, tuple(content.data for content in contents), stale)])
            return disk.read(*key, 0) if put else None

        self._forget_unwritten(key)
        async with self._writing:
            found = await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
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

    async def _share(self, key: tuple[str, str], kept: Kept, contents: tuple[MemoryContent, ...]) -> None:
        assert self._shared is not None
        async with self._sharing:
            if key not in self._dropping:
                await self._shared.put(*key, kept, [content.data for content in contents])

    def _put_behind(self, key: tuple[str, str], unwritten: _Unwritten) -> None:
        self._forget_unwritten(key)
        self._expired.pop(key, None)  # what is put takes the place of what has expired
        if self._unwritten and self._unwritten_bytes + unwritten.size > UNWRITTEN:
            return
        self._unwritten[key] = unwritten
        self._unwritten_bytes += unwritten.size
        if not self._scheduled:
            self._scheduled = True
            self._nursery.start_soon(self._flush_later)

    def _forget_unwritten(self, key: tuple[str, str]) -> None:
        unwritten = self._unwritten.pop(key, None)
        if unwritten is not None:
            self._unwritten_bytes -= unwritten.size

    async def _flush_later(self) -> None:
        await trio.sleep(BEHIND)
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
        if told and self._shared is not None and self._shares(source.data):
            key = (source.fingerprint, uri)
            self._dropping[key] = self._dropping.get(key, 0) + 1
            self._nursery.start_soon(self._drop, key)

    def dropped(self, source: Source, uri: str | None) -> None:
        """Another machine has told that a resource has changed (None: every one of a source)."""
        self._expire(source.fingerprint, uri)
        if uri is not None:
            self._dropped.add((source.fingerprint, uri))

    def _expire(self, fingerprint: str, uri: str | None) -> None:
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

    async def _drop(self, key: Key) -> None:
        assert self._shared is not None
        try:
            await self._shared.drop(*key)
            if key[1] is not None:
                self._dropped.add(key)
        finally:
            self._dropping[key] -= 1
            if not self._dropping[key]:
                del self._dropping[key]

    async def run(self, dropped: Callable[[str, str | None], None]) -> None:
        """Keep the disk in order, and hear of what other machines know, until cancelled.

        dropped: told the fingerprint and native URI of what has changed; it must neither block nor raise.
        """
        if self._shared is not None:
            await self._nursery.start(self._shared.run, dropped)
        if self._disk is not None:
            await trio.to_thread.run_sync(self._disk.tidy, abandon_on_cancel=True, limiter=self._threads)


def _in_memory(parts: Sequence[Part]) -> tuple[MemoryContent, ...] | None:
    """The contents of what a load has answered, if all can be kept: no link, and whole in memory."""
    contents = tuple(part.content for part in parts if isinstance(part.content, MemoryContent) and part.link is None)
    return contents if len(contents) == len(parts) else None


def _write(disk: DiskCache, expired: Sequence[Key], entries: Sequence[Entry]) -> None:
    if expired:
        disk.expire(expired)
    if entries:
        disk.put(entries)
