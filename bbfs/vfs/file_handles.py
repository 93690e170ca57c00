"""Open files of a mount, each pinned to one version, and open directories, each to its names.

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
    """Attributes for stat, with the seconds for which the kernel may cache the name (`entry_timeout`) and the rest.

    ino: 0 for an absent name, which the kernel may cache as well. size: bytes. packed: the adapter's form of the rest
    without timeouts, kept for the next listing.
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
    """The last open of a file's inode. The next open needs neither a walk nor a look at the record.

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
        """Return whether the record is still what was opened, and fresh. changes: the count of `KernelCache`."""
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

    modified_ns: the time of this version. record, version: the resource, and its inode version. shares_inode: whether
    other opens of the inode may have another version; the kernel must not mix their pages.
    changed: whether this version is known to be outdated; stays true. wake: called once when it becomes so.
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
    """The open files, by handle (from 1 up)."""

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
        """Add an open file and return its handle."""
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
        """Return whether an inode is open."""
        return ino in self._by_inode

    def latest(self, ino: int) -> OpenFile | None:
        """Return the last open file of an inode, or None."""
        handles = self._by_inode.get(ino)
        return self._files[handles[-1]] if handles else None

    def below(self, path: Path) -> list[OpenFile]:
        """Return the open files at and below a path.

        Opens are far more frequent than changes, so the index by path is built here.
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
    """One name of an open directory, and the attributes that the kernel last got for it.

    inode: the inode of the name then, with `attributes`. They hold until `until` (seconds since the epoch), unless the
    record is learnt (`fetched_at`) or described (`listed_at`) again, or suspected. brief: the timeouts do not shrink,
    because the size is not known.
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
        """Return whether `attributes` may be served again, if the name still exists and the inode is not open."""
        inode, record = self.inode, self.record
        if inode is None or self.attributes is None or not inode.lookups or now >= self.until:
            return False
        return record is None or (
            # By identity: what is learnt in the same instant is still another number.
            record.fetched_at is self.fetched_at and record.listed_at is self.listed_at and not record.suspected
        )

    def again(self, now: float) -> Attributes | None:
        """Return the attributes for the rest of their time, counting one lookup, or None where they are outdated.

        The caller knows that the name still exists and that the inode is not open.
        """
        inode, attributes = self.inode, self.attributes
        if inode is None or attributes is None or not self.holds(now):
            return None
        if not self.brief:
            attributes.entry_timeout = attributes.attr_timeout = self.until - now
        inode.lookups += 1
        return attributes

    def tell(self, inode: Inode, attributes: Attributes, record: Record | None, until: float, *, brief: bool) -> None:
        """Keep the attributes that the kernel got."""
        self.inode, self.attributes, self.record, self.until, self.brief = inode, attributes, record, until, brief
        if record is not None:
            self.fetched_at, self.listed_at = record.fetched_at, record.listed_at


Ready = tuple[bytes, Any, Inode]
"""A name, the answer of the adapter for it, and its inode."""
READY_MOST = 10_000
"""Names of a directory that may be held ready: more would take too long to go through at once."""
READY_AGAIN = 0.2
"""Seconds between two attempts to hold a directory ready."""
READY_SHARE = 0.1
"""The part of its remaining validity for which a listing is held ready; the kernel gets the rest as timeouts."""


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
        """Hold all entries ready if the kernel got each before and each still holds. Return whether they are ready.

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
