"""Requests that change sources."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Never

from bbfs.model.versions import Expected
from bbfs.resources.commands.requests import Request

PIECE = 512 << 10
"""Bytes of a content in one message: in base64 they fit a line of the control socket."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A resource that its source has stored. size: bytes. version: the one that a next write of the client replaces.

    Each is None if the source does not tell it.
    """

    uri: str
    size: int | None = None
    version: str | None = None


@dataclass(frozen=True)
class Put(Request[Stored], name="put", changes=True, uri=Stored):
    """Store a resource at a path or under a URI. From then on a lookup finds it.

    replace: there may be such a resource. more: the content goes on in the next request with the same id. expected: the
    state of the resource, by default the one that was last shown; another one is a conflict. keep: the content is a
    pending write until the source has it; if not, the client has it still. by_owner: see `CanDescribe`.
    """

    path: str | None = None
    uri: str | None = None
    data: bytes = b""
    replace: bool = True
    more: bool = False
    mime_type: str | None = None
    description: str | None = None
    expected: Expected | None = None
    keep: bool = True
    by_owner: bool = True

    def parts(self) -> Iterator["Put"]:
        for start in range(0, max(len(self.data), 1), PIECE):
            end = start + PIECE
            yield replace(self, data=self.data[start:end], more=end < len(self.data))


@dataclass(frozen=True)
class Remove(Request[Never], name="remove", changes=True):
    """Remove a resource at a path or under a URI. expected, by_owner: as for `Put`."""

    path: str | None = None
    uri: str | None = None
    expected: Expected | None = None
    by_owner: bool = True


@dataclass(frozen=True)
class Retry(Request[Stored], name="retry", changes=True, uri=Stored):
    """Hand over a pending write. force: whatever its source has by now, and wherever the source is.

    Without it, the source must be at the place that the write was for, and have the state that the write expected, or
    these bytes already. The pending write is removed once the source has the content.
    """

    write: str
    force: bool = False
