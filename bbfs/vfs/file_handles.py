"""Open files of a mount, each pinned to one version.

Between two awaits a task is alone; nothing here locks or waits.
"""

import os
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from bbfs.model.errors import Outdated
from bbfs.model.values import Content
from bbfs.resources.catalog.overlay import Draft
from bbfs.resources.catalog.record import Lease, Path, Record, content_key

WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
"""Flags of an open that may change the file."""


@dataclass(slots=True)
class Attributes:
    """Attributes for stat, with the seconds for which the kernel may cache the name (`entry_timeout`) and the rest.

    ino: 0 for an absent name, which the kernel may cache as well. size: bytes. writable: its source accepts changes.
    private: only the user of the daemon may use it, whoever else gets in.
    changed_ns: the time of the last change of the inode; None: as `modified_ns`.
    packed: the adapter's form of the rest without timeouts, kept for the next listing.
    """

    ino: int
    kind: Literal["directory", "file", "symlink"]
    size: int
    modified_ns: int
    entry_timeout: float
    attr_timeout: float
    writable: bool = False
    private: bool = False
    changed_ns: int | None = None
    packed: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class NewAttributes:
    """The attributes that a program sets; None: left as it is. size: bytes. Times: nanoseconds since the epoch."""

    size: int | None = None
    modified_ns: int | None = None
    accessed_ns: int | None = None
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None


@dataclass(slots=True)
class Opening:
    """What the inode of a file was last found to be. The next request needs neither a walk nor a look at the record.

    version: of the record, for which the inode stands. lease: how long its path leads to the record. key: what the
    content is kept under. All of it holds until `until` (seconds since the epoch) while nothing at all has changed
    (`holds_for`); afterwards `holds` looks at the record.
    """

    path: Path
    record: Record
    version: str
    lease: Lease
    key: Hashable = None
    modified_ns: int = 0
    until: float = 0.0
    holds_for: int = -1

    def holds(self, now: float, changes: int) -> bool:
        """Return whether all of it is so at a time. changes: the count of `KernelCache`."""
        if now >= self.lease.until:
            return False
        return (self.holds_for == changes and now < self.until) or self._confirmed(now, changes)

    def size(self, now: float, changes: int) -> tuple[int, float] | None:
        """Return the size in bytes and its validity in seconds; None if not all of it `holds`."""
        size = self.record.size
        return (size, self.record.fresh_for(now)) if size is not None and self.holds(now, changes) else None

    def _confirmed(self, now: float, changes: int) -> bool:
        """Return whether the record is still what was opened, and fresh; note until when."""
        record = self.record
        if record.inode_version != self.version or record.parts is not None or record.ahead:
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
    doubted: whether its content expired before a program polled: the next poll asks the source.
    draft: the content, if a program writes it. reads: whether it only reads a file that another program writes.
    refused: the IDs of the pending writes that its own saves have left; its next save comes in their place. appends:
    whether it was opened with O_APPEND.
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
    doubted: bool = False
    draft: Draft | None = None
    reads: bool = False
    refused: tuple[str, ...] = ()
    appends: bool = False

    @property
    def unsaved(self) -> bool:
        """Return whether a close has something to hand over.

        A program that only reads has nothing: what another one has written so far may be half of it.
        """
        return self.draft is not None and self.draft.dirty and not self.reads

    @property
    def attributes(self) -> Attributes:
        changed_ns = self.record.written_ns if self.record.inode_version == self.version else None
        return Attributes(self.ino, "file", self.content.size, self.modified_ns, 0.0, 0.0, changed_ns=changed_ns)


def _not_open(handle: int) -> Outdated:
    return Outdated(f"the file of the handle {handle} is not open")


class FileHandles:
    """The open files, by handle (from 1 up)."""

    def __init__(self) -> None:
        self._files: dict[int, OpenFile] = {}
        self._by_inode: dict[int, list[int]] = {}
        self._by_path: dict[Path, list[int]] | None = None
        self.next = 1
        """The handle of the next open."""

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, handle: int) -> OpenFile:
        """Return an open file. Raise Outdated for one that the daemon before had, and this one could not open."""
        try:
            return self._files[handle]
        except KeyError:
            raise _not_open(handle) from None

    def __iter__(self) -> Iterator[OpenFile]:
        return iter(self._files.values())

    def add(self, opened: OpenFile) -> int:
        """Add an open file and return its handle."""
        handle = self.next
        self.next = handle + 1
        self._files[handle] = opened
        others = self._by_inode.get(opened.ino)
        if others is None:
            self._by_inode[opened.ino] = [handle]
        else:
            others.append(handle)
        self._by_path = None
        return handle

    def remove(self, handle: int) -> OpenFile:
        """Remove an open file and return it. Raise Outdated, as above."""
        opened = self._files.pop(handle, None)
        if opened is None:
            raise _not_open(handle)
        ino = opened.ino
        handles = self._by_inode[ino]
        if len(handles) == 1:
            del self._by_inode[ino]
        else:
            handles.remove(handle)
        self._by_path = None
        return opened

    def numbered(self) -> Iterator[tuple[int, int]]:
        """Yield the handle and the inode of each open file."""
        return ((handle, opened.ino) for handle, opened in self._files.items())

    def begin_at(self, handle: int) -> None:
        """Give new files handles from this one up: the ones below are those of another daemon."""
        self.next = max(self.next, handle)

    def renumber(self, handle: int, to: int) -> None:
        """Give an open file another handle, which no file has."""
        opened = self.remove(handle)
        self._files[to] = opened
        self._by_inode.setdefault(opened.ino, []).append(to)

    def holds(self, ino: int) -> bool:
        """Return whether an inode is open."""
        return ino in self._by_inode

    def is_only(self, ino: int) -> bool:
        """Return whether an inode is open once."""
        return len(self._by_inode.get(ino, ())) == 1

    def of(self, ino: int) -> list[OpenFile]:
        """Return the open files of an inode, in the order of their opens."""
        return [self._files[handle] for handle in self._by_inode.get(ino, ())]

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
