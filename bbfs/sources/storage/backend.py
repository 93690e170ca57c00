"""What a kind of storage has to be able to do, and what it says of its objects."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import trio

from bbfs.model.values import Content
from bbfs.sources.storage.addresses import Names

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Item:
    """One object or directory.

    path: its names below the place where the source begins. size: bytes, None if unknown. etag: changes when the
    content does. mime_type: as the store says it, for names that tell nothing. properties: what else it says, by names
    in snake_case. target: of a symbolic link.
    """

    path: Names
    kind: Literal["resource", "directory", "symlink"] = "resource"
    size: int | None = None
    modified_ns: int | None = None
    etag: str | None = None
    mime_type: str | None = None
    properties: Mapping[str, Any] | None = None
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """The entries of a directory; an item that has the path of the directory itself is its own content (S5).

    problem: in words, what is missing.
    """

    items: tuple[Item, ...]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A content, and what is known of exactly this version of it."""

    content: Content
    item: Item


class Backend(Protocol):
    """One kind of storage. Paths are names below the place where the source begins. All raise BbfsError only."""

    async def list(self, path: Names) -> Listed:
        """A directory. Raises NotFound where there is none."""
        ...

    async def stat(self, path: Names, *, is_directory: bool) -> Item: ...

    async def open(self, path: Names) -> Opened: ...

    async def aclose(self) -> None: ...


class Threads:
    """Runs what blocks in worker threads, of which a source has as many as it may have requests in flight.

    A thread cannot be cancelled: whoever waits for it is let go, and the backend's own time-outs end the thread.
    """

    def __init__(self, limit: int) -> None:
        self.limiter = trio.CapacityLimiter(limit)

    async def run(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return await trio.to_thread.run_sync(
            partial(function, *arguments, **named), abandon_on_cancel=True, limiter=self.limiter
        )
