"""The value that the tiers below memory keep, and the protocol of a shared cache.

Tiers keep no links among the contents of a resource, and nothing that only an open loads.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import trio

from bbfs.model.values import Content, ContentType, Part
from bbfs.sources.content.memory import version_of

CLOCKS_DIFFER = 5.0
"""Seconds by which the clocks of two machines (or of one, before and after it was set) may differ."""


@dataclass(frozen=True, slots=True)
class PartHeader:
    """A `Part` without its bytes, for an index or a message. digest: `digest_of` the bytes. size: bytes."""

    digest: str
    size: int
    native_uri: str | None
    mime_type: str | None
    content_type: ContentType = "unknown"
    name: str | None = None

    @classmethod
    def of(cls, part: Part) -> "PartHeader":
        content = part.content
        return cls(content.version, content.size, part.native_uri, part.mime_type, part.content_type, part.name)

    def part(self, content: Content) -> Part:
        return Part(self.native_uri, self.mime_type, content, self.content_type, name=self.name)


@dataclass(frozen=True, slots=True)
class Cached:
    """The answer of one load, as a tier keeps it.

    parts: contents in memory or in files of the disk cache; no links. fetched_at: seconds since the epoch. ttl: seconds
    for which it is fresh. etag: the source's own name of this version, if it has one (`Loaded.metadata`).
    stale: whether the resource was invalidated since. took: seconds from the request until `fetched_at`.
    """

    parts: tuple[Part, ...]
    fetched_at: float
    ttl: float
    etag: str | None = None
    stale: bool = False
    took: float = 0.0

    @property
    def asked_at(self) -> float:
        """When the source was asked: what was written later, also before the answer came, may be lacking."""
        return self.fetched_at - self.took

    @property
    def version(self) -> str:
        """The version as in `Record.digest`: equal for equal contents."""
        return self.etag if self.etag is not None else version_of([part.content.version for part in self.parts])

    @property
    def size(self) -> int:
        """The bytes of all contents."""
        return sum(part.content.size for part in self.parts)

    def fresh(self, now: float) -> bool:
        """Return whether it may be served without asking. Not if its time is in the future: a clock is wrong."""
        return self.fetched_at <= now + CLOCKS_DIFFER and now < self.fetched_at + self.ttl


LISTING = "\0listing"
"""Instead of a native URI: the listing of the source."""
LISTING_BYTES = 64 << 20
"""Bytes of a listing that machines share, at most: compressed, a million resources have about a fifth of that."""
EVERYTHING = "*"
"""Instead of a source: invalidations of any source may have been missed."""


class SharedTier(Protocol):
    """A cache that machines share. Every call is bounded in time and raises nothing but cancellation.

    source: the fingerprint of the source, equal on machines with an equal configuration. uri: the native URI.
    The cache verifies the bytes by their digests.
    """

    async def get(self, source: str, uri: str) -> Cached | None:
        """Return what is cached of a resource, fresh or stale, or None."""
        ...

    async def claim(self, source: str, uri: str, *, timeout: float, newer_than: float = 0.0) -> Cached | None:
        """Return what is cached of a resource and fresh. Else None: the caller loads it on behalf of all machines.

        After None, call `put` or `give_up`. If another machine is loading it, wait for that for at most half of
        `timeout` (seconds that the caller has). newer_than: accept only what was requested later (seconds since the
        epoch).
        """
        ...

    async def put(self, source: str, uri: str, cached: Cached) -> None:
        """Store the answer of the claimed load, with its contents in memory.

        Store nothing if the resource was dropped since the claim.
        """
        ...

    def give_up(self, source: str, uri: str) -> None:
        """Release a claim without a `put`. Never waits."""
        ...

    async def drop(self, source: str, uri: str | None) -> None:
        """Invalidate a resource (None: all of the source), and notify every other machine."""
        ...

    async def run(
        self,
        dropped: Callable[[str, str | None], None],
        *,
        task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Report the invalidations by other machines until cancelled. `dropped` must neither block nor raise.

        If invalidations may have been missed, `dropped` gets (`EVERYTHING`, None). Has started when the first reader
        may come, with or without a connection.
        """
        ...
