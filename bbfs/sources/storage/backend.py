"""The interface of a kind of storage, its values, and the base of the backends that use a network."""

import io
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Literal, TypeVar

import trio

from bbfs.model.errors import (
    BbfsError,
    Busy,
    ConfigError,
    Conflict,
    IsADirectory,
    NotADirectory,
    NotFound,
    NotSupported,
    Outdated,
    ProtocolViolation,
)
from bbfs.model.values import Content, WriteOperation
from bbfs.model.versions import Expected
from bbfs.runtime.extras import needs
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.content.ranges import Blocks, RangedContent
from bbfs.sources.storage.addresses import Names, Place, segment_of, shown
from bbfs.sources.storage.options import Configured

T = TypeVar("T")
_CANNOT = "the storage cannot do that"
ATTEMPTS = 4
"""Reads of an object that is replaced meanwhile, before it is Busy."""
LISTED_BYTES = 16 << 20
"""Limit on the bytes of the URIs in one listing, together, and on those of the other texts of its entries."""
LONGEST_FACT = 255
"""Characters of an ETag, a type or another short text of a store; RFC 6838, section 4.2, has 127 for half a type."""


@dataclass(frozen=True, slots=True)
class StoredItem:
    """One object or directory.

    path: names below the root of the source. size: bytes, None if unknown. etag: changes when the content does.
    mime_type: as the store says it, for names without a known ending. properties: other facts of the store, by names in
    snake_case. target: of a symbolic link.
    """

    path: Names
    kind: Literal["resource", "directory", "symlink"] = "resource"
    size: int | None = None
    modified_ns: int | None = None
    etag: str | None = None
    mime_type: str | None = None
    properties: Mapping[str, Any] | None = None
    target: str | None = None


