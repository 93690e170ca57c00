"""Requests that find resources."""

from dataclasses import dataclass
from typing import Literal

from bbfs.resources.commands.requests import Problem, Request


@dataclass(frozen=True, slots=True)
class Hit:
    """One hit of a search. source: its id. score: of the merged ranks; greater is better."""

    path: str
    uri: str
    source: str
    title: str
    snippet: str | None
    where: str | None
    score: float


@dataclass(frozen=True)
class Search(Request[Hit | Problem], name="search", hit=Hit, problem=Problem):
    """Search at and below some paths, or everywhere. The hits come first, the best before the others.

    within: seconds.
    """

    query: str
    paths: tuple[str, ...] = ()
    limit: int = 20
    mode: Literal["words", "meaning", "both"] = "both"
    within: float = 5.0


@dataclass(frozen=True, slots=True)
class MayMatch:
    """Paths of files that a grep must read, in the order of the tree."""

    read: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoMatch:
    """Paths of files without a match."""

    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unlisted:
    """The path of a directory that could not be listed."""

    unlisted: str
    why: str


@dataclass(frozen=True)
class Grep(Request[MayMatch | NoMatch | Unlisted], name="grep", read=MayMatch, others=NoMatch, unlisted=Unlisted):
    """Say which files a grep must read: all but those that the index knows to have no match.

    cached: trust the index also where a reader of the mount would ask the source. others: name the other files, too.
    """

    path: str
    pattern: str
    syntax: Literal["extended", "fixed", "perl"]
    ignore_case: bool = False
    cached: bool = False
    others: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a resource; the first is 1. matches: or it is there for the context."""

    number: int
    text: str
    matches: bool


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
