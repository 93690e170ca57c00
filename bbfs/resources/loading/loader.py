"""Load contents from the tiers below memory, or from the source.

All readers of a resource share one load (single flight). `publish` applies its result to the record of the resource.

Between two awaits a task is alone; nothing here locks.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf, nextafter
from typing import Any

import trio

from bbfs.model.errors import (
    BbfsError,
    DeadlineExceeded,
    NotFound,
    NotSupported,
    Outdated,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)
from bbfs.model.values import Content, Loaded, Part, Unchanged
from bbfs.resources.cache.tier import EVERYTHING, LISTING, Cached
from bbfs.resources.catalog.record import Record
from bbfs.resources.flights import RequestSlot
from bbfs.resources.loading.publish import Publisher, source_version
from bbfs.resources.loading.shared_tier import SharedContents
from bbfs.resources.loading.tiers import DiskTier, Load, Tier
from bbfs.resources.source import Source
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import MemoryContent


def refuse_repeat(record: Record, now: float) -> None:
    """Raise the error of the last load again while it is kept: a repeated load is refused (`publish` says how long)."""
    owner = record.parent or record
    if owner.error is not None and now < owner.error_until:
        raise type(owner.error)(*owner.error.args)


class ContentLoader:
    """The loads of all sources.

    loads: by sources. from_disk, from_others: those that the disk, or a machine with the same cache, has answered.
    disk, shared: the tiers below memory, if configured. memory: the budget of contents in memory, in bytes.
    ended: called after each load, with the bytes that it brought into memory, or None if it failed.
    loaded: called with each loaded content of a source that is indexed, of a resource that has only one, unless it was
        invalidated meanwhile.
    clock: seconds since the epoch.
    """

    def __init__(
        self,
        publisher: Publisher,
        disk: DiskTier | None,
        shared: SharedContents | None,
        *,
        memory: int,
        ended: Callable[[Source, Record, int | None], None],
        loaded: Callable[[Source, Record, Content], object],
        clock: Callable[[], float],
    ) -> None:
        self.loads = self.from_disk = self.from_others = 0
        self._publisher = publisher
        self._disk = disk
        self._shared = shared
        self._tiers: Sequence[Tier] = [tier for tier in (disk, shared) if tier is not None]
        self._memory = memory
        self._ended = ended
        self._loaded = loaded
        self._clock = clock
        self._under_way: set[Load] = set()

    @property
    def under_way(self) -> Iterable[Load]:
        return self._under_way

    def within_stale(self, source: Source, record: Record) -> bool:
        """Return whether a stale resource may still be served while its source is down (S20)."""
        if record.fetched_at is None:
            return False
        return self._clock() < record.fetched_at + record.ttl + source.stale_for(record.path)

    async def contents(self, source: Source, record: Record) -> Sequence[Content]:
        """Return all contents of the resource that a record belongs to, by part. Raises BbfsError.

        While the source is down, return stale ones.
        """
        with source.waiters:
            if record.on_open:
                return await self._load_for_open(source, record)
            try:
                refuse_repeat(record, self._clock())
                return await self.load(source, record)
            except (Unreachable, DeadlineExceeded):
                kept = await self.last(source, record)
                if kept is None:
                    raise
                return kept

    async def last(self, source: Source, record: Record) -> Sequence[Content] | None:
        """Return stale contents of a resource whose source is down, or None if none may be served any more."""
        since = source.written_at((record.parent or record).metadata.native_uri)
        is_ours = record.fetched_at is not None and record.fetched_at >= since
        kept = self._publisher.kept(record) if is_ours and self.within_stale(source, record) else None
        if kept is None:
            load = Load(source, record.parent or record)
            found = await self._last(load)
            if found is None:
                return None
            kept = self._stand_in(load, found)
        for each in (record, *(record.parts or {}).values()):
            each.stale = True
        return kept

    async def _last(self, load: Load) -> Cached | None:
        """Return what the first tier has of a resource, if it may still be served stale (S20)."""
        found: Cached | None = None
        for tier in self._tiers:
            found = found or await tier.get(load)
        if found is None or not found.parts or found.fetched_at < load.source.written_at(load.key[1]):
            return None
        if self._clock() >= found.fetched_at + found.ttl + load.source.stale_for(load.record.path):
            return None
        record = load.record
        seen = record.fetched_at is None or found.fetched_at >= record.fetched_at
        return found if seen or found.version == record.digest else None

    def _stand_in(self, load: Load, found: Cached) -> Sequence[Content]:
        """Publish a stale content. Keep the error of the source, and that the resource was invalidated."""
        record = load.record
        error, until = record.error, record.error_until
        if found.stale or record.invalidated:
            load.invalidate()
        contents = self._publisher.take(load, found)
        record.error, record.error_until = error, until
        return contents

    # -- loading -----------------------------------------------------------------------------------------------------

    async def load(self, source: Source, record: Record, deadline: float = inf) -> Sequence[Content]:
        """Return fresh contents, by a load that all readers share. Raises BbfsError. deadline: in trio's clock."""
        owner, key = record.parent or record, ("load", record.key)
        # The flight takes its request slot when it begins: before all readahead.
        return await self.ask(
            source, record, key, lambda: self.fetch(source, owner, source.slots.ask()), deadline=deadline
        )

    async def ask(
        self,
        source: Source,
        record: Record,
        key: tuple[Any, ...],
        request: Callable[[], Any],
        *,
        while_wanted: bool = False,
        deadline: float = inf,
    ) -> Any:
        """Return the answer of a single flight to a source about a resource. Raises BbfsError."""
        while_wanted = while_wanted or source.loads_while_wanted
        try:
            return await source.flights.do(
                key, request, source.data.policy.timeout, while_wanted=while_wanted, deadline=deadline
            )
        except DeadlineExceeded as error:
            self._publisher.late(source, record, error)
            raise

    async def _load_for_open(self, source: Source, record: Record) -> Sequence[Content]:
        """Load what only an open loads (S31): each open has a load of its own and is served nothing stale."""
        if record.parent is not None:
            self._publisher.put_away(source, record.parent)
            raise Outdated(f"{record.metadata.name} belongs to a result that is no longer kept")
        key = ("open", object())
        return await self.ask(
            source, record, key, lambda: self.fetch(source, record, source.slots.ask()), while_wanted=True
        )

    async def fetch(self, source: Source, record: Record, slot: RequestSlot) -> Sequence[Content]:
        """Load from disk; else, in `slot`, from another machine or the source. The body of a flight."""
        size: int | None = None
        load = Load(source, record)
        self._under_way.add(load)
        try:
            found = await self._from_disk(load, slot)
            contents = self._publisher.take(load, found) if found is not None else await self._load(load, slot)
            while load.is_overwritten and not record.on_open:  # who came after the write would get what was before it
                contents = await self._load(load, source.slots.ask())
            size = sum(content.size for content in contents if isinstance(content, MemoryContent))
            if source.data.index is True and len(contents) == 1 and record.parts is None and not load.invalidated:
                self._loaded(source, record, contents[0])
            return contents
        finally:
            self._under_way.discard(load)
            if self._shared is not None:
                self._shared.release(load)
            self._ended(source, record, size)

    async def _from_disk(self, load: Load, slot: RequestSlot) -> Cached | None:
        """Return what the disk has fresh, and release the slot; or None, and keep the slot."""
        found, asking = None, False
        try:
            if self._disk is not None and load.source.data.capabilities.read:
                found = await self._disk.claim(load)
            asking = found is None
            self.from_disk += not asking
            load.source.loads_from["disk"] += not asking
        finally:
            if not asking:
                slot.release()
        return found

    async def _load(self, load: Load, slot: RequestSlot) -> Sequence[Content]:
        """Load from another machine if one has the resource or is loading it, else from the source for all machines."""
        source, record, asked_at = load.source, load.record, self._clock()
        load.asks = "slot"
        try:
            async with slot:
                load.asks = "shared"
                if not source.data.capabilities.read or source.loads is None:
                    raise NotSupported(f"{source.data.id} cannot be read")
                if self._shared is not None:
                    load.restart()
                    found = await self._from_others(load, self._shared)
                    if found is not None:
                        return self._publisher.take(load, found)
                if source.watches is not None and not record.provisional:
                    source.watches.interested(record.metadata.native_uri)
                slot.counts = source.holder is None or not source.holder.holds(record.metadata.native_uri)
                self.loads += slot.counts
                source.loads_from["source"] += slot.counts
                load.asks = "source"
                load.restart()
                asked_at = self._clock()
                loaded = await self._revalidate(load) or await source.loads.load(record.metadata.native_uri)
            now = self._clock()
            ttl = source.data.policy.content_ttl if loaded.ttl is None else loaded.ttl
            loaded = await self._fit(load, loaded, now, ttl, asked_at)
        except BbfsError as error:
            if isinstance(error, NotFound):
                self._publisher.absent(load, asked_at)
            if self._publisher.failed(source, record, error):
                self.invalidate(source, record.metadata.native_uri)
            raise
        if not loaded.parts:
            raise ProtocolViolation("answered no content")
        source.error = None
        contents = self._publisher.loaded(load, loaded, now, ttl)
        if load.may_be_kept and not loaded.once and _can_be_kept(loaded.parts):
            etag = source_version(loaded.metadata)
            cached = Cached(loaded.parts, now, ttl, etag, load.invalidated, now - asked_at)
            for tier in self._tiers:
                if not (loaded.personal and tier is self._shared):
                    tier.put(load, cached)
        return contents

    async def _from_others(self, load: Load, shared: SharedContents) -> Cached | None:
        """Return what another machine has loaded, or None: this machine has claimed the resource then."""
        found = await shared.claim(load)
        self.from_others += found is not None
        load.source.loads_from["shared"] += found is not None
        if found is not None and self._disk is not None and load.may_be_kept:
            self._disk.put(load, replace(found, stale=load.invalidated))
        return found

    async def _revalidate(self, load: Load) -> Loaded | None:
        """Revalidate the cached version with the source, or return None if there is none. Raises BbfsError.

        If the source still has that version, it transfers nothing, and the answer counts as a load of the same bytes:
        time to live, inode and the kernel's pages follow from it.
        """
        source, record = load.source, load.record
        if source.revalidates is None or record.digest is None or record.parts is not None or record.on_open:
            return None
        part = await self._last_seen(load)
        if part is None:
            return None
        answer = await source.revalidates.load_if_changed(record.metadata.native_uri, record.digest)
        return Loaded((part,), answer.ttl, answer.metadata) if isinstance(answer, Unchanged) else answer

    async def _last_seen(self, load: Load) -> Part | None:
        """Return the content of a resource in its last seen version, from memory or disk."""
        kept, described = self._publisher.kept(load.record), load.record.metadata
        if kept is not None:
            return Part(described.native_uri, described.mime_type, kept[0], described.content_type)
        found = await self._disk.get(load) if self._disk is not None else None
        same = found is not None and len(found.parts) == 1 and found.version == load.record.digest
        return found.parts[0] if found is not None and same else None

    async def _fit(self, load: Load, loaded: Loaded, now: float, ttl: float, asked_at: float) -> Loaded:
        """Move contents over the memory budget to disk (S15). Raises TooLarge where that fails."""
        size = sum(part.content.size for part in loaded.parts if isinstance(part.content, MemoryContent))
        if size <= self._memory:
            return loaded
        in_memory = all(part.link is None and isinstance(part.content, MemoryContent) for part in loaded.parts)
        if self._disk is not None and in_memory:
            stored = await self._disk.put_now(load, Cached(loaded.parts, now, ttl, took=now - asked_at))
            if stored is not None:
                return replace(loaded, parts=stored.parts)
        raise TooLarge(
            f"{size} bytes are more than the memory budget of {self._memory} bytes ([cache] memory), "
            f"and {self._why_not_on_disk(load)}"
        )

    def _why_not_on_disk(self, load: Load) -> str:
        if load.record.on_open:
            return "a result is not kept on disk"
        if not load.source.data.policy.disk:
            return "contents of the source are not kept on disk (its option disk)"
        if self._disk is None or self._disk.max_bytes == 0:
            return "there is no disk cache ([cache] disk)"
        return f"could not be kept in the disk cache of {self._disk.max_bytes} bytes ([cache] disk)"

    # -- what changes ------------------------------------------------------------------------------------------------

    def invalidate(self, source: Source, uri: str | None, *, announced: bool = False) -> None:
        """Invalidate all tiers of a resource (None: of every resource of the source).

        announced: the source itself said so; notify the other machines too.
        """
        self._invalidate_here(source, uri)
        if self._shared is not None:
            self._shared.invalidate(source, uri, announced=announced)

    def overwrite(self, source: Source, uri: str, now: float, part: Part | None = None) -> None:
        """Serve nothing of a resource, also not while its source is down, from before a change by the mount itself.

        part: the content that the source has now, if that is known; else the disk has none. now: when it was changed.
        """
        source.note_written(uri, nextafter(now, inf) if part is None else now)
        if self._disk is not None and source.data.policy.disk:
            parts = (part,) if part is not None and isinstance(part.content, MemoryContent) else ()
            ttl = source.data.policy.content_ttl if parts else 0.0
            self._disk.overwrite((source.fingerprint, uri), Cached(parts, now, ttl))
        elif self._disk is not None and source.may_be_on_disk:
            self._disk.invalidate(source.fingerprint, uri)

    def overwrite_below(self, source: Source, uri: str, known: Iterable[str], now: float) -> None:
        """As `overwrite`, of all that is below a directory. known: the resources of which the mount knows.

        Of the others, the disk may have what an earlier mount has loaded.
        """
        self.invalidate(source, None, announced=True)
        start = f"{uri.rstrip('/')}/"
        source.note_written_below(start, nextafter(now, inf))
        if self._disk is not None and source.data.policy.disk:
            self._disk.overwrite_below(source.fingerprint, start)
        for each in known:
            self.overwrite(source, each, now)

    async def settle(self, source: Source, also: Callable[[], None] | None = None) -> None:
        """Wait until nothing of a source from before the changes so far is on disk, where the mount after a kill would
        find it.

        also: see `DiskTier.settle`.
        """
        if self._disk is not None and source.data.policy.disk:
            await self._disk.settle(also)
        elif also is not None:
            await trio.to_thread.run_sync(also)

    def distrust(self, source: Source, uri: str) -> None:
        """Accept nothing from other machines that was requested before now."""
        if self._shared is not None:
            self._shared.invalidate(source, uri, announced=False)

    def relisted(self, source: Source, *, announced: bool = False) -> None:
        """Take no listing of another machine that was requested until now. announced: the source said so."""
        if self._shared is not None:
            self._shared.invalidate(source, LISTING, announced=announced)

    def dropped(self, source: Source, fingerprint: str, uri: str | None) -> bool:
        """Invalidate what another machine says to have changed (None: any resource of the source).

        Return whether the fingerprint, or `EVERYTHING`, means `source`.
        """
        meant = fingerprint in (EVERYTHING, source.fingerprint)
        if self._shared is None or not meant or not self._shared.has(source):
            return False
        self._invalidate_here(source, uri)
        return True

    def _invalidate_here(self, source: Source, uri: str | None) -> None:
        for load in self._under_way:
            if load.key[0] == source.fingerprint and uri in (None, load.key[1]):
                load.invalidate()
        if self._disk is not None and source.may_be_on_disk:
            self._disk.invalidate(source.fingerprint, uri)


def _can_be_kept(parts: Sequence[Part]) -> bool:
    """Return whether tiers may keep these parts: no link, and no file of the source itself."""
    return all(part.link is None and isinstance(part.content, MemoryContent | StoredContent) for part in parts)
