"""The abilities that a handler may have, as protocols. It implements those that its data allows, and no other method.

A handler translates one data source: it caches nothing, retries nothing, holds no deadline (the ResourceManager does
all three) and raises only `BbfsError`.
"""

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from bbfs.model.values import (
    Completion,
    DataSource,
    Listing,
    ListingProgress,
    Loaded,
    ResourceMetadata,
    SourceEvent,
    SourceState,
    Unchanged,
)


@runtime_checkable
class CanList(Protocol):
    """A flat source: all its resources in one listing, in the source's order. URIs make the tree."""

    async def list(self) -> Listing: ...


@runtime_checkable
class CanListDirectory(Protocol):
    """A hierarchical source: the entries of one directory at a time, `path` being names below the root."""

    async def list_directory(self, path: tuple[str, ...]) -> Listing: ...


@runtime_checkable
class CanFind(Protocol):
    """A hierarchical source that has more than it lists: names beside those of a listing with `Listing.open`."""

    async def find(self, path: tuple[str, ...], name: str) -> ResourceMetadata:
        """What has this name in the directory at `path` (as in `list_directory`). Raises NotFound.

        name: the file name as a program asks for it. The last segment of the native URI that is answered must be shown
        as that name (`bbfs.model.file_names.show_component`), or else nothing has it.
        """
        ...


@runtime_checkable
class CanLoad(Protocol):
    async def load(self, native_uri: str) -> Loaded: ...


@runtime_checkable
class LoadsWhileWanted(Protocol):
    """Has loads that cost the source much: one ends when the last program that waits for it has given up.

    The loads of others are finished for whoever comes next.
    """

    @property
    def loads_while_wanted(self) -> bool: ...


@runtime_checkable
class CanLoadIfChanged(Protocol):
    """A load that costs little where the source still has what bbfs keeps."""

    async def load_if_changed(self, native_uri: str, version: str) -> Loaded | Unchanged:
        """version: of the content that is kept (`Content.version`), as an earlier load of this handler gave it."""
        ...


@runtime_checkable
class CanStat(Protocol):
    """Metadata of one resource (exact size and etag included) without its content, and cheaply."""

    async def stat(self, native_uri: str) -> ResourceMetadata: ...


@runtime_checkable
class CanWatch(Protocol):
    """Says what changes. `interested` names a resource whose updates are wanted; the sink must not block."""

    def watch(self, sink: Callable[[SourceEvent], None]) -> None: ...

    def interested(self, native_uri: str) -> None: ...


@runtime_checkable
class CanAnnounce(CanWatch, Protocol):
    """Knows what it is going to be told, so that nobody need look whether that has changed."""

    def announces(self, native_uri: str | None) -> bool:
        """Whether a change of this resource will be told (None: of the listing), as things are now."""
        ...

    async def settled(self) -> None:
        """Until the source has said what of all that is of interest it will tell. Wait for it with a bound."""
        ...


@runtime_checkable
class TellsProgress(Protocol):
    """Knows how far its listing is."""

    @property
    def progress(self) -> ListingProgress | None:
        """Of the latest listing, under way or not; None before the first page."""
        ...


@runtime_checkable
class CanLogIn(Protocol):
    """May answer each user something else, once there is a login."""

    @property
    def logged_in(self) -> bool:
        """Whether a login of this user is kept, as things are now. Cheap."""
        ...


@runtime_checkable
class CanComplete(Protocol):
    """Values for a variable of one of its templates (`Listing.templates`).

    value: what they should begin with. context: the values of the variables before it, decoded.
    """

    async def complete(
        self, uri_template: str, variable: str, value: str, context: Mapping[str, str]
    ) -> Completion: ...


@runtime_checkable
class CanPut(Protocol):
    """Takes in whole resources from whoever owns the mount (`bbfs put`), and tells of them at once (`CanWatch`)."""

    @property
    def largest(self) -> int:
        """Bytes above which no content is taken in."""
        ...

    async def put(
        self, where: str, data: bytes, *, mime_type: str | None = None, description: str | None = None
    ) -> ResourceMetadata:
        """Take in a resource, or another content for one that is there. where: a native URI."""
        ...

    async def remove(self, where: str) -> None:
        """Take a resource away. Raises NotFound."""
        ...


@runtime_checkable
class CanClose(Protocol):
    """Holds something that is to be given back when the daemon ends: connections, threads, files."""

    async def aclose(self) -> None:
        """Called once, after the last request, and given a few seconds. Raises nothing that is foreseen."""
        ...


class Handler(Protocol):
    """What every handler is: the source that it was made for, and how that source fares."""

    source: DataSource

    @property
    def state(self) -> SourceState: ...
