"""Web pages as Markdown."""

from bs4 import BeautifulSoup
from markdownify import MarkdownConverter

from bbfs.model.errors import ProtocolViolation

MAX_PAGE = 8 << 20
"""Limit for a page (bytes): rendering takes a good part of a second a MiB, and cannot be interrupted."""
_LEFT_OUT = ("head", "script", "style", "noscript", "template", "iframe", "svg", "canvas", "object", "embed")


def to_markdown(page: bytes, charset: str | None, what: str) -> bytes:
    """Return a page in HTML as Markdown in UTF-8, the same for the same page. Blocks, for long if the page is large.

    charset: from the headers; the page may name its own. Links stay unchanged. Raises ProtocolViolation.
    """
    if b"<" not in page:
        page = b"<p>" + page  # the parser warns of text like a file name or a URL
    try:
        soup = BeautifulSoup(page, "html.parser", from_encoding=charset)
        for element in soup(_LEFT_OUT):
            element.decompose()
        text = MarkdownConverter(heading_style="ATX", bullets="-").convert_soup(soup)
    except (RecursionError, LookupError, ValueError) as exc:
        raise ProtocolViolation(f"{what}: cannot be shown as Markdown: {type(exc).__name__}") from exc
    return (text.strip() + "\n").encode("utf-8", "replace")
