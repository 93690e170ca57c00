"""The contents on disk: small ones in an index, others in files named by digest. A user's processes share them.

A new file takes ten times the processor time of a row. Losing any of it costs requests only. No file is synced to the
disk; instead a read verifies the digest, and drops a content that a crash has torn. Files are added and removed within
transactions of the index, so no process removes what another has just stored. An open file can be read after it was
removed.

Every method but `absent` blocks and belongs in a thread; any thread may call.
"""

import errno
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from itertools import count
from math import inf
from pathlib import Path
from typing import TypeVar

import trio
from cachetools import LRUCache

from bbfs.model.values import Content, Part
from bbfs.resources.cache import reserve
from bbfs.resources.cache.disk_index import DiskIndex, SourceUsage, charge
from bbfs.resources.cache.sqlite import is_damage, set_aside
from bbfs.resources.cache.tier import Cached
from bbfs.runtime.private_files import own_directory
from bbfs.sources.content.fd import Descriptor, of_program, read_at
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import DIGEST_BYTES, MemoryContent, digest_of
from bbfs.sources.content.spool import Spools, name_file

log = logging.getLogger(__name__)
T = TypeVar("T")

Key = tuple[str, str]
"""Fingerprint of a source and native URI of a resource."""

SMALL = 16 << 10
"""Bytes of a resource below which its contents are rows of the index."""
SPARE = 0.25
"""The part of the bound up to which the index may have free pages, for later contents."""
FULL_UNTIL = 0.9
"""The part of the bound down to which contents are evicted once it is reached."""
REMOVED_AT_ONCE = 512
"""Contents or rows removed in one transaction, so that no other process waits long for it."""
TOUCHED_AT_ONCE = 512
"""Uses that are noted in one transaction."""
UNFINISHED_KEPT = 600.0
"""Seconds after which an unfinished file is taken for abandoned."""
TIDY_EVERY = 86400.0
MARK_KEPT = 86400.0
"""Seconds after a write in which a load that began before may end. No source may take so long."""
COMPLAINED_EVERY = 60.0
_CHUNK = 1 << 20
_UNFINISHED = "new"


