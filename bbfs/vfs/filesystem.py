"""Data sources as a file system: lookup, attributes, directory and file handles.

It knows no FUSE: it takes inode numbers and names, returns values or a `Wait`, and raises BbfsError. Tests run the same
scenarios on it without a mount. Names are resolved from their path at each use, so a listing may change
under any inode. An inode is a path and a version of the content (S7); what it answers belongs to that version, or is
`Outdated`.

Between two awaits a task is alone; handles and tables need no lock.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

from bbfs.model.errors import BbfsError, IsADirectory, NotFound, NotSupported, Outdated
from bbfs.model.values import WAITS_FOR_SOURCE, Change, Content
from bbfs.resources.catalog.record import (
    DIRECTORY_VERSION,
    LARGEST,
    STAND_IN,
    Node,
    Path,
    Record,
    inode_version,
    loads_each_open,
)
from bbfs.resources.manager import ResourceManager
from bbfs.vfs.directory_handles import OpenDirectories
from bbfs.vfs.file_handles import Attributes, OpenFile, OpenFiles, Opening
from bbfs.vfs.inode_table import Inode, InodeTable
from bbfs.vfs.kernel_cache import KernelCache
from bbfs.vfs.names import (
    CREATED_VERSION,
    DirectoryLocks,
    Ended,
    Names,
    Wait,
    after,
    as_bytes,
    identity_below_an_overlay,
    of_draft,
    stated,
)
from bbfs.vfs.passthrough.folders import Passed, passed_folders
from bbfs.vfs.writing.drafts import Drafts
from bbfs.vfs.writing.name_changes import NameChanges
from bbfs.vfs.writing.written_files import WrittenFiles
from bbfs.vfs.xattrs import ExtendedAttributes, XattrCache


@dataclass(frozen=True, slots=True)
class Usage:
    """For statfs: the sum of the known sizes (bytes), and the number of listed resources."""

    bytes: int
    files: int


class Wanted(Enum):
    """The part of a file's attributes that a program has asked for."""

    ALL = "size and times as well, which a load may have to tell"
    EXISTENCE = "existence, type, mode and owner"
    XATTRS = "existence, before extended attributes; they show any other error"


