"""The store of a knowledge base: one SQLite file, many readers, one writer at a time, also across processes.

Synchronous and safe to use from several threads. Every change is one transaction, in which the full-text index and the
record of changes are kept in step.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from operator import add
from pathlib import Path
from types import TracebackType
from typing import Self

from bbfs.knowledge.database import schema
from bbfs.knowledge.database.snapshot import Snapshot
from bbfs.knowledge.documents import (
    MAX_DOCUMENT_BYTES,
    ChangeSet,
    Conflict,
    Document,
    NotFound,
    Outcome,
    TooLarge,
    check_id,
    is_text,
    mime_type,
    slug,
)

READ_WITHIN = 30.0
"""Seconds for all reads of one snapshot: a search for common words may look at every document."""
_STEPS = 10_000
"""Steps of SQLite's virtual machine between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to import. source: its path below the imported folder, by which a later import knows it again."""

    source: str
    name: str
    read: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Numbers of documents that an import added, updated, left and removed."""

    added: int
    updated: int
    unchanged: int
    removed: int

    def and_also(self, other: "ImportReport") -> "ImportReport":
        """Return the numbers of both."""
        return ImportReport(*map(add, astuple(self), astuple(other)))


class Store:
    """An open knowledge base. Owns its connections; `close` it, or use it in a `with`.

    durable: a change has reached the disk when its method returns, so that it survives a power cut too.
    Raises StoreError when it cannot be opened, sqlite3.Error when the database fails later.
    """

    def __init__(
        self,
        path: Path,
        *,
        create: bool = True,
        durable: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.path = path
        self._durable = durable
        self._now = now
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        schema.prepare(path, create=create)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; those in use when their use ends."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Return a snapshot, which later writes do not change until the `with` ends.

        Its statements fail `READ_WITHIN` seconds after this call.
        """
        until = time.monotonic() + READ_WITHIN
        with self._connection() as connection, schema.reading(connection):
            connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
            try:
                yield Snapshot(connection)
            finally:
                connection.set_progress_handler(None, 0)

    def feed(self) -> "ChangeFeed":
        """Return a feed of the changes from now on, by any process."""
        return ChangeFeed(self.path)

    def put(
        self, collection: str, document: str, content: bytes, *, name: str | None = None, mime: str | None = None
    ) -> Outcome:
        """Add or replace one document, whatever version is there. Otherwise as `replace`."""
        return self.replace(collection, document, content, None, name=name, mime=mime)[0]

    def replace(
        self,
        collection: str,
        document: str,
        content: bytes,
        version: str | None,
        *,
        name: str | None = None,
        mime: str | None = None,
    ) -> tuple[Outcome, Document]:
        """Add or replace one document; create its collection if needed. Return the document as it is now.

        version: of the document that is replaced; "" if there must be none, None for any. A replaced document keeps its
        name and MIME type where none is given; a new one is named after its id. A document that is there with these
        very bytes is left: so a repeated request has no other answer. Raises Conflict, InvalidName, TooLarge.
        """
        collection, document = check_id(collection, "collection"), check_id(document, "document")
        with self._writer() as writer:
            writer.ensure_collection(collection)
            outcome = writer.put(collection, document, content, name, mime, None, version)
            return outcome, writer.snapshot.document(collection, document)

    def import_files(
        self,
        collection: str,
        files: Iterable[SourceFile],
        *,
        title: str | None = None,
        prune: bool = False,
        gone: Set[str] = frozenset(),
    ) -> ImportReport:
        """Add or update a document for each file; none if one of the files cannot be read.

        A file imported before updates its document, which keeps its id. title: the collection's name.
        prune: remove the documents of earlier imports whose files are not among `files`. gone: sources of earlier
        imports whose documents are removed in any case.
        Raises InvalidName, TooLarge, and what `SourceFile.read` raises.
        """
        collection = check_id(collection, "collection")
        counts: dict[Outcome, int] = {"added": 0, "updated": 0, "unchanged": 0}
        sources: set[str] = set()
        with self._writer() as writer:
            writer.ensure_collection(collection, title)
            for file in files:
                sources.add(file.source)
                document = writer.imported_id(collection, file.source)
                counts[writer.put(collection, document, file.read(), file.name, None, file.source)] += 1
            earlier = writer.imported(collection) if prune or gone else {}
            left = [earlier[source] for source in earlier if source not in sources and (prune or source in gone)]
            for document in left:
                writer.remove(collection, document)
        return ImportReport(**counts, removed=len(left))

    def remove(self, collection: str, document: str, version: str | None = None) -> None:
        """Remove one document. version: that it must have, None for any. Raises Conflict, NotFound, InvalidName."""
        collection, document = check_id(collection, "collection"), check_id(document, "document")
        with self._writer() as writer:
            writer.remove(collection, document, version)

    def remove_collection(self, collection: str) -> int:
        """Remove a collection; return the number of its documents. Raises NotFound, InvalidName."""
        collection = check_id(collection, "collection")
        with self._writer() as writer:
            return writer.remove_collection(collection)

    @contextmanager
    def _writer(self) -> Iterator["_Writer"]:
        with self._connection() as connection, schema.writing(connection):
            # The time is taken inside the transaction, so that a later change never has an earlier time.
            yield _Writer(connection, self._now().astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = schema.connect(self.path, durable=self._durable)
        try:
            yield connection
        finally:
            with self._lock:
                if not self._closed:
                    self._idle.append(connection)
                    connection = None
            if connection is not None:
                connection.close()


class _Writer:
    """One write transaction, made at one time; its changes share one sequence number."""

    def __init__(self, connection: sqlite3.Connection, at: str) -> None:
        self._connection = connection
        self._at = at
        self.snapshot = Snapshot(connection)
        self._seq = self.snapshot.seq() + 1

    def ensure_collection(self, collection: str, title: str | None = None) -> None:
        row = self._connection.execute("SELECT name FROM collection WHERE id = ?", (collection,)).fetchone()
        if row is None:
            self._connection.execute(
                "INSERT INTO collection VALUES (?, ?, ?, ?, ?)",
                (collection, title or collection, self._at, self._at, self._seq),
            )
            self._record(collection, "", listed=True)
        elif title is not None and row[0] != title:
            self._connection.execute("UPDATE collection SET name = ? WHERE id = ?", (title, collection))
            self._record(collection, "", listed=False)

    def put(
        self,
        collection: str,
        document: str,
        content: bytes,
        name: str | None,
        mime: str | None,
        source: str | None,
        version: str | None = None,
    ) -> Outcome:
        if len(content) > MAX_DOCUMENT_BYTES:
            raise TooLarge(
                f"{name or document!r} has more than {MAX_DOCUMENT_BYTES} bytes, which is the bound of a document"
            )
        old = self._connection.execute(
            "SELECT name, mime_type, content = ? FROM document WHERE collection = ? AND id = ?",
            (content, collection, document),
        ).fetchone()
        if old is not None and name is None:
            mime = mime or old[1]
        name = name or (document if old is None else str(old[0]))
        mime = mime or mime_type(name, content)
        if old == (name, mime, 1):
            return "unchanged"
        if version is not None:
            self._require(collection, document, version, exists=old is not None)
        self._connection.execute(
            """INSERT INTO document
                   (collection, id, name, mime_type, is_text, size, source, created_at, updated_at, content)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
               ON CONFLICT (collection, id) DO UPDATE SET name = excluded.name, mime_type = excluded.mime_type,
                   is_text = excluded.is_text, size = excluded.size, updated_at = excluded.updated_at,
                   content = excluded.content""",
            (
                *(collection, document, name, mime, is_text(mime, content), len(content)),
                *(source, self._at, self._at, content),
            ),
        )
        self._record(collection, document, listed=old is None)
        return "added" if old is None else "updated"

    def imported_id(self, collection: str, source: str) -> str:
        """Return the id of the document that `source` was imported to, or a free one for a new document."""
        row = self._connection.execute(
            "SELECT id FROM document WHERE collection = ? AND source = ?", (collection, source)
        ).fetchone()
        if row is not None:
            return row[0]
        base = slug(source)
        candidate, number = base, 1
        while self._exists(collection, candidate):
            number += 1
            candidate = f"{base}-{number}"
        return candidate

    def imported(self, collection: str) -> dict[str, str]:
        """Return the ids of documents that were imported, by their sources."""
        rows = self._connection.execute(
            "SELECT source, id FROM document WHERE collection = ? AND source IS NOT NULL ORDER BY id", (collection,)
        )
        return dict(rows.fetchall())

    def remove(self, collection: str, document: str, version: str | None = None) -> None:
        if version is not None:
            self._require(collection, document, version, exists=True)
        removed = self._connection.execute(
            "DELETE FROM document WHERE collection = ? AND id = ?", (collection, document)
        )
        if removed.rowcount == 0:
            self.snapshot.collection(collection)
            raise NotFound(f"no document {document!r} in the collection {collection!r}")
        self._record(collection, document, listed=True)

    def remove_collection(self, collection: str) -> int:
        documents = self.snapshot.documents(self.snapshot.collection(collection).id)
        for document in documents:
            self.remove(collection, document.id)
        self._connection.execute("DELETE FROM collection WHERE id = ?", (collection,))
        self._record(collection, "", listed=True)
        return len(documents)

    def _require(self, collection: str, document: str, version: str, *, exists: bool) -> None:
        """Raise Conflict unless the document has this version, or is missing for "". exists: whether it is there."""
        there = self.snapshot.document(collection, document).version if exists else ""
        if there != version:
            wanted = f"version {version!r} is to be replaced" if version else "there must be none"
            raise Conflict(
                f"the document {document!r} of {collection!r} "
                + (f"has version {there!r}; {wanted}" if there else "is not there"),
                there or None,
            )

    def _exists(self, collection: str, document: str) -> bool:
        row = self._connection.execute("SELECT 1 FROM document WHERE collection = ? AND id = ?", (collection, document))
        return row.fetchone() is not None

    def _record(self, collection: str, document: str, *, listed: bool) -> None:
        self._connection.execute(
            """INSERT INTO change VALUES (?, ?, ?, ?, ?)
               ON CONFLICT (collection, document) DO UPDATE SET seq = excluded.seq, changed_at = excluded.changed_at,
                   listed_seq = max(listed_seq, excluded.listed_seq)""",
            (collection, document, self._seq, self._seq if listed else 0, self._at),
        )
        self._connection.execute(
            "UPDATE collection SET updated_at = ?, version = ? WHERE id = ?", (self._at, self._seq, collection)
        )


class ChangeFeed:
    """The changes since it was opened. Owns a connection of its own, on which `PRAGMA data_version` tells a few
    microseconds after a commit, of whichever process, that there was one (https://www.sqlite.org/pragma.html).
    One thread at a time; `close` it.
    """

    def __init__(self, path: Path) -> None:
        self._connection = schema.connect(path)
        self._data_version = self._read_data_version()
        self._seq = Snapshot(self._connection).seq()

    def poll(self) -> ChangeSet | None:
        """Return the changes since the last call, or None. After sqlite3.Error the next call includes them."""
        data_version = self._read_data_version()
        if data_version == self._data_version:
            return None
        with schema.reading(self._connection):
            snapshot = Snapshot(self._connection)
            changes, self._seq = snapshot.changes_since(self._seq), snapshot.seq()
        self._data_version = data_version
        return changes if changes.changed else None

    def close(self) -> None:
        self._connection.close()

    def _read_data_version(self) -> int:
        return self._connection.execute("PRAGMA data_version").fetchone()[0]
