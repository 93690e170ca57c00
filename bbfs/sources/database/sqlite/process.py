"""The program of the process that reads one SQLite file (`wire` has the protocol).

SQLite evaluates what a stranger's file says: a view of one line makes gigabytes, a pattern takes hours, and a damaged
page has crashed more than one version of the library. None of that can be bounded or ended in a thread.
"""

import os
import resource
import select
import sqlite3
from typing import Any, BinaryIO
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
from bbfs.sources.database.rendering import encoded
from bbfs.sources.database.sqlite.session import SqliteSession
from bbfs.sources.database.sqlite.wire import DATA, DONE, FAILED, FRAME, LARGEST_FRAME, PART, decode, encode

_IDLE = 30.0
"""Seconds without a request after which the process ends."""
_LARGE = 96 << 20
"""Bytes in memory. A process that a request has made larger than this is not used again."""
_BATCH = 100
"""Entries of a list in one frame."""
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
    sqlite3.SQLITE_IOERR_WRITE: TooLarge,  # to its file for sorting, which has a limit: nothing else is written
    sqlite3.SQLITE_TOOBIG: TooLarge,
    sqlite3.SQLITE_NOMEM: TooLarge,
    sqlite3.SQLITE_FULL: TooLarge,
}
_LIMITS = {
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 20,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 1 << 20,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
"""Limits of one connection, besides that of a value (https://sqlite.org/limits.html)."""
_PRAGMAS = ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0")


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more. The daemon ends a process that has become large."""
    reader = _Reader(answers)
    while select.select([requests], [], [], _IDLE)[0] and (line := requests.readline()):
        try:
            call, arguments = decode(line)
            reader.run(call, arguments)
        except MemoryError:
            reader.fail(TooLarge(f"takes more than {_memory() >> 20} MiB to read (max_memory)"))
        except Exception as error:  # noqa: BLE001 - the daemon says what it can about it
            reader.fail(_fault(error))
        answers.flush()


class _Reader:
    """The calls of one connection at a time, and their answers."""

    def __init__(self, answers: BinaryIO) -> None:
        self._answers = answers
        self._connection: sqlite3.Connection | None = None
        self._session: Any = None

    def run(self, call: str, arguments: tuple[Any, ...]) -> None:
        if call == "begin":
            self._begin(*arguments)
            self._send(DONE, encode(None))
        elif call == "end":
            if self._connection is not None:
                self._connection.close()
            self._connection = self._session = None
            self._send(DONE, encode(_resident() < _LARGE))
        elif call in ("rows", "query"):
            getattr(self._session, call)(*arguments, self._write)
            self._send(DONE, encode(None))
        else:
            self._answer(getattr(self._session, call)(*arguments))

    def _begin(self, path: str, wait: float) -> None:
        """Open a transaction, which sees one state of the file."""
        self._connection = connection = sqlite3.connect(
            f"file:{quote(os.fsencode(path))}?mode=ro", uri=True, timeout=wait, isolation_level=None
        )
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)
        # A value is there several times: in SQLite, as bytes, as a text of up to four bytes a character, and rendered.
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _memory() // 6)
        connection.text_factory = _text
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN")
        self._session = SqliteSession(connection)

    def _answer(self, result: Any) -> None:
        """Send a result: bytes and texts as data, lists in parts."""
        if isinstance(result, str | bytes):
            self._write(encoded(result) if isinstance(result, str) else result)
            result = True
        if isinstance(result, list):
            for begin in range(0, len(result), _BATCH):
                self._send(PART, encode(result[begin : begin + _BATCH]))
            result = None
        self._send(DONE, encode(result))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        for begin in range(0, len(view), LARGEST_FRAME):
            self._send(DATA, view[begin : begin + LARGEST_FRAME])

    def _send(self, kind: bytes, data: bytes | memoryview) -> None:
        if len(data) > LARGEST_FRAME:
            raise TooLarge(f"a table, or keys, that take more than {LARGEST_FRAME} bytes to describe")
        self._answers.write(FRAME.pack(kind, len(data)))
        self._answers.write(data)

    def fail(self, error: BbfsError) -> None:
        text = str(error).encode("utf-8", "replace")[: 1 << 12].decode("utf-8", "replace")
        self._send(FAILED, encode([type(error).__name__, text]))


def _fault(error: Exception) -> BbfsError:
    if isinstance(error, BbfsError):
        return error
    if isinstance(error, UnicodeEncodeError):
        return NotSupported("a name that is no UTF-8 cannot be asked for")
    if not isinstance(error, sqlite3.Error | sqlite3.Warning):  # the latter for a second statement
        return ProtocolViolation(f"cannot be read ({type(error).__name__})")
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return TooLarge(f"SQLite: {error}") if isinstance(error, sqlite3.DataError) else BbfsError(f"SQLite: {error}")
    kind = _FAULTS.get(code if code in _FAULTS else code & 0xFF, BbfsError)
    if "no such table" in str(error):
        kind = NotFound
    more = " (max_memory)" if kind is TooLarge else ""
    return kind(f"SQLite: {error}{more}")


def _memory() -> int:
    return resource.getrlimit(resource.RLIMIT_AS)[0]


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
