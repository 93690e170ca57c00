"""Publish the results of loads: size, version, times, error and parts of the record, and the content in memory.

A resource that answers several contents becomes a directory: each content gets a name (S5). Between two awaits a task
is alone; nothing here locks.
"""

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from itertools import count

import trio

from bbfs.model import uri_paths
from bbfs.model.errors import (
    BbfsError,
    DeadlineExceeded,
    Denied,
    InvalidUri,
    LoginRequired,
    NotFound,
    Outdated,
    TooLarge,
    Unreachable,
)
from bbfs.model.values import Content, Loaded, Part, ResourceMetadata
from bbfs.resources.cache.tier import Cached
from bbfs.resources.catalog.folding import ChangedPaths
from bbfs.resources.catalog.lookups import ABSENT_FOR
from bbfs.resources.catalog.record import Path, Record, content_key, publish_description
from bbfs.resources.loading.tiers import ContentCache, Load
from bbfs.resources.source import Source
from bbfs.sources.content.memory import MemoryContent, version_of

log = logging.getLogger(__name__)

ERROR_KEPT = 2.0
"""Seconds before a failed load is repeated: `ls -l` and the `cat` after it cost one request, not two."""
RESULT_KEPT = 60.0
"""Seconds for which the several parts of what an open loaded stay a directory, as far as memory allows."""


def require_current(record: Record) -> None:
    """Raise Outdated for a part that its resource no longer has."""
    if record.parent is not None and (record.parent.parts or {}).get(record.metadata.name) is not record:
        raise Outdated(f"{record.metadata.name} is no longer a content of {record.key[1]}")


def source_version(said: ResourceMetadata | None) -> str | None:
    """Return the version that the source itself gives a content, with the metadata of its load; None without one."""
    return said.etag if said is not None and said.size is not None else None


