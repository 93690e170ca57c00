"""Objects that are read over HTTP: small ones whole, large ones in ranges, each pinned to one version."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from bbfs.model.errors import BbfsError, Busy, Conflict, NotFound, Outdated, ProtocolViolation, TooLarge, Unreachable
from bbfs.model.versions import Expected
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.content.ranges import BLOCK, RangedContent
from bbfs.sources.http.client import WebClient
from bbfs.sources.http.headers import is_sendable, modified_ns
from bbfs.sources.http.responses import WebStream, number_in
from bbfs.sources.storage.addresses import Names
from bbfs.sources.storage.backend import ATTEMPTS, Opened, RemoteBackend, StoredItem, short

ANY = frozenset(range(300, 600))
"""Statuses that the backends handle: they decide what an error is, and follow no redirect with their credentials."""
_LARGEST_ERROR = 1 << 16
_GENERIC = ("", "binary/octet-stream", "application/octet-stream", "application/x-www-form-urlencoded")
"""Types without meaning, which servers send for objects that were stored without one."""
_COMPRESSED = ("-gzip", ";gzip", "-br", "-zstd", "-deflate")
"""What servers add to the ETag of an answer that they compress."""
_PROPERTIES = ("content-encoding", "content-disposition", "content-language", "cache-control", "expires")


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts in the headers of an object. size: bytes of the whole object. version: None if ranges cannot be pinned.

    etag: without quotes, which some servers leave out of listings.
    """

    size: int
    version: str | None
    etag: str | None
    modified_ns: int | None
    mime_type: str | None
    properties: Mapping[str, Any]

    def item(self, path: Names) -> StoredItem:
        return StoredItem(
            path, "resource", self.size, self.modified_ns, self.etag, self.mime_type, self.properties or None
        )


def facts_of(status: int, headers: Mapping[str, str], *, is_pinned_by_time: bool = False) -> Facts:
    """Return the facts in the headers of an answer to HEAD or GET, also of a part. Raises ProtocolViolation.

    is_pinned_by_time: without an ETag, time and size are the version.
    """
    stated = headers.get("content-length", "")
    if status == 206:
        stated = headers.get("content-range", "").rpartition("/")[2]
    size = number_in(stated)
    if size is None:
        raise ProtocolViolation("an object whose size the server does not say, or that no file can have")
    stored_type = headers.get("content-type", "")
    given = {"stored_type": short(stored_type)}
    given |= {name.replace("-", "_"): headers.get(name) for name in _PROPERTIES}
    etag, modified = etag_in(headers.get("etag", "")), modified_ns(headers)
    return Facts(
        size,
        etag or (f"{modified or 0:x}-{size:x}" if is_pinned_by_time else None),
        etag,
        modified,
        mime_type_of(stored_type),
        {key: value for key, value in given.items() if value is not None},
    )


def etag_in(text: str) -> str | None:
    """Return an entity tag without quotes, or None if it is empty, too long, or cannot be sent back as it is."""
    tag = short(text.strip('"'))
    return tag if tag is not None and is_sendable(tag) and '"' not in tag.removeprefix('W/"') else None


def strong_etag(headers: Mapping[str, str]) -> str | None:
    """Return the version that the answer to a change states, or None for a version that does not name exact bytes.

    A weak tag names several representations (RFC 9110, section 8.8.1). A server that compresses an answer marks the tag
    of the answer, and then knows no object by the marked tag.
    """
    etag = etag_in(headers.get("etag", ""))
    return None if etag is None or etag.startswith("W/") or etag.endswith(_COMPRESSED) else etag


def stated(found: StoredItem, etag: str | None, size: int | None) -> StoredItem:
    """Return the item of an object after a change, from a look at it that was made after the answer to the change.

    The version comes from the answer (etag), or is unknown: another program may have replaced the object
    before the look. size: bytes that were stored, None if unknown.
    """
    if etag is None and (size is None or found.size is None or found.size <= size):
        return replace(found, etag=None)
    # A longer object is that of another program: a server may lose bytes of what it is sent, and adds none.
    return found if etag is not None and found.etag == etag else StoredItem(found.path, found.kind, size, etag=etag)


def conditions(expected: Expected) -> dict[str, str]:
    """Return the headers that let a server refuse a conflict. Some ignore them (RFC 9110, section 13.1)."""
    if expected.exists is False:
        return {"if-none-match": "*"}
    if expected.etag is None or expected.etag.startswith("W/"):  # a weak one matches nothing
        return {}
    return {"if-match": f'"{expected.etag}"'}


@contextmanager
def gone_is_conflict(what: str) -> Iterator[None]:
    """Raise Conflict where an object that is to have a certain state is missing."""
    try:
        yield
    except NotFound:
        raise Conflict(f"{what}: somebody else has changed it: it is gone now") from None


