"""Writes to the local index.

Losing the database costs only the time to index again. Every method blocks and belongs in a thread.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeGuard

from bbfs.resources.cache.sqlite import as_text
from bbfs.resources.search.index import vectors
from bbfs.resources.search.index.entries import Document, Entry, Remove, Seen, Stale
from bbfs.resources.search.index.reading import IndexReader
from bbfs.resources.search.index.text import chunks, folds_to_ascii, terms
from bbfs.resources.search.index.vectors import Pending

_LONGEST_TITLE = 200
WRITE_FOR = 0.3
"""Seconds of entries in one transaction, about: other processes that write wait for its end."""
TERMS_AT_ONCE = 20_000
"""New terms in one transaction, about 0.2 s. A document of a MiB may have 170 000."""
_LARGE = 4 * TERMS_AT_ONCE
"""Characters from which a text may have as many terms."""
_TERMS_KNOWN = 500_000
"""Terms that the writer remembers to have written, about 80 bytes each."""


class IndexStore(IndexReader):
    """An open index that is written."""

    def _open(self) -> None:
        super()._open()
        self._known: set[str] = set()
        self._generation = -1

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


def _is_large(entry: Entry) -> TypeGuard[Document]:
    return isinstance(entry, Document) and len(entry.text) > _LARGE


def _title(text: str) -> str:
    return as_text(text)[:_LONGEST_TITLE]
