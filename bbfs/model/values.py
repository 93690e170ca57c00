"""The values that every layer shares. All are frozen; none does I/O or reads a clock.

Times are seconds since the Unix epoch (`float`) unless a name ends in `_ns`; sizes are bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

from bbfs.model.uri import AccessMethod

ContentType = Literal["text", "binary", "unknown"]
Tools: TypeAlias = Literal["off", "read-only", "all"] | tuple[str, ...]
"""Which tools of a server may be run by opening a path: those that declare `readOnlyHint`, all, or those whose names
match one of these patterns (`*`, `?`, `[…]`). `off` leaves all tools out."""


def _empty() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Capabilities:
    """An ability that the configuration grants. It holds when it is granted **and** the handler has the ability."""

    read: bool = True
    write: bool = False
    list: bool = True
    search: bool = True


@dataclass(frozen=True, slots=True)
class Policy:
    """Bounds and freshness of one source.

    timeout: seconds that one request to the source may take.
    listing_ttl, content_ttl: seconds for which a listing or a content is served without asking the source; a time to
        live that the source itself gives comes first.
        Some types have other defaults (`bbfs.model.source_types`).
    max_stale: seconds after expiry for which a listing is still served while it is refreshed, and content is served
        while the source is down.
    concurrency: requests in flight at the source at once.
    sizes: `exact` loads a content when something asks for an unknown size; `lazy` says 0 until it is opened.
    disk: whether contents may be kept on disk.
    verify: whether bbfs loads each resource after it has written it, and compares the bytes.
    """

    timeout: float = 30.0
    listing_ttl: float = 30.0
    content_ttl: float = 10.0
    max_stale: float = 3600.0
    concurrency: int = 16
    sizes: Literal["exact", "lazy"] = "exact"
    disk: bool = True
    verify: bool = False


@dataclass(frozen=True, slots=True)
class McpServer:
    """The address of one MCP server, and how to start it. Values that may be secret are kept out of `repr`.

    secrets: the values that references (`${env:…}`, `${file:…}`) brought into these fields. No text may show them.
    start: `lazy` connects at the first use, `eager` at once and again whenever the connection is lost.
    idle_timeout: seconds without a request after which a connection that nothing is subscribed on is ended; 0 is never.
    roots: folders (absolute paths) that the server is told of when it asks for `roots/list`.
    list_limit: resources to list; more are left out.
    """

    transport: Literal["stdio", "http", "sse"]
    command: str | None = None
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=_empty, repr=False)
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=_empty, repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    start: Literal["lazy", "eager"] = "lazy"
    idle_timeout: float = 600.0
    roots: tuple[str, ...] = ()
    list_limit: int = 1_000_000


@dataclass(frozen=True, slots=True)
class SearchTool:
    """The tool of an MCP server that searches it.

    query, limit: the arguments that take the words and the number of hits; None stands for the usual names. uri: the
    key of a hit that holds the URI of its resource. arguments: sent with every search.
    """

    tool: str
    query: str | None = None
    limit: str | None = None
    uri: str = "uri"
    arguments: Mapping[str, Any] = field(default_factory=_empty)


@dataclass(frozen=True, slots=True)
class RemoveTool:
    """The tool of an MCP server that removes a resource.

    uri, version: the arguments that take the resource, and the version that it must have; without `version`, bbfs
    compares the content just before. template: of the URIs that the tool is for; None for all. arguments: sent with
    every call.
    """

    tool: str
    uri: str = "uri"
    version: str | None = None
    template: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=_empty)


@dataclass(frozen=True, slots=True)
class WriteTool(RemoveTool):
    """The tool of an MCP server that creates a resource or replaces its content.

    content: the argument that takes a text in UTF-8; "" if there is none. blob: the argument that takes other bytes
    in Base64. mime_type: the argument that takes the MIME type of the name. max_size: bytes of a content.
    """

    content: str = "content"
    blob: str | None = None
    mime_type: str | None = None
    max_size: int = 32 << 20


TextFiles = Literal["off", "by-name", "listed"]


@dataclass(frozen=True, slots=True)
class DataSource:
    """One configured source: data, not an actor.

    id: unique within a configuration; name: the part of the URI prefix (same alphabet, see `bbfs.model.uri`).
    uri_prefix: `{access_method}-{type}+{name}` where the schemes are the source's own, with `+{scheme}` where there is
        one fixed scheme. It names the source's directory (`docs/semantics.md` S1).
    config: options of the source's type, validated by its handler, which may hold secrets. auth: secrets, already
        resolved. Neither is ever printed.
    tools, prompts: what of an MCP server has paths besides its resources (`docs/semantics.md` S31). apps: whether the
        pages of its apps are searched and loaded ahead as other resources are. search: the tool that searches it; None
        stands for the tool that declares to search. write, remove: the tools that write and remove.
        map: the options of a map, which shows the tools as a tree, in the place of resources.
    shared: whether its contents are shared with other machines; None leaves it to `bbfs.resources.loading.shared_tier`.
    index: whether the texts that pass through the cache are indexed; False forbids the index, None leaves it to
        `bbfs index`.
    pin: whether all its contents are kept on disk.
    text: whether the texts of documents are files beside them: found by their names only, or listed as well.
    base: the directory that relative paths among the options start from: the directory of the configuration file, or
        None for the directory that bbfs was started in.
    """

    id: str
    name: str
    type: str
    access_method: AccessMethod
    uri_prefix: str
    capabilities: Capabilities = Capabilities()
    policy: Policy = Policy()
    config: Mapping[str, Any] = field(default_factory=_empty, repr=False)
    auth: Mapping[str, str] = field(default_factory=_empty, repr=False)
    mcp: McpServer | None = None
    title: str | None = None
    tools: Tools = "read-only"
    prompts: bool = True
    apps: bool = False
    search: SearchTool | None = None
    write: WriteTool | None = None
    remove: RemoveTool | None = None
    map: Mapping[str, Any] | None = field(default=None, repr=False)
    shared: bool | None = None
    index: bool | None = None
    pin: bool = False
    text: TextFiles = "by-name"
    base: str | None = None
    base_prefix: str = field(init=False, repr=False, compare=False)
    """The prefix without its scheme: `{access_method}-{type}+{name}`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_prefix", "+".join(self.uri_prefix.split("+", 2)[:2]))

    @property
    def grants_write(self) -> bool:
        """Return whether the configuration lets bbfs write. For an MCP server, its tools for that must be named."""
        names_tool = self.mcp is None or any(each is not None for each in (self.write, self.remove, self.map))
        return self.capabilities.write and names_tool

    @property
    def scheme(self) -> str | None:
        """The fixed scheme of the source, or None if each of its URIs has its own."""
        parts = self.uri_prefix.split("+", 2)
        return parts[2] if len(parts) == 3 else None


