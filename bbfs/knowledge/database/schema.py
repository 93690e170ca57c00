"""The database file: its tables, and how a connection to it is opened. Synchronous; used from worker threads."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bbfs.knowledge.documents import StoreError

# "bbkb": tells a knowledge base from any other SQLite file (https://www.sqlite.org/pragma.html#pragma_application_id).
APPLICATION_ID = 0x62626B62
SCHEMA_VERSION = 1
# Seconds that a writer waits for another one; readers never wait (write-ahead log).
BUSY_TIMEOUT = 30.0

# `change` holds one row for each document there ever was, and one (document = '') for each collection: the sequence
# number of its latest change and of its latest appearance or disappearance. So a reader that remembers a number finds
# all that changed since, however long ago that was, and nothing has to be pruned.
# `search` is an index without a copy of the text: it reads the view for snippets, the triggers keep it in step.
_SCHEMA = """
CREATE TABLE collection (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE document (
    key INTEGER PRIMARY KEY,
    collection TEXT NOT NULL REFERENCES collection (id),
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    mime_type TEXT NOT NULL,
    is_text INTEGER NOT NULL,
    size INTEGER NOT NULL,
    source TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    content BLOB NOT NULL,
    UNIQUE (collection, id),
    UNIQUE (collection, source)
) STRICT;

CREATE TABLE change (
    collection TEXT NOT NULL,
    document TEXT NOT NULL,
    seq INTEGER NOT NULL,
    listed_seq INTEGER NOT NULL,
    changed_at TEXT NOT NULL,
    PRIMARY KEY (collection, document)
) STRICT, WITHOUT ROWID;
CREATE INDEX change_seq ON change (seq);

CREATE VIEW document_text AS
    SELECT key, name, CASE WHEN is_text THEN CAST(content AS TEXT) END AS body FROM document;
CREATE VIRTUAL TABLE search USING fts5 (
    name, body, content = 'document_text', content_rowid = 'key', tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE TRIGGER document_added AFTER INSERT ON document BEGIN
    INSERT INTO search (rowid, name, body)
    VALUES (new.key, new.name, CASE WHEN new.is_text THEN CAST(new.content AS TEXT) END);
END;
CREATE TRIGGER document_removed AFTER DELETE ON document BEGIN
    INSERT INTO search (search, rowid, name, body)
    VALUES ('delete', old.key, old.name, CASE WHEN old.is_text THEN CAST(old.content AS TEXT) END);
END;
CREATE TRIGGER document_updated AFTER UPDATE ON document BEGIN
    INSERT INTO search (search, rowid, name, body)
    VALUES ('delete', old.key, old.name, CASE WHEN old.is_text THEN CAST(old.content AS TEXT) END);
    INSERT INTO search (rowid, name, body)
    VALUES (new.key, new.name, CASE WHEN new.is_text THEN CAST(new.content AS TEXT) END);
END;
"""


def connect(path: Path, *, durable: bool = False) -> sqlite3.Connection:
    """Open a connection to an existing database, in autocommit mode, usable from any one thread at a time.

    durable: a commit waits for the disk.
    """
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def prepare(path: Path, *, create: bool) -> None:
    """Check that the file is a knowledge base; create one if there is no file and `create` allows it.

    Raises StoreError: not a knowledge base, made by a newer version, missing, or the file cannot be opened.
    """
    if not create and not path.exists():
        raise StoreError(f"{path}: there is no such file")
    try:
        if not path.exists():  # SQLite would make it readable to all; its companions get the mode of the file
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600))
        with closing(connect(path)) as connection:
            with reading(connection):
                is_new = _is_new(connection, path)
            if is_new:
                _use_write_ahead_log(connection)
                with writing(connection):
                    _create(connection, path)
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a write transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def reading(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a read transaction: all reads see the same state."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def _is_new(connection: sqlite3.Connection, path: Path) -> bool:
    # Called within a transaction, so that all reads see the same state.
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    if version == 0 and application == 0:
        if connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None:
            return True
        raise StoreError(f"{path} is a database of something else, not a knowledge base")
    if application != APPLICATION_ID:
        raise StoreError(f"{path} is a database of something else, not a knowledge base")
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{path} has version {version} of the knowledge base's schema; this program knows {SCHEMA_VERSION}"
        )
    return False


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    # Unlike other statements this does not wait for other connections: it fails at once while one reads.
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _create(connection: sqlite3.Connection, path: Path) -> None:
    # Checked again within the transaction: another process may have been faster.
    if not _is_new(connection, path):
        return
    for statement in _statements(_SCHEMA):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _statements(script: str) -> Iterator[str]:
    """Split a script into statements: `executescript` would end the transaction it is called in."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
