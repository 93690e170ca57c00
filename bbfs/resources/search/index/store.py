"""The local index in SQLite: documents, their chunks, the words of the chunks (FTS5), and the terms of the documents.

`terms` has each term once, with its trigrams; `grams` has the documents of each term. So a substring is looked up among
the terms, whose number grows slower than the text, and the documents follow. Trigrams of the text itself would cost
five times the time.

Losing the database costs only the time to index again. Every method blocks and belongs in a thread.
"""

import json
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard, TypeVar

from bbfs.model.values import Hit
from bbfs.resources.cache.sqlite import BUSY_TIMEOUT, as_text, connect, set_aside
from bbfs.resources.search.index import vectors
from bbfs.resources.search.index.text import chunks, folds_to_ascii, query_words, snippet, terms
from bbfs.resources.search.index.vectors import Pending
from bbfs.resources.search.literals import And, Anything, Or, Query, Run
from bbfs.serving.private_files import own_directory

log = logging.getLogger(__name__)

T = TypeVar("T")
_VERSION = 4
MOST_TERMS = 1000
"""Terms with one substring; of a more frequent one, all documents are candidates."""
SHORTEST_RUN = 3
MOST_RANKED = 5000
"""Chunks that one question ranks, if the newest of them have enough hits."""
_HASH = 8 << 20
"""Bytes of new words that FTS5 gathers before it writes them: each time costs a merge with what is there."""
_STEPS = 2000
"""Instructions of SQLite between two looks at the clock."""
LONG = 60.0
"""Seconds for reading all documents of a source."""
_LONGEST_TITLE = 200
_PAGES_IN_LOG = 8000
"""Pages of 4 KiB in the write-ahead log before they go to the database: each time costs waits for the disk."""
WRITE_FOR = 0.3
"""Seconds of entries in one transaction, about: other processes that write wait for its end."""
TERMS_AT_ONCE = 20_000
"""New terms in one transaction, about 0.2 s. A document of a MiB may have 170 000."""
_LARGE = 4 * TERMS_AT_ONCE
"""Characters from which a text may have as many terms."""
_TERMS_KNOWN = 500_000
"""Terms that the writer remembers to have written, about 80 bytes each."""
_SCHEMA = (
    *(
        f"DROP TABLE IF EXISTS {table}"
        for table in ("words", "grams", "termgrams", "chunk", "document", "source", "generation", *vectors.TABLES)
    ),
    *(f"DROP {kind} IF EXISTS {name}" for kind, name in (("VIEW", "passage"), ("TABLE", "term"))),
    "CREATE TABLE generation (number INTEGER NOT NULL)",  # of `term`: it grows when terms are removed
    "INSERT INTO generation VALUES (0)",
    "CREATE TABLE source (id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, walking REAL)",
    "CREATE TABLE document (id INTEGER PRIMARY KEY AUTOINCREMENT, source INTEGER NOT NULL, uri TEXT NOT NULL,"
    " version TEXT NOT NULL, stamp TEXT, title TEXT NOT NULL, size INTEGER NOT NULL, indexed_at REAL NOT NULL,"
    " stale INTEGER NOT NULL, folds INTEGER NOT NULL, UNIQUE (source, uri))",
    "CREATE INDEX document_folds ON document (source) WHERE folds",
    "CREATE TABLE chunk (id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL, place TEXT NOT NULL,"
    " text TEXT NOT NULL, markup TEXT)",
    "CREATE INDEX chunk_document ON chunk (document)",
    "CREATE VIEW passage AS SELECT chunk.id AS id, document.title AS title, chunk.text AS text"
    " FROM chunk JOIN document ON document.id = chunk.document",
    "CREATE VIRTUAL TABLE words USING fts5(title, text, content = 'passage', content_rowid = 'id',"
    " tokenize = 'unicode61 remove_diacritics 2')",
    "INSERT INTO words (words, rank) VALUES ('rank', 'bm25(4.0, 1.0)')",
    "CREATE VIRTUAL TABLE grams USING fts5(terms, content = '', detail = 'none', tokenize = 'ascii')",
    "CREATE TABLE term (id INTEGER PRIMARY KEY, term TEXT NOT NULL UNIQUE)",
    "CREATE VIRTUAL TABLE termgrams USING fts5(term, content = 'term', content_rowid = 'id', detail = 'none',"
    " tokenize = 'trigram')",
    *(f"INSERT INTO {table} ({table}, rank) VALUES ('hashsize', {_HASH})" for table in ("words", "grams", "termgrams")),
    *vectors.SCHEMA,
)


