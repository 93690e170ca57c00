"""The pages of a URL source: the pages that its configuration names, and the pages that an llms.txt or a sitemap
names."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from io import StringIO
from itertools import accumulate, islice, takewhile

import trio

from bbfs.model.errors import NotFound, ProtocolViolation
from bbfs.sources.bounded.turns import InTurns
from bbfs.sources.http.client import WebClient
from bbfs.sources.http.responses import shown_url
from bbfs.sources.options import open_regular
from bbfs.sources.url.options import UrlOptions
from bbfs.sources.url.pages import WebPage, may_be_html, page_url, rendering_uri
from bbfs.sources.url.sitemaps import read_sitemap

_LLMS_TXT = 4 << 20
"""Limit for an llms.txt (bytes)."""
_BULLET = re.compile(r"[ \t]*[-*+][ \t]*\[")
_TARGET = re.compile(r"<?([^)\s>]+)>?")
_LONGEST_TITLE, _LONGEST_WORDS = 500, 1000
MAX_TEXT = 32 << 20
"""Characters of the URLs of all pages of a source."""


@dataclass(frozen=True, slots=True)
class Where:
    """The places of pages. llms_txt: URL; llms_path: a file."""

    options: UrlOptions
    llms_txt: str | None
    llms_path: str | None

    @property
    def named(self) -> frozenset[str]:
        """The URLs of the configuration, sitemap included."""
        return frozenset(url for url in (*self.options.urls, self.llms_txt, self.options.sitemap) if url is not None)

    def named_pages(self) -> dict[str, WebPage]:
        """Return the pages that the configuration names."""
        urls = (*self.options.urls, *((self.llms_txt,) if self.llms_txt else ()))
        return {url: WebPage(url, named=True) for url in urls}

    @property
    def is_complete(self) -> bool:
        """Return whether all pages are known without a request."""
        return not (self.llms_txt or self.llms_path or self.options.sitemap)


@dataclass(frozen=True, slots=True)
class Link:
    """One entry of an `llms.txt`. url: as written there, maybe relative."""

    url: str
    title: str | None
    description: str | None


class Search:
    """A search for pages. headers: return the headers of a request for a URL."""

    def __init__(self, where: Where, client: WebClient, headers: Callable[[str], Mapping[str, str]]) -> None:
        self._where = where
        self._client = client
        self._headers = headers
        self._threads = trio.CapacityLimiter(1)

    async def all(self) -> tuple[Mapping[str, WebPage], str | None]:
        """Return all pages by native URI, in the order found, and in words what is missing, or None.

        Raises BbfsError if an llms.txt or a sitemap cannot be loaded.
        """
        where, options = self._where, self._where.options
        pages = where.named_pages()
        problems: list[str] = []
        if where.llms_txt is not None:
            response = await self._client.get(where.llms_txt, headers=self._headers(where.llms_txt), max_body=_LLMS_TXT)
            await self._add_links(pages, problems, response.body, where.llms_txt)
        if where.llms_path is not None:
            # A file system that does not answer must not delay a cancellation, nor take threads from other sources.
            path, alone = where.llms_path, self._threads
            text = await trio.to_thread.run_sync(_file, path, abandon_on_cancel=True, limiter=alone)
            await self._add_links(pages, problems, text, None)
        if options.sitemap is not None:
            await self._add_sitemap(pages, problems, options.sitemap)
        if len(pages) > options.max_urls:
            problems.append(f"more than {options.max_urls} URLs (option max_urls)")
            pages = dict(islice(pages.items(), options.max_urls))
        lengths = accumulate(map(len, pages))
        fitting = sum(1 for _ in takewhile(lambda length: length <= MAX_TEXT, lengths))
        if fitting < len(pages):
            problems.append(f"URLs of more than {MAX_TEXT} characters")
            pages = dict(islice(pages.items(), fitting))
        return await with_renderings(pages) if options.markdown else pages, "; ".join(problems) or None

    async def _add_links(self, pages: dict[str, WebPage], problems: list[str], text: bytes, base: str | None) -> None:
        unusable = 0
        async for line in InTurns(StringIO(text.decode("utf-8", "replace"), "\n")):
            link = link_in(line)
            if link is None:
                continue
            if len(pages) > self._where.options.max_urls:
                break  # which `all` tells
            url = page_url(link.url, base)
            if url is None:
                unusable += 1
            elif url not in pages:
                pages[url] = WebPage(url, False, link.title, link.description)
            elif pages[url].title is None:
                pages[url] = replace(pages[url], title=link.title, description=link.description)
        if unusable:
            problems.append(f"llms.txt: {unusable} links are no web addresses")

    async def _add_sitemap(self, pages: dict[str, WebPage], problems: list[str], sitemap: str) -> None:
        found = await read_sitemap(self._client, sitemap, self._headers, self._where.options.max_urls)
        unusable = 0
        async for entry in InTurns(found.entries):
            url = page_url(entry.url)
            if url is None:
                unusable += 1
            else:
                known = pages.get(url) or WebPage(url, named=False)
                pages[url] = replace(known, modified_ns=entry.modified_ns)
        if unusable:
            problems.append(f"{shown_url(sitemap)}: {unusable} entries are no web addresses")
        problems += found.problems[:3]
        if len(found.problems) > 3:
            problems.append(f"and {len(found.problems) - 3} more")


async def with_renderings(pages: Mapping[str, WebPage]) -> dict[str, WebPage]:
    """Return the pages by URI. The rendering of each page that may be HTML follows it, under an unused URI."""
    taken = set(pages)
    uris: dict[str, str] = {}
    # Sorted: the URI of a rendering must not depend on the order of the listing.
    async for uri in InTurns(sorted(pages)):
        if may_be_html(uri):
            uris[uri] = rendering_uri(uri, taken)
            taken.add(uris[uri])
    found: dict[str, WebPage] = {}
    async for uri, page in InTurns(pages.items()):
        found[uri] = page
        if uri in uris:
            found[uris[uri]] = replace(page, rendering=True)
    return found


def _file(path: str) -> bytes:
    try:
        with open_regular(path) as file:
            text = file.read(_LLMS_TXT + 1)
    except FileNotFoundError as exc:
        raise NotFound(f"{path}: there is no such file") from exc
    except OSError as exc:
        raise ProtocolViolation(f"{path}: {exc.strerror}") from exc
    if len(text) > _LLMS_TXT:
        raise ProtocolViolation(f"{path}: more than {_LLMS_TXT} bytes, which is no llms.txt")
    return text


def link_in(line: str) -> Link | None:
    """Return the entry of an `llms.txt` (llmstxt.org) in a line, `- [title](url): description`, or None."""
    begin = _BULLET.match(line)
    if begin is None:
        return None
    end = line.find("](", begin.end(), begin.end() + _LONGEST_TITLE + 2)
    target = _TARGET.match(line, end + 2) if end != -1 else None
    if target is None or "]" in line[begin.end() : end]:
        return None
    close = line.find(")", target.end(), target.end() + _LONGEST_TITLE + 1)
    if close == -1:
        return None
    rest = line[close + 1 : close + 1 + 2 * _LONGEST_WORDS].strip().removeprefix(":")
    return Link(target[1], _words(line[begin.end() : end]), _words(rest))


def _words(text: str) -> str | None:
    return " ".join(text.split())[:_LONGEST_WORDS] or None
