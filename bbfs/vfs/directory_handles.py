"""Open directories of a mount: the names of each as they were when it was opened, read in portions.

A program that opens the same directory again gets the same names and answers while the lease lasts. Between two awaits
a task is alone; nothing here locks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cachetools import LRUCache

from bbfs.model.errors import NotFound, Outdated
from bbfs.resources.catalog.base import Portion, View
from bbfs.resources.catalog.record import DIRECTORY_VERSION, Lease, Node, Path, Record, inode_version
from bbfs.resources.tree import Tree
from bbfs.resources.writing.write_requests import Grants
from bbfs.vfs.file_handles import Attributes, FileHandles
from bbfs.vfs.inode_table import Inode, InodeKey, InodeTable
from bbfs.vfs.kernel_cache import KernelCache
from bbfs.vfs.names import ROOT, SHORT, Ended, Names, Wait, after

KEPT = 50_000_000
"""Bytes of directories that are kept to be served again, about."""
PLAIN_SIZE, NODE_SIZE = 24, 500
"""Bytes that a name takes, about: of a merely listed resource, and of any other entry, with the answer for it."""
READY_MOST = 10_000
"""Names of a directory that may be held ready: more would take too long to go through at once."""
READY_AGAIN = 0.2
"""Seconds between two attempts to hold a directory ready."""
READY_SHARE = 0.1
"""The part of its remaining validity for which a listing is held ready; the kernel gets the rest as timeouts."""

Ready = tuple[bytes, Any, Inode]
"""A name, the answer of the adapter for it, and its inode."""


@dataclass(slots=True)
class Answer:
    """The attributes of an entry that the kernel last got, to be given again.

    They hold until `until` (seconds since the epoch), unless the record is learnt (`fetched_at`) or described
    (`listed_at`) again, or invalidated. brief: the timeouts do not shrink, because the size is not known.
    """

    inode: Inode
    attributes: Attributes
    record: Record | None
    fetched_at: float | None
    listed_at: float
    until: float
    brief: bool

    @classmethod
    def of(cls, node: Node, inode: Inode, attributes: Attributes, lease: Lease, now: float) -> "Answer | None":
        """Return the answer to be kept, or None if the attributes may not be given again."""
        record = node.record
        if now >= lease.until or node.candidate is not None or inode.key.version != inode_version(node):
            return None
        if record is not None and (
            record.invalidated or record.provisional or record.on_open or record.parts is not None
        ):
            return None
        if attributes.attr_timeout > 0 and (node.kind != "file" or (record is not None and record.digest is not None)):
            until, brief = now + min(attributes.entry_timeout, attributes.attr_timeout), False
        elif record is not None and record.metadata.size is None and attributes.entry_timeout > 0:
            until, brief = lease.until - attributes.entry_timeout, True
        else:
            return None
        fetched_at, listed_at = (None, 0.0) if record is None else (record.fetched_at, record.listed_at)
        return cls(inode, attributes, record, fetched_at, listed_at, until, brief)

    def holds(self, now: float) -> bool:
        """Return whether it may be given again, if the name still exists and the inode is not open."""
        record = self.record
        if not self.inode.lookups or now >= self.until:
            return False
        return record is None or (
            # By identity: what is learnt in the same instant is still another number.
            record.fetched_at is self.fetched_at and record.listed_at is self.listed_at and not record.invalidated
        )

    def again(self, now: float) -> Attributes | None:
        """Return the attributes for the rest of their time, counting one lookup, or None if they do not hold."""
        if not self.holds(now):
            return None
        if not self.brief:
            self.attributes.entry_timeout = self.attributes.attr_timeout = self.until - now
        self.inode.lookups += 1
        return self.attributes


@dataclass(slots=True)
class OpenDirectory:
    """The names of a directory, so that a walk neither skips nor repeats one. All who open it share it while current.

    lease: while it lasts, the names may be given again without another look at the tree. listed: the attributes that
    merely listed files share. ready: all entries as they are answered, while nothing at all has changed (`ready_for`)
    and until `ready_until`.
    """

    path: Path
    view: View
    lease: Lease
    listed: Attributes = field(init=False)
    ready: list[Ready] = field(default_factory=list)
    ready_until: float = 0.0
    ready_for: int = -1
    looked_at: float = 0.0
    is_ended: bool = False
    """Whether its source was removed."""

    def __post_init__(self) -> None:
        self.listed = Attributes(0, "file", 0, self.view.modified_ns, 0.0, 0.0)

    def current(self, now: float) -> bool:
        return now < self.lease.until and self.view.unchanged

    def size(self) -> float:
        """Return the bytes that it takes, about: the first portion tells about the others."""
        first = next((portion for portion, _ in self.view.portions()), None)
        if first is None:
            return NODE_SIZE
        nodes = sum(isinstance(shown, Node) for shown in first.shown) / len(first.shown)
        return len(self.view) * (PLAIN_SIZE + nodes * (NODE_SIZE - PLAIN_SIZE))

    def make_ready(self, ready: list[Ready], pack: Callable[[Attributes], Any], now: float, changes: int) -> bool:
        """Hold all entries ready if the kernel got each before and each still holds. Return whether they are ready.

        ready: what comes before the entries; it is kept, and takes them. pack: makes the answer of an entry. changes:
        how much has changed so far.
        """
        if now < self.looked_at + READY_AGAIN or len(self.view) > READY_MOST:
            return False
        self.looked_at = now
        entries: list[tuple[str, Answer]] = []
        for portion, _ in self.view.portions():
            answers = portion.answers
            if len(answers) < len(portion.names):
                return False
            entries += ((name, answers[place]) for place, name in enumerate(portion.names))
        if any(answer.brief or not answer.holds(now) for _, answer in entries):
            return False
        left = min((answer.until for _, answer in entries), default=self.lease.until) - now
        for name, answer in entries:
            found = answer.attributes
            found.entry_timeout = found.attr_timeout = (answer.until - now) - left * READY_SHARE
            ready.append((name.encode(), pack(found), answer.inode))
        self.ready, self.ready_until, self.ready_for = ready, now + left * READY_SHARE, changes
        return True


class OpenDirectories:
    """The open directories of one mount, by handle (from 1 up)."""

    def __init__(
        self,
        tree: Tree,
        grants: Grants,
        inodes: InodeTable,
        handles: FileHandles,
        names: Names,
        kernel: KernelCache,
        clock: Callable[[], float],
    ) -> None:
        self._tree = tree
        self._grants = grants
        self._clock = clock
        self._inodes = inodes
        self._handles = handles
        self._names = names
        self._kernel = kernel
        self._opened: dict[int, OpenDirectory] = {}
        self._begun: set[int] = set()
        self._changes: dict[int, int] = {}
        """How much had changed in the mount, by handle, when its names were taken."""
        self._kept: LRUCache[int, OpenDirectory] = LRUCache(KEPT, getsizeof=OpenDirectory.size)
        self.next = 1
        """The handle of the next open."""
        self._uncounted = Inode(InodeKey(ROOT), lookups=1)  # stands for entries without lookup counts

    def __len__(self) -> int:
        return len(self._opened)

    def __getitem__(self, handle: int) -> OpenDirectory:
        """Return an open directory. Raise Outdated for one that the daemon before had."""
        try:
            return self._opened[handle]
        except KeyError:
            raise Outdated(f"the directory of the handle {handle} is not open") from None

    def begin_at(self, handle: int) -> None:
        """Give directories handles from this one up: the ones below are those of another daemon."""
        self.next = max(self.next, handle)

    def end(self, is_below: Callable[[Path], bool]) -> None:
        """Let the open directories below some paths end: their source was removed."""
        for ino, kept in list(self._kept.items()):
            if is_below(kept.path):
                del self._kept[ino]
        for opened in self._opened.values():
            if is_below(opened.path):
                opened.is_ended = True
                opened.lease.end()

    def _current(self, ino: int) -> OpenDirectory | None:
        """Return a directory that was opened before and is still current, or None."""
        kept = self._kept.get(ino)
        return kept if kept is not None and kept.current(self._clock()) else None

    def begin(self, handle: int) -> None:
        """Begin to read names from the first one. The second time (rewinddir(3)), take the current names if cached.

        Otherwise the names stay those of the open: nothing waits here.
        """
        if handle not in self._begun:
            self._begun.add(handle)
            return
        ino = self._inodes.held(self[handle].path, DIRECTORY_VERSION)
        current = self._current(ino) if ino is not None else None
        if current is not None:
            self._opened[handle], self._changes[handle] = current, self._kernel.changes

    def opendir(self, ino: int, ended: Ended = ()) -> int | Wait:
        """Return a handle on a directory's current names. This may wait for a listing."""
        current = self._current(ino)
        if current is not None:
            return self._added(current)
        path, version = self._inodes.get(ino)
        if path == ROOT:
            return self._added(OpenDirectory(path, View.of(self._names.roots()), Lease()))
        place = self._tree.place(path)
        node = self._names.find(path, ended, place)
        if isinstance(node, Wait):
            return node
        if (node.kind == "file" and version == DIRECTORY_VERSION) or self._tree.opened_as_file(path, node):
            raise Outdated("/".join(path))
        view = self._names.decide(node, ended) or after(ended, self._tree.view, path, place)
        if isinstance(view, Wait):
            return view
        if not len(view) and node.candidate is not None and self._tree.absent_until(node.candidate) is not None:
            raise NotFound("/".join(path))
        lease = self._tree.names_lease(path, place)
        opened = OpenDirectory(path, view, lease or Lease())
        if lease is not None and opened.size() <= KEPT:
            self._kept[ino] = opened
        return self._added(opened)

    def _added(self, opened: OpenDirectory) -> int:
        handle = self.next
        self.next = handle + 1
        self._opened[handle], self._changes[handle] = opened, self._kernel.changes
        return handle

    def ready(self, handle: int, pack: Callable[[Attributes], Any]) -> list[Ready] | None:
        """Return all entries of a directory as `pack` makes them, if that was done before and nothing has changed.

        The position of the next entry is the place in the list, from 1 up. The caller counts a lookup of the inode of
        each entry that it takes. An inode without `lookups` is no longer held: take the rest from `readdir`.
        """
        opened, now = self[handle], self._clock()
        if self._handles or now >= opened.lease.until:
            return None
        if opened.ready_for == self._kernel.changes and now < opened.ready_until:
            return opened.ready
        ready = [(name, pack(attributes), self._uncounted) for name, attributes in self._dots(opened.path)]
        return opened.ready if opened.make_ready(ready, pack, now, self._kernel.changes) else None

    def _dots(self, path: Path) -> Iterator[tuple[bytes, Attributes]]:
        """Yield `.` and `..`, for which no reference is counted."""
        for name, own in ((b".", path), (b"..", path[:-1])):
            number = self._inodes.number(own, DIRECTORY_VERSION)
            yield name, Attributes(number, "directory", 0, self._names.started_ns, 0.0, 0.0)

    def readdir(self, handle: int, start: int) -> Iterator[tuple[bytes, Attributes, int]]:
        """Yield (name, attributes, position of the next) from a position on. Each entry taken counts one reference.

        Where programs remove files, names that are gone are left out after a change: the kernel would take a removed
        file for a new one. The attributes are good until the next entry is asked for. A caller that has no room for an
        entry gives its reference back with `forget`. `.` and `..` come first and count nothing.
        """
        opened = self[handle]
        if opened.is_ended:
            raise Outdated("/".join(opened.path))
        for position, (name, found) in enumerate(self._dots(opened.path)):
            if start <= position:
                yield name, found, position + 1
        position, now, view = max(0, start - 2), self._clock(), opened.view
        path, inodes, listed = opened.path, self._inodes, opened.listed
        files = self._handles if len(self._handles) else None
        names_hold = self._names.validity(path)
        listed.entry_timeout, leased = min(names_hold, SHORT), now < opened.lease.until
        listed.writable = writable = path != ROOT and path[0] in self._grants.roots
        changed = writable and self._kernel.changes != self._changes[handle]
        for portion, begin in view.portions(position):
            names, numbers, answers, alike = portion.names, portion.numbers, portion.answers, portion.alike
            sizes_hold = 0.0 if alike else self._tree.stated_validity(path)
            for place in range(begin, len(names)):
                shown = portion.shown[place]
                position += 1
                if changed and self._is_gone((*path, names[place])):
                    continue
                if not isinstance(shown, str):
                    answer = answers.get(place)
                    if not leased or answer is None or (files is not None and files.holds(answer.attributes.ino)):
                        found = self._told(opened, portion, place, shown, now)
                    else:
                        found = answer.again(now) or self._told(opened, portion, place, shown, now)
                else:
                    number, below = numbers[place], (*path, names[place])
                    if not number:
                        number = numbers[place] = inodes.hashed(below, shown)
                    if (files is not None and files.holds(number)) or not inodes.show(number, below, shown):
                        found = self._names.shown(below, None)
                    else:
                        found = listed if alike else _stated(*view.stated(shown), names_hold, sizes_hold)
                        found.writable = writable
                        found.ino = number
                yield names[place].encode(), found, position + 2

    def _is_gone(self, path: Path) -> bool:
        try:
            self._tree.cached(path)
        except NotFound:
            return True
        return False

    def _told(self, opened: OpenDirectory, portion: Portion, place: int, node: Node, now: float) -> Attributes:
        """Return the current attributes of an entry with a node, and keep them with it where they hold for a while."""
        found = self._names.shown((*opened.path, portion.names[place]), node)
        inode = self._inodes.inode(found.ino) if found.ino in self._inodes else None
        answer = None if inode is None else Answer.of(node, inode, found, opened.lease, now)
        if answer is not None:
            portion.answers[place] = answer
        else:
            portion.answers.pop(place, None)
        return found

    def releasedir(self, handle: int) -> None:
        if self._opened.pop(handle, None) is not None:
            del self._changes[handle]
        self._begun.discard(handle)


def _stated(size: int | None, modified_ns: int, names_hold: float, sizes_hold: float) -> Attributes:
    """Return the attributes of a merely listed file, without its number. names_hold, sizes_hold: seconds."""
    validity = 0.0 if size is None else sizes_hold
    return Attributes(0, "file", size or 0, modified_ns, min(names_hold, max(validity, SHORT)), validity)
