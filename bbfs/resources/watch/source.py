"""Watches one source: listens to its announcements, and polls the rest when its time to live ends."""

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from math import inf

import trio

from bbfs.model.errors import BbfsError, DeadlineExceeded, LoginRequired, NotADirectory, NotFound, Unreachable
from bbfs.model.values import Change, ChangeEvent
from bbfs.resources.catalog.record import JUST_NOW, Path, Record
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.sources import CanAnnounce, CanWatch

log = logging.getLogger(__name__)

FOLLOWED = 200
"""Resources of a source for which one watch asks for announcements, fewer than the 256 that a connection keeps. Of the
others it reports additions, removals, and what the source announces anyway."""
CONFIRMED_WITHIN = 2.0
"""Seconds in which a server must answer the subscriptions before a watch begins."""
LOOK_AT_MOST_EVERY = 1.0
HEARTBEAT = 2.0
"""Seconds between two checks if a source still announces. The check sends no request."""
RETRY_EVERY = 5.0
"""Seconds between two attempts to reach a source that is down."""
WALK_SHARE = 10
"""A walk may take one part in this many of the time."""
CHECKS_AT_ONCE = 8
INDEXED_AT_ONCE = 100
WATCHED = 50_000
"""Resources of a source that lists everything at once which one watch knows. Of more, it reports changes and removals
of these, and nothing of the others."""


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


@dataclass(slots=True)
class _Leaf:
    """One resource as the watch last reported it.

    version: of its content, or None if unknown. single: watched by itself. found_at: in the manager's clock; looked_at:
    in trio's clock. problem: why the last look at its content failed.
    """

    record: Record
    version: str | None
    found_at: float
    single: bool = False
    there: bool = True
    looked_at: float = -inf
    problem: str | None = None


