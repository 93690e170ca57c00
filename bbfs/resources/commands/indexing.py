"""Indexes the texts of a source (`bbfs index`): loads what has changed since the last time."""

from collections.abc import Callable

import trio

from bbfs.model.errors import BbfsError, NotSupported
from bbfs.model.values import ResourceMetadata
from bbfs.resources.commands import table
from bbfs.resources.commands.table import Walked
from bbfs.resources.manager import ResourceManager
from bbfs.resources.search.index.entries import Indexed, Remove
from bbfs.resources.search.index.local import LocalIndex, stamp_of
from bbfs.resources.search.index.waiting import MOST_WAITING
from bbfs.resources.source import Source

CONTINUED_FOR = 86400.0
"""Seconds for which an interrupted walk is continued instead of begun again."""
AT_ONCE = 16
"""Loads at once, besides the bound of the source."""
TOLD_EVERY = 0.25
_BINARY = ("image/", "audio/", "video/", "font/", "application/zip", "application/gzip", "application/pdf")


async def walk(
    manager: ResourceManager, source: Source, told: Callable[[Walked], object], *, dry_run: bool = False
) -> Walked:
    """Index a source. Raise BbfsError. told: called with the counts now and then. dry_run: load nothing."""
    index = manager.index
    if index is None or source.data.index is False:
        why = "its option index forbids it" if index is not None else "there is no index ([cache] index)"
        raise NotSupported(f"{source.data.id} is not indexed: {why}")
    walked = Walked()
    known = await index.indexed(source)
    since = await index.walk_began(source)
    now = manager.clock()
    if since is not None and not 0 <= now - since < CONTINUED_FOR:
        since = None
    await source.catalog.relist()  # what was listed a moment ago may be gone
    listed = [each for each in await manager.by_uri.list_below(source.data.id) if _may_be_text(index, each)]
    wanted = [each for each in listed if not _is_unchanged(known.get(each.native_uri), each, since)]
    walked.resources, walked.to_load = len(listed), len(wanted)
    walked.unchanged, walked.bytes = len(listed) - len(wanted), sum(each.size or 0 for each in wanted)
    if dry_run:
        return walked
    if since is None:
        await index.walking(source, now)
    await _load(manager, index, source, wanted, walked, told)
    await index.flush()
    if source.catalog.problem is None:
        gone = [Remove(source.fingerprint, uri) for uri in known.keys() - {each.native_uri for each in listed}]
        walked.removed = len(gone)
        for begin in range(0, len(gone), 500):
            await index.write(gone[begin : begin + 500])
    await index.walking(source, None)
    try:
        await index.embed()
    except BbfsError as error:
        walked.error = walked.error or f"no vectors: {error}"
    return walked


def _may_be_text(index: LocalIndex, metadata: ResourceMetadata) -> bool:
    if metadata.kind != "resource" or metadata.on_open or (metadata.size or 0) > index.largest(metadata):
        return False
    return index.kind_of(metadata) is not None or not (metadata.mime_type or "").startswith(_BINARY)


def _is_unchanged(known: Indexed | None, metadata: ResourceMetadata, since: float | None) -> bool:
    """Return whether the index has what the source lists, or the interrupted walk has indexed it already."""
    if known is None or known.stale:
        return False
    stamp = stamp_of(metadata)
    return (stamp is not None and stamp == known.stamp) or (since is not None and known.at >= since)


async def _load(
    manager: ResourceManager,
    index: LocalIndex,
    source: Source,
    wanted: list[ResourceMetadata],
    walked: Walked,
    told: Callable[[Walked], object],
) -> None:
    """Load resources and queue their texts, several at once."""
    pending = iter(wanted)
    next_told = 0.0

    async def work() -> None:
        nonlocal next_told
        for metadata in pending:
            try:
                loaded = await manager.by_uri.load(metadata.uri)
                record = source.catalog.record(metadata.native_uri)
                while index.waiting >= MOST_WAITING // 2:
                    await index.flush()
                if record is None or len(loaded.parts) != 1:
                    walked.left_out += 1
                elif await index.learn_now(source, record, loaded.parts[0].content):
                    walked.loaded += 1
                else:
                    walked.left_out += 1
            except BbfsError as error:
                walked.failed += 1
                walked.error = walked.error or f"{metadata.native_uri}: {error}"
            if trio.current_time() >= next_told:
                next_told = trio.current_time() + TOLD_EVERY
                told(walked)

    async with trio.open_nursery() as nursery:
        for _ in range(min(AT_ONCE, source.data.policy.concurrency, len(wanted))):
            nursery.start_soon(work)


async def index(manager: ResourceManager, request: table.Index, replies: table.Replies[Walked]) -> None:
    """Answer with the counts of a walk. Raise BbfsError."""
    source = manager.tree.place((request.source,))[0]
    await replies.give(await walk(manager, source, replies.tell, dry_run=request.dry_run))
