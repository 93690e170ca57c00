"""Tables in Markdown, as the readers of documents write them."""

from collections.abc import Iterable, Iterator
from typing import Any


class TableWriter:
    """Writes one table, row by row. The first row with a value is its head.

    Rows without a value are left out, and so are cells without one at the end of a row.
    """

    def __init__(self) -> None:
        self._has_head = False

    def row(self, values: Iterable[Any]) -> str:
        """Return the line of a row, with the line below the head after the first one; "" for a row without a value."""
        cells = ["" if value is None else " ".join(str(value).replace("|", "\\|").split()) for value in values]
        while cells and not cells[-1]:
            cells.pop()
        if not cells:
            return ""
        line = f"| {' | '.join(cells)} |\n"
        if not self._has_head:
            line += f"|{' --- |' * len(cells)}\n"
        self._has_head = True
        return line


def table(rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """Yield the lines of a table, and an empty line after it."""
    writer = TableWriter()
    yield from map(writer.row, rows)
    yield "\n"
