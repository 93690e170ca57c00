"""The tables and columns that a search scans: those that the option `search` names, or all texts."""

import re
from collections.abc import Iterator, Sequence

from bbfs.model.errors import NotSupported
from bbfs.sources.database.session import DatabaseSession
from bbfs.sources.database.tables import Table

SCAN = "scan"
"""The value of the option that means the texts of all tables."""
MOST_TABLES = 50
"""Tables that one search scans."""
MOST_COLUMNS = 32
"""Columns of a table that one search scans."""
_TEXT = re.compile(r"char|text|clob|string", re.IGNORECASE)
_NAMED = re.compile(r"(?:(?P<schema>[^.]+)\.)?(?P<table>[^.]+)\.(?P<column>[^.]+)", re.DOTALL)


def valid_column(name: str) -> str:
    """Return a name. Raise ValueError if it is none of a column."""
    if not _NAMED.fullmatch(name):
        raise ValueError(f"{name!r}: expected TABLE.COLUMN, SCHEMA.TABLE.COLUMN, or * for the column")
    return name


def scanned(
    session: DatabaseSession, schemas: Sequence[str], option: str | Sequence[str], row_limit: int
) -> Iterator[tuple[Table, list[str]]]:
    """Yield tables with the columns to scan, `MOST_TABLES` at most. They have a primary key.

    schemas: those that are shown. row_limit: `SCAN` passes over tables with more rows, by estimate. Raise NotSupported
    for a name that no such table has.
    """
    names = (f"*.{each}" for each in schemas) if isinstance(option, str) else option
    left = MOST_TABLES
    for name in names:
        found = list(_of_schema(session, name[2:]) if option == SCAN else _named(session, schemas, name))
        for table, columns in found:
            known = session.table(table.schema, table.name)
            if option == SCAN and (known.estimated_rows is None or known.estimated_rows > row_limit):
                continue
            if not left:
                return
            left -= 1
            yield known, columns[:MOST_COLUMNS]


def _of_schema(session: DatabaseSession, schema: str) -> Iterator[tuple[Table, list[str]]]:
    for table in session.tables(schema):
        if table.primary_key and (columns := _texts(table)):
            yield table, columns


def _named(session: DatabaseSession, schemas: Sequence[str], name: str) -> Iterator[tuple[Table, list[str]]]:
    """Yield the tables of all schemas that a name of the option means."""
    parts = _NAMED.fullmatch(name)
    assert parts is not None
    there = False
    for schema in schemas:
        if parts["schema"] not in (None, schema):
            continue
        for table in session.tables(schema):
            if table.name != parts["table"] or not table.primary_key:
                continue
            columns = _texts(table) if parts["column"] == "*" else [parts["column"]]
            if columns and {*columns} <= {column.name for column in table.columns}:
                there = True
                yield table, columns
    if not there:
        raise NotSupported(f"search: {name!r} is no column of a table that is shown and has a primary key")


def _texts(table: Table) -> list[str]:
    """Return the columns whose type is a text."""
    return [column.name for column in table.columns if _TEXT.search(column.type) and not column.type.endswith("]")]