class SourceWatch:
    """The part of a watch that covers one source."""

    def __init__(
        self,
        manager: ResourceManager,
        source: Source,
        scopes: Sequence[Scope],
        sink: Callable[[Change], None],
        note: Callable[[str], None],
        *,
        is_new: bool = False,
    ) -> None:
        """is_new: the source came after the watch had begun, so that all it has was added."""
        self._manager = manager
        self._source = source
        self._scopes = scopes
        self._sink = sink
        self._note = note
        self._leaves: dict[Path, _Leaf] = {}
        self._singles_only = all(scope.single for scope in scopes)
        self._listed: Mapping[str, Record] | None = None  # the listing that the leaves were last compared with
        self._listed_at = -inf
        self._followed: set[Path] = set()
        self._told: set[Path] = set()
        self._woken = trio.Event()
        self._walked_until = 0.0
        self._cut = False  # there are more resources than a watch may know
        self._begun = is_new  # the first look is complete, so that a difference is a change
        self.is_started = False
        self._failing: str | None = None
        self._retry_at = 0.0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled. It has started when the first look is complete or the source is down."""
        stop = self._manager.changes.subscribe(self._hear)
        try:
            await self._look()
            self.is_started = True
            task_status.started()
            while True:
                with trio.move_on_after(self._pause()):
                    await self._woken.wait()
                self._woken = trio.Event()
                await self._look()
        finally:
            stop()

    def end(self) -> None:
        """Report that all is gone, as the source was removed."""
        for path, leaf in self._leaves.items():
            if leaf.there:
                self._tell("removed", path, leaf.record)
        self._note(f"{self._source.data.uri_prefix}: removed from the mount")

    # -- hearing -----------------------------------------------------------------------------------------------------

    def _hear(self, change: Change) -> None:
        if change.source_id != self._source.data.id:
            return
        for path in self._concerned(change):
            if path not in self._leaves and path[:-1] in self._leaves:
                path = path[:-1]  # one of the several contents of a resource
            if not any(scope.covers(path) or scope.path[: len(path)] == path for scope in self._scopes):
                continue
            leaf = self._leaves.get(path)
            if leaf is not None and leaf.version is None and leaf.record.invalidated:
                leaf.version = leaf.record.digest  # another program has read it meanwhile
            self._told.add(path)
            self._woken.set()

    def _concerned(self, change: Change) -> Set[Path]:
        """Return the paths of a change that may be in the scope. Look single files up: a change may have many paths."""
        if change.below:
            followed = self._leaves if self._singles_only else self._followed
            return {*change.paths, *(path for path in followed if change.concerns(path))}
        if not self._singles_only:
            return change.paths
        own = {scope.path[:depth] for scope in self._scopes for depth in range(1, len(scope.path) + 1)}
        own.update((*path, part) for path, leaf in self._leaves.items() for part in leaf.record.parts or ())
        return own & change.paths

    def _announces(self, native_uri: str | None) -> bool:
        handler = self._source.handler
        return isinstance(handler, CanAnnounce) and handler.announces(native_uri)

    # -- when to look ------------------------------------------------------------------------------------------------

    def _pause(self) -> float:
        """Return the seconds until the next look, unless an announcement comes first."""
        if self._failing is not None:
            return max(0.0, self._retry_at - trio.current_time())
        due = [self._listing_due_in(), *(self._due_in(leaf) for leaf in self._leaves.values() if leaf.single)]
        return max(0.0, min(HEARTBEAT, *due))

    def _listing_due_in(self) -> float:
        """Return the seconds until the listing is due; infinite if the source announces its changes."""
        if self._singles_only or self._announces(None):
            return inf
        if not self._source.catalog.lists_all:
            return self._walked_until - trio.current_time()
        if self._source.state.state == "down":
            return self._listed_at + RETRY_EVERY - trio.current_time()
        paced = self._listed_at + LOOK_AT_MOST_EVERY - trio.current_time()
        return max(self._source.catalog.validity(()), paced)

    def _due_in(self, leaf: _Leaf) -> float:
        """Return the seconds until a file that is watched by itself is due."""
        record = leaf.record
        if record.on_open or (leaf.there and self._announces(record.metadata.native_uri)):
            return inf
        pace = LOOK_AT_MOST_EVERY if leaf.there else max(LOOK_AT_MOST_EVERY, self._source.data.policy.content_ttl)
        left = record.fetched_at + record.ttl - self._manager.clock() if record.fetched_at is not None else 0.0
        return max(left, leaf.looked_at + pace - trio.current_time())

    # -- looking -----------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Find and report the differences. Report a failing source once, and try it again later."""
        if self._failing is not None and trio.current_time() < self._retry_at:
            return
        told = self._told
        self._told = set()
        try:
            await self._meet_singles()
            index = await self._index(told)
            if index is not None:
                told -= await self._diff(index)
            due = {path for path, leaf in self._leaves.items() if leaf.single and self._due_in(leaf) <= 0}
            await self._follow()
            if self._begun:
                await self._check(told | due)
        except BbfsError as error:
            self._told |= told
            self._fail(error)
            return
        self._begun = True
        if self._failing is not None:
            self._failing = None
            self._note(f"{self._source.data.uri_prefix}: answers again")

    def _fail(self, error: BbfsError) -> None:
        self._retry_at = trio.current_time() + RETRY_EVERY
        if self._failing != str(error):
            self._failing = str(error)
            self._note(f"{self._source.data.uri_prefix}: {error}")

    async def _meet_singles(self) -> None:
        for scope in self._scopes:
            if scope.single and scope.path not in self._leaves:
                record = (await self._manager.tree.find(scope.path)).record
                if record is None:
                    raise NotFound(f"{'/'.join(scope.path)} is no file any more")
                self._leaves[scope.path] = _Leaf(record, _version(record), self._manager.clock(), single=True)

    async def _index(self, told: set[Path]) -> dict[Path, Record] | None:
        """Return the resources that exist now, by path, or None if nothing can have changed since the last look.

        Ask the source if its listing is due. Raise the source's error.
        """
        if self._singles_only:
            return None
        catalog = self._source.catalog
        due = self._failing is not None or self._listing_due_in() <= 0
        if not catalog.lists_all:
            walks = due or not self._begun or any(path not in self._leaves for path in told)
            return await self._walk() if walks else None
        if due or (not self._begun and catalog.validity(()) <= 0):
            self._listed_at = trio.current_time()
            await catalog.relist()
        if catalog.records is self._listed:
            return None
        self._listed = catalog.records
        found: dict[Path, Record] = {}
        known = [leaf.record.metadata.native_uri for leaf in self._leaves.values()] if self._cut else []
        for number, uri in enumerate(known or list(self._listed)):  # the URIs alone: records take far more memory
            if number % INDEXED_AT_ONCE == INDEXED_AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
            record = self._listed.get(uri)
            path = self._manager.roots.path_of(record) if record is not None else None
            if record is None or path is None or not any(scope.covers(path) for scope in self._scopes):
                continue
            if len(found) >= WATCHED:
                self._cut = True
                self._note(f"{self._source.data.uri_prefix}: over {WATCHED} resources; the others are not watched")
                break
            found[path] = record
        return found

    async def _walk(self) -> dict[Path, Record]:
        """Return the resources of a hierarchical source, by path."""
        started = trio.current_time()
        found: dict[Path, Record] = {}
        pending = [scope.path or (self._source.data.uri_prefix,) for scope in self._scopes if not scope.single]
        seen = set(pending)
        while pending:
            directory = pending.pop()
            try:
                children = await self._manager.tree.children(directory)
            except (NotFound, NotADirectory):
                continue  # removed during the walk
            for name, node in children.items():
                path = (*directory, name)
                if node.kind == "directory":
                    if path not in seen and any(scope.covers((*path, "")) for scope in self._scopes):
                        seen.add(path)
                        pending.append(path)
                elif node.record is not None:
                    found[path] = node.record
        ended = trio.current_time()
        pause = max(LOOK_AT_MOST_EVERY, self._source.data.policy.listing_ttl, WALK_SHARE * (ended - started))
        self._walked_until = ended + pause
        return found

    async def _diff(self, index: Mapping[Path, Record]) -> set[Path]:
        """Report additions, removals, and the changed contents that the listing shows. Return the added paths."""
        added: set[Path] = set()
        removed = [path for path, leaf in self._leaves.items() if not leaf.single and path not in index]
        for number, path in enumerate(removed):
            if number % INDEXED_AT_ONCE == INDEXED_AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
            leaf = self._leaves.pop(path)
            self._followed.discard(path)
            self._tell("removed", path, leaf.record)
        for number, (path, record) in enumerate(index.items()):
            if number % INDEXED_AT_ONCE == INDEXED_AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
            leaf, version = self._leaves.get(path), None if record.invalidated else _version(record)
            if leaf is None:
                self._leaves[path] = _Leaf(record, _version(record), self._manager.clock())
                self._tell("added", path, record)
                added.add(path)
            elif not leaf.single:
                leaf.record = record
                if version is not None and leaf.version is not None and version != leaf.version:
                    leaf.version = version
                    self._tell("changed", path, record)
        return added

    async def _follow(self) -> None:
        """Ask the source to announce the watched resources, and learn their versions to compare with later."""
        handler = self._source.handler
        wanted: list[tuple[Path, _Leaf]] = []
        fresh: set[int] = set()  # by identity
        if len(self._followed) < FOLLOWED:
            singles = ((path, leaf) for path, leaf in self._leaves.items() if leaf.single)
            for path, leaf in chain(singles, self._leaves.items()):
                if len(self._followed) >= FOLLOWED:
                    break
                if path not in self._followed and not leaf.record.on_open:
                    self._followed.add(path)
                    wanted.append((path, leaf))
        if isinstance(handler, CanWatch):
            for _, leaf in wanted:
                if not self._announces(leaf.record.metadata.native_uri):
                    handler.interested(leaf.record.metadata.native_uri)
                    fresh.add(id(leaf))
            if fresh and isinstance(handler, CanAnnounce):
                with trio.move_on_after(CONFIRMED_WITHIN):
                    await handler.confirmed()
        limiter = trio.CapacityLimiter(CHECKS_AT_ONCE)
        async with trio.open_nursery() as nursery:
            for path, leaf in wanted:
                # The source has not announced a change between an earlier load and the subscription.
                missed = id(leaf) in fresh and self._announces(leaf.record.metadata.native_uri)
                if missed or leaf.version is None or not leaf.record.fresh(self._manager.clock()):
                    nursery.start_soon(self._learn_first, path, leaf, limiter)

    async def _learn_first(self, path: Path, leaf: _Leaf, limiter: trio.CapacityLimiter) -> None:
        record = leaf.record
        too_large = (record.metadata.size or 0) > self._manager.cache_bytes // CHECKS_AT_ONCE
        if record.metadata.kind != "resource" or too_large:
            return
        seen = record.fetched_at is not None and record.fetched_at >= leaf.found_at
        # The version that a `cat` has shown since the watch reported the resource.
        before = _version(record) if seen else None
        async with limiter:
            try:
                await self._manager.contents.learn(record)
            except BbfsError as error:  # a later change is reported all the same
                log.debug("%s: %s", record.metadata.uri, error)
        leaf.version, leaf.looked_at = _version(record), trio.current_time()
        if before is not None and leaf.version != before:
            self._tell("changed", path, record)

    async def _check(self, paths: set[Path]) -> None:
        """Check contents that may have changed, and report those that have. Raise the error of a source that fails."""
        failures: list[BbfsError] = []
        limiter = trio.CapacityLimiter(CHECKS_AT_ONCE)

        async def check(path: Path, leaf: _Leaf) -> None:
            async with limiter:
                try:
                    await (self._check_single(path, leaf) if leaf.single else self._check_listed(path, leaf))
                    leaf.problem = None
                except (Unreachable, DeadlineExceeded, LoginRequired) as error:
                    self._told.add(path)
                    failures.append(error)
                except BbfsError as error:
                    if leaf.problem != str(error):
                        leaf.problem = str(error)
                        self._note(f"{'/'.join(path)}: {error}")

        async with trio.open_nursery() as nursery:
            for path in paths:
                if (leaf := self._leaves.get(path)) is not None:
                    nursery.start_soon(check, path, leaf)
        if failures:
            raise failures[0]

    async def _check_listed(self, path: Path, leaf: _Leaf) -> None:
        """Check a resource that the listing shows."""
        record = leaf.record
        if record.on_open:
            return
        before = leaf.version
        left = record.fresh_for(self._manager.clock())
        if left <= JUST_NOW:
            await trio.sleep(left)  # a change may have been missed; until then `learn` takes what was loaded just now
            try:
                await self._manager.contents.learn(record)
            except NotFound:
                return
            self._require_answer(record)
        leaf.version = version = _version(record)
        # Without an earlier version, believe the announcement; but not if only the listed size was wrong.
        lied = before is None and record.metadata.size not in (None, record.size)
        if version != before and not lied:
            self._tell("changed", path, record)

    async def _check_single(self, path: Path, leaf: _Leaf) -> None:
        """Check a file that is watched by itself, listed or made from a template."""
        leaf.looked_at = trio.current_time()
        try:
            record = (await self._manager.tree.find(path)).record
            if record is None:
                raise NotFound("/".join(path))
            if not record.fresh(self._manager.clock()):
                await self._manager.contents.learn(record)
                self._require_answer(record)
        except (NotFound, NotADirectory):
            if leaf.there:
                leaf.there, leaf.version = False, None
                self._tell("removed", path, leaf.record)
            return
        before, there = leaf.version, leaf.there
        leaf.record, leaf.version, leaf.there = record, _version(record), True
        if not there:
            self._tell("added", path, record)
        elif leaf.version != before:
            self._tell("changed", path, record)

    def _require_answer(self, record: Record) -> None:
        """Raise Unreachable if the source is down and the record still has its last answer."""
        if record.stale:
            raise Unreachable(self._source.problem or "the source does not answer")

    def _tell(self, event: ChangeEvent, path: Path, record: Record) -> None:
        if self._begun:
            self._sink(Change(self._source.data.id, event, record.metadata.uri, frozenset((path,))))


def _version(record: Record) -> str | None:
    """Return the version of a content, or None if it is unknown."""
    return f"@{record.metadata.target}" if record.metadata.kind == "symlink" else record.digest
