"""pyfuse3's requests for what is in the catalogs of sources, translated to requests of the `FileSystem`.

A request of the `FileSystem` returns its answer or a `Wait`. That is awaited here; the waiting program can be
interrupted and killed meanwhile.
"""

import errno
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar, cast

import pyfuse3
from cachetools import LRUCache
from pyfuse3 import (
    EntryAttributes,
    FileHandleT,
    FileInfo,
    FileNameT,
    FUSEError,
    InodeT,
    PollHandle,
    ReaddirToken,
    RequestContext,
    SetattrFields,
    XAttrNameT,
)

from bbfs.fuse.backings.attributes import (
    BASE,
    CHANGED,
    ORIGIN,
    PREFIX,
    READY,
    Ownership,
    new_attributes,
    require_settable,
)
from bbfs.fuse.scratch import origin
from bbfs.fuse.scratch.bases import Base
from bbfs.fuse.scratch.shown import Shown
from bbfs.fuse.waiting_programs import Interrupts, SystemCalls, has_open, wants_out
from bbfs.model.errors import BbfsError, Conflict, NoAttribute, NotSupported, Outdated
from bbfs.resources.catalog.record import DIRECTORY, PASSED, Path
from bbfs.vfs.file_handles import WRITING, Attributes
from bbfs.vfs.filesystem import FileSystem
from bbfs.vfs.names import SHORT, Wait, answered
from bbfs.vfs.told import ToldResources
from bbfs.vfs.writing.name_changes import IsBase

log = logging.getLogger(__name__)
T = TypeVar("T")
BLOCK = 512
"""The unit of st_blocks, in bytes, whatever the block size (stat(2))."""
_TYPES = {"directory": stat.S_IFDIR, "file": stat.S_IFREG, "symlink": stat.S_IFLNK}
_MODES = {"directory": 0o555, "file": 0o444, "symlink": 0o777}
_BASES = 1024
"""Threads whose stated versions are held until their next change of a name."""


@contextmanager
def asked_once() -> Iterator[None]:
    """Let a conflict be EBUSY. After ESTALE the kernel asks again by itself, and over what it then finds (namei.c)."""
    try:
        yield
    except Conflict as error:
        log.debug("refused: %s", error)
        raise FUSEError(errno.EBUSY) from None


