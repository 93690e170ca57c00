"""The log: where it goes, and its form, which is text, JSON, or fields of the systemd journal."""

import io
import json
import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from bbfs.cli import output
from bbfs.fuse.service import journal
from bbfs.runtime.private_files import open_own, own_directory

if TYPE_CHECKING:
    from bbfs.config.values import LogFormat

LARGEST_LOG = 1 << 20
"""Bytes at which the log of a mount in the background begins again; twice as many are on the disk."""
_FOREIGN_LOGGERS = {
    "httpx2": logging.WARNING,
    "httpcore2": logging.WARNING,
    "mcp": logging.CRITICAL,
    "client": logging.CRITICAL,
    "paramiko": logging.CRITICAL,
}
"""Quiet loggers: httpx2 logs whole URLs at INFO, and bbfs itself reports the events of the SDK and paramiko."""


class _Format(logging.Formatter):
    """The format `bbfs: level: name: message`, in a file with the time before it."""

    def __init__(self, *, timed: bool) -> None:
        super().__init__()
        self._timed = timed

    def format(self, record: logging.LogRecord) -> str:
        text = output.printable(record.getMessage())
        if (trace := _traceback(record)) is not None:
            text += f"\n{trace}"
        stamp = f"{self.formatTime(record)} " if self._timed else ""
        return f"{stamp}bbfs: {record.levelname.lower()}: {record.name}: {text}"


class _Json(logging.Formatter):
    """One object a line. JSON escapes all that could control a terminal or begin another line."""

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        if (trace := _traceback(record)) is not None:
            said["traceback"] = trace
        return json.dumps(said)


def _traceback(record: logging.LogRecord) -> str | None:
    error = record.exc_info[1] if record.exc_info else None
    return None if error is None else output.printable_traceback(error)


class _Journal(logging.Handler):
    """A handler that sends fields to the journal (systemd.journal-fields(7))."""

    def __init__(self) -> None:
        super().__init__()
        self._journal = journal.Journal()

    def emit(self, record: logging.LogRecord) -> None:
        fields = {
            "MESSAGE": output.printable(record.getMessage()),
            "PRIORITY": journal.priority(record.levelno),
            "LOGGER": record.name,
            "CODE_FILE": record.pathname,
            "CODE_LINE": str(record.lineno),
            "CODE_FUNC": record.funcName or "",
            "TRACEBACK": _traceback(record) or "",
        }
        try:
            self._journal.send({name: value for name, value in fields.items() if value})
        except OSError:
            self.handleError(record)

    def close(self) -> None:
        self._journal.close()
        super().close()


class _StandardError(logging.Handler):
    """A handler that writes to the current standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except (OSError, ValueError):
            self.handleError(record)


class _File(logging.FileHandler):
    """A file of the log. A file that it makes is for this user alone, because it has names and URIs."""

    def _open(self) -> io.TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, opener=partial(os.open, mode=0o600))


class _Bounded(_File):
    """A file of the log that begins again when it is large. The file before it stays beside it, as `NAME.1`."""

    def _open(self) -> io.TextIOWrapper:
        own_directory(os.path.dirname(self.baseFilename))
        return open(self.baseFilename, "a", encoding=self.encoding, opener=open_own)

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # it goes on in the large one
            if os.path.getsize(self.baseFilename) > LARGEST_LOG:
                os.replace(self.baseFilename, f"{self.baseFilename}.1")
                if (before := self.setStream(self._open())) is not None:
                    before.close()
        super().emit(record)


def log_to_stderr(level: int, form: "LogFormat" = "text") -> None:
    """Log to standard error; to the journal itself if that is asked for, and standard error leads there."""
    if form == "journal" and journal.has_stderr():
        _log_to(_Journal(), level, logging.Formatter())
    else:
        _log_to(_StandardError(), level, _formatter(form, timed=level <= logging.DEBUG))


def log_to_file(path: str, level: int, form: "LogFormat" = "text") -> None:
    """Append the log to a file, with times. Raise OSError."""
    _log_to(_File(os.path.abspath(path), encoding="utf-8"), level, _formatter(form, timed=True))


_handlers: list[logging.Handler] = []


def also_log_to_bounded_file(path: str, level: int, form: "LogFormat" = "text") -> None:
    """Append the log to a file of this user alone as well, which keeps a bounded size. Raise OSError."""
    before = logging.getLogger().level
    for handler in _handlers:
        handler.setLevel(before)
    _add(_Bounded(path, encoding="utf-8"), min(level, before), _formatter(form, timed=True))


def _formatter(form: "LogFormat", *, timed: bool) -> logging.Formatter:
    return _Json() if form == "json" else _Format(timed=timed)


def _log_to(handler: logging.Handler, level: int, form: logging.Formatter) -> None:
    root = logging.getLogger()
    while _handlers:
        old = _handlers.pop()
        root.removeHandler(old)
        old.close()
    _add(handler, level, form)


def _add(handler: logging.Handler, level: int, form: logging.Formatter) -> None:
    root = logging.getLogger()
    handler.setFormatter(form)
    _handlers.append(handler)
    root.addHandler(handler)
    root.setLevel(level)
    for name, quieter in _FOREIGN_LOGGERS.items():
        logging.getLogger(name).setLevel(quieter)
