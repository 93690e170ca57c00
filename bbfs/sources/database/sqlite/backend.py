"""SQLite files, through Python's own sqlite3: opened for each request, read-only three times over.

The file is opened with `mode=ro`, `query_only` is on, and a named query may do nothing but read (an authorizer).
"""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import quote

from bbfs.model.errors import (
    BbfsError,
    Busy,
    DeadlineExceeded,
    Denied,
    NotFound,
    NotSupported,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)
from bbfs.sources.database.backend import Job
from bbfs.sources.database.sqlite.session import SqliteSession
from bbfs.sources.options import open_regular

BUSY = 5.0
"""Seconds to wait, at most, for a program that writes."""
_FAULTS: dict[int, type[BbfsError]] = {
    sqlite3.SQLITE_BUSY: Busy,
    sqlite3.SQLITE_LOCKED: Busy,
    sqlite3.SQLITE_PERM: Denied,
    sqlite3.SQLITE_READONLY: Denied,
    sqlite3.SQLITE_INTERRUPT: DeadlineExceeded,
    sqlite3.SQLITE_CORRUPT: ProtocolViolation,
    sqlite3.SQLITE_NOTADB: ProtocolViolation,
    sqlite3.SQLITE_CANTOPEN: Unreachable,
    sqlite3.SQLITE_IOERR: Unreachable,
    sqlite3.SQLITE_TOOBIG: TooLarge,
}


class SqliteBackend:
    """One file. path: absolute. timeout: seconds that a request may take, and so wait for a lock."""

    scheme = "sqlite"

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._wait = min(timeout, BUSY)

    @contextmanager
    def session(self, job: Job) -> Iterator[SqliteSession]:
        """Open a transaction, which sees one state of the file. Raises BbfsError and sqlite3.Error."""
        with closing(self._open()) as connection:
            job.begin(connection.interrupt)
            try:
                # An interrupt ends only a statement that runs; this ends the next one too.
                connection.set_progress_handler(lambda: job.stopped, 10_000)
                connection.text_factory = _text
                connection.execute("PRAGMA query_only = ON")
                connection.execute("PRAGMA trusted_schema = OFF")
                connection.execute("BEGIN")
                yield SqliteSession(connection)
            finally:
                job.end()

    def _open(self) -> sqlite3.Connection:
        try:
            # SQLite has one message for all errors of open, the kernel has one each. And SQLite would wait for a pipe.
            open_regular(self._path).close()
        except OSError as error:
            kind = Denied if error.errno in (errno.EACCES, errno.EPERM) else Unreachable
            raise kind(f"{self._path}: {error.strerror}") from None
        return sqlite3.connect(
            f"file:{quote(self._path)}?mode=ro",
            uri=True,
            timeout=self._wait,
            isolation_level=None,
            check_same_thread=False,  # another thread calls interrupt()
        )

    def is_system(self, schema: str) -> bool:
        """Return False: SQLite has no such schemas, and its own tables are never shown."""
        return False

    def fault(self, error: Exception) -> BbfsError | None:
        if isinstance(error, UnicodeEncodeError):
            return NotSupported("a name that is no UTF-8 cannot be asked for")
        if not isinstance(error, sqlite3.Error | sqlite3.Warning):  # the latter for a second statement
            return None
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:
            return BbfsError(f"SQLite: {error}")
        kind = _FAULTS.get(code & 0xFF, BbfsError)
        if "no such table" in str(error):
            kind = NotFound
        return kind(f"SQLite: {error}")

    def close(self) -> None:
        """Do nothing: no connection is open between requests."""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
