"""The shape of a bbfs configuration file: its tables, their keys, their types.

The checks run before any `${…}` is resolved, so no message can hold a secret. Every key may be in camelCase (as in MCP
configuration files) or in snake_case.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from bbfs.config.problems import KeyPath, suggestion
from bbfs.config.values import DEFAULT_CACHE_BYTES, DEFAULT_DISK_BYTES, DEFAULT_INDEX_BYTES, LogFormat, LogLevel
from bbfs.model.quantities import parse_duration, parse_size, parse_umask
from bbfs.model.uri_templates.patterns import Pattern
from bbfs.model.values import DocumentBounds, RemoveTool, SearchTool, TextFiles, WriteTool
from bbfs.server_parts.options import parse_address

_MCP_TYPES = ("server", "mcp")
CAPABILITY_NAMES = ("read", "write", "list", "search")
SERVER_TOOLS = {"search": SearchTool, "write": WriteTool, "remove": RemoveTool}
"""The tables of a source that name a tool of its MCP server, with their values."""
LARGEST_SHARED = 64 << 20
"""Bytes of the largest shared content: it should cross the network within half a second."""
MAX_CONCURRENCY = 64
"""Most requests in flight at one source; far below those of the daemon, so that a slow source cannot take them all."""


def _capability_table(value: object) -> object:
    """Return the table of a list: `["read", "list"]` grants exactly these. A table of booleans changes the defaults."""
    if not isinstance(value, list):
        return value
    for name in value:
        if not isinstance(name, str):
            raise ValueError(f"should be a list of {', '.join(map(repr, CAPABILITY_NAMES))}")
        if name not in CAPABILITY_NAMES:
            raise ValueError(f"unknown capability {name[:40]!r}{suggestion(name, CAPABILITY_NAMES)}")
    return {name: name in value for name in CAPABILITY_NAMES}


def _tools(value: object) -> object:
    """`"off"`, `"read-only"`, `"all"`, or the names of the tools that may be run, or patterns of names."""
    if isinstance(value, list) and all(isinstance(name, str) and name for name in value):
        return value
    if value in ("off", "read-only", "all"):
        return value
    hint = suggestion(value, ("off", "read-only", "all")) if isinstance(value, str) else ""
    raise ValueError(f"should be 'off', 'read-only', 'all' or an array of names of tools{hint}")


def _map(value: object) -> object:
    """Return the table of a map; the name of one that comes with bbfs stands for `{ use = NAME }`."""
    return {"use": value} if isinstance(value, str) else value


def _template(value: str) -> str:
    Pattern(value)
    return value


def _ttl_table(value: object) -> object:
    if isinstance(value, dict):
        return value
    seconds = parse_duration(value)
    return {"listing": seconds, "content": seconds}


Duration = Annotated[float, BeforeValidator(parse_duration)]
PositiveDuration = Annotated[float, BeforeValidator(parse_duration), Field(gt=0)]
Size = Annotated[int, BeforeValidator(parse_size)]
Umask = Annotated[int, BeforeValidator(parse_umask)]
Address = Annotated[tuple[str, int], BeforeValidator(parse_address)]
UserId = Annotated[int, Field(ge=0, lt=2**32 - 1)]


class ConfigTable(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,
    )


class MountTable(ConfigTable):
    uid: UserId | None = None
    """Owner of the tree. Without it, the mounting user."""
    gid: UserId | None = None
    """Group of the tree. Without it, the group of the mounting user."""
    umask: Umask | None = None
    """Permission bits to remove, as a quoted octal number (`"077"`). Without it, none."""
    allow_other: bool = False
    """Allow access by other users."""
    agents: bool = False
    """Describe the sources in `AGENTS.md` at the root too, for agents that look for that."""
    read_only: bool = False
    """Refuse every write, whatever the sources grant."""
    metrics: Address | None = None
    """Answer `GET /metrics` for Prometheus at `HOST:PORT`. The answer has the names and the states of the sources, for
    all who reach this address."""
    audit: str | None = None
    """Record each change by a program: in this file, on standard output (`-`), or in the `journal`."""
    audit_reads: bool = False
    """Record each open of a file and each listing as well."""
    inotify: bool | None = None
    """Tell programs that [watch the mount](operations.md#programs-that-watch-the-mount) what sources change. Otherwise
    only where something in the mount can be written."""


class CacheTable(ConfigTable):
    memory: Size = DEFAULT_CACHE_BYTES
    """Memory for cached contents."""
    disk: Size = DEFAULT_DISK_BYTES
    """Disk space for cached contents; 0 for none."""
    index: Size = DEFAULT_INDEX_BYTES
    """Disk space for the local index; 0 for none."""
    shared: str | None = None
    """The Valkey or Redis server on which machines share contents: `redis://HOST:PORT/DATABASE`, `rediss://…` (TLS),
    `unix:///PATH?db=DATABASE`; a cluster: `redis+cluster://HOST:PORT,HOST:PORT`; the primary that sentinels name:
    `redis+sentinel://HOST:PORT,HOST:PORT/NAME/DATABASE`."""
    shared_password: str | None = None
    """Its password, without percent-encoding (unlike in the URL)."""
    shared_nodes: list[str] = []
    """Hosts that a cluster or a sentinel may name, beside those in the URL and their addresses: host names, `*.DOMAIN`,
    addresses, networks (`10.1.0.0/16`)."""
    shared_sentinel_user: str | None = None
    """The ACL user at the sentinels."""
    shared_sentinel_password: str | None = None
    """The password at the sentinels, if they ask for one. They never get that of the server."""
    shared_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,64}$")] = "bbfs"
    """Prefix of all keys there. Machines share contents only under one prefix."""
    shared_max_content: Annotated[int, BeforeValidator(parse_size), Field(ge=1, le=LARGEST_SHARED)] = 1 << 20
    """Largest content to share."""
    shared_ttl: PositiveDuration = 86400.0
    """Longest time that a content stays on the server."""
    shared_timeout: PositiveDuration = 0.5
    """Longest time of one request before the server counts as down."""


class DocumentsTable(ConfigTable):
    max_size: Size = DocumentBounds().max_size
    """Largest document."""
    max_unpacked: Size = DocumentBounds().max_unpacked
    """Most bytes of all members of an archive. Word, PowerPoint, Excel and EPUB files are archives."""
    max_text: Size = DocumentBounds().max_text
    """Largest text of a document."""
    seconds: Annotated[int, Field(ge=1, le=3600)] = DocumentBounds().seconds
    """CPU time for one document, in seconds."""


class CapabilitiesTable(ConfigTable):
    read: bool = True
    write: bool = False
    list: bool = True
    search: bool = True


class TtlTable(ConfigTable):
    listing: Duration | None = None
    content: Duration | None = None


class McpTable(ConfigTable):
    command: str | None = None
    """A program that bbfs starts, with the protocol on its stdin and stdout."""
    args: list[str] = []
    """Its arguments."""
    env: dict[str, str] = {}
    """Variables of its environment, beside HOME, LOGNAME, PATH, SHELL, TERM, USER, LANG, and those of proxies and of
    certificate authorities."""
    cwd: str | None = None
    """Its working directory; in a configuration file, the directory of the file by default."""
    url: str | None = None
    """A server over HTTP, instead of a program."""
    headers: dict[str, str] = {}
    """Headers of every request to it."""
    transport: Literal["stdio", "http", "sse"] | None = None
    """The transport, if the other keys do not tell it."""


class SearchTable(ConfigTable):
    tool: str
    """The name of the tool."""
    query: str | None = None
    """The argument for the words. Without it, the one with a usual name."""
    limit: str | None = None
    """The argument for the number of hits. Without it, the one with a usual name."""
    uri: str = "uri"
    """The key of a hit that holds its URI."""
    arguments: dict[str, Any] = {}
    """Arguments that every search sends."""


class RemoveTable(ConfigTable):
    tool: str
    """The name of the tool, which the option `tools` need not allow."""
    uri: str = "uri"
    """The argument that takes the URI of the resource."""
    version: str | None = None
    """The argument that takes the version to replace or remove; bbfs sends `""` if there must be no such resource."""
    template: Annotated[str, AfterValidator(_template)] | None = None
    """Write only URIs that this template makes. Without it, all."""
    arguments: dict[str, Any] = {}
    """Other arguments, sent with every call."""


class WriteTable(RemoveTable):
    content: str = "content"
    """The argument that takes a text in UTF-8; `""` if there is none."""
    blob: str | None = None
    """The argument that takes other bytes, in Base64. Without it, they are `EOPNOTSUPP`."""
    mime_type: str | None = None
    """The argument that takes the MIME type of the file name."""
    max_size: Size = WriteTool("").max_size
    """Largest content. A larger one is `EFBIG`."""


class SourceTable(ConfigTable):
    name: str
    """Part of the directory's name: letters, digits, `.` `_` `-`."""
    id: str | None = None
    """The name of the source in commands. Without it, `name`."""
    type: str | None = None
    """One of the types above. For MCP, any word for the content of the server (`server`, `database`, …); without it,
    `server`."""
    access_method: Literal["bb", "mcp"] | None = None
    """`bb` (read by bbfs itself) or `mcp`. Without it, `mcp` if there is an `mcpConfig`."""
    title: str | None = None
    """A name for people."""
    enabled: bool = True
    """`false` leaves the source out."""
    uri_prefix: str | None = None
    """Another name for the directory: `{accessMethod}-{type}+{name}`, or with `+{scheme}`."""
    capabilities: Annotated[CapabilitiesTable, BeforeValidator(_capability_table)] = CapabilitiesTable()
    """What bbfs may do: an array of `read`, `list`, `write`, `search`, or a table of booleans. A source has a
    capability if it is granted here and its type supports it. Without it, all but `write`."""
    config: dict[str, Any] = {}
    """Options of the type, see its page."""
    auth: dict[str, str] = {}
    """Secrets. Each type has its own keys; MCP servers have those of [logins](sources/mcp.md#logins)."""
    mcp_config: McpTable | None = None
    """The address of an MCP server, see [its page](sources/mcp.md)."""
    ttl: Annotated[TtlTable, BeforeValidator(_ttl_table)] = TtlTable()
    """How long listings and contents are fresh: one value, or `{ listing = …, content = … }`. A time to live from the
    server overrides it."""
    timeout: PositiveDuration | None = None
    """Longest time of one request."""
    max_stale: Duration | None = None
    """How long after that bbfs still serves a stale listing while it refreshes it, and a stale content while the source
    is down."""
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] | None = None
    """Requests in flight at once."""
    sizes: Literal["exact", "lazy"] | None = None
    """`exact`: load a content to find an unknown size. `lazy`: the size is 0 until the file is opened (below a scratch
    as `exact`)."""
    disk: bool | None = None
    """Cache contents [on disk](operations.md#contents-on-disk)."""
    verify: bool | None = None
    """Load each resource after it was written, and compare the bytes: other bytes are `EIO` and a pending write. For
    stores that may keep other bytes than they are sent. A source that makes another text of what it gets (`api`,
    `notion`, `database`) fails each write by it."""
    start: Literal["lazy", "eager"] | None = None
    """MCP: `lazy` connects at the first use; `eager` connects at once, and again whenever the connection is lost."""
    idle_timeout: Duration | None = None
    """MCP: close a connection that is unused for this long and has no subscription, until the next use; 0 is never."""
    roots: list[str] | None = None
    """MCP: folders to send when the server asks for the client's roots."""
    list_limit: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """MCP: most resources to list, of 128 bytes each on average. If there are more, the log and `user.bbfs.error` say
    so."""
    tools: Annotated[Literal["off", "read-only", "all"] | list[str] | None, BeforeValidator(_tools)] = None
    """MCP: the [tools](sources/tools.md) that can be called by path: `read-only` (those that declare it), `all`, an
    array of names and patterns (`git_*`), or `off`, which shows no tools at all."""
    prompts: bool | None = None
    """MCP: give prompts paths."""
    apps: bool | None = None
    """MCP: search the pages of [apps](sources/mcp.md#apps) (`ui://`), grep and index them, and load them ahead."""
    search: SearchTable | None = None
    """MCP: the [tool that searches](sources/tools.md#search) the server. Without it, the read-only tool that is named
    like a search, needs a query only, and declares to answer with URIs."""
    write: WriteTable | None = None
    """MCP: the tool that [writes](sources/mcp.md#writing) resources."""
    remove: RemoveTable | None = None
    """MCP: the tool that [removes](sources/mcp.md#writing) resources."""
    map: Annotated[dict[str, Any] | None, BeforeValidator(_map)] = None
    """MCP: the [map](sources/maps.md) that shows the server's tools as a tree: the name of one that comes with bbfs, or
    a table."""
    shared: bool | None = None
    """MCP: put contents into the [shared cache](operations.md#sharing-contents-between-machines), if there is one.
    Without it, those of servers that answer all users alike."""
    index: bool | None = None
    """`true`: put the texts that are read into the [local index](search.md#the-local-index). `false`: never index this
    source. Without it, bbfs indexes what `bbfs index` is asked for."""
    pin: bool | None = None
    """`true`: [keep all contents on disk](operations.md#reading-without-a-source), and load them again when they
    change."""
    text: TextFiles | None = None
    """The [texts of documents](documents.md): `by-name` beside the documents, `listed` as well, or `off`."""

    @property
    def is_mcp(self) -> bool:
        """Return whether the source is an MCP server; without an access method its server or its type tells that."""
        return self.access_method == "mcp" if self.access_method else bool(self.mcp_config or self.type in _MCP_TYPES)

    def policy(self) -> dict[str, Any]:
        """Return the given fields of `Policy`."""
        given = {"listing_ttl": self.ttl.listing, "content_ttl": self.ttl.content}
        for key in ("timeout", "max_stale", "concurrency", "sizes", "disk", "verify"):
            given[key] = getattr(self, key)
        return {key: value for key, value in given.items() if value is not None}

    def server_tools(self) -> dict[str, Any]:
        """Return the given fields of `DataSource` that name tools of the server."""
        given = {key: getattr(self, key) for key in SERVER_TOOLS}
        return {key: SERVER_TOOLS[key](**table.model_dump()) for key, table in given.items() if table is not None}

    def connection(self) -> dict[str, Any]:
        """Return the given fields of `McpServer` that are keys of the source."""
        given = {key: getattr(self, key) for key in ("start", "idle_timeout", "list_limit", "roots")}
        return {key: value for key, value in given.items() if value is not None}


