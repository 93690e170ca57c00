"""Web pages as Markdown."""

from bs4 import BeautifulSoup
from markdownify import MarkdownConverter

from bbfs.model.errors import ProtocolViolation

MAX_PAGE = 8 << 20
"""Bytes of a page: rendering takes a good part of a second for each MiB, and cannot be interrupted."""
_LEFT_OUT = ("head", "script", "style", "noscript", "template", "iframe", "svg", "canvas", "object", "embed")


def to_markdown(page: bytes, charset: str | None, what: str) -> bytes:
    """A page in HTML as Markdown in UTF-8, the same for the same page. Blocks, for long where the page is large.

    charset: as its server says; a page may say it itself. Links stay as they are. Raises ProtocolViolation.
    """
    if b"<" not in page:
        page = b"<p>" + page  # what looks like a file name or a URL makes the parser warn
    try:
        soup = BeautifulSoup(page, "html.parser", from_encoding=charset)
        for element in soup(_LEFT_OUT):
            element.decompose()
        text = MarkdownConverter(heading_style="ATX", bullets="-").convert_soup(soup)
    except (RecursionError, LookupError, ValueError) as exc:
        raise ProtocolViolation(f"{what}: cannot be shown as Markdown: {type(exc).__name__}") from exc
    return (text.strip() + "\n").encode("utf-8", "replace")
