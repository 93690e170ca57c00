"""The course of a listing of many pages: when to stop, what is missing, progress for the log. Pure but for the log."""

import logging
import time
from dataclasses import dataclass
from typing import Any

from bbfs.model.values import ListingProgress

log = logging.getLogger("bbfs.mcp")

MAX_REPEATED_PAGES = 10
"""Pages in a row that only repeat earlier entries: such a server ignores the cursor."""
TOLD_EVERY = 5.0
"""Seconds between two log lines about a listing under way."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The counts of one page: all entries, those on no earlier page, and invalid ones."""

    entries: int
    new: int
    invalid: int


@dataclass(frozen=True, slots=True)
class End:
    """The end of a listing. ttl: seconds, if the server gave it. problem: what is missing."""

    ttl: float | None = None
    problem: str | None = None


class Course:
    """One listing under way."""

    def __init__(self, server_id: str, method: str) -> None:
        self.problem: str | None = None
        self._name = f"{server_id}: {method}"
        self._ttl: float | None = None
        self._seen: set[str] = set()
        self._pages = self._new = self._invalid = self._repeats = 0
        self._told = self._began = time.monotonic()
        self._end: float | None = None

    @property
    def progress(self) -> ListingProgress:
        """The progress so far."""
        until = time.monotonic() if self._end is None else self._end
        complete = self._end is not None and self.problem is None
        return ListingProgress(self._new, self._pages, until - self._began, complete)

    def count(self, taken: Taken, ttl: float | None) -> None:
        """Note a page, with the time to live (seconds) that it states."""
        self._pages += 1
        self._new += taken.new
        self._invalid += taken.invalid
        self._repeats = self._repeats + 1 if taken.entries and not taken.new else 0
        if ttl is not None:
            self._ttl = ttl if self._ttl is None else min(ttl, self._ttl)
        if time.monotonic() - self._told >= TOLD_EVERY:
            self._told = time.monotonic()
            log.info("%s: %d entries on %d pages so far", self._name, self._new, self._pages)

    def ends_at(self, cursor: Any) -> bool:
        """Return whether to stop before following a cursor; `problem` then says why."""
        if repr(cursor) in self._seen:
            self.problem = "the server repeats a page cursor: the listing may be incomplete"
        elif self._repeats == MAX_REPEATED_PAGES:
            self.problem = "the server repeats its pages: the listing may be incomplete"
        self._seen.add(repr(cursor))
        return self.problem is not None

    def end(self) -> End:
        self._end = time.monotonic()
        found = f"{self._invalid} invalid {'entry' if self._invalid == 1 else 'entries'} left out"
        problems = [found] if self._invalid else []
        problems += [self.problem] if self.problem else []
        return End(self._ttl, "; ".join(problems) or None)
