"""The part of Notion's REST API that bbfs uses, version 2025-09-03.

In this version a database has one or more data sources, which have the columns and the rows.
"""

import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

import trio

from bbfs.model.errors import (
    BbfsError,
    Conflict,
    LoginRequired,
    NotFound,
    ProtocolViolation,
    Rejected,
    TooLarge,
    Unreachable,
)
from bbfs.sources.bounded.json import JsonBounds
from bbfs.sources.bounded.received import Received
from bbfs.sources.http.client import WebClient, WebResponse
from bbfs.sources.http.statuses import status_line
from bbfs.sources.notion.markdown import Block
from bbfs.sources.notion.values import KINDS, Json, Kind, NotionItem, Parent, as_id, items, mapping, string

log = logging.getLogger(__name__)

VERSION = "2025-09-03"
_PLACING_VERSION = "2026-03-11"
"""The version of requests that say where new blocks come. Each request may have its own."""
_REFUSALS: Mapping[int, type[BbfsError]] = {400: Rejected, 409: Conflict, 413: TooLarge, 503: Unreachable}
"""What Notion says of a change that it does not make. (The client would repeat one after 503.)"""
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
        """Return the bounds of the answers of one operation. Of large answers, only one is read at a time."""
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

    async def has_row(self, id: str, column: str, title: str) -> bool:
        """Return whether a data source has a row with a title. column: the name of the titles."""
        body = {"filter": {"property": column, "title": {"equals": title}}}
        async with aclosing(self._found(f"data_sources/{id}/query", body)) as answers:
            return any([bool(rows) async for rows in answers])

    async def property_items(self, page: str, property: str) -> list[Json]:
        """Return all parts of a row's value. The row itself has only the first values."""
        path = f"pages/{page}/properties/{property}"
        async with self.received(path) as received, aclosing(self._pages("GET", path, received)) as pages:
            return [piece async for pieces in pages for piece in pieces]

    # -- changes ------------------------------------------------------------------------------------------------------

    async def append(self, parent: str, blocks: Sequence[Json], position: Json) -> list[str]:
        """Append blocks below a page or block. Return their ids. position: as the API has it."""
        body = {"children": blocks, "position": position}
        headers = {"Notion-Version": _PLACING_VERSION}
        answer = await self._change("PATCH", f"blocks/{parent}/children", body, headers)
        ids = [as_id(string(block.get("id"))) for block in items(answer.get("results"))]
        found = [one for one in ids if one is not None]
        if len(found) != len(blocks):
            raise ProtocolViolation(f"Notion answers {len(found)} new blocks, where {len(blocks)} were sent")
        return found

    async def update_block(self, id: str, content: Json) -> None:
        """Replace the content of a block. content: its data by its type."""
        await self._change("PATCH", f"blocks/{id}", content)

    async def remove_block(self, id: str) -> None:
        """Move a block into the trash."""
        await self._change("DELETE", f"blocks/{id}")

    async def update_page(self, id: str, change: Json) -> NotionItem:
        """Change properties of a page, or move it into the trash. Return the page as it is now."""
        return NotionItem.of(await self._change("PATCH", f"pages/{id}", change))

    async def create_page(self, page: Json) -> NotionItem:
        return NotionItem.of(await self._change("POST", "pages", page))

    async def _change(self, method: str, path: str, body: Json | None = None, headers: Json | None = None) -> Json:
        """Send a change. The client repeats no change that Notion may have made."""
        options: dict[str, Any] = {"json": body} if body is not None else {}
        if headers is not None:
            options["headers"] = headers
        response = await self._request(method, path, accept=_REFUSALS, max_body=_ANSWER.size, **options)
        if response.status in _REFUSALS:
            raise _REFUSALS[response.status](f"Notion: {await _words(response)}")
        return mapping(await response.json(_ANSWER))

    async def _found(self, path: str, body: dict[str, Any]) -> AsyncGenerator[list[NotionItem]]:
        async with self.received(path) as received, aclosing(self._pages("POST", path, received, body)) as pages:
            async for page in pages:
                # An object that the integration may not see has only an id.
                seen = [each for each in page if "parent" in each and each.get("object") in KINDS]
                found = [NotionItem.of(each) for each in seen if _has_id(each, path)]
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


async def _words(response: WebResponse) -> str:
    """Return Notion's words for a refusal."""
    answer: Json = {}
    with suppress(BbfsError):
        answer = mapping(await response.json(_OBJECT))
    words = string(answer.get("message")) or string(answer.get("code")) or status_line(response.status)
    return "".join(c if c.isprintable() else " " for c in words[:500])


def _has_id(value: Json, place: str) -> bool:
    """Return whether an object has a usable id, which all requests for the object need. Log an object without an id."""
    own = string(value.get("id"))
    if as_id(own) is None:
        log.warning("%s: an object is left out, whose id is %.60r", place, own)
    return as_id(own) is not None


def child_items(page: NotionItem, blocks: Iterable[Block]) -> list[tuple[NotionItem, bool]]:
    """Return the pages and databases in a page in its order, from all its blocks, and whether each has content."""
    found: dict[str, tuple[NotionItem, bool]] = {}
    ahead = [*reversed([*blocks])]
    while ahead:
        block = ahead.pop()
        if block.type in _ELSEWHERE and _has_id(block.value, f"page {page.id}"):
            item = NotionItem.of_block(block.value, Parent("page", page.id))
            found.setdefault(item.id, (item, block.value.get("has_children") is True))
        ahead.extend(reversed(block.children))
    return list(found.values())
