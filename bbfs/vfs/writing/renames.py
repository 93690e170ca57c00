"""Renames: of directories, of files that live in the mount, and of resources.

A file that is renamed to a name which programs do not keep lives in the mount from then on. Under a name that they do
keep, its source has it, after one write or one rename.
"""

from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace

from bbfs.model.errors import BbfsError, CrossesSources, NotADirectory, NotSupported, Rejected
from bbfs.model.versions import Expected
from bbfs.resources.catalog.overlay import Draft
from bbfs.resources.catalog.record import Node, Path, Record, record_node
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.resources.writing.temporary import is_kept
from bbfs.sources.content.buffer import content_digest
from bbfs.vfs.writing.drafts import Drafts, writable


@dataclass(frozen=True, slots=True)
class Rename:
    """One rename in a source: both paths from the mount's root, both in the source's catalog, and both nodes."""

    source: Source
    path: Path
    below: Path
    to: Path
    to_below: Path
    node: Node
    there: Node | None

    @property
    def replaced(self) -> Draft | None:
        """Return the draft that the new name leads to, if any."""
        return None if self.there is None else self.there.draft


class Renames:
    """The renames in the sources of one mount. The caller has checked what both names lead to."""

    def __init__(self, manager: ResourceManager, drafts: Drafts) -> None:
        self._tree = manager.tree
        self._contents = manager.contents
        self._roots = manager.roots
        self._writer = manager.writer
        self._drafts = drafts

    async def directory(self, rename: Rename) -> None:
        """Rename a directory at its source. Raise CrossesSources if the source cannot."""
        if rename.there is not None and rename.there.kind != "directory":
            raise NotADirectory("/".join(rename.to))
        record, source = rename.node.record, rename.source
        to_uri = await self._tree.native_uri_for(source, rename.to_below)
        drafts = self._drafts.below(source, rename.below)
        async with AsyncExitStack() as locks:
            for draft in drafts:  # none may be handed over under its old name meanwhile
                await locks.enter_async_context(draft.lock)
                await self._drafts.staged.drop(draft)
            if record is None or not await self._writer.names.rename(
                source,
                record.metadata.native_uri,
                to_uri,
                replace_there=True,
                path=rename.below,
                to_path=rename.to_below,
                is_directory=True,
            ):
                raise CrossesSources("the source cannot rename a directory")  # mv(1) copies then
            for draft in drafts:
                await self._move_along(draft, rename.below, rename.to_below)

    async def _move_along(self, draft: Draft, below: Path, to_below: Path) -> None:
        """Move a draft, and the resource that it hides, with the directory that they are in."""
        source, overlay = self._roots.of(draft.record), draft.overlay
        if draft.hides is not None:
            hidden, record, expected = draft.hides
            at = (*to_below, *hidden[len(below) :])
            self._drafts.aside.pop(self._roots.mounted(source, hidden), None)
            self._drafts.aside[self._roots.mounted(source, at)] = draft
            draft.hides = at, await self._record_at(source, record, at), expected
            overlay.put(at, None)
        draft.below = (*to_below, *draft.below[len(below) :])
        draft.path = self._roots.mounted(source, draft.below)
        draft.record = await self._record_at(source, draft.record, draft.below)
        draft.native_uri = draft.record.metadata.native_uri
        self._drafts.show(draft)

    async def _record_at(self, source: Source, record: Record, below: Path) -> Record:
        """Return the record that a resource has after its directory was renamed."""
        native_uri = await self._tree.native_uri_for(source, below)
        moved = self._drafts.unstored(source, native_uri, self._roots.mounted(source, below), below)
        known = moved.metadata
        moved.metadata = replace(record.metadata, uri=known.uri, native_uri=native_uri, name=known.name)
        moved.recall(record.to_remember())
        return moved

    async def file(self, rename: Rename) -> None:
        """Rename a file: in the mount, as one write of what lived in the mount, or at its source."""
        draft, replaced = rename.node.draft, rename.replaced
        hidden, _ = self._drafts.hidden(rename.to)
        is_stored = hidden is not None or (rename.there is not None and (replaced is None or not replaced.temporary))
        is_new = draft is not None and draft.temporary and draft.hides is None
        # What a program saves stays beside the old file. In another directory, any name is one to keep.
        stays = is_new or rename.to[:-1] == rename.path[:-1]
        if not is_kept(rename.to[-1], rename.path[-1]) and not is_stored and stays:
            if draft is None or not draft.temporary:
                draft = await self._set_aside(rename)
            self._move(draft, rename.to, rename.to_below, replaced)
            if replaced is not None:
                await self._drafts.forget_hidden(replaced)
        elif draft is not None and draft.temporary:
            await self._keep(draft, rename)
        else:
            await self._rename_stored(draft, rename)

    async def _set_aside(self, rename: Rename) -> Draft:
        """Make a draft in the mount of a resource that is renamed to a name that is not kept.

        The source keeps the resource until something else has its name, or the draft is removed: a program that saves a
        file renames the old one first, and the source never lacks it meanwhile.
        """
        path, below, draft = rename.path, rename.below, rename.node.draft
        record = rename.node.record if draft is None else draft.record
        if record is None:
            raise NotSupported("/".join(path))
        if draft is None:
            draft = self._drafts.begin(path, below, record.metadata.native_uri, record, record.state)
            draft.modified_ns = record.modified_ns
            self._drafts.own_inode(draft)
        async with draft.lock:
            draft.require_name(path)
            await self._drafts.store_dirty(draft)
            await draft.filled()
            draft.temporary, draft.hides = True, (below, draft.record, draft.expected)
            draft.overlay.put(below, None)
            self._drafts.aside[path] = draft
        return draft

    def _move(self, draft: Draft, to: Path, to_below: Path, replaced: Draft | None) -> None:
        """Give a draft that lives in the mount another name there."""
        if replaced is not None:
            self._drafts.give_up(replaced)
        if draft.overlay.draft(draft.below) is draft:
            draft.overlay.unshow(draft.below)
        if to[:-1] != draft.path[:-1]:
            self._drafts.staged.forget(draft)  # the directory that has it may be removed
        draft.path, draft.below = to, to_below
        self._drafts.show(draft)

    async def _keep(self, draft: Draft, rename: Rename) -> None:
        """Hand over a draft that lived in the mount under the name that it is renamed to."""
        to, to_below, replaced = rename.to, rename.to_below, rename.replaced
        handler, overlay = writable(rename.source)
        hidden, was = self._drafts.hidden(to)
        native_uri, expected = await self._target(rename)
        if ("create" if expected.exists is False else "replace") not in handler.writes(native_uri):
            raise NotSupported(f"{native_uri}: the source cannot write it")
        async with draft.lock:
            draft.require_name(rename.path)
            buffer = await draft.filled()
            if hidden is not None and self._drafts.aside[to] is draft and not draft.dirty:
                del self._drafts.aside[to]  # it goes back to the name that it had
                overlay.drop(to_below)
                draft.record, draft.expected, draft.native_uri = hidden, was, native_uri
                self._drafts.staged.forget(draft)
            else:

                async def store(staged: str | None) -> None:
                    await self._drafts.store(draft, native_uri, expected, to_below, buffer, staged=staged)

                await self._drafts.staged.use(draft, store)
                if not self._contents.resolved(draft.record):  # fstat(2) is not tried again after ESTALE
                    with suppress(BbfsError):
                        await self._contents.learn(draft.record)
        if replaced is not None:
            await self._end(replaced, draft.record)
        await self._drafts.forget_hidden(draft)
        self._move(draft, to, to_below, None)
        draft.temporary = False
        draft.users += 1
        self._drafts.closed(draft)

    async def _end(self, replaced: Draft, record: Record) -> None:
        """End a draft whose name a resource has now."""
        self._drafts.give_up(replaced)
        record.salt += "~"  # the inode of the replaced one has other bytes
        await self._drafts.forget_hidden(replaced)

    async def _rename_stored(self, draft: Draft | None, rename: Rename) -> None:
        """Rename a resource at its source, or copy it there and remove the old one."""
        to, to_below, replaced = rename.to, rename.to_below, rename.replaced
        async with AsyncExitStack() as locks:
            if draft is not None:
                await locks.enter_async_context(draft.lock)  # it must not be handed over under its old name meanwhile
                draft.require_name(rename.path)
                await self._drafts.store_dirty(draft)
                await draft.filled()
            record = rename.node.record if draft is None else draft.record
            if record is None:
                raise NotSupported("it is no file")
            renamed = await self._rename_record(record, rename)
            self._drafts.aside.pop(to, None)
            if replaced is not None:
                await self._end(replaced, renamed)
                writable(rename.source)[1].put(to_below, record_node(renamed), stored=True)
            if draft is not None:
                draft.path, draft.below, draft.record = to, to_below, renamed
                draft.native_uri, draft.expected = renamed.metadata.native_uri, await _renamed_state(draft)
                self._drafts.show(draft)

    async def _rename_record(self, record: Record, rename: Rename) -> Record:
        """Rename a resource at its source. Return the record that it has then."""
        source, below, to, to_below = rename.source, rename.below, rename.to, rename.to_below
        native_uri = record.metadata.native_uri
        to_uri, expected = await self._target(rename)
        replaces = expected.exists is not False
        renamed = await self._writer.names.rename(
            source,
            native_uri,
            to_uri,
            replace_there=replaces,
            path=below,
            to_path=to_below,
            replaced=expected if replaces else None,
        )
        if not renamed:
            if "remove" not in writable(source)[0].writes(native_uri):  # both names would stay
                raise NotSupported(f"{native_uri}: the source can neither rename nor remove it")
            copy = self._drafts.begin(to, to_below, to_uri, record, Expected(exists=False))
            buffer = await copy.filled()
            copied = copy.expected
            try:  # without a pending write: the old name has the content still
                await self._drafts.store(copy, to_uri, expected, to_below, buffer, keep=False)
            except Rejected as error:  # EINVAL of rename(2) means to mv(1) that a directory would go into itself
                raise NotSupported(str(error)) from None
            await self._writer.names.remove(source, native_uri, copied, below)
            return copy.record
        stored = source.catalog.record(to_uri)
        return self._drafts.unstored(source, to_uri, to, to_below) if stored is None else stored

    async def _target(self, rename: Rename) -> tuple[str, Expected]:
        """Return the native URI under which a rename stores a file, and the state that the source has to have there."""
        there, draft = rename.there, rename.replaced
        if there is None or (draft is not None and draft.temporary):
            record, expected = self._drafts.hidden(rename.to)
        elif draft is not None:
            record, expected = there.record, draft.expected
        else:
            record, expected = there.record, Expected() if there.record is None else there.record.state
        if record is None:
            return await self._tree.native_uri_for(rename.source, rename.to_below), Expected(exists=False)
        return record.metadata.native_uri, expected


async def _renamed_state(draft: Draft) -> Expected:
    """Return the state at the source after the rename of a draft without unsaved changes.

    A source may give the same bytes another ETag under another name: only a comparison of the bytes tells.
    """
    version = draft.expected.version
    if version is None and draft.expected.etag is not None and draft.buffer is not None:
        version = await content_digest(draft.buffer.snapshot())
    return Expected(exists=True, version=version)
