"""Any other database with a dialect of SQLAlchemy, by SQLAlchemy's own reflection.

A transaction is read-only where the dialect supports that (`_READ_ONLY`), and all statements are SELECT. Few databases
end a statement when its connection closes; MySQL and MariaDB can be told to.
"""

import signal
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, create_engine, exc

from bbfs.model.errors import BbfsError, Busy, Denied, NotFound, NotSupported, Unreachable
from bbfs.sources.database.generic.session import GenericSession

_READ_ONLY = dict.fromkeys(("mysql", "mariadb", "oracle"), "SET TRANSACTION READ ONLY")
_MYSQL = ("mysql", "mariadb")
_REFUSED = ("password", "denied", "authenti", "login failed")


class GenericDatabase:
    """One database. url: with its secrets."""

    def __init__(self, url: str) -> None:
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
        if self._name in _READ_ONLY:
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
            case exc.DBAPIError():
                text = _text(error)
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
