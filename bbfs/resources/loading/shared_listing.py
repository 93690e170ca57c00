"""The listing of a source in the tier that machines share: one machine lists, the others take its pages.

It is kept as a content of many parts under `LISTING`, which no resource has, with the claims, times and invalidations
of contents. A listing may lack what this machine has written, so sources that are written have none here.
"""

from collections.abc import Awaitable, Callable, Sequence

from bbfs.model.values import Part
from bbfs.resources.cache.tier import LISTING, LISTING_BYTES, Cached, SharedTier
from bbfs.resources.source import Source
from bbfs.sources.content.memory import MemoryContent

PATIENCE = 2
"""The `timeout` of the source for which a machine claims a listing; others wait half of it."""


class SharedListing:
    """A `ListingExchange` for one listing of a source.

    newer_than: accept only what was requested later (seconds since the epoch). notified: waits until the other machines
    know of the changes that this one has been told of, and returns whether they do. start: runs what puts the listing,
    in a task of its own. clock: seconds since the epoch.
    """

    def __init__(
        self,
        tier: SharedTier,
        source: Source,
        newer_than: float,
        notified: Callable[[tuple[str, str]], Awaitable[bool]],
        start: Callable[..., None],
        clock: Callable[[], float],
    ) -> None:
        self._tier = tier
        self._key = source.fingerprint, LISTING
        self._policy = source.data.policy
        self._newer_than = newer_than
        self._notified = notified
        self._start = start
        self._clock = clock
        self._asked_at = 0.0
        self._pages: list[bytes] | None = None
        """The pages so far, while this machine has the claim."""
        self._size = 0

    async def claim(self) -> tuple[Sequence[bytes], float] | None:
        if not await self._notified(self._key):
            return None
        found = await self._tier.claim(*self._key, timeout=PATIENCE * self._policy.timeout, newer_than=self._newer_than)
        if found is None:
            self._asked_at, self._pages, self._size = self._clock(), [], 0
            return None
        pages = [part.content.read(0, part.content.size) or b"" for part in found.parts]
        return pages, max(0.0, found.fetched_at + found.ttl - self._clock())

    def add(self, page: bytes) -> None:
        if self._pages is not None:
            self._pages.append(page)
            self._size += len(page)
            if self._size > LISTING_BYTES:
                self.give_up()

    def put(self, ttl: float | None) -> None:
        pages, self._pages = self._pages, None
        if pages is not None:
            parts = tuple(Part(None, None, MemoryContent(page)) for page in pages)
            lasts = self._policy.listing_ttl if ttl is None else ttl
            self._start(self._tier.put, *self._key, Cached(parts, self._asked_at, lasts))

    def give_up(self) -> None:
        if self._pages is not None:
            self._pages = None
            self._tier.give_up(*self._key)
