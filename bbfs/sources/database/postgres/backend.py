"""PostgreSQL, through psycopg and a pool of SQLAlchemy.

Every request is one transaction, READ ONLY and REPEATABLE READ, with a statement_timeout. When a request is
given up, it is cancelled at the server; if the server does not take the cancellation, the connection is closed.
"""

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from typing import Any

import psycopg
from psycopg import errors as pg
from sqlalchemy import create_engine, event
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from bbfs.model.errors import (
    BbfsError,
    Busy,
    ConfigError,
    DeadlineExceeded,
    Denied,
    NotFound,
    NotSupported,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)
from bbfs.model.values import Policy
from bbfs.sources.database.backend import Job
from bbfs.sources.database.postgres.session import PostgresSession
from bbfs.sources.database.urls import Secrets, parse_url

_log = logging.getLogger(__name__)
KEPT_OPEN = 4
"""Connections that stay open between requests."""
STOPPING = 5.0
"""Seconds for the server to take a cancellation, and again to end the statement."""
_REFUSED = ("password", "authentication failed", "no pg_hba.conf entry", "permission denied for database")
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


class PostgresBackend:
    """One database. where: names the option in errors. Raises ConfigError for a URL that cannot be used."""

    scheme = "postgres"

    def __init__(self, where: str, url: str, password: str | None, policy: Policy) -> None:
        parsed = parse_url(where, url, password)
        self._secrets = Secrets(parsed)
        self.at_once = policy.concurrency
        self._timeout = policy.timeout
        given = {
            "connect_timeout": str(max(2, ceil(policy.timeout))),
            "application_name": "bbfs",
            "client_encoding": "UTF8",
            "keepalives_idle": "30",
            "tcp_user_timeout": str(ceil(policy.timeout * 1000)),
        }
        try:
            self._engine = create_engine(
                parsed,
                connect_args={name: value for name, value in given.items() if name not in parsed.query},
                pool_size=min(policy.concurrency, KEPT_OPEN),
                max_overflow=max(0, policy.concurrency - KEPT_OPEN),
                pool_timeout=policy.timeout,
                pool_pre_ping=True,
                hide_parameters=True,
            )
        except ArgumentError as error:
            raise ConfigError(f"{where}: {self._secrets.hidden(str(error))}") from None
        event.listen(self._engine, "connect", _prepare)
        self._closed = False

    @contextmanager
    def session(self, job: Job) -> Iterator[PostgresSession]:
        """Open a transaction, which sees one state of the database. Raises BbfsError, and what `fault` takes."""
        pooled = self._engine.raw_connection()
        connection: psycopg.Connection[Any] = pooled.driver_connection  # type: ignore[assignment]
        ended = threading.Event()
        try:
            job.begin(lambda: _stop(connection, ended))
            try:
                milliseconds = max(1, ceil(self._timeout * 1000))
                # One round trip. The server also ends a transaction that hangs in this process.
                bounds = (
                    f"SET LOCAL statement_timeout = {milliseconds};"
                    f"SET LOCAL idle_in_transaction_session_timeout = {milliseconds + 5000};"
                    "SET LOCAL synchronize_seqscans = off"
                )
                connection.execute(bounds.encode())
                yield PostgresSession(connection)
            finally:
                ended.set()
                job.end()
        finally:
            if job.stopped or connection.broken or self._closed:
                pooled.invalidate()  # a cancellation may still be on its way to it, or the pool is gone
            pooled.close()

    def is_system(self, schema: str) -> bool:
        return schema == "information_schema" or schema.startswith("pg_")  # PostgreSQL reserves that prefix

    def fault(self, error: Exception) -> BbfsError | None:
        if isinstance(error, PoolTimeout):
            return Busy("no connection to the database was free in time")
        if isinstance(error, DBAPIError):
            error = error.orig if isinstance(error.orig, Exception) else error
        if not isinstance(error, psycopg.Error):
            return None
        text = self._secrets.hidden(" ".join(str(error).split()))
        state = error.sqlstate or ""
        if not state and isinstance(error, pg.OperationalError | psycopg.InterfaceError):
            return Denied(text) if any(word in text for word in _REFUSED) else Unreachable(text)
        kind = next((kind for start, kind in _BY_STATE if state.startswith(start)), BbfsError)
        return kind(f"{text}; the source is read-only" if state == "25006" else text)

    def close(self) -> None:
        self._closed = True
        self._engine.dispose()


def _prepare(connection: psycopg.Connection[Any], _record: object) -> None:
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    connection.prepare_threshold = None  # poolers do not support prepared statements


def _stop(connection: psycopg.Connection[Any], ended: threading.Event) -> None:
    """Cancel the statement of a connection; if that does not end it, close the connection."""
    try:
        connection.cancel_safe(timeout=STOPPING)
    except psycopg.Error as error:
        _log.info("a statement could not be cancelled: %s", type(error).__name__)
    if not ended.wait(STOPPING) and not connection.closed:
        with socket.socket(fileno=os.dup(connection.fileno())) as twin:
            twin.shutdown(socket.SHUT_RDWR)
