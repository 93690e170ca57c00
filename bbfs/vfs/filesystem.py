"""What data sources look like as a file system: lookup, attributes, directory and file handles.

It knows no FUSE: it takes inode numbers and names, gives values, and raises BbfsError; the same scenarios run on it
without a mount. Names are resolved from their path at each use, so a listing may change under any inode. An inode is a
path and a version of the content (S7); what it answers belongs to that version, or is `Outdated`.

Between two awaits a task is alone; handles and tables need no lock.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bbfs.model.errors import BbfsError, IsADirectory, NoAttribute, NotSupported, Outdated, ReadOnly
from bbfs.model.values import WAITS_FOR_SOURCE, Content
from bbfs.resources.catalog.record import DIRECTORY_SALT, STAND_IN, Node, Path, Record, opens_anew, salt_of
from bbfs.resources.manager import ResourceManager
from bbfs.vfs.directory_handles import Directories
from bbfs.vfs.file_handles import Attributes, OpenFile, OpenFiles, Opening
from bbfs.vfs.inode_table import Inode, InodeTable
from bbfs.vfs.kernel_cache import Telling
from bbfs.vfs.names import Names, as_bytes
from bbfs.vfs.xattr_cache import Described


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
        self.root_attributes: dict[str, bytes] = {}
        """The extended attributes of the mount's root, by name."""
        self._described = Described(manager)
        self._telling = Telling(manager, self._inodes, self._files, invalidate)
        self._names = Names(manager, self._inodes, self._files, self._telling.told_absent)
        self._directories = Directories(manager, self._inodes, self._files, self._names, self._telling)
        manager.on_change(self._telling.changed)
        # A walk asks for these a million times: none of them goes through another call.
        self.lookup_now, self.lookup = self._names.lookup_now, self._names.lookup
        opened = self._directories
        self.opendir_now, self.opendir, self.releasedir = opened.opendir_now, opened.opendir, opened.releasedir
        self.begin, self.ready, self.readdir = opened.begin, opened.ready, opened.readdir

    # -- names -------------------------------------------------------------------------------------------------------

    def refresh(self, path: Path) -> None:
        """Drop what is known at and below a path, by the kernel as well (S21). Raises NotFound for no source."""
        self._manager.refresh(path)
        self._telling.appear(path)

    def forget(self, ino: int, references: int) -> None:
        """The kernel drops references to an inode."""
        self._inodes.forget(ino, references)

    # -- attributes --------------------------------------------------------------------------------------------------

    def getattr_now(self, ino: int) -> Attributes | None:
        """As `getattr`, or None where the source must be asked first."""
        pinned = self._files.latest(ino)
        if pinned is not None:
            return pinned.attributes
        path, salt = self._inodes.get(ino)
        node = self._names.known(path)
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
        return self._names.attributes(ino, path, node)

    async def getattr(self, ino: int) -> Attributes:
        """The attributes of an inode, its true size included: this is where an unknown one is learnt.

        Raises Outdated when the inode is an earlier version of what has its name now, unless a program has it open:
        then it answers for the version that is open.
        """
        found = self.getattr_now(ino)
        if found is not None:
            return found
        path, salt = self._inodes.get(ino)
        node = await self._names.find(path)
        if not path or node.kind != "file":
            if path and salt_of(node) != salt:
                raise Outdated("/".join(path))
            try:
                await self._names.decide(path, node)
            except BbfsError as error:
                # Many servers have no code for "no such resource" and answer "internal error" (EIO): that must not bar
                # the way to what is below. An open or a listing of the name itself tells the error.
                if type(error) is not BbfsError:
                    raise
            return self._names.attributes(ino, path, node)
        await self._learn(path, node)
        self._require_version(path, salt, node)
        return self._names.attributes(ino, path, node)

    async def _learn(self, path: Path, node: Node) -> None:
        """Have the size known, with the siblings loaded ahead where a program walks through them."""
        record = node.record
        assert record is not None
        manager = self._manager
        known = manager.size_now(record) is not None or manager.just_changed(record) or manager.lazy(record)
        if not known or record.ahead:
            self._used(path, record, wanted=not known)
        if not known:
            await manager.learn(record)

    def _require_version(self, path: Path, salt: str, node: Node) -> None:
        """Raises Outdated unless `salt` is the version of the node now. A stand-in gives way once that is certain."""
        record = node.record
        assert record is not None
        version = salt.removesuffix(STAND_IN)
        if record.salt != version or record.parts is not None or (salt != version and self._manager.settled(record)):
            self._manager.send_on(record)
            raise Outdated("/".join(path))

    async def readlink(self, ino: int) -> bytes:
        node = await self._names.find(self._names.path(ino))
        if node.kind != "symlink" or node.target is None:
            raise Outdated("no longer a symbolic link")
        return as_bytes(node.target)

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
        if opening.holds_for != self._telling.changes or now >= opening.until:
            if not opening.confirmed(now, self._telling.changes):
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
        node = self._names.known(path)
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

    def _used(self, path: Path, record: Record, *, wanted: bool = False) -> None:
        """A content has found its reader, so that more is loaded ahead. wanted: it is not there, and is loaded next."""
        record.ahead = False
        self._manager.accessed(path, record, wanted=wanted)

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
        node = await self._names.find(path)
        if node.kind == "directory":
            raise IsADirectory("/".join(path)) if salt == DIRECTORY_SALT else Outdated("/".join(path))
        record = node.record
        if record is None or node.kind != "file":
            raise NotSupported(f"{'/'.join(path)} is no file")
        if record.salt != salt.removesuffix(STAND_IN):
            raise Outdated("/".join(path))
        content = self._manager.content_now(record)
        if (content is None or record.ahead) and not record.on_open:
            self._used(path, record, wanted=content is None)
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

    def waits_for_source(self, handle: int) -> bool:
        """Whether reads may wait for the source: the kernel must hold none of them for other files then."""
        return getattr(self._files[handle].content, WAITS_FOR_SOURCE, False)  # a protocol would cost each open more

    def read_now(self, handle: int, offset: int, length: int) -> bytes | None:
        """A slice of what the handle pins, or None where that means waiting for a disk, or for the source."""
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
        path = self._names.path(ino)
        if not path:
            return self.root_attributes
        node = self._names.known(path)
        return None if node is None else self._described.make(ino, path, node)

    async def _xattrs(self, ino: int) -> dict[str, bytes]:
        values = self._xattrs_now(ino)
        if values is None:
            path = self._names.path(ino)
            values = self._described.make(ino, path, await self._names.find(path))
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
