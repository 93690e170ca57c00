"""pyfuse3's requests, recorded for an audit. They are the adapter's own, with a record after each.

A write is one record for all that a program has written before a close of the file, with the outcome of that close.
"""

import errno
import os
import time
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from pyfuse3 import EntryAttributes, FileHandleT, FileInfo, FUSEError, InodeT, RequestContext, SetattrFields

from bbfs.fuse.adapter import Operations
from bbfs.fuse.audit.auditor import Asked, Auditor, named
from bbfs.fuse.backings.attributes import Ownership
from bbfs.fuse.scratch.shown import Shown
from bbfs.fuse.waiting_programs import Interrupts, name_of
from bbfs.model.errors import BbfsError
from bbfs.resources.catalog.record import PASSED
from bbfs.vfs.file_handles import WRITING
from bbfs.vfs.filesystem import FileSystem
from bbfs.vfs.passthrough.inodes import folder_of

T = TypeVar("T")
UNKNOWN = "?"
"""The path of an inode that has none any more."""


@dataclass(slots=True)
class _Opened:
    """An open file, with the program that has opened it. written: bytes since the last record."""

    pid: int
    uid: int
    command: str | None
    path: str
    written: int = 0
    seconds: float = 0.0


class AuditedOperations(Operations):
    """The adapter of a mount with an audit."""

    def __init__(
        self, files: FileSystem, owner: Ownership, interrupts: Interrupts, shown: Shown, auditor: Auditor
    ) -> None:
        super().__init__(files, owner, interrupts, shown)
        self._auditor = auditor
        self._opened: dict[int, _Opened] = {}

    def _path(self, inode: int, name: bytes = b"") -> str:
        """Return the path of an inode, or of a name in it; bytes that are not UTF-8 as Python has them in names."""
        names: tuple[str, ...] = (UNKNOWN,)
        with suppress(BbfsError, OSError, LookupError):
            if inode >= PASSED:
                passed = self._files.passed[folder_of(inode)]
                names = passed.path(passed.folder.inodes[inode])
            else:
                names = self._files.names.path(inode)
        return "/".join((*names, os.fsdecode(name)) if name else names)

    def _asked(self, operation: str, ctx: RequestContext, path: str, to: str | None = None) -> Asked:
        return Asked(operation, ctx.pid, ctx.uid, name_of(ctx.pid), path, to)

    async def _changed(
        self, operation: str, ctx: RequestContext, path: str, request: Awaitable[T], to: str | None = None
    ) -> T:
        return await self._auditor.noted(self._asked(operation, ctx, path, to), request)

    # -- names -------------------------------------------------------------------------------------------------------

    async def create(  # type: ignore[override]
        self, parent: InodeT, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        path = self._path(parent, name)
        made = await self._changed("create", ctx, path, super().create(parent, name, mode, flags, ctx))
        self._opened[made[0].fh] = _Opened(ctx.pid, ctx.uid, name_of(ctx.pid), path)
        return made

    async def mknod(self, parent: InodeT, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:  # type: ignore[override]
        request = super().mknod(parent, name, mode, rdev, ctx)
        return await self._changed("create", ctx, self._path(parent, name), request)

    async def mkdir(self, parent: InodeT, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:  # type: ignore[override]
        return await self._changed("mkdir", ctx, self._path(parent, name), super().mkdir(parent, name, mode, ctx))

    async def symlink(self, parent: InodeT, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:  # type: ignore[override]
        request = super().symlink(parent, name, target, ctx)
        return await self._changed("symlink", ctx, self._path(parent, name), request, os.fsdecode(target))

    async def link(self, inode: InodeT, parent: InodeT, name: bytes, ctx: RequestContext) -> EntryAttributes:  # type: ignore[override]
        request = super().link(inode, parent, name, ctx)
        return await self._changed("link", ctx, self._path(inode), request, self._path(parent, name))

    async def unlink(self, parent: InodeT, name: bytes, ctx: RequestContext) -> None:  # type: ignore[override]
        await self._changed("unlink", ctx, self._path(parent, name), super().unlink(parent, name, ctx))

    async def rmdir(self, parent: InodeT, name: bytes, ctx: RequestContext) -> None:  # type: ignore[override]
        await self._changed("rmdir", ctx, self._path(parent, name), super().rmdir(parent, name, ctx))

    async def rename(  # type: ignore[override]
        self, parent: InodeT, name: bytes, to: InodeT, new: bytes, flags: int, ctx: RequestContext
    ) -> None:
        request = super().rename(parent, name, to, new, flags, ctx)
        await self._changed("rename", ctx, self._path(parent, name), request, self._path(to, new))

    # -- attributes --------------------------------------------------------------------------------------------------

    async def setattr(  # type: ignore[override]
        self, inode: InodeT, attr: EntryAttributes, fields: SetattrFields, fh: FileHandleT | None, ctx: RequestContext
    ) -> EntryAttributes:
        operation = (
            "truncate" if fields.update_size
            else "chmod" if fields.update_mode
            else "chown" if fields.update_uid or fields.update_gid
            else "utime"
        )  # fmt: skip
        asked = self._asked(operation, ctx, self._path(inode))
        asked.bytes = attr.st_size if fields.update_size else None
        return await self._auditor.noted(asked, super().setattr(inode, attr, fields, fh, ctx))

    async def setxattr(self, inode: InodeT, name: bytes, value: bytes, ctx: RequestContext) -> None:  # type: ignore[override]
        request = super().setxattr(inode, name, value, ctx)
        await self._changed("setxattr", ctx, self._path(inode), request, os.fsdecode(name))

    async def removexattr(self, inode: InodeT, name: bytes, ctx: RequestContext) -> None:  # type: ignore[override]
        request = super().removexattr(inode, name, ctx)
        await self._changed("removexattr", ctx, self._path(inode), request, os.fsdecode(name))

    # -- contents ----------------------------------------------------------------------------------------------------

    async def open(self, inode: InodeT, flags: int, ctx: RequestContext) -> FileInfo:  # type: ignore[override]
        writes = bool(flags & WRITING)
        if not (writes or self._auditor.reads):
            return await super().open(inode, flags, ctx)
        request, path = super().open(inode, flags, ctx), self._path(inode)
        asked = self._asked("open", ctx, path)
        if not writes:
            return await self._auditor.noted(asked, request)
        try:
            opened = await request
        except FUSEError as error:
            self._auditor.note(asked, named(error.errno))
            raise
        self._opened[opened.fh] = _Opened(ctx.pid, ctx.uid, asked.command, path)
        return opened

    async def opendir(self, inode: InodeT, ctx: RequestContext) -> FileHandleT:  # type: ignore[override]
        request = super().opendir(inode, ctx)
        return await (self._changed("list", ctx, self._path(inode), request) if self._auditor.reads else request)

    async def write(self, fh: FileHandleT, off: int, buf: bytes) -> int:  # type: ignore[override]
        opened = self._opened.get(fh)
        began = time.monotonic()
        try:
            written = await super().write(fh, off, buf)
        except FUSEError as error:
            self._write_ended(opened, named(error.errno))
            raise
        if opened is not None:
            opened.written += written
            opened.seconds += time.monotonic() - began
        return written

    async def flush(self, fh: FileHandleT) -> None:
        await self._handed_over(fh, super().flush(fh))

    async def fsync(self, fh: FileHandleT, datasync: bool) -> None:  # type: ignore[override]
        await self._handed_over(fh, super().fsync(fh, datasync))

    async def _handed_over(self, fh: int, request: Awaitable[None]) -> None:
        opened = self._opened.get(fh)
        if opened is None or not opened.written:
            await request
            return
        began = time.monotonic()
        try:
            await request
            opened.seconds += time.monotonic() - began
            self._write_ended(opened)
        except FUSEError as error:
            if error.errno != errno.ENOSYS:  # the kernel sends no more of them; the release tells
                self._write_ended(opened, named(error.errno))
            raise

    async def release(self, fh: FileHandleT) -> None:  # type: ignore[override]
        opened = self._opened.pop(fh, None)
        if opened is not None and opened.written:
            self._write_ended(opened)
        await super().release(fh)

    def _write_ended(self, opened: _Opened | None, outcome: str = "ok") -> None:
        if opened is None:
            return
        asked = Asked("write", opened.pid, opened.uid, opened.command, opened.path, bytes=opened.written)
        self._auditor.note(asked, outcome, opened.seconds)
        opened.written, opened.seconds = 0, 0.0
