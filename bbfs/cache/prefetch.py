"""Which siblings to load ahead of a reader that walks through a directory. Pure: no clock, no I/O.

The signal is order: two accesses in a row that go forward in the order that readdir gave out. Random access never
opens a window, so it costs nothing; a walk opens one that doubles while it is used, as TCP and readahead do.
"""

FIRST_WINDOW = 4
REACH = 4


class Window:
    """The read-ahead state of one directory. Indices count the directory's entries in readdir order."""

    __slots__ = ("_end", "_last", "_mark", "_size", "_steps", "limit")

    def __init__(self, limit: int) -> None:
        """limit: entries that may be loaded ahead of the reader at most."""
        self.limit = limit
        self._last = -1  # the last access
        self._steps = 0  # accesses in order, up to now
        self._size = 0  # entries to keep loaded ahead of the reader
        self._mark = 0  # the first entry of the newest batch: reaching it opens the next
        self._end = 0  # the entry after the newest batch

    def access(self, index: int) -> range:
        """The indices to load ahead now that `index` is wanted (without `index` itself; possibly none)."""
        step = index - self._last
        if abs(step) > max(REACH, self._size) or (index == 0 and self._last > 0):
            self._steps = self._size = self._mark = self._end = 0  # elsewhere, or a walk that begins again
        elif step <= 0:
            return range(0)  # again, or a straggler: several readers share one walk
        self._last = index
        self._steps += 1
        if self._steps < 2 or index < self._mark:
            return range(0)
        self._size = min(self.limit, self._size * 2 or FIRST_WINDOW)
        batch = range(max(self._end, index + 1), index + 1 + self._size)
        self._mark, self._end = batch.start, max(batch.stop, batch.start)
        return batch
