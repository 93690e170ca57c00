"""Questions to the local index: hits by words and by meaning, documents that may match a pattern, and what is there."""

import json
import sqlite3
from collections.abc import Collection
from itertools import pairwise

from bbfs.model.values import Hit
from bbfs.resources.search.index import ranking, vectors
from bbfs.resources.search.index.entries import Answer, Candidates, Indexed, IndexUsage, Known
from bbfs.resources.search.index.file import UNREAD, IndexFile, mending
from bbfs.resources.search.index.text import is_unspaced
from bbfs.resources.search.index.vectors import Pending
from bbfs.resources.search.literals import And, Anything, Or, Query, Run
from bbfs.resources.search.words import html
from bbfs.resources.search.words.question import asked
from bbfs.resources.search.words.snippets import Shown, shown

MOST_TERMS = 1000
"""Terms with one substring; of a more frequent one, all documents are candidates."""
SHORTEST_RUN = 3
LONG = 60.0
"""Seconds for reading all documents of a source."""


class IndexReader(IndexFile):
    """The questions to an open index."""

    @mending
    def search(self, query: str, limit: int, sources: Collection[str], seconds: float) -> Answer:
        """Return at most `limit` hits with the fingerprints of their sources, the best first. Raise TimeoutError."""
        with self._bounded(seconds) as db:
            question = asked(query, ranking.languages(db))
            if not question or not sources or limit < 1:
                return Answer([], self._still_unread())
            question, meant = ranking.spelt(db, question)
            rows = ranking.best(db, question, limit, sources)
        hits = [(row.source, _hit(row.uri, row.score, row.title, row.place, row.shown)) for row in rows]
        said = [f"no text has {word!r}: searched for {other!r}" for word, other in meant]
        return Answer(hits, [*said, *self._still_unread()])

    def _still_unread(self) -> list[str]:
        return [f"the index makes its words again: {self.unread} documents are missing yet"] if self.unread else []

    @mending
    def pending(self, model: str, limit: int) -> Pending:
        """Return at most `limit` chunks that need vectors of a model; none if the index is full."""
        if self._note_full(self._room() <= 0):
            return Pending(0, {})
        with self._bounded(LONG) as db:
            return vectors.pending(db, model, limit)

    @mending
    def nearest(
        self, model: str, vector: bytes, query: str, limit: int, sources: Collection[str], seconds: float
    ) -> list[tuple[str, Hit]] | None:
        """Return at most `limit` hits nearest to the vector of a query; None without vectors of the model.

        Raise TimeoutError.
        """
        with self._bounded(seconds, vectors=True) as db:
            if not vectors.usable(db, model, len(vector) // 4):
                return None
            rows = vectors.nearest(db, vector, limit, sources) if any(memoryview(vector).cast("f")) else []
            question = asked(query, ranking.languages(db))
        return [
            (source, _hit(uri, 1 - distance, title, place, shown(text, question)))
            for source, uri, title, place, distance, text in rows
        ]

    @mending
    def candidates(self, source: str, query: Query, seconds: float, *, versions: bool) -> Candidates:
        """Return the documents of a source that may match, with the versions of all if wanted. Raise TimeoutError."""
        of_source = "WHERE source = (SELECT id FROM source WHERE fingerprint = ?)"
        with self._bounded(seconds) as db:
            state = self._opened, db.execute("PRAGMA data_version").fetchone()[0]  # older than what it stands for
            db.execute("BEGIN")
            try:
                possible = self._documents(db, query.required, {})
                if possible is None:
                    return Candidates(state, None)
                among = (
                    f"SELECT uri FROM json_each(?) AS each CROSS JOIN document ON document.id = each.value {of_source}"
                )
                uris = {uri for (uri,) in db.execute(among, (json.dumps([*possible]), source))}
                uris |= {uri for (uri,) in db.execute(f"SELECT uri FROM document {of_source} AND {UNREAD}", (source,))}
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
        if is_unspaced(run):
            pairs = " AND ".join(f'"{one}{other}"' for one, other in pairwise(run))
            return (
                {row[0] for row in db.execute("SELECT rowid FROM grams WHERE grams MATCH ?", (pairs,))}
                if pairs
                else None
            )
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

    def indexed(self, source: str, most: int | None) -> Known:
        """Return what is known of a source. most: documents and resources without text; None for no bound."""
        with self._bounded(LONG) as db:
            found = db.execute("SELECT id, walking, walked FROM source WHERE fingerprint = ?", (source,)).fetchone()
            if found is None:
                return Known()
            number, walking, walked = found
            tables = ("document", "unfit")
            counts = [db.execute(f"SELECT count(*) FROM {each} WHERE source = ?", (number,)) for each in tables]
            if most is not None and sum(count.fetchone()[0] for count in counts) > most:
                return Known(None, {}, walking, walked)
            query = "SELECT uri, version, stamp, indexed_at, stale FROM document WHERE source = ?"
            rows = db.execute(query, (number,))
            documents = {uri: Indexed(version, stamp, at, bool(stale)) for uri, version, stamp, at, stale in rows}
            unfit = dict(db.execute("SELECT uri, stamp FROM unfit WHERE source = ?", (number,)))
            return Known(documents, unfit, walking, walked)

    def fingerprints(self) -> list[str]:
        """Return the sources that have documents, or were read from end to end."""
        with self._bounded(LONG) as db:
            query = (
                "SELECT fingerprint FROM source WHERE walked IS NOT NULL"
                " OR EXISTS (SELECT 1 FROM document WHERE source = source.id)"
            )
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


def _hit(uri: str, score: float, title: str, place: str, shown: Shown) -> Hit:
    is_html = uri.rpartition(".")[2].lower() in html.EXTENSIONS
    return Hit(uri, score, title or None, shown.snippet, shown.place(place, is_html=is_html))
