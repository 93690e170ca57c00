"""Large files that programs close under names that they do not keep: the source gets the bytes before the rename.

The kernel holds the directory during a rename, so that it has a few seconds (`HELD`). The close before has as long as
any hand-over. A program that changes such a file again, removes it, or never renames it costs the source one upload.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from bbfs.model.errors import BbfsError
from bbfs.resources.catalog.draft import Draft, Staged
from bbfs.resources.manager import ResourceManager
from bbfs.resources.writing.temporary import is_unfinished

STAGED_FROM = 1 << 20
"""Bytes of a file beyond which it is staged. A rename has the time for fewer."""


class StagedDrafts:
    """Stages the drafts of one mount, and removes from the sources what no rename needs any more."""

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
