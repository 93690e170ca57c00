"""sqlite-vec: the extension, and the declaration of a table, read from its SQL.

`CREATE VIRTUAL TABLE t USING vec0(id integer primary key, e float[768] distance_metric=cosine, genre text, +body text)`
(https://alexgarcia.xyz/sqlite-vec/features/vec0.html). All names of columns are plain words.
"""

import re
import sqlite3
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from bbfs.sources.vector_search.values import Metric

LONGEST = 1 << 14
"""Characters of a declaration."""
Element: TypeAlias = Literal["float", "int8", "bit"]
_USING = re.compile(r"\busing\s+[\"'`\[]?vec0[\"'`\]]?\s*\(", re.IGNORECASE)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_VECTOR = re.compile(r"(\w+)\s+(float|f32|float32|int8|i8|bit)\s*\[\s*(\d{1,9})\s*\](.*)", re.IGNORECASE | re.DOTALL)
_KEY = re.compile(r"(\w+)\s+(\w+)\s+primary\s+key", re.IGNORECASE)
_PARTITION = re.compile(r"(\w+)\s+(\w+)\s+partition\s+key", re.IGNORECASE)
_AUXILIARY = re.compile(r"\+\s*(\w+)(?:\s+(\w+))?", re.IGNORECASE)
_METADATA = re.compile(r"(\w+)\s+(\w+)", re.IGNORECASE)
_METRIC = re.compile(r"distance_metric\s*=\s*(\w+)", re.IGNORECASE)
_ELEMENTS: dict[str, Element] = {"float": "float", "f32": "float", "float32": "float", "int8": "int8", "i8": "int8"}
_METRICS: dict[str, Metric] = {"l2": "l2", "l1": "l1", "cosine": "cosine", "hamming": "hamming"}


@dataclass(frozen=True, slots=True)
class Vector:
    """A column of vectors."""

    name: str
    element: Element
    dimensions: int
    metric: Metric

    @property
    def size(self) -> int:
        """The bytes of a vector."""
        return {"float": self.dimensions * 4, "int8": self.dimensions, "bit": (self.dimensions + 7) // 8}[self.element]


@dataclass(frozen=True, slots=True)
class Declaration:
    """A table. key: its primary key, `rowid` without a declared key. filtered: columns that a search can filter, by
    type.

    others: the auxiliary columns, by type. All types are in lower case.
    """

    vectors: tuple[Vector, ...]
    key: str = "rowid"
    key_is_text: bool = False
    filtered: dict[str, str] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)

    @property
    def payload(self) -> tuple[str, ...]:
        return (*self.filtered, *self.others)


def extend(connection: sqlite3.Connection) -> None:
    """Load sqlite-vec, and nothing that a file names. Raise ImportError, or AttributeError where SQLite loads no
    extensions."""
    import sqlite_vec  # noqa: PLC0415 - of the extra "vector"

    connection.enable_load_extension(True)
    sqlite_vec.load(connection)
    connection.enable_load_extension(False)


def declaration(sql: str) -> Declaration | None:
    """Return the declaration in the SQL of a virtual table, or None if it is no readable declaration of sqlite-vec."""
    begin = _USING.search(sql)
    if begin is None or len(sql) > LONGEST:
        return None
    vectors: list[Vector] = []
    key, key_is_text = "rowid", False
    filtered: dict[str, str] = {}
    others: dict[str, str] = {}
    for part in _COMMENT.sub(" ", sql[begin.end() : sql.rfind(")")]).split(","):
        text = part.strip()
        if found := _VECTOR.match(text):
            vectors.append(_vector(found))
        elif found := _KEY.match(text):
            key, key_is_text = found[1], found[2].lower() == "text"
        elif found := _PARTITION.match(text):
            filtered[found[1]] = found[2].lower()
        elif found := _AUXILIARY.match(text):
            others[found[1]] = (found[2] or "").lower()
        elif found := _METADATA.fullmatch(text):
            filtered[found[1]] = found[2].lower()
    return Declaration(tuple(vectors), key, key_is_text, filtered, others) if vectors else None


def _vector(found: "re.Match[str]") -> Vector:
    element = _ELEMENTS.get(found[2].lower(), "bit")
    named = _METRIC.search(found[4])
    default: Metric = "hamming" if element == "bit" else "l2"
    return Vector(found[1], element, int(found[3]), default if named is None else _METRICS.get(named[1].lower(), "l2"))
