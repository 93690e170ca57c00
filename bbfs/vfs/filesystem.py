"""Data sources as a file system: its parts, and the attributes of its inodes.

It knows no FUSE: it takes inode numbers and names, returns values or a `Wait`, and raises BbfsError. Tests run the same
scenarios on it without a mount. Names are resolved from their path at each use, so a listing may change
under any inode. An inode is a path and a version of the content (S7); what it answers belongs to that version, or is
`Outdated`.

Between two awaits a task is alone; handles and tables need no lock.
"""

from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Literal, TypeAlias

from bbfs.model.errors import BbfsError, NotFound, NotSupported, Outdated
from bbfs.model.values import Change
from bbfs.resources.catalog.record import LARGEST, Node, Path, Record, inode_version, loads_each_open
from bbfs.resources.manager import ResourceManager, SourceChange
from bbfs.vfs.directory_handles import OpenDirectories
from bbfs.vfs.file_handles import Attributes, FileHandles, Opening
from bbfs.vfs.inode_table import DirectoryLocks, InodeTable
from bbfs.vfs.kernel_cache import KernelCache
from bbfs.vfs.names import (
    CREATED_VERSION,
    Ended,
    Names,
    Wait,
    after,
    as_bytes,
    identity_below_an_overlay,
    of_draft,
    stated,
)
from bbfs.vfs.open_files import OpenFiles
from bbfs.vfs.passthrough.folders import Passed, PassedFolders
from bbfs.vfs.writing.drafts import Drafts
from bbfs.vfs.writing.name_changes import NameChanges
from bbfs.vfs.xattrs import COPIED, ExtendedAttributes, value_of


@dataclass(frozen=True, slots=True)
class Usage:
    """For statfs: the sum of the known sizes (bytes), and the number of listed resources."""

    bytes: int
    files: int


class Wanted(Enum):
    """The part of a file's attributes that a program has asked for."""

    ALL = "size and times as well, which a load may have to tell"
    CHANGE = "to change the file and to keep its content, which an overlay copies before"
    EXISTENCE = "existence, type, mode and owner"
    XATTRS = "existence, before extended attributes; they show any other error"


Asker: TypeAlias = Callable[[], Awaitable[Wanted]]
"""Returns what the program that waits for attributes has asked for."""