class DiskCache:
    """The contents in one directory, within a bound. Failures are logged and count as misses.

    max_bytes: bytes on disk of all contents of all processes; each process keeps its own bound when it adds.
    clock: seconds since the epoch. small: bytes of a resource below which its contents are rows of the index.
    """

    def __init__(
        self, directory: Path, max_bytes: int, clock: Callable[[], float] = time.time, *, small: int = SMALL
    ) -> None:
        """Open the cache. Raises OSError or sqlite3.Error if the directory cannot be used."""
        self.max_bytes = max_bytes
        self._small = small
        self._directory = directory
        self._index_path = directory / "index.sqlite"
        self._clock = clock
        self._lock = threading.Lock()
        self._limiter = trio.CapacityLimiter(4)
        self._numbers = count()
        self._complained = 0.0
        self._used: dict[str, float] = {}
        self._verified: LRUCache[str, tuple[int, int, int]] = LRUCache(10_000)
        self._make_directories()
        self._index = reserve.opened(directory, self._open)

    @property
    def unfinished(self) -> Path:
        """The directory of files that are being written, on the file system of the cache."""
        return self._directory / _UNFINISHED

    def lend(self, spools: Spools) -> None:
        """Have spools write their files where the cache can take them over."""
        spools.use(self.unfinished, self.max_bytes, self._limiter)

    def _make_directories(self) -> None:
        for path in (self._directory, self.unfinished):
            own_directory(path)

    def _open(self) -> DiskIndex:
        try:
            return DiskIndex(self._index_path)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if not is_damage(error):
                raise
            set_aside(self._index_path, error)
            return DiskIndex(self._index_path)

    # -- reading -----------------------------------------------------------------------------------------------------

    def absent(self, source: str, uri: str) -> bool | None:
        """Return whether nothing is cached of a resource, or None if this process has to `look` first.

        Never blocks. May miss what another process has put in the last second.
        """
        return self._index.absent(source, uri)

    def look(self, source: str) -> None:
        """Read from the index which resources of a source are cached, for `absent`."""
        with self._guarded():
            self._index.look(source)

    def read(self, source: str, uri: str, in_memory: int) -> Cached | None:
        """Return what is cached of a resource, verified, or None.

        in_memory: bytes up to which the contents are read into memory; larger ones stay in files, if they have some.
        """
        found = None
        with self._guarded():
            found = self._index.find(source, uri)
        if found is None:
            return None
        headed, fetched_at, ttl, etag, stale = found
        whole = sum(header.size for header, _ in headed) <= in_memory
        parts: list[Part] = []
        for header, data in headed:
            content = self._content(header.digest, header.size, data, whole=whole)
            if content is None:
                log.info("a content in the disk cache is gone or damaged, and is dropped: %s", header.digest)
                self._drop(header.digest)
                return None
            parts.append(header.part(content))
        now = self._clock()
        with self._guarded():
            self._used.update((header.digest, now) for header, _ in headed)
            if len(self._used) >= TOUCHED_AT_ONCE:
                with self._index.changing():
                    self._note_uses()
        return Cached(tuple(parts), fetched_at, ttl, etag, stale)

    def _content(
        self, digest: str, size: int, data: bytes | None, *, whole: bool
    ) -> MemoryContent | StoredContent | None:
        """Return a content, or None if its file is missing, or bytes have another digest. data: those of its row."""
        if data is not None and (whole or not self._path(digest).exists()):
            return MemoryContent(data, digest) if digest_of(data) == digest else None
        try:
            number = os.open(self._path(digest), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            descriptor = Descriptor(number) if whole else of_program(number)
        except OSError:
            return None
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
        """Return whether a file has the digest of its name. Computed once for each file and process."""
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

    def put(
        self,
        entries: Sequence[tuple[Key, Cached]],
        now: float = inf,
        is_wanted: Callable[[Key, Cached], bool] = lambda key, cached: True,
        *,
        in_files: bool = False,
    ) -> bool:
        """Store the answers of loads. Return whether all contents are stored now. in_files: small ones in files too.

        An entry that is larger than the bound is left out; so is one that is earlier than what is cached: another
        process has asked for that later, or has written it. now: by the clock of the entries; a time after it does not
        count. is_wanted: says of each entry, within the transaction, whether it is still to be stored: what `mark` has
        taken meanwhile stays, and what it takes afterwards replaces the entry.
        """
        fitting = [
            (key, cached, {} if in_files else self._rows(cached))
            for key, cached in entries
            if sum(charge(part.content.size) for part in cached.parts) <= self.max_bytes
        ]
        written: dict[str, Path] = {}
        try:
            if not self._index.is_current():  # a connection would go on in a database that was removed
                raise FileNotFoundError(errno.ENOENT, "the index was removed", str(self._index_path))
            for _, cached, rows in fitting:
                for part in cached.parts if not rows else ():
                    if part.content.version not in written and not self._is_there(part.content):
                        written[part.content.version] = self._write(part.content)
            with self._guarded(), self._index.changing():
                self._note_uses()
                for key, cached, rows in fitting:
                    if is_wanted(key, cached) and not self._index.has_later(*key, cached.asked_at, now):
                        self._put(key, cached, rows, written)
            self._evict()
        except OSError as error:
            self._complain("contents could not be kept on disk", error)
            self._restore_directory()
            return False
        finally:
            for path in written.values():
                with suppress(OSError):
                    path.unlink(missing_ok=True)
        return len(fitting) == len(entries) and all(self._are_there(cached, rows) for _, cached, rows in fitting)

    def _rows(self, cached: Cached) -> dict[str, bytes]:
        """Return the bytes of contents, by digest, that are to be rows: those of a small resource."""
        contents = [part.content for part in cached.parts if isinstance(part.content, MemoryContent)]
        is_small = len(contents) == len(cached.parts) and cached.size < self._small
        return {content.version: content.data for content in contents} if is_small else {}

    def _are_there(self, cached: Cached, rows: Mapping[str, bytes]) -> bool:
        if not rows:
            return all(self._is_there(part.content) for part in cached.parts)
        with self._guarded():
            return all(map(self._index.has_bytes, rows))
        return False

    def _put(self, key: Key, cached: Cached, rows: Mapping[str, bytes], written: dict[str, Path]) -> None:
        before = self._index.digests(*key)
        for content in (part.content for part in cached.parts if not rows):
            new = written.pop(content.version, None)
            if new is None and not self._is_there(content):
                new = self._write(content)  # another process has removed it meanwhile
            if new is not None:
                path = self._path(content.version)
                path.parent.mkdir(mode=0o700, exist_ok=True)
                new.replace(path)
        self._index.put(*key, cached, self._clock(), rows)
        after = {part.content.version for part in cached.parts}
        self._unlink_if_possible(self._index.collect(before - after))

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
        """Mark resources as stale, by source and URI (None: all of the source)."""
        by_source: dict[str, list[str | None]] = {}
        for source, uri in changed:
            by_source.setdefault(source, []).append(uri)
        with self._guarded(), self._index.changing():
            for source, uris in by_source.items():
                single = [uri for uri in uris if uri is not None]
                self._index.expire(source, None if len(single) < len(uris) else single)

    def remove(self, keys: Iterable[Key]) -> None:
        """Remove resources, so that nothing is cached of them."""
        with self._guarded(), self._index.changing():
            self._unlink_if_possible([digest for key in keys for digest in self._index.remove(*key)])

    def mark(self, written: Mapping[Key, float], below: Iterable[Key], now: float) -> bool:
        """Leave the times of writes in place of what was before. Return whether the index has taken that.

        below: of these, nothing is kept, nor of all whose URIs begin so, up to a slash. now: as for `put`.
        """
        with self._guarded():
            with self._index.changing():
                gone = [digest for each in below for digest in self._index.remove_below(*each)]
                for key, at in written.items():
                    if not self._index.has_later(*key, at, now):
                        before = self._index.digests(*key)
                        self._index.put(*key, Cached((), at, 0.0), at)
                        gone += self._index.collect(before)
                self._unlink_if_possible(gone)
            return True
        return False

    def clear(self, source: str | None = None) -> None:
        """Remove all contents, or those of one source."""
        with self._guarded(), self._index.changing():
            for each in [usage.source for usage in self._index.usage()] if source is None else [source]:
                self._unlink(self._index.forget_source(each))
        if any(source in (None, usage.source) for usage in self.usage()[1]):  # a full disk takes no change of the index
            with self._lock:
                self._index, gone = self._index.replaced() if source is None else self._index.without(source)
            self._unlink(gone)
        self._give_back(0)

    # -- keeping order -----------------------------------------------------------------------------------------------

    def _evict(self) -> None:
        """Evict the least recently used contents once the bound is passed."""
        held, goal = self._held(), self.max_bytes * FULL_UNTIL
        before = inf if held > self.max_bytes else held
        # Unless the index is locked, or other processes add as fast: they keep to the bound too.
        while goal < held < before:
            self._evict_some(goal)
            before, held = held, self._held()
        self._give_back(self.max_bytes * SPARE)

    def _evict_some(self, goal: float) -> None:
        with self._guarded(), self._index.changing():
            self._unlink(self._index.forget(self._index.to_evict(goal, REMOVED_AT_ONCE)))

    def _give_back(self, most: float) -> None:
        """Give free pages of the index back to the file system if they are more than so many bytes."""
        spare = 0
        with self._guarded():
            spare = self._index.spare()
        while spare > most:
            before = spare
            with self._guarded():
                self._index.give_back()
                spare = self._index.spare()
            if spare >= before:
                return  # the index is locked, or other processes remove as much

    def _held(self) -> int:
        """Return the bytes that all contents take on disk."""
        held = 0
        with self._guarded():
            held, _ = self._index.total()
        return held

    def tidy(self) -> None:
        """Evict; and once a day, remove files without a row, rows without a file, and old times of writes."""
        self._evict()
        stamp = self._directory / "tidied"
        with suppress(OSError):
            if 0 <= self._clock() - stamp.stat().st_mtime < TIDY_EVERY:
                return
        try:
            stamp.touch(mode=0o600)
            for path in self.unfinished.iterdir():
                with suppress(FileNotFoundError):
                    if self._clock() - path.stat().st_mtime > UNFINISHED_KEPT:
                        path.unlink()
            for shard in (f"{number:02x}" for number in range(256)):
                self._tidy_shard(shard)
            self._tidy_marks()
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

    def _tidy_marks(self) -> None:
        self.asked(lambda index: index.forget_pins(self._clock()), None)
        marks: list[Key] = []
        with self._guarded():
            marks = self._index.marks(self._clock() - MARK_KEPT)
        for start in range(0, len(marks), REMOVED_AT_ONCE):
            with self._guarded(), self._index.changing():
                self._index.forget_marks(marks[start : start + REMOVED_AT_ONCE])

    def usage(self) -> tuple[int, list[SourceUsage]]:
        """Return the bytes on disk of all contents, and the share of each source."""
        with self._guarded():
            return self._index.total()[0], self._index.usage()
        return 0, []

    def close(self) -> None:
        """Note the last uses and close the index. Open contents stay readable."""
        with self._guarded():
            with self._index.changing():
                self._note_uses()
            self._index.close()

    # -- what all of it uses -----------------------------------------------------------------------------------------

    def asked(self, ask: Callable[[DiskIndex], T], otherwise: T) -> T:
        """Return what the index answers in a transaction, or something else where it cannot be used."""
        with self._guarded(), self._index.changing():
            return ask(self._index)
        return otherwise

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Lock the index. Log its errors, and leave out the rest of the block then."""
        with self._lock:
            try:
                yield
            except sqlite3.ProgrammingError:
                pass  # closed: a thread was late while the daemon ends
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                if is_damage(error):
                    self._replace_index(error)
                else:
                    self._complain("the disk cache cannot be used now", error)

    def _complain(self, what: str, error: Exception) -> None:
        """Log an error, at most once in `COMPLAINED_EVERY` seconds: a full disk fails for every content."""
        now = self._clock()
        if now - self._complained >= COMPLAINED_EVERY:
            self._complained = now
            log.warning("%s: %s", what, error)

    def _replace_index(self, error: sqlite3.DatabaseError | UnicodeDecodeError) -> None:
        """Replace a damaged index. The files stay until they are put again or tidied away."""
        with self._reopening():
            set_aside(self._index_path, error)
            (self._directory / "tidied").unlink(missing_ok=True)

    def _restore_directory(self) -> None:
        """Make the directory again if it was removed."""
        with self._lock:
            if not (self.unfinished.exists() and self._index.is_current()):
                with self._reopening():
                    self._make_directories()

    @contextmanager
    def _reopening(self) -> Iterator[None]:
        """Close the index, and open it again after the block."""
        self._index.close()
        try:
            yield
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

    def _unlink_if_possible(self, digests: Iterable[str]) -> None:
        """Remove files that no resource has any more. It has none of them either if they cannot be removed."""
        try:
            self._unlink(digests)
        except OSError as error:
            self._complain("contents could not be removed from the disk cache", error)
