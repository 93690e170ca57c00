"""Reads of whole pages: their blocks, their values if they are rows, and their Markdown."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import trio

from bbfs.sources import Services
from bbfs.sources.notion import properties
from bbfs.sources.notion.api import NotionApi
from bbfs.sources.notion.markdown import Block, document, packed
from bbfs.sources.notion.values import NotionItem

_RENDERED_AT_ONCE = 64 << 10
"""Bytes of blocks to render on the event loop (some milliseconds). More are rendered in a worker process."""
LONGEST = 32 << 20
"""Bytes of a page as Markdown, and of the rows of a database."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was read. size: bytes of its blocks. values: of its columns if it is a row, else None."""

    item: NotionItem
    blocks: tuple[Block, ...]
    size: int
    values: Mapping[str, Any] | None


class PageReader:
    """Reads pages of one workspace. owner: id of the source."""

    def __init__(self, api: NotionApi, services: Services, owner: str) -> None:
        self._api = api
        self._workers = services.workers
        self._owner = owner

    async def read(self, id: str) -> Page:
        item = await self._api.item(id, "page")
        blocks, size = await self._api.blocks(item.id)
        is_row = item.parent.kind in ("data_source", "database")
        return Page(item, blocks, size, properties.values(item, await self.completed(item)) if is_row else None)

    async def text(self, page: Page) -> bytes:
        front = "" if page.values is None else front_matter(page.values)
        if page.size <= _RENDERED_AT_ONCE:
            return (front + document(page.item.title, page.blocks)).encode("utf-8", "replace")
        data = await trio.to_thread.run_sync(packed, page.item.title, page.blocks, abandon_on_cancel=True)
        text = await self._workers.run(
            "notion", data, owner=self._owner, what=f"page {page.item.id}", max_result=LONGEST
        )
        return front.encode("utf-8", "replace") + text

    async def completed(self, row: NotionItem) -> Mapping[str, Any]:
        """Return the full values of those columns that the row's object truncates."""
        cut = properties.incomplete(row.properties or {})
        return {name: properties.joined(await self._api.property_items(row.id, key)) for name, key in cut}


def front_matter(values: Mapping[str, Any]) -> str:
    """Return the beginning of a row's text, to its title."""
    lines = [f"{json_text(name)}: {json_text(value)}" for name, value in values.items()]
    return "\n".join(["---", *lines, "---", "", ""])


def json_text(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
