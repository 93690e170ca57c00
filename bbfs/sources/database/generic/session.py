"""The statements to a database through SQLAlchemy alone, which writes them for the dialect."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from sqlalchemy import (
    JSON,
    Connection,
    Float,
    Integer,
    MetaData,
    Text,
    and_,
    case,
    cast,
    exc,
    false,
    func,
    inspect,
    literal,
    literal_column,
    null,
    or_,
    select,
    text,
    true,
)
from sqlalchemy import Column as SqlColumn
from sqlalchemy import Table as SqlTable
from sqlalchemy.dialects.mysql import match
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.types import TypeEngine

from bbfs.model.errors import Denied, NotFound, NotSupported, Rejected
from bbfs.model.uri import encodable
from bbfs.sources.database.generic import fulltext
from bbfs.sources.database.names import Key, KeyValue, TaggedText, shown, value_text
from bbfs.sources.database.rendering import BLOB, QueryValues, RowFormat, Write, value_as_text, write_rows
from bbfs.sources.database.search import scan
from bbfs.sources.database.session import FETCHED, Session, as_json, conditions, wrong_value
from bbfs.sources.database.tables import Column, ForeignKey, KeysBetween, RowHit, RowsPart, Schema, Table, TableIndex
from bbfs.sources.database.writing.rows import Row, floats

COUNTED = 100_001
"""Rows that are counted at most, to learn if a table is large."""
_ORDERED = (
    "VARCHAR", "CHAR", "BINARY", "VARBINARY", "UUID", "DATE", "DATETIME", "DECIMAL", "NUMERIC", "TINYINT", "SMALLINT",
    "MEDIUMINT", "INTEGER", "BIGINT",
)  # fmt: skip
"""Types of MySQL and MariaDB that comparisons order as ORDER BY does: not ENUM and SET, which are numbers there."""
_READING = re.compile(r"\s*(\(\s*)*(select|with|values|table)\b", re.IGNORECASE)
_READ: dict[type, Callable[[str], Any]] = {
    int: int,
    float: float,
    Decimal: Decimal,
    bool: lambda text: {"t": True, "f": False}[text],
    date: date.fromisoformat,
    datetime: datetime.fromisoformat,
    time: time.fromisoformat,
    UUID: UUID,
}


class GenericSession(Session):
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._inspector = inspect(connection)
        self._reflected: dict[tuple[str, str], SqlTable] = {}

    def schemas(self) -> list[Schema]:
        names = self._inspector.get_schema_names() or [self._inspector.default_schema_name or "main"]
        return [Schema(name) for name in names]

    def tables(self, schema: str) -> list[Table]:
        self._require(schema)
        kinds = dict.fromkeys(self._inspector.get_table_names(schema), "table")
        kinds |= dict.fromkeys(self._inspector.get_view_names(schema), "view")
        columns = self._inspector.get_multi_columns(schema)
        for view in [name for name, kind in kinds.items() if kind == "view"]:
            with suppress(exc.SQLAlchemyError):  # this user may read the view, but not its definition
                columns[schema, view] = self._inspector.get_columns(view, schema)
        keys = self._inspector.get_multi_pk_constraint(schema)
        return [
            Table(
                schema,
                name,
                kind,
                tuple(Column(each["name"], self._type(each["type"])) for each in columns.get((schema, name), ())),
                tuple((keys.get((schema, name)) or {}).get("constrained_columns", ())),
            )
            for name, kind in kinds.items()
        ]

    def _type(self, given: TypeEngine[Any]) -> str:
        try:
            return given.compile(self._connection.dialect)
        except exc.CompileError:
            return ""  # a type that this dialect of SQLAlchemy does not know

    def table(self, schema: str, name: str, keys_only: bool = False) -> Table:
        self._require(schema)
        if name in self._inspector.get_table_names(schema):
            kind = "table"
        elif name in self._inspector.get_view_names(schema):
            kind = "view"
        else:
            raise NotFound(f"no table {shown(name)!r} in schema {shown(schema)!r}")
        made = self._reflected[schema, name] = self._reflect(schema, name)
        indexes = sorted(made.indexes, key=lambda index: str(index.name))
        keys = made.primary_key.columns if kind == "table" else ()
        return Table(
            schema,
            name,
            kind,
            tuple(self._column(column) for column in made.columns),
            tuple(column.name for column in keys),
            tuple(
                TableIndex(
                    str(index.name), tuple(index.columns.keys()), bool(index.unique), next(iter(index.columns.keys()))
                )
                for index in indexes
                if len(index.columns)
            ),
            tuple(
                ForeignKey(
                    tuple(key["constrained_columns"]),
                    key["referred_schema"],
                    key["referred_table"],
                    tuple(key["referred_columns"]),
                )
                for key in (self._inspector.get_foreign_keys(name, schema) if kind == "table" else ())
            ),
            made.comment,
            None if keys_only or kind == "view" else self._counted(made),
            part_key=next((key.name for key in [*keys][:1] if isinstance(key.type, Integer)), None),
            range_key=tuple(key.name for key in keys) if self._is_ordered([*keys]) else (),
        )

    def _is_ordered(self, keys: "Sequence[SqlColumn[Any]]") -> bool:
        """Return whether keys are certain to be compared in the order of ORDER BY; other databases may differ there."""
        is_known = self._connection.dialect.name in ("mysql", "mariadb")
        return is_known and all(key.type.__visit_name__.upper() in _ORDERED for key in keys)

    def _reflect(self, schema: str, name: str) -> SqlTable:
        try:
            made = SqlTable(name, MetaData(), schema=schema, autoload_with=self._connection, resolve_fks=False)
        except exc.DBAPIError:
            # The names of the columns are enough to read, where this user may not see the definition of a view.
            bare = SqlTable(name, MetaData(), schema=schema)
            found = self._connection.execute(select(literal_column("*")).select_from(bare).limit(0)).keys()
            made = SqlTable(name, MetaData(), *map(SqlColumn, found), schema=schema)
        for column in made.columns:
            if isinstance(column.type, Float):
                column.type.asdecimal = False  # which would round the number to ten digits
        return made

    def _counted(self, table: SqlTable) -> int:
        """Return the number of rows, counted up to a bound: most databases have no estimate that SQLAlchemy knows."""
        some = select(literal(1)).select_from(table).limit(COUNTED).subquery()
        return self._connection.execute(select(func.count()).select_from(some)).scalar_one()

    def _sql(self, table: Table) -> SqlTable:
        """Return SQLAlchemy's table for a table that `table` has returned."""
        return self._reflected[table.schema, table.name]

    def _column(self, column: "SqlColumn[Any]") -> Column:
        default = getattr(column.server_default, "arg", None)
        return Column(
            column.name,
            self._type(column.type),
            bool(column.nullable),
            None if default is None else str(default),
            comment=column.comment,
        )

    def definition(self, table: Table) -> str:
        if table.kind == "view":
            return f"{(self._inspector.get_view_definition(table.name, table.schema) or '').strip()}\n"
        statements = [CreateTable(self._sql(table)), *map(CreateIndex, self._sql(table).indexes)]
        compiled = (str(statement.compile(dialect=self._connection.dialect)).strip() for statement in statements)
        return "".join(f"{sql};\n" for sql in compiled)

    def count(self, table: Table) -> int:
        return self._connection.execute(select(func.count()).select_from(self._sql(table))).scalar_one()

    def bounds(self, table: Table) -> tuple[int, int] | None:
        key = self._sql(table).c[table.primary_key[0]]
        lowest, highest = self._connection.execute(select(func.min(key), func.max(key))).one()
        return None if lowest is None else (int(lowest), int(highest))

    def next_start(self, table: Table, start: Key | None, rows: int) -> Key | None:
        parts = [self._sql(table).c[name] for name in table.range_key]
        between = self._between(table, KeysBetween(start, None))
        found = self._connection.execute(select(*parts).where(between).order_by(*parts).limit(1).offset(rows)).first()
        return None if found is None else tuple(map(_key_value, found))

    def _between(self, table: Table, part: KeysBetween) -> Any:
        """Return a condition that a key is in a part. MySQL finds rows by a comparison of the first column, not of a
        tuple."""
        conditions: list[Any] = [true()]
        columns = [self._sql(table).c[name] for name in table.range_key]
        for key, is_first in ((part.first, True), (part.end, False)):
            if key is None:
                continue
            bound = [_bound(column, value) for column, value in zip(columns, key, strict=True)]
            inside: Any = true() if is_first else false()
            for column, value in reversed([*zip(columns, bound, strict=True)]):
                inside = or_(column > value if is_first else column < value, and_(column == value, inside))
            conditions += [columns[0] >= bound[0] if is_first else columns[0] <= bound[0], inside]
        return and_(*conditions)

    def rows(self, table: Table, format: RowFormat, part: RowsPart | None, write: Write) -> None:
        statement = select(self._sql(table))
        if isinstance(part, KeysBetween):
            order = [self._sql(table).c[name] for name in table.range_key]
            statement = statement.where(self._between(table, part)).order_by(*order)
        elif part is not None:
            keys = [self._sql(table).c[name] for name in table.primary_key]
            statement = statement.where(keys[0].between(part.first, part.last)).order_by(*keys)
        self._write(statement, {}, format, write)

    def _write(self, statement: Any, values: QueryValues, format: RowFormat, write: Write) -> None:
        streaming = self._connection.execution_options(stream_results=True, yield_per=FETCHED)
        with streaming.execute(statement, values) as result:
            write_rows(list(result.keys()), result, format, write)

    def keys(self, table: Table, limit: int, by: tuple[str, KeyValue] | None = None) -> list[Key]:
        parts = [self._sql(table).c[name] for name in table.primary_key]
        found = self._where(select(*parts), table, [] if by is None else [by]).order_by(*parts).limit(limit)
        return [tuple(map(_key_value, row)) for row in self._connection.execute(found)]

    def values(self, table: Table, column: str, limit: int) -> list[KeyValue]:
        part = self._sql(table).c[column]
        found = select(part).distinct().order_by(part).limit(limit)
        return [_key_value(value) for (value,) in self._connection.execute(found)]

    def has_value(self, table: Table, column: str, value: KeyValue) -> bool:
        part = self._sql(table).c[column]
        found = self._where(select(part).distinct(), table, [(column, value)]).limit(9)
        return any(_key_value(known) == value for (known,) in self._found(found))

    def _found(self, statement: Any) -> Sequence[Any]:
        """Return the rows of a search by key; no row if the database refuses the value."""
        try:
            return self._connection.execute(statement).fetchall()
        except exc.DataError:
            return ()

    def _find(
        self, table: Table, key: Key, by: tuple[str, KeyValue] | None = None, lock: bool = False
    ) -> Sequence[Any] | None:
        names = [column.name for column in table.columns]
        found = self._where(select(self._sql(table)), table, conditions(table, key, by)).limit(9)
        for row in self._found(found.with_for_update() if lock else found):
            if tuple(_key_value(row[names.index(column)]) for column in table.primary_key) == key:
                return row
        return None

    def _where(self, statement: Any, table: Table, conditions: Sequence[tuple[str, KeyValue]]) -> Any:
        for column, value in conditions:
            part = self._sql(table).c[column]
            bound = _bound(part, value)
            statement = statement.where(part.is_(None) if bound is None else part == bound)
        return statement

    def locked_row(self, table: Table, key: Key) -> bytes | None:
        engine = next((value for name, value in self._sql(table).kwargs.items() if name.endswith("_engine")), "InnoDB")
        if engine != "InnoDB":
            raise NotSupported(f"{shown(table.name)}: its engine {engine} has no transactions, so it is not written")
        return as_json(table, self._find(table, key, lock=True))

    def insert(self, table: Table, key: Key, row: Row) -> None:
        columns = self._sql(table).c
        cells = {name: _bound(columns[name], value) for name, value in zip(table.primary_key, key, strict=True)}
        cells |= {name: _cell(columns[name], value) for name, value in row.values.items()}
        self._connection.execute(self._sql(table).insert().values(cells))

    def update(self, table: Table, key: Key, row: Row, columns: Sequence[str]) -> int:
        cells = {name: _cell(self._sql(table).c[name], row.values[name]) for name in columns}
        where = self._where(self._sql(table).update(), table, [*zip(table.primary_key, key, strict=True)])
        return self._connection.execute(where.values(cells)).rowcount

    def delete(self, table: Table, key: Key) -> int:
        where = self._where(self._sql(table).delete(), table, [*zip(table.primary_key, key, strict=True)])
        return self._connection.execute(where).rowcount

    def commit(self) -> None:
        self._connection.commit()

    def search(self, words: str, limit: int, schemas: Sequence[str]) -> list[RowHit]:
        there = [*fulltext.indexes(self._connection, schemas)]
        if not there:
            raise NotSupported("no table has a FULLTEXT index")
        if not words:
            return []
        found: list[RowHit] = []
        for index in there:
            table = self.table(index.schema, index.table, keys_only=True)
            if table.primary_key:
                columns = [self._sql(table).c[name] for name in index.columns]
                # In the mode for natural languages, nothing in the words is syntax.
                score = match(*columns, against=words).in_natural_language_mode()
                found += self._hits(table, columns, score, score, words.split(), limit)
        return sorted(found, key=lambda hit: -hit.score)[:limit]

    def scan(self, table: Table, columns: Sequence[str], words: Sequence[str], limit: int) -> list[RowHit]:
        parts = [cast(self._sql(table).c[name], Text) for name in columns]
        has = [or_(*(part.icontains(word, autoescape=True) for part in parts)) for word in words]
        score = sum((case((each, 1), else_=0) for each in has), literal(0))
        return self._hits(table, parts, score, or_(*has), words, limit)

    def _hits(
        self, table: Table, columns: Sequence[Any], score: Any, where: Any, words: Sequence[str], limit: int
    ) -> list[RowHit]:
        """Return the best rows of a condition, with snippets from some columns."""
        key = [self._sql(table).c[name] for name in table.primary_key]
        texts = [func.substr(column, 1, scan.LONGEST) for column in columns]
        best = select(score.label("score"), *key, *texts).where(where).order_by(score.desc(), *key).limit(limit)
        found: list[RowHit] = []
        for number, *row in self._connection.execute(best):
            said = " ".join(str(each) for each in row[len(key) :] if each is not None)
            values = tuple(map(_key_value, row[: len(key)]))
            found.append(RowHit(table.schema, table.name, values, float(number), scan.snippet(said, words)))
        return found

    def query(self, name: str, sql: str, values: QueryValues, format: RowFormat, write: Write) -> None:
        if not _READING.match(sql):
            raise Denied(f"query {name}: does not begin with SELECT or WITH; a query may only read")
        try:
            self._write(text(sql), values, format, write)
        except exc.DataError as error:
            if not values:
                raise
            raise wrong_value(name, error.orig) from None