@dataclass(frozen=True, slots=True)
class SharedCache:
    """The Valkey or Redis server that keeps contents for many machines. Its text (`str`) holds no secret.

    form: one server, a cluster, or a primary that sentinels name. socket: the path of a Unix socket, in the place of
    host and port. nodes: hosts and ports of nodes of the cluster, or of sentinels. service: the sentinels' name of the
    primary. announced: other hosts that nodes and sentinels may name: host names, `*.DOMAIN`, addresses and networks.
    prefix: of all keys. max_content: bytes of all contents of a resource, above which they are not shared. longest:
    seconds after which anything is removed. timeout: seconds that one request may take, and so a reader's wait for a
    server that has just died.
    """

    form: Literal["server", "cluster", "sentinel"] = "server"
    host: str = "localhost"
    port: int = 6379
    socket: str | None = None
    nodes: tuple[tuple[str, int], ...] = ()
    service: str = ""
    announced: tuple[str, ...] = ()
    database: int = 0
    tls: bool = False
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    prefix: str = "bbfs"
    max_content: int = 1 << 20
    longest: float = 86400.0
    timeout: float = 0.5

    def __str__(self) -> str:
        if self.socket is not None:
            return f"unix://{self.socket}?db={self.database}"
        scheme = "rediss" if self.tls else "redis"
        if self.form == "server":
            return f"{scheme}://{_host_port(self.host, self.port)}/{self.database}"
        nodes = ",".join(_host_port(*node) for node in self.nodes)
        return f"{scheme}+{self.form}://{nodes}" + (f"/{self.service}/{self.database}" if self.service else "")


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class DocumentBounds:
    """The bounds of documents that are read as text.

    max_size: bytes of a document. max_unpacked: bytes of all members of an archive. Most kinds of documents are
    archives. max_text: bytes of the text. seconds: CPU time for one document.
    """

    max_size: int = 64 << 20
    max_unpacked: int = 512 << 20
    max_text: int = 16 << 20
    seconds: int = 30


