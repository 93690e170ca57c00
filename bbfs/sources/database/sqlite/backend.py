"""SQLite files, each read by a process of its own: opened for each request, read-only three times over.

The file is opened with `mode=ro`, `query_only` is on, and a named query may do nothing but read (an authorizer). The
process has limits of memory and files; when a request is given up, it is killed.
"""

import errno
import io
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import trio

from bbfs.model import errors
from bbfs.model.errors import BbfsError, DeadlineExceeded, Denied, ProtocolViolation, TooLarge, Unreachable
from bbfs.model.redaction import shown
from bbfs.model.values import Policy
from bbfs.sources.bounded.workers import start_worker
from bbfs.sources.database.backend import Job
from bbfs.sources.database.names import Key, KeyValue
from bbfs.sources.database.queries import Query, QueryValues
from bbfs.sources.database.rendering import RowFormat, Write, value_as_text
from bbfs.sources.database.sqlite.wire import DATA, DONE, FAILED, FRAME, LARGEST_FRAME, PART, decode, encode
from bbfs.sources.database.tables import Schema, Table
from bbfs.sources.options import open_regular

BUSY = 5.0
"""Seconds to wait, at most, for a program that writes."""
AT_ONCE = 2
"""Processes of one source at once, since each may take as much memory as `max_memory` allows."""
LARGEST_RESULT = 16 << 20
"""Bytes of a list of tables or keys, or of one row."""
_FILE_SIZE = 1 << 30
"""Bytes of a file with which SQLite sorts."""


class SqliteBackend:
    """One file. path: absolute. memory: of a process that reads it (bytes)."""

    scheme = "sqlite"

    def __init__(self, path: str, policy: Policy, memory: int) -> None:
        self.path = path
        self.at_once = min(policy.concurrency, AT_ONCE)
        self._wait = min(policy.timeout, BUSY)
        self._memory = memory
        self._idle: list[_Process] = []
        self._closed = False

    @contextmanager
    def session(self, job: Job) -> Iterator["RemoteSession"]:
        """Open a transaction, which sees one state of the file. Raises BbfsError."""
        try:
            # SQLite has one message for all errors of open, the kernel has one each. And SQLite would wait for a pipe.
            open_regular(self.path).close()
        except OSError as error:
            kind = Denied if error.errno in (errno.EACCES, errno.EPERM) else Unreachable
            raise kind(f"{self.path}: {error.strerror}") from None
        process = self._begun(job)
        goes_on = False
        try:
            yield RemoteSession(process)
        except _Ended:
            raise self._death(job) from None
        finally:
            try:
                with suppress(_Ended):
                    goes_on = process.has_answered and process.call("end") is True
            finally:
                job.end()
                if goes_on and not job.stopped and not self._closed:
                    self._idle.append(process)
                else:
                    process.end()

    def _begun(self, job: Job) -> "_Process":
        """Return a process that has begun a transaction. One that was idle may have ended by now."""
        while True:
            idle = self._taken()
            process = idle or trio.from_thread.run_sync(_Process, self.path, self._memory)
            try:
                job.begin(process.kill)
                process.call("begin", self.path, self._wait)
                return process
            except BaseException as error:
                job.end()
                process.end()
                if not isinstance(error, _Ended):
                    raise
                if idle is None or job.stopped:
                    raise self._death(job) from None

    def _death(self, job: Job) -> BbfsError:
        if job.stopped:
            return DeadlineExceeded("given up")
        limit = f"{self._memory >> 20} MiB (max_memory)"
        return TooLarge(f"{shown(self.path)}: its process has died: it is damaged, or takes more than {limit}")

    def _taken(self) -> "_Process | None":
        """Return an idle process, if one is left."""
        with suppress(IndexError):
            while True:
                process = self._idle.pop()
                if process.is_alive:
                    return process
                process.end()
        return None

    def is_system(self, schema: str) -> bool:
        """Return False: SQLite has no such schemas, and its own tables are never shown."""
        return False

    def fault(self, error: Exception) -> BbfsError | None:
        """Return None: the process raises errors of bbfs only."""
        return None

    def close(self) -> None:
        """End the idle processes."""
        self._closed = True
        while self._idle:
            self._idle.pop().end()


