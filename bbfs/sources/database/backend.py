"""Processes that read a database for the daemon, each with a connection of its own and limits of memory and files.

A request has a process for itself; a process serves one request after the other. When a request is given up, the
process ends its statement where the database can do that, and is killed.
"""

import errno
import fcntl
import io
import logging
import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import trio

from bbfs.model import errors
from bbfs.model.errors import BbfsError, DeadlineExceeded, Denied, ProtocolViolation, TooLarge, Unreachable
from bbfs.model.redaction import shown
from bbfs.sources.bounded.workers import describe_status, start_worker
from bbfs.sources.database.names import Key, KeyValue
from bbfs.sources.database.queries import Query
from bbfs.sources.database.rendering import QueryValues, RowFormat, Write
from bbfs.sources.database.tables import RowHit, RowsPart, Schema, Table
from bbfs.sources.database.wire import DATA, DONE, FAILED, FRAME, LARGEST_FRAME, PART, decode, encode
from bbfs.sources.options import open_regular

T = TypeVar("T")
_log = logging.getLogger(__name__)
LARGEST_RESULT = 16 << 20
"""Bytes of a list of tables or keys."""
LARGEST_ROW = 40 << 20
"""Bytes of one row, or of a definition."""
LARGEST_FILE = 1 << 60
"""Bytes of a database file that is written."""
STOPPING = 5.0
"""Seconds for a process to end its statement at the server, before it is killed."""


@dataclass(frozen=True, slots=True)
class Access:
    """The way of the processes to one database.

    module: has `open_database`, which takes the arguments and returns a `Database`. They and the environment go through
    the pipe, since they have secrets. sql: writes a query for the session. at_once: limit for the processes. memory,
    file_size: limits of each (bytes). library: address space beside memory (bytes). file: must be there, and regular or
    a folder. server: a process needs the network, and ends its statement before it is killed. idle: seconds after which
    an unused process ends. large: bytes in memory above which a process is not used again. searches: there is full-text
    search. writes: rows can be written. writes_alone: while nothing reads. formats: in which all rows can be read.
    """

    scheme: str
    module: str
    arguments: Mapping[str, Any] = field(repr=False)
    sql: Callable[[Query], str]
    at_once: int
    memory: int
    file: str | None = None
    file_size: int = 0
    library: int = 0
    server: bool = False
    searches: bool = False
    writes: bool = False
    writes_alone: bool = False
    idle: int = 30
    large: int = 96 << 20
    formats: tuple[RowFormat, ...] = ("csv", "ndjson")
    is_system: Callable[[str], bool] = lambda _schema: False
    hidden: Callable[[str], str] = str

    def writing(self) -> "Access":
        """Return the way of a process that writes. The database's own errors bound its files."""
        file_size = LARGEST_FILE if self.file is not None else 0
        return replace(self, arguments={**self.arguments, "writable": True}, at_once=1, file_size=file_size)

    @property
    def label(self) -> str:
        return shown(self.file or self.scheme)


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
        """End the statement of the job, now or when it begins. Blocks, within the process's bounds."""
        with self._lock:
            self._stopped = True
            if self._stop is not None:
                self._stop()

    def begin(self, stop: Callable[[], None]) -> None:
        """Set the function that ends the statement. Raises DeadlineExceeded if the job is stopped already."""
        with self._lock:
            if self._stopped:
                raise DeadlineExceeded("no reader waits for it any more")
            self._stop = stop

    def end(self) -> None:
        """Forget that function. Waits for a stop that has begun, so that it cannot end the next statement."""
        with self._lock:
            self._stop = None


