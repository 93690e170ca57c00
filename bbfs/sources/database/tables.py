"""The schemas and tables of a database as values. Pure."""

import json
from dataclasses import dataclass, field, fields
from typing import Any


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
class Table:
    """A table or view, without reading a row; in a listing without indexes and foreign keys.

    kind: `table`, `view`, `materialized view`, … estimated_rows: never counted; None where the catalog has no estimate.
    identity: the backend's own handle.
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
    identity: Any = field(default=None, compare=False)

    @property
    def sql_name(self) -> str:
        """The name in SQL."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    def column(self, name: str) -> Column:
        """Return the column of this name, which the table must have."""
        return next(column for column in self.columns if column.name == name)

    @property
    def indexed(self) -> tuple[str, ...]:
        """The columns by which rows are found through an index; of a table without a key, none.

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
    """Return the text of `columns.json`."""
    return (json.dumps(table.document(), indent=2, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def without_none(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _fields(value: Column | TableIndex | ForeignKey, *left_out: str) -> dict[str, Any]:
    return without_none(**{each.name: getattr(value, each.name) for each in fields(value) if each.name not in left_out})
