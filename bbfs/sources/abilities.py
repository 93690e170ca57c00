"""The abilities that a handler may have, as protocols. A handler implements the abilities that its data allows.

A handler translates one data source. It caches nothing, retries nothing and has no deadline (the ResourceManager does
all three), and it raises only `BbfsError`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

from bbfs.model.calls import Call, Progress, Tool
from bbfs.model.values import (
    Change,
    Completion,
    Content,
    DataSource,
    Hit,
    Listing,
    ListingProgress,
    Loaded,
    ResourceMetadata,
    SourceState,
    Unchanged,
    WriteOperation,
)
from bbfs.model.versions import Expected, Labels


@runtime_checkable
class CanList(Protocol):
    """A flat source: one listing has all resources, in the source's order. Their URIs make the tree."""

    async def list(self) -> Listing: ...


@runtime_checkable
class CanListDirectory(Protocol):
    """A hierarchical source: a listing has the entries of one directory. path: names below the root."""

    async def list_directory(self, path: tuple[str, ...]) -> Listing: ...


@runtime_checkable
class CanReadDirectory(CanList, Protocol):
    """A flat source whose listing may name directories (`Listing.directories`) that it lists one at a time."""

    async def read_directory(self, native_uri: str) -> Listing:
        """Return the entries of one directory, none of them deeper: resources, and directories by their `kind`."""
        ...


@runtime_checkable
class CanFind(Protocol):
    """A hierarchical source with more names than it lists. Their directories have `Listing.open`."""

    async def find(self, path: tuple[str, ...], name: str) -> ResourceMetadata:
        """Return the resource with this name in the directory at `path` (as in `list_directory`). Raise NotFound.

        name: the file name that a program asks for. The last segment of the returned native URI must be shown as that
        name (`show_component`), or the lookup fails.
        """
        ...


@runtime_checkable
class CanLoad(Protocol):
    async def load(self, native_uri: str) -> Loaded: ...


@runtime_checkable
class LoadsWhileWanted(Protocol):
    """Has expensive loads: a load is cancelled when its last reader gives up.

    Loads of other handlers run to their end, and the cache keeps the result.
    """

    @property
    def loads_while_wanted(self) -> bool: ...


@runtime_checkable
class CanLoadIfChanged(Protocol):
    """Can revalidate a cached content more cheaply than load it."""

    async def load_if_changed(self, native_uri: str, version: str) -> Loaded | Unchanged:
        """Load unless the content is unchanged. version: `Content.version` of an earlier load of this handler."""
        ...


@runtime_checkable
class CanStat(Protocol):
    """Returns the metadata of one resource (exact size and etag included) cheaply, without its content."""

    async def stat(self, native_uri: str) -> ResourceMetadata: ...


@runtime_checkable
class CanWatch(Protocol):
    """Reports changes to a sink, which must not block. `interested` names a resource to watch."""

    def watch(self, sink: Callable[[Change], None]) -> None: ...

    def interested(self, native_uri: str) -> None: ...


@runtime_checkable
class CanAnnounce(CanWatch, Protocol):
    """Knows which changes it will report, so that bbfs need not revalidate those resources."""

    def announces(self, native_uri: str | None) -> bool:
        """Return whether the source will report a change of this resource (None: of the listing), as of now."""
        ...

    async def confirmed(self) -> None:
        """Wait until the source has confirmed which changes it will report. Callers bound the wait."""
        ...


@runtime_checkable
class TellsProgress(Protocol):
    """Knows how far its listing is."""

    @property
    def progress(self) -> ListingProgress | None:
        """Progress of the latest listing, finished or not; None before its first page."""
        ...


@runtime_checkable
class BacksOff(Protocol):
    """Answers the last error for a while after it has failed to reach its server, without another try."""

    def end_pause(self) -> None:
        """Let the next request try: a user asks for that."""
        ...


@runtime_checkable
class TellsMore(Protocol):
    """Has more to say of itself than a listing shows, for the file that describes the source."""

    @property
    def notes(self) -> Sequence[str]:
        """Return sentences in Markdown: what there is beside resources, what is off and how to turn it on.

        Asks the source nothing.
        """
        ...

    @property
    def offers(self) -> Mapping[str, int]:
        """Return the number of things beside resources, such as `tools`, as far as they are listed."""
        ...


@runtime_checkable
class CanLogIn(Protocol):
    """May answer differently for each user who logs in."""

    @property
    def logged_in(self) -> bool:
        """Return whether a login of this user is stored now. Cheap."""
        ...


class ListingExchange(Protocol):
    """What machines know of the listing of one source: pages whose form is the handler's."""

    async def claim(self) -> tuple[Sequence[bytes], float] | None:
        """Return the pages that another machine has listed, and their time to live in seconds from now.

        After None, the caller lists on behalf of all machines, calls `add` for each page, and `put` or `give_up`.
        """
        ...

    def add(self, page: bytes) -> None:
        """Take a page of the listing that was claimed."""
        ...

    def put(self, ttl: float | None) -> None:
        """Share the pages: they are the whole listing. ttl: seconds, if the source stated them."""
        ...

    def give_up(self) -> None:
        """Let another machine list. No-op after `put`."""
        ...


