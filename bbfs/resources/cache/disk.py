"""Contents on disk: files named by the digest of their bytes, and an index. Shared by all processes of one user.

A cache: losing any of it costs requests, never truth. Nothing is waited for to reach the disk; instead the digest is
checked when a file is read, so what a crash has torn or anything has damaged is dropped and never served. Files come
and go within the index's transactions, so no process removes what another has just kept; and an open file can be read
whatever becomes of its name.

Every method blocks and belongs in a thread; any thread may call.
"""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from itertools import count
from pathlib import Path

import trio
from cachetools import LRUCache

from bbfs.model.digest import DIGEST_BYTES, digest_of
from bbfs.model.values import Content, Part
from bbfs.resources.cache.disk_index import Index, Presence, SourceUsage, charge
from bbfs.resources.cache.sqlite import set_aside
from bbfs.resources.cache.tier import Cached
from bbfs.sources.content.fd import Descriptor, read_at
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.content.spool import Spools, name_file

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Fingerprint of a source and native URI of a resource."""

FULL_UNTIL = 0.9
"""The part of the bound down to which contents are removed once it is reached."""
REMOVED_AT_ONCE = 512
"""Contents removed in one transaction, so that no other process waits long for it."""
TOUCHED_AT_ONCE = 512
"""Uses that are noted at once: one that is not noted yet costs nothing but its place in the order."""
UNFINISHED_KEPT = 600.0
"""Seconds after which a file that nobody has finished writing is taken for one that nobody will."""
TIDY_EVERY = 86400.0
COMPLAINED_EVERY = 60.0
_CHUNK = 1 << 20
_UNFINISHED = "new"


class DiskCache:
    """The contents in one directory, within a bound. Failures are logged and cost the cache, nobody else.

    max_bytes: what all contents together may take on disk, of all processes; each holds to its own bound when it adds.
    clock: seconds since the epoch.
    """

    def __init__(self, directory: Path, max_bytes: int, clock: Callable[[], float] = time.time) -> None:
        """Raises OSError or sqlite3.Error where the directory cannot be used."""
        self.max_bytes = max_bytes
        self._directory = directory
        self._clock = clock
        self._lock = threading.Lock()
        self._limiter = trio.CapacityLimiter(4)
        self._numbers = count()
        self._complained = 0.0
        self._used: dict[str, float] = {}
        self._verified: LRUCache[str, tuple[int, int, int]] = LRUCache(10_000)
        self._presence = Presence()
        self._make_directories()
        self._index = self._open()

    @property
    def unfinished(self) -> Path:
        """The directory of files that are being written, on the file system of those that are kept."""
        return self._directory / _UNFINISHED

    def lend(self, spools: Spools) -> None:
        """Let contents that come as a stream be written where they can be kept."""
        spools.use(self.unfinished, self.max_bytes, self._limiter)

    def _make_directories(self) -> None:
        for path in (self._directory, self.unfinished):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.chmod(0o700)

    def _open(self) -> Index:
        path = self._directory / "index.sqlite"
        try:
            return Index(path)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            set_aside(path, error)
            return Index(path)

    # -- reading -----------------------------------------------------------------------------------------------------

    def absent(self, source: str, uri: str) -> bool | None:
        """Whether nothing is kept of a resource, by what this process has heard; None where it has to `look` first.

        This alone never blocks. What another process has put in the last second may be missed.
        """
        return self._presence.absent(source, uri)

    def look(self, source: str) -> None:
        """Find out which resources of a source are kept, for `absent`."""
        with self._guarded():
            self._presence.look(source, self._index)

    def read(self, source: str, uri: str, in_memory: int) -> Cached | None:
        """Return what is kept of a resource, verified, or None.

        in_memory: bytes up to which the contents are read into memory; more are left in their files.
        """
        found = None
        with self._guarded():
            found = self._index.find(source, uri)
        if found is None:
            return None
        headers, fetched_at, ttl, etag, stale = found
        whole = sum(header.size for header in headers) <= in_memory
        parts: list[Part] = []
        for header in headers:
            content = self._content(header.digest, header.size, whole=whole)
            if content is None:
                log.info("a content in the disk cache is gone or damaged, and is dropped: %s", header.digest)
                self._drop(header.digest)
                return None
            parts.append(header.part(content))
        now = self._clock()
        with self._guarded():
            self._used.update((header.digest, now) for header in headers)
            if len(self._used) >= TOUCHED_AT_ONCE:
                with self._index.changing():
                    self._note_uses()
        return Cached(tuple(parts), fetched_at, ttl, etag, stale)

    def _content(self, digest: str, size: int, *, whole: bool) -> MemoryContent | StoredContent | None:
        """A content as it is in its file, or None if that is not there or not what its name says."""
        try:
            number = os.open(self._path(digest), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        descriptor = Descriptor(number)
        try:
            if os.fstat(number).st_size != size:
                return None
            if whole:
                with descriptor:
                    data = read_at(number, 0, size)
                return MemoryContent(data, digest) if digest_of(data) == digest else None
            return StoredContent(descriptor, size, digest, self._limiter) if self._is_whole(number, digest) else None
        except OSError as error:
            log.warning("a file in the disk cache cannot be read: %s", error)
            return None

    def _is_whole(self, number: int, digest: str) -> bool:
        """Whether a file has the bytes that it is named after; found out once a process as long as it is the same."""
        status = os.fstat(number)
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        with self._lock:
            if self._verified.get(digest) == stamp:
                return True
        hashed = blake2b(digest_size=DIGEST_BYTES)
        offset = 0
        while chunk := os.pread(number, _CHUNK, offset):
            hashed.update(chunk)
            offset += len(chunk)
        if hashed.hexdigest() != digest:
            return False
        with self._lock:
            self._verified[digest] = stamp
        return True

    def _drop(self, digest: str) -> None:
        with self._guarded(), self._index.changing():
            self._unlink(self._index.forget([digest]))

    # -- writing -----------------------------------------------------------------------------------------------------

    def put(self, entries: Sequence[tuple[Key, Cached]]) -> bool:
        """Keep what loads have answered, in the place of what is kept of the same resources.

        What alone is larger than the bound is not kept. Return whether all of it is kept now.
        """
        fitting = [entry for entry in entries if sum(charge(p.content.size) for p in entry[1].parts) <= self.max_bytes]
        written: dict[str, Path] = {}
        try:
            for _, cached in fitting:
                for part in cached.parts:
                    if part.content.version not in written and not self._is_there(part.content):
                        written[part.content.version] = self._write(part.content)
            with self._guarded(), self._index.changing():
                self._note_uses()
                for key, cached in fitting:
                    self._put(key, cached, written)
            self._evict()
        except OSError as error:
            self._complain("contents could not be kept on disk", error)
            self._begin_anew_if_gone()
            return False
        finally:
            for path in written.values():
                with suppress(OSError):
                    path.unlink(missing_ok=True)
        return all(self._is_there(part.content) for _, cached in entries for part in cached.parts)

    def _put(self, key: Key, cached: Cached, written: dict[str, Path]) -> None:
        before = self._index.digests(*key)
        for content in (part.content for part in cached.parts):
            new = written.pop(content.version, None)
            if new is None and not self._is_there(content):
                new = self._write(content)  # another process has removed it meanwhile
            if new is not None:
                path = self._path(content.version)
                path.parent.mkdir(mode=0o700, exist_ok=True)
                new.replace(path)
        self._index.put(*key, cached, self._clock())
        self._presence.added(*key)
        after = {part.content.version for part in cached.parts}
        self._unlink(self._index.collect(before - after))

    def _write(self, content: Content) -> Path:
        path = self.unfinished / f"{os.getpid()}-{id(self):x}-{next(self._numbers)}"
        if isinstance(content, StoredContent):
            name_file(content, path)
            return path
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(content.read(0, content.size) or b"")
            while view:
                view = view[os.write(number, view) :]
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(number)
        return path

    def expire(self, changed: Iterable[tuple[str, str | None]]) -> None:
        """Sources and URIs (None: all of the source) of what has changed: it is not fresh any more."""
        with self._guarded(), self._index.changing():
            for source, uri in changed:
                self._index.expire(source, uri)

    def clear(self, source: str | None = None) -> None:
        """Remove everything, or all of one source."""
        with self._guarded(), self._index.changing():
            sources = [usage.source for usage in self._index.usage()] if source is None else [source]
            for each in sources:
                self._unlink(self._index.forget_source(each))

    # -- keeping order -----------------------------------------------------------------------------------------------

    def _evict(self) -> None:
        """Once the bound is passed, remove what was used longest ago until there is room again."""
        held, goal = self._held(), self.max_bytes * FULL_UNTIL
        if held <= self.max_bytes:
            return
        while held > goal:
            self._evict_some(goal)
            before, held = held, self._held()
            if held >= before:
                return  # it cannot be done now, or others add as fast as this removes; they hold to the bound as well

    def _evict_some(self, goal: float) -> None:
        with self._guarded(), self._index.changing():
            held, _ = self._index.total()
            chosen: list[str] = []
            for digest, taken in self._index.oldest(REMOVED_AT_ONCE):
                if held <= goal:
                    break
                chosen.append(digest)
                held -= taken
            self._unlink(self._index.forget(chosen))

    def _held(self) -> int:
        """The bytes that all contents take on disk."""
        held = 0
        with self._guarded():
            held, _ = self._index.total()
        return held

    def tidy(self) -> None:
        """Hold to the bound, and once a day remove files that the index has not, and rows whose files are gone."""
        self._evict()
        stamp = self._directory / "tidied"
        with suppress(OSError):
            if self._clock() - stamp.stat().st_mtime < TIDY_EVERY:
                return
        try:
            stamp.touch(mode=0o600)
            for path in self.unfinished.iterdir():
                with suppress(FileNotFoundError):
                    if self._clock() - path.stat().st_mtime > UNFINISHED_KEPT:
                        path.unlink()
            for shard in (f"{number:02x}" for number in range(256)):
                self._tidy_shard(shard)
        except OSError as error:
            log.warning("the disk cache could not be tidied: %s", error)

    def _tidy_shard(self, shard: str) -> None:
        with self._guarded(), self._index.changing():
            sizes = self._index.below(shard)
            found: dict[str, int] = {}
            with suppress(FileNotFoundError), os.scandir(self._directory / shard) as scan:
                found = {entry.name: entry.stat(follow_symlinks=False).st_size for entry in scan}
            lost = [digest for digest, size in sizes.items() if found.get(digest) != size]
            self._unlink([*self._index.forget(lost), *(name for name in found if name not in sizes)])

    def usage(self) -> tuple[int, list[SourceUsage]]:
        """The bytes on disk of all contents, and what each source has of them."""
        with self._guarded():
            return self._index.total()[0], self._index.usage()
        return 0, []

    def close(self) -> None:
        """Note the last uses and close the index. Open contents can be read on."""
        with self._guarded():
            with self._index.changing():
                self._note_uses()
            self._index.close()

    # -- what all of it uses -----------------------------------------------------------------------------------------

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """One thread at a time in the index. What goes wrong there is logged, and the rest of the block left out."""
        with self._lock:
            try:
                yield
            except sqlite3.OperationalError as error:
                self._complain("the disk cache cannot be used now", error)
            except sqlite3.ProgrammingError:
                pass  # closed: the daemon is going, and a thread was late
            except sqlite3.DatabaseError as error:
                self._begin_anew(error)

    def _complain(self, what: str, error: Exception) -> None:
        """Say what is wrong, but not for every content: a full disk stays full for a while."""
        now = self._clock()
        if now - self._complained >= COMPLAINED_EVERY:
            self._complained = now
            log.warning("%s: %s", what, error)

    def _begin_anew(self, error: sqlite3.DatabaseError) -> None:
        """Set a damaged index aside. The files stay until they are kept again or tidied away."""
        self._index.close()
        self._presence.forget()
        try:
            set_aside(self._directory / "index.sqlite", error)
            (self._directory / "tidied").unlink(missing_ok=True)
            self._index = self._open()
        except (OSError, sqlite3.Error) as failure:
            log.warning("the disk cache is not used any more: %s", failure)

    def _begin_anew_if_gone(self) -> None:
        """Begin with an empty directory where somebody has removed it."""
        with self._lock:
            if self.unfinished.exists():
                return
            self._index.close()
            self._presence.forget()
            try:
                self._make_directories()
                self._index = self._open()
            except (OSError, sqlite3.Error) as failure:
                log.warning("the disk cache is not used any more: %s", failure)

    def _note_uses(self) -> None:
        used, self._used = self._used, {}
        self._index.touch(used)

    def _path(self, digest: str) -> Path:
        return self._directory / digest[:2] / digest

    def _is_there(self, content: Content) -> bool:
        try:
            return self._path(content.version).stat().st_size == content.size
        except OSError:
            return False

    def _unlink(self, digests: Iterable[str]) -> None:
        for digest in digests:
            with suppress(FileNotFoundError):
                self._path(digest).unlink()
