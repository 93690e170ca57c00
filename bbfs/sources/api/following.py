"""The next page of a list: from the Link header, a cursor or URL in the answer, a page number, or an offset. Pure.

The names of an operation's parameters decide which of them can be followed. What the answer says comes first, guesses
(the next number) last.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urljoin, urlsplit

from bbfs.sources.api.document import url_origin
from bbfs.sources.api.pages import ListPage
from bbfs.sources.api.parameters import Parameter
from bbfs.sources.http.responses import number_in

_CURSOR = frozenset((
    "cursor", "nextcursor", "pagecursor", "startcursor", "pagetoken", "nextpagetoken", "nexttoken", "continuationtoken",
    "continuation", "continue", "marker", "nextmarker", "after", "startingafter", "startafter", "startkey",
    "starttoken", "scrollid", "paginationtoken", "bookmark", "skiptoken",
))  # fmt: skip
_PAGE = frozenset(("page", "pagenumber", "pageno", "pagenum", "pageindex", "currentpage"))
_OFFSET = frozenset(("offset", "skip", "start", "startindex", "startat", "pageoffset"))
_SIZE = frozenset((
    "limit", "perpage", "pagesize", "size", "count", "maxresults", "maxitems", "maxpagesize", "take", "top", "rows",
    "resultsperpage", "itemsperpage", "pagelimit", "first",
))  # fmt: skip
_NEXT = (
    "next", "nextcursor", "nextpagetoken", "nexttoken", "nextpage", "nextlink", "nexturl", "nexthref", "nextpageurl",
    "nextpagelink", "nextmarker", "nextoffset", "nextpagecursor", "continuationtoken", "continuation", "odatanextlink",
    "endcursor", "cursorsafter", "cursor", "bookmark",
)  # fmt: skip
_MAY_BE_THIS_ONE = ("cursor", "bookmark", "continuation")
"""Names that may also stand for the page itself. An empty one says nothing about the next page."""
_AROUND = (
    "links", "meta", "metadata", "paging", "pagination", "pageinfo", "page", "responsemetadata", "cursors", "cursor",
    "info", "data",
)  # fmt: skip
_MORE = ("hasmore", "hasnext", "hasnextpage", "more", "ismore")
_TOTAL = ("total", "totalcount", "totalitems", "totalresults", "totalelements", "totalrecords", "recordcount")
_PAGES = ("totalpages", "pagecount", "lastpage", "pages", "numpages")
_DEEPEST = 3
_MOST_FACTS = 1000
"""Members of one object to look at."""


def plain(name: str) -> str:
    """Return a name without its spelling: `next_page-token`, `nextPageToken` and `@next.page.token` are equal."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


class Paging(NamedTuple):
    """The query parameters of an operation that choose a page."""

    cursors: tuple[Parameter, ...] = ()
    page: Parameter | None = None
    offset: Parameter | None = None
    size: Parameter | None = None

    @classmethod
    def of(cls, query: Sequence[Parameter]) -> "Paging":
        def find(names: frozenset[str]) -> list[Parameter]:
            return [each for each in query if plain(each.name) in names and not each.exploded]

        numbered = [each for each in find(_PAGE | _OFFSET) if each.type in ("integer", "number", None)]
        page = next((each for each in find(_PAGE) if each in numbered), None)
        offset = next((each for each in find(_OFFSET) if each in numbered), None)
        cursors = [*find(_CURSOR), *(each for each in find(_PAGE) if each not in numbered)]
        return cls(tuple(cursors), page, offset, next(iter(find(_SIZE)), None))

    @property
    def names(self) -> frozenset[str]:
        """The parameters that choose a page. If a program gives one of them, bbfs follows no further pages."""
        return frozenset(each.name for each in (*self.cursors, self.page, self.offset, self.size) if each is not None)


@dataclass(frozen=True, slots=True)
class Next:
    """The way to the next page. kind: `given` by the server, `guessed` (the next number), `end`, or `lost`: there is a
    next page, and `why` bbfs cannot ask for it."""

    kind: Literal["given", "guessed", "end", "lost"]
    url: str = ""
    why: str = ""


END = Next("end")


def next_page(
    paging: Paging, url: str, headers: Mapping[str, str], pages: Sequence[ListPage], first: Mapping[str, int]
) -> Next:
    """Return how to continue after the last of `pages`, which came from `url`. first: number of the first page and the
    first offset, by parameter."""
    link = _link(headers.get("link", ""))
    if link is not None:
        return _followed(url, link)
    page = pages[-1]
    said = _Said(page)
    if said.more is False:
        return END
    for name, value in said.next_values():
        if value in (None, "", False, {}):
            if name in _MAY_BE_THIS_ONE:
                continue
            return END
        found = _by_value(paging, url, name, value)
        if found is not None:
            return found
    got = sum(len(each.items) for each in pages)
    if not page.items:
        return END
    total = said.number(_TOTAL)
    if total is None:
        total = number_in(headers.get("x-total-count", headers.get("x-total", "")))
    if total is not None and got >= total:
        return END
    if paging.page is not None:
        last = said.number(_PAGES)
        if said.last is True or (last is not None and len(pages) >= last):
            return END
        return Next("guessed", _with(url, paging.page.name, str(first[paging.page.name] + len(pages))))
    if paging.offset is not None:
        return Next("guessed", _with(url, paging.offset.name, str(first[paging.offset.name] + got)))
    return END


