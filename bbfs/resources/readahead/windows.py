"""Choose the files for readahead. Pure: no I/O; the time is an argument, in seconds.

The signal is order. A recursive walk (`grep -r`, `find`, `tar`) takes the entries of a directory one after the other
and goes down into each directory when it comes to it. So the files of a tree have one order (`TreeOrder`); a walk from
the end (a stack of work, as in `rg`) goes backward through it.

An access joins a stream within reach, or begins one. A stream whose accesses lie close together opens a window over
the next files in its direction. The window grows with its use, as the kernel's readahead does, and the stream ends
when its files are not used. Random accesses do not lie close together, so they cost next to nothing.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from cachetools import LRUCache

from bbfs.resources.catalog.base import LargeEntries

Path = tuple[str, ...]
Direction = Literal[-1, 1]
WalkEntries = Sequence[tuple[str, bool]]
"""Names of a directory in order; True for a directory, False for a file."""

EDGE_FROM = 16
"""Files of a directory from which an access to its first or last file is a signal: of few, any may come first."""
_PASSED_OVER = 256
"""Directories in a row without a file after which a search for the next one ends."""

REACH = 4
"""Files between a stream and an access that joins it: programs with several threads leave no larger gaps."""
FROM_EDGE = 2
"""Accesses without a gap that open a window from the first or last file of a directory; elsewhere `TreeOrder.opens_at`.
More accesses need to be `DENSITY` of their range only."""
DENSITY = 0.75
TURNED = 2
"""Accesses behind the start of a stream that end it."""
FIRST, YOUNG, YOUNG_WINDOW = 3, 20, 12
"""Up to `FIRST` accesses a window has one file for each, unless they began at the first or last file of a directory, as
walks do; up to `YOUNG` accesses it has `YOUNG_WINDOW` at most. So a program that looks at a few files wastes few."""
GROWTH = 2
"""Files in the window for each used one."""
CANDIDATES = (8, 64)
"""Least and most streams without a window; in between, one for each 64 files, so that few accesses join by chance."""
OPEN_AT_ONCE = 64
IDLE = 3.0
"""Seconds without an access after which a stream counts as without a reader."""
_SPAN = 16
_LOOKED_AT = 256


class _Layout:
    """One directory: its entries in order, and the positions of their names.

    Of a large one, the first and the last file are looked for among the outermost entries only.
    """

    __slots__ = ("entries", "files", "first", "has_files_only", "index", "last")

    def __init__(self, entries: WalkEntries | LargeEntries) -> None:
        self.entries: WalkEntries = entries
        self.files = size = len(entries)
        ends = range(size)
        if isinstance(entries, LargeEntries):
            self.index: Mapping[str, int] = entries.places
            ends = range(min(size, _PASSED_OVER))
        else:
            self.index = {name: place for place, (name, _) in enumerate(entries)}
            self.files -= sum(is_directory for _, is_directory in entries)
        self.has_files_only = not isinstance(entries, LargeEntries) and self.files == size
        self.first = next((place for place in ends if not entries[place][1]), -1)
        self.last = next((size - 1 - place for place in ends if not entries[size - 1 - place][1]), -1)


class TreeOrder:
    """The files of a tree in the order of a walk.

    list_directory: the entries of a directory, or None if they are not listed yet: the order ends there. opens_at:
    adjacent accesses that count as a walk; more for an order in which few programs walk. directories: layouts kept.
    """

    def __init__(
        self, list_directory: Callable[[Path], WalkEntries | None], *, opens_at: int = 3, directories: int = 256
    ) -> None:
        self.opens_at = opens_at
        self._list = list_directory
        self._layouts: LRUCache[Path, _Layout] = LRUCache(directories)
        self._latest: tuple[Path, _Layout] | None = None
        """A layout of `_layouts`: a walk asks for that of its directory several times for each file."""

    def __contains__(self, path: Path) -> bool:
        layout = self._layout(path[:-1])
        return layout is not None and path[-1] in layout.index

    def has(self, directory: Path) -> bool:
        """Return whether the layout of a directory is kept."""
        return directory in self._layouts

    def size(self, directory: Path) -> int:
        """Return the number of entries of a directory, 0 if it is not listed yet."""
        layout = self._layout(directory)
        return len(layout.entries) if layout is not None else 0

    def step(self, path: Path, direction: Direction) -> Path | None:
        """Return the next file of the tree, or None at its end."""
        *above, name = path
        directory: Path = tuple(above)
        layout = self._layout(directory)
        place = layout.index.get(name) if layout is not None else None
        empty = 0
        while layout is not None and place is not None:
            place += direction
            if not 0 <= place < len(layout.entries):
                if not directory:
                    return None
                directory, name = directory[:-1], directory[-1]
                layout = self._layout(directory)
                place = layout.index.get(name) if layout is not None else None
                continue
            name, is_directory = layout.entries[place]
            if not is_directory:
                return (*directory, name)
            directory = (*directory, name)
            layout = self._layout(directory)
            place = -1 if direction > 0 or layout is None else len(layout.entries)
            if (empty := empty + 1) > _PASSED_OVER:
                return None
        return None

    def sibling(self, path: Path, direction: Direction) -> Path | None:
        """Return the next file of the same directory, or None."""
        layout = self._layout(path[:-1])
        place = layout.index.get(path[-1]) if layout is not None else None
        if layout is None or place is None:
            return None
        entries, end = layout.entries, layout.last + 1 if direction > 0 else layout.first - 1
        for other in range(place + direction, end, direction):
            name, is_directory = entries[other]
            if not is_directory:
                return (*path[:-1], name)
        return None

    def amid(self, path: Path, direction: Direction, count: int) -> bool:
        """Return whether the next `count` entries are files of the same directory."""
        layout = self._layout(path[:-1])
        place = layout.index.get(path[-1]) if layout is not None else None
        if layout is None or place is None:
            return False
        first = place + 1 if direction > 0 else place - count
        if layout.has_files_only:
            return 0 <= first <= layout.files - count
        following = layout.entries[max(0, first) : max(0, first) + count]
        return first >= 0 and len(following) == count and not any(is_directory for _, is_directory in following)

    def edge(self, path: Path) -> int:
        """Return 1 for the first file of a directory with many, -1 for the last one, 0 for all others."""
        layout = self._layout(path[:-1])
        if layout is None or layout.files < EDGE_FROM:
            return 0
        place = layout.index.get(path[-1])
        return 1 if place == layout.first else -1 if place == layout.last else 0

    def changed(self, path: Path) -> None:
        """Drop the layout of a directory in which a path is new."""
        for depth in range(len(path)):
            layout = self._layouts.get(path[:depth])
            if layout is not None and path[depth] not in layout.index:
                del self._layouts[path[:depth]]
                self._latest = None

    def forget(self, directory: Path) -> None:
        """Drop the layouts of a directory whose names have changed, and of those below."""
        for known in [known for known in self._layouts if known[: len(directory)] == directory]:
            del self._layouts[known]
            self._latest = None

    def _layout(self, directory: Path) -> _Layout | None:
        if self._latest is not None and self._latest[0] == directory:
            return self._latest[1]
        layout = self._layouts.get(directory)
        if layout is None:
            entries = self._list(directory)
            if entries is None:
                return None
            layout = self._layouts[directory] = _Layout(entries)
        self._latest = directory, layout
        return layout


def window(used: int, limit: int, *, from_edge: bool = False) -> int:
    """Return the files in the window after `used` accesses. from_edge: they began at an edge of a directory."""
    if used > YOUNG:
        return min(limit, GROWTH * used)
    if from_edge:
        return min(limit, YOUNG_WINDOW)
    return min(limit, used if used <= FIRST else min(YOUNG_WINDOW, GROWTH * used))


@dataclass(frozen=True, slots=True)
class Plan:
    """The effect of an access: `stream` wants `load`, in this order; no stream uses `dropped` any more.

    stream: None without a window.
    """

    stream: "Stream | None"
    load: list[Path]
    dropped: list[Path]


class Stream:
    """One reader's way through an order. Files within reach have numbers, which go up in its direction.

    waiting: accesses whose content is not loaded yet. last: the time of the last event. The scheduler updates both.
    """

    def __init__(self, order: TreeOrder, path: Path, now: float) -> None:
        self.order = order
        self.last = now
        self.waiting = 0
        self.direction: Direction | None = None
        self.near: dict[Path, int] = {path: 0}
        self._seen = {path}
        self._low = self._high = 0
        self._upward = True
        self._edge = order.edge(path)
        self._from_edge = False
        self._think = 0.0
        self._used = 1
        self._top: Path = path[:-1]
        self._crossed = False
        self._extend_reach(path, 0, 1)
        self._extend_reach(path, 0, -1)
        # Of a stream with a window:
        self._at = self._front = self._base = 0
        self._front_path = path
        self._backward = self._spared = 0
        self._trail: deque[tuple[int, Path]] = deque()
        self._doors: dict[Path, None] = {}

    def _extend_reach(self, path: Path, number: int, direction: Direction) -> None:
        place: Path | None = path
        for distance in range(1, REACH + 1):
            place = self.order.step(place, direction)
            if place is None:
                return
            self.near.setdefault(place, number + direction * distance)

    def joins(self, path: Path) -> int | None:
        """Return the distance of an access from the stream's position, or None if it is out of reach."""
        number = self.near.get(path)
        if number is None:
            return REACH if path in self._doors else None
        if self.direction is None:
            return min(abs(number - self._low), abs(number - self._high))
        return abs(number - self._at)

    def _widen(self, path: Path) -> None:
        """Let the window leave the directory, as the reader has done."""
        common = 0
        while common < min(len(self._top), len(path) - 1) and self._top[common] == path[common]:
            common += 1
        self._top, self._crossed = path[:common], True

    # -- without a window --------------------------------------------------------------------------------------------

    def gather(self, path: Path) -> bool:
        """Take an access within reach of a stream without a window. Return whether it has one now."""
        number = self.near[path]
        self._seen.add(path)
        self._edge = self._edge or self.order.edge(path)
        if path[:-1] != self._top:
            self._widen(path)
        if number > self._high:
            self._high, self._upward = number, True
            self._extend_reach(path, number, 1)
        elif number < self._low:
            self._low, self._upward = number, False
            self._extend_reach(path, number, -1)
        direction: Direction = 1 if self._upward else -1
        count, span = len(self._seen), self._high - self._low + 1
        opens_at = FROM_EDGE if self._edge == direction else self.order.opens_at
        least = span if count <= opens_at else DENSITY * span
        if self.scattered or count < max(opens_at, least):
            return False
        self._from_edge = self._edge == direction and count == span
        self._open(direction)
        return True

    @property
    def scattered(self) -> bool:
        """Return whether the accesses span too much without lying close together."""
        return self._high - self._low > _SPAN

    def _open(self, direction: Direction) -> None:
        self.direction = direction
        self._used = len(self._seen)
        self._base = self._low if direction > 0 else -self._high
        self._at = self._front = self._high if direction > 0 else -self._low
        # Files ahead get numbers when they are loaded; files behind stay within reach, for stragglers and a turn.
        self.near = {p: direction * n for p, n in self.near.items() if direction * n <= self._at}
        self._trail = deque(sorted((number, path) for path, number in self.near.items()))
        self._front_path = self._trail[-1][1]
        self._find_doors(self._front_path)

    # -- with a window -----------------------------------------------------------------------------------------------

    def advance(self, path: Path) -> bool:
        """Take an access within reach of a stream with a window. Return whether the stream goes on."""
        if path in self._doors:
            self._cross(path)
        number = self.near[path]
        if number < self._base:
            self._backward += 1
            return self._backward < TURNED  # it goes backward: the next accesses open a window there
        if path in self._seen:
            return True
        self._seen.add(path)
        self._used += 1
        if number > self._at:
            self._at = number
            self._find_doors(path)
        unused = self._at - self._base + 1 - self._used - self._spared
        return unused <= max(2 * REACH, self._used // 2)

    def _cross(self, path: Path) -> None:
        """Go on elsewhere. Loaded files do not count as unused: the reader may come back."""
        self._widen(path)
        self._spared += self._front - self._at
        self._front += 1
        self.near[path] = self._front
        self._trail.append((self._front, path))
        self._front_path = path

    def _find_doors(self, path: Path) -> None:
        """Find the next files outside the window to which the reader may go on."""
        assert self.direction is not None
        self._doors = {}
        if self._allowed(path) and self.order.amid(path, self.direction, REACH):
            return  # the window covers them all
        place: Path | None = path
        for _ in range(REACH):
            place = self.order.step(place, self.direction)
            if place is None:
                return
            if not self._allowed(place) and place not in self.near:
                self._doors[place] = None

    def _allowed(self, path: Path) -> bool:
        return path[: len(self._top)] == self._top and (self._crossed or len(path) == len(self._top) + 1)

    def fill(self, limit: int, horizon: float, needed: Callable[[Path], bool]) -> list[Path]:
        """Return the files to load now. horizon: longest useful time (seconds) between load and use."""
        assert self.direction is not None
        size = window(self._used, limit, from_edge=self._from_edge)
        if self._think > 0:
            size = min(size, int(horizon / self._think))
        step = self.order.step if self._crossed else self.order.sibling
        load: list[Path] = []
        for _ in range(_LOOKED_AT):
            if self._front - self._at >= size:
                break
            path = step(self._front_path, self.direction)
            if path is None or not self._allowed(path):
                break
            self._front_path = path
            if path not in self.near and needed(path):
                self._front += 1
                self.near[path] = self._front
                self._trail.append((self._front, path))
                load.append(path)
        return load

    def leave_behind(self, limit: int) -> list[Path]:
        """Drop and return the files more than `limit` behind the reader."""
        left: list[Path] = []
        while self._trail and self._trail[0][0] < self._at - limit - 2 * REACH:
            path = self._trail.popleft()[1]
            del self.near[path]
            self._seen.discard(path)
            left.append(path)
        return left

    def heard(self, now: float) -> None:
        """Take note of an access, and of the reader's time since it got the last content."""
        if not self.waiting:
            self._think = 0.8 * self._think + 0.2 * max(0.0, now - self.last)
        self.last = now

    def idle(self, now: float, patience: float) -> bool:
        """Return whether the stream has lost its reader. patience: longest wait (seconds) for a content."""
        return now - self.last > (patience if self.waiting else IDLE)


@dataclass(slots=True)
class Streams:
    """The streams of one source. limit: largest window, in files. patience: as for `Stream.idle`."""

    limit: int
    patience: float = inf
    opened: list[Stream] = field(default_factory=list)
    gathering: list[Stream] = field(default_factory=list)

    def access(
        self,
        path: Path,
        now: float,
        orders: Iterable[TreeOrder],
        needed: Callable[[Path], bool],
        *,
        horizon: float = inf,
        files: int = 0,
    ) -> Plan:
        """Take an access to a file that has to be loaded, or was loaded ahead. Return its effect.

        orders: in which a program may walk. needed: whether a file has to be loaded. horizon: as for `Stream.fill`.
        files: number of files of the source.
        """
        dropped = [path for stream in self._without_reader(now) for path in stream.near]
        near = [s for s in self.opened if s.joins(path) is not None]
        if near:
            stream = min(near, key=lambda s: s.joins(path) or 0)
            self.opened.remove(stream)
            stream.heard(now)
            if not stream.advance(path):
                return Plan(None, [], [*dropped, *stream.near])
        else:
            stream = self._gather(path, now, orders, files)
            if stream is None:
                return Plan(None, [], dropped)
            if len(self.opened) >= OPEN_AT_ONCE:
                dropped += self.opened.pop(0).near
        self.opened.append(stream)
        load = stream.fill(self.limit, horizon, needed)
        return Plan(stream, load, dropped + stream.leave_behind(self.limit))

    def recall(self, paths: Iterable[Path], now: float, order: TreeOrder, files: int) -> None:
        """Count accesses that fitted no stream in another order as well. files: as for `access`."""
        for path in paths:
            stream = self._gather(path, now, (order,), files)
            if stream is not None:
                self.opened.append(stream)

    def alive(self, stream: Stream) -> bool:
        return stream in self.opened

    def close(self, stream: Stream) -> Iterable[Path]:
        """End a stream whose files cannot be loaded. Return the files that it leaves unused."""
        if stream in self.opened:
            self.opened.remove(stream)
        return stream.near

    def _without_reader(self, now: float) -> list[Stream]:
        """Remove and return the streams that have lost their reader."""
        lost = [stream for stream in self.opened if stream.idle(now, self.patience)]
        for stream in lost:
            self.opened.remove(stream)
        return lost

    def _gather(self, path: Path, now: float, orders: Iterable[TreeOrder], files: int) -> Stream | None:
        """Give an access to the streams without a window. Return the one that opens a window, if any."""
        for order in orders:
            if path not in order:
                continue
            here = [s for s in self.gathering if s.order is order and path in s.near]
            stream = min(here, key=lambda s: s.joins(path) or 0, default=None)
            if stream is None:
                stream = Stream(order, path, now)
            else:
                self.gathering.remove(stream)
                stream.heard(now)
                if stream.gather(path):
                    return stream
                if stream.scattered:
                    stream = Stream(order, path, now)
            self.gathering.append(stream)
        least, most = CANDIDATES
        del self.gathering[: -min(most, max(least, files // 64))]
        return None
