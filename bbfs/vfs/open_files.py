"""The requests for open files: open, read, write, set attributes, flush, sync, release.

An open file is pinned to one version of a content (S13). The first open that may write makes a draft of it, which all
opens of the file share from then on: `flush` (each close) and `fsync` hand that over to its source, and only then they
return (S32). Methods that are awaited raise BbfsError and may wait for a source; the others return a `Wait` then.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

import trio

from bbfs.model.errors import BbfsError, IsADirectory, NotFound, NotSupported, Outdated, ReadOnly
from bbfs.model.values import WAITS_FOR_SOURCE, Content
from bbfs.resources.catalog.overlay import Draft
from bbfs.resources.catalog.record import DIRECTORY_VERSION, STAND_IN, Lease, Node, Path, Record, loads_each_open
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.content.slice import EndedContent
from bbfs.vfs.file_handles import WRITING, Attributes, FileHandles, NewAttributes, OpenFile, Opening
from bbfs.vfs.inode_table import InodeTable
from bbfs.vfs.kernel_cache import KernelCache
from bbfs.vfs.names import Ended, Names, Wait, after, of_draft
from bbfs.vfs.writing.drafts import Drafts

FILLED = 1 << 16
"""Bytes of a content up to which the kernel gets it with the first open: a write of them costs less than a request."""


class OpenFiles:
    """The requests for the open files of one mount.

    uncached: the open files whose bytes the kernel must not keep, by handle; True where a read may wait for the source.
    Opens of such a file may have other bytes though they share an inode, or the kernel must not hold its pages while it
    waits. replaced: those whose inode had another version before: the kernel must drop its pages. unfilled: those whose
    inode the kernel may be given whole (`to_fill`).
    """

    def __init__(
        self,
        manager: ResourceManager,
        inodes: InodeTable,
        handles: FileHandles,
        names: Names,
        drafts: Drafts,
        kernel: KernelCache,
    ) -> None:
        self._manager = manager
        self._tree = manager.tree
        self._contents = manager.contents
        self._grants = manager.grants
        self._roots = manager.roots
        self._writer = manager.writer
        self._inodes = inodes
        self._handles = handles
        self._names = names
        self._written = names.drafts
        self._drafts = drafts
        self._kernel = kernel
        self.uncached: dict[int, bool] = {}
        self.replaced: set[int] = set()
        self.unfilled: set[int] = set()

    # -- open, to read -------------------------------------------------------------------------------------------------

    def open(self, ino: int, flags: int = os.O_RDONLY, program: int = 0, ended: Ended = ()) -> int | Wait:
        """Return a handle that pins the current content, or one for writing. program: the thread that asks.

        Raise Outdated when that is not the version of the inode; the kernel then looks the name up again and opens the
        new inode.
        """
        if flags & WRITING:
            return after(ended, self.open_to_write, ino, flags, program)
        draft = self._written.get(ino)
        if draft is not None:
            return self.open_draft(draft, ino, reads=True)
        pinned = self._handles.latest(ino) if self._grants.is_lower else None
        if pinned is not None and not pinned.shares_inode:
            return self._add(replace(pinned, wake=None))
        again = None if ended else self._open_again(ino)
        if again is not None:
            return again
        path, version = self._inodes.get(ino)
        node = self._names.find(path, ended)
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
        was_loaded = bool(ended) and ended[-1].request == self._contents.open
        content = self._contents.content_now(record, counts=not was_loaded)
        if content is None:
            try:
                content = after(ended, self._contents.open, record)
            except IsADirectory as error:
                raise Outdated(str(error)) from error
            if isinstance(content, Wait):
                if not on_open:
                    self._contents.accessed(path, record, wanted=True)
                return content
        elif record.ahead and not on_open:
            self._contents.accessed(path, record, wanted=False)
        self._names.require_version(path, version, record)
        if not on_open and version == certain:
            self.note(ino, path, record, self._tree.lease(record))
        return self._open(ino, path, record, certain, content)

    def _open_again(self, ino: int) -> int | None:
        """Return a handle of what an inode was found to be; None if that may not be the present content."""
        inode = self._inodes.inode(ino)
        opening: Opening | None = inode.note
        if opening is None or not opening.holds(self._manager.clock(), self._kernel.changes):
            return None
        content = self._manager.memory.get(opening.key)
        if content is None:
            return None
        record, version = opening.record, opening.version
        record.changed_at = record.awaited_until = 0.0
        handle = self._handles.add(
            OpenFile(ino, content, opening.modified_ns, opening.path, record, version, False, False)
        )
        if not inode.filled:
            self.unfilled.add(handle)
        return handle

    def noted(self, ino: int) -> Opening | None:
        """Return what an inode was found to be, if its record is fresh; None where that needs a walk."""
        note: Opening | None = self._inodes.note(ino)
        return note if note is not None and note.holds(self._manager.clock(), self._kernel.changes) else None

    def note(self, ino: int, path: Path, record: Record, lease: Lease | None) -> Opening | None:
        """Keep what an inode was found to be with it, while a lease lasts, and return that."""
        inode = self._inodes.inode(ino)
        inode.note = note = None if lease is None else Opening(path, record, inode.key.version, lease)
        return note

    def _loading(self, path: Path, record: Record, ended: Ended) -> Wait | None:
        """Load what has a name now. Return the wait for that, if any; an error is one of the retry."""
        try:
            loading = after(ended, self._contents.open, record)
        except BbfsError:
            return None
        if not isinstance(loading, Wait):
            return None
        self._contents.accessed(path, record, wanted=True)
        return loading

    def _open(self, ino: int, path: Path, record: Record, version: str, content: Content) -> int:
        record.changed_at = record.awaited_until = 0.0  # the program that was sent here by ESTALE has arrived
        each_open = loads_each_open(record)
        # Announced while it was loaded: what came may be older than that. (While a source is down, nothing newer is.)
        outdated = record.invalidated and not record.stale and not each_open
        opened = OpenFile(ino, content, record.modified_ns, path, record, version, each_open, outdated)
        handle = self._add(opened)
        if ino in self._inodes.retold:
            self._inodes.retold.discard(ino)
            self.replaced.add(handle)
        return handle

    def _add(self, opened: OpenFile) -> int:
        handle, waits = self._handles.add(opened), getattr(opened.content, WAITS_FOR_SOURCE, False)
        if opened.shares_inode or waits:
            self.uncached[handle] = waits
        else:
            self.unfilled.add(handle)
        return handle

    def renumber(self, handle: int, to: int) -> None:
        """Give a file that the daemon before had open the handle that the kernel knows. It may keep its pages."""
        self._handles.renumber(handle, to)
        if handle in self.uncached:
            self.uncached[to] = self.uncached.pop(handle)
        self.replaced.discard(handle)
        self.unfilled.discard(handle)

    def to_fill(self, handle: int) -> bytes | None:
        """Return the content that the kernel should have before the program reads it; None if it has it or asks for it.

        Once for each inode: its pages stay true. Only where no other program has the inode open: the kernel may hold a
        page until such a program's read is answered, and would not take the content before.
        """
        self.unfilled.discard(handle)
        opened = self._handles[handle]
        content, ino = opened.content, opened.ino
        if type(content) is not MemoryContent or not 0 < content.size <= FILLED or self._grants.is_lower:
            return None
        inode = self._inodes.inode(ino)
        if inode.filled or handle in self.replaced or not self._handles.is_only(ino):
            return None
        inode.filled = True
        return content.data

    def end(self, source_key: str) -> None:
        """Let the open files of a removed source go on with what is loaded: a read of anything else is Outdated."""
        for handle, waits in self.uncached.items():
            opened = self._handles[handle]
            if waits and opened.record.source_key == source_key:
                opened.content = EndedContent(opened.content)

    # -- open, to write ------------------------------------------------------------------------------------------------

    async def open_to_write(self, ino: int, flags: int, program: int = 0) -> int:
        """Return a handle for writing, and for reading unless `flags` has O_WRONLY. program: the thread that asks."""
        draft = self._written.get(ino)
        if draft is None:
            draft = self._written[ino] = await self._drafted(ino, flags)
        handle = self.open_draft(draft, ino, appends=bool(flags & os.O_APPEND), program=program)
        if flags & os.O_TRUNC:  # libfuse has the kernel leave this to the open (FUSE_CAP_ATOMIC_O_TRUNC)
            try:
                async with draft.lock:
                    draft.emptied()
                    draft.changed()
            except BaseException:
                self.release(handle)
                raise
        return handle

    async def _drafted(self, ino: int, flags: int) -> Draft:
        """Return the draft of the file that an inode leads to, after that is confirmed. Raise Outdated, BbfsError."""
        path, version = self._inodes.get(ino)
        place = self._drafts.place(path)
        node = await self._still(path, place)
        if not flags & os.O_TRUNC and node.draft is None and node.kind == "file" and node.record is not None:
            try:
                await self._confirm(node.record)
            except NotFound as error:
                raise Outdated(str(error)) from None
            node = await self._still(path, place)
        draft = self._written.get(ino)  # another open may have made it meanwhile
        if draft is not None:
            return draft
        draft = node.draft
        if draft is None:
            return self._begin(path, place[1], node, version)
        if draft.version != version:  # of two inodes, the kernel would keep pages of one that no write changes
            raise Outdated("/".join(path))
        return draft

    async def _still(self, path: Path, place: tuple[Source, Path]) -> Node:
        """Return the node of a name that the kernel has looked up. Raise BbfsError; Outdated if it is gone.

        For Outdated the kernel looks the name up again, and creates the file where the program asks for that.
        """
        try:
            return await self._tree.find(path, place)
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

    def open_draft(
        self, draft: Draft, ino: int, *, reads: bool = False, appends: bool = False, program: int = 0
    ) -> int:
        """Return a handle of a draft. reads, appends: see `OpenFile`. program: the thread that asks."""
        if not draft.users:
            draft.opened_by(program)
        draft.users += 1
        draft.inos.add(ino)
        opened = OpenFile(
            ino, draft, draft.modified_ns, draft.path, draft.record, draft.version, True, False, draft=draft
        )
        opened.reads, opened.appends = reads, appends
        handle = self._handles.add(opened)
        is_sized = draft.owns_inode or draft.record.metadata.size is not None
        if (reads or appends) and (draft.is_moved or not is_sized):
            # The kernel may not know the size: it would keep what a program appends where it takes the end to be.
            self.uncached[handle] = False
        return handle

    # -- read and write ------------------------------------------------------------------------------------------------

    def read(self, handle: int, offset: int, length: int, ended: Ended = ()) -> bytes | Wait:
        """Return a slice of the pinned content, or of what programs write in its inode meanwhile.

        The kernel has one set of pages and one size for an inode: it would show zeros where the pinned content ends.
        This may wait for a disk, or for the source.
        """
        opened = self._handles[handle]
        draft = self._written.get(opened.ino) if self._written and handle not in self.uncached else None
        content = draft if draft is not None and draft.is_written else opened.content
        data = content.read(offset, length)
        return after(ended, content.read_waiting, offset, length) if data is None else data

    async def write(self, handle: int, offset: int, data: bytes) -> int:
        """Take what a program writes, and return how many bytes these are. Raise ReadOnly, NoSpace, BbfsError."""
        opened = self._handles[handle]
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
        draft = self._written.get(ino)
        if draft is None and handle is not None:
            draft = self._handles[handle].draft  # its name leads elsewhere since a save was refused
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
        own = await self.open_to_write(ino, os.O_WRONLY) if handle is None else handle
        draft = self._handles[own].draft
        assert draft is not None
        try:
            async with self._changing(draft):
                await draft.truncate(size)
                draft.changed()
            if handle is None:
                await self._drafts.hand_over(draft, self._handles[own], ends=True)
            return of_draft(ino, draft)
        finally:
            if handle is None:
                self.release(own)

    async def free(self) -> int:
        """Return the bytes that the disk has room for which keeps what is written; a source may have less."""
        return await trio.to_thread.run_sync(self._writer.pending.free, abandon_on_cancel=True)

    # -- flush, sync, release ------------------------------------------------------------------------------------------

    def blank(self, handle: int) -> Path | None:
        """Return the path of a file that a program has made or emptied and not written yet; None for any other."""
        draft = self._handles[handle].draft
        return draft.path if draft is not None and draft.blank and draft.dirty else None

    async def flush(self, handle: int) -> None:
        """Hand over what was written: a program has closed one of the descriptors by which it could write."""
        opened = self._handles[handle]
        if opened.draft is not None and opened.unsaved:
            await self._manager.go_on(self._hand_over(opened.draft, opened, ends=True))

    async def sync(self, handle: int) -> None:
        """Hand over what was written, and wait until the source has stored it."""
        opened = self._handles[handle]
        if opened.draft is not None and opened.draft.dirty:
            await self._manager.go_on(self._hand_over(opened.draft, opened, ends=False))

    def _hand_over(self, draft: Draft, opened: OpenFile, *, ends: bool) -> Callable[[], Awaitable[None]]:
        """Return the hand-over of an open file, which goes on if its caller is cancelled.

        The draft counts as open until the hand-over has ended, also without a handle. ends: True for a close.
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

    def release(self, handle: int) -> None:
        """Unpin the content. One that holds a descriptor closes it with its last reference.

        What a program has written and no close has handed over, a task hands over.
        """
        opened = self._handles.remove(handle)
        if self.uncached:
            self.uncached.pop(handle, None)
        self.replaced.discard(handle)
        self.unfilled.discard(handle)
        draft = opened.draft
        if draft is None:
            return
        if draft.users == 1 and draft.dirty and not (draft.failed or draft.temporary or draft.removed):
            self._manager.begin(self._hand_over_released, opened)
        else:
            self._drafts.closed(draft)

    async def _hand_over_released(self, opened: OpenFile) -> None:
        draft = opened.draft
        assert draft is not None
        with suppress(BbfsError):  # it is a pending write, and the log has it
            await self._drafts.hand_over(draft, opened, ends=True)
        self._drafts.closed(draft)

    def send_back(self, handle: int) -> None:
        """Release a file that its program has to look up again first (S7.3). Keep its version for that open."""
        opened = self._handles[handle]
        if handle in self.replaced:
            self._inodes.retold.add(opened.ino)  # the kernel has not dropped its pages yet
        self.release(handle)
        self._contents.send_on(opened.record)

    # -- changes of open files -----------------------------------------------------------------------------------------

    def changed(self, handle: int) -> bool:
        """Return whether the content that a handle pins is known or said to be outdated."""
        return self._handles[handle].changed

    def watch_handle(self, handle: int, wake: Callable[[], None]) -> None:
        """Call `wake` once, when `changed` becomes true; do nothing if it is already. It must neither block nor raise.

        A handle has one `wake`; a later one replaces it.
        """
        opened = self._handles[handle]
        if not opened.changed:
            opened.wake = wake
            if opened.doubted:
                opened.doubted = False
                self._contents.begin_learning(opened.record)

    def unwatch(self) -> None:
        """Drop all `wake` calls: the mount ends, and the kernel wakes the programs that poll."""
        for opened in self._handles:
            opened.wake = None


def _of_file(node: Node, path: Path, version: str) -> Record:
    """Return the record of a file that is opened by an inode of this version. Raise Outdated, BbfsError."""
    if node.kind == "directory":
        raise IsADirectory("/".join(path)) if version == DIRECTORY_VERSION else Outdated("/".join(path))
    if node.draft is not None:
        raise Outdated("/".join(path))
    if node.record is None or node.kind != "file":
        raise NotSupported(f"{'/'.join(path)} is no file")
    return node.record