@dataclass(frozen=True, slots=True)
class ListedItems:
    """The entries of a directory; an item that has the path of the directory itself is its own content (S5).

    problem: a text that says which entries are missing.
    """

    items: tuple[StoredItem, ...]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A content, and the item of exactly this version."""

    content: Content
    item: StoredItem


def short(text: str | None) -> str | None:
    """Return a fact of a store, or None for an empty or too long text."""
    return text if text and len(text) <= LONGEST_FACT else None


class _Reading(io.RawIOBase):
    """A content as a file for a library. It blocks."""

    def __init__(self, number: int, size: int) -> None:
        self._number = number
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = os.pread(self._number, min(len(buffer), max(0, self._size - self._at)), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def file_of(content: Content) -> IO[bytes]:
    """Return a content that is written as a file to read from, for a library that blocks. Raises NotSupported."""
    if isinstance(content, MemoryContent):
        return io.BytesIO(content.data)
    number = getattr(content, "fileno", None)
    if number is None:
        raise NotSupported("a content that is not on this machine")
    return io.BufferedReader(_Reading(number(), content.size))


def _texts(item: StoredItem) -> int:
    """Return about the bytes of the texts of an item, its path aside."""
    facts = {item.etag, item.mime_type, item.target}
    if item.properties:
        facts.update(value for value in item.properties.values() if isinstance(value, str))
    return sum(len(fact) if fact.isascii() else 4 * len(fact) for fact in facts if fact)


class Collected:
    """The entries of one directory, until they are too many. Of two with one name, a directory wins, else the first.

    limit: on the entries (`list_limit`). problem: a text that says which entries are missing.
    """

    def __init__(self, place: Place, path: Names, limit: int) -> None:
        self._items: dict[str, StoredItem] = {}
        self._limit = limit
        self._what = place.native_uri((*place.above, *path))
        self._above = len(self._what) + 1
        self._bytes = self._texts = 0
        self.problem: str | None = None

    def __len__(self) -> int:
        return len(self._items)

    @property
    def items(self) -> Iterable[StoredItem]:
        return self._items.values()

    @property
    def is_full(self) -> bool:
        return self.problem is not None or len(self._items) >= self._limit

    def add(self, item: StoredItem) -> bool:
        """Add an entry. Returns False, and notes the problem, if there is no room for it."""
        name = item.path[-1]
        if name in self._items:
            if item.kind == "directory":
                self._items[name] = item
            return True
        size = self._above + len(segment_of(name))
        texts = _texts(item)
        if max(self._bytes + size, self._texts + texts) > LISTED_BYTES:
            return self.cut(f"{LISTED_BYTES >> 20} MiB of URIs or of other texts")
        if len(self._items) >= self._limit:
            return self.cut("list_limit")
        self._bytes += size
        self._texts += texts
        self._items[name] = item
        return True

    def cut(self, bound: str) -> Literal[False]:
        """Note that entries are missing. bound: the name of the limit."""
        self.problem = f"{shown(self._what)}: only the first {len(self._items)} names are listed ({bound})"
        return False


class StorageBackend:
    """The base of all kinds of storage. Paths are names below the root of the source.

    All methods raise only BbfsError. Those that change something are there where `operations` names them; their errors
    are as in `CanWrite` and the protocols beside it.
    """

    detects_existing = False
    """True if `put` itself refuses to create an object that is there already."""

    async def list(self, path: Names) -> ListedItems:
        """Return the entries of a directory. Raises NotFound."""
        raise NotImplementedError

    async def stat(self, path: Names, *, is_directory: bool) -> StoredItem:
        raise NotImplementedError

    async def open(self, path: Names) -> Opened:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError

    def operations(self, path: Names, *, is_directory: bool) -> Collection[WriteOperation]:
        """Return what can be written there. Asks nothing."""
        return ()

    async def put(self, path: Names, content: Content, expected: Expected, mime_type: str | None) -> StoredItem:
        """Store a content under a name. expected: compared by the store itself, if it can do that."""
        raise NotSupported(_CANNOT)

    async def stage(self, path: Names, content: Content) -> Names:
        """Store a content beside a path. Return where: under a name that no listing shows."""
        raise NotSupported(_CANNOT)

    async def put_staged(
        self, staged: Names, path: Names, content: Content, expected: Expected, mime_type: str | None
    ) -> StoredItem:
        """Store a content as `put` does, by moving its staged object. Store it whole if that is not there."""
        raise NotSupported(_CANNOT)

    async def unstage(self, staged: Names) -> None:
        raise NotSupported(_CANNOT)

    def detects_removed(self, expected: Expected) -> bool:
        """Return whether `delete` itself compares this state with that of the object."""
        return False

    async def delete(self, path: Names, expected: Expected) -> None:
        raise NotSupported(_CANNOT)

    async def move(self, path: Names, to: Names, *, replace: bool, is_directory: bool) -> StoredItem:
        raise NotSupported(_CANNOT)

    async def make_directory(self, path: Names) -> None:
        raise NotSupported(_CANNOT)

    async def remove_directory(self, path: Names) -> None:
        raise NotSupported(_CANNOT)

    async def set_time(self, path: Names, modified_ns: int) -> StoredItem:
        raise NotSupported(_CANNOT)


class Threads:
    """Runs blocking functions in worker threads, as many as the source may have requests in flight.

    A thread cannot be cancelled: cancelling ends the wait, and the backend's own time-outs end the thread.
    """

    def __init__(self, limit: int) -> None:
        self.limiter = trio.CapacityLimiter(limit)

    async def run(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return await trio.to_thread.run_sync(
            partial(function, *arguments, **named), abandon_on_cancel=True, limiter=self.limiter
        )


class RemoteBackend(StorageBackend):
    """Base of the backends that reach their objects over a network."""

    def __init__(self, configured: Configured) -> None:
        self._configured = configured
        self._place = configured.place
        self._prefix = configured.place.prefix
        self._timeout = configured.source.policy.timeout
        self._max_memory = configured.common.max_memory
        self._limit = configured.common.list_limit
        self._blocks = Blocks()

    def _what(self, path: Names) -> str:
        """Return the URI of an object for a message."""
        return shown(self._place.native_uri((*self._place.above, *path)))

    def _require_usable(self, names: Names, path: Names) -> None:
        """Raise NotFound, with a path in its text, for names that a library or a server would resolve."""
        if any(name in ("", ".", "..") for name in names):
            raise NotFound(f"{self._what(path)}: no name that can be asked for")

    def _of_kind(self, item: StoredItem, *, is_directory: bool) -> StoredItem:
        """Return an item. Raise NotADirectory, IsADirectory for one of the other kind."""
        if is_directory != (item.kind == "directory"):
            raise NotADirectory(self._what(item.path)) if is_directory else IsADirectory(self._what(item.path))
        return item

    async def _require_copied(self, old: StoredItem, replaced: StoredItem | None, path: Names, to: Names) -> StoredItem:
        """Return the copy of an object, which can be removed then.

        old: the object before it was copied. replaced: what had the name of the copy. Raises ProtocolViolation if the
        copy is missing, has another size, or is still what it was to replace, although the store, or a proxy in its
        place, has said that it is made; Conflict if the object has changed.
        """
        try:
            copied = await self.stat(to, is_directory=False)
        except NotFound:
            raise ProtocolViolation(
                f"{self._what(to)}: the server has said that it made a copy, and has none"
            ) from None
        if (await self.stat(path, is_directory=False)).etag != old.etag:
            raise Conflict(f"{self._what(path)}: somebody else has changed it while it was copied to {self._what(to)}")
        if copied.size != old.size:
            raise ProtocolViolation(f"{self._what(to)}: the server has copied {copied.size} of {old.size} bytes")
        if replaced is not None and copied.etag is not None and copied.etag == replaced.etag != old.etag:
            raise ProtocolViolation(
                f"{self._what(to)}: the server has said that it made a copy, and has the object from before"
            )
        return copied

    def _collected(self, path: Names) -> Collected:
        return Collected(self._place, path, self._limit)

    def _unusable(self, why: str) -> ConfigError:
        return ConfigError(f"sources[{self._configured.source.id}]: {why}")

    def _missing(self, package: str) -> ConfigError:
        lack = f"needs the package {package}"
        if package != "requests":  # which no extra has
            lack = f"{needs('storage')}: no package {package}"
        return self._unusable(f"type storage, {self._place.scheme}: {lack}")


class LibraryBackend(RemoteBackend):
    """Base of the backends whose library blocks, and raises errors of its own (`_failures`)."""

    _failures: tuple[type[Exception], ...]

    def __init__(self, configured: Configured, threads: int) -> None:
        super().__init__(configured)
        self.threads = Threads(threads)

    async def _call(self, path: Names, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Return what `function` gives for the library's store and the arguments, in a thread. Raises BbfsError."""
        try:
            return await self.threads.run(self._with_store, function, *arguments, **named)
        except trio.Cancelled:
            self._abandon()
            raise
        except BbfsError:
            raise
        except self._failures as error:
            raise self._translated(error, self._what(path)) from None

    async def open(self, path: Names) -> Opened:
        """Stat an object and read it whole, or only open it if it is larger than `max_memory`."""
        for _ in range(ATTEMPTS):
            with suppress(Outdated):
                item, data = await self._call(path, self._looked_at, path)
                if data is not None:
                    return Opened(MemoryContent(data), item)
                size, fetch = item.size or 0, partial(self._call, path, self._read, path, item)
                version = item.etag or f"{item.modified_ns or 0:x}-{size:x}"
                what, timeout = self._what(path), self._timeout
                return Opened(RangedContent(fetch, size, version, what, timeout, self._blocks), item)
        raise Busy(f"{self._what(path)}: changed while it was read, {ATTEMPTS} times in a row")

    def _looked_at(self, store: Any, path: Names) -> tuple[StoredItem, bytes | None]:
        """Return an object and its bytes, None if it is larger than `max_memory`. Raises Outdated."""
        item = self._object(store, path)
        size = item.size or 0
        if size > self._max_memory:
            return item, None
        return item, self._read(store, path, item, 0, size) if size else b""

    def _abandon(self) -> None:
        """End what the threads wait for, after a request was given up. Must not block."""

    def _with_store(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        raise NotImplementedError

    def _object(self, store: Any, path: Names) -> StoredItem:
        """Return the object with a name. Raises IsADirectory."""
        raise NotImplementedError

    def _read(self, store: Any, path: Names, item: StoredItem, offset: int, length: int) -> bytes:
        """Return bytes of exactly the version that an item describes. Raises Outdated for another one."""
        raise NotImplementedError

    def _translated(self, error: Exception, what: str) -> BbfsError:
        """Return bbfs's error for an error of the library, without its text, which may have secrets in it."""
        raise NotImplementedError
