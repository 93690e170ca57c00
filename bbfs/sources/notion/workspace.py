"""The items of a workspace that an integration may see, and which pages have children.

A page does not say whether it has child pages, and asking would cost requests for each. A search answers all pages and
data sources with their parents. bbfs repeats the whole search now and then; in between it searches recent edits, which
mostly takes one request.
"""

import logging
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import replace

import trio
from cachetools import LRUCache

from bbfs.model.errors import Denied, LoginRequired, NotFound, ProtocolViolation, TooLarge
from bbfs.sources.notion.api import NotionApi
from bbfs.sources.notion.values import NotionItem, Parent

log = logging.getLogger(__name__)

WHOLE_EVERY = 600.0
"""Seconds between whole searches. Only a whole search shows what was removed."""
MOST_ITEMS = 20_000
"""Most pages and data sources to look through."""
RESOLVED_AT_ONCE = 60
"""Blocks to resolve to their pages in one update. Later updates resolve the others."""
_CHAIN = 32


class Workspace:
    """The items of a workspace by id. clock: seconds of any monotonic clock."""

    def __init__(self, api: NotionApi, fresh_for: float, clock: Callable[[], float] = trio.current_time) -> None:
        """fresh_for: seconds for which a search stays fresh."""
        self._api = api
        self._fresh_for = fresh_for
        self._clock = clock
        self._items: dict[str, NotionItem] = {}
        self._holders: set[str] = set()
        self._seen: set[str] = set()
        self._pages_of_blocks: LRUCache[str, str | None] = LRUCache(10_000)
        self._searched_at = self._whole_at = -float("inf")
        self._searching = trio.Lock()
        self.problem: str | None = None

    def known(self, item: NotionItem) -> NotionItem:
        """Return the item of a block with facts that only the search has. (The search's title may be late.)"""
        found = self._items.get(item.id)
        return item if found is None else replace(item, icon=found.icon, url=found.url)

    def has_children(self, id: str) -> bool:
        """Return whether a page is known to have child pages or databases."""
        return id in self._holders or id in self._seen

    def saw_children(self, id: str) -> None:
        """Note a child of a page, which the search may not know yet."""
        self._seen.add(id)

    def changed(self, item: NotionItem) -> None:
        """Note an item that bbfs has changed, before the search knows of it."""
        if item.in_trash:
            self._items.pop(item.id, None)
        elif item.id in self._items:
            self._items[item.id] = bare(item)

    async def update(self) -> None:
        """Search, unless the last search is fresh. Raise BbfsError."""
        async with self._searching:
            now = self._clock()
            if now < self._searched_at + self._fresh_for:
                return
            if now < self._whole_at + WHOLE_EVERY:
                await self._search_edited()
            else:
                await self._search_all()
                self._whole_at = now
            await self._settle()
            self._searched_at = now

    async def roots(self) -> list[NotionItem]:
        """Return the pages and databases without a visible parent, oldest first."""
        await self.update()
        found: dict[str, NotionItem] = {}
        counts: dict[str, int] = {}
        databases = {item.parent.id for item in self._items.values() if item.kind == "data_source"}
        for item in sorted(self._items.values(), key=lambda item: (item.created, item.id)):
            if not self._is_root(item, databases):
                continue
            if item.kind == "data_source" and item.parent.id is not None:
                counts[item.parent.id] = counts.get(item.parent.id, 0) + 1
                item = replace(item, kind="database", id=item.parent.id, parent=item.holder or item.parent)
            found.setdefault(item.id, item)
        for one in [one for one, count in counts.items() if count > 1]:
            try:
                found[one] = await self._api.item(one, "database")
            except (NotFound, Denied, ProtocolViolation) as error:
                if isinstance(error, LoginRequired):
                    raise
                log.warning("database %s has the title of one of its data sources: %s", one, error)
        return list(found.values())

    def _is_root(self, item: NotionItem, databases: AbstractSet[str | None]) -> bool:
        parent = item.parent if item.kind != "data_source" else item.holder or item.parent
        match parent.kind:
            case "page" | "data_source":
                return parent.id not in self._items
            case "database":
                return parent.id not in databases
            case "block" if parent.id is not None:
                # Unknown for a block that was not resolved yet.
                return parent.id in self._pages_of_blocks and self._pages_of_blocks[parent.id] not in self._items
        return True

    async def _search_all(self) -> None:
        found: dict[str, NotionItem] = {}
        self.problem = None
        async with aclosing(self._api.search()) as pages:
            try:
                async for page in pages:
                    found.update((item.id, bare(item)) for item in page)
                    if len(found) >= MOST_ITEMS:
                        self.problem = f"of more than {MOST_ITEMS} pages, those edited last were looked through"
                        break
            except TooLarge as error:
                self.problem = str(error)
        self._items = found
        self._seen.clear()

    async def _search_edited(self) -> None:
        async with aclosing(self._api.search()) as pages:
            async for page in pages:
                new = [item for item in map(bare, page) if self._items.get(item.id) != item]
                self._items.update((item.id, item) for item in new)
                if not new:
                    return

    async def _settle(self) -> None:
        """Find out which pages have children. Raise errors that concern all requests."""
        holders: set[str] = set()
        asked = left = 0
        for item in list(self._items.values()):
            parent = item.parent if item.kind != "data_source" else item.holder or item.parent
            if parent.kind == "block" and parent.id is not None:
                if parent.id not in self._pages_of_blocks:
                    if asked >= RESOLVED_AT_ONCE:
                        left += 1
                        continue
                    asked += 1
                    self._pages_of_blocks[parent.id] = await self._page_of(parent)
                page = self._pages_of_blocks[parent.id]
                if page is not None:
                    holders.add(page)
            elif parent.kind == "page" and parent.id is not None:
                holders.add(parent.id)
        if left:
            log.info("%d pages are in blocks whose page is not known yet", left)
        self._holders = holders

    async def _page_of(self, parent: Parent) -> str | None:
        """Return the page that contains a block, or None if it is not visible. Raise other BbfsErrors."""
        try:
            for _ in range(_CHAIN):
                if parent.kind != "block" or parent.id is None:
                    return parent.id if parent.kind == "page" else None
                parent = await self._api.block_parent(parent.id)
        except (NotFound, Denied):
            return None
        return None


def bare(item: NotionItem) -> NotionItem:
    """Return an item without its columns, which take most of its memory."""
    return replace(item, properties=None)
