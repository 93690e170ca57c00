"""Keeps pinned contents on disk: loads them before a program asks, and again when they change."""

import logging
from collections.abc import Iterable
from functools import partial
from math import inf

import trio

from bbfs.model.errors import BbfsError, NotSupported
from bbfs.model.quantities import counted
from bbfs.model.values import Change
from bbfs.resources.catalog.record import Path, Record
from bbfs.resources.commands.requests.offline import Fetched
from bbfs.resources.manager import ResourceManager, SourceChange
from bbfs.resources.offline.fetching import Fetching, Found
from bbfs.resources.source import Pinned, Source
from bbfs.sources import CanAnnounce

log = logging.getLogger(__name__)

LOOKED_EVERY = 30.0
"""Seconds between two looks at what a source lists, at least; its option ttl if that is longer."""
PACED = 5.0
"""Seconds between two looks where a source announces changes all the time."""
LOOK_SHARE = 10
"""A look may take one part in this many of the time."""
ASKED_EVERY = 600.0
"""Seconds after which a content is asked for again whose changes neither a listing nor an announcement would tell."""


class Pins:
    """The pinned paths of a mount. `run` keeps what is there. paced: least seconds between two looks at a source."""

    def __init__(self, manager: ResourceManager, *, paced: float = PACED) -> None:
        self._manager = manager
        self._paced = paced
        self._scopes: dict[str, trio.CancelScope] = {}
        self._woken: dict[str, trio.Event] = {}
        self._asked: set[str] = set()
        self._told: dict[str, str | None] = {}

    async def run(self) -> None:
        """Keep the pinned contents of all sources until cancelled."""
        async with trio.open_nursery() as nursery:
            ends = [
                self._manager.source_changes.subscribe(partial(self._source_changed, nursery)),
                self._manager.changes.subscribe(self._hear),
            ]
            try:
                for source in list(self._manager.sources.values()):
                    nursery.start_soon(self._keep, source)
                await trio.sleep_forever()
            finally:
                for end in ends:
                    end()

    async def set(self, path: Path, *, is_pinned: bool) -> None:
        """Pin or unpin all at and below a path, for the later mounts as well. Raise BbfsError."""
        source, below = self._manager.tree.place(path)
        if await self._manager.contents.kept_on_disk(source) is None:
            raise NotSupported(f"{source.data.id}: {self._manager.contents.why_not_on_disk(source)}")
        if not is_pinned and source.data.pin:
            raise NotSupported(f"{source.data.id} is pinned by its option pin")
        if not is_pinned and below not in source.pinned:
            raise NotSupported(f"{'/'.join(path)} is not pinned{_pinned_instead(source)}")
        await self._manager.contents.note_pin(source, below, is_pinned=is_pinned)
        (source.pinned.add if is_pinned else source.pinned.discard)(below)
        self._asked.add(source.key)
        self._wake(source.key)

    # -- when to look ------------------------------------------------------------------------------------------------

    def _source_changed(self, nursery: trio.Nursery, change: SourceChange) -> None:
        if change.event == "added":
            nursery.start_soon(self._keep, change.source)
        elif (scope := self._scopes.pop(change.source.key, None)) is not None:
            scope.cancel()

    def _hear(self, change: Change) -> None:
        for source in self._manager.sources.values():
            if source.data.id == change.source_id and source.state_of_pins is not None:
                self._wake(source.key)

    def _wake(self, key: str) -> None:
        if (woken := self._woken.get(key)) is not None:
            woken.set()

    async def _keep(self, source: Source) -> None:
        """Keep what is pinned of a source until that is removed."""
        with trio.CancelScope() as scope:
            self._scopes[source.key] = scope
            self._woken[source.key] = trio.Event()
            source.pinned |= await self._manager.contents.noted_pins(source)
            pause = 0.0
            while True:
                if source.key not in self._asked:
                    await trio.sleep(pause)
                self._asked.discard(source.key)
                self._woken[source.key], began = trio.Event(), trio.current_time()
                await self._look(source)
                pause = max(self._paced, LOOK_SHARE * (trio.current_time() - began))
                rest = max(LOOKED_EVERY, source.data.policy.listing_ttl) if source.has_pins else inf
                with trio.move_on_after(rest):
                    await self._woken[source.key].wait()
        self._woken.pop(source.key, None)

    # -- what to load ------------------------------------------------------------------------------------------------

    async def _look(self, source: Source) -> None:
        """Have on disk what is pinned of a source, as it is now."""
        contents, problems = self._manager.contents, list[str]()
        if not source.has_pins or await contents.kept_on_disk(source) is None:
            if source.has_pins:
                problems.append(contents.why_not_on_disk(source))
            await contents.hold_on_disk(source, ())
            source.state_of_pins = Pinned(0, 0, 0) if source.has_pins else None
            self._tell(source, problems)
            return
        found, failed = await self._found(source, problems)
        if not failed:
            await contents.hold_on_disk(source, ("",) if source.is_pinned(()) else _uris(found))
        fetching = self._fetching(problems, contents.disk_bytes - _bytes(found))
        await fetching.load(found, partial(self._needs, source))
        if left_out := fetching.counts.left_out:
            problems.append(f"{counted(left_out, 'file')} read in ranges, or without room in the disk cache")
        kept = await contents.kept_on_disk(source) or {}
        there = [kept[uri] for uri in _uris(found) if uri in kept]
        source.state_of_pins = Pinned(len(found.records), sum(there), len(found.records) - len(there))
        self._tell(source, problems)

    def _fetching(self, problems: list[str], most_bytes: float) -> Fetching:
        async def problem(text: str) -> None:
            problems.append(text)

        def told(_: Fetched) -> None: ...

        return Fetching(self._manager, told, problem, most_bytes=max(0.0, most_bytes))

    async def _found(self, source: Source, problems: list[str]) -> tuple[Found, bool]:
        """Return what is pinned of a source, and whether a part of it could not be listed."""
        if source.is_pinned(()):
            paths = [(name,) for name, each in self._manager.roots.directories().items() if each is source]
        else:
            paths = [self._manager.roots.mounted(source, path) for path in sorted(source.pinned)]
        fetching, found = self._fetching(problems, inf), Found()
        for path in paths:
            try:
                one = await fetching.find([path])
            except BbfsError as error:
                problems.append(f"{'/'.join(path)}: {error}")
                continue
            found.kept |= one.kept
            found.records += one.records
        return found, bool(problems)

    def _needs(self, source: Source, record: Record, kept: int | None) -> bool:
        """Return whether a content is to be loaded: it is not on disk, or may have changed."""
        if kept is None or record.invalidated or record.fetched_at is None:
            return True
        metadata, handler = record.metadata, source.handler
        if metadata.etag is not None or metadata.modified_ns is not None:
            return False  # the listing would tell
        if isinstance(handler, CanAnnounce) and handler.announces(metadata.native_uri):
            return False
        return self._manager.clock() >= record.fetched_at + max(record.ttl, ASKED_EVERY)

    def _tell(self, source: Source, problems: list[str]) -> None:
        """Log a problem of the pins of a source when it changes."""
        problem = problems[0] if problems else None
        if problem is not None and problem != self._told.get(source.key):
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            log.warning("%s: not all that is pinned is on disk: %s%s", source.data.id, problem, more)
        self._told[source.key] = problem


def _uris(found: Found) -> list[str]:
    return [record.metadata.native_uri for _, record in found.records]


def _bytes(found: Found) -> int:
    return sum(found.bytes_of(*each) or 0 for each in found.records)


def _pinned_instead(source: Source) -> str:
    """Return what is pinned of a source, for a message."""
    pinned: Iterable[str] = sorted("/".join(path) or "all of it" for path in source.pinned)
    return f"; pinned of {source.data.id}: {', '.join(pinned)}" if source.pinned else ""
