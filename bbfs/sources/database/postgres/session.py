"""The statements to PostgreSQL. Keys are compared with the text that the server itself makes of them."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import psycopg
from psycopg import ClientCursor, RawCursor
from psycopg import errors as pg
from psycopg.sql import Literal

from bbfs.model.errors import NotFound, NotSupported, TooLarge
from bbfs.model.uri import encodable
from bbfs.sources.database.names import Key, KeyValue, shown
from bbfs.sources.database.postgres import catalog, fulltext
from bbfs.sources.database.postgres.definition import definition
from bbfs.sources.database.rendering import QueryValues, RowFormat, Write, in_portions
from bbfs.sources.database.session import TextSession, wrong_value
from bbfs.sources.database.tables import (
    MOST_RANGED,
    Column,
    KeysBetween,
    RowHit,
    RowsPart,
    Schema,
    Table,
    TableIndex,
    quoted,
)
from bbfs.sources.database.writing.rows import Row

_CSV = "FORMAT csv, HEADER"
_WHOLE = ("smallint", "integer", "bigint")
_ORDERED = re.compile(
    r"text|uuid|date|bytea|boolean|smallint|integer|bigint|real|double precision"
    r"|(character( varying)?|numeric)(\(.*\))?|time(stamp)?(\([0-9]\))? with(out)? time zone"
)
"""Types whose text stands for exactly one value."""
_LINES = "FORMAT csv, DELIMITER E'\\x02', QUOTE E'\\x01'"
"""For one column of JSON, in which neither of these characters can stand: the line is the text."""
LARGEST_ROW = 32 << 20
"""Bytes of one row as JSON, which is in memory several times. All rows together are a stream."""
_ROW = f"CASE WHEN octet_length(row_to_json(t.*)::text) <= {LARGEST_ROW} THEN row_to_json(t.*, true)::text END"
_NO_VALUE = (
    pg.InvalidTextRepresentation,
    pg.InvalidDatetimeFormat,
    pg.DatetimeFieldOverflow,
    pg.NumericValueOutOfRange,
    pg.DataException,
)
"""Errors for a text that is no value of a column's type; ranges raise `DataException`."""


