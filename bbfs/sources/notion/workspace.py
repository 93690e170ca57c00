"""What an integration may see of a workspace, and how that hangs together: which pages have others in them.

A page does not say whether there are pages in it, and to look would cost requests for each. A search does: it answers
every page and data source with what it is in. It is asked for anew in full now and then, and for what was edited since
in between, which is one request as a rule.
"""

import logging
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import replace

import trio
from cachetools import LRUCache

from bbfs.model.errors import Denied, NotFound, TooLarge
from bbfs.sources.notion.api import NotionApi
from bbfs.sources.notion.values import NotionItem, Parent

log = logging.getLogger(__name__)

WHOLE_EVERY = 600.0
"""Seconds after which all is searched again, not only what was edited last: what was removed shows only then."""
MOST_ITEMS = 20_000
"""Pages and data sources that are looked through."""
RESOLVED_AT_ONCE = 60
"""Blocks whose page is asked for in one go; further ones the next time."""
_CHAIN = 32


class Workspace:
    """The items of a workspace by id. clock: seconds of any monotonic clock."""

    def __init__(self, api: NotionApi, fresh_for: float, clock: Callable[[], float] = trio.current_time) -> None:
        """fresh_for: seconds for which the last search is as good as another."""
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
        """An item that a block stands for, with what only the search says of it. (That may be late with a title.)"""
        found = self._items.get(item.id)
        return item if found is None else replace(item, icon=found.icon, url=found.url)

    def has_children(self, id: str) -> bool:
        """Whether a page has pages or databases in it, as far as that is known."""
        return id in self._holders or id in self._seen

    def saw_children(self, id: str) -> None:
        """Somebody has seen a page or database in a page, which the search may not know yet."""
        self._seen.add(id)

    async def update(self) -> None:
        """Search, unless that was done just now. Raises BbfsError."""
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
        """The pages and databases that are in nothing that may be seen, those made first at the beginning."""
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
            found[one] = await self._api.item(one, "database")
        return list(found.values())

    def _is_root(self, item: NotionItem, databases: AbstractSet[str | None]) -> bool:
        parent = item.parent if item.kind != "data_source" else item.holder or item.parent
        match parent.kind:
            case "page" | "data_source":
                return parent.id not in self._items
            case "database":
                return parent.id not in databases
            case "block" if parent.id is not None:
                # Of a block that was not asked for yet, nobody knows.
                return parent.id in self._pages_of_blocks and self._pages_of_blocks[parent.id] not in self._items
        return True

    async def _search_all(self) -> None:
        found: dict[str, NotionItem] = {}
        self.problem = None
        async with aclosing(self._api.search()) as pages:
            try:
                async for page in pages:
                    found.update((item.id, _bare(item)) for item in page)
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
                new = [item for item in map(_bare, page) if self._items.get(item.id) != item]
                self._items.update((item.id, item) for item in new)
                if not new:
                    return

    async def _settle(self) -> None:
        """Find out which pages hold others. Raises what ends all requests alike."""
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
        """The page that a block is in, None for one that may not be seen. Raises other BbfsErrors."""
        try:
            for _ in range(_CHAIN):
                if parent.kind != "block" or parent.id is None:
                    return parent.id if parent.kind == "page" else None
                parent = await self._api.block_parent(parent.id)
        except (NotFound, Denied):
            return None
        return None


def _bare(item: NotionItem) -> NotionItem:
    """An item without the values of its columns, which are the most of it."""
    return replace(item, properties=None)
