"""What sources are known to have, across mounts: written behind the readers, in portions, and taken over at the start.

A long listing is written so that it neither holds up anybody nor is in memory twice.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

import trio

from bbfs.model.listing import Description, Rows
from bbfs.model.values import Listing
from bbfs.resources.cache.metadata import ROWS_AT_ONCE, MetadataStore
from bbfs.resources.catalog import Changes, DirectoryCatalog, FlatCatalog
from bbfs.resources.source import Source

log = logging.getLogger(__name__)

RECALLED_AT_ONCE = 20_000
"""Resources of a remembered listing that are taken over before the source is there; more are behind."""
CHANGES_WRITTEN = 50_000
"""Changes of a listing that are written one by one; of more, the whole is written anew."""


class Memory:
    """Writes to the store, in order, and reads what earlier mounts wrote. A store that fails costs requests only.

    nursery: for what is written or taken over behind the readers.
    """

    def __init__(self, nursery: trio.Nursery, store: MetadataStore) -> None:
        self._nursery = nursery
        self._store = store
        self._listings = ListingMemory(store)
        self._writes: list[Callable[[], Awaitable[None]]] = []
        self._writing = trio.Lock()

    async def recall(self, source: Source, catalog: FlatCatalog) -> None:
        """Take over what earlier mounts have learnt of a source; a long listing behind."""
        recall = partial(self._recall, source, catalog)
        if await trio.to_thread.run_sync(self._store.listed, source.fingerprint) > RECALLED_AT_ONCE:
            self._nursery.start_soon(catalog.recalling, recall)
        else:
            await recall()

    async def recall_learnt(self, source: Source, catalog: DirectoryCatalog) -> None:
        """Take over what earlier mounts have learnt of the resources of a source that is listed by directories."""
        rows, _ = await trio.to_thread.run_sync(self._store.recall, source.fingerprint)
        catalog.recall(rows)

    async def _recall(self, source: Source, catalog: FlatCatalog) -> None:
        rows, listing = await trio.to_thread.run_sync(self._store.recall, source.fingerprint)
        if listing is not None:
            fetched_at, whole = listing
            await catalog.recall(fetched_at, whole, rows)

    def listed(self, source: Source, at: float, listing: Listing, changes: Changes | None) -> None:
        """A source was listed: written with the next flush, when whoever waited for the listing has it."""
        self._writes.append(partial(self._listings.write, source.fingerprint, at, listing, changes))

    def outdated(self, source: Source) -> None:
        """A listing is known not to be the source's any more: written at once, or a mount after a crash would take it
        for fresh (S17); after what waits to be written, since that is about an earlier one.
        """
        self._writes.append(partial(trio.to_thread.run_sync, partial(self._store.outdate_listing, source.fingerprint)))
        self._nursery.start_soon(self._write_all)

    async def flush(self, sources: Iterable[Source]) -> None:
        """Write what was listed, and what was learnt of resources."""
        await self._write_all()
        for source in sources:
            dirty = [record for record in source.catalog.held() if record.dirty]
            if dirty:
                rows = [record.to_remember() for record in dirty]
                for record in dirty:
                    record.dirty = False
                remember = partial(self._store.remember, source.fingerprint, rows)
                await self._write(partial(trio.to_thread.run_sync, remember))

    async def _write_all(self) -> None:
        async with self._writing:
            while self._writes:
                await self._write(self._writes[0])
                del self._writes[0]

    async def _write(self, write: Callable[[], Awaitable[None]]) -> None:
        try:
            await write()
        except Exception as error:  # noqa: BLE001 - the store is a cache: without it everything still works
            log.warning("metadata could not be remembered: %s", error)


class ListingMemory:
    """Writes the listings of the sources as they change, those of one source in order."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._writing: dict[str, trio.Lock] = {}

    async def write(self, source: str, at: float, listing: Listing, changes: Changes | None) -> None:
        """Write a listing, or what has changed in it. Raises what the store raises.

        source: its fingerprint. at: seconds since the epoch. The rows may change while they are written: those changes
        are written next.
        """
        rows = listing.resources
        assert isinstance(rows, Rows)
        async with self._writing.setdefault(source, trio.Lock()):
            if changes is not None and len(changes.described) + len(changes.gone) <= CHANGES_WRITTEN:
                described = _present(rows, changes.described)
                change = partial(
                    self._store.change_listing, source, at, listing, rows.base_prefix, described, changes.gone
                )
                if await trio.to_thread.run_sync(change):
                    return
            begin = partial(self._store.begin_listing, source, at, listing, rows.base_prefix)
            number = await trio.to_thread.run_sync(begin)
            for items in rows.descriptions.portions():
                for start in range(0, len(items), ROWS_AT_ONCE):
                    some = items[start : start + ROWS_AT_ONCE]
                    await trio.to_thread.run_sync(self._store.add_listed, number, some)
            await trio.to_thread.run_sync(self._store.end_listing, source, number)


def _present(rows: Rows, uris: Sequence[str]) -> list[tuple[str, Description]]:
    descriptions = rows.descriptions
    return [(uri, descriptions[uri]) for uri in uris if uri in descriptions]
