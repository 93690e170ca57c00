"""A database inside the process that reads it: its interface, and what the sessions of all databases do alike."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from bbfs.model.errors import BbfsError, InvalidUri, NotFound
from bbfs.sources.database.names import Key, KeyValue, shown
from bbfs.sources.database.rendering import row_json
from bbfs.sources.database.search import scan
from bbfs.sources.database.tables import RowHit, Schema, Table, quoted

if TYPE_CHECKING:
    from bbfs.sources.database.writing.rows import Row

FETCHED = 1000
"""Rows in one fetch."""


class Database(Protocol):
    """One database in its process: one transaction at a time. It may keep its connection between two transactions."""

    def begin(self) -> Any:
        """Open a transaction: an object with the methods that `backend.RemoteSession` calls.

        Raises BbfsError, and what `fault` takes, as those methods do.
        """
        ...

    def end(self) -> None: ...

    def fault(self, error: Exception) -> BbfsError | None:
        """Return bbfs's error for an error of the driver, or None if it is no error of the database."""
        ...


class Session(ABC):
    """One transaction on one connection."""

    @abstractmethod
    def schemas(self) -> list[Schema]: ...

    @abstractmethod
    def _find(self, table: Table, key: Key, by: tuple[str, KeyValue] | None = None) -> Sequence[Any] | None:
        """Return the row whose key is written exactly so; the database may take other spellings for equal."""

    def _require(self, schema: str) -> None:
        if schema not in [known.name for known in self.schemas()]:
            raise NotFound(f"no schema {shown(schema)!r}")

    def has_key(self, table: Table, key: Key, by: tuple[str, KeyValue] | None = None) -> bool:
        return self._find(table, key, by) is not None

    def row(self, table: Table, key: Key) -> bytes | None:
        return as_json(table, self._find(table, key))


class TextSession(Session):
    """A session whose statements are texts with `?` or numbered places for values."""

    @abstractmethod
    def _all(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""

    def _source(self, table: Table, *, numbered: bool = False) -> str:
        """Return what a statement selects from. numbered: with the number of each row, if it has no other key."""
        return table.sql_name

    def count(self, table: Table) -> int:
        return self._all(f"SELECT count(*) FROM {self._source(table)}")[0][0]

    def bounds(self, table: Table) -> tuple[int, int] | None:
        key, source = table.part_key, self._source(table, numbered=True)
        lowest, highest = self._all(f"SELECT min({key}), max({key}) FROM {source}")[0]
        return None if lowest is None else (lowest, highest)

    def scan(self, table: Table, columns: Sequence[str], words: Sequence[str], limit: int) -> list[RowHit]:
        texts = [f"CAST({quoted(column)} AS varchar)" for column in columns]
        places = [f"${number}" for number in range(1, len(words) + 1)]
        key = [f"CAST({quoted(column)} AS varchar)" for column in table.primary_key]
        sql = scan.statement(table.sql_name, f"concat_ws(' ', {', '.join(texts)})", key, "ILIKE", places, limit)
        return [
            RowHit(table.schema, table.name, tuple(parts), score, scan.snippet(text, words))
            for score, text, *parts in self._all(sql, *map(scan.pattern, words))
        ]


class CellSession(TextSession):
    """A session that binds each value of a row by itself, in a file that no other program writes meanwhile."""

    @abstractmethod
    def _changed(self, sql: str, *values: Any) -> int:
        """Execute a statement. Return the number of rows that it has changed."""

    @abstractmethod
    def _where(self, table: Table, conditions: Iterable[tuple[str, KeyValue]]) -> tuple[str, list[Any]]:
        """Return a condition that columns have values, and the values to bind."""

    @abstractmethod
    def _cell(self, table: Table, column: str, value: Any) -> tuple[str, Any]:
        """Return the place for a value of a column in JSON, and the value to bind. Raise Rejected."""

    def _part(self, table: Table, column: str, value: KeyValue) -> tuple[str, Any]:
        """Return the place for a value of a key, and the value to bind. Raise Rejected."""
        return self._cell(table, column, value)

    def locked_row(self, table: Table, key: Key) -> bytes | None:
        return self.row(table, key)  # the transaction has the lock of the file

    def insert(self, table: Table, key: Key, row: "Row") -> None:
        cells = {name: self._cell(table, name, value) for name, value in row.values.items()}
        for name, value in zip(table.primary_key, key, strict=True):
            if name not in cells:
                cells[name] = self._part(table, name, value)
        names, places = ", ".join(map(quoted, cells)), ", ".join(place for place, _ in cells.values())
        values = (value for _, value in cells.values())
        self._changed(f"INSERT INTO {table.sql_name} ({names}) VALUES ({places})", *values)

    def update(self, table: Table, key: Key, row: "Row", columns: Sequence[str]) -> int:
        cells = [self._cell(table, name, row.values[name]) for name in columns]
        pairs = ", ".join(f"{quoted(name)} = {place}" for name, (place, _) in zip(columns, cells, strict=True))
        where, values = self._where(table, zip(table.primary_key, key, strict=True))
        sql = f"UPDATE {table.sql_name} SET {pairs} WHERE {where}"
        return self._changed(sql, *(value for _, value in cells), *values)

    def delete(self, table: Table, key: Key) -> int:
        where, values = self._where(table, zip(table.primary_key, key, strict=True))
        return self._changed(f"DELETE FROM {table.sql_name} WHERE {where}", *values)


def as_json(table: Table, row: Sequence[Any] | None) -> bytes | None:
    """Return a row as a JSON object; None without a row."""
    return None if row is None else row_json([column.name for column in table.columns], row)


def conditions(table: Table, key: Key, by: tuple[str, KeyValue] | None) -> list[tuple[str, KeyValue]]:
    """Return the columns that find a row, each with its value."""
    return [*zip(table.primary_key, key, strict=True), *([] if by is None else [by])]


def wrong_value(name: str, error: object) -> InvalidUri:
    """Return the error for a value that does not fit a parameter of a named query."""
    return InvalidUri(f"query {name}: {' '.join(str(error).split())}")