class DatabaseBackend:
    """One database. Its processes start when requests come.

    readers: those of the same database that must not read meanwhile.
    """

    def __init__(self, access: Access, readers: "DatabaseBackend | None" = None) -> None:
        self.access = access
        self._readers = readers
        self._turn = trio.Lock()
        self._limiter = trio.CapacityLimiter(access.at_once)
        self._idle: list[_Process] = []
        self._closed = False

    async def run(self, work: Callable[["RemoteSession", Job], T]) -> T:
        """Return the result of `work`, which runs in a thread, on a session of its own. Raises BbfsError.

        Cancelling ends the statement too; a thread that is being stopped counts.
        """
        async with self._alone():
            return await self._run(work)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Keep the readers out, after those that are reading."""
        if self._readers is None:
            yield
            return
        limiter = self._readers._limiter
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._turn)
            for place in range(self._readers.access.at_once):
                await limiter.acquire_on_behalf_of((self, place))
                stack.callback(limiter.release_on_behalf_of, (self, place))
            yield

    async def _run(self, work: Callable[["RemoteSession", Job], T]) -> T:
        job = Job()
        try:
            return await trio.to_thread.run_sync(self._work, job, work, abandon_on_cancel=True, limiter=self._limiter)
        except trio.Cancelled:
            # Not in the limiter's threads: they may all be waiting for the database.
            trio.lowlevel.start_thread_soon(job.stop, lambda outcome: _report(outcome.unwrap))
            raise

    def _work(self, job: Job, work: Callable[["RemoteSession", Job], T]) -> T:
        with self.session(job) as session:
            return work(session, job)

    @contextmanager
    def session(self, job: Job) -> Iterator["RemoteSession"]:
        """Open a transaction, which sees one state of the database. Raises BbfsError."""
        if self.access.file is not None:
            _check(self.access.file)
        process = self._begun(job)
        try:
            yield RemoteSession(process)
        except _Ended:
            raise self._death(job, process) from None
        finally:
            job.end()
            if not job.stopped and not self._closed and process.finish():
                self._idle.append(process)
            else:
                process.end()

    def _begun(self, job: Job) -> "_Process":
        """Return a process that has begun a transaction. One that was idle may have ended by now."""
        while True:
            idle = self._taken()
            process = idle or trio.from_thread.run_sync(_Process, self.access)
            try:
                job.begin(process.kill)
                if idle is None:
                    process.open()
                process.call("begin")
                job.begin(process.stop)
                return process
            except BaseException as error:
                job.end()
                process.end()
                if not isinstance(error, _Ended):
                    raise
                if idle is None or job.stopped:
                    raise self._death(job, process) from None

    def _death(self, job: Job, process: "_Process") -> BbfsError:
        """Return the error of a request whose process has ended instead of answering."""
        if job.stopped:
            return DeadlineExceeded("given up")
        status = process.ended()
        died = f"{self.access.label}: its process has died ({describe_status(status)})"
        if status >= 0:
            return BbfsError(died)
        return TooLarge(f"{died}: it is damaged, or takes more than {self.access.memory >> 20} MiB (max_memory)")

    def _taken(self) -> "_Process | None":
        with suppress(IndexError):
            while True:
                process = self._idle.pop()
                if process.is_alive:
                    return process
                process.end()
        return None

    async def aclose(self) -> None:
        self._closed = True
        while self._idle:
            await trio.to_thread.run_sync(self._idle.pop().end, abandon_on_cancel=True)


def _check(path: str) -> None:
    try:
        # A library has one message for all errors of open, the kernel has one each. And it would wait for a pipe.
        open_regular(path).close()
    except IsADirectoryError:
        pass  # a folder of data files; a library refuses it otherwise
    except OSError as error:
        kind = Denied if error.errno in (errno.EACCES, errno.EPERM) else Unreachable
        raise kind(f"{path}: {error.strerror}") from None


def _report(unwrap: Callable[[], None]) -> None:
    try:
        unwrap()
    except Exception as error:  # noqa: BLE001 - the request itself is over
        _log.info("a request to a database could not be stopped: %s", type(error).__name__)


class _Ended(Exception):
    """The process has ended, or was killed."""


class _Process:
    """One process. `call` blocks; `kill` and `stop`, from another thread, end it."""

    _has_answered = False
    """It waits for a call."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._process: subprocess.Popen[bytes] = start_worker(
            access.memory + access.library,
            access.label,
            file_size=access.file_size,
            serve="bbfs.sources.database.process",
            network=access.server,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        with suppress(OSError):  # the user has many pipes
            fcntl.fcntl(self._process.stdout, fcntl.F_SETPIPE_SZ, LARGEST_FRAME)
        self._answers = io.BufferedReader(self._process.stdout)  # type: ignore[type-var]

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def open(self) -> None:
        """Tell the process its database. A driver for a server may read its settings from the environment."""
        access = self._access
        environment = dict(os.environ) if access.server else {}
        self.call("open", access.module, dict(access.arguments), environment, access.idle, access.large)

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        """End the process after it has ended its statement at the server."""
        if self._access.server:
            self._process.send_signal(signal.SIGINT)  # KeyboardInterrupt, at which a driver cancels the statement
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOPPING)
        self._process.kill()

    def ended(self) -> int:
        """Return the exit status of a process that does not answer any more. Kill it if it goes on."""
        try:
            return self._process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._requests.close()
        self._answers.close()

    def finish(self) -> bool:
        """Let the process end its transaction, without waiting for that. Return whether it can have another one."""
        with suppress(_Ended):
            if self._has_answered:
                self._send("end", ())
                return True
        return False

    def _send(self, name: str, arguments: tuple[Any, ...]) -> None:
        self._has_answered = False
        try:
            self._requests.write(encode([name, arguments]) + b"\n")
        except OSError:
            raise _Ended from None

    def call(self, name: str, *arguments: Any, write: Write | None = None) -> Any:
        """Return the result of a call; a list if it came in parts. write: takes the bytes of a content.

        Raises BbfsError, also what `write` raises, and _Ended.
        """
        self._send(name, arguments)
        parts: list[Any] = []
        size = 0
        while True:
            kind, length = FRAME.unpack(self._read(FRAME.size))
            if length > LARGEST_FRAME:
                raise _Ended
            data = self._read(length)
            if kind == DATA and write is not None:
                write(data)
                continue
            size += length
            if size > LARGEST_RESULT:
                raise TooLarge(f"a list of more than {LARGEST_RESULT} bytes")
            self._has_answered = kind in (DONE, FAILED)
            try:
                value = decode(data)
                parts.extend(value if kind == PART else ())
                failure = self._error(*value) if kind == FAILED else None
            except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
                raise ProtocolViolation("an answer that cannot be understood") from None
            if failure is not None:
                raise failure
            if kind == DONE:
                return parts or value

    def _read(self, size: int) -> bytes:
        try:
            data = self._answers.read(size)
        except OSError:
            data = b""
        if len(data) < size:
            raise _Ended
        return data

    def _error(self, name: str, text: str) -> BbfsError:
        kind = getattr(errors, name, None)
        kind = kind if isinstance(kind, type) and issubclass(kind, BbfsError) else BbfsError
        return kind(self._access.hidden(text)[:1000])


