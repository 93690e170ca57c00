"""The blocks of a page as Markdown. Pure.

Every block shows. One without a form in Markdown becomes the nearest form, or a comment with its type. Equal blocks
give equal bytes: what the API changes with each answer (signatures of files) is left out.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bbfs.sources.notion.inline import escaped, escaped_start, link, markdown_of
from bbfs.sources.notion.values import Json, as_id, file_url, icon_text, mapping, plain, string, web_url

_LISTS = ("bulleted_list_item", "numbered_list_item", "to_do")
_MEDIA = ("image", "video", "pdf", "file", "audio")
_LINKS = ("bookmark", "embed", "link_preview")
_CONTAINERS = ("column_list", "column", "synced_block", "tab")
_REPEATING = ("breadcrumb", "table_of_contents")
"""Blocks that only show content of another place: the place's URL and headings."""
_FENCE = re.compile(r"`{3,}")


@dataclass(frozen=True, slots=True)
class Block:
    """One block with its children. data: the part of its type; value: the whole object of the API."""

    type: str
    data: Json
    id: str | None = None
    children: "tuple[Block, ...]" = ()
    value: Json = field(default_factory=dict)

    @classmethod
    def of(cls, value: Json, children: "Iterable[Block]" = ()) -> "Block":
        kind = string(value.get("type")) or "unsupported"
        return cls(kind, mapping(value.get(kind)), as_id(string(value.get("id"))), tuple(children), value)


def document(title: str, blocks: Sequence[Block]) -> str:
    """Return a page: its title as a heading, then its blocks, and one line feed at the end."""
    heading = f"# {_one_line(escaped(title)) or 'Untitled'}"
    return "\n\n".join(filter(None, (heading, blocks_text(blocks)))) + "\n"


def packed(title: str, blocks: Sequence[Block]) -> bytes:
    """Return a page for `job`."""

    def nested(blocks: Sequence[Block]) -> list[Any]:
        return [[block.value, nested(block.children)] for block in blocks]

    return json.dumps([title, nested(blocks)]).encode()


def job(data: bytes, options: Mapping[str, Any]) -> bytes:
    """Return a packed page as Markdown."""

    def blocks(nested: list[Any]) -> list[Block]:
        return [Block.of(value, blocks(children)) for value, children in nested]

    title, nested = json.loads(data)
    return document(title, blocks(nested)).encode("utf-8", "replace")


def blocks_text(blocks: Sequence[Block]) -> str:
    """Return blocks as Markdown without a final line feed. List items stand together; blank lines separate all else."""
    texts: list[str] = []
    before, number = "", 0
    for block in blocks:
        number = _number(block, before, number)
        shown = _shown(block, number)
        if not shown:
            continue
        if texts:
            texts.append("\n" if block.type == before and block.type in _LISTS else "\n\n")
        texts.append(shown)
        before = block.type
    return "".join(texts)


def _number(block: Block, before: str, number: int) -> int:
    if block.type != "numbered_list_item":
        return 0
    start = block.data.get("list_start_index")
    if before != block.type:
        return start if isinstance(start, int) and start >= 0 else 1
    return number + 1


def _shown(block: Block, number: int) -> str:
    shape = _SHAPES.get(block.type)
    if shape is not None:
        return shape(block)
    match block.type:
        case "bulleted_list_item":
            return _item(block, "- ")
        case "numbered_list_item":
            return _item(block, f"{number}. ")
        case "to_do":
            return _item(block, "- [x] " if block.data.get("checked") is True else "- [ ] ", indent=2)
    kind = string(block.data.get("block_type")) or block.type
    return _with_children(f"<!-- Notion block of type {_in_comment(kind)}, which is not shown -->", block)


def _item(block: Block, mark: str, *, indent: int | None = None) -> str:
    """Return a list item. What is below it is indented by the width of its mark (CommonMark, section 5.2)."""
    space = " " * (len(mark) if indent is None else indent)
    children = blocks_text(block.children)
    tight = bool(block.children) and block.children[0].type in _LISTS
    body = _text(block)
    if children:
        body += ("\n" if tight else "\n\n") + children
    return mark + _indented(body, space)


def _indented(text: str, space: str) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(space + line if line else "" for line in rest)])


def _text(block: Block) -> str:
    return escaped_start(markdown_of(block.data.get("rich_text")))


def _with_children(text: str, block: Block) -> str:
    return "\n\n".join(filter(None, (text, blocks_text(block.children))))


def _paragraph(block: Block) -> str:
    lines = markdown_of(block.data.get("rich_text")).split("\n")
    return _with_children("\n".join(map(escaped_start, lines)).strip("\n"), block)


