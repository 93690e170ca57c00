"""The part of Notion's REST API that bbfs reads, version 2025-09-03.

In this version a database has one or more data sources, which have the columns and the rows.
"""

import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

import trio

from bbfs.model.errors import LoginRequired, NotFound, ProtocolViolation, TooLarge
from bbfs.sources.bounded.json import JsonBounds
from bbfs.sources.bounded.received import Received
from bbfs.sources.http.client import WebClient, WebResponse
from bbfs.sources.notion.markdown import Block
from bbfs.sources.notion.values import KINDS, Json, Kind, NotionItem, Parent, items, mapping, string

log = logging.getLogger(__name__)

VERSION = "2025-09-03"
PAGE_SIZE = 100
"""Most objects in one answer."""
MOST_PAGES = 10_000
MOST_BLOCKS = 20_000
"""Most blocks of one page. The deepest are `DEEPEST` levels below it."""
DEEPEST = 64
MOST_BYTES = 16 << 20
"""Most bytes of all answers for one page, value or list."""
_MOST_OBJECTS, _MOST_EMPTY = 1000, 10
"""Objects in one answer; answers in a row without an object."""
_ANSWER = JsonBounds(size=8 << 20, values=500_000)
_OBJECT = JsonBounds(size=2 << 20, values=50_000)
_ELSEWHERE = ("child_page", "child_database")
"""Blocks that stand for a page or database with a directory entry of its own."""
_CLOSED = (*_ELSEWHERE, "unsupported")


