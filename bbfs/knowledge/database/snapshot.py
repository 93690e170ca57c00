"""Reads of a knowledge base: all answers of one `Snapshot` see the same state. Synchronous."""

import sqlite3
from collections.abc import Iterable

from bbfs.knowledge.database import search
from bbfs.knowledge.documents import DOCUMENT, ChangeSet, Collection, Document, Hit, MimeTotals, NotFound, document_of

_COLLECTION = """
SELECT c.id, c.name, (SELECT count(*) FROM document AS d WHERE d.collection = c.id), c.created_at, c.updated_at,
       c.version
FROM collection AS c
"""
_DOCUMENT = f"SELECT {DOCUMENT} FROM document AS d"


class Snapshot:
    """The state of a knowledge base at one moment. Valid only inside the `with` of `Store.snapshot`.

    Lists come in the order of ids; `limit` of -1 means no limit. Raises sqlite3.Error if the database fails.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def seq(self) -> int:
        """Return the number of the latest change, 0 before the first."""
        return self._connection.execute("SELECT coalesce(max(seq), 0) FROM change").fetchone()[0]

    def changed_at(self) -> str | None:
        """Return the time of the latest change."""
        row = self._connection.execute("SELECT changed_at FROM change ORDER BY seq DESC LIMIT 1").fetchone()
        return row and row[0]

    def changes_since(self, seq: int) -> ChangeSet:
        rows = self._connection.execute(
            "SELECT collection, document, listed_seq FROM change WHERE seq > ?", (seq,)
        ).fetchall()
        return ChangeSet(frozenset((row[0], row[1]) for row in rows), any(row[2] > seq for row in rows))

    def collections(self, after: str = "", limit: int = -1) -> list[Collection]:
        rows = self._connection.execute(f"{_COLLECTION} WHERE c.id > ? ORDER BY c.id LIMIT ?", (after, limit))
        return [Collection(*row) for row in rows]

    def collection(self, id: str) -> Collection:
        """Raises NotFound."""
        row = self._connection.execute(f"{_COLLECTION} WHERE c.id = ?", (id,)).fetchone()
        if row is None:
            raise NotFound(f"no collection {id!r}")
        return Collection(*row)

    def documents(self, collection: str) -> list[Document]:
        return _documents(self._connection.execute(f"{_DOCUMENT} WHERE collection = ? ORDER BY id", (collection,)))

    def all_documents(self, after: tuple[str, str] = ("", ""), limit: int = -1) -> list[Document]:
        """Return the documents of all collections behind `after`, which is (collection, document)."""
        rows = self._connection.execute(
            f"{_DOCUMENT} WHERE (collection, id) > (?, ?) ORDER BY collection, id LIMIT ?", (*after, limit)
        )
        return _documents(rows)

    def document(self, collection: str, id: str) -> Document:
        """Raises NotFound."""
        found = _documents(self._connection.execute(f"{_DOCUMENT} WHERE collection = ? AND id = ?", (collection, id)))
        if not found:
            raise NotFound(f"no document {id!r} in the collection {collection!r}")
        return found[0]

    def content(self, collection: str, id: str) -> bytes:
        """Raises NotFound."""
        row = self._connection.execute(
            "SELECT content FROM document WHERE collection = ? AND id = ?", (collection, id)
        ).fetchone()
        if row is None:
            raise NotFound(f"no document {id!r} in the collection {collection!r}")
        return row[0]

    def mime_totals(self, collection: str) -> list[MimeTotals]:
        rows = self._connection.execute(
            "SELECT mime_type, count(*), sum(size) FROM document WHERE collection = ? GROUP BY mime_type ORDER BY 1",
            (collection,),
        )
        return [MimeTotals(*row) for row in rows]

    def collection_ids(self, prefix: str, limit: int) -> tuple[list[str], int]:
        """Return the first `limit` ids of collections that begin with `prefix`, and how many there are in all."""
        return self._completions("collection WHERE substr(id, 1, length(:prefix)) = :prefix", prefix, None, limit)

    def document_ids(self, prefix: str, limit: int, collection: str | None = None) -> tuple[list[str], int]:
        """Do as `collection_ids` for the documents of one collection, or of all."""
        source = """document WHERE substr(id, 1, length(:prefix)) = :prefix
                    AND (:collection IS NULL OR collection = :collection)"""
        return self._completions(source, prefix, collection, limit)

    def search(self, query: str, collection: str | None = None, limit: int = 10) -> list[Hit]:
        """Return the best matches, best first: documents with all words of the query or, if there are none, with any.

        A query without words finds nothing. Raises NotFound for an unknown collection.
        """
        if collection is not None:
            self.collection(collection)
        return search.find(self._connection, query, collection, limit)

    def problems(self) -> dict[str, str]:
        """Return what is wrong by component (`searchIndex`)."""
        documents = self._connection.execute("SELECT count(*) FROM document").fetchone()[0]
        indexed = self._connection.execute("SELECT count(*) FROM search_docsize").fetchone()[0]
        return {} if documents == indexed else {"searchIndex": f"{indexed} of {documents} documents are indexed"}

    def _completions(self, source: str, prefix: str, collection: str | None, limit: int) -> tuple[list[str], int]:
        values = {"prefix": prefix, "collection": collection, "limit": limit}
        total: int = self._connection.execute(f"SELECT count(DISTINCT id) FROM {source}", values).fetchone()[0]
        rows = self._connection.execute(f"SELECT DISTINCT id FROM {source} ORDER BY id LIMIT :limit", values)
        return [row[0] for row in rows], total


def _documents(rows: Iterable[tuple]) -> list[Document]:
    return [document_of(row) for row in rows]
