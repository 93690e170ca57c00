"""Markdown as Notion's blocks: exactly what `bbfs.sources.notion.markdown` writes. Pure.

A page is written if and only if its Markdown carries its blocks: `carried` reads the Markdown of the blocks again and
compares. bbfs accepts a new text if the blocks that the text gives are written as the same text, byte for byte.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bbfs.model.errors import NotSupported, Rejected
from bbfs.sources.notion.inline import escaped
from bbfs.sources.notion.markdown import Block, blocks_text, file_name
from bbfs.sources.notion.values import file_url, string
from bbfs.sources.notion.writing.inline import rich_text_of, written_text

DEEPEST = 24
"""Levels of blocks that a text may have."""
MOST_BLOCKS = 5000
"""Blocks that a text may have."""
CHILDREN = ("child_page", "child_database")
LISTS = ("bulleted_list_item", "numbered_list_item", "to_do")
TEXTS = ("paragraph", "heading_1", "heading_2", "heading_3", "heading_4", "quote", "toggle", *LISTS)
_WITH_CHILDREN = ("quote", "toggle", "table", *LISTS)
_DEFAULTS = (None, False, "", "default", "numbers", [], {})
"""Values of fields that change nothing."""
_FENCE = re.compile(r"(`{3,})([^`]*)")
_HEADING = re.compile(r"(#{2,5})(?: (.*))?")
_ITEM = re.compile(r"(- \[[ x]\] |- |(\d{1,9})\. )(.*)")
_TOGGLE = re.compile(r"<details><summary>(.*)</summary>")
_IMAGE = re.compile(r"!\[(.+)\]\(([^()<>\s]+)\)")
_CELLS = re.compile(r"(?<!\\)\|")
_LINE_BREAK = re.compile(r"(?<!\\)<br>")


class UnfitLine(Exception):
    """A line that is not as bbfs writes it. at: its index."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at


# -- blocks of the API -------------------------------------------------------------------------------------------------


def is_empty(block: Block) -> bool:
    """Return whether a block is an empty paragraph, which Markdown does not show and a write leaves in its place."""
    return block.type == "paragraph" and not block.data.get("rich_text") and not block.children


def written_block(block: Block) -> Block:
    """Return a block of the API as a block that can be written, with its id. Raise NotSupported with what is lost."""
    what, data = f"a block of type {block.type!r:.40}", block.data
    taken: dict[str, Any] = {}
    try:
        if block.type in CHILDREN:
            return Block(block.type, {"title": string(data.get("title"))}, block.id)
        if block.type in TEXTS:
            taken["rich_text"] = written_text(data.get("rich_text"))
        match block.type:
            case "to_do":
                taken["checked"] = data.get("checked") is True
            case "numbered_list_item" if data.get("list_start_index") not in (None, 1):
                taken["list_start_index"] = data.get("list_start_index")
            case "code":
                taken["rich_text"] = written_text(data.get("rich_text"))
                taken["language"] = string(data.get("language"))
            case "equation":
                taken["expression"] = string(data.get("expression"))
            case "table":
                width = data.get("table_width")
                taken["table_width"] = width if isinstance(width, int) else 0
                taken["has_column_header"] = data.get("has_column_header") is True
            case "table_row":
                cells = data.get("cells")
                taken["cells"] = [*map(written_text, cells if isinstance(cells, list) else ())]
            case "image" if data.get("type") == "external":
                taken |= {"type": "external", "external": {"url": file_url(data)}}
                taken["caption"] = written_text(data.get("caption"))
            case _ if block.type not in (*TEXTS, "divider"):
                raise NotSupported("which Markdown does not carry")
    except NotSupported as error:
        raise NotSupported(f"{what}: {error}") from None
    for name, value in data.items():
        if name not in taken and not (name == "list_start_index" and value == 1) and value not in _DEFAULTS:
            raise NotSupported(f"{what} with {name!r:.40}, which Markdown does not carry")
    if block.children and block.type not in _WITH_CHILDREN:
        raise NotSupported(f"{what} with blocks below it")
    return Block(block.type, taken, block.id, tuple(map(written_block, block.children)))


def same(one: Block, other: Block) -> bool:
    """Return whether two blocks that can be written are equal. Empty paragraphs and ids do not count."""
    if (one.type, one.data) != (other.type, other.data) or (one.type in CHILDREN and one.id != other.id):
        return False
    return all_same(one.children, other.children)


def all_same(these: Sequence[Block], others: Sequence[Block]) -> bool:
    return _difference(these, others) is None


