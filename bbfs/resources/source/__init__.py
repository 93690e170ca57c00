"""A data source at work: its state in the ResourceManager."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any

from bbfs.model.errors import BbfsError, Busy, DeadlineExceeded, LoginRequired, NotFound, Outdated, Unreachable
from bbfs.model.redaction import one_line
from bbfs.model.source_types import is_kept_on_disk
from bbfs.model.values import DataSource, SourceState
from bbfs.resources.catalog import Catalog
from bbfs.resources.catalog.overlay import Overlay
from bbfs.resources.documents import source_document
from bbfs.resources.flights import RequestSlots, SingleFlight, Waiters
from bbfs.resources.source.fingerprint import place
from bbfs.sources import (
    BacksOff,
    CanList,
    CanListDirectory,
    CanLoad,
    CanLoadIfChanged,
    CanLogIn,
    CanMakeDirectories,
    CanSearch,
    CanWatch,
    CanWrite,
    DetectsExisting,
    Handler,
    HoldsContents,
    LoadsWhileWanted,
    ProposesSearch,
    ProposesWrite,
    StatesBeginning,
    TellsMore,
)
from bbfs.sources.abilities import ProposesMap

log = logging.getLogger(__name__)

_ARCHIVES = ("zip", "tar")
"""Schemes of sources that are never written."""
APPS = "ui://"
"""What the native URIs of the pages of MCP apps begin with (SEP-1865)."""
TIERS = ("disk", "shared", "source")
"""What answers loads: the disk, the cache that machines share, and the source."""
REFRESHES_KEPT = 1000
"""Refreshed paths that are kept; beyond that, the whole source counts as refreshed."""
WRITES_KEPT = 10_000
"""Written resources whose time is kept; beyond that, all others count as written at the time of the oldest."""
MOVES_KEPT = 100
"""Renamed directories whose time is kept; beyond that, as `WRITES_KEPT`."""
_UNSIZED = 'stat fails, since only a load tells the size: the option sizes = "lazy" (-o {}.sizes=lazy) shows 0 instead'


@dataclass(frozen=True, slots=True)
class Pinned:
    """What is kept on disk since it is pinned: files, their bytes there, and how many of them are not there."""

    files: int
    bytes: int
    missing: int


@dataclass(slots=True)
class Source:
    """A running data source: its handler, its catalog, its requests, and its state.

    key: in its records, and in the keys of its contents. It is the id, unless the manager has had a source of that id
        before: what was cached of one is nothing of the other.
    flights: its requests under way.
    misstates_sizes: a content did not have its stated size.
    error: the fault of the last request that failed, if none has succeeded since.
    was_unsized: the log has the option that avoids a failing `stat`.
    loads, revalidates, logs_in, watches, holder: the handler, if it has the ability. To check each time would slow a
        load.
    loads_from: the number of loads by what has answered them.
    refreshed: when a user refreshed a path of the catalog (seconds since the epoch). No tier serves what was fetched
        before.
    loads_while_wanted: a load ends with the last program that waits for it.
    overlay: the names that the mount has changed, if the source can be written.
    judged_by_files: other users than the mount's get in, so the owners, modes and access control lists of the files of
        a local folder must decide what each of them may do.
    """

    key: str
    data: DataSource
    handler: Handler
    catalog: Catalog
    flights: SingleFlight
    slots: RequestSlots
    fingerprint: str
    error: str | None = None
    misstates_sizes: bool = False
    was_unsized: bool = False
    loads_from: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TIERS, 0))
    refreshed: dict[tuple[str, ...], float] = field(default_factory=dict)
    changes_under_way: int = 0
    """The number of changes by the mount itself that the source is making."""
    was_written: bool = False
    """True once the mount has changed a resource of the source. Before that, `written_at` is 0 for every resource."""
    _written: dict[str, float] = field(default_factory=dict)
    _written_below: dict[str, float] = field(default_factory=dict)
    _written_before: float = 0.0
    overlay: Overlay | None = None
    judged_by_files: bool = False
    pinned: set[tuple[str, ...]] = field(default_factory=set)
    """The paths in the catalog that users have pinned."""
    state_of_pins: Pinned | None = None
    ended: BbfsError | None = None
    """Why nothing is asked of the source any more, once it was removed."""
    place: str = field(init=False)
    """A hash of where the source is: another one with the same id is elsewhere."""
    is_split_by_scheme: bool = field(init=False)
    """Whether the first name of a path in the catalog is the scheme, which is part of the directory at the root."""
    waiters: Waiters = field(init=False)
    loads: CanLoad | None = field(init=False)
    revalidates: CanLoadIfChanged | None = field(init=False)
    logs_in: CanLogIn | None = field(init=False)
    watches: CanWatch | None = field(init=False)
    writes: CanWrite | None = field(init=False)
    """The handler, if it writes and the configuration grants it."""
    looks: DetectsExisting | None = field(init=False)
    loads_while_wanted: bool = field(init=False)
    holder: HoldsContents | None = field(init=False)
    may_be_on_disk: bool = field(init=False)
    """True if the disk cache may have contents of the source, also from a time before its `disk = false`."""

    def __post_init__(self) -> None:
        self.place = place(self.data)
        self.is_split_by_scheme = self.data.scheme is not None and self.catalog.lists_all
        self.waiters = Waiters(self.data.id)
        self.loads = self.handler if isinstance(self.handler, CanLoad) else None
        self.revalidates = self.handler if isinstance(self.handler, CanLoadIfChanged) else None
        self.logs_in = self.handler if isinstance(self.handler, CanLogIn) else None
        self.watches = self.handler if isinstance(self.handler, CanWatch) else None
        self.writes = self.handler if self.data.grants_write and isinstance(self.handler, CanWrite) else None
        self.holder = self.handler if isinstance(self.handler, HoldsContents) else None
        self.may_be_on_disk = self.data.policy.disk or is_kept_on_disk(self.data.type)
        self.looks = self.handler if isinstance(self.handler, DetectsExisting) else None
        self.loads_while_wanted = isinstance(self.handler, LoadsWhileWanted) and self.handler.loads_while_wanted

    def leaves_aside(self, native_uri: str) -> bool:
        """Return whether a resource is a page of an MCP app, which no search and no readahead takes in.

        Such pages (`ui://`) are for hosts that show them, and most are large scripts.
        """
        return native_uri.startswith(APPS) and self.data.mcp is not None and not self.data.apps

    @property
    def has_pins(self) -> bool:
        return self.data.pin or bool(self.pinned)

    def is_pinned(self, path: tuple[str, ...]) -> bool:
        """Return whether a path of the catalog is pinned, by itself or by one above it."""
        return self.data.pin or any(path[: len(above)] == above for above in self.pinned)

    def stale_for(self, path: tuple[str, ...]) -> float:
        """Return the seconds after its expiry in which a content is served while the source is down."""
        return inf if self.is_pinned(path) else self.data.policy.max_stale

    def require_there(self) -> None:
        """Raise Outdated if the source was removed."""
        if self.ended is not None:
            raise type(self.ended)(*self.ended.args)

    def note_unsized(self, native_uri: str, error: BbfsError) -> None:
        """Note that a `stat` has failed, and the option that avoids that. An outage is no reason to use it."""
        if isinstance(error, NotFound | Unreachable | DeadlineExceeded | LoginRequired | Outdated | Busy):
            return
        self.error = f"{native_uri}: {error} ({_UNSIZED.format(self.data.name)})"
        if not self.was_unsized:
            log.info("%s: %s", self.data.id, self.error)
        self.was_unsized = True

    def refreshed_at(self, path: tuple[str, ...], now: float) -> None:
        """Serve nothing at and below a path from now on that was fetched before."""
        if len(self.refreshed) >= REFRESHES_KEPT:
            self.refreshed.clear()
            path = ()
        self.refreshed[path] = now
        self.end_pause()

    def end_pause(self) -> None:
        """Let the next request try to reach a server that was down, as a user has asked for that."""
        if isinstance(self.handler, BacksOff):
            self.handler.end_pause()

    def is_refreshed(self, path: tuple[str, ...], fetched_at: float) -> bool:
        """Return whether a content of a path, fetched at that time, must not be served."""
        if not self.refreshed:
            return False
        return any(fetched_at <= self.refreshed.get(path[:depth], 0.0) for depth in range(len(path) + 1))

    def note_written(self, native_uri: str, now: float) -> None:
        """Serve no content of a resource from now on that was fetched before: the mount has changed it itself."""
        self._note(self._written, native_uri, now, WRITES_KEPT)

    def note_written_below(self, start: str, now: float) -> None:
        """As `note_written`, of all resources whose URIs begin so."""
        self._note(self._written_below, start, now, MOVES_KEPT)

    def _note(self, written: dict[str, float], key: str, now: float, most: int) -> None:
        self.was_written = True
        written.pop(key, None)
        written[key] = now
        if len(written) > most:
            self._written_before = max(self._written_before, written.pop(next(iter(written))))

    def written_at(self, native_uri: str) -> float:
        """Return the time before which a content of a resource may lack what the mount itself has written; else 0."""
        at = max(self._written.get(native_uri, 0.0), self._written_before)
        if not self._written_below:
            return at
        return max((at, *(since for start, since in self._written_below.items() if native_uri.startswith(start))))

    @contextmanager
    def changing(self) -> Iterator[None]:
        """While the source makes a change by the mount: what it announces meanwhile follows from the change."""
        self.changes_under_way += 1
        try:
            yield
        finally:
            self.changes_under_way -= 1

    @property
    def offers(self) -> Mapping[str, int]:
        """Return the numbers of templates, tools and whatever else there is beside resources."""
        more = dict(self.handler.offers) if isinstance(self.handler, TellsMore) else {}
        templates = sum(not each.on_open for each in self.catalog.all_templates())
        return {"templates": max(0, templates - more.get("prompts", 0)), **more}  # a prompt has a template, too

    @property
    def resources(self) -> int:
        """The number of listed resources, without files that describe what else there is."""
        return self.catalog.count() - self.catalog.descriptions

    @property
    def state(self) -> SourceState:
        return self.handler.state

    @property
    def problem(self) -> str | None:
        """The latest fault in one line, if no request has succeeded since. For people."""
        state = self.state
        # The other lines of this reason are the last ones that a server wrote, whatever they are about.
        down = (state.reason or "").partition("\n")[0] if state.state == "down" else ""
        return one_line(down or self.error or self.catalog.problem or "") or None

    @property
    def proposals(self) -> dict[str, Any]:
        """The lines of TOML that would let searches ask the source, bbfs write to it, or show its tools as a tree, by
        their keys in JSON."""
        handler = self.handler
        grants = self.data.capabilities.search
        search = handler.proposed_search if grants and isinstance(handler, ProposesSearch) else None
        write = [*handler.proposed_write] if isinstance(handler, ProposesWrite) else []
        tree = [*handler.proposed_map] if isinstance(handler, ProposesMap) else []
        proposed = {"proposedSearch": search, "proposedWrite": write, "proposedMap": tree}
        return {key: found for key, found in proposed.items() if found}

    @property
    def document(self) -> dict[str, Any]:
        """The description of the source as one JSON object."""
        described = source_document(self.data, self.state, self.problem, self.capabilities, self.offers)
        return {**described, **self.proposals}

    @property
    def may_search(self) -> CanSearch | None:
        """The handler, if the configuration grants its search and it has one, or if only a search tells."""
        handler = self.handler
        if self.data.capabilities.search and isinstance(handler, CanSearch) and handler.searches is not False:
            return handler
        return None

    @property
    def searches(self) -> CanSearch | None:
        """The handler, if it has a search and the configuration grants it."""
        handler = self.may_search
        return handler if handler is not None and handler.searches else None

    @property
    def could_write(self) -> bool:
        """Return whether only the capability `write` is missing to write it. (Of an MCP server only its tools tell.)"""
        data = self.data
        able = isinstance(self.handler, CanWrite) and data.mcp is None and data.scheme not in _ARCHIVES
        return able and not data.capabilities.write

    @property
    def why_read_only(self) -> str:
        """Return why a source that is not written is not. For people."""
        name = self.data.name
        if self.could_write:
            remedy = f"-o {name}.capabilities=read,list,search,write"
            return f"{name} is read-only: its option capabilities does not grant write ({remedy})"
        if self.data.mcp is not None:
            return f"{name} is read-only: its options capabilities and write have to name a tool that writes"
        return f"{name} is read-only: sources of type {self.data.type!r} cannot be written"

    @property
    def is_passed(self) -> bool:
        """Return whether a mount passes the source through: a local folder that can be written or has other users."""
        return (self.writes is not None or self.judged_by_files) and self.data.type == "filesystem"

    @property
    def makes_directories(self) -> bool:
        """Return whether the source has directories of its own, and others than those that follow from its URIs."""
        handler = self.handler
        if not isinstance(handler, CanMakeDirectories):
            return False
        beginning = handler.beginning if isinstance(handler, StatesBeginning) else ""
        return "make_directory" in handler.writes(beginning)

    @property
    def capabilities(self) -> list[str]:
        """The capabilities that the configuration grants and the handler has."""
        granted, handler = self.data.capabilities, self.handler
        can = {
            "read": granted.read and self.loads is not None,
            "list": granted.list and isinstance(handler, CanList | CanListDirectory),
            "search": self.searches is not None,
            "write": self.writes is not None,
        }
        return [name for name, held in can.items() if held]
