"""Writes listings and metadata to the store behind the readers, and recalls them when the next mount starts.

A long listing is written in portions: it delays no request and is never in memory twice.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import trio

from bbfs.model.listing import Description, Rows
from bbfs.model.values import Listing
from bbfs.resources.cache.metadata import ROWS_AT_ONCE, MetadataStore
from bbfs.resources.catalog import Changes
from bbfs.resources.source import Source
from bbfs.sources.bounded.turns import InTurns

log = logging.getLogger(__name__)
T = TypeVar("T")

RECALLED_AT_ONCE = 20_000
"""Resources of a stored listing that are recalled before a mount serves; a longer listing is recalled behind."""
CHANGES_WRITTEN = 50_000
"""Changes of a listing that are written one by one; with more changes the whole listing is written."""


class Persistence:
    """Writes to the store in order, and reads what earlier mounts wrote. If the store fails, only requests are lost.

    nursery: runs background writes and recalls. clock: seconds since the epoch. gone: called with a source and the
    native URIs that its listing has no longer.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        store: MetadataStore,
        clock: Callable[[], float],
        gone: Callable[[Source, Sequence[str]], None],
    ) -> None:
        self._nursery = nursery
        self._store = store
        self._clock = clock
        self._gone = gone
        self._listings = ListingMemory(store)
        self._writes: list[Callable[[], Awaitable[None]]] = []
        self._writing = trio.Lock()

    async def recall(self, source: Source) -> None:
        """Recall what earlier mounts stored about a source; a long listing in the background."""
        stored = partial(in_thread, self._store.recall, source.fingerprint, self._clock())
        if await in_thread(self._store.listed, source.fingerprint) > RECALLED_AT_ONCE:
            self._nursery.start_soon(source.catalog.recall, stored)
        else:
            await source.catalog.recall(stored)

    def listed(self, source: Source, at: float, listing: Listing, changes: Changes | None) -> None:
        """Queue a listing for the next flush, after the requests that wait for it are answered."""
        self._writes.append(partial(self._listings.write, source.fingerprint, at, listing, changes))
        if changes is not None:
            self._gone(source, changes.gone)

    def outdated(self, source: Source) -> None:
        """Mark the stored listing of a source as stale, after the queued writes.

        This is written at once: after a crash the next mount would take the listing for fresh (S17).
        """
        self._writes.append(partial(in_thread, self._store.outdate_listing, source.fingerprint))
        self._nursery.start_soon(self._write_all)

    async def flush(self, sources: Iterable[Source]) -> None:
        """Write the queued listings and the changed metadata of the sources."""
        await self._write_all()
        for source in sources:
            dirty = [record async for record in InTurns(source.catalog.held()) if record.dirty]
            if dirty:
                rows = [record.to_remember() for record in dirty]
                for record in dirty:
                    record.dirty = False
                remember = partial(self._store.remember, source.fingerprint, rows)
                await self._write(partial(in_thread, remember))

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
    """Writes the listings of the sources; those of one source in order."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._writing: dict[str, trio.Lock] = {}

    async def write(self, source: str, at: float, listing: Listing, changes: Changes | None) -> None:
        """Write a listing, or only its changes. Raise the store's errors.

        source: its fingerprint. at: seconds since the epoch. Rows that change meanwhile are part of the next write.
        """
        rows = listing.resources
        assert isinstance(rows, Rows)
        async with self._writing.setdefault(source, trio.Lock()):
            if changes is not None and len(changes.described) + len(changes.gone) <= CHANGES_WRITTEN:
                described = _present(rows, changes.described)
                change = partial(
                    self._store.change_listing, source, at, listing, rows.base_prefix, described, changes.gone
                )
                if await in_thread(change):
                    return
            begin = partial(self._store.begin_listing, source, at, listing, rows.base_prefix)
            number = await in_thread(begin)
            for items in rows.descriptions.portions():
                for start in range(0, len(items), ROWS_AT_ONCE):
                    some = items[start : start + ROWS_AT_ONCE]
                    await in_thread(self._store.add_listed, number, some)
            await in_thread(self._store.end_listing, source, number)


def _present(rows: Rows, uris: Sequence[str]) -> list[tuple[str, Description]]:
    descriptions = rows.descriptions
    return [(uri, descriptions[uri]) for uri in uris if uri in descriptions]


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Return the result of `work`. If cancelled, leave it to its thread: an end must not wait for the disk."""
    return await trio.to_thread.run_sync(work, *arguments, abandon_on_cancel=True)
