"""Any other database with a dialect of SQLAlchemy, by SQLAlchemy's own reflection.

A transaction is read-only where the dialect supports that (`_READ_ONLY`), and all statements are SELECT. Not every
driver can bound or end a statement.
"""

from sqlalchemy import Connection, create_engine, exc

from bbfs.model.errors import BbfsError, Busy, Denied, NotFound, NotSupported, Unreachable
from bbfs.sources.database.generic.session import GenericSession

_READ_ONLY = {"mysql": "SET TRANSACTION READ ONLY", "oracle": "SET TRANSACTION READ ONLY"}
_REFUSED = ("password", "denied", "authenti", "login failed")


class GenericDatabase:
    """One database. url: with its secrets."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url, pool_pre_ping=True, hide_parameters=True)
        self._read_only = _READ_ONLY.get(self._engine.dialect.name)
        self._connection: Connection | None = None

    def begin(self) -> GenericSession:
        try:
            self._connection = self._engine.connect()
        except exc.DBAPIError as error:
            text = _text(error)
            raise (Denied if any(word in text.lower() for word in _REFUSED) else Unreachable)(text) from None
        if self._read_only is not None:
            self._connection.exec_driver_sql(self._read_only)
        return GenericSession(self._connection)

    def end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def fault(self, error: Exception) -> BbfsError | None:
        match error:
            case exc.TimeoutError():
                return Busy("no connection to the database was free in time")
            case exc.NoSuchTableError():
                return NotFound(f"no such table: {error}")
            case exc.DBAPIError():
                return (Unreachable if error.connection_invalidated else BbfsError)(_text(error))
            case exc.ResourceClosedError():
                return Denied("the statement gives no rows; a query may only read")
            case exc.SQLAlchemyError() | NotImplementedError():
                return NotSupported(" ".join(str(error).split()))
        return None


open_database = GenericDatabase


def _text(error: exc.DBAPIError) -> str:
    return " ".join(str(error.orig).split())
