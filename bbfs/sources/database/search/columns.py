"""The tables and columns that a search scans: those that the option `search` names, or all texts."""

import re
from collections.abc import Iterator, Sequence

from bbfs.model.errors import BbfsError
from bbfs.sources.database.backend import RemoteSession
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
    """Return a name. Raise ValueError if it is no name of a column."""
    if not _NAMED.fullmatch(name):
        raise ValueError(f"{name!r}: expected TABLE.COLUMN, SCHEMA.TABLE.COLUMN, or * for the column")
    return name


def scanned(
    session: RemoteSession, schemas: Sequence[str], option: str | Sequence[str], row_limit: int
) -> Iterator[tuple[Table, list[str]]]:
    """Yield tables with the columns to scan, `MOST_TABLES` at most. They have a primary key.

    schemas: the shown schemas. row_limit: `SCAN` passes over tables with more rows, by estimate. Raise BbfsError
    for a name that no such table has.
    """
    tables = [table for schema in schemas for table in session.tables(schema) if table.primary_key]
    wanted = [(table, _texts(table)) for table in tables] if isinstance(option, str) else _named(tables, option)
    left = MOST_TABLES
    for table, columns in wanted:
        if not columns or not left:
            continue
        known = session.table(table.schema, table.name)
        if option == SCAN and (known.estimated_rows is None or known.estimated_rows > row_limit):
            continue
        left -= 1
        yield known, columns[:MOST_COLUMNS]


def _named(tables: Sequence[Table], names: Sequence[str]) -> list[tuple[Table, list[str]]]:
    """Return the tables that some names of the option mean, each with the columns of all names."""
    found: dict[tuple[str, str], tuple[Table, list[str]]] = {}
    for name in names:
        parts = _NAMED.fullmatch(name)
        assert parts is not None
        there = False
        for table in tables:
            if parts["table"] != table.name or parts["schema"] not in (None, table.schema):
                continue
            columns = _texts(table) if parts["column"] == "*" else [parts["column"]]
            if columns and {*columns} <= {column.name for column in table.columns}:
                there = True
                _, known = found.setdefault((table.schema, table.name), (table, []))
                known += [column for column in columns if column not in known]
        if not there:
            raise BbfsError(f"search: {name!r} is no column of a table that is shown and has a primary key")
    return [*found.values()]


def _texts(table: Table) -> list[str]:
    """Return the columns whose type is a text."""
    return [column.name for column in table.columns if _TEXT.search(column.type) and not column.type.endswith("]")]
