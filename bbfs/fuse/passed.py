"""pyfuse3's requests for local folders that the mount passes through, translated to calls on the folder.

A folder on a local file system is called in the event loop: a thread would cost more than the call. Calls that wait for
the disk or may cross a mount point, and all calls on other file systems, run in threads; a folder that hangs costs its
own programs a time-out.
"""

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TypeVar, cast

import pyfuse3
import trio
from pyfuse3 import (
    EntryAttributes,
    FileHandleT,
    FileInfo,
    FileNameT,
    FUSEError,
    InodeT,
    ReaddirToken,
    RequestContext,
)

from bbfs.fuse.scratch import origin
from bbfs.fuse.scratch.bases import Base
from bbfs.fuse.scratch.shown import Shown, base_of, status_version
from bbfs.fuse.waiting_programs import Interrupts
from bbfs.model.errors import BbfsError, CrossesSources, DeadlineExceeded, NotSupported, Outdated, ReadOnly
from bbfs.model.inode_number import PASSED, ROOT
from bbfs.resources.documents import ABOUT, SEARCH
from bbfs.sources.content.fd import most_for_programs
from bbfs.sources.documents.converter import TEXT_SUFFIX, is_document_name
from bbfs.sources.filesystem.beneath import AtMountPoint
from bbfs.vfs.file_handles import NewAttributes
from bbfs.vfs.filesystem import FileSystem
from bbfs.vfs.names import SHORT
from bbfs.vfs.passthrough.folder import Creator, PassedDirectory, PassedFile
from bbfs.vfs.passthrough.folders import Passed
from bbfs.vfs.passthrough.inodes import PassedInode, folder_of
from bbfs.vfs.passthrough.places import MayCrossMount
from bbfs.vfs.writing.name_changes import HELD

T = TypeVar("T")
_BESIDE = (SEARCH.encode(), ABOUT.encode())
_TEXT = TEXT_SUFFIX.encode()
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
_DOTS = 2
"""Entries of a directory before its names: `.` and `..`."""


@dataclass(frozen=True, slots=True)
class Room:
    """The sizes of the file systems of all folders, in bytes: in all, free, and free for this user."""

    size: int
    free: int
    available: int
    names_free: int


class Handles:
    """How many files and directories of passed folders each program has open, by the thread that opened them.

    A program may have as many as are left for all others. So one that opens as many as it can takes half of them, and
    the next one still finds half of the rest.
    """

    def __init__(self) -> None:
        self._by_thread: Counter[int] = Counter()
        self._openers: dict[int, int] = {}  # by handle

    def require(self, thread: int) -> None:
        """Raise FUSEError (EMFILE) if a thread may open no more. Half of all descriptors are for passed folders."""
        if self._by_thread[thread] >= most_for_programs() * 2 // 3 - len(self._openers):
            raise FUSEError(errno.EMFILE)

    def add(self, handle: int, thread: int) -> None:
        self._openers[handle] = thread
        self._by_thread[thread] += 1

    def remove(self, handle: int) -> None:
        thread = self._openers.pop(handle)
        self._by_thread[thread] -= 1
        if not self._by_thread[thread]:
            del self._by_thread[thread]


