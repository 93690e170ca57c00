"""What is known of the schemas and tables of a database, as values. Pure."""

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema; of SQLite, an attached database. comment: as the database has it."""

    name: str
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class TableName:
    """A table in a listing. kind: `table`, `view`, `materialized view`, … estimated_rows: if the catalog says so.

    columns: their names and types.
    """

    name: str
    kind: str
    comment: str | None = None
    estimated_rows: int | None = None
    columns: tuple[tuple[str, str], ...] = ()
    primary_key: tuple[str, ...] = ()

    def properties(self, schema: str) -> dict[str, Any]:
        """What the extended attributes of its directory say."""
        return _without_none(
            {
                "schema": schema,
                "table": self.name,
                "table_kind": self.kind,
                "comment": self.comment,
                "primary_key": ", ".join(self.primary_key) or None,
                "columns": [{"name": name, "type": declared} for name, declared in self.columns],
                "estimated_rows": self.estimated_rows,
            }
        )


@dataclass(frozen=True, slots=True)
class Column:
    """A column. type: as the database writes it. default, generated: SQL expressions. identity: always, by default.

    stored: whether what is generated is stored.
    """

    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    comment: str | None = None
    generated: str | None = None
    identity: str | None = None
    stored: bool = True


@dataclass(frozen=True, slots=True)
class Index:
    """An index. columns: names, or expressions in parentheses. leading: the column by which it finds rows, if any."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    leading: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A reference to another table. schema: None where that is the table's own."""

    columns: tuple[str, ...]
    table: str
    references: tuple[str, ...]
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view with all that is known without reading a row.

    estimated_rows: never counted; None where nobody can say. identity: the backend's own handle.
    """

    schema: str
    name: str
    kind: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    indexes: tuple[Index, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    comment: str | None = None
    estimated_rows: int | None = None
    identity: Any = field(default=None, compare=False)

    def column(self, name: str) -> Column:
        """The column of this name, which the table must have."""
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
        """All of it for `columns.json`; what is not known is left out."""
        return _without_none(
            {
                "schema": self.schema,
                "table": self.name,
                "kind": self.kind,
                "comment": self.comment,
                "primaryKey": list(self.primary_key) or None,
                "columns": [
                    {
                        "name": column.name,
                        "type": column.type,
                        "nullable": column.nullable,
                        "default": column.default,
                        "generated": column.generated,
                        "identity": column.identity,
                        "comment": column.comment,
                    }
                    for column in self.columns
                ],
                "indexes": [
                    {"name": index.name, "columns": list(index.columns), "unique": index.unique}
                    for index in self.indexes
                ]
                or None,
                "foreignKeys": [
                    {
                        "columns": list(key.columns),
                        "schema": key.schema,
                        "table": key.table,
                        "references": list(key.references),
                    }
                    for key in self.foreign_keys
                ]
                or None,
            }
        )

    def properties(self) -> dict[str, Any]:
        """What the extended attributes of its directory and files say."""
        columns = tuple((column.name, column.type) for column in self.columns)
        listed = TableName(self.name, self.kind, self.comment, self.estimated_rows, columns, self.primary_key)
        indexed = {"indexed_columns": ", ".join(self.indexed)} if self.indexed else {}
        return listed.properties(self.schema) | indexed


def columns_json(table: Table) -> bytes:
    """The text of `columns.json`."""
    return (json.dumps(table.document(), indent=2, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value
