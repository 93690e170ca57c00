"""Getting an OpenAPI document, and those it refers to, from files or over HTTP."""

import os
import stat
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import trio

from bbfs.errors import BbfsError, ConfigError, IsADirectory, NotFound, ProtocolViolation, TooLarge, Unreachable
from bbfs.sources.api_document import Documents, is_beneath, parse, references, shown
from bbfs.sources.beneath import AtMountPoint, MountPoint, Root, error_of
from bbfs.sources.web import WebClient

MAX_DOCUMENT = 64 << 20
"""Bytes of one document. The largest public ones have about 20 MB."""
MAX_DOCUMENTS = 500
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


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
        self._last: tuple[dict[str, bytes], Documents] | None = None

    async def read(self) -> Documents:
        """The documents as they are now; the same object as before where nothing has changed.

        Raises Unreachable where the document cannot be had, ProtocolViolation where it cannot be read. One that it
        refers to and that cannot be had is missing, and only what refers to it.
        """
        parsed: dict[str, Any] = {}
        digests: dict[str, bytes] = {}
        missing: dict[str, str] = {}
        before, known = self._last or ({}, None)
        ahead = [self.url]
        while ahead:
            url = ahead.pop(0)
            if url in parsed or url in missing:
                continue
            if not is_beneath(url, self.url) and url != self.url:
                missing[url] = "not beneath the folder of the document"
                continue
            if len(parsed) >= MAX_DOCUMENTS:
                missing[url] = f"more than {MAX_DOCUMENTS} documents"
                continue
            try:
                data = await self._bytes(url)
                digests[url] = blake2b(data, digest_size=16).digest()
                if known is not None and before.get(url) == digests[url]:
                    parsed[url] = known.parsed[url]
                else:
                    parsed[url] = await trio.to_thread.run_sync(parse, data, url, limiter=self._limiter)
            except BbfsError as error:
                if url == self.url:
                    raise self._of_source(error) from error
                missing[url] = str(error)
                continue
            ahead += sorted(await trio.to_thread.run_sync(references, parsed[url], url, limiter=self._limiter))
        if known is not None and digests == before and missing == known.missing:
            return known
        self._last = digests, Documents(self.url, parsed, missing)
        return self._last[1]

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
