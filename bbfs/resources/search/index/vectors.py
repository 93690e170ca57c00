"""Vectors of the chunks in the local index.

`near` is a table of sqlite-vec with the vectors in 8 bits a number, which a search scans. `vector` has them as floats,
which put its candidates in order. Chunks get their vectors in the order of their ids, so one number says which have
them, and work that was interrupted goes on there. Pure SQL on the connections of the index.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bbfs.resources.search.index.text import restored
from bbfs.sources.vector_search.vec0 import extend

LONGEST_TEXT = 4000
"""Characters of a chunk that become a vector: models read no more than some hundred words."""
_MORE = 40
"""Candidates besides the wanted hits: further chunks of the same documents, and stale ones."""
_MOST_NEAR = 4096
TABLES = ("vector", "meaning")
SCHEMA = (
    "CREATE TABLE vector (chunk INTEGER PRIMARY KEY, floats BLOB NOT NULL)",
    "CREATE TABLE meaning (model TEXT NOT NULL, dimensions INTEGER NOT NULL, done INTEGER NOT NULL)",
)
_INT8 = "vec_quantize_int8(vec_normalize(vec_f32({})), 'unit')"
_OF_SOURCE = "SELECT source FROM chunk JOIN document ON document.id = chunk.document WHERE chunk.id = ?"


@dataclass(frozen=True, slots=True)
class Pending:
    """Chunks without vectors. after: the chunks up to this id have them. texts: by the ids of the chunks."""

    after: int
    texts: dict[int, str]


def extended(db: sqlite3.Connection) -> bool:
    """Load sqlite-vec. Return whether it is there: it comes with an extra, and not every Python can load it."""
    try:
        extend(db)
    except (ImportError, AttributeError, sqlite3.Error):
        return False
    return True


def pending(db: sqlite3.Connection, model: str, limit: int) -> Pending:
    """Return the next chunks that need vectors of a model."""
    row = db.execute("SELECT done FROM meaning WHERE model = ?", (model,)).fetchone()
    after = row[0] if row is not None else 0
    rows = db.execute(
        "SELECT chunk.id, document.title, text FROM chunk JOIN document ON document.id = chunk.document"
        " WHERE chunk.id > ? ORDER BY chunk.id LIMIT ?",
        (after, limit),
    )
    return Pending(after, {chunk: f"{title}\n{restored(text)[:LONGEST_TEXT]}".strip() for chunk, title, text in rows})


def put(db: sqlite3.Connection, model: str, chunks: Pending, vectors: Sequence[bytes], *, first: bool) -> str | None:
    """Write vectors of chunks, unless another process has. Return the other model that the index has now, or None.

    first: replace the vectors of another model, or of other dimensions.
    """
    dimensions = len(vectors[0]) // 4
    row = db.execute("SELECT model, dimensions, done FROM meaning").fetchone()
    if row is None or row[:2] != (model, dimensions):
        if row is not None and not first:
            return row[0]
        clear(db)
        db.execute(_near(dimensions))
        db.execute("INSERT INTO meaning VALUES (?, ?, 0)", (model, dimensions))
        row = (model, dimensions, 0)
    if row[2] != chunks.after:
        return None
    for chunk, floats in zip(chunks.texts, vectors, strict=True):
        source = db.execute(_OF_SOURCE, (chunk,)).fetchone()
        if source is not None and any(memoryview(floats).cast("f")):  # it may be gone; zeros are near to nothing
            db.execute("INSERT INTO vector VALUES (?, ?)", (chunk, floats))
            db.execute(f"INSERT INTO near VALUES (?, ?, {_INT8.format('?')})", (chunk, *source, floats))
    db.execute("UPDATE meaning SET done = ?", (max(chunks.texts),))
    return None


def _near(dimensions: int) -> str:
    return f"CREATE VIRTUAL TABLE near USING vec0(chunk integer primary key, source integer, coarse int8[{dimensions}])"


def clear(db: sqlite3.Connection) -> None:
    """Remove all vectors."""
    db.execute("DROP TABLE IF EXISTS near")
    for table in TABLES:
        db.execute(f"DELETE FROM {table}")


def remove(db: sqlite3.Connection, chunks: Iterable[int], *, extended: bool) -> None:
    """Remove the vectors of some chunks. Without sqlite-vec, what stays in `near` is never found."""
    for chunk in chunks:
        if db.execute("DELETE FROM vector WHERE chunk = ?", (chunk,)).rowcount == 1 and extended:
            db.execute("DELETE FROM near WHERE chunk = ?", (chunk,))


def fold_up(db: sqlite3.Connection, *, extended: bool) -> None:
    """Remove `near`, before VACUUM, which may change the rowids that the tables of sqlite-vec rely on.

    Without sqlite-vec, all vectors are removed, to be made again.
    """
    if extended:
        db.execute("DROP TABLE IF EXISTS near")
        return
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'near_*'").fetchall():
        db.execute(f"DELETE FROM {name}")
    for table in TABLES:
        db.execute(f"DELETE FROM {table}")


def unfold(db: sqlite3.Connection) -> None:
    """Make `near` from the floats again."""
    row = db.execute("SELECT dimensions FROM meaning").fetchone()
    if row is not None:
        db.execute(_near(*row))
        db.execute(
            f"INSERT INTO near SELECT vector.chunk, document.source, {_INT8.format('floats')} FROM vector"
            " JOIN chunk ON chunk.id = vector.chunk JOIN document ON document.id = chunk.document"
        )


def usable(db: sqlite3.Connection, model: str, dimensions: int) -> bool:
    """Return whether the index has vectors that can be compared with one of this model."""
    return db.execute("SELECT 1 FROM meaning WHERE model = ? AND dimensions = ?", (model, dimensions)).fetchone() == (
        1,
    )


def nearest(
    db: sqlite3.Connection, vector: bytes, limit: int, sources: Collection[str]
) -> list[tuple[str, str, str, str, float, str]]:
    """Return the documents nearest to a vector: source, URI, title, place, distance by cosine, text of the chunk."""
    fingerprints = json.dumps([*sources])
    rows = db.execute("SELECT id FROM source WHERE fingerprint IN (SELECT value FROM json_each(?))", (fingerprints,))
    ids = ", ".join(str(row[0]) for row in rows)
    candidates = db.execute(
        f"SELECT chunk FROM near WHERE coarse MATCH {_INT8.format('?')} AND k = ? AND source IN ({ids or -1})",
        (vector, min(limit + _MORE, _MOST_NEAR)),
    ).fetchall()
    rows = db.execute(
        "SELECT document.id, fingerprint, uri, document.title, place, vec_distance_cosine(floats, ?) AS distance, text"
        " FROM json_each(?) AS candidate CROSS JOIN vector ON vector.chunk = candidate.value"
        " CROSS JOIN chunk ON chunk.id = vector.chunk CROSS JOIN document ON document.id = chunk.document"
        " CROSS JOIN source ON source.id = document.source"
        " WHERE NOT stale AND fingerprint IN (SELECT value FROM json_each(?)) AND distance < 1 ORDER BY distance",
        (vector, json.dumps([chunk for (chunk,) in candidates]), fingerprints),
    )
    best: dict[int, tuple[Any, ...]] = {}
    for document, *row in rows:
        best.setdefault(document, tuple(row))
    return [(*about, restored(text)) for *about, text in [*best.values()][:limit]]
