"""The schemas and tables of a database as values. Pure."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, TypeAlias

from bbfs.sources.database.names import Key, key_text, segment_of, text_key

MOST_RANGED = 20_000_000
"""Rows of a table that are gone through, at most, to find where the parts begin whose keys are no whole numbers."""
_PART = re.compile(r"(-?[0-9]{1,19})-(-?[0-9]{1,19})")
_BETWEEN = re.compile(r"((?:[^~]|~[^-])*)~-((?:[^~]|~[^-])*)")
_LONGEST_KEY = 100
"""Characters of a key in the name of a part, percent-encoded."""
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


def quoted(name: str) -> str:
    """Return an identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema; of SQLite, an attached database. comment: of the database."""

    name: str
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column. type: as the database writes it. default, generated: SQL expressions. identity: always, by default.

    stored: whether a generated value is stored.
    """

    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    generated: str | None = None
    identity: str | None = None
    comment: str | None = None
    stored: bool = True


@dataclass(frozen=True, slots=True)
class TableIndex:
    """An index. columns: names, or expressions in parentheses. leading: the column by which it finds rows, if any."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    leading: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A reference to another table. schema: None where that is the table's own."""

    columns: tuple[str, ...]
    schema: str | None
    table: str
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows of a table whose part key is one of these numbers; both count."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class KeysBetween:
    """The rows of a table whose primary key is `first` or comes after it, and before `end`. None: without this bound.

    The database compares, in the order of its own index. So parts between any keys in that order have each row once.
    """

    first: Key | None
    end: Key | None


RowsPart: TypeAlias = KeyRange | KeysBetween


def parts_beginning(starts: Sequence[Key]) -> Iterator[tuple[str, KeysBetween]]:
    """Yield parts with their names. starts: the keys in order with which each but the first begins.

    A key that is too long for a name begins no part.
    """
    named = [key for key in starts if len(segment_of(key_text(key))) <= _LONGEST_KEY]
    for first, end in pairwise((None, *named, None)):
        part = KeysBetween(first, end)
        yield "~-".join("" if key is None else key_text(key) for key in (first, end)), part


def parts_between(
    lowest: int, highest: int, rows: int | None, in_one: int, at_most: int
) -> Iterator[tuple[str, KeyRange]]:
    """Yield parts with their names for a table with these keys; they stay the same while the table grows a little.

    rows: as far as known. in_one: rows of a part, if the numbers are evenly spread. at_most: parts, and one more.
    """
    span = highest - lowest + 1
    wanted = min(-(-min(rows or span, span) // max(in_one, 1)), max(at_most, 1))
    width = _round(-(-span // wanted))
    first, last = (lowest - 1) // width, (highest - 1) // width
    digits = max(7, len(str(min((last + 1) * width, _HIGHEST))))
    for number in range(first, last + 1):
        part = KeyRange(max(number * width + 1, _LOWEST), min((number + 1) * width, _HIGHEST))
        yield f"{part.first:0{digits}}-{part.last:0{digits}}", part


def _round(number: int) -> int:
    """Return the next number that is 1, 2 or 5 with zeros."""
    power = 10 ** (len(str(number)) - 1)
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= number)


def part_of(text: str, table: "Table") -> RowsPart | None:
    """Return the part of a name. The part need not be listed. Raise NotFound for a name whose texts are no keys."""
    if table.part_key is None:
        between = _BETWEEN.fullmatch(text)
        if between is None or not table.range_key:
            return None
        columns = len(table.range_key)
        first, end = (text_key(key, columns) if key else None for key in between.groups())
        return KeysBetween(first, end)
    found = _PART.fullmatch(text)
    if found is None:
        return None
    lowest, highest = int(found[1]), int(found[2])
    return KeyRange(lowest, highest) if _LOWEST <= lowest <= highest <= _HIGHEST else None


@dataclass(frozen=True, slots=True)
class RowHit:
    """A row that a full-text search has found. key: its primary key. score: greater is better, in one table."""

    schema: str
    table: str
    key: Key
    score: float
    snippet: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view, without reading a row; in a listing without indexes and foreign keys.

    kind: `table`, `view`, `materialized view`, … estimated_rows: never counted; None where the catalog has no estimate.
    part_key: a column of whole numbers, in SQL, by which a range of rows is found fast. range_key: without such a
    column, the primary key, if no part of it is NULL, its order is that of its comparisons, and its text stands for one
    value. identity: the session's own handle.
    """

    schema: str
    name: str
    kind: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    indexes: tuple[TableIndex, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    comment: str | None = None
    estimated_rows: int | None = None
    part_key: str | None = None
    range_key: tuple[str, ...] = ()
    identity: Any = field(default=None, compare=False)

    @property
    def sql_name(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def has_parts(self) -> bool:
        return self.part_key is not None or bool(self.range_key)

    def column(self, name: str) -> Column:
        """Return the column of this name, which the table must have."""
        return next(column for column in self.columns if column.name == name)

    @property
    def indexed(self) -> tuple[str, ...]:
        """The columns by which rows are found through an index; a table without a key has no such columns.

        A primary key of one column is not among them: it has `row/`.
        """
        if not self.primary_key:
            return ()
        first, *others = self.primary_key
        leading = dict.fromkeys(index.leading for index in self.indexes if index.leading is not None)
        if others:
            leading[first] = None
        else:
            leading.pop(first, None)
        return tuple(leading)

    def document(self) -> dict[str, Any]:
        """Return the object of `columns.json`, without unknown values."""
        return without_none(
            schema=self.schema,
            table=self.name,
            kind=self.kind,
            comment=self.comment,
            primaryKey=self.primary_key or None,
            columns=[_fields(column, "stored") for column in self.columns],
            indexes=[_fields(index, "leading") for index in self.indexes] or None,
            foreignKeys=[_fields(key) for key in self.foreign_keys] or None,
        )

    def properties(self, *, listed: bool = False) -> dict[str, Any]:
        """Return the extended attributes of its directory and files. listed: without indexes."""
        return without_none(
            schema=self.schema,
            table=self.name,
            table_kind=self.kind,
            comment=self.comment,
            primary_key=", ".join(self.primary_key) or None,
            columns=[{"name": column.name, "type": column.type} for column in self.columns],
            estimated_rows=self.estimated_rows,
            indexed_columns=None if listed else ", ".join(self.indexed) or None,
        )


def columns_json(table: Table) -> bytes:
    return (json.dumps(table.document(), indent=2, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def without_none(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _fields(value: Column | TableIndex | ForeignKey, *left_out: str) -> dict[str, Any]:
    return without_none(**{each.name: getattr(value, each.name) for each in fields(value) if each.name not in left_out})
