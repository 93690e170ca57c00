"""The statements to a SQLite file. Values are the stored ones, whatever the type of their column."""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from cachetools import LRUCache

from bbfs.model.errors import Denied, InvalidUri, NotFound, NotSupported, Rejected
from bbfs.model.uri import encodable
from bbfs.sources.database.names import Key, KeyValue, TaggedText, shown
from bbfs.sources.database.rendering import BLOB, QueryValues, RowFormat, Write, encoded, value_as_text, write_rows
from bbfs.sources.database.search import scan
from bbfs.sources.database.session import FETCHED, CellSession, conditions
from bbfs.sources.database.sqlite import fulltext
from bbfs.sources.database.tables import (
    Column,
    ForeignKey,
    KeysBetween,
    RowHit,
    RowsPart,
    Schema,
    Table,
    TableIndex,
    quoted,
)

SMALLEST_ROW = 10
"""Bytes of a row in a table, for an estimate of rows by the size of the file."""
Affinity: TypeAlias = Literal["text", "number", "none"]
"""A column of affinity `none` may have both the number 7 and the text 7, which differ."""
_READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
_NUMBERS = re.compile("INT|REAL|FLOA|DOUB", re.IGNORECASE)
"""Types whose columns have numbers alone; `DATE` and others have the affinity of numbers and hold texts."""
_REAL = re.compile("REAL|FLOA|DOUB", re.IGNORECASE)
"""Types whose columns have floats alone, unless they have `INT` in them as well."""
_NUMERAL = re.compile(r"\s*[-+]?(?:\d++\.?\d*+|\.\d++)(?:e[-+]?\d{1,15})?\s*", re.ASCII | re.IGNORECASE)
_GENERATED = {2: "virtual", 3: "stored"}
_UNRESOLVED_KEPT = 1000


class Unresolved(LRUCache[tuple[str, str], int]):
    """The views without columns that a file has, by schema and name, with the version of their schema.

    SQLite keeps the columns of a view, but not that it has found none. Views of views take it a second each time.
    """

    def __init__(self) -> None:
        super().__init__(_UNRESOLVED_KEPT)


