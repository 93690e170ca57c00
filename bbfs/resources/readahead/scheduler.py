"""Readahead: turn the readahead windows into requests.

Each stream has a queue. A queued load begins when the source has a free request slot that no program waits for: one
from each queue in turn, within a budget of bytes. The queue of a stream that has lost its reader is dropped. Between
two awaits a task is alone; nothing here locks.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bbfs.model.errors import BbfsError, Denied, InvalidUri, NotADirectory, NotFound, TooLarge
from bbfs.resources.catalog.base import Shown, is_directory
from bbfs.resources.catalog.record import Path, Record, inode_number, inode_version
from bbfs.resources.flights import RequestSlot
from bbfs.resources.readahead.windows import Stream, Streams, TreeOrder, WalkEntries
from bbfs.resources.source import Source

SHORTEST_USE = 1.0
"""Time to live (seconds) from which a content is worth readahead."""
LONGEST_WAIT = 5.0
"""Seconds between load and use of a content, at the reader's pace; at most half of its time to live."""
UNKNOWN_SIZE = 1 << 16
"""Assumed size (bytes) of a content before the first one of its source is loaded."""
SORTED_AT_ONCE, SORTED_TO = 2_000, 20_000
"""Entries of a directory up to which it is sorted by inode number, at 2 µs each: after one access that fits no stream,
and after several. A larger directory would take too long here."""
IN_ODD_ORDER = 5
"""Adjacent accesses in the order of inode numbers that count as a walk, if it begins amid a directory."""
FORGOTTEN_AFTER = 60.0
"""Seconds after an access from which it is no part of a walk any more. The first access after that is looked at when a
second one follows: alone it is no walk, and the order of its directory may take milliseconds to make."""
FITS_NO_ORDER = 4
"""Accesses that fit no stream before a larger directory is sorted."""

Fetch = Callable[[Source, Record, RequestSlot], Awaitable[Any]]
Mounted = Callable[[Source, Path], Path]


@dataclass(slots=True, eq=False)
class _Request:
    """A load by readahead. wanted: a program waits for it by now."""

    path: Path
    record: Record
    stream: Stream
    wanted: bool = False


@dataclass(slots=True)
class _Ahead:
    """The readahead of one source.

    orders: that of readdir; then that of inode numbers, in which `cp` takes the entries of any directory (savedir of
    gnulib), and `grep -r`, `find` and `du` (fts) those of one of more than 10 000. queues: by stream, in turn.
    flying: loads under way, by the record's key. unused: bytes of loaded and unused contents, by path. waits: streams
    whose readers wait, by the record's key. unfitting: the last accesses without a stream. alone: an access, with its
    time, that no other one has followed yet. latest: the time of the last access.
    """

    source: Source
    streams: Streams
    orders: tuple[TreeOrder, TreeOrder]
    queues: dict[Stream, deque[tuple[Path, Record]]] = field(default_factory=dict)
    flying: dict[tuple[str, str], _Request] = field(default_factory=dict)
    unwanted: int = 0
    unused: dict[Path, int] = field(default_factory=dict)
    unused_bytes: int = 0
    waits: dict[tuple[str, str], Stream] = field(default_factory=dict)
    unfitting: deque[Path] = field(default_factory=lambda: deque(maxlen=FITS_NO_ORDER))
    mean: float = UNKNOWN_SIZE
    ttl: float | None = None
    alone: tuple[Path, float] | None = None
    latest: float = 0.0


