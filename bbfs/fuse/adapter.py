"""The FUSE adapter: translates pyfuse3's requests to the file system and its answers back, and nothing else.

One decorator has the errno rule: a BbfsError answers its errno; an unforeseen exception is logged and answers EIO. A
stray exception would end the mount (S27).
"""

import errno
import logging
import os
import select
import stat
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial, wraps
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
    StatvfsData,
    XAttrNameT,
)

from bbfs.fuse.passed import PassedRequests
from bbfs.fuse.scratch import origin
from bbfs.fuse.scratch.bases import Base
from bbfs.fuse.scratch.shown import Shown
from bbfs.fuse.waiting_programs import Interrupts, SystemCalls, has_open, wants_out
from bbfs.model.errors import BbfsError, Conflict, NoAttribute, NotSupported
from bbfs.model.inode_number import PASSED
from bbfs.resources.catalog.record import DIRECTORY, Path
from bbfs.vfs.file_handles import NewAttributes
from bbfs.vfs.filesystem import Attributes, FileSystem
from bbfs.vfs.names import SHORT, Wait, answered
from bbfs.vfs.writing.name_changes import IsBase

log = logging.getLogger(__name__)

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])
BLOCK = 512
"""The unit of st_blocks, in bytes, whatever the block size (stat(2))."""
SPARE_NAMES = 1 << 20
"""Names that a writable source is said to have room for: programs refuse to write where there is none."""
_TYPES = {"directory": stat.S_IFDIR, "file": stat.S_IFREG, "symlink": stat.S_IFLNK}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
_XATTR_PREFIX = b"user."
_OWN_PREFIX = b"user.bbfs."
_DESCRIBING = (b"user.mime_type", b"user.xdg.origin.url")
"""Attributes beside those of bbfs that describe a resource."""
_ACLS = frozenset((b"system.posix_acl_access", b"system.posix_acl_default"))
"""The attributes with the access control lists of a file (acl(5)). The kernel asks for them where others get in."""
_ORIGIN, _BASE = origin.ATTRIBUTE.encode(), origin.BASE.encode()
_BASES = 1024
"""Threads whose stated versions are held until their next change of a name."""
READY = select.POLLIN | select.POLLRDNORM | select.POLLOUT | select.POLLWRNORM
"""The answer of poll(2) for a regular file: always ready (POSIX), as the kernel answers without a poll method."""
CHANGED = select.POLLPRI | select.POLLERR
"""Added for an open file whose content is outdated, as for /proc/self/mounts (proc_pid_mounts(5)) and sysfs."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of the tree, and the permission bits that are removed (S8).

    is_lower: the mount is the lower layer of an overlay. It shows that the owner may write, also where no source takes
    it, and lists of the attributes those that an overlay should copy.
    lets_others_in: other users may use the mount. What is private is the daemon's user's.
    """

    uid: int
    gid: int
    umask: int = 0
    is_lower: bool = False
    lets_others_in: bool = False


def answers(method: F) -> F:
    """Translate errors to errnos, in this one place."""

    @wraps(method)
    async def answer(self: "Operations", *args: Any) -> Any:
        try:
            return await method(self, *args)
        except BbfsError as error:
            log.debug("%s: %s: %s", method.__name__, type(error).__name__, error)
            raise FUSEError(error.errno) from None
        except FUSEError:
            raise
        except Exception:
            log.exception("unforeseen error in %s", method.__name__)
            raise FUSEError(errno.EIO) from None

    return cast(F, answer)


@contextmanager
def asked_once() -> Iterator[None]:
    """Let a conflict be EBUSY. After ESTALE the kernel asks again by itself, and over what it then finds (namei.c)."""
    try:
        yield
    except Conflict as error:
        log.debug("refused: %s", error)
        raise FUSEError(errno.EBUSY) from None


