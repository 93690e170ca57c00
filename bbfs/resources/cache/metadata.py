"""Metadata across mounts, in SQLite: learnt sizes, versions and times of resources, and the last listings.

Losing the database costs requests only. Every method blocks and belongs in a thread.
"""

import json
import logging
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import inf
from pathlib import Path
from typing import Any

from bbfs.model.listing import Description, Rows
from bbfs.model.values import Listing, ResourceTemplate
from bbfs.resources.cache.sqlite import as_text, connect, set_aside
from bbfs.resources.cache.tier import CLOCKS_DIFFER
from bbfs.runtime.private_files import own_directory

log = logging.getLogger(__name__)

SCHEMA_VERSION = 6
SCHEMA = (
    "DROP TABLE IF EXISTS resource",
    "DROP TABLE IF EXISTS listing",
    "DROP TABLE IF EXISTS listed",
    """CREATE TABLE resource (
        source TEXT NOT NULL, uri TEXT NOT NULL, size INTEGER, digest TEXT, salt TEXT NOT NULL,
        modified_ns INTEGER NOT NULL, fetched_at REAL, ttl REAL, shown TEXT, PRIMARY KEY (source, uri)
    ) WITHOUT ROWID""",
    """CREATE TABLE listing (
        id INTEGER PRIMARY KEY, source TEXT NOT NULL, fetched_at REAL NOT NULL, head TEXT NOT NULL,
        complete INTEGER NOT NULL, outdated INTEGER NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE listed (
        listing INTEGER NOT NULL, uri TEXT NOT NULL, description TEXT NOT NULL, PRIMARY KEY (listing, uri)
    ) WITHOUT ROWID""",
)
ROWS_AT_ONCE = 5000
"""Resources read or written in one transaction, so that other processes can write in between."""
DESCRIPTIONS_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Remembered:
    """The row of a resource. inode_version: part of the inode number. fetched_at, ttl: seconds, or None.

    shown: as `Record.shown`.
    """

    uri: str
    size: int | None
    digest: str | None
    inode_version: str
    modified_ns: int
    fetched_at: float | None
    ttl: float | None
    shown: str | None = None


