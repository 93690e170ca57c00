"""How a listing of many pages goes on and ends: what is missing, and progress for the log. Pure but for the log."""

import logging
import time
from dataclasses import dataclass
from typing import Any

from bbfs.model.values import ListingProgress

log = logging.getLogger("bbfs.mcp")

MAX_REPEATED_PAGES = 10
"""Pages in a row with nothing but what was on earlier ones: such a server does not look at the cursor."""
TOLD_EVERY = 5.0
"""Seconds between two lines of the log about a listing under way."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a page brought: entries in all, those that were on no earlier page, and those that are invalid."""

    entries: int
    new: int
    invalid: int


@dataclass(frozen=True, slots=True)
class End:
    """How a listing ended. ttl: seconds, where the server gave it; problem: what is missing."""

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
        """As far as it has come."""
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
        """Whether there is no point in following a cursor; `problem` says why then."""
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
