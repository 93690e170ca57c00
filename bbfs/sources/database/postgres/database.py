"""One PostgreSQL database through psycopg, over a connection that stays open between transactions.

Every transaction is READ ONLY and REPEATABLE READ, with a statement_timeout. Those of a process that writes are READ
COMMITTED, and lock the row.
"""

from collections.abc import Mapping
from contextlib import suppress
from math import ceil
from typing import Any

import psycopg
from psycopg import errors as pg

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
from bbfs.sources.database.postgres.session import PostgresSession

_REFUSED = ("password", "authentication failed", "no pg_hba.conf entry", "permission denied for database")
_TOO_LARGE = ("cannot allocate memory", "out of memory")
_BROKEN = (
    "invalid response", "unexpected response", "lost synchronization", "insufficient data", "extraneous data",
    "contents do not agree", "unexpected message", "copy cannot be mixed", "invalid authentication",
    "expected authentication request", "protocol",
)  # fmt: skip
"""Words of libpq, whose own errors have no SQLSTATE."""
_BY_STATE: tuple[tuple[str, type[BbfsError]], ...] = (
    ("28", Denied),  # invalid authorization
    ("42501", Denied),  # insufficient privilege
    ("25006", Denied),  # read-only transaction
    ("57014", DeadlineExceeded),  # query canceled
    ("25P03", DeadlineExceeded),  # idle in transaction
    ("55P03", Busy),  # lock not available
    ("53300", Busy),  # too many connections
    ("40", Busy),  # the snapshot cannot be kept, on a standby
    ("57P", Unreachable),  # the server is being shut down, or is not up yet
    ("08", Unreachable),  # connection
    ("3D000", Unreachable),  # no such database
    ("42P01", NotFound),  # no such table
    ("3F000", NotFound),  # no such schema
    ("0A", NotSupported),
    ("22021", ProtocolViolation),  # a text that is not UTF-8, in a database that checks nothing
    ("54", TooLarge),  # program limit
)
"""By the beginning of SQLSTATE (PostgreSQL, appendix A)."""


_WRITING_BY_STATE: tuple[tuple[str, type[BbfsError]], ...] = (
    ("25006", ReadOnly),  # a standby, or a role that may only read
    ("22", Rejected),  # no value of a type
    ("23", Rejected),  # a constraint
    ("428C9", Rejected),  # a column that the database computes
    ("42804", Rejected),  # a type
    ("44", Rejected),  # WITH CHECK OPTION
    ("P0001", Rejected),  # RAISE of a trigger
    ("53100", NoSpace),  # disk full
    ("40P01", Busy),  # deadlock
    *_BY_STATE,
)


class PostgresDatabase:
    """One database. settings: of libpq. timeout: of a statement (seconds)."""

    def __init__(self, settings: Mapping[str, str], timeout: float, writable: bool = False) -> None:
        self._writable = writable
        self._settings = settings
        milliseconds = max(1, ceil(timeout * 1000))
        # One round trip. The server also ends a transaction that hangs in this process.
        self._begin = (
            f"BEGIN ISOLATION LEVEL {'READ COMMITTED READ WRITE' if writable else 'REPEATABLE READ READ ONLY'};"
            f"SET LOCAL statement_timeout = {milliseconds};"
            f"SET LOCAL idle_in_transaction_session_timeout = {milliseconds + 5000};"
            "SET LOCAL synchronize_seqscans = off"
        ).encode()
        self._connection: psycopg.Connection[Any] | None = None

    def begin(self) -> PostgresSession:
        return PostgresSession(self.connected())

    def connected(self) -> "psycopg.Connection[Any]":
        """Return a connection in a transaction: the last transaction's connection if it still works."""
        if self._connection is not None:
            try:
                self._connection.execute(self._begin)
                return self._connection
            except psycopg.Error:
                if not self._connection.broken:
                    raise
        self._connection = connection = psycopg.connect(**self._settings)  # type: ignore[arg-type]
        connection.autocommit = True  # so that psycopg begins none by itself
        connection.prepare_threshold = None  # poolers do not support prepared statements
        connection.execute(self._begin)
        return connection

    def end(self) -> None:
        if self._connection is None:
            return
        with suppress(psycopg.Error):
            self._connection.rollback()
        if self._connection.closed:
            self._connection = None

    def fault(self, error: Exception) -> BbfsError | None:
        if not isinstance(error, psycopg.Error):
            return None
        text = " ".join(str(error).split())
        state = error.sqlstate or ""
        if not state:
            return _by_words(text, isinstance(error, pg.OperationalError | psycopg.InterfaceError))
        states = _WRITING_BY_STATE if self._writable else _BY_STATE
        kind = next((kind for start, kind in states if state.startswith(start)), BbfsError)
        return kind(f"{text}; the source is read-only" if state == "25006" and not self._writable else text)


open_database = PostgresDatabase


def _by_words(text: str, of_connection: bool) -> BbfsError:
    """Return bbfs's error for an error of libpq itself, which has no SQLSTATE."""
    words = text.lower()
    if any(each in words for each in _TOO_LARGE):
        return TooLarge(f"{text} (max_memory)")
    if any(each in words for each in _REFUSED):
        return Denied(text)
    if any(each in words for each in _BROKEN):
        return ProtocolViolation(text)
    return (Unreachable if of_connection else BbfsError)(text)
