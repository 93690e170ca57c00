"""The index of the disk cache, in SQLite: the contents of each resource, their last uses, and the bytes of small ones.

It knows rows, not files. Methods but `absent` block and do not lock: the disk cache calls one at a time. `changing` is
a transaction.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType

from bbfs.model.errors import NoSpace, TooLarge
from bbfs.resources.cache import reserve
from bbfs.resources.cache.sqlite import as_text, connect
from bbfs.resources.cache.tier import CLOCKS_DIFFER, Cached, PartHeader
from bbfs.runtime.private_files import own_database

EXPIRED_AT_ONCE = 500
"""Resources marked as stale by one statement; SQLite may be built for 999 values in one."""
GIVEN_BACK_AT_ONCE = 2_000
"""Free pages that one transaction gives back to the file system."""
PINS_KEPT = 30 * 86400.0
"""Seconds for which a source is pinned that no mount has."""
COPIED = 256 << 20
"""Largest index, in bytes, that is copied in memory to remove one source on a full disk."""
JOURNAL_KEPT = 4 << 20
"""Bytes of the journal that stay for later changes."""
LOOKED_EVERY = 1.0
"""Seconds between looks for what other processes have put."""
MOST = 50_000
"""Largest source, in resources, whose URIs are kept in memory (about 150 bytes each)."""
SOURCES = 64
"""Sources whose URIs are kept in memory."""
_VERSION = 4
_HAS_NO_PART = "NOT EXISTS (SELECT 1 FROM part WHERE part.source = resource.source AND part.uri = resource.uri)"
_BLOCK = 4096
_SCHEMA = (
    *(f"DROP TABLE IF EXISTS {table}" for table in ("content", "resource", "part", "total", "small")),
    "CREATE TABLE content (digest TEXT PRIMARY KEY, size INTEGER NOT NULL, charge INTEGER NOT NULL,"
    " used_at REAL NOT NULL) WITHOUT ROWID",
    "CREATE INDEX content_used ON content (used_at)",
    "CREATE TABLE resource (source TEXT, uri TEXT, fetched_at REAL NOT NULL, ttl REAL NOT NULL,"
    " stale INTEGER NOT NULL, etag TEXT, asked_at REAL NOT NULL, PRIMARY KEY (source, uri)) WITHOUT ROWID",
    "CREATE TABLE part (source TEXT, uri TEXT, position INTEGER, digest TEXT NOT NULL, native_uri TEXT,"
    " mime_type TEXT, content_type TEXT NOT NULL, name TEXT, seal BLOB NOT NULL, PRIMARY KEY (source, uri, position))"
    " WITHOUT ROWID",
    "CREATE INDEX part_digest ON part (digest)",
    # Updated by triggers, so that no process has to add up all rows.
    "CREATE TABLE total (bytes INTEGER NOT NULL, contents INTEGER NOT NULL)",
    "INSERT INTO total VALUES (0, 0)",
    "CREATE TRIGGER content_added AFTER INSERT ON content BEGIN"
    " UPDATE total SET bytes = bytes + NEW.charge, contents = contents + 1; END",
    "CREATE TRIGGER content_removed AFTER DELETE ON content BEGIN"
    " UPDATE total SET bytes = bytes - OLD.charge, contents = contents - 1; END",
)
_ADDED = (
    # An index without these is read as well: all of its contents are in files.
    "CREATE TABLE IF NOT EXISTS small (digest TEXT PRIMARY KEY, bytes BLOB NOT NULL)",
    "CREATE TRIGGER IF NOT EXISTS small_removed AFTER DELETE ON content BEGIN"
    " DELETE FROM small WHERE digest = OLD.digest; END",
)
_PINS = (
    # Beside the schema: they are no cache, and a later version of the index keeps them.
    "CREATE TABLE IF NOT EXISTS pinned_path (source TEXT, path TEXT, seen REAL NOT NULL, PRIMARY KEY (source, path))"
    " WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS pin (source TEXT, uri TEXT, seen REAL NOT NULL, PRIMARY KEY (source, uri))"
    " WITHOUT ROWID",
)
_IS_PINNED = (
    "EXISTS (SELECT 1 FROM part JOIN pin ON pin.source = part.source AND pin.uri IN ('', part.uri)"
    " WHERE part.digest = content.digest)"
)


def charge(size: int) -> int:
    """Return the bytes on disk of a file of `size` bytes: whole blocks, one at least."""
    return max(1, -(-size // _BLOCK)) * _BLOCK


def _unlink(path: Path) -> None:
    """Remove an index with its journal, and the reserve."""
    for name in (*(path.name + end for end in ("", "-wal", "-shm")), reserve.NAME):
        path.with_name(name).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class SourceUsage:
    """The resources and bytes of one source on disk; equal contents count once.

    source: `source.fingerprint`, which begins with the base prefix and a space.
    """

    source: str
    resources: int
    bytes: int


@dataclass(slots=True)
class _Known:
    """The URIs of a source, perhaps with some that are gone; None if they are too many.

    version: changes with each write by another connection (sqlite.org/pragma.html, data_version). until: when to look
    again, by the clock of the index.
    """

    uris: set[str] | None
    version: int
    until: float


class DiskIndex:
    """An open index. Raises sqlite3.Error from every method. clock: seconds, monotonic. most: URIs for `absent`."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic, most: int = MOST) -> None:
        self._path = path
        self._clock = clock
        self._most = most
        self._known: dict[str, _Known] = {}
        self._db = connect(str(path), _SCHEMA, _VERSION, shrinks=True)
        self._db.isolation_level = None  # transactions begin where `changing` says so
        self._inode = path.stat().st_ino
        for statement in (*_ADDED, *_PINS):
            self._db.execute(statement)
        self._db.execute(f"PRAGMA journal_size_limit = {JOURNAL_KEPT}")
        if not self._gives_back() and self._db.execute("SELECT 1 FROM small LIMIT 1").fetchone() is None:
            with suppress(sqlite3.OperationalError):  # another process has it; `give_back` tries again
                self._rebuild()

    def close(self) -> None:
        self._db.close()

    def is_current(self) -> bool:
        """Return whether the file at the path is still this index: another process may have removed or replaced it."""
        try:
            return self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def without(self, source: str) -> tuple["DiskIndex", list[str]]:
        """Close the index, remove it, and return a new one without a source, and the contents that are gone.

        On a full disk no row can be removed, since the journal has to have the change first: the rows that stay are in
        memory meanwhile. Raises TooLarge, NoSpace, OSError.
        """
        size = self._db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0]
        if size > COPIED:
            raise TooLarge(f"its index has {size} bytes, too many to be copied in memory: clear all sources at once")
        try:
            self._db.execute("PRAGMA journal_mode = DELETE")  # which fails so while another process has it open
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise NoSpace(
                    "the disk is full, and a mount has the index open: unmount, or clear all sources"
                ) from None
            # else the disk is full for this change, too: the file is removed with its journal
        copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        with closing(self._db) as on_disk:
            on_disk.backup(copy)
        self._db = copy
        gone = self.forget_source(source)
        _unlink(self._path)
        own_database(self._path)
        copy.execute("VACUUM INTO ?", (str(self._path),))  # which writes no journal
        copy.close()
        return DiskIndex(self._path, self._clock, self._most), gone

    def replaced(self) -> tuple["DiskIndex", list[str]]:
        """Do the same with all sources. The pins stay."""
        pins = {table: self._db.execute(f"SELECT * FROM {table}").fetchall() for table in ("pinned_path", "pin")}
        gone = [row[0] for row in self._db.execute("SELECT digest FROM content")]
        self.close()
        _unlink(self._path)
        made = DiskIndex(self._path, self._clock, self._most)
        with made.changing():
            for table, rows in pins.items():
                made._db.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
        return made, gone

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Open a transaction that excludes other writers. An exception rolls it back."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._db.in_transaction:  # not after a full disk
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Let all statements see one state: another process may evict something between two of them."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("COMMIT")

    def absent(self, source: str, uri: str) -> bool | None:
        """Return whether a resource has no row, or None if the caller has to `look` first. Never blocks.

        Most first loads are not on disk, and asking the database in a thread takes a good part of what a load costs
        here. This misses what another process has put a moment ago, which costs a request.
        """
        known = self._known.get(source)
        if known is None or self._clock() >= known.until:
            return None
        return known.uris is not None and (uri if uri.isascii() else as_text(uri)) not in known.uris

    def look(self, source: str) -> None:
        """Read the URIs of a source, for `absent`, unless they were read just now."""
        known, now = self._known.get(source), self._clock()
        if known is not None and now < known.until:
            return
        version = self._db.execute("PRAGMA data_version").fetchone()[0]
        if known is None or known.version != version:
            rows = self._db.execute("SELECT uri FROM resource WHERE source = ? LIMIT ?", (source, self._most + 1))
            uris = {row[0] for row in rows}
            known = _Known(uris if len(uris) <= self._most else None, version, 0.0)
            while len(self._known) >= SOURCES and source not in self._known:
                del self._known[next(iter(self._known))]
            self._known[source] = known
        known.until = now + LOOKED_EVERY

    def find(
        self, source: str, uri: str
    ) -> tuple[list[tuple[PartHeader, bytes | None]], float, float, str | None, bool] | None:
        """Return the fields of a resource's `Cached`; instead of parts, their headers, with the bytes that are rows.

        A size of -1 marks a content that the index has lost, or whose row has changed since it was written: such a
        content may belong to another resource.
        """
        key = (source, as_text(uri))
        with self._reading():
            row = self._db.execute(
                "SELECT fetched_at, ttl, etag, stale FROM resource WHERE source = ? AND uri = ?", key
            ).fetchone()
            if row is None:
                return None
            parts = self._db.execute(
                # Without a join that leaves parts out: where a content is lost, the rest is not the resource.
                "SELECT digest, coalesce(size, -1), native_uri, mime_type, content_type, name, bytes, position, seal"
                " FROM part LEFT JOIN content USING (digest) LEFT JOIN small USING (digest)"
                " WHERE source = ? AND uri = ? ORDER BY position",
                key,
            ).fetchall()
        headers: list[tuple[PartHeader, bytes | None]] = []
        for digest, size, native_uri, mime_type, content_type, name, data, position, seal in parts:
            given = (native_uri, mime_type, content_type, name)
            if seal != _seal(*key, position, len(parts), digest, *given):
                size, data = -1, None
            headers.append((PartHeader(digest, size, *given), data))
        return headers, row[0], row[1], row[2], bool(row[3])

    def kept(self, source: str) -> dict[str, int]:
        """Return the bytes of the contents of each resource of a source that has some."""
        rows = self._db.execute(
            "SELECT uri, sum(size) FROM part JOIN content USING (digest) WHERE source = ? GROUP BY uri", (source,)
        )
        return dict(rows.fetchall())

    def has_later(self, source: str, uri: str, asked_at: float, now: float) -> bool:
        """Return whether what is cached was asked for later. A time after `now` does not count: a clock is wrong."""
        query = "SELECT 1 FROM resource WHERE source = ? AND uri = ? AND asked_at > ? AND asked_at <= ?"
        row = self._db.execute(query, (source, as_text(uri), asked_at, now + CLOCKS_DIFFER)).fetchone()
        return row is not None

    def put(
        self, source: str, uri: str, cached: Cached, used_at: float, small: Mapping[str, bytes] = MappingProxyType({})
    ) -> None:
        """Replace the row of a resource. small: the bytes of its contents, by digest, that have no files."""
        key = (source, as_text(uri))
        known = self._known.get(source)
        if known is not None and known.uris is not None:
            known.uris.add(key[1])
            if len(known.uris) > self._most:
                known.uris = None
        self._db.execute(
            "INSERT OR REPLACE INTO resource VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*key, cached.fetched_at, cached.ttl, cached.stale, _text(cached.etag), cached.asked_at),
        )
        self._db.execute("DELETE FROM part WHERE source = ? AND uri = ?", key)
        for position, part in enumerate(map(PartHeader.of, cached.parts)):
            # An upsert: a replacement would remove a row without firing the trigger.
            self._db.execute(
                "INSERT INTO content VALUES (?, ?, ?, ?) ON CONFLICT (digest) DO UPDATE SET used_at = excluded.used_at",
                (part.digest, part.size, charge(part.size), used_at),
            )
            if (data := small.get(part.digest)) is not None:
                self._db.execute("INSERT OR IGNORE INTO small VALUES (?, ?)", (part.digest, data))
            given = (_text(part.native_uri), part.mime_type, part.content_type, _text(part.name))
            row = (*key, position, part.digest, *given)
            seal = _seal(*key, position, len(cached.parts), part.digest, *given)
            self._db.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, seal))

    def digests(self, source: str, uri: str) -> set[str]:
        """Return the contents of a resource."""
        key = (source, as_text(uri))
        return {row[0] for row in self._db.execute("SELECT digest FROM part WHERE source = ? AND uri = ?", key)}

    def expire(self, source: str, uris: Sequence[str] | None) -> None:
        """Mark resources (None: every one of the source) as stale.

        Each statement gives up the interpreter's lock and may wait for it, so there are few, with many URIs each.
        """
        expire = "UPDATE resource SET stale = 1 WHERE source = ?"
        if uris is None:
            self._db.execute(expire, (source,))
            return
        for start in range(0, len(uris), EXPIRED_AT_ONCE):
            some = [as_text(uri) for uri in uris[start : start + EXPIRED_AT_ONCE]]
            self._db.execute(f"{expire} AND uri IN ({', '.join('?' * len(some))})", (source, *some))

    def forget(self, digests: Iterable[str]) -> list[str]:
        """Drop contents and the resources that have them. Return all contents that are gone."""
        gone: set[str] = set()
        beside: set[str] = set()
        for digest in digests:
            for key in self._db.execute("SELECT DISTINCT source, uri FROM part WHERE digest = ?", (digest,)).fetchall():
                beside |= self.digests(*key)
                self._forget_resource(*key)
            self._db.execute("DELETE FROM content WHERE digest = ?", (digest,))
            gone.add(digest)
        return [*gone, *self.collect(beside - gone)]

    def remove(self, source: str, uri: str) -> list[str]:
        """Drop a resource. Return the contents that are gone."""
        had = self.digests(source, uri)
        self._forget_resource(source, as_text(uri))
        return self.collect(had)

    def remove_below(self, source: str, start: str) -> list[str]:
        """Drop the resources whose URIs begin so. Return the contents that are gone. start: ends with a slash."""
        first = as_text(start)
        among = (source, first, first[:-1] + "0")  # 0: the character after a slash
        rows = self._db.execute("SELECT digest FROM part WHERE source = ? AND uri >= ? AND uri < ?", among).fetchall()
        for table in ("part", "resource"):
            self._db.execute(f"DELETE FROM {table} WHERE source = ? AND uri >= ? AND uri < ?", among)
        return self.collect({row[0] for row in rows})

    def marks(self, before: float) -> list[tuple[str, str]]:
        """Return the resources without contents that were written before a time."""
        query = f"SELECT source, uri FROM resource WHERE asked_at < ? AND {_HAS_NO_PART}"
        return self._db.execute(query, (before,)).fetchall()

    def forget_marks(self, keys: Iterable[tuple[str, str]]) -> None:
        """Drop those of some resources that still have no contents."""
        self._db.executemany(f"DELETE FROM resource WHERE source = ? AND uri = ? AND {_HAS_NO_PART}", keys)

    def forget_source(self, source: str) -> list[str]:
        """Drop a source. Return the contents that are gone."""
        rows = self._db.execute("SELECT DISTINCT digest FROM part WHERE source = ?", (source,)).fetchall()
        self._db.execute("DELETE FROM part WHERE source = ?", (source,))
        for table in ("resource", "pin", "pinned_path"):
            self._db.execute(f"DELETE FROM {table} WHERE source = ?", (source,))
        return self.collect(row[0] for row in rows)

    def collect(self, digests: Iterable[str]) -> list[str]:
        """Drop and return those of the contents that no resource has any more."""
        gone = [
            digest
            for digest in digests
            if self._db.execute("SELECT 1 FROM part WHERE digest = ? LIMIT 1", (digest,)).fetchone() is None
        ]
        self._db.executemany("DELETE FROM content WHERE digest = ?", ((digest,) for digest in gone))
        return gone

    def _forget_resource(self, source: str, uri: str) -> None:
        self._db.execute("DELETE FROM part WHERE source = ? AND uri = ?", (source, uri))
        self._db.execute("DELETE FROM resource WHERE source = ? AND uri = ?", (source, uri))

    def touch(self, used: Mapping[str, float]) -> None:
        """Note the last uses of contents, in seconds since the epoch."""
        rows = ((at, digest, at) for digest, at in used.items())
        self._db.executemany("UPDATE content SET used_at = ? WHERE digest = ? AND used_at < ?", rows)

    def _oldest(self, count: int) -> list[tuple[str, int]]:
        """Return the least recently used contents, with their bytes on disk, without those of pinned resources."""
        query = f"SELECT digest, charge FROM content WHERE NOT {_IS_PINNED} ORDER BY used_at LIMIT ?"
        return self._db.execute(query, (count,)).fetchall()

    def to_evict(self, goal: float, count: int) -> list[str]:
        """Return at most `count` contents, the least recently used, without which the others take `goal` bytes."""
        held, _ = self.total()
        chosen: list[str] = []
        for digest, taken in self._oldest(count):
            if held <= goal:
                break
            chosen.append(digest)
            held -= taken
        return chosen

    def has_bytes(self, digest: str) -> bool:
        """Return whether the bytes of a content are a row."""
        return self._db.execute("SELECT 1 FROM small WHERE digest = ?", (digest,)).fetchone() is not None

    # -- pins --------------------------------------------------------------------------------------------------------

    def paths(self, source: str) -> list[str]:
        """Return the pinned paths of a source, in JSON."""
        return [row[0] for row in self._db.execute("SELECT path FROM pinned_path WHERE source = ?", (source,))]

    def note_path(self, source: str, path: str, seen: float | None) -> None:
        """Note a pinned path, or drop it (seen: None). seen: when a mount last had its source."""
        self._db.execute("DELETE FROM pinned_path WHERE source = ? AND path = ?", (source, path))
        if seen is not None:
            self._db.execute("INSERT INTO pinned_path VALUES (?, ?, ?)", (source, path, seen))

    def has_pins(self, source: str) -> bool:
        """Return whether resources of a source are not to be evicted."""
        return self._db.execute("SELECT 1 FROM pin WHERE source = ? LIMIT 1", (source,)).fetchone() is not None

    def hold(self, source: str, uris: Iterable[str], seen: float) -> None:
        """Evict nothing of these resources of a source (`""`: of any), and whatever is there of its others."""
        self._db.execute("DELETE FROM pin WHERE source = ?", (source,))
        rows = ((source, as_text(uri), seen) for uri in dict.fromkeys(uris))
        self._db.executemany("INSERT OR REPLACE INTO pin VALUES (?, ?, ?)", rows)
        self._db.execute("UPDATE pinned_path SET seen = ? WHERE source = ?", (seen, source))

    def forget_pins(self, now: float) -> None:
        """Drop the pins of sources that no mount has had for `PINS_KEPT` seconds."""
        for table in ("pin", "pinned_path"):
            self._db.execute(f"DELETE FROM {table} WHERE seen < ?", (now - PINS_KEPT,))

    def below(self, shard: str) -> dict[str, int]:
        """Return the contents in files whose digests begin with `shard`, with their sizes."""
        query = (
            "SELECT digest, size FROM content WHERE digest >= ? AND digest < ?"
            " AND NOT EXISTS (SELECT 1 FROM small WHERE small.digest = content.digest)"
        )
        return dict(self._db.execute(query, (shard, shard + "g")))  # g: after every hexadecimal digit

    def total(self) -> tuple[int, int]:
        """Return the bytes on disk of all contents, and their number."""
        return self._db.execute("SELECT bytes, contents FROM total").fetchone()

    def spare(self) -> int:
        """Return the bytes of free pages, which later rows will fill, or `give_back` removes."""
        pages, size = (self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size"))
        return pages * size

    def give_back(self) -> None:
        """Give some free pages back to the file system, or make that possible: an earlier bbfs has not."""
        if self._gives_back():
            # `execute` would take the first step only, which is one page.
            self._db.executescript(f"PRAGMA incremental_vacuum({GIVEN_BACK_AT_ONCE})")
            if self.spare() == 0:
                self._shorten_journal()
        else:
            self._rebuild()

    def _shorten_journal(self) -> None:
        """Give the room of the journal back, which may have become as large as what was removed."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def _gives_back(self) -> bool:
        return self._db.execute("PRAGMA auto_vacuum").fetchone()[0] != 0

    def _rebuild(self) -> None:
        """Write the index anew, so that it can give pages back. All of it passes through the journal."""
        self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        self._db.execute("VACUUM")
        self._shorten_journal()

    def usage(self) -> list[SourceUsage]:
        rows = self._db.execute(
            "SELECT source, (SELECT count(*) FROM resource WHERE resource.source = held.source), sum(size) FROM"
            " (SELECT DISTINCT source, digest FROM part) AS held JOIN content USING (digest)"
            " GROUP BY source ORDER BY source"
        )
        return [SourceUsage(*row) for row in rows]


def _seal(*fields: str | int | None) -> bytes:
    """Return a digest over the fields of a part and the number of parts.

    A damaged bit must not give a content to another resource, nor leave a part out.
    """
    return blake2b(json.dumps(fields).encode(), digest_size=8).digest()


def _text(given: str | None) -> str | None:
    return None if given is None else as_text(given)
