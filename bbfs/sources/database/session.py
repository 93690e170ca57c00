"""The interface of a database inside the process that reads it: a read-only snapshot for each request."""

from collections.abc import Sequence
from typing import Protocol

from bbfs.model.errors import BbfsError
from bbfs.sources.database.names import Key, KeyValue
from bbfs.sources.database.rendering import QueryValues, RowFormat, Write
from bbfs.sources.database.tables import RowHit, RowsPart, Schema, Table


class DatabaseSession(Protocol):
    """A read-only transaction that sees one state of the database. All methods block and raise what `fault` takes.

    `table` checks the names of a path; the other methods get the table that it returned.
    """

    def schemas(self) -> list[Schema]: ...

    def tables(self, schema: str) -> list[Table]:
        """Return the tables without their indexes. Raises NotFound for an unknown schema."""
        ...

    def table(self, schema: str, name: str, keys_only: bool = False) -> Table:
        """Return a table. keys_only: only the primary key and the indexes are needed, to find rows. Raises NotFound."""
        ...

    def definition(self, table: Table) -> str:
        """Return SQL that makes such a table."""
        ...

    def count(self, table: Table) -> int: ...

    def bounds(self, table: Table) -> tuple[int, int] | None:
        """Return the lowest and the highest part key, or None for a table without rows."""
        ...

    def next_start(self, table: Table, start: Key | None, rows: int) -> Key | None:
        """Return the key that comes so many rows after `start`, or after the first key. None: there are fewer rows."""
        ...

    def rows(self, table: Table, format: RowFormat, part: RowsPart | None, write: Write) -> None:
        """Write all rows, or those of a part in the order of its key."""
        ...

    def keys(self, table: Table, limit: int, by: tuple[str, KeyValue] | None = None) -> list[Key]:
        """Return at most `limit` primary keys, in order. by: a column, and the value that its rows must have."""
        ...

    def values(self, table: Table, column: str, limit: int) -> list[KeyValue]:
        """Return at most `limit` different values of an indexed column."""
        ...

    def has_key(self, table: Table, key: Key, by: tuple[str, KeyValue] | None = None) -> bool: ...

    def has_value(self, table: Table, column: str, value: KeyValue) -> bool: ...

    def row(self, table: Table, key: Key) -> bytes | None:
        """Return a row as a JSON object, or None."""
        ...

    def scan(self, table: Table, columns: Sequence[str], words: Sequence[str], limit: int) -> list[RowHit]:
        """Return at most `limit` rows with one of the words in these columns, whatever its case: most words first.

        It reads the whole table.
        """
        ...

    def query(self, name: str, sql: str, values: QueryValues, format: RowFormat, write: Write) -> None:
        """Write the rows of a named query. sql: with the parameters in the database's own form."""
        ...


class Database(Protocol):
    """One database in its process: one transaction at a time. It may keep its connection between two of them."""

    def begin(self) -> DatabaseSession:
        """Open a transaction. Raises BbfsError, and what `fault` takes."""
        ...

    def end(self) -> None: ...

    def fault(self, error: Exception) -> BbfsError | None:
        """Return the error of bbfs for one of the driver, or None if it is no error of the database."""
        ...


class FullTextSession(DatabaseSession, Protocol):
    """A session of a database with full-text search."""

    def search(self, words: str, limit: int, schemas: Sequence[str]) -> list[RowHit]:
        """Return at most `limit` rows, the best first. words: with spaces between them. schemas: to search in.

        Raises NotSupported if nothing there has a full-text index.
        """
        ...
