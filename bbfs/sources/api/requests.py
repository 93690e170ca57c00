"""Requests to an API: with the credentials that the document asks for, and all pages of a list within bounds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import trio

from bbfs.model.errors import (
    BbfsError,
    Busy,
    Conflict,
    NoSpace,
    NotFound,
    NotSupported,
    ProtocolViolation,
    Rejected,
    TooLarge,
)
from bbfs.model.redaction import shown
from bbfs.model.values import Content
from bbfs.sources.api.following import Next, Paging, first_numbers, next_page, without
from bbfs.sources.api.operations import LONGEST_URL, Api, Call, Operation, is_json
from bbfs.sources.api.options import ApiOptions
from bbfs.sources.api.pages import BOUNDS, ListPage, joined, page_of
from bbfs.sources.api.security import Keyring
from bbfs.sources.api.writing.plan import Sending
from bbfs.sources.bounded.received import Received
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.content.spool import Spool, spooled
from bbfs.sources.http.client import WebClient
from bbfs.sources.http.statuses import STATUS_ERRORS, STORED, not_stored, status_line

T = TypeVar("T")
PARSED_AT_ONCE = 32 << 10
"""Bytes of an answer to parse on the event loop (a few ms). A larger one is parsed in a thread, one at a time."""
_TOO_LONG = f"an answer of more than {BOUNDS.size} bytes is not read as a list"
_NOT_MODIFIED = frozenset({304})
_ELSEWHERE = frozenset({301, 302, 303})
"""Redirects that browsers follow with a GET, which would write nothing."""
ERRORS: Mapping[int, type[BbfsError]] = MappingProxyType(
    STATUS_ERRORS
    | {400: Rejected, 405: NotSupported, 409: Conflict, 412: Conflict, 413: TooLarge, 422: Rejected, 423: Busy}
    | {428: Conflict, 507: NoSpace}
)
"""The errors of operations that write, by status."""
_NO_CONDITIONS: Mapping[str, str] = MappingProxyType({})
_COOKIE = "!#$&'()*+-./:<=>?@[]^_`{|}~"
"""Characters allowed in a cookie's value (RFC 6265, section 4.1.1), beside letters and digits."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a call. pages: the pages of a list. truncated: why pages are missing, or None.

    headers: of each page, with names in lower case; one entry if the answer is no list.
    """

    content: Content
    headers: tuple[Mapping[str, str], ...]
    pages: tuple[ListPage, ...] = ()
    truncated: str | None = None


class NotModified(NamedTuple):
    """The content is unchanged. headers: of the answer, with names in lower case."""

    headers: Mapping[str, str]


class ApiRequests:
    """Sends the requests of one source. Keeps nothing of them."""

    def __init__(
        self,
        client: WebClient,
        spool: Callable[[], Spool],
        keyring: Keyring,
        options: ApiOptions,
        limiter: trio.CapacityLimiter,
    ) -> None:
        self._client = client
        self._spool = spool
        self._keyring = keyring
        self._options = options
        self._limiter = limiter
        self._one = trio.CapacityLimiter(1)
        self._large = trio.Lock()

    async def answer(self, api: Api, call: Call) -> Answer:
        """Return the content of a resource; for a list, all pages. Raise BbfsError."""
        found = await self.answer_if_changed(api, call, {})
        assert isinstance(found, Answer)
        return found

    async def page(self, api: Api, call: Call) -> ListPage | None:
        """Return the first page of a list, or None if the answer is no list. Raise BbfsError."""
        async with Received(f"GET {call.operation.path}", 2 * self._options.max_body, self._large) as received:
            _, body = await self._get(api, call.operation, call.url, received)
            if isinstance(body, bytes):
                return await self.parsed(partial(page_of, body, _hint(call)), len(body))
            if body is not None:
                body.close()
            return None

    async def answer_if_changed(self, api: Api, call: Call, conditions: Mapping[str, str]) -> Answer | NotModified:
        """As `answer`, unless the API says that nothing has changed. conditions: headers that make the request
        conditional."""
        async with Received(f"GET {call.operation.path}", 2 * self._options.max_body, self._large) as received:
            headers, body = await self._get(api, call.operation, call.url, received, conditions)
            if body is None:
                return NotModified(headers)
            paging = Paging.of(call.operation.in_query)
            may_go_on = paging.names.isdisjoint(call.asked)
            if not isinstance(body, bytes):
                is_list = may_go_on and is_json(headers.get("content-type")) and (paging.names or "link" in headers)
                return Answer(body, (headers,), truncated=_TOO_LONG if is_list else None)
            told = "link" in headers or b"ext" in body  # of a next page, or nextPage
            first = Answer(MemoryContent(body), (headers,))
            if not may_go_on or not (paging.names or told):
                return first
            return await self._list(api, call, paging, first, body, received)

    async def _list(
        self, api: Api, call: Call, paging: Paging, first: Answer, body: bytes, received: Received
    ) -> Answer:
        """Return an answer with all following pages, if it is a list. body: its text."""
        try:
            page = await self.parsed(partial(page_of, body, _hint(call)), len(body))
        except TooLarge as error:
            return replace(first, truncated=f"{error}, so it is not read as a list")
        if page is None:
            return first
        pages, heads = [page], [*first.headers]
        truncated = await self._follow(api, call, paging, pages, heads, received)
        if len(pages) == 1:
            return Answer(first.content, first.headers, (page,), truncated)
        text = await self.parsed(partial(joined, pages), received.size)
        return Answer(MemoryContent(text), tuple(heads), tuple(pages), truncated)

    async def _follow(
        self,
        api: Api,
        call: Call,
        paging: Paging,
        pages: list[ListPage],
        heads: list[Mapping[str, str]],
        received: Received,
    ) -> str | None:
        """Append all following pages and their headers. Return why some are missing, or None."""
        url, seen = call.url, {call.url}
        first, sure = first_numbers(paging, pages[0])
        secret = frozenset(s.name for s in api.schemes.values() if s.kind == "query")
        while True:
            following = next_page(paging, url, heads[-1], pages, first)
            if len(following.url) > LONGEST_URL:
                return f"the API's next page has a URL of more than {LONGEST_URL} characters"
            going_on, guessed = without(following.url, secret), following.kind == "guessed"
            bound = self._bound(pages, received.size)
            if following.kind == "end":
                return None
            if following.kind == "lost":
                return following.why
            if going_on in seen:
                return "the API's next page is one that was read already"
            if bound is not None:
                return f"{bound}; there {'may be' if guessed else 'is'} more"
            seen.add(going_on)
            got = await self._page(api, call.operation, going_on, following, pages[0].where, received)
            if isinstance(got, str):
                return got or None
            headers, page = got
            if guessed and page.items in ((), pages[-1].items):
                if sure or not page.items:
                    return None  # past the end, or the API ignores the parameter
                sure, first = True, {name: number + 1 for name, number in first.items()}
                continue
            if page == pages[-1]:
                return "the API's next page is the same again"
            url = going_on
            pages.append(page)
            heads.append(headers)

    def _bound(self, pages: Sequence[ListPage], size: int) -> str | None:
        items = sum(len(each.items) for each in pages)
        if len(pages) >= self._options.max_pages:
            return f"{len(pages)} pages with {items} items were read (max_pages)"
        if items >= self._options.max_items:
            return f"{items} items were read (max_items)"
        return f"{size} bytes were read (max_body)" if size >= self._options.max_body else None

    async def _page(
        self, api: Api, operation: Operation, url: str, following: Next, where: tuple[str, ...], received: Received
    ) -> tuple[Mapping[str, str], ListPage] | str:
        """Return the page at a URL, or after a wrong guess the reason: an empty text means the end of the list."""
        try:
            headers, body = await self._get(api, operation, url, received)
        except NotFound:
            if following.kind == "guessed":
                return ""
            raise
        except ProtocolViolation as error:
            if following.kind == "guessed":
                return f"the API refuses the next page: {error}"
            raise
        if not isinstance(body, bytes):
            if body is not None:
                body.close()
            raise ProtocolViolation(f"GET {operation.path}: the next page is no JSON")
        page = await self.parsed(partial(page_of, body, "", where), len(body))
        if page is None:
            raise ProtocolViolation(f"GET {operation.path}: the next page has no array where the first one has")
        return headers, page

    async def _get(
        self,
        api: Api,
        operation: Operation,
        url: str,
        received: Received,
        conditions: Mapping[str, str] = _NO_CONDITIONS,
    ) -> tuple[Mapping[str, str], bytes | Content | None]:
        """Return the headers of an answer, with names in lower case, and its body: bytes for JSON, else a content.

        The body is None if the conditions hold. JSON that is too long for a list is a content as well.
        """
        url, headers = self._with_credentials(api, operation, url)
        accept = _NOT_MODIFIED if conditions else frozenset[int]()
        async with self._client.stream(url, headers={**headers, **conditions}, accept=accept) as stream:
            got = {name.lower(): value for name, value in stream.headers.items()}
            if stream.status in accept:
                return got, None
            held = bytearray()
            if is_json(got.get("content-type")):
                async for piece in stream:
                    await received.take(len(piece))
                    held += piece
                    if len(held) > BOUNDS.size:
                        break
                else:
                    return got, bytes(held)
            return got, await spooled(self._spool, bytes(held), stream, self._limiter)

    async def send(self, api: Api, sending: Sending, url: str, body: bytes, conditions: Mapping[str, str]) -> None:
        """Send an operation that writes, and return once the API says that it is done. Raise BbfsError.

        body: nothing for DELETE. conditions: headers that let the API refuse a conflict. A redirect is followed only if
        it has the method and the body sent again, to the same server.
        """
        operation = sending.operation
        url, headers = self._with_credentials(api, operation, url)
        if body:
            headers["content-type"] = sending.media_type
        what = f"{operation.method} {shown(operation.path)}"
        async with self._client.stream(
            url, operation.method, headers={**headers, **conditions}, content=body, accept=_ELSEWHERE, errors=ERRORS
        ) as stream:
            if stream.status in _ELSEWHERE:
                raise BbfsError(f"{what}: {status_line(stream.status)}: the API leads elsewhere, and may have done it")
            if stream.status not in STORED:
                raise not_stored(stream.status, what)

    def _with_credentials(self, api: Api, operation: Operation, url: str) -> tuple[str, dict[str, str]]:
        """Return the URL and the headers of a request, with the secrets that the document asks for."""
        known = self._keyring.credentials(operation.security, api.schemes)
        headers = {"accept": _accept(operation)}
        for more in (operation.headers, self._options.headers, known.headers):
            headers.update({name.lower(): value for name, value in more.items()})
        if known.cookies:
            cookies = [f"{name}={quote(value, safe=_COOKIE)}" for name, value in known.cookies]
            headers["cookie"] = "; ".join([*([headers["cookie"]] if "cookie" in headers else []), *cookies])
        if known.query:
            pairs = [f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in known.query]
            url += ("&" if "?" in url else "?") + "&".join(pairs)
        return url, headers

    async def parsed(self, work: Callable[[], T], size: int) -> T:
        """Call `work` on so many bytes of text, in a thread if they are many."""
        if size <= PARSED_AT_ONCE:
            return work()
        # Abandoned when cancelled: its end, which its bounds bring about, must not delay that of the daemon.
        return await trio.to_thread.run_sync(work, limiter=self._one, abandon_on_cancel=True)


def _hint(call: Call) -> str:
    """Return the probable key of the items of a list."""
    return call.operation.path.rstrip("/").rpartition("/")[2]


def _accept(operation: Operation) -> str:
    """Return the value of `Accept`: the document's media types, JSON first, then anything (RFC 9110, section
    12.5.1)."""
    return ", ".join([*operation.returns, "*/*;q=0.1"]) if operation.returns else "application/json, */*;q=0.1"
