"""Writing: what a program creates, changes, renames and removes on a mount.

A file that is written is a `Draft` from its open to its last close. `flush` (each close) and `fsync` hand it over to
its source; only then they return (S32). Names that programs do not keep live in the mount. Every method is awaited by
the adapter, raises BbfsError, and may wait for a source.
"""

import logging
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

import trio

from bbfs.model.errors import (
    BbfsError,
    Conflict,
    CrossesSources,
    DeadlineExceeded,
    Exists,
    IsADirectory,
    NameTooLong,
    NoSpace,
    NotADirectory,
    NotEmpty,
    NotFound,
    NotSupported,
    Outdated,
    ReadOnly,
    Rejected,
)
from bbfs.model.uri import source_uri
from bbfs.model.values import Content, Expected, ResourceMetadata
from bbfs.resources.catalog.overlay import Overlay
from bbfs.resources.catalog.record import (
    DIRECTORY,
    DIRECTORY_VERSION,
    STAND_IN,
    Node,
    Path,
    Record,
    record_node,
)
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.resources.writing.buffer import Buffer
from bbfs.resources.writing.temporary import KEEPING, is_kept, is_temporary
from bbfs.resources.writing.writer import record_state
from bbfs.sources import CanWrite, content_type_of, mime_type_of_name
from bbfs.sources.content.memory import MemoryContent
from bbfs.vfs.file_handles import Attributes, NewAttributes, OpenFile, OpenFiles
from bbfs.vfs.inode_table import InodeTable
from bbfs.vfs.names import NAME_MAX, Names, answered, stated
from bbfs.vfs.writing.drafts import Draft
from bbfs.vfs.writing.staging import StagedDrafts

log = logging.getLogger(__name__)
_NOREPLACE, _EXCHANGE = 1, 2
"""Flags of renameat2(2)."""
HELD = 5.0
"""Seconds for a request during which the kernel holds a directory. A lookup of any other name there waits for the
answer, and nothing can kill its program."""
NAMED_WITHIN = 0.5
"""Seconds for the native URI of a file that the mount leaves at its end; else it has the one of its first name."""
T = TypeVar("T")
IsBase = Callable[[Path, Mapping[str, Any]], bool]
"""Returns whether a version is the one that a program has stated for a path before it changes the name (`stated`)."""


