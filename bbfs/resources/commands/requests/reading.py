"""Requests that describe what is there, and what changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Never

from bbfs.resources.commands.requests import Begun, Request


@dataclass(frozen=True, slots=True)
class Entry:
    """A name of a directory, with the metadata that are known. last_modified: ISO 8601."""

    name: str
    size: int | None = None
    last_modified: str | None = None
    mime_type: str | None = None
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class Entries:
    """Some names of a directory, in their order."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class ListDirectory(Request[Entries], name="list", entries=Entries):
    """Describe the names of a directory. It may be listed for that; no content is loaded."""

    path: str


@dataclass(frozen=True, slots=True)
class Described:
    """The metadata of a path, under the names of the data model."""

    document: Mapping[str, Any]


@dataclass(frozen=True)
class Describe(Request[Described], name="describe", document=Described):
    """Describe one path as its extended attributes do. No content is loaded."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class State:
    """The state of a mount, as `.bbfs/status.json` has it. (The number of loads has those of that file in it.)"""

    state: Mapping[str, Any]


@dataclass(frozen=True)
class Status(Request[State], name="status", state=State):
    """Say how the mount is. No source is asked."""


@dataclass(frozen=True)
class Refresh(Request[Never], name="refresh"):
    """Drop all cached state at and below some paths."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """A change of one path. event: added, changed, removed; or missed, for a client that was too slow for some.

    source: its id. time: ISO 8601.
    """

    event: str
    path: str = ""
    uri: str | None = None
    source: str | None = None
    time: str | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence for people."""

    note: str


@dataclass(frozen=True)
class Watch(Request[Begun | Event | Note], name="watch", lasts=True, ok=Begun, event=Event, note=Note):
    """Report each change at and below some paths. recursive: in the directories below, too."""

    paths: tuple[str, ...]
    recursive: bool = True


@dataclass(frozen=True)
class NoteShown(Request[Begun], name="note", lasts=True, ok=Begun):
    """Note the versions that the mount shows, for a scratch that lies over it."""

    scratch: str
