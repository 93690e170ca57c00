"""Requests that keep contents for the time when their sources are away."""

from dataclasses import dataclass
from typing import Never

from bbfs.resources.commands.requests import Problem, Request


@dataclass(slots=True)
class Fetched:
    """The counts of a fetch: files found; of them, loaded now, on disk already (present), failed, and left out (over a
    bound, or of a kind that is not kept). bytes: on disk of the loaded and present ones.
    """

    files: int = 0
    loaded: int = 0
    present: int = 0
    failed: int = 0
    left_out: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Pin(Request[Never], name="pin"):
    """Keep what is at and below some paths on disk, or do so no more (is_pinned: False)."""

    paths: tuple[str, ...]
    is_pinned: bool = True


@dataclass(frozen=True)
class Fetch(Request[Fetched | Problem], name="fetch", fetched=Fetched, problem=Problem):
    """Load the contents at and below some paths to the disk. The counts come while it goes on, and at the end.

    The work ends with its client. most_bytes, most_files: of what is loaded.
    """

    paths: tuple[str, ...]
    most_bytes: int | None = None
    most_files: int | None = None
