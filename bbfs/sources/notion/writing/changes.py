"""The smallest change that leads from the blocks of a page to others. Pure.

Blocks that stay keep their ids, and with them their comments and links to them. A change that fails in the middle loses
nothing: new blocks come first, and removals last.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any, TypeAlias

from bbfs.model.errors import NotSupported, Rejected
from bbfs.sources.content.memory import digest_of
from bbfs.sources.notion.markdown import Block, blocks_text
from bbfs.sources.notion.writing.blocks import CHILDREN, TEXTS, children_of, is_empty, same

Position: TypeAlias = dict[str, Any]
START: Position = {"type": "start"}
END: Position = {"type": "end"}
MOST_AT_ONCE = 100
"""Blocks of one parent in a request. (Notion's limits: https://developers.notion.com/reference/request-limits)"""
_MOST_IN_REQUEST, _MOST_BYTES = 1000, 400_000
_LONGEST_TEXT, _MOST_TEXTS = 2000, 100
_MOST_COMPARED = 1_000_000
"""Pairs of blocks to compare for the best match. Of more, the next equal block is taken."""
_MOST_PASSED = 100
"""Blocks to look through for one that can become a new one."""
_CHANGEABLE = (*TEXTS, "code", "equation", "table", "table_row")
"""Types of blocks whose content can be replaced in place."""


def after(id: str) -> Position:
    return {"type": "after_block", "after_block": {"id": id}}


@dataclass(frozen=True, slots=True)
class Append:
    """New blocks in a page or block."""

    parent: str
    position: Position
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """What to do, in this order. updates: blocks with their new data. blocks: the blocks of the page afterwards."""

    appends: list[Append] = field(default_factory=list)
    updates: list[Block] = field(default_factory=list)
    removals: list[Block] = field(default_factory=list)
    blocks: tuple[Block, ...] = ()

    @property
    def requests(self) -> int:
        return sum(requests_of(each.blocks) for each in self.appends) + len(self.updates) + len(self.removals)


def changes_of(page: str, old: Sequence[Block], new: Sequence[Block]) -> Changes:
    """Return the change of a page's blocks. old, new: blocks that can be written; the old ones have ids. Raise
    NotSupported for a child page or database that would come or go, Rejected for blocks that the API does not make."""
    changes = Changes()
    return replace(changes, blocks=_compare(changes, page, old, new))


def _compare(changes: Changes, parent: str, old: Sequence[Block], new: Sequence[Block]) -> tuple[Block, ...]:
    shown = [block for block in old if not is_empty(block)]
    matched = _matched(shown, new)
    kept = {id(found) for found in matched if found is not None}
    for block in shown:
        if id(block) not in kept:
            _require_removable(block)
            changes.removals.append(block)
    left = [block for block in old if is_empty(block) or id(block) in kept]
    left.reverse()
    result: list[Block] = []
    inserted: list[Block] = []
    position = START if old else END

    def insert() -> None:
        if inserted:
            changes.appends.append(Append(parent, position, tuple(inserted)))
            inserted.clear()

    for block, found in zip(new, matched, strict=True):
        if found is None:
            _require_new(block)
            inserted.append(block)
            result.append(block)
            continue
        insert()
        while (passed := left.pop()) is not found:
            result.append(passed)
        position = after(found.id or "")
        result.append(_changed(changes, found, block))
    insert()
    return (*result, *reversed(left))


def _changed(changes: Changes, old: Block, new: Block) -> Block:
    if same(old, new):
        return old
    if old.data != new.data:
        changes.updates.append(Block(new.type, new.data, old.id))
    return Block(new.type, new.data, old.id, _compare(changes, old.id or "", old.children, new.children))


# -- which block becomes which -----------------------------------------------------------------------------------------


def _matched(old: Sequence[Block], new: Sequence[Block]) -> list[Block | None]:
    """Return for each new block the old block that stays or becomes it, in the order of both."""
    ours, theirs = [*map(_key, old)], [*map(_key, new)]
    begin = 0
    while begin < min(len(ours), len(theirs)) and ours[begin] == theirs[begin]:
        begin += 1
    end = 0
    while end < min(len(ours), len(theirs)) - begin and ours[-1 - end] == theirs[-1 - end]:
        end += 1
    places: list[int | None] = [None] * len(new)
    places[:begin] = range(begin)
    places[len(new) - end :] = range(len(old) - end, len(old))
    for one, other in _equal(ours[begin : len(ours) - end], theirs[begin : len(theirs) - end]):
        places[begin + other] = begin + one
    last = 0
    following = [*_following(places, len(old))]
    for at, block in enumerate(new):
        if places[at] is None:
            near = range(last, min(following[at], last + _MOST_PASSED))
            places[at] = next((one for one in near if _changeable(old[one], block)), None)
        last = last if places[at] is None else (places[at] or 0) + 1
    return [None if place is None else old[place] for place in places]


def _following(places: Sequence[int | None], end: int) -> Iterator[int]:
    """Return for each place the next known place."""
    found: list[int] = []
    for place in reversed(places):
        end = end if place is None else place
        found.append(end)
    return reversed(found)


def _equal(ours: Sequence[str], theirs: Sequence[str]) -> Iterator[tuple[int, int]]:
    if len(ours) * len(theirs) <= _MOST_COMPARED:
        for match in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
            yield from zip(range(match.a, match.a + match.size), range(match.b, match.b + match.size), strict=True)
        return
    places: dict[str, list[int]] = {}
    for at in range(len(ours) - 1, -1, -1):
        places.setdefault(ours[at], []).append(at)
    last = -1
    for at, key in enumerate(theirs):
        free = places.get(key, [])
        while free and free[-1] <= last:
            free.pop()
        if free:
            last = free.pop()
            yield last, at


def _key(block: Block) -> str:
    """Return a text that equal blocks have."""
    below = [_key(child) for child in block.children if not is_empty(child)]
    own = block.id if block.type in CHILDREN else None
    return digest_of(json.dumps([block.type, block.data, own, below], sort_keys=True).encode())


def _changeable(old: Block, new: Block) -> bool:
    """Return whether a block can become another one in place."""
    return (
        old.type == new.type
        and old.type in _CHANGEABLE
        and all(old.data.get(key) == new.data.get(key) for key in ("table_width", "list_start_index"))
    )


def _require_removable(block: Block) -> None:
    children = children_of([block])
    if children:
        raise NotSupported(f"the text has no line {next(iter(children))!r:.120}, and a write removes no pages")


def _require_new(block: Block) -> None:
    """Raise NotSupported or Rejected unless the API makes a block."""
    children = children_of([block])
    if children:
        raise NotSupported(
            f"the line {next(iter(children))!r:.120} is there twice or moved, and a write moves no pages"
        )
    if "list_start_index" in block.data:
        raise Rejected(f"the list with {blocks_text([block])!r:.80} does not begin with 1, and Notion makes only such")
    for child in block.children:
        _require_new(child)


# -- requests ----------------------------------------------------------------------------------------------------------


def batches(blocks: Iterable[Block]) -> Iterator[list[tuple[dict[str, Any], tuple[Block, ...]]]]:
    """Yield the blocks of each request that appends, and the blocks below each block that are not in the request."""
    batch: list[tuple[dict[str, Any], tuple[Block, ...]]] = []
    count = size = 0
    for block in blocks:
        leaves = all(not child.children for child in block.children)
        within = block.children[:MOST_AT_ONCE] if leaves else ()
        made = sent(block, within)
        length = len(json.dumps(made, ensure_ascii=False).encode())
        many = count + 1 + len(within) > _MOST_IN_REQUEST or size + length > _MOST_BYTES
        if batch and (many or len(batch) >= MOST_AT_ONCE):
            yield batch
            batch, count, size = [], 0, 0
        batch.append((made, block.children[len(within) :]))
        count, size = count + 1 + len(within), size + length
    if batch:
        yield batch


def requests_of(blocks: Iterable[Block]) -> int:
    """Return the number of requests that append blocks."""
    return sum(1 + sum(requests_of(below) for _, below in batch) for batch in batches(blocks))


def sent(block: Block, children: Sequence[Block] = ()) -> dict[str, Any]:
    """Return a block as the API takes it. Raise Rejected for a text that is too long."""
    data = dict(block.data)
    for name in ("rich_text", "caption"):
        if name in data:
            data[name] = sent_text(data[name])
    if "cells" in data:
        data["cells"] = [*map(sent_text, data["cells"])]
    data.pop("list_start_index", None)
    if children:
        data["children"] = [sent(child) for child in children]
    return {"object": "block", "type": block.type, block.type: data}


def update_of(block: Block) -> dict[str, Any]:
    """Return the new content of a block as the API takes it. The width of a table is fixed."""
    data = {key: value for key, value in sent(block)[block.type].items() if key != "table_width"}
    return {block.type: data}


def sent_text(rich_text: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rich text in pieces that are short enough for the API."""
    found: list[dict[str, Any]] = []
    for piece in rich_text:
        content = piece["text"]["content"] if piece["type"] == "text" else ""
        # Notion counts UTF-16.
        step = _LONGEST_TEXT if content.isascii() or max(content) <= "\uffff" else _LONGEST_TEXT // 2
        cut = range(step, len(content), step)
        found += [piece] if not cut else [
            {**piece, "text": {**piece["text"], "content": content[at : at + step]}} for at in (0, *cut)
        ]  # fmt: skip
    if len(found) > _MOST_TEXTS:
        raise Rejected(f"a text of {len(found)} pieces, where Notion takes {_MOST_TEXTS} of {_LONGEST_TEXT} characters")
    return found