class FileTable(ConfigTable):
    """The whole file. Sources are validated one by one, so that a faulty one does not hide the faults of others."""

    mount: MountTable = MountTable()
    cache: CacheTable = CacheTable()
    documents: DocumentsTable = DocumentsTable()
    embeddings: dict[str, Any] | None = None
    """The [model](sources/vector_search.md#embeddings) that makes vectors of texts, for the [local
    index](search.md#meaning) and for sources of vectors that name none. Without it, searches are for words."""
    log_level: LogLevel = "info"
    """The lowest level of messages in the log."""
    log_format: LogFormat = "text"
    """The form of the log: `text`, `json` (an object a line), or `journal` (its fields, if stderr is the journal)."""
    sources: list[dict[str, Any]] = []


_NESTED: dict[str, type[ConfigTable]] = {
    "mount": MountTable,
    "cache": CacheTable,
    "documents": DocumentsTable,
    "sources": SourceTable,
    "capabilities": CapabilitiesTable,
    "ttl": TtlTable,
    "mcpConfig": McpTable,
    "search": SearchTable,
    "write": WriteTable,
    "remove": RemoveTable,
}


def find_key(table: object, step: str | int) -> str | int:
    """Return `step`, a key in camelCase, in the spelling of `table`: a file may also use snake_case."""
    if isinstance(step, str) and isinstance(table, dict) and step not in table:
        return next((key for key in table if to_camel(key) == step), step)
    return step


