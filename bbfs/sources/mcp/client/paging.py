"""The course of a listing of many pages: when to stop, what is missing, progress for the log.

Machines share pages as JSON arrays of entries, compressed (zlib, RFC 1950). The entries are as the server said them, so
that the machine that takes them decodes and bounds them as a server's.
"""

import json
import logging
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import trio

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.model.values import ListingProgress
from bbfs.sources.bounded.json import JsonBounds, parse_json
from bbfs.sources.bounded.turns import freeze, let_go

log = logging.getLogger("bbfs.mcp")

MAX_REPEATED_PAGES = 10
"""Pages in a row that bring nothing new: such a server ignores the cursor, or has no end."""
TOLD_EVERY = 5.0
"""Seconds between two log lines about a listing under way."""
_ENTRIES_AT_ONCE = 500
"""Entries of a page that are decoded before other tasks run, at most: plain ones take about 2 ms."""
_ENTRIES_FIRST = 20
_DECODE_FOR = 0.003
"""Seconds that other tasks may wait for entries: those with large data are decoded a few at a time."""
ENTRIES = 1000
"""Entries of a shared page at most."""
BOUNDS = JsonBounds(size=8 << 20, values=200_000)
"""Of a shared page: about 200 values and 8 KiB an entry."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The counts of one page: entries that are on no earlier page, and invalid ones. bytes: of memory, roughly."""

    new: int
    invalid: int
    bytes: int


@dataclass(frozen=True, slots=True)
class End:
    """The end of a listing. ttl: seconds, if the server gave it. problem: what is missing."""

    ttl: float | None = None
    problem: str | None = None


Take = Callable[[Sequence[Any]], Taken]
"""Takes some entries of a page."""


class Course:
    """One listing under way. limit: its entries. size: bytes of memory for them. option: that sets the limits."""

    def __init__(self, server_id: str, method: str, limit: int, size: int, option: str = "") -> None:
        self.problem: str | None = None
        self.first = _ENTRIES_FIRST
        """Entries that are decoded before the time for them is known."""
        self.name = f"{server_id}: {method}"
        self._ttl: float | None = None
        self._limit, self._size = limit, size
        self._cut = f"{f' (option {option})' if option else ''}: the listing is incomplete"
        self._seen: set[int] = set()
        self._pages = self._new = self._invalid = self._repeats = self._bytes = 0
        self._before = 0
        self._told = self._began = time.monotonic()
        self._end: float | None = None

    @property
    def progress(self) -> ListingProgress:
        """The progress so far."""
        until = time.monotonic() if self._end is None else self._end
        complete = self._end is not None and self.problem is None
        return ListingProgress(self._new, self._pages, until - self._began, complete)

    def take(self, taken: Taken) -> bool:
        """Note a part of a page; return whether there is room for more. If not, `problem` says which bound is hit."""
        self._new += taken.new
        self._invalid += taken.invalid
        self._bytes += taken.bytes
        if self._new >= self._limit:
            self.problem = f"the server lists {self._limit} entries or more{self._cut}"
        elif self._bytes >= self._size:
            self.problem = f"the server's entries take {self._size} bytes or more{self._cut}"
        return self.problem is None

    def turn(self, ttl: float | None) -> None:
        """Note the end of a page, with the time to live (seconds) that it states."""
        self._pages += 1
        self._repeats = self._repeats + 1 if self._new == self._before else 0
        self._before = self._new
        if ttl is not None:
            self._ttl = ttl if self._ttl is None else min(ttl, self._ttl)
        if time.monotonic() - self._told >= TOLD_EVERY:
            self._told = time.monotonic()
            log.info("%s: %d entries on %d pages so far", self.name, self._new, self._pages)

    def ends_at(self, cursor: str | int) -> bool:
        """Return whether to stop before following a cursor; `problem` then says why."""
        if self.problem is not None:
            return True
        if hash(cursor) in self._seen:
            self.problem = "the server repeats a page cursor: the listing may be incomplete"
        elif self._repeats == MAX_REPEATED_PAGES:
            self.problem = "the server repeats its pages: the listing may be incomplete"
        self._seen.add(hash(cursor))
        return self.problem is not None

    def end(self) -> End:
        self._end = time.monotonic()
        found = f"{self._invalid} invalid {'entry' if self._invalid == 1 else 'entries'} left out"
        problems = [found] if self._invalid else []
        problems += [self.problem] if self.problem else []
        return End(self._ttl, "; ".join(problems) or None)


def packed(entries: Sequence[Any]) -> Iterator[bytes]:
    """Yield pages of all entries. Raises TooLarge for entries that no machine would unpack."""
    for start in range(0, len(entries), ENTRIES):
        some = entries[start : start + ENTRIES]
        text = json.dumps(some, separators=(",", ":")).encode()
        if len(text) > BOUNDS.size:
            raise TooLarge(f"{len(some)} entries of {len(text)} bytes")
        yield zlib.compress(text, 1)


def unpacked(page: bytes) -> list[Any]:
    """Return the entries of a page. Raises ProtocolViolation, and TooLarge for a page beyond `BOUNDS`."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(page, BOUNDS.size + 1)
    except zlib.error as error:
        raise ProtocolViolation(f"no page of a listing: {error}") from error
    if not unpacking.eof and len(text) <= BOUNDS.size:
        raise ProtocolViolation("no page of a listing: it is cut off")
    entries = parse_json(text, BOUNDS)
    if not isinstance(entries, list):
        raise ProtocolViolation("no page of a listing: no JSON array")
    return entries


async def taken(course: Course, raw: Sequence[Any], take: Take) -> None:
    """Pass the entries of a page to `take` in pieces that hold up no other task, within the bounds."""
    freeze(len(raw))
    start, at_once = 0, course.first
    while start < len(raw):
        began = time.perf_counter()
        if not course.take(take(raw[start : start + at_once])):
            break
        start += at_once
        fitting = at_once * _DECODE_FOR / max(time.perf_counter() - began, 1e-9)
        at_once = max(1, min(_ENTRIES_AT_ONCE, 4 * at_once, int(fitting)))
        await trio.lowlevel.checkpoint()


def drop(raw: list[Any]) -> None:
    """Free the entries of a page that nothing uses any more; those of a long one in turns with other tasks."""
    if len(raw) > ENTRIES:
        let_go(raw)
