"""Notion workspaces (`type = "notion"`): pages as Markdown, databases as directories, over Notion's REST API.

A native URI is `x-notion://` and the titles on the path, percent-encoded. `x-notion://ID` is the page with that id,
anywhere in the workspace, and a longer path goes on below that page or database.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from types import MappingProxyType
from typing import Any

import trio
from pydantic import Field, field_validator

from bbfs.model.errors import BbfsError, ConfigError, IsADirectory, NotFound, NotSupported, TooLarge
from bbfs.model.uri import source_uri
from bbfs.model.values import (
    Content,
    DataSource,
    Hit,
    Listing,
    Loaded,
    Part,
    ResourceMetadata,
    SourceState,
    WriteOperation,
)
from bbfs.model.versions import Expected
from bbfs.sources import Services
from bbfs.sources.abilities import LONGEST_QUERY
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.http.client import WebClient
from bbfs.sources.notion import naming, properties
from bbfs.sources.notion.api import VERSION, NotionApi, child_items
from bbfs.sources.notion.directories import WorkspaceDirectories, WorkspaceEntry
from bbfs.sources.notion.pages import LONGEST, PageReader, json_text
from bbfs.sources.notion.values import NotionItem, as_id, id_in
from bbfs.sources.notion.workspace import Workspace
from bbfs.sources.notion.writing.writer import NotionWriter
from bbfs.sources.options import SourceOptions, parse_options

BASE_URL = "https://api.notion.com"
PER_SECOND = 3.0
"""Average rate that Notion allows, in requests per second."""
MARKDOWN, NDJSON, JSON = "text/markdown", "application/x-ndjson", "application/json"
_MIME_TYPES = {"page": MARKDOWN, "index": MARKDOWN, "rows": NDJSON, "schema": JSON}


class NotionOptions(SourceOptions):
    """Options of a Notion workspace."""

    root: tuple[str, ...] = ()
    """Ids or URLs of the pages and databases to show at the top. Without it, all that the integration may see, except
    those below another visible one."""
    row_limit: int = Field(default=10_000, ge=1, le=1_000_000)
    """Most rows of a database. With more, `rows.ndjson` fails with `EFBIG`, and the directory shows the first ones and
    says so in `user.bbfs.error`."""
    per_second: float = Field(default=PER_SECOND, gt=0, le=1000)
    """Most requests per second. Notion allows 3."""
    base_url: str = Field(default=BASE_URL, pattern=r"^https?://[^/?#]+(/[^?#]*)?$")
    """Base URL of the API."""
    allow_private: bool = False
    """Allow a base URL on this machine or in a private network."""

    @field_validator("root", mode="before")
    @classmethod
    def _one_or_more(cls, root: Any) -> Any:
        return (root,) if isinstance(root, str) else root

    @field_validator("root")
    @classmethod
    def _ids(cls, root: tuple[str, ...]) -> tuple[str, ...]:
        found = [id_in(each) for each in root]
        for given, one in zip(root, found, strict=True):
            if one is None:
                raise ValueError(f"{given[:100]!r} has no id: 32 hexadecimal digits, or a URL that ends with them")
        return tuple(dict.fromkeys(one for one in found if one is not None))


class NotionHandler:
    """One workspace, as far as an integration may see it. Raises ConfigError for options that cannot be used."""

    options = NotionOptions
    offers: Mapping[str, int] = MappingProxyType({})
    searches = True
    """Notion searches the titles of all that the integration may see."""
    loads_while_wanted = True
    """Notion answers three requests a second, so bbfs spends none on a load without a reader."""
    detects_conflicts = True
    """A write compares the blocks that it is about to change. Notion itself compares nothing."""

    def __init__(self, source: DataSource, services: Services, clock: Callable[[], float] = trio.current_time) -> None:
        self.source = source
        options = parse_options(NotionOptions, source)
        headers = {"Notion-Version": VERSION, "Authorization": f"Bearer {_token(source)}"}
        self._client = WebClient(
            source, headers=headers, allow_private=options.allow_private, per_second=options.per_second
        )
        self._api = NotionApi(self._client, options.base_url)
        self._workspace = Workspace(self._api, source.policy.listing_ttl, clock)
        self._directories = WorkspaceDirectories(self._api, self._workspace, options.root, options.row_limit)
        self._row_limit = options.row_limit
        self._reader = PageReader(self._api, services, source.id)
        # A change has half of the time; the other half is for what it reads before.
        most_requests = max(1, int(source.policy.timeout * options.per_second / 2))
        self._writer = NotionWriter(self._api, self._directories, self._reader, most_requests)

    @property
    def state(self) -> SourceState:
        """`down` if Notion cannot be reached, and while it refuses the token."""
        refusal = self._api.refusal
        return self._client.state if refusal is None else SourceState("down", reason=refusal)

    @property
    def notes(self) -> list[str]:
        """Return sentences about the names and rows of the workspace."""
        return [
            "A page or database that is not listed here can be opened by its id.",
            f"A database has {self._row_limit} rows at most. The option `row_limit` of this source changes that.",
        ]

    async def aclose(self) -> None:
        await self._client.aclose()

    async def list_directory(self, path: tuple[str, ...]) -> Listing:
        item = await self._directories.at(path)
        entries, problem = await self._directories.list(item)
        resources = [self._metadata((*path, segment), entry) for segment, entry in entries.items()]
        return Listing(resources, problem=problem, open=not path)

    async def find(self, path: tuple[str, ...], name: str) -> ResourceMetadata:
        """Return the page or database with an id, below the root. Raise NotFound for any other name."""
        sought = as_id(name)
        if path or sought is None:
            raise NotFound(f"{name[:200]!r}: neither listed nor an id")
        return self._metadata((name,), await self._directories.by_id(sought))

    async def search(self, query: str, limit: int) -> Sequence[Hit]:
        """Return pages by their ids, and the rows of databases. Raise BbfsError."""
        if not query.strip():
            return ()
        found = await self._api.matching(query[:LONGEST_QUERY], limit)
        return [Hit(naming.native_uri_of(_by_id(item)), title=item.title or None) for item in found]

    async def load(self, native_uri: str) -> Loaded:
        """Load a page as Markdown, the rows of a database, or its schema. Raise BbfsError."""
        path = naming.segments_of(native_uri)
        entry = await self._directories.entry(path)
        match entry.shape:
            case "page" | "index":
                data = await self._page(entry.item.id)
            case "rows":
                data = await self._rows(entry.item)
            case "schema":
                data = _json(properties.schema(await self._api.item(entry.item.id, "data_source")), indent=2)
            case _ if as_id(path[-1]) is not None and entry.item.kind == "page":
                data = await self._page(entry.item.id)
            case _:
                raise IsADirectory(f"{native_uri[:200]}: is a directory")
        mime_type = _MIME_TYPES.get(entry.shape, MARKDOWN)
        return Loaded((Part(native_uri, mime_type, MemoryContent(data), "text"),))

    async def _page(self, id: str) -> bytes:
        page = await self._reader.read(id)
        if child_items(page.item, page.blocks):
            self._workspace.saw_children(page.item.id)
        return await self._reader.text(page)

    async def _rows(self, source: NotionItem) -> bytes:
        lines: list[bytes] = []
        size = 0
        async with aclosing(self._api.query(source.id)) as answers:
            async for rows in answers:
                for row in rows:
                    if row.kind == "page":
                        await trio.lowlevel.checkpoint()
                        lines.append(_json(properties.row(row, await self._reader.completed(row))))
                        size += len(lines[-1])
                        if size > LONGEST:
                            raise TooLarge(f"a database of more than {LONGEST} bytes")
                if len(lines) > self._row_limit:
                    raise TooLarge(f"a database of more than {self._row_limit} rows (row_limit)")
        return b"".join(lines)

    # -- writing -----------------------------------------------------------------------------------------------------

    def writes(self, native_uri: str) -> Collection[WriteOperation]:
        """Return what names tell: pages are files `TITLE.md`, or directories, which are renamed only."""
        if not self.source.capabilities.write:
            return ()
        try:
            path = naming.segments_of(native_uri)
        except NotFound:
            return ()
        name = path[-1]
        if not all(path) or name in (naming.ROWS, naming.SCHEMA):
            return ()
        if name == naming.INDEX or as_id(name) is not None:
            return ("replace",)
        if not name.endswith(naming.EXTENSION):
            return ("rename",)
        return ("create", "replace", "remove", "rename") if len(path) > 1 else ("replace", "remove", "rename")

    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        """Replace the text of a page or make one. Notion may store another text, so bbfs loads it at the next read."""
        with _about(native_uri):
            self._require(native_uri, "create" if expected.exists is False else "replace")
            return self._metadata(*await self._writer.write(naming.segments_of(native_uri), content, expected))

    async def remove(self, native_uri: str, expected: Expected) -> None:
        """Move a page into the trash. Raise NotFound, NotEmpty for a page with pages in it."""
        with _about(native_uri):
            self._require(native_uri, "remove")
            await self._writer.remove(naming.segments_of(native_uri), expected)

    async def rename(self, native_uri: str, to: str, *, replace: bool) -> ResourceMetadata:
        """Give a page another title."""
        with _about(native_uri):
            self._require(native_uri, "rename")
            paths = naming.segments_of(native_uri), naming.segments_of(to)
            return self._metadata(*await self._writer.rename(*paths, is_replacing=replace))

    def _require(self, native_uri: str, operation: WriteOperation) -> None:
        naming.segments_of(native_uri)
        if operation not in self.writes(native_uri):
            raise NotSupported(f"Notion cannot {operation} it")

    def _metadata(self, path: tuple[str, ...], entry: WorkspaceEntry) -> ResourceMetadata:
        native_uri = naming.native_uri_of(path)
        is_directory = entry.shape == "directory"
        mime_type = None if is_directory else _MIME_TYPES[entry.shape]
        item = entry.item
        return ResourceMetadata(
            uri=source_uri(self.source.base_prefix, native_uri),
            native_uri=native_uri,
            name=item.title or "Untitled" if entry.shape in ("page", "index", "directory") else path[-1],
            description=item.description,
            mime_type=mime_type,
            content_type="unknown" if is_directory else "text",
            modified_ns=entry.modified_ns,
            kind="directory" if is_directory else "resource",
            properties=item.described(),
        )


@contextmanager
def _about(native_uri: str) -> Iterator[None]:
    """Name the resource in errors."""
    try:
        yield
    except BbfsError as error:
        raise type(error)(f"{native_uri[:200]}: {error}") from error


def _by_id(item: NotionItem) -> tuple[str, ...]:
    """Return the path of a page or a data source by its id."""
    return (item.id,) if item.kind == "page" else (item.id, "rows.ndjson")


def _token(source: DataSource) -> str:
    token = source.auth.get("token")
    if not token or not token.isascii() or not token.isprintable():
        raise ConfigError(f"sources[{source.id}].auth.token: this type needs the secret of a Notion integration")
    if set(source.auth) != {"token"}:
        raise ConfigError(f"sources[{source.id}].auth: 'token' is the only key of this type")
    return token


def _json(value: Any, indent: int | None = None) -> bytes:
    return (json_text(value, indent) + "\n").encode("utf-8", "replace")
