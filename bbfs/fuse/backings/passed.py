"""pyfuse3's requests for local folders that the mount passes through, translated to calls on the folder."""

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import cast

import pyfuse3
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
    ACLS,
    ORIGIN,
    READY,
    Ownership,
    Room,
    is_described,
    is_own,
    new_attributes,
    require_settable,
)
from bbfs.fuse.backings.folder_calls import FolderCalls, Handles
from bbfs.fuse.backings.passed_entries import PassedEntries
from bbfs.fuse.backings.stored import StoredRequests
from bbfs.fuse.kernel_notices import expire
from bbfs.fuse.scratch import origin
from bbfs.fuse.scratch.bases import Base
from bbfs.fuse.scratch.shown import Shown, status_version
from bbfs.fuse.waiting_programs import Interrupts
from bbfs.model.errors import BbfsError, CrossesSources, DeadlineExceeded, NoAttribute, NotSupported, Outdated
from bbfs.model.uri import ABOUT, SEARCH
from bbfs.resources.catalog.record import PASSED, ROOT
from bbfs.sources.documents.converter import TEXT_SUFFIX, is_document_name
from bbfs.sources.filesystem.beneath import AtMountPoint
from bbfs.vfs.file_handles import WRITING
from bbfs.vfs.filesystem import FileSystem
from bbfs.vfs.passthrough.folder import AT_ONCE, EXCHANGE, Creator, PassedDirectory, PassedFile
from bbfs.vfs.passthrough.folders import Passed
from bbfs.vfs.passthrough.inodes import PassedInode, folder_of

_BESIDE = (SEARCH.encode(), ABOUT.encode())
_TEXT = TEXT_SUFFIX.encode()
_DOTS = 2
"""Entries of a directory before its names: `.` and `..`."""


