"""Where the records of an audit go: a file, standard output or the journal. No request waits for it.

A thread writes. Between it and the event loop is a bounded queue; records beyond it are counted, and the count is a
record of its own. A file is opened again as soon as another one is at its path, so logrotate needs no signal: both
`create` and `copytruncate` do. (A signal for that would reload the configuration as well.)
"""

import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from bbfs.config import MountOptions
from bbfs.fuse.service.journal import Journal
from bbfs.model.errors import ConfigError

log = logging.getLogger(__name__)

QUEUED = 10_000
"""Records that wait to be written."""
ENDS_WITHIN = 3.0
"""Seconds at the end of a mount for the records that still wait."""
LOOK_EVERY = 1.0
"""Seconds after which an idle writer reports dropped records."""


@dataclass(frozen=True, slots=True)
class Record:
    """One request of a program. time: seconds since the epoch. pid: of the thread. uid: None where no user is known.

    path: from the root of the mount; to: its new path, or the target of a link. source: its id. outcome: "ok" or the
    name of an errno. bytes: of the content that was handed over. ms: milliseconds until the answer.
    """

    time: float
    operation: str
    pid: int
    uid: int | None
    command: str | None
    source: str | None
    path: str
    to: str | None
    outcome: str
    bytes: int | None
    ms: float

    def fields(self) -> dict[str, object]:
        """Return the fields that have a value, in a fixed order."""
        time = datetime.fromtimestamp(self.time, UTC).isoformat(timespec="milliseconds")
        found = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in {**found, "time": time}.items() if value is not None}


class Sink(Protocol):
    """Takes lines of JSON, each with the fields that it was made of. Raises OSError."""

    def write(self, records: Sequence[dict[str, object]]) -> None: ...


def _line(fields: dict[str, object]) -> bytes:
    """Return a record in one line: JSON has escapes for all that is not ASCII, whatever a name holds."""
    return json.dumps(fields).encode() + b"\n"


def _text(value: object) -> str:
    """Return a value as JSON, a string without its quotes."""
    said = json.dumps(value)
    return said[1:-1] if isinstance(value, str) else said


class _Descriptor:
    def __init__(self, number: int) -> None:
        self._number = number
        self._is_torn = False

    def write(self, records: Sequence[dict[str, object]]) -> None:
        whole = b"".join(map(_line, records))
        # A full disk may have taken the beginning of a line: the next record is not to become the end of it.
        said = memoryview(b"\n" + whole if self._is_torn else whole)
        while said:
            written = os.write(self._number, said)
            self._is_torn = said[written - 1] != ord("\n")
            said = said[written:]


class _File(_Descriptor):
    """A file for this user alone. Once another one is at its path, or none, it is opened again.

    A FIFO needs a reader when it is opened (fifo(7)): nothing waits for one.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
        super().__init__(os.open(self._path, flags, 0o600))
        os.set_blocking(self._number, True)
        self._status = os.fstat(self._number)

    def write(self, records: Sequence[dict[str, object]]) -> None:
        try:
            there = os.stat(self._path)
            is_same = os.path.samestat(there, self._status)
            self._is_torn = self._is_torn and there.st_size > 0
        except FileNotFoundError:
            is_same = False
        if not is_same:
            before = self._number
            self._open()
            os.close(before)
        super().write(records)


class _ToJournal:
    def __init__(self) -> None:
        self._journal = Journal()

    def write(self, records: Sequence[dict[str, object]]) -> None:
        for each in records:
            named = {f"BBFS_{name.upper()}": _text(value) for name, value in each.items()}
            self._journal.send({"MESSAGE": _line(each).decode().rstrip(), "PRIORITY": "6", **named})


def _sink(where: str) -> Sink:
    if where == "-":
        return _Descriptor(os.dup(sys.stdout.fileno()))
    return _ToJournal() if where == "journal" else _File(where)


class Trail:
    """Takes records, and writes them in a thread of its own. reads: whether reads are recorded, too."""

    def __init__(self, sink: Sink, *, reads: bool = False, queued: int = QUEUED) -> None:
        self.reads = reads
        self._sink = sink
        self._queue: queue.Queue[Record | None] = queue.Queue(queued)
        self._dropped = 0  # by the event loop alone
        self._lost = 0  # by the writer alone: records of failed writes, less all that it has told
        self._is_failing = False
        self._thread = threading.Thread(target=self._write, name="audit", daemon=True)
        self._thread.start()

    def note(self, record: Record) -> None:
        """Take a record. Never wait: where too many wait already, count it as dropped."""
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Write what waits, for a few seconds at most."""
        try:
            self._queue.put(None, timeout=ENDS_WITHIN)
        except queue.Full:
            log.warning("audit: %d records could not be written", self._queue.qsize())
            return
        self._thread.join(ENDS_WITHIN)

    def _write(self) -> None:
        is_last = False
        while not is_last:
            found: list[Record] = []
            try:
                taken = self._queue.get(timeout=LOOK_EVERY)
                while taken is not None:
                    found.append(taken)
                    taken = self._queue.get_nowait()
                is_last = True
            except queue.Empty:
                pass
            dropped = self._dropped + self._lost
            records = [each.fields() for each in found]
            if dropped > 0:
                now = datetime.now(UTC).isoformat(timespec="milliseconds")
                records.append({"time": now, "operation": "dropped", "records": dropped})
            if records:
                self._lost += -dropped if self._is_written(records) else len(found)

    def _is_written(self, records: Sequence[dict[str, object]]) -> bool:
        try:
            self._sink.write(records)
        except OSError as error:
            if not self._is_failing:  # once, until it works again
                log.error("audit: records are lost: %s", error.strerror)
            self._is_failing = True
            return False
        self._is_failing = False
        return True


@contextmanager
def trail(options: MountOptions, make: Callable[[str], Sink] = _sink) -> Iterator[Trail | None]:
    """Yield the audit of a mount, or None if none is asked for. Raise ConfigError if it cannot be opened."""
    if options.audit is None:
        yield None
        return
    try:
        sink = make(options.audit)
    except OSError as error:
        raise ConfigError(f"audit: {options.audit}: {error.strerror}") from None
    with closing(Trail(sink, reads=options.audit_reads)) as kept:
        yield kept