class FileSystem:
    """One mounted tree over a ResourceManager.

    invalidate, invalidate_below: notify the kernel of names that have changed, see `KernelCache`.
    """

    def __init__(
        self,
        manager: ResourceManager,
        invalidate: Callable[[int, bytes], None],
        invalidate_below: Callable[[Change], None],
    ) -> None:
        self._manager = manager
        self._tree = manager.tree
        self._contents = manager.contents
        self._grants = manager.grants
        self.inodes = InodeTable(identity=identity_below_an_overlay if manager.grants.is_lower else None)
        self.files = OpenFiles()
        self.writable_roots = manager.grants.roots
        self.go_on = manager.go_on
        self.locks = DirectoryLocks()
        self.root_attributes: dict[str, bytes] = {}
        """The extended attributes of the mount's root, by name."""
        self._xattr_cache = XattrCache(manager.tree, manager.contents, manager.clock)
        self._kernel = KernelCache(
            manager.tree, manager.contents, self.inodes, self.files, invalidate, invalidate_below
        )
        self.held_below = self._kernel.held_below
        self.names = Names(manager, self.inodes, self.files, self._kernel.note_absent)
        self.directories = OpenDirectories(
            manager.tree, manager.grants, self.inodes, self.files, self.names, self._kernel, manager.clock
        )
        self.drafts = Drafts(manager, self.inodes, self.files, self.names)
        self.writes = WrittenFiles(manager, self.inodes, self.files, self.names, self.drafts)
        self.name_changes = NameChanges(manager, self.inodes, self.files, self.names, self.drafts, self.writes)
        self._drafts = self.names.drafts
        self.passed = passed_folders(manager)
        """The folders that are passed through: requests for their inodes do not come here."""
        self.names.passed = {each.prefix: each.folder.inodes.root.number for each in self.passed}
        self.uncached: dict[int, bool] = {}
        """The open files whose bytes the kernel must not keep, by handle; True where a read may wait for the source.

        Opens of such a file may have other bytes though they share an inode, or the kernel must not hold its pages
        while it waits.
        """
        self.replaced: set[int] = set()
        """The open files whose inode had another version before, by handle: the kernel must drop its pages."""
        manager.changes.subscribe(self._kernel.changed)

    # -- names -------------------------------------------------------------------------------------------------------

    def refresh(self, path: Path) -> None:
        """Invalidate everything at and below a path, in the kernel as well (S21). Raise NotFound for no source."""
        self._manager.refresh(path)
        self._kernel.appear(path)

    def note_changes(self, passed: Passed) -> None:
        """Invalidate what programs have changed in a passed folder."""
        while passed.folder.changes:
            passed.written(self._manager, *passed.folder.changes.popleft())

    def forget(self, ino: int, references: int) -> None:
        """Drop references of the kernel to an inode."""
        if self.inodes.forget(ino, references) and ino in self._drafts and not self.files.holds(ino):
            del self._drafts[ino]

    # -- attributes --------------------------------------------------------------------------------------------------

    def getattr(
        self, ino: int, asker: Callable[[], Awaitable[Wanted]] | None = None, ended: Ended = ()
    ) -> Attributes | Wait:
        """Return the attributes of an inode with its true size, which may have to be loaded.

        Raise Outdated when the inode is an earlier version of what has its name now. An inode that a program has open
        answers for the open version.

        asker: returns what the program has asked for (None: everything). It is called only where a load would be
        necessary. Without a load, the attributes are as cached and have no validity.
        """
        draft = self._drafts.get(ino)
        if draft is not None:
            # A program that appends goes by this size.
            unsized = draft.buffer is None and self._contents.size_now(draft.record) is None
            filled = after(ended, draft.filled) if unsized else None
            return filled if isinstance(filled, Wait) else of_draft(ino, draft)
        pinned = self.files.latest(ino)
        if pinned is not None:
            return pinned.attributes
        path, version = self.inodes.get(ino)
        if version == CREATED_VERSION:
            return self.names.decide_created(path, ended)
        try:
            node = self.names.find(path, ended)
        except NotFound as error:
            if self._creatable(path):
                raise Outdated(str(error)) from None
            raise
        if type(node) is Wait:
            return node
        if node.draft is not None:
            raise Outdated("/".join(path))  # what is being written has an inode of its own
        record = node.record
        if node.kind == "file" and record is not None:
            size = self._contents.size_now(record)
            if record.ahead or size is None:
                learning = self._learn(path, node, record, asker, ended, is_known=size is not None)
                if learning is not None:
                    return learning
            self._require_version(path, version, record)
            return self.names.attributes(ino, path, node, size)
        if path and inode_version(node) != version:
            raise Outdated("/".join(path))
        deciding = None if node.candidate is None else self._deciding(node, ended)
        return self.names.attributes(ino, path, node) if deciding is None else deciding

    def _deciding(self, node: Node, ended: Ended) -> Wait | None:
        """Return the wait for what a name is that only a template makes; None if that is known. Raise BbfsError.

        Many servers have no code for "no such resource" and answer "internal error" (EIO): that must not bar the way to
        what is below. An open or a listing of the name itself tells the error.
        """
        try:
            return self.names.decide(node, ended)
        except BbfsError as error:
            if type(error) is not BbfsError:
                raise
            return None

    def _learn(
        self,
        path: Path,
        node: Node,
        record: Record,
        asker: Callable[[], Awaitable[Wanted]] | None,
        ended: Ended,
        *,
        is_known: bool,
    ) -> Wait | None:
        """Return the wait for the size, if it is wanted and a load has to tell it. is_known: whether it is cached."""
        if is_known or self._contents.just_changed(record) or self._contents.lazy(record):
            if record.ahead:
                self._used(path, record)
            return None
        return after(ended, self._learn_if_wanted, path, record, node.completed, asker)

    async def _learn_if_wanted(
        self, path: Path, record: Record, completed: bool, asker: Callable[[], Awaitable[Wanted]] | None
    ) -> None:
        """Learn the size if it is wanted. Raise BbfsError.

        Only a load tells whether a provisional resource exists. So that is loaded unless the source has completed its
        name.
        """
        wanted = Wanted.ALL if asker is None else await asker()
        if wanted is not Wanted.ALL and (completed or not record.provisional):
            return
        if self._contents.size_now(record) is not None:
            return  # another request has learnt it meanwhile
        try:
            await self._load(path, record)
        except BbfsError as error:
            if self._tree.gives_way(path, record):
                raise Outdated("/".join(path)) from error  # the next lookup finds the text
            if isinstance(error, NotFound) and self._creatable(path):
                raise Outdated(str(error)) from None
            if wanted is not Wanted.XATTRS or isinstance(error, NotFound):
                raise

    def _creatable(self, path: Path) -> bool:
        """Return whether a program may mean to create the file of a name that is gone.

        An open(2) with O_CREAT fails by ENOENT. By ESTALE the kernel looks the name up again.
        """
        return not self._grants.is_lower and path[0] in self._grants.roots

    async def _load(self, path: Path, record: Record) -> None:
        """Learn the size, and load siblings ahead where a program walks through them."""
        self._used(path, record, wanted=True)
        try:
            await self._contents.learn(record)
        except BbfsError as error:
            if not record.provisional:
                self._manager.roots.of(record).note_unsized(record.metadata.native_uri, error)
            raise

    def _require_version(self, path: Path, version: str, record: Record) -> None:
        """Raise Outdated unless `version` is that of the file now. A stand-in gives way once that is certain."""
        certain = version.removesuffix(STAND_IN)
        if (
            record.inode_version != certain
            or record.parts is not None
            or (version != certain and self._contents.resolved(record))
        ):
            self._contents.send_on(record)
            raise Outdated("/".join(path))

    def readlink(self, ino: int, ended: Ended = ()) -> bytes | Wait:
        node = self.names.find(self.names.path(ino), ended)
        if type(node) is Wait:
            return node
        if node.kind != "symlink" or node.target is None:
            raise Outdated("no longer a symbolic link")
        return as_bytes(node.target)

    def state(
        self, ino: int, *, shown: bool = False
    ) -> tuple[Path, Literal["directory", "file", "symlink"], Mapping[str, Any] | None] | None:
        """Return path, kind and version of an inode, as far as the source states it; None if nothing is cached of it.

        shown: by the last answer of the source, however old, as a lookup shows it while the source is down (S20).
        Raise BbfsError.
        """
        path, version = self.inodes.get(ino)
        node = None
        if len(path) > 1 and version != CREATED_VERSION:
            node = self._tree.cached(path) or (self._tree.last_cached(path) if shown else None)
        if node is None or node.draft is not None:
            return None
        if node.kind != "file" or node.record is None:
            return path, node.kind, None
        return path, "file", stated(self._contents.described(node.record))

    # -- files -------------------------------------------------------------------------------------------------------

    def open(self, ino: int, ended: Ended = ()) -> int | Wait:
        """Return a handle, for reading, that pins the current content.

        Raise Outdated when that is not the version of the inode; the kernel then looks the name up again and opens the
        new inode.
        """
        draft = self._drafts.get(ino)
        if draft is not None:
            written = self.writes.opened(draft, ino, reads=True)
            if self.writes.is_direct(written):
                self.uncached[written] = False
            return written
        pinned = self.files.latest(ino) if self._grants.is_lower else None
        if pinned is not None and not pinned.shares_inode:
            return self._add(replace(pinned, wake=None))
        inode = self.inodes.inode(ino)
        again = None if inode.note is None else self._open_again(ino, inode.note)
        if again is not None:
            return again
        path, version = inode.key
        node = self.names.find(path, ended)
        if type(node) is Wait:
            return node
        record = _of_file(node, path, version)
        certain, on_open = version.removesuffix(STAND_IN), record.on_open
        if record.inode_version != certain:
            # The kernel looks the name up again only once, so the version that it finds then must be the last one.
            loading = None if on_open or self._contents.settled(record) else self._loading(path, record, ended)
            if loading is not None:
                return loading
            self._contents.send_on(record)
            raise Outdated("/".join(path))
        content = self._contents.content_now(record)
        if content is None:
            try:
                content = after(ended, self._contents.open, record)
            except IsADirectory as error:
                raise Outdated(str(error)) from error
            if isinstance(content, Wait):
                if not on_open:
                    self._used(path, record, wanted=True)
                return content
        elif record.ahead and not on_open:
            self._used(path, record)
        self._require_version(path, version, record)
        if not on_open and version == certain:
            self._note(inode, path, record)
        return self._open(ino, path, record, certain, content)

    def _open_again(self, ino: int, opening: Opening) -> int | None:
        """Return a handle as the last open of an inode got it; None if that may not be the present content."""
        now, changes = self._manager.clock(), self._kernel.changes
        if now >= opening.lease.until:
            return None
        if not ((opening.holds_for == changes and now < opening.until) or opening.confirmed(now, changes)):
            return None
        content = self._manager.memory.get(opening.key)
        if content is None:
            return None
        record, version = opening.record, opening.version
        record.awaited_until = 0.0
        return self.files.add(OpenFile(ino, content, opening.modified_ns, opening.path, record, version, False, False))

    def _loading(self, path: Path, record: Record, ended: Ended) -> Wait | None:
        """Load what has a name now. Return the wait for that, if any; an error is one of the retry."""
        try:
            loading = after(ended, self._contents.open, record)
        except BbfsError:
            return None
        if not isinstance(loading, Wait):
            return None
        self._used(path, record, wanted=True)
        return loading

    def _used(self, path: Path, record: Record, *, wanted: bool = False) -> None:
        """Report the use of a content to readahead. wanted: it is not cached, and is loaded next."""
        record.ahead = False
        self._contents.accessed(path, record, wanted=wanted)

    def _note(self, inode: Inode, path: Path, record: Record) -> None:
        """Keep what an inode was opened as with it, while a lease lasts."""
        lease = self._tree.lease(record)
        inode.note = None if lease is None else Opening(path, record, inode.key.version, lease)

    def _open(self, ino: int, path: Path, record: Record, version: str, content: Content) -> int:
        record.changed_at = record.awaited_until = 0.0  # the program that was sent here by ESTALE has arrived
        each_open = loads_each_open(record)
        # Announced while it was loaded: what came may be older than that. (While a source is down, nothing newer is.)
        outdated = record.invalidated and not record.stale and not each_open
        opened = OpenFile(ino, content, record.modified_ns, path, record, version, each_open, outdated)
        handle = self._add(opened)
        if ino in self.inodes.retold:
            self.inodes.retold.discard(ino)
            self.replaced.add(handle)
        return handle

    def _add(self, opened: OpenFile) -> int:
        handle, waits = self.files.add(opened), getattr(opened.content, WAITS_FOR_SOURCE, False)
        if opened.shares_inode or waits:
            self.uncached[handle] = waits
        return handle

    def read(self, handle: int, offset: int, length: int, ended: Ended = ()) -> bytes | Wait:
        """Return a slice of the pinned content, or of what programs write in its inode meanwhile.

        The kernel has one set of pages and one size for an inode: it would show zeros where the pinned content ends.
        This may wait for a disk, or for the source.
        """
        opened = self.files[handle]
        draft = self._drafts.get(opened.ino) if self._drafts and handle not in self.uncached else None
        content = draft if draft is not None and draft.is_written else opened.content
        data = content.read(offset, length)
        return after(ended, content.read_waiting, offset, length) if data is None else data

    def release(self, handle: int) -> None:
        """Unpin the content. One that holds a descriptor closes it with its last reference."""
        opened = self.files.remove(handle)
        if opened.draft is not None:
            self.writes.released(opened)
        if self.uncached:
            self.uncached.pop(handle, None)
        self.replaced.discard(handle)

    def send_back(self, handle: int) -> None:
        """Release a file that its program has to look up again first (S7.3). Keep its version for that open."""
        opened = self.files[handle]
        if handle in self.replaced:
            self.inodes.retold.add(opened.ino)  # the kernel has not dropped its pages yet
        self.release(handle)
        if opened.record is not None:
            self._contents.send_on(opened.record)

    # -- changes of open files ---------------------------------------------------------------------------------------

    def changed(self, handle: int) -> bool:
        """Return whether the content that a handle pins is known or said to be outdated."""
        return self.files[handle].changed

    def watch_handle(self, handle: int, wake: Callable[[], None]) -> None:
        """Call `wake` once, when `changed` becomes true; do nothing if it is already. It must neither block nor raise.

        A handle has one `wake`; a later one replaces it.
        """
        opened = self.files[handle]
        if not opened.changed:
            opened.wake = wake

    def unwatch(self) -> None:
        """Drop all `wake` calls: the mount ends, and the kernel wakes the programs that poll."""
        for opened in self.files:
            opened.wake = None

    # -- extended attributes -----------------------------------------------------------------------------------------

    def getxattr(self, ino: int, name: bytes, ended: Ended = ()) -> bytes | Wait:
        """Return the value of an extended attribute. Raise NoAttribute. Never waits for content (S12)."""
        found = self._xattrs(ino, ended)
        return found if isinstance(found, Wait) else found.value(name)

    def listxattr(self, ino: int, ended: Ended = ()) -> list[bytes] | Wait:
        """Return the names of the attributes to keep with a copy; all others answer by name as well (S11)."""
        found = self._xattrs(ino, ended)
        return found if isinstance(found, Wait) else list(found.listed)

    def _xattrs(self, ino: int, ended: Ended) -> ExtendedAttributes | Wait:
        path = self.names.path(ino)
        if not path:
            return ExtendedAttributes.of(self.root_attributes)
        return self.described(ino, path, ended)

    def described(self, ino: int, path: Path, ended: Ended = ()) -> ExtendedAttributes | Wait:
        """Return the attributes that describe what is at a path below the root."""
        kept = self._xattr_cache.again(ino)
        if kept is not None:
            return kept
        node = self.names.find(path, ended)
        return node if isinstance(node, Wait) else self._xattr_cache.make(ino, path, node)

    # -- the whole ---------------------------------------------------------------------------------------------------

    def usage(self) -> Usage:
        used = [source.catalog.usage() for source in self._manager.sources.values()]
        return Usage(min(sum(size for size, _ in used), LARGEST), sum(count for _, count in used))


def _of_file(node: Node, path: Path, version: str) -> Record:
    """Return the record of a file that is opened by an inode of this version. Raise Outdated, BbfsError."""
    if node.kind == "directory":
        raise IsADirectory("/".join(path)) if version == DIRECTORY_VERSION else Outdated("/".join(path))
    if node.draft is not None:
        raise Outdated("/".join(path))
    if node.record is None or node.kind != "file":
        raise NotSupported(f"{'/'.join(path)} is no file")
    return node.record
