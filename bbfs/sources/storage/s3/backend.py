"""Amazon S3 and servers that speak its protocol, over HTTP.

A listing comes page by page within bounds, a cancelled request closes its connection, and every key can be listed and
read, also one with empty names, `.` or `..`. So requests are made here, by the published API: libraries take keys for
paths.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from urllib.parse import quote, urlencode, urlsplit

import trio

from bbfs.model.errors import (
    BbfsError,
    Busy,
    Denied,
    IsADirectory,
    NotADirectory,
    NotFound,
    Outdated,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.content.ranges import BLOCK, LARGEST, RangedContent
from bbfs.sources.http.client import WebClient
from bbfs.sources.http.responses import WebStream
from bbfs.sources.storage.addresses import Names
from bbfs.sources.storage.backend import A_TURN, ATTEMPTS, ListedItems, Opened, RemoteBackend, StoredItem
from bbfs.sources.storage.options import Configured
from bbfs.sources.storage.s3.answers import Facts, ListedObject, error_of, facts_of, page_of
from bbfs.sources.storage.s3.signing import Account, Accounts

_LARGEST_PAGE = 4 << 20
"""Limit on the bytes of one page of a listing: a thousand keys of 1024 bytes, each encoded as three, are fewer."""
_LARGEST_ERROR = 1 << 16
_EMPTY_PAGES, _MAX_PAGES = 10, 10_000
_LONGEST_KEY = 1024  # bytes, "Creating object key names" of the Amazon S3 user guide
_ANY = frozenset(range(300, 600))
"""Statuses that the backend handles: the body of S3 says what they mean, and a redirect needs another signature."""
_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")
_NO_QUERY: Mapping[str, str] = MappingProxyType({})


class S3Backend(RemoteBackend):
    """One bucket, from one prefix on."""

    def __init__(self, configured: Configured) -> None:
        super().__init__(configured)
        self._accounts = Accounts(configured)
        self._client: WebClient | None = None

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    # -- what there is -----------------------------------------------------------------------------------------------

    async def list(self, path: Names) -> ListedItems:
        """Return the objects and prefixes below a directory, and the object that has its name."""
        failures: list[BbfsError] = []
        own: list[StoredItem] = []
        found: list[ListedItems] = []

        async def look() -> None:
            # An object whose key is the prefix of others is the content of their directory.
            try:
                own.append(await self._stat_object(path))
            except (NotFound, Denied):
                pass  # none; a server says so only to those who may list, which the other request finds out
            except BbfsError as error:
                failures.append(error)

        async def pages() -> None:
            try:
                found.append(await self._pages(path))
            except BbfsError as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            if self._key(path):
                nursery.start_soon(look)
            nursery.start_soon(pages)
        if failures and own and isinstance(failures[0], NotFound):
            raise NotADirectory(self._what(path))
        if failures:
            raise failures[0]
        listed = found[0]
        return ListedItems((*own, *listed.items), listed.problem)

    async def _pages(self, path: Names) -> ListedItems:
        prefix = self._directory_key(path)
        found, marker, is_there = self._collected(path), list[StoredItem](), False
        token, seen, idle = None, set[str](), 0
        while True:
            query = {"list-type": "2", "delimiter": "/", "prefix": prefix, "encoding-type": "url"}
            if token is not None:
                query["continuation-token"] = token
            page = await page_of(await self._body("GET", "", query, self._what(path)))
            before = len(found)
            for number, each in enumerate(page.objects, 1):
                if each.key == prefix:
                    is_there = True
                    marker = [self._item(each, (*path, ""))] if each.size else []  # an empty one marks a directory
                elif (name := self._name_below(prefix, each.key)) is not None:
                    is_below = "/" in each.key[len(prefix) :]
                    item = StoredItem((*path, name), "directory") if is_below else self._item(each, (*path, name))
                    found.add(item)
                if number % A_TURN == 0:
                    await trio.lowlevel.checkpoint()
            for number, directory in enumerate(page.prefixes, 1):
                name = self._name_below(prefix, directory)
                if name is not None and directory.endswith("/"):
                    found.add(StoredItem((*path, name), "directory"))
                if number % A_TURN == 0:
                    await trio.lowlevel.checkpoint()
            token = page.token
            idle = idle + 1 if len(found) == before else 0
            if token is not None and found.problem is None:
                if found.is_full:
                    found.cut("list_limit")
                elif token in seen or idle >= _EMPTY_PAGES or len(seen) >= _MAX_PAGES:
                    found.problem = f"{self._what(path)}: the listing goes on without bringing more"
            if token is None or found.problem is not None:
                if path and not found and not is_there and found.problem is None:
                    raise NotFound(self._what(path))
                return ListedItems((*marker, *found.items), found.problem)
            seen.add(token)

    @staticmethod
    def _name_below(prefix: str, key: str) -> str | None:
        """Return the name of a key, or of a directory above it, below a prefix; None if it is elsewhere or too long."""
        if not key.startswith(prefix) or len(key) > _LONGEST_KEY:
            return None
        return key[len(prefix) :].partition("/")[0]

    @staticmethod
    def _item(listed: ListedObject, path: Names) -> StoredItem:
        properties = {"storage_class": listed.storage_class} if listed.storage_class else None
        return StoredItem(path, "resource", listed.size, listed.modified_ns, listed.etag, properties=properties)

    async def stat(self, path: Names, *, is_directory: bool) -> StoredItem:
        if not is_directory:
            return await self._stat_object(path)
        if not path:
            return StoredItem(path, "directory")
        query = {"list-type": "2", "prefix": self._directory_key(path), "max-keys": "1"}
        page = await page_of(await self._body("GET", "", query, self._what(path)))
        if not page.objects and not page.prefixes:
            raise NotFound(self._what(path))
        return StoredItem(path, "directory")

    async def _stat_object(self, path: Names) -> StoredItem:
        key = self._object_key(path)
        async with self._answer("HEAD", key, _NO_QUERY, {}) as response:
            await _read(response, LARGEST, self._what(path))  # empty; then the connection can be used again
            if response.status != 200:
                raise error_of(response.status, response.headers, b"", self._what(path))
            return _described(path, facts_of(response.status, response.headers))

    # -- contents ----------------------------------------------------------------------------------------------------

    async def open(self, path: Names) -> Opened:
        """Read a small object whole, with one request or two, of a large one the beginning."""
        key, what = self._object_key(path), self._what(path)
        for _ in range(ATTEMPTS):
            facts, data = await self._part(key, what, 0, min(BLOCK, self._max_memory))
            item = _described(path, facts)
            if len(data) == facts.size:
                return Opened(MemoryContent(data), item)
            pin = facts.etag
            if pin is None:
                raise ProtocolViolation(f"{what}: has no ETag to be read in ranges by")
            if facts.size > self._max_memory:
                return Opened(self._ranged(key, what, facts.size, pin, data), item)
            try:
                _, rest = await self._part(key, what, len(data), facts.size - len(data), pin=pin, size=facts.size)
            except Outdated:
                continue
            return Opened(MemoryContent(data + rest), item)
        raise Busy(f"{what}: was replaced while it was read, {ATTEMPTS} times in a row")

    def _ranged(self, key: str, what: str, size: int, pin: str, first: bytes) -> RangedContent:
        async def fetch(offset: int, length: int) -> bytes:
            _, data = await self._part(key, what, offset, length, pin=pin, size=size)
            return data

        return RangedContent(fetch, size, pin, what, self._timeout, self._blocks, first)

    async def _part(
        self, key: str, what: str, offset: int, length: int, *, pin: str | None = None, size: int | None = None
    ) -> tuple[Facts, bytes]:
        """Return bytes of an object, fewer at its end. pin, size: the version that they must belong to."""
        headers = {"range": f"bytes={offset}-{offset + length - 1}"}
        if pin is not None and not pin.startswith("W/"):  # a weak one matches nothing (RFC 9110, section 13.1.1)
            headers["if-match"] = f'"{pin}"'
        async with self._answer("GET", key, _NO_QUERY, headers) as response:
            status = response.status
            if status not in (200, 206, 416):
                body = await _read(response, _LARGEST_ERROR, what)
                raise error_of(status, response.headers, body, what)
            if status != 416:
                facts = facts_of(status, response.headers)
                if (pin is not None and facts.etag != pin) or (size is not None and facts.size != size):
                    raise Outdated(f"{what}: was replaced while it was open")
                begins = response.headers.get("content-range", "bytes 0-").partition("-")[0]
                if begins != f"bytes {offset if status == 206 else 0}" or (status == 200 and offset):
                    raise ProtocolViolation(f"{what}: other bytes came than were asked for")
                if status == 200 and facts.size > max(length, self._max_memory):
                    raise TooLarge(f"{what}: larger than max_memory, and the server gives no ranges")
                expected = facts.size if status == 200 else min(length, facts.size - offset)
                data = await _read(response, expected, what)
                if len(data) != expected:
                    raise Unreachable(f"{what}: the answer ended after {len(data)} of {expected} bytes")
                return facts, data
        if offset or pin is not None:
            raise Outdated(f"{what}: became shorter while it was open")
        return await self._empty(key, what)

    async def _empty(self, key: str, what: str) -> tuple[Facts, bytes]:
        """Read an object without a byte, of which no range can be asked for."""
        async with self._answer("GET", key, _NO_QUERY, {}) as response:
            data = await _read(response, self._max_memory, what)
            if response.status != 200:
                raise error_of(response.status, response.headers, data, what)
            facts = facts_of(response.status, response.headers)
            if len(data) != facts.size:
                raise Unreachable(f"{what}: the answer ended after {len(data)} of {facts.size} bytes")
            return facts, data

    # -- requests ----------------------------------------------------------------------------------------------------

    async def _body(self, method: str, key: str, query: Mapping[str, str], what: str) -> bytes:
        async with self._answer(method, key, query, {}) as response:
            body = await _read(response, _LARGEST_PAGE, what)
            if response.status != 200:
                raise error_of(response.status, response.headers, body, what)
            return body

    @asynccontextmanager
    async def _answer(
        self, method: str, key: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> AsyncGenerator[WebStream]:
        account = await self._accounts.current()
        if self._client is None:
            self._client = WebClient(self._configured.source, allow_private=True, proxy=account.proxy)
        base, root = self._address(account)
        path = quote(f"{root}/{key}", errors="surrogateescape")
        asked = f"?{urlencode(sorted(query.items()), quote_via=quote, errors='surrogateescape')}" if query else ""
        if self._configured.options.requester_pays:
            headers = {**headers, "x-amz-request-payer": "requester"}
        signed = account.signed(method, f"{base}{path}{asked}", headers)
        # A client or proxy may resolve `..` in a path. Encoded it stays; the signature covers the decoded path.
        sent = "/".join(name.replace(".", "%2E") if name in (".", "..") else name for name in path.split("/"))
        sending = {**signed, "accept-encoding": "identity"}
        async with self._client.stream(f"{base}{sent}{asked}", method=method, headers=sending, accept=_ANY) as stream:
            stream.is_decoded = False
            yield stream

    def _address(self, account: Account) -> tuple[str, str]:
        """Return the scheme and host of the bucket's URL, and the beginning of its paths."""
        bucket, options = self._place.authority, self._configured.options
        url = urlsplit(account.endpoint)
        in_path = options.path_style
        if in_path is None:
            is_amazon = options.endpoint is None and url.netloc.endswith(_AMAZON)
            in_path = not is_amazon or "." in bucket
        above = url.path.rstrip("/")
        if in_path:
            return f"{url.scheme}://{url.netloc}", f"{above}/{bucket}"
        return f"{url.scheme}://{bucket}.{url.netloc}", above

    # -- names -------------------------------------------------------------------------------------------------------

    def _key(self, path: Names) -> str:
        return "/".join((*self._prefix, *path))

    def _directory_key(self, path: Names) -> str:
        names = (*self._prefix, *path)
        return "/".join(names) + "/" if names else ""

    def _object_key(self, path: Names) -> str:
        key = self._key(path)
        if not key:
            raise IsADirectory(f"{self._what(path)}: is a bucket")
        if len(key.encode("utf-8", "surrogateescape")) > _LONGEST_KEY:
            raise NotFound(f"{self._what(path)}: longer than a key can be")
        return key


async def _read(stream: WebStream, limit: int, what: str) -> bytes:
    """Return the body as it was sent. Raises ProtocolViolation beyond `limit` bytes."""
    stream.limit = limit
    try:
        return await stream.read()
    except TooLarge:
        raise ProtocolViolation(f"{what}: the answer is longer than {limit} bytes") from None


def _described(path: Names, facts: Facts) -> StoredItem:
    return StoredItem(
        path, "resource", facts.size, facts.modified_ns, facts.etag, facts.mime_type, facts.properties or None
    )
