"""Full-text search in PostgreSQL: by columns of type `tsvector` in tables with a primary key."""

from bbfs.sources.database.tables import Table, quoted

MOST_COLUMNS = 50
"""Columns of type `tsvector` that one search asks."""
_LONGEST = 20_000
"""Characters of a row that its snippet is taken from."""
_HEADLINE = 'StartSel="", StopSel="", MaxFragments=1, MaxWords=24, MinWords=8'
_TEXTS = ("text", "character varying", "character", "citext")

COLUMNS = f"""
SELECT n.nspname, c.relname, a.attname FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE a.atttypid = 'pg_catalog.tsvector'::regtype AND a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p')
  AND NOT c.relispartition AND n.nspname = ANY ($1::text[])
  AND EXISTS (SELECT 1 FROM pg_catalog.pg_constraint o WHERE o.conrelid = c.oid AND o.contype = 'p')
  AND has_table_privilege(c.oid, 'SELECT')
ORDER BY n.nspname, c.relname, a.attnum LIMIT {MOST_COLUMNS}
"""
QUERIES = ("plainto_tsquery($1)", "replace(plainto_tsquery($1)::text, '&', '|')::tsquery")
"""All words, then any of them. Neither takes anything in the text for syntax."""


def statement(table: Table, column: str, query: str, limit: int) -> str:
    """Return the SQL of a search with one value, the words. query: one of `QUERIES`.

    The rows have the rank, the snippet, and the texts of the key.
    """
    texts = [f"t.{quoted(each.name)}" for each in table.columns if each.type.partition("(")[0] in _TEXTS]
    text = f"left(concat_ws(' ', {', '.join(texts)}), {_LONGEST})" if texts else "''"
    key = ", ".join(f"t.{quoted(each)}::text" for each in table.primary_key)
    # The best are found before their headlines are made: those cost more than the search.
    best = (
        f"SELECT t.*, ts_rank(t.{quoted(column)}, q.query) AS bbfs_rank, q.query AS bbfs_query"
        f" FROM {table.sql_name} AS t, (SELECT {query} AS query) AS q WHERE t.{quoted(column)} @@ q.query"
        f" ORDER BY bbfs_rank DESC LIMIT {int(limit)}"
    )
    headline = f"ts_headline({text}, t.bbfs_query, '{_HEADLINE}')"
    return f"SELECT t.bbfs_rank, {headline}, {key} FROM ({best}) AS t ORDER BY t.bbfs_rank DESC, {key}"
