"""Requests that find resources."""

from dataclasses import dataclass
from typing import Literal

from bbfs.resources.commands.requests import Problem, Request


@dataclass(frozen=True, slots=True)
class Hit:
    """One hit of a search. source: its id. score: of the merged ranks; greater is better. found_by: who has it."""

    path: str
    uri: str
    source: str
    title: str
    snippet: str | None
    where: str | None
    score: float
    found_by: tuple[str, ...] = ()

    @property
    def part(self) -> str | None:
        """Where in the resource the match is, or None if the title says it: a first heading often is the title."""
        return None if self.where == self.title else self.where


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
