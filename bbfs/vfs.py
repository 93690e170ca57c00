"""What data sources look like as a file system: lookup, attributes, directory and file handles.

It knows no FUSE: it takes inode numbers and names, gives values, and raises BbfsError; the same scenarios run on it
without a mount. Names are resolved from their path at each use, so a listing may change under any inode. An inode is a
path and a version of the content (S7); what it answers belongs to that version, or is `Outdated`.

Between two awaits a task is alone; handles and tables need no lock.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache

from bbfs.contents import ABSENT_FOR
from bbfs.describing import Described
from bbfs.errors import (
    BbfsError,
    IsADirectory,
    NameTooLong,
    NoAttribute,
    NotADirectory,
    NotFound,
    NotSupported,
    Outdated,
    ReadOnly,
)
from bbfs.handles import Attributes, Entry, OpenDirectory, OpenFile, OpenFiles, Opening, Ready
from bbfs.inodes import Inode, InodeKey, InodeTable
from bbfs.listed import ListedDirectory
from bbfs.model import Content
from bbfs.records import DIRECTORY, NANOSECONDS, Lease, Listed, Node, Path, Record
from bbfs.resources import ResourceManager
from bbfs.telling import Telling
from bbfs.versions import DIRECTORY_SALT, STAND_IN, opens_anew, salt_of

ROOT: Path = ()
FOREVER = 3600.0
SHORT = 1.0
"""Seconds for which the kernel may keep a name that leads to a version of which nothing is known yet."""
NAME_MAX = 255
LISTED_KEPT = 1_000_000
"""As `ENTRIES_KEPT`, of directories of which nothing but the listing is known: 24 bytes each."""
ENTRIES_KEPT = 100_000
"""Names in directories whose listing is kept ready to be given out again, about half a kilobyte each."""


@dataclass(frozen=True, slots=True)
class Usage:
    """For statfs: bytes whose size is known, and resources that are listed."""

    bytes: int
    files: int


class FileSystem:
    """One mounted tree over a ResourceManager.

    invalidate: told (parent inode, name) when the kernel's knowledge of a name is no longer true; it must not block.
    """

    def __init__(self, manager: ResourceManager, invalidate: Callable[[int, bytes], None]) -> None:
        self._manager = manager
        self._inodes = InodeTable()
        self._files = OpenFiles()
        self._directories: dict[int, OpenDirectory | ListedDirectory] = {}
        self._listings: LRUCache[int, OpenDirectory] = LRUCache(ENTRIES_KEPT, getsizeof=_charge)
        self._listed: LRUCache[int, ListedDirectory] = LRUCache(LISTED_KEPT, getsizeof=lambda kept: len(kept.view))
        self._next_directory = 1
        self._started_ns = int(manager.clock() * NANOSECONDS)
        self.root_attributes: dict[str, bytes] = {}
        """The extended attributes of the mount's root, by name."""
        self._described = Described(manager)
        self._telling = Telling(manager, self._inodes, self._files, invalidate)
        self._changes = 0
        self._uncounted = Inode(InodeKey(ROOT), lookups=1)  # counts what nobody counts
        manager.on_change(self._changed)

    def _changed(self, paths: Iterable[Path]) -> None:
        self._changes += 1
        self._telling.changed(paths)

    # -- names -------------------------------------------------------------------------------------------------------

    def lookup_now(self, parent: int, raw_name: bytes) -> Attributes | None:
        """As `lookup`, or None where the source must be asked first."""
        directory = self._path(parent)
        if len(raw_name) > NAME_MAX:
            raise NameTooLong(f"{len(raw_name)} bytes")
        try:
            path = (*directory, raw_name.decode())
        except UnicodeDecodeError:
            return self._absence(directory, raw_name, ABSENT_FOR)
        try:
            node = self._known(path)
        except (NotFound, NotADirectory):
            return self._no_entry(path, raw_name)
        return None if node is None else self._counted(path, node)

    async def lookup(self, parent: int, raw_name: bytes) -> Attributes:
        """The attributes of a name, counting one reference, or of its absence. Never waits for content (S12)."""
        found = self.lookup_now(parent, raw_name)
        if found is not None:
            return found
        path = (*self._path(parent), raw_name.decode())
        try:
            node = await self._manager.find(path)
        except (NotFound, NotADirectory):
            return self._no_entry(path, raw_name)
        return self._counted(path, node)

    def _known(self, path: Path) -> Node | None:
        """The node at a path, without waiting; None if the source must be asked. Raises NotFound."""
        if len(path) > 1:
            return self._manager.known(path)
        return self._root_entry(path[0]) if path else DIRECTORY

    async def _find(self, path: Path) -> Node:
        node = self._known(path)
        return await self._manager.find(path) if node is None else node

    def _root_entry(self, name: str) -> Node:
        if self._manager.has_source(name) or name in self._manager.roots():
            return DIRECTORY
        target = self._manager.root_link(name)
        if target is None:
            raise NotFound(f"no such source: {name}")
        return Node("symlink", target=target)

    def _counted(self, path: Path, node: Node) -> Attributes:
        """The attributes of an entry that the kernel is given: one more reference to its inode."""
        return self._attributes(self._inodes.remember(path, self._entry_salt(path, node)), path, node)

    def _entry_salt(self, path: Path, node: Node) -> str:
        """The version part of the inode that a name leads to.

        While a program has the file open, its inode answers for the open version. If that may not be the source's any
        more, the name leads to a stand-in, whose getattr and open find out which inode is the right one; so a stat of
        the name is true although the open file keeps its version.
        """
        salt = salt_of(node)
        if node.kind != "file" or node.record is None or not self._files:
            return salt
        if not self._files.holds(self._inodes.number(path, salt)):
            return salt
        if opens_anew(node.record):
            return salt
        return salt if self._manager.settled(node.record) else salt + STAND_IN

    def _no_entry(self, path: Path, raw_name: bytes) -> Attributes:
        most = self._manager.absence(path) if len(path) > 1 else ABSENT_FOR
        return self._absence(path[:-1], raw_name, most)

    def _absence(self, directory: Path, raw_name: bytes, most: float) -> Attributes:
        """Says that there is no such name, which the kernel may keep for a while."""
        self._telling.told_absent(directory, raw_name)
        return Attributes(0, "file", 0, 0, self._name_validity(directory, most=most), 0.0)

    def refresh(self, path: Path) -> None:
        """Drop what is known at and below a path, by the kernel as well (S21). Raises NotFound for no source."""
        self._changes += 1
        self._manager.refresh(path)
        self._telling.appear(path)

    def forget(self, ino: int, references: int) -> None:
        """The kernel drops references to an inode."""
        self._inodes.forget(ino, references)

    def _path(self, ino: int) -> Path:
        return self._inodes.get(ino).path

    def _name_validity(self, directory: Path, most: float = FOREVER) -> float:
        """Seconds for which the kernel may keep a name of a directory, or its absence."""
        return most if directory == ROOT else min(most, self._manager.validity((*directory, "")))

    # -- attributes --------------------------------------------------------------------------------------------------

    def _attributes(self, ino: int, path: Path, node: Node) -> Attributes:
        """What is known now; a size that only a load can tell is shown without validity (S9)."""
        entry_timeout = self._name_validity(path[:-1]) if path else FOREVER
        record = node.record
        if node.kind == "symlink":
            length = len(_bytes(node.target or ""))
            modified = record.modified_ns if record is not None else self._started_ns
            return Attributes(ino, "symlink", length, modified, entry_timeout, entry_timeout)
        if node.kind == "directory":
            modified = record.modified_ns if record is not None else self._started_ns
            if node.candidate is not None:  # the next walk finds out again, which costs nothing while that is known
                return Attributes(ino, "directory", 0, modified, 0.0, 0.0)
            return Attributes(ino, "directory", 0, modified, entry_timeout, entry_timeout)
        assert record is not None
        size, validity = self._manager.size_now(record) or (record.best_size(), 0.0)
        # The name leads to a version, so the kernel is to look it up again when that may have changed.
        entry_timeout = 0.0 if record.provisional else min(entry_timeout, max(validity, SHORT))
        return Attributes(ino, "file", size, record.modified_ns, entry_timeout, validity)

    def getattr_now(self, ino: int) -> Attributes | None:
        """As `getattr`, or None where the source must be asked first."""
        pinned = self._files.latest(ino)
        if pinned is not None:
            return pinned.attributes
        path, salt = self._inodes.get(ino)
        node = self._known(path)
        if node is None or node.candidate is not None:
            return None
        record = node.record
        if node.kind == "file" and record is not None:
            if self._manager.size_now(record) is None:
                return None
            if record.ahead:
                self._used(path, record)
            self._require_version(path, salt, node)
        elif path and salt_of(node) != salt:
            raise Outdated("/".join(path))
        return self._attributes(ino, path, node)

    async def getattr(self, ino: int) -> Attributes:
        """The attributes of an inode, its true size included: this is where an unknown one is learnt.

        Raises Outdated when the inode is an earlier version of what has its name now, unless a program has it open:
        then it answers for the version that is open.
        """
        found = self.getattr_now(ino)
        if found is not None:
            return found
        path, salt = self._inodes.get(ino)
        node = await self._find(path)
        if not path or node.kind != "file":
            if path and salt_of(node) != salt:
                raise Outdated("/".join(path))
            try:
                await self._decide(path, node)
            except BbfsError as error:
                # Many servers have no code for "no such resource" and answer "internal error" (EIO): that must not bar
                # the way to what is below. An open or a listing of the name itself tells the error.
                if type(error) is not BbfsError:
                    raise
            return self._attributes(ino, path, node)
        await self._learn(path, node)
        self._require_version(path, salt, node)
        return self._attributes(ino, path, node)

    async def _decide(self, path: Path, node: Node) -> None:
        """Have the source say whether a name is a resource, where it may as well be a directory above others.

        LOOKUP calls it a directory, so that a program can walk through it. Raises Outdated if it is a resource after
        all: the kernel then looks again.
        """
        if node.candidate is None or not await self._manager.exists(node.candidate):
            return
        if (await self._find(path)).kind != "directory":
            raise Outdated("/".join(path))

    async def _learn(self, path: Path, node: Node) -> None:
        """Have the size known, with the siblings loaded ahead where a program walks through them."""
        record = node.record
        assert record is not None
        manager = self._manager
        known = manager.size_now(record) is not None or manager.just_changed(record) or manager.lazy(record)
        if not known or record.ahead:
            record.ahead = False
            self._manager.accessed(path, record, wanted=not known)
        if not known:
            await self._manager.learn(record)

    def _require_version(self, path: Path, salt: str, node: Node) -> None:
        """Raises Outdated unless `salt` is the version of the node now. A stand-in gives way once that is certain."""
        record = node.record
        assert record is not None
        version = salt.removesuffix(STAND_IN)
        if record.salt != version or record.parts is not None or (salt != version and self._manager.settled(record)):
            self._manager.send_on(record)
            raise Outdated("/".join(path))

    async def readlink(self, ino: int) -> bytes:
        node = await self._find(self._path(ino))
        if node.kind != "symlink" or node.target is None:
            raise Outdated("no longer a symbolic link")
        return _bytes(node.target)

    # -- directories -------------------------------------------------------------------------------------------------

    def opendir_now(self, ino: int) -> int | None:
        """As `opendir`, or None where something must be found out first."""
        now = self._manager.clock()
        listing = self._listings.get(ino)
        if listing is not None and now < listing.lease.until:
            return self._directory(listing)
        listed = self._listed.get(ino)
        return self._directory(listed) if listed is not None and listed.current(now) else None

    async def opendir(self, ino: int) -> int:
        """A handle on a directory's names as they are now. This may wait for a listing."""
        handle = self.opendir_now(ino)
        if handle is not None:
            return handle
        path = self._path(ino)
        if path == ROOT:
            return self._directory(
                OpenDirectory.of(path, ((name, DIRECTORY) for name in sorted(self._manager.roots())), None)
            )
        node = await self._find(path)
        await self._decide(path, node)
        listed = await self._open_listed(ino, path)
        if listed is not None:
            return self._directory(listed)
        children = await self._manager.children(path)
        if not children and node.candidate is not None and self._manager.absent_until(node.candidate) is not None:
            raise NotFound("/".join(path))
        # What is merely listed has no record yet that could tell of a change.
        kept = not any(isinstance(node.record, Listed) for node in children.values())
        lease = self._manager.names_lease(path) if kept else None
        opened = OpenDirectory.of(path, children.items(), lease)
        if lease is not None:
            self._listings[ino] = opened
        return self._directory(opened)

    async def _open_listed(self, ino: int, path: Path) -> ListedDirectory | None:
        """A directory of which most entries are merely listed, or that is too large to be looked through at once."""
        view = await self._manager.view(path)
        if view is None or not view.worthwhile:
            return None
        lease = self._manager.names_lease(path)
        opened = ListedDirectory.of(path, view, lease or Lease())
        self._listings.pop(ino, None)
        if lease is not None and len(view) <= LISTED_KEPT:
            self._listed[ino] = opened
        return opened

    def _directory(self, opened: OpenDirectory | ListedDirectory) -> int:
        handle = self._next_directory
        self._next_directory = handle + 1
        self._directories[handle] = opened
        return handle

    def ready(self, handle: int, pack: Callable[[Attributes], Any]) -> list[Ready] | None:
        """All entries of a directory as `pack` makes them, where that was done before and nothing has changed since.

        The position of the next is the place in the list, from 1 up. Who takes an entry counts a lookup of its inode,
        which is still held (`lookups`) or the entry must be had from `readdir`. None where there is no such list.
        """
        opened, now = self._directories[handle], self._manager.clock()
        if isinstance(opened, ListedDirectory) or self._files or now >= opened.lease.until:
            return None
        if opened.ready_for == self._changes and now < opened.ready_until:
            return opened.ready
        first = [(name, pack(attributes), self._uncounted) for name, attributes in self._dots(opened.path)]
        return opened.ready if opened.make_ready(first, pack, now, self._changes) else None

    def _dots(self, path: Path) -> Iterator[tuple[bytes, Attributes]]:
        """`.` and `..`, of which the kernel holds no reference."""
        for name, own in ((b".", path), (b"..", path[:-1])):
            number = self._inodes.number(own, DIRECTORY_SALT)
            yield name, Attributes(number, "directory", 0, self._started_ns, 0.0, 0.0)

    def readdir(self, handle: int, start: int) -> Iterator[tuple[bytes, Attributes, int]]:
        """(name, attributes, position of the next) from a position on. Each entry taken counts one reference.

        A caller that has no room for an entry gives its reference back with `forget`. `.` and `..` come first and
        count nothing.
        """
        opened = self._directories[handle]
        path = opened.path
        for position, (name, shown) in enumerate(self._dots(path)):
            if start <= position:
                yield name, shown, position + 1
        if isinstance(opened, ListedDirectory):
            opened.listed.entry_timeout = min(self._name_validity(path), SHORT)
            for name, shown, position in opened.entries(max(0, start - 2), self._inodes, self._files, self._shown):
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

    def _shown(self, path: Path, node: Node | None) -> Attributes:
        """The attributes of an entry, with one more reference: as it is now, where no node is given."""
        if node is None:
            node = self._known(path)
        if node is None:
            raise NotFound("/".join(path))
        record = node.record
        if node.kind == "file" and record is not None and record.parts is not None:
            node = Node("directory", record)
        return self._counted(path, node)

    def _tell(self, directory: Path, entry: Entry, lease: Lease, now: float) -> Attributes:
        """The attributes of an entry as they are now, kept with it where they hold for a while."""
        node, path = entry.node, (*directory, entry.name)
        record = node.record
        if node.kind == "file" and record is not None and record.parts is not None:
            node = Node("directory", record)
        found = self._counted(path, node)
        entry.attributes = None
        if now >= lease.until:
            return found
        inode = self._inodes.find(found.ino)
        if inode is None or node.candidate is not None or inode.key.salt != salt_of(node):
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
        del self._directories[handle]

    # -- files -------------------------------------------------------------------------------------------------------

    def open_now(self, ino: int) -> int | None:
        """As `open` for reading, of a file whose content is there. None: `open` it."""
        inode = self._inodes.find(ino)
        if inode is None:
            return None
        opening: Opening | None = inode.note
        if opening is None:
            return self._open_loaded(ino, inode)
        now = self._manager.clock()
        if opening.holds_for != self._changes or now >= opening.until:
            if not opening.confirmed(now, self._changes):
                return self._open_loaded(ino, inode)
        elif now >= opening.lease.until:
            return self._open_loaded(ino, inode)
        content = self._manager.contents.get(opening.key)
        if content is None:
            return None
        opened = OpenFile(ino, content, opening.modified_ns, opening.path, opening.record, opening.salt, False, False)
        return self._files.add(opened)

    def _open_loaded(self, ino: int, inode: Inode) -> int | None:
        """As `open_now`, of a file that was not opened before, or no longer is what it was opened as."""
        path, salt = inode.key
        node = self._known(path)
        record = node.record if node is not None and node.kind == "file" else None
        if record is None or record.on_open or record.salt != salt or record.parts is not None:
            return None
        content = self._manager.content_now(record)
        if content is None:
            return None
        if record.ahead:
            self._used(path, record)
        self._note(inode, path, record)
        return self._open(ino, path, record, content)

    def _used(self, path: Path, record: Record) -> None:
        """What was loaded ahead has found its reader, so that more is loaded."""
        record.ahead = False
        self._manager.accessed(path, record, wanted=False)

    def _note(self, inode: Inode, path: Path, record: Record) -> None:
        """Remember what an inode leads to, for as long as that is promised."""
        lease = self._manager.lease(record)
        inode.note = None if lease is None else Opening(path, record, record.salt, lease)

    async def open(self, ino: int, *, writing: bool) -> int:
        """A handle that pins the content as it is now. This may wait for a load.

        Raises Outdated when the content is not the version that the inode stands for; the kernel then looks the name
        up again and opens the new inode.
        """
        if writing:
            raise ReadOnly("the mount is read-only")
        handle = self.open_now(ino)
        if handle is not None:
            return handle
        path, salt = self._inodes.get(ino)
        node = await self._find(path)
        if node.kind == "directory":
            raise IsADirectory("/".join(path)) if salt == DIRECTORY_SALT else Outdated("/".join(path))
        record = node.record
        if record is None or node.kind != "file":
            raise NotSupported(f"{'/'.join(path)} is no file")
        if record.salt != salt.removesuffix(STAND_IN):
            raise Outdated("/".join(path))
        content = self._manager.content_now(record)
        if (content is None or record.ahead) and not record.on_open:
            record.ahead = False
            self._manager.accessed(path, record, wanted=content is None)
        if content is None:
            try:
                content = await self._manager.open(record)
            except IsADirectory as error:
                raise Outdated(str(error)) from error
        self._require_version(path, salt, node)
        inode = self._inodes.find(ino)
        if inode is not None and not record.on_open and record.salt == salt:
            self._note(inode, path, record)
        return self._open(ino, path, record, content)

    def _open(self, ino: int, path: Path, record: Record, content: Content) -> int:
        record.changed_at = record.awaited_until = 0.0  # whoever was sent here has arrived
        anew = opens_anew(record)
        # Announced while it was loaded: what came may be older than that. (While a source is down, nothing newer is.)
        behind = record.suspected and not record.stale and not anew
        return self._files.add(OpenFile(ino, content, record.modified_ns, path, record, record.salt, anew, behind))

    def shares_inode(self, handle: int) -> bool:
        """Whether opens of the same inode may have other bytes, so that the kernel must keep none of them."""
        return self._files[handle].shares_inode

    def read_now(self, handle: int, offset: int, length: int) -> bytes | None:
        """A slice of what the handle pins, or None where that means waiting for a local disk."""
        return self._files[handle].content.read(offset, length)

    async def read(self, handle: int, offset: int, length: int) -> bytes:
        return await self._files[handle].content.read_waiting(offset, length)

    def release(self, handle: int) -> None:
        """Unpin. A content that holds a descriptor gives it back with its last reference."""
        self._files.remove(handle)

    # -- changes of open files ---------------------------------------------------------------------------------------

    def changed(self, handle: int) -> bool:
        """Whether the source is known to have, or has said that it has, something else than what a handle pins."""
        return self._files[handle].changed

    def watch_handle(self, handle: int, wake: Callable[[], None]) -> None:
        """Have `wake` called once, when `changed` becomes true; no-op if it is. It must not block, nor raise.

        A handle has one `wake`: a later one takes its place. It goes with the handle.
        """
        opened = self._files[handle]
        if not opened.changed:
            opened.wake = wake

    def unwatch(self) -> None:
        """Wake nobody any more: the mount is going, and the kernel wakes who waits for it."""
        for opened in self._files:
            opened.wake = None

    # -- extended attributes -----------------------------------------------------------------------------------------

    def getxattr_now(self, ino: int, name: bytes) -> bytes | None:
        """As `getxattr`, or None where the source must be asked first."""
        values = self._xattrs_now(ino)
        return None if values is None else _value(values, name)

    async def getxattr(self, ino: int, name: bytes) -> bytes:
        """Raises NoAttribute. Never waits for content (S12)."""
        return _value(await self._xattrs(ino), name)

    def listxattr_now(self, ino: int) -> list[bytes] | None:
        """As `listxattr`, or None where the source must be asked first."""
        values = self._xattrs_now(ino)
        return None if values is None else [name.encode() for name in values]

    async def listxattr(self, ino: int) -> list[bytes]:
        return [name.encode() for name in await self._xattrs(ino)]

    def _xattrs_now(self, ino: int) -> dict[str, bytes] | None:
        values = self._described.again(ino)
        if values is not None:
            return values
        path = self._path(ino)
        if not path:
            return self.root_attributes
        node = self._known(path)
        return None if node is None else self._described.make(ino, path, node)

    async def _xattrs(self, ino: int) -> dict[str, bytes]:
        values = self._xattrs_now(ino)
        if values is None:
            path = self._path(ino)
            values = self._described.make(ino, path, await self._find(path))
        return values

    # -- the whole ---------------------------------------------------------------------------------------------------

    def usage(self) -> Usage:
        used = [source.catalog.usage() for source in self._manager.sources.values()]
        return Usage(sum(size for size, _ in used), sum(count for _, count in used))


def _value(values: Mapping[str, bytes], name: bytes) -> bytes:
    """One extended attribute. Raises NoAttribute."""
    text = name.decode("utf-8", "replace")
    value = values.get(text)
    if value is None:
        raise NoAttribute(text)
    return value


def _charge(listing: OpenDirectory) -> int:
    return len(listing.entries) + 1


def _bytes(target: str) -> bytes:
    """A link's target as the source has it; a folder's may hold any bytes."""
    return target.encode("utf-8", "surrogateescape")
