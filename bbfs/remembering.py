"""Listings across mounts: written in portions, so that a long one neither holds up anybody nor is in memory twice."""

from collections.abc import Sequence
from functools import partial

import trio

from bbfs.cache.metadata import ROWS_AT_ONCE, MetadataStore
from bbfs.catalog import Changes
from bbfs.model import Listing
from bbfs.rows import Description, Rows

CHANGES_WRITTEN = 50_000
"""Changes of a listing that are written one by one; of more, the whole is written anew."""


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