def written_path(document: object, path: KeyPath) -> KeyPath:
    """Return `path`, whose keys are in camelCase, in the file's spelling, up to the first step that the file lacks."""
    written: KeyPath = ()
    for wanted in path:
        step = find_key(document, wanted)
        written = (*written, step)
        try:
            document = document[step]  # type: ignore[index]
        except (LookupError, TypeError):
            break
    return written


def explain(error: ValidationError, table: type[ConfigTable], report: Callable[[KeyPath, str], None]) -> None:
    """Call `report(path, message)` for each error, in the words of a configuration file. table: the validated one."""
    for details in error.errors(include_url=False, include_input=True):
        path = tuple(details["loc"])
        report(path, _message(details, _table_of(path, table)))


def _table_of(path: KeyPath, table: type[ConfigTable]) -> type[ConfigTable]:
    for step in path[:-1]:
        table = _NESTED.get(to_camel(step), table) if isinstance(step, str) else table
    return table


def _message(details: ErrorDetails, table: type[ConfigTable]) -> str:
    """Return one error in words. The configured text is read only for keys with a closed list of words."""
    match details["type"]:
        case "extra_forbidden":
            names = [name for key, field in table.model_fields.items() for name in (field.alias or key,)]
            word = str(details["loc"][-1])
            if word in names or word in table.model_fields:
                return "is there in camelCase and in snake_case; leave one of them out"
            if table is SourceTable and word == "root":
                return "unknown key; did you mean 'config.root'?"
            return "unknown key" + suggestion(word, names)
        case "missing":
            return "is required"
        case "literal_error":
            expected = str(details["ctx"]["expected"]) if "ctx" in details else ""
            hint = suggestion(details["input"], expected.split("'")[1::2]) if isinstance(details["input"], str) else ""
            return f"should be {expected}{hint}"
    if details["loc"] == ("sources",) and isinstance(details["input"], dict):
        return "should be an array of tables: each source begins with [[sources]] and has its name as a key"
    text = details["msg"].removeprefix("Value error, ").removeprefix("Input ")
    text = re.sub(r"a valid dictionary(?: or instance of \w+)?", "a table", text)
    return text.replace("a valid list", "an array").replace("a valid integer", "an integer").replace("a valid ", "a ")
