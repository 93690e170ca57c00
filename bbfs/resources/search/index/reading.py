"""Questions to the local index: hits by words and by meaning, documents that may match a pattern, and what is there."""

import json
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing

from bbfs.model.values import Hit
from bbfs.resources.search.index import vectors
from bbfs.resources.search.index.entries import Candidates, Indexed, IndexUsage
from bbfs.resources.search.index.file import IndexFile
from bbfs.resources.search.index.text import place_of_match, query_words, snippet
from bbfs.resources.search.index.vectors import Pending
from bbfs.resources.search.literals import And, Anything, Or, Query, Run

MOST_TERMS = 1000
"""Terms with one substring; of a more frequent one, all documents are candidates."""
SHORTEST_RUN = 3
MOST_RANKED = 5000
"""Chunks that one question ranks, if the newest of them have enough hits."""
LONG = 60.0
"""Seconds for reading all documents of a source."""


class IndexReader(IndexFile):
    """The questions to an open index."""

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
                found.setdefault((source, uri), _hit(uri, -rank, title, text, words, place))
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
                (source, _hit(uri, 1 - distance, title, text, words, place))
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


def _hit(uri: str, score: float, title: str, text: str, words: Sequence[str], place: str) -> Hit:
    return Hit(uri, score, title or None, snippet(text, words), place_of_match(place, text, words, uri))