class Writes:
    """The write side of a file system. Inode numbers and handles are those of the `FileSystem`."""

    def __init__(self, manager: ResourceManager, inodes: InodeTable, files: OpenFiles, names: Names) -> None:
        self._manager = manager
        self._tree = manager.tree
        self._contents = manager.contents
        self._grants = manager.grants
        self._mounted = manager.roots.mounted
        self._writer = manager.writer
        self._staged = StagedDrafts(manager)
        self._inodes = inodes
        self._files = files
        self._names = names
        self._aside: dict[
            Path, Draft
        ] = {}  # by the name that the source still has: what it was renamed to in the mount
        self._own_versions = (f"+{secrets.token_hex(6)}+{number}" for number in count())

    # -- open files --------------------------------------------------------------------------------------------------

    async def create_in_time(
        self, parent: int, raw_name: bytes, flags: int, mode: int, program: int
    ) -> tuple[int, Attributes]:
        """As `create`, for `HELD` seconds at most. Raise DeadlineExceeded: then nothing is created."""
        with trio.move_on_after(HELD):
            return await self.create(parent, raw_name, flags, mode, program)
        raise DeadlineExceeded(f"{'/'.join(self._path(parent, raw_name))}: not created within {HELD:g} s")

    async def create(
        self, parent: int, raw_name: bytes, flags: int, mode: int, program: int = 0
    ) -> tuple[int, Attributes]:
        """Create a file, or open one that is there unless `flags` has O_EXCL. Count one lookup of it.

        program: the thread that asks.
        """
        path = self._path(parent, raw_name)
        source, below = self._place(path)
        node = await self._found(path)
        if node is None:
            draft = await self._new(source, path, below)
            found = self._names.counted(path, Node("file", draft.record, draft=draft))
            return self._opened(draft, found.ino, program=program), found
        if flags & os.O_EXCL:
            raise Exists("/".join(path))
        if node.kind != "file":
            raise IsADirectory("/".join(path)) if node.kind == "directory" else NotSupported("a symbolic link")
        found = self._names.counted(path, node)
        try:
            handle = await self.open(found.ino, flags, program)
        except BaseException:
            self._inodes.forget(found.ino)
            raise
        return handle, self.attributes(found.ino, self._names.drafts[found.ino])

    async def make_node(self, parent: int, raw_name: bytes, mode: int) -> Attributes:
        """Create a regular file without opening it. Count one lookup."""
        handle, found = await self.create(parent, raw_name, os.O_EXCL | os.O_WRONLY, mode)
        try:
            await self.flush(handle)
        finally:
            self.released(self._files.remove(handle))
        return found

    async def open(self, ino: int, flags: int, program: int = 0) -> int:
        """Return a handle for writing, and for reading unless `flags` has O_WRONLY. program: the thread that asks."""
        draft = self._names.drafts.get(ino)
        if draft is None:
            path, version = self._inodes.get(ino)
            source, below = self._place(path)
            node = await self._still(path)
            if not flags & os.O_TRUNC and node.draft is None and node.kind == "file" and node.record is not None:
                try:
                    await self._confirm(node.record)
                except NotFound as error:
                    raise Outdated(str(error)) from None
                node = await self._still(path)
            draft = self._names.drafts.get(ino)  # another open may have made it meanwhile
            if draft is None and isinstance(node.draft, Draft):
                draft = node.draft
                if draft.version != version:  # of two inodes, the kernel would keep pages of one that no write changes
                    raise Outdated("/".join(path))
            elif draft is None:
                draft = self._change(source, path, below, node, version)
            self._names.drafts[ino] = draft
        handle = self._opened(draft, ino, program=program)
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

    async def _still(self, path: Path) -> Node:
        """Return what a name leads to that the kernel has looked up. Raise BbfsError; Outdated if it is gone.

        For Outdated the kernel looks the name up again, and creates the file where the program asks for that.
        """
        try:
            return await answered(self._names.find(path), self._names.find, path)
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

    def _change(self, source: Source, path: Path, below: Path, node: Node, version: str) -> Draft:
        """Begin to change a resource. version: of the inode that a program opens."""
        record = node.record
        if node.kind == "directory":
            raise IsADirectory("/".join(path)) if version == DIRECTORY_VERSION else Outdated("/".join(path))
        if record is None or not self._grants.replaceable(record):
            raise NotSupported(f"{'/'.join(path)}: the source cannot replace it")
        if record.inode_version != version.removesuffix(STAND_IN):
            self._contents.send_on(record)
            raise Outdated("/".join(path))
        draft = self._draft(source, path, below, record.metadata.native_uri, record, record_state(record))
        draft.version, draft.modified_ns = version, record.modified_ns
        if record.digest is None:  # no program has read it yet, and its first load tells another inode version
            draft.base_size = record.best_size()
        else:
            draft.base = record.inode_version
        return self._shown(draft)

    async def _new(self, source: Source, path: Path, below: Path) -> Draft:
        """Begin a file under a name that leads to nothing."""
        handler, _ = _writable(source)
        hidden, expected = self._hidden(path)
        native_uri = await self._tree.native_uri_for(source, below) if hidden is None else hidden.metadata.native_uri
        temporary = hidden is None and is_temporary(path[-1])
        if not temporary and "create" not in handler.writes(native_uri):
            raise NotSupported(f"{native_uri}: the source cannot create it")
        if hidden is None:
            record = source.catalog.record(native_uri) or self._unstored(source, native_uri, path, below)
        else:
            record = hidden
        draft = self._draft(source, path, below, native_uri, record, expected)
        draft.temporary = temporary
        draft.version, draft.owns_inode = next(self._own_versions), True
        draft.emptied()
        draft.changed()
        return self._shown(draft)

    def _unstored(self, source: Source, native_uri: str, path: Path, below: Path) -> Record:
        mime_type = mime_type_of_name(path[-1])
        metadata = ResourceMetadata(
            source_uri(source.data.base_prefix, native_uri),
            native_uri,
            path[-1],
            mime_type=mime_type,
            content_type=content_type_of(mime_type),
        )
        return Record(source.data.id, metadata, below, self._manager.clock())

    def _draft(
        self, source: Source, path: Path, below: Path, native_uri: str, record: Record, expected: Expected
    ) -> Draft:
        return Draft(
            source,
            path,
            below,
            native_uri,
            record,
            record.inode_version,
            expected,
            self._contents.open,
            self._writer.space,
            self._manager.clock,
        )

    def _shown(self, draft: Draft) -> Draft:
        """Let the name lead to a draft."""
        _, overlay = _writable(draft.source)
        overlay.put(draft.below, Node("file", draft.record, draft=draft))
        return draft

    def _opened(self, draft: Draft, ino: int, *, reads: bool = False, program: int = 0) -> int:
        if not draft.users:
            draft.opened_by(program)
        draft.users += 1
        draft.inos.add(ino)
        return self._files.add(
            OpenFile(ino, draft, draft.modified_ns, draft.path, draft.record, draft.version, True, False, reads=reads)
        )

    def is_direct(self, handle: int) -> bool:
        """Return whether the kernel must keep no bytes of a file that is being written, as it may not know its size.

        It would keep what a program appends where it takes the end to be.
        """
        opened = self._files[handle]
        draft = opened.content
        if not isinstance(draft, Draft) or not (opened.appends or opened.reads):
            return False
        return draft.is_moved or (not draft.owns_inode and draft.record.metadata.size is None)

    def opened(self, ino: int) -> int | None:
        """Return a handle for reading a file that is being written, or None if it is not."""
        draft = self._names.drafts.get(ino)
        return None if draft is None else self._opened(draft, ino, reads=True)

    def attributes(self, ino: int, draft: Draft) -> Attributes:
        changed = draft.changed_ns
        return Attributes(ino, "file", draft.size, draft.modified_ns, 0.0, 0.0, writable=True, changed_ns=changed)

    async def write(self, handle: int, offset: int, data: bytes) -> int:
        draft = self._files[handle].content
        if not isinstance(draft, Draft):
            raise ReadOnly("the file was opened for reading")
        with draft.awaited():
            async with self._changing(draft):
                if self._files[handle].appends:
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
                self._unshow(draft)
                raise

    def blank(self, handle: int) -> Path | None:
        """Return the path of a file that a program has made or emptied and not written yet; None for any other."""
        draft = self._files[handle].content
        return draft.path if isinstance(draft, Draft) and draft.blank and draft.dirty else None

    async def flush(self, handle: int) -> None:
        """Hand over what was written: a program has closed one of the descriptors by which it could write."""
        if not self._files[handle].reads:  # what another program has written so far may be half of it
            await self._sync(self._files[handle], ends=True)

    async def sync(self, handle: int) -> None:
        """Hand over what was written, and wait until the source has stored it.

        This goes on if its caller is cancelled. Until then the draft counts as open, whoever releases its handles.
        """
        await self._sync(self._files[handle], ends=False)

    async def _sync(self, opened: OpenFile, *, ends: bool) -> None:
        draft = opened.content
        if isinstance(draft, Draft) and draft.dirty:
            draft.users += 1
            await self._manager.go_on(partial(self._flush, draft, opened, ends))

    async def _flush(self, draft: Draft, opened: OpenFile, ends: bool) -> None:
        try:
            await (self._save(draft, opened) if ends else self._hand_over(draft, opened))
            if ends:
                await self._staged.stage(draft)
        finally:
            self._closed(draft)

    async def _save(self, draft: Draft, opened: OpenFile) -> None:
        """Hand over a draft at a close. What the source refuses is shown to no later open, and begins no later save."""
        try:
            await self._hand_over(draft, opened)
        except BbfsError:
            self._unshow(draft)
            raise

    async def free(self) -> int:
        """Return the bytes that the disk has room for which keeps what is written; a source may have less."""
        return await trio.to_thread.run_sync(self._writer.pending.free, abandon_on_cancel=True)

    def released(self, opened: OpenFile) -> None:
        """Note that a handle is closed. What no close has handed over, a task does."""
        draft = opened.content
        if isinstance(draft, Draft):
            if draft.users == 1 and draft.dirty and not (draft.failed or draft.temporary or draft.removed):
                self._manager.begin(self._released, opened)
            else:
                self._closed(draft)

    async def _released(self, opened: OpenFile) -> None:
        draft = opened.content
        assert isinstance(draft, Draft)
        try:
            await self._save(draft, opened)
        except BbfsError:
            pass  # it is a pending write, and the log has it
        self._closed(draft)

    def _closed(self, draft: Draft) -> None:
        """Give up a draft with its last handle: the name leads to what the source has."""
        draft.users -= 1
        if draft.users:
            return
        if draft.temporary and not draft.removed:
            self._leave(draft, unless_held=True)
            return
        self._unshow(draft)
        self._leave(draft)

    def _unshow(self, draft: Draft) -> None:
        """Let the name of a draft lead to what the source has, if it leads to the draft."""
        _, overlay = _writable(draft.source)
        there = overlay.get(draft.below)
        if there is None or there.node is None or there.node.draft is not draft or draft.temporary or draft.removed:
            return
        self._leave(draft)
        if draft.expected.exists is False:  # the source has never taken it
            overlay.unshow(draft.below)
        else:
            if draft.dirty or draft.is_moved:
                draft.record.salt += "~"  # the kernel has cached bytes that the source does not have, or elsewhere
                draft.record.invalidate()
            record = (
                draft.source.catalog.record(draft.native_uri) or draft.record
            )  # a listing may have made another one
            overlay.put(draft.below, record_node(record), stored=True)
        self._manager.notify_of(draft.source, [draft.below])

    async def _hand_over(self, draft: Draft, opened: OpenFile | None = None) -> None:
        """Give the bytes to the source, unless it has them. Raise BbfsError: then they are a pending write."""
        if not draft.dirty or draft.temporary or draft.removed:
            return
        async with draft.lock:
            if not draft.temporary and not draft.removed:
                await self._store_dirty(draft, opened)

    async def _store_dirty(self, draft: Draft, opened: OpenFile | None = None) -> None:
        if draft.dirty and draft.buffer is not None:
            await self._store(draft, draft.native_uri, draft.expected, draft.below, draft.buffer, opened=opened)

    async def _store(
        self,
        draft: Draft,
        native_uri: str,
        expected: Expected,
        below: Path,
        buffer: Buffer,
        *,
        opened: OpenFile | None = None,
        keep: bool = True,
        staged: str | None = None,
    ) -> None:
        """Hand over a draft. keep: a content that the source does not take is a pending write.

        staged: where the source has the bytes.

        opened: the file by which a program saves. Pending writes of its earlier saves, and of the same bytes, are
        dropped once this one is kept; those that other programs have left stay.
        """
        draft.failed = True
        if draft.lacks is not None:
            problem = draft.lacks[1]
            log.warning(
                "%s: %s: not written, for a part of it is lacking: %s", draft.source.data.id, native_uri, problem
            )
            raise NoSpace(problem)
        content = buffer.snapshot()
        earlier = [*draft.refused, *(opened.refused if opened is not None else ())]
        try:
            record, state = await self._writer.write(
                draft.source, native_uri, content, expected, path=below, earlier=earlier, keep=keep, staged=staged
            )
        except BbfsError as error:
            if opened is not None:
                opened.refused = earlier
            draft.refused = earlier
            await self._doubt(draft.record, error)
            raise
        if opened is not None:
            opened.refused = []
        draft.failed, draft.refused = False, []
        if draft.set_ns is not None:
            record = await self._writer.set_time(draft.source, record, draft.set_ns)
        # As on a disk: tar looks whether the inode is the one that it has made.
        if draft.owns_inode and await _has(record, content, state.etag):
            record.store_as(draft.version, draft.changed_ns, is_stated=state.etag is not None)
        draft.dirty, draft.record, draft.native_uri, draft.expected = False, record, native_uri, state
        self._aside.pop(self._mounted(draft.source, below), None)

    async def _doubt(self, record: Record, error: BbfsError) -> None:
        """Ask for what a source has after it did not take a write: the kernel looks a name up again only once."""
        record.invalidate()
        if isinstance(error, Conflict) and record.path:
            with suppress(BbfsError):
                await self._contents.learn(record)

    # -- attributes --------------------------------------------------------------------------------------------------

    async def set_attributes(self, ino: int, handle: int | None, wanted: NewAttributes) -> Attributes:
        """Set size and time. Modes and owners of sources are not kept: a program that sets one is not refused."""
        self.require_written(ino)
        path, _ = self._inodes.get(ino)
        draft = self._names.drafts.get(ino)
        if draft is None and handle is not None and isinstance(own := self._files[handle].content, Draft):
            draft = own  # its name leads elsewhere since a save was refused
        if wanted.size is not None:
            return await self._truncate(ino, handle, wanted.size)
        if wanted.modified_ns is not None:
            if draft is not None:
                draft.modified_ns = draft.set_ns = wanted.modified_ns
                if not draft.dirty and not draft.temporary and draft.expected.exists:
                    draft.record = await self._writer.set_time(draft.source, draft.record, wanted.modified_ns)
            else:
                node = await answered(self._names.find(path), self._names.find, path)
                if node.record is not None and node.kind == "file":
                    await self._writer.set_time(self._manager.roots.of(node.record), node.record, wanted.modified_ns)
        if draft is not None:
            return self.attributes(ino, draft)
        node = await answered(self._names.find(path), self._names.find, path)
        return self._names.attributes(ino, path, node)

    def require_written(self, ino: int) -> None:
        """Raise ReadOnly unless an inode is of a source that is written. The directory of such a source is."""
        path, _ = self._inodes.get(ino)
        if len(path) != 1 or path[0] not in self._grants.roots:
            self._place(path)

    async def _truncate(self, ino: int, handle: int | None, size: int) -> Attributes:
        own = await self.open(ino, os.O_WRONLY) if handle is None else handle
        draft = self._files[own].content
        assert isinstance(draft, Draft)
        try:
            async with self._changing(draft):
                await draft.truncate(size)
                draft.changed()
            if handle is None:
                await self._save(draft, self._files[own])
            return self.attributes(ino, draft)
        finally:
            if handle is None:
                self.released(self._files.remove(own))

    # -- names -------------------------------------------------------------------------------------------------------

    async def in_time(self, change: Callable[[], Awaitable[T]], *places: tuple[int, bytes]) -> T:
        """Await a change of names, for `HELD` seconds at most: the kernel holds their directories meanwhile.

        The change goes on, whatever becomes of the wait. Then the log has its outcome, and the kernel looks the names
        up again. places: directory and name. Raise DeadlineExceeded.
        """
        paths = [self._path(*place) for place in places]
        shown = " to ".join("/".join(path) for path in paths)
        waits, level = True, logging.INFO

        async def go_on() -> T:
            try:
                value = await change()
            except BbfsError as error:
                if not waits:
                    log.log(level, "%s: a change that no program waits for any more was not made: %s", shown, error)
                raise
            finally:
                if not waits:
                    self._notify_of(paths)
            if not waits:
                log.log(level, "%s: a change that no program waits for any more is made", shown)
            return value

        try:
            with trio.move_on_after(HELD):
                return await self._manager.go_on(go_on)
        finally:
            waits = False
        level = logging.WARNING
        log.warning("%s: not changed within %g s; the change goes on", shown, HELD)
        raise DeadlineExceeded(f"{shown}: not changed within {HELD:g} s; the change goes on")

    def _notify_of(self, paths: list[Path]) -> None:
        for path in paths:
            with suppress(BbfsError):
                source, below = self._place(path)
                self._manager.notify_of(source, [below])

    async def remove(self, parent: int, raw_name: bytes, is_base: IsBase | None = None) -> None:
        """Remove a file. is_base: for the version that a program has seen. Raise Conflict for another one."""
        path = self._path(parent, raw_name)
        source, below = self._place(path)
        _, overlay = _writable(source)
        node = await self._there(path)
        if node.kind == "directory":
            raise IsADirectory("/".join(path))
        self._require_base(path, node, is_base)
        draft = node.draft if isinstance(node.draft, Draft) else None
        if draft is None:
            await self._remove_stored(source, node.record, below)
            return
        async with draft.lock:  # a close may be handing it over
            _require_name(draft, path)
            await self._filled_for_its_users(draft)
            if draft.temporary or draft.expected.exists is False:
                await self._staged.drop(draft)  # before its directory is removed
                await self._forget_hidden(draft)
                overlay.unshow(below)
            else:
                await self._remove_stored(source, draft.record, below)
            self._given_up(draft)

    def _require_base(self, path: Path, node: Node | None, is_base: IsBase | None) -> None:
        """Raise Conflict unless a name leads to the version that a program has stated."""
        if is_base is None:
            return
        record = None if node is None or node.draft is not None else node.record
        if not is_base(path, {} if record is None else stated(self._contents.described(record))):
            raise Conflict(f"{'/'.join(path)}: somebody else has changed it")

    async def _remove_stored(self, source: Source, record: Record | None, below: Path) -> None:
        if record is None:
            raise NotSupported("/".join(below))
        await self._writer.remove(source, record.metadata.native_uri, record_state(record), below)

    @staticmethod
    async def _filled_for_its_users(draft: Draft) -> None:
        """Load the bytes of a file that is about to be removed or replaced, for the programs that have it open."""
        if draft.users:
            with suppress(BbfsError):  # then their writes fail
                await draft.filled()

    def _given_up(self, draft: Draft) -> None:
        """End the name of a draft. Programs that have it open go on with it."""
        draft.removed = True
        self._staged.forget(draft)
        for ino in draft.inos:
            self._inodes.detach(ino)  # a later file of this name may have the same version
        if not draft.users:
            self._leave(draft)

    def _leave(self, draft: Draft, *, unless_held: bool = False) -> None:
        """Let no inode lead to a draft any more. unless_held: but those that the kernel holds."""
        left = [ino for ino in draft.inos if not (unless_held and ino in self._inodes)]
        for ino in left:
            if self._names.drafts.get(ino) is draft:
                del self._names.drafts[ino]
                self._pin(ino, draft)
        draft.inos.difference_update(left)

    def _pin(self, ino: int, draft: Draft) -> None:
        """Let the files that were opened before a draft go on with its bytes: the kernel has pages of these."""
        for opened in self._files.of(ino):
            if draft.buffer is not None and not (opened.shares_inode or isinstance(opened.content, Draft)):
                with suppress(BbfsError):  # of a full disk
                    opened.content, opened.modified_ns = draft.buffer.snapshot(), draft.modified_ns

    async def _forget_hidden(self, draft: Draft) -> None:
        """Remove the resource that was renamed to a draft, unless something has its name again.

        A file that is being written under the name replaces the resource itself.
        """
        if draft.hides is None:
            return
        below, record, expected = draft.hides
        path = self._mounted(draft.source, below)
        if self._aside.get(path) is draft:
            _, overlay = _writable(draft.source)
            there = overlay.get(below)
            if there is None or there.node is None or there.node.draft is None:
                try:
                    await self._writer.remove(draft.source, record.metadata.native_uri, expected, below)
                except Conflict:  # the name leads to what somebody else has put there since
                    record.invalidate()
                    overlay.drop(below)
            self._aside.pop(path, None)
        draft.hides = None

    def _hidden(self, path: Path) -> tuple[Record | None, Expected]:
        """Return the resource that the source still has under a name that the mount has given away, or None.

        And the state that it had then: no program can see a later one.
        """
        draft = self._aside.get(path)
        if draft is None or draft.hides is None:
            return None, Expected(exists=False)
        return draft.hides[1:]

    async def make_directory(self, parent: int, raw_name: bytes, mode: int) -> Attributes:
        """Make a directory. Count one lookup."""
        path = self._path(parent, raw_name)
        source, below = self._place(path)
        _, overlay = _writable(source)
        if await self._found(path) is not None:
            raise Exists("/".join(path))
        native_uri = await self._tree.native_uri_for(source, below)
        ino = self._inodes.remember(path, DIRECTORY_VERSION)  # the kernel need not be told of what its answer tells
        try:
            if not await self._writer.make_directory(source, native_uri, below):
                overlay.put(below, DIRECTORY, made=True)
        finally:
            self._inodes.forget(ino)
        node = await self._there(path)
        return self._names.counted(path, node)

    async def remove_directory(self, parent: int, raw_name: bytes) -> None:
        path = self._path(parent, raw_name)
        source, below = self._place(path)
        _, overlay = _writable(source)
        node = await self._there(path)
        if node.kind != "directory":
            raise NotADirectory("/".join(path))
        if len(await self._tree.view(path)):
            raise NotEmpty("/".join(path))
        made = overlay.is_made(below)
        native_uri = node.record.metadata.native_uri if node.record is not None else None
        if native_uri is None and not made:
            native_uri = await self._tree.native_uri_for(source, below)
        if made or native_uri is None or not await self._writer.remove_directory(source, native_uri, below):
            overlay.unshow(below)

    async def rename(
        self,
        parent: int,
        raw_name: bytes,
        to_parent: int,
        to_name: bytes,
        flags: int,
        is_base: IsBase | None = None,
    ) -> None:
        """Rename. flags: of renameat2(2). is_base: as for `remove`, of the new name."""
        path, to = self._path(parent, raw_name), self._path(to_parent, to_name)
        (source, below), (to_source, to_below) = self._place(path), self._place(to)
        if flags & ~_NOREPLACE:
            raise NotSupported("only a local folder can exchange two names")
        if source is not to_source:
            raise CrossesSources(f"{'/'.join(path)} and {'/'.join(to)} are of two sources")
        node, there = await self._there(path), await self._found(to)
        if there is not None and flags & _NOREPLACE:
            raise Exists("/".join(to))
        if path == to:
            return
        self._require_base(to, there, is_base)
        if node.kind == "directory":
            await self._rename_directory(source, node, below, to_below, there)
        elif there is not None and there.kind == "directory":
            raise IsADirectory("/".join(to))
        else:
            if there is not None and isinstance(there.draft, Draft):
                async with there.draft.lock:
                    await self._filled_for_its_users(there.draft)
            await self._rename_file(source, node, (path, below), (to, to_below), there)
        self._inodes.rename(path, to)

    async def _rename_directory(
        self, source: Source, node: Node, below: Path, to_below: Path, there: Node | None
    ) -> None:
        if there is not None and there.kind != "directory":
            raise NotADirectory("/".join(to_below))
        native_uri = node.record.metadata.native_uri if node.record is not None else None
        to_uri = await self._tree.native_uri_for(source, to_below)
        _, overlay = _writable(source)
        drafts = [draft for draft in overlay.drafts_below(below) if isinstance(draft, Draft)]
        async with AsyncExitStack() as locks:
            for draft in drafts:  # none may be handed over under its old name meanwhile
                await locks.enter_async_context(draft.lock)
                await self._staged.drop(draft)
            if native_uri is None or not await self._writer.rename(
                source, native_uri, to_uri, replace_there=True, path=below, to_path=to_below
            ):
                raise CrossesSources("the source cannot rename a directory")  # mv(1) copies then
            for draft in drafts:
                await self._move_along(draft, below, to_below)

    async def _move_along(self, draft: Draft, below: Path, to_below: Path) -> None:
        """Move a draft, and the resource that it hides, with the directory that they are in."""
        source = draft.source
        _, overlay = _writable(source)
        if draft.hides is not None:
            hidden, record, expected = draft.hides
            at = (*to_below, *hidden[len(below) :])
            self._aside.pop(self._mounted(source, hidden), None)
            self._aside[self._mounted(source, at)] = draft
            draft.hides = at, await self._record_at(source, record, at), expected
            overlay.put(at, None)
        draft.below = (*to_below, *draft.below[len(below) :])
        draft.path = self._mounted(source, draft.below)
        draft.record = await self._record_at(source, draft.record, draft.below)
        draft.native_uri = draft.record.metadata.native_uri
        overlay.put(draft.below, Node("file", draft.record, draft=draft))

    async def _record_at(self, source: Source, record: Record, below: Path) -> Record:
        """Return the record that a resource has after its directory was renamed."""
        native_uri = await self._tree.native_uri_for(source, below)
        moved = self._unstored(source, native_uri, self._mounted(source, below), below)
        known = moved.metadata
        moved.metadata = replace(record.metadata, uri=known.uri, native_uri=native_uri, name=known.name)
        moved.recall(record.to_remember())
        return moved

    async def _rename_file(
        self, source: Source, node: Node, place: tuple[Path, Path], to_place: tuple[Path, Path], there: Node | None
    ) -> None:
        (path, below), (to, to_below) = place, to_place
        draft = node.draft if isinstance(node.draft, Draft) else None
        replaced = there.draft if there is not None and isinstance(there.draft, Draft) else None
        hidden, _ = self._hidden(to)
        is_stored = hidden is not None or (there is not None and (replaced is None or not replaced.temporary))
        is_new = draft is not None and draft.temporary and draft.hides is None
        # What a program saves stays beside the old file. In another directory, any name is one to keep.
        if not is_kept(to[-1], path[-1]) and not is_stored and (is_new or to[:-1] == path[:-1]):
            if draft is None or not draft.temporary:
                draft = await self._set_aside(source, node, path, below)
            self._move(draft, to, to_below, there)
            if replaced is not None:
                await self._forget_hidden(replaced)
        elif draft is not None and draft.temporary:
            await self._keep(draft, path, (to, to_below), there)
        else:
            await self._rename_stored(source, node, draft, place, to_place, there)

    async def _set_aside(self, source: Source, node: Node, path: Path, below: Path) -> Draft:
        """Make a draft in the mount of a resource that is renamed to a name that is not kept.

        The source keeps the resource until something else has its name, or the draft is removed: a program that saves a
        file renames the old one first, and the source never lacks it meanwhile.
        """
        _, overlay = _writable(source)
        draft = node.draft if isinstance(node.draft, Draft) else None
        record = node.record if draft is None else draft.record
        if record is None:
            raise NotSupported("/".join(path))
        if draft is None:
            draft = self._draft(source, path, below, record.metadata.native_uri, record, record_state(record))
            draft.modified_ns, draft.version = record.modified_ns, next(self._own_versions)
            draft.owns_inode = True
        async with draft.lock:
            _require_name(draft, path)
            await self._store_dirty(draft)
            await draft.filled()
            draft.temporary, draft.hides = True, (below, draft.record, draft.expected)
            overlay.put(below, None)
            self._aside[path] = draft
        return draft

    def _move(self, draft: Draft, to: Path, to_below: Path, there: Node | None) -> None:
        """Give a draft that lives in the mount another name there."""
        _, overlay = _writable(draft.source)
        if there is not None and isinstance(there.draft, Draft):
            self._given_up(there.draft)
        was = overlay.get(draft.below)
        if was is not None and was.node is not None and was.node.draft is draft:
            overlay.unshow(draft.below)
        if to[:-1] != draft.path[:-1]:
            self._staged.forget(draft)  # the directory that has it may be removed
        draft.path, draft.below = to, to_below
        overlay.put(to_below, Node("file", draft.record, draft=draft))

    async def _keep(self, draft: Draft, path: Path, to_place: tuple[Path, Path], there: Node | None) -> None:
        """Hand over a draft that lived in the mount under the name that it is renamed to."""
        source, (to, to_below) = draft.source, to_place
        handler, overlay = _writable(source)
        hidden, was = self._hidden(to)
        replaced = there.draft if there is not None and isinstance(there.draft, Draft) else None
        native_uri, expected = await self._target(source, to, to_below, there)
        if ("create" if expected.exists is False else "replace") not in handler.writes(native_uri):
            raise NotSupported(f"{native_uri}: the source cannot write it")
        async with draft.lock:
            _require_name(draft, path)
            buffer = await draft.filled()
            if hidden is not None and self._aside[to] is draft and not draft.dirty:
                del self._aside[to]  # it goes back to the name that it had
                overlay.drop(to_below)
                draft.record, draft.expected, draft.native_uri = hidden, was, native_uri
                self._staged.forget(draft)
            else:

                async def store(staged: str | None) -> None:
                    await self._store(draft, native_uri, expected, to_below, buffer, staged=staged)

                await self._staged.use(draft, store)
                if not self._contents.resolved(draft.record):  # fstat(2) is not tried again after ESTALE
                    with suppress(BbfsError):
                        await self._contents.learn(draft.record)
        if replaced is not None:
            self._given_up(replaced)
            draft.record.salt += "~"  # the inode of the replaced one has other bytes
            await self._forget_hidden(replaced)
        await self._forget_hidden(draft)
        self._move(draft, to, to_below, None)
        draft.temporary = False
        draft.users += 1
        self._closed(draft)

    async def _rename_stored(
        self,
        source: Source,
        node: Node,
        draft: Draft | None,
        place: tuple[Path, Path],
        to_place: tuple[Path, Path],
        there: Node | None,
    ) -> None:
        """Rename a resource at its source, or copy it there and remove the old one."""
        (path, below), (to, to_below) = place, to_place
        replaced = there.draft if there is not None and isinstance(there.draft, Draft) else None
        async with AsyncExitStack() as locks:
            if draft is not None:
                await locks.enter_async_context(draft.lock)  # it must not be handed over under its old name meanwhile
                _require_name(draft, path)
                await self._store_dirty(draft)
                await draft.filled()
            record = node.record if draft is None else draft.record
            if record is None:
                raise NotSupported("it is no file")
            renamed = await self._rename_record(source, record, below, to, to_below, there)
            self._aside.pop(to, None)
            if replaced is not None:
                self._given_up(replaced)
                renamed.salt += "~"  # the inode of the replaced one has other bytes
                await self._forget_hidden(replaced)
                _writable(source)[1].put(to_below, record_node(renamed), stored=True)
            if draft is not None:
                draft.path, draft.below, draft.record = to, to_below, renamed
                draft.native_uri, draft.expected = renamed.metadata.native_uri, await draft.renamed_state()
                self._shown(draft)

    async def _rename_record(
        self, source: Source, record: Record, below: Path, to: Path, to_below: Path, there: Node | None
    ) -> Record:
        """Rename a resource at its source. Return the record that it has then."""
        native_uri = record.metadata.native_uri
        to_uri, expected = await self._target(source, to, to_below, there)
        replaces = expected.exists is not False
        renamed = await self._writer.rename(
            source,
            native_uri,
            to_uri,
            replace_there=replaces,
            path=below,
            to_path=to_below,
            replaced=expected if replaces else None,
        )
        if not renamed:
            copy = self._draft(source, to, to_below, to_uri, record, Expected(exists=False))
            buffer = await copy.filled()
            copied = copy.expected
            try:
                await self._store(copy, to_uri, expected, to_below, buffer, keep=False)  # the old name has it still
            except Rejected as error:  # EINVAL of rename(2) means to mv(1) that a directory would go into itself
                raise NotSupported(str(error)) from None
            await self._writer.remove(source, native_uri, copied, below)
            return copy.record
        stored = source.catalog.record(to_uri)
        return self._unstored(source, to_uri, to, to_below) if stored is None else stored

    async def _target(self, source: Source, to: Path, to_below: Path, there: Node | None) -> tuple[str, Expected]:
        """Return the native URI under which a rename stores a file, and the state that the source has to have there."""
        draft = there.draft if there is not None and isinstance(there.draft, Draft) else None
        if there is None or (draft is not None and draft.temporary):
            record, expected = self._hidden(to)
        elif draft is not None:
            record, expected = there.record, draft.expected
        else:
            record, expected = there.record, Expected() if there.record is None else record_state(there.record)
        if record is None:
            return await self._tree.native_uri_for(source, to_below), Expected(exists=False)
        return record.metadata.native_uri, expected

    async def link(self, ino: int, parent: int, raw_name: bytes) -> Attributes:
        """Raise NotSupported: only a local folder has hard links."""
        self._place(self._path(parent, raw_name))
        raise NotSupported("only a local folder has hard links")

    async def symlink(self, parent: int, raw_name: bytes, target: bytes) -> Attributes:
        """Raise NotSupported: only a local folder has symbolic links of its own."""
        self._place(self._path(parent, raw_name))
        raise NotSupported("only a local folder takes symbolic links")

    # -- the end of the mount ----------------------------------------------------------------------------------------

    async def keep_left(self) -> None:
        """Keep the files that only the mount has as pending writes. The kernel sends no requests any more."""
        drafts = {each.content for each in self._files if isinstance(each.content, Draft)}
        for source in self._manager.sources.values():
            if source.overlay is not None:
                drafts.update(each for each in source.overlay.drafts_below(()) if isinstance(each, Draft))
        for draft in drafts:
            if draft.buffer is None or not self._is_ours_alone(draft):
                continue
            native_uri, expected = draft.native_uri, draft.expected
            if draft.temporary:
                expected = Expected(exists=False)
                with trio.move_on_after(NAMED_WITHIN), suppress(BbfsError):
                    native_uri = await self._tree.native_uri_for(draft.source, draft.below)
            try:
                await self._writer.keep_left(draft.source, native_uri, draft.buffer.snapshot(), expected, draft.below)
            except BbfsError as error:
                log.error("%s: lost with the mount: %s", "/".join(draft.path), error)
        async with trio.open_nursery() as nursery:
            for draft in drafts:
                nursery.start_soon(self._staged.drop, draft)

    def _is_ours_alone(self, draft: Draft) -> bool:
        """Return whether neither a source nor a pending write has the bytes of a draft, which a program may miss."""
        if draft.removed or draft.size == 0 or draft.lock.locked():  # a hand-over has kept them as a pending write
            return False
        if not draft.temporary:
            return draft.dirty and not draft.failed
        hides = draft.hides is not None and self._aside.get(self._mounted(draft.source, draft.hides[0]))
        return not draft.path[-1].startswith(KEEPING) and (draft.dirty or hides is not draft)

    # -- paths -------------------------------------------------------------------------------------------------------

    def _path(self, parent: int, raw_name: bytes) -> Path:
        if len(raw_name) > NAME_MAX:
            raise NameTooLong(f"{len(raw_name)} bytes")
        try:
            return (*self._inodes.get(parent).path, raw_name.decode())
        except UnicodeDecodeError:
            raise NotSupported("a name that is not UTF-8") from None

    def _place(self, path: Path) -> tuple[Source, Path]:
        """Return the source that is written at a path, and the path in its catalog. Raise ReadOnly."""
        if len(path) > 1 and path[0] in self._grants.roots:
            source, below = self._tree.place(path)
            if source.overlay is not None:
                return source, below
        raise ReadOnly(f"{'/'.join(path)}: nothing can be written there")

    async def _found(self, path: Path) -> Node | None:
        """Return the node at a path, or None. One that only a template makes counts if the source has it."""
        try:
            node = await answered(self._names.find(path), self._names.find, path)
            record = self._grants.may_be_new(path, node)
            if record is None and node.kind == "file" and node.draft is None:
                record = node.record
            if record is None or not record.provisional:
                return node
            if not await self._contents.exists(record):
                return self._names.left(path)
            return await answered(self._names.find(path), self._names.find, path)
        except NotFound:
            return None

    async def _there(self, path: Path) -> Node:
        node = await self._found(path)
        if node is None:
            raise NotFound("/".join(path))
        return node


async def _has(record: Record, content: Content, etag: str | None) -> bool:
    """Return whether the content of a record is known to be this one. etag: in the answer to its write."""
    if record.digest is None or record.invalidated or record.size != content.size:
        return False
    if etag is not None:
        return record.digest == etag
    if isinstance(content, MemoryContent):
        return record.digest == content.version
    return record.digest == await trio.to_thread.run_sync(lambda: content.version)


def _require_name(draft: Draft, path: Path) -> None:
    """Raise NotFound if a draft has lost its name while a program waited for its lock."""
    if draft.path != path or draft.removed:
        raise NotFound("/".join(path))


def _writable(source: Source) -> tuple[CanWrite, Overlay]:
    """Return the handler and the overlay of a source that is written. Raise ReadOnly."""
    if source.writes is None or source.overlay is None:
        raise ReadOnly(f"{source.data.id}: nothing can be written there")
    return source.writes, source.overlay