class NotionApi:
    """Requests to the API at a base URL. They raise BbfsError; an object in the trash is NotFound."""

    def __init__(self, client: WebClient, base_url: str) -> None:
        self.refusal: str | None = None
        """Notion's message when it last refused the token; None once it accepts the token."""
        self._client = client
        self._base = base_url.rstrip("/") + "/v1/"
        self._large = trio.Lock()

    async def _request(self, method: str, path: str, **more: Any) -> WebResponse:
        try:
            response = await self._client.request(method, self._base + path, **more)
        except LoginRequired as error:
            if self.refusal is None:
                log.warning("Notion refuses the token (auth.token): %s", error)
            self.refusal = str(error)
            raise
        self.refusal = None
        return response

    async def item(self, id: str, kind: Kind | None = None) -> NotionItem:
        """Return the page, database or data source with an id. kind: its kind, if known."""
        kinds: tuple[Kind, ...] = ("page", "database", "data_source") if kind is None else (kind,)
        for one in kinds:
            # For an id of another kind the API answers "not found" or "bad request".
            accept = frozenset((400, 404)) if one != kinds[-1] else frozenset()
            response = await self._request("GET", f"{one}s/{id}", accept=accept, max_body=_OBJECT.size)
            if response.status == 200:
                found = NotionItem.of(await response.json(_OBJECT))
                if found.in_trash:
                    raise NotFound(f"{found.kind} {id} is in the trash")
                return found
        raise NotFound(f"no page, database or data source has the id {id}")

    async def block_parent(self, id: str) -> Parent:
        """Return the parent of a block."""
        response = await self._request("GET", f"blocks/{id}", max_body=_OBJECT.size)
        return Parent.of(mapping(await response.json(_OBJECT)).get("parent"))

    async def blocks(self, id: str) -> tuple[tuple[Block, ...], int]:
        """Return all blocks of a page with their children, and the bytes of the answers. Raise TooLarge."""
        count = 0

        async def below(id: str, depth: int) -> tuple[Block, ...]:
            nonlocal count
            if depth > DEEPEST:
                raise TooLarge(f"block {id} is more than {DEEPEST} levels deep in its page")
            found: list[Block] = []
            for value in await self._children(id, received):
                count += 1
                if count > MOST_BLOCKS:
                    raise TooLarge(f"a page of more than {MOST_BLOCKS} blocks")
                if value.get("in_trash") is True or value.get("archived") is True:
                    continue
                block = Block.of(value)
                if block.id is not None and value.get("has_children") is True and block.type not in _CLOSED:
                    block = Block.of(value, await below(block.id, depth + 1))
                found.append(block)
            return tuple(found)

        async with self.received(f"page {id}") as received:
            return await below(id, 1), received.size

    async def _children(self, id: str, received: Received) -> list[Json]:
        """Return the direct children of a page or block."""
        found: list[Json] = []
        async with aclosing(self._pages("GET", f"blocks/{id}/children", received)) as pages:
            async for page in pages:
                found += page
                if len(found) > MOST_BLOCKS:
                    raise TooLarge(f"a page of more than {MOST_BLOCKS} blocks")
        return found

    def received(self, what: str) -> Received:
        """Return the bounds of the answers of one operation. Of those that hold much, one goes on at a time."""
        return Received(what, MOST_BYTES, self._large)

    def search(self) -> AsyncGenerator[list[NotionItem]]:
        """Yield the pages and data sources that the integration may see, last edited first, one answer at a time.

        Raise TooLarge after the last answer if Notion has more.
        """
        sort = {"timestamp": "last_edited_time", "direction": "descending"}
        return self._found("search", {"sort": sort})

    async def matching(self, query: str, limit: int) -> list[NotionItem]:
        """Return at most `limit` pages and data sources whose titles match, in the order that Notion ranks them."""
        found: list[NotionItem] = []
        async with aclosing(self._found("search", {"query": query})) as answers:
            async for answer in answers:
                found += answer
                if len(found) >= limit:
                    break
        return found[:limit]

    def query(self, id: str) -> AsyncGenerator[list[NotionItem]]:
        """Yield the rows of a data source, oldest first, one answer at a time. Raise TooLarge as `search`."""
        sorts = [{"timestamp": "created_time", "direction": "ascending"}]
        return self._found(f"data_sources/{id}/query", {"sorts": sorts})

    async def property_items(self, page: str, property: str) -> list[Json]:
        """Return all parts of a row's value. The row itself has only the first ones."""
        path = f"pages/{page}/properties/{property}"
        async with self.received(path) as received, aclosing(self._pages("GET", path, received)) as pages:
            return [piece async for pieces in pages for piece in pieces]

    async def _found(self, path: str, body: dict[str, Any]) -> AsyncGenerator[list[NotionItem]]:
        async with self.received(path) as received, aclosing(self._pages("POST", path, received, body)) as pages:
            async for page in pages:
                # An object that the integration may not see has only an id.
                found = [NotionItem.of(each) for each in page if "parent" in each and each.get("object") in KINDS]
                yield [item for item in found if not item.in_trash]

    async def _pages(
        self, method: str, path: str, received: Received, body: dict[str, Any] | None = None
    ) -> AsyncGenerator[list[Json]]:
        """Yield the objects of a list, one answer at a time."""
        empty = 0
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MOST_PAGES):
            paging: dict[str, Any] = {"page_size": PAGE_SIZE} | ({"start_cursor": cursor} if cursor else {})
            if body is None:
                params = {key: str(value) for key, value in paging.items()}
                response = await self._request(method, path, params=params, max_body=_ANSWER.size)
            else:
                response = await self._request(method, path, json={**body, **paging}, max_body=_ANSWER.size)
            await received.take(len(response.body))
            answer = mapping(await response.json(_ANSWER))
            if answer.get("object") != "list":
                yield [answer]  # a property value with one part
                return
            found = list(items(answer.get("results")))
            if len(found) > _MOST_OBJECTS:
                raise ProtocolViolation(f"{path}: answers {len(found)} objects, where {PAGE_SIZE} were asked for")
            empty = 0 if found else empty + 1
            if empty >= _MOST_EMPTY:
                raise ProtocolViolation(f"{path}: {empty} answers in a row without an object")
            yield found
            status = mapping(answer.get("request_status"))
            if status.get("type") == "incomplete":
                raise TooLarge(f"{path}: Notion answers no more ({string(status.get('incomplete_reason')):.80})")
            cursor = string(answer.get("next_cursor"))
            if answer.get("has_more") is not True:
                return
            if not cursor or cursor in seen:
                raise ProtocolViolation(f"{path}: there is more, and the cursor {cursor!r:.60} leads nowhere")
            seen.add(cursor)
        raise TooLarge(f"{path}: more than {MOST_PAGES} answers")


def child_items(page: NotionItem, blocks: Iterable[Block]) -> list[tuple[NotionItem, bool]]:
    """Return the pages and databases in a page in its order, from all its blocks, and whether each has content."""
    found: dict[str, tuple[NotionItem, bool]] = {}
    ahead = [*reversed([*blocks])]
    while ahead:
        block = ahead.pop()
        if block.type in _ELSEWHERE:
            item = NotionItem.of_block(block.value, Parent("page", page.id))
            found.setdefault(item.id, (item, block.value.get("has_children") is True))
        ahead.extend(reversed(block.children))
    return list(found.values())
