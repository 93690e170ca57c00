"""One transaction that writes a row.

It locks the row, compares it with the one that the writer has read, and changes the columns that differ. So no other
program can change the row between the comparison and the change.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bbfs.model.errors import Conflict, NotFound, Rejected
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.database.names import Key, KeyValue, shown
from bbfs.sources.database.tables import Table
from bbfs.sources.database.writing.rows import Row, parsed, same, stored

_WHOLE = re.compile(r"-?[0-9]{1,18}", re.ASCII)


class WritingSession(Protocol):
    """A transaction that may write. What it has not committed ends with it."""

    def has_key(self, table: Table, key: Key) -> bool: ...

    def locked_row(self, table: Table, key: Key) -> bytes | None:
        """Return a row as a JSON object, or None, and let no other program change it before the transaction ends."""
        ...

    def insert(self, table: Table, key: Key, row: Row) -> None:
        """Make a row. `key` gives the key columns that it does not have. Raise Rejected."""
        ...

    def update(self, table: Table, key: Key, row: Row, columns: Sequence[str]) -> int:
        """Replace some columns of the locked row. Return how many rows there were. Raise Rejected."""
        ...

    def delete(self, table: Table, key: Key) -> int:
        """Remove the locked row. Return how many rows there were."""
        ...

    def commit(self) -> None: ...


def change(
    session: WritingSession, table: Table, key: Key, text: str | None, exists: bool | None, version: str | None
) -> None:
    """Make, replace or remove (text: None) a row, and commit. Raise BbfsError; then nothing has changed.

    exists, version: the state that the change replaces, as in `Expected`.
    """
    old = session.locked_row(table, key)
    if exists is not None and exists != (old is not None):
        raise Conflict(f"somebody else has changed the row: it {'is gone' if old is None else 'is there'} now")
    if version is not None and (old is None or MemoryContent(old).version != version):
        raise Conflict("somebody else has changed the row")
    if text is None:
        if old is None:
            raise NotFound(f"{shown(table.name)}: no such row")
        _require_one(session.delete(table, key))
        if session.has_key(table, key):
            raise Rejected("a trigger of the database makes the removed row again")
    else:
        _store(session, table, key, parsed(text), None if old is None else stored(old))
    session.commit()


def _store(session: WritingSession, table: Table, key: Key, row: Row, old: Mapping[str, Any] | None) -> None:
    columns = [column.name for column in table.columns]
    for name in row.values:
        if name not in columns:
            raise Rejected(f"{shown(name)}: no column of {shown(table.name)}; there are {shown(', '.join(columns))}")
    other_key = f"the row would have another key than its name: {shown(', '.join(table.primary_key))}"
    if old is None:
        if any(_differs(row.values.get(name), text) for name, text in zip(table.primary_key, key, strict=True)):
            raise Rejected(other_key)  # a copy of another row: the database would say that this one is there
        session.insert(table, key, row)
    else:
        changed = [name for name, value in row.values.items() if not same(value, old.get(name))]
        for name in changed:
            if name in table.primary_key:
                raise Rejected(f"{shown(name)}: is in the name of the row, and stays; write another row instead")
        if changed:
            _require_one(session.update(table, key, row, changed))
    if not session.has_key(table, key):
        raise Rejected(other_key)


def _require_one(rows: int) -> None:
    """Raise Rejected unless a statement has changed one row. A count of 0 is no conflict, since the row is locked."""
    if not rows:
        raise Rejected("a trigger, rule or constraint of the database keeps the row as it is")
    if rows != 1:
        raise Rejected("more than one row has this key")


def _differs(value: Any, text: KeyValue) -> bool:
    """Return whether a value certainly differs from the value of a key. Only the database compares others than whole
    numbers."""
    return type(value) is int and isinstance(text, str) and _WHOLE.fullmatch(text) is not None and int(text) != value