class PassedRequests(pyfuse3.Operations):
    """The requests for passed folders. Numbers of inodes and handles are from `PASSED` up.

    shown: notes the versions that the lower layer of a scratch shows. stored: answers for names that a folder does not
    have.
    """

    def __init__(
        self, files: FileSystem, owner: Ownership, interrupts: Interrupts, shown: Shown, stored: StoredRequests
    ) -> None:
        super().__init__()
        self._folders = files.passed
        self._owner = owner
        self._calls = FolderCalls(files.note_changes, interrupts, files.locks)
        self._shown = shown
        self._stored = stored
        self._opened_paths: dict[int, str] = {}
        self.files: dict[int, tuple[Passed, PassedFile]] = {}
        self.directories: dict[int, tuple[Passed, PassedDirectory]] = {}
        self._entries = PassedEntries(owner, shown)
        shown.began = self._end_vouching
        self._handles = Handles()
        self.next = PASSED

    def _end_vouching(self) -> None:
        for passed in self._folders.values():
            if passed.vouched is not None:
                passed.vouched.end_all()

    @property
    def flushes(self) -> bool:
        """Return whether a close may have an error to tell: on a network file system."""
        return any(not each.folder.direct for each in self._folders.values())

    def _inode(self, number: int) -> tuple[Passed, PassedInode]:
        try:
            passed = self._folders[folder_of(number)]
            inode = passed.folder.inodes[number]
        except KeyError:
            raise Outdated(f"inode {number} is not held") from None
        if passed.source.ended is not None and inode.opened is None:  # what is open of a removed source goes on
            passed.source.require_there()
        return passed, inode

    # -- names and attributes ----------------------------------------------------------------------------------------

    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        passed, parent = self._inode(parent_inode)
        at = self._entries.at(passed)
        try:
            status = await self._calls.call(passed, ctx.pid, passed.folder.lookup, parent, name)
        except AtMountPoint:
            return await self._beside(passed, parent, name, ctx, at)
        except FUSEError as error:
            if error.errno != errno.ENOENT:
                raise
            if self._shown.below:
                with suppress(OSError):
                    await self._shown.note_absent(passed.raw_path(parent, name))
            return await self._beside(passed, parent, name, ctx, at)
        entry = await self._entries.found(passed, parent, name, status, at)
        if self._owner.is_lower:
            self._inode(entry.st_ino)[1].tell(status, ctx.pid)
        return entry

    async def _beside(
        self, passed: Passed, parent: PassedInode, name: bytes, ctx: RequestContext, at: int
    ) -> EntryAttributes:
        """Return the entry of a name that a folder does not have, or may not look at: one that bbfs shows, or none."""
        may_be = name in _BESIDE or passed.folder.is_mount_point(parent, name)
        if may_be or (name.endswith(_TEXT) and is_document_name(os.fsdecode(name.removesuffix(_TEXT)))):
            return await self._stored.beside(_path(passed, parent), name, ctx)
        return self._entries.absent(passed, parent, name, at)

    def forget_inode(self, inode: int, lookups: int) -> None:
        """Drop lookups of an inode by the kernel."""
        if (passed := self._folders.get(folder_of(inode))) is not None:
            gone = passed.folder.forget(inode, lookups)
            if gone is not None and passed.vouched is not None:
                passed.vouched.forgotten(gone)

    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        passed, held = self._inode(inode)
        at = self._entries.at(passed)
        try:
            status = await self._calls.call(passed, ctx.pid, passed.folder.getattr, held)
        except BbfsError:
            if held is not passed.folder.inodes.root:
                raise
            return _directory(inode)  # that of a source is there, whatever the source does (S6)
        if self._shown.below:
            with suppress(OSError):
                await self._shown.note_status(passed.raw_path(held), status)
        if self._owner.is_lower:
            held.tell(status, ctx.pid)
        return self._entries.attributes(passed, held, status, at)

    async def setattr(
        self, inode: int, attr: EntryAttributes, fields: SetattrFields, fh: int | None, ctx: RequestContext
    ) -> EntryAttributes:
        passed, held = self._inode(inode)
        opened = self.files[fh][1] if fh is not None else None
        wanted = new_attributes(attr, fields)
        status = await self._calls.change(passed, ctx.pid, passed.folder.setattr, held, opened, wanted)
        return self._entries.of(passed, held, status)

    async def readlink(self, inode: int, ctx: RequestContext) -> FileNameT:
        passed, held = self._inode(inode)
        return FileNameT(await self._calls.call(passed, ctx.pid, passed.folder.readlink, held))

    # -- open files --------------------------------------------------------------------------------------------------

    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        passed, held = self._inode(inode)
        self._handles.require(ctx.pid)
        call = self._calls.change if flags & WRITING else self._calls.call
        opened, right = await call(passed, ctx.pid, passed.folder.open, held, flags)
        noted = None
        if held.told is not None or self._shown.below:
            status = os.fstat(opened.descriptor.number)
            if not flags & WRITING and held.sends_back(status, ctx.pid):
                passed.folder.closed(opened)
                expire(inode)
                raise FUSEError(errno.ESTALE)
            # What changes faster than the kernel looks may be copied in part. The version that the look has noted stays
            # the base then, and `bbfs apply` finds a conflict.
            noted = None if held.lacks(status, ctx.pid) else status
        if not right:
            expire(inode)  # another program may have changed the size: reads end at the one that the kernel has
        return FileInfo(
            fh=await self._opened(passed, opened, noted, ctx.pid), keep_cache=right, direct_io=_appends(flags)
        )

    async def _opened(
        self, passed: Passed, opened: PassedFile, noted: os.stat_result | None, thread: int
    ) -> FileHandleT:
        handle = self.next
        self.next = handle + 1
        self._handles.add(handle, thread)
        self.files[handle] = passed, opened
        opened.inode.handles[handle] = opened.descriptor
        if self._shown.below:
            with suppress(OSError):
                path = passed.raw_path(opened.inode)
                if noted is not None:
                    await self._shown.note_status(path, noted)
                self._shown.opened(path)
                self._opened_paths[handle] = path
        return FileHandleT(handle)

    def adopt(self, handle: int, passed: Passed, opened: PassedFile | PassedDirectory) -> None:
        """Have a file or directory open that a program has opened under the daemon before."""
        self._handles.add(handle, 0)
        if isinstance(opened, PassedDirectory):
            self.directories[handle] = passed, opened
        else:
            self.files[handle] = passed, opened
            opened.inode.handles[handle] = opened.descriptor

    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        passed, parent = self._inode(parent_inode)
        self._handles.require(ctx.pid)
        descriptor, status = await self._calls.change_names(
            passed, ctx.pid, passed.folder.create, parent, name, flags, _creator(mode, ctx)
        )
        inode = passed.folder.counted(parent, name, status)
        if passed.vouched is not None:
            passed.vouched.made(parent, name, inode)
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        handle = await self._opened(passed, PassedFile(inode, descriptor, writes), status, ctx.pid)
        return FileInfo(fh=handle, keep_cache=False, direct_io=_appends(flags)), self._entries.of(passed, inode, status)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        passed, opened = self.files[fh]
        folder = passed.folder
        try:
            if folder.direct:
                data = folder.read_now(opened, off, size)
                if data is not None:
                    return cast(bytes, data)  # pyfuse3 takes any buffer, and a copy would take time
            return await self._calls.in_thread(passed, 0, folder.read, opened, off, size)
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        passed, opened = self.files[fh]
        return await self._calls.call(passed, 0, passed.folder.write, opened, off, buf)

    async def flush(self, fh: int) -> None:
        passed, opened = self.files[fh]
        if opened.written and not passed.folder.direct:
            await self._calls.call(passed, 0, passed.folder.flush, opened)

    async def fsync(self, fh: int, datasync: bool) -> None:
        opened = self.files.get(fh) or self.directories[fh]
        passed, descriptor = opened[0], opened[1].descriptor
        try:
            await self._calls.in_thread(passed, 0, partial(passed.folder.sync, descriptor, only_data=datasync))
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None

    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        await self.fsync(fh, datasync)

    async def release(self, fh: int) -> None:
        passed, opened = self.files.pop(fh)
        self._handles.remove(fh)
        opened.inode.handles.pop(fh, None)
        if (path := self._opened_paths.pop(fh, None)) is not None:
            self._shown.closed(path)
        await self._calls.call(passed, 0, passed.folder.closed, opened)

    async def poll(self, inode: int, fh: int, poll_handle: PollHandle | None, ctx: RequestContext) -> int:
        return READY

    # -- directories -------------------------------------------------------------------------------------------------

    async def opendir(self, inode: int, ctx: RequestContext) -> FileHandleT:
        passed, held = self._inode(inode)
        self._handles.require(ctx.pid)
        opened = await self._calls.call(passed, ctx.pid, passed.folder.opendir, held)
        handle = self.next
        self.next = handle + 1
        self._handles.add(handle, ctx.pid)
        self.directories[handle] = passed, opened
        return FileHandleT(handle)

    async def readdir(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        passed, opened = self.directories[fh]
        folder, parent = passed.folder, opened.inode
        if passed.source.ended is not None:
            passed.source.require_there()
        if start_id == 0 and not self._entries.begin(passed, opened):
            await self._calls.call(passed, 0, folder.begin, opened)
            self._entries.hold_ready(passed, opened)
        for position in range(start_id, _DOTS):
            name, number = ((b".", parent.number), (b"..", parent.places[-1][0].number if parent.places else ROOT))[
                position
            ]
            if not pyfuse3.readdir_reply(token, FileNameT(name), _directory(number), position + 1):
                return
        noted: list[tuple[str, Base | None]] = []
        ready = self._entries.ready(passed, opened)
        for place in range(max(0, start_id - _DOTS), len(opened.names)):
            held = None if ready is None else ready.entries[place]
            if held is not None and held[1].lookups and not held[1].handles:  # the size of an open file is the true one
                if not pyfuse3.readdir_reply(token, FileNameT(opened.names[place]), held[0], place + _DOTS + 1):
                    break
                held[1].is_vouched = True
                held[1].lookups += 1
                continue
            if place not in opened.looked_at:
                most = AT_ONCE if ready is None else 1
                opened.at = self._entries.at(passed)
                await self._calls.call(passed, 0, folder.look_ahead, opened, place, most)
            if place not in opened.ahead:
                continue
            name, status = opened.names[place], opened.ahead[place]
            if status is None:
                entry = self._stored.mount_point(_path(passed, parent), name)
            else:
                entry = self._entries.counted(passed, parent, name, status, opened.at)
                if self._shown.below:
                    noted += self._entries.noted(passed, parent, name, status)
            if not pyfuse3.readdir_reply(token, FileNameT(name), entry, place + _DOTS + 1):
                if status is not None:
                    folder.forget(entry.st_ino, 1)
                break
        if noted:
            await self._shown.note_all(noted)

    async def releasedir(self, fh: int) -> None:
        passed, opened = self.directories.pop(fh)
        self._handles.remove(fh)
        await self._calls.call(passed, 0, opened.descriptor.close)

    # -- making and removing -----------------------------------------------------------------------------------------

    async def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        passed, parent = self._inode(parent_inode)
        kind, creator = stat.S_IFMT(mode) or stat.S_IFREG, _creator(mode, ctx)
        status = await self._calls.change_names(passed, ctx.pid, passed.folder.mknod, parent, name, kind, creator)
        return await self._entries.made(passed, parent, name, status)

    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        passed, parent = self._inode(parent_inode)
        status = await self._calls.change_names(passed, ctx.pid, passed.folder.mkdir, parent, name, _creator(mode, ctx))
        return await self._entries.made(passed, parent, name, status)

    async def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        passed, parent = self._inode(parent_inode)
        status = await self._calls.change_names(
            passed, ctx.pid, passed.folder.symlink, parent, name, target, _creator(0, ctx)
        )
        return await self._entries.made(passed, parent, name, status)

    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        passed, parent = self._inode(parent_inode)
        await self._calls.change_names(passed, ctx.pid, passed.folder.unlink, parent, name)
        if passed.vouched is not None:
            passed.vouched.made(parent, name, None)

    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        passed, parent = self._inode(parent_inode)
        await self._calls.change_names(passed, ctx.pid, passed.folder.rmdir, parent, name)
        if passed.vouched is not None:
            passed.vouched.made(parent, name, None)

    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        passed, parent, to = self._both(parent_inode_old, parent_inode_new)
        await self._calls.change_names(passed, ctx.pid, passed.folder.rename, parent, name_old, to, name_new, flags)
        if passed.vouched is not None:
            passed.vouched.renamed(parent, name_old, to, name_new, exchanged=flags & EXCHANGE != 0)

    async def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        passed, held, parent = self._both(inode, new_parent_inode)
        status = await self._calls.change_names(passed, ctx.pid, passed.folder.link, held, parent, new_name)
        return await self._entries.made(passed, parent, new_name, status)

    def _both(self, number: int, other: int) -> tuple[Passed, PassedInode, PassedInode]:
        """Return two inodes of one folder. Raise CrossesSources."""
        if number < PASSED or other < PASSED or folder_of(number) != folder_of(other):
            raise CrossesSources("a name of a local folder stays in that folder")
        passed, inode = self._inode(number)
        return passed, inode, self._inode(other)[1]

    # -- extended attributes and the whole ---------------------------------------------------------------------------

    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        """Return an attribute that a file has, or else one that describes it."""
        passed, held = self._inode(inode)
        read = partial(self._calls.call, passed, ctx.pid, passed.folder.getxattr, held, name)
        if name in ACLS:
            return await read()
        if name == ORIGIN:  # for `bbfs apply`, also where a scratch lies over another mount than its own
            return await self._origin(passed, held, ctx)
        if not is_described(name):
            try:
                return await read()
            except FUSEError as error:
                if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP, errno.EPERM):
                    raise
        return await self._stored.described(_path(passed, held), name, ctx)

    async def _origin(self, passed: Passed, inode: PassedInode, ctx: RequestContext) -> bytes:
        """Return path and version of a regular file, for a copy of it. Raise NoAttribute."""
        status = await self._calls.call(passed, ctx.pid, passed.folder.getattr, inode)
        if stat.S_ISREG(status.st_mode):
            with suppress(OSError):
                return origin.origin(passed.raw_path(inode), status_version(status))
        raise NoAttribute(origin.ATTRIBUTE)

    async def listxattr(self, inode: int, ctx: RequestContext) -> Sequence[XAttrNameT]:
        passed, held = self._inode(inode)
        names = self._owner.readable(await self._calls.call(passed, ctx.pid, passed.folder.listxattr, held))
        if self._owner.is_lower:
            names = [name for name in names if not is_described(name)]
            with suppress(NoAttribute):
                await self._origin(passed, held, ctx)
                names.append(ORIGIN)
        return cast(list[XAttrNameT], names)

    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        if is_own(name):
            passed, held = self._inode(inode)
            await self._calls.change(passed, ctx.pid, passed.folder.setxattr, held, name, value)
        else:
            require_settable(name)

    async def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        if is_own(name):
            passed, held = self._inode(inode)
            await self._calls.change(passed, ctx.pid, passed.folder.removexattr, held, name)
        else:
            require_settable(name)

    async def room(self, ctx: RequestContext) -> Room | None:
        """Return the room of the folder that has the least left, or None if no folder tells."""
        least: Room | None = None
        for passed in self._folders.values():
            if passed.source.ended is not None:
                continue
            try:
                found = await self._calls.call(passed, ctx.pid, passed.folder.statvfs)
            except (FUSEError, NotSupported, DeadlineExceeded):
                continue
            unit = found.f_frsize
            room = Room(found.f_blocks * unit, found.f_bfree * unit, found.f_bavail * unit, found.f_favail)
            least = room if least is None or room.available < least.available else least
        return least


def _path(passed: Passed, inode: PassedInode) -> tuple[str, ...]:
    """Return the path of an inode from the mount's root, as listings of the source have it. Raise Outdated."""
    try:
        return passed.path(inode)
    except OSError as error:
        raise Outdated(f"inode {inode.number}") from error


def _creator(mode: int, ctx: RequestContext) -> Creator:
    return Creator(stat.S_IMODE(mode) & ~ctx.umask, ctx.uid, ctx.gid)


def _appends(flags: int) -> bool:
    """Return whether a file is written at its end, wherever that is then: not where the kernel has it.

    Neither its pages nor a shared mapping of them may be written through such a descriptor: they have a place.
    """
    return flags & os.O_APPEND != 0 and flags & os.O_ACCMODE != os.O_RDONLY


def _directory(number: int) -> EntryAttributes:
    """Return the entry of a directory of which nothing but the number is known."""
    entry = EntryAttributes()
    entry.st_ino = InodeT(number)
    entry.st_mode = pyfuse3.ModeT(stat.S_IFDIR | 0o755)
    entry.st_uid, entry.st_gid = os.geteuid(), os.getegid()
    entry.entry_timeout = entry.attr_timeout = 0
    return entry
