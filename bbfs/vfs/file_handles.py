"""What programs have open on a mount: files, each pinned to one version, and directories, each to its names.

Between two awaits a task is alone; nothing here locks or waits.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from bbfs.model.values import Content
from bbfs.resources.catalog.record import Lease, Node, Path, Record
from bbfs.resources.publish import content_key
from bbfs.vfs.inode_table import Inode


@dataclass(slots=True)
class Attributes:
    """What stat shows, and for how many seconds the kernel may keep the name (`entry_timeout`) and the rest.

    ino 0 says that there is no such name, which the kernel may keep as well. size: bytes. packed: what the adapter has
    made of all but the timeouts, kept so that it need not be made again for each listing.
    """

    ino: int
    kind: Literal["directory", "file", "symlink"]
    size: int
    modified_ns: int
    entry_timeout: float
    attr_timeout: float
    packed: Any = field(default=None, repr=False, compare=False)


@dataclass(slots=True)
class Opening:
    """What a file's inode was opened as, so that opening it again needs neither a walk nor a look at the record.

    version: of the record, for which the inode stands. lease: how long its path leads to the record. key: what the
    content is kept under. All of it holds until `until` (seconds since the epoch) while nothing at all has changed
    (`holds_for`); afterwards it can be `confirmed`.
    """

    path: Path
    record: Record
    version: str
    lease: Lease
    key: Hashable = None
    modified_ns: int = 0
    until: float = 0.0
    holds_for: int = -1

    def confirmed(self, now: float, changes: int) -> bool:
        """Whether the record still is what was opened, and fresh. changes: how much has changed so far."""
        record = self.record
        if now >= self.lease.until or record.inode_version != self.version or record.parts is not None or record.ahead:
            return False
        if record.fetched_at is None or not record.fresh(now):
            return False
        self.key, self.modified_ns = content_key(record), record.modified_ns
        self.until, self.holds_for = min(self.lease.until, record.fetched_at + record.ttl), changes
        return True


@dataclass(slots=True)
class OpenFile:
    """One version of a content, pinned from open to release (S13).

    modified_ns: when that was last modified. record, version: what it is a version of, and which. shares_inode: whether
    other opens of the inode may have another version: its pages must not be mixed then.
    changed: whether this is no longer what the source has, as far as it has told or was asked; once true it stays.
    wake: whom to tell of that.
    """

    ino: int
    content: Content
    modified_ns: int
    path: Path
    record: Record
    version: str
    shares_inode: bool
    changed: bool
    wake: Callable[[], None] | None = None

    @property
    def attributes(self) -> Attributes:
        return Attributes(self.ino, "file", self.content.size, self.modified_ns, 0.0, 0.0)


class OpenFiles:
    """The files that are open, by handle (from 1 up)."""

    def __init__(self) -> None:
        self._files: dict[int, OpenFile] = {}
        self._by_inode: dict[int, list[int]] = {}
        self._by_path: dict[Path, list[int]] | None = None
        self._next = 1

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, handle: int) -> OpenFile:
        return self._files[handle]

    def __iter__(self) -> Iterator[OpenFile]:
        return iter(self._files.values())

    def add(self, opened: OpenFile) -> int:
        """A handle for it."""
        handle = self._next
        self._next = handle + 1
        self._files[handle] = opened
        others = self._by_inode.get(opened.ino)
        if others is None:
            self._by_inode[opened.ino] = [handle]
        else:
            others.append(handle)
        self._by_path = None
        return handle

    def remove(self, handle: int) -> None:
        ino = self._files.pop(handle).ino
        handles = self._by_inode[ino]
        if len(handles) == 1:
            del self._by_inode[ino]
        else:
            handles.remove(handle)
        self._by_path = None

    def holds(self, ino: int) -> bool:
        """Whether an inode is open."""
        return ino in self._by_inode

    def latest(self, ino: int) -> OpenFile | None:
        """The last open of an inode that is still open."""
        handles = self._by_inode.get(ino)
        return self._files[handles[-1]] if handles else None

    def below(self, path: Path) -> list[OpenFile]:
        """The files that are open at and below a path.

        Files are opened far more often than something changes, so where they are is found out when it is asked for.
        """
        if not self._files:
            return []
        places = self._by_path
        if places is None:
            places = self._by_path = {}
            for handle, opened in self._files.items():
                for depth in range(1, len(opened.path) + 1):
                    places.setdefault(opened.path[:depth], []).append(handle)
        return [self._files[handle] for handle in places.get(path, ())]


@dataclass(slots=True)
class DirectoryEntry:
    """One name of an open directory, and what the kernel was last told of it.

    inode: what the name led to then, with `attributes`. That holds until `until` (seconds since the epoch) while the
    record, if there is one, has been neither learnt (`fetched_at`) nor described (`listed_at`) anew, nor is suspected.
    brief: the attributes have timeouts that do not wane: of a size that nobody knows.
    """

    name: str
    raw: bytes
    node: Node
    inode: Inode | None = None
    attributes: Attributes | None = None
    record: Record | None = None
    fetched_at: float | None = None
    listed_at: float = 0.0
    until: float = 0.0
    brief: bool = False

    def holds(self, now: float) -> bool:
        """Whether `attributes` may be told again, if the name is still there and the inode is not open."""
        inode, record = self.inode, self.record
        if inode is None or self.attributes is None or not inode.lookups or now >= self.until:
            return False
        return record is None or (
            # By identity: what is learnt in the same instant is still another number.
            record.fetched_at is self.fetched_at and record.listed_at is self.listed_at and not record.suspected
        )

    def again(self, now: float) -> Attributes | None:
        """What may be told again, good for what is left, with one more lookup counted; None where it must be made anew.

        The caller knows that the name is still there, and that the inode is not open.
        """
        inode, attributes = self.inode, self.attributes
        if inode is None or attributes is None or not self.holds(now):
            return None
        if not self.brief:
            attributes.entry_timeout = attributes.attr_timeout = self.until - now
        inode.lookups += 1
        return attributes

    def tell(self, inode: Inode, attributes: Attributes, record: Record | None, until: float, *, brief: bool) -> None:
        """Keep what the kernel was told."""
        self.inode, self.attributes, self.record, self.until, self.brief = inode, attributes, record, until, brief
        if record is not None:
            self.fetched_at, self.listed_at = record.fetched_at, record.listed_at


Ready = tuple[bytes, Any, Inode]
"""A name, what the adapter answers for it, and its inode."""
READY_MOST = 10_000
"""Names of a directory that is held ready whole: more would take too long to look through at once."""
READY_AGAIN = 0.2
"""Seconds after which one looks again whether a directory can be held ready."""
READY_SHARE = 0.1
"""The part of what is left of its validity for which a listing is held ready; the kernel is told of the rest only."""


@dataclass(slots=True)
class OpenDirectory:
    """The names of a directory as they were when it was opened, so that a walk neither skips nor repeats one.

    lease: while it lasts, the entries may be given out again without another look at the tree, to any who open it.
    ready: all entries as they are answered, while nothing at all has changed (`ready_for`) and until `ready_until`.
    """

    path: Path
    entries: list[DirectoryEntry]
    lease: Lease = field(default_factory=Lease)
    ready: list[Ready] = field(default_factory=list)
    ready_until: float = 0.0
    ready_for: int = -1
    looked_at: float = 0.0

    @classmethod
    def of(cls, path: Path, children: Iterable[tuple[str, Node]], lease: Lease | None) -> "OpenDirectory":
        return cls(path, [DirectoryEntry(name, name.encode(), node) for name, node in children], lease or Lease())

    def __len__(self) -> int:
        return len(self.entries)

    def make_ready(self, first: Iterable[Ready], pack: Callable[[Attributes], Any], now: float, changes: int) -> bool:
        """Hold all entries ready if each was told of before and still holds. Says whether they are.

        first: what comes before the entries. pack: makes the answer of an entry. changes: how much has changed so far.
        """
        if now < self.looked_at + READY_AGAIN or len(self.entries) > READY_MOST:
            return False
        self.looked_at = now
        if any(entry.brief or not entry.holds(now) for entry in self.entries):
            return False
        left = min((entry.until for entry in self.entries), default=self.lease.until) - now
        ready = list(first)
        for entry in self.entries:
            inode, attributes = entry.inode, entry.attributes
            assert inode is not None  # it holds
            assert attributes is not None
            attributes.entry_timeout = attributes.attr_timeout = (entry.until - now) - left * READY_SHARE
            ready.append((entry.raw, pack(attributes), inode))
        self.ready, self.ready_until, self.ready_for = ready, now + left * READY_SHARE, changes
        return True
