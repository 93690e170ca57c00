"""Writes to the local index.

Losing the database costs only the time to index again. Every method blocks and belongs in a thread.
"""

import logging
import sqlite3
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeGuard
from urllib.parse import unquote

from bbfs.resources.cache.sqlite import as_text
from bbfs.resources.search.index import vectors
from bbfs.resources.search.index.entries import Document, Entry, Remove, Seen, Stale, Unfit
from bbfs.resources.search.index.file import UNREAD, WORDS, mending
from bbfs.resources.search.index.reading import IndexReader
from bbfs.resources.search.index.text import chunks, folds_to_ascii, restored, stored, terms
from bbfs.resources.search.index.vectors import Pending
from bbfs.resources.search.words import tokens

log = logging.getLogger(__name__)

_LONGEST_TITLE = 200
READ_AT_ONCE = 2.0
"""Seconds of an opening for words that are to be made again: what is left follows later."""
WRITE_FOR = 0.3
"""Seconds of entries in one transaction, about: other processes that write wait for its end."""
TERMS_AT_ONCE = 20_000
"""New terms in one transaction, about 0.2 s. A document of a MiB may have 170 000."""
_COST = 9
"""Bytes of the index for a character of a text in which no word comes twice. Prose takes about two."""
_TERMS_KNOWN = 500_000
"""Terms that the writer remembers to have written, about 80 bytes each."""