@dataclass(frozen=True, slots=True)
class Document:
    """A document to be indexed. source: its fingerprint. stamp: `stamp_of` its description, or None."""

    source: str
    uri: str
    version: str
    stamp: str | None
    title: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Stale:
    """A document that has changed at its source: it is out of all results until it is indexed again."""

    source: str
    uri: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A version or stamp that a source states of a document, or None. The document is stale if it is another one."""

    source: str
    uri: str
    version: str | None
    stamp: str | None


@dataclass(frozen=True, slots=True)
class Remove:
    """The end of a document."""

    source: str
    uri: str


Entry = Document | Stale | Seen | Remove


@dataclass(frozen=True, slots=True)
class Indexed:
    """The entry of one document in the index. at: when it was indexed or confirmed (seconds since the epoch)."""

    version: str
    stamp: str | None
    at: float
    stale: bool


@dataclass(frozen=True, slots=True)
class IndexUsage:
    """The documents of one source. source: its fingerprint. bytes: of their texts. stale: documents that have changed.

    walking: when a walk began that has not ended (seconds since the epoch), or None.
    """

    source: str
    documents: int
    bytes: int
    stale: int
    walking: float | None


@dataclass(frozen=True, slots=True)
class Candidates:
    """The documents of a source that may match a pattern, by URI; None if every text may.

    state: of the index. While it stays the same, the index does. versions: of all documents of the source that have not
    changed, by URI; None if they were not asked for.
    """

    state: tuple[int, int]
    uris: set[str] | None
    versions: Mapping[str, str] | None = None


class IndexStore:
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
        self._db = connect(str(self._path), _SCHEMA, _VERSION)
        self._db.isolation_level = None
        self._db.execute("PRAGMA cache_size = -32768")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_IN_LOG}")
        self._db.execute("SELECT count(*) FROM source").fetchone()
        self._reader, self._comparer = self._read_only(), self._read_only()  # words and vectors at the same time
        self.has_vectors = vectors.extended(self._db) and vectors.extended(self._comparer)
        """True if vectors can be written and searched."""
        self._known: set[str] = set()
        self._generation = -1

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

    def _mending(self, work: Callable[[], T]) -> T:
        """Do work; if the database turns out to be damaged, replace it and do the work again."""
        try:
            return work()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError | sqlite3.IntegrityError | sqlite3.ProgrammingError):
                raise
            self._close()
            if self._path.exists():
                set_aside(self._path, error)
            self._open()
            return work()

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(self, entries: Sequence[Entry], now: float) -> int:
        """Write entries in their order, in short transactions. Return how many documents were left out (index full)."""
        return self._mending(lambda: self._write(entries, now))

    def _write(self, entries: Sequence[Entry], now: float) -> int:
        left_out = 0
        waiting = deque(entries)
        while waiting:
            if len(self._known) > _TERMS_KNOWN:
                self._known.clear()
            full = self._full()
            if not full and _is_large(waiting[0]):
                self._add_terms_ahead(waiting[0])
            with self._changing():
                until = time.monotonic() + WRITE_FOR
                left_out += self._take(waiting.popleft(), now, full=full)
                while waiting and time.monotonic() < until and not _is_large(waiting[0]):
                    left_out += self._take(waiting.popleft(), now, full=full)
        return left_out

    def _take(self, entry: Entry, now: float, *, full: bool) -> bool:
        """Write one entry. Return whether it is a document that was left out."""
        key = (self._source(entry.source), as_text(entry.uri))
        match entry:
            case Document():
                there = self._found(*key)
                if there and self._confirmed(entry, key, now):
                    return False
                self._remove(there)
                if full:
                    return True
                self._put(entry, key, now)
            case Stale():
                self._db.execute("UPDATE document SET stale = 1 WHERE source = ? AND uri = ?", key)
            case Seen():
                self._db.execute(
                    "UPDATE document SET stale = 1 WHERE source = ? AND uri = ?"
                    " AND (version <> coalesce(?, version) OR coalesce(stamp <> ?, 0))",
                    (*key, entry.version, entry.stamp),
                )
            case Remove():
                self._remove(self._found(*key))
        return False

    def _add_terms_ahead(self, entry: Document) -> None:
        """Write the terms of a large document in transactions of their own. A term without a document harms nothing."""
        found = [*(terms(entry.text) - self._known)]
        for begin in range(0, len(found), TERMS_AT_ONCE):
            with self._changing():
                self._add_terms(set(found[begin : begin + TERMS_AT_ONCE]))

    def confirmed(self, entry: Document, now: float) -> bool:
        """Return whether a document is in the index in this version already; then note that it still is."""
        return self._mending(lambda: self._confirm(entry, now))

    def _confirm(self, entry: Document, now: float) -> bool:
        with self._changing():
            return self._confirmed(entry, (self._source(entry.source), as_text(entry.uri)), now)

    def _confirmed(self, entry: Document, key: tuple[int, str], now: float) -> bool:
        """Return whether a document is in the index in this version already; then note that it still is."""
        query = (
            "UPDATE document SET stale = 0, stamp = ?, indexed_at = ?"
            " WHERE source = ? AND uri = ? AND version = ? AND title = ?"
        )
        row = (entry.stamp, now, *key, entry.version, _title(entry.title))
        return self._db.execute(query, row).rowcount == 1

    def walking(self, source: str, since: float | None) -> None:
        """Note that a walk over a source goes on since then; None: it has ended."""
        with self._changing():
            self._db.execute("UPDATE source SET walking = ? WHERE id = ?", (since, self._source(source)))

    def clear(self, source: str) -> None:
        """Remove a source."""
        self._mending(lambda: self._clear(source))

    def _clear(self, source: str) -> None:
        while self._clear_some(source):
            pass
        with self._changing():
            self._db.execute("DELETE FROM source WHERE fingerprint = ?", (source,))

    def _clear_some(self, source: str) -> bool:
        """Remove documents of a source for a while. Return whether there were any."""
        query = (
            "SELECT document.id, title FROM document JOIN source ON source.id = source WHERE fingerprint = ? LIMIT 500"
        )
        with self._changing():  # the query too: another process may clear the same source
            found = self._db.execute(query, (source,)).fetchall()
            until = time.monotonic() + WRITE_FOR
            for document in found:
                self._remove([document])
                if time.monotonic() > until:
                    break
        return bool(found)

    def shrink(self) -> None:
        """Remove the terms that no document has any more, and give the space back to the disk."""
        self._mending(self._shrink)

    def _shrink(self) -> None:
        with self._changing():
            vectors.fold_up(self._db, extended=self.has_vectors)
            self._db.execute("UPDATE generation SET number = number + 1")
            self._known.clear()
            self._db.execute("INSERT INTO termgrams (termgrams) VALUES ('delete-all')")
            self._db.execute("DELETE FROM term")
            for (number,) in self._db.execute("SELECT id FROM document").fetchall():
                if len(self._known) > _TERMS_KNOWN:
                    self._known.clear()
                self._add_terms(terms(self._text(number)))
            for table in ("words", "grams"):  # a segment of FTS5 keeps removed words until it is merged
                self._db.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
        self._db.execute("VACUUM")
        if self.has_vectors:
            with self._changing():
                vectors.unfold(self._db)
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the log has what was removed

    def _source(self, fingerprint: str) -> int:
        self._db.execute("INSERT OR IGNORE INTO source (fingerprint) VALUES (?)", (fingerprint,))
        return self._db.execute("SELECT id FROM source WHERE fingerprint = ?", (fingerprint,)).fetchone()[0]

    def _found(self, source: int, uri: str) -> list[tuple[int, str]]:
        query = "SELECT id, title FROM document WHERE source = ? AND uri = ?"
        return self._db.execute(query, (source, uri)).fetchall()

    def _put(self, entry: Document, key: tuple[int, str], now: float) -> None:
        title = _title(entry.title)
        row = (*key, entry.version, entry.stamp, title, len(entry.text), now, folds_to_ascii(entry.text))
        number = self._db.execute(
            "INSERT INTO document (source, uri, version, stamp, title, size, indexed_at, stale, folds)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?)",
            row,
        ).lastrowid
        for chunk in chunks(entry.text, entry.name):
            query = "INSERT INTO chunk (document, place, text, markup) VALUES (?, ?, ?, ?)"
            at = self._db.execute(query, (number, chunk.place, chunk.text, chunk.markup)).lastrowid
            self._db.execute("INSERT INTO words (rowid, title, text) VALUES (?, ?, ?)", (at, title, chunk.text))
        found = terms(entry.text)
        self._db.execute("INSERT INTO grams (rowid, terms) VALUES (?, ?)", (number, " ".join(found)))
        self._add_terms(found)

    def _add_terms(self, found: set[str]) -> None:
        unknown = found - self._known
        for term in unknown:
            new = self._db.execute("INSERT OR IGNORE INTO term (term) VALUES (?)", (term,))
            if new.rowcount == 1:
                self._db.execute("INSERT INTO termgrams (rowid, term) VALUES (?, ?)", (new.lastrowid, term))
        self._known |= unknown

    def _text(self, document: int) -> str:
        query = "SELECT coalesce(markup, text) FROM chunk WHERE document = ? ORDER BY id"
        rows = self._db.execute(query, (document,))
        return "".join(text for (text,) in rows)

    def _remove(self, documents: Iterable[tuple[int, str]]) -> None:
        """Remove documents. FTS5 wants the words of the rows again, since it keeps no content of its own."""
        for number, title in documents:
            found = " ".join(terms(self._text(number)))
            rows = self._db.execute("SELECT id, text FROM chunk WHERE document = ?", (number,)).fetchall()
            for at, text in rows:
                query = "INSERT INTO words (words, rowid, title, text) VALUES ('delete', ?, ?, ?)"
                self._db.execute(query, (at, title, text))
            self._db.execute("INSERT INTO grams (grams, rowid, terms) VALUES ('delete', ?, ?)", (number, found))
            vectors.remove(self._db, [at for at, _ in rows], extended=self.has_vectors)
            self._db.execute("DELETE FROM chunk WHERE document = ?", (number,))
            self._db.execute("DELETE FROM document WHERE id = ?", (number,))

    def put_vectors(self, model: str, chunks: Pending, made: Sequence[bytes], *, first: bool) -> str | None:
        """Write vectors of chunks. Return the model of another process that has taken the index over, or None.

        first: these are the first of this process, and replace those of another model or of other dimensions.
        """

        def work() -> str | None:
            with self._changing():
                return vectors.put(self._db, model, chunks, made, first=first)

        return self._mending(work)

    def forget_vectors(self) -> None:
        """Remove all vectors, to be made again."""

        def work() -> None:
            with self._changing():
                vectors.clear(self._db)

        self._mending(work)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Open a transaction that excludes other writers. An exception rolls it back."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            generation = self._db.execute("SELECT number FROM generation").fetchone()[0]
            if generation != self._generation:
                self._known.clear()  # another process has removed terms
                self._generation = generation
            yield
        except BaseException:
            self._known.clear()  # some of them may not be written now
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _full(self) -> bool:
        full = self.bytes() >= self._max_bytes
        if full and not self._is_full:
            log.warning("the index has its %d bytes ([cache] index): new documents are left out", self._max_bytes)
        self._is_full = full
        return full

    # -- reading -----------------------------------------------------------------------------------------------------

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

    def search(self, query: str, limit: int, sources: Collection[str], seconds: float) -> list[tuple[str, Hit]]:
        """Return at most `limit` hits with the fingerprints of their sources, the best first. Raise TimeoutError.

        Documents with all words come first; then those in which the last word is only the beginning of one; then those
        with some words. Each more general question is asked only if the ones before have found too little.
        """
        words = query_words(query)
        if not words or not sources or limit < 1:
            return []
        until = time.monotonic() + seconds
        found: dict[tuple[str, str], Hit] = {}
        for match in self._matches([f'"{word}"' for word in words], until):
            rows = self._mending(lambda match=match: self._ranked(match, limit, sources, until))
            for source, uri, title, place, rank, text in rows:
                found.setdefault((source, uri), Hit(uri, -rank, title or None, snippet(text, words), place))
            if len(found) >= limit:
                break
        return [(source, hit) for (source, _), hit in found.items()][:limit]

    def _matches(self, words: Sequence[str], until: float) -> Iterator[str]:
        """Yield what to look for, the most particular first: all words, rare ones, any."""
        yield " AND ".join(words)
        begun = [*words[:-1], f"{words[-1]} *"]
        yield " AND ".join(begun)
        if len(words) > 1:
            rare = [
                word
                for word in dict.fromkeys(begun)
                if self._mending(lambda word=word: self._newest(word, MOST_RANKED, until)) is None
            ]
            if rare:
                yield " OR ".join(rare)
            if len(rare) < len(words):
                yield " OR ".join(begun)

    def _newest(self, match: str, count: int, until: float) -> int | None:
        """Return the id of the first of the newest `count` chunks that match, or None if there are no more."""
        query = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?"
        with self._bounded(until - time.monotonic()) as db:
            row = db.execute(query, (match, count)).fetchone()
        return None if row is None else row[0] + 1

    def _ranked(
        self, match: str, limit: int, sources: Collection[str], until: float
    ) -> list[tuple[str, str, str, str, float, str]]:
        """Return the best documents of a match; of a very frequent one, at first only of its newest chunks."""
        newest = self._newest(match, MOST_RANKED, until)
        rows = self._ranked_since(newest or 0, match, limit, sources, until)
        if newest is not None and len(rows) < limit:
            return self._ranked_since(0, match, limit, sources, until)
        return rows

    def _ranked_since(
        self, first: int, match: str, limit: int, sources: Collection[str], until: float
    ) -> list[tuple[str, str, str, str, float, str]]:
        # CROSS JOIN: FTS5 ranks only as the outer table. Its own snippet() takes quadratic time if a word is repeated.
        # No LIMIT: a long document may have the best thousand chunks.
        best: dict[int, tuple[int, tuple[str, str, str, str, float]]] = {}
        with self._bounded(until - time.monotonic()) as db, closing(db.cursor()) as ranked:
            ranked.execute(
                "SELECT document.id, chunk.id, source.fingerprint, uri, document.title, place, words.rank"
                " FROM words CROSS JOIN chunk ON chunk.id = words.rowid"
                " CROSS JOIN document ON document.id = chunk.document CROSS JOIN source ON source.id = document.source"
                " WHERE words MATCH ? AND words.rowid >= ? AND NOT stale"
                " AND fingerprint IN (SELECT value FROM json_each(?))"
                " ORDER BY words.rank",
                (match, first, json.dumps([*sources])),
            )
            for document, chunk, *row in ranked:
                best.setdefault(document, (chunk, tuple(row)))
                if len(best) == limit:
                    break
            text = "SELECT text FROM chunk WHERE id = ?"
            return [(*row, db.execute(text, (chunk,)).fetchone()[0]) for chunk, row in best.values()]

    def pending(self, model: str, limit: int) -> Pending:
        """Return at most `limit` chunks that need vectors of a model; none if the index is full."""
        if self._full():
            return Pending(0, {})

        def work() -> Pending:
            with self._bounded(LONG) as db:
                return vectors.pending(db, model, limit)

        return self._mending(work)

    def nearest(
        self, model: str, vector: bytes, query: str, limit: int, sources: Collection[str], seconds: float
    ) -> list[tuple[str, Hit]] | None:
        """Return at most `limit` hits nearest to the vector of a query; None without vectors of the model.

        Raise TimeoutError.
        """

        def work() -> list[tuple[str, Hit]] | None:
            with self._bounded(seconds, vectors=True) as db:
                if not vectors.usable(db, model, len(vector) // 4):
                    return None
                rows = vectors.nearest(db, vector, limit, sources) if any(memoryview(vector).cast("f")) else []
            words = query_words(query)
            return [
                (source, Hit(uri, 1 - distance, title or None, snippet(text, words), place))
                for source, uri, title, place, distance, text in rows
            ]

        return self._mending(work)

    def candidates(self, source: str, query: Query, seconds: float, *, versions: bool) -> Candidates:
        """Return the documents of a source that may match, with the versions of all if wanted. Raise TimeoutError."""
        return self._mending(lambda: self._candidates(source, query, seconds, versions=versions))

    def _candidates(self, source: str, query: Query, seconds: float, *, versions: bool) -> Candidates:
        of_source = "WHERE source = (SELECT id FROM source WHERE fingerprint = ?)"
        with self._bounded(seconds) as db:
            state = self._opened, db.execute("PRAGMA data_version").fetchone()[0]  # older than what it stands for
            db.execute("BEGIN")
            try:
                possible = self._documents(db, query.required, {})
                if possible is None:
                    return Candidates(state, None)
                asked = (
                    f"SELECT uri FROM json_each(?) AS each CROSS JOIN document ON document.id = each.value {of_source}"
                )
                uris = {uri for (uri,) in db.execute(asked, (json.dumps([*possible]), source))}
                if query.ignore_case:
                    uris |= {uri for (uri,) in db.execute(f"SELECT uri FROM document {of_source} AND folds", (source,))}
                if not versions:
                    return Candidates(state, uris)
                fresh = f"SELECT uri, version FROM document {of_source} AND NOT stale"
                return Candidates(state, uris, dict(db.execute(fresh, (source,))))
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    def _documents(
        self, db: sqlite3.Connection, node: And | Or | Run | Anything, asked: dict[str, set[int] | None]
    ) -> set[int] | None:
        match node:
            case Run(text):
                if text not in asked:
                    asked[text] = self._with_run(db, text)
                return asked[text]
            case And(parts):
                found: set[int] | None = None
                for part in parts:
                    some = self._documents(db, part, asked)
                    found = some if found is None else found if some is None else found & some
                return found
            case Or(parts):
                every: set[int] = set()
                for part in parts:
                    some = self._documents(db, part, asked)
                    if some is None:
                        return None
                    every |= some
                return every
            case Anything():
                return None

    @staticmethod
    def _with_run(db: sqlite3.Connection, run: str) -> set[int] | None:
        if len(run) < SHORTEST_RUN:
            return None
        trigrams = " AND ".join(f'"{run[at : at + 3]}"' for at in range(len(run) - 2))
        having = db.execute(
            "SELECT term.term FROM termgrams JOIN term ON term.id = termgrams.rowid"
            " WHERE termgrams MATCH ? AND instr(term.term, ?) LIMIT ?",
            (trigrams, run, MOST_TERMS + 1),
        ).fetchall()
        if len(having) > MOST_TERMS:
            return None
        found: set[int] = set()
        for begin in range(0, len(having), 100):
            match = " OR ".join(f'"{term}"' for (term,) in having[begin : begin + 100])
            found |= {row[0] for row in db.execute("SELECT rowid FROM grams WHERE grams MATCH ?", (match,))}
        return found

    def indexed(self, source: str) -> dict[str, Indexed]:
        """Return the documents of a source by URI."""
        with self._bounded(LONG) as db:
            rows = db.execute(
                "SELECT uri, version, stamp, indexed_at, stale FROM document"
                " WHERE source = (SELECT id FROM source WHERE fingerprint = ?)",
                (source,),
            )
            return {uri: Indexed(version, stamp, at, bool(stale)) for uri, version, stamp, at, stale in rows}

    def fingerprints(self) -> list[str]:
        """Return the sources that have documents."""
        with self._bounded(LONG) as db:
            query = "SELECT fingerprint FROM source WHERE EXISTS (SELECT 1 FROM document WHERE source = source.id)"
            return [row[0] for row in db.execute(query)]

    def usage(self) -> list[IndexUsage]:
        """Return the sources in the index."""
        with self._bounded(LONG) as db:
            rows = db.execute(
                "SELECT fingerprint, count(document.id), coalesce(sum(size), 0), coalesce(sum(stale), 0), walking"
                " FROM source LEFT JOIN document ON document.source = source.id"
                " GROUP BY source.id ORDER BY fingerprint"
            )
            return [IndexUsage(*row) for row in rows]

    def bytes(self) -> int:
        """Return the size of the database in bytes, without pages that are free again."""
        pages, free, size = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size


def _is_large(entry: Entry) -> TypeGuard[Document]:
    return isinstance(entry, Document) and len(entry.text) > _LARGE


def _title(text: str) -> str:
    return as_text(text)[:_LONGEST_TITLE]
