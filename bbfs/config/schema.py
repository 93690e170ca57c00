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
from bbfs.model.quantities import parse_duration, parse_size, parse_umask
from bbfs.model.uri_templates.patterns import Pattern
from bbfs.model.values import DocumentBounds, RemoveTool, SearchTool, TextFiles, WriteTool

LogLevel = Literal["debug", "info", "warning", "error"]
DEFAULT_CACHE_BYTES = 256 * 2**20
DEFAULT_DISK_BYTES = 2**30
DEFAULT_INDEX_BYTES = 4 * 2**30
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
    gid: UserId | None = None
    umask: Umask | None = None
    allow_other: bool = False
    agents: bool = False


class CacheTable(ConfigTable):
    memory: Size = DEFAULT_CACHE_BYTES
    disk: Size = DEFAULT_DISK_BYTES
    index: Size = DEFAULT_INDEX_BYTES
    shared: str | None = None
    shared_password: str | None = None
    shared_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,64}$")] = "bbfs"
    shared_max_content: Annotated[int, BeforeValidator(parse_size), Field(ge=1, le=LARGEST_SHARED)] = 1 << 20
    shared_ttl: PositiveDuration = 86400.0
    shared_timeout: PositiveDuration = 0.5


class DocumentsTable(ConfigTable):
    max_size: Size = DocumentBounds().max_size
    max_unpacked: Size = DocumentBounds().max_unpacked
    max_text: Size = DocumentBounds().max_text
    seconds: Annotated[int, Field(ge=1, le=3600)] = DocumentBounds().seconds


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
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    transport: Literal["stdio", "http", "sse"] | None = None


class SearchTable(ConfigTable):
    tool: str
    query: str | None = None
    limit: str | None = None
    uri: str = "uri"
    arguments: dict[str, Any] = {}


class RemoveTable(ConfigTable):
    tool: str
    uri: str = "uri"
    version: str | None = None
    template: Annotated[str, AfterValidator(_template)] | None = None
    arguments: dict[str, Any] = {}


class WriteTable(RemoveTable):
    content: str = "content"
    blob: str | None = None
    mime_type: str | None = None
    max_size: Size = WriteTool("").max_size


class SourceTable(ConfigTable):
    name: str
    id: str | None = None
    type: str | None = None
    access_method: Literal["bb", "mcp"] | None = None
    title: str | None = None
    enabled: bool = True
    uri_prefix: str | None = None
    capabilities: Annotated[CapabilitiesTable, BeforeValidator(_capability_table)] = CapabilitiesTable()
    config: dict[str, Any] = {}
    auth: dict[str, str] = {}
    mcp_config: McpTable | None = None
    ttl: Annotated[TtlTable, BeforeValidator(_ttl_table)] = TtlTable()
    timeout: PositiveDuration | None = None
    max_stale: Duration | None = None
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] | None = None
    sizes: Literal["exact", "lazy"] | None = None
    disk: bool | None = None
    verify: bool | None = None
    start: Literal["lazy", "eager"] | None = None
    idle_timeout: Duration | None = None
    roots: list[str] | None = None
    list_limit: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    tools: Annotated[Literal["off", "read-only", "all"] | list[str] | None, BeforeValidator(_tools)] = None
    prompts: bool | None = None
    search: SearchTable | None = None
    write: WriteTable | None = None
    remove: RemoveTable | None = None
    shared: bool | None = None
    index: bool | None = None
    text: TextFiles | None = None

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
    log_level: LogLevel = "info"
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
