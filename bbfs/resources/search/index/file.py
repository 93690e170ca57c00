"""The local index as a file in SQLite: documents, their chunks, the words of the chunks (FTS5), and the terms.

FTS5 gets the words of a text as `words.tokens` makes them, and keeps no content: its tokenizers know neither stems nor
names of programs, and a tokenizer of our own would need a compiler.

`terms` has each term once, with its trigrams; `grams` has the documents of each term. So a substring is looked up among
the terms, whose number grows slower than the text, and the documents follow. Trigrams of the text itself would cost
five times the time.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from bbfs.resources.cache.sqlite import BUSY_TIMEOUT, connect, set_aside
from bbfs.resources.search.index import vectors
from bbfs.resources.search.index.ranking import WEIGHTS
from bbfs.runtime.private_files import own_directory

log = logging.getLogger(__name__)
F = TypeVar("F", bound="IndexFile")
P = ParamSpec("P")
T = TypeVar("T")

_VERSION = 6
_KEPT = 4
"""The earlier version whose texts the index keeps: only their words are made again."""
UNREAD = "document.id NOT IN (SELECT document FROM analysed)"
"""The documents whose words and terms are still to be made, as an expression of SQL."""
_HASH = 8 << 20
"""Bytes of new words that FTS5 gathers before it writes them: each time costs a merge with what is there."""
_FULL_UNTIL = 0.95
"""Share of the bound that documents take: FTS5 writes merged words beside the ones that they replace."""
_STEPS = 2000
"""Instructions of SQLite between two looks at the clock."""
_PAGES_IN_LOG = 8000
"""Pages of 4 KiB in the write-ahead log before they go to the database: each time costs waits for the disk."""
WORDS = (
    *(f"DROP TABLE IF EXISTS {table}" for table in ("words", "grams", "termgrams", "term", "analysed")),
    "DROP TABLE IF EXISTS rules",
    "CREATE TABLE rules (name TEXT NOT NULL)",  # of the words (`words.tokens.rules`)
    "CREATE VIRTUAL TABLE words USING fts5(title, text, compounds, content = '',"
    " tokenize = \"ascii tokenchars '+#.'\")",
    f"INSERT INTO words (words, rank) VALUES ('rank', 'bm25({WEIGHTS})')",
    "CREATE VIRTUAL TABLE grams USING fts5(terms, content = '', detail = 'none', tokenize = 'ascii')",
    "CREATE TABLE term (id INTEGER PRIMARY KEY, term TEXT NOT NULL UNIQUE)",
    "CREATE VIRTUAL TABLE termgrams USING fts5(term, content = 'term', content_rowid = 'id', detail = 'none',"
    " tokenize = 'trigram')",
    *(f"INSERT INTO {table} ({table}, rank) VALUES ('hashsize', {_HASH})" for table in ("words", "grams", "termgrams")),
    "CREATE TABLE analysed (document INTEGER PRIMARY KEY, language TEXT NOT NULL, modified INTEGER NOT NULL)",
    "CREATE INDEX analysed_language ON analysed (language)",
)
"""All that follows from the texts."""
_UNFIT = """CREATE TABLE unfit (
    source INTEGER NOT NULL, uri TEXT NOT NULL, stamp TEXT, PRIMARY KEY (source, uri)
) WITHOUT ROWID"""
_SCHEMA = (
    *(f"DROP TABLE IF EXISTS {table}" for table in ("chunk", "document", "source", "generation", *vectors.TABLES)),
    *("DROP TABLE IF EXISTS unfit", "DROP VIEW IF EXISTS passage"),
    "CREATE TABLE generation (number INTEGER NOT NULL)",  # of `term`: it grows when terms are removed
    "INSERT INTO generation VALUES (0)",
    "CREATE TABLE source (id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, walking REAL, walked REAL)",
    _UNFIT,
    "CREATE TABLE document (id INTEGER PRIMARY KEY AUTOINCREMENT, source INTEGER NOT NULL, uri TEXT NOT NULL,"
    " version TEXT NOT NULL, stamp TEXT, title TEXT NOT NULL, size INTEGER NOT NULL, indexed_at REAL NOT NULL,"
    " stale INTEGER NOT NULL, folds INTEGER NOT NULL, UNIQUE (source, uri))",
    "CREATE INDEX document_folds ON document (source) WHERE folds",
    "CREATE TABLE chunk (id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL, place TEXT NOT NULL,"
    " text TEXT NOT NULL, markup TEXT)",
    "CREATE INDEX chunk_document ON chunk (document)",
    *WORDS,
    *vectors.SCHEMA,
)


def _schema(version: int) -> Sequence[str]:
    """Return the statements that bring a database of a version to this one."""
    more = ("ALTER TABLE source ADD COLUMN walked REAL", _UNFIT)
    again = ("DROP VIEW IF EXISTS passage", *WORDS, *more, "UPDATE generation SET number = number + 1")
    return again if version == _KEPT else _SCHEMA


def mending(method: Callable[Concatenate[F, P], T]) -> Callable[Concatenate[F, P], T]:
    """Have a method of an open index replace the database if that turns out to be damaged, and begin again."""

    @wraps(method)
    def mended(index: F, *arguments: P.args, **named: P.kwargs) -> T:
        try:
            return method(index, *arguments, **named)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError | sqlite3.IntegrityError | sqlite3.ProgrammingError):
                raise
            index.replace_damaged(error)
            return method(index, *arguments, **named)

    return mended


class IndexFile:
    """An open index, for one writing thread and any reading ones. A damaged file is set aside and replaced.

    Raises OSError if the file cannot be opened, and sqlite3.Error where the disk fails.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        """Open or make the index. max_bytes: of the database; when it has them, new documents are left out."""
        self._path = path
        self._max_bytes = max_bytes
        self._reading, self._comparing = threading.Lock(), threading.Lock()
        self._is_full = False
        self._opened = 0
        self.unread = 0
        """Documents whose words are still to be made again, after a change of the rules for them."""
        own_directory(path.parent)
        self._open_or_replace()

    def _open_or_replace(self) -> None:
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise OSError(f"{self._path}: {error}") from error
            set_aside(self._path, error)
            self._open()

    def _open(self) -> None:
        self._opened += 1
        self._db = connect(str(self._path), _schema, _VERSION)
        self._db.isolation_level = None
        self._db.execute("PRAGMA cache_size = -32768")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_IN_LOG}")
        self._db.execute("SELECT count(*) FROM source").fetchone()
        self._reader, self._comparer = self._read_only(), self._read_only()  # words and vectors at the same time
        self.has_vectors = vectors.extended(self._db) and vectors.extended(self._comparer)
        """True if vectors can be written and searched."""

    def _read_only(self) -> sqlite3.Connection:
        reader = sqlite3.connect(self._path, timeout=BUSY_TIMEOUT, check_same_thread=False)
        reader.execute("PRAGMA query_only = 1")
        return reader

    def close(self) -> None:
        with self._reading, self._comparing:
            self._close()

    def _close(self) -> None:
        for connection in (self._reader, self._comparer, self._db):
            connection.close()

    def replace_damaged(self, error: Exception) -> None:
        """Open a new database in place of a damaged one, which is set aside."""
        self._close()
        if self._path.exists():
            set_aside(self._path, error)
        self._open()

    @contextmanager
    def _bounded(self, seconds: float, *, vectors: bool = False) -> Iterator[sqlite3.Connection]:
        """Yield a reading connection. A statement that runs on after `seconds` raises TimeoutError.

        vectors: the one that compares vectors.
        """
        until = time.monotonic() + seconds
        with self._comparing if vectors else self._reading:
            reader = self._comparer if vectors else self._reader
            reader.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
            try:
                yield reader
            except sqlite3.OperationalError as error:
                if time.monotonic() > until:
                    raise TimeoutError("the index did not answer in time") from error
                raise
            finally:
                reader.set_progress_handler(None, 0)

    def bytes(self) -> int:
        """Return the size of the database in bytes, without pages that are free again."""
        pages, free, size = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def _room(self) -> float:
        """Return the bytes that documents may take yet."""
        return self._max_bytes * _FULL_UNTIL - self.bytes()

    def _note_full(self, full: bool) -> bool:
        """Return whether the index is full, and log it once."""
        if full and not self._is_full:
            log.warning("the index has its %d bytes ([cache] index): new documents are left out", self._max_bytes)
        self._is_full = full
        return full