@dataclass(frozen=True, slots=True)
class ResourceMetadata:
    """The description of one resource, available before its content is read.

    uri: the bbfs URI. native_uri: the source's own, exactly as it gave it.
    size: bytes as the source declares them, or None. They may be wrong; the size of a loaded content comes first.
    modified_ns: the source's own last-modified in nanoseconds since the epoch, or None.
    etag: changes exactly when the content does, or None.
    kind, target: a hierarchical source also describes directories and symbolic links this way.
    uri_template, variables: the template that the resource is made from, and the values that make it.
    on_open: loading it does something at the source, so nothing but an open of the file loads it: no stat, no listing,
        no loading ahead (`docs/semantics.md` S31).
    properties: other fields of this source type, by names in snake_case, shown as `user.bbfs.NAME`.
    """

    uri: str
    native_uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    content_type: ContentType = "unknown"
    uri_template: str | None = None
    size: int | None = None
    modified_ns: int | None = None
    etag: str | None = None
    annotations: Mapping[str, Any] | None = None
    mcp_data: Mapping[str, Any] | None = None
    kind: Literal["resource", "directory", "symlink"] = "resource"
    target: str | None = None
    variables: Mapping[str, Any] | None = None
    on_open: bool = False
    properties: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ResourceTemplate:
    """Resources that a source does not list: every expansion of a URI template (RFC 6570) may be one.

    uri_template: of native URIs, exactly as the source gave it. on_open: as in `ResourceMetadata`, for each expansion.
    slashed, needed, choices: tell whether a slash in the query may stay as it is. slashed: the variables that take any
    text. needed: the variables that every expansion has. choices: `VARIABLE=VALUE`, decoded, for variables that take a
    few values.
    refused: every load of an expansion is an error with a reason. Such a template makes names with a query, and no
    directory or description shows it.
    """

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Mapping[str, Any] | None = None
    mcp_data: Mapping[str, Any] | None = None
    on_open: bool = False
    slashed: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of a search. The hits of an answer come in the order of their rank, the best first.

    native_uri: of a resource that the source lists or makes from a template.
    score: greater is better. It may be compared within one answer only; None where the source gives none.
    snippet: plain text of the content around the match, or None. where: the place of the match in words, such as a
    heading or `line 12`.
    """

    native_uri: str
    score: float | None = None
    title: str | None = None
    snippet: str | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """Values of a template's variable, in the source's order.

    more: the source has others besides. final: a request with a longer beginning brings no further values.
    """

    values: tuple[str, ...] = ()
    more: bool = False
    final: bool = False


class Content(Protocol):
    """Immutable bytes of one version of a resource. An open file pins one until it is closed."""

    @property
    def size(self) -> int: ...

    @property
    def version(self) -> str:
        """The version: equal for equal bytes of one resource, different when they differ."""
        ...

    def read(self, offset: int, length: int) -> bytes | None:
        """Return the bytes at `offset` (fewer only at the end), or None if that would have to wait."""
        ...

    async def read_waiting(self, offset: int, length: int) -> bytes:
        """Read as `read` does, but wait for a local disk if need be. Raise BbfsError."""
        ...

    def close(self) -> None: ...


WriteOperation = Literal[
    "create", "replace", "remove", "rename", "make_directory", "remove_directory", "set_time", "stage"
]

WAITS_FOR_SOURCE = "waits_for_source"
"""An attribute, true, of a content that asks its source for ranges while it is open, so that a read may wait for the
source. The kernel must not read it ahead into its page cache: a few such reads that hang delay all sources."""


@dataclass(frozen=True, slots=True)
class Part:
    """One content of a load: its own URI if it has one, its MIME type, its bytes.

    link: the native URI of the resource that the content links to; it is shown as a symbolic link. The bytes are shown
        instead if the source has no such resource.
    name: its file name among several contents, unless its URI gives one.
    """

    native_uri: str | None
    mime_type: str | None
    content: Content
    content_type: ContentType = "unknown"
    link: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """The answer to a load: one part for most resources; several are shown as a directory.

    ttl: seconds, if the source gives a time to live. metadata: a description of exactly these bytes. With an etag and a
    size it is their version; otherwise it adds to the listing. once: only this process may serve it again. personal: it
        is for the login of this user, and no other machine gets it.
    """

    parts: tuple[Part, ...]
    ttl: float | None = None
    metadata: ResourceMetadata | None = None
    once: bool = False
    personal: bool = False


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The answer to a conditional load: the cached content is still valid. ttl, metadata: as in `Loaded`."""

    ttl: float | None = None
    metadata: ResourceMetadata | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The answer to a list.

    problem: in words, why it is incomplete (a bound was hit, entries were invalid). open: names that are not listed may
    exist as well (`CanFind`). descriptions: how many of the resources are files that describe what else there is.
    directories: native URIs of directories that the source lists one at a time (`CanReadDirectory`); none of the
    resources is below one.
    """

    resources: Sequence[ResourceMetadata]
    ttl: float | None = None
    problem: str | None = None
    templates: tuple[ResourceTemplate, ...] = ()
    open: bool = False
    descriptions: int = 0
    directories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state of a source, for `bbfs sources`, extended attributes and the log.

    instructions: how to use the source, in its own words.
    """

    state: Literal["idle", "connecting", "up", "down"]
    reason: str | None = None
    protocol_version: str | None = None
    server: str | None = None
    instructions: str | None = None


