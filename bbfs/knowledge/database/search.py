"""Full-text search. A query is words to look for, never the syntax of FTS5."""

import re
import sqlite3
import unicodedata
from collections.abc import Iterator
from itertools import islice

from bbfs.knowledge.documents import DOCUMENT, Hit, document_of

_MAX_TERMS = 32
_SNIPPET_TOKENS = 24

# The best are found before their contents are read: a common word may be in all documents.
_MATCH = f"""
WITH best AS (
    SELECT d.key, -bm25(search, 4.0, 1.0) AS score
    FROM search JOIN document AS d ON d.key = search.rowid
    WHERE search MATCH :expression AND (:collection IS NULL OR d.collection = :collection)
    ORDER BY score DESC, d.collection, d.id
    LIMIT :limit
)
SELECT {DOCUMENT}, best.score, snippet(search, 1, '**', '**', '…', :tokens)
FROM best JOIN document AS d ON d.key = best.key JOIN search ON search.rowid = best.key
WHERE search MATCH :expression
ORDER BY best.score DESC, d.collection, d.id
"""


def expressions(query: str) -> Iterator[str]:
    """Return the FTS5 expressions to try for a query: all its words, then any; none for a query without words.

    Each word is a quoted string (https://www.sqlite.org/fts5.html#fts5_strings) of letters and digits.
    """
    words = islice(re.finditer(r"[^\W_]+", unicodedata.normalize("NFC", query)), _MAX_TERMS)
    quoted = [f'"{word}"' for word in dict.fromkeys(found[0] for found in words)]
    if quoted:
        yield " AND ".join(quoted)
    if len(quoted) > 1:
        yield " OR ".join(quoted)


def find(connection: sqlite3.Connection, query: str, collection: str | None, limit: int) -> list[Hit]:
    """Return the best matches of the first expression that has any."""
    for expression in expressions(query):
        values = {"expression": expression, "collection": collection, "limit": limit, "tokens": _SNIPPET_TOKENS}
        rows = connection.execute(_MATCH, values).fetchall()
        if rows:
            return [Hit(document_of(row[:10]), round(row[10], 6), row[11] or None) for row in rows]
    return []
