"""The open files that programs write: open, write, truncate, flush, sync, release.

All opens of a file share one `Draft`. `flush` (each close) and `fsync` hand it over to its source; only then they
return (S32). Methods that are awaited raise BbfsError and may wait for a source.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from bbfs.model.errors import BbfsError, IsADirectory, NotFound, NotSupported, Outdated, ReadOnly
from bbfs.resources.catalog.draft import Draft
from bbfs.resources.catalog.record import DIRECTORY_VERSION, STAND_IN, Node, Path, Record
from bbfs.resources.manager import ResourceManager
from bbfs.vfs.file_handles import Attributes, NewAttributes, OpenFile, OpenFiles
from bbfs.vfs.inode_table import InodeTable
from bbfs.vfs.names import Names, of_draft
from bbfs.vfs.writing.drafts import Drafts


class WrittenFiles:
    """The open files with a draft. Inode numbers and handles are those of the `FileSystem`."""

    def __init__(
        self, manager: ResourceManager, inodes: InodeTable, files: OpenFiles, names: Names, drafts: Drafts
    ) -> None:
        self._manager = manager
        self._contents = manager.contents
        self._grants = manager.grants
        self._roots = manager.roots
        self._writer = manager.writer
        self._inodes = inodes
        self._files = files
        self._names = names
        self._drafts = drafts

    # -- open --------------------------------------------------------------------------------------------------------

    async def open(self, ino: int, flags: int, program: int = 0) -> int:
        """Return a handle for writing, and for reading unless `flags` has O_WRONLY. program: the thread that asks."""
        draft = self._names.drafts.get(ino)
        if draft is None:
            draft = self._names.drafts[ino] = await self._drafted(ino, flags)
        handle = self.opened(draft, ino, program=program)
        self._files[handle].appends = bool(flags & os.O_APPEND)
        if flags & os.O_TRUNC:  # libfuse has the kernel leave this to the open (FUSE_CAP_ATOMIC_O_TRUNC)
            try:
                async with draft.lock:
                    draft.emptied()
                    draft.changed()
            except BaseException:
                self.released(self._files.remove(handle))
                raise
        return handle

    async def _drafted(self, ino: int, flags: int) -> Draft:
        """Return the draft of the file that an inode leads to, after that is confirmed. Raise Outdated, BbfsError."""
        path, version = self._inodes.get(ino)
        _, below = self._drafts.place(path)
        node = await self._still(path)
        if not flags & os.O_TRUNC and node.draft is None and node.kind == "file" and node.record is not None:
            try:
                await self._confirm(node.record)
            except NotFound as error:
                raise Outdated(str(error)) from None
            node = await self._still(path)
        draft = self._names.drafts.get(ino)  # another open may have made it meanwhile
        if draft is not None:
            return draft
        draft = node.draft
        if draft is None:
            return self._begin(path, below, node, version)
        if draft.version != version:  # of two inodes, the kernel would keep pages of one that no write changes
            raise Outdated("/".join(path))
        return draft

    async def _still(self, path: Path) -> Node:
        """Return the node of a name that the kernel has looked up. Raise BbfsError; Outdated if it is gone.

        For Outdated the kernel looks the name up again, and creates the file where the program asks for that.
        """
        try:
            return await self._names.resolve(path)
        except NotFound as error:
            raise Outdated(str(error)) from None

    async def _confirm(self, record: Record) -> None:
        """Have a record that may be outdated tell its version and size. Raise BbfsError.

        A program that changes a file may read the version of its inode from the kernel's cache, and appends at the size
        that the kernel has: both have to be the source's.
        """
        was_seen = record.digest is not None
        if record.invalidated or (was_seen and not record.fresh(self._manager.clock())):
            await self._contents.open(record)
        elif not self._contents.resolved(record):
            await self._contents.learn(record)

    def _begin(self, path: Path, below: Path, node: Node, version: str) -> Draft:
        """Begin to change a resource. version: of the opened inode."""
        record = node.record
        if node.kind == "directory":
            raise IsADirectory("/".join(path)) if version == DIRECTORY_VERSION else Outdated("/".join(path))
        if record is None or not self._grants.replaceable(record):
            raise NotSupported(f"{'/'.join(path)}: the source cannot replace it")
        present = record.inode_version
        if present != version.removesuffix(STAND_IN):
            self._contents.send_on(record)
            raise Outdated("/".join(path))
        draft = self._drafts.begin(path, below, record.metadata.native_uri, record, record.state)
        draft.version, draft.modified_ns = version, record.modified_ns
        if record.digest is None:  # no program has read it yet, and its first load tells another inode version
            draft.base_size = record.best_size()
        else:
            draft.base = present
        return self._drafts.show(draft)

    def opened(self, draft: Draft, ino: int, *, reads: bool = False, program: int = 0) -> int:
        """Return a handle of a draft. reads: the program only reads. program: the thread that asks."""
        if not draft.users:
            draft.opened_by(program)
        draft.users += 1
        draft.inos.add(ino)
        modified, record, version = draft.modified_ns, draft.record, draft.version
        return self._files.add(
            OpenFile(ino, draft, modified, draft.path, record, version, True, False, draft=draft, reads=reads)
        )

    def is_direct(self, handle: int) -> bool:
        """Return whether the kernel must keep no bytes of a file that is being written, as it may not know its size.

        It would keep what a program appends where it takes the end to be.
        """
        opened = self._files[handle]
        draft = opened.draft
        if draft is None or not (opened.appends or opened.reads):
            return False
        return draft.is_moved or (not draft.owns_inode and draft.record.metadata.size is None)

    # -- write -------------------------------------------------------------------------------------------------------

    async def write(self, handle: int, offset: int, data: bytes) -> int:
        """Take what a program writes, and return how many bytes these are. Raise ReadOnly, NoSpace, BbfsError."""
        opened = self._files[handle]
        draft = opened.draft
        if draft is None:
            raise ReadOnly("the file was opened for reading")
        with draft.awaited():
            async with self._changing(draft):
                if opened.appends:
                    # The kernel appends at the size that it was told last: 0, where only a load tells the size.
                    end = (await draft.filled()).size
                    draft.is_moved |= offset != end
                    offset = end
                await draft.write(offset, data)
                draft.changed()
        return len(data)

    @asynccontextmanager
    async def _changing(self, draft: Draft) -> AsyncIterator[None]:
        """Take the lock of a draft. After Outdated, a later open begins another draft."""
        async with draft.lock:
            try:
                yield
            except Outdated:
                self._drafts.unshow(draft)
                raise

    async def set_attributes(self, ino: int, handle: int | None, wanted: NewAttributes) -> Attributes:
        """Set size and time. Modes and owners of sources are not kept: a program that sets one is not refused."""
        self.require_written(ino)
        path, _ = self._inodes.get(ino)
        draft = self._names.drafts.get(ino)
        if draft is None and handle is not None:
            draft = self._files[handle].draft  # its name leads elsewhere since a save was refused
        if wanted.size is not None:
            return await self._truncate(ino, handle, wanted.size)
        if wanted.modified_ns is not None:
            if draft is not None:
                draft.modified_ns = draft.set_ns = wanted.modified_ns
                if not draft.dirty and not draft.temporary and draft.expected.exists:
                    draft.record = await self._set_time(draft.record, wanted.modified_ns)
            else:
                node = await self._names.resolve(path)
                if node.record is not None and node.kind == "file":
                    await self._set_time(node.record, wanted.modified_ns)
        if draft is not None:
            return of_draft(ino, draft)
        return self._names.attributes(ino, path, await self._names.resolve(path))

    async def _set_time(self, record: Record, modified_ns: int) -> Record:
        return await self._writer.names.set_time(self._roots.of(record), record, modified_ns)

    def require_written(self, ino: int) -> None:
        """Raise ReadOnly unless an inode is of a source that is written. The directory of such a source is."""
        path, _ = self._inodes.get(ino)
        if len(path) != 1 or path[0] not in self._grants.roots:
            self._drafts.place(path)

    async def _truncate(self, ino: int, handle: int | None, size: int) -> Attributes:
        own = await self.open(ino, os.O_WRONLY) if handle is None else handle
        draft = self._files[own].draft
        assert draft is not None
        try:
            async with self._changing(draft):
                await draft.truncate(size)
                draft.changed()
            if handle is None:
                await self._drafts.hand_over(draft, self._files[own], ends=True)
            return of_draft(ino, draft)
        finally:
            if handle is None:
                self.released(self._files.remove(own))

    async def free(self) -> int:
        """Return the bytes that the disk has room for which keeps what is written; a source may have less."""
        return await trio.to_thread.run_sync(self._writer.pending.free, abandon_on_cancel=True)

    # -- flush and release -------------------------------------------------------------------------------------------

    def blank(self, handle: int) -> Path | None:
        """Return the path of a file that a program has made or emptied and not written yet; None for any other."""
        draft = self._files[handle].draft
        return draft.path if draft is not None and draft.blank and draft.dirty else None

    async def flush(self, handle: int) -> None:
        """Hand over what was written: a program has closed one of the descriptors by which it could write."""
        opened = self._files[handle]
        if opened.draft is not None and opened.unsaved:
            await self._manager.go_on(self._hand_over(opened.draft, opened, ends=True))

    async def sync(self, handle: int) -> None:
        """Hand over what was written, and wait until the source has stored it."""
        opened = self._files[handle]
        if opened.draft is not None and opened.draft.dirty:
            await self._manager.go_on(self._hand_over(opened.draft, opened, ends=False))

    def _hand_over(self, draft: Draft, opened: OpenFile, *, ends: bool) -> Callable[[], Awaitable[None]]:
        """Return the hand-over of an open file, which goes on if its caller is cancelled.

        Until it has ended the draft counts as open, whoever releases its handles. ends: whether a program has closed.
        """
        draft.users += 1
        return partial(self._flush, draft, opened, ends)

    async def _flush(self, draft: Draft, opened: OpenFile, ends: bool) -> None:
        try:
            await self._drafts.hand_over(draft, opened, ends=ends)
            if ends and draft.temporary:
                await self._drafts.staged.stage(draft)
        finally:
            self._drafts.closed(draft)

    def released(self, opened: OpenFile) -> None:
        """Note that a handle is closed. What no close has handed over, a task does."""
        draft = opened.draft
        if draft is None:
            return
        if draft.users == 1 and draft.dirty and not (draft.failed or draft.temporary or draft.removed):
            self._manager.begin(self._released, opened)
        else:
            self._drafts.closed(draft)

    async def _released(self, opened: OpenFile) -> None:
        draft = opened.draft
        assert draft is not None
        try:
            await self._drafts.hand_over(draft, opened, ends=True)
        except BbfsError:
            pass  # it is a pending write, and the log has it
        self._drafts.closed(draft)