@dataclass(frozen=True, slots=True)
class ListingProgress:
    """The progress of the latest listing of a source.

    resources, pages: received so far. seconds: since it began, or its duration. complete: whether all pages have come.
    """

    resources: int
    pages: int
    seconds: float
    complete: bool


ChangeEvent: TypeAlias = Literal["added", "changed", "removed", "listed", "missed"]
Finding: TypeAlias = Literal["source", "listing", "load", "doubt", "nothing"]


@dataclass(frozen=True, slots=True)
class Change:
    """A change at a source, on its way from the handler to the kernel, the watches and the clients of a server.

    A handler reports "changed" with the native URI of a resource, "listed" if the listing may have changed, and
    "missed" if it may have missed changes: of the resource `uri`, or of any. The daemon adds the `paths` from the
    mount's root whose entries or contents differ. A watch reports "added", "changed" and "removed" with one path
    and the bbfs URI. below: so may everything below the paths: of many changes, the directories are told. A handler
    means with it all that is below the directory `uri`, and tells the paths of a folder from its root. own: this
    process has made the change at the source.
    added, removed: those of the paths that a listing has shown to be new or gone, as far as they are known apart.
    found: whether the source has announced the change, or a listing or a load has found it; `doubt`, where all is asked
    for again, as something may differ; `nothing`, where the kernel alone has to ask again.
    """

    source_id: str
    event: ChangeEvent
    uri: str | None = None
    paths: frozenset[tuple[str, ...]] = frozenset()
    below: bool = False
    own: bool = False
    added: frozenset[tuple[str, ...]] = frozenset()
    removed: frozenset[tuple[str, ...]] = frozenset()
    found: Finding = "source"

    def concerns(self, path: tuple[str, ...]) -> bool:
        """Return whether the entry or the content of a path may differ."""
        if not self.below:
            return path in self.paths
        return any(path[:depth] in self.paths for depth in range(len(path) + 1))
