"""The Markdown of one text as Notion's rich text: exactly what `bbfs.sources.notion.inline` writes. Pure.

Rich text that can be written has one form here, which both directions produce: equally formatted pieces are joined,
spaces around bold or italic text are plain, and a piece has those keys only that the API takes.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any
from urllib.parse import quote

from bbfs.model.errors import NotSupported, Rejected
from bbfs.sources.notion.inline import MARKS, URL_SAFE, href_of
from bbfs.sources.notion.values import items, mapping, string

Style = tuple[str, ...]
"""Annotations that are on, sorted."""
Piece = tuple[str, str, Style, str]
"""`text` or `equation`, its content, its style, and the URL of its link."""
_STYLES = ("code", *(mark[0] for mark in MARKS))
_UNSEEN = ("bold", "italic")
"""Annotations that do not show on spaces."""
_PLAIN = re.compile(r"[^\\*`\[\]<~$]+")
_ESCAPED = re.compile(r"\\(~~|[^\w\s]|_)")
_FENCE = re.compile(r"`+")
_STARS = re.compile(r"\*{1,3}")
_AUTOLINK = re.compile(r"<([A-Za-z][A-Za-z0-9+.-]*:[^<>\s]*)>")
_TARGET = re.compile(r"\]\(([^()<>\s]+)\)")
_EQUATION = re.compile(r"\$(?=\S)([^$]+)\$")


def rich_text_of(text: str) -> list[dict[str, Any]]:
    """Return a text in Markdown as rich text. A line feed is a line break. Raise Rejected."""
    return _joined(_Inline(text).pieces())


def plain_text_of(text: str) -> list[dict[str, Any]]:
    """Return a text without formatting as rich text."""
    return _joined([("text", text, (), "")])


def written_text(rich_text: Any) -> list[dict[str, Any]]:
    """Return rich text of the API in the form that can be written. Raise NotSupported with what would be lost."""
    found: list[Piece] = []
    pieces = (piece for piece in map(_piece, items(rich_text)) if piece[1])
    for (style, url), group in groupby(pieces, lambda piece: piece[2:]):
        found += _trimmed([*_merged(group)], style, url)
    return _joined(found)


def is_plain(rich_text: Any) -> bool:
    """Return whether rich text is its text alone, without formatting, links and mentions."""
    try:
        return all(set(piece) == {"type", "text"} for piece in written_text(rich_text))
    except NotSupported:
        return False


def _piece(item: Any) -> Piece:
    annotations = mapping(item.get("annotations"))
    for name, value in annotations.items():
        if name not in _STYLES and value not in (None, False, "default"):
            raise NotSupported(f"a text with {name} {string(value)!r:.40}")
    style = tuple(sorted(name for name in _STYLES if annotations.get(name)))
    url = quote(href_of(item), safe=URL_SAFE)
    match item.get("type"):
        case "text":
            return "text", string(mapping(item.get("text")).get("content")), style, url
        case "equation" if not url and "code" not in style:
            return "equation", string(mapping(item.get("equation")).get("expression")), style, url
    raise NotSupported(f"a text with a {string(item.get('type'))!r:.40}")


def _trimmed(pieces: list[Piece], style: Style, url: str) -> Iterator[Piece]:
    """Yield equally formatted pieces with the spaces around them as pieces of their own."""
    unseen = tuple(name for name in style if name not in _UNSEEN)
    begin = end = ""
    if pieces[0][0] == "text":
        content = pieces[0][1]
        begin = content[: len(content) - len(content.lstrip())]
        pieces[0] = ("text", content.lstrip(), style, url)
    if pieces[-1][0] == "text":
        content = pieces[-1][1]
        end = content[len(content.rstrip()) :]
        pieces[-1] = ("text", content.rstrip(), style, url)
    yield "text", begin, unseen, url
    yield from pieces
    yield "text", end, unseen, url


def _joined(pieces: list[Piece]) -> list[dict[str, Any]]:
    """Return pieces as the API takes them, empty ones left out and equally formatted ones joined."""
    found: list[dict[str, Any]] = []
    for kind, content, style, url in _merged(piece for piece in pieces if piece[1]):
        link = {"link": {"url": url}} if url else {}
        data = {"expression": content} if kind == "equation" else {"content": content, **link}
        found.append({"type": kind, kind: data} | ({"annotations": dict.fromkeys(style, True)} if style else {}))
    return found


def _merged(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield pieces with equally formatted texts joined."""
    for (kind, style, url), group in groupby(pieces, lambda piece: (piece[0], *piece[2:])):
        contents = [piece[1] for piece in group]
        for content in contents if kind == "equation" else ["".join(contents)]:
            yield kind, content, style, url


