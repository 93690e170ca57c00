"""The statements to DuckDB. Keys are compared with the text that DuckDB makes of them."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import duckdb

from bbfs.model.errors import Denied, NotFound, Rejected
from bbfs.sources.database.names import Key, KeyValue, shown
from bbfs.sources.database.rendering import BLOB, CHUNK, QueryValues, RowFormat, Write, write_rows
from bbfs.sources.database.session import FETCHED, CellSession, conditions, wrong_value
from bbfs.sources.database.tables import Column, ForeignKey, KeyRange, RowsPart, Schema, Table, TableIndex, quoted
from bbfs.sources.database.writing.rows import floats

READERS = {
    ".parquet": "read_parquet",
    ".csv": "read_csv",
    ".tsv": "read_csv",
    ".json": "read_json",
    ".ndjson": "read_json",
    ".jsonl": "read_json",
}
"""The functions of DuckDB that read a data file, by the end of its name."""
_BYTES = 40
"""Bytes of a row in a file of text, for an estimate of its rows."""
_HERE = "database_name = current_database()"


class DuckdbSession(CellSession):
    """One transaction on one connection.

    output: descriptor of a file for results in Parquet. files: data files, by name; then they are the only tables.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, output: int, files: Mapping[str, str] | None) -> None:
        self._connection = connection
        self._output = output
        self._has_files = files is not None
        self._files = files or {}

    def _all(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, list(values)).fetchall()

    def schemas(self) -> list[Schema]:
        found = self._all(f"SELECT schema_name, comment FROM duckdb_schemas() WHERE {_HERE} ORDER BY 1")
        return [Schema(name, comment) for name, comment in found if name not in ("information_schema", "pg_catalog")]

    def tables(self, schema: str) -> list[Table]:
        self._require(schema)
        if self._has_files:
            return [Table(schema, name, "file", ()) for name in self._files] if schema == "main" else []
        columns: dict[str, list[Column]] = {}
        sql = f"SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE {_HERE} AND schema_name = ?"
        for table, name, kind in self._all(f"{sql} ORDER BY table_name, column_index", schema):
            columns.setdefault(table, []).append(Column(name, kind))
        keys = dict(self._keys_of(schema))
        return [
            Table(schema, name, kind, tuple(columns.get(name, ())), tuple(keys.get(name, ())), (), (), comment, rows)
            for name, kind, comment, rows, _ in self._found(schema, "true")
        ]

    def _found(self, schema: str, where: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return name, kind, comment, estimate and SQL of tables and views."""
        return self._all(
            "SELECT * FROM ("
            "SELECT table_name AS name, 'table', comment, estimated_size, sql FROM duckdb_tables()"
            f" WHERE {_HERE} AND NOT internal AND schema_name = $1 UNION ALL"
            " SELECT view_name, 'view', comment, NULL, sql FROM duckdb_views()"
            f" WHERE {_HERE} AND NOT internal AND schema_name = $1) WHERE {where} ORDER BY name",
            schema,
            *values,
        )

    def _keys_of(self, schema: str) -> list[tuple[Any, ...]]:
        return self._all(
            f"SELECT table_name, constraint_column_names FROM duckdb_constraints() WHERE {_HERE} AND schema_name = ?"
            " AND constraint_type = 'PRIMARY KEY'",
            schema,
        )

    def table(self, schema: str, name: str, keys_only: bool = False) -> Table:
        if self._has_files:
            return self._file(schema, name)
        found = self._found(schema, "name = $2", name)
        if not found:
            raise NotFound(f"no table {shown(name)!r} in schema {shown(schema)!r}")
        _, kind, comment, rows, _ = found[0]
        sql = (
            "SELECT column_name, data_type, is_nullable, column_default, NULL, NULL, comment FROM duckdb_columns()"
            f" WHERE {_HERE} AND schema_name = ? AND table_name = ? ORDER BY column_index"
        )
        columns = tuple(Column(*column) for column in self._all(sql, schema, name))
        return Table(
            schema,
            name,
            kind,
            columns,
            tuple(dict(self._keys_of(schema)).get(name, ())),
            () if kind == "view" else self._indexes(schema, name, columns),
            () if keys_only else self._foreign_keys(schema, name),
            comment,
            rows,
            None if kind == "view" else "(rowid + 1)",
        )

    def _file(self, schema: str, name: str) -> Table:
        if schema != "main" or name not in self._files:
            raise NotFound(f"no file {shown(name)!r}")
        path, source = self._files[name], self._reader(name)
        is_parquet = source.startswith("read_parquet")
        described = self._all(f"DESCRIBE SELECT * FROM {source}")
        if is_parquet:
            rows = self._all("SELECT sum(num_rows)::bigint FROM parquet_file_metadata(?)", path)[0][0]
        else:
            rows = os.path.getsize(path) // _BYTES
        columns = tuple(Column(column, kind) for column, kind, *_ in described)
        key = "(file_row_number + 1)" if is_parquet else None
        return Table(schema, name, "file", columns, estimated_rows=rows, part_key=key)

    def _reader(self, name: str, *, numbered: bool = False) -> str:
        """Return the function that reads a data file. numbered: with the number of each row."""
        path = self._files[name].replace("'", "''")
        more = ", file_row_number = true" if numbered else ""
        return f"{READERS[os.path.splitext(path)[1].lower()]}('{path}'{more})"

    def _source(self, table: Table, *, numbered: bool = False) -> str:
        return self._reader(table.name, numbered=numbered) if self._has_files else table.sql_name

    def _indexes(self, schema: str, table: str, columns: Sequence[Column]) -> tuple[TableIndex, ...]:
        leading = {f"[{column.name}]": column.name for column in columns}
        sql = f"SELECT index_name, expressions, is_unique FROM duckdb_indexes() WHERE {_HERE} AND schema_name = ?"
        found = self._all(f"{sql} AND table_name = ? ORDER BY 1", schema, table)
        return tuple(
            TableIndex(name, (parts.strip("[]"),), unique, leading.get(parts)) for name, parts, unique in found
        )

    def _foreign_keys(self, schema: str, table: str) -> tuple[ForeignKey, ...]:
        found = self._all(
            "SELECT constraint_column_names, referenced_table, referenced_column_names FROM duckdb_constraints()"
            f" WHERE {_HERE} AND schema_name = ? AND table_name = ? AND constraint_type = 'FOREIGN KEY'",
            schema,
            table,
        )
        return tuple(ForeignKey(tuple(names), None, target, tuple(others)) for names, target, others in found)

    def definition(self, table: Table) -> str:
        if self._has_files:
            name = os.path.basename(table.name).replace("'", "''")
            reader = READERS[os.path.splitext(name)[1].lower()]
            return f"CREATE VIEW {quoted(table.name)} AS SELECT * FROM {reader}('{name}');\n"
        sql = f"SELECT sql FROM duckdb_indexes() WHERE {_HERE} AND schema_name = ? AND table_name = ?"
        made = [self._found(table.schema, "name = $2", table.name)[0][-1]]
        made += [index for (index,) in self._all(f"{sql} ORDER BY 1", table.schema, table.name) if index]
        return "".join(f"{each.rstrip().rstrip(';')};\n" for each in made)

    def next_start(self, table: Table, start: Key | None, rows: int) -> Key | None:
        return None  # a table or Parquet file has a number for each row; nothing else has a key

    def rows(self, table: Table, format: RowFormat, part: RowsPart | None, write: Write) -> None:
        sql = f"SELECT * FROM {self._source(table)}"
        if isinstance(part, KeyRange):
            without = " EXCLUDE (file_row_number)" if self._has_files else ""
            source = self._source(table, numbered=True)
            sql = f"SELECT *{without} FROM {source} WHERE {table.part_key} BETWEEN {part.first:d} AND {part.last:d}"
        self._write(sql, {}, format, write)

    def _write(self, sql: str, values: QueryValues, format: RowFormat, write: Write) -> None:
        if format == "parquet":
            self._write_parquet(sql, write)
            return
        cursor = self._connection.execute(sql, dict(values))
        names = [column[0] for column in cursor.description or ()]
        write_rows(names, (row for rows in iter(lambda: cursor.fetchmany(FETCHED), []) for row in rows), format, write)

    def _write_parquet(self, sql: str, write: Write) -> None:
        os.ftruncate(self._output, 0)
        # To the file itself: beside it, DuckDB may write nothing.
        options = "FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false"
        self._connection.execute(f"COPY ({sql}) TO '/proc/self/fd/{self._output}' ({options})")
        offset = 0
        while data := os.pread(self._output, CHUNK, offset):
            write(data)
            offset += len(data)
        os.ftruncate(self._output, 0)

    def keys(self, table: Table, limit: int, by: tuple[str, KeyValue] | None = None) -> list[Key]:
        parts = [quoted(column) for column in table.primary_key]
        texts = ", ".join(f"CAST({part} AS varchar)" for part in parts)
        where, values = self._where(table, [] if by is None else [by])
        sql = f"SELECT {texts} FROM {table.sql_name} WHERE {where} ORDER BY {', '.join(parts)}"
        return self._all(f"{sql} LIMIT {limit:d}", *values)

    def values(self, table: Table, column: str, limit: int) -> list[KeyValue]:
        name = quoted(column)
        sql = f"SELECT CAST({name} AS varchar) FROM {table.sql_name} GROUP BY {name} ORDER BY {name} NULLS FIRST"
        return [value for (value,) in self._all(f"{sql} LIMIT {limit:d}")]

    def has_value(self, table: Table, column: str, value: KeyValue) -> bool:
        where, values = self._where(table, [(column, value)])
        return bool(self._all(f"SELECT 1 FROM {table.sql_name} WHERE {where} LIMIT 1", *values))

    def _find(self, table: Table, key: Key, by: tuple[str, KeyValue] | None = None) -> Sequence[Any] | None:
        where, values = self._where(table, conditions(table, key, by))
        found = self._all(f"SELECT * FROM {table.sql_name} WHERE {where} LIMIT 1", *values)
        return found[0] if found else None

    def _changed(self, sql: str, *values: Any) -> int:
        return self._all(sql, *values)[0][0]

    def _where(self, table: Table, conditions: Iterable[tuple[str, KeyValue]]) -> tuple[str, list[Any]]:
        parts, values = ["true"], []
        for column, value in conditions:
            name = quoted(column)
            if value is None:
                parts.append(f"{name} IS NULL")
                continue
            if not isinstance(value, str):
                raise NotFound(f"{shown(str(value))}: no value that DuckDB can have")
            # The first finds the row through the index; the second refuses other spellings of the same value.
            parts.append(f"{name} = TRY_CAST(? AS {table.column(column).type}) AND CAST({name} AS varchar) = ?")
            values += [value, value]
        return " AND ".join(parts), values

    def _cell(self, table: Table, column: str, value: Any) -> tuple[str, Any]:
        kind = table.column(column).type
        place, bound = f"CAST(? AS {kind})", value
        if isinstance(value, dict | list):
            place, bound = f"CAST(CAST(? AS JSON) AS {kind})", json.dumps(floats(value))
        elif isinstance(value, int | Decimal) and not isinstance(value, bool):
            bound = str(value)  # all its digits
        elif kind == "INTERVAL" and isinstance(value, str):
            bound = value.replace(", ", " ")  # `2 days, 0:00:00`, as Python writes it
        elif kind == "BLOB" and isinstance(value, str) and (blob := BLOB.fullmatch(value)):
            place, bound = "unhex(?)", blob[1]
        try:
            stored = self._all(f"SELECT {place}", bound)[0][0]
        except (duckdb.Error, UnicodeEncodeError) as error:
            why = " ".join(str(error).split())
            raise Rejected(f"{shown(column)}: no value of {shown(kind)}: {shown(why)}") from None
        is_text = isinstance(stored, str) and kind != "JSON" and isinstance(value, dict | list)
        if is_text or (isinstance(stored, int) and isinstance(value, Decimal) and stored != value):
            raise Rejected(f"{shown(column)}: no value of {shown(kind)}")
        return place, bound

    def commit(self) -> None:
        """Commit, and let other processes open the file."""
        self._connection.execute("COMMIT")
        self._connection.close()

    def query(self, name: str, sql: str, values: QueryValues, format: RowFormat, write: Write) -> None:
        """Write the rows of a named query. sql: with `$name` for each of the values."""
        statements = self._connection.extract_statements(sql)
        if [each.type for each in statements] != [duckdb.StatementType.SELECT]:
            raise Denied(f"query {name}: a query must be one statement, and may only read")
        try:
            self._write(sql, values, format, write)
        except duckdb.ConversionException as error:
            if not values:
                raise
            raise wrong_value(name, error) from None
