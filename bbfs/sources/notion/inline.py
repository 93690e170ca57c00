"""Notion's rich text as Markdown (CommonMark with strikethrough, and `$…$` for equations). Pure.

Words stay as they are, for `grep`: only characters that Markdown would interpret are escaped, and none inside words
(`snake_case`).
"""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any
from urllib.parse import quote

from bbfs.sources.notion.values import Json, as_id, items, mapping, string, web_url

_SPECIAL = re.compile(r"[\\`*\[\]<]|~~|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)|\$(?=\S)")
_LINE_START = re.compile(r"^([ \t]*)(#{1,6}(?=\s)|[-+>](?=\s|$)|[-=]{2,}(?=\s*$)|\d{1,9}(?=[.)](?:\s|$)))")
_BACKTICKS = re.compile(r"`+")
_SPACE = re.compile(r"\s*")
URL_SAFE = "!$&'*+,;=:@/?#%[]-._~"
MARKS = (("strikethrough", "~~", "~~"), ("italic", "*", "*"), ("bold", "**", "**"), ("underline", "<u>", "</u>"))


def markdown_of(rich_text: Any, *, line_break: str = "  \n") -> str:
    """Return a rich text as Markdown. line_break: replaces each line break."""
    return "".join(_runs(rich_text)).replace("\r", "").replace("\n", line_break)


def escaped(text: str) -> str:
    """Escape a plain text for Markdown."""
    return _SPECIAL.sub(lambda found: "\\" + found.group(), text)


def escaped_start(line: str) -> str:
    """Escape the start of a line so that it begins no heading, list or quotation."""

    def shielded(found: re.Match[str]) -> str:
        indent, mark = found.groups()
        return f"{indent}{mark}\\" if mark.isdigit() else f"{indent}\\{mark}"

    return _LINE_START.sub(shielded, line)


def link(text: str, url: str) -> str:
    """Return a link with a Markdown text; the text alone without a URL."""
    if not url:
        return text
    safe = quote(url, safe=URL_SAFE)
    return f"<{safe}>" if text in ("", url, escaped(url)) and ":" in safe else f"[{text}]({safe})"


def code_span(text: str) -> str:
    """Return a code span with a longer run of backticks than the text has (CommonMark, section 6.1)."""
    if not text:
        return ""
    fence = "`" * (1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _runs(rich_text: Any) -> Iterator[str]:
    """Yield the pieces, with equally formatted ones joined: `**a****b**` would not be bold."""
    pieces = (piece for piece in map(_piece, items(rich_text)) if piece[1])
    for key, run in groupby(pieces, lambda piece: piece[0]):
        texts: list[str] = []
        for is_raw, same in groupby(run, lambda piece: piece[2]):
            text = "".join(piece[1] for piece in same)
            texts.append(text if is_raw else escaped(text))
        yield _formatted(key, "".join(texts))


def _formatted(key: tuple[Any, ...], text: str) -> str:
    """Put marks around a text, inside its outer spaces: `** a**` would not be bold."""
    is_code, *styles, url = key
    core = text.strip()
    if not core:
        return text
    before, after = _around(text)
    if is_code:
        core = code_span(core)
    for (_, opening, closing), is_on in zip(MARKS, styles, strict=True):
        if is_on:
            core = f"{opening}{core}{closing}"
    return f"{before}{link(core, url)}{after}"


def _around(text: str) -> tuple[str, str]:
    begin = _SPACE.match(text)
    end = len(text.rstrip())
    return (begin.group() if begin else ""), text[end:]


def _piece(item: Json) -> tuple[tuple[Any, ...], str, bool]:
    """Return the style of one piece with its link, its text, and whether the text is not to be escaped."""
    annotations = mapping(item.get("annotations"))
    style = tuple(bool(annotations.get(name)) for name in ("code", *(mark[0] for mark in MARKS)))
    is_code = style[0]
    shown = string(item.get("plain_text"))
    url = href_of(item)
    match item.get("type"):
        case "equation":
            expression = string(mapping(item.get("equation")).get("expression")) or shown
            return (*style, url), (expression if is_code else f"${expression}$"), True
        case "mention":
            text, url = _mention(mapping(item.get("mention")), shown, url)
        case _:
            text = string(mapping(item.get("text")).get("content")) or shown
    return (*style, url), text, is_code


def _mention(mention: Json, shown: str, url: str) -> tuple[str, str]:
    kind = string(mention.get("type"))
    what = mapping(mention.get(kind))
    match kind:
        case "user":
            name = string(what.get("name")) or shown.removeprefix("@") or string(what.get("id"))
            return f"@{name}", url
        case "page" | "database" | "data_source":
            mentioned = as_id(string(what.get("id")))
            return shown or "Untitled", url or (web_url(mentioned) if mentioned else "")
        case "date":
            return shown or date_text(what), url
        case "link_preview":
            return shown or string(what.get("url")), url or string(what.get("url"))
        case "link_mention":
            href = string(what.get("href"))
            return string(what.get("title")) or shown or href, url or href
        case "custom_emoji":
            return shown or f":{string(what.get('name'))}:", url
    return shown, url


def date_text(date: Json) -> str:
    """Return a date of the API as ISO 8601, with both ends of a span."""
    return " → ".join(filter(None, (string(date.get("start")), string(date.get("end")))))


def href_of(item: Json) -> str:
    """Return the absolute URL of a piece's link, or an empty text. Links within Notion have no host."""
    href = string(item.get("href")) or string(mapping(mapping(item.get("text")).get("link")).get("url"))
    return web_url(href.removeprefix("/")) if href.startswith("/") and not href.startswith("//") else href
