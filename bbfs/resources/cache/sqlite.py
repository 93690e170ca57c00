"""Open the SQLite databases of the caches, which all processes of a user share."""

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bbfs.runtime.private_files import own_database

log = logging.getLogger(__name__)

BUSY_TIMEOUT = 5.0
"""Seconds that a statement waits for another process's lock."""
_WAL_ATTEMPTS = 40


def connect(
    path: str, schema: Sequence[str] | Callable[[int], Sequence[str]], version: int, *, shrinks: bool = False
) -> sqlite3.Connection:
    """Return a connection in WAL mode, for any thread, to a database with this schema.

    schema: statements, or what returns them for the version that the database has; they must drop the tables of earlier
    versions that are not kept. shrinks: whether free pages of a new database can
    be given back (sqlite.org/pragma.html, auto_vacuum). A crash of the machine may lose the last
    transactions, never consistency. Raises sqlite3.Error, OSError if the file is not this user's.
    """
    if path != ":memory:":
        own_database(path)
    db = sqlite3.connect(path, timeout=BUSY_TIMEOUT, check_same_thread=False)
    try:
        if shrinks:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # no-op once the database has a page
        _enable_wal(db)
        db.execute("PRAGMA synchronous = NORMAL")
        if db.execute("PRAGMA user_version").fetchone()[0] != version:
            with db:
                db.execute("BEGIN IMMEDIATE")
                found = db.execute("PRAGMA user_version").fetchone()[0]
                if found != version:
                    for statement in schema(found) if callable(schema) else schema:
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {version}")
    except (sqlite3.Error, UnicodeDecodeError):
        db.close()
        raise
    return db


def set_aside(path: Path, error: Exception) -> None:
    """Move a damaged database away, and remove its companions. Raises OSError."""
    log.warning("%s is not a usable database (%s): set aside", path, error)
    path.replace(path.with_suffix(".broken"))
    for companion in ("-wal", "-shm"):  # they would damage the next database
        path.with_name(path.name + companion).unlink(missing_ok=True)


def is_damage(error: Exception) -> bool:
    """Return whether an error shows a damaged database, and not one that cannot be used for now.

    `sqlite3` has no code for text that is not UTF-8: an OperationalError in a row, a UnicodeDecodeError in a message.
    """
    return not isinstance(error, sqlite3.OperationalError) or "decode to UTF-8" in str(error)


def as_text(uri: str) -> str:
    """Return text that SQLite takes as UTF-8: a lone surrogate, which a sloppy server may send, as its escape."""
    return uri.encode("utf-8", "backslashreplace").decode()


def _enable_wal(db: sqlite3.Connection) -> None:
    """Turn WAL on. Unlike other statements this does not wait for other processes, so retry for a while."""
    for attempt in range(_WAL_ATTEMPTS):
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if attempt == _WAL_ATTEMPTS - 1:
                raise
            time.sleep(0.05)
