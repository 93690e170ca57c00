"""The tree of a workspace: the entries of each directory, and the lookup of paths."""

import builtins
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from cachetools import LRUCache

from bbfs.model.errors import Denied, LoginRequired, NotADirectory, NotFound, ProtocolViolation, TooLarge
from bbfs.sources.notion.api import NotionApi, child_items
from bbfs.sources.notion.naming import EXTENSION, INDEX, ROWS, SCHEMA, named
from bbfs.sources.notion.values import Kind, NotionItem, as_id
from bbfs.sources.notion.workspace import Workspace, bare

Shape = Literal["directory", "page", "index", "rows", "schema"]
NAMES_KEPT = 50_000
"""Names to cache, in whole directories, so that a lookup does not list every directory on the path."""


@dataclass(frozen=True, slots=True)
class WorkspaceEntry:
    """One entry of a directory. item: the page to show (page, index), or the item that it belongs to."""

    shape: Shape
    item: NotionItem
    modified_ns: int | None = None


WorkspaceEntries = dict[str, WorkspaceEntry]


class WorkspaceDirectories:
    """The directories of a workspace. roots: ids of the items at the root; if empty, all items without a visible
    parent.

    It caches names only, and asks for the objects behind them each time.
    """

    def __init__(self, api: NotionApi, workspace: Workspace, roots: tuple[str, ...], row_limit: int) -> None:
        self._api = api
        self._workspace = workspace
        self._roots = roots
        self._row_limit = row_limit
        self._addresses: LRUCache[str | None, WorkspaceEntries] = LRUCache(NAMES_KEPT, lambda names: 1 + len(names))

    # -- paths -------------------------------------------------------------------------------------------------------

    async def at(self, path: tuple[str, ...]) -> NotionItem | None:
        """Return the item of a directory; None is the root. Raise NotFound, NotADirectory."""
        if not path:
            return None
        entry = await self.entry(path)
        if entry.shape != "directory":
            raise NotADirectory(f"{path[-1][:200]}: is a file")
        return entry.item

    async def entry(self, path: tuple[str, ...]) -> WorkspaceEntry:
        """Look a path up. An id in the path starts the lookup there. Raise NotFound."""
        begin = next((place for place in reversed(range(len(path))) if as_id(path[place]) is not None), None)
        entry: WorkspaceEntry | None = None
        if begin is not None:
            # Whatever its kind, it may have children.
            entry = WorkspaceEntry("directory", await self._api.item(as_id(path[begin]) or ""))
        for segment in path if begin is None else path[begin + 1 :]:
            if entry is not None and entry.shape != "directory":
                raise NotFound(f"{segment[:200]!r}: is below a file")
            entry = await self._named(None if entry is None else entry.item, segment)
        if entry is None:
            raise NotFound("the root is a directory")
        return entry

    async def by_id(self, id: str) -> WorkspaceEntry:
        """Return the entry of a page or database by its id. Raise NotFound."""
        item = await self._api.item(id)
        await self._workspace.update()
        return self._entry(item, has_content=True)

    def changed(self, item: NotionItem) -> None:
        """Note an item that bbfs has made, changed or moved into the trash."""
        self._workspace.changed(item)

    def renamed(self, above: NotionItem | None, old: str | None, new: str | None, entry: WorkspaceEntry) -> None:
        """Note another name of an entry in a directory, which costs less than to list it again. None: it has none."""
        key = None if above is None else above.id
        known = self._addresses.get(key)
        if known is not None:
            left = {name: each for name, each in known.items() if name != old}
            self._addresses[key] = left | ({new: entry} if new is not None else {})

    def forget(self, above: NotionItem) -> None:
        """Note the first item in a page, which becomes a directory."""
        self._workspace.saw_children(above.id)
        self._addresses.clear()

    async def _named(self, item: NotionItem | None, segment: str) -> WorkspaceEntry:
        known = self._addresses.get(None if item is None else item.id)
        if known is None or segment not in known:
            known, _ = await self.list(item)
        if segment not in known:
            raise NotFound(f"{segment[:200]!r}: there is no such page, database or file")
        return known[segment]

    # -- what is in them ---------------------------------------------------------------------------------------------

    async def list(self, item: NotionItem | None) -> tuple[WorkspaceEntries, str | None]:
        """Return the entries of a directory by segment, and a problem in words or None. Raise BbfsError."""
        key = None if item is None else item.id
        try:
            entries, problem = await self._listed(item)
        except NotFound:
            self._addresses.pop(key, None)
            raise
        self._addresses.pop(key, None)
        if len(entries) < NAMES_KEPT:
            self._addresses[key] = entries
        return entries, problem

    async def _listed(self, item: NotionItem | None) -> tuple[WorkspaceEntries, str | None]:
        if item is None:
            return await self._root()
        match item.kind:
            case "page":
                return await self._page(item), None
            case "database":
                return await self._database(item)
        return await self._data_source(await self._api.item(item.id, "data_source"))

    async def _root(self) -> tuple[WorkspaceEntries, str | None]:
        if not self._roots:
            return self._entries([(item, True) for item in await self._workspace.roots()]), self._workspace.problem
        items, problem = await self._readable(self._roots, "root")
        await self._workspace.update()
        return self._entries([(item, True) for item in items]), problem

    async def _readable(
        self, ids: Iterable[str], what: str, kind: Kind | None = None
    ) -> tuple[builtins.list[NotionItem], str | None]:
        """Return the items with these ids, and a problem that names the unreadable items, or None."""
        found: builtins.list[NotionItem] = []
        problems: builtins.list[str] = []
        for one in ids:
            try:
                found.append(await self._api.item(one, kind))
            except (NotFound, Denied, ProtocolViolation) as error:
                if isinstance(error, LoginRequired):
                    raise
                problems.append(f"{what}: {error}")
        return found, "; ".join(problems) or None

    async def _page(self, page: NotionItem) -> WorkspaceEntries:
        page = await self._api.item(page.id, "page")
        children = child_items(page, (await self._api.blocks(page.id))[0])
        if children:
            self._workspace.saw_children(page.id)
        if any(item.kind == "page" and has_content for item, has_content in children):
            await self._workspace.update()
        index = {INDEX: WorkspaceEntry("index", page, page.edited_ns)}
        return index | self._entries([(self._workspace.known(item), has) for item, has in children], INDEX)

    async def _database(self, database: NotionItem) -> tuple[WorkspaceEntries, str | None]:
        database = await self._api.item(database.id, "database")
        ids = [one for one, _ in database.data_sources]
        if len(ids) == 1:
            return await self._data_source(await self._api.item(ids[0], "data_source"))
        sources, problem = await self._readable(ids, "data source", "data_source")
        return self._entries([(source, True) for source in sources]), problem

    async def _data_source(self, source: NotionItem) -> tuple[WorkspaceEntries, str | None]:
        rows: builtins.list[NotionItem] = []
        problem: str | None = None
        async with aclosing(self._api.query(source.id)) as answers:
            try:
                async for answer in answers:
                    rows += map(bare, answer)
                    if len(rows) > self._row_limit:
                        del rows[self._row_limit :]
                        problem = f"of more than {self._row_limit} rows (row_limit) the first are listed"
                        break
            except TooLarge as error:
                problem = str(error)
        await self._workspace.update()
        times = [row.edited_ns for row in (*rows, source) if row.edited_ns is not None]
        files = {
            ROWS: WorkspaceEntry("rows", source, max(times, default=None)),
            SCHEMA: WorkspaceEntry("schema", source, source.edited_ns),
        }
        return files | self._entries([(row, True) for row in rows], ROWS, SCHEMA), problem

    def _entries(self, items: builtins.list[tuple[NotionItem, bool]], *taken: str) -> WorkspaceEntries:
        """Return the entries of items by segment. The flag of an item says whether it has content; without, it is a
        file."""
        entries = {item.id: self._entry(item, has_content=has_content) for item, has_content in items}
        extensions = [(item, EXTENSION if entries[item.id].shape == "page" else "") for item, _ in items]
        return {segment: entries[item.id] for segment, item in named(extensions, taken).items()}

    def _entry(self, item: NotionItem, *, has_content: bool) -> WorkspaceEntry:
        is_file = item.kind == "page" and not (has_content and self._workspace.has_children(item.id))
        return WorkspaceEntry("page" if is_file else "directory", item, item.edited_ns)