@runtime_checkable
class CanShareListing(Protocol):
    """Lists resources that machines may share (`ListingExchange`)."""

    async def list_through(self, exchange: ListingExchange) -> Listing:
        """As `list`. Ask the source for the resources only if no other machine has. Raises BbfsError."""
        ...


@runtime_checkable
class CanComplete(Protocol):
    """Completes a variable of one of its templates (`Listing.templates`).

    value: prefix of the completions. context: decoded values of the variables before it.
    """

    async def complete(
        self, uri_template: str, variable: str, value: str, context: Mapping[str, str]
    ) -> Completion: ...


@runtime_checkable
class CanSearch(Protocol):
    """Searches its resources itself, by words or by meaning."""

    @property
    def searches(self) -> bool | None:
        """Return whether this source, as it is configured, has a search; None if only a search tells. Asks nothing."""
        ...

    async def search(self, query: str, limit: int) -> Sequence[Hit]:
        """Return at most `limit` hits, the best first, each resource once.

        query: words of a user, at most `LONGEST_QUERY` characters; nothing in it is syntax. Raise NotSupported if the
        source has no search.
        """
        ...


@runtime_checkable
class SearchesByMeaning(CanSearch, Protocol):
    """Searches by meaning (`CanSearch`), so that resources without the words of the query may come first."""

    @property
    def by_meaning(self) -> bool: ...


@runtime_checkable
class ProposesSearch(Protocol):
    """Knows a search that its source plainly has, but that its options do not name."""

    @property
    def proposed_search(self) -> str | None:
        """Return the line of TOML that lets searches ask the source, or None. Asks the source nothing."""
        ...


@runtime_checkable
class ProposesWrite(Protocol):
    """Knows tools of its source that plainly write, but that its options do not name."""

    @property
    def proposed_write(self) -> tuple[str, ...]:
        """Return the lines of TOML that let bbfs write to the source, or none. Asks the source nothing."""
        ...


@runtime_checkable
class ProposesMap(Protocol):
    """Knows that its source has tools alone, and how they may make a tree."""

    @property
    def proposed_map(self) -> tuple[str, ...]:
        """Return the lines of TOML, comments included, that show the tools as a tree, or none. Asks nothing."""
        ...


@runtime_checkable
class CanWrite(Protocol):
    """Writes whole resources, where the configuration grants the capability `write`.

    All methods take native URIs: the URI of a listed resource, or the URI that the rule gives an unused name
    (`uri_paths.native_of`). A method returns once the source has stored the change, and raises BbfsError if it has not:
    Conflict, Exists, NotEmpty, NoSpace, Rejected, Denied, NotSupported … An error after which the source may have the
    change all the same is Unreachable, DeadlineExceeded or BbfsError. bbfs bounds the time of each.
    """

    def writes(self, native_uri: str) -> Collection[WriteOperation]:
        """Return the operations that the source has for a resource or a name. Asks the source nothing.

        `create` and `replace` are `write`; each other operation needs the method of its name.
        """
        ...

    @property
    def detects_conflicts(self) -> bool:
        """Return whether `write` and `remove` compare `expected` with the source's state in one step with the change.

        If not, bbfs asks for the state just before, and a change of somebody else in between is lost.
        """
        ...

    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        """Create a resource or replace its content. Return its metadata after this write, as far as known.

        The etag is the etag in the answer to this write, or None. It never comes from a later request: another program
        may have written in between, and its version would count as this version. The size is the number of stored
        bytes, or None if the source may store other bytes than it gets. Metadata without a size or an etag makes bbfs
        load the resource before it is written again.

        content: `read_waiting` reads it, in pieces; the handler does not close it.
        """
        ...

    async def remove(self, native_uri: str, expected: Expected) -> None:
        """Remove a resource. Raise NotFound."""
        ...


@runtime_checkable
class CanDescribe(CanWrite, Protocol):
    """Stores a MIME type and a description beside a content.

    `bbfs put` of the mount's owner writes to such a source, even if the configuration does not grant the capability
    `write`.
    """

    @property
    def largest(self) -> int:
        """Size limit of a content in bytes."""
        ...

    async def write_described(
        self, native_uri: str, content: Content, expected: Expected, labels: Labels
    ) -> ResourceMetadata:
        """Write as `write` does, with labels."""
        ...


@runtime_checkable
class DetectsExisting(CanWrite, Protocol):
    """Compares some states itself, though `detects_conflicts` is False."""

    @property
    def detects_existing(self) -> bool:
        """Return whether a `write` that creates a resource (`expected.exists` is False) looks itself if the resource
        exists.

        Then bbfs does not ask before it. `write` raises Conflict.
        """
        ...