def _heading(level: int) -> Callable[[Block], str]:
    def shown(block: Block) -> str:
        # One level below the page's own title.
        text = _one_line(markdown_of(block.data.get("rich_text"), line_break=" "))
        return _with_children(f"{'#' * (level + 1)} {text}".rstrip(), block)

    return shown


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in text.split("\n"))


def _quote(block: Block) -> str:
    return _quoted(_with_children(_text(block), block))


def _callout(block: Block) -> str:
    icon = icon_text(block.data.get("icon"))
    sign = f"{icon} " if icon and "/" not in icon else ""
    return _quoted(_with_children(sign + _text(block), block))


def _toggle(block: Block) -> str:
    summary = _one_line(markdown_of(block.data.get("rich_text"), line_break=" "))
    return "\n\n".join(
        filter(None, (f"<details><summary>{summary}</summary>", blocks_text(block.children), "</details>"))
    )


def _code(block: Block) -> str:
    code = plain(block.data.get("rich_text"))
    longest = max((len(fence) for fence in _FENCE.findall(code)), default=2)
    fence = "`" * (longest + 1)
    language = string(block.data.get("language"))
    language = "" if language == "plain text" else language.replace("`", "").replace("\n", " ")
    end = "" if code.endswith("\n") else "\n"
    return _captioned(f"{fence}{language}\n{code}{end}{fence}", block)


def _captioned(text: str, block: Block) -> str:
    caption = markdown_of(block.data.get("caption"), line_break=" ").strip()
    return f"{text}\n\n{caption}" if caption else text


def _table(block: Block) -> str:
    """Return a table of GitHub's Markdown. It needs a header: an empty header if Notion's table has no header.

    The header has the cells of the longest row. A row may have fewer (GFM, section 4.10); no row of Notion has.
    """
    rows = [
        [markdown_of(cell, line_break="<br>").replace("|", "\\|").strip() for cell in cells]
        for row in block.children
        if isinstance(cells := row.data.get("cells"), list) and row.type == "table_row"
    ]
    width = max((len(row) for row in rows), default=0)
    if width == 0:
        return ""
    header = rows.pop(0) if block.data.get("has_column_header") is True else []
    lines = [[*header, *[""] * (width - len(header))], ["---"] * width, *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def _row(block: Block) -> str:
    """Return a row without its table. Notion's pages have none."""
    return _table(Block("table", {}, children=(block,)))


def _media(block: Block) -> str:
    url = file_url(block.data)
    name = string(block.data.get("name")) or file_name(url)
    shown = link(_caption(block) or escaped(name), url) if url else _comment(block)
    return f"!{shown}" if url and block.type == "image" else shown


def _link(block: Block) -> str:
    url = string(block.data.get("url"))
    return link(_caption(block), url) if url else _comment(block)


def _caption(block: Block) -> str:
    return _one_line(markdown_of(block.data.get("caption"), line_break=" "))


def file_name(url: str) -> str:
    return url.partition("?")[0].rstrip("/").rpartition("/")[2]


def _comment(block: Block) -> str:
    return f"<!-- Notion block of type {_in_comment(block.type)} without an address -->"


def _in_comment(text: str) -> str:
    return re.sub(r"[^\w -]", "", text)[:80].replace("--", "-")


def _child(block: Block) -> str:
    title = escaped(string(block.data.get("title"))) or "Untitled"
    return link(_one_line(title), web_url(block.id) if block.id else "")


def _link_to_page(block: Block) -> str:
    target = as_id(string(block.data.get(string(block.data.get("type")))))
    return link(web_url(target), web_url(target)) if target else _comment(block)


def _meeting(block: Block) -> str:
    return _with_children(f"**{_one_line(markdown_of(block.data.get('title'))) or 'Meeting notes'}**", block)


_SHAPES: dict[str, Callable[[Block], str]] = {
    "paragraph": _paragraph,
    "template": _paragraph,
    "heading_1": _heading(1),
    "heading_2": _heading(2),
    "heading_3": _heading(3),
    "heading_4": _heading(4),
    "quote": _quote,
    "callout": _callout,
    "toggle": _toggle,
    "code": _code,
    "equation": lambda block: f"$$\n{string(block.data.get('expression'))}\n$$",
    "divider": lambda _: "---",
    **dict.fromkeys(_REPEATING, lambda _: ""),
    "table": _table,
    "table_row": _row,
    "child_page": _child,
    "child_database": _child,
    "link_to_page": _link_to_page,
    "meeting_notes": _meeting,
    "transcription": _meeting,
    **dict.fromkeys(_MEDIA, _media),
    **dict.fromkeys(_LINKS, _link),
    **dict.fromkeys(_CONTAINERS, lambda block: blocks_text(block.children)),
}
