"""Loading contents and keeping them: from memory, from the tiers below it, or from the source, in this order.

A load runs in a flight, so that all who want a resource share it. What it brings is settled on the resource's record
and kept; who else must hear of that is told.

Between two awaits a task is alone; nothing here locks.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import trio

from bbfs.model.digest import version_of
from bbfs.model.errors import (
    BbfsError,
    DeadlineExceeded,
    Denied,
    InvalidUri,
    LoginRequired,
    NotFound,
    NotSupported,
    Outdated,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)
from bbfs.model.values import Content, Loaded
from bbfs.resources.cache.memory import ContentCache
from bbfs.resources.cache.tier import Cached
from bbfs.resources.catalog import settle
from bbfs.resources.catalog.record import Path, Record
from bbfs.resources.loads_under_way import Loading
from bbfs.resources.multipart import name_parts
from bbfs.resources.requests import RequestSlot, SingleFlight
from bbfs.resources.revalidate import reload
from bbfs.resources.source import Source, Waiting
from bbfs.resources.tiers import LowerTiers
from bbfs.sources.content.memory import MemoryContent

log = logging.getLogger(__name__)

ERROR_KEPT = 2.0
"""Seconds for which a failed load is not repeated: `ls -l` and the `cat` after it cost one request, not two."""
ABSENT_FOR = 5.0
"""Seconds for which an unlisted resource that the source says not to have is not asked for again."""
RESULT_KEPT = 60.0
"""Seconds for which what an open has loaded stays a directory where it has several parts, as far as memory allows."""


def content_key(record: Record) -> tuple[str, str, int, str | None]:
    """Contents are kept by version: none is ever served as another. 0 is the resource, its parts count from 1."""
    return (*record.key, 0 if record.parent is None else record.part + 1, record.digest)


def require_current(record: Record) -> None:
    """Raises Outdated for one of several contents that the resource no longer answers."""
    if record.parent is not None and (record.parent.parts or {}).get(record.metadata.name) is not record:
        raise Outdated(f"{record.metadata.name} is no longer a content of {record.key[1]}")


def refuse_repeat(record: Record, now: float) -> None:
    """Raises again what a load has just ended with; see `ERROR_KEPT`."""
    owner = record.parent or record
    if owner.error is not None and now < owner.error_until:
        raise type(owner.error)(*owner.error.args)


class ContentLoader:
    """Brings the contents of resources, and keeps them.

    memory: the contents in memory, by `content_key`. tiers: what is below. changed: told of a source and the paths of
    its catalog whose entry or content is not what it was. ended: told of each load that has ended, with the bytes that
    it has brought into memory, or None for a failure. link: where a link in a resource's directory leads for another
    resource of the source with this native URI, or None. clock: seconds since the epoch.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        flights: SingleFlight,
        memory: ContentCache[Content],
        tiers: LowerTiers,
        *,
        changed: Callable[[Source, Iterable[Path]], None],
        ended: Callable[[Source, Record, int | None], None],
        link: Callable[[Source, Record, str], str | None],
        clock: Callable[[], float],
    ) -> None:
        self.loads = 0
        self._nursery = nursery
        self._flights = flights
        self._memory = memory
        self._tiers = tiers
        self._changed = changed
        self._ended = ended
        self._link = link
        self._clock = clock

    # -- what there is -----------------------------------------------------------------------------------------------

    def kept(self, record: Record) -> list[Content] | None:
        """The contents in memory of the version last seen, whatever their age; None unless all are there."""
        owner = record.parent or record
        records = sorted(owner.parts.values(), key=lambda part: part.part) if owner.parts is not None else [owner]
        kept = [self._memory.get(content_key(each)) for each in records]
        return [content for content in kept if content is not None] if None not in kept else None

    def within_stale(self, source: Source, record: Record) -> bool:
        """Whether what is known of a resource may stand in for a source that is down (S20)."""
        if record.fetched_at is None:
            return False
        return self._clock() < record.fetched_at + record.ttl + source.data.policy.max_stale

    async def contents(self, source: Source, record: Record) -> Sequence[Content]:
        """All contents of the resource that a record belongs to, by their part; kept ones while the source is down.

        Raises BbfsError.
        """
        with Waiting(source):
            if record.on_open:
                return await self._load_anew(source, record)
            try:
                refuse_repeat(record, self._clock())
                return await self.load(source, record)
            except (Unreachable, DeadlineExceeded):
                kept = await self.last(source, record)
                if kept is None:
                    raise
                return kept

    async def last(self, source: Source, record: Record) -> Sequence[Content] | None:
        """What is kept of a resource whose source is down, for as long as that may be served; None if nothing is."""
        kept = self.kept(record) if self.within_stale(source, record) else None
        if kept is None:
            found = await self._tiers.last(source, record.parent or record)
            if found is None:
                return None
            kept = self._stand_in(source, record.parent or record, found)
        for each in (record, *(record.parts or {}).values()):
            each.stale = True
        return kept

    def _stand_in(self, source: Source, record: Record, found: Cached) -> Sequence[Content]:
        """Take over what was kept, without forgetting that it may have changed and that the source does not answer."""
        error, until = record.error, record.error_until
        doubted = found.stale or record.suspected
        parts = self._take(source, record, found, outdated=doubted)
        record.error, record.error_until = error, until
        return parts

    # -- loading -----------------------------------------------------------------------------------------------------

    async def load(self, source: Source, record: Record) -> Sequence[Content]:
        """The contents as they are fresh: by a load that all share, unless a tier has them. Raises BbfsError."""
        owner = record.parent or record
        # The slot is asked for when the flight begins, before any that nobody waits for.
        return await self.ask(source, ("load", record.key), lambda: self.fetch(source, owner, source.slots.ask()))

    async def ask(
        self, source: Source, key: tuple[Any, ...], request: Callable[[], Any], *, while_wanted: bool = False
    ) -> Any:
        """Return the value of a request to a source that all who ask for `key` share. Raises BbfsError."""
        while_wanted = while_wanted or source.loads_while_wanted
        try:
            return await self._flights.do(key, request, source.data.policy.timeout, while_wanted=while_wanted)
        except DeadlineExceeded as error:
            source.error = str(error)
            raise

    async def _load_anew(self, source: Source, record: Record) -> Sequence[Content]:
        """Load what only an open loads (S31): once for each open, shared with no other, and nothing stale instead."""
        if record.parent is not None:
            self._put_away(source, record.parent)
            raise Outdated(f"{record.metadata.name} belongs to a result that is no longer kept")
        key = ("open", object())
        return await self.ask(source, key, lambda: self.fetch(source, record, source.slots.ask()), while_wanted=True)

    async def fetch(self, source: Source, record: Record, slot: RequestSlot) -> Sequence[Content]:
        """One load, in a flight of its own: from disk, else in `slot` from another machine or the source."""
        size: int | None = None
        loading = self._tiers.begin(source, record)
        try:
            contents = await self._found_on_disk(source, loading, slot)
            if contents is None:
                contents = await self._load_at(source, loading, slot)
            size = sum(content.size for content in contents if isinstance(content, MemoryContent))
            return contents
        finally:
            self._tiers.end(source, loading)
            self._ended(source, record, size)

    async def _found_on_disk(self, source: Source, loading: Loading, slot: RequestSlot) -> Sequence[Content] | None:
        """What the disk has. The slot is released if no request is needed."""
        record, found, asking = loading.record, None, False
        try:
            if not record.on_open and source.data.capabilities.read:
                found = await self._tiers.fresh(source, loading)
            asking = found is None
        finally:
            if not asking:
                slot.release()
        return None if found is None else self._take(source, record, found, outdated=loading.outdated)

    async def _load_at(self, source: Source, loading: Loading, slot: RequestSlot) -> Sequence[Content]:
        """From another machine that has it or is loading it, else from the source, for the other machines as well."""
        handler, record = source.loads, loading.record
        native_uri = record.metadata.native_uri
        try:
            async with slot:
                if not source.data.capabilities.read or handler is None:
                    raise NotSupported(f"{source.data.id} cannot be read")
                loading.begin_anew()
                found = await self._tiers.claim(source, loading)
                if found is not None:
                    return self._take(source, record, found, outdated=loading.outdated)
                self.loads += 1
                loading.begin_anew()
                loaded = await reload(source, record, self.kept(record), self._tiers) or await handler.load(native_uri)
        except BbfsError as error:
            self._failed(source, record, error)
            raise
        if not loaded.parts:
            raise ProtocolViolation("answered no content")
        now = self._clock()
        ttl = source.data.policy.content_ttl if loaded.ttl is None else loaded.ttl
        loaded = await self._make_room(source, loading, loaded, now, ttl)
        source.error = None
        contents = self._keep(source, record, loaded, now, ttl, outdated=loading.outdated)
        if not loaded.once:
            etag = loaded.metadata.etag if loaded.metadata is not None and loaded.is_versioned else None
            self._tiers.put(source, loading, loaded.parts, now, ttl, etag)
        return contents

    def _failed(self, source: Source, record: Record, error: BbfsError) -> None:
        """Note what a load has ended with."""
        if isinstance(error, NotFound) and record.digest is not None and not record.suspected:
            record.suspect()  # it was there: whoever has it open is told
            self._tiers.changed(source, record.metadata.native_uri)
            if record.path:
                self._changed(source, [record.path])
        # A new instance: the one that was raised holds on to all that its frames hold.
        unlisted = record.metadata.uri_template is not None
        kept = ABSENT_FOR if unlisted and isinstance(error, NotFound) else ERROR_KEPT
        record.error, record.error_until = type(error)(*error.args), self._clock() + kept
        is_told = source.data.mcp is not None  # by its connection, once: a server that is down, or wants a login
        harmless = isinstance(error, NotFound | Denied | InvalidUri) and (
            is_told or not isinstance(error, LoginRequired)
        )
        source.error = None if harmless else f"{record.metadata.native_uri}: {error}"
        if isinstance(error, TooLarge):
            log.warning("%s: %s: %s", source.data.id, record.metadata.native_uri, error)
        elif record.on_open or not isinstance(error, NotFound | Unreachable | LoginRequired if is_told else NotFound):
            log.info("%s: %s: %s", source.data.id, record.metadata.native_uri, error)

    async def _make_room(self, source: Source, loading: Loading, loaded: Loaded, now: float, ttl: float) -> Loaded:
        """A content that is whole in memory must fit the budget; else it goes to disk (S15).

        Raises TooLarge, which the log repeats.
        """
        size = sum(part.content.size for part in loaded.parts if isinstance(part.content, MemoryContent))
        budget = self._memory.max_bytes
        if size <= budget:
            return loaded
        parts = await self._tiers.put_large(source, loading, loaded.parts, now, ttl)
        if parts is not None:
            return replace(loaded, parts=parts)
        record = loading.record
        error = TooLarge(
            f"{size} bytes are more than the memory budget of {budget} bytes ([cache] memory), "
            f"and {self._tiers.why_not(source, record)}"
        )
        record.error, record.error_until = TooLarge(*error.args), self._clock() + ERROR_KEPT
        source.error = f"{record.metadata.native_uri}: {error}"
        log.warning("%s: %s: %s", source.data.id, record.metadata.native_uri, error)
        raise error

    # -- keeping -----------------------------------------------------------------------------------------------------

    def _take(self, source: Source, record: Record, found: Cached, *, outdated: bool) -> Sequence[Content]:
        """Keep what a tier has, as old as it is."""
        if source.watches is not None:
            source.watches.interested(record.metadata.native_uri)
        before = record.fetched_at
        seen = record.digest == found.version and before is not None and found.fetched_at <= before
        if len(found.parts) == 1 and seen and not (record.suspected or outdated):
            content = found.parts[0].content  # nothing new is learnt from it
            if isinstance(content, MemoryContent):
                self._memory.put(content_key(record), content)
            record.settle_type(found.parts[0])
            return [content]
        loaded = Loaded(found.parts)
        if found.etag is not None:
            loaded = Loaded(found.parts, metadata=replace(record.metadata, size=found.size, etag=found.etag))
        return self._keep(source, record, loaded, found.fetched_at, found.ttl, outdated=outdated)

    def _keep(
        self, source: Source, record: Record, loaded: Loaded, now: float, ttl: float, *, outdated: bool
    ) -> Sequence[Content]:
        """Settle a load on its record, have its contents in memory, and tell what changed.

        now: when it was fetched. outdated: whether it was said to change since; it stays suspected then.
        """
        suspected, before = record.suspected, content_key(record)
        if source.watches is not None:
            source.watches.interested(record.metadata.native_uri)
        changed: list[Path] = []
        if len(loaded.parts) == 1 and loaded.parts[0].link is None:
            content = loaded.parts[0].content
            record.settle_type(loaded.parts[0])
            if record.digest is None and record.metadata.size not in (None, content.size):
                source.misstates_sizes = True
            if self._settle(record, loaded, content, now, ttl, outdated=outdated) or record.parts is not None:
                changed.append(record.path)
            record.parts = None
            key = content_key(record)
            if key != before:
                self._memory.discard(before)  # nobody asks for that version any more; who has it open holds it
            if isinstance(content, MemoryContent) and (ttl > 0 or not record.on_open):
                self._memory.put(key, content)
        else:
            changed = self._keep_parts(source, record, loaded, now, ttl, outdated=outdated)
        if record.suspected and not suspected:
            changed.append(record.path)
        if changed and record.path:
            self._changed(source, changed)
        return [part.content for part in loaded.parts]

    @staticmethod
    def _settle(record: Record, loaded: Loaded, content: Content, now: float, ttl: float, *, outdated: bool) -> bool:
        """Take over the version and size of a content. Says whether it is another version."""
        if loaded.metadata is not None and loaded.is_versioned:
            before = record.inode_version
            record.describe(loaded.metadata, record.path, now)
            settle(record, loaded.metadata, now, ttl)
            return record.inode_version != before
        changed = record.learn(content.size, content.version, now, ttl, outdated=outdated)
        if loaded.metadata is not None:
            record.adopt(loaded.metadata)
        return changed

    def _keep_parts(
        self, source: Source, record: Record, loaded: Loaded, now: float, ttl: float, *, outdated: bool
    ) -> list[Path]:
        """Several contents make a directory, each content named by its own URI. Returns the paths that changed."""
        digest = version_of([part.content.version for part in loaded.parts])
        before = record.parts
        if before is None or record.digest != digest:
            record.parts = name_parts(record, loaded.parts, now, lambda uri: self._link(source, record, uri))
        record.digest = digest
        if record.metadata.on_open:
            self._nursery.start_soon(self._put_away_later, source, record, max(RESULT_KEPT, ttl))
        else:
            record.inode_version = digest
        record.size, record.dirty, record.error = None, True, None
        after = record.parts or {}
        if before is not record.parts:
            for child in (record, *after.values()):
                child.changed_at = now
        for child in (record, *after.values()):
            child.fetched_at, child.ttl, child.stale = now, ttl, False
            child.suspected = outdated
        for child in after.values():
            content = loaded.parts[child.part].content
            if isinstance(content, MemoryContent):
                self._memory.put(content_key(child), content)
        if before is None:
            return [record.path]
        versions = ((name, before.get(name), after.get(name)) for name in before.keys() | after.keys())
        return [
            (*record.path, n) for n, old, new in versions if (old and old.inode_version) != (new and new.inode_version)
        ]

    async def _put_away_later(self, source: Source, record: Record, seconds: float) -> None:
        """Keep the parts of a result for a while; then the resource is a file again, and an open loads it anew."""
        loaded = record.fetched_at
        await trio.sleep(seconds)
        if record.fetched_at == loaded:
            self._put_away(source, record)

    def _put_away(self, source: Source, record: Record) -> None:
        parts, record.parts = record.parts, None
        for part in (parts or {}).values():
            self._memory.discard(content_key(part))
        if parts is not None and record.path:
            self._changed(source, [record.path])
