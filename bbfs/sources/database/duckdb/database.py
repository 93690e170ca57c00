"""One DuckDB file, opened for each transaction, or data files, which are the tables.

DuckDB lets one process write a file, or several read it. So no process keeps it open between two transactions, and each
waits a moment for the others. What a killed writer has committed is in the file's log, which readers take into account.

Nothing else can be read: access to files and hosts is off, extensions are neither installed nor loaded, and the
configuration is locked.
"""

import ctypes
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator

import duckdb

from bbfs.model.errors import (
    BbfsError,
    Busy,
    Denied,
    NotFound,
    NotSupported,
    ProtocolViolation,
    Rejected,
    TooLarge,
    Unreachable,
)
from bbfs.sources.database.duckdb.session import READERS, DuckdbSession

MOST_FILES = 10_000
"""Files of a folder, directories included, that are looked at."""
_RETRY = 0.01
_M_ARENA_MAX = -8
_PATTERN = re.compile(r"[*?\[]")
_CONFIG = {
    "threads": "1",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "temp_directory": "",  # what does not fit into memory is too large
}
_FAULTS: tuple[tuple[type[duckdb.Error], type[BbfsError]], ...] = (
    (duckdb.OutOfMemoryException, TooLarge),
    (duckdb.PermissionException, Denied),
    (duckdb.CatalogException, NotFound),
    (duckdb.NotImplementedException, NotSupported),
    (duckdb.SerializationException, ProtocolViolation),
    (duckdb.FatalException, ProtocolViolation),
    (duckdb.InternalException, ProtocolViolation),
    (duckdb.HTTPException, Denied),
)
_WRITING_FAULTS = (
    duckdb.ConstraintException,
    duckdb.ConversionException,
    duckdb.BinderException,
    duckdb.InvalidInputException,
    duckdb.OutOfRangeException,
)
"""Errors of DuckDB that the written row causes."""


class DuckdbDatabase:
    """One file, or a folder of data files. memory: of DuckDB (bytes). wait: seconds for a process that has the file."""

    def __init__(self, path: str, memory: int, wait: float, writable: bool = False) -> None:
        self._path = path
        self._wait = wait
        self._writable = writable
        self._config: dict[str, str | bool | int | float | list[str]] = {**_CONFIG, "memory_limit": f"{memory}B"}
        self._connection: duckdb.DuckDBPyConnection | None = None
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)  # arenas of its threads would take address space
        # A file without a name, for results in Parquet: DuckDB writes them to a path.
        self._output = os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR, 0o600)

    def begin(self) -> DuckdbSession:
        files = _data_files(self._path)
        self._connection = connection = self._file() if files is None else self._connected(":memory:", read_only=False)
        allowed = [f"/proc/self/fd/{self._output}", *(files or {}).values()]
        connection.execute(f"SET allowed_paths = [{', '.join(map(_literal, allowed))}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        connection.execute("BEGIN")
        return DuckdbSession(connection, self._output, files)

    def _file(self) -> duckdb.DuckDBPyConnection:
        """Open the file. Another process may have it for a moment."""
        until = time.monotonic() + self._wait
        while True:
            try:
                return self._connected(self._path, read_only=not self._writable)
            except duckdb.IOException as error:
                if "lock" not in str(error) or time.monotonic() > until:
                    raise
            time.sleep(_RETRY)

    def _connected(self, name: str, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        return duckdb.connect(name, read_only=read_only, config=self._config)

    def end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def fault(self, error: Exception) -> BbfsError | None:
        if not isinstance(error, duckdb.Error):
            return None
        text = " ".join(str(error).split())
        if self._writable and isinstance(error, _WRITING_FAULTS):
            return Rejected(f"DuckDB: {text}")
        for known, kind in _FAULTS:
            if isinstance(error, known):
                return kind(f"DuckDB: {text}{' (max_memory)' if kind is TooLarge else ''}")
        if isinstance(error, duckdb.IOException):
            broken = "not a valid" in text or "corrupt" in text.lower() or "checksum" in text
            return (Busy if "lock" in text else ProtocolViolation if broken else Unreachable)(f"DuckDB: {text}")
        return BbfsError(f"DuckDB: {text}")


open_database = DuckdbDatabase


def _data_files(path: str) -> dict[str, str] | None:
    """Return the data files of a folder, or that file, by name; None for a database."""
    if os.path.isdir(path):
        return dict(_below(path))
    return {os.path.basename(path): path} if _is_data(path) else None


def _below(folder: str) -> Iterator[tuple[str, str]]:
    """Yield the names and paths of the data files below a folder. Links are left out: they may lead elsewhere.

    So are names that DuckDB takes for patterns.
    """
    seen = 0
    for directory, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for name in sorted(names):
            path = os.path.join(directory, name)
            if not _is_data(name) or name.startswith(".") or _PATTERN.search(path):
                continue
            if stat.S_ISREG(os.lstat(path).st_mode):
                yield os.path.relpath(path, folder), path
        seen += len(folders) + len(names)
        if seen > MOST_FILES:
            raise TooLarge(f"a folder of more than {MOST_FILES} files")


def _is_data(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in READERS


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
