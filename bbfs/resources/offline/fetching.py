"""Loads contents below some paths into the disk cache: found by a walk, several at once, within bounds."""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf

import trio

from bbfs.model.errors import BbfsError
from bbfs.model.uri_paths import MAX_DEPTH
from bbfs.resources.catalog.record import Node, Path, Record
from bbfs.resources.commands.requests.offline import Fetched
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source

AT_ONCE = 16
"""Loads at once, besides the bound of each source."""
TOLD_EVERY = 0.25


@dataclass(slots=True)
class Found:
    """The resources at and below some paths. kept: the bytes on disk of each resource, by source key and URI."""

    records: list[tuple[Source, Record]] = field(default_factory=list)
    kept: dict[str, dict[str, int]] = field(default_factory=dict)

    def bytes_of(self, source: Source, record: Record) -> int | None:
        """Return the bytes that the disk has of a resource, or None if it has none of it."""
        return self.kept[source.key].get(record.metadata.native_uri)


class Fetching:
    """One walk and its loads.

    told: called with the counts now and then. problem: called with a sentence about what could not be fetched.
    most_bytes, most_files: of what is loaded.
    """

    def __init__(
        self,
        manager: ResourceManager,
        told: Callable[[Fetched], object],
        problem: Callable[[str], Awaitable[None]],
        *,
        most_bytes: float = inf,
        most_files: float = inf,
    ) -> None:
        self._manager = manager
        self._told = told
        self._problem = problem
        self._most_bytes = most_bytes
        self._most_files = most_files
        self._begun_bytes = self._begun_files = 0
        self._next_told = 0.0
        self._unkept: set[str] = set()
        self.counts = Fetched()

    # -- what there is -----------------------------------------------------------------------------------------------

    async def find(self, paths: Iterable[Path]) -> Found:
        """Return the resources at and below some paths. Raise the error of a path that is not there."""
        found, pending = Found(), deque[Path]()
        for path in paths:
            if not path:
                pending.extend((name,) for name in self._manager.roots.directories())
            else:
                await self._take(found, pending, path, await self._manager.contents.find_certain(path))
        while pending:
            directory = pending.popleft()
            try:
                children = await self._manager.tree.children(directory)
            except BbfsError as error:
                await self._fail("/".join(directory), error)
                continue
            for name, node in children.items():
                await self._take(found, pending, (*directory, name), node)
            self._tell()
        return found

    async def _take(self, found: Found, pending: deque[Path], path: Path, node: Node) -> None:
        """Note a resource, or a directory to walk through."""
        record = node.record
        if node.kind == "directory" and (record is None or record.parts is None):
            if len(path) <= MAX_DEPTH and await self._is_kept(self._manager.tree.place(path)[0], found):
                pending.append(path)
        elif record is not None and node.kind != "symlink" and node.draft is None and not record.on_open:
            source = self._manager.roots.of(record)
            if await self._is_kept(source, found):
                found.records.append((source, record.parent or record))
                self.counts.files += 1

    async def _is_kept(self, source: Source, found: Found) -> bool:
        """Return whether the disk may have contents of a source. Tell once of one where that is not so."""
        if source.key in found.kept:
            return True
        if source.data.base_prefix not in self._manager.sources or source.key in self._unkept:
            return False  # what bbfs says of the sources itself
        kept = await self._manager.contents.kept_on_disk(source)
        if kept is None:
            self._unkept.add(source.key)
            await self._problem(f"{source.data.id}: {self._manager.contents.why_not_on_disk(source)}")
            return False
        found.kept[source.key] = kept
        return True

    # -- loads -------------------------------------------------------------------------------------------------------

    async def load(
        self, found: Found, needs: Callable[[Record, int | None], bool] = lambda _record, _kept: True
    ) -> None:
        """Load what is not on disk or not fresh. needs: says so of a resource, with its bytes on disk."""
        waiting = iter(found.records)
        async with trio.open_nursery() as nursery:
            for _ in range(min(AT_ONCE, len(found.records))):
                nursery.start_soon(self._work, waiting, found, needs)
        await self._manager.contents.settle_on_disk()

    async def _work(
        self, waiting: Iterator[tuple[Source, Record]], found: Found, needs: Callable[[Record, int | None], bool]
    ) -> None:
        for source, record in waiting:
            kept = found.bytes_of(source, record)
            if not needs(record, kept):
                self.counts.present += 1
                self.counts.bytes += kept or 0
            elif self._has_room(record, kept):
                await self._load(source, record, kept)
            else:
                self.counts.left_out += 1
            self._tell()

    def _has_room(self, record: Record, kept: int | None) -> bool:
        """Return whether a load is within the bounds. What is on disk already takes nothing of them."""
        expected = record.best_size() if kept is None else 0
        if self._begun_files >= self._most_files or self._begun_bytes + expected > self._most_bytes:
            return False
        self._begun_files += kept is None
        self._begun_bytes += expected
        return True

    async def _load(self, source: Source, record: Record, kept: int | None) -> None:
        try:
            size = await self._manager.contents.keep_on_disk(source, record, is_there=kept is not None)
        except BbfsError as error:
            await self._fail(record.metadata.uri, error)
            return
        if size is None:
            self.counts.left_out += 1
            return
        if kept is None:
            self._begun_bytes += size - record.best_size() if record.metadata.size is None else 0
            self.counts.loaded += 1
        else:
            self.counts.present += 1
        self.counts.bytes += size

    async def _fail(self, what: str, error: BbfsError) -> None:
        self.counts.failed += 1
        await self._problem(f"{what}: {error}")

    def _tell(self) -> None:
        if trio.current_time() >= self._next_told:
            self._next_told = trio.current_time() + TOLD_EVERY
            self._told(self.counts)