class _Inline:
    """A parser of one text. It goes forwards only."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def pieces(self) -> list[Piece]:
        found: list[Piece] = []
        while self._at < len(self._text):
            found += self._run()
        return found

    def _run(self) -> list[Piece]:
        """Read one piece without formatting, a formatted text, or a link."""
        if (link := _AUTOLINK.match(self._text, self._at)) is not None:
            self._at = link.end()
            return [("text", link[1], (), link[1])]
        if not self._text.startswith("[", self._at):
            return self._marked() or [self._simple()]
        self._at += 1
        pieces = self._marked()
        if not pieces:
            while not self._text.startswith("]", self._at):
                pieces.append(self._simple())
        target = _TARGET.match(self._text, self._at)
        if target is None or any(kind != "text" for kind, *_ in pieces):
            raise self._unfit()
        self._at = target.end()
        return [(kind, content, style, target[1]) for kind, content, style, _ in pieces]

    def _marked(self) -> list[Piece]:
        """Read a text between marks, which are nested in the order in which they are written; none if none begins."""
        style: list[str] = []
        closing = ""
        if self._took("<u>"):
            style.append("underline")
            closing = "</u>"
        if (stars := _STARS.match(self._text, self._at)) is not None:
            self._at = stars.end()
            style += ("italic",) if len(stars[0]) == 1 else ("bold",) if len(stars[0]) == 2 else ("bold", "italic")
            closing = stars[0] + closing
        if self._took("~~"):
            style.append("strikethrough")
            closing = "~~" + closing
        if (fence := _FENCE.match(self._text, self._at)) is not None:
            style.append("code")
            contents = [("text", self._code(fence[0]))]
            if not self._took(closing):
                raise self._unfit()
        elif closing:
            contents = []
            while not contents or not self._took(closing):
                contents.append(self._simple()[:2])
        else:
            return []
        return [(kind, content, tuple(sorted(style)), "") for kind, content in contents]

    def _simple(self) -> Piece:
        """Read a text without marks, an escaped character or an equation."""
        for kind, pattern, group in (("text", _PLAIN, 0), ("text", _ESCAPED, 1), ("equation", _EQUATION, 1)):
            if (found := pattern.match(self._text, self._at)) is not None:
                self._at = found.end()
                return kind, found[group], (), ""
        mark = self._text[self._at : self._at + 1]
        if mark not in ("~", "$") or self._text.startswith("~~", self._at):
            raise self._unfit()
        self._at += 1
        return "text", mark, (), ""

    def _code(self, fence: str) -> str:
        begin = self._at + len(fence)
        for closing in _FENCE.finditer(self._text, begin):
            if len(closing[0]) == len(fence):
                self._at = closing.end()
                content = self._text[begin : closing.start()]
                padded = content[:1] == content[-1:] == " " and (content[1:2] == "`" or content[-2:-1] == "`")
                return content[1:-1] if padded else content
        raise self._unfit()

    def _took(self, mark: str) -> bool:
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True

    def _unfit(self) -> Rejected:
        rest = self._text[self._at :]
        if not rest:
            return Rejected("a mark, a link or a code span has no end")
        return Rejected(f"{rest[:20]!r} begins nothing that bbfs writes; a backslash before it makes it plain text")
