"""Amazon S3 and servers that speak its protocol, over HTTP.

A listing comes page by page within bounds, a cancelled request closes its connection, and every key can be listed and
read, also one with empty names, `.` or `..`. So requests are made here, by the published API. obstore 0.12, by which
bbfs reaches Google and Azure, keeps none of that: one key `a//b` or `x/..` fails the listing of its directory, a PUT
that is answered 202 counts as stored, and its caller can neither bound nor end a listing (480 MiB of one answer in 3 s,
10 000 pages in 5 s).
"""

import dataclasses
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import MappingProxyType
from urllib.parse import quote, urlencode, urlsplit

import trio
from cachetools import LRUCache

from bbfs.model.errors import (
    BbfsError,
    Conflict,
    CrossesSources,
    Denied,
    Exists,
    IsADirectory,
    NotADirectory,
    NotFound,
    ProtocolViolation,
)
from bbfs.model.values import Content, WriteOperation
from bbfs.model.versions import Expected
from bbfs.sources.bounded.turns import InTurns
from bbfs.sources.content.ranges import LARGEST
from bbfs.sources.http.client import WebClient
from bbfs.sources.http.headers import modified_ns
from bbfs.sources.http.responses import WebStream
from bbfs.sources.http.statuses import STORED, not_stored
from bbfs.sources.storage.addresses import Names
from bbfs.sources.storage.backend import ListedItems, StoredItem
from bbfs.sources.storage.options import Configured
from bbfs.sources.storage.s3.answers import (
    Page,
    error_of,
    etag_of_upload,
    facts_of,
    page_of,
    parts_document,
    region_of,
    require_no_document,
    upload_of,
)
from bbfs.sources.storage.s3.signing import Account, Accounts
from bbfs.sources.storage.web_objects import (
    ANY,
    Facts,
    WebBackend,
    beginning,
    conditions,
    gone_is_conflict,
    stated,
    strong_etag,
    whole,
)

_LARGEST_PAGE = 4 << 20
"""Limit on the bytes of one page of a listing: a thousand keys of 1024 bytes, each encoded as three, are fewer."""
_LARGEST_COPY = 5 << 30  # bytes, CopyObject of the Amazon S3 API reference
_EMPTY_PAGES, _MAX_PAGES = 10, 10_000
_LONGEST_KEY = 1024  # bytes, "Creating object key names" of the Amazon S3 user guide
_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")
_UNSIGNED = "no credentials were found for it, in auth, the environment, a profile or a service of this machine"
_NO_QUERY: Mapping[str, str] = MappingProxyType({})


PART = 16 << 20
"""Bytes of an object that is sent at once, and of each part of a larger one, as far as `MOST_PARTS` are enough."""
MOST_PARTS = 10_000
AT_ONCE = 64 << 20
"""Bytes of parts that are sent at the same time, at least one part."""
_KEPT = ("cache-control", "content-disposition", "content-language", "expires")
"""Headers of an object that one which replaces it keeps. Not the encoding: it says what the old bytes were."""
_DESCRIBED = 64
"""Objects whose headers are kept from the comparison before a write to the write."""
_OF_NONE = '"of-no-object"'
"""An ETag that no object has."""
_NOT_AS_ANOTHER = (400, 403, 412, 501)
"""Statuses of a store that does not remove an object by that ETag. All but 412 refuse the condition."""