class PassedRequests:
    """The requests for passed folders. Numbers of inodes and handles are from `PASSED` up.

    changed: called with a folder after a program has changed something in it. shown: notes the versions that the lower
    layer of a scratch shows. expire: has the kernel ask again for the attributes of an inode.
    """

    def __init__(
        self,
        files: FileSystem,
        interrupts: Interrupts,
        shown: Shown | None = None,
        expire: Callable[[int], None] | None = None,
    ) -> None:
        self._expire = expire
        self._folders = files.passed
        self._changed = files.note_changes
        self._interrupts = interrupts
        self._shown = Shown() if shown is None else shown
        self._opened_paths: dict[int, str] = {}
        self._files: dict[int, tuple[Passed, PassedFile]] = {}
        self._directories: dict[int, tuple[Passed, PassedDirectory]] = {}
        self._handles = Handles()
        self._next = PASSED

    @property
    def flushes(self) -> bool:
        """Return whether a close may have an error to tell: on a network file system."""
        return any(not each.folder.direct for each in self._folders)

    async def _change_names(self, passed: Passed, pid: int, call: Callable[..., T], *arguments: object) -> T:
        """As `_change`, of names: the kernel holds their directory until the answer."""
        return await self._change(passed, pid, call, *arguments, most=HELD)

    async def _call(self, passed: Passed, pid: int, call: Callable[..., T], *arguments: object, most: float = inf) -> T:
        """Call a function of a folder, in a thread unless it ends soon. pid: of the thread that waits.

        most: seconds, where the source's `timeout` is longer.
        """
        try:
            answer = await self._answer(passed, pid, call, *arguments, most=most)
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None
        finally:
            if passed.folder.changes:
                self._changed(passed)
        return answer

    async def _change(
        self, passed: Passed, pid: int, call: Callable[..., T], *arguments: object, most: float = inf
    ) -> T:
        """As `_call`, for what changes the folder. Raise ReadOnly."""
        if passed.source.writes is None:
            raise ReadOnly(passed.source.why_read_only)
        return await self._call(passed, pid, call, *arguments, most=most)

    async def _answer(
        self, passed: Passed, pid: int, call: Callable[..., T], *arguments: object, most: float = inf
    ) -> T:
        if passed.folder.direct:
            with suppress(MayCrossMount):
                return call(*arguments)
        return await self._in_thread(passed, pid, call, *arguments, most=most)

    async def _in_thread(
        self, passed: Passed, pid: int, call: Callable[..., T], *arguments: object, most: float = inf
    ) -> T:
        within = min(passed.timeout, most)
        with self._interrupts.watching(pid, until_gone=pid != 0):
            with trio.move_on_after(within):
                return await trio.to_thread.run_sync(
                    partial(call, *arguments), abandon_on_cancel=True, limiter=passed.limiter
                )
            raise DeadlineExceeded(f"{passed.prefix}: no answer of the folder in {within:g} s")
        raise FUSEError(errno.EINTR)

    def _inode(self, number: int) -> tuple[Passed, PassedInode]:
        passed = self._folders[folder_of(number)]
        try:
            return passed, passed.folder.inodes[number]
        except KeyError:
            raise Outdated(f"inode {number} is not held") from None

    def _entry(self, passed: Passed, inode: PassedInode, status: os.stat_result) -> EntryAttributes:
        entry = EntryAttributes()
        entry.st_ino = InodeT(inode.number)
        entry.st_mode = pyfuse3.ModeT(status.st_mode)
        entry.st_nlink = status.st_nlink
        entry.st_uid = status.st_uid
        entry.st_gid = status.st_gid
        entry.st_rdev = status.st_rdev
        entry.st_size = status.st_size
        entry.st_blksize = status.st_blksize
        entry.st_blocks = status.st_blocks
        entry.st_atime_ns = status.st_atime_ns
        entry.st_mtime_ns = status.st_mtime_ns
        entry.st_ctime_ns = status.st_ctime_ns
        entry.entry_timeout = entry.attr_timeout = SHORT  # other programs may change the folder
        if passed.source.judged_by_files:
            entry.attr_timeout = 0  # the kernel asks for the rights, and for lists of them, at each use
        return entry

    async def _new(self, passed: Passed, parent: PassedInode, name: bytes, status: os.stat_result) -> EntryAttributes:
        entry = self._counted(passed, parent, name, status)
        if self._shown.below:
            await self._shown.note_all(self._noted(passed, parent, name, status))
        return entry

    def _counted(self, passed: Passed, parent: PassedInode, name: bytes, status: os.stat_result) -> EntryAttributes:
        return self._entry(passed, passed.folder.counted(parent, name, status), status)

    def _noted(
        self, passed: Passed, parent: PassedInode, name: bytes, status: os.stat_result
    ) -> list[tuple[str, Base | None]]:
        """Return what is noted of an entry that is shown."""
        if self._shown.below:
            with suppress(OSError):  # the directory is gone
                return [(passed.raw_path(parent, name), base_of(status))]
        return []

    # -- names and attributes ----------------------------------------------------------------------------------------

    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes | None:
        """Return the entry of a name, or None if the folder has none."""
        passed, parent = self._inode(parent_inode)
        try:
            status = await self._call(passed, ctx.pid, passed.folder.lookup, parent, name)
        except AtMountPoint:
            return None
        except FUSEError as error:
            if error.errno == errno.ENOENT:
                if self._shown.below:
                    with suppress(OSError):
                        await self._shown.note_absent(passed.raw_path(parent, name))
                return None
            raise
        return await self._new(passed, parent, name, status)

    def may_be_beside(self, parent_inode: int, name: bytes) -> bool:
        """Return whether a name that a folder does not have, or may not look at, can be one that bbfs shows."""
        passed, parent = self._inode(parent_inode)
        if name in _BESIDE or passed.folder.is_mount_point(parent, name):
            return True
        return name.endswith(_TEXT) and is_document_name(os.fsdecode(name.removesuffix(_TEXT)))

    def path(self, number: int) -> tuple[str, ...]:
        """Return the path of an inode from the mount's root, as listings of the source have it. Raise Outdated."""
        passed, inode = self._inode(number)
        try:
            return passed.path(inode)
        except OSError as error:
            raise Outdated(f"inode {number}") from error

    async def origin(self, number: int, ctx: RequestContext) -> bytes | None:
        """Return path and version of a regular file, for a copy of it; None for anything else."""
        passed, inode = self._inode(number)
        status = await self._call(passed, ctx.pid, passed.folder.getattr, inode)
        if not stat.S_ISREG(status.st_mode):
            return None
        try:
            return origin.origin(passed.raw_path(inode), status_version(status))
        except OSError:
            return None

    def forget(self, number: int, lookups: int) -> None:
        self._folders[folder_of(number)].folder.forget(number, lookups)

    async def getattr(self, number: int, ctx: RequestContext) -> EntryAttributes:
        passed, inode = self._inode(number)
        try:
            status = await self._call(passed, ctx.pid, passed.folder.getattr, inode)
        except BbfsError:
            if inode is not passed.folder.inodes.root:
                raise
            return _directory(number)  # that of a source is there, whatever the source does (S6)
        if self._shown.below:
            with suppress(OSError):
                await self._shown.note_status(passed.raw_path(inode), status)
        return self._entry(passed, inode, status)

    async def setattr(self, number: int, wanted: NewAttributes, fh: int | None, ctx: RequestContext) -> EntryAttributes:
        passed, inode = self._inode(number)
        opened = self._files[fh][1] if fh is not None else None
        return self._entry(
            passed, inode, await self._change(passed, ctx.pid, passed.folder.setattr, inode, opened, wanted)
        )

    async def readlink(self, number: int, ctx: RequestContext) -> FileNameT:
        passed, inode = self._inode(number)
        return FileNameT(await self._call(passed, ctx.pid, passed.folder.readlink, inode))

    # -- open files --------------------------------------------------------------------------------------------------

    async def open(self, number: int, flags: int, ctx: RequestContext) -> FileInfo:
        passed, inode = self._inode(number)
        self._handles.require(ctx.pid)
        call = self._change if flags & _WRITING else self._call
        opened, right = await call(passed, ctx.pid, passed.folder.open, inode, flags)
        if not right and self._expire is not None:
            self._expire(number)  # another program may have changed the size: reads end at the one that the kernel has
        return FileInfo(fh=await self._opened(passed, opened, ctx.pid), keep_cache=right, direct_io=_appends(flags))

    async def _opened(self, passed: Passed, opened: PassedFile, thread: int) -> FileHandleT:
        handle = self._next
        self._next = handle + 1
        self._handles.add(handle, thread)
        self._files[handle] = passed, opened
        opened.inode.handles[handle] = opened.descriptor
        if self._shown.below:
            with suppress(OSError):
                path = passed.raw_path(opened.inode)
                await self._shown.note_status(path, os.fstat(opened.descriptor.number))
                self._shown.opened(path)
                self._opened_paths[handle] = path
        return FileHandleT(handle)

    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        passed, parent = self._inode(parent_inode)
        self._handles.require(ctx.pid)
        descriptor, status = await self._change_names(
            passed, ctx.pid, passed.folder.create, parent, name, flags, _creator(mode, ctx)
        )
        inode = passed.folder.counted(parent, name, status)
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        handle = await self._opened(passed, PassedFile(inode, descriptor, writes), ctx.pid)
        return FileInfo(fh=handle, keep_cache=False, direct_io=_appends(flags)), self._entry(passed, inode, status)

    async def read(self, fh: int, offset: int, length: int) -> bytes:
        passed, opened = self._files[fh]
        folder = passed.folder
        try:
            if folder.direct:
                data = folder.read_now(opened, offset, length)
                if data is not None:
                    return cast(bytes, data)  # pyfuse3 takes any buffer, and a copy would take time
            return await self._in_thread(passed, 0, folder.read, opened, offset, length)
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None

    async def write(self, fh: int, offset: int, data: bytes) -> int:
        passed, opened = self._files[fh]
        return await self._call(passed, 0, passed.folder.write, opened, offset, data)

    async def flush(self, fh: int) -> None:
        passed, opened = self._files[fh]
        if opened.written and not passed.folder.direct:
            await self._call(passed, 0, passed.folder.flush, opened)

    async def sync(self, fh: int, only_data: bool) -> None:
        opened = self._files.get(fh) or self._directories[fh]
        passed, descriptor = opened[0], opened[1].descriptor
        try:
            await self._in_thread(passed, 0, partial(passed.folder.sync, descriptor, only_data=only_data))
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None

    async def release(self, fh: int) -> None:
        passed, opened = self._files.pop(fh)
        self._handles.remove(fh)
        opened.inode.handles.pop(fh, None)
        if (path := self._opened_paths.pop(fh, None)) is not None:
            self._shown.closed(path)
        await self._call(passed, 0, passed.folder.closed, opened)

    # -- directories -------------------------------------------------------------------------------------------------

    async def opendir(self, number: int, ctx: RequestContext) -> FileHandleT:
        passed, inode = self._inode(number)
        self._handles.require(ctx.pid)
        opened = await self._call(passed, ctx.pid, passed.folder.opendir, inode)
        handle = self._next
        self._next = handle + 1
        self._handles.add(handle, ctx.pid)
        self._directories[handle] = passed, opened
        return FileHandleT(handle)

    async def readdir(
        self, fh: int, start: int, token: ReaddirToken, mount_point: Callable[[int, bytes], EntryAttributes]
    ) -> None:
        """Answer entries until the kernel's buffer is full. mount_point: makes the entry of the mount point."""
        passed, opened = self._directories[fh]
        folder, parent = passed.folder, opened.inode
        if start == 0:
            await self._call(passed, 0, folder.begin, opened)
        for position in range(start, _DOTS):
            name, number = ((b".", parent.number), (b"..", parent.places[-1][0].number if parent.places else ROOT))[
                position
            ]
            if not pyfuse3.readdir_reply(token, FileNameT(name), _directory(number), position + 1):
                return
        noted: list[tuple[str, Base | None]] = []
        for place in range(max(0, start - _DOTS), len(opened.names)):
            if place not in opened.looked_at:
                await self._call(passed, 0, folder.look_ahead, opened, place)
            if place not in opened.ahead:
                continue
            name, status = opened.names[place], opened.ahead[place]
            if status is None:
                entry = mount_point(parent.number, name)
            else:
                entry = self._counted(passed, parent, name, status)
                noted += self._noted(passed, parent, name, status)
            if not pyfuse3.readdir_reply(token, FileNameT(name), entry, place + _DOTS + 1):
                if status is not None:
                    folder.forget(entry.st_ino, 1)
                break
        await self._shown.note_all(noted)

    async def releasedir(self, fh: int) -> None:
        passed, opened = self._directories.pop(fh)
        self._handles.remove(fh)
        await self._call(passed, 0, opened.descriptor.close)

    # -- making and removing -----------------------------------------------------------------------------------------

    async def mknod(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        passed, parent = self._inode(parent_inode)
        kind, creator = stat.S_IFMT(mode) or stat.S_IFREG, _creator(mode, ctx)
        status = await self._change_names(passed, ctx.pid, passed.folder.mknod, parent, name, kind, creator)
        return await self._new(passed, parent, name, status)

    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        passed, parent = self._inode(parent_inode)
        status = await self._change_names(passed, ctx.pid, passed.folder.mkdir, parent, name, _creator(mode, ctx))
        return await self._new(passed, parent, name, status)

    async def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        passed, parent = self._inode(parent_inode)
        status = await self._change_names(
            passed, ctx.pid, passed.folder.symlink, parent, name, target, _creator(0, ctx)
        )
        return await self._new(passed, parent, name, status)

    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        passed, parent = self._inode(parent_inode)
        await self._change_names(passed, ctx.pid, passed.folder.unlink, parent, name)

    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        passed, parent = self._inode(parent_inode)
        await self._change_names(passed, ctx.pid, passed.folder.rmdir, parent, name)

    async def rename(
        self, old_parent: int, old_name: bytes, new_parent: int, new_name: bytes, flags: int, ctx: RequestContext
    ) -> None:
        passed, parent, to_parent = self._both(old_parent, new_parent)
        await self._change_names(passed, ctx.pid, passed.folder.rename, parent, old_name, to_parent, new_name, flags)

    async def link(self, number: int, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        passed, inode, parent = self._both(number, parent_inode)
        status = await self._change_names(passed, ctx.pid, passed.folder.link, inode, parent, name)
        return await self._new(passed, parent, name, status)

    def _both(self, number: int, other: int) -> tuple[Passed, PassedInode, PassedInode]:
        """Return two inodes of one folder. Raise CrossesSources."""
        if number < PASSED or other < PASSED or folder_of(number) != folder_of(other):
            raise CrossesSources("a name of a local folder stays in that folder")
        passed, inode = self._inode(number)
        return passed, inode, self._inode(other)[1]

    # -- extended attributes and the whole ---------------------------------------------------------------------------

    async def getxattr(self, number: int, name: bytes, ctx: RequestContext) -> bytes:
        passed, inode = self._inode(number)
        return await self._call(passed, ctx.pid, passed.folder.getxattr, inode, name)

    async def listxattr(self, number: int, ctx: RequestContext) -> Sequence[bytes]:
        passed, inode = self._inode(number)
        return await self._call(passed, ctx.pid, passed.folder.listxattr, inode)

    async def setxattr(self, number: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        passed, inode = self._inode(number)
        await self._change(passed, ctx.pid, passed.folder.setxattr, inode, name, value)

    async def removexattr(self, number: int, name: bytes, ctx: RequestContext) -> None:
        passed, inode = self._inode(number)
        await self._change(passed, ctx.pid, passed.folder.removexattr, inode, name)

    async def room(self, ctx: RequestContext) -> Room | None:
        """Return the room of the folder that has the least left, or None if no folder tells."""
        least: Room | None = None
        for passed in self._folders:
            try:
                found = await self._call(passed, ctx.pid, passed.folder.statvfs)
            except (FUSEError, NotSupported, DeadlineExceeded):
                continue
            unit = found.f_frsize
            room = Room(found.f_blocks * unit, found.f_bfree * unit, found.f_bavail * unit, found.f_favail)
            least = room if least is None or room.available < least.available else least
        return least


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
