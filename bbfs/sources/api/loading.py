"""Reading an OpenAPI document, and those it refers to, from files or over HTTP."""

import os
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

import trio

from bbfs.model.errors import BbfsError, ConfigError, IsADirectory, NotFound, ProtocolViolation, TooLarge, Unreachable
from bbfs.model.redaction import shown
from bbfs.sources.api.document import DocumentNode, Documents, is_beneath, parse
from bbfs.sources.bounded.json import DEFAULT, JsonBounds
from bbfs.sources.bounded.workers import WorkerPool
from bbfs.sources.content.memory import digest_of
from bbfs.sources.filesystem.beneath import AtMountPoint, MountPoint, Root, error_of
from bbfs.sources.http.client import WebClient
from bbfs.sources.http.headers import Validators

T = TypeVar("T")
MAX_DOCUMENT = 32 << 20
"""Bytes of a document with all that it refers to, unless the source sets another limit. The largest public ones have
about 20 MB."""
MAX_DOCUMENTS = 5000
_AT_ONCE = 4
"""Documents to ask for at once. Each may be as large as all of them together may be."""
_NOT_MODIFIED = frozenset({304})
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


@dataclass(frozen=True, slots=True)
class _Seen:
    """The result of one request for a document.

    digest: of the document, or of its error. data: its bytes until it is parsed; None if the server said that it is
    unchanged. size: of the document (bytes). conditions: headers for the next conditional request.
    """

    digest: str
    data: bytes | None = field(default=None, compare=False, repr=False)
    size: int = field(default=0, compare=False)
    error: BbfsError | None = field(default=None, compare=False)
    conditions: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def failed(cls, error: BbfsError) -> "_Seen":
        return cls(digest_of(str(error).encode()), error=error)


def _tried(interpret: Callable[[DocumentNode], T], root: DocumentNode) -> T | BbfsError:
    """Return the result of `interpret`, or its error. The error may go away once a missing document is read."""
    try:
        return interpret(root)
    except BbfsError as error:
        return error


