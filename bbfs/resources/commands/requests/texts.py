"""Requests that read texts: for their lines, and for the index."""

from dataclasses import dataclass

from bbfs.resources.commands.requests import Problem, Request


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a resource; the first is 1. matches: or it is there for the context.

    begin: the character of the line that the text begins with, from 0; the text is a part of a long line. match: the
    character that the first match begins with, as far as it is known.
    """

    number: int
    text: str
    matches: bool
    begin: int = 0
    match: int = 0


@dataclass(frozen=True, slots=True)
class Matched:
    """The lines of one resource. name: its file name, if it has no title."""

    uri: str
    name: str
    title: str | None
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Match(Request[Matched | Problem], name="match", matched=Matched, problem=Problem):
    """Match a pattern against the resources at and below a path. limit: lines at most, without their context."""

    path: str
    pattern: str
    ignore_case: bool = False
    fixed: bool = False
    context: int = 0
    limit: int = 50


@dataclass(slots=True)
class Walked:
    """The counts of a walk: listed resources; of them, unchanged, to load, loaded, left out (no text, or too large),
    failed; documents removed from the index; and the stated bytes of those to load.
    """

    resources: int = 0
    unchanged: int = 0
    to_load: int = 0
    loaded: int = 0
    left_out: int = 0
    failed: int = 0
    removed: int = 0
    bytes: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Index(Request[Walked], name="index", indexed=Walked):
    """Index the texts of a source that have changed. The counts come while it goes on, and at the end.

    The work ends with its client. The next walk goes on where one was interrupted, also by a kill.
    """

    source: str
    dry_run: bool = False
