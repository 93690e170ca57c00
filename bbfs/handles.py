"""What programs have open on a mount: files, each pinned to one version, and directories, each to its names.

Between two awaits a task is alone; nothing here locks or waits.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from bbfs.inodes import Inode
from bbfs.model import Content
from bbfs.records import Lease, Node, Path, Record


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
class OpenFile:
    """One version of a content, pinned from open to release (S13).

    modified_ns: when that was last modified. record, salt: what it is a version of, and which. shares_inode: whether
    other opens of the inode may have another version: its pages must not be mixed then.
    changed: whether this is no longer what the source has, as far as it has told or was asked; once true it stays.
    wake: whom to tell of that.
    """

    ino: int
    content: Content
    modified_ns: int
    path: Path
    record: Record
    salt: str
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
class Entry:
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

    def again(self, now: float) -> bool:
        """Whether `attributes` may be told again. Then one more lookup is counted, and they are good for what is left.

        The caller knows that the name is still there, and that the inode is not open.
        """
        inode, attributes = self.inode, self.attributes
        if inode is None or attributes is None or not inode.lookups or now >= self.until:
            return False
        record = self.record
        if record is not None and (
            # By identity: what is learnt in the same instant is still another number.
            record.fetched_at is not self.fetched_at or record.listed_at is not self.listed_at or record.suspected
        ):
            return False
        if not self.brief:
            attributes.entry_timeout = attributes.attr_timeout = self.until - now
        inode.lookups += 1
        return True

    def tell(self, inode: Inode, attributes: Attributes, record: Record | None, until: float, *, brief: bool) -> None:
        """Keep what the kernel was told."""
        self.inode, self.attributes, self.record, self.until, self.brief = inode, attributes, record, until, brief
        if record is not None:
            self.fetched_at, self.listed_at = record.fetched_at, record.listed_at


@dataclass(slots=True)
class OpenDirectory:
    """The names of a directory as they were when it was opened, so that a walk neither skips nor repeats one.

    lease: while it lasts, the entries may be given out again without another look at the tree, to any who open it.
    """

    path: Path
    entries: list[Entry]
    lease: Lease = field(default_factory=Lease)

    @classmethod
    def of(cls, path: Path, children: Iterable[tuple[str, Node]], lease: Lease | None) -> "OpenDirectory":
        return cls(path, [Entry(name, name.encode(), node) for name, node in children], lease or Lease())
