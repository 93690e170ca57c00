"""The drafts of one mount: which names lead to them, how their bytes reach the source, and when they end.

Large files that programs close under names that they do not keep are staged: the source gets the bytes before the
rename.

A file that is written is a `Draft` from its open to its last close. `open_files` changes its bytes, `name_changes`
and `renames` change its name. Methods that are awaited raise BbfsError and may wait for a source.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count

import trio

from bbfs.model.errors import BbfsError, Conflict, NoSpace, ReadOnly
from bbfs.model.uri import source_uri
from bbfs.model.values import Content, ResourceMetadata
from bbfs.model.versions import Expected
from bbfs.resources.catalog.overlay import Draft, Overlay, Staged
from bbfs.resources.catalog.record import Node, Path, Record, record_node
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.resources.writing.temporary import KEEPING, is_unfinished
from bbfs.sources import CanWrite, content_type_of, mime_type_of_name
from bbfs.sources.content.buffer import Buffer
from bbfs.sources.content.memory import MemoryContent
from bbfs.vfs.file_handles import FileHandles, OpenFile
from bbfs.vfs.inode_table import InodeTable
from bbfs.vfs.names import Names

log = logging.getLogger(__name__)
NAMED_WITHIN = 0.5
"""Seconds for the native URI of a file that the mount leaves at its end; else it has the one of its first name."""
STAGED_FROM = 1 << 20
"""Bytes of a file beyond which it is staged. A rename has the time for fewer."""


class StagedDrafts:
    """Stages the drafts of one mount, and removes from the sources what no rename needs any more.

    The kernel holds the directory during a rename, so that it has a few seconds (`HELD`). The close before has as long
    as any hand-over. A program that changes such a file again, removes it, or never renames it costs the source one
    upload.
    """

    def __init__(self, manager: ResourceManager) -> None:
        self._tree = manager.tree
        self._roots = manager.roots
        self._begin = manager.begin
        self._staging = manager.writer.staging

    async def stage(self, draft: Draft) -> None:
        """Let the source have the bytes of a draft that a program closes, if they are worth it."""
        if draft.staged is not None and draft.staged.edits != draft.edits:
            await self.drop(draft)
        if draft.is_staged_once or draft.buffer is None or draft.lacks or draft.removed:
            return
        if draft.size <= STAGED_FROM or not draft.temporary or not is_unfinished(draft.path[-1]):
            return
        source = self._roots.of(draft.record)
        with suppress(BbfsError):
            native_uri = await self._tree.native_uri_for(source, draft.below)
            if self._staging.can(source, native_uri) and not draft.is_staged_once:
                staged = draft.staged = Staged(draft.edits)
                draft.is_staged_once = True
                try:
                    staged.place = await self._staging.stage(source, native_uri, draft.buffer.snapshot())
                finally:
                    staged.ended.set()
                if staged.place is not None and not staged.is_wanted:
                    await self._staging.drop(source, staged.place)

    async def use(self, draft: Draft, hand_over: Callable[[str | None], Awaitable[None]]) -> None:
        """Await a hand-over of a draft, which gets where the source has the bytes, or None. Raise BbfsError.

        The caller has the draft's lock. Afterwards nothing is staged.
        """
        staged = draft.staged
        if staged is None or staged.edits != draft.edits:
            self.forget(draft)
            await hand_over(None)
            return
        draft.staged = None
        await staged.ended.wait()
        try:
            await hand_over(staged.place)
        except BaseException:
            if staged.place is not None:
                self._begin_drop(draft, staged.place)
            raise

    async def drop(self, draft: Draft) -> None:
        """Remove what the source has of a draft. What it is being given now is removed then."""
        place = self._unwanted(draft)
        if place is not None:
            await self._staging.drop(self._roots.of(draft.record), place)

    def forget(self, draft: Draft) -> None:
        """Have removed what the source has of a draft, without waiting."""
        place = self._unwanted(draft)
        if place is not None:
            self._begin_drop(draft, place)

    def _begin_drop(self, draft: Draft, place: str) -> None:
        async def drop(place: str) -> None:
            await self._staging.drop(self._roots.of(draft.record), place)

        self._begin(drop, place)

    @staticmethod
    def _unwanted(draft: Draft) -> str | None:
        staged, draft.staged = draft.staged, None
        if staged is None:
            return None
        staged.is_wanted = False
        return staged.place


class Drafts:
    """The drafts of one mount.

    staged: those whose bytes a source has before their rename. aside: the drafts of resources that a program has
    renamed to a temporary name, by their old path. The source still has such a resource under its old name.
    """

    def __init__(self, manager: ResourceManager, inodes: InodeTable, handles: FileHandles, names: Names) -> None:
        self._manager = manager
        self._tree = manager.tree
        self._contents = manager.contents
        self._grants = manager.grants
        self._roots = manager.roots
        self._writer = manager.writer
        self._inodes = inodes
        self._handles = handles
        self._names = names
        self.staged = StagedDrafts(manager)
        self.aside: dict[Path, Draft] = {}
        self._own_versions = (f"+{secrets.token_hex(6)}+{number}" for number in count())

    # -- the beginning -----------------------------------------------------------------------------------------------

    def place(self, path: Path) -> tuple[Source, Path]:
        """Return the source that is written at a path, and the path in its catalog. Raise ReadOnly."""
        if len(path) > 1 and path[0] in self._grants.roots:
            source, below = self._tree.place(path)
            if source.overlay is not None:
                return source, below
        raise ReadOnly(f"{'/'.join(path)}: nothing can be written there")

    def begin(self, path: Path, below: Path, native_uri: str, record: Record, expected: Expected) -> Draft:
        """Return a draft without bytes. expected: the state that its first hand-over replaces."""
        return Draft(
            writable(self._roots.of(record))[1],
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

    def own_inode(self, draft: Draft) -> None:
        """Give a draft an inode that no program has seen with another content."""
        draft.version, draft.owns_inode = next(self._own_versions), True

    def unstored(
        self, source: Source, native_uri: str, path: Path, below: Path, *, is_temporary: bool = False
    ) -> Record:
        """Return a record of a resource that the source does not have yet, or has under another name.

        is_temporary: its name says nothing of its type.
        """
        mime_type = None if is_temporary else mime_type_of_name(path[-1])
        metadata = ResourceMetadata(
            source_uri(source.data.base_prefix, native_uri),
            native_uri,
            path[-1],
            mime_type=mime_type,
            content_type="unknown" if mime_type is None else content_type_of(mime_type),
        )
        return Record(source.key, metadata, below, self._manager.clock())

    def show(self, draft: Draft) -> Draft:
        """Let the name lead to a draft."""
        draft.overlay.put(draft.below, Node("file", draft.record, draft=draft))
        return draft

    def below(self, source: Source, path: Path) -> list[Draft]:
        """Return the drafts at and below a directory of a source that is written."""
        return [] if source.overlay is None else source.overlay.drafts_below(path)

    def hidden(self, path: Path) -> tuple[Record | None, Expected]:
        """Return the resource that the source still has under a name that the mount has given away, or None.

        And the state that it had then: no program can see a later one.
        """
        draft = self.aside.get(path)
        if draft is None or draft.hides is None:
            return None, Expected(exists=False)
        return draft.hides[1:]

    # -- the end -----------------------------------------------------------------------------------------------------

    def closed(self, draft: Draft) -> None:
        """Give up a draft with its last handle: the name leads to the resource of the source."""
        draft.users -= 1
        if draft.users:
            return
        if draft.temporary and not draft.removed:
            self._leave(draft, unless_held=True)
            return
        self.unshow(draft)
        self._leave(draft)

    def unshow(self, draft: Draft) -> None:
        """Let the name of a draft lead to the resource of the source, if it leads to the draft."""
        overlay = draft.overlay
        if overlay.draft(draft.below) is not draft or draft.temporary or draft.removed:
            return
        self._leave(draft)
        source = self._roots.of(draft.record)
        if draft.expected.exists is False:  # the source has never taken it
            overlay.unshow(draft.below)
        else:
            if draft.dirty or draft.is_moved:
                draft.record.salt += "~"  # the kernel has cached bytes that the source does not have, or elsewhere
                draft.record.invalidate()
            self.aside.pop(draft.path, None)  # the name has its resource again, whatever was renamed away from it
            # A listing may have made another record.
            record = source.catalog.record(draft.native_uri) or draft.record
            overlay.put(draft.below, record_node(record), stored=True)
        self._manager.notify_of(source, [draft.below])

    def give_up(self, draft: Draft) -> None:
        """End the name of a draft. Programs that have it open go on with it."""
        draft.removed = True
        self.staged.forget(draft)
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
        """Let the files that were opened before a draft go on with its bytes: the kernel has pages of these.

        Programs that still write the draft change the same pages, so what they write is shown, too.
        """
        for opened in self._handles.of(ino):
            if draft.buffer is not None and not opened.shares_inode and opened.draft is None:
                with suppress(BbfsError):  # of a full disk
                    opened.content = draft if draft.users else draft.buffer.snapshot()
                    opened.modified_ns = draft.modified_ns

    async def forget_hidden(self, draft: Draft) -> None:
        """Remove the resource that was renamed to a draft, unless something has its name again.

        A file that is being written under the name replaces the resource itself.
        """
        if draft.hides is None:
            return
        below, record, expected = draft.hides
        source = self._roots.of(draft.record)
        path = self._roots.mounted(source, below)
        if self.aside.get(path) is draft:
            if draft.overlay.draft(below) is None:
                try:
                    await self._writer.names.remove(source, record.metadata.native_uri, expected, below)
                except Conflict:  # the name leads to a later resource of another program
                    record.invalidate()
                    draft.overlay.drop(below)
            self.aside.pop(path, None)
        draft.hides = None

    # -- hand-over ---------------------------------------------------------------------------------------------------

    async def hand_over(self, draft: Draft, opened: OpenFile, *, ends: bool) -> None:
        """Give the bytes to the source, unless it has them. Raise BbfsError: then they are a pending write.

        ends: a program has closed the file. No later open sees bytes that the source refuses, nor begins with them.
        """
        if not draft.dirty or draft.temporary or draft.removed:
            return
        try:
            async with draft.lock:
                if not draft.temporary and not draft.removed:
                    await self.store_dirty(draft, opened)
        except BbfsError:
            if ends:
                self.unshow(draft)
            raise

    async def store_dirty(self, draft: Draft, opened: OpenFile | None = None) -> None:
        """Give the bytes to the source, unless it has them. The caller has the lock of the draft. Raise BbfsError."""
        if draft.dirty and draft.buffer is not None:
            await self.store(draft, draft.native_uri, draft.expected, draft.below, draft.buffer, opened=opened)

    async def store(
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

        staged: where the source has the bytes. opened: the file by which a program saves. Pending writes of its earlier
        saves, and of the same bytes, are dropped once this one is kept; those that other programs have left stay.
        """
        draft.failed, source = True, self._roots.of(draft.record)
        if draft.lacks:
            problem = draft.lacks.why
            log.warning("%s: %s: not written, for a part of it is lacking: %s", source.data.id, native_uri, problem)
            raise NoSpace(problem)
        content = buffer.snapshot()
        earlier = [*draft.refused, *(opened.refused if opened is not None else ())]
        try:
            record, state = await self._writer.write(
                source, native_uri, content, expected, path=below, earlier=earlier, keep=keep, staged=staged
            )
        except BbfsError as error:
            if opened is not None:
                opened.refused = tuple(earlier)
            draft.refused = earlier
            await self.doubt(draft.record, error)
            raise
        if opened is not None:
            opened.refused = ()
        draft.failed, draft.refused = False, []
        if draft.set_ns is not None:
            record = await self._writer.names.set_time(source, record, draft.set_ns)
        # As on a disk: tar looks whether the inode is the one that it has made.
        if draft.owns_inode and await _has(record, content, state.etag):
            record.store_as(draft.version, draft.changed_ns, is_stated=state.etag is not None)
        draft.dirty, draft.record, draft.native_uri, draft.expected = False, record, native_uri, state
        self.aside.pop(self._roots.mounted(source, below), None)

    async def doubt(self, record: Record, error: BbfsError) -> None:
        """Load the version of a source after it did not take a change: the kernel looks a name up again only once.

        A program that makes the change again replaces that version. Without an ETag, only the content tells it.
        """
        record.invalidate()
        if isinstance(error, Conflict) and record.path:
            record.awaited_until = record.changed_at = 0.0  # what was just loaded is out of date by now
            with suppress(BbfsError):
                if record.state.version is None or record.on_open:
                    await self._contents.learn(record)
                else:
                    await self._contents.open(record)

    # -- the end of the mount ----------------------------------------------------------------------------------------

    def all(self) -> set[Draft]:
        """Return what programs have open to write, or have written for the mount alone."""
        drafts = {each.draft for each in self._handles if each.draft is not None}
        for source in self._manager.sources.values():
            drafts.update(self.below(source, ()))
        return drafts

    async def keep_left(self) -> None:
        """Keep the files that only the mount has as pending writes. The kernel sends no requests any more."""
        drafts = self.all()
        for draft in drafts:
            await self._keep_left(draft)
        async with trio.open_nursery() as nursery:
            for draft in drafts:
                nursery.start_soon(self.staged.drop, draft)

    async def _keep_left(self, draft: Draft) -> None:
        """Keep a file as a pending write, if only the mount has it."""
        if draft.buffer is None or not self._is_ours_alone(draft):
            return
        source, native_uri, expected = self._roots.of(draft.record), draft.native_uri, draft.expected
        if draft.temporary:
            expected = Expected(exists=False)
            with trio.move_on_after(NAMED_WITHIN), suppress(BbfsError):
                native_uri = await self._tree.native_uri_for(source, draft.below)
        try:
            await self._writer.keep_left(source, native_uri, draft.buffer.snapshot(), expected, draft.below)
        except BbfsError as error:
            log.error("%s: lost with the mount: %s", "/".join(draft.path), error)

    async def end(self, source: Source) -> None:
        """Keep the files that only the mount has of a source that is removed as pending writes.

        A file that a program has open and that its close would hand over is kept then. Takes half a second for each.
        """
        drafts = [each for each in self.below(source, ()) if each.temporary]
        for draft in drafts:
            await self._keep_left(draft)
            self.give_up(draft)

    def _is_ours_alone(self, draft: Draft) -> bool:
        """Return whether neither a source nor a pending write has the bytes of a draft, which a program may miss."""
        if draft.removed or draft.size == 0 or draft.lock.locked():  # a hand-over has kept them as a pending write
            return False
        if not draft.temporary:
            return draft.dirty and not draft.failed
        source = self._roots.of(draft.record)
        hides = draft.hides is not None and self.aside.get(self._roots.mounted(source, draft.hides[0]))
        return not draft.path[-1].startswith(KEEPING) and (draft.dirty or hides is not draft)


async def _has(record: Record, content: Content, etag: str | None) -> bool:
    """Return whether the content of a record is known to be this one. etag: in the answer to its write."""
    if record.digest is None or record.invalidated or record.size != content.size:
        return False
    if etag is not None:
        return record.digest == etag
    if isinstance(content, MemoryContent):
        return record.digest == content.version
    return record.digest == await trio.to_thread.run_sync(lambda: content.version)


def writable(source: Source) -> tuple[CanWrite, Overlay]:
    """Return the handler and the overlay of a source that is written. Raise ReadOnly."""
    if source.writes is None or source.overlay is None:
        raise ReadOnly(f"{source.data.id}: nothing can be written there")
    return source.writes, source.overlay