class S3Backend(WebBackend):
    """One bucket, from one prefix on."""

    detects_existing = True

    def __init__(self, configured: Configured) -> None:
        super().__init__(configured)
        self._accounts = Accounts(configured)
        self._described: LRUCache[Names, StoredItem] = LRUCache(_DESCRIBED)
        self._removes_by_etag: bool | None = None
        """True if the store refuses to remove another version (If-Match of a DELETE); None until that is known."""

    # -- what there is -----------------------------------------------------------------------------------------------

    async def list(self, path: Names) -> ListedItems:
        """Return the objects and prefixes below a directory, and the object that has its name."""
        failures: list[BbfsError] = []
        own: list[StoredItem] = []
        listed = ListedItems(())

        async def look() -> None:
            # An object whose key is the prefix of others is the content of their directory.
            try:
                own.append(await self._stat_object(path))
            except (NotFound, Denied):
                pass  # none; a server says so only to those who may list, which the other request finds out
            except BbfsError as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            if self._key(path):
                nursery.start_soon(look)
            try:
                listed = await self._pages(path)
            except BbfsError as error:
                failures.append(error)
        if failures and own and isinstance(failures[0], NotFound):
            raise NotADirectory(self._what(path))
        if failures:
            raise failures[0]
        return ListedItems((*own, *listed.items), listed.problem)

    async def _pages(self, path: Names) -> ListedItems:
        prefix = self._directory_key(path)
        found, marker, is_there = self._collected(path), list[StoredItem](), False
        token, seen, idle = None, set[str](), 0
        while True:
            query = {"list-type": "2", "delimiter": "/", "prefix": prefix, "encoding-type": "url"}
            if token is not None:
                query["continuation-token"] = token
            page = await self._page(query, self._what(path))
            before = len(found)
            async for key, each in InTurns(page.objects):
                if key == prefix:
                    is_there = True
                    marker = [dataclasses.replace(each, path=(*path, ""))] if each.size else []  # else of a directory
                elif (name := self._name_below(prefix, key)) is not None:
                    is_below = "/" in key[len(prefix) :]
                    item = StoredItem((), "directory") if is_below else each
                    found.add(dataclasses.replace(item, path=(*path, name)))
            async for directory in InTurns(page.prefixes):
                name = self._name_below(prefix, directory)
                if name is not None and directory.endswith("/"):
                    found.add(StoredItem((*path, name), "directory"))
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

    async def stat(self, path: Names, *, is_directory: bool) -> StoredItem:
        if not is_directory:
            return await self._stat_object(path)
        if not path:
            return StoredItem(path, "directory")
        query = {"list-type": "2", "prefix": self._directory_key(path), "max-keys": "1"}
        page = await self._page(query, self._what(path))
        if not page.objects and not page.prefixes:
            raise NotFound(self._what(path))
        return StoredItem(path, "directory")

    async def _stat_object(self, path: Names) -> StoredItem:
        async with self._asked("HEAD", path, {}) as response:
            response.limit = LARGEST  # of another body than this one, which is empty
            await response.read()  # then the connection can be used again
            if response.status != 200:
                raise self._error(response, b"", self._what(path))
            self._described[path] = found = self._facts(response).item(path)
            return found

    # -- writing -----------------------------------------------------------------------------------------------------

    def operations(self, path: Names, *, is_directory: bool) -> Collection[WriteOperation]:
        """Return what can be written. Directories follow from keys; an object that was marked as such can be
        removed."""
        return ("remove_directory",) if is_directory else ("create", "replace", "remove", "rename")

    async def put(self, path: Names, content: Content, expected: Expected, mime_type: str | None) -> StoredItem:
        """Store an object, a large one in parts that appear as one with the last."""
        headers = {"content-type": mime_type} if mime_type else {}
        headers |= self._kept(path, expected) | conditions(expected)
        is_new, is_large = expected.exists is False, content.size > PART
        if is_new and (is_large or not await self._refuses_existing()):
            # Some stores ignore the condition: those that do replace what is there.
            with suppress(NotFound):
                await self._stat_object(path)
                raise Conflict(f"{self._what(path)}: somebody else has made it")
        if is_large:
            return await self._put_in_parts(path, content, headers)
        body = await content.read_waiting(0, content.size)
        async with self._written("PUT", path, {}, headers, body) as answer:
            # The answer is read to its end: then the connection can be used again.
            require_no_document(await whole(answer, _LARGEST_PAGE, self._what(path)), self._what(path))
            return self._stored(path, content.size, answer.headers)

    async def _refuses_existing(self) -> bool:
        """Return whether the store obeys `If-None-Match`."""
        return self._configured.options.refuses_existing or self._is_amazon(await self._accounts.current())

    async def _put_in_parts(self, path: Names, content: Content, headers: dict[str, str]) -> StoredItem:
        only_if = {name: headers.pop(name) for name in ("if-match", "if-none-match") if name in headers}
        async with self._written("POST", path, {"uploads": ""}, headers) as begun:
            upload = upload_of(await whole(begun, _LARGEST_PAGE, self._what(path)))
        try:
            etags = await self._send_parts(path, content, upload)
            listed = parts_document(etags)
            async with self._written("POST", path, {"uploadId": upload}, only_if, listed) as ended:
                # This answer may begin with 200 and be an error (CompleteMultipartUpload in the API reference).
                said = await whole(ended, _LARGEST_PAGE, self._what(path))
                etag = etag_of_upload(said, "CompleteMultipartUploadResult", self._what(path))
                return self._stored(path, content.size, {**ended.headers, "etag": etag})
        except BaseException:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 5), suppress(BbfsError):
                async with self._written("DELETE", path, {"uploadId": upload}, {}):
                    pass
            raise

    async def _send_parts(self, path: Names, content: Content, upload: str) -> Sequence[str]:
        """Send all parts, some at the same time. Return their ETags. The first failure ends them all."""
        size = max(PART, -(-content.size // MOST_PARTS))
        offsets = range(0, content.size, size)
        etags, failures, waiting = [""] * len(offsets), list[BbfsError](), iter(enumerate(offsets))

        async def send() -> None:
            try:
                for index, offset in waiting:
                    body = await content.read_waiting(offset, min(size, content.size - offset))
                    query = {"partNumber": str(index + 1), "uploadId": upload}
                    async with self._written("PUT", path, query, {}, body) as part:
                        require_no_document(await whole(part, _LARGEST_PAGE, self._what(path)), self._what(path))
                        etags[index] = part.headers.get("etag", "")
                    if not etags[index]:
                        raise ProtocolViolation(f"{self._what(path)}: the answer to a part has no ETag")
            except BbfsError as error:
                failures.append(error)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for _ in range(min(max(1, AT_ONCE // size), len(offsets))):
                nursery.start_soon(send)
        if failures:
            raise failures[0]
        return etags

    def _kept(self, path: Names, expected: Expected) -> dict[str, str]:
        """Return the headers that an object takes over from the object that it replaces, if bbfs has just looked at
        that object."""
        old = self._described.pop(path, None)
        if old is None or old.etag is None or old.etag != expected.etag:
            return {}
        properties = old.properties or {}
        kept = {name: properties.get(name.replace("-", "_")) for name in _KEPT}
        kept |= {f"x-amz-meta-{name}": value for name, value in (properties.get("user_metadata") or {}).items()}
        kept["content-type"] = old.mime_type
        return {name: value for name, value in kept.items() if value and value.isascii()}

    def detects_removed(self, expected: Expected) -> bool:
        return "if-match" in conditions(expected)

    async def delete(self, path: Names, expected: Expected) -> None:
        if self.detects_removed(expected):
            await self._delete_version(path, conditions(expected), expected.etag)
            return
        if expected.exists is None:  # otherwise it was looked for just before
            await self._stat_object(path)  # the store does not say if there was one
        await self._deleted(self._object_key(path), self._what(path))

    async def _delete_version(self, path: Names, only_if: Mapping[str, str], etag: str | None) -> None:
        """Remove one version of an object, in the same step where the store compares. Raise Conflict.

        Many stores ignore the condition. The first removal finds that out, after a look at the object: it asks for a
        version that no object has. A store that removes the object all the same has done what it was to do.
        """
        if not self._removes_by_etag:
            with gone_is_conflict(self._what(path)):
                if (await self._stat_object(path)).etag != etag:
                    raise Conflict(f"{self._what(path)}: somebody else has changed it")
        if self._removes_by_etag is None and await self._is_removed_as_another(path):
            return
        with gone_is_conflict(self._what(path)):
            await self._deleted(self._object_key(path), self._what(path), only_if if self._removes_by_etag else {})

    async def _is_removed_as_another(self, path: Names) -> bool:
        """Return whether the store has removed an object though it was asked for a version that the object is not."""
        async with self._answer("DELETE", self._object_key(path), _NO_QUERY, {"if-match": _OF_NONE}) as response:
            body = await whole(response, _LARGEST_PAGE, self._what(path))
            if response.status in _NOT_AS_ANOTHER:
                self._removes_by_etag = response.status == 412
                return False
            self._require_removed(response, body, self._what(path))
        self._removes_by_etag = False
        return True

    async def remove_directory(self, path: Names) -> None:
        """Remove the marker of an empty directory, if there is one."""
        await self._deleted(self._directory_key(path), self._what(path))

    async def move(self, path: Names, to: Names, *, replace: bool, is_directory: bool) -> StoredItem:
        """Copy an object at the store, then remove the old object: the protocol has nothing else."""
        origin = quote(f"/{self._place.authority}/{self._object_key(path)}", errors="surrogateescape")
        old = await self._stat_object(path)
        if old.size is not None and old.size > _LARGEST_COPY:
            raise CrossesSources(f"{self._what(path)}: the store copies {_LARGEST_COPY >> 30} GiB at most")
        replaced = None
        with suppress(NotFound):
            replaced = await self._stat_object(to)
        if replaced is not None and not replace:  # not all stores know the condition for a copy
            raise Exists(f"{self._what(to)}: is there already")
        headers = {"x-amz-copy-source": origin} | ({} if replace else {"if-none-match": "*"})
        if old.etag is not None:
            headers["x-amz-copy-source-if-match"] = f'"{old.etag}"'
        async with self._written("PUT", to, {}, headers) as answer:
            said = await whole(answer, _LARGEST_PAGE, self._what(to))
            etag = etag_of_upload(said, "CopyObjectResult", self._what(to))
        copied = await self._require_copied(old, replaced, path, to)
        await self.delete(path, Expected(exists=True))
        return stated(copied, strong_etag({"etag": etag}), old.size)

    async def _deleted(self, key: str, what: str, only_if: Mapping[str, str] = _NO_QUERY) -> None:
        async with self._answer("DELETE", key, _NO_QUERY, only_if) as response:
            body = await whole(response, _LARGEST_PAGE, what)
            if only_if and response.status in (409, 412):
                raise Conflict(f"{what}: somebody else has changed it")
            self._require_removed(response, body, what)

    def _require_removed(self, response: WebStream, body: bytes, what: str) -> None:
        """Raise the error of an answer to a DELETE."""
        self._require_stored(response, body, what)
        require_no_document(body, what)

    @asynccontextmanager
    async def _written(
        self, method: str, path: Names, query: Mapping[str, str], headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncGenerator[WebStream]:
        """Yield the successful answer to a request that changes something. Raise Conflict for another state."""
        async with self._answer(method, self._object_key(path), query, headers, body) as response:
            if response.status in (409, 412):
                raise Conflict(f"{self._what(path)}: somebody else has changed it")
            if response.status not in STORED:
                self._require_stored(response, await beginning(response), self._what(path))
            yield response

    def _require_stored(self, stream: WebStream, body: bytes, what: str) -> None:
        """Raise the error of an answer that does not say that a change is made."""
        if 200 <= stream.status < 300 and stream.status not in STORED:
            raise not_stored(stream.status, what)
        if stream.status not in STORED:
            raise self._error(stream, body, what)

    def _stored(self, path: Names, size: int, headers: Mapping[str, str]) -> StoredItem:
        modified = modified_ns({"last-modified": headers.get("date", "")})
        return StoredItem(path, "resource", size, modified, strong_etag(headers))

    # -- requests ----------------------------------------------------------------------------------------------------

    async def _page(self, query: Mapping[str, str], what: str) -> Page:
        async with self._answer("GET", "", query, {}) as response:
            body = await whole(response, _LARGEST_PAGE, what)
            if response.status != 200:
                raise self._error(response, body, what)
            return await page_of(body)

    def _asked(self, method: str, path: Names, headers: Mapping[str, str]) -> AbstractAsyncContextManager[WebStream]:
        return self._answer(method, self._object_key(path), _NO_QUERY, headers)

    def _facts(self, stream: WebStream) -> Facts:
        return facts_of(stream.status, stream.headers)

    def _error(self, stream: WebStream, body: bytes, what: str) -> BbfsError:
        error = error_of(stream.status, stream.headers, body, what)
        if isinstance(error, Denied) and self._accounts.lacks_credentials:
            return Denied(f"{error}; {_UNSIGNED}")
        return error

    @asynccontextmanager
    async def _answer(
        self, method: str, key: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncGenerator[WebStream]:
        """Yield the answer to a request, repeated once if the server says that the bucket is in another region."""
        for may_move in (True, False):
            account = await self._accounts.current()
            async with self._sent(account, method, key, query, headers, body) as stream:
                region = region_of(stream.status, stream.headers)
                if region is None or not may_move or not self._accounts.may_move(account, region):
                    stream.is_decoded = False
                    yield stream
                    return
            await self._accounts.move(region)

    def _sent(
        self, account: Account, method: str, key: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> AbstractAsyncContextManager[WebStream]:
        if self._client is None:
            self._client = WebClient(self._configured.source, allow_private=True, proxy=account.proxy)
        base, root = self._address(account)
        path = quote(f"{root}/{key}", errors="surrogateescape")
        asked = f"?{urlencode(sorted(query.items()), quote_via=quote, errors='surrogateescape')}" if query else ""
        if self._configured.options.requester_pays:
            headers = {**headers, "x-amz-request-payer": "requester"}
        signed = account.signed(method, f"{base}{path}{asked}", headers, body)
        # A client or proxy may resolve `..` in a path. Encoded it stays; the signature covers the decoded path.
        sent = "/".join(name.replace(".", "%2E") if name in (".", "..") else name for name in path.split("/"))
        sending = {**signed, "accept-encoding": "identity"}
        url = f"{base}{sent}{asked}"
        is_part = "partNumber" in query  # the last one that comes under a number is the part
        return self._client.stream(url, method=method, headers=sending, content=body, repeats=is_part, accept=ANY)

    def _is_amazon(self, account: Account) -> bool:
        return self._configured.options.endpoint is None and urlsplit(account.endpoint).netloc.endswith(_AMAZON)

    def _address(self, account: Account) -> tuple[str, str]:
        """Return the scheme and host of the bucket's URL, and the beginning of its paths."""
        bucket, options = self._place.authority, self._configured.options
        url = urlsplit(account.endpoint)
        in_path = options.path_style
        if in_path is None:
            in_path = not self._is_amazon(account) or "." in bucket
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