def first_numbers(paging: Paging, page: ListPage) -> tuple[dict[str, int], bool]:
    """Return the number and the offset of the first page by parameter, and whether the number is certain.

    The page itself may have them, or the document a default. Otherwise pages begin with 0 or 1, and only a request can
    tell.
    """
    found: dict[str, int] = {}
    sure = True
    for parameter in (paging.page, paging.offset):
        if parameter is None:
            continue
        said = _Said(page).number((plain(parameter.name),))
        default = parameter.default if isinstance(parameter.default, int) else None
        sure = sure and (parameter is paging.offset or said is not None or default is not None)
        found[parameter.name] = max(0, said if said is not None else default or 0)
    return found, sure


def _by_value(paging: Paging, url: str, name: str, value: Any) -> Next | None:
    """Return how to continue with a value that an answer gives for the next page, or None if it cannot be one."""
    if isinstance(value, dict):
        value = next((value[key] for key in ("href", "url", "cursor", "after") if value.get(key)), None)
    if isinstance(value, str) and re.match(r"https?://|/|\?", value):
        found = _followed(url, value)
        is_same = urlsplit(found.url).path == urlsplit(url).path
        return found if paging.names or is_same else None
    if isinstance(value, bool) or not isinstance(value, str | int) or not paging.names:
        return None
    if isinstance(value, int) or value.isdigit():
        numbered = paging.offset if "offset" in name else paging.page
        if numbered is not None and not (paging.cursors and "cursor" in name):
            return Next("given", _with(url, numbered.name, str(value)))
    cursors = {plain(each.name): each for each in paging.cursors}
    chosen = (
        cursors.get(name)
        or cursors.get(name.removeprefix("next").removeprefix("cursors"))
        or next(iter(paging.cursors), None)
    )
    if chosen is not None:
        return Next("given", _with(url, chosen.name, str(value)))
    if paging.page is not None or paging.offset is not None:
        return None
    return Next("lost", why="the document names no parameter for the API's cursor")


def _followed(url: str, link: str) -> Next:
    """Follow a link of the server to the same origin only. A plain http link is followed over https if the API uses
    https."""
    try:
        asked, there = urlsplit(url), urlsplit(urljoin(url, link))
        if there.scheme == "http" and asked.scheme == "https" and there.port in (None, 80):
            there = there._replace(scheme="https", netloc=there.netloc.removesuffix(":80"))
        same = url_origin(asked) == url_origin(there)
    except ValueError:
        return Next("lost", why="the API's link to the next page is no URL")
    if not same or there.username is not None:
        return Next("lost", why="the API's next page is at another server")
    return Next("given", there._replace(fragment="").geturl())


def _with(url: str, name: str, value: str) -> str:
    """Return a URL with one query parameter set."""
    base, _, query = url.partition("?")
    pairs = [pair for pair in query.split("&") if pair and unquote(pair.partition("=")[0]) != name]
    return f"{base}?" + "&".join([*pairs, quote(name, safe="") + "=" + quote(value, safe="")])


def without(url: str, names: frozenset[str]) -> str:
    """Return a URL without these query parameters. They are secrets that the server may have echoed."""
    if not names or not any(name in names for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)):
        return url
    base, _, query = url.partition("?")
    kept = [pair for pair in query.split("&") if unquote(pair.partition("=")[0]) not in names]
    return f"{base}?{'&'.join(kept)}" if kept else base


def _link(header: str) -> str | None:
    """Return the target of `rel=next` (RFC 8288), or None."""
    for target, parameters in re.findall(
        r"<([^<>]*)>((?:\s*;\s*[^\s;,=]+(?:\s*=\s*(?:\"[^\"]*\"|[^\s;,\"]+))?)*)", header
    ):
        for quoted, bare in re.findall(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^\s;,\"]+))", parameters, re.IGNORECASE):
            if "next" in (quoted or bare).lower().split():
                return target
    return None


class _Said:
    """The statements of a page about paging, without its items."""

    def __init__(self, page: ListPage) -> None:
        self._page = page
        self._facts = list(self._walk(page.around, "", 0))
        self.more = next((v for n, v in self._facts if n in _MORE and isinstance(v, bool)), None)
        self.last = next((v for n, v in self._facts if n == "last" and isinstance(v, bool)), None)

    def _walk(self, value: Any, within: str, depth: int) -> Iterator[tuple[str, Any]]:
        if not isinstance(value, dict) or depth >= _DEEPEST:
            return
        inner: list[tuple[str, Any]] = []
        for key, below in islice(value.items(), _MOST_FACTS):
            name = plain(key)
            # Elsewhere `after` may be anything, such as a date.
            yield "cursorsafter" if name == "after" and within in ("cursors", "cursor", "paging") else name, below
            if name in _AROUND and isinstance(below, dict):
                inner.append((name, below))
        for name, below in inner:
            yield from self._walk(below, name, depth + 1)

    def next_values(self) -> Iterator[tuple[str, Any]]:
        for wanted in _NEXT:
            for name, value in self._facts:
                if name == wanted:
                    yield name, value

    def number(self, names: Sequence[str]) -> int | None:
        """Return the first of these statements that is a number."""
        for wanted in names:
            for name, value in self._facts:
                if name == wanted and isinstance(value, int) and not isinstance(value, bool):
                    return value
        return None
