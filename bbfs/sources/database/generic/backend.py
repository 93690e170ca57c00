"""Any other database with a dialect of SQLAlchemy, by SQLAlchemy's own reflection.

A transaction is read-only where the dialect supports that (`_READ_ONLY`), and all statements are SELECT. Not every
driver can bound or end a statement.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, create_engine, event, exc

from bbfs.model.errors import BbfsError, Busy, ConfigError, Denied, NotFound, NotSupported, Unreachable
from bbfs.model.values import Policy
from bbfs.sources.database.backend import Job
from bbfs.sources.database.generic.session import GenericSession
from bbfs.sources.database.urls import Secrets, parse_url

_log = logging.getLogger(__name__)
_READ_ONLY = {"mysql": "SET TRANSACTION READ ONLY", "oracle": "SET TRANSACTION READ ONLY"}
_ON_CONNECT = {
    "duckdb": (
        "SET autoinstall_known_extensions = false",
        "SET autoload_known_extensions = false",
        "SET memory_limit = '256MB'",
        "SET threads = 1",
        "SET enable_external_access = false",
    )
}
"""Statements for a new connection. A view of DuckDB may read any local file or URL, and install code for that."""
_SYSTEM = {"information_schema", "pg_catalog", "performance_schema", "mysql", "sys", "system"}
_REFUSED = ("password", "denied", "authenti", "login failed")


class GenericBackend:
    """One database. where: names the option in errors. Raises ConfigError for a URL that cannot be used."""

    def __init__(self, where: str, url: str, password: str | None, policy: Policy) -> None:
        parsed = parse_url(where, url, password)
        self._secrets = Secrets(parsed)
        self.at_once = policy.concurrency
        try:
            self.scheme = parsed.get_backend_name()
            self._engine = create_engine(parsed, pool_pre_ping=True, hide_parameters=True)
        except exc.NoSuchModuleError:
            known = "sqlite, postgresql, or one that an installed package adds to SQLAlchemy"
            raise ConfigError(f"{where}: unknown kind of database {parsed.drivername!r}; there are {known}") from None
        except ImportError as error:
            raise ConfigError(f"{where}: needs the driver of {self.scheme}, a Python package: {error}") from None
        except exc.SQLAlchemyError as error:
            raise ConfigError(f"{where}: {self._secrets.hidden(str(error))}") from None
        if self._engine.dialect.is_async:
            raise ConfigError(f"{where}: {parsed.drivername} is a driver for asyncio; name one that is not")
        event.listen(self._engine, "connect", _prepare(_ON_CONNECT.get(self._engine.dialect.name, ())))
        self._closed = False
        self._read_only = _READ_ONLY.get(self._engine.dialect.name)

    @contextmanager
    def session(self, job: Job) -> Iterator[GenericSession]:
        """Open a transaction. Raises BbfsError, and what `fault` takes."""
        try:
            connection = self._engine.connect()
        except exc.DBAPIError as error:
            text = self._text(error)
            raise (Denied if any(word in text.lower() for word in _REFUSED) else Unreachable)(text) from None
        with connection:
            job.begin(lambda: _stop(connection))
            try:
                if self._read_only is not None:
                    connection.exec_driver_sql(self._read_only)
                yield GenericSession(connection)
            finally:
                job.end()
                if job.stopped or self._closed:
                    connection.invalidate()

    def is_system(self, schema: str) -> bool:
        return schema.lower() in _SYSTEM

    def _text(self, error: exc.DBAPIError) -> str:
        return self._secrets.hidden(" ".join(str(error.orig).split()))

    def fault(self, error: Exception) -> BbfsError | None:
        match error:
            case exc.TimeoutError():
                return Busy("no connection to the database was free in time")
            case exc.NoSuchTableError():
                return NotFound(f"no such table: {error}")
            case exc.DBAPIError():
                return (Unreachable if error.connection_invalidated else BbfsError)(self._text(error))
            case exc.ResourceClosedError():
                return Denied("the statement gives no rows; a query may only read")
            case exc.SQLAlchemyError() | NotImplementedError():
                return NotSupported(self._secrets.hidden(" ".join(str(error).split())))
        return None

    def close(self) -> None:
        self._closed = True
        self._engine.dispose()


def _prepare(statements: Iterable[str]) -> Callable[[Any, object], None]:
    def prepare(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        cursor.close()

    return prepare


def _stop(connection: Connection) -> None:
    """End the statement where the driver can do that from another thread."""
    driver: Any = connection.connection.driver_connection
    stop = getattr(driver, "cancel", None) or getattr(driver, "interrupt", None)
    if callable(stop):
        stop()
    else:
        _log.debug("this driver cannot end a statement; it goes on until the database has done it")
