"""The pages of a URL source and their URIs. Pure."""

import re
from collections.abc import Container
from dataclasses import dataclass

import httpx2

from bbfs.sources.http.redirects import is_web
from bbfs.sources.media_types import mime_type_of_name

LONGEST_URL = 8192
_NO_PATH = re.compile(r"^([a-z]+://[^/?]+)(?=\?|$)")
_HTML = (None, "text/html", "application/xhtml+xml")
MARKDOWN = "text/markdown"


@dataclass(frozen=True, slots=True)
class WebPage:
    """One page. named: the configuration itself names it.

    rendering: the native URI names its rendering as Markdown; `url` names the page.
    """

    url: str
    named: bool
    title: str | None = None
    description: str | None = None
    modified_ns: int | None = None
    rendering: bool = False


def page_url(text: str, base: str | None = None) -> str | None:
    """Return the normalised URL of a page, without a fragment, or None if it is invalid. base: of a relative URL.

    Scheme and host are in lower case, a default port is left out, and invalid characters are encoded.
    """
    if len(text) > LONGEST_URL:
        return None
    try:
        url = httpx2.URL(text) if base is None else httpx2.URL(base).join(text)
        url = url.copy_with(fragment=None)
        if not is_web(url) or url.userinfo:
            return None
        normal = _NO_PATH.sub(r"\1/", str(url))
    except (httpx2.InvalidURL, ValueError, TypeError):
        return None
    return normal if len(normal) <= LONGEST_URL else None


def rendering_uri(uri: str, taken: Container[str]) -> str:
    """Return `…/page.md` for `…/page`, `…/index.html.md` for `…/`, with a number if it is taken."""
    stem = f"{uri}index.html" if uri.endswith("/") else uri
    candidate, number = f"{stem}.md", 1
    while candidate in taken:
        number += 1
        candidate = f"{stem}~{number}.md"
    return candidate


def may_be_html(uri: str) -> bool:
    """Return whether a page may be HTML, judging by its name."""
    return mime_type_of_name(page_name(uri)) in _HTML


def page_name(uri: str) -> str:
    """Return the last non-empty part of the path of a URL, or nothing."""
    parts = [part for part in uri.partition("?")[0].split("/") if part]
    return parts[-1] if len(parts) > 2 else ""


def expected_type(page: WebPage, uri: str) -> str | None:
    """Return the media type of a page that is not loaded, if its file name depends on it (S5)."""
    if page.rendering:
        return MARKDOWN
    return "text/html" if uri.endswith("/") else None
