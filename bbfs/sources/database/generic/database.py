"""Any other database with a dialect of SQLAlchemy, by SQLAlchemy's own reflection.

A transaction is read-only where the dialect supports that (`_READ_ONLY`), and all statements are SELECT. Only MySQL and
MariaDB are written, by a process of its own, whose transactions are READ COMMITTED and lock the row. Few databases end
a statement when its connection closes; MySQL and MariaDB can be told to.
"""

import signal
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, create_engine, exc

from bbfs.model.errors import BbfsError, Busy, Denied, NoSpace, NotFound, NotSupported, ReadOnly, Rejected, Unreachable
from bbfs.sources.database.generic.session import GenericSession

_READ_ONLY = dict.fromkeys(("mysql", "mariadb", "oracle"), "SET TRANSACTION READ ONLY")
_MYSQL = ("mysql", "mariadb")
_WRITING = (
    "SET SESSION sql_mode = CONCAT_WS(',', @@sql_mode, 'STRICT_ALL_TABLES')",  # no value is cut or replaced
    "SET SESSION innodb_lock_wait_timeout = 5",
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
_BY_NUMBER: dict[object, type[BbfsError]] = {
    1205: Busy,  # a lock
    1213: Busy,  # a deadlock
    1021: NoSpace,  # disk full
    1114: NoSpace,  # table full
    1290: ReadOnly,  # --read-only
    1836: ReadOnly,
    1264: Rejected,  # out of range
    1265: Rejected,  # truncated
    1292: Rejected,  # no value of the type
    1364: Rejected,  # a column without a default value
    1366: Rejected,  # no value of the type
    1644: Rejected,  # SIGNAL of a trigger
    1906: Rejected,  # a generated column
    3105: Rejected,  # a generated column
    3819: Rejected,  # CHECK
    4025: Rejected,  # CHECK
}
"""By the error numbers of MySQL and MariaDB, while a row is written."""
_REFUSED = ("password", "denied", "authenti", "login failed")


class GenericDatabase:
    """One database. url: with its secrets."""

    def __init__(self, url: str, writable: bool = False) -> None:
        self._writable = writable
        self._engine = create_engine(url, pool_pre_ping=True, hide_parameters=True)
        self._name = self._engine.dialect.name
        self._connection: Connection | None = None
        self._identity: int | None = None
        signal.signal(signal.SIGINT, self._interrupt)

    def begin(self) -> GenericSession:
        try:
            self._connection = self._engine.connect()
        except exc.DBAPIError as error:
            text = _text(error)
            raise (Denied if any(word in text.lower() for word in _REFUSED) else Unreachable)(text) from None
        if self._writable:
            for statement in _WRITING:
                self._connection.exec_driver_sql(statement)
                self._connection.commit()
        elif self._name in _READ_ONLY:
            self._connection.exec_driver_sql(_READ_ONLY[self._name])
        if self._name in _MYSQL:
            self._identity = self._connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
        return GenericSession(self._connection)

    def _interrupt(self, *_: Any) -> None:
        """End the statement at the server, over another connection, and then the process."""
        if self._identity is not None:
            with suppress(exc.SQLAlchemyError), self._engine.connect() as other:
                other.exec_driver_sql(f"KILL QUERY {int(self._identity)}")
        raise KeyboardInterrupt

    def end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._identity = None

    def fault(self, error: Exception) -> BbfsError | None:
        match error:
            case exc.TimeoutError():
                return Busy("no connection to the database was free in time")
            case exc.NoSuchTableError():
                return NotFound(f"no such table: {error}")
            case exc.IntegrityError() | exc.DataError() if self._writable:
                return Rejected(_text(error))
            case exc.DBAPIError():
                text = _text(error)
                number = next(iter(getattr(error.orig, "args", ())), None)
                if self._writable and number in _BY_NUMBER:
                    return _BY_NUMBER[number](text)
                denied = "denied" in text.lower()
                return (Unreachable if error.connection_invalidated else Denied if denied else BbfsError)(text)
            case exc.ResourceClosedError():
                return Denied("the statement gives no rows; a query may only read")
            case exc.SQLAlchemyError() | NotImplementedError():
                return NotSupported(" ".join(str(error).split()))
        return None


open_database = GenericDatabase


def _text(error: exc.DBAPIError) -> str:
    return " ".join(str(error.orig).split())