class StoredRequests(pyfuse3.Operations):
    """The requests for resources, directories of them, and what the mount shows beside. shown: as for the adapter."""

    def __init__(self, files: FileSystem, owner: Ownership, interrupts: Interrupts, shown: Shown) -> None:
        super().__init__()
        self._shown = shown
        self._shown_paths: dict[int, str] = {}  # by handle, while `shown` keeps the note of the path
        self._interrupts = interrupts
        self._calls = SystemCalls()
        self._files = files
        self._names = files.names
        self._open_files = files.open_files
        self._name_changes = files.name_changes
        self._locks = files.locks
        self._directories = files.directories
        self._owner = owner
        self._openers: dict[int, int] = {}
        """By handle: the thread that opened a file which programs write, or whose reads wait for the source."""
        self._bases: LRUCache[int, tuple[Path, Mapping[str, Any]]] = LRUCache(_BASES)  # by thread
        self._told = ToldResources(files.inodes) if owner.is_lower else None

    # -- waits -------------------------------------------------------------------------------------------------------

    async def _waited(self, ctx: RequestContext, answer: T | Wait, ask: Callable[..., T | Wait], *arguments: Any) -> T:
        """Await the answer of a request; the waiting program can be interrupted and killed meanwhile."""
        with self._interrupts.watching(ctx.pid, what=arguments):
            return await answered(answer, ask, *arguments)
        raise FUSEError(errno.EINTR)

    async def _change_names(
        self, ctx: RequestContext, change: Callable[[], Awaitable[T]], *places: tuple[InodeT, bytes]
    ) -> T:
        """Await a change of names whose directories the kernel holds until the answer.

        If its program is interrupted or killed meanwhile, it goes on: no source has half of it.
        """
        directories = self._locks.held(*(parent for parent, _ in places))
        with asked_once(), directories, self._interrupts.watching(ctx.pid, what=places[0]):
            return await self._name_changes.in_time(change, *places)
        raise FUSEError(errno.EINTR)

    async def _made(
        self, ctx: RequestContext, make: Callable[..., Awaitable[Attributes]], parent: InodeT, name: bytes, mode: int
    ) -> EntryAttributes:
        """Await the entry of what a program makes. The kernel counts no lookup of it if it is not answered."""
        waits = True

        async def change() -> Attributes:
            found = await make(parent, name, mode & ~ctx.umask)
            if not waits:
                self._files.forget(found.ino, 1)
            return found

        try:
            return self._entry(await self._change_names(ctx, change, (parent, name)))
        finally:
            waits = False

    async def _by_opener(self, fh: int, request: Awaitable[T]) -> T:
        """Await a request for an open file. It does not name the waiting thread: mostly the one that opened it."""
        what = (self._files.handles[fh].ino,)
        with self._interrupts.watching(self._openers.get(fh, 0), until_gone=False, what=what):
            return await request
        raise FUSEError(errno.EINTR)

    # -- names and attributes ----------------------------------------------------------------------------------------

    def _entry(self, found: Attributes) -> EntryAttributes:
        entry: EntryAttributes | None = found.packed
        if entry is None:
            entry = found.packed = packed(found, self._owner)
        entry.st_ino = InodeT(found.ino)  # the files of a listing share all the rest
        entry.entry_timeout = found.entry_timeout
        entry.attr_timeout = found.attr_timeout
        return entry

    async def lookup(self, parent_inode: InodeT, name: bytes, ctx: RequestContext) -> EntryAttributes:
        asker = partial(self._calls.aim, ctx.pid, name)
        found = self._names.lookup(parent_inode, name, asker)
        if type(found) is Wait:
            if wants_out(ctx.pid):
                # The kernel serves programs that look up the same name one by one: let a killed one go at once.
                raise FUSEError(errno.EINTR)
            with self._locks.held(parent_inode):
                found = await self._waited(ctx, found, self._names.lookup, parent_inode, name, asker)
        if self._told is not None and 0 < found.ino < PASSED:
            self._told.tell(found.ino, ctx.pid)
        if self._shown.below:
            await self._shown.note_all(self._noted(found, parent_inode, name))
        return self._entry(found)

    async def beside(self, directory: Path, name: bytes, ctx: RequestContext) -> EntryAttributes:
        """Return the entry of a name that a passed folder does not have: a description, a search, a text, or none."""
        ask = self._names.lookup_in
        entry = self._entry(await self._waited(ctx, ask(directory, name), ask, directory, name))
        entry.entry_timeout = min(entry.entry_timeout, SHORT)  # the folder may get an entry of that name
        return entry

    def mount_point(self, directory: Path, name: bytes) -> EntryAttributes:
        """Return the entry of the mount point, in the passed folder where it lies: an empty directory."""
        return self._entry(self._names.counted((*directory, name.decode()), DIRECTORY))

    def _noted(self, found: Attributes, parent: int = 0, name: bytes = b"") -> list[tuple[str, Base | None]]:
        """Return what is noted of an entry that is shown. parent, name: of an entry that may be absent."""
        with suppress(BbfsError):
            if found.ino == 0:
                return [(os.fsdecode(b"/".join((*map(os.fsencode, self._names.path(parent)), name))), None)]
            if found.ino < PASSED and (state := self._files.state(found.ino, shown=True)) is not None:
                path, kind, version = state
                if kind == "symlink":
                    version = {"modified_ns": found.modified_ns, "changed_ns": found.modified_ns, "size": found.size}
                return [("/".join(path), Base(kind, version))]
        return []

    def forget_inode(self, inode: int, references: int) -> None:
        """Drop references of the kernel to an inode."""
        self._files.forget(inode, references)

    async def getattr(self, inode: InodeT, ctx: RequestContext) -> EntryAttributes:
        asker = partial(self._calls.wanted, ctx.pid)
        ask = partial(self._files.getattr, is_copied=True) if self._shown.below else self._files.getattr
        found = ask(inode, asker)
        if type(found) is Wait:
            found = await self._waited(ctx, found, ask, inode, asker)
        if self._told is not None:
            self._told.tell(inode, ctx.pid)
        if self._shown.below:
            await self._shown.note_all(self._noted(found))
        return self._entry(found)

    async def setattr(
        self, inode: InodeT, attr: EntryAttributes, fields: SetattrFields, fh: FileHandleT | None, ctx: RequestContext
    ) -> EntryAttributes:
        change = partial(self._open_files.set_attributes, inode, fh, new_attributes(attr, fields))
        with asked_once() if fh is None else nullcontext(), self._interrupts.watching(ctx.pid, what=(inode,)):
            return self._entry(await self._files.go_on(change))
        raise FUSEError(errno.EINTR)

    async def readlink(self, inode: InodeT, ctx: RequestContext) -> FileNameT:
        ask = self._files.readlink
        return FileNameT(await self._waited(ctx, ask(inode), ask, inode))

    # -- directories -------------------------------------------------------------------------------------------------

    async def opendir(self, inode: InodeT, ctx: RequestContext) -> FileHandleT:
        handle = self._directories.opendir(inode)
        if type(handle) is Wait:
            handle = await self._waited(ctx, handle, self._directories.opendir, inode)
        return FileHandleT(handle)

    async def readdir(self, fh: FileHandleT, start_id: int, token: ReaddirToken) -> None:
        if start_id == 0:
            self._directories.begin(fh)
        ready = self._directories.ready(fh, self._entry) if not self._shown.below else None
        if ready is not None:
            for position in range(start_id, len(ready)):
                name, entry, inode = ready[position]
                if not inode.lookups:
                    start_id = position
                    break
                if not pyfuse3.readdir_reply(token, FileNameT(name), entry, position + 1):
                    return
                inode.lookups += 1
            else:
                return
        last = entry = None
        noted: list[tuple[str, Base | None]] = []
        for name, found, following in self._directories.readdir(fh, start_id):
            if self._shown.below:
                noted += self._noted(found)
            if found is last and entry is not None:
                entry.st_ino = InodeT(found.ino)
            else:
                last, entry = found, self._entry(found)
            if not pyfuse3.readdir_reply(token, FileNameT(name), entry, following):
                if following > 2 and found.ino < PASSED:
                    self._files.forget(found.ino, 1)
                break
        if noted:
            await self._shown.note_all(noted)

    async def releasedir(self, fh: FileHandleT) -> None:
        self._directories.releasedir(fh)

    async def fsyncdir(self, fh: FileHandleT, datasync: bool) -> None:
        """Do nothing: a name is at its source, or in the store of pending writes, when its call returns."""

    # -- open files --------------------------------------------------------------------------------------------------

    async def open(self, inode: InodeT, flags: int, ctx: RequestContext) -> FileInfo:
        lacks = self._told is not None and self._told.lacks(inode, ctx.pid)
        handle = self._open_files.open(inode, flags, ctx.pid)
        if type(handle) is Wait:
            version = self._files.inodes.get(inode).version
            handle = await self._waited(ctx, handle, self._open_files.open, inode, flags, ctx.pid)
            lacks = lacks or (self._owner.is_lower and self._files.handles[handle].version != version)
        if lacks:
            # overlayfs copies as many bytes as the file had before the open. After ESTALE it looks again, once: the
            # content is loaded by now, so the version that it finds then is the last one.
            self._open_files.send_back(handle)
            raise Outdated("/".join(self._names.path(inode)))
        if self._shown.below and not flags & WRITING:
            path = self._shown_paths[handle] = "/".join(self._names.path(inode))
            await self._shown.note_open(path, _opened_base(self._files, handle))
        waits = self._open_files.uncached.get(handle)
        if waits or self._files.writable_roots:  # its fsync may hand over what another program has written
            self._openers[handle] = ctx.pid
        # An inode is one version of its content, so its pages stay true however often it is opened.
        if waits is None:
            if handle in self._open_files.unfilled and (content := self._open_files.to_fill(handle)) is not None:
                _fill(inode, content)
            return FileInfo(fh=FileHandleT(handle), keep_cache=handle not in self._open_files.replaced)
        return FileInfo(fh=FileHandleT(handle), keep_cache=False, direct_io=True)

    async def read(self, fh: FileHandleT, off: int, size: int) -> bytes:
        data = self._open_files.read(fh, off, size)
        if type(data) is not Wait:
            return data
        answer = answered(data, self._open_files.read, fh, off, size)
        return await (self._by_opener(fh, answer) if fh in self._openers else answer)

    async def write(self, fh: FileHandleT, off: int, buf: bytes) -> int:
        return await self._by_opener(fh, self._open_files.write(fh, off, buf))

    async def flush(self, fh: FileHandleT) -> None:
        if not self._files.handles[fh].unsaved:
            return
        blank = self._open_files.blank(fh)
        if blank is not None and has_open(self._openers.get(fh, 0), "/".join(blank)):
            return  # a shell has opened the file for another program: that one's close hands it over
        await self._by_opener(fh, self._open_files.flush(fh))

    async def fsync(self, fh: FileHandleT, datasync: bool) -> None:
        await self._by_opener(fh, self._open_files.sync(fh))

    async def release(self, fh: FileHandleT) -> None:
        if self._shown_paths and (path := self._shown_paths.pop(fh, None)) is not None:
            self._shown.closed(path)
        if self._openers:
            self._openers.pop(fh, None)
        self._open_files.release(fh)

    async def poll(self, inode: InodeT, fh: FileHandleT, poll_handle: PollHandle | None, ctx: RequestContext) -> int:
        """Return the poll events of an open file. It is always readable, as any regular file.

        `CHANGED` is added, and wakes waiting programs, once the source has another version than the open one. It stays
        until the program opens the file again.
        """
        if self._open_files.changed(fh):
            return READY | CHANGED
        if poll_handle is not None:  # it wakes all programs that wait for one open file, so the latest is enough
            self._open_files.watch_handle(fh, partial(_notify, poll_handle))
        return READY

    # -- changes of names --------------------------------------------------------------------------------------------

    async def create(
        self, parent_inode: InodeT, name: FileNameT, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        with self._locks.held(parent_inode), self._interrupts.watching(ctx.pid, what=(parent_inode, name)):
            handle, found = await self._name_changes.create_in_time(
                parent_inode, name, flags, mode & ~ctx.umask, ctx.pid
            )
            self._openers[handle] = ctx.pid
            return FileInfo(fh=FileHandleT(handle), keep_cache=True), self._entry(found)
        raise FUSEError(errno.EINTR)

    async def mknod(
        self, parent_inode: InodeT, name: FileNameT, mode: int, rdev: int, ctx: RequestContext
    ) -> EntryAttributes:
        if not stat.S_ISREG(mode):
            raise NotSupported("no source has devices, pipes and sockets")
        return await self._made(ctx, self._name_changes.make_node, parent_inode, name, mode)

    async def mkdir(self, parent_inode: InodeT, name: FileNameT, mode: int, ctx: RequestContext) -> EntryAttributes:
        return await self._made(ctx, self._name_changes.make_directory, parent_inode, name, mode)

    async def unlink(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> None:
        change = partial(self._name_changes.remove, parent_inode, name, self._base(ctx))
        await self._change_names(ctx, change, (parent_inode, name))

    async def rmdir(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> None:
        change = partial(self._name_changes.remove_directory, parent_inode, name)
        await self._change_names(ctx, change, (parent_inode, name))

    async def rename(
        self,
        parent_inode_old: InodeT,
        name_old: FileNameT,
        parent_inode_new: InodeT,
        name_new: FileNameT,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        old, new = (parent_inode_old, name_old), (parent_inode_new, name_new)
        await self._change_names(ctx, partial(self._name_changes.rename, *old, *new, flags, self._base(ctx)), old, new)

    async def link(
        self, inode: InodeT, new_parent_inode: InodeT, new_name: FileNameT, ctx: RequestContext
    ) -> EntryAttributes:
        self._name_changes.refuse_link(new_parent_inode, new_name)

    async def symlink(
        self, parent_inode: InodeT, name: FileNameT, target: FileNameT, ctx: RequestContext
    ) -> EntryAttributes:
        self._name_changes.refuse_link(parent_inode, name)

    def _base(self, ctx: RequestContext) -> IsBase | None:
        """Return what compares the version that the thread has stated for a name, if it has; it holds once."""
        named = self._bases.pop(ctx.pid, None)
        if named is None:
            return None
        path, version = named
        return lambda changed, there: changed != path or origin.version_of(origin.origin("", there)) == version

    # -- extended attributes -----------------------------------------------------------------------------------------

    async def getxattr(self, inode: InodeT, name: bytes, ctx: RequestContext) -> bytes:
        if not name.startswith(PREFIX):
            raise FUSEError(errno.ENODATA)
        if name == ORIGIN:  # for `bbfs apply`, also where a scratch lies over another mount than its own
            return self._origin(inode)
        value = self._files.getxattr(inode, name)
        return await self._waited(ctx, value, self._files.getxattr, inode, name) if type(value) is Wait else value

    async def described(self, path: Path, name: bytes, ctx: RequestContext) -> bytes:
        """Return the value of an attribute that describes what is at a path of a passed folder. Raise NoAttribute."""
        ask = self._files.described
        return await self._waited(ctx, ask(path, name), ask, path, name)

    def _origin(self, inode: int) -> bytes:
        """Return path and version of a file. Once its listing has expired, the version is unknown.

        An overlay copies no file that lacks an attribute which was listed a moment before.
        """
        path, kind, version = self._files.state(inode) or (self._names.path(inode), "file", None)
        if kind != "file":
            raise NoAttribute(origin.ATTRIBUTE)
        return origin.origin("/".join(path), version or {})

    async def listxattr(self, inode: InodeT, ctx: RequestContext) -> Sequence[XAttrNameT]:
        if self._owner.is_lower:
            state = self._files.state(inode)
            return [XAttrNameT(ORIGIN)] if state is not None and state[1] == "file" else []
        names = self._files.listxattr(inode)
        if type(names) is Wait:
            names = await self._waited(ctx, names, self._files.listxattr, inode)
        return cast(list[XAttrNameT], names)

    async def setxattr(self, inode: InodeT, name: XAttrNameT, value: bytes, ctx: RequestContext) -> None:
        require_settable(name)
        self._open_files.require_written(inode)
        if name == BASE:
            self._bases[ctx.pid] = self._names.path(inode), origin.version_of(value)

    async def removexattr(self, inode: InodeT, name: XAttrNameT, ctx: RequestContext) -> None:
        require_settable(name)
        self._open_files.require_written(inode)


def _opened_base(files: FileSystem, handle: int) -> Base | None:
    """Return what is noted of the version that an open has; None if that may not be what its resource is by now.

    The open may have loaded the content, and so have told a version that no lookup could tell before.
    """
    opened = files.handles[handle]
    said = None if opened.draft is not None else files.state(opened.ino)
    if said is None or said[1] != "file" or opened.version != opened.record.inode_version:
        return None
    return Base("file", said[2])


def packed(found: Attributes, owner: Ownership) -> EntryAttributes:
    """Return an entry without the inode number and the timeouts."""
    entry = EntryAttributes()
    if found.ino == 0:
        return entry
    bits = _MODES[found.kind] | (0o200 if found.writable or owner.is_lower else 0)
    if found.kind != "symlink":
        bits &= ~owner.umask
    entry.st_mode = pyfuse3.ModeT(_TYPES[found.kind] | bits)
    entry.st_nlink = 1  # for a directory too: "not counted", so that find does not stop early
    entry.st_uid = owner.uid
    entry.st_gid = owner.gid
    if found.private:
        entry.st_mode = pyfuse3.ModeT(entry.st_mode & ~0o077)
        entry.st_uid, entry.st_gid = os.geteuid(), os.getegid()
    entry.st_size = found.size
    entry.st_blksize = 4096
    entry.st_blocks = -(-found.size // BLOCK)
    entry.st_atime_ns = entry.st_mtime_ns = entry.st_ctime_ns = found.modified_ns
    if found.changed_ns is not None:
        entry.st_ctime_ns = found.changed_ns
    return entry


def _fill(inode: InodeT, content: bytes) -> None:
    """Write a content into the kernel's pages, so that it asks for none. This does not wait: no program reads yet."""
    try:
        pyfuse3.notify_store(inode, 0, content)
    except OSError as error:
        log.debug("the kernel has not taken a content: %s", error)


def _notify(waiting: PollHandle) -> None:
    """Notify the kernel, which asks again for the programs that poll. This does not wait."""
    try:
        waiting.notify()
    except OSError as error:
        log.debug("no program to wake: %s", error)
