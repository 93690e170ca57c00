"""Notion answers that mean harm: each page and listing ends, within its memory, and text takes linear time."""

import json
from collections.abc import Callable
from itertools import count
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from bbfs.model.errors import BbfsError, ProtocolViolation, TooLarge
from bbfs.sources.bounded.workers import WorkerPool
from bbfs.sources.http.client import WebResponse
from bbfs.sources.notion.api import NotionApi, child_items
from bbfs.sources.notion.inline import code_span, markdown_of
from bbfs.sources.notion.markdown import Block, document, job, packed
from bbfs.sources.notion.values import NotionItem

PAGE = UUID(int=1).hex


class Answers:
    """A client that answers every request by a function of its path and number."""

    def __init__(self, answer: Callable[[str, int], Any]) -> None:
        self._answer = answer
        self.requests = 0

    async def request(self, method: str, url: str, **options: Any) -> WebResponse:
        await trio.lowlevel.checkpoint()
        self.requests += 1
        said = self._answer(url, self.requests)
        body = said if isinstance(said, bytes) else json.dumps(said).encode()
        return WebResponse(200, url, {}, body)


def api(answer: Callable[[str, int], Any]) -> tuple[NotionApi, Answers]:
    client = Answers(answer)
    return NotionApi(client, "https://notion.example"), client  # type: ignore[arg-type]


def listed(results: Any, cursor: str | None = None) -> dict[str, Any]:
    return {"object": "list", "results": results, "has_more": cursor is not None, "next_cursor": cursor}


def block(number: int, **more: Any) -> dict[str, Any]:
    return {"object": "block", "id": str(UUID(int=number)), "type": "paragraph", "paragraph": {}, **more}


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (lambda url, n: listed([], f"c{n}"), ProtocolViolation, ""),
        (lambda url, n: listed([None, 1], f"c{n}"), ProtocolViolation, ""),
        (lambda url, n: listed([block(n)] * 50, f"c{n}"), TooLarge, "more than 20000 blocks"),
        (lambda url, n: listed([block(n, in_trash=True)] * 50, f"c{n}"), TooLarge, "more than 20000 blocks"),
        (lambda url, n: listed([block(n, has_children=True)]), TooLarge, "levels deep"),
        (lambda url, n: listed([block(1, has_children=True)]), TooLarge, "levels deep"),
        (
            lambda url, n: listed([block(1000 * n + child, has_children=n == 1) for child in range(200)]),
            TooLarge,
            "more than 20000 blocks",
        ),
        (lambda url, n: listed([block(n, paragraph={"rich_text": "x" * 100_000})], f"c{n}"), TooLarge, ""),
        (lambda url, n: listed([{}] * 2000), ProtocolViolation, ""),
        (lambda url, n: listed([block(n, paragraph=[[]] * 600_000)]), TooLarge, ""),
        (lambda url, n: b'{"object": "list", "results": ' + b"[" * 100_000, TooLarge, ""),
        (lambda url, n: b"[" + b"9" * 100_000 + b"]", ProtocolViolation, ""),
    ],
    ids=["empty", "none", "endless", "trash", "deep", "cycle", "wide", "bytes", "many", "values", "nested", "number"],
)
async def test_the_blocks_of_a_page_end(answer: Callable[[str, int], Any], error: type[BbfsError], words: str) -> None:
    made, client = api(answer)
    with pytest.raises(error, match=words or None):
        await made.blocks(PAGE)
    assert client.requests <= 501


async def test_the_rows_of_a_database_end() -> None:
    numbers = count()
    row = {"object": "page", "parent": {}, "properties": {"p": {"type": "url", "url": "u" * 1_000_000}}}
    made, client = api(lambda url, n: listed([{**row, "id": str(UUID(int=next(numbers)))}], f"c{n}"))
    with pytest.raises(TooLarge, match="more than 16777216 bytes"):
        async for _ in made.query(PAGE):
            pass
    assert client.requests < 20


async def test_one_operation_at_a_time_holds_much() -> None:
    made, _ = api(lambda url, n: listed([]))
    order: list[str] = []

    async def second() -> None:
        async with made.received("second") as received:
            await received.take(600_000)
            order.append("second")

    async with trio.open_nursery() as nursery:
        async with made.received("first") as first:
            await first.take(600_000)
            nursery.start_soon(second)
            await trio.testing.wait_all_tasks_blocked()
            order.append("first")
    assert order == ["first", "second"]


def test_texts_of_an_item_are_short() -> None:
    long = [{"plain_text": "t" * 1_000_000}]
    item = NotionItem.of(
        {"object": "database", "id": PAGE, "title": long, "description": long, "url": "u" * 1_000_000,
         "icon": {"type": "emoji", "emoji": "e" * 1_000_000}, "created_by": {"name": "n" * 1_000_000}}
    )  # fmt: skip
    assert {len(text or "") for text in (item.title, item.description, item.url, item.icon, item.created_by)} == {2000}


def test_text_is_made_in_linear_time() -> None:
    """It would take more minutes than the test has if each character cost a look at all before it."""
    many = 500_000
    assert code_span("`" * many).count("`") == 3 * many + 2
    for text in ("`", "*_", "~", "&a", "& ", "$", "\\", "- ", " \n", "[", "<"):
        markdown_of([{"type": "text", "text": {"content": text * many}}])
    pieces = [{"type": "text", "text": {"content": "x" * 20}}] * (many // 10)
    assert len(markdown_of(pieces)) == 20 * len(pieces)
    paragraphs = [Block.of(block(1, paragraph={"rich_text": pieces[:3]}))] * (many // 20)
    assert document("t", paragraphs)


async def test_a_large_page_is_the_same_page() -> None:
    inner = Block.of(block(2, paragraph={"rich_text": [{"plain_text": "inner"}]}))
    blocks = [Block.of(block(1, type="toggle", toggle={"rich_text": [{"plain_text": "ä"}]}), [inner])] * 3
    text = document("T", blocks).encode()
    assert job(packed("T", blocks), {}) == text
    assert await WorkerPool().run("notion", packed("T", blocks), owner="a", what="page") == text


@pytest.mark.parametrize("odd", [None, 1, "", "x", "\ud800", [], {}, {"id": PAGE}, "../users", "0" * 33])
async def test_one_odd_object_takes_no_other_away(odd: Any, caplog: pytest.LogCaptureFixture) -> None:
    good = {"object": "page", "id": PAGE, "parent": {"type": "workspace"}}
    made, _ = api(lambda url, n: listed([{**good, "id": odd}, good]))
    assert [[item.id for item in items] async for items in made.query(PAGE)] == [[PAGE]]
    assert [[item.id for item in items] async for items in made.search()] == [[PAGE]]
    assert "an object is left out" in caplog.text
    blocks = [Block.of({"type": "child_page", "id": one, "child_page": {"title": "t"}}) for one in (odd, PAGE)]
    assert [item.id for item, _ in child_items(NotionItem.of(good), blocks)] == [PAGE]