class SqliteSession(CellSession):
    """One transaction on one connection. unresolved: what earlier ones have found on the same file."""

    def __init__(self, connection: sqlite3.Connection, unresolved: Unresolved) -> None:
        self._connection = connection
        self._unresolved = unresolved

    def _all(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()

    def schemas(self) -> list[Schema]:
        return [Schema(name) for (name,) in self._all("SELECT name FROM pragma_database_list ORDER BY seq")]

    def tables(self, schema: str) -> list[Table]:
        self._require(schema)
        master = f"{quoted(schema)}.sqlite_master"
        rows = self._all(f"SELECT name, type FROM {master} WHERE type IN ('table', 'view') ORDER BY name")
        names = [(name, kind) for name, kind in rows if not name.startswith("sqlite_")]
        return [Table(schema, name, kind, *self._columns_and_key(schema, name)) for name, kind in names]

    def _columns_and_key(self, schema: str, table: str) -> tuple[tuple[Column, ...], tuple[str, ...]]:
        columns, key = [], {}
        for column, declared, not_null, default, position, hidden in self._described_columns(schema, table):
            if hidden != 1:  # a hidden column of a virtual table is no part of SELECT *
                columns.append(Column(column, declared, not not_null, default, generated=_GENERATED.get(hidden)))
            if position:
                key[position] = column
        return tuple(columns), tuple(key[position] for position in sorted(key))

    def _described_columns(self, schema: str, table: str) -> list[tuple[Any, ...]]:
        known = self._unresolved.get((schema, table))
        if known is not None and known == self._schema_version(schema):
            return []
        try:
            return self._all(
                "SELECT name, type, [notnull], dflt_value, pk, hidden FROM pragma_table_xinfo(?, ?)", table, schema
            )
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
        # A view of a table that is gone, or a virtual table whose module is missing.
        self._unresolved[schema, table] = self._schema_version(schema)
        return []

    def _schema_version(self, schema: str) -> int:
        version: int = self._all(f"PRAGMA {quoted(schema)}.schema_version")[0][0]
        return version

    def table(self, schema: str, name: str, keys_only: bool = False) -> Table:
        self._require(schema)
        master = f"{quoted(schema)}.sqlite_master"
        found = self._all(f"SELECT type, rootpage FROM {master} WHERE name = ? AND type IN ('table', 'view')", name)
        if not found or name.startswith("sqlite_"):
            raise NotFound(f"no table {shown(name)!r} in schema {shown(schema)!r}")
        kind, root_page = found[0]
        columns, key = self._columns_and_key(schema, name)
        computes = not root_page or any(column.generated == "virtual" for column in columns)
        row_id = None if keys_only or not root_page else self._row_id(schema, name, columns)
        return Table(
            schema,
            name,
            kind,
            columns,
            key,
            tuple(self._indexes(schema, name)),
            () if keys_only else tuple(self._foreign_keys(schema, name)),
            # A view, a generated column and a module of SQLite compute their rows; a listing must not start that.
            estimated_rows=None if keys_only or computes else self._estimate(schema, name, row_id),
            part_key=row_id,
            # Only WITHOUT ROWID is NOT NULL implied: other keys may hold NULL several times.
            range_key=key if root_page and not any(each.nullable for each in columns if each.name in key) else (),
        )

    def _indexes(self, schema: str, table: str) -> Iterator[TableIndex]:
        for name, unique, partial in self._all(
            "SELECT name, [unique], partial FROM pragma_index_list(?, ?) ORDER BY name", table, schema
        ):
            parts = self._all("SELECT name FROM pragma_index_info(?, ?) ORDER BY seqno", name, schema)
            columns = tuple("(expression)" if column is None else column for (column,) in parts)
            leading = parts[0][0] if parts and not partial else None
            yield TableIndex(name, columns, bool(unique), leading)

    def _foreign_keys(self, schema: str, table: str) -> Iterator[ForeignKey]:
        found: dict[int, list[tuple[str, str, str | None]]] = {}
        sql = 'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?, ?) ORDER BY id, seq'
        for number, target, column, reference in self._all(sql, table, schema):
            found.setdefault(number, []).append((target, column, reference))
        for parts in found.values():
            references = tuple(reference for _, _, reference in parts if reference is not None)
            yield ForeignKey(tuple(column for _, column, _ in parts), None, parts[0][0], references)

    def _row_id(self, schema: str, name: str, columns: Sequence[Column]) -> str | None:
        """Return a name of the rowid that no column has, or None for a table without rowids."""
        taken = {column.name.lower() for column in columns}
        row_id = next((alias for alias in ("rowid", "_rowid_", "oid") if alias not in taken), None)
        if row_id is not None:
            try:
                self._all(f"SELECT {row_id} FROM {quoted(schema)}.{quoted(name)} LIMIT 0")
            except sqlite3.OperationalError as error:
                if "no such column" not in str(error):
                    raise
                return None  # WITHOUT ROWID
        return row_id

    def _estimate(self, schema: str, name: str, row_id: str | None) -> int:
        """Return an estimate of the rows by the last rowid and the size of the file."""
        pages = self._all(f"PRAGMA {quoted(schema)}.page_count")[0][0]
        size = pages * self._all(f"PRAGMA {quoted(schema)}.page_size")[0][0]
        most = size // SMALLEST_ROW
        if row_id is None:
            return most
        found = self._all(f"SELECT max({row_id}) FROM {quoted(schema)}.{quoted(name)}")[0][0]
        return min(most, found) if isinstance(found, int) and found > 0 else 0 if found is None else most

    def definition(self, table: Table) -> str:
        rows = self._all(
            f"SELECT sql FROM {quoted(table.schema)}.sqlite_master WHERE tbl_name = ? AND sql IS NOT NULL"
            " ORDER BY type NOT IN ('table', 'view'), type, name",
            table.name,
        )
        return "".join(f"{sql};\n" for (sql,) in rows)

    def bounds(self, table: Table) -> tuple[int, int] | None:
        key, name = table.part_key, table.sql_name
        # SQLite answers each of the two at once, but reads all rows for both.
        lowest, highest = self._all(f"SELECT (SELECT min({key}) FROM {name}), (SELECT max({key}) FROM {name})")[0]
        return None if lowest is None else (lowest, highest)

    def next_start(self, table: Table, start: Key | None, rows: int) -> Key | None:
        parts = ", ".join(map(quoted, table.range_key))
        where, values = _between(table, KeysBetween(start, None))
        sql = f"SELECT {parts} FROM {table.sql_name} WHERE {where} ORDER BY {parts} LIMIT 1 OFFSET ?"
        found = self._all(sql, *values, rows)
        return tuple(map(key_value, found[0], _affinities(table))) if found else None

    def rows(self, table: Table, format: RowFormat, part: RowsPart | None, write: Write) -> None:
        sql, key, values = f"SELECT {_columns(table)} FROM {table.sql_name}", table.part_key, []
        if isinstance(part, KeysBetween):
            where, values = _between(table, part)
            sql += f" WHERE {where} ORDER BY {', '.join(map(quoted, table.range_key))}"
        elif part is not None:
            sql += f" WHERE {key} BETWEEN {part.first:d} AND {part.last:d} ORDER BY {key}"
        self._write(sql, values, format, write)

    def _write(self, sql: str, values: Mapping[str, Any] | Sequence[Any], format: RowFormat, write: Write) -> None:
        cursor = self._connection.execute(sql, values)
        if cursor.description is None:
            raise Denied("the statement gives no rows; a query may only read")
        cursor.arraysize = FETCHED
        write_rows([column[0] for column in cursor.description], cursor, format, write)

    def keys(self, table: Table, limit: int, by: tuple[str, KeyValue] | None = None) -> list[Key]:
        parts = ", ".join(map(quoted, table.primary_key))
        where, values = self._where(table, [] if by is None else [by])
        rows = self._all(f"SELECT {parts} FROM {table.sql_name} WHERE {where} ORDER BY {parts} LIMIT ?", *values, limit)
        affinities = _affinities(table)
        return [tuple(map(key_value, row, affinities)) for row in rows]

    def values(self, table: Table, column: str, limit: int) -> list[KeyValue]:
        name, source = quoted(column), table.sql_name
        # From each value to the next through the index: DISTINCT would go through all of it.
        rows = self._all(
            f"WITH RECURSIVE v(x) AS (SELECT min({name}) FROM {source} UNION ALL"
            f" SELECT (SELECT min({name}) FROM {source} WHERE {name} > v.x) FROM v WHERE v.x IS NOT NULL)"
            " SELECT x FROM v WHERE x IS NOT NULL LIMIT ?",
            limit,
        )
        if self._all(f"SELECT 1 FROM {source} WHERE {name} IS NULL LIMIT 1"):
            rows.insert(0, (None,))
        affinity = _affinity(table, column)
        return [key_value(value, affinity) for (value,) in rows[:limit]]

    def has_value(self, table: Table, column: str, value: KeyValue) -> bool:
        where, values = self._where(table, [(column, value)])
        sql = f"SELECT DISTINCT {quoted(column)} FROM {table.sql_name} WHERE {where} COLLATE BINARY LIMIT 9"
        affinity = _affinity(table, column)
        return any(key_value(found, affinity) == value for (found,) in self._all(sql, *values))

    def _find(self, table: Table, key: Key, by: tuple[str, KeyValue] | None = None) -> Sequence[Any] | None:
        where, values = self._where(table, conditions(table, key, by))
        affinities = _affinities(table)
        parts = ", ".join(map(quoted, table.primary_key))
        for row in self._all(f"SELECT {parts}, {_columns(table)} FROM {table.sql_name} WHERE {where} LIMIT 9", *values):
            if tuple(map(key_value, row, affinities)) == key:
                return row[len(affinities) :]
        return None

    def _where(self, table: Table, conditions: Iterable[tuple[str, KeyValue]]) -> tuple[str, list[Any]]:
        parts, values = ["true"], []
        for column, value in conditions:
            placeholder, bound = _bound(table, column, value)
            parts.append(f"{quoted(column)} IS {placeholder}")
            values.append(bound)
        return " AND ".join(parts), values

    def _part(self, table: Table, column: str, value: KeyValue) -> tuple[str, Any]:
        return _bound(table, column, value)

    def _cell(self, table: Table, column: str, value: Any) -> tuple[str, Any]:
        declared = table.column(column).type
        about = f"{shown(column)} ({declared or 'no type'})"
        if table.column(column).generated:
            raise Rejected(f"{about}: a generated column, which is never written")
        kind = _affinity(table, column)
        is_real = kind == "number" and "INT" not in declared.upper() and _REAL.search(declared) is not None
        match value:
            case int() if not -(1 << 63) <= value < 1 << 63:
                raise Rejected(f"{about}: {shown(str(value))} has more than 64 bits")
            case dict() | list():
                raise Rejected(f"{about}: SQLite has no objects and lists; write them as a text")
            case Decimal() if kind == "text":
                return "?", str(value)  # SQLite would write fifteen digits of it
            case Decimal():
                return "?", _as_number(value, kind == "none" or is_real, about)
            case int() if is_real:
                return "?", _as_number(value, True, about)
            case str():
                if not encodable(value):
                    raise Rejected(f"{about}: a text with half a character")
                if kind == "none" and (blob := BLOB.fullmatch(value)):
                    return "?", bytes.fromhex(blob[1])
                if _NUMBERS.search(declared) and kind == "number":
                    raise Rejected(f"{about}: {shown(value)!r} is no number")
                if self._converts(table, column) and _NUMERAL.fullmatch(value):  # SQLite would make a number of it
                    return "?", _as_number(Decimal(value), False, about)
        return "?", value

    def _converts(self, table: Table, column: str) -> bool:
        """Return whether SQLite makes a number of a text that is stored in a column."""
        if table.column(column).type.upper() != "ANY":
            return _affinity(table, column) == "number"
        rows = self._all(f"PRAGMA {quoted(table.schema)}.table_list({quoted(table.name)})")
        return not any(is_strict for *_, is_strict in rows)

    def _changed(self, sql: str, *values: Any) -> int:
        return self._connection.execute(sql, values).rowcount

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def search(self, words: str, limit: int, schemas: Sequence[str]) -> list[RowHit]:
        found: list[RowHit] = []
        there = [each for each in fulltext.indexes(self._connection) if "main" in schemas]
        if not there:
            raise NotSupported("no FTS5 table of this file has its content in another table")
        if not words:
            return []
        for index in there:
            table = self.table("main", index.table, keys_only=True)
            if table.primary_key:
                found += self._matching(index, table, words.split(), limit)
        return sorted(found, key=lambda hit: -hit.score)[:limit]

    def _matching(self, index: fulltext.FullTextIndex, table: Table, words: list[str], limit: int) -> list[RowHit]:
        affinities = _affinities(table)
        sql = fulltext.statement(index, table.sql_name, ", ".join(f"t.{quoted(part)}" for part in table.primary_key))
        for expression in fulltext.expressions(words):
            rows = self._all(sql, expression, limit)
            if rows:
                return [
                    RowHit(table.schema, table.name, tuple(map(key_value, key, affinities)), score, str(snippet or ""))
                    for score, snippet, *key in rows
                ]
        return []

    def scan(self, table: Table, columns: Sequence[str], words: Sequence[str], limit: int) -> list[RowHit]:
        # A blob as well: whether LIKE takes one for a text depends on how SQLite was built.
        text = " || ' ' || ".join(f"coalesce(CAST({quoted(column)} AS text), '')" for column in columns)
        places = [f"?{number}" for number in range(1, len(words) + 1)]
        key = [quoted(column) for column in table.primary_key]
        sql = scan.statement(table.sql_name, text, key, "LIKE", places, limit)
        affinities = _affinities(table)
        return [
            RowHit(table.schema, table.name, tuple(map(key_value, parts, affinities)), score, scan.snippet(text, words))
            for score, text, *parts in self._all(sql, *map(scan.pattern, words))
        ]

    def query(self, name: str, sql: str, values: QueryValues, format: RowFormat, write: Write) -> None:
        """Write the rows of a named query. sql: with `:name` for each of the values."""
        made = {
            key: value if value is None or isinstance(value, int | str) else value_as_text(value)
            for key, value in values.items()
        }
        refused = False

        def only_reading(action: int, *_: Any) -> int:
            nonlocal refused
            refused = refused or action not in _READING
            return sqlite3.SQLITE_DENY if action not in _READING else sqlite3.SQLITE_OK

        self._connection.set_authorizer(only_reading)
        try:
            self._write(sql, made, format, write)
        except OverflowError:
            raise InvalidUri(f"query {name}: a number of more than 64 bits, which SQLite does not take") from None
        except sqlite3.Error as error:
            if refused:
                raise Denied(f"query {name}: {error}; the source is read-only, and a query may only read") from None
            raise


def _columns(table: Table) -> str:
    return ", ".join(quoted(column.name) for column in table.columns)


def _between(table: Table, part: KeysBetween) -> tuple[str, list[Any]]:
    """Return a condition that a key is in a part, and the values to bind. Each column is compared by its collation."""
    parts, values = ["true"], []
    for comparison, key in ((">=", part.first), ("<", part.end)):
        if key is not None:
            bound = [_bound(table, column, value) for column, value in zip(table.range_key, key, strict=True)]
            placeholders = ", ".join(placeholder for placeholder, _ in bound)
            parts.append(f"({', '.join(map(quoted, table.range_key))}) {comparison} ({placeholders})")
            values += [value for _, value in bound]
    return " AND ".join(parts), values


def _bound(table: Table, column: str, value: KeyValue) -> tuple[str, Any]:
    """Return the placeholder for a value of a column, and the value to bind."""
    bound = stored(value, _affinity(table, column))
    if isinstance(bound, str) and not encodable(bound):
        return "CAST(? AS text)", encoded(bound)
    return "?", bound


def _affinities(table: Table) -> list[Affinity]:
    """Return the affinities of the columns of the primary key."""
    return [_affinity(table, column) for column in table.primary_key]


def _affinity(table: Table, column: str) -> Affinity:
    """Return the affinity of a column, by its declared type (sqlite.org/datatype3.html, section 3.1).

    `ANY` counts as `none`, which it has in a STRICT table: in any other, no text that is there looks like a number.
    """
    declared = table.column(column).type.upper()
    if "INT" in declared:
        return "number"
    if any(part in declared for part in ("CHAR", "CLOB", "TEXT")):
        return "text"
    return "none" if declared in ("", "ANY") or "BLOB" in declared else "number"


def _as_number(number: int | Decimal, is_real: bool, about: str) -> int | float:
    """Return the value that is stored for a number. Raise Rejected if that is another number, not only another text.

    is_real: whether it is a float even for a whole number. The texts of a float are its own digits, the fewest that
    mean it, and the seventeen that many programs print.
    """
    if not is_real and -(1 << 63) <= number < 1 << 63 and number == int(number):
        return int(number)
    found = float(number)
    if found != number and number not in (Decimal(repr(found)), Decimal(f"{found:.16e}")):
        raise Rejected(f"{about}: {shown(str(number))} would be stored as {found!r}")
    return found


def key_value(value: Any, affinity: Affinity) -> KeyValue:
    """Return the value of a key for a stored value."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return TaggedText(value) if affinity == "none" and _number(value) is not None else value
    return value_as_text(value)


def stored(value: KeyValue, affinity: Affinity) -> Any:
    """Return the stored value for a value of a key."""
    if isinstance(value, TaggedText):
        return value.text
    if isinstance(value, str) and affinity != "text":
        number = _number(value)
        return value if number is None else number
    return value


def _number(text: str) -> int | float | None:
    """Return the number that SQLite would write as this text, or None."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if value_as_text(number) == text and (kind is float or -(1 << 63) <= number < 1 << 63):
            return number
    return None
