"""What data sources look like as a file system: lookup, attributes, directory and file handles.

It knows no FUSE: it takes inode numbers and names, gives values, and raises BbfsError; the same scenarios run on it
without a mount. Names are resolved from their path at each use, so a listing may change under any inode. An inode is a
path and a version of the content (S7); what it answers belongs to that version, or is `Outdated`.

Between two awaits a task is alone; handles and tables need no lock.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

from cachetools import LRUCache

from bbfs import xattrs
from bbfs.contents import ABSENT_FOR
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
from bbfs.inodes import InodeTable
from bbfs.model import Content
from bbfs.records import NANOSECONDS, Node, Path, Record
from bbfs.resources import ResourceManager

DIRECTORY_SALT = "/"
"""The version part of a directory's inode: never that of a file, since a name may change from one to the other."""
STAND_IN = "\0?"
"""Ends the version part of an inode that stands in for one that is open and may be outdated."""
ROOT: Path = ()
FOREVER = 3600.0
SHORT = 1.0
"""Seconds for which the kernel may keep a name that leads to a version of which nothing is known yet."""
NAME_MAX = 255
ABSENT_KEPT = 10_000
"""Absent names that programs have asked for and that a refresh has the kernel look up again."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """What stat shows, and for how many seconds the kernel may keep the name (`entry_timeout`) and the rest.

    ino 0 says that there is no such name, which the kernel may keep as well. size: bytes.
    """

    ino: int
    kind: Literal["directory", "file", "symlink"]
    size: int
    modified_ns: int
    entry_timeout: float
    attr_timeout: float


@dataclass(slots=True)
class OpenFile:
    """One version of a content, pinned from open to release (S13).

    record, salt: what it is a version of, and which. shares_inode: whether other opens of the inode may have another
    version: its pages must not be mixed then.
    changed: whether this is no longer what the source has, as far as it has told or was asked; once true it stays.
    wake: whom to tell of that.
    """

    ino: int
    content: Content
    attributes: Attributes
    path: Path
    record: Record
    salt: str
    shares_inode: bool
    changed: bool
    wake: Callable[[], None] | None = None


@dataclass(slots=True)
class OpenDirectory:
    """The names of a directory as they were when it was opened, so that a walk neither skips nor repeats one."""

    path: Path
    entries: list[tuple[str, Node]]


Handle = TypeVar("Handle", OpenFile, OpenDirectory)


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
        self._invalidate = invalidate
        self._inodes = InodeTable()
        self._files: dict[int, OpenFile] = {}
        self._directories: dict[int, OpenDirectory] = {}
        self._open_inodes: dict[int, list[int]] = {}
        self._absent: LRUCache[tuple[Path, bytes], None] = LRUCache(ABSENT_KEPT)
        self._open_at: dict[Path, set[int]] = {}  # by every directory above as well
        self._next_handle = 1
        self._started_ns = int(manager.clock() * NANOSECONDS)
        self.root_attributes: dict[str, bytes] = {}
        """The extended attributes of the mount's root, by name."""
        manager.on_change(self._changed)

    # -- names -------------------------------------------------------------------------------------------------------

    async def lookup(self, parent: int, raw_name: bytes) -> Attributes:
        """The attributes of a name, counting one reference, or of its absence. Never waits for content (S12)."""
        directory = self._path(parent)
        if len(raw_name) > NAME_MAX:
            raise NameTooLong(f"{len(raw_name)} bytes")
        try:
            path = (*directory, raw_name.decode())
        except UnicodeDecodeError:
            return self._absence(directory, raw_name, ABSENT_FOR)
        try:
            node = await self._find(path)
        except (NotFound, NotADirectory):
            return self._absence(directory, raw_name, self._manager.absence(path) if directory else ABSENT_FOR)
        return self._counted(path, node)

    async def _find(self, path: Path) -> Node:
        if path == ROOT:
            return Node("directory")
        if len(path) == 1:
            return self._root_entry(path[0])
        node = self._manager.known(path)
        return await self._manager.find(path) if node is None else node

    def _root_entry(self, name: str) -> Node:
        if name in self._manager.roots():
            return Node("directory")
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
        salt = _salt(node)
        if node.kind != "file" or node.record is None or self._inodes.number(path, salt) not in self._open_inodes:
            return salt
        if _opens_anew(node.record):
            return salt
        return salt if self._manager.settled(node.record) else salt + STAND_IN

    def _absence(self, directory: Path, raw_name: bytes, most: float) -> Attributes:
        """Says that there is no such name, which the kernel may keep for a while."""
        self._absent[directory, raw_name] = None
        return Attributes(0, "file", 0, 0, self._name_validity(directory, most=most), 0.0)

    def refresh(self, path: Path) -> None:
        """Drop what is known at and below a path, by the kernel as well (S21). Raises NotFound for no source."""
        self._manager.refresh(path)
        for directory, raw_name in [*self._absent]:
            parent = self._inodes.held(directory, DIRECTORY_SALT)
            if (*directory, raw_name.decode("utf-8", "replace"))[: len(path)] == path:
                del self._absent[directory, raw_name]
                if parent is not None:
                    self._invalidate(parent, raw_name)

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

    async def getattr(self, ino: int) -> Attributes:
        """The attributes of an inode, its true size included: this is where an unknown one is learnt.

        Raises Outdated when the inode is an earlier version of what has its name now, unless a program has it open:
        then it answers for the version that is open.
        """
        pinned = self._pinned(ino)
        if pinned is not None:
            return pinned
        path, salt = self._inodes.get(ino)
        node = await self._find(path)
        if not path or node.kind != "file":
            if path and _salt(node) != salt:
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

    def _pinned(self, ino: int) -> Attributes | None:
        handles = self._open_inodes.get(ino)
        return self._files[handles[-1]].attributes if handles else None

    async def readlink(self, ino: int) -> bytes:
        node = await self._find(self._path(ino))
        if node.kind != "symlink" or node.target is None:
            raise Outdated("no longer a symbolic link")
        return _bytes(node.target)

    # -- directories -------------------------------------------------------------------------------------------------

    async def opendir(self, ino: int) -> int:
        """A handle on a directory's names as they are now. This may wait for a listing."""
        path = self._path(ino)
        if path == ROOT:
            entries = [(name, Node("directory")) for name in sorted(self._manager.roots())]
        else:
            node = await self._find(path)
            await self._decide(path, node)
            entries = list((await self._manager.children(path)).items())
            if not entries and node.candidate is not None and self._manager.absent_until(node.candidate) is not None:
                raise NotFound("/".join(path))
        return self._handle(self._directories, OpenDirectory(path, entries))

    def readdir(self, handle: int, start: int) -> Iterator[tuple[bytes, Attributes, int]]:
        """(name, attributes, position of the next) from a position on. Each entry taken counts one reference.

        A caller that has no room for an entry gives its reference back with `forget`. `.` and `..` come first and
        count nothing.
        """
        opened = self._directories[handle]
        path = opened.path
        for position, name in ((0, b"."), (1, b"..")):
            if start <= position:
                own = path if position == 0 else path[:-1]
                number = self._inodes.number(own, DIRECTORY_SALT)
                yield name, Attributes(number, "directory", 0, self._started_ns, 0.0, 0.0), position + 1
        for position in range(max(0, start - 2), len(opened.entries)):
            name, node = opened.entries[position]
            if node.kind == "file" and node.record is not None and node.record.parts is not None:
                node = Node("directory", node.record)
            yield name.encode(), self._counted((*path, name), node), position + 3

    def releasedir(self, handle: int) -> None:
        del self._directories[handle]

    # -- files -------------------------------------------------------------------------------------------------------

    async def open(self, ino: int, *, writing: bool) -> int:
        """A handle that pins the content as it is now. This may wait for a load.

        Raises Outdated when the content is not the version that the inode stands for; the kernel then looks the name
        up again and opens the new inode.
        """
        if writing:
            raise ReadOnly("the mount is read-only")
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
        record.changed_at = record.awaited_until = 0.0  # whoever was sent here has arrived
        pinned = Attributes(ino, "file", content.size, record.modified_ns, 0.0, 0.0)
        anew = _opens_anew(record)
        # Announced while it was loaded: what came may be older than that. (While a source is down, nothing newer is.)
        behind = record.suspected and not record.stale and not anew
        opened = OpenFile(ino, content, pinned, path, record, record.salt, shares_inode=anew, changed=behind)
        handle = self._handle(self._files, opened)
        self._open_inodes.setdefault(ino, []).append(handle)
        for depth in range(1, len(path) + 1):
            self._open_at.setdefault(path[:depth], set()).add(handle)
        return handle

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
        opened = self._files.pop(handle)
        handles = self._open_inodes[opened.ino]
        handles.remove(handle)
        if not handles:
            del self._open_inodes[opened.ino]
        for depth in range(1, len(opened.path) + 1):
            place = opened.path[:depth]
            self._open_at[place].discard(handle)
            if not self._open_at[place]:
                del self._open_at[place]

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
        for opened in self._files.values():
            opened.wake = None

    def _outdate(self, told: Path) -> None:
        """Wake those who hold a file open at a path, or below it, that is no longer what they opened."""
        for handle in list(self._open_at[told]):
            opened = self._files[handle]
            if not opened.changed and self._is_outdated(opened, told):
                opened.changed = True
                wake, opened.wake = opened.wake, None
                if wake is not None:
                    wake()

    def _is_outdated(self, opened: OpenFile, told: Path) -> bool:
        """Whether an open file is another version than its path has, now that something is new at `told`."""
        record, node = opened.record, None
        if not opened.shares_inode and (record.suspected or record.salt != opened.salt):
            return True
        for place in (told, opened.path):  # a directory that is gone takes with it what is below
            try:
                node = self._manager.known(place)
            except (NotFound, NotADirectory):
                return True
            if node is None:
                return place == told
        record = node.record if node is not None else None
        if record is None or opened.shares_inode:
            return record is None
        return record.suspected or record.salt != opened.salt

    def _handle(self, table: dict[int, Handle], value: Handle) -> int:
        handle = self._next_handle
        self._next_handle += 1
        table[handle] = value
        return handle

    # -- extended attributes -----------------------------------------------------------------------------------------

    async def getxattr(self, ino: int, name: bytes) -> bytes:
        """Raises NoAttribute. Never waits for content (S12)."""
        value = (await self._xattrs(ino)).get(name.decode("utf-8", "replace"))
        if value is None:
            raise NoAttribute(name.decode("utf-8", "replace"))
        return value

    async def listxattr(self, ino: int) -> list[bytes]:
        return [name.encode() for name in await self._xattrs(ino)]

    async def _xattrs(self, ino: int) -> dict[str, bytes]:
        path = self._path(ino)
        if not path:
            return self.root_attributes
        node = await self._find(path)
        if len(path) == 1 and node.kind == "directory":
            return xattrs.attributes(self._manager.source_document(path))
        if node.kind == "symlink":
            return {}
        if node.record is not None:
            return xattrs.attributes(self._manager.document(path, node.record))
        document = self._manager.directory_document(path)
        return xattrs.attributes(document) if document else {}

    # -- the whole ---------------------------------------------------------------------------------------------------

    def usage(self) -> Usage:
        used = [source.catalog.usage() for source in self._manager.sources.values()]
        return Usage(sum(size for size, _ in used), sum(count for _, count in used))

    def _changed(self, paths: Iterable[Path]) -> None:
        """Tell the kernel about the names that are not what they were, and about ancestors that came or went."""
        told: set[Path] = set()
        for path in paths:
            if path in self._open_at:
                self._outdate(path)
            for depth in range(1, len(path) + 1):
                parent = self._inodes.held(path[: depth - 1], DIRECTORY_SALT)
                if parent is None:
                    break  # the kernel holds nothing below what it does not hold
                place = path[:depth]
                if place not in told and (depth == len(path) or self._came_or_went(place)):
                    told.add(place)
                    self._invalidate(parent, place[-1].encode())

    def _came_or_went(self, directory: Path) -> bool:
        if len(directory) == 1 and self._manager.has_source(directory[0]):
            return False
        known = self._inodes.held(directory, DIRECTORY_SALT) is not None
        try:
            return (self._manager.known(directory) is not None) != known
        except NotFound:
            return known


def _bytes(target: str) -> bytes:
    """A link's target as the source has it; a folder's may hold any bytes."""
    return target.encode("utf-8", "surrogateescape")


def _opens_anew(record: Record) -> bool:
    """Whether each open of a file is a load of its own (S31).

    All of them are the same inode, so that a program which has looked at the file finds the one it looked at when it
    opens it: the version that it gets is made by the open.
    """
    return record.on_open and record.parent is None


def _salt(node: Node) -> str:
    if node.kind == "directory":
        return DIRECTORY_SALT
    if node.kind == "symlink":
        return "@" + (node.target or "")
    assert node.record is not None
    return node.record.salt
