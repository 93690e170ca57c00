"""Full-text search in a SQLite file: by its FTS5 tables over the content of tables with a primary key."""

import re
import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from bbfs.sources.database.tables import quoted

MOST_INDEXES = 50
"""FTS5 tables that one search asks."""
SNIPPET_WORDS = 24
_VIRTUAL = re.compile(r"\s*CREATE\s+VIRTUAL\s+TABLE\b.{1,2000}?\bUSING\s+fts5\s*\(", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(r"\b(content|content_rowid)\s*=\s*(?:'((?:[^']|'')*)'|\"((?:[^\"]|\"\")*)\"|(\w+))", re.IGNORECASE)


class FullTextIndex(NamedTuple):
    """An FTS5 table over another table (https://www.sqlite.org/fts5.html#external_content_tables).

    row_id: the column of `table` that is the rowid of the index.
    """

    name: str
    table: str
    row_id: str


def indexes(connection: sqlite3.Connection) -> Iterator[FullTextIndex]:
    """Yield the FTS5 tables of the main schema that have their content in another table."""
    rows = connection.execute(
        "SELECT name, substr(sql, 1, 20000) FROM main.sqlite_master WHERE type = 'table' AND sql LIKE 'create virtual%'"
    )
    for name, sql in rows.fetchmany(MOST_INDEXES):
        if not _VIRTUAL.match(sql):
            continue
        options = {
            key.lower(): one.replace("''", "'") or other.replace('""', '"') or word
            for key, one, other, word in _OPTION.findall(sql)
        }
        if options.get("content"):
            yield FullTextIndex(name, options["content"], options.get("content_rowid", "rowid"))


def statement(index: FullTextIndex, table: str, key: str) -> str:
    """Return the SQL of a search with two values: an expression and a limit. table: in SQL. key: its columns in SQL.

    The rows have the rank, the snippet, and the key.
    """
    name = quoted(index.name)
    best = (
        f"SELECT rowid AS found, rank AS score, snippet({name}, -1, '', '', '…', {SNIPPET_WORDS}) AS part"
        f" FROM main.{name} WHERE {name} MATCH ? ORDER BY rank LIMIT ?"
    )
    return (
        f"SELECT -score, part, {key} FROM ({best}) JOIN {table} AS t ON t.{quoted(index.row_id)} = found ORDER BY score"
    )


def expressions(words: list[str]) -> Iterator[str]:
    """Yield the expressions to try: all words, then any of them. Each word is a string of FTS5, which has no syntax."""
    texts = [f'"{word}"' for word in words]
    yield " AND ".join(texts)
    if len(texts) > 1:
        yield " OR ".join(texts)
