"""WebDAV over HTTP: directories by PROPFIND, files by GET and PUT. A listing is read while it arrives, within bounds.

After a PUT that breaks off, the file is what the server decides: most servers store a new file beside the old file and
rename it.
"""

import base64
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote
from xml.etree import ElementTree

from bbfs.model.errors import (
    BbfsError,
    Conflict,
    Denied,
    Exists,
    IsADirectory,
    LoginRequired,
    NotADirectory,
    NotEmpty,
    NotFound,
    NotSupported,
    Outdated,
    ProtocolViolation,
    TooLarge,
)
from bbfs.model.values import Content, WriteOperation
from bbfs.model.versions import Expected
from bbfs.sources.http.client import WebClient
from bbfs.sources.http.proxies import proxy_of_environment
from bbfs.sources.http.responses import WebStream, shown_url
from bbfs.sources.http.statuses import STORAGE_ERRORS, STORED, not_stored, status_error, status_line
from bbfs.sources.storage.addresses import Names
from bbfs.sources.storage.backend import ListedItems, Opened, StoredItem
from bbfs.sources.storage.options import Configured
from bbfs.sources.storage.web_objects import (
    ANY,
    Facts,
    WebBackend,
    beginning,
    conditions,
    facts_of,
    gone_is_conflict,
    stated,
    strong_etag,
)
from bbfs.sources.storage.webdav.answers import QUESTION, ROOT, described, names_of
from bbfs.sources.storage.xml import read_entries

_A_NAME = 1 << 10
"""Bytes of a listing for each name of `list_limit`, on average; a server sends some 700."""
_LEAST = 1 << 20
"""Bytes that a listing may have at least."""
_ERRORS = STORAGE_ERRORS | {407: LoginRequired}
_MULTI_STATUS, _NOT_ALLOWED, _NO_PARENT = 207, 405, 409
_PIECE = 256 << 10
"""Bytes of a content that are read and sent at a time. The time-out of a request bounds each."""


