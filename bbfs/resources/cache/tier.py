"""What the tiers of contents below memory agree on: the value that they keep, and the protocol of a shared one.

Links among the contents of a resource, and what only an open loads, are never kept in a tier.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import trio

from bbfs.model.digest import version_of
from bbfs.model.values import Content, ContentType, Part

CLOCKS_DIFFER = 5.0
"""Seconds by which the clocks of two machines (or of one, before and after it was set) may differ."""


@dataclass(frozen=True, slots=True)
class PartHeader:
    """One content of a loaded resource, without its bytes, as an index or a message has it.

    digest: `digest_of` the bytes. size: bytes. The rest is as in `model.Part`.
    """

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

    parts: each with its content, in memory or in a file of the disk cache; no links. fetched_at: seconds since the
    epoch. ttl: seconds for which it is fresh. etag: what the source itself calls this version, where it can be asked
    for that alone (`Loaded.is_versioned`). stale: whether the resource was invalidated since.
    """

    parts: tuple[Part, ...]
    fetched_at: float
    ttl: float
    etag: str | None = None
    stale: bool = False

    @property
    def version(self) -> str:
        """Equal for equal contents, as `Record.digest` has it: of several parts a digest of their digests."""
        return self.etag if self.etag is not None else version_of([part.content.version for part in self.parts])

    @property
    def size(self) -> int:
        """Bytes of all contents."""
        return sum(part.content.size for part in self.parts)

    def fresh(self, now: float) -> bool:
        """Whether it may be served without asking. Not if it is from the future: somebody's clock is wrong."""
        return self.fetched_at <= now + CLOCKS_DIFFER and now < self.fetched_at + self.ttl


EVERYTHING = "*"
"""In the place of a source: invalidations may have been missed, so anything of any source may have changed."""


class SharedTier(Protocol):
    """Contents that many machines share. Every call is bounded in time and raises nothing but cancellation.

    source: `attached.fingerprint` of the source, equal on machines with an equal configuration. uri: the native URI.
    What is got or claimed is whole, and its bytes are those of the digests.
    """

    async def get(self, source: str, uri: str) -> Cached | None:
        """Return what is kept of a resource, fresh or not, or None."""
        ...

    async def claim(self, source: str, uri: str, *, timeout: float, newer_than: float = 0.0) -> Cached | None:
        """Return what is kept of a resource and is fresh. Else None: the caller loads it, on behalf of all machines.

        After None, `put` or `give_up` is to be called. What another machine is loading already is waited for, for at
        most half of `timeout` (seconds that the caller has). newer_than: what was asked for before (seconds since the
        epoch) is not good enough, whenever the answer came.
        """
        ...

    async def put(self, source: str, uri: str, cached: Cached) -> None:
        """Keep what the load has answered that was claimed, in the place of what is kept of the resource.

        Its contents are in memory.

        Nothing is kept if the resource was dropped since then.
        """
        ...

    def give_up(self, source: str, uri: str) -> None:
        """After `claim`: the load has brought nothing to `put`. Never waits."""
        ...

    async def drop(self, source: str, uri: str | None) -> None:
        """An invalidation, which reaches every other machine too. uri: None is everything of the source."""
        ...

    async def run(
        self,
        dropped: Callable[[str, str | None], None],
        *,
        task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Hear of the invalidations by others (`dropped` must neither block nor raise) until cancelled.

        After a time in which any may have been missed, `dropped` gets (`EVERYTHING`, None). Has started when the first
        reader may come, whether or not the tier can be reached.
        """
        ...
