"""The differences that a watch reports, and its scope. Pure."""

from dataclasses import dataclass
from typing import Literal

from bbfs.resources.catalog.record import Path

Event = Literal["added", "changed", "removed"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference of one resource. path: from the mount's root; at: seconds since the epoch; source: its id."""

    event: Event
    path: Path
    uri: str
    at: float
    source: str


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a watch: one file, the entries of a directory, or everything below it."""

    path: Path
    single: bool
    recursive: bool = True

    def covers(self, path: Path) -> bool:
        depth = len(self.path)
        if self.single or path[:depth] != self.path:
            return path == self.path
        return self.recursive or len(path) == depth + 1
