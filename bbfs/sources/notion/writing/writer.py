"""Changes of pages and rows. Each takes several requests, so bbfs first makes sure that all of them can be made."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import trio

from bbfs.model.errors import (
    BbfsError,
    Conflict,
    Exists,
    IsADirectory,
    NotEmpty,
    NotFound,
    NotSupported,
    Rejected,
    TooLarge,
)
from bbfs.model.values import Content
from bbfs.model.versions import Expected
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.notion import naming
from bbfs.sources.notion.api import NotionApi, child_items
from bbfs.sources.notion.directories import WorkspaceDirectories, WorkspaceEntry
from bbfs.sources.notion.markdown import Block, document
from bbfs.sources.notion.pages import Page, PageReader
from bbfs.sources.notion.values import Json, NotionItem, mapping
from bbfs.sources.notion.writing.blocks import UnfitLine, carried, children_of, read_blocks
from bbfs.sources.notion.writing.changes import END, Append, Changes, Position, after, batches, changes_of, update_of
from bbfs.sources.notion.writing.inline import plain_text_of
from bbfs.sources.notion.writing.values import changed, front_matter, sent_values

LARGEST = 512 << 10
"""Bytes of a text that is written."""
_READ = 64 << 10
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Text:
    """A page as a program writes it. values: the columns that it names. body: without the title. first: the number of
    the body's first line."""

    values: dict[str, Any]
    body: str
    first: int


