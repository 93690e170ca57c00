"""Hostile answers of a server that stands for Notion."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness import SourceTable
from hostile import Case
from hostile_messages import VALUES
from hostile_sources import JSON, PATIENCE, Reply, Source, serve

FEW = 15 << 20
PAGE = "01234567-89ab-cdef-0123-456789abcdef"
HEADERS = {"content-type": JSON}
SEARCH = "POST /v1/search*"
BLOCKS = "GET /v1/blocks/*/children*"
CHANGE = "PATCH /v1/blocks/*"


def item(id: str = PAGE, title: str = "Page", **more: Any) -> dict[str, Any]:
    """Return a page, as Notion describes it."""
    return {
        "object": "page", "id": id, "parent": {"type": "workspace", "workspace": True}, "in_trash": False,
        "created_time": "2026-01-01T00:00:00.000Z", "last_edited_time": "2026-01-01T00:00:00.000Z",
        "url": f"https://www.notion.so/{id}", "icon": None, "has_children": True,
        "properties": {"title": {"id": "title", "type": "title", "title": rich(title)}}, **more,
    }  # fmt: skip


def rich(text: str, count: int = 1, **annotations: bool) -> list[dict[str, Any]]:
    return [{"type": "text", "plain_text": text, "text": {"content": text}, "annotations": annotations}] * count


def block(texts: list[dict[str, Any]], id: str = PAGE, **more: Any) -> dict[str, Any]:
    kept = {"object": "block", "id": id, "type": "paragraph", "has_children": False, "in_trash": False}
    return {**kept, "paragraph": {"rich_text": texts}, **more}


def listed(*results: Any, has_more: bool = False) -> bytes:
    cursor = "@N@" if has_more else None
    return json.dumps({"object": "list", "results": results, "has_more": has_more, "next_cursor": cursor}).encode()


TEXTS: Mapping[str, list[dict[str, Any]]] = {
    "a paragraph of backticks": rich("`" * 200_000, code=True),
    "a paragraph of marks": rich("*_~[](" * 30_000),
    "a paragraph of spaces": rich(" " * 200_000, bold=True, italic=True),
    "a hundred thousand texts": rich("x", 100_000, bold=True),
    "a paragraph of line breaks": rich("\n#\n-\n" * 50_000),
}


def workspace(replies: Mapping[str, Callable[[], bytes]], change: Reply | None = None) -> Source:
    """Return the source of a workspace of one page. replies: other answers than those of such a workspace. change: the
    answer to a change; without it, nothing is written.
    """
    plain = {SEARCH: lambda: listed(item()), BLOCKS: lambda: listed(block(rich("text"))), "GET /v1/pages/*": one_page}

    def source(directory: Path) -> SourceTable:
        made = {
            key: Reply(body, headers=HEADERS, harmless=key not in replies)
            for key, body in {**replies, **plain, **replies}.items()
        }
        made |= {} if change is None else {CHANGE: change}
        config = {"base_url": serve(directory, made), "allow_private": True, "per_second": 1000}
        table = {"name": "hostile", "type": "notion", "config": config, "auth": {"token": "ntn_x"}}
        return {**table, "timeout": PATIENCE, "capabilities": ["read", "list", *([] if change is None else ["write"])]}

    return source


def one_page() -> bytes:
    return json.dumps(item()).encode()


def case(name: str, key: str, body: Callable[[], bytes]) -> Case:
    return Case(name, workspace({key: body}), "bb-notion+hostile+x-notion")


def cases() -> Iterator[Case]:
    """Yield pages and workspaces larger and deeper than any that Notion has."""
    for name, made in TEXTS.items():
        yield case(name, BLOCKS, lambda made=made: listed(block(made)))
    blocks: Mapping[str, Callable[[], bytes]] = {
        "blocks in blocks for ever": lambda: listed(block(rich("x"), has_children=True)),
        "blocks for ever": lambda: listed(*[block(rich("x"))] * 100, has_more=True),
        "no blocks for ever": lambda: listed(has_more=True),
        "a block of arrays": lambda: listed() .replace(b"[]", VALUES["arrays"](FEW)),
        "a block of deep arrays": lambda: listed().replace(b"[]", VALUES["deep arrays"](FEW)),
        "a table of a million cells": lambda: listed({**block([]), "type": "table_row", "table_row": {
            "cells": [rich("x")] * 60_000}}),
        "a language of a megabyte": lambda: listed({**block([]), "type": "code", "code": {
            "rich_text": rich("```" * 60_000), "language": "x" * 1_000_000}}),
        "an equation of braces": lambda: listed({**block([]), "type": "equation", "equation": {
            "expression": "${" * 300_000}}),
    }  # fmt: skip
    for name, body in blocks.items():
        yield case(name, BLOCKS, body)
    found: Mapping[str, Callable[[], bytes]] = {
        "pages for ever": lambda: listed(*(item(f"@N@{n:04}") for n in range(100)), has_more=True),
        "no pages for ever": lambda: listed(has_more=True),
        "a search of objects": lambda: VALUES["objects"](FEW),
        "a title of a megabyte": lambda: listed(item(title="t" * 1_000_000)),
        "a page that is its own parent": lambda: listed(item(parent={"type": "page_id", "page_id": PAGE})),
        "properties without an end": lambda: listed(
            item(properties={f"p{n}": {"id": f"p{n}", "type": f"t{n}"} for n in range(100_000)})
        ),
    }
    for name, body in found.items():
        yield case(name, SEARCH, body)


def edit(directory: Path) -> Sequence[Sequence[str | Path]]:
    """Return the programs that write a page: another text for each line, and as many lines more."""
    page = f"'{directory}/Page.md'"
    return [
        ("sh", "-c", f"text=$(sed 's/^x/## other\\n\\n&/' {page}); printf '%s' \"$text\" > {page}"),
        ("sh", "-c", f"sed -i s/x/y/g {page}"),
        ("sh", "-c", f"printf '\\n# %s' '$(seq 9999)' >> {page}"),
        ("sh", "-c", f"yes '> - 1. `*[<u>$' | head -c 500000 > {page}"),
        ("sh", "-c", f"yes '<details><summary>' | head -c 500000 > {page}"),
        ("sh", "-c", f"yes '' | head -c 500000 > {page}"),
    ]


def writes() -> Iterator[Case]:
    """Yield pages that are hard to compare, and answers to changes that are no such answers."""
    texts = {
        "a thousand equal blocks": rich("x"),
        "a thousand blocks of marks": rich("x*_~[](" * 40),
        "a thousand formatted blocks": [
            each for mark in ("bold", "code", "italic") for each in rich("x", **{mark: True})
        ],
    }
    for name, made in texts.items():
        body = listed(*(block(made, f"{number:032x}") for number in range(1000)))
        source = workspace({BLOCKS: lambda body=body: body}, change=Reply(b"{}", headers=HEADERS, harmless=True))
        yield Case(f"{name}, written", source, "bb-notion+hostile+x-notion", programs=edit)
    for name, made in TEXTS.items():
        source = workspace(
            {BLOCKS: lambda made=made: listed(block(made))}, change=Reply(b"{}", headers=HEADERS, harmless=True)
        )
        yield Case(f"{name}, written", source, "bb-notion+hostile+x-notion", programs=save)
    replies = {
        "arrays": Reply(lambda: VALUES["arrays"](FEW), headers=HEADERS),
        "a text without an end": Reply(b" " * 4096, headers=HEADERS, endless=True),
        "no object": Reply(b"7", headers=HEADERS),
        "a refusal of a megabyte": Reply(
            json.dumps({"message": "\x1b" + "no" * 500_000}).encode(), headers=HEADERS, status=400
        ),
        "deep arrays as a refusal": Reply(lambda: VALUES["deep arrays"](FEW), headers=HEADERS, status=409),
    }
    for name, reply in replies.items():
        yield Case(f"a change answers {name}", workspace({}, change=reply), "bb-notion+hostile+x-notion", programs=save)


def save(directory: Path) -> Sequence[Sequence[str | Path]]:
    return [("sh", "-c", f"printf '\\n- other\\n' >> '{directory}/Page.md'; cat '{directory}/Page.md'")]


@pytest.mark.parametrize("case", [*cases(), *writes()], ids=str)
def test_a_hostile_workspace_harms_nobody(case: Case, holds: Callable[[Case], None]) -> None:
    holds(case)