@runtime_checkable
class DetectsRemoved(CanWrite, Protocol):
    """Compares some states of what it removes itself, though `detects_conflicts` is False."""

    def detects_removed(self, expected: Expected) -> bool:
        """Return whether `remove` itself compares this state with that of the source, in one step or just before.

        Then bbfs asks for the state only if `remove` raises Conflict. If a load finds the expected content after all,
        bbfs calls `remove` again, without the version. Asks nothing.
        """
        ...


@runtime_checkable
class WritesUnseen(CanWrite, Protocol):
    """Writes by a request that may succeed without the source having these bytes: a tool call, a POST to an API."""

    @property
    def writes_unseen(self) -> bool:
        """Return whether bbfs compares what the source has after a `write` whose metadata does not say that it is all.

        The size of the content says so, and so does an etag without a size.
        """
        ...


@runtime_checkable
class StatesBeginning(CanWrite, Protocol):
    """A hierarchical source that can be written while it is empty, so that no listing shows how its URIs begin."""

    @property
    def beginning(self) -> str:
        """The beginning of the native URIs of the root's entries, such as `s3://bucket/prefix/`."""
        ...


@runtime_checkable
class CanRename(CanWrite, Protocol):
    """Renames resources or directories at the source. Without it, bbfs copies a resource and removes the old one."""

    async def rename(self, native_uri: str, to: str, *, replace: bool) -> ResourceMetadata:
        """Give a resource another URI. Raise Exists if that is in use and `replace` is false; else as rename(2).

        Return the metadata under the new URI. The etag is the one that the answer states, or that the resource had
        before if a later request still states the same; else None, as for `write`.
        """
        ...


@runtime_checkable
class RenamesSome(CanRename, Protocol):
    """Renames some of its resources, or only to some names."""

    def renames(self, native_uri: str, to: str, *, is_directory: bool, replace: bool) -> bool:
        """Return whether `rename` can do this. If not, bbfs goes on as without `CanRename`. Asks the source nothing."""
        ...


@runtime_checkable
class CanStage(CanWrite, Protocol):
    """Takes a content before the resource that the content is for is known (`stage` in `writes`).

    A program that saves a large file closes it under a name that it does not keep, and renames it then. The kernel
    holds the directory during the rename: the source should have the bytes before.
    """

    async def stage(self, native_uri: str, content: Content) -> str:
        """Store a content in the directory of a resource. Return where, for the other methods.

        No listing shows it, and a later write in its directory removes it if this process ends before it is used.
        """
        ...

    async def write_staged(
        self, staged: str, native_uri: str, content: Content, expected: Expected
    ) -> ResourceMetadata:
        """As `write`, by a move of the staged content. If that is not there any more, send the content."""
        ...

    async def unstage(self, staged: str) -> None:
        """Remove a staged content, if it is there."""
        ...


@runtime_checkable
class CanMakeDirectories(CanWrite, Protocol):
    """Has directories of its own. Without it, a directory lives in the mount until a resource is below it."""

    async def make_directory(self, native_uri: str) -> ResourceMetadata: ...

    async def remove_directory(self, native_uri: str) -> None:
        """Remove an empty directory. Raise NotEmpty, NotFound."""
        ...


@runtime_checkable
class CanSetTime(CanWrite, Protocol):
    """Keeps a time of modification that a program sets."""

    async def set_time(self, native_uri: str, modified_ns: int) -> ResourceMetadata:
        """Set the time of modification (nanoseconds since the epoch). The etag of the metadata is as for `write`."""
        ...


@runtime_checkable
class CanCall(Protocol):
    """Has tools, which run when the user calls them (`bbfs call`)."""

    async def tools(self) -> tuple[Tool, ...]: ...

    async def call(self, call: Call, progress: Callable[[Progress], None]) -> Loaded:
        """Run a tool once. Raise ToolFailed with the tool's own error, and Denied if it must be confirmed first.

        progress: called with each progress that the source reports. It must neither block nor raise.
        """
        ...


@runtime_checkable
class CanClose(Protocol):
    """Holds resources to release when bbfs ends: connections, threads, files."""

    async def aclose(self) -> None:
        """Release everything within a few seconds. Called once, after the last request. Raise nothing expected."""
        ...


@runtime_checkable
class HoldsContents(Protocol):
    """Has some contents itself, made of what its source has told before, such as descriptions of tools."""

    def holds(self, native_uri: str) -> bool:
        """Return whether a load of a resource asks the source nothing. It counts as no request then."""
        ...


@runtime_checkable
class IsLocalFile(Protocol):
    """A source whose resources are all in one local file. local_file: its path, or None if it is on a server."""

    local_file: str | None


LONGEST_QUERY = 1000
"""Characters of a query."""


class Handler(Protocol):
    """Every handler: the data source that it was made for, and its health."""

    source: DataSource

    @property
    def state(self) -> SourceState: ...
