"""Amazon S3 and those that speak its protocol, over HTTP and nothing else.

A listing is asked for page by page and ends within bounds, a cancelled request closes its connection, and every key
that a server may have can be listed and read: those with empty names, `.` and `..` included. So requests are made here,
by the published API, and not by a library that takes keys for paths.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import httpx2
import trio

from bbfs.model.errors import (
    BbfsError,
    Busy,
    ConfigError,
    DeadlineExceeded,
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
from bbfs.sources.content.ranges import BLOCK, Blocks, RangedContent
from bbfs.sources.storage.addresses import Names, shown
from bbfs.sources.storage.backend import Item, Listed, Opened
from bbfs.sources.storage.options import Configured
from bbfs.sources.storage.s3.answers import Facts, ListedObject, error_of, facts_of, page_of
from bbfs.sources.storage.s3.signing import Credentials, authorization, encoded_path, encoded_query, signing_headers

_LARGEST_PAGE = 32 << 20
"""Bytes of one page of a listing at most: a thousand keys of 1024 bytes, each byte written as three, are far fewer."""
_LARGEST_ERROR = 1 << 16
_EMPTY_PAGES = 10
_ATTEMPTS = 4
_LONGEST_KEY = 1024  # bytes, "Creating object key names" of the Amazon S3 user guide
_NO_QUERY: Mapping[str, str] = MappingProxyType({})


class S3Backend:
    """One bucket, from one prefix on."""

    def __init__(self, configured: Configured) -> None:
        options, auth, source = configured.options, configured.auth, configured.source
        if (auth.access_key is None) != (auth.secret_key is None):
            raise ConfigError(f"sources[{source.id}].auth: access_key and secret_key belong together")
        self._credentials = None
        if auth.access_key is not None:
            self._credentials = Credentials(auth.access_key, auth.secret_key, auth.session_token)
        bucket = configured.place.authority
        self._region = options.region
        self._payer = options.requester_pays
        in_path = options.path_style
        if in_path is None:
            in_path = options.endpoint is not None or "." in bucket
        endpoint = options.endpoint or f"https://s3.{options.region}.amazonaws.com"
        scheme, _, rest = endpoint.partition("://")
        host, slash, above = rest.rstrip("/").partition("/")
        self._base = f"{scheme}://{host}" if in_path else f"{scheme}://{bucket}.{host}"
        self._root = f"{slash}{above}/{bucket}" if in_path else f"{slash}{above}"
        self._prefix = configured.place.prefix
        self._place = configured.place
        self._max_memory = configured.common.max_memory
        self._list_limit = configured.common.list_limit
        self._timeout = source.policy.timeout
        self._blocks = Blocks()
        self._client = httpx2.AsyncClient(
            timeout=self._timeout,
            follow_redirects=False,
            limits=httpx2.Limits(max_connections=source.policy.concurrency + 4, max_keepalive_connections=8),
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    # -- what there is -----------------------------------------------------------------------------------------------

    async def list(self, path: Names) -> Listed:
        """The objects and prefixes below a directory, and the object that has its name."""
        failures: list[BbfsError] = []
        own: list[Item] = []
        found: list[Listed] = []

        async def look() -> None:
            # An object beside others that it is a prefix of is the content of their directory.
            try:
                own.append(await self._stat_object(path))
            except (NotFound, Denied):
                pass  # none; to tell that, a server wants the right to list, which is asked for beside this
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
        return Listed((*own, *listed.items), listed.problem)

    async def _pages(self, path: Names) -> Listed:
        prefix = self._directory_key(path)
        items: dict[Names, Item] = {}
        marker: list[Item] = []
        is_there = False
        token, seen, idle = None, set[str](), 0
        while True:
            query = {"list-type": "2", "delimiter": "/", "prefix": prefix, "encoding-type": "url"}
            if token is not None:
                query["continuation-token"] = token
            page = page_of(await self._body("GET", "", query, self._what(path)))
            before = len(items)
            for each in page.objects:
                name, slash, _ = each.key.removeprefix(prefix).partition("/")
                item = Item((*path, name), "directory") if slash else self._item(each, (*path, name))
                if each.key == prefix:
                    is_there = True
                    marker = [item] if item.size else []  # an empty one only says that there is a directory
                elif each.key.startswith(prefix):
                    items.setdefault(item.path, item)
            for directory in page.prefixes:
                if directory.startswith(prefix) and directory.endswith("/"):
                    below = (*path, directory[len(prefix) : -1])
                    items[below] = Item(below, "directory")
            token = page.token
            idle = idle + 1 if len(items) == before else 0
            problem = None
            if token is not None and (token in seen or idle >= _EMPTY_PAGES):
                problem = f"{self._what(path)}: the listing goes on without bringing more"
            elif token is not None and len(items) >= self._list_limit:
                problem = f"{self._what(path)}: only the first {len(items)} names are listed (list_limit)"
            if token is None or problem is not None:
                if path and not items and not is_there and problem is None:
                    raise NotFound(self._what(path))
                return Listed((*marker, *items.values()), problem)
            seen.add(token)

    @staticmethod
    def _item(listed: ListedObject, path: Names) -> Item:
        properties = {"storage_class": listed.storage_class} if listed.storage_class else None
        return Item(path, "resource", listed.size, listed.modified_ns, listed.etag, properties=properties)

    async def stat(self, path: Names, *, is_directory: bool) -> Item:
        if not is_directory:
            return await self._stat_object(path)
        if not path:
            return Item(path, "directory")
        query = {"list-type": "2", "prefix": self._directory_key(path), "max-keys": "1"}
        page = page_of(await self._body("GET", "", query, self._what(path)))
        if not page.objects and not page.prefixes:
            raise NotFound(self._what(path))
        return Item(path, "directory")

    async def _stat_object(self, path: Names) -> Item:
        key = self._object_key(path)
        async with self._answer("HEAD", key, _NO_QUERY, {}) as response:
            if response.status_code != 200:
                raise error_of(response.status_code, response.headers, b"", self._what(path))
            return _described(path, facts_of(response.status_code, response.headers))

    # -- contents ----------------------------------------------------------------------------------------------------

    async def open(self, path: Names) -> Opened:
        """The whole of a small object with one request or two, of a large one the beginning."""
        key, what = self._object_key(path), self._what(path)
        for _ in range(_ATTEMPTS):
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
        raise Busy(f"{what}: was replaced while it was read, {_ATTEMPTS} times in a row")

    def _ranged(self, key: str, what: str, size: int, pin: str, first: bytes) -> RangedContent:
        async def fetch(offset: int, length: int) -> bytes:
            _, data = await self._part(key, what, offset, length, pin=pin, size=size)
            return data

        return RangedContent(fetch, size, pin, what, self._timeout, self._blocks, first)

    async def _part(
        self, key: str, what: str, offset: int, length: int, *, pin: str | None = None, size: int | None = None
    ) -> tuple[Facts, bytes]:
        """Bytes of an object, fewer at its end. pin, size: the version that they must be of."""
        headers = {"range": f"bytes={offset}-{offset + length - 1}"}
        if pin is not None and not pin.startswith("W/"):  # a weak one matches nothing (RFC 9110, section 13.1.1)
            headers["if-match"] = f'"{pin}"'
        async with self._answer("GET", key, _NO_QUERY, headers) as response:
            status = response.status_code
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
        """No range can be asked for of an object without a byte."""
        async with self._answer("GET", key, _NO_QUERY, {}) as response:
            data = await _read(response, self._max_memory, what)
            if response.status_code != 200:
                raise error_of(response.status_code, response.headers, data, what)
            facts = facts_of(response.status_code, response.headers)
            if len(data) != facts.size:
                raise Unreachable(f"{what}: the answer ended after {len(data)} of {facts.size} bytes")
            return facts, data

    # -- requests ----------------------------------------------------------------------------------------------------

    async def _body(self, method: str, key: str, query: Mapping[str, str], what: str) -> bytes:
        async with self._answer(method, key, query, {}) as response:
            body = await _read(response, _LARGEST_PAGE, what)
            if response.status_code != 200:
                raise error_of(response.status_code, response.headers, body, what)
            return body

    def _answer(self, method: str, key: str, query: Mapping[str, str], headers: Mapping[str, str]) -> "_Answer":
        path = f"{self._root}/{key}"
        if self._payer:
            headers = {**headers, "x-amz-request-payer": "requester"}
        # A path with `..` would be resolved on its way; written like this it is not, and is signed as what it means.
        sent = "/".join(
            name.replace(".", "%2E") if name in (".", "..") else name for name in encoded_path(path).split("/")
        )
        text = f"{self._base}{sent}" + (f"?{encoded_query(query)}" if query else "")
        url = httpx2.URL(text)
        sending = {**headers, "accept-encoding": "identity"}
        if self._credentials is not None:
            covered = signing_headers(self._credentials, url.netloc.decode(), datetime.now(UTC))
            if self._payer:
                covered["x-amz-request-payer"] = "requester"
            token = authorization(self._credentials, self._region, method, path, query, covered)
            sending |= {**covered, "authorization": token}
        return _Answer(self._client, self._client.build_request(method, url, headers=sending))

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

    def _what(self, path: Names) -> str:
        return shown(self._place.native_uri((*self._place.above, *path)))


class _Answer:
    """An answer under way: the status and headers are there, the body is to be read."""

    def __init__(self, client: httpx2.AsyncClient, request: httpx2.Request) -> None:
        self._client = client
        self._request = request
        self._response: httpx2.Response | None = None

    async def __aenter__(self) -> httpx2.Response:
        try:
            self._response = await self._client.send(self._request, stream=True)
        except httpx2.HTTPError as error:
            raise _fault(error) from None
        return self._response

    async def __aexit__(self, *_: object) -> None:
        assert self._response is not None
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            await self._response.aclose()


async def _read(response: httpx2.Response, limit: int, what: str) -> bytes:
    """The body as it was sent. Raises TooLarge beyond `limit` bytes."""
    pieces: list[bytes] = []
    got = 0
    try:
        async for piece in response.aiter_raw():
            got += len(piece)
            if got > limit:
                raise ProtocolViolation(f"{what}: the answer is longer than {limit} bytes")
            pieces.append(piece)
    except httpx2.HTTPError as error:
        raise _fault(error) from None
    return b"".join(pieces)


def _fault(error: httpx2.HTTPError) -> BbfsError:
    if isinstance(error, httpx2.TimeoutException):
        return DeadlineExceeded("the server did not answer in time")
    if isinstance(error, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol):
        return ProtocolViolation(f"the request could not be sent: {type(error).__name__}")
    return Unreachable(f"the server cannot be reached: {type(error).__name__}")


def _described(path: Names, facts: Facts) -> Item:
    return Item(path, "resource", facts.size, facts.modified_ns, facts.etag, facts.mime_type, facts.properties or None)