class NotionWriter:
    """Writes to one workspace. most_requests: that a change may take."""

    def __init__(
        self, api: NotionApi, directories: WorkspaceDirectories, reader: PageReader, most_requests: int
    ) -> None:
        self._api = api
        self._directories = directories
        self._reader = reader
        self._most_requests = most_requests

    # -- contents ----------------------------------------------------------------------------------------------------

    async def write(self, path: Path, content: Content, expected: Expected) -> tuple[Path, WorkspaceEntry]:
        """Create a page or replace its text. Return its path and entry. Raise BbfsError."""
        text = await _text_of(content)
        if expected.exists is not False:
            try:
                entry = await self._directories.entry(path)
            except NotFound:
                if expected.exists:
                    raise Conflict("somebody else has changed it: it is gone now") from None
            else:
                return path, await self._replace(entry, text, expected)
        return await self._create(path, text)

    async def _replace(self, entry: WorkspaceEntry, text: str, expected: Expected) -> WorkspaceEntry:
        if entry.item.kind != "page" or entry.shape not in ("page", "index", "directory"):
            raise IsADirectory("is a directory")
        page = await self._reader.read(entry.item.id)
        await self._require(page, expected)
        steps = await trio.to_thread.run_sync(_replacement, page, text)
        await self._make(page.item.id, *steps)
        item = await self._api.item(page.item.id, "page")
        self._directories.changed(item)
        return WorkspaceEntry(entry.shape, item, item.edited_ns)

    async def _require(self, page: Page, expected: Expected) -> None:
        """Raise Conflict unless a page has the expected state."""
        wanted = expected.version
        if wanted is not None and MemoryContent(await self._reader.text(page)).version != wanted:
            raise Conflict("somebody else has changed it")

    async def _make(self, page: str, values: dict[str, Any], changes: Changes, *, made: int = 0) -> None:
        """Make a change, in an order in which a failure loses nothing. made: requests that belong to it."""
        total = made + changes.requests + bool(values)
        self._require_time(total)
        done = made
        try:
            async with aclosing(self._requests(page, values, changes)) as requests:
                async for _ in requests:
                    done += 1
        except BbfsError as error:
            said = f"{done} of {total} requests were made before; removals come last" if done else "nothing was changed"
            raise type(error)(f"{error} ({said})") from error

    def _require_time(self, requests: int) -> None:
        if requests > self._most_requests:
            raise TooLarge(
                f"this change takes {requests} requests to Notion, and the timeout of the source has time for"
                f" {self._most_requests}: make it in steps, or raise timeout"
            )

    async def _requests(self, page: str, values: dict[str, Any], changes: Changes) -> AsyncGenerator[None]:
        """Make a change, and yield after each request."""
        updates = [
            (block.id or "", update_of(block)) for block in changes.updates
        ]  # or one may be refused in the middle
        if values:
            yield await self._set(page, {"properties": values})
        for append in changes.appends:
            async with aclosing(self._append(append.parent, append.blocks, append.position)) as requests:
                async for _ in requests:
                    yield
        for block, content in updates:
            yield await self._api.update_block(block, content)
        for removed in changes.removals:
            yield await self._api.remove_block(removed.id or "")

    async def _append(self, parent: str, blocks: Sequence[Block], position: Position) -> AsyncGenerator[None]:
        """Append blocks with all that is below them, and yield after each request."""
        for batch in batches(blocks):
            ids = await self._api.append(parent, [block for block, _ in batch], position)
            yield
            position = after(ids[-1]) if position != END else END
            for made, (_, below) in zip(ids, batch, strict=True):
                async with aclosing(self._append(made, below, END)) as requests:
                    async for _ in requests:
                        yield

    async def _set(self, page: str, change: Json) -> None:
        """Change a page itself."""
        self._directories.changed(await self._api.update_page(page, change))

    # -- pages -------------------------------------------------------------------------------------------------------

    async def _create(self, path: Path, text: str) -> tuple[Path, WorkspaceEntry]:
        title = naming.title_in(path[-1], is_file=True)
        above, is_first = await self._above(path[:-1])
        parent, name, columns = await self._place(above)
        if columns is None:
            await self._require_free(above, title)
        elif await self._api.has_row(parent["data_source_id"], name, title):
            raise Exists(f"{title[:200]!r} is there already")
        found = _parsed(text, document(title, ()).rstrip("\n"), is_row=columns is not None)
        changes = await trio.to_thread.run_sync(_new_blocks, title, found)
        self._require_time(changes.requests + 1)
        values: dict[str, Any] = {name: {"title": plain_text_of(title)}}
        if columns is not None:
            values |= sent_values(changed(found.values, dict.fromkeys(columns) | {name: title}), columns)
        page: dict[str, Any] = {"parent": parent, "properties": values}
        first = next(batches(changes.blocks), [])
        is_whole = len(first) == len(changes.blocks) and not any(below for _, below in first)
        item = await self._api.create_page(page | ({"children": [block for block, _ in first]} if is_whole else {}))
        segment, entry = naming.segment_of(title + naming.EXTENSION), WorkspaceEntry("page", item, item.edited_ns)
        self._directories.renamed(above, None, segment, entry)
        if is_first:
            self._directories.forget(above)
        if not is_whole:
            appends = [Append(item.id, END, changes.blocks)]
            await self._make(item.id, {}, Changes(appends), made=1)
        return (*path[:-1], segment), entry

    async def _above(self, path: Path) -> tuple[NotionItem, bool]:
        """Return the item of a directory, or the page without pages that becomes that directory, and if it is one."""
        found: NotionItem | None = None
        try:
            found = await self._directories.at(path)
        except NotFound:
            return (await self._directories.entry((*path[:-1], path[-1] + naming.EXTENSION))).item, True
        if found is None:
            raise NotSupported("an integration cannot make pages at the root of a workspace")
        return found, False

    async def _place(self, above: NotionItem) -> tuple[Json, str, Json | None]:
        """Return the parent of a new page, the name of its title, and the columns if it is a row."""
        if above.kind == "page":
            return {"type": "page_id", "page_id": above.id}, "title", None
        source = above.id
        if above.kind == "database":
            database = await self._api.item(above.id, "database")
            if len(database.data_sources) != 1:
                raise NotSupported("a row is made in one of the data sources of the database")
            ((source, _),) = database.data_sources
        source = await self._api.item(source, "data_source")
        columns = source.properties or {}
        name = next((name for name, column in columns.items() if mapping(column).get("type") == "title"), "title")
        return {"type": "data_source_id", "data_source_id": source.id}, name, columns

    async def _require_free(self, above: NotionItem | None, title: str, *, is_file: bool = True) -> None:
        """Raise Exists if a directory has a page of a title already."""
        entries, _ = await self._directories.list(above)
        for entry in entries.values():
            if (entry.shape == "page") == is_file and naming.title_of(entry.item) == title and entry.shape != "index":
                raise Exists(f"{title[:200]!r} is there already")

    async def remove(self, path: Path, expected: Expected) -> None:
        """Move a page without pages in it into the trash. Raise BbfsError."""
        entry = await self._directories.entry(path)
        if entry.shape != "page":
            raise IsADirectory("is a directory, or a file of one")
        page = await self._reader.read(entry.item.id)
        await self._require(page, expected)
        if child_items(page.item, page.blocks):
            raise NotEmpty("has pages in it")
        await self._set(page.item.id, {"in_trash": True})
        self._directories.renamed(await self._directories.at(path[:-1]), path[-1], None, entry)

    async def rename(self, path: Path, to: Path, *, is_replacing: bool) -> tuple[Path, WorkspaceEntry]:
        """Give a page another title. Return its path and entry. Raise BbfsError."""
        entry = await self._directories.entry(path)
        if path[:-1] != to[:-1]:
            raise NotSupported("writing gives pages other titles, and moves none into another directory")
        if entry.item.kind != "page" or entry.shape not in ("page", "directory"):
            raise NotSupported("only pages are renamed")
        is_file = entry.shape == "page"
        title = naming.title_in(to[-1], is_file=is_file)
        to = (*to[:-1], naming.segment_of(title + (naming.EXTENSION if is_file else "")))
        above = await self._directories.at(to[:-1])
        there: WorkspaceEntry | None = None
        try:
            there = await self._directories.entry(to)
        except NotFound:
            await self._require_free(above, title, is_file=is_file)
        if there is not None and there.item.id == entry.item.id:
            return to, entry
        if there is not None:
            await self._require_replaceable(there, is_file=is_file, is_replacing=is_replacing)
        item = await self._api.item(entry.item.id, "page")
        columns = (item.properties or {}).items()
        named = next((name for name, value in columns if mapping(value).get("type") == "title"), "title")
        item = await self._api.update_page(item.id, {"properties": {named: {"title": plain_text_of(title)}}})
        self._directories.changed(item)
        if there is not None:
            await self._set(there.item.id, {"in_trash": True})
        entry = WorkspaceEntry(entry.shape, item, item.edited_ns)
        self._directories.renamed(above, path[-1], to[-1], entry)
        return to, entry

    async def _require_replaceable(self, there: WorkspaceEntry, *, is_file: bool, is_replacing: bool) -> None:
        if not is_replacing:
            raise Exists("is there already")
        if not is_file:
            raise NotEmpty("is a directory with pages in it")
        if there.shape != "page":
            raise IsADirectory("is a directory")
        page = await self._reader.read(there.item.id)
        if child_items(page.item, page.blocks):
            raise NotEmpty("has pages in it")


