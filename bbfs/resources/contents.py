"""The sizes, versions and contents of resources: what is cached of them, and what their sources answer."""

import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import trio

from bbfs.model.errors import DeadlineExceeded, IsADirectory, NotFound, Unreachable
from bbfs.model.values import Content, Part, ResourceMetadata
from bbfs.resources import documents
from bbfs.resources.cache import pins
from bbfs.resources.cache.tier import Cached
from bbfs.resources.catalog.record import AWAITED, JUST_NOW, Node, Path, Record
from bbfs.resources.documents import TEXT
from bbfs.resources.loading.loader import ContentLoader, refuse_repeat
from bbfs.resources.loading.publish import Publisher, content_key, require_current
from bbfs.resources.loading.tiers import ContentCache, DiskTier, Load
from bbfs.resources.readahead.scheduler import LoadAhead
from bbfs.resources.source import Source
from bbfs.resources.tree import Roots, Tree
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import MemoryContent


class Contents:
    """The contents of all sources.

    memory: those in memory. disk: those on disk, if configured. clock: seconds since the epoch.
    """

    def __init__(
        self,
        roots: Roots,
        tree: Tree,
        loader: ContentLoader,
        publisher: Publisher,
        ahead: LoadAhead,
        memory: ContentCache,
        disk: DiskTier | None,
        clock: Callable[[], float],
    ) -> None:
        self._roots = roots
        self._tree = tree
        self._loader = loader
        self._publisher = publisher
        self._ahead = ahead
        self._memory = memory
        self._disk = disk
        self._clock = clock

    # -- what is cached ----------------------------------------------------------------------------------------------

    def size_now(self, record: Record) -> tuple[int, float] | None:
        """Return the size in bytes and its validity in seconds, or None if only the source can tell."""
        now = self._clock()
        size = record.learnt_size(now)
        if size is not None or record.metadata.size is None:
            return size
        source = self._roots.of(record)
        if source.misstates_sizes and record.digest is None:
            return None  # `cp` and `tar` would report a file that changed while they read it
        return record.declared_size(now, source.data.policy.listing_ttl)

    def last_size(self, record: Record) -> int | None:
        """Return the learnt size in bytes, however old, else the one the source states while that holds, else None."""
        size = self.size_now(record)
        return record.size if size is None else size[0]

    def resolved(self, record: Record) -> bool:
        """Return whether the size is known, or was asked for just now."""
        return self.size_now(record) is not None or record.confirmed_within(JUST_NOW, self._clock())

    def settled(self, record: Record) -> bool:
        """Return whether size and version are known, or were asked for just now.

        The version that was seen last may be an earlier one, though the source has stated a size since.
        """
        now = self._clock()
        current = record.digest is None or record.fresh(now) or record.confirmed_within(JUST_NOW, now)
        return current and self.resolved(record)

    def lazy(self, record: Record) -> bool:
        """Return whether the size is 0 until an open: if only an open loads the resource, or with `sizes = "lazy"`."""
        return record.on_open or record.source_key in self._roots.lazy

    def send_on(self, record: Record) -> None:
        """Keep what was just loaded for the lookup that follows ESTALE, even if it is invalidated meanwhile.

        The kernel retries only once, so a resource that changes faster could never be opened otherwise.
        """
        if record.loaded_within(JUST_NOW, self._clock()):
            record.awaited_until = self._clock() + AWAITED

    def just_changed(self, record: Record) -> bool:
        """Return whether the kernel may be about to look up the version of the last load."""
        return record.changed_within(JUST_NOW, self._clock())

    def content_now(self, record: Record, *, counts: bool = True) -> Content | None:
        """Return the content, if it is in memory, and fresh or just loaded; else None. counts: see `ContentCache.get`.

        A part of what an open has loaded is valid as long as its directory exists.
        """
        kept = record.parent is not None and record.on_open
        usable = record.fresh(self._clock()) or kept or self.just_changed(record)
        return self._memory.get(content_key(record), counts=counts) if usable and record.parts is None else None

    # -- what a source answers ---------------------------------------------------------------------------------------

    async def open(self, record: Record) -> Content:
        """Return the content of a resource, from memory or by a load. Raises IsADirectory if it has several parts."""
        content = self.content_now(record)
        if content is not None:
            return content
        contents = await self._loader.contents(self._roots.of(record), record)
        if record.parts is not None:
            raise IsADirectory(f"{record.metadata.name} answered several contents")
        require_current(record)
        return contents[record.part] if record.parent is not None else contents[0]

    async def learn(self, record: Record) -> None:
        """Update size, version and time of the record: by asking the source for them, or by a load.

        While the source is down, a learnt size stays valid (S20). Raises the source's error otherwise. Does nothing for
        what only an open loads (S31).
        """
        if record.on_open:
            return
        source = self._roots.of(record)
        deadline = trio.current_time() + source.data.policy.timeout
        with source.waiters:
            try:
                refuse_repeat(record, self._clock())
                if source.catalog.is_asked_singly:
                    key = ("stat", record.key)
                    await self._loader.ask(source, record, key, lambda: self._confirm(source, record))
                    if self.resolved(record):
                        return
                await self._loader.load(source, record, deadline)
                require_current(record)
            except (Unreachable, DeadlineExceeded):
                known = record.size is not None and self._loader.within_stale(source, record)
                if not known and await self._loader.last(source, record) is None:
                    raise
                record.stale = True

    def expires_now(self, record: Record) -> bool:
        """Return whether the time to live of a content has ended, or ends within `JUST_NOW`."""
        return not record.on_open and record.fresh_for(self._clock()) <= JUST_NOW

    def begin_learning(self, record: Record) -> None:
        """Begin to learn a record that `expires_now`, without waiting: a program waits to hear of another content."""
        if not self.expires_now(record):
            return
        left = record.fresh_for(self._clock())

        async def learn() -> None:
            await trio.sleep(left)  # until then `learn` would take what was loaded just now
            await self.learn(record)

        source = self._roots.of(record)
        source.flights.begin(("learn", record.key), learn, source.data.policy.timeout + JUST_NOW)

    async def _confirm(self, source: Source, record: Record) -> None:
        async with source.slots.ask():
            load = Load(source, record)
            for is_last in (False, True):  # the mount may change the name while the source is asked
                asked_at = self._clock()
                try:
                    await source.catalog.confirm(record)
                    return
                except NotFound:
                    if self._publisher.absent(load, asked_at) or is_last:
                        raise

    async def exists(self, record: Record) -> bool:
        """Return whether the source has a resource, by a load. Raises any other error."""
        try:
            await self.learn(record)
        except NotFound:
            return False
        return True

    async def find_certain(self, path: Path) -> Node:
        """As `Tree.find`, but ask the source if a name may be a resource or a directory."""
        node = await self._tree.find(path)
        if self._tree.opened_as_file(path, node) or (node.candidate is not None and await self.exists(node.candidate)):
            node = await self._tree.find(path)
        return node

    async def text(self, record: Record, version: str, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return the text of a document from the disk cache, or else make it and cache it. Raise what `make` raises.

        version: of the text. What is cached is true for as long as it is there: another text has another version.
        """
        source = self._roots.of(record)
        disk = self._disk if source.data.policy.disk else None
        key = source.fingerprint, f"{TEXT} {version} {record.metadata.native_uri}"
        if disk is not None and (cached := await disk.recall(key)) is not None:
            content = cached.parts[0].content
            return await content.read_waiting(0, content.size)
        text = await make()
        if disk is not None:
            disk.keep(key, Cached((Part(None, None, MemoryContent(text), "text"),), self._clock(), 0.0))
        return text

    # -- on disk, before a program asks ------------------------------------------------------------------------------

    async def kept_on_disk(self, source: Source) -> dict[str, int] | None:
        """Return the bytes on disk of each resource of a source, by native URI; None if it has no place there."""
        if self._disk is None or not source.data.policy.disk or not source.data.capabilities.read or source.is_passed:
            return None
        return await self._disk.kept(source.fingerprint)

    def why_not_on_disk(self, source: Source) -> str:
        """Return why the disk takes no contents of a source. For people."""
        if source.is_passed or source.data.type == "filesystem":
            return "a local folder is read where it is"
        if not source.data.capabilities.read:
            return "its option capabilities does not grant read"
        if not source.data.policy.disk:
            return "its contents are not kept on disk (its option disk)"
        return "there is no disk cache ([cache] disk)"

    async def keep_on_disk(self, source: Source, record: Record, *, is_there: bool) -> int | None:
        """Have the content of a resource on disk, as fresh as an open would get it. Return its bytes.

        None: it is of a kind that is not kept, such as one that is read in ranges. is_there: whether the disk has a
        version. Raise the source's error, also where a reader would get a stale content.
        """
        kept = [content] if (content := self.content_now(record)) is not None else None
        if kept is None:
            kept = [*await self._loader.contents(source, record)]
        if record.stale:
            raise Unreachable(source.problem or "the source does not answer")
        if not all(isinstance(each, MemoryContent | StoredContent) for each in kept):
            return None
        if not is_there and self._disk is not None:
            self._disk.put(Load(source, record), self._cached(record, kept))
        return sum(each.size for each in kept)

    @staticmethod
    def _cached(record: Record, contents: Sequence[Content]) -> Cached:
        """Return the cached contents of a record as a tier keeps them."""
        owners = sorted(record.parts.values(), key=lambda part: part.part) if record.parts is not None else [record]
        parts = tuple(
            Part(each.metadata.native_uri, each.metadata.mime_type, content, each.metadata.content_type)
            for each, content in zip(owners, contents, strict=True)
        )
        found = Cached(parts, record.fetched_at or 0.0, record.ttl, stale=record.invalidated)
        return found if found.version == record.digest else replace(found, etag=record.digest)

    @property
    def disk_bytes(self) -> int:
        """The bound of the disk cache in bytes; 0 without one."""
        return 0 if self._disk is None else self._disk.max_bytes

    async def noted_pins(self, source: Source) -> set[Path]:
        """Return the paths in the catalog of a source that users have pinned."""
        if self._disk is None:
            return set()
        return {tuple(json.loads(text)) for text in await self._disk.run_on_disk(pins.paths, source.fingerprint)}

    async def note_pin(self, source: Source, path: Path, *, is_pinned: bool) -> None:
        """Note on disk that a path in the catalog of a source is pinned, or is not any more."""
        if self._disk is not None:
            seen = self._clock() if is_pinned else None
            await self._disk.run_on_disk(pins.note_path, source.fingerprint, json.dumps(path), seen)

    async def hold_on_disk(self, source: Source, uris: Collection[str]) -> None:
        """Let the disk evict none of some resources of a source (`""`: of any), and whatever it likes of the others."""
        if self._disk is not None:
            await self._disk.run_on_disk(pins.hold, source.fingerprint, uris, self._clock())

    async def settle_on_disk(self) -> None:
        """Wait until the disk has what was loaded so far."""
        if self._disk is not None:
            await self._disk.flush()

    def accessed(self, path: Path, record: Record, *, wanted: bool) -> None:
        """Take note of an access for readahead.

        Call this if the content is not cached (`wanted`: it is loaded next), or was loaded ahead (`Record.ahead`).
        """
        record.ahead = False
        if record.source_key != TEXT:
            self._ahead.accessed(record.path or self._tree.place(path)[1], record, wanted=wanted)

    # -- metadata ----------------------------------------------------------------------------------------------------

    def described(self, record: Record) -> ResourceMetadata:
        """Return the metadata with the true size and the time of the last change."""
        m = record.metadata
        size = m.size if record.size is None else record.size
        return replace(m, size=size, modified_ns=record.modified_ns, etag=m.etag or record.digest)

    def origin(self, record: Record) -> str:
        """Return the URI that a source has for a resource; for the text of a document, that of the document."""
        metadata = record.metadata
        if record.source_key == TEXT and metadata.properties is not None:
            return metadata.properties["text_of"]
        return metadata.native_uri

    def document(self, path: Path, record: Record) -> dict[str, Any]:
        """Return the metadata of a resource as one JSON object, without a request to its source."""
        source, metadata = self._roots.of(record), record.metadata
        if (origin := self.origin(record)) != metadata.native_uri:
            metadata = replace(metadata, native_uri=origin)
        fresh = record.fresh(self._clock()) and not record.stale
        error = record.error or (record.parent.error if record.parent is not None else None)
        return documents.resource_document(
            metadata,
            source.data,
            path="/".join(path),
            size=self.last_size(record),
            modified_ns=record.modified_ns,
            fetched_at=record.fetched_at,
            cache="absent" if content_key(record) not in self._memory else "fresh" if fresh else "stale",
            error=None if error is None else str(error),
        )