def mime_type_of(stored_type: str) -> str | None:
    """Return the MIME type that a server states, None for a type without meaning or too long a text."""
    return None if stored_type.partition(";")[0].strip().lower() in _GENERIC else short(stored_type)


class WebBackend(RemoteBackend):
    """Base of the backends that read an object by GET."""

    _client: WebClient | None = None

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _asked(self, method: str, path: Names, headers: Mapping[str, str]) -> AbstractAsyncContextManager[WebStream]:
        """Return the answer to a request for an object, whatever its status, with the body as it is stored."""
        raise NotImplementedError

    def _facts(self, stream: WebStream) -> Facts:
        raise NotImplementedError

    def _error(self, stream: WebStream, body: bytes, what: str) -> BbfsError:
        """Return the error for an answer. body: its beginning."""
        raise NotImplementedError

    async def open(self, path: Names) -> Opened:
        """Read a small object whole, with one request or two, of a large one the beginning."""
        what = self._what(path)
        for _ in range(ATTEMPTS):
            facts, data = await self._part(path, 0, min(BLOCK, self._max_memory))
            if len(data) == facts.size:
                return Opened(MemoryContent(data), facts.item(path))
            if facts.version is None:
                raise ProtocolViolation(f"{what}: has no ETag to be read in ranges by")
            if facts.size > self._max_memory:
                return Opened(self._ranged(path, facts, data), facts.item(path))
            try:
                _, rest = await self._part(path, len(data), facts.size - len(data), pin=facts)
            except Outdated:
                continue
            return Opened(MemoryContent(data + rest), facts.item(path))
        raise Busy(f"{what}: was replaced while it was read, {ATTEMPTS} times in a row")

    def _ranged(self, path: Names, facts: Facts, first: bytes) -> RangedContent:
        async def fetch(offset: int, length: int) -> bytes:
            _, data = await self._part(path, offset, length, pin=facts)
            return data

        version = facts.version or ""
        return RangedContent(fetch, facts.size, version, self._what(path), self._timeout, self._blocks, first)

    async def _part(self, path: Names, offset: int, length: int, *, pin: Facts | None = None) -> tuple[Facts, bytes]:
        """Return bytes of an object, fewer at its end. pin: the version that they must belong to."""
        what = self._what(path)
        headers = {"range": f"bytes={offset}-{offset + length - 1}"}
        if pin is not None and pin.etag and not pin.etag.startswith("W/"):
            headers["if-match"] = f'"{pin.etag}"'  # a weak one matches nothing (RFC 9110, section 13.1.1)
        async with self._asked("GET", path, headers) as response:
            status = response.status
            if status not in (200, 206, 416):
                raise self._error(response, await beginning(response), what)
            if status != 416:
                facts = self._facts(response)
                if pin is not None and (facts.version, facts.size) != (pin.version, pin.size):
                    raise Outdated(f"{what}: was replaced while it was open")
                begins = response.headers.get("content-range", "bytes 0-").partition("-")[0]
                if begins != f"bytes {offset if status == 206 else 0}" or (status == 200 and offset):
                    raise ProtocolViolation(f"{what}: other bytes came than were asked for")
                if status == 200 and facts.size > max(length, self._max_memory):
                    raise TooLarge(f"{what}: larger than max_memory, and the server gives no ranges")
                expected = facts.size if status == 200 else min(length, facts.size - offset)
                return facts, await self._exactly(response, expected, what)
        if offset or pin is not None:
            raise Outdated(f"{what}: became shorter while it was open")
        return await self._empty(path, what)

    async def _empty(self, path: Names, what: str) -> tuple[Facts, bytes]:
        """Read an empty object: no range of it can be requested."""
        async with self._asked("GET", path, {}) as response:
            if response.status != 200:
                raise self._error(response, await beginning(response), what)
            facts = self._facts(response)
            if facts.size > self._max_memory:
                raise ProtocolViolation(f"{what}: has bytes, and the server gives none of them in a range")
            return facts, await self._exactly(response, facts.size, what)

    @staticmethod
    async def _exactly(response: WebStream, size: int, what: str) -> bytes:
        data = await whole(response, size, what)
        if len(data) != size:
            raise Unreachable(f"{what}: the answer ended after {len(data)} of {size} bytes")
        return data


async def whole(stream: WebStream, limit: int, what: str) -> bytes:
    """Return the body. Raises ProtocolViolation beyond `limit` bytes."""
    stream.limit = limit
    try:
        return await stream.read()
    except TooLarge:
        raise ProtocolViolation(f"{what}: the answer is longer than {limit} bytes") from None


async def beginning(stream: WebStream) -> bytes:
    """Return the body of an error, or an empty body if it is too long."""
    stream.limit = _LARGEST_ERROR
    try:
        return await stream.read()
    except TooLarge:
        return b""