async def _text_of(content: Content) -> str:
    """Return a written text. Raise TooLarge, Rejected."""
    if content.size > LARGEST:
        raise TooLarge(f"a page of {content.size} bytes, more than {LARGEST}")
    data = bytearray()
    while len(data) < content.size:
        piece = await content.read_waiting(len(data), _READ)
        if not piece:
            break
        data += piece
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Rejected(f"line {line}: a page is text in UTF-8") from None


def _parsed(text: str, heading: str, *, is_row: bool) -> _Text:
    """Return the parts of a text. heading: the line with its title, which may be missing. Raise Rejected."""
    lines = text.split("\n")
    values, at = front_matter(lines) if is_row else ({}, 0)
    if lines[at : at + 1] == [heading]:
        at += 1
    elif lines[at : at + 1] and lines[at].startswith("# "):
        raise Rejected(
            f"line {at + 1}: the title of this page is its name, as in {heading[:200]!r}; rename the page to change it"
        )
    while at < len(lines) and not lines[at]:
        at += 1
    return _Text(values, "\n".join(lines[at:]).rstrip("\n"), at + 1)


def _read(found: _Text, children: dict[str, Block]) -> tuple[Block, ...]:
    try:
        return read_blocks(found.body, children)
    except UnfitLine as error:
        raise Rejected(f"line {found.first + error.at}: {error}") from None


def _require_written(found: _Text, title: str, blocks: Sequence[Block]) -> None:
    """Raise Rejected with the first line that bbfs writes otherwise."""
    _, _, written = document(title, blocks).removesuffix("\n").partition("\n\n")
    if written == found.body:
        return
    lines = [*found.body.split("\n"), None]
    for at, line in enumerate([*written.split("\n"), None]):
        if line != lines[at]:
            form = "no more" if line is None else f"{line[:120]!r}"
            raise Rejected(f"line {found.first + at}: {(lines[at] or '')[:120]!r} is written otherwise, as {form}")


def _replacement(page: Page, text: str) -> tuple[dict[str, Any], Changes]:
    """Return the values and blocks to change. Raise BbfsError."""
    title = page.item.title
    found = _parsed(text, document(title, ()).rstrip("\n"), is_row=page.values is not None)
    values: dict[str, Any] = {}
    if page.values is not None:
        values = sent_values(changed(found.values, page.values), page.item.properties or {})
    if document(title, page.blocks).partition("\n\n")[2].rstrip("\n") == found.body:
        return values, Changes()
    try:
        old = carried(page.blocks)
    except NotSupported as error:
        raise NotSupported(f"a write would lose something of this page: {error}") from None
    changes = changes_of(page.item.id, old, _read(found, children_of(old)))
    _require_written(found, title, changes.blocks)
    return values, changes


def _new_blocks(title: str, found: _Text) -> Changes:
    changes = changes_of("", (), _read(found, {}))
    _require_written(found, title, changes.blocks)
    return changes
