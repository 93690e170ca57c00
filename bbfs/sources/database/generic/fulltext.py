"""Full-text search in MySQL and MariaDB: by FULLTEXT indexes of tables with a primary key."""

from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, text

MOST_INDEXES = 50
"""Indexes that one search asks."""
_COLUMNS = text(
    "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS"
    " WHERE INDEX_TYPE = 'FULLTEXT' AND TABLE_SCHEMA IN :schemas"
    " ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX LIMIT 1000"
).bindparams(bindparam("schemas", expanding=True))


class FullTextIndex(NamedTuple):
    """A FULLTEXT index. A search has to name just its columns."""

    schema: str
    table: str
    columns: Sequence[str]


def indexes(connection: Connection, schemas: Sequence[str]) -> Iterable[FullTextIndex]:
    """Return the FULLTEXT indexes of some schemas. (The catalog has only those of tables that the user may read.)"""
    rows = connection.execute(_COLUMNS, {"schemas": [*schemas]}).tuples()
    found = groupby(rows, key=lambda row: (row[0], row[1], row[2]))
    made = (FullTextIndex(schema, table, [row[3] for row in parts]) for (schema, table, _), parts in found)
    return islice(made, MOST_INDEXES)
