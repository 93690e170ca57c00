"""The interface of a database, used in worker threads and within one read-only snapshot."""

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import trio

from bbfs.model.errors import BbfsError, DeadlineExceeded
from bbfs.sources.database.names import Key, KeyValue
from bbfs.sources.database.queries import Query, QueryValues
from bbfs.sources.database.rendering import RowFormat, Write
from bbfs.sources.database.tables import Schema, Table

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Job:
    """One request under way in a thread, which another thread can stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self._stopped = False

    @property
    def stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        """End the statement of the job, now or when it begins. Blocks, within the backend's bounds."""
        with self._lock:
            self._stopped = True
            if self._stop is not None:
                self._stop()

    def begin(self, stop: Callable[[], None]) -> None:
        """Set the function that ends the statement. Raises DeadlineExceeded if the job is stopped already."""
        with self._lock:
            if self._stopped:
                raise DeadlineExceeded("nobody waits for it any more")
            self._stop = stop

    def end(self) -> None:
        """Forget that function. Waits for a stop that has begun, so that it cannot end the next statement."""
        with self._lock:
            self._stop = None


class DatabaseSession(Protocol):
    """A read-only transaction that sees one state of the database. All methods block and raise what `fault` takes.

    `table` checks the names of a path; the other methods get the table that it returned.
    """

    def schemas(self) -> list[Schema]: ...

    def tables(self, schema: str) -> list[Table]:
        """Return the tables without their indexes. Raises NotFound for an unknown schema."""
        ...

    def table(self, schema: str, name: str, *, keys_only: bool = False) -> Table:
        """Return a table. keys_only: only the primary key and the indexes are needed, to find rows. Raises NotFound."""
        ...

    def definition(self, table: Table) -> str:
        """Return SQL that makes such a table."""
        ...

    def count(self, table: Table) -> int: ...

    def rows(self, table: Table, format: RowFormat, write: Write) -> None: ...

    def keys(self, table: Table, limit: int, by: tuple[str, KeyValue] | None = None) -> list[Key]:
        """Return at most `limit` primary keys, in order. by: a column, and the value that its rows must have."""
        ...

    def values(self, table: Table, column: str, limit: int) -> list[KeyValue]:
        """Return at most `limit` different values of an indexed column."""
        ...

    def has_key(self, table: Table, key: Key, by: tuple[str, KeyValue] | None = None) -> bool: ...

    def has_value(self, table: Table, column: str, value: KeyValue) -> bool: ...

    def row(self, table: Table, key: Key) -> bytes | None:
        """Return a row as a JSON object, or None."""
        ...

    def query(self, query: Query, values: QueryValues, format: RowFormat, write: Write) -> None: ...


class DatabaseBackend(Protocol):
    """One database. `session` and `close` block. at_once: limit for the sessions that are open at once."""

    scheme: str
    at_once: int

    def session(self, job: Job) -> AbstractContextManager[DatabaseSession]: ...

    def is_system(self, schema: str) -> bool:
        """Return whether a schema is the database's own, which is shown only if the option `schemas` names it."""
        ...

    def fault(self, error: Exception) -> BbfsError | None:
        """Return the error of bbfs for one of the driver, or None if it is no error of the database."""
        ...

    def close(self) -> None: ...


class Jobs:
    """Runs the requests to one database, at most `concurrency` at once; a thread that is being stopped counts."""

    def __init__(self, backend: DatabaseBackend, concurrency: int) -> None:
        self._backend = backend
        self._limiter = trio.CapacityLimiter(concurrency)

    async def run(self, work: Callable[[DatabaseSession, Job], T]) -> T:
        """Return the result of `work` on a session of its own. Raises BbfsError. Cancelling ends the statement too."""
        job = Job()
        try:
            return await trio.to_thread.run_sync(self._work, job, work, abandon_on_cancel=True, limiter=self._limiter)
        except trio.Cancelled:
            # Not in the limiter's threads: they may all be waiting for the database.
            trio.lowlevel.start_thread_soon(job.stop, lambda outcome: _report(outcome.unwrap))
            raise

    def _work(self, job: Job, work: Callable[[DatabaseSession, Job], T]) -> T:
        try:
            with self._backend.session(job) as session:
                return work(session, job)
        except BbfsError:
            raise
        except Exception as error:
            fault = self._backend.fault(error)
            if fault is None:
                raise
            # The driver's error may name secrets: it must not be the cause of ours.
            raise fault from None

    async def aclose(self) -> None:
        """Close the connections that are open between requests."""
        await trio.to_thread.run_sync(self._backend.close, abandon_on_cancel=True)


def _report(unwrap: Callable[[], None]) -> None:
    try:
        unwrap()
    except Exception as error:  # noqa: BLE001 - a driver's; the request itself is over
        _log.info("a request to a database could not be stopped: %s", type(error).__name__)