class WebDavBackend(WebBackend):
    """One collection of a server."""

    def __init__(self, configured: Configured) -> None:
        super().__init__(configured)
        userinfo, _, host = self._place.authority.rpartition("@")
        self._base = f"{'https' if self._place.scheme == 'webdavs' else 'http'}://{host}"
        username = configured.auth.username or userinfo
        pair = base64.b64encode(f"{username}:{configured.auth.password or ''}".encode()).decode()
        self._client = WebClient(
            configured.source,
            headers={"authorization": f"Basic {pair}"} if username else {},
            allow_private=True,
            proxy=proxy_of_environment(self._base),
        )

    # -- what there is -----------------------------------------------------------------------------------------------

    async def list(self, path: Names) -> ListedItems:
        own, listed, elsewhere = (*self._prefix, *path), self._collected(path), list[Names]()

        def take(each: StoredItem) -> bool:
            if each.path == own:
                if each.kind != "directory":
                    raise NotADirectory(self._what(path))
            elif each.path[:-1] == own:
                return listed.add(dataclasses.replace(each, path=(*path, each.path[-1])))
            elif not elsewhere:
                elsewhere.append(each.path)
            return True

        try:
            await self._describe(path, "1", take)
        except TooLarge:
            if not listed:
                raise
            listed.cut("list_limit")
        if elsewhere and not listed:
            raise ProtocolViolation(f"{self._what(path)}: the server lists other paths than this one")
        return ListedItems(tuple(listed.items), listed.problem)

    async def stat(self, path: Names, *, is_directory: bool) -> StoredItem:
        found: list[StoredItem] = []

        def take(each: StoredItem) -> bool:
            found.append(each)
            return len(found) < 2  # an answer that is read to its end leaves the connection to the next request

        await self._describe(path, "0", take, is_directory=is_directory)
        if not found:
            raise ProtocolViolation(f"{self._what(path)}: the server answers without a description")
        return self._of_kind(dataclasses.replace(found[0], path=path), is_directory=is_directory)

    async def _describe(
        self, path: Names, depth: str, take: Callable[[StoredItem], bool], *, is_directory: bool = True
    ) -> None:
        """Give each entry of a PROPFIND to `take` while it arrives, until that returns False."""
        what = self._what(path)

        def take_element(element: ElementTree.Element) -> bool:
            entry = described(element)
            return entry is None or take(entry)

        async with self._sent("PROPFIND", path, {"depth": depth}, is_directory=is_directory) as stream:
            if stream.status != _MULTI_STATUS:
                raise self._error(stream, b"", what)
            stream.bound(max(_LEAST, _A_NAME * self._limit), "list_limit")
            try:
                await read_entries(stream, ROOT, take_element)
            except ProtocolViolation as error:
                raise ProtocolViolation(f"{what}: {error}") from None

    # -- contents ----------------------------------------------------------------------------------------------------

    async def open(self, path: Names) -> Opened:
        """Open a file. Many servers answer a GET of a collection by a page for browsers, which is no content of a
        file."""
        try:
            opened = await super().open(path)
        except (ProtocolViolation, TooLarge):
            await self.stat(path, is_directory=False)
            raise
        if (opened.item.mime_type or "").startswith("text/html"):
            await self.stat(path, is_directory=False)
        return opened

    @asynccontextmanager
    async def _asked(self, method: str, path: Names, headers: Mapping[str, str]) -> AsyncGenerator[WebStream]:
        sending = {**headers, "accept-encoding": "identity"}
        async with self._sent(method, path, sending, is_directory=False) as stream:
            stream.is_decoded = False
            yield stream

    def _facts(self, stream: WebStream) -> Facts:
        return facts_of(stream.status, stream.headers, is_pinned_by_time=True)

    # -- writing -----------------------------------------------------------------------------------------------------

    def operations(self, path: Names, *, is_directory: bool) -> Collection[WriteOperation]:
        """Return what can be written. The protocol sets no times."""
        return ("create", "replace", "remove", "rename", "make_directory", "remove_directory")

    async def put(self, path: Names, content: Content, expected: Expected, mime_type: str | None) -> StoredItem:
        """Store a file. Its version is the one in the answer, which names these bytes (RFC 9110, section 9.3.4)."""
        headers = {**conditions(expected), "content-length": str(content.size)}
        if mime_type is not None:
            headers["content-type"] = mime_type
        try:
            answer = await self._change("PUT", path, headers, _Pieces(content))
        except NotFound:
            await self.stat(path[:-1], is_directory=True)  # some servers say so of all that they refuse
            raise Denied(f"{self._what(path)}: the server does not take it") from None
        try:
            found = await self.stat(path, is_directory=False)
        except NotFound:  # what a close cannot say of a file that was just written
            raise BbfsError(f"{self._what(path)}: the server took it, and has no such file") from None
        return stated(found, strong_etag(answer), content.size)

    def detects_removed(self, expected: Expected) -> bool:
        return expected.version is None and "if-match" in conditions(expected)

    async def delete(self, path: Names, expected: Expected) -> None:
        """Remove a file; a directory of its name, which the server would remove with all that it has, is left.

        The look that tells a file from a directory compares the ETag, too: not all servers heed the condition.
        """
        if self.detects_removed(expected):
            with gone_is_conflict(self._what(path)):
                found = await self.stat(path, is_directory=False)
            if found.etag not in (None, expected.etag):
                raise Conflict(f"{self._what(path)}: somebody else has changed it")
        else:
            await self.stat(path, is_directory=False)
        await self._change("DELETE", path, conditions(expected))

    async def make_directory(self, path: Names) -> None:
        with suppress(NotFound):  # some servers say of one that is there that they have made it
            await self.stat(path, is_directory=True)
            raise Exists(self._what(path))
        try:
            await self._change("MKCOL", path, {}, is_directory=True)
        except Exists:
            with suppress(NotFound):
                await self.stat(path, is_directory=True)
                raise
            raise Denied(f"{self._what(path)}: the server does not make it") from None

    async def remove_directory(self, path: Names) -> None:
        """Remove an empty directory. The server would remove any, so it is asked before."""
        await self._require_empty(path)
        await self._change("DELETE", path, {}, is_directory=True)

    async def move(self, path: Names, to: Names, *, replace: bool, is_directory: bool) -> StoredItem:
        old = await self.stat(path, is_directory=is_directory)  # some servers remove the target first, whatever comes
        if replace:
            with suppress(NotFound):  # the server would replace a directory with all that it has
                await (self._require_empty(to) if is_directory else self.stat(to, is_directory=False))
        headers = {"destination": self._url(to, is_directory), "overwrite": "T" if replace else "F"}
        try:
            await self._change("MOVE", path, headers, is_directory=is_directory)
        except Conflict:
            raise Exists(f"{self._what(to)}: is there already") from None
        found = await self.stat(to, is_directory=is_directory)
        return found if found.etag == old.etag else stated(found, None, old.size)

    async def _require_empty(self, path: Names) -> None:
        if (await self.list(path)).items:
            raise NotEmpty(self._what(path))

    async def _change(
        self,
        method: str,
        path: Names,
        headers: Mapping[str, str],
        body: AsyncIterable[bytes] | bytes = b"",
        *,
        is_directory: bool = False,
    ) -> Mapping[str, str]:
        """Send a request that changes something. Return the headers of the answer.

        Raise Conflict if its condition does not hold.
        """
        what, plain = self._what(path), {**headers, "accept-encoding": "identity"}
        async with self._sent(method, path, plain, is_directory=is_directory, content=body) as stream:
            said = await beginning(stream)
            if stream.status == _NO_PARENT:
                raise NotFound(f"{what}: there is no directory for it")
            if stream.status == _NOT_ALLOWED:
                raise self._not_allowed(method, stream.headers, what)
            if stream.status == _MULTI_STATUS:  # of a directory, some of which failed (RFC 4918, section 9.6.1)
                raise Denied(f"{what}: the server has done it in part")
            if not 200 <= stream.status < 300:
                error = self._error(stream, said, what)
                raise Conflict(f"{what}: somebody else has changed it") if isinstance(error, Outdated) else error
            if stream.status not in STORED:
                raise not_stored(stream.status, what)
            return stream.headers

    @staticmethod
    def _not_allowed(method: str, headers: Mapping[str, str], what: str) -> BbfsError:
        if method == "MKCOL":
            return Exists(what)
        if "allow" in headers:
            return NotSupported(f"{what}: the server allows no {method}")
        # Go's package says so of each request that failed, without the header that RFC 9110 demands (section 15.5.6).
        if method == "PUT":
            return BbfsError(f"{what}: the server failed to store it, for its disk is full perhaps")
        return Denied(f"{what}: the server refuses the {method}")

    # -- requests ----------------------------------------------------------------------------------------------------

    def _url(self, path: Names, is_directory: bool) -> str:
        names = (*self._prefix, *path)
        self._require_usable(names, path)
        end = "/" if is_directory and names else ""
        return f"{self._base}/{'/'.join(quote(name, safe='', errors='surrogateescape') for name in names)}{end}"

    @asynccontextmanager
    async def _sent(
        self,
        method: str,
        path: Names,
        headers: Mapping[str, str],
        *,
        is_directory: bool,
        content: AsyncIterable[bytes] | bytes = b"",
    ) -> AsyncGenerator[WebStream]:
        names, url = (*self._prefix, *path), self._url(path, is_directory)
        given = headers
        if method == "PROPFIND":
            content, given = QUESTION, {**headers, "content-type": "application/xml; charset=utf-8"}
        assert self._client is not None
        async with self._client.stream(url, method, headers=given, content=content, accept=ANY) as stream:
            location = stream.headers.get("location", "")
            if 300 <= stream.status < 400 and location:
                if not is_directory and location.endswith("/") and names_of(location) == names:
                    raise IsADirectory(self._what(path))
                raise ProtocolViolation(f"{self._what(path)}: the server sends us elsewhere, to {shown_url(location)}")
            yield stream

    def _error(self, stream: WebStream, body: bytes, what: str) -> BbfsError:
        if stream.status == 405 or 200 <= stream.status < 300:
            return ProtocolViolation(f"{what}: the server speaks no WebDAV here ({status_line(stream.status)})")
        return status_error(stream.status, _ERRORS)(f"{what}: {status_line(stream.status)}")


class _Pieces:
    """A content as the body of a request, which may be sent twice."""

    def __init__(self, content: Content) -> None:
        self._content = content

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        for offset in range(0, self._content.size, _PIECE):
            yield await self._content.read_waiting(offset, _PIECE)