def _expire(number: int) -> None:
    """Have the kernel ask again for the attributes of an inode. It locks nothing for that."""
    with suppress(OSError):  # forgotten meanwhile
        pyfuse3.invalidate_inode(InodeT(number), attr_only=True)


class Operations(pyfuse3.Operations):
    """pyfuse3's view of a FileSystem."""

    supports_dot_lookup = False
    enable_writeback_cache = False
    enable_acl = False

    def __init__(self, files: FileSystem, owner: Ownership, interrupts: Interrupts, shown: Shown | None = None) -> None:
        super().__init__()
        self._shown = Shown() if shown is None else shown
        self._shown_paths: dict[int, str] = {}  # by handle, while `shown` keeps the note of the path
        self.interrupts = interrupts
        self._calls = SystemCalls()
        self._files = files
        self._names = files.names
        self._writes = files.writes
        self._name_changes = files.name_changes
        self._locks = files.locks
        self._directories = files.directories
        self._uncached = files.uncached
        self._owner = owner
        self._passed = PassedRequests(files, interrupts, shown, _expire)
        self._writers: dict[int, int] = {}  # by handle: the thread that opened a file which a close may hand over
        self._bases: LRUCache[int, tuple[Path, Mapping[str, Any]]] = LRUCache(_BASES)  # by thread
        self._openers: dict[int, int] = {}  # by handle: the thread that opened a file whose reads wait for the source

    async def _waited(self, ctx: RequestContext, answer: T | Wait, ask: Callable[..., T | Wait], *arguments: Any) -> T:
        """Await the answer of a request; the waiting program can be interrupted and killed meanwhile."""
        with self.interrupts.watching(ctx.pid):
            return await answered(answer, ask, *arguments)
        raise FUSEError(errno.EINTR)

    async def _change(self, ctx: RequestContext, change: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Await a change. If its program is interrupted or killed meanwhile, it goes on: no source has half of it."""
        with self.interrupts.watching(ctx.pid):
            return await self._files.go_on(partial(change, *arguments))
        raise FUSEError(errno.EINTR)

    async def _change_names(
        self, ctx: RequestContext, change: Callable[[], Awaitable[T]], *places: tuple[InodeT, bytes]
    ) -> T:
        """As `_change`, of names whose directories the kernel holds until the answer."""
        directories = self._locks.held(*(parent for parent, _ in places))
        with asked_once(), directories, self.interrupts.watching(ctx.pid):
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

    async def _by_writer(self, fh: int, request: Awaitable[T]) -> T:
        """Await a request for an open file. It does not name the waiting thread: mostly the one that opened it."""
        with self.interrupts.watching(self._writers.get(fh, 0), until_gone=False):
            return await request
        raise FUSEError(errno.EINTR)

    def _entry(self, found: Attributes) -> EntryAttributes:
        entry: EntryAttributes | None = found.packed
        if entry is None:
            entry = found.packed = self._packed(found)
        entry.st_ino = InodeT(found.ino)  # the files of a listing share all the rest
        entry.entry_timeout = found.entry_timeout
        entry.attr_timeout = found.attr_timeout
        return entry

    def _packed(self, found: Attributes) -> EntryAttributes:
        """Make an entry without the inode number and the timeouts."""
        entry = EntryAttributes()
        if found.ino == 0:
            return entry
        bits = {"directory": 0o555, "file": 0o444, "symlink": 0o777}[found.kind] | (
            0o200 if found.writable or self._owner.is_lower else 0
        )
        if found.kind != "symlink":
            bits &= ~self._owner.umask
        entry.st_mode = pyfuse3.ModeT(_TYPES[found.kind] | bits)
        entry.st_nlink = 1  # for a directory too: "not counted", so that find does not stop early
        entry.st_uid = self._owner.uid
        entry.st_gid = self._owner.gid
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

    @answers
    async def lookup(self, parent_inode: InodeT, name: bytes, ctx: RequestContext) -> EntryAttributes:
        if parent_inode >= PASSED:
            passed = await self._passed.lookup(parent_inode, name, ctx)
            return await self._beside(parent_inode, name, ctx) if passed is None else passed
        found = self._names.lookup(parent_inode, name)
        if type(found) is Wait:
            if wants_out(ctx.pid):
                # The kernel serves programs that look up the same name one by one: let a killed one go at once.
                raise FUSEError(errno.EINTR)
            ask = partial(self._names.lookup, asker=partial(self._calls.aim, ctx.pid, name))
            with self._locks.held(parent_inode):
                found = await self._waited(ctx, ask(parent_inode, name), ask, parent_inode, name)
        if self._shown.below:
            await self._shown.note_all(self._noted(found, parent_inode, name))
        return self._entry(found)

    def _noted(self, found: Attributes, parent: int = 0, name: bytes = b"") -> list[tuple[str, Base | None]]:
        """Return what is noted of an entry that is shown. parent, name: of an entry that may be absent."""
        with suppress(BbfsError):
            if found.ino == 0:
                return [(os.fsdecode(b"/".join((*map(os.fsencode, self._names.path(parent)), name))), None)]
            if found.ino < PASSED and (state := self._files.state(found.ino)) is not None:
                path, kind, version = state
                if kind == "symlink":
                    version = {"modified_ns": found.modified_ns, "changed_ns": found.modified_ns, "size": found.size}
                return [("/".join(path), Base(kind, version))]
        return []

    async def _beside(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        """Return the entry of a name that a passed folder does not have: a description, a search, a text, or none."""
        absent = EntryAttributes()
        absent.st_ino, absent.entry_timeout = InodeT(0), SHORT
        if not self._passed.may_be_beside(parent_inode, name):
            return absent
        directory = self._passed.path(parent_inode)
        ask = partial(self._names.lookup_in, directory)
        found = ask(name)
        if type(found) is Wait:
            found = await self._waited(ctx, found, ask, name)
        entry = self._entry(found)
        entry.entry_timeout = min(entry.entry_timeout, SHORT)  # the folder may get an entry of that name
        return entry

    def _mount_point(self, parent_inode: int, name: bytes) -> EntryAttributes:
        """Return the entry of the mount point, in the folder where it lies: an empty directory."""
        return self._entry(self._names.counted((*self._passed.path(parent_inode), name.decode()), DIRECTORY))

    async def forget(self, inode_list: Sequence[tuple[InodeT, int]]) -> None:
        for inode, references in inode_list:
            try:
                if inode >= PASSED:
                    self._passed.forget(inode, references)
                else:
                    self._files.forget(inode, references)
            except Exception:
                log.exception("unforeseen error in forget")

    @answers
    async def getattr(self, inode: InodeT, ctx: RequestContext) -> EntryAttributes:
        if inode >= PASSED:
            return await self._passed.getattr(inode, ctx)
        found = self._files.getattr(inode)
        if type(found) is Wait:
            ask = partial(self._files.getattr, asker=partial(self._calls.wanted, ctx.pid))
            found = await self._waited(ctx, ask(inode), ask, inode)
        if self._shown.below:
            await self._shown.note_all(self._noted(found))
        return self._entry(found)

    @answers
    async def readlink(self, inode: InodeT, ctx: RequestContext) -> FileNameT:
        if inode >= PASSED:
            return await self._passed.readlink(inode, ctx)
        target = self._files.readlink(inode)
        if type(target) is Wait:
            target = await self._waited(ctx, target, self._files.readlink, inode)
        return FileNameT(target)

    @answers
    async def opendir(self, inode: InodeT, ctx: RequestContext) -> FileHandleT:
        if inode >= PASSED:
            return await self._passed.opendir(inode, ctx)
        handle = self._directories.opendir(inode)
        if type(handle) is Wait:
            handle = await self._waited(ctx, handle, self._directories.opendir, inode)
        return FileHandleT(handle)

    @answers
    async def readdir(self, fh: FileHandleT, start_id: int, token: ReaddirToken) -> None:
        if fh >= PASSED:
            await self._passed.readdir(fh, start_id, token, self._mount_point)
            return
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
                entry.st_ino = InodeT(found.ino)  # the files of a listing share all the rest
            else:
                last, entry = found, self._entry(found)
            if not pyfuse3.readdir_reply(token, FileNameT(name), entry, following):
                if following > 2 and found.ino < PASSED:
                    self._files.forget(found.ino, 1)
                break
        if noted:
            await self._shown.note_all(noted)

    @answers
    async def releasedir(self, fh: FileHandleT) -> None:
        if fh >= PASSED:
            await self._passed.releasedir(fh)
        else:
            self._directories.releasedir(fh)

    @answers
    async def open(self, inode: InodeT, flags: int, ctx: RequestContext) -> FileInfo:
        if inode >= PASSED:
            return await self._passed.open(inode, flags, ctx)
        if flags & _WRITING:
            with self.interrupts.watching(ctx.pid):
                written = FileHandleT(await self._writes.open(inode, flags, ctx.pid))
                self._writers[written] = ctx.pid
                return FileInfo(fh=written, keep_cache=True, direct_io=self._writes.is_direct(written))
            raise FUSEError(errno.EINTR)
        handle = self._files.open(inode)
        if type(handle) is Wait:
            handle = await self._waited(ctx, handle, self._files.open, inode)
        if self._shown.below:
            path = self._shown_paths[handle] = "/".join(self._names.path(inode))
            self._shown.opened(path)
        if self._files.writable_roots:
            self._writers[handle] = ctx.pid  # its fsync may hand over what another program has written
        # An inode is one version of its content, so its pages stay true however often it is opened.
        if handle not in self._uncached:
            return FileInfo(fh=FileHandleT(handle), keep_cache=handle not in self._files.replaced)
        if self._uncached[handle]:
            self._openers[handle] = ctx.pid
        return FileInfo(fh=FileHandleT(handle), keep_cache=False, direct_io=True)

    @answers
    async def read(self, fh: FileHandleT, off: int, size: int) -> bytes:
        if fh >= PASSED:
            return await self._passed.read(fh, off, size)
        data = self._files.read(fh, off, size)
        if type(data) is not Wait:
            return data
        opener = self._openers.get(fh, self._writers.get(fh))  # of a file that programs write, reads wait as well
        if opener is None:
            return await answered(data, self._files.read, fh, off, size)
        # A read does not name the waiting thread. Mostly it is the one that opened the file.
        with self.interrupts.watching(opener, until_gone=False):
            return await answered(data, self._files.read, fh, off, size)
        raise FUSEError(errno.EINTR)

    @answers
    async def release(self, fh: FileHandleT) -> None:
        if fh >= PASSED:
            await self._passed.release(fh)
            return
        self._openers.pop(fh, None)
        if (path := self._shown_paths.pop(fh, None)) is not None:
            self._shown.closed(path)
        if self._writers:
            self._writers.pop(fh, None)
        self._files.release(fh)

    @answers
    async def poll(self, inode: InodeT, fh: FileHandleT, poll_handle: PollHandle | None, ctx: RequestContext) -> int:
        """Return the poll events of an open file. It is always readable, as any regular file.

        `CHANGED` is added, and wakes waiting programs, once the source has another version than the open one. It stays
        until the program opens the file again.
        """
        if fh >= PASSED:
            return READY
        if self._files.changed(fh):
            return READY | CHANGED
        if poll_handle is not None:  # it wakes all programs that wait for one open file, so the latest is enough
            self._files.watch_handle(fh, partial(_notify, poll_handle))
        return READY

    @answers
    async def flush(self, fh: FileHandleT) -> None:
        if not self._files.writable_roots and not (self._files.passed and self._passed.flushes):
            raise FUSEError(errno.ENOSYS)  # nothing to write back: the kernel stops asking
        if fh >= PASSED:
            await self._passed.flush(fh)
            return
        blank = self._writes.blank(fh)
        if blank is not None and has_open(self._writers.get(fh, 0), "/".join(blank)):
            return  # a shell has opened the file for another program: that one's close hands it over
        await self._by_writer(fh, self._writes.flush(fh))

    @answers
    async def fsync(self, fh: FileHandleT, datasync: bool) -> None:
        if fh >= PASSED:
            await self._passed.sync(fh, datasync)
        else:
            await self._by_writer(fh, self._writes.sync(fh))

    @answers
    async def fsyncdir(self, fh: FileHandleT, datasync: bool) -> None:
        """Sync a directory of a passed folder. Elsewhere, a name is at its source, or in the store of pending writes,
        when its call returns."""
        if fh >= PASSED:
            await self._passed.sync(fh, datasync)

    @answers
    async def create(
        self, parent_inode: InodeT, name: FileNameT, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        if parent_inode >= PASSED:
            return await self._passed.create(parent_inode, name, mode, flags, ctx)
        with self._locks.held(parent_inode), self.interrupts.watching(ctx.pid):
            handle, found = await self._name_changes.create_in_time(
                parent_inode, name, flags, mode & ~ctx.umask, ctx.pid
            )
            self._writers[handle] = ctx.pid
            return FileInfo(fh=FileHandleT(handle), keep_cache=True), self._entry(found)
        raise FUSEError(errno.EINTR)

    @answers
    async def mknod(
        self, parent_inode: InodeT, name: FileNameT, mode: int, rdev: int, ctx: RequestContext
    ) -> EntryAttributes:
        if parent_inode >= PASSED:
            return await self._passed.mknod(parent_inode, name, mode, ctx)
        if not stat.S_ISREG(mode):
            raise NotSupported("no source has devices, pipes and sockets")
        return await self._made(ctx, self._name_changes.make_node, parent_inode, name, mode)

    @answers
    async def write(self, fh: FileHandleT, off: int, buf: bytes) -> int:
        if fh >= PASSED:
            return await self._passed.write(fh, off, buf)
        return await self._by_writer(fh, self._writes.write(fh, off, buf))

    @answers
    async def setattr(
        self,
        inode: InodeT,
        attr: EntryAttributes,
        fields: SetattrFields,
        fh: FileHandleT | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        wanted = NewAttributes(
            size=attr.st_size if fields.update_size else None,
            modified_ns=attr.st_mtime_ns if fields.update_mtime else None,
            accessed_ns=attr.st_atime_ns if fields.update_atime else None,
            mode=stat.S_IMODE(attr.st_mode) if fields.update_mode else None,
            uid=attr.st_uid if fields.update_uid else None,
            gid=attr.st_gid if fields.update_gid else None,
        )
        if inode >= PASSED:
            return await self._passed.setattr(inode, wanted, fh, ctx)
        with asked_once() if fh is None else nullcontext():
            return self._entry(await self._change(ctx, self._writes.set_attributes, inode, fh, wanted))

    @answers
    async def unlink(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> None:
        if parent_inode >= PASSED:
            await self._passed.unlink(parent_inode, name, ctx)
        else:
            change = partial(self._name_changes.remove, parent_inode, name, self._base(ctx))
            await self._change_names(ctx, change, (parent_inode, name))

    @answers
    async def mkdir(self, parent_inode: InodeT, name: FileNameT, mode: int, ctx: RequestContext) -> EntryAttributes:
        if parent_inode >= PASSED:
            return await self._passed.mkdir(parent_inode, name, mode, ctx)
        return await self._made(ctx, self._name_changes.make_directory, parent_inode, name, mode)

    @answers
    async def rmdir(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> None:
        if parent_inode >= PASSED:
            await self._passed.rmdir(parent_inode, name, ctx)
        else:
            change = partial(self._name_changes.remove_directory, parent_inode, name)
            await self._change_names(ctx, change, (parent_inode, name))

    @answers
    async def rename(
        self,
        parent_inode_old: InodeT,
        name_old: FileNameT,
        parent_inode_new: InodeT,
        name_new: FileNameT,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        if parent_inode_old >= PASSED or parent_inode_new >= PASSED:
            await self._passed.rename(parent_inode_old, name_old, parent_inode_new, name_new, flags, ctx)
        else:
            old, new = (parent_inode_old, name_old), (parent_inode_new, name_new)
            rename = partial(self._name_changes.rename, *old, *new, flags, self._base(ctx))
            await self._change_names(ctx, rename, old, new)

    @answers
    async def link(
        self, inode: InodeT, new_parent_inode: InodeT, new_name: FileNameT, ctx: RequestContext
    ) -> EntryAttributes:
        if inode >= PASSED or new_parent_inode >= PASSED:
            return await self._passed.link(inode, new_parent_inode, new_name, ctx)
        return self._name_changes.refuse_link(new_parent_inode, new_name)

    @answers
    async def symlink(
        self, parent_inode: InodeT, name: FileNameT, target: FileNameT, ctx: RequestContext
    ) -> EntryAttributes:
        if parent_inode >= PASSED:
            return await self._passed.symlink(parent_inode, name, target, ctx)
        return self._name_changes.refuse_link(parent_inode, name)

    @answers
    async def getxattr(self, inode: InodeT, name: bytes, ctx: RequestContext) -> bytes:
        if name in _ACLS and self._owner.lets_others_in:
            if inode < PASSED:
                raise FUSEError(errno.ENODATA)
            return await self._passed.getxattr(inode, name, ctx)
        if not name.startswith(_XATTR_PREFIX):
            # `ls -l` asks for security.* and system.* of every entry, but only once if the file system has none.
            raise FUSEError(errno.EOPNOTSUPP)
        if name == _ORIGIN:  # for `bbfs apply`, also where a scratch lies over another mount than its own
            return await self._origin(inode, ctx)
        return await self._xattr(inode, name, ctx)

    async def _xattr(self, inode: InodeT, name: bytes, ctx: RequestContext) -> bytes:
        if inode >= PASSED:
            return await self._passed_xattr(inode, name, ctx)
        value = self._files.getxattr(inode, name)
        return await self._waited(ctx, value, self._files.getxattr, inode, name) if type(value) is Wait else value

    async def _origin(self, inode: InodeT, ctx: RequestContext) -> bytes:
        """Return path and version of a file. Once its listing has expired, the version is unknown.

        An overlay copies no file that lacks an attribute which was listed a moment before.
        """
        value: bytes | None = None
        if inode >= PASSED:
            value = await self._passed.origin(inode, ctx)
        elif (found := self._files.state(inode)) is None:
            value = origin.origin("/".join(self._names.path(inode)), {})
        elif found[1] == "file":
            value = origin.origin("/".join(found[0]), found[2] or {})
        if value is None:
            raise NoAttribute(origin.ATTRIBUTE)
        return value

    @answers
    async def listxattr(self, inode: InodeT, ctx: RequestContext) -> Sequence[XAttrNameT]:
        if self._owner.is_lower:
            own = await self._listed(inode, ctx) if inode >= PASSED else ()
            names = [name for name in own if not name.startswith(_OWN_PREFIX)]
            with suppress(NoAttribute):
                if inode >= PASSED or self._files.state(inode) is not None:
                    await self._origin(inode, ctx)
                    names.append(_ORIGIN)
            return cast(list[XAttrNameT], names)
        if inode >= PASSED:
            return cast(list[XAttrNameT], await self._listed(inode, ctx))
        names = self._files.listxattr(inode)
        if type(names) is Wait:
            names = await self._waited(ctx, names, self._files.listxattr, inode)
        return cast(list[XAttrNameT], names)

    async def _listed(self, inode: InodeT, ctx: RequestContext) -> list[bytes]:
        """Return the names of the attributes of a file of a folder that `getxattr` answers."""
        names = await self._passed.listxattr(inode, ctx)
        acls = _ACLS if self._owner.lets_others_in else ()
        return [name for name in names if name.startswith(_XATTR_PREFIX) or name in acls]

    async def _passed_xattr(self, inode: InodeT, name: bytes, ctx: RequestContext) -> bytes:
        """Return an attribute that a file of a folder has, or else one that describes it."""
        if not name.startswith(_OWN_PREFIX):
            try:
                return await self._passed.getxattr(inode, name, ctx)
            except FUSEError as error:
                if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP, errno.EPERM):
                    raise
        ask = partial(self._files.described, inode, self._passed.path(inode))
        found = ask()
        described = await self._waited(ctx, found, ask) if type(found) is Wait else found
        value = described.values.get(name)
        if value is None:
            raise NoAttribute(name.decode("utf-8", "replace"))
        return value

    @answers
    async def setxattr(self, inode: InodeT, name: XAttrNameT, value: bytes, ctx: RequestContext) -> None:
        if self._is_settable(inode, name):
            await self._passed.setxattr(inode, name, value, ctx)
        elif name == _BASE and inode < PASSED:
            self._bases[ctx.pid] = self._names.path(inode), origin.version_of(value)

    @answers
    async def removexattr(self, inode: InodeT, name: XAttrNameT, ctx: RequestContext) -> None:
        if self._is_settable(inode, name):
            await self._passed.removexattr(inode, name, ctx)

    def _base(self, ctx: RequestContext) -> IsBase | None:
        """Return what compares the version that the thread has stated for a name, if it has; it holds once."""
        named = self._bases.pop(ctx.pid, None)
        if named is None:
            return None
        path, version = named
        return lambda changed, there: changed != path or origin.version_of(origin.origin("", there)) == version

    def _is_settable(self, inode: InodeT, name: bytes) -> bool:
        """Return whether a program sets an attribute of a passed folder's file. Raise NotSupported, ReadOnly.

        What the mount says of a resource changes nothing, as a mode does: programs that copy set all that is listed.
        """
        if inode >= PASSED and name.startswith(_XATTR_PREFIX) and not name.startswith(_OWN_PREFIX):
            return True
        if name not in _DESCRIBING and not name.startswith(_OWN_PREFIX):
            raise NotSupported("only files of a local folder have extended attributes that can be set")
        if inode < PASSED:
            self._writes.require_written(inode)
        return False

    @answers
    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        usage = self._files.usage()
        answer = StatvfsData()
        answer.f_bsize = answer.f_frsize = BLOCK
        answer.f_blocks = -(-usage.bytes // BLOCK)
        answer.f_bfree = answer.f_bavail = 0
        answer.f_files = usage.files
        answer.f_ffree = answer.f_favail = 0
        room = await self._passed.room(ctx)
        if room is not None:
            answer.f_blocks = room.size // BLOCK
            answer.f_bfree, answer.f_bavail = room.free // BLOCK, room.available // BLOCK
            answer.f_files = answer.f_ffree = answer.f_favail = room.names_free
        elif self._files.writable_roots:
            free = await self._writes.free()
            answer.f_blocks += free // BLOCK
            answer.f_bfree = answer.f_bavail = free // BLOCK
            answer.f_ffree = answer.f_favail = SPARE_NAMES
            answer.f_files += SPARE_NAMES
        answer.f_namemax = 255
        return answer


def _notify(waiting: PollHandle) -> None:
    """Notify the kernel, which asks again for the programs that poll. This does not wait."""
    try:
        waiting.notify()
    except OSError as error:
        log.debug("no program to wake: %s", error)
