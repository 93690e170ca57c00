"""The names that programs change: create, remove, make and remove directories. `renames` has the rest.

Names that programs do not keep live in the mount. Methods that are awaited raise BbfsError and may wait for a source.
"""

import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

import trio

from bbfs.model.errors import (
    BbfsError,
    Conflict,
    CrossesSources,
    DeadlineExceeded,
    Exists,
    IsADirectory,
    NotADirectory,
    NotEmpty,
    NotFound,
    NotSupported,
)
from bbfs.resources.catalog.overlay import Draft
from bbfs.resources.catalog.record import DIRECTORY, DIRECTORY_VERSION, Node, Path, Record
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.resources.writing.temporary import is_by_mkstemp, is_temporary, made_for
from bbfs.sources import CanWrite
from bbfs.vfs.file_handles import Attributes
from bbfs.vfs.inode_table import InodeTable
from bbfs.vfs.names import Names, of_draft, stated
from bbfs.vfs.open_files import OpenFiles
from bbfs.vfs.writing.drafts import Drafts, writable
from bbfs.vfs.writing.renames import Rename, Renames

log = logging.getLogger(__name__)
_NOREPLACE = 1
"""Flag of renameat2(2)."""
HELD = 5.0
"""Seconds for a request during which the kernel holds a directory. A lookup of any other name there waits for the
answer, and nothing can kill its program."""
T = TypeVar("T")
IsBase = Callable[[Path, Mapping[str, Any]], bool]
"""Returns whether a version is the one that a program has stated for a path before it changes the name (`stated`)."""


