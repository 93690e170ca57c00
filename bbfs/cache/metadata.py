"""What is remembered of resources across mounts: learnt sizes, versions, times and the last listing, in SQLite.

The database is a cache: losing it costs requests, never truth. Every method blocks and belongs in a thread.
"""

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from bbfs.model import Listing, ResourceMetadata, ResourceTemplate

log = logging.getLogger(__name__)

SCHEMA_VERSION = 2
SCHEMA = """
CREATE TABLE resource (
    source TEXT NOT NULL, uri TEXT NOT NULL, size INTEGER, digest TEXT, salt TEXT NOT NULL,
    modified_ns INTEGER NOT NULL, fetched_at REAL, ttl REAL, PRIMARY KEY (source, uri)
) WITHOUT ROWID;
CREATE TABLE listing (source TEXT PRIMARY KEY, fetched_at REAL NOT NULL, body TEXT NOT NULL) WITHOUT ROWID;
"""
WAL_ATTEMPTS = 40


@dataclass(frozen=True, slots=True)
class Remembered:
    """One row. salt: the version part of the inode number. fetched_at, ttl: seconds, None if never loaded."""

    uri: str
    size: int | None
    digest: str | None
    salt: str
    modified_ns: int
    fetched_at: float | None
    ttl: float | None


class MetadataStore:
    """One SQLite file, shared by all mounts of a user. A file that cannot be used is set aside and a new one begun."""

    def __init__(self, path: Path | None) -> None:
        """path: the database, or None to remember nothing beyond this process."""
        self._lock = threading.Lock()
        self._path = path
        self._db = self._open(path)

    @staticmethod
    def _open(path: Path | None) -> sqlite3.Connection:
        if path is None:
            return _connect(":memory:")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return _connect(str(path))
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                log.warning("metadata is not remembered: %s: %s", path, error)
                return _connect(":memory:")
            _set_aside(path, error)
            return _connect(str(path))
        except OSError as error:
            log.warning("metadata is not remembered: %s: %s", path, error)
            return _connect(":memory:")

    def recall(self, source: str) -> tuple[list[Remembered], tuple[float, Listing] | None]:
        """All rows of a source, and its last listing with the time it was fetched at.

        What is damaged is not remembered: that costs requests, and the log says so.
        """
        try:
            with self._lock:
                rows = self._db.execute(
                    "SELECT uri, size, digest, salt, modified_ns, fetched_at, ttl FROM resource WHERE source = ?",
                    (source,),
                ).fetchall()
                body = self._db.execute("SELECT fetched_at, body FROM listing WHERE source = ?", (source,)).fetchone()
            return [Remembered(*row) for row in rows], None if body is None else (float(body[0]), _listing(body[1]))
        except sqlite3.OperationalError as error:
            log.warning("what was remembered of %s cannot be read: %s", source, error)
        except sqlite3.DatabaseError as error:
            self._begin_anew(error)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            log.warning("what was remembered of %s cannot be used: %s", source, error)
        return [], None

    def _begin_anew(self, error: sqlite3.DatabaseError) -> None:
        """Set a damaged database aside."""
        with self._lock:
            self._db.close()
            if self._path is not None:
                _set_aside(self._path, error)
            self._db = self._open(self._path)

    def remember(self, source: str, rows: Sequence[Remembered]) -> None:
        with self._lock, self._db:
            self._db.executemany(
                "INSERT OR REPLACE INTO resource (source, uri, size, digest, salt, modified_ns, fetched_at, ttl)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [(source, _text(r.uri), r.size, r.digest, r.salt, r.modified_ns, r.fetched_at, r.ttl) for r in rows],
            )

    def remember_listing(self, source: str, fetched_at: float, listing: Listing) -> None:
        """The whole listing of a source; rows of resources that it no longer holds are dropped."""
        listed = listing.resources
        document = {
            "ttl": listing.ttl,
            "resources": [_described(r) for r in listed],
            "templates": [_described(t) for t in listing.templates],
        }
        body = json.dumps(document, default=dict)
        with self._lock, self._db:
            self._db.execute("INSERT OR REPLACE INTO listing VALUES (?, ?, ?)", (source, fetched_at, body))
            self._db.execute("CREATE TEMP TABLE IF NOT EXISTS kept (uri TEXT PRIMARY KEY) WITHOUT ROWID")
            self._db.execute("DELETE FROM kept")
            self._db.executemany("INSERT OR IGNORE INTO kept VALUES (?)", ((_text(r.native_uri),) for r in listed))
            self._db.execute("DELETE FROM resource WHERE source = ? AND uri NOT IN (SELECT uri FROM kept)", (source,))

    def close(self) -> None:
        with self._lock:
            self._db.close()


def _connect(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=5.0, check_same_thread=False)
    try:
        _enable_wal(db)
        db.execute("PRAGMA synchronous = NORMAL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version != SCHEMA_VERSION:
            with db:
                db.execute("BEGIN IMMEDIATE")
                if db.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
                    for statement in (
                        "DROP TABLE IF EXISTS resource",
                        "DROP TABLE IF EXISTS listing",
                        *SCHEMA.split(";"),
                    ):
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    except sqlite3.Error:
        db.close()
        raise
    return db


def _set_aside(path: Path, error: Exception) -> None:
    log.warning("%s is not a usable database (%s): set aside", path, error)
    path.replace(path.with_suffix(".broken"))
    for companion in ("-wal", "-shm"):  # they belong to the damaged file and would damage the next
        path.with_name(path.name + companion).unlink(missing_ok=True)


def _enable_wal(db: sqlite3.Connection) -> None:
    """Turning WAL on does not wait for other processes as everything else does, so it is tried for a while."""
    for attempt in range(WAL_ATTEMPTS):
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if attempt == WAL_ATTEMPTS - 1:
                raise
            time.sleep(0.05)


def _text(uri: str) -> str:
    """SQLite wants UTF-8: a lone surrogate, which a sloppy server can send, is kept as its escape."""
    return uri.encode("utf-8", "backslashreplace").decode()


def _described(value: ResourceMetadata | ResourceTemplate) -> dict[str, Any]:
    given = ((field.name, getattr(value, field.name)) for field in fields(value))
    return {name: value for name, value in given if value is not None}


_T = TypeVar("_T", ResourceMetadata, ResourceTemplate)


def _values(kind: type[_T], entries: list[dict[str, Any]]) -> tuple[_T, ...]:
    known = {field.name for field in fields(kind)}
    return tuple(kind(**{key: value for key, value in entry.items() if key in known}) for entry in entries)


def _listing(body: str) -> Listing:
    whole: dict[str, Any] = json.loads(body)
    templates = _values(ResourceTemplate, whole.get("templates", []))
    return Listing(_values(ResourceMetadata, whole["resources"]), ttl=whole["ttl"], templates=templates)
