"""One SQLite file, opened for each transaction, read-only three times over.

It is opened with `mode=ro`, `query_only` is on, and a named query may do nothing but read (an authorizer). If the
source may be written, the mode is `rw`: otherwise no reader could undo a write whose process was killed. A process that
writes has no `query_only`, and checks foreign keys.
"""

import os
import sqlite3
from typing import Any
from urllib.parse import quote

from bbfs.model.errors import (
    BbfsError,
    Busy,
    DeadlineExceeded,
    Denied,
    NoSpace,
    NotFound,
    NotSupported,
    ProtocolViolation,
    ReadOnly,
    Rejected,
    TooLarge,
    Unreachable,
)
from bbfs.sources.database.process import memory_limit
from bbfs.sources.database.sqlite.session import SqliteSession, Unresolved

_FAULTS: dict[int, type[BbfsError]] = {
    **dict.fromkeys((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED), Busy),
    **dict.fromkeys((sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY), Denied),
    sqlite3.SQLITE_INTERRUPT: DeadlineExceeded,
    **dict.fromkeys((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB), ProtocolViolation),
    **dict.fromkeys((sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR), Unreachable),
    sqlite3.SQLITE_IOERR_WRITE: TooLarge,  # to its file for sorting, which has a limit: nothing else is written
    **dict.fromkeys((sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_FULL), TooLarge),
}
_WRITING_FAULTS: dict[int, type[BbfsError]] = {
    **_FAULTS,
    sqlite3.SQLITE_READONLY: ReadOnly,
    sqlite3.SQLITE_IOERR_WRITE: NoSpace,
    sqlite3.SQLITE_FULL: NoSpace,
    sqlite3.SQLITE_CONSTRAINT: Rejected,
    sqlite3.SQLITE_MISMATCH: Rejected,
}
_LIMITS = {
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 20,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 1 << 20,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
"""Limits of one connection, besides that of a value (https://sqlite.org/limits.html)."""
_PRAGMAS = ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0")
_TRIGGER_DEPTH = 100
"""Triggers, and actions of foreign keys, within each other while a row is written."""


class SqliteDatabase:
    """One file. wait: seconds for a program that writes. recovers: undo writes of programs that were killed."""

    def __init__(self, path: str, wait: float, recovers: bool = False, writable: bool = False) -> None:
        self._name = f"file:{quote(os.fsencode(path))}?mode={'rw' if recovers or writable else 'ro'}"
        self._wait = wait
        self._writable = writable
        self._connection: sqlite3.Connection | None = None
        self._unresolved = Unresolved()

    def begin(self) -> Any:
        """Open a transaction on a new connection: a `SqliteSession`."""
        return SqliteSession(self.connected(), self._unresolved)

    def connected(self) -> sqlite3.Connection:
        """Return a new connection to the file, with all limits, in a transaction."""
        self._connection = connection = sqlite3.connect(self._name, uri=True, timeout=self._wait, isolation_level=None)
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)
        # A value is there several times: in SQLite, as bytes, as a text of up to four bytes a character, and rendered.
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, memory_limit() // 6)
        connection.text_factory = _text
        if self._writable:
            connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, _TRIGGER_DEPTH)
        for pragma in ("foreign_keys = ON" if self._writable else "query_only = ON", *_PRAGMAS):
            connection.execute(f"PRAGMA {pragma}")
        self.extend(connection)
        connection.execute("BEGIN IMMEDIATE" if self._writable else "BEGIN")
        return connection

    def extend(self, connection: sqlite3.Connection) -> None:
        """Add to a new connection. SQLite itself is all that tables need."""

    def end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def fault(self, error: Exception) -> BbfsError | None:
        if isinstance(error, UnicodeEncodeError):
            return NotSupported("a name that is no UTF-8 cannot be asked for")
        if not isinstance(error, sqlite3.Error | sqlite3.Warning):  # the latter for a second statement
            return None
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:
            kind = TooLarge if isinstance(error, sqlite3.DataError) else BbfsError
            return kind(f"SQLite: {error}")
        faults = _WRITING_FAULTS if self._writable else _FAULTS
        kind = faults.get(code if code in faults else code & 0xFF, BbfsError)
        if "no such table" in str(error):
            kind = NotFound
        more = " (max_memory)" if kind is TooLarge else ""
        return kind(f"SQLite: {error}{more}")


open_database = SqliteDatabase


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
