"""The file in which a source of type `memory` keeps its resources across restarts.

It is one JSON object. Each change writes a new file beside it and renames that, so a crash leaves the old file or the
new one. Several processes may use one file: each reads it, changes it and writes it under a lock (`FILE.lock`). A file
that cannot be parsed is set aside under another name and never lost.

    {"bbfs": "memory", "version": 1, "resources": [
      {"uri": "memory://notes/a.md", "text": "…", "mimeType": "text/markdown", "modified": "2026-03-01T12:00:00.25Z"},
      {"uri": "memory://logo.png", "base64": "…"},
      {"uri": "memory://old", "removed": true}]}

All functions block: call them in a thread.
"""

import base64
import binascii
import errno
import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bbfs.model.errors import BbfsError, Busy, Denied, TooLarge
from bbfs.runtime.files import closed_after
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.memory.contents import Contents, Held, native_uri_of
from bbfs.sources.options import open_regular

log = logging.getLogger(__name__)

VERSION = 1
LOCKED_WITHIN = 10.0
"""Seconds to wait for the lock. Another process holds it for one change at a time."""
_OVERHEAD = 2
"""Largest size of the file relative to its contents (base64, escapes); one MiB comes on top."""
Stamp = tuple[int, int, int]


class BrokenFileError(ValueError):
    """The file has another format than bbfs writes."""


@dataclass(frozen=True, slots=True)
class FileState:
    """The contents of the file. stamp: changes with the file; None if there is no file. problem: why the contents are
    empty."""

    contents: Contents
    stamp: Stamp | None = None
    problem: str | None = None


class MemoryFile:
    """The file at `path`. max_bytes: limit of its contents. locked_within: seconds to wait for the lock."""

    def __init__(self, path: str, max_bytes: int, locked_within: float = LOCKED_WITHIN) -> None:
        self.path = path
        self._locked_within = locked_within
        self._max_bytes = max_bytes

    def stamp(self) -> Stamp | None:
        """Return a value that changes when the file does, or None if there is no file. Raise BbfsError."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error(error) from error
        return _stamp(found)

    def read(self) -> FileState:
        """Return the contents of the file, and set a broken file aside. Raise BbfsError."""
        if self.stamp() is None:
            return FileState(Contents())
        with self._locked():
            return self._read()

    def change(self, change: Callable[[Contents], Contents]) -> FileState:
        """Read, change and write the file, while other processes wait. Raise BbfsError, and the errors of `change`.

        When this returns, the file is on the disk.
        """
        with self._locked():
            kept = self._read()
            contents = change(kept.contents)
            try:
                self._write(_document(contents))
                return FileState(contents, _stamp(os.stat(self.path)), kept.problem)
            except OSError as error:
                raise self._error(error) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise self._error(error) from error
        with closed_after(lock):
            self._await_turn(lock)
            yield

    def _await_turn(self, lock: int) -> None:
        until = time.monotonic() + self._locked_within
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Busy(f"{self.path}: locked by another process for {self._locked_within:g} s") from None
                time.sleep(0.01)
            except OSError as error:
                raise self._error(error) from error

    def _read(self) -> FileState:
        try:
            with open_regular(self.path) as file:
                status = os.fstat(file.fileno())
                most = _OVERHEAD * self._max_bytes + (1 << 20)
                if status.st_size > most:
                    raise TooLarge(f"{self.path}: {status.st_size} bytes, and {most} are the limit (by max_bytes)")
                data = file.read()
        except FileNotFoundError:
            return FileState(Contents())
        except OSError as error:
            raise self._error(error) from error
        try:
            return FileState(_contents(data), _stamp(status))
        except BrokenFileError as error:
            return FileState(Contents(), None, self._set_aside(str(error)))

    def _set_aside(self, why: str) -> str:
        """Rename the file to a free name, and return a message that says so."""
        number = 1
        while True:
            aside = f"{self.path}.broken-{number}"
            try:
                os.link(self.path, aside)  # a link replaces no file, unlike a rename
                os.unlink(self.path)
                break
            except FileExistsError:
                number += 1
            except OSError as error:
                raise self._error(error) from error
        problem = f"{self.path} could not be understood ({why}) and is now {aside}"
        log.warning("%s", problem)
        return problem

    def _write(self, document: dict[str, Any]) -> None:
        beside = f"{self.path}.new"
        data = json.dumps(document, ensure_ascii=False, indent=1).encode()
        with suppress(FileNotFoundError):
            os.unlink(beside)  # left by a process that was killed; this one holds the lock
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(beside, self.path)
        except OSError:
            with suppress(OSError):
                os.unlink(beside)
            raise
        with closed_after(
            os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        ) as directory:
            os.fsync(directory)

    def _error(self, error: OSError) -> BbfsError:
        text = f"{self.path}: {error.strerror}"
        return Denied(text) if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else BbfsError(text)


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _document(contents: Contents) -> dict[str, Any]:
    resources: list[dict[str, Any]] = []
    for uri, held in contents.held.items():
        entry: dict[str, Any] = {"uri": uri}
        try:
            entry["text"] = held.content.data.decode()
        except UnicodeDecodeError:
            entry["base64"] = base64.b64encode(held.content.data).decode()
        if held.mime_type is not None:
            entry["mimeType"] = held.mime_type
        if held.description is not None:
            entry["description"] = held.description
        if held.modified_ns is not None:
            entry["modified"] = _time_text(held.modified_ns)
        resources.append(entry)
    resources += [{"uri": uri, "removed": True} for uri in sorted(contents.removed)]
    return {"bbfs": "memory", "version": VERSION, "resources": resources}


def _contents(data: bytes) -> Contents:
    """Return the contents in the file. Raise BrokenFileError."""
    try:
        document = json.loads(data)
        if (document["bbfs"], document["version"]) != ("memory", VERSION):
            raise BrokenFileError(f"not of version {VERSION}")
        held: dict[str, Held] = {}
        removed: set[str] = set()
        for entry in document["resources"]:
            uri = native_uri_of(entry["uri"])
            if entry.get("removed"):
                removed.add(uri)
            else:
                held[uri] = _held(entry)
        return Contents(held, frozenset(removed))
    except BrokenFileError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BrokenFileError(f"{type(error).__name__}: {error!s:.100}") from None


def _held(entry: dict[str, Any]) -> Held:
    try:
        content = entry["text"].encode() if "text" in entry else base64.b64decode(entry["base64"], validate=True)
    except binascii.Error as error:
        raise BrokenFileError(f"base64: {error}") from None
    mime_type, description, modified = (entry.get(key) for key in ("mimeType", "description", "modified"))
    for text in (mime_type, description, modified):
        if not isinstance(text, str | None):
            raise BrokenFileError("a description that is no text")
    return Held(MemoryContent(content), mime_type, description, None if modified is None else _time_ns(modified))


def _time_text(modified_ns: int) -> str:
    """Return a time as ISO 8601 in UTC with nanoseconds, which Python's own function lacks."""
    seconds, nanoseconds = divmod(modified_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09}Z"


def _time_ns(text: str) -> int:
    seconds, _, fraction = text.removesuffix("Z").partition(".")
    whole = datetime.fromisoformat(seconds).replace(tzinfo=UTC)
    return int(whole.timestamp()) * 1_000_000_000 + int(fraction[:9].ljust(9, "0"))
