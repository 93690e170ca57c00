"""The requests of commands, and their answers: one table for every way to ask.

`answers` answers the requests in the process that has opened the sources. A daemon answers them over its control
socket: a request is one JSON object there, and so is each answer. `bbfs.fuse.control.server` describes the connection.

    {"id": 1, "request": "search", "query": "renew the certificate", "paths": ["mcp-server+docs"], "limit": 20}
    {"id": 1, "hit": {"path": …, "uri": …, "source": "docs", "title": …, "score": 0.03}}
    {"id": 1, "problem": "cannot be searched: notes (no search of their own, not indexed)"}
    {"id": 1, "ok": true}

Fields have their names in camel case. The class of an answer is told by its key; the fields of a class that has a field
of that name stand beside it, those of any other class in an object below it. Paths are texts with slashes, from the
mount's root and without symbolic links.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, Never, TypeVar

from bbfs.model.calls import Progress, Tool
from bbfs.model.errors import NameTooLong, Rejected
from bbfs.model.uri_paths import MAX_DEPTH
from bbfs.model.values import Expected
from bbfs.resources.commands.encoding import decoded, encoded

A = TypeVar("A", covariant=True)
T = TypeVar("T")


class Request(Generic[A]):
    """A request with answers of type `A`.

    name: in messages. answers: their classes by their keys. lasts: the request goes on until its client leaves, and
    `Begun` is among its answers. changes: it may change a source.
    """

    name: ClassVar[str]
    answers: ClassVar[Mapping[str, type[Any]]]
    lasts: ClassVar[bool]
    changes: ClassVar[bool]

    def __init_subclass__(cls, name: str, lasts: bool = False, changes: bool = False, **answers: type[Any]) -> None:
        cls.name, cls.answers, cls.lasts, cls.changes = name, answers, lasts, changes


@dataclass(frozen=True, slots=True)
class Replies(Generic[T]):
    """Takes the answers to one request. give: waits until the client has room.

    tell: for progress and changes. It never waits, and a slow client misses some.
    """

    give: Callable[[T], Awaitable[None]]
    tell: Callable[[T], None]


@dataclass(frozen=True, slots=True)
class Begun:
    """From now on nothing is missed."""

    ok: bool = True


@dataclass(frozen=True, slots=True)
class Problem:
    """A sentence about what the other answers may lack."""

    problem: str


# -- finding -----------------------------------------------------------------------------------------------------------


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


# -- reading -----------------------------------------------------------------------------------------------------------


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


# -- tools -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tools(Request[Tool], name="tools", tool=Tool):
    """Describe the tools of a source; none of one that has no such things. source: its directory at the root."""

    source: str


@dataclass(frozen=True, slots=True)
class ResultPart:
    """The beginning of one part of a result. text: its bytes are UTF-8. link: the native URI that it stands for."""

    name: str | None = None
    mime_type: str | None = None
    text: bool = False
    link: str | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """The next bytes of a part."""

    data: bytes


@dataclass(frozen=True)
class CallTool(Request[Progress | ResultPart | Piece], name="call", progress=Progress, part=ResultPart, data=Piece):
    """Call a tool once. An error of the tool itself is raised as ToolFailed.

    values: texts, which the tool's schema converts. arguments: other arguments, as they are. confirmed: the user has
    said that a tool may run that does not declare to be read-only.
    """

    source: str
    tool: str
    values: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    arguments: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    confirmed: bool = False


# -- writing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stored:
    """A resource that its source has stored. size: bytes. version: the one that a next write of the client replaces.

    Each is None if the source does not tell it.
    """

    uri: str
    size: int | None = None
    version: str | None = None


@dataclass(frozen=True)
class Put(Request[Stored], name="put", changes=True, uri=Stored):
    """Store a resource at a path or under a URI. From then on a lookup finds it.

    replace: there may be such a resource. more: the content goes on in the next request with the same id. expected: the
    state of the resource, by default the one that was last shown; another one is a conflict. keep: the content is a
    pending write until the source has it; if not, the client has it still. by_owner: see `CanDescribe`.
    """

    path: str | None = None
    uri: str | None = None
    data: bytes = b""
    replace: bool = True
    more: bool = False
    mime_type: str | None = None
    description: str | None = None
    expected: Expected | None = None
    keep: bool = True
    by_owner: bool = True


@dataclass(frozen=True)
class Remove(Request[Never], name="remove", changes=True):
    """Remove a resource at a path or under a URI. expected, by_owner: as for `Put`."""

    path: str | None = None
    uri: str | None = None
    expected: Expected | None = None
    by_owner: bool = True


@dataclass(frozen=True)
class Retry(Request[Stored], name="retry", changes=True, uri=Stored):
    """Hand over a pending write. force: whatever its source has by now, and wherever the source is.

    Without it, the source must be at the place that the write was for, and have the state that the write expected, or
    these bytes already. The pending write is removed once the source has the content.
    """

    write: str
    force: bool = False


REQUESTS: Mapping[Any, type[Request[Any]]] = {
    kind.name: kind
    for kind in (
        Search, Grep, Match, Index, ListDirectory, Describe, Refresh, Watch, NoteShown, Tools, CallTool, Put, Remove,
        Retry,
    )
}  # fmt: skip


def unheard(_: object) -> None:
    """Drop an answer."""


def names(path: str) -> tuple[str, ...]:
    """Return the names of a path. Raise NameTooLong."""
    found = tuple(name for name in path.split("/") if name)
    if len(found) > MAX_DEPTH + 1:
        raise NameTooLong(f"a path of more than {MAX_DEPTH + 1} names")
    return found


def message_of(request: Request[Any]) -> dict[str, Any]:
    """Return a request as a JSON object, without an id."""
    return {"request": request.name, **encoded(request)}


def request_in(message: Mapping[str, Any]) -> Request[Any]:
    """Return the request in a message. Raise Rejected for an unknown one, ProtocolViolation."""
    name = message.get("request")
    kind = REQUESTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise Rejected(f"unknown request {name!r:.80}")
    return decoded(kind, message)


def answer_message(request: Request[Any], answer: object) -> dict[str, Any]:
    """Return an answer to a request as a JSON object, without an id."""
    key = next(key for key, kind in request.answers.items() if type(answer) is kind)
    return encoded(answer) if _is_flat(key, type(answer)) else {key: encoded(answer)}


def answer_in(request: Request[A], message: Mapping[str, Any]) -> A | None:
    """Return the answer in a message, or None. Raise ProtocolViolation."""
    for key, kind in request.answers.items():
        if key in message:
            found: A = decoded(kind, message if _is_flat(key, kind) else message[key])
            return found
    return None


def _is_flat(key: str, kind: type[Any]) -> bool:
    return any(each.name == key for each in fields(kind))
