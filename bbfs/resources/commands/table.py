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

from collections.abc import Mapping
from typing import Any

from bbfs.model.errors import NameTooLong, Rejected
from bbfs.model.uri_paths import MAX_DEPTH
from bbfs.resources.commands.encoding import decoded
from bbfs.resources.commands.requests import (
    Begun,
    Problem,
    Replies,
    Request,
    answer_in,
    answer_message,
    message_of,
    unheard,
)
from bbfs.resources.commands.requests.finding import Grep, Hit, MayMatch, NoMatch, Search, Unlisted
from bbfs.resources.commands.requests.live import AddSources, Reload, RemoveSource, SourcesChanged
from bbfs.resources.commands.requests.offline import Fetch, Fetched, Pin
from bbfs.resources.commands.requests.reading import (
    Describe,
    Described,
    Entries,
    Entry,
    Event,
    ListDirectory,
    Note,
    NoteShown,
    Refresh,
    State,
    Status,
    Watch,
)
from bbfs.resources.commands.requests.texts import Index, Line, Match, Matched, Walked
from bbfs.resources.commands.requests.tools import CallTool, Piece, ResultPart, Tools
from bbfs.resources.commands.requests.writing import Put, Remove, Retry, Stored

__all__ = [
    "REQUESTS", "AddSources", "Begun", "CallTool", "Describe", "Described", "Entries", "Entry", "Event", "Fetch",
    "Fetched", "Grep", "Hit", "Index", "Line", "ListDirectory", "Match", "Matched", "MayMatch", "NoMatch", "Note",
    "NoteShown", "Piece", "Pin", "Problem", "Put", "Refresh", "Reload", "Remove", "RemoveSource", "Replies", "Request",
    "ResultPart", "Retry", "Search", "SourcesChanged", "State", "Status", "Stored", "Tools", "Unlisted", "Walked",
    "Watch", "answer_in", "answer_message", "message_of", "names", "request_in", "unheard",
]  # fmt: skip

REQUESTS: Mapping[Any, type[Request[Any]]] = {
    kind.name: kind
    for kind in (
        Search, Grep, Match, Index, ListDirectory, Describe, Refresh, Watch, NoteShown, Tools, CallTool, Put, Remove,
        Retry, Status, Reload, AddSources, RemoveSource, Fetch, Pin,
    )
}  # fmt: skip


def names(path: str) -> tuple[str, ...]:
    """Return the names of a path. Raise NameTooLong."""
    found = tuple(name for name in path.split("/") if name)
    if len(found) > MAX_DEPTH + 1:
        raise NameTooLong(f"a path of more than {MAX_DEPTH + 1} names")
    return found


def request_in(message: Mapping[str, Any]) -> Request[Any]:
    """Return the request in a message. Raise Rejected for an unknown one, ProtocolViolation."""
    name = message.get("request")
    kind = REQUESTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise Rejected(f"unknown request {name!r:.80}")
    return decoded(kind, message)