class LoadAhead:
    """The readahead of all sources.

    fetch: loads the contents of a record; the body of a flight. budget: bytes of each source that may be loaded and
    unused. largest: bytes; larger contents are not loaded ahead. held: whether a content is in memory. mounted: a path
    of a source's catalog from the mount's root. clock: seconds since the epoch.
    """

    def __init__(
        self,
        fetch: Fetch,
        *,
        budget: int,
        largest: int,
        held: Callable[[Record], bool],
        mounted: Mounted,
        clock: Callable[[], float],
    ) -> None:
        self._fetch = fetch
        self._budget = budget
        self._largest = largest
        self._held = held
        self._mounted = mounted
        self._clock = clock
        self.sources: dict[str, _Ahead] = {}
        """The sources that have readahead, by key."""

    def add(self, source: Source) -> None:
        """Add a source, unless it takes one request at a time or its sizes are lazy: those get no readahead."""
        policy = source.data.policy
        if policy.concurrency < 2 or policy.sizes == "lazy":
            return
        orders = (
            TreeOrder(partial(_entries, source)),
            TreeOrder(partial(self._by_number, source), opens_at=IN_ODD_ORDER),
        )
        ahead = _Ahead(source, Streams(2 * policy.concurrency, policy.timeout), orders)
        self.sources[source.key] = ahead
        source.slots.freed = partial(self._begin_next, source, ahead)

    def remove(self, source: Source) -> None:
        """Load nothing ahead of a source any more."""
        if self.sources.pop(source.key, None) is not None:
            source.slots.freed = lambda: None

    def accessed(self, path: Path, record: Record, *, wanted: bool) -> None:
        """Take note of an access to a content that is not cached (`wanted`: it is loaded next), or was loaded ahead.

        path: in the catalog of its source.
        """
        if (ahead := self.sources.get(record.source_key)) is None:
            return
        source = ahead.source
        self._forget_unused(ahead, path)
        now = self._clock()
        ttl = source.data.policy.content_ttl if ahead.ttl is None else ahead.ttl
        if ttl < SHORTEST_USE:
            return
        if now - ahead.latest > FORGOTTEN_AFTER and not ahead.streams.opened:
            ahead.streams.gathering.clear()
            ahead.unfitting.clear()
            ahead.alone = None
        ahead.latest = now
        earlier, ahead.alone = ahead.alone, None
        if earlier is None and not (ahead.streams.opened or ahead.streams.gathering):
            ahead.alone = path, now
            if wanted:
                self._now_wanted(ahead, record, None)
            return
        files = len(source.catalog.records)
        found: dict[Path, Record] = {}

        def needed(other: Path) -> bool:
            to_load = self._to_load(source, other, now)
            if to_load is not None:
                found[other] = to_load
            return to_load is not None

        horizon = min(LONGEST_WAIT, ttl / 2)
        if earlier is not None:
            orders = self._orders(ahead, *earlier, files)
            if ahead.streams.access(*earlier, orders, needed, horizon=horizon, files=files).stream is None:
                ahead.unfitting.append(earlier[0])
        orders = self._orders(ahead, path, now, files)
        plan = ahead.streams.access(path, now, orders, needed, horizon=horizon, files=files)
        if wanted:
            self._now_wanted(ahead, record, plan.stream)
        for other in plan.dropped:
            self._forget_unused(ahead, other)
        if plan.stream is None:
            ahead.unfitting.append(path)
            return
        if plan.load:
            ahead.queues.setdefault(plan.stream, deque()).extend((other, found[other]) for other in plan.load)
        self._begin_next(source, ahead, spared=1 if wanted else 0)

    @staticmethod
    def _orders(ahead: _Ahead, path: Path, now: float, files: int) -> Iterator[TreeOrder]:
        """Yield the orders in which an access that fits no stream may be part of a walk.

        The first such access does not sort by number, so a program that walks as readdir does costs no sorting.
        """
        by_name, by_number = ahead.orders
        yield by_name
        directory, unfitting = path[:-1], ahead.unfitting
        size = by_name.size(directory)
        if unfitting and size <= (SORTED_TO if len(unfitting) == FITS_NO_ORDER else SORTED_AT_ONCE):
            if not by_number.has(directory):
                ahead.streams.recall([each for each in unfitting if each[:-1] == directory], now, by_number, files)
            yield by_number

    def ended(self, source: Source, record: Record, size: int | None) -> None:
        """Take note of the end of a load: `size` bytes in memory, or None for a failure."""
        ahead = self.sources.get(source.key)
        if ahead is None:
            return
        if size is not None:
            ahead.mean += (size - ahead.mean) / 8
            ahead.ttl = record.ttl
        stream = ahead.waits.pop(record.key, None) if ahead.waits else None
        if stream is not None:
            stream.waiting -= 1
            stream.last = self._clock()

    def changed(self, source: Source, path: Path) -> None:
        """Take note of a change at a path of the source's catalog."""
        ahead = self.sources.get(source.key)
        for order in ahead.orders if ahead is not None else ():
            order.changed(path)

    def completed(self, source: Source, directory: Path) -> None:
        """Drop the orders of a directory whose names the source has just completed."""
        ahead = self.sources.get(source.key)
        for order in ahead.orders if ahead is not None else ():
            order.forget(directory)

    # -- requests ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _now_wanted(ahead: _Ahead, record: Record, stream: Stream | None) -> None:
        request = ahead.flying.get(record.key) if ahead.flying else None
        if request is not None and not request.wanted:
            request.wanted = True
            ahead.unwanted -= 1
        if stream is not None and record.key not in ahead.waits:
            ahead.waits[record.key] = stream
            stream.waiting += 1

    def _begin_next(self, source: Source, ahead: _Ahead, spared: int = 0) -> None:
        """Begin queued loads, as far as slots and budget go. Leave one slot for the next program."""
        slots, queues, now = source.slots, ahead.queues, self._clock()
        while queues and slots.free > spared and ahead.unwanted < slots.total - 1 and self._within_budget(ahead):
            stream, queue = next(iter(queues.items()))
            del queues[stream]
            if not ahead.streams.alive(stream) or stream.idle(now, ahead.streams.patience):
                continue
            while queue:
                path, record = queue.popleft()
                if self._worth(source, record, now):
                    self._begin(source, ahead, _Request(path, record, stream))
                    break
            if queue:
                queues[stream] = queue

    def _within_budget(self, ahead: _Ahead) -> bool:
        expected = ahead.unused_bytes + (ahead.unwanted + 1) * ahead.mean
        return expected <= self._budget or not (ahead.unused or ahead.unwanted)

    def _begin(self, source: Source, ahead: _Ahead, request: _Request) -> None:
        record = request.record
        record.ahead = True
        ahead.flying[record.key] = request
        ahead.unwanted += 1
        run = partial(self._run, source, ahead, request, source.slots.ask())
        source.flights.begin(("load", record.key), run, source.data.policy.timeout)

    async def _run(self, source: Source, ahead: _Ahead, request: _Request, slot: RequestSlot) -> Any:
        record = request.record
        try:
            contents = await self._fetch(source, record, slot)
        except (NotFound, Denied, InvalidUri, TooLarge):
            raise
        except BbfsError:
            for path in ahead.streams.close(request.stream):  # the source is in trouble: leave it to the programs
                self._forget_unused(ahead, path)
            raise
        finally:
            del ahead.flying[record.key]
            if not request.wanted:
                ahead.unwanted -= 1
        if record.ahead and ahead.streams.alive(request.stream):
            ahead.unused[request.path] = size = record.size or 0
            ahead.unused_bytes += size
        return contents

    @staticmethod
    def _forget_unused(ahead: _Ahead, path: Path) -> None:
        ahead.unused_bytes -= ahead.unused.pop(path, 0)

    # -- what there is -----------------------------------------------------------------------------------------------

    def _to_load(self, source: Source, path: Path, now: float) -> Record | None:
        """Return the record of a file that is worth readahead now, or None."""
        try:
            node = source.catalog.cached(path)
        except (NotFound, NotADirectory):
            return None
        record = node.record if node is not None and node.kind == "file" else None
        return record if record is not None and self._worth(source, record, now) else None

    def _worth(self, source: Source, record: Record, now: float) -> bool:
        """Return whether a content is worth readahead: not cached nor under way, without side effects, small enough."""
        if record.parent is not None or record.provisional or record.on_open:
            return False
        if source.leaves_aside(record.metadata.native_uri):
            return False
        # A description with an etag makes a record fresh without a load.
        if record.fresh(now) and (record.digest != record.metadata.etag or self._held(record)):
            return False
        if now < record.error_until or record.best_size() > self._largest:
            return False
        return not source.flights.under_way(("load", record.key))

    def _by_number(self, source: Source, directory: Path) -> WalkEntries | None:
        """Return the entries of a directory in the order of their inode numbers."""
        children = _children(source, directory)
        if children is None:
            return None
        # At the root of a catalog, the mount path depends on the name (a stray scheme).
        above = self._mounted(source, directory) if directory else None

        def number(child: tuple[str, Shown]) -> int:
            name, shown = child
            version = shown if isinstance(shown, str) else inode_version(shown)
            return inode_number((*above, name) if above else self._mounted(source, (name,)), version)

        return [(name, is_directory(shown)) for name, shown in sorted(children, key=number)]


def _entries(source: Source, directory: Path) -> WalkEntries | None:
    """Return the files and directories of a directory in readdir's order, or None if they are not listed yet."""
    large = source.catalog.large(directory)
    if large is not None:
        return large
    children = _children(source, directory)
    return None if children is None else [(name, is_directory(shown)) for name, shown in children]


def _children(source: Source, directory: Path) -> list[tuple[str, Shown]] | None:
    # Listed names are enough for an order: a program that opens files by name never has names completed.
    try:
        view = source.catalog.cached_view(directory, completed=False)
    except (NotFound, NotADirectory):
        return None
    return (
        None if view is None else [child for child in view if isinstance(child[1], str) or child[1].kind != "symlink"]
    )