class FileSystem:
    """One mounted tree over a ResourceManager.

    invalidate, invalidate_below: notify the kernel of names that have changed, see `KernelCache`. expire: has the
    kernel ask again for the attributes of an inode, without waiting.
    """

    def __init__(
        self,
        manager: ResourceManager,
        invalidate: Callable[[int, bytes], None],
        invalidate_below: Callable[[Change], None],
        expire: Callable[[int], None],
    ) -> None:
        self._manager = manager
        self._tree = manager.tree
        self._contents = manager.contents
        self._grants = manager.grants
        self.inodes = InodeTable(identity=identity_below_an_overlay if manager.grants.is_lower else None)
        self.handles = FileHandles()
        self.writable_roots = manager.grants.roots
        self.go_on = manager.go_on
        self.locks = DirectoryLocks()
        self.root_attributes: dict[str, bytes] = {}
        """The extended attributes of the mount's root, by name."""
        self._attributes = ExtendedAttributes(manager.tree, manager.contents)
        self._kernel = KernelCache(
            manager.tree, manager.contents, self.inodes, self.handles, invalidate, invalidate_below
        )
        self.held_below = self._kernel.held_below
        self.names = Names(manager, self.inodes, self.handles, self._kernel.note_absent)
        self.directories = OpenDirectories(
            manager.tree, manager.grants, self.inodes, self.handles, self.names, self._kernel, manager.clock
        )
        self.drafts = Drafts(manager, self.inodes, self.handles, self.names)
        self.open_files = OpenFiles(manager, self.inodes, self.handles, self.names, self.drafts, self._kernel)
        self.name_changes = NameChanges(manager, self.inodes, self.names, self.drafts, self.open_files)
        self._drafts = self.names.drafts
        self.passed = PassedFolders(manager, invalidate, expire)
        """The folders that are passed through: requests for their inodes do not come here."""
        self.names.passed = self.passed.roots
        self.is_unflushed = False
        """Whether the kernel sends no request when a file is closed, since there was nothing to write."""
        manager.changes.subscribe(self._kernel.changed)
        manager.source_changes.subscribe(self._source_changed)

    # -- sources that come and go ------------------------------------------------------------------------------------

    def _source_changed(self, change: SourceChange) -> None:
        """Let the names at the root, the inodes and the open files be those of the sources that there are now."""
        source, data = change.source, change.source.data
        names = {data.uri_prefix, data.name, data.id}
        if change.event == "added":
            self.passed.add(source)
        else:
            is_below = partial(_is_of, names, f"{data.base_prefix}+")
            self.directories.end(is_below)
            self.open_files.end(source.key)
            names |= self.inodes.end(is_below)
            self.passed.forget()
            in_use = {each.record.source_key for each in self.handles}
            self._manager.roots.forget_ended(in_use | {each.record.source_key for each in self._drafts.values()})
        self.names.passed = self.passed.roots
        self._kernel.appear_at_root(names)

    # -- names -------------------------------------------------------------------------------------------------------

    def refresh(self, path: Path) -> None:
        """Invalidate everything at and below a path, in the kernel as well (S21). Raise NotFound for no source."""
        self._manager.refresh(path)
        self._kernel.appear(path)
        for passed in self.passed.values():
            if passed.vouched is not None and path[:1] in ((), (passed.prefix,)):
                passed.vouched.end_all()

    def note_changes(self, passed: Passed) -> None:
        """Invalidate what programs have changed in a passed folder."""
        changes, vouched = passed.folder.changes, passed.vouched
        while changes:
            directory, name = changes.popleft()
            if vouched is not None:
                vouched.note_own(directory, name)
            passed.written(self._manager, directory, name)

    def forget(self, ino: int, references: int) -> None:
        """Drop references of the kernel to an inode."""
        if self.inodes.forget(ino, references) and ino in self._drafts and not self.handles.holds(ino):
            del self._drafts[ino]

    # -- attributes --------------------------------------------------------------------------------------------------

    def getattr(
        self, ino: int, asker: Asker | None = None, ended: Ended = (), *, is_copied: bool = False
    ) -> Attributes | Wait:
        """Return the attributes of an inode with its true size, which may have to be loaded; unless `Contents.lazy`.

        Raise Outdated when the inode is an earlier version of what has its name now. An inode that a program has open
        answers for the open version.

        asker: returns what the program has asked for (None: everything). It is called only where a load would be
        necessary. Where it wants none, the attributes are as cached and have no validity. is_copied: an overlay may
        copy as many bytes as are told, so `sizes = "lazy"` does not count (S9.5).
        """
        draft = self._drafts.get(ino)
        if draft is not None:
            unsized = draft.buffer is None and self._contents.size_now(draft.record) is None
            filled = after(ended, draft.filled) if unsized else None  # a program that appends goes by the size
            return filled if isinstance(filled, Wait) else of_draft(ino, draft)
        pinned = self.handles.latest(ino)
        if pinned is not None:
            return pinned.attributes
        found = ended[-1].value if ended else self.inodes.note(ino)  # an `Opening` if `_learn_if_wanted` ended last
        if isinstance(found, Opening) and (size := found.size(self._manager.clock(), self._kernel.changes)) is not None:
            return self.names.attributes(ino, found.path, Node("file", found.record), size)
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
                is_known = size is not None
                learning = self._learn(ino, path, node, record, asker, ended, is_known=is_known, is_copied=is_copied)
                if learning is not None:
                    return learning
            self.names.require_version(path, version, record)
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
        ino: int,
        path: Path,
        node: Node,
        record: Record,
        asker: Asker | None,
        ended: Ended,
        *,
        is_known: bool,
        is_copied: bool,
    ) -> Wait | None:
        """Return the wait for the size, if it is wanted and a load has to tell it.

        is_known: whether it is cached. is_copied: as for `getattr`.
        """
        if is_copied and not is_known and asker is not None and loads_each_open(record):
            refused = after(ended, self._refuse_change, record, asker)
            if isinstance(refused, Wait):
                return refused
        is_lazy = self._contents.lazy(record) and (record.on_open or not is_copied)
        if is_known or self._contents.just_changed(record) or is_lazy:
            if record.ahead:
                self._contents.accessed(path, record, wanted=False)
            return None
        learnt = after(ended, self._learn_if_wanted, ino, path, record, node.completed, asker)
        return learnt if isinstance(learnt, Wait) else None

    async def _learn_if_wanted(
        self, ino: int, path: Path, record: Record, completed: bool, asker: Asker | None
    ) -> Opening | None:
        """Learn the size if it is wanted. Return what the inode is, for the requests that follow. Raise BbfsError.

        Only a load tells whether a provisional resource exists. So that is loaded unless the source has completed its
        name.
        """
        lease = self._tree.lease(record)
        wanted = Wanted.ALL if asker is None else await asker()
        if wanted in (Wanted.EXISTENCE, Wanted.XATTRS) and (completed or not record.provisional):
            return None
        if self._contents.size_now(record) is not None:
            return None  # another request has learnt it meanwhile
        try:
            await self._load(path, record)
        except BbfsError as error:
            if self._tree.gives_way(path, record):
                raise Outdated("/".join(path)) from error  # the next lookup finds the text
            if isinstance(error, NotFound) and self._creatable(path):
                raise Outdated(str(error)) from None
            if wanted is not Wanted.XATTRS or isinstance(error, NotFound):
                raise
            return None
        if record.metadata.on_open or ino in self.inodes.retold:  # whose open must drop pages of the kernel
            return None
        return self.open_files.note(ino, path, record, lease)

    @staticmethod
    async def _refuse_change(record: Record, asker: Asker) -> None:
        """Raise NotSupported for a change of what each open loads: an overlay would copy none of its bytes."""
        if await asker() is Wanted.CHANGE:
            raise NotSupported(f"{record.metadata.name} has no size before it is opened: change a copy of it")

    def _creatable(self, path: Path) -> bool:
        """Return whether a program may mean to create the file of a name that is gone.

        An open(2) with O_CREAT fails by ENOENT. By ESTALE the kernel looks the name up again.
        """
        return not self._grants.is_lower and path[0] in self._grants.roots

    async def _load(self, path: Path, record: Record) -> None:
        """Learn the size, and load siblings ahead where a program walks through them."""
        self._contents.accessed(path, record, wanted=True)
        try:
            await self._contents.learn(record)
        except BbfsError as error:
            if not record.provisional:
                self._manager.roots.of(record).note_unsized(record.metadata.native_uri, error)
            raise

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

    # -- extended attributes -----------------------------------------------------------------------------------------

    def getxattr(self, ino: int, name: bytes, ended: Ended = ()) -> bytes | Wait:
        """Return the value of an extended attribute. Raise NoAttribute. Never waits for content (S12)."""
        if name in COPIED and (noted := self.open_files.noted(ino)) is not None:
            return self._attributes.copied(noted.record, name)
        path = self.names.path(ino)
        if not path:
            return value_of(self.root_attributes, name.decode("utf-8", "replace"))
        return self.described(path, name, ended)

    def described(self, path: Path, name: bytes, ended: Ended = ()) -> bytes | Wait:
        """Return the value of an attribute that describes what is at a path below the root. Raise NoAttribute."""
        node = self.names.find(path, ended)
        return node if isinstance(node, Wait) else self._attributes.value(path, node, name)

    def listxattr(self, ino: int, ended: Ended = ()) -> list[bytes] | Wait:
        """Return the names of the attributes to keep with a copy; all others answer by name as well (S11)."""
        if (noted := self.open_files.noted(ino)) is not None:
            return self._attributes.listed_of(noted.record)
        path = self.names.path(ino)
        if not path:
            return [name.encode() for name in self.root_attributes]
        node = self.names.find(path, ended)
        return node if isinstance(node, Wait) else self._attributes.listed(path, node)

    # -- the whole ---------------------------------------------------------------------------------------------------

    async def usage(self) -> Usage:
        used = [await source.catalog.usage() for source in [*self._manager.sources.values()]]
        return Usage(min(sum(size for size, _ in used), LARGEST), sum(count for _, count in used))


def _is_of(roots: Set[str], beginning: str, path: Path) -> bool:
    """Return whether a path is at or below some names at the root, or those that begin so."""
    return path[0] in roots or path[0].startswith(beginning)