class NameChanges:
    """The changes of names. Inode numbers and handles are those of the `FileSystem`."""

    def __init__(
        self,
        manager: ResourceManager,
        inodes: InodeTable,
        names: Names,
        drafts: Drafts,
        files: OpenFiles,
    ) -> None:
        self._manager = manager
        self._tree = manager.tree
        self._contents = manager.contents
        self._grants = manager.grants
        self._writer = manager.writer
        self._inodes = inodes
        self._files = files
        self._names = names
        self._drafts = drafts
        self._renames = Renames(manager, drafts)

    # -- as long as the kernel may hold a directory ------------------------------------------------------------------

    async def in_time(self, change: Callable[[], Awaitable[T]], *places: tuple[int, bytes]) -> T:
        """Await a change of names, for `HELD` seconds at most: the kernel holds their directories meanwhile.

        The change goes on, whatever becomes of the wait. Then the log has its outcome, and the kernel looks the names
        up again. places: directory and name. Raise DeadlineExceeded.
        """
        late: list[Path] = []  # what is changed, once no program waits for it any more
        shown, level = "", logging.INFO

        async def go_on() -> T:
            try:
                value = await change()
            except BbfsError as error:
                if late:
                    log.log(level, "%s: a change that no program waits for any more was not made: %s", shown, error)
                raise
            finally:
                if late:
                    self._notify_of(late)
            if late:
                log.log(level, "%s: a change that no program waits for any more is made", shown)
            return value

        with trio.move_on_after(HELD):
            try:
                return await self._manager.go_on(go_on)
            except trio.Cancelled:
                for place in places:
                    with suppress(BbfsError):  # the directory has gone meanwhile, or the name is none
                        late.append(self._names.child(*place))
                shown = " to ".join("/".join(path) for path in late)
                raise
        level = logging.WARNING
        log.warning("%s: not changed within %g s; the change goes on", shown, HELD)
        raise DeadlineExceeded(f"{shown}: not changed within {HELD:g} s; the change goes on")

    def _notify_of(self, paths: list[Path]) -> None:
        for path in paths:
            with suppress(BbfsError):
                source, below = self._drafts.place(path)
                self._manager.notify_of(source, [below])

    # -- create ------------------------------------------------------------------------------------------------------

    async def create_in_time(
        self, parent: int, raw_name: bytes, flags: int, mode: int, program: int
    ) -> tuple[int, Attributes]:
        """As `create`, for `HELD` seconds at most. Raise DeadlineExceeded: then nothing is created."""
        with trio.move_on_after(HELD):
            return await self.create(parent, raw_name, flags, mode, program)
        raise DeadlineExceeded(f"{'/'.join(self._names.child(parent, raw_name))}: not created within {HELD:g} s")

    async def create(
        self, parent: int, raw_name: bytes, flags: int, mode: int, program: int = 0
    ) -> tuple[int, Attributes]:
        """Create a file, or open one that is there unless `flags` has O_EXCL. Count one lookup of it.

        flags, mode: as of open(2). program: the thread that asks.
        """
        path = self._names.child(parent, raw_name)
        source, below = place = self._drafts.place(path)
        node = await self._found(path, place)
        if node is None:
            draft = await self._new(source, path, below, by_mkstemp=is_by_mkstemp(flags, mode))
            found = self._names.counted(path, Node("file", draft.record, draft=draft))
            return self._files.open_draft(draft, found.ino, program=program), found
        if flags & os.O_EXCL:
            raise Exists("/".join(path))
        if node.kind != "file":
            raise IsADirectory("/".join(path)) if node.kind == "directory" else NotSupported("a symbolic link")
        found = self._names.counted(path, node)
        try:
            handle = await self._files.open_to_write(found.ino, flags, program)
        except BaseException:
            self._inodes.forget(found.ino)
            raise
        return handle, of_draft(found.ino, self._names.drafts[found.ino])

    async def make_node(self, parent: int, raw_name: bytes, mode: int) -> Attributes:
        """Create a regular file without opening it. Count one lookup."""
        handle, found = await self.create(parent, raw_name, os.O_EXCL | os.O_WRONLY, mode)
        try:
            await self._files.flush(handle)
        finally:
            self._files.release(handle)
        return found

    async def _new(self, source: Source, path: Path, below: Path, *, by_mkstemp: bool) -> Draft:
        """Begin a file under a name that leads to nothing. by_mkstemp: whether its program had the name made up."""
        handler, _ = writable(source)
        hidden, expected = self._drafts.hidden(path)
        native_uri = await self._tree.native_uri_for(source, below) if hidden is None else hidden.metadata.native_uri
        temporary = hidden is None and (is_temporary(path[-1]) or (by_mkstemp and made_for(path[-1]) is not None))
        if not temporary and "create" not in handler.writes(native_uri):
            temporary = hidden is None and await self._is_made_for_another(source, handler, below)
            if not temporary:
                raise NotSupported(f"{native_uri}: the source cannot create it")
        if hidden is None:
            record = source.catalog.record(native_uri) or self._drafts.unstored(
                source, native_uri, path, below, is_temporary=temporary
            )
        else:
            record = hidden
        draft = self._drafts.begin(path, below, native_uri, record, expected)
        draft.temporary = temporary
        self._drafts.own_inode(draft)
        draft.emptied()
        draft.changed()
        return self._drafts.show(draft)

    async def _is_made_for_another(self, source: Source, handler: CanWrite, below: Path) -> bool:
        """Return whether a program may make a name, which the source refuses, to rename it to one that it takes."""
        kept = made_for(below[-1])
        return kept == "" or (
            kept is not None and bool(handler.writes(await self._tree.native_uri_for(source, (*below[:-1], kept))))
        )

    async def make_directory(self, parent: int, raw_name: bytes, mode: int) -> Attributes:
        """Make a directory. Count one lookup."""
        path = self._names.child(parent, raw_name)
        source, below = place = self._drafts.place(path)
        _, overlay = writable(source)
        if await self._found(path, place) is not None:
            raise Exists("/".join(path))
        native_uri = await self._tree.native_uri_for(source, below)
        ino = self._inodes.remember(path, DIRECTORY_VERSION)  # the kernel need not be told of what its answer tells
        try:
            if not await self._writer.names.make_directory(source, native_uri, below):
                overlay.put(below, DIRECTORY, made=True)
        finally:
            self._inodes.forget(ino)
        return self._names.counted(path, await self._there(path, place))

    def refuse_link(self, parent: int, raw_name: bytes) -> NoReturn:
        """Raise NotSupported, or ReadOnly where nothing can be written."""
        self._drafts.place(self._names.child(parent, raw_name))
        raise NotSupported("only a local folder takes hard links and symbolic links")

    # -- remove ------------------------------------------------------------------------------------------------------

    async def remove(self, parent: int, raw_name: bytes, is_base: IsBase | None = None) -> None:
        """Remove a file. is_base: for the version that a program has seen. Raise Conflict for another one."""
        path = self._names.child(parent, raw_name)
        source, below = place = self._drafts.place(path)
        _, overlay = writable(source)
        node = await self._there(path, place)
        if node.kind == "directory":
            raise IsADirectory("/".join(path))
        self._require_base(path, node, is_base)
        draft = node.draft
        if draft is None:
            await self._remove_stored(source, node.record, below)
            return
        async with draft.lock:  # a close may be handing it over
            draft.require_name(path)
            await self._filled_for_its_users(draft)
            if draft.temporary or draft.expected.exists is False:
                await self._drafts.staged.drop(draft)  # before its directory is removed
                await self._drafts.forget_hidden(draft)
                overlay.unshow(below)
            else:
                await self._remove_stored(source, draft.record, below)
            self._drafts.give_up(draft)

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
        try:
            await self._writer.names.remove(source, record.metadata.native_uri, record.state, below)
        except Conflict as error:
            await self._drafts.doubt(record, error)
            raise

    @staticmethod
    async def _filled_for_its_users(draft: Draft) -> None:
        """Load the bytes of a file that is about to be removed or replaced, for the programs that have it open."""
        if draft.users:
            with suppress(BbfsError):  # then their writes fail
                await draft.filled()

    async def remove_directory(self, parent: int, raw_name: bytes) -> None:
        """Remove an empty directory."""
        path = self._names.child(parent, raw_name)
        source, below = place = self._drafts.place(path)
        _, overlay = writable(source)
        node = await self._there(path, place)
        if node.kind != "directory":
            raise NotADirectory("/".join(path))
        if len(await self._tree.view(path)):
            raise NotEmpty("/".join(path))
        made = overlay.is_made(below)
        native_uri = node.record.metadata.native_uri if node.record is not None else None
        if native_uri is None and not made:
            native_uri = await self._tree.native_uri_for(source, below)
        if made or native_uri is None or not await self._writer.names.remove_directory(source, native_uri, below):
            overlay.unshow(below)

    # -- rename ------------------------------------------------------------------------------------------------------

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
        path, to = self._names.child(parent, raw_name), self._names.child(to_parent, to_name)
        (source, below), (to_source, to_below) = at, to_at = self._drafts.place(path), self._drafts.place(to)
        if flags & ~_NOREPLACE:
            raise NotSupported("only a local folder can exchange two names")
        if source is not to_source:
            raise CrossesSources(f"{'/'.join(path)} and {'/'.join(to)} are of two sources")
        node, there = await self._there(path, at), await self._found(to, to_at)
        if there is not None and flags & _NOREPLACE:
            raise Exists("/".join(to))
        if path == to:
            return
        self._require_base(to, there, is_base)
        rename = Rename(source, path, below, to, to_below, node, there)
        if node.kind == "directory":
            await self._renames.directory(rename)
        elif there is not None and there.kind == "directory":
            raise IsADirectory("/".join(to))
        else:
            if rename.replaced is not None:
                async with rename.replaced.lock:
                    await self._filled_for_its_users(rename.replaced)
            try:
                await self._renames.file(rename)
            except Conflict as error:
                if there is not None and there.record is not None:
                    await self._drafts.doubt(there.record, error)
                raise
        self._inodes.rename(path, to)

    # -- what a name leads to ----------------------------------------------------------------------------------------

    async def _found(self, path: Path, place: tuple[Source, Path]) -> Node | None:
        """Return the node at a path, or None. One that only a template makes counts if the source has it."""
        try:
            node = await self._tree.find(path, place)
            record = self._grants.may_be_new(path, node)
            if record is None and node.kind == "file" and node.draft is None:
                record = node.record
            if record is None or not record.provisional:
                return node
            if not await self._contents.exists(record):
                return self._names.left(path)
            return await self._tree.find(path)
        except NotFound:
            return None

    async def _there(self, path: Path, place: tuple[Source, Path]) -> Node:
        node = await self._found(path, place)
        if node is None:
            raise NotFound("/".join(path))
        return node
