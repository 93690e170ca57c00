"""Getting an OpenAPI document, and those it refers to, from files or over HTTP."""

import os
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

import trio

from bbfs.errors import BbfsError, ConfigError, IsADirectory, NotFound, ProtocolViolation, TooLarge, Unreachable
from bbfs.sources.api_document import Documents, Node, is_beneath, parse, shown
from bbfs.sources.beneath import AtMountPoint, MountPoint, Root, error_of
from bbfs.sources.web import WebClient

T = TypeVar("T")
MAX_DOCUMENT = 64 << 20
"""Bytes of one document. The largest public ones have about 20 MB."""
MAX_DOCUMENTS = 5000
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


@dataclass(frozen=True, slots=True)
class _Read:
    """A document as it was read: its hash and its value, or why it could not be had."""

    digest: bytes = b""
    value: Any = field(default=None, compare=False)
    error: str | None = None
    cause: BbfsError | None = field(default=None, compare=False)


def _tried(interpret: Callable[[Node], T], root: Node) -> tuple[T | None, BbfsError | None]:
    """What `interpret` makes, or its error, which a document that is not there yet may be the reason of."""
    try:
        return interpret(root), None
    except BbfsError as error:
        return None, error


class DocumentReader:
    """Reads the document at a URL (http, https, or the `file` URL of an absolute path) with what it refers to.

    headers: of the configuration, for the document alone.
    """

    def __init__(
        self,
        url: str,
        client: WebClient,
        headers: Mapping[str, str],
        mount_point: str | None,
        limiter: trio.CapacityLimiter,
    ) -> None:
        """Raises ConfigError for a file on the mount itself."""
        self.url = url
        self._client = client
        self._headers = dict(headers)
        self._limiter = limiter
        self._root: Root | None = None
        if urlsplit(url).scheme == "file":
            folder = os.fsencode(os.path.dirname(unquote(urlsplit(url).path)))
            there = MountPoint.before_mounting(mount_point) if mount_point is not None else None
            if there is not None and there.holds(os.path.realpath(folder)):
                raise there.refusal(folder)
            self._root = Root(folder, there)
        self._at_once = trio.CapacityLimiter(limiter.total_tokens)
        self._last: tuple[dict[str, _Read], Any] | None = None
        self._parsed: dict[str, _Read] = {}  # parsing a large document may outlast the time that somebody waits

    async def read(self, interpret: Callable[[Node], T]) -> T:
        """What `interpret` makes of the document, in a thread; what it made before where nothing has changed since.

        It is called again and again, as long as it follows references to other documents: only those are read. One
        that cannot be had is missing, and only what refers to it. Raises Unreachable where the document cannot be had,
        ProtocolViolation where it cannot be read, and what `interpret` raises.
        """
        found: dict[str, _Read] = {}
        before = self._last[0] if self._last is not None else {}
        await self._read((self.url,), found)
        await self._read(before.keys() - {self.url}, found)
        if self._last is not None and found == before:
            return self._last[1]
        while True:
            documents = Documents(
                self.url,
                {url: each.value for url, each in found.items() if each.error is None},
                {url: each.error for url, each in found.items() if each.error is not None},
            )
            result, error = await trio.to_thread.run_sync(_tried, interpret, documents.root, limiter=self._limiter)
            if documents.wanted <= found.keys():
                break
            await self._read(documents.wanted - found.keys(), found)
        if error is not None:
            raise error
        self._last = {url: found[url] for url in (self.url, *documents.wanted)}, result
        self._parsed = dict(self._last[0])
        return result

    async def _read(self, urls: Collection[str], found: dict[str, "_Read"]) -> None:
        """Add to `found` what is at these URLs now."""

        async def one(url: str) -> None:
            if url != self.url and not is_beneath(url, self.url):
                found[url] = _Read(error="not beneath the folder of the document")
                return
            try:
                async with self._at_once:
                    data = await self._bytes(url)
                digest = blake2b(data, digest_size=16).digest()
                known = self._parsed.get(url)
                if known is None or known.digest != digest:
                    value = await trio.to_thread.run_sync(parse, data, url, limiter=self._limiter)
                    known = self._parsed[url] = _Read(digest, value)
                found[url] = known
            except BbfsError as error:
                found[url] = _Read(error=str(error), cause=error)

        too_many = sorted(urls)[max(0, MAX_DOCUMENTS - len(found)) :]
        found.update({url: _Read(error=f"more than {MAX_DOCUMENTS} documents") for url in too_many})
        async with trio.open_nursery() as nursery:
            for url in sorted(set(urls) - found.keys()):
                nursery.start_soon(one, url)
        cause = found[self.url].cause
        if cause is not None:
            raise self._of_source(cause) from cause

    def _of_source(self, error: BbfsError) -> BbfsError:
        """Without its document the whole source is gone, which no missing resource is."""
        if isinstance(error, NotFound | IsADirectory):
            return Unreachable(f"the document: {error}")
        return error if isinstance(error, ProtocolViolation | ConfigError) else type(error)(f"the document: {error}")

    async def _bytes(self, url: str) -> bytes:
        if self._root is None:
            response = await self._client.get(url, headers=self._headers, max_body=MAX_DOCUMENT)
            return response.body
        return await trio.to_thread.run_sync(self._file, url, limiter=self._limiter, abandon_on_cancel=True)

    def _file(self, url: str) -> bytes:
        assert self._root is not None
        path = unquote(urlsplit(url).path)
        what = shown(path)
        try:
            if url == self.url:  # the user named it, so it may be a link
                number = os.open(path, _READ | os.O_CLOEXEC)
                return _whole(number, what)
            names = tuple(os.fsencode(path)[len(self._root.path.rstrip(b"/")) + 1 :].split(b"/"))
            with self._root.open(names, _READ) as found:
                return _whole(os.dup(found.number), what)
        except AtMountPoint:
            raise Unreachable(f"{what}: on the mount itself") from None
        except OSError as error:
            raise error_of(error, what) from error


def _whole(number: int, what: str) -> bytes:
    """All bytes of an open file, which is closed then. Raises BbfsError, OSError."""
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise Unreachable(f"{what}: no regular file")
        data = file.read(MAX_DOCUMENT + 1)
    if len(data) > MAX_DOCUMENT:
        raise TooLarge(f"{what}: a document of more than {MAX_DOCUMENT} bytes")
    return data


def file_url(path: str) -> str:
    """The `file` URL of an absolute path."""
    return "file://" + quote(os.fsencode(path), safe="/-._~!$&'()*+,;=:@")