def _key_value(value: Any) -> KeyValue:
    if value is None or isinstance(value, bytes | str):
        return value
    return bytes(value) if isinstance(value, bytearray | memoryview) else value_as_text(value)


def _bound(column: "SqlColumn[Any]", value: KeyValue) -> Any:
    """Return a value of a key in the column's type. Raises NotFound for a text that is no such value."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, TaggedText) or not encodable(value):
        raise NotFound(f"{shown(value_text(value))}: no such value")
    try:
        read = _READ.get(column.type.python_type, str)
    except (NotImplementedError, exc.SQLAlchemyError):
        read = str
    try:
        return read(value)
    except (ValueError, KeyError, InvalidOperation):
        raise NotFound(f"{shown(value)}: no value of type {column.type}") from None


def _cell(column: "SqlColumn[Any]", value: Any) -> Any:
    """Return a value in JSON in the column's type. Raise Rejected."""
    try:
        kind = column.type.python_type
    except (NotImplementedError, exc.SQLAlchemyError):
        kind = object
    if isinstance(column.type, JSON):
        return floats(value) if value is not None else null()
    fits = {str: str, bytes: str, float: int | Decimal, Decimal: int | Decimal | str, int: int, bool: int}
    wanted = fits.get(kind, str | int | Decimal)
    if value is not None and not isinstance(value, wanted):
        raise Rejected(f"{shown(column.name)}: {shown(str(value))!r} is no value of type {column.type}")
    match value:
        case str() if not encodable(value):
            raise Rejected(f"{shown(column.name)}: a text with half a character")
        case str() if kind is bytes:
            blob = BLOB.fullmatch(value)
            return bytes.fromhex(blob[1]) if blob else value.encode()
        case str() if kind in (date, datetime, Decimal):
            try:
                return _READ[kind](value)
            except (ValueError, InvalidOperation):
                raise Rejected(f"{shown(column.name)}: {shown(value)!r} is no value of type {column.type}") from None
        case Decimal() if kind is float:
            return float(value)
    return value