class DocumentReader:
    """Reads the document at a URL (http, https, or the `file` URL of an absolute path) and those it refers to.

    headers: from the configuration, for documents only. max_document: bytes of all documents together. workers: for
    documents in YAML. owner: the source.
    """

    def __init__(
        self,
        url: str,
        client: WebClient,
        headers: Mapping[str, str],
        mount_point: str | None,
        limiter: trio.CapacityLimiter,
        workers: WorkerPool,
        owner: str,
        max_document: int = MAX_DOCUMENT,
    ) -> None:
        """Raises ConfigError for a file on the mount itself."""
        self.url = url
        self._client = client
        self._headers = dict(headers)
        self._limiter = limiter
        self._workers = workers
        self._owner = owner
        self._max_document = max_document
        self._root: Root | None = None
        if urlsplit(url).scheme == "file":
            folder = os.fsencode(os.path.dirname(unquote(urlsplit(url).path)))
            there = MountPoint.named(mount_point) if mount_point is not None else None
            if there is not None and there.holds(os.path.realpath(folder)):
                raise there.refusal(folder)
            self._root = Root(folder, there)
        self._at_once = trio.CapacityLimiter(_AT_ONCE)
        self._last: tuple[dict[str, _Seen], Any] | None = None
        # With the number of values, by digest. Kept until all documents are read: parsing a large one may outlast the
        # deadline of a request.
        self._parsed: dict[str, tuple[Any, int]] = {}

    async def read(self, interpret: Callable[[DocumentNode], T]) -> T:
        """Return the result of `interpret`, which runs in a thread; the earlier result if no document has changed.

        `interpret` is called again while it follows references to documents that were not read yet. So only documents
        in use are read. A document that cannot be read breaks only the operations that refer to it. Raise Unreachable
        if the first document is missing, ProtocolViolation if it cannot be parsed, and the errors of `interpret`.
        """
        before = self._last[0] if self._last is not None else {}
        seen: dict[str, _Seen] = {}
        await self._look([self.url], before, seen)
        await self._look(before.keys(), before, seen)
        if self._last is not None and seen == before:
            return self._last[1]
        while True:
            await self._parse(seen)
            documents = Documents(
                self.url,
                {url: self._parsed[each.digest][0] for url, each in seen.items() if each.error is None},
                {url: str(each.error) for url, each in seen.items() if each.error is not None},
                trio.from_thread.check_cancelled,
            )
            result = await trio.to_thread.run_sync(_tried, interpret, documents.root, limiter=self._limiter)
            if documents.wanted <= seen.keys():
                break
            await self._look(documents.wanted, {}, seen)
        if isinstance(result, BbfsError):
            raise result
        used = (self.url, *documents.wanted)
        self._last = {url: replace(seen[url], data=None, error=None) for url in used}, result
        self._parsed = {}
        return result

    async def _look(self, urls: Collection[str], before: Mapping[str, _Seen], seen: dict[str, _Seen]) -> None:
        """Ask for these URLs. before: the earlier results, for conditional requests."""

        async def one(url: str) -> None:
            try:
                if url != self.url and not is_beneath(url, self.url):
                    raise ProtocolViolation("not beneath the folder of the document")
                async with self._at_once:
                    seen[url] = found = await self._get(url, before.get(url))
                if sum(each.size for each in seen.values()) > self._max_document:
                    seen[url] = replace(found, data=None, error=self._too_large())
            except BbfsError as error:
                seen[url] = _Seen.failed(error)

        new = sorted(set(urls) - seen.keys())
        room = max(0, MAX_DOCUMENTS - len(seen))
        too_many = _Seen.failed(TooLarge(f"more than {MAX_DOCUMENTS} documents"))
        seen.update(dict.fromkeys(new[room:], too_many))
        async with trio.open_nursery() as nursery:
            for url in new[:room]:
                nursery.start_soon(one, url)
        self._require_first(seen)

    async def _parse(self, seen: dict[str, _Seen]) -> None:
        """Parse the new documents. One that cannot be parsed counts as missing."""
        digests = {each.digest for each in seen.values()}
        for old in self._parsed.keys() - digests:  # from earlier attempts that did not finish
            del self._parsed[old]
        for url, each in list(seen.items()):
            if each.error is not None or each.digest in self._parsed:
                continue
            try:
                if each.data is None:  # unchanged, but another document is not
                    each = await self._get(url, None)
                assert each.data is not None
                left = DEFAULT.values - sum(count for _, count in self._parsed.values())
                bounds = JsonBounds(self._max_document, left)
                self._parsed[each.digest] = await parse(each.data, url, bounds, self._workers, self._owner)
                seen[url] = replace(each, data=None)
            except BbfsError as error:
                seen[url] = replace(each, error=error)
        self._require_first(seen)

    def _require_first(self, seen: Mapping[str, _Seen]) -> None:
        error = seen[self.url].error
        if error is not None:
            raise self._of_source(error) from error

    def _of_source(self, error: BbfsError) -> BbfsError:
        """Turn NotFound into Unreachable: without its document the whole source is down."""
        if isinstance(error, NotFound | IsADirectory):
            return Unreachable(f"the document: {error}")
        return error if isinstance(error, ProtocolViolation | ConfigError) else type(error)(f"the document: {error}")

    async def _get(self, url: str, before: _Seen | None) -> _Seen:
        if self._root is not None:
            data = await trio.to_thread.run_sync(self._file, url, limiter=self._limiter, abandon_on_cancel=True)
            return _Seen(digest_of(data), data, len(data))
        conditions = before.conditions if before is not None else {}
        response = await self._client.get(
            url, headers={**self._headers, **conditions}, accept=_NOT_MODIFIED, max_body=self._max_document
        )
        if response.status in _NOT_MODIFIED and before is not None:
            return before
        digest = digest_of(response.body)
        validators = Validators.of(response.headers, digest)
        return _Seen(
            digest,
            response.body,
            len(response.body),
            conditions=validators.conditions if validators is not None else {},
        )

    def _file(self, url: str) -> bytes:
        assert self._root is not None
        path = unquote(urlsplit(url).path)
        what = shown(path)
        try:
            if url == self.url:  # the user named it, so it may be a symbolic link
                number = os.open(path, _READ | os.O_CLOEXEC)
                return self._whole(number, what)
            names = tuple(os.fsencode(path)[len(self._root.path.rstrip(b"/")) + 1 :].split(b"/"))
            with self._root.open(names, _READ) as found:
                return self._whole(os.dup(found.number), what)
        except AtMountPoint:
            raise Unreachable(f"{what}: on the mount itself") from None
        except OSError as error:
            raise error_of(error, what) from error

    def _whole(self, number: int, what: str) -> bytes:
        """Read an open file to its end and close it. Raise BbfsError, OSError."""
        with os.fdopen(number, "rb") as file:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise Unreachable(f"{what}: no regular file")
            data = file.read(self._max_document + 1)
        if len(data) > self._max_document:
            raise self._too_large()
        return data

    def _too_large(self) -> TooLarge:
        return TooLarge(f"more than {self._max_document} bytes (option max_document)")


def file_url(path: str) -> str:
    """Return the `file` URL of an absolute path."""
    return "file://" + quote(os.fsencode(path), safe="/-._~!$&'()*+,;=:@")
