"""Indexes the texts of a source (`bbfs index`): loads what has changed since the last time."""

from collections.abc import Callable

import trio

from bbfs.model.errors import BbfsError, NotSupported
from bbfs.model.values import ResourceMetadata
from bbfs.resources.commands import table
from bbfs.resources.commands.table import Walked
from bbfs.resources.manager import ResourceManager
from bbfs.resources.search.index.entries import Known, Remove, Unfit
from bbfs.resources.search.index.local import LocalIndex, stamp_of
from bbfs.resources.search.index.outdated import may_be_text
from bbfs.resources.search.index.waiting import MOST_WAITING
from bbfs.resources.source import Source

CONTINUED_FOR = 86400.0
"""Seconds for which an interrupted walk is continued instead of begun again."""
AT_ONCE = 16
"""Loads at once, besides the bound of the source."""
TOLD_EVERY = 0.25


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
    documents, since, now = known.documents or {}, known.walking, manager.clock()
    if since is not None and not 0 <= now - since < CONTINUED_FOR:
        since = None
    await source.catalog.relist()  # what was listed a moment ago may be gone
    listed = [each for each in await manager.by_uri.list_below(source.data.id) if may_be_text(index, source, each)]
    wanted = [each for each in listed if not _is_unchanged(index, known, each, since)]
    walked.resources, walked.to_load = len(listed), len(wanted)
    walked.unchanged, walked.bytes = len(listed) - len(wanted), sum(each.size or 0 for each in wanted)
    if dry_run:
        return walked
    if since is None:
        await index.walking(source, since := now)
    await _load(manager, index, source, wanted, walked, told)
    await index.flush()
    if source.catalog.problem is None:
        gone = [Remove(source.fingerprint, uri) for uri in documents.keys() - {each.native_uri for each in listed}]
        walked.removed = len(gone)
        for begin in range(0, len(gone), 500):
            await index.write(gone[begin : begin + 500])
    await index.walking(source, since, ended=True)
    try:
        await index.embed()
    except BbfsError as error:
        walked.error = walked.error or f"no vectors: {error}"
    return walked


def _is_unchanged(index: LocalIndex, known: Known, metadata: ResourceMetadata, since: float | None) -> bool:
    """Return whether the index has what the source lists, or the interrupted walk has indexed it already."""
    document = (known.documents or {}).get(metadata.native_uri)
    stamp = stamp_of(metadata)
    if document is None:
        is_unfit = stamp is not None and stamp == known.unfit.get(metadata.native_uri)
        return is_unfit and index.kind_of(metadata) is None  # another bbfs may read more kinds of documents
    if document.stale:
        return False
    return (stamp is not None and stamp == document.stamp) or (since is not None and document.at >= since)


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
    unfit: list[Unfit] = []
    next_told = 0.0

    async def work() -> None:
        nonlocal next_told
        for metadata in pending:
            try:
                loaded = await manager.by_uri.load(metadata.uri)
                record = source.catalog.record(metadata.native_uri)
                while index.waiting >= MOST_WAITING // 2:
                    await index.flush()
                is_one = record is not None and len(loaded.parts) == 1
                if record is not None and is_one and await index.learn_now(source, record, loaded.parts[0].content):
                    walked.loaded += 1
                else:
                    walked.left_out += 1
                    unfit.append(Unfit(source.fingerprint, metadata.native_uri, stamp_of(metadata)))
            except BbfsError as error:
                walked.failed += 1
                walked.error = walked.error or f"{metadata.native_uri}: {error}"
            if trio.current_time() >= next_told:
                next_told = trio.current_time() + TOLD_EVERY
                told(walked)

    async with trio.open_nursery() as nursery:
        for _ in range(min(AT_ONCE, source.data.policy.concurrency, len(wanted))):
            nursery.start_soon(work)
    for begin in range(0, len(unfit), 500):
        await index.write(unfit[begin : begin + 500])


async def index(manager: ResourceManager, request: table.Index, replies: table.Replies[Walked]) -> None:
    """Answer with the counts of a walk. Raise BbfsError."""
    source = manager.tree.place((request.source,))[0]
    await replies.give(await walk(manager, source, replies.tell, dry_run=request.dry_run))
