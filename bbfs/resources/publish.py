"""What a load means for the record of its resource: size, version, times, error, parts; and which contents are kept.

Resources that answer several contents: each content gets a name, and the resource becomes their directory (S5).
Between two awaits a task is alone; nothing here locks.
"""

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from itertools import count

import trio

from bbfs.model import file_names
from bbfs.model.digest import version_of
from bbfs.model.errors import (
    BbfsError,
    Denied,
    InvalidUri,
    LoginRequired,
    NotFound,
    Outdated,
    TooLarge,
    Unreachable,
)
from bbfs.model.values import Content, Loaded, Part, ResourceMetadata
from bbfs.resources.cache.memory import ContentCache
from bbfs.resources.cache.tier import Cached
from bbfs.resources.catalog import settle
from bbfs.resources.catalog.record import Path, Record
from bbfs.resources.source import Source
from bbfs.resources.tiers import Load
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


class Publisher:
    """Publishes what loads bring: on the records of their resources, in memory, and to those who listen.

    memory: the contents in memory, by `content_key`. changed: told of a source and the paths of its catalog whose entry
    or content is not what it was. link: where a link in a resource's directory leads for another resource of the source
    with this native URI, or None. clock: seconds since the epoch.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        memory: ContentCache[Content],
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

    def kept(self, record: Record) -> list[Content] | None:
        """The contents in memory of the version last seen, whatever their age; None unless all are there."""
        owner = record.parent or record
        records = sorted(owner.parts.values(), key=lambda part: part.part) if owner.parts is not None else [owner]
        kept = [self._memory.get(content_key(each)) for each in records]
        return [content for content in kept if content is not None] if None not in kept else None

    def failed(self, source: Source, record: Record, error: BbfsError) -> bool:
        """Note what a load has ended with. Return whether that is news of what was there: it no longer is."""
        gone = isinstance(error, NotFound) and record.digest is not None and not record.suspected
        if gone:
            record.suspect()
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
        return gone

    def take(self, load: Load, found: Cached) -> Sequence[Content]:
        """Publish what a tier has, as old as it is. Return its contents."""
        source, record = load.source, load.record
        if source.watches is not None:
            source.watches.interested(record.metadata.native_uri)
        before = record.fetched_at
        seen = record.digest == found.version and before is not None and found.fetched_at <= before
        if len(found.parts) == 1 and seen and not (record.suspected or load.invalidated):
            content = found.parts[0].content  # nothing new is learnt from it
            if isinstance(content, MemoryContent):
                self._memory.put(content_key(record), content)
            record.settle_type(found.parts[0])
            return [content]
        loaded = Loaded(found.parts)
        if found.etag is not None:
            loaded = Loaded(found.parts, metadata=replace(record.metadata, size=found.size, etag=found.etag))
        return self.loaded(load, loaded, found.fetched_at, found.ttl)

    def loaded(self, load: Load, loaded: Loaded, now: float, ttl: float) -> Sequence[Content]:
        """Publish a load on its record, have its contents in memory, and tell what changed. Return its contents.

        now: when it was fetched. A resource that was invalidated since the load began stays suspected.
        """
        source, record, outdated = load.source, load.record, load.invalidated
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
    """Name the contents of one load: below the resource's own URI by what follows it, else by their last component.

    leads: where a symbolic link in their directory has to lead for a resource of this native URI; None if nowhere.
    """
    own = record.metadata.native_uri
    named: dict[str, Record] = {}
    for position, part in enumerate(parts):
        uri = part.link or part.native_uri or own
        target = leads(part.link) if part.link is not None else None
        if uri == own and part.link is None:
            name = part.name or file_names.index_name(part.mime_type)
        else:
            below = uri.removeprefix(own).strip("/") if uri.startswith(own) else uri.rstrip("/").rpartition("/")[2]
            name = file_names.show_component(below.replace("/", "%2F") or str(position))
        if part.link is not None and target is None:
            name = file_names.show_component(file_names.hide_component(name) + ".url")
        name = _free(name, named)
        # Its bbfs URI is the one that the rule makes of its path; the server's own may lead nowhere.
        bbfs_uri = f"{record.metadata.uri.rstrip('/')}/{file_names.hide_component(name)}"
        metadata = ResourceMetadata(
            bbfs_uri,
            uri,
            name,
            mime_type=part.mime_type,
            content_type=part.content_type,
            kind="resource" if target is None else "symlink",
            target=target,
        )
        child = Record(record.source_id, metadata, (*record.path, name) if record.path else (), now)
        child.parent, child.part = record, position
        # Its size is no declaration of the source: it belongs to this content and is gone with it.
        child.size, child.digest, child.inode_version = part.content.size, part.content.version, part.content.version
        named[name] = child
    return named


def _free(name: str, taken: Container[str]) -> str:
    """`name`, or with a number before its extension the first that is free: contents have an order, so it is stable."""
    numbered = (file_names.suffixed(name, str(number)) for number in count(1))
    return name if name not in taken else next(each for each in numbered if each not in taken)
