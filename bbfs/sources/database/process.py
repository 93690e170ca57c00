"""The program of the process that reads one database (`wire` has the protocol).

A stranger's file says what SQLite evaluates, and a stranger's server says what a driver keeps in memory: a view of one
line makes gigabytes, a row may have them, and a damaged page has crashed more than one version of the libraries. None
of that can be bounded or ended in a thread.
"""

import os
import resource
import signal
from importlib import import_module
from typing import Any, BinaryIO

from bbfs.model.errors import BbfsError, ProtocolViolation, TooLarge
from bbfs.sources.database.rendering import encoded
from bbfs.sources.database.session import Database
from bbfs.sources.database.wire import DATA, DONE, FAILED, FRAME, LARGEST_FRAME, PART, decode, encode

_BATCH = 100
"""Entries of a list in one frame."""
_WRITING = "bbfs.sources.database.writing.transaction"
"""Imported by a process that writes: it loads OpenSSL for the digest of a row."""


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until no request comes for a while, or a request has made this process large."""
    reader = _Reader(answers)
    while line := requests.readline():
        signal.alarm(0)
        try:
            call, arguments = decode(line)
            if call == "end":
                reader.end()
                if _resident() > reader.large:
                    return
                signal.alarm(reader.idle)  # which ends the process
                continue
            reader.run(call, arguments)
        except MemoryError:
            reader.fail(TooLarge(f"takes more than {memory_limit() >> 20} MiB to read (max_memory)"))
        except Exception as error:  # noqa: BLE001 - the daemon says what it can about it
            reader.fail(reader.fault(error))
        answers.flush()


class _Reader:
    """The calls of one transaction at a time, and their answers. idle: seconds without a transaction.

    large: bytes in memory; a process that a request has made larger than this is not used again.
    """

    idle = 0
    large = 0

    def __init__(self, answers: BinaryIO) -> None:
        self._answers = answers
        self._database: Database | None = None
        self._session: Any = None

    def run(self, call: str, arguments: tuple[Any, ...]) -> None:
        if self._database is None:
            module, options, environment, self.idle, self.large = arguments
            os.environ.update(environment)
            self._database = import_module(module).open_database(**options)
            self._send(DONE, encode(None))
        elif call == "begin":
            self._session = self._database.begin()
            self._send(DONE, encode(None))
        elif call == "change":
            import_module(_WRITING).change(self._session, *arguments)
            self._send(DONE, encode(None))
        elif call in ("rows", "query"):
            getattr(self._session, call)(*arguments, self._write)
            self._send(DONE, encode(None))
        else:
            self._answer(getattr(self._session, call)(*arguments))

    def end(self) -> None:
        """End the transaction. Only the steps that follow can fail."""
        self._session = None
        if self._database is not None:
            self._database.end()

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

    def fault(self, error: Exception) -> BbfsError:
        """Return the error of bbfs for any other."""
        if isinstance(error, BbfsError):
            return error
        found = None if self._database is None else self._database.fault(error)
        return found or ProtocolViolation(f"cannot be read ({type(error).__name__})")

    def fail(self, error: BbfsError) -> None:
        text = str(error).encode("utf-8", "replace")[: 1 << 12].decode("utf-8", "replace")
        self._send(FAILED, encode([type(error).__name__, text]))


def memory_limit() -> int:
    """Return the limit of this process (bytes)."""
    return resource.getrlimit(resource.RLIMIT_AS)[0]


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