class PostgresSession(TextSession):
    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection

    def _all(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement with `$1`, `$2`, … for the values; the server infers their types."""
        with RawCursor(self._connection) as cursor:
            return cursor.execute(cast(Any, sql), values).fetchall()

    def schemas(self) -> list[Schema]:
        return [Schema(name, comment) for name, comment in self._all(catalog.SCHEMAS)]

    def tables(self, schema: str) -> list[Table]:
        if not self._all(catalog.SCHEMA, plain_text(schema)):
            raise NotFound(f"no schema {shown(schema)!r}")
        rows = self._all(catalog.TABLES, schema)
        return [
            Table(
                schema,
                name,
                catalog.KINDS[kind],
                tuple(Column(*column) for column in columns),
                tuple(key),
                comment=comment,
                estimated_rows=estimate,
            )
            for name, kind, comment, estimate, columns, key in rows
        ]

    def table(self, schema: str, name: str, keys_only: bool = False) -> Table:
        found = self._all(catalog.KEYS if keys_only else catalog.TABLE, plain_text(schema), plain_text(name))
        if not found:
            raise NotFound(f"no table {shown(name)!r} in schema {shown(schema)!r}")
        if keys_only:
            kind, key, leading = found[0]
            indexes = tuple(TableIndex("", (), leading=column) for column in leading)
            return Table(schema, name, catalog.KINDS[kind], (), tuple(key), indexes)
        identity, kind, comment, estimate, columns, key, indexes, foreign_keys = found[0]
        if kind == "v":
            estimate = self._planned(schema, name)
        types = {column["name"]: column["type"] for column in columns}
        first = key[0]["name"] if key else None
        ranged = tuple(part["name"] for part in key if _ORDERED.fullmatch(types[part["name"]]))
        return Table(
            schema,
            name,
            catalog.KINDS[kind],
            tuple(map(catalog.column, columns)),
            tuple(part["name"] for part in key),
            tuple(map(catalog.index, indexes)),
            tuple(catalog.foreign_key(schema, each) for each in foreign_keys),
            comment,
            None if estimate is None else int(estimate),
            quoted(first) if first is not None and types[first] in _WHOLE else None,
            ranged if len(ranged) == len(key) and (estimate or 0) <= MOST_RANGED else (),
            identity,
        )

    def _planned(self, schema: str, view: str) -> int | None:
        """Return how many rows the planner expects of a view, without running it; None if it may not be read."""
        sql = f"EXPLAIN (FORMAT JSON) SELECT * FROM {quoted(schema)}.{quoted(view)}"
        try:
            with self._connection.transaction():  # a savepoint: what follows goes on if this fails
                return self._all(sql)[0][0][0]["Plan"]["Plan Rows"]
        except (pg.InsufficientPrivilege, pg.ObjectNotInPrerequisiteState):
            return None

    def definition(self, table: Table) -> str:
        return definition(table, lambda sql: self._all(sql, table.identity))

    def next_start(self, table: Table, start: Key | None, rows: int) -> Key | None:
        parts = [f"t.{quoted(column)}" for column in table.range_key]
        texts, order = ", ".join(f"{part}::text" for part in parts), ", ".join(parts)
        where = self._between(table, KeysBetween(start, None))
        found = self._all(
            f"SELECT {texts} FROM {table.sql_name} AS t WHERE {where} ORDER BY {order} LIMIT 1 OFFSET {rows:d}"
        )
        return tuple(found[0]) if found else None

    def _between(self, table: Table, part: KeysBetween) -> str:
        """Return a condition that a key is in a part. Each column is compared by its collation."""
        columns, conditions = ", ".join(f"t.{quoted(column)}" for column in table.range_key), ["true"]
        for comparison, key in ((">=", part.first), ("<", part.end)):
            if key is not None:
                values = ", ".join(Literal(_bound(value)).as_string(self._connection) for value in key)
                conditions.append(f"({columns}) {comparison} ({values})")
        return " AND ".join(conditions)

    def rows(self, table: Table, format: RowFormat, part: RowsPart | None, write: Write) -> None:
        sql = f"SELECT t.* FROM {table.sql_name} AS t"
        if isinstance(part, KeysBetween):
            sql += f" WHERE {self._between(table, part)} ORDER BY {', '.join(map(quoted, table.range_key))}"
        elif part is not None:
            where = f"{table.part_key} BETWEEN {part.first:d} AND {part.last:d}"
            sql += f" WHERE {where} ORDER BY {', '.join(map(quoted, table.primary_key))}"
        if table.kind != "view":
            # The order is that of the table; several workers would mix it.
            self._connection.execute("SET LOCAL max_parallel_workers_per_gather = 0")
        try:
            self._copy(sql, format, write)
        except _NO_VALUE as error:
            if not isinstance(part, KeysBetween):
                raise
            raise NotFound(f"no such keys: {' '.join(str(error).split())}") from None

    def _copy(self, sql: str, format: RowFormat, write: Write) -> None:
        """Write the rows of a statement as COPY sends them."""
        make: Callable[[Any], bytes]
        if format == "ndjson":
            sql, how, make = f"SELECT row_to_json(q.*)::text FROM (\n{sql}\n) AS q", _LINES, _on_one_line
        else:
            how, make = _CSV, bytes
        with self._connection.cursor() as cursor, cursor.copy(cast(Any, f"COPY (\n{sql}\n) TO STDOUT ({how})")) as copy:
            in_portions(map(make, iter(cast(Any, copy.read), b"")), b"".join, write)

    def keys(self, table: Table, limit: int, by: tuple[str, KeyValue] | None = None) -> list[Key]:
        parts = [quoted(column) for column in table.primary_key]
        texts = ", ".join(f"{part}::text" for part in parts)
        where, values = _condition(by, 1)
        sql = f"SELECT {texts} FROM {table.sql_name} AS t WHERE {where} ORDER BY {', '.join(f't.{p}' for p in parts)}"
        try:
            return cast(list[Key], self._all(f"{sql} LIMIT {int(limit)}", *values))
        except _NO_VALUE as error:
            if by is None:
                raise
            raise NotFound(f"{shown(str(by[1]))}: no such value: {' '.join(str(error).split())}") from None

    def values(self, table: Table, column: str, limit: int) -> list[KeyValue]:
        name, source = quoted(column), table.sql_name
        # From each value to the next through the index: DISTINCT would go through all of it.
        rows = self._all(
            f"WITH RECURSIVE v AS ((SELECT t.{name} AS x FROM {source} AS t WHERE t.{name} IS NOT NULL"
            f" ORDER BY t.{name} LIMIT 1) UNION ALL SELECT (SELECT t.{name} FROM {source} AS t WHERE t.{name} > v.x"
            f" ORDER BY t.{name} LIMIT 1) FROM v WHERE v.x IS NOT NULL)"
            f" SELECT v.x::text FROM v WHERE v.x IS NOT NULL LIMIT {int(limit)}"
        )
        if self._all(f"SELECT 1 FROM {source} WHERE {name} IS NULL LIMIT 1"):
            rows.insert(0, (None,))
        return [value for (value,) in rows[:limit]]

    def has_value(self, table: Table, column: str, value: KeyValue) -> bool:
        name = quoted(column)
        where, values = _condition((column, value), 1)
        exactly = "" if value is None else f" AND {name}::text = ${len(values) + 1}::text"
        sql = f"SELECT 1 FROM {table.sql_name} AS t WHERE {where}{exactly} LIMIT 1"
        try:
            return bool(self._all(sql, *values, *values))
        except _NO_VALUE:
            return False

    def row(self, table: Table, key: Key) -> bytes | None:
        return self._row(table, key, "")

    def _row(self, table: Table, key: Key, lock: str) -> bytes | None:
        found = self._selected(_ROW, table, key, None, lock)
        if found is None:
            return None
        if found[0] is None:
            raise TooLarge(
                f"{shown(table.name)}: a row of more than {LARGEST_ROW} bytes; the files of all rows have it"
            )
        return found[0].encode() + b"\n"

    def _find(self, table: Table, key: Key, by: tuple[str, KeyValue] | None = None) -> Sequence[Any] | None:
        return self._selected("1", table, key, by)

    def _selected(
        self, what: str, table: Table, key: Key, by: tuple[str, KeyValue] | None, lock: str = ""
    ) -> Sequence[Any] | None:  # fmt: skip
        """Return the selected parts of the row whose key is written exactly so, or None."""
        exactly, values = _exactly(table, key)
        where, more = _condition(by, len(values) + 1)
        sql = f"SELECT {what} FROM {table.sql_name} AS t WHERE {exactly} AND {where} LIMIT 1 {lock}"
        try:
            found = self._all(sql, *values, *more)
        except _NO_VALUE as error:
            if lock:  # the server goes on only with another transaction
                raise NotFound(f"no such key: {' '.join(str(error).split())}") from None
            return None
        return found[0] if found else None

    def locked_row(self, table: Table, key: Key) -> bytes | None:
        return self._row(table, key, "FOR UPDATE OF t")

    def insert(self, table: Table, key: Key, row: Row) -> None:
        by_name = json.dumps(dict(zip(table.primary_key, map(_bound, key), strict=True)))
        absent = [name for name in table.primary_key if name not in row.values]
        given = [(text, names) for text, names in ((by_name, absent), (row.text, [*row.values])) if names]
        columns = ", ".join(quoted(name) for _, names in given for name in names)
        records = ", ".join(_record(table, names, at) for at, (_, names) in enumerate(given, 1))
        self._changed(
            f"INSERT INTO {table.sql_name} ({columns}) SELECT {columns} FROM {records}", *(text for text, _ in given)
        )

    def update(self, table: Table, key: Key, row: Row, columns: Sequence[str]) -> int:
        exactly, values = _exactly(table, key)
        at = len(values) + 1
        pairs = ", ".join(f"{quoted(name)} = r{at}.{quoted(name)}" for name in columns)
        return self._changed(
            f"UPDATE {table.sql_name} AS t SET {pairs} FROM {_record(table, columns, at)} WHERE {exactly}",
            *values,
            row.text,
        )

    def delete(self, table: Table, key: Key) -> int:
        exactly, values = _exactly(table, key)
        return self._changed(f"DELETE FROM {table.sql_name} AS t WHERE {exactly}", *values)

    def _changed(self, sql: str, *values: Any) -> int:
        with RawCursor(self._connection) as cursor:
            return cursor.execute(cast(Any, sql), values).rowcount

    def commit(self) -> None:
        self._connection.commit()

    def search(self, words: str, limit: int, schemas: Sequence[str]) -> list[RowHit]:
        columns = self._all(fulltext.COLUMNS, [*schemas])
        if not columns:
            raise NotSupported("no table with a primary key has a column of type tsvector")
        if not words:
            return []
        found: list[RowHit] = []
        for schema, name, column in columns:
            table = self.table(schema, name)
            for query in fulltext.QUERIES:
                rows = self._all(fulltext.statement(table, column, query, limit), words)
                found += [RowHit(schema, name, tuple(key), score, snippet) for score, snippet, *key in rows]
                if rows:
                    break
        return sorted(found, key=lambda hit: -hit.score)[:limit]

    def query(self, name: str, sql: str, values: QueryValues, format: RowFormat, write: Write) -> None:
        # COPY takes no parameters: the values become literals here, quoted by libpq.
        statement = ClientCursor(self._connection).mogrify(cast(Any, sql), values)
        try:
            with self._connection.cursor(binary=True) as cursor:
                # By the extended protocol, which takes one statement alone: nothing can end the transaction and go on.
                cursor.execute(cast(Any, f"EXPLAIN {statement}"))
            self._copy(statement, format, write)
        except pg.DataError as error:
            if not values:
                raise
            raise wrong_value(name, error) from None


def _on_one_line(data: bytes) -> bytes:
    line = bytes(data)
    if line.startswith(b"\x01"):
        # A column of type json keeps the line breaks that were written between its tokens.
        line = line[1:-2].replace(b"\n", b" ").replace(b"\r", b" ") + b"\n"
    return line


def _record(table: Table, columns: Iterable[str], at: int) -> str:
    """Return a source of one row: some columns of a JSON object. at: the number of its value, and of the source `r…`.

    The server reads each value as its own column's type, which undoes what `row_to_json` has written. It makes no other
    column: a domain may refuse the NULL of an absent one.
    """
    types = ", ".join(f"{quoted(name)} {table.column(name).type}" for name in columns)
    return f"json_to_record(${at}::json) AS r{at}({types})"


def _exactly(table: Table, key: Key) -> tuple[str, list[Any]]:
    """Return a condition for the row whose key is written exactly so, and its values, from `$1` on."""
    conditions, values = [], []
    for column, value in zip(table.primary_key, key, strict=True):
        name, at = quoted(column), len(values) + 1
        # The first finds the row through the index; the second refuses other spellings of the same value.
        conditions.append(f"t.{name} = ${at} AND t.{name}::text = ${at + 1}::text")
        values += [_bound(value)] * 2
    return " AND ".join(conditions), values


def _condition(by: tuple[str, KeyValue] | None, at: int) -> tuple[str, list[Any]]:
    """Return a condition on one column, and its value. at: the number of the value."""
    if by is None:
        return "true", []
    if by[1] is None:
        return f"t.{quoted(by[0])} IS NULL", []
    return f"t.{quoted(by[0])} = ${at}", [_bound(by[1])]


def _bound(value: KeyValue) -> str:
    """Return a value for the server. Raises NotFound for a value that the server cannot hold."""
    if isinstance(value, str):
        return plain_text(value)
    raise NotFound(f"{shown(str(value))}: no value that PostgreSQL can have")


def plain_text(text: str) -> str:
    """Return a text that PostgreSQL can have. Raises NotFound for a zero byte, and for a text that is not UTF-8."""
    if "\0" in text or not encodable(text):
        raise NotFound(f"{shown(text)}: no text that PostgreSQL can have")
    return text
