"""Which chunks answer a question, the best first. Pure SQL on a reading connection of the index.

Documents with all words one after the other come first; then those with all words; then those in which the last word is
only the beginning of one; then those with some words. Each more general question is asked only if the ones before have
found too little. Within each, BM25 ranks, with a share of what it gives for words that stand together.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from operator import attrgetter

from bbfs.resources.search.index.text import restored
from bbfs.resources.search.words import tokens
from bbfs.resources.search.words.folding import folded
from bbfs.resources.search.words.languages import DEFAULT, stems
from bbfs.resources.search.words.question import Question, with_umlauts
from bbfs.resources.search.words.snippets import NOTHING, Shown, shown
from bbfs.resources.search.words.spelling import SHORTEST, closest, trigrams

MOST_RANKED = 5000
"""Chunks that one question ranks, if the newest of them have enough hits."""
WEIGHTS = "3.0, 1.0, 1.0"
"""Of a word in the title, in the text, and of a compound."""
TOGETHER = 0.2
"""Share of the rank by pairs of words (measured by benchmarks/retrieval.py)."""
_EXACT = 0.2
"""Share of the rank that a chunk gains for having all words as they are written."""
_MORE = 3
"""Documents whose order words that stand together may change, by the number of wanted ones."""
_MOST_FORMS = 50
"""Words with one beginning whose other forms are looked for."""
_SHORTEST_BEGINNING = 3
_FEW = 4
"""Words of a query of which one must be missing for it to be taken as mistyped: of more, the others say enough."""
_MOST_ALIKE = 20_000
"""Words with one trigram of a mistyped word that are compared."""
_COMPARED = 200
"""Words with the most trigrams of a mistyped word whose letters are compared."""


_LANGUAGES = (
    "WITH RECURSIVE each (name) AS (SELECT min(language) FROM analysed UNION ALL"
    " SELECT (SELECT min(language) FROM analysed WHERE language > name) FROM each WHERE name IS NOT NULL)"
    " SELECT name FROM each"
)
"""The distinct ones, by a look at the index of each and not at all documents."""


@dataclass(slots=True)
class Row:
    """A document that was found, with its best chunk. source: its fingerprint. modified: at its source (ns), or 0."""

    document: int
    chunk: int
    source: str
    uri: str
    title: str
    place: str
    modified: int
    score: float
    shown: Shown = NOTHING


def languages(db: sqlite3.Connection) -> list[str]:
    """Return the languages of the texts in the index."""
    return [name for (name,) in db.execute(_LANGUAGES) if name is not None] or [DEFAULT]


def best(db: sqlite3.Connection, question: Question, limit: int, sources: Collection[str]) -> list[Row]:
    """Return the best documents in the sources with these fingerprints."""
    ranking = _Ranking(db, question, limit, sources)
    found: dict[int, Row] = {}
    for match in ranking.matches():
        for row in ranking.ranked(match):
            found.setdefault(row.document, row)
        if len(found) >= limit:
            break
    return [*found.values()][:limit]


def spelt(db: sqlite3.Connection, question: Question) -> tuple[Question, list[tuple[str, str]]]:
    """Return a question with words that the index has for those that it has not, and each of these with its like.

    Such words are mistyped, or have umlauts spelt out that the texts have as one letter.
    """
    among = languages(db)
    units, missing = [*question.units], list[int]()
    for number, unit in enumerate(units):
        if unit.is_word and not unit.word.isdigit():
            umlauts = [word for word in with_umlauts(unit.word) if _is_term(db, word)]
            if umlauts:
                units[number] = unit.also(umlauts, among)
                continue
            is_last = question.last_begins and number == len(units) - 1
            if len(unit.word) >= SHORTEST and not _has(db, unit.beginning() if is_last else unit.match):
                missing.append(number)
    meant: list[tuple[str, str]] = []
    for number in missing if len(missing) * _FEW >= len(units) else ():
        word = units[number].word
        other = _alike(db, word)
        if other is not None:
            units[number] = units[number].instead(other, among)
            meant.append((word, other))
    return (question.spelt(units) if units != [*question.units] else question), meant


def _is_term(db: sqlite3.Connection, word: str) -> bool:
    return db.execute("SELECT 1 FROM term WHERE term = ?", (word,)).fetchone() is not None


def _has(db: sqlite3.Connection, match: str) -> bool:
    return db.execute("SELECT 1 FROM words WHERE words MATCH ? LIMIT 1", (match,)).fetchone() is not None


def _alike(db: sqlite3.Connection, word: str) -> str | None:
    """Return the word of the index that is most like another one; of several, that of the most documents."""
    common: Counter[int] = Counter()
    for trigram in trigrams(word):
        query = "SELECT rowid FROM termgrams WHERE termgrams MATCH ? LIMIT ?"
        common.update(number for (number,) in db.execute(query, (f'"{trigram}"', _MOST_ALIKE)))
    terms = [
        term
        for number, _ in common.most_common(_COMPARED)
        for (term,) in db.execute("SELECT term FROM term WHERE id = ?", (number,))
    ]
    alike = closest(word, terms)
    return max(alike, key=lambda term: _documents(db, term), default=None)


def _documents(db: sqlite3.Connection, term: str) -> int:
    return db.execute("SELECT count(*) FROM grams WHERE grams MATCH ?", (f'"{term}"',)).fetchone()[0]


class _Ranking:
    """One question under way."""

    def __init__(self, db: sqlite3.Connection, question: Question, limit: int, sources: Collection[str]) -> None:
        self._db = db
        self._question = question
        self._limit = limit
        self._sources = json.dumps([*sources])
        self._together: dict[int, dict[int, float]] = {}

    def matches(self) -> Iterator[str]:
        """Yield expressions of FTS5, the most particular first."""
        question, units = self._question, self._question.units
        required = [match for match, _ in question.quoted]
        if question.phrase:
            yield question.phrase
        yield " AND ".join([*required, *(unit.match for unit in units)])
        if not units:
            return
        begun = [unit.match for unit in units]
        if question.last_begins:
            beginning = self._beginning()
            yield " AND ".join([*required, *begun[:-1], beginning])
            if not _has(self._db, begun[-1]):
                begun[-1] = beginning
        if len(units) > 1:
            quoted = "".join(f"{match} AND " for match in required)
            rare = [match for match in dict.fromkeys(begun) if self._newest(match, MOST_RANKED) is None]
            weighted = [match for match, unit in zip(begun, units, strict=True) for _ in range(unit.times)]
            weighted += [part for unit in units for part in unit.parts]
            if rare:
                yield f"{quoted}({' OR '.join(match for match in weighted if match in rare)})"
            if len(rare) < len({*begun}):
                yield f"{quoted}({' OR '.join(weighted)})"
        elif required:
            yield " AND ".join(required)

    def _beginning(self) -> str:
        """Return the expression for words that begin with the last one, also where the index has only their stems."""
        last = self._question.units[-1]
        if len(last.word) < _SHORTEST_BEGINNING:
            return last.beginning()
        begin = last.token.lower()
        rows = self._db.execute(
            "SELECT term FROM term WHERE term >= ? AND term < ? LIMIT ?", (begin, begin + "\U0010ffff", _MOST_FORMS)
        )
        words = {folded(term).casefold() for (term,) in rows}
        among = languages(self._db)
        forms = {stem for word in words for stem in stems(word, among)}
        more = [
            f'"{form}"' for form in sorted(forms) if not form.startswith(last.word) and tokens.parts(form) == [form]
        ]
        beginning = last.beginning()
        return f"({' OR '.join([beginning, *more])})" if more else beginning

    def _newest(self, match: str, count: int) -> int | None:
        """Return the id of the first of the newest `count` chunks that match, or None if there are no more."""
        query = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?"
        row = self._db.execute(query, (match, count)).fetchone()
        return None if row is None else row[0] + 1

    def ranked(self, match: str) -> list[Row]:
        """Return the best documents of a match; of a very frequent one, at first only of its newest chunks."""
        newest = self._newest(match, MOST_RANKED)
        rows = self._ranked_since(newest or 0, match)
        if newest is not None and len(rows) < self._limit:
            rows = self._ranked_since(0, match)
        return rows

    def _ranked_since(self, first: int, match: str) -> list[Row]:
        together = self._pairs(first) if match != self._question.phrase else {}
        rows = self._rows(first, match, self._limit * (_MORE if together else 1))
        for row in rows:
            row.score += TOGETHER * together.get(row.chunk, 0.0)
        rows.sort(key=attrgetter("score"), reverse=True)
        for row in rows[: self._limit]:
            row.shown = shown(self._text(row.chunk), self._question)
            row.score *= 1 + _EXACT * row.shown.exact / max(1, len(self._question.units))
        return sorted(rows[: self._limit], key=lambda row: (-float(f"{row.score:.6g}"), -row.modified))

    def _text(self, chunk: int) -> str:
        (text,) = self._db.execute("SELECT text FROM chunk WHERE id = ?", (chunk,)).fetchone()
        return restored(text)

    def _rows(self, first: int, match: str, most: int) -> list[Row]:
        # CROSS JOIN: FTS5 ranks only as the outer table. Its own snippet() takes quadratic time if a word is repeated.
        # No LIMIT: a long document may have the best thousand chunks.
        best: dict[int, Row] = {}
        with closing(self._db.cursor()) as ranked:
            ranked.execute(
                "SELECT document.id, chunk.id, source.fingerprint, uri, document.title, place, modified, -words.rank"
                " FROM words CROSS JOIN chunk ON chunk.id = words.rowid"
                " CROSS JOIN document ON document.id = chunk.document CROSS JOIN source ON source.id = document.source"
                " CROSS JOIN analysed ON analysed.document = document.id"
                " WHERE words MATCH ? AND words.rowid >= ? AND NOT stale"
                " AND fingerprint IN (SELECT value FROM json_each(?))"
                " ORDER BY words.rank",
                (match, first, self._sources),
            )
            for values in ranked:
                if values[0] not in best and self._has_quoted(row := Row(*values)):
                    best[row.document] = row
                    if len(best) == most:
                        break
        return [*best.values()]

    def _pairs(self, first: int) -> dict[int, float]:
        """Return the ranks of chunks, from the first one on, by words of the question that stand together."""
        if first not in self._together:
            query = "SELECT rowid, -rank FROM words WHERE words MATCH ? AND rowid >= ?"
            match = " OR ".join(self._question.pairs)
            self._together[first] = dict(self._db.execute(query, (match, first))) if match else {}
        return self._together[first]

    def _has_quoted(self, row: Row) -> bool:
        """Return whether a title or a chunk has all phrases in quotation marks as they are written."""
        if not self._question.quoted:
            return True
        exact = [f" {tokens.exact(tokens.tokens(folded(each)))} " for each in (row.title, self._text(row.chunk))]
        return all(any(f" {words} " in each for each in exact) for _, words in self._question.quoted)