class RemoteSession:
    """A transaction in its process, which sees one state of the database. All methods block.

    Each calls the method of its name there. `table` checks the names of a path; others get the table that it returned.
    Raises BbfsError and _Ended.
    """

    def __init__(self, process: _Process) -> None:
        self._process = process

    def _list(self, name: str, *arguments: Any) -> list[Any]:
        return self._process.call(name, *arguments) or []

    def data(self, name: str, *arguments: Any) -> bytes | None:
        """Return the bytes that a call writes, or None if it finds nothing."""
        pieces: list[bytes] = []

        def keep(data: bytes) -> None:
            pieces.append(data)
            if sum(map(len, pieces)) > LARGEST_ROW:
                raise TooLarge(f"a row or definition of more than {LARGEST_ROW} bytes")

        return b"".join(pieces) if self._process.call(name, *arguments, write=keep) else None

    def schemas(self) -> list[Schema]:
        return self._list("schemas")

    def tables(self, schema: str) -> list[Table]:
        """Return the tables without their indexes. Raises NotFound for an unknown schema."""
        return self._list("tables", schema)

    def table(self, schema: str, name: str, keys_only: bool = False) -> Table:
        """Return a table. keys_only: only the primary key and the indexes are needed, to find rows. Raises NotFound."""
        return self._process.call("table", schema, name, keys_only)

    def definition(self, table: Table) -> bytes:
        """Return SQL that makes such a table."""
        return self.data("definition", table) or b""

    def count(self, table: Table) -> int:
        return self._process.call("count", table)

    def bounds(self, table: Table) -> tuple[int, int] | None:
        """Return the lowest and the highest part key, or None for a table without rows."""
        return self._process.call("bounds", table)

    def next_start(self, table: Table, start: Key | None, rows: int) -> Key | None:
        """Return the key that comes so many rows after `start`, or after the first key. None: there are fewer rows."""
        return self._process.call("next_start", table, start, rows)

    def rows(self, table: Table, format: RowFormat, part: RowsPart | None, write: Write) -> None:
        """Write all rows, or the rows of a part in the order of its key."""
        self._process.call("rows", table, format, part, write=write)

    def keys(self, table: Table, limit: int, by: tuple[str, KeyValue] | None = None) -> list[Key]:
        """Return at most `limit` primary keys, in order. by: a column, and the value that its rows must have."""
        return self._list("keys", table, limit, by)

    def values(self, table: Table, column: str, limit: int) -> list[KeyValue]:
        """Return at most `limit` different values of an indexed column."""
        return self._list("values", table, column, limit)

    def has_key(self, table: Table, key: Key, by: tuple[str, KeyValue] | None = None) -> bool:
        return self._process.call("has_key", table, key, by)

    def has_value(self, table: Table, column: str, value: KeyValue) -> bool:
        return self._process.call("has_value", table, column, value)

    def row(self, table: Table, key: Key) -> bytes | None:
        """Return a row as a JSON object, or None."""
        return self.data("row", table, key)

    def change(self, table: Table, key: Key, text: str | None, exists: bool | None, version: str | None) -> None:
        """Make, replace or remove a row, and commit (`writing.change`)."""
        self._process.call("change", table, key, text, exists, version)

    def search(self, words: str, limit: int, schemas: Sequence[str]) -> list[RowHit]:
        """Return at most `limit` rows, the best first; none without words. schemas: to search in.

        Only databases with full-text search have it. Raises NotSupported if nothing there has a full-text index.
        """
        return self._list("search", words, limit, tuple(schemas))

    def scan(self, table: Table, columns: Sequence[str], words: Sequence[str], limit: int) -> list[RowHit]:
        """Return at most `limit` rows with one of the words in these columns, whatever its case: most words first.

        It reads the whole table.
        """
        return self._list("scan", table, tuple(columns), tuple(words), limit)

    def query(self, name: str, sql: str, values: QueryValues, format: RowFormat, write: Write) -> None:
        """Write the rows of a named query. sql: with the parameters in the database's own form."""
        self._process.call("query", name, sql, dict(values), format, write=write)