class MetadataStore:
    """One SQLite file for all mounts of a user. An unusable file is set aside and replaced."""

    def __init__(self, path: Path | None) -> None:
        """Open the store. path: the database, or None for memory only."""
        self._lock = threading.Lock()
        self._path = path
        self._db = self._open(path)

    @staticmethod
    def _open(path: Path | None) -> sqlite3.Connection:
        if path is None:
            return connect(":memory:", SCHEMA, SCHEMA_VERSION)
        try:
            own_directory(path.parent)
            return connect(str(path), SCHEMA, SCHEMA_VERSION)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                log.warning("metadata is not remembered: %s: %s", path, error)
                return connect(":memory:", SCHEMA, SCHEMA_VERSION)
            set_aside(path, error)
            return connect(str(path), SCHEMA, SCHEMA_VERSION)
        except OSError as error:
            log.warning("metadata is not remembered: %s: %s", path, error)
            return connect(":memory:", SCHEMA, SCHEMA_VERSION)

    def recall(self, source: str, now: float = inf) -> tuple[list[Remembered], tuple[float, Listing] | None]:
        """Return all rows of a source, and its last listing with the time of its fetch; its ttl is 0 if invalidated.

        now: seconds since the epoch. A time in the future is that of a clock that was set back: the ttl is 0 then.
        Damaged rows are logged and left out.
        """
        try:
            with self._lock:
                rows = self._db.execute(
                    "SELECT uri, size, digest, salt, modified_ns, min(fetched_at, ?), iif(fetched_at > ?, 0.0, ttl),"
                    " shown FROM resource WHERE source = ?",
                    (now, now + CLOCKS_DIFFER, source),
                ).fetchall()
            return [Remembered(*row) for row in rows], self._recall_listing(source, now)
        except sqlite3.OperationalError as error:
            log.warning("what was remembered of %s cannot be read: %s", source, error)
        except sqlite3.DatabaseError as error:
            self._replace(error)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            log.warning("what was remembered of %s cannot be used: %s", source, error)
        return [], None

    def _replace(self, error: sqlite3.DatabaseError) -> None:
        """Replace a damaged database."""
        with self._lock:
            self._db.close()
            if self._path is not None:
                set_aside(self._path, error)
            self._db = self._open(self._path)

    def remember(self, source: str, rows: Sequence[Remembered]) -> None:
        with self._lock, self._db:
            self._db.executemany(
                "INSERT OR REPLACE INTO resource (source, uri, size, digest, salt, modified_ns, fetched_at, ttl, shown)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [_resource_row(source, each) for each in rows],
            )

    def _recall_listing(self, source: str, now: float) -> tuple[float, Listing] | None:
        with self._lock:
            latest = "WHERE source = ? AND complete ORDER BY id DESC LIMIT 1"
            query = f"SELECT id, fetched_at, head, outdated FROM listing {latest}"
            found = self._db.execute(query, (source,)).fetchone()
        if found is None:
            return None
        number, fetched_at, text, outdated = found
        head: dict[str, Any] = json.loads(text)
        ttl = 0.0 if outdated or fetched_at > now + CLOCKS_DIFFER else head["ttl"]
        rows = Rows(head["base_prefix"])
        descriptions: dict[str, Description] = {}
        beyond, after = ">=", ""
        while True:
            with self._lock:
                some = self._db.execute(
                    f"SELECT uri, description FROM listed WHERE listing = ? AND uri {beyond} ? ORDER BY uri LIMIT ?",
                    (number, after, ROWS_AT_ONCE),
                ).fetchall()
            for uri, said in some:
                if said[0] == "{":
                    odd: dict[str, Any] = json.loads(said)
                    rows.add(odd["uri"], tuple(odd["description"]))
                    continue
                description = descriptions.get(said)
                if description is None:
                    description = rows.shared(tuple(json.loads(said)))
                    if len(descriptions) < DESCRIPTIONS_KEPT:
                        descriptions[said] = description
                rows.add(uri, description)
            if len(some) < ROWS_AT_ONCE:
                described = head.get("descriptions", 0)  # not in a store of an earlier version
                listing = Listing(rows, ttl, None, _templates(head["templates"]), False, described)
                return min(fetched_at, now), replace(listing, directories=(*head.get("directories", ()),))
            beyond, after = ">", some[-1][0]

    def listed(self, source: str) -> int:
        """Return the number of resources in the listing that `recall` returns."""
        with self._lock:
            number = self._db.execute(
                "SELECT coalesce(max(id), 0) FROM listing WHERE source = ? AND complete", (source,)
            ).fetchone()[0]
            return self._db.execute("SELECT count(*) FROM listed WHERE listing = ?", (number,)).fetchone()[0]

    def begin_listing(self, source: str, fetched_at: float, listing: Listing, base_prefix: str) -> int:
        """Begin to write a listing, and return its number. It is recalled from `end_listing` on."""
        with self._lock, self._db:
            return self._db.execute(
                "INSERT INTO listing (source, fetched_at, head, complete) VALUES (?, ?, ?, 0) RETURNING id",
                (source, fetched_at, _head(listing, base_prefix)),
            ).fetchone()[0]

    def add_listed(self, number: int, rows: Sequence[tuple[str, Description]]) -> None:
        """Add resources to a listing that was begun."""
        texts: dict[int, str] = {}
        written: list[tuple[int, str, str]] = []
        for uri, description in rows:
            text = texts.get(id(description))
            if text is None:
                text = texts[id(description)] = json.dumps(description, default=dict)
            written.append(_row(number, uri, text))
        with self._lock, self._db:
            self._db.executemany("INSERT OR REPLACE INTO listed VALUES (?, ?, ?)", written)

    def end_listing(self, source: str, number: int) -> None:
        """Complete a listing: it replaces the one before."""
        with self._lock, self._db:
            self._db.execute("UPDATE listing SET complete = 1 WHERE id = ?", (number,))
            others = "SELECT id FROM listing WHERE source = ? AND id < ?"
            self._db.execute(f"DELETE FROM listed WHERE listing IN ({others})", (source, number))
            self._db.execute("DELETE FROM listing WHERE source = ? AND id < ?", (source, number))
            self._db.execute(
                "DELETE FROM resource WHERE source = ? AND uri NOT IN (SELECT uri FROM listed WHERE listing = ?)",
                (source, number),
            )

    def change_listing(
        self,
        source: str,
        fetched_at: float,
        listing: Listing,
        base_prefix: str,
        described: Sequence[tuple[str, Description]],
        gone: Sequence[str],
    ) -> bool:
        """Write the changes of a listing. Return False if there is no listing to change."""
        with self._lock:
            found = self._db.execute("SELECT max(id) FROM listing WHERE source = ? AND complete", (source,)).fetchone()[
                0
            ]
        if found is None:
            return False
        with self._lock, self._db:
            head = _head(listing, base_prefix)
            query = "UPDATE listing SET fetched_at = ?, head = ?, outdated = 0 WHERE id = ?"
            self._db.execute(query, (fetched_at, head, found))
            left = [(found, as_text(uri)) for uri in gone]
            self._db.executemany("DELETE FROM listed WHERE listing = ? AND uri = ?", left)
            self._db.executemany(
                "DELETE FROM resource WHERE source = ? AND uri = ?", [(source, uri) for _, uri in left]
            )
            written = [_row(found, uri, json.dumps(description, default=dict)) for uri, description in described]
            self._db.executemany("INSERT OR REPLACE INTO listed VALUES (?, ?, ?)", written)
        return True

    def outdate_listing(self, source: str) -> None:
        """Invalidate the listing of a source."""
        with self._lock, self._db:
            self._db.execute("UPDATE listing SET outdated = 1 WHERE source = ?", (source,))

    def close(self) -> None:
        with self._lock:
            self._db.close()