class _Ended(Exception):
    """The process has ended, or was killed."""


class _Process:
    """One process. `call` blocks; `kill`, from another thread, ends it. has_answered: it waits for another call."""

    has_answered = False

    def __init__(self, path: str, memory: int) -> None:
        self._process: subprocess.Popen[bytes] = start_worker(
            memory, shown(path), file_size=_FILE_SIZE, serve="bbfs.sources.database.sqlite.process"
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        self._answers = io.BufferedReader(self._process.stdout)  # type: ignore[type-var]

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._requests.close()
        self._answers.close()

    def call(self, name: str, *arguments: Any, write: Write | None = None) -> Any:
        """Return the result of a call; a list if it came in parts. write: takes the bytes of a content.

        Raises BbfsError, also what `write` raises, and _Ended.
        """
        self.has_answered = False
        try:
            self._requests.write(encode([name, arguments]) + b"\n")
        except OSError:
            raise _Ended from None
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
                raise TooLarge(f"a list or row of more than {LARGEST_RESULT} bytes")
            self.has_answered = kind in (DONE, FAILED)
            try:
                value = decode(data)
                parts.extend(value if kind == PART else ())
                failure = _error(*value) if kind == FAILED else None
            except (ValueError, TypeError, KeyError, RecursionError):
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


def _error(name: str, text: str) -> BbfsError:
    kind = getattr(errors, name, None)
    return (kind if isinstance(kind, type) and issubclass(kind, BbfsError) else BbfsError)(text[:1000])


class RemoteSession:
    """One transaction of `SqliteSession` in its process."""

    def __init__(self, process: _Process) -> None:
        self._process = process

    def _list(self, name: str, *arguments: Any) -> list[Any]:
        return self._process.call(name, *arguments) or []

    def _bytes(self, name: str, *arguments: Any) -> bytes | None:
        pieces: list[bytes] = []

        def keep(data: bytes) -> None:
            pieces.append(data)
            if len(pieces) * LARGEST_FRAME > 2 * LARGEST_RESULT:
                raise TooLarge(f"a row or definition of more than {LARGEST_RESULT} bytes")

        return b"".join(pieces) if self._process.call(name, *arguments, write=keep) else None

    def schemas(self) -> list[Schema]:
        return self._list("schemas")

    def tables(self, schema: str) -> list[Table]:
        return self._list("tables", schema)

    def table(self, schema: str, name: str, *, keys_only: bool = False) -> Table:
        return self._process.call("table", schema, name, keys_only)

    def definition(self, table: Table) -> str:
        return (self._bytes("definition", table) or b"").decode("utf-8", "surrogateescape")

    def count(self, table: Table) -> int:
        return self._process.call("count", table)

    def rows(self, table: Table, format: RowFormat, write: Write) -> None:
        self._process.call("rows", table, format, write=write)

    def keys(self, table: Table, limit: int, by: tuple[str, KeyValue] | None = None) -> list[Key]:
        return self._list("keys", table, limit, by)

    def values(self, table: Table, column: str, limit: int) -> list[KeyValue]:
        return self._list("values", table, column, limit)

    def has_key(self, table: Table, key: Key, by: tuple[str, KeyValue] | None = None) -> bool:
        return self._process.call("has_key", table, key, by)

    def has_value(self, table: Table, column: str, value: KeyValue) -> bool:
        return self._process.call("has_value", table, column, value)

    def row(self, table: Table, key: Key) -> bytes | None:
        return self._bytes("row", table, key)

    def query(self, query: Query, values: QueryValues, format: RowFormat, write: Write) -> None:
        made = {name: value if isinstance(value, int) else _bound(value) for name, value in values.items()}
        self._process.call("query", query.name, query.named(), made, format, write=write)


def _bound(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else value_as_text(value)