def _difference(these: Sequence[Block], others: Sequence[Block]) -> Block | None:
    """Return the first block that has no equal one."""
    left, right = ([block for block in blocks if not is_empty(block)] for blocks in (these, others))
    for one, other in zip(left, right, strict=False):
        if not same(one, other):
            return one
    longer = left[len(right) :] or right[len(left) :]
    return longer[0] if longer else None


def carried(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return the blocks of a page as blocks that can be written. Raise NotSupported with what its Markdown loses."""
    found = tuple(map(written_block, blocks))
    text = blocks_text(found)
    if text != blocks_text(blocks):
        raise NotSupported("a text with formatting that does not show, and changes its Markdown")
    try:
        again = read_blocks(text, children_of(found))
    except (UnfitLine, Rejected) as error:
        at = f" of {text.split(chr(10))[error.at]!r:.80}" if isinstance(error, UnfitLine) else ""
        raise NotSupported(f"the Markdown{at} does not carry its block: {error}") from None
    lost = _difference(found, again)
    if lost is not None:
        raise NotSupported(f"a block of type {lost.type!r} whose Markdown is that of another one: {_excerpt(lost)!r}")
    return found


def _excerpt(block: Block) -> str:
    shown = blocks_text([block]).strip()
    return shown if len(shown) <= 60 else f"{shown[:60]}…"


def children_of(blocks: Iterable[Block]) -> dict[str, Block]:
    """Return the child pages and databases among blocks and below them, by their Markdown."""
    found: dict[str, Block] = {}
    for block in blocks:
        if block.type in CHILDREN:
            found[blocks_text([block])] = block
        found |= children_of(block.children)
    return found


# -- Markdown ----------------------------------------------------------------------------------------------------------


def read_blocks(text: str, children: Mapping[str, Block]) -> tuple[Block, ...]:
    """Return the blocks of a page's Markdown without its title. children: the page's child pages and databases by their
    Markdown. Raise UnfitLine; Rejected if a bound is hit. It may accept text that bbfs writes otherwise.
    """
    return tuple(_Reader(text.split("\n"), 0, children, _Budget()).blocks())


class _Budget:
    """The blocks that a text may have still."""

    def __init__(self) -> None:
        self.left = MOST_BLOCKS

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Rejected(f"more than {MOST_BLOCKS} blocks")


class _Reader:
    """A parser of some lines, forwards only. first: the index of the first line in the text."""

    def __init__(
        self, lines: Sequence[str], first: int, children: Mapping[str, Block], budget: _Budget, depth: int = 1
    ) -> None:
        self._lines, self._first, self._at = lines, first, 0
        self._children = children
        self._budget = budget
        self._depth = depth
        if depth > DEEPEST:
            raise Rejected(f"more than {DEEPEST} levels of blocks")

    def blocks(self, end: str | None = None) -> list[Block]:
        """Read blocks to the end, or to the line `end`."""
        found: list[Block] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line == end:
                self._at += 1
                return found
            if line:
                self._budget.take()
                block = self._block(line)
                if found and block.type == found[-1].type == "numbered_list_item":
                    # Only the first number of a list counts.
                    block = replace(block, data={"rich_text": block.data["rich_text"]})
                found.append(block)
            else:
                self._at += 1
        if end is not None:
            raise self._unfit(f"there is no line {end!r} below", len(self._lines) - 1)
        return found

    def _block(self, line: str) -> Block:
        begin = self._at
        self._at += 1
        if (fence := _FENCE.fullmatch(line)) is not None:
            code = self._to(fence[1])
            return Block("code", {"rich_text": self._plain(code), "language": fence[2] or "plain text"})
        if line == "$$":
            return Block("equation", {"expression": self._to("$$")})
        if line == "---":
            return Block("divider", {})
        if (heading := _HEADING.fullmatch(line)) is not None:
            return Block(f"heading_{len(heading[1]) - 1}", self._text(heading[2] or "", begin))
        if (item := _ITEM.fullmatch(line)) is not None:
            return self._item(item, begin)
        if line.startswith("|"):
            return self._table(begin)
        if line.startswith(">"):
            return self._quote(begin)
        if (toggle := _TOGGLE.fullmatch(line)) is not None:
            return Block("toggle", self._text(toggle[1], begin), children=tuple(self._toggled()))
        if (image := _IMAGE.fullmatch(line)) is not None:
            caption = [] if image[1] == escaped(file_name(image[2])) else self._text(image[1], begin)["rich_text"]
            return Block("image", {"type": "external", "external": {"url": image[2]}, "caption": caption})
        if line in self._children:
            return self._children[line]
        while self._at < len(self._lines) and self._lines[self._at]:
            self._at += 1
        return Block("paragraph", self._text("\n".join(self._lines[begin : self._at]), begin))

    def _toggled(self) -> list[Block]:
        self._depth += 1
        if self._depth > DEEPEST:
            raise Rejected(f"more than {DEEPEST} levels of blocks")
        found = self.blocks("</details>")
        self._depth -= 1
        return found

    def _item(self, item: re.Match[str], begin: int) -> Block:
        mark, number, text = item.groups()
        width = len(mark) if number is not None else 2
        lines = [text]
        end = self._at
        for at in range(self._at, len(self._lines)):
            line = self._lines[at]
            if line and not line.startswith(" " * width):
                break
            lines.append(line[width:])
            end = at + 1 if line else end
        del lines[1 + end - self._at :]
        self._at = end
        if number is not None:
            kind, more = "numbered_list_item", {} if number == "1" else {"list_start_index": int(number)}
        else:
            kind, more = ("bulleted_list_item", {}) if mark == "- " else ("to_do", {"checked": mark == "- [x] "})
        count = 1
        while count < len(lines) and lines[count] and lines[count - 1].endswith("  "):
            count += 1
        data = self._text("\n".join(lines[:count]), begin) | more
        return Block(kind, data, children=tuple(self._below(lines[count:], begin + count)))

    def _quote(self, begin: int) -> Block:
        lines: list[str] = []
        for line in self._lines[begin:]:
            if not line.startswith("> ") and line != ">":
                break
            lines.append(line[2:])
        if not lines:
            raise self._unfit("'>' begins a quotation and has a space after it", begin)
        self._at = begin + len(lines)
        found = self._below(lines, begin)
        if found and found[0].type == "paragraph":
            return Block("quote", found[0].data, children=tuple(found[1:]))
        return Block("quote", {"rich_text": []}, children=tuple(found))

    def _table(self, begin: int) -> Block:
        rows: list[list[str]] = []
        for line in self._lines[begin:]:
            if not line.startswith("|"):
                break
            pieces = _CELLS.split(line)
            if len(pieces) < 3 or pieces[-1]:
                raise self._unfit("a row of a table ends with ' |'", begin + len(rows))
            rows.append([piece[1:-1].replace("\\|", "|") for piece in pieces[1:-1]])
        self._at = begin + len(rows)
        width = len(rows[0])
        if len(rows) < 2 or rows[1] != ["---"] * width or any(len(row) != width for row in rows):
            raise self._unfit(f"a table has a header, a line '| --- |' and {width} cells in each row", begin)
        if len(rows) == 2 and not any(rows[0]):
            raise self._unfit("a table has a row, or a header with a text", begin)
        has_header = any(rows[0])
        del rows[1]
        children: list[Block] = []
        for number, row in enumerate(rows if has_header else rows[1:]):
            self._budget.take()
            at = begin + number + (2 if not has_header else 1 if number else 0)
            texts = (self._text(_LINE_BREAK.sub("  \n", cell), at) for cell in row)
            children.append(Block("table_row", {"cells": [text["rich_text"] for text in texts]}))
        return Block("table", {"table_width": width, "has_column_header": has_header}, children=tuple(children))

    def _below(self, lines: Sequence[str], begin: int) -> list[Block]:
        return _Reader(lines, self._first + begin, self._children, self._budget, self._depth + 1).blocks()

    def _to(self, end: str) -> str:
        """Read the lines before the line `end`, and that one."""
        for at in range(self._at, len(self._lines)):
            if self._lines[at] == end:
                text = "\n".join(self._lines[self._at : at])
                self._at = at + 1
                return text
        raise self._unfit(f"there is no line {end!r} below that ends it", self._at - 1)

    @staticmethod
    def _plain(text: str) -> list[dict[str, Any]]:
        return [{"type": "text", "text": {"content": text}}] if text else []

    def _text(self, markdown: str, begin: int) -> dict[str, Any]:
        """Return the rich text of some lines."""
        lines = markdown.split("\n")
        for at, line in enumerate(lines[:-1]):
            if not line.endswith("  "):
                raise self._unfit(
                    "continues the text of the line before: leave an empty line between, or end that line with two"
                    " spaces to break the line",
                    begin + at + 1,
                )
        try:
            return {"rich_text": rich_text_of("\n".join([*(line[:-2] for line in lines[:-1]), lines[-1]]))}
        except Rejected as error:
            raise self._unfit(str(error), begin) from None

    def _unfit(self, reason: str, at: int) -> UnfitLine:
        return UnfitLine(self._first + at, reason)