class IndexStore(IndexReader):
    """An open index that is written."""

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        *,
        read_at_once: float = READ_AT_ONCE,
        write_for: float = WRITE_FOR,
        terms_at_once: int = TERMS_AT_ONCE,
    ) -> None:
        """Open or make the index. read_at_once: seconds that an opening takes at most, about, to make words again."""
        self._read_at_once, self._write_for, self._terms_at_once = read_at_once, write_for, terms_at_once
        super().__init__(path, max_bytes)

    def _open(self) -> None:
        super()._open()
        self._known: set[str] = set()
        self._new: set[str] = set()
        self._sources: dict[str, int] = {}
        self._generation = -1
        self._rules = tokens.rules()
        self._follow_rules()
        self.read_again(self._read_at_once)

    def _follow_rules(self) -> None:
        """Drop the words of other rules than those of this process: they are made again from the texts."""
        with self._transaction():
            row = self._db.execute("SELECT name FROM rules").fetchone()
            if row == (self._rules,):
                return
            if row is not None:
                for statement in WORDS:
                    self._db.execute(statement)
                self._db.execute("UPDATE generation SET number = number + 1")
            self._db.execute("INSERT INTO rules VALUES (?)", (self._rules,))
            self._db.execute(  # earlier rules had no chunk for a document without text
                "INSERT INTO chunk (document, place, text) SELECT id, '', '' FROM document"
                " WHERE id NOT IN (SELECT document FROM chunk)"
            )
        (count,) = self._db.execute(f"SELECT count(*) FROM document WHERE {UNREAD}").fetchone()
        if count:
            log.warning("this version finds more in texts: the index makes its words again, of %d documents", count)

    def read_again(self, seconds: float) -> None:
        """Make words that are missing for about so long."""
        until = time.monotonic() + seconds
        query = f"SELECT id FROM document WHERE {UNREAD} LIMIT 200"
        while time.monotonic() < until and self._read_some(query):
            pass
        (self.unread,) = self._db.execute(f"SELECT count(*) FROM document WHERE {UNREAD}").fetchone()

    @mending
    def _read_some(self, query: str) -> bool:
        """Make words of documents in one transaction. Return whether there were any to make."""
        with self._changing():  # the query too: another process may do the same
            found = self._db.execute(query).fetchall()
            until = time.monotonic() + self._write_for
            for (document,) in found:
                chunks, names = self._chunks(document), self._names(document)
                self._analyse(document, names, chunks, self._text(document), 0)
                if time.monotonic() > until or len(self._new) > self._terms_at_once:
                    break
        return bool(found)

    @mending
    def write(self, entries: Sequence[Entry], now: float) -> int:
        """Write entries in their order, in short transactions. Return how many documents were left out (index full)."""
        left_out = 0
        waiting = deque(entries)
        while waiting:
            if len(self._known) > _TERMS_KNOWN:
                self._known.clear()
            room = self._room()
            full = self._note_full(_most_bytes(waiting[0]) > room)
            if not full and self._is_large(waiting[0]):
                self._add_terms_ahead(waiting[0])
            with self._changing():
                until = time.monotonic() + self._write_for
                room -= 0 if full else _most_bytes(waiting[0])
                left_out += self._take(waiting.popleft(), now, full=full)
                while waiting and time.monotonic() < until and not self._is_large(waiting[0]):
                    if len(self._new) > self._terms_at_once:
                        break
                    room -= (most := _most_bytes(waiting[0]))
                    if most and room < 0:
                        break  # look again how much room there is
                    self._take(waiting.popleft(), now, full=False)
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
                self._db.execute("DELETE FROM unfit WHERE source = ? AND uri = ?", key)
            case Unfit():
                self._remove(self._found(*key))
                self._db.execute(
                    "INSERT OR REPLACE INTO unfit (source, uri, stamp) VALUES (?, ?, ?)", (*key, entry.stamp)
                )
        return False

    def _is_large(self, entry: Entry) -> TypeGuard[Document]:
        """Return whether an entry has so many characters that it may have more terms than one transaction takes."""
        return isinstance(entry, Document) and len(entry.text) > 4 * self._terms_at_once

    def _add_terms_ahead(self, entry: Document) -> None:
        """Write the terms of a large document in transactions of their own. A term without a document harms nothing."""
        found = [*(terms(entry.text).words - self._known)]
        for begin in range(0, len(found), self._terms_at_once):
            with self._changing():
                self._add_terms(set(found[begin : begin + self._terms_at_once]))

    @mending
    def confirmed(self, entry: Document, now: float) -> bool:
        """Return whether a document is in the index in this version already; then note that it still is."""
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

    def walking(self, source: str, since: float, *, ended: bool) -> None:
        """Note that a walk over a source, which began then, goes on or has ended."""
        columns = "walking = NULL, walked = ?" if ended else "walking = ?"
        with self._changing():
            self._db.execute(f"UPDATE source SET {columns} WHERE id = ?", (since, self._source(source)))

    @mending
    def clear(self, source: str) -> None:
        """Remove a source."""
        while self._clear_some(source):
            pass
        with self._changing():
            number = "(SELECT id FROM source WHERE fingerprint = ?)"
            self._db.execute(f"DELETE FROM unfit WHERE source = {number}", (source,))
            self._db.execute("DELETE FROM source WHERE fingerprint = ?", (source,))

    def _clear_some(self, source: str) -> bool:
        """Remove documents of a source for a while. Return whether there were any."""
        query = "SELECT document.id FROM document JOIN source ON source.id = source WHERE fingerprint = ? LIMIT 500"
        with self._changing():  # the query too: another process may clear the same source
            found = [number for (number,) in self._db.execute(query, (source,))]
            until = time.monotonic() + self._write_for
            for document in found:
                self._remove([document])
                if time.monotonic() > until:
                    break
        return bool(found)

    @mending
    def shrink(self) -> None:
        """Remove the terms that no document has any more, and give the space back to the disk."""
        with self._changing():
            vectors.fold_up(self._db, extended=self.has_vectors)
            self._db.execute("UPDATE generation SET number = number + 1")
            self._known.clear()
            self._db.execute("INSERT INTO termgrams (termgrams) VALUES ('delete-all')")
            self._db.execute("DELETE FROM term")
            for (number,) in self._db.execute("SELECT id FROM document").fetchall():
                if len(self._known) > _TERMS_KNOWN:
                    self._known.clear()
                self._add_terms(terms(self._text(number)).words)
            for table in ("words", "grams"):  # a segment of FTS5 keeps removed words until it is merged
                self._db.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
        self._db.execute("VACUUM")
        if self.has_vectors:
            with self._changing():
                vectors.unfold(self._db)
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the log has what was removed

    def _source(self, fingerprint: str) -> int:
        """Return the id of a source; one transaction asks for it once."""
        found = self._sources.get(fingerprint)
        if found is None:
            self._db.execute("INSERT OR IGNORE INTO source (fingerprint) VALUES (?)", (fingerprint,))
            row = self._db.execute("SELECT id FROM source WHERE fingerprint = ?", (fingerprint,)).fetchone()
            found = self._sources[fingerprint] = row[0]
        return found

    def _found(self, source: int, uri: str) -> list[int]:
        query = "SELECT id FROM document WHERE source = ? AND uri = ?"
        return [number for (number,) in self._db.execute(query, (source, uri))]

    def _put(self, entry: Document, key: tuple[int, str], now: float) -> None:
        self._db.execute("DELETE FROM unfit WHERE source = ? AND uri = ?", key)
        title = _title(entry.title)
        row = (*key, entry.version, entry.stamp, title, len(entry.text), now, folds_to_ascii(entry.text))
        number = self._db.execute(
            "INSERT INTO document (source, uri, version, stamp, title, size, indexed_at, stale, folds)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?)",
            row,
        ).lastrowid
        assert number is not None
        query = "INSERT INTO chunk (document, place, text, markup) VALUES (?, ?, ?, ?)"
        texts: dict[int, str] = {}
        for chunk in chunks(entry.text, entry.name):
            at = self._db.execute(
                query, (number, chunk.place, stored(chunk.text), None if chunk.markup is None else stored(chunk.markup))
            ).lastrowid
            assert at is not None
            texts[at] = chunk.text
        self._analyse(number, (title, key[1]), texts, entry.text, entry.modified_ns or 0)

    def _analyse(
        self, document: int, names: tuple[str, str], chunks: Mapping[int, str], text: str, modified: int
    ) -> None:
        """Make the words and the terms of a document, in the language that it is in.

        names: its title and its URI. chunks: their texts, by their ids. modified: ns since the epoch.
        """
        language = tokens.language_of(next(iter(chunks.values()), ""))
        query = "INSERT INTO words (rowid, title, text, compounds) VALUES (?, ?, ?, ?)"
        self._db.executemany(query, self._words(names, language, chunks))
        found = terms(text)
        self._db.execute("INSERT INTO grams (rowid, terms) VALUES (?, ?)", (document, str(found)))
        self._add_terms(found.words)
        self._db.execute("INSERT INTO analysed VALUES (?, ?, ?)", (document, language, modified))

    def _chunks(self, document: int) -> dict[int, str]:
        rows = self._db.execute("SELECT id, text FROM chunk WHERE document = ? ORDER BY id", (document,))
        return {at: restored(text) for at, text in rows}

    def _names(self, document: int) -> tuple[str, str]:
        return self._db.execute("SELECT title, uri FROM document WHERE id = ?", (document,)).fetchone()

    @staticmethod
    def _words(names: tuple[str, str], language: str, chunks: Mapping[int, str]) -> Iterator[tuple[int, str, str, str]]:
        """Yield the rows of FTS5 for the chunks of a document: what it gets, and what it wants again for removing."""
        title, uri = names
        name = unquote(uri.rstrip("/").rpartition("/")[2])
        head = tokens.words(title if name == title else f"{title} {name}", language)
        for at, text in chunks.items():
            body = tokens.words(text, language)
            yield at, head.text, body.text, f"{head.compounds} {body.compounds}"

    def _add_terms(self, found: set[str]) -> None:
        """Have the end of the transaction write the terms that are new: together they take half of the time."""
        unknown = found - self._known
        self._known |= unknown
        self._new |= unknown

    def _write_terms(self) -> None:
        (last,) = self._db.execute("SELECT coalesce(max(id), 0) FROM term").fetchone()
        rows = ((term,) for term in sorted(self._new))
        self._db.executemany("INSERT OR IGNORE INTO term (term) VALUES (?)", rows)
        self._db.execute("INSERT INTO termgrams (rowid, term) SELECT id, term FROM term WHERE id > ?", (last,))
        self._new.clear()

    def _text(self, document: int) -> str:
        query = "SELECT coalesce(markup, text) FROM chunk WHERE document = ? ORDER BY id"
        rows = self._db.execute(query, (document,))
        return "".join(restored(text) for (text,) in rows)

    def _remove(self, documents: Iterable[int]) -> None:
        """Remove documents. FTS5 wants the words of the rows again, since it keeps no content of its own."""
        for number in documents:
            chunks = self._chunks(number)
            row = self._db.execute("SELECT language FROM analysed WHERE document = ?", (number,)).fetchone()
            if row is not None:
                query = "INSERT INTO words (words, rowid, title, text, compounds) VALUES ('delete', ?, ?, ?, ?)"
                self._db.executemany(query, self._words(self._names(number), row[0], chunks))
                gone = (number, str(terms(self._text(number))))
                self._db.execute("INSERT INTO grams (grams, rowid, terms) VALUES ('delete', ?, ?)", gone)
                self._db.execute("DELETE FROM analysed WHERE document = ?", (number,))
            vectors.remove(self._db, [*chunks], extended=self.has_vectors)
            self._db.execute("DELETE FROM chunk WHERE document = ?", (number,))
            self._db.execute("DELETE FROM document WHERE id = ?", (number,))

    @mending
    def put_vectors(self, model: str, chunks: Pending, made: Sequence[bytes], *, first: bool) -> str | None:
        """Write vectors of chunks. Return the model of another process that has taken the index over, or None.

        first: these are the first of this process, and replace those of another model or of other dimensions.
        """
        with self._changing():
            return vectors.put(self._db, model, chunks, made, first=first)

    @mending
    def forget_vectors(self) -> None:
        """Remove all vectors, to be made again."""
        with self._changing():
            vectors.clear(self._db)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Open a transaction that excludes other writers and other rules. An exception rolls it back."""
        with self._transaction():
            query = "SELECT number, (SELECT name FROM rules) FROM generation"
            generation, rules = self._db.execute(query).fetchone()
            if rules != self._rules:
                raise sqlite3.OperationalError("another version of bbfs has taken it over")
            if generation != self._generation:
                self._known.clear()  # another process has removed terms
                self._generation = generation
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        self._sources.clear()
        try:
            yield
            if self._new:
                self._write_terms()
        except BaseException:
            self._known.clear()  # some of them may not be written now
            self._new.clear()
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def _most_bytes(entry: Entry) -> int:
    """Return the bytes that an entry takes at most."""
    return len(entry.text) * _COST if isinstance(entry, Document) else 0


def _title(text: str) -> str:
    return as_text(text)[:_LONGEST_TITLE]