class Publisher:
    """Applies the results of loads to records, to the contents in memory, and notifies of changes.

    memory: the contents in memory, by `content_key`. changed: called with a source and the changed paths of its
    catalog. link: the target of a symbolic link in a resource's directory to the resource of the source with this
    native URI, or None. clock: seconds since the epoch.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        memory: ContentCache,
        *,
        changed: Callable[[Source, Iterable[Path]], None],
        link: Callable[[Source, Record, str], str | None],
        clock: Callable[[], float],
    ) -> None:
        self._nursery = nursery
        self._memory = memory
        self._changed = changed
        self._link = link
        self._clock = clock

    def holds(self, record: Record) -> bool:
        """Return whether the content of a record is in memory."""
        return content_key(record) in self._memory

    def kept(self, record: Record, *, counts: bool = False) -> list[Content] | None:
        """Return the contents of the last seen version, whatever their age, or None unless all are in memory.

        counts: as in `ContentCache.get`; False where the source was asked, or will be.
        """
        owner = record.parent or record
        records = sorted(owner.parts.values(), key=lambda part: part.part) if owner.parts is not None else [owner]
        kept = [self._memory.get(content_key(each), counts=counts) for each in records]
        return [content for content in kept if content is not None] if None not in kept else None

    def late(self, source: Source, record: Record, error: DeadlineExceeded) -> None:
        """Publish that a source did not answer in time: the open after this stat waits no second time."""
        owner, now = record.parent or record, self._clock()
        source.error = f"{owner.metadata.native_uri}: {error}"
        if owner.error is None or now >= owner.error_until:  # or another reader of the same load has told it
            log.info("%s: %s", source.data.id, source.error)
        owner.error, owner.error_until = DeadlineExceeded(*error.args), now + ERROR_KEPT

    def absent(self, load: Load, asked_at: float) -> bool:
        """Publish that a source that is written has lost a listed resource: programs can create it again.

        Return False if what the mount shows is newer than the request.
        """
        source, record = load.source, load.record
        if source.overlay is None or not record.path or load.is_overwritten or record.metadata.uri_template is not None:
            return True
        if not source.overlay.lacks(record.path, asked_at):
            return False
        self._changed(source, [record.path])
        return True

    def failed(self, source: Source, record: Record, error: BbfsError) -> bool:
        """Publish the error of a load. Return whether the resource existed until now and is gone."""
        gone = isinstance(error, NotFound) and record.digest is not None and not record.invalidated
        if gone:
            record.invalidate()
            if record.path:
                self._changed(source, [record.path])
        # A new instance: the raised one would keep its frames alive.
        unlisted = record.metadata.uri_template is not None
        kept = ABSENT_FOR if unlisted and isinstance(error, NotFound) else ERROR_KEPT
        record.error, record.error_until = type(error)(*error.args), self._clock() + kept
        is_told = source.data.mcp is not None  # by the connection, once, if the server is down or wants a login
        harmless = isinstance(error, NotFound | Denied | InvalidUri) and (
            is_told or not isinstance(error, LoginRequired)
        )
        source.error = None if harmless else f"{record.metadata.native_uri}: {error}"
        if isinstance(error, TooLarge):
            log.warning("%s: %s: %s", source.data.id, record.metadata.native_uri, error)
        elif record.on_open or not isinstance(error, NotFound | Unreachable | LoginRequired if is_told else NotFound):
            log.info("%s: %s: %s", source.data.id, record.metadata.native_uri, error)
        return gone

    def take(self, load: Load, found: Cached) -> Sequence[Content]:
        """Publish what a tier has cached, with its age. Return the contents."""
        source, record = load.source, load.record
        if source.watches is not None:
            source.watches.interested(record.metadata.native_uri)
        before = record.fetched_at
        seen = record.digest == found.version and before is not None and found.fetched_at <= before
        if len(found.parts) == 1 and seen and not (record.invalidated or load.invalidated):
            content = found.parts[0].content  # the record has this version already
            if isinstance(content, MemoryContent):
                self._memory.put(content_key(record), content)
            record.adopt_type(found.parts[0])
            return [content]
        loaded = Loaded(found.parts)
        if found.etag is not None:
            loaded = Loaded(found.parts, metadata=replace(record.metadata, size=found.size, etag=found.etag))
        return self.loaded(load, loaded, found.fetched_at, found.ttl)

    def loaded(self, load: Load, loaded: Loaded, now: float, ttl: float) -> Sequence[Content]:
        """Publish what a source answered to a load. now: when. Return the contents.

        A resource that was invalidated since the load began stays invalidated. One that was written since stays what
        was written.
        """
        if not load.is_overwritten:
            self.publish(load.source, load.record, loaded, now, ttl, invalidated=load.invalidated)
        return [part.content for part in loaded.parts]

    def publish(
        self,
        source: Source,
        record: Record,
        loaded: Loaded,
        now: float,
        ttl: float,
        *,
        invalidated: bool = False,
        notifies: bool = True,
    ) -> None:
        """Update the record, keep the contents in memory, and notify of changes.

        now: when the source had the contents. notifies: False if the caller notifies of the resource's path.
        """
        was_invalidated, is_first = record.invalidated, record.digest is None
        before = None if is_first else content_key(record)
        if source.watches is not None:
            source.watches.interested(record.metadata.native_uri)
        changed: list[Path] = []
        if len(loaded.parts) == 1 and loaded.parts[0].link is None:
            content = loaded.parts[0].content
            record.adopt_type(loaded.parts[0])
            if record.digest is None and record.metadata.size not in (None, content.size):
                source.misstates_sizes = True
            if (
                self._publish_only(record, loaded, content, now, ttl, invalidated=invalidated)
                or record.parts is not None
            ):
                changed.append(record.path)
            record.parts = None
            key = content_key(record)
            if before not in (None, key):
                self._memory.discard(before)  # an open file pins that version by itself
            if isinstance(content, MemoryContent) and (ttl > 0 or not record.on_open):
                self._memory.put(key, content)
        else:
            changed = self._publish_parts(source, record, loaded, now, ttl, invalidated=invalidated)
        if record.invalidated and not was_invalidated:
            changed.append(record.path)
        if changed and record.path and notifies:
            self._changed(source, ChangedPaths(changed, found="nothing" if is_first else "load"))

    @staticmethod
    def _publish_only(
        record: Record, loaded: Loaded, content: Content, now: float, ttl: float, *, invalidated: bool
    ) -> bool:
        """Publish version and size of the only content. Return whether it is another version."""
        if loaded.metadata is not None and source_version(loaded.metadata) is not None:
            before = record.inode_version
            is_first = record.digest is None and record.is_of_size(content.size)
            is_same = isinstance(content, MemoryContent) and content.version == record.unstated
            record.describe(loaded.metadata, record.path, now)
            publish_description(record, loaded.metadata, now, ttl, keeps_inode=is_first or is_same)
            record.error = None
            return record.inode_version != before
        changed = record.learn(content.size, content.version, now, ttl, outdated=invalidated)
        if loaded.metadata is not None:
            record.adopt(loaded.metadata)
        return changed

    def _publish_parts(
        self, source: Source, record: Record, loaded: Loaded, now: float, ttl: float, *, invalidated: bool
    ) -> list[Path]:
        """Publish several contents as a directory. Return the paths that changed."""
        digest = version_of([part.content.version for part in loaded.parts])
        before = record.parts
        if before is None or record.digest != digest:
            record.parts = name_parts(record, loaded.parts, now, lambda uri: self._link(source, record, uri))
        record.digest = record.shown = digest
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
            child.invalidated = invalidated
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
        """Drop the parts of a result after a while: the resource is a file again, and the next open loads it."""
        loaded = record.fetched_at
        await trio.sleep(seconds)
        if record.fetched_at == loaded:
            self.put_away(source, record)

    def put_away(self, source: Source, record: Record) -> None:
        """Drop the parts of a result."""
        parts, record.parts = record.parts, None
        for part in (parts or {}).values():
            self._memory.discard(content_key(part))
        if parts is not None and record.path:
            self._changed(source, [record.path])


def name_parts(
    record: Record, parts: Sequence[Part], now: float, leads: Callable[[str], str | None]
) -> dict[str, Record]:
    """Return a record for each content of a load, by name.

    A content below the URI of its resource is named by the rest of its URI, any other by its last component. leads:
    the target of a symbolic link in their directory to the resource with this native URI, or None.
    """
    own = record.metadata.native_uri
    named: dict[str, Record] = {}
    for position, part in enumerate(parts):
        uri = part.link or part.native_uri or own
        target = leads(part.link) if part.link is not None else None
        if uri == own and part.link is None:
            name = part.name or uri_paths.index_name(part.mime_type)
        else:
            below = uri.removeprefix(own).strip("/") if uri.startswith(own) else uri.rstrip("/").rpartition("/")[2]
            name = uri_paths.show_component(below.replace("/", "%2F") or str(position))
        if part.link is not None and target is None:
            name = uri_paths.show_component(uri_paths.hide_component(name) + ".url")
        name = _free(name, named)
        # The bbfs URI follows from the path; the server may not know the part's own URI.
        bbfs_uri = f"{record.metadata.uri.rstrip('/')}/{uri_paths.hide_component(name)}"
        metadata = ResourceMetadata(
            bbfs_uri,
            uri,
            name,
            mime_type=part.mime_type,
            content_type=part.content_type,
            kind="resource" if target is None else "symlink",
            target=target,
        )
        child = Record(record.source_key, metadata, (*record.path, name) if record.path else (), now)
        child.parent, child.part = record, position
        # The size belongs to this content; the source has not declared it.
        child.size, child.digest, child.inode_version = part.content.size, part.content.version, part.content.version
        named[name] = child
    return named


def _free(name: str, taken: Container[str]) -> str:
    """Return `name`, with the first free number before its extension if taken. Stable, as contents have an order."""
    numbered = (uri_paths.suffixed(name, str(number)) for number in count(1))
    return name if name not in taken else next(each for each in numbered if each not in taken)