def _resource_row(source: str, row: Remembered) -> tuple[str | float | None, ...]:
    """Return a row of `resource`, in the order of its columns."""
    learnt = (row.size, row.digest, row.inode_version, row.modified_ns, row.fetched_at, row.ttl, row.shown)
    return source, as_text(row.uri), *learnt


def _row(number: int, uri: str, description: str) -> tuple[int, str, str]:
    """Return a row of `listed`. The description repeats a URI that SQLite cannot hold."""
    text = as_text(uri)
    if text != uri:
        description = f'{{"uri": {json.dumps(uri)}, "description": {description}}}'
    return number, text, description


def _head(listing: Listing, base_prefix: str) -> str:
    """Return the fields of a listing other than its resources, as JSON."""
    templates = [_given(template) for template in listing.templates]
    head = {"base_prefix": base_prefix, "ttl": listing.ttl, "templates": templates}
    more = {"descriptions": listing.descriptions, "directories": listing.directories}
    return json.dumps({**head, **more}, default=dict)


def _given(template: ResourceTemplate) -> dict[str, Any]:
    given = ((field.name, getattr(template, field.name)) for field in fields(template))
    return {name: value for name, value in given if value is not None}


def _templates(entries: list[dict[str, Any]]) -> tuple[ResourceTemplate, ...]:
    known = {field.name for field in fields(ResourceTemplate)}
    found = [{key: value for key, value in entry.items() if key in known} for entry in entries]
    for each in found:
        each.update((key, tuple(value)) for key, value in each.items() if isinstance(value, list))
    return tuple(ResourceTemplate(**each) for each in found)
