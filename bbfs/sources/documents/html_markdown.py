"""Web pages as Markdown: a job of worker processes, since both libraries take what time and memory a page wants."""

from collections.abc import Mapping
from typing import Any

from bs4 import BeautifulSoup
from markdownify import MarkdownConverter

from bbfs.model.errors import ProtocolViolation

_LEFT_OUT = ("head", "script", "style", "noscript", "template", "iframe", "svg", "canvas", "object", "embed")


def job(page: bytes, options: Mapping[str, Any]) -> bytes:
    """Return a page in HTML as Markdown in UTF-8, the same for the same page. Links stay unchanged.

    options: `charset` from the headers, if any; the page may name its own. Raises ProtocolViolation.
    """
    if b"<" not in page:
        page = b"<p>" + page  # the parser warns of text like a file name or a URL
    try:
        soup = BeautifulSoup(page, "html.parser", from_encoding=options.get("charset"))
        for element in soup(_LEFT_OUT):
            element.decompose()
        text = MarkdownConverter(heading_style="ATX", bullets="-").convert_soup(soup)
    except (RecursionError, LookupError, ValueError) as exc:
        raise ProtocolViolation(f"cannot be shown as Markdown: {type(exc).__name__}") from exc
    return (text.strip() + "\n").encode("utf-8", "replace")
