"""The FUSE adapter: chooses what answers each of pyfuse3's requests, and translates errors to errnos. Nothing else.

One decorator has the errno rule: a BbfsError answers its errno; an unforeseen exception is logged and answers EIO. A
stray exception would end the mount (S27).
"""

import errno
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import pyfuse3
from pyfuse3 import FileHandleT, FUSEError, InodeT, RequestContext, StatvfsData

from bbfs.fuse.backings.attributes import ACLS, PREFIX, Ownership
from bbfs.fuse.backings.passed import PassedRequests
from bbfs.fuse.backings.stored import StoredRequests
from bbfs.fuse.scratch.shown import Shown
from bbfs.fuse.waiting_programs import Interrupts
from bbfs.model.errors import BbfsError
from bbfs.resources.catalog.record import PASSED
from bbfs.vfs.filesystem import FileSystem

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])
BLOCK = 512
"""The unit of statfs(2), in bytes."""
SPARE_NAMES = 1 << 20
"""Names that a writable source is said to have room for: programs refuse to write where there is none."""


def answers(method: F) -> F:
    """Translate the errors of a request to errnos."""

    @wraps(method)
    async def answer(self: "Operations", *args: Any) -> Any:
        try:
            return await method(self, *args)
        except Exception as error:  # noqa: BLE001 - it is the answer
            raise _translated(method.__name__, error) from None

    return cast(F, answer)


def chosen(method: F, number: int = 0, other: int | None = None) -> F:
    """Let a backing answer a request of pyfuse3, and translate its errors to errnos.

    number: which argument is the inode or handle that tells the backing. other: a second inode, which may be a passed
    one as well. This is not `answers` around another function: each call takes a hundredth of a warm open.
    """
    name = method.__name__

    @wraps(method)
    async def answer(self: "Operations", *args: Any) -> Any:
        inode = args[number] if other is None else max(args[number], args[other])
        try:
            return await getattr(self.passed if inode >= PASSED else self._stored, name)(*args)
        except Exception as error:  # noqa: BLE001 - it is the answer
            raise _translated(method.__name__, error) from None

    return cast(F, answer)


def _translated(request: str, error: Exception) -> FUSEError:
    """Return what a request answers for an error, in this one place."""
    if isinstance(error, FUSEError):
        return error
    if isinstance(error, BbfsError):
        log.debug("%s: %s: %s", request, type(error).__name__, error)
        return FUSEError(error.errno)
    log.error("unforeseen error in %s", request, exc_info=error)
    return FUSEError(errno.EIO)


class Operations(pyfuse3.Operations):
    """pyfuse3's view of a FileSystem. Inodes and handles from `PASSED` up are those of passed folders."""

    supports_dot_lookup = False
    enable_writeback_cache = False
    enable_acl = False

    def __init__(self, files: FileSystem, owner: Ownership, interrupts: Interrupts, shown: Shown | None = None) -> None:
        super().__init__()
        self._files = files
        self._owner = owner
        shown = Shown() if shown is None else shown
        self._stored = StoredRequests(files, owner, interrupts, shown)
        self.passed = PassedRequests(files, owner, interrupts, shown, self._stored)

    lookup = chosen(pyfuse3.Operations.lookup)
    getattr = chosen(pyfuse3.Operations.getattr)
    setattr = chosen(pyfuse3.Operations.setattr)
    readlink = chosen(pyfuse3.Operations.readlink)
    opendir = chosen(pyfuse3.Operations.opendir)
    readdir = chosen(pyfuse3.Operations.readdir)
    releasedir = chosen(pyfuse3.Operations.releasedir)
    fsyncdir = chosen(pyfuse3.Operations.fsyncdir)
    open = chosen(pyfuse3.Operations.open)
    read = chosen(pyfuse3.Operations.read)
    write = chosen(pyfuse3.Operations.write)
    fsync = chosen(pyfuse3.Operations.fsync)
    release = chosen(pyfuse3.Operations.release)
    poll = chosen(pyfuse3.Operations.poll, number=1)
    create = chosen(pyfuse3.Operations.create)
    mknod = chosen(pyfuse3.Operations.mknod)
    mkdir = chosen(pyfuse3.Operations.mkdir)
    symlink = chosen(pyfuse3.Operations.symlink)
    link = chosen(pyfuse3.Operations.link, other=1)
    unlink = chosen(pyfuse3.Operations.unlink)
    rmdir = chosen(pyfuse3.Operations.rmdir)
    rename = chosen(pyfuse3.Operations.rename, other=2)
    _getxattr = chosen(pyfuse3.Operations.getxattr)
    listxattr = chosen(pyfuse3.Operations.listxattr)
    setxattr = chosen(pyfuse3.Operations.setxattr)
    removexattr = chosen(pyfuse3.Operations.removexattr)

    @answers
    async def flush(self, fh: FileHandleT) -> None:
        if not self._files.writable_roots and not (self._files.passed and self.passed.flushes):
            self._files.is_unflushed = True
            raise FUSEError(errno.ENOSYS)  # nothing to write back: the kernel stops asking
        await (self.passed if fh >= PASSED else self._stored).flush(fh)

    @answers
    async def getxattr(self, inode: InodeT, name: bytes, ctx: RequestContext) -> bytes:
        # The kernel asks for `security.capability` before each write, and judges other users by access control lists.
        # `ls -l` asks for `security.*` and `system.*` of every entry, but only once if the file system has none.
        if not name.startswith(PREFIX) and not (self._owner.lets_others_in and name in ACLS):
            raise FUSEError(errno.EOPNOTSUPP)
        return await self._getxattr(inode, name, ctx)

    async def forget(self, inode_list: Sequence[tuple[InodeT, int]]) -> None:
        for inode, references in inode_list:
            try:
                (self.passed if inode >= PASSED else self._stored).forget_inode(inode, references)
            except Exception:
                log.exception("unforeseen error in forget")

    @answers
    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        usage = await self._files.usage()
        answer = StatvfsData()
        answer.f_bsize = answer.f_frsize = BLOCK
        answer.f_blocks = -(-usage.bytes // BLOCK)
        answer.f_bfree = answer.f_bavail = 0
        answer.f_files = usage.files
        answer.f_ffree = answer.f_favail = 0
        room = await self.passed.room(ctx)
        if room is not None:
            answer.f_blocks = room.size // BLOCK
            answer.f_bfree, answer.f_bavail = room.free // BLOCK, room.available // BLOCK
            answer.f_files = answer.f_ffree = answer.f_favail = room.names_free
        elif self._files.writable_roots:
            free = await self._files.open_files.free()
            answer.f_blocks += free // BLOCK
            answer.f_bfree = answer.f_bavail = free // BLOCK
            answer.f_ffree = answer.f_favail = SPARE_NAMES
            answer.f_files += SPARE_NAMES
        answer.f_namemax = 255
        return answer
