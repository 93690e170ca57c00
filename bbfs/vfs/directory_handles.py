"""Open directories of a mount, and listings that are served again while their lease lasts.

Between two awaits a task is alone; nothing here locks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache

from bbfs.model.errors import NotFound, Outdated
from bbfs.resources.catalog.directory_view import View
from bbfs.resources.catalog.record import DIRECTORY, DIRECTORY_VERSION, Lease, ListedRecord, Node, Path, inode_version
from bbfs.resources.manager import ResourceManager
from bbfs.vfs.file_handles import Attributes, DirectoryEntry, OpenDirectory, OpenFiles, Ready
from bbfs.vfs.inode_table import Inode, InodeKey, InodeTable
from bbfs.vfs.kernel_cache import KernelCache
from bbfs.vfs.names import ROOT, SHORT, Names
from bbfs.vfs.waits import Ended, Wait, after

ENTRIES_KEPT = 100_000
"""Names in directories whose entries are kept to be served again, about half a kilobyte each."""
LISTED_KEPT = 1_000_000
"""As `ENTRIES_KEPT`, in directories of resources that are merely listed: 24 bytes each."""


Tell = Callable[[Path, Node | None], Attributes]
"""Return the attributes of an entry, counting one reference. Without a node, look the name up."""


@dataclass(slots=True)
class ListedDirectory:
    """A directory of merely listed resources, shared by all opens while it is current: an entry is a hash and a count.

    listed: the attributes that these files share.
    """

    path: Path
    view: View
    lease: Lease
    listed: Attributes

    @classmethod
    def of(cls, path: Path, view: View, lease: Lease) -> "ListedDirectory":
        return cls(path, view, lease, Attributes(0, "file", 0, view.modified_ns, 0.0, 0.0))

    def __len__(self) -> int:
        return len(self.view)

    def current(self, now: float) -> bool:
        return now < self.lease.until and self.view.unchanged

    def entries(
        self, position: int, inodes: InodeTable, files: OpenFiles, tell: Tell
    ) -> Iterator[tuple[bytes, Attributes, int]]:
        """(name, attributes, position of the next) from a position on. Each entry taken counts one reference.

        The attributes are good until the next entry is asked for.
        """
        path, listed, busy = self.path, self.listed, bool(files)
        while (found := self.view.at(position)) is not None:
            portion, start = found
            names, shown, numbers = portion.names, portion.shown, portion.numbers
            for place in range(start, len(names)):
                name, what = names[place], shown[place]
                position += 1
                below = (*path, name)
                if type(what) is not str:
                    yield name.encode(), tell(below, what), position  # type: ignore[arg-type] # a node
                    continue
                number = numbers[place]
                if not number:
                    number = numbers[place] = inodes.hashed(below, what)
                if (busy and files.holds(number)) or not inodes.show(number, below, what):
                    yield name.encode(), tell(below, None), position
                    continue
                listed.ino = number
                yield name.encode(), listed, position


class OpenDirectories:
    """The open directories of one mount, by handle (from 1 up)."""

    def __init__(
        self, manager: ResourceManager, inodes: InodeTable, files: OpenFiles, names: Names, kernel: KernelCache
    ) -> None:
        self._manager = manager
        self._inodes = inodes
        self._files = files
        self._names = names
        self._kernel = kernel
        self._opened: dict[int, OpenDirectory | ListedDirectory] = {}
        self._begun: set[int] = set()
        self._listings: LRUCache[int, OpenDirectory] = LRUCache(ENTRIES_KEPT, getsizeof=_charge)
        self._listed: LRUCache[int, ListedDirectory] = LRUCache(LISTED_KEPT, getsizeof=lambda kept: len(kept.view))
        self._next = 1
        self._uncounted = Inode(InodeKey(ROOT), lookups=1)  # stands for entries without lookup counts

    def __len__(self) -> int:
        return len(self._opened)

    def __getitem__(self, handle: int) -> OpenDirectory | ListedDirectory:
        return self._opened[handle]

    def _current(self, ino: int) -> OpenDirectory | ListedDirectory | None:
        """Return a directory that was opened before and is still current, or None."""
        now = self._manager.clock()
        listing = self._listings.get(ino)
        if listing is not None and now < listing.lease.until:
            return listing
        listed = self._listed.get(ino)
        return listed if listed is not None and listed.current(now) else None

    def begin(self, handle: int) -> None:
        """Begin to read names from the first one. The second time (rewinddir(3)), take the current names if cached.

        Otherwise the names stay those of the open: nothing waits here.
        """
        if handle not in self._begun:
            self._begun.add(handle)
            return
        ino = self._inodes.held(self._opened[handle].path, DIRECTORY_VERSION)
        current = self._current(ino) if ino is not None else None
        if current is not None:
            self._opened[handle] = current

    def opendir(self, ino: int, ended: Ended = ()) -> int | Wait:
        """Return a handle on a directory's current names. This may wait for a listing."""
        current = self._current(ino)
        if current is not None:
            return self._added(current)
        path, version = self._inodes.get(ino)
        if path == ROOT:
            roots = ((name, DIRECTORY) for name in sorted(self._manager.roots()))
            return self._added(OpenDirectory.of(path, roots, None))
        node = self._names.find(path, ended)
        if isinstance(node, Wait):
            return node
        if node.kind == "file" and version == DIRECTORY_VERSION:
            raise Outdated("/".join(path))
        listed = self._names.decide(node, ended) or after(ended, self._listing, ino, path)
        if isinstance(listed, Wait):
            return listed
        if not len(listed) and node.candidate is not None and self._manager.absent_until(node.candidate) is not None:
            raise NotFound("/".join(path))
        return self._added(listed)

    async def _listing(self, ino: int, path: Path) -> OpenDirectory | ListedDirectory:
        listed = await self._open_listed(ino, path)
        if listed is not None:
            return listed
        children = await self._manager.children(path)
        # What is merely listed has no record yet that could tell of a change.
        kept = not any(isinstance(node.record, ListedRecord) for node in children.values())
        lease = self._manager.names_lease(path) if kept else None
        opened = OpenDirectory.of(path, children.items(), lease)
        if lease is not None and _charge(opened) <= ENTRIES_KEPT:
            self._listings[ino] = opened
        return opened

    async def _open_listed(self, ino: int, path: Path) -> ListedDirectory | None:
        """Return a directory with merely listed entries, or too large to go through at once; None for any other."""
        view = await self._manager.view(path)
        if view is None or not view.worthwhile:
            return None
        lease = self._manager.names_lease(path)
        opened = ListedDirectory.of(path, view, lease or Lease())
        self._listings.pop(ino, None)
        if lease is not None and len(view) <= LISTED_KEPT:
            self._listed[ino] = opened
        return opened

    def _added(self, opened: OpenDirectory | ListedDirectory) -> int:
        handle = self._next
        self._next = handle + 1
        self._opened[handle] = opened
        return handle

    def ready(self, handle: int, pack: Callable[[Attributes], Any]) -> list[Ready] | None:
        """Return all entries of a directory as `pack` makes them, if that was done before and nothing has changed.

        The position of the next entry is the place in the list, from 1 up. The caller counts a lookup of the inode of
        each entry that it takes. An inode without `lookups` is no longer held: take the rest from `readdir`.
        """
        opened, now = self._opened[handle], self._manager.clock()
        if isinstance(opened, ListedDirectory) or self._files or now >= opened.lease.until:
            return None
        if opened.ready_for == self._kernel.changes and now < opened.ready_until:
            return opened.ready
        first = [(name, pack(attributes), self._uncounted) for name, attributes in self._dots(opened.path)]
        return opened.ready if opened.make_ready(first, pack, now, self._kernel.changes) else None

    def _dots(self, path: Path) -> Iterator[tuple[bytes, Attributes]]:
        """Yield `.` and `..`, for which no reference is counted."""
        for name, own in ((b".", path), (b"..", path[:-1])):
            number = self._inodes.number(own, DIRECTORY_VERSION)
            yield name, Attributes(number, "directory", 0, self._names.started_ns, 0.0, 0.0)

    def readdir(self, handle: int, start: int) -> Iterator[tuple[bytes, Attributes, int]]:
        """(name, attributes, position of the next) from a position on. Each entry taken counts one reference.

        A caller that has no room for an entry gives its reference back with `forget`. `.` and `..` come first and
        count nothing.
        """
        opened = self._opened[handle]
        path = opened.path
        for position, (name, shown) in enumerate(self._dots(path)):
            if start <= position:
                yield name, shown, position + 1
        if isinstance(opened, ListedDirectory):
            opened.listed.entry_timeout = min(self._names.validity(path), SHORT)
            for name, shown, position in opened.entries(
                max(0, start - 2), self._inodes, self._files, self._names.shown
            ):
                yield name, shown, position + 2
            return
        entries, files, now = opened.entries, self._files, self._manager.clock()
        leased, busy = now < opened.lease.until, bool(files)
        for position in range(max(0, start - 2), len(entries)):
            entry = entries[position]
            told, shown = entry.attributes, None
            if leased and told is not None and not (busy and files.holds(told.ino)):
                shown = entry.again(now)
            if shown is None:
                shown = self._tell(path, entry, opened.lease, now)
            yield entry.raw, shown, position + 3

    def _tell(self, directory: Path, entry: DirectoryEntry, lease: Lease, now: float) -> Attributes:
        """Return the current attributes of an entry, and keep them with it where they hold for a while."""
        node, path = entry.node, (*directory, entry.name)
        record = node.record
        if node.kind == "file" and record is not None and record.parts is not None:
            node = Node("directory", record)
        found = self._names.counted(path, node)
        entry.attributes = None
        if now >= lease.until:
            return found
        inode = self._inodes.find(found.ino)
        if inode is None or node.candidate is not None or inode.key.version != inode_version(node):
            return found
        if record is not None and (
            record.suspected or record.provisional or record.on_open or record.parts is not None
        ):
            return found
        if found.attr_timeout > 0 and (node.kind != "file" or (record is not None and record.digest is not None)):
            entry.tell(inode, found, record, now + min(found.entry_timeout, found.attr_timeout), brief=False)
        elif record is not None and record.metadata.size is None and found.entry_timeout > 0:
            entry.tell(inode, found, record, lease.until - found.entry_timeout, brief=True)
        return found

    def releasedir(self, handle: int) -> None:
        del self._opened[handle]
        self._begun.discard(handle)


def _charge(listing: OpenDirectory) -> int:
    return len(listing.entries) + 1
